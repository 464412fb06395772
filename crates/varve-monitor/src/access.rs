//! Who is answered (MON-1, MON-2).
//!
//! A browser sends requests of another site's page where the site's name leads, and that may be a loopback
//! address by then: DNS rebinding. The request has that name in `Host`, so only loopback addresses and
//! `localhost` are taken there, with any port: it may come through a tunnel.
//!
//! A token is shown as `Authorization: Bearer …`, or once in `/?token=…`: the answer to that sets a cookie
//! and leads to the address without the token. The cookie has a value of its own, drawn at each start:
//! browsers send cookies to every port of a machine, so that others there may see it.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hyper::header::{AUTHORIZATION, COOKIE, HOST};
use hyper::{HeaderMap, Uri};
use subtle::ConstantTimeEq;
use varve::{Error, Result};

/// How long a token may be.
const TOKEN_LENGTHS: std::ops::RangeInclusive<usize> = 16..=256;

/// May a request be answered?
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Yes,
    /// It showed the token in its address: set the cookie, lead to the address without it.
    SetCookie,
    /// It shows no token, or another one.
    NoToken,
    /// Its `Host` is none of ours.
    WrongHost,
}

pub struct Access {
    keys: Option<Keys>,
}

struct Keys {
    token: String,
    cookie_name: String,
    cookie: String,
}

impl Access {
    pub fn new(token: Option<String>, port: u16) -> Result<Access> {
        let Some(token) = token else {
            return Ok(Access { keys: None });
        };
        check_token(&token, "the monitor's token")?;
        // Monitors of one machine share its cookies.
        let cookie_name = format!("varve_monitor_{port}");
        let cookie = uuid::Uuid::new_v4().simple().to_string();
        Ok(Access {
            keys: Some(Keys {
                token,
                cookie_name,
                cookie,
            }),
        })
    }

    pub fn has_token(&self) -> bool {
        self.keys.is_some()
    }

    pub fn answer(&self, uri: &Uri, headers: &HeaderMap) -> Answer {
        if !is_ours(headers) {
            return Answer::WrongHost;
        }
        let Some(keys) = &self.keys else {
            return Answer::Yes;
        };
        if uri.path() == "/"
            && let Some(token) = parameter(uri, "token")
        {
            return match is_same(token, &keys.token) {
                true => Answer::SetCookie,
                false => Answer::NoToken,
            };
        }
        let bearer = headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
        let bearer = bearer.and_then(|v| v.strip_prefix("Bearer "));
        if bearer.is_some_and(|token| is_same(token.trim(), &keys.token)) {
            return Answer::Yes;
        }
        match keys.is_in_cookies(headers) {
            true => Answer::Yes,
            false => Answer::NoToken,
        }
    }

    /// What sets the cookie.
    pub fn set_cookie(&self) -> Option<String> {
        let keys = self.keys.as_ref()?;
        let Keys {
            cookie_name: name,
            cookie: value,
            ..
        } = keys;
        Some(format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict"))
    }
}

impl Keys {
    fn is_in_cookies(&self, headers: &HeaderMap) -> bool {
        let texts = headers
            .get_all(COOKIE)
            .iter()
            .filter_map(|v| v.to_str().ok());
        let mut pairs = texts
            .flat_map(|text| text.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, value)| name == self.cookie_name && is_same(value, &self.cookie))
    }
}

/// In a time that does not say how much of it is right.
fn is_same(given: &str, wanted: &str) -> bool {
    given.as_bytes().ct_eq(wanted.as_bytes()).into()
}

/// MON-1.
fn is_ours(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let Some(authority) = host.to_str().ok().and_then(|h| h.parse().ok()) else {
        return false;
    };
    let authority: hyper::http::uri::Authority = authority;
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = address.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    is_loopback || name.eq_ignore_ascii_case("localhost")
}

/// A parameter of the address, as it stands there.
pub fn parameter<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    let pairs = uri.query().unwrap_or_default().split('&');
    let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs.find(|(n, _)| *n == name).map(|(_, value)| value)
}

