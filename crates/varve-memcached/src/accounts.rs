//! Who may use the server: users and passwords from a file, as memcached's `--auth-file` has them.
//!
//! - **MC-9** A file that has changed is read again for the next login that comes a second or more after the
//!   last look. One that can't be read, or says something wrong, changes nothing: who was known stays so.

use std::collections::HashMap;
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq;
use varve::{Error, Result};

/// What a client says to be let in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Login<'b> {
    pub user: &'b [u8],
    pub password: &'b [u8],
}

impl fmt::Debug for Login<'_> {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", String::from_utf8_lossy(self.user))
    }
}

/// How soon after a look at the file there is another one.
const LOOK_TIME: Duration = Duration::from_secs(1);

/// The accounts in a file.
pub struct Accounts {
    path: PathBuf,
    /// Held for a look at the file, which comes at a login and so waits for nothing but a disk.
    known: Mutex<Known>,
}

struct Known {
    passwords: Passwords,
    /// The file that was read last, well or not; `None`: it was not there.
    stamp: Option<Stamp>,
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

impl Accounts {
    pub fn open(path: &Path) -> Result<Accounts> {
        // Before the file is read: what is written meanwhile has another stamp.
        let stamp = Stamp::at(path);
        let known = Known {
            passwords: Passwords::read(path)?,
            stamp,
            looked: Instant::now(),
        };
        Ok(Accounts {
            path: path.into(),
            known: Mutex::new(known),
        })
    }

    /// `warn` is told why a file that has changed is not used.
    pub fn admit(&self, login: Login<'_>, warn: impl FnOnce(&str)) -> bool {
        // Who panics has changed nothing by half.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.looked.elapsed() >= LOOK_TIME {
            known.looked = Instant::now();
            let stamp = Stamp::at(&self.path);
            if stamp != known.stamp {
                known.stamp = stamp;
                match Passwords::read(&self.path) {
                    Ok(passwords) => known.passwords = passwords,
                    Err(why) => warn(&format!("the accounts stay as they were: {why}")),
                }
            }
        }
        known.passwords.admit(login)
    }
}

/// Passwords by user.
struct Passwords(HashMap<Vec<u8>, Vec<u8>>);

impl Passwords {
    /// Reads lines of the form `user:password`.
    fn read(path: &Path) -> Result<Passwords> {
        let text = std::fs::read(path)
            .map_err(|e| Error::io("read the accounts in", path.display().to_string(), e))?;
        Passwords::of(&text).map_err(|why| Error::invalid(format!("{}: {why}", path.display())))
    }

    fn of(text: &[u8]) -> std::result::Result<Passwords, String> {
        let mut accounts = HashMap::new();
        let lines = text.split(|&byte| byte == b'\n').enumerate();
        let lines = lines.map(|(n, line)| (n + 1, line.strip_suffix(b"\r").unwrap_or(line)));
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let colon = line.iter().position(|&byte| byte == b':');
            let Some(colon) = colon.filter(|&at| at > 0 && at + 1 < line.len()) else {
                return Err(format!("line {number} is not of the form user:password"));
            };
            // What ends a word of the text protocol could not be said there.
            if line.iter().any(|&byte| byte == b' ' || byte == 0) {
                return Err(format!("line {number} has a space, or a byte 0"));
            }
            let (user, password) = (&line[..colon], &line[colon + 1..]);
            if accounts.insert(user.to_vec(), password.to_vec()).is_some() {
                return Err(format!("line {number} names a user for the second time"));
            }
        }
        if accounts.is_empty() {
            return Err("there is no account".into());
        }
        Ok(Passwords(accounts))
    }

    /// How long it takes does not tell how much of a password is right.
    fn admit(&self, login: Login<'_>) -> bool {
        let password = self.0.get(login.user);
        password.is_some_and(|password| password[..].ct_eq(login.password).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_lines() {
        let accounts = Passwords::of(b"ann:secret\r\n\nbob:a:b").unwrap();
        let admits = |user: &str, password: &str| {
            accounts.admit(Login {
                user: user.as_bytes(),
                password: password.as_bytes(),
            })
        };
        assert!(admits("ann", "secret") && admits("bob", "a:b"));
        assert!(!admits("ann", "secre") && !admits("ann", "") && !admits("eve", "secret"));
    }

    #[test]
    fn what_is_no_account_is_told_by_its_line() {
        for (text, why) in [
            ("", "there is no account"),
            ("ann:x\nbob", "line 2 is not of the form user:password"),
            ("ann:", "line 1 is not"),
            (":x", "line 1 is not"),
            ("ann:a b", "line 1 has a space"),
            ("ann:x\nann:y", "line 2 names a user for the second time"),
        ] {
            let told = Passwords::of(text.as_bytes()).err().unwrap();
            assert!(told.starts_with(why), "{text}: {told}");
        }
    }
}
