//! `varve`, the tool for a database that nobody has open.
//!
//! Exit status: 0 all is well, 1 something was found, 2 the command could not do its work.

mod check;
mod dump;
mod text;

use std::ffi::OsString;
use std::process::ExitCode;

const USAGE: &str = "\
varve: looks after databases of the Varve storage engine

  varve check DIR
      checks every file of the database in DIR, which nobody may have open; changes nothing

  varve dump [OPTION...] FILE.vdt
  varve dump [OPTION...] DIR SCHEMA/TABLE
      prints the rows of a table that can be read, as CSV: of its file alone and as it stands, or of the table
      of a database that nobody has open, as it is after recovery; changes nothing
      --json         one JSON object a line
      --deleted      rows that are deleted but still there, too; a first column tells
      --like FILE    with the definition of another file, of the same table or one that was made like it

  varve help
      prints this text

Exit status: 0 all is well, 1 something was found, 2 the command could not do its work.
";

/// How a command ended.
enum Outcome {
    Clean,
    Found,
}

fn run(args: &[&str]) -> Result<Outcome, String> {
    match args {
        ["check", dir] => check::run(dir),
        ["dump", rest @ ..] => dump::Request::parse(rest).and_then(dump::run),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(Outcome::Clean)
        }
        _ => Err(format!("unknown arguments\n\n{USAGE}")),
    }
}

fn main() -> ExitCode {
    let args = std::env::args_os().skip(1).map(OsString::into_string);
    let done = match args.collect::<Result<Vec<_>, _>>() {
        Ok(args) => run(&args.iter().map(String::as_str).collect::<Vec<_>>()),
        Err(other) => Err(format!("{} is not UTF-8", other.display())),
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
