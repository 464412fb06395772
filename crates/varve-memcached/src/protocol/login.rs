//! How a client says who it is: by SASL's mechanism PLAIN (RFC 4616) in the binary protocol, and in the text
//! protocol by a `set` whose value is user and password with a space between, as memcached's
//! `doc/protocol.txt` describes it.
//!
//! - **MC-8** Where clients have to say who they are, one that has not reaches no item, and is told nothing
//!   but how to say it, the version, and that it failed. It takes no more than `MOST_BYTES` meanwhile, and
//!   no longer than `LOGIN_TIME`: its place is another's then.

use memchr::memchr;

use super::numbers::unsigned_32;
use super::text::{self, words};
use super::{Ask, MOST_LINE_BYTES, Reply, Step};
use crate::accounts::Login;

/// Nobody needs more to say who he is.
pub const MOST_BYTES: usize = MOST_LINE_BYTES;
/// SASL's mechanisms that are understood.
pub const PLAIN: &[u8] = b"PLAIN";
pub const WELCOME: &[u8] = b"STORED\r\n";
pub const REJECTED: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
const UNKNOWN: &str = "CLIENT_ERROR unauthenticated\r\n";
const NO_END: &str = "CLIENT_ERROR bad command line termination\r\n";
const NO_PASSWORD: &str = "CLIENT_ERROR bad authentication token format\r\n";

/// What SASL's message says. `None`: it is none that is understood.
pub fn plain<'b>(mechanism: &[u8], message: &'b [u8]) -> Option<Login<'b>> {
    if mechanism != PLAIN {
        return None;
    }
    // Whom he acts as, who he is, his password.
    let mut parts = message.splitn(3, |&byte| byte == 0).skip(1);
    let (user, password) = (parts.next()?, parts.next()?);
    Some(Login { user, password })
}

/// The first request of a client of the text protocol.
pub fn parse(bytes: &[u8]) -> Step<'_> {
    let end = memchr(b'\n', bytes);
    if end.unwrap_or(bytes.len()) > MOST_BYTES {
        return Step::Close;
    }
    let Some(end) = end else {
        return Step::More;
    };
    let line = &bytes[..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (used, rest) = (end + 1, &bytes[end + 1..]);
    let said = |text: &str| Ask::Say(text.into(), 0);
    // The key, flags and time are anything.
    let mut said_words = words(line);
    let is_set = said_words.next() == Some(b"set");
    let Some(length) = said_words.nth(3).filter(|_| is_set).and_then(unsigned_32) else {
        return Step::Use(used, said(UNKNOWN));
    };
    let length = length as usize;
    if length > MOST_BYTES {
        return Step::Close;
    }
    let Some(value) = rest.get(..length + 2) else {
        return Step::More;
    };
    let used = used + value.len();
    let Some(value) = value.strip_suffix(b"\r\n") else {
        return Step::Use(used, said(NO_END));
    };
    let mut value = words(value);
    let ask = match (value.next(), value.next()) {
        (Some(user), Some(password)) => {
            let reply = Reply::Text(text::Reply::to_login());
            Ask::Login(Some(Login { user, password }), reply)
        }
        _ => said(NO_PASSWORD),
    };
    Step::Use(used, ask)
}
