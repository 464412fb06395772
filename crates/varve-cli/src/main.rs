//! `varve`, the tool for a database that nobody has open.
//!
//! Exit status: 0 all is well, 1 something was found, 2 the command could not do its work.

mod check;

use std::process::ExitCode;

const USAGE: &str = "\
varve: looks after databases of the Varve storage engine

  varve check DIR    checks every file of the database in DIR, which nobody may have open; changes nothing
  varve help         prints this text

Exit status: 0 all is well, 1 something was found, 2 the command could not do its work.
";

/// How a command ended.
enum Outcome {
    Clean,
    Found,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["check", dir] => check::run(dir),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(Outcome::Clean)
        }
        _ => Err(format!("unknown arguments\n\n{USAGE}")),
    };
    match done {
        Ok(Outcome::Clean) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(1),
        Err(why) => {
            eprintln!("varve: {why}");
            ExitCode::from(2)
        }
    }
}
