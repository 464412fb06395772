//! A test that starts itself again as another process, and kills it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a child may take to do what it must do before it is killed.
const PATIENCE: Duration = Duration::from_secs(120);

/// When a child is killed: so long after it said so many lines with a word. The work that is done does not
/// depend on how busy the machine is.
pub struct Life<'a> {
    pub word: &'a str,
    pub times: usize,
    pub then: Duration,
}

/// Runs the test `child` of this binary with these environment variables, kills it (SIGKILL) at the end of
/// its life, and returns the lines that it said. A last line that the kill cut off may be among them.
pub fn run_and_kill(variables: &[(&str, &str)], life: &Life) -> Vec<String> {
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
    let said = AtomicUsize::new(0);
    std::thread::scope(|s| {
        let reader = s.spawn(|| {
            let lines = out.lines().map_while(|line| line.ok());
            let count = |line: &String| {
                let has_it = !words_from(line, &[life.word]).is_empty();
                said.fetch_add(has_it.into(), Ordering::Relaxed);
            };
            lines.inspect(count).collect()
        });
        let begun = Instant::now();
        let is_due = || said.load(Ordering::Relaxed) >= life.times || reader.is_finished();
        while !is_due() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        let was_due = is_due();
        std::thread::sleep(life.then);
        // First of all: the reader ends with the child.
        child.kill().unwrap();
        child.wait().unwrap();
        let lines = reader.join().unwrap();
        assert!(
            was_due,
            "in {PATIENCE:?} the child did less than what it should be killed after"
        );
        lines
    })
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
