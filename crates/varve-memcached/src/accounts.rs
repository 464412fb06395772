//! Who may use the server: users and passwords from a file, as memcached's `--auth-file` has them.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use subtle::ConstantTimeEq;
use varve::{Error, Result};

use crate::watched::Watched;

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

/// The accounts in a file.
pub struct Accounts(Watched<Passwords>);

impl Accounts {
    pub fn open(path: &Path) -> Result<Accounts> {
        let file = path.to_path_buf();
        let read = move || Passwords::read(&file);
        Watched::open(vec![path.into()], read).map(Accounts)
    }

    /// `warn` is told why a file that has changed is not used.
    pub fn admit(&self, login: Login<'_>, warn: impl FnOnce(&str)) -> bool {
        let warn = |why| warn(&format!("the accounts stay as they were: {why}"));
        self.0.see(warn, |passwords| passwords.admit(login))
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
