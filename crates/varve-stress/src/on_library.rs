//! A program with the library that is killed under the rows load.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fastrand::Rng;
use varve_testbed::server::Engine;

use crate::Run;
use crate::driver::{self, Subject, Test};
use crate::embedded_store::{self, EmbeddedStore, Program};
use crate::round::Round;
use crate::settings;
use crate::store::{Outcome, SHARED};

/// What is started.
struct OnLibrary {
    program: PathBuf,
}

pub fn run(run: &mut Run) -> Result<()> {
    let program = match &run.args.program {
        Some(program) => program.clone(),
        None => embedded_store::build(run.workspace)?,
    };
    driver::run(run, &mut OnLibrary { program })
}

impl Subject for OnLibrary {
    type Process = Program;
    type Store = EmbeddedStore;

    const LOAD_DIVISOR: u32 = 2;
    const RECOVERY_DIVISOR: u32 = 4;

    fn connect(socket: &Path, id: u32, _engine: Engine) -> Outcome<EmbeddedStore> {
        EmbeddedStore::connect(socket, id)
    }

    fn spawn(&mut self, test: &mut Test) -> Result<Program> {
        let drawn = settings::draw(&mut test.run.rng, test.fixed);
        let settings: Vec<String> = drawn
            .iter()
            // The server's alone.
            .filter(|(name, value)| {
                !(["autoinc_lock_mode", "compression_default"].contains(name)
                    || *name == "open_files" && *value == 0)
            })
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let dir = match &test.disk {
            Some(disk) => disk.dir.join("db"),
            None => test.run.place.join("data"),
        };
        Program::spawn(&self.program, &dir, &test.run.place, &settings)
            .with_context(|| format!("with {}", settings.join(" ")))
    }

    fn start(&mut self, test: &mut Test) -> Result<Program> {
        let mut program = self.spawn(test)?;
        program.wait_ready()?;
        Ok(program)
    }

    fn viewed(_: &mut Rng) -> &'static [&'static str] {
        &SHARED
    }

    fn verify(&mut self, test: &mut Test, program: &Program) -> Result<()> {
        test.verify_rows::<Self>(program)
    }

    fn report(&self, test: &Test, _: &Round, restart: f64) {
        test.run.report(&format!(", restart {restart:.2} s"));
    }
}
