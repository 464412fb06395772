//! Options as memcached's own command line has them, which `daemon_memcached_option` of InnoDB's plugin
//! takes.

use std::path::PathBuf;
use std::time::Duration;

use varve::{Error, Result};

use crate::{MemcachedOptions, TlsFiles};

/// What memcached listens on if nobody says otherwise.
const PORT: u16 = 11211;
/// Those that have a value behind them.
const WITH_VALUE: &str = "ABDIPRUYabcflmnopstu";
/// What is about memcached's memory and process, and means nothing here: they are taken.
const MEANINGLESS: &str = "CLMPRbdfknruv";
const TLS_FILES: &str = "-Z needs -o ssl_chain_cert=FILE,ssl_key=FILE";
const NO_TLS: &str = "-o ssl_… needs -Z";

/// What is said about TLS, before and here.
#[derive(Default)]
struct Tls {
    is_on: bool,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    authorities: Option<PathBuf>,
}

impl MemcachedOptions {
    /// Changes what these options say, as `-p 11222 -l 127.0.0.1 -t 8 -c 5000 -I 4m`: where it listens (`-p`,
    /// `-l`, `-s`), threads (`-t`), connections (`-c`), the longest value (`-I`), memory for items in MiB
    /// (`-m`: 0 is the default, and more than there can be is as much as there can be), accounts (`-Y`), TLS
    /// (`-Z`, and `-o ssl_chain_cert=…,ssl_key=…,ssl_ca_cert=…`),
    /// `-o idle_timeout=…`. What else is about memcached's memory and process means nothing. If nobody says
    /// where to listen, that is `host`, port 11211.
    ///
    /// # Errors
    ///
    /// `Invalid` for an option that is not known, or can't be had.
    pub fn set_by_letters(&mut self, text: &str, host: &str) -> Result<()> {
        self.set(text, host)
            .map_err(|why| Error::invalid(format!("memcached's options `{text}`: {why}")))
    }

    fn set(&mut self, text: &str, host: &str) -> std::result::Result<(), String> {
        let last = self.address.take();
        let last = last.as_deref().and_then(|text| text.rsplit_once(':'));
        let mut host = last.map_or(host, |(host, _)| host).to_string();
        let mut port = last.map(|(_, port)| number(port)).transpose()?;
        let (mut says_host, mut says_none, mut sasl) = (false, false, false);
        let mut tls = Tls::of(self.tls.take());
        let mut words = text.split_whitespace();
        while let Some(word) = words.next() {
            let letters = word.strip_prefix('-').filter(|rest| !rest.is_empty());
            let letters = letters.ok_or_else(|| format!("`{word}` is no option"))?;
            for (at, letter) in letters.char_indices() {
                let rest = &letters[at + letter.len_utf8()..];
                let value = match (WITH_VALUE.contains(letter), rest) {
                    (false, _) => "",
                    (true, "") => words.next().ok_or(format!("-{letter} says nothing"))?,
                    (true, rest) => rest,
                };
                match letter {
                    'p' => {
                        port = Some(number(value)?);
                        says_none = port == Some(0);
                    }
                    'l' => {
                        host = beside_a_port(value);
                        says_host = true;
                    }
                    's' => self.socket = Some(value.into()),
                    't' => self.threads = number(value)?,
                    'c' => self.connections = number(value)?,
                    'I' => self.value_bytes = bytes(value)?,
                    'm' => self.cache_bytes = cache_bytes(value)?,
                    'Y' => self.accounts = Some(value.into()),
                    'S' => sasl = true,
                    'Z' => tls.is_on = true,
                    'o' => self.set_long(value, &mut tls)?,
                    'U' if value == "0" => {}
                    'U' => return Err("UDP is not spoken".into()),
                    'B' if value == "auto" => {}
                    letter if MEANINGLESS.contains(letter) => {}
                    letter => return Err(format!("-{letter} is not known here")),
                }
                if !value.is_empty() {
                    break;
                }
            }
        }
        let is_elsewhere = self.socket.is_some() && !says_host;
        let port = port.or((!is_elsewhere).then_some(PORT));
        let port: Option<u16> = port.filter(|_| !says_none);
        self.address = port.map(|port| format!("{host}:{port}"));
        if sasl && self.accounts.is_none() {
            return Err("-S needs a file with accounts, -Y FILE".into());
        }
        self.tls = tls.files()?;
        Ok(())
    }

    /// What stands behind `-o`.
    fn set_long(&mut self, text: &str, tls: &mut Tls) -> std::result::Result<(), String> {
        for option in text.split(',') {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let path = || Some(PathBuf::from(value));
            match name {
                "ssl_chain_cert" => tls.certificate = path(),
                "ssl_key" => tls.key = path(),
                "ssl_ca_cert" => tls.authorities = path(),
                "idle_timeout" => {
                    let seconds: u64 = number(value)?;
                    self.idle_time = (seconds > 0).then(|| Duration::from_secs(seconds));
                }
                _ => return Err(format!("-o {name} is not known here")),
            }
        }
        Ok(())
    }
}

impl Tls {
    fn of(files: Option<TlsFiles>) -> Tls {
        files.map_or_else(Tls::default, |files| Tls {
            is_on: true,
            certificate: Some(files.certificate),
            key: Some(files.key),
            authorities: files.authorities,
        })
    }

    fn files(self) -> std::result::Result<Option<TlsFiles>, &'static str> {
        if !self.is_on {
            let said = self.certificate.or(self.key).or(self.authorities);
            return said.map_or(Ok(None), |_| Err(NO_TLS));
        }
        Ok(Some(TlsFiles {
            certificate: self.certificate.ok_or(TLS_FILES)?,
            key: self.key.ok_or(TLS_FILES)?,
            authorities: self.authorities,
        }))
    }
}

