//! What is read from files, and read again when they have changed: accounts, certificates.
//!
//! - **MC-9** Files that have changed are read again for the next client that comes a second or more after
//!   the last look. If one can't be read, or says something wrong, nothing changes: what was known stays so.

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
    looked: Instant,
}

/// A file that was written anew has another one, whether it was replaced or overwritten.
#[derive(PartialEq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Stamp {
    fn of(file: &Metadata) -> Stamp {
        Stamp {
            inode: file.ino(),
            bytes: file.len(),
            seconds: file.mtime(),
            nanoseconds: file.mtime_nsec(),
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
            looked: Instant::now(),
        };
        Ok(Watched {
            paths,
            read: Box::new(read),
            known: Mutex::new(known),
        })
    }

    /// Hands to `see` what the files say. `warn` is told why those that have changed are not used.
    pub fn see<R>(&self, warn: impl FnOnce(Error), see: impl FnOnce(&T) -> R) -> R {
        // Who panics has changed nothing by half.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.looked.elapsed() >= LOOK_TIME {
            known.looked = Instant::now();
            let stamps: Vec<_> = self.paths.iter().map(|path| Stamp::at(path)).collect();
            if stamps != known.stamps {
                known.stamps = stamps;
                match (self.read)() {
                    Ok(what) => known.what = what,
                    Err(why) => warn(why),
                }
            }
        }
        see(&known.what)
    }
}
