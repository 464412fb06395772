//! memcached's own test programs, `t/*.t` of its sources, against `varve serve`, and those that need no
//! server of their own against MariaDB.
//!
//! They look for the server in the folder they run in, and find a script there that takes memcached's command
//! line (`memcached-debug`). Each test has a folder of its own, in which its servers have their databases.
//! `differences.md` says which of them are not run, which subtests of others fail, and why. Any other that
//! fails is a failure, and so is one that is listed and passes.
//!
//! Nothing is left behind: a test and each of its servers end within `PATIENCE_S`, and what they say is read
//! until the last of them has ended.

mod outcome;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use varve_testbed::command::Cmd;
use varve_testbed::workspace::{Workspace, programs_as_tested, remove_dir};

use crate::listed::listed;
use outcome::Outcome;

/// Where this is, below the root.
const FOLDER: &str = "xtask/src/memcached/own_tests";
/// Beside it.
const DIFFERENCES: &str = "differences.md";
/// What comes behind it there is of tests that are run.
const IN_PART: &str = "## Which fail in part";
/// What tests start: a server, and what starts servers.
const SCRIPTS: [&str; 2] = ["memcached-debug", "timedrun"];
/// How long a test may take, and each of its servers.
const PATIENCE_S: &str = "150";
/// Tests at the same time: they wait more than they work.
const AT_ONCE: usize = 8;
/// Those that take longest, so that they begin first.
const LONGEST: [&str; 4] = [
    "binary.t",
    "00-startup.t",
    "chunked-items.t",
    "item_size_max.t",
];

/// So many skip themselves, as they ask the server what it has, which is not there.
const SKIPPED: usize = 19;

/// Tests of the protocol that need no server of their own: one after the other, as they use the same keys.
const FOR_ANY_SERVER: [&str; 19] = [
    "binary.t",
    "binary-get.t",
    "bogus-commands.t",
    "cas.t",
    "flags.t",
    "getandtouch.t",
    "incrdecr.t",
    "issue_104.t",
    "issue_108.t",
    "issue_152.t",
    "issue_192.t",
    "issue_3.t",
    "issue_68.t",
    "issue_70.t",
    "malicious-commands.t",
    "metaget.t",
    "multiversioning.t",
    "noreply.t",
    "touch.t",
];

/// What the tests are asked otherwise: one that ends where the server keeps what memcached would throw away.
const AMENDED: [(&str, &str, &str); 1] = [(
    "binary.t",
    "    ok($@->too_big, \"Was too big\");\n    $empty->('toobig');\n",
    "    ok($@->too_big, \"Was too big\");\n    $mc->delete('toobig');\n",
)];

/// Runs all tests. Returns how many there are that passed, but for subtests that are listed.
pub fn check(workspace: &Workspace, programs: &Path) -> Result<u32> {
    let tests = Tests::new(workspace, programs, Servers::Own)?;
    let known = &tests.known;
    for test in known.left_out.iter().chain(known.failing.keys()) {
        ensure!(
            tests.all.contains(test),
            "{DIFFERENCES}: there is no {test}"
        );
    }
    let names = tests.all.difference(&known.left_out).cloned().collect();
    tests.check(names, AT_ONCE)
}

/// The same for those tests that need no server of their own, of the one that listens on this port.
pub fn check_running(workspace: &Workspace, programs: &Path, port: u16) -> Result<u32> {
    let tests = Tests::new(workspace, programs, Servers::Running(port))?;
    tests.check(FOR_ANY_SERVER.map(String::from).to_vec(), 1)
}