/// An IPv6 address stands in brackets there.
fn beside_a_port(host: &str) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]"),
        false => host.into(),
    }
}

fn number<N: std::str::FromStr>(text: &str) -> std::result::Result<N, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is no number that it can be"))
}

/// With `k` or `m` behind it.
fn bytes(text: &str) -> std::result::Result<usize, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1 << 10),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1 << 20),
            None => (text, 1),
        },
    };
    times(digits, unit)
}

/// MiB. memcached has no bound with 0, and takes any number.
fn cache_bytes(text: &str) -> std::result::Result<usize, String> {
    let bytes = number::<usize>(text)?.saturating_mul(1 << 20);
    Ok(match bytes {
        0 => MemcachedOptions::default().cache_bytes,
        bytes => bytes.min(MemcachedOptions::MOST_CACHE_BYTES),
    })
}

fn times(text: &str, unit: usize) -> std::result::Result<usize, String> {
    let number: usize = number(text)?;
    number
        .checked_mul(unit)
        .ok_or_else(|| format!("`{text}` is too much"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> std::result::Result<MemcachedOptions, String> {
        let mut options = MemcachedOptions {
            address: None,
            ..MemcachedOptions::default()
        };
        let set = options.set_by_letters(text, "127.0.0.1");
        set.map(|()| options).map_err(|e| e.to_string())
    }

    #[test]
    fn letters_are_memcacheds() {
        let all =
            set("-p11222 -l 127.0.0.2 -vt 8 -c5000 -I 2m -m 65 -U 0 -B auto -o idle_timeout=7");
        let all = all.unwrap();
        assert_eq!(all.address.as_deref(), Some("127.0.0.2:11222"));
        let said = (all.threads, all.connections, all.value_bytes);
        assert_eq!(said, (8, 5000, 2 << 20));
        assert_eq!(all.cache_bytes, 65 << 20);
        assert_eq!(set("-m 65 -m 0").unwrap().cache_bytes, 64 << 20);
        let most = MemcachedOptions::MOST_CACHE_BYTES;
        assert_eq!(set("-m 1048577").unwrap().cache_bytes, most);
        assert_eq!(set("-m 99999999999999999").unwrap().cache_bytes, most);
        assert_eq!(all.idle_time, Some(Duration::from_secs(7)));
        assert_eq!(
            set("-l ::1").unwrap().address.as_deref(),
            Some("[::1]:11211")
        );
        let unix = set("-p 0 -s /tmp/it -I 4k -Y f -S").unwrap();
        assert_eq!((unix.address, unix.value_bytes), (None, 4096));
        assert_eq!(unix.socket, Some("/tmp/it".into()));
        let tls = set("-Z -o ssl_chain_cert=c,ssl_key=k -p 1")
            .unwrap()
            .tls
            .unwrap();
        assert_eq!((tls.certificate, tls.key), ("c".into(), "k".into()));
        // What was said before stays.
        let mut before = MemcachedOptions {
            address: Some("127.0.0.1:1".into()),
            ..MemcachedOptions::default()
        };
        before.set_by_letters("-t 2", "127.0.0.3").unwrap();
        assert_eq!(before.address.as_deref(), Some("127.0.0.1:1"));
        // A port that is free.
        let mut free = MemcachedOptions::default();
        free.set_by_letters("-c 7", "127.0.0.3").unwrap();
        assert_eq!(free.address.as_deref(), Some("127.0.0.1:0"));
        // As memcached itself.
        assert_eq!(
            set("-c 7").unwrap().address.as_deref(),
            Some("127.0.0.1:11211")
        );
        assert_eq!(set("-s /tmp/it").unwrap().address, None);
    }

    /// What was said about TLS before stays, but for what is said here.
    #[test]
    fn letters_take_no_guard_away() {
        let with = |letters: &str| {
            let mut options = MemcachedOptions {
                tls: Some(TlsFiles {
                    certificate: "c".into(),
                    key: "k".into(),
                    authorities: Some("a".into()),
                }),
                ..MemcachedOptions::default()
            };
            options.set_by_letters(letters, "").unwrap();
            let tls = options.tls.unwrap();
            (tls.certificate, tls.key, tls.authorities.unwrap())
        };
        assert_eq!(with("-t 2"), ("c".into(), "k".into(), "a".into()));
        assert_eq!(with("-Z"), ("c".into(), "k".into(), "a".into()));
        let others = with("-Z -o ssl_chain_cert=d,ssl_key=l");
        assert_eq!(others, ("d".into(), "l".into(), "a".into()));
        assert_eq!(with("-o ssl_ca_cert=b").2, std::path::Path::new("b"));
    }

    #[test]
    fn letters_that_are_none_are_told_by_name() {
        for (text, why) in [
            ("p 1", "`p` is no option"),
            ("-p", "-p says nothing"),
            ("-p 70000", "`70000` is no number"),
            ("-U 11211", "UDP is not spoken"),
            ("-x", "-x is not known here"),
            ("-B ascii", "-B is not known here"),
            ("-o slab_reassign", "-o slab_reassign is not known"),
            ("-S", "-S needs a file with accounts"),
            ("-Z", "-Z needs -o ssl_chain_cert"),
            ("-o ssl_ca_cert=a", "-o ssl_… needs -Z"),
            ("-I 99999999999999999m", "is too much"),
            ("-m 64m", "`64m` is no number"),
        ] {
            let told = set(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
