//! What client libraries make of the server: each has a script here that asks it for all that it can and
//! prints what it is told. It is run beside `varve serve` and beside memcached, and must print the same.
//!
//! The libraries are fetched into the cache; one that can't be had is skipped.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use varve_testbed::cached::made_once;
use varve_testbed::command::{self, Cmd};
use varve_testbed::workspace::{Workspace, programs_as_tested, remove_dir};

use super::START_TIME;

/// Where the scripts are, below the root.
const FOLDER: &str = "xtask/src/memcached/clients";
/// Fetches the libraries of a language.
const GET: &str = "get-clients.sh";
/// What there is of each language.
const SCRIPTS: [(&str, &[&str]); 6] = [
    (
        "python",
        &["ask_pymemcache.py", "ask_pylibmc.py", "ask_bmemcached.py"],
    ),
    ("node", &["ask_memjs.js"]),
    ("perl", &["ask_cache_memcached.pl"]),
    ("go", &["ask_gomemcache.go"]),
    ("php", &["ask_memcached.php"]),
    ("java", &["ask_spymemcached.java"]),
];

/// A server on a port, which ends with it.
struct Asked {
    process: Child,
    port: u16,
}

impl Drop for Asked {
    fn drop(&mut self) {
        // It may have ended by itself, which the script has noticed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs all scripts of which the libraries can be had. Returns how many there are.
pub fn check(workspace: &Workspace, programs: &Path) -> Result<u32> {
    let dir = workspace.target.join("memcached-clients");
    remove_dir(&dir)?;
    std::fs::create_dir_all(&dir)?;
    let asked = [ours(workspace, &dir)?, theirs(programs)?];
    let own = workspace.root.join(FOLDER);
    let mut count = 0;
    let mut differing: Vec<&str> = Vec::new();
    for (language, scripts) in SCRIPTS {
        let run = match fetch(&own, language) {
            Ok(run) => run,
            Err(error) => {
                println!("skipped: {error:#}");
                continue;
            }
        };
        for script in scripts {
            let [ours, theirs] = ask_both(&run, &own.join(script), &asked)?;
            count += 1;
            match difference(&ours, &theirs) {
                None => println!("{script}: the same"),
                Some(difference) => {
                    println!("{script}: {difference}");
                    differing.push(script);
                }
            }
        }
    }
    drop(asked);
    remove_dir(&dir)?;
    ensure!(
        differing.is_empty(),
        "clients tell it from memcached: {differing:?}"
    );
    Ok(count)
}

/// What the script prints beside each: at the same time, as it waits for items to end.
fn ask_both(run: &Path, script: &Path, asked: &[Asked; 2]) -> Result<[String; 2]> {
    let ask = |asked: &Asked| {
        let script = Cmd::new(run).arg(script);
        command::output(script.arg(asked.port.to_string()))
    };
    let [ours, theirs] = asked;
    let (ours, theirs) = thread::scope(|scope| {
        let ours = scope.spawn(|| ask(ours));
        let theirs = ask(theirs);
        (ours.join().expect("it does not panic"), theirs)
    });
    Ok([ours?, theirs?])
}

/// Returns the program that runs scripts of this language.
fn fetch(own: &Path, language: &str) -> Result<PathBuf> {
    let get = own.join(GET);
    let wanted = std::fs::read_to_string(&get)?;
    let make = |dir: &Path| command::run(Cmd::new(&get).arg(language).arg(dir));
    let dir = made_once(&format!("memcached-{language}"), &wanted, make)
        .with_context(|| format!("there are no clients in {language}"))?;
    Ok(dir.join("run"))
}

/// The first line that is not the same.
fn difference(ours: &str, theirs: &str) -> Option<String> {
    let (mut ours, mut theirs) = (ours.lines(), theirs.lines());
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => return None,
            (ours, theirs) if ours == theirs => {}
            (ours, theirs) => {
                let [ours, theirs] = [ours, theirs].map(|line| line.unwrap_or("nothing more"));
                return Some(format!("\n    ours {ours}\n  theirs {theirs}"));
            }
        }
    }
}

/// `varve serve`, which says where it listens.
fn ours(workspace: &Workspace, dir: &Path) -> Result<Asked> {
    let serve = Cmd::new(programs_as_tested(workspace)?.join("varve")).arg("serve");
    let serve = serve.arg(dir.join("data")).arg("--address=127.0.0.1:0");
    let mut process = serve.into_inner().stdout(Stdio::piped()).spawn()?;
    let stdout = process.stdout.take().context("the pipe was just made")?;
    let mut asked = Asked { process, port: 0 };
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let port = line.trim_end().rsplit(':').next();
    let port = port.and_then(|port| port.parse().ok());
    asked.port = port.with_context(|| format!("varve serve said {line:?}"))?;
    Ok(asked)
}

/// memcached.
fn theirs(programs: &Path) -> Result<Asked> {
    // Nobody else is likely to take it until the server does.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let memcached = Cmd::new(programs.join("memcached"))
        .args(["-u", "root", "-l", "127.0.0.1", "-U", "0", "-p"])
        .arg(port.to_string());
    let process = memcached.into_inner().spawn()?;
    let asked = Asked { process, port };
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if begun.elapsed() > START_TIME {
            bail!("memcached does not listen");
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_told() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        let told = |ours: &str, theirs: &str| Some(format!("\n    ours {ours}\n  theirs {theirs}"));
        assert_eq!(difference("a\nb\nc\n", "a\nx\nc\n"), told("b", "x"));
        assert_eq!(difference("a\n", "a\nb\n"), told("nothing more", "b"));
    }
}