/// Reads a token, which has a file of its own.
///
/// # Errors
///
/// `Io` if it can't be read; `Invalid` if everybody may read it, or what it has is no token.
pub fn token_from_file(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let shown = path.display();
    let failed = |e| Error::io("read", path, e);
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o007 != 0 {
        let what = format!(
            "the token in {shown} is no secret: others may use the file (mode {:o})",
            mode & 0o777
        );
        return Err(Error::invalid(what));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let token = text.trim();
    check_token(token, &format!("the token in {shown}"))?;
    Ok(token.to_string())
}

/// Only characters that stand for themselves in an address.
fn check_token(token: &str, what: &str) -> Result<()> {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || b"-._~".contains(&c);
    if !TOKEN_LENGTHS.contains(&token.len()) {
        return Err(Error::invalid(format!(
            "{what} has {} characters: it may have {} to {}",
            token.len(),
            TOKEN_LENGTHS.start(),
            TOKEN_LENGTHS.end()
        )));
    }
    if !token.bytes().all(is_plain) {
        return Err(Error::invalid(format!(
            "{what} has other characters than letters, digits, `-`, `.`, `_` and `~`"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
        let lines = lines.iter().map(|(n, v)| (n.clone(), v.parse().unwrap()));
        lines.collect()
    }

    fn answer(access: &Access, uri: &'static str, lines: &[(HeaderName, &str)]) -> Answer {
        let mut all = vec![(HOST, "127.0.0.1:3480")];
        all.extend_from_slice(lines);
        access.answer(&Uri::from_static(uri), &headers(&all))
    }

    /// MON-1.
    #[test]
    fn only_our_own_hosts_are_taken() {
        let open = Access::new(None, 1).unwrap();
        let check = |host: &str| open.answer(&Uri::from_static("/"), &headers(&[(HOST, host)]));
        for ours in [
            "127.0.0.1:3480",
            "127.0.0.1",
            "localhost:1",
            "LOCALHOST",
            "[::1]:5",
        ] {
            assert_eq!(check(ours), Answer::Yes, "{ours}");
        }
        for other in [
            "evil.example:3480",
            "localhost.evil.example",
            "10.0.0.1",
            "",
            "127.0.0.1.evil.example",
        ] {
            assert_eq!(check(other), Answer::WrongHost, "MON-1: {other}");
        }
        let none = open.answer(&Uri::from_static("/"), &HeaderMap::new());
        assert_eq!(none, Answer::WrongHost);
        let mut two = headers(&[(HOST, "localhost")]);
        two.append(HOST, "evil.example".parse().unwrap());
        assert_eq!(open.answer(&Uri::from_static("/"), &two), Answer::WrongHost);
    }

    /// MON-2.
    #[test]
    fn with_a_token_nobody_gets_in_without_it() {
        let access = Access::new(Some(TOKEN.into()), 3480).unwrap();
        let bearer = |token: &str| {
            let value = format!("Bearer {token}");
            answer(&access, "/metrics", &[(AUTHORIZATION, &value)])
        };
        assert_eq!(bearer(TOKEN), Answer::Yes);
        for wrong in [
            "",
            "0123456789abcdeX",
            "0123456789abcde",
            "0123456789abcdef0",
        ] {
            assert_eq!(bearer(wrong), Answer::NoToken, "MON-2: {wrong}");
        }
        assert_eq!(answer(&access, "/", &[]), Answer::NoToken);
        assert_eq!(
            answer(&access, "/?token=0123456789abcdef", &[]),
            Answer::SetCookie
        );
        assert_eq!(
            answer(&access, "/?token=0123456789abcdee", &[]),
            Answer::NoToken
        );
        // Only there: nothing else takes it from an address.
        assert_eq!(
            answer(&access, "/metrics?token=0123456789abcdef", &[]),
            Answer::NoToken
        );
        let set = access.set_cookie().unwrap();
        let cookie = set.split(';').next().unwrap();
        assert!(!set.contains(TOKEN), "{set}");
        let both = format!("other=1; {cookie}");
        assert_eq!(answer(&access, "/", &[(COOKIE, &both)]), Answer::Yes);
        let wrong = format!("{cookie}0");
        assert_eq!(answer(&access, "/", &[(COOKIE, &wrong)]), Answer::NoToken);
        // The cookie is drawn anew.
        let again = Access::new(Some(TOKEN.into()), 3480).unwrap();
        assert_eq!(answer(&again, "/", &[(COOKIE, cookie)]), Answer::NoToken);
    }

    #[test]
    fn a_token_is_read_from_a_file_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let read = |text: &str, mode: u32| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            token_from_file(&file).map_err(|e| e.to_string())
        };
        assert_eq!(read("0123456789abcdef\n", 0o600), Ok(TOKEN.into()));
        assert_eq!(read("0123456789abcdef\n", 0o640), Ok(TOKEN.into()));
        for (text, mode, why) in [
            (
                "0123456789abcdef\n",
                0o644,
                "others may use the file (mode 644)",
            ),
            ("short\n", 0o600, "has 5 characters: it may have 16 to 256"),
            ("0123456789 abcdef", 0o600, "has other characters than"),
        ] {
            let told = read(text, mode).unwrap_err();
            assert!(told.contains(why) && told.contains("/token"), "{told}");
        }
        let gone = token_from_file(dir.path().join("none")).unwrap_err();
        assert!(gone.to_string().contains("/none"), "{gone}");
    }
}