fn tell(outcomes: &BTreeMap<String, Outcome>) {
    let count = |is: fn(&Outcome) -> bool| outcomes.values().filter(|o| is(o)).count();
    let skipped = count(|outcome| outcome.is_skipped);
    let broken = count(|outcome| outcome.is_broken);
    let in_part = count(|outcome| !outcome.is_broken && !outcome.failed.is_empty());
    let passed = outcomes.len() - skipped - broken - in_part;
    let subtests: u32 = outcomes.values().map(|outcome| outcome.passed).sum();
    println!(
        "memcached's own tests: {passed} passed, {in_part} in part, {broken} did not end, {skipped} have skipped \
         themselves; {subtests} subtests passed"
    );
}

/// What the document says of tests.
struct Known {
    left_out: BTreeSet<String>,
    /// The subtests that fail.
    failing: BTreeMap<String, BTreeSet<u32>>,
}

impl Known {
    fn read(document: &str) -> Result<Known> {
        let (left_out, in_part) = (document.split_once(IN_PART))
            .with_context(|| format!("{DIFFERENCES} has no line {IN_PART:?}"))?;
        let mut failing: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for name in listed(in_part) {
            let Some((test, numbers)) = name.split_once(' ') else {
                bail!("{DIFFERENCES}: {name} says of no subtest that it fails");
            };
            let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
            let numbers = first.parse::<u32>()?..=last.parse::<u32>()?;
            failing.entry(test.into()).or_default().extend(numbers);
        }
        Ok(Known {
            left_out: listed(left_out),
            failing,
        })
    }
}

/// What the tests ask.
#[derive(Clone, Copy)]
enum Servers {
    /// Those that they start.
    Own,
    /// The one on a port.
    Running(u16),
}

struct Tests {
    varve: PathBuf,
    /// The scripts.
    own: PathBuf,
    dir: PathBuf,
    servers: Servers,
    all: BTreeSet<String>,
    known: Known,
}

impl Tests {
    fn new(workspace: &Workspace, programs: &Path, servers: Servers) -> Result<Tests> {
        let own = workspace.root.join(FOLDER);
        let dir = workspace.target.join("memcached-own-tests");
        remove_dir(&dir)?;
        let mut tests = Tests {
            varve: programs_as_tested(workspace)?.join("varve"),
            known: Known::read(&fs::read_to_string(own.join(DIFFERENCES))?)?,
            own,
            dir,
            servers,
            all: BTreeSet::new(),
        };
        tests.all = tests.copy(&programs.join("sources/t"))?;
        Ok(tests)
    }

    fn check(&self, names: Vec<String>, at_once: usize) -> Result<u32> {
        let outcomes = self.play(names, at_once)?;
        let mut surprises = Vec::new();
        let none = BTreeSet::new();
        for (test, outcome) in &outcomes {
            let known = self.known.failing.get(test).unwrap_or(&none);
            surprises.extend(outcome.surprises(test, known));
        }
        tell(&outcomes);
        ensure!(
            surprises.is_empty(),
            "memcached's own tests are not as {DIFFERENCES} has them; what they said is in {}:\n{}",
            self.dir.display(),
            surprises.join("\n")
        );
        let skipped = outcomes.values().filter(|outcome| outcome.is_skipped);
        let skipped = skipped.count();
        let expected = match self.servers {
            Servers::Own => SKIPPED,
            Servers::Running(_) => 0,
        };
        ensure!(
            skipped == expected,
            "{skipped} of memcached's own tests have skipped themselves, and not {expected}"
        );
        remove_dir(&self.dir)?;
        Ok((outcomes.len() - skipped) as u32)
    }

    /// Copies the tests, with what is asked otherwise. Returns their names.
    fn copy(&self, sources: &Path) -> Result<BTreeSet<String>> {
        let copy = self.dir.join("t");
        fs::create_dir_all(copy.join("lib"))?;
        for needed in ["lib/MemcachedTest.pm", "authfile"] {
            fs::copy(sources.join(needed), copy.join(needed))?;
        }
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(sources)? {
            let name = entry?.file_name().into_string();
            let name = name.ok().filter(|name| name.ends_with(".t"));
            names.extend(name);
        }
        for name in &names {
            let mut text = fs::read_to_string(sources.join(name))?;
            for (_, old, new) in AMENDED.iter().filter(|(test, ..)| test == name) {
                ensure!(text.contains(old), "{name} has no {old:?}");
                text = text.replace(old, new);
            }
            fs::write(copy.join(name), text)?;
        }
        Ok(names)
    }

