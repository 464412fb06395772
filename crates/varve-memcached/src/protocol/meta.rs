//! The meta commands: two letters, a key, and flags of one letter, some with a value. What is asked for comes
//! back in the order in which it was asked for.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::BytesMut;

use super::numbers::{signed, unsigned, unsigned_32};
use super::text::{BAD_FORMAT, Line, NOT_NUMERIC, TOO_LARGE, behind, words};
use super::{Ask, MOST_KEY_BYTES, Read, Step, put_number};
use crate::decide::{Decision, Status};
use crate::item::{ItemRef, STALE, WON, expiry};
use crate::request::{Mode, Request, Verb};

/// With the key.
const MOST_WORDS: usize = 18;
const MOST_OPAQUE_BYTES: usize = 32;
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format\r\n";
/// Whatever it is, to some of the commands.
const BAD_FLAG: &str = "CLIENT_ERROR invalid or duplicate flag\r\n";
const ERROR: &str = "ERROR\r\n";

/// A key and its flags, as they came.
#[derive(Debug)]
struct Flags<'b> {
    key: Cow<'b, [u8]>,
    /// As the client wrote it: maybe in base64.
    written_key: &'b [u8],
    is_base64: bool,
    /// The words behind the key.
    list: &'b [u8],
    value: bool,
    is_quiet: bool,
    expires: Option<u32>,
    vivify: Option<u32>,
    renew_before: Option<u32>,
    flags: u32,
    cas: Option<u64>,
    new_cas: Option<u64>,
    mode: u8,
    initial: u64,
    delta: u64,
    invalidate: bool,
    keep_key: bool,
}

/// What all answers repeat of the flags.
#[derive(Debug)]
struct Echo<'b> {
    written_key: Cow<'b, [u8]>,
    is_base64: bool,
    list: Cow<'b, [u8]>,
    value: bool,
    is_quiet: bool,
}

/// An `mg` that changes nothing.
#[derive(Debug)]
pub struct Get<'b> {
    flags: Flags<'b>,
}

/// How a change is answered.
#[derive(Debug)]
pub struct Reply {
    echo: Echo<'static>,
    verb: Verb,
}

