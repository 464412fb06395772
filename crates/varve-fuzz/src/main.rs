//! Writes the seeds of all targets: `varve-fuzz DIR` makes `DIR/TARGET/seed-NNN`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs, io};

use varve_fuzz::TARGETS;

fn main() -> ExitCode {
    let Some(dir) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: varve-fuzz DIR");
        return ExitCode::FAILURE;
    };
    match write_seeds(&dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("cannot write seeds to {}: {e}", dir.display());
            ExitCode::FAILURE
        }
    }
}

fn write_seeds(dir: &std::path::Path) -> io::Result<()> {
    for target in &TARGETS {
        let dir = dir.join(target.name);
        fs::create_dir_all(&dir)?;
        for (n, seed) in (target.seeds)().iter().enumerate() {
            fs::write(dir.join(format!("seed-{n:03}")), seed)?;
        }
    }
    Ok(())
}
