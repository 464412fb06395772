//! The nightly toolchain, for what needs unstable flags. It is used if it is there; nothing is installed.

use anyhow::{Result, bail};

use varve_testbed::command::{self, Cmd};

/// The only platform of the checks that need it.
pub const HOST: &str = "x86_64-unknown-linux-gnu";

/// An error that says what is missing, if something is.
pub fn require(what: &str) -> Result<()> {
    let version = Cmd::new("rustup").args(["run", "nightly", "rustc", "--version"]);
    match command::output(version) {
        Ok(_) => Ok(()),
        Err(e) => bail!(
            "{what} needs a nightly toolchain beside the usual one: `rustup toolchain install nightly` ({e})"
        ),
    }
}

/// Requires a component of it, of which `rustup component list` says that it is installed.
pub fn require_component(what: &str, component: &str) -> Result<()> {
    require(what)?;
    let list =
        Cmd::new("rustup").args(["component", "list", "--toolchain", "nightly", "--installed"]);
    let installed = command::output(list)?;
    if installed.lines().any(|line| line.starts_with(component)) {
        return Ok(());
    }
    bail!(
        "{what} needs {component} of the nightly toolchain: `rustup component add --toolchain nightly {component}`"
    )
}

/// Its cargo.
pub fn cargo() -> Cmd {
    Cmd::new("rustup").args(["run", "nightly", "cargo"])
}