pub fn parse<'b>(line: &Line<'b>, letter: u8, list: &[&'b [u8]]) -> Step<'b> {
    if letter == b'n' {
        return line.say("MN\r\n");
    }
    if letter == b'e' {
        return describe(line, list);
    }
    if !b"gsda".contains(&letter) || list.is_empty() {
        return line.say(ERROR);
    }
    if list[0].len() > MOST_KEY_BYTES {
        return line.say(BAD_FORMAT);
    }
    // Where the value's length stands, the flags begin a word later.
    let first_flag = if letter == b's' { 2 } else { 1 };
    let bytes = match (letter, list.get(1).and_then(|word| signed(word))) {
        (b's', Some(bytes)) if (0..i64::from(i32::MAX) - 2).contains(&bytes) => bytes as usize,
        (b's', _) => return line.say(BAD_FORMAT),
        _ => 0,
    };
    let refuse = |text: &str| match letter {
        b's' => line.refuse(text, bytes),
        _ => line.say(text),
    };
    if list.len() > MOST_WORDS {
        return line.say(match letter {
            b'g' => "CLIENT_ERROR options flags are too long\r\n",
            _ => "CLIENT_ERROR options flags too long\r\n",
        });
    }
    let flags = match flags(line, list[0], &list[first_flag..]) {
        Ok(flags) => flags,
        Err(_) if matches!(letter, b'd' | b'a') => return line.say(BAD_FLAG),
        Err(text) => return refuse(text),
    };
    match letter {
        b'g' => get(line, flags),
        b's' => store(line, flags, bytes),
        b'd' => delete(line, flags),
        _ => add(line, flags),
    }
}

/// An `me`, which has no flag but `b`.
fn describe<'b>(line: &Line<'b>, list: &[&'b [u8]]) -> Step<'b> {
    let Some((&key, rest)) = list
        .split_first()
        .filter(|(key, _)| key.len() <= MOST_KEY_BYTES)
    else {
        return line.say(BAD_FORMAT);
    };
    let is_base64 = rest.first() == Some(&&b"b"[..]);
    match flags(line, key, if is_base64 { &rest[..1] } else { &[] }) {
        Ok(flags) => read(
            line,
            Flags {
                mode: DESCRIBE,
                ..flags
            },
        ),
        Err(_) => line.say(BAD_FORMAT),
    }
}

/// The mode of an `me`, which describes an item.
const DESCRIBE: u8 = b'?';

/// `list`: the words with the flags.
fn flags<'b>(line: &Line<'b>, key: &'b [u8], list: &[&'b [u8]]) -> Result<Flags<'b>, &'static str> {
    let mut flags = Flags {
        key: key.into(),
        written_key: key,
        is_base64: false,
        list: behind(line.bytes, key),
        value: false,
        is_quiet: false,
        expires: None,
        vivify: None,
        renew_before: None,
        flags: 0,
        cas: None,
        new_cas: None,
        mode: 0,
        initial: 0,
        delta: 1,
        invalidate: false,
        keep_key: false,
    };
    // As for memcached: a flag that is none, or comes again, ends it; of other faults the last one is told.
    let mut bad = None;
    let mut note = |text| bad = Some(text);
    let mut seen = 0u128;
    for word in list {
        let (&letter, token) = word.split_first().expect("words are not empty");
        let bit = 1u128.checked_shl(letter.into()).unwrap_or(0);
        if bit == 0 || seen & bit != 0 {
            return Err("CLIENT_ERROR duplicate flag\r\n");
        }
        seen |= bit;
        let time = signed(token).map(|number| expiry(number, line.now));
        let number = unsigned(token);
        match letter {
            b'b' => match BASE64.decode(key).ok().filter(|key| !key.is_empty()) {
                Some(decoded) => (flags.key, flags.is_base64) = (decoded.into(), true),
                None => note("CLIENT_ERROR error decoding key\r\n"),
            },
            b'T' | b'N' | b'R' if time.is_none() => note(BAD_TOKEN),
            b'T' => flags.expires = time,
            b'N' => flags.vivify = time,
            b'R' => flags.renew_before = time,
            b'v' => flags.value = true,
            b'q' => flags.is_quiet = true,
            b'F' => match unsigned_32(token) {
                Some(client_flags) => flags.flags = client_flags,
                None => note(BAD_FORMAT),
            },
            b'C' | b'E' if number.is_none() => note(BAD_TOKEN),
            b'C' => flags.cas = number,
            b'E' => flags.new_cas = number,
            b'M' => match token {
                [mode] => flags.mode = *mode,
                _ => note("CLIENT_ERROR incorrect length for M token\r\n"),
            },
            b'J' => match number {
                Some(initial) => flags.initial = initial,
                None => note("CLIENT_ERROR invalid numeric initial value\r\n"),
            },
            b'D' => match number {
                Some(delta) => flags.delta = delta,
                None => note("CLIENT_ERROR invalid numeric delta value\r\n"),
            },
            b'I' => flags.invalidate = true,
            b'x' => flags.keep_key = true,
            // P and L are for proxies. Nothing is kept about uses of an item, so `u` has no meaning.
            b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'u' => {}
            b'h' | b'l' => {
                return Err(
                    "CLIENT_ERROR reads of items are not recorded here: there are no flags h and l\r\n",
                );
            }
            _ => return Err("CLIENT_ERROR invalid flag\r\n"),
        }
    }
    let opaque = |word: &&[u8]| word[0] == b'O' && word.len() > MOST_OPAQUE_BYTES;
    if bad.is_none() && list.iter().any(|word| opaque(&&**word)) {
        bad = Some("CLIENT_ERROR opaque token too long\r\n");
    }
    bad.map_or(Ok(flags), Err)
}

impl<'b> Flags<'b> {
    fn request(&self, verb: Verb) -> Request {
        Request {
            flags: self.flags,
            expires: self.expires,
            // As for memcached: to some of the commands 0 is no cas.
            cas: self.cas.filter(|&cas| cas != 0 || !takes_any_cas(verb)),
            new_cas: self.new_cas,
            vivify: self.vivify,
            may_renew: true,
            renew_before: self.renew_before,
            invalidate: self.invalidate,
            keep_key: self.keep_key,
            delta: self.delta,
            initial: self.initial,
            ..Request::new(verb, &self.key)
        }
    }

