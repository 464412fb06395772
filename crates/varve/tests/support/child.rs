//! A test that starts itself again as another process, and kills it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs the test `child` of this binary with these environment variables, kills it (SIGKILL) after a while, and returns the
/// lines that it said. A last line that the kill cut off may be among them.
pub fn run_and_kill(variables: &[(&str, &str)], after: Duration) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "child",
            "--exact",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || out.lines().map_while(|l| l.ok()).collect());
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

/// The child says a line, whole, to the process that started it.
pub fn say(line: &str) {
    let line = format!("{line}\n");
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

/// The words of a line from one of `first` on: the test runner writes its own before the first line.
pub fn words_from<'a>(line: &'a str, first: &[&str]) -> Vec<&'a str> {
    line.split_whitespace()
        .skip_while(|word| !first.contains(word))
        .collect()
}
