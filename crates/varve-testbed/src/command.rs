//! Running programs: inherit their output, or collect it; a failure names the command and what it said.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

/// A command line under construction.
pub struct Cmd {
    inner: Command,
}

impl Cmd {
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut inner = Command::new(program);
        inner.stdin(Stdio::null());
        Self { inner }
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.inner.arg(arg);
        self
    }

    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.inner.args(args);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.inner.env(name, value);
        self
    }

    pub fn dir(mut self, dir: &Path) -> Self {
        self.inner.current_dir(dir);
        self
    }

    /// The bare command, for those who wait for it themselves.
    pub fn into_inner(self) -> Command {
        self.inner
    }

    fn line(&self) -> String {
        let words = std::iter::once(self.inner.get_program()).chain(self.inner.get_args());
        words
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn not_started(&self) -> String {
        format!(
            "cannot run `{}`",
            self.inner.get_program().to_string_lossy()
        )
    }
}

/// How one of our own programs ends: an error is told.
pub fn end(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Words as a shell takes them.
pub fn quoted(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+%@".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Runs with our own standard output and error; an error unless it succeeds.
pub fn run(mut cmd: Cmd) -> Result<()> {
    let status = cmd.inner.status().with_context(|| cmd.not_started())?;
    if !status.success() {
        bail!("`{}` ended with {status}", cmd.line());
    }
    Ok(())
}

/// Runs and returns standard output; an error, with both outputs, unless it succeeds.
pub fn output(mut cmd: Cmd) -> Result<String> {
    let output = cmd.inner.output().with_context(|| cmd.not_started())?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!(
            "`{}` ended with {}\n{}{}",
            cmd.line(),
            output.status,
            stdout,
            stderr
        );
    }
    Ok(stdout)
}

/// Runs with standard error inherited, and returns standard output; an error unless it succeeds.
pub fn output_of(mut cmd: Cmd) -> Result<String> {
    let output = cmd
        .inner
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| cmd.not_started())?;
    if !output.status.success() {
        bail!("`{}` ended with {}", cmd.line(), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs with standard error inherited, shows each line of standard output and hands it to `each`.
/// Returns whether it succeeded.
pub fn stream(mut cmd: Cmd, mut each: impl FnMut(&str)) -> Result<bool> {
    let mut child = cmd
        .inner
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| cmd.not_started())?;
    let stdout = child.stdout.take().context("the pipe was just made")?;
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        each(&line);
    }
    Ok(child.wait()?.success())
}