    fn reply(&self, verb: Verb) -> super::Reply {
        let echo = self.echo();
        super::Reply::Meta(Reply {
            verb,
            echo: Echo {
                written_key: echo.written_key.into_owned().into(),
                list: echo.list.into_owned().into(),
                ..echo
            },
        })
    }

    fn echo(&self) -> Echo<'b> {
        Echo {
            written_key: self.written_key.into(),
            is_base64: self.is_base64,
            list: self.list.into(),
            value: self.value,
            is_quiet: self.is_quiet,
        }
    }

    fn change(&self, verb: Verb, value: &[u8]) -> Ask<'b> {
        let request = Request {
            value: value.to_vec(),
            ..self.request(verb)
        };
        Ask::change(request, self.reply(verb))
    }
}

fn takes_any_cas(verb: Verb) -> bool {
    match verb {
        Verb::Increment | Verb::Decrement => true,
        Verb::Store(mode) => matches!(mode, Mode::Append | Mode::Prepend),
        Verb::Get | Verb::Delete => false,
    }
}

fn get<'b>(line: &Line<'b>, flags: Flags<'b>) -> Step<'b> {
    let changes = [flags.expires, flags.vivify, flags.renew_before];
    match changes.iter().any(Option::is_some) {
        true => line.done(flags.change(Verb::Get, &[])),
        false => read(line, flags),
    }
}

fn read<'b>(line: &Line<'b>, flags: Flags<'b>) -> Step<'b> {
    line.done(Ask::Read(Read::Meta(Box::new(Get { flags }))))
}

fn store<'b>(line: &Line<'b>, mut flags: Flags<'b>, bytes: usize) -> Step<'b> {
    let mode = match flags.mode {
        0 | b'S' | b's' => Mode::Set,
        b'E' | b'e' => Mode::Add,
        b'A' | b'a' => Mode::Append,
        b'P' | b'p' => Mode::Prepend,
        b'R' | b'r' => Mode::Replace,
        _ => return line.refuse("CLIENT_ERROR invalid mode for ms M token\r\n", bytes),
    };
    let value = match line.value(bytes) {
        Ok(value) => value,
        Err(step) => return step,
    };
    flags.expires = flags.expires.or(Some(0));
    let ask = flags.change(Verb::Store(mode), value);
    Step::Use(line.used + bytes + 2, ask)
}

fn delete<'b>(line: &Line<'b>, flags: Flags<'b>) -> Step<'b> {
    line.done(flags.change(Verb::Delete, &[]))
}

fn add<'b>(line: &Line<'b>, flags: Flags<'b>) -> Step<'b> {
    let verb = match flags.mode {
        0 | b'I' | b'i' | b'+' => Verb::Increment,
        b'D' | b'd' | b'-' => Verb::Decrement,
        _ => return line.say("CLIENT_ERROR invalid mode for ma M token\r\n"),
    };
    line.done(flags.change(verb, &[]))
}

impl Get<'_> {
    pub fn key(&self) -> &[u8] {
        &self.flags.key
    }

    pub fn as_change(&self) -> (Request, super::Reply) {
        (self.flags.request(Verb::Get), self.flags.reply(Verb::Get))
    }

    pub fn answer(&self, found: Option<ItemRef<'_>>, now: u32, out: &mut BytesMut) {
        match found {
            Some(item) if self.flags.mode == DESCRIBE => self.describe(&item, now, out),
            Some(item) => self.flags.echo().item(&item, now, false, out),
            None if self.flags.mode == DESCRIBE => out.extend_from_slice(b"EN\r\n"),
            None => self.flags.echo().miss(out),
        }
    }

    fn describe(&self, item: &ItemRef<'_>, now: u32, out: &mut BytesMut) {
        out.extend_from_slice(b"ME ");
        out.extend_from_slice(self.flags.written_key);
        let (left, cas, size) = (seconds_left(item, now), item.cas, item.value.len());
        let what = format!(" exp={left} cas={cas} size={size}\r\n");
        out.extend_from_slice(what.as_bytes());
    }
}

/// Until the item ends; -1: it does not.
fn seconds_left(item: &ItemRef<'_>, now: u32) -> i64 {
    match item.expires {
        0 => -1,
        at => i64::from(at) - i64::from(now),
    }
}

