//! A small file system that is full at times.
//!
//! The test starts itself again in a mount namespace of its own, where it may mount a `tmpfs` that nobody
//! else sees and that goes away with it; root needs no more than that, others need user namespaces. Where
//! that is not allowed the test says so, and limits the length of files instead: nobody is refused but the
//! longest file (`RLIMIT_FSIZE`, which the engine takes for a full disk, too).

use std::env;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use rustix::process::{Pid, Resource, Rlimit, geteuid, prlimit};

use crate::round::Round;
use varve_testbed::command::{self, Cmd};

const INSIDE: &str = "VARVE_STRESS_NAMESPACE";
/// Holds what the load writes with any settings, several times over.
const SIZE: &str = "384m";
/// How long after there is space again a statement may still be refused: it may have begun before.
const GRACE: Duration = Duration::from_secs(3);
/// How long nobody may get a commit through when there is space.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the disk becomes full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Means {
    /// A small file system, or else a limit
    Mount,
    /// A limit on the length of files
    Limit,
}

pub fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Does the test with these arguments where it can be done.
pub fn enter(means: Means, arguments: &[String], target: &Path) -> Result<()> {
    let unshare = || {
        let user = match geteuid().is_root() {
            true => None,
            false => Some("--map-root-user"),
        };
        let cmd = Cmd::new("unshare").args(["--mount", "--propagation", "private"]);
        cmd.args(user).arg("--")
    };
    let again = |cmd: Cmd, inside: &str| -> Result<()> {
        let own = env::current_exe().context("where is this program?")?;
        let again = cmd.arg(own).args(arguments);
        command::run(again.env(INSIDE, inside))
    };
    let try_it = ["mount", "-t", "tmpfs", "-o", "size=1m", "none"];
    match means {
        Means::Limit => {}
        Means::Mount => match command::output(unshare().args(try_it).arg(target)) {
            Ok(_) => return again(unshare(), "mount"),
            Err(error) => println!(
                "no file system can be mounted here, so the length of files is limited: {error:#}"
            ),
        },
    }
    // A process that does not ignore the signal ends where it should be refused.
    let ignore = "trap '' XFSZ; exec \"$0\" \"$@\"";
    again(Cmd::new("sh").args(["-c", ignore]), "limit")
}

pub struct Disk {
    /// Where the database is to be.
    pub dir: PathBuf,
    place: PathBuf,
    means: Means,
    /// Whose files are limited.
    process: Option<Pid>,
    is_full: bool,
}

impl Disk {
    pub fn new(place: &Path) -> Result<Self> {
        let dir = place.join("disk");
        fs::create_dir_all(&dir)?;
        let means = match env::var(INSIDE).as_deref() {
            Ok("limit") => Means::Limit,
            _ => {
                let size = format!("size={SIZE}");
                let mount = Cmd::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]);
                command::run(mount.arg(&dir))?;
                Means::Mount
            }
        };
        Ok(Self {
            dir,
            place: place.to_path_buf(),
            means,
            process: None,
            is_full: false,
        })
    }

    /// The process that works on it now.
    pub fn serve(&mut self, pid: u32) {
        self.process = Pid::from_raw(pid as i32);
        self.is_full &= self.means == Means::Mount;
    }

    fn ballast(&self) -> PathBuf {
        self.dir.join("ballast")
    }

    /// Whether this is how a process ends that starts on a full disk: it says what it lacks.
    pub fn explains(&self, error: &anyhow::Error) -> bool {
        self.is_full && format!("{error:#}").contains("no space")
    }

    fn fill(&mut self) -> Result<()> {
        self.is_full = true;
        match self.means {
            Means::Mount => self.write_ballast(),
            Means::Limit => self.limit(Some(longest_file(&self.dir)?)),
        }
    }

    fn limit(&self, bytes: Option<u64>) -> Result<()> {
        let limit = Rlimit {
            current: bytes,
            maximum: None,
        };
        prlimit(self.process, Resource::Fsize, limit)
            .context("cannot limit the length of files")?;
        Ok(())
    }

    /// Takes all the space there is.
    fn write_ballast(&self) -> Result<()> {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(self.ballast())?;
        for piece in [1 << 20, 1 << 12] {
            loop {
                match file.write(&vec![0xba; piece]) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    pub fn make_room(&mut self) -> Result<()> {
        let was_full = std::mem::take(&mut self.is_full);
        match self.means {
            Means::Mount if was_full => fs::remove_file(self.ballast())?,
            Means::Limit if was_full => self.limit(None)?,
            _ => {}
        }
        Ok(())
    }

    /// One round: work, a full disk, and at times space again and work again.
    pub fn fill_and_make_room(
        &mut self,
        rng: &mut Rng,
        round: &Round,
        alive: impl Fn() -> bool,
    ) -> Result<()> {
        let wait = |time: Duration, until: &dyn Fn() -> bool| -> Result<()> {
            let end = Instant::now() + time;
            while Instant::now() < end && !until() {
                ensure!(alive(), "a client has ended");
                thread::sleep(Duration::from_millis(2));
            }
            Ok(())
        };
        let millis = |n| Duration::from_millis(n);
        wait(millis(rng.u64(300..1500)), &|| false)?;
        for _ in 0..rng.u32(1..3) {
            round.may_be_full.store(true, Ordering::SeqCst);
            self.fill()?;
            let refused = || round.refused_for_space.load(Ordering::Relaxed);
            let before = refused();
            wait(millis(rng.u64(500..2500)), &|| false)?;
            // What others gave back is taken, too.
            self.fill()?;
            // With a limit the longest file may have pages to spare.
            if self.means == Means::Mount {
                wait(PATIENCE, &|| refused() > before)?;
                ensure!(refused() > before, "nobody was refused on a full disk");
            }
            if rng.u32(..3) == 0 {
                // The kill comes while the disk is full.
                return Ok(());
            }
            self.make_room()?;
            wait(GRACE, &|| false)?;
            round.may_be_full.store(false, Ordering::SeqCst);
            let commits = || round.commits.load(Ordering::Relaxed);
            let before = commits();
            wait(PATIENCE, &|| commits() > before + 20)?;
            if commits() <= before + 20 {
                bail!("there is space, but nobody's work goes on");
            }
        }
        Ok(())
    }

    /// After a failure: what is mounted goes away with this process.
    pub fn keep(&self) {
        let copy = Cmd::new("cp")
            .arg("-a")
            .arg(&self.dir)
            .arg(self.place.join("disk-kept"));
        let _ = command::run(copy);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.means == Means::Mount {
            // Its users are dead. If it fails, the namespace still ends with this process.
            let _ = command::run(Cmd::new("umount").arg(&self.dir));
        }
    }
}

fn longest_file(dir: &Path) -> Result<u64> {
    let mut longest = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let length = match entry.file_type()?.is_dir() {
            true => longest_file(&entry.path())?,
            // It may be gone by now.
            false => entry.metadata().map_or(0, |metadata| metadata.len()),
        };
        longest = longest.max(length);
    }
    Ok(longest)
}