    /// Runs them, so many at a time.
    fn play(&self, mut names: Vec<String>, at_once: usize) -> Result<BTreeMap<String, Outcome>> {
        let place = |name: &String| LONGEST.iter().position(|longest| longest == name);
        // The last one is taken first.
        names.sort_by_key(|name| std::cmp::Reverse(place(name).unwrap_or(LONGEST.len())));
        let left = Mutex::new(names);
        let done = Mutex::new(Ok(BTreeMap::new()));
        thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    let next = || left.lock().expect("nobody panics").pop();
                    while let Some(name) = next() {
                        let outcome = self.play_one(&name);
                        let mut done = done.lock().expect("nobody panics");
                        match (&mut *done, outcome) {
                            (Ok(outcomes), Ok(outcome)) => drop(outcomes.insert(name, outcome)),
                            (Err(_), _) => {}
                            (_, Err(error)) => *done = Err(error.context(name)),
                        }
                    }
                });
            }
        });
        done.into_inner().expect("nobody panics")
    }

    fn play_one(&self, name: &str) -> Result<Outcome> {
        let dir = self.dir.join(name);
        let databases = dir.join("databases");
        fs::create_dir_all(&databases)?;
        for script in SCRIPTS {
            symlink(self.own.join(script), dir.join(script))?;
        }
        symlink(self.dir.join("t"), dir.join("t"))?;
        // In the foreground, so that Ctrl-C reaches it. Servers that it leaves then end by themselves.
        let test = Cmd::new("timeout")
            .args(["--foreground", PATIENCE_S, "perl", "-It/lib"])
            .arg(format!("-I{}", self.own.display()))
            .arg("-MAdapted")
            .arg(format!("t/{name}"))
            .env("VARVE", &self.varve)
            .env("VARVE_DATABASES", &databases)
            .env("VARVE_PATIENCE_S", PATIENCE_S)
            .dir(&dir);
        let test = match self.servers {
            Servers::Own => test,
            Servers::Running(port) => {
                empty(port)?;
                test.env("T_MEMD_USE_DAEMON", format!("127.0.0.1:{port}"))
            }
        };
        let output = test.into_inner().output().context("timeout, or perl")?;
        write(&dir, &output)?;
        // Nobody has them open any more.
        remove_dir(&databases)?;
        Ok(Outcome::of(&output))
    }
}

/// Deletes what the test before has left, and forgets what it has counted.
fn empty(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"stats reset\r\nflush_all\r\nquit\r\n")?;
    let mut told = String::new();
    stream.read_to_string(&mut told)?;
    ensure!(told == "RESET\r\nOK\r\n", "flush_all: {told}");
    Ok(())
}

/// For who wants to know why it failed.
fn write(dir: &Path, output: &Output) -> Result<()> {
    fs::write(dir.join("stdout"), &output.stdout)?;
    fs::write(dir.join("stderr"), &output.stderr)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_understood() {
        let document =
            "# T\n| `a.t`, `b.t` | x |\n## Which fail in part\n| `c.t 1`, `c.t 3-5` | y |\n";
        let known = Known::read(document).unwrap();
        assert_eq!(
            known.left_out,
            BTreeSet::from(["a.t", "b.t"].map(String::from))
        );
        let expected = BTreeMap::from([("c.t".to_string(), BTreeSet::from([1, 3, 4, 5]))]);
        assert_eq!(known.failing, expected);
        assert!(Known::read("| `a.t` | x |").is_err());
        assert!(Known::read("## Which fail in part\n| `a.t` | x |").is_err());
    }
}