impl Echo<'_> {
    /// Answers an `mg` that found something. `wins`: this client is to renew it.
    fn item(&self, item: &ItemRef<'_>, now: u32, wins: bool, out: &mut BytesMut) {
        match self.value {
            true => {
                out.extend_from_slice(b"VA ");
                put_number(item.value.len(), out);
            }
            false => out.extend_from_slice(b"HD"),
        }
        self.tokens(b"Okstcf", Some(item), now, out);
        let was_won = item.marks & WON != 0 && !wins;
        for (mark, is_there) in [
            (b" Z", was_won),
            (b" X", item.marks & STALE != 0),
            (b" W", wins),
        ] {
            if is_there {
                out.extend_from_slice(mark);
            }
        }
        out.extend_from_slice(b"\r\n");
        if self.value {
            out.extend_from_slice(item.value);
            out.extend_from_slice(b"\r\n");
        }
    }

    fn miss(&self, out: &mut BytesMut) {
        if !self.is_quiet {
            self.status("EN", b"Ok", None, 0, out);
        }
    }

    fn status(
        &self,
        code: &str,
        shown: &[u8],
        item: Option<&ItemRef<'_>>,
        now: u32,
        out: &mut BytesMut,
    ) {
        out.extend_from_slice(code.as_bytes());
        self.tokens(shown, item, now, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Writes those of the flags that are `shown`.
    fn tokens(&self, shown: &[u8], item: Option<&ItemRef<'_>>, now: u32, out: &mut BytesMut) {
        for word in words(&self.list) {
            let letter = word[0];
            if !shown.contains(&letter) {
                continue;
            }
            out.extend_from_slice(b" ");
            match (letter, item) {
                (b'O', _) => out.extend_from_slice(word),
                (b'k', _) => {
                    out.extend_from_slice(b"k");
                    out.extend_from_slice(&self.written_key);
                    if self.is_base64 {
                        out.extend_from_slice(b" b");
                    }
                }
                (_, None) => out.extend_from_slice(&[letter, b'0']),
                (_, Some(item)) => {
                    out.extend_from_slice(&[letter]);
                    match letter {
                        b's' => put_number(item.value.len(), out),
                        b't' => put_number(seconds_left(item, now), out),
                        b'c' => put_number(item.cas, out),
                        _ => put_number(item.flags, out),
                    }
                }
            }
        }
    }
}

impl Reply {
    pub fn write(&self, decision: &Decision, now: u32, out: &mut BytesMut) {
        let echo = &self.echo;
        let item = decision.item();
        match (decision.status, self.verb) {
            (Status::NotNumeric, _) => out.extend_from_slice(NOT_NUMERIC.as_bytes()),
            (Status::TooLarge, _) => out.extend_from_slice(TOO_LARGE.as_bytes()),
            (Status::Missing, Verb::Get) => echo.miss(out),
            (Status::Done, Verb::Get) => {
                let item = item.expect("there is one");
                echo.item(&item, now, decision.wins, out);
            }
            (Status::Done, _) if echo.is_quiet && !decision.is_new => {}
            (Status::Done, Verb::Increment | Verb::Decrement) => {
                self.number(decision, now, out);
            }
            (Status::Done, Verb::Store(_)) => echo.status("HD", b"Okcs", item.as_ref(), now, out),
            (Status::Done, _) => echo.status("HD", b"Ok", None, now, out),
            (status, verb) => {
                let code = match status {
                    Status::Missing => "NF",
                    Status::Exists => "EX",
                    _ => "NS",
                };
                let shown: &[u8] = match verb {
                    Verb::Store(_) => b"Okc",
                    _ => b"Ok",
                };
                echo.status(code, shown, None, now, out);
            }
        }
    }

    fn number(&self, decision: &Decision, now: u32, out: &mut BytesMut) {
        let item = decision.item();
        let number = decision.number.to_string();
        match self.echo.value {
            true => {
                let code = format!("VA {}", number.len());
                self.echo.status(&code, b"Okct", item.as_ref(), now, out);
                out.extend_from_slice(number.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            false => self.echo.status("HD", b"Okct", item.as_ref(), now, out),
        }
    }
}
