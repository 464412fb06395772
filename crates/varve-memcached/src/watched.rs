//! What is read from files, and read again when they have changed: accounts, certificates.
//!
//! - **MC-9** Files that have changed are read again for the next client that comes a second or more after
//!   the last look. If one can't be read, or says something wrong, nothing changes: what was known stays so.
//!   They are read again at each look then, as what has failed need not be in the files' stamps.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use varve::{Error, Result};

/// How soon after a look at the files there is another one.
const LOOK_TIME: Duration = Duration::from_secs(1);

/// What files say.
pub struct Watched<T> {
    paths: Vec<PathBuf>,
    read: Box<dyn Fn() -> Result<T> + Send + Sync>,
    /// Held for a look at the files, which comes with a client and so waits for nothing but a disk.
    known: Mutex<Known<T>>,
}

struct Known<T> {
    what: T,
    /// The files that were read last, well or not; `None`: it was not there.
    stamps: Vec<Option<Stamp>>,
    /// Why the last reading has failed, which was told.
    failure: Option<String>,
    looked: Instant,
}

/// A file that was written anew has another one, whether it was replaced or overwritten, and one that others
/// may read now, too.
#[derive(PartialEq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    seconds: i64,
    nanoseconds: i64,
    changed_seconds: i64,
    changed_nanoseconds: i64,
}

impl Stamp {
    fn of(file: &Metadata) -> Stamp {
        Stamp {
            inode: file.ino(),
            bytes: file.len(),
            seconds: file.mtime(),
            nanoseconds: file.mtime_nsec(),
            changed_seconds: file.ctime(),
            changed_nanoseconds: file.ctime_nsec(),
        }
    }

    fn at(path: &Path) -> Option<Stamp> {
        std::fs::metadata(path).ok().as_ref().map(Stamp::of)
    }
}

impl<T> Watched<T> {
    /// # Errors
    ///
    /// Those of `read`.
    pub fn open(
        paths: Vec<PathBuf>,
        read: impl Fn() -> Result<T> + Send + Sync + 'static,
    ) -> Result<Watched<T>> {
        // Before the files are read: what is written meanwhile has another stamp.
        let stamps = paths.iter().map(|path| Stamp::at(path)).collect();
        let known = Known {
            what: read()?,
            stamps,
            failure: None,
            looked: Instant::now(),
        };
        Ok(Watched {
            paths,
            read: Box::new(read),
            known: Mutex::new(known),
        })
    }

    /// Hands to `see` what the files say. `warn` is told why those that have changed are not used, once for
    /// each reason.
    pub fn see<R>(&self, warn: impl FnOnce(Error), see: impl FnOnce(&T) -> R) -> R {
        // Who panics has changed nothing by half.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.looked.elapsed() >= LOOK_TIME {
            known.looked = Instant::now();
            let stamps: Vec<_> = self.paths.iter().map(|path| Stamp::at(path)).collect();
            if stamps != known.stamps || known.failure.is_some() {
                known.stamps = stamps;
                let last = known.failure.take();
                match (self.read)() {
                    Ok(what) => known.what = what,
                    Err(why) => {
                        let told = known.failure.insert(why.to_string());
                        if last.as_ref() != Some(told) {
                            warn(why);
                        }
                    }
                }
            }
        }
        see(&known.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<T: Clone> Watched<T> {
        /// What is known a second later, and what is warned of.
        fn later(&self) -> (T, Option<String>) {
            let mut known = self.known.lock().unwrap();
            known.looked = known.looked.checked_sub(LOOK_TIME).unwrap();
            drop(known);
            let mut warned = None;
            let what = self.see(|why| warned = Some(why.to_string()), T::clone);
            (what, warned)
        }
    }

    /// The failure is none of the file that is watched, so only reading it again tells that it is over.
    #[test]
    fn what_could_not_be_read_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let (watched, other) = (dir.path().join("watched"), dir.path().join("other"));
        std::fs::write(&watched, "").unwrap();
        std::fs::write(&other, "first").unwrap();
        let file = other.clone();
        let read = move || {
            std::fs::read_to_string(&file).map_err(|e| Error::io("read", "the other file", e))
        };
        let files = Watched::open(vec![watched.clone()], read).unwrap();
        std::fs::remove_file(&other).unwrap();
        std::fs::create_dir(&other).unwrap();
        assert_eq!(files.later(), ("first".into(), None));
        std::fs::write(&watched, "it has changed").unwrap();
        let (what, warned) = files.later();
        assert_eq!(what, "first");
        assert!(warned.unwrap().contains("the other file"));
        // Nobody is told twice.
        assert_eq!(files.later(), ("first".into(), None));
        std::fs::remove_dir(&other).unwrap();
        let (what, warned) = files.later();
        assert_eq!(what, "first");
        assert!(warned.is_some(), "it is another reason");
        std::fs::write(&other, "second").unwrap();
        assert_eq!(files.later(), ("second".into(), None));
    }

    #[test]
    fn who_may_read_a_file_is_in_its_stamp() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        let before = Stamp::at(file.path());
        // Clocks of files tick more slowly than others.
        std::thread::sleep(Duration::from_millis(50));
        let mode = std::fs::Permissions::from_mode(0o444);
        std::fs::set_permissions(file.path(), mode).unwrap();
        assert!(Stamp::at(file.path()) != before);
    }
}
