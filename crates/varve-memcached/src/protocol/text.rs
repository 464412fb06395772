//! The text protocol: a line of words, and for some commands a value behind it.

use bytes::BytesMut;
use memchr::memchr;

use super::numbers::{signed, unsigned, unsigned_32};
use super::{
    Ask, Limits, MOST_KEY_BYTES, MOST_KEYS_BYTES, MOST_LINE_BYTES, Read, Step, VERSION, meta,
    put_number,
};
use crate::decide::{Decision, Status};
use crate::item::{ItemRef, expiry};
use crate::request::{Mode, Request, Verb};

pub const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";
pub const BAD_VALUE: &str = "CLIENT_ERROR bad data chunk\r\n";
pub const TOO_LARGE: &str = "SERVER_ERROR object too large for cache\r\n";
pub const NOT_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
pub const END: &[u8] = b"END\r\n";
const BAD_EXPIRY: &str = "CLIENT_ERROR invalid exptime argument\r\n";
const ERROR: &str = "ERROR\r\n";
/// No command has more words, but those that list keys.
const MOST_WORDS: usize = 24;
/// Values can't be announced longer.
const MOST_ANNOUNCED: i64 = i32::MAX as i64 - 2;

/// The words of a line.
pub type Words<'b> =
    std::iter::Filter<std::slice::Split<'b, u8, fn(&u8) -> bool>, fn(&&'b [u8]) -> bool>;

pub fn words(line: &[u8]) -> Words<'_> {
    let is_space: fn(&u8) -> bool = |&byte| byte == b' ';
    let is_word: fn(&&[u8]) -> bool = |word| !word.is_empty();
    line.split(is_space).filter(is_word)
}

/// What is told of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tell {
    /// `get`, `gat`.
    Value,
    /// `gets`, `gats`.
    ValueAndCas,
}

/// A `get` or `gets`.
#[derive(Debug)]
pub struct Keys<'b> {
    list: &'b [u8],
    tell: Tell,
}

impl<'b> Keys<'b> {
    pub fn iter(&self) -> Words<'b> {
        words(self.list)
    }

    pub fn answer(&self, key: &[u8], item: &ItemRef<'_>, out: &mut BytesMut) {
        put_item(key, item, self.tell, out);
    }
}

fn put_item(key: &[u8], item: &ItemRef<'_>, tell: Tell, out: &mut BytesMut) {
    out.reserve(key.len() + item.value.len() + 80);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.extend_from_slice(b" ");
    put_number(item.flags, out);
    out.extend_from_slice(b" ");
    put_number(item.value.len(), out);
    if tell == Tell::ValueAndCas {
        out.extend_from_slice(b" ");
        put_number(item.cas, out);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(item.value);
    out.extend_from_slice(b"\r\n");
}

/// How a change is answered.
#[derive(Debug)]
pub struct Reply {
    /// The client said `noreply`.
    is_quiet: bool,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Stored,
    Deleted,
    Touched,
    Number,
    /// `gat`: the item, and `END` behind the last one.
    Item {
        tell: Tell,
        is_last: bool,
    },
    /// What changes no item.
    Control,
}

impl Reply {
    pub fn to_login() -> Reply {
        Reply {
            is_quiet: false,
            kind: Kind::Control,
        }
    }

    pub fn write(&self, request: &Request, decision: &Decision, out: &mut BytesMut) {
        let word = match (self.kind, decision.status) {
            (Kind::Item { tell, is_last }, _) => {
                let item = decision.item();
                item.iter()
                    .for_each(|item| put_item(&request.key, item, tell, out));
                if is_last {
                    out.extend_from_slice(END);
                }
                return;
            }
            (_, Status::NotNumeric) => NOT_NUMERIC.trim_end(),
            (_, Status::TooLarge) => TOO_LARGE.trim_end(),
            (_, Status::Missing) => "NOT_FOUND",
            (_, Status::NotStored) => "NOT_STORED",
            (_, Status::Exists) => "EXISTS",
            (Kind::Stored, Status::Done) => "STORED",
            (Kind::Deleted, Status::Done) => "DELETED",
            (Kind::Touched, Status::Done) => "TOUCHED",
            (Kind::Control, Status::Done) => return self.done(out),
            (Kind::Number, Status::Done) => {
                return self.say(itoa::Buffer::new().format(decision.number), out);
            }
        };
        self.say(word, out);
    }

    pub fn done(&self, out: &mut BytesMut) {
        self.say("OK", out);
    }

    fn say(&self, word: &str, out: &mut BytesMut) {
        if !self.is_quiet {
            out.extend_from_slice(word.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// `why` is of one line then.
pub fn server_error(why: &str, out: &mut BytesMut) {
    out.extend_from_slice(b"SERVER_ERROR ");
    let line = why.bytes().map(|byte| match byte {
        b'\r' | b'\n' => b' ',
        byte => byte,
    });
    out.extend(line);
    out.extend_from_slice(b"\r\n");
}

pub fn stats(kind: &str, stats: Option<Vec<(String, String)>>, out: &mut BytesMut) {
    if kind == "reset" {
        return out.extend_from_slice(b"RESET\r\n");
    }
    let Some(stats) = stats else {
        return out.extend_from_slice(ERROR.as_bytes());
    };
    for (name, value) in stats {
        let line = format!("STAT {name} {value}\r\n");
        out.extend_from_slice(line.as_bytes());
    }
    out.extend_from_slice(END);
}

/// A line, and what follows it.
pub struct Line<'b> {
    pub bytes: &'b [u8],
    /// With its end.
    pub used: usize,
    pub rest: &'b [u8],
    /// It says `noreply`.
    is_quiet: bool,
    pub now: u32,
    pub limits: Limits,
}

impl<'b> Line<'b> {
    pub fn done(&self, ask: Ask<'b>) -> Step<'b> {
        Step::Use(self.used, ask)
    }

    pub fn say(&self, text: &str) -> Step<'b> {
        self.done(Ask::say(text))
    }

    /// `text`, if the client wants to hear of it.
    fn heard<'t>(&self, text: &'t str) -> &'t str {
        if self.is_quiet { "" } else { text }
    }

    fn tell(&self, text: &str) -> Step<'b> {
        self.say(self.heard(text))
    }

    /// The value of so many bytes behind the line, with its end. `Err`: there is none (yet).
    pub fn value(&self, bytes: usize) -> Result<&'b [u8], Step<'b>> {
        if bytes > self.limits.value_bytes {
            return Err(self.refuse(self.heard(TOO_LARGE), bytes));
        }
        let Some(value) = self.rest.get(..bytes + 2) else {
            return Err(Step::More);
        };
        match value.strip_suffix(b"\r\n") {
            Some(value) => Ok(value),
            None => {
                let used = self.used + bytes + 2;
                Err(Step::Use(used, Ask::say(self.heard(BAD_VALUE))))
            }
        }
    }

    /// Says so, and skips the value of so many bytes.
    pub fn refuse(&self, text: &str, bytes: usize) -> Step<'b> {
        self.done(Ask::Say(text.into(), bytes as u64 + 2))
    }
}

pub fn parse<'b>(bytes: &'b [u8], now: u32, limits: Limits) -> Step<'b> {
    let Some(end) = memchr(b'\n', bytes) else {
        return match bytes.len() <= MOST_LINE_BYTES || may_list_keys(bytes) {
            true => Step::More,
            false => Step::Close,
        };
    };
    let line = &bytes[..end];
    let mut line = Line {
        bytes: line.strip_suffix(b"\r").unwrap_or(line),
        used: end + 1,
        rest: &bytes[end + 1..],
        is_quiet: false,
        now,
        limits,
    };
    if line.used > MOST_LINE_BYTES && !may_list_keys(line.bytes) {
        return Step::Close;
    }
    let mut rest = words(line.bytes);
    let Some(command) = rest.next() else {
        return line.say(ERROR);
    };
    match command {
        b"get" | b"bget" => return get(&line, command, Tell::Value),
        b"gets" => return get(&line, command, Tell::ValueAndCas),
        b"gat" => return get_and_touch(&line, rest, Tell::Value),
        b"gats" => return get_and_touch(&line, rest, Tell::ValueAndCas),
        _ => {}
    }
    let words: Vec<&[u8]> = rest.take(MOST_WORDS).collect();
    if let [b'm', letter] = command {
        return meta::parse(&line, *letter, &words);
    }
    line.is_quiet = words.last() == Some(&&b"noreply"[..]);
    match command {
        b"set" => store(&line, &words, Storing::As(Mode::Set)),
        b"add" => store(&line, &words, Storing::As(Mode::Add)),
        b"replace" => store(&line, &words, Storing::As(Mode::Replace)),
        b"append" => store(&line, &words, Storing::As(Mode::Append)),
        b"prepend" => store(&line, &words, Storing::As(Mode::Prepend)),
        b"cas" => store(&line, &words, Storing::IfSame),
        b"incr" => add(&line, &words, Verb::Increment),
        b"decr" => add(&line, &words, Verb::Decrement),
        b"delete" => delete(&line, &words),
        b"touch" => touch(&line, &words),
        _ => control(&line, command, &words),
    }
}

/// What stands behind a word of a line.
pub fn behind<'b>(line: &'b [u8], word: &'b [u8]) -> &'b [u8] {
    let begin = word.as_ptr() as usize - line.as_ptr() as usize;
    &line[begin + word.len()..]
}

/// Whether the line may become a long one.
fn may_list_keys(bytes: &[u8]) -> bool {
    let spaces = bytes.iter().take_while(|&&byte| byte == b' ').count();
    let text = &bytes[spaces..];
    bytes.len() <= MOST_KEYS_BYTES && (text.starts_with(b"get ") || text.starts_with(b"gets "))
}

fn is_key(word: &[u8]) -> bool {
    word.len() <= MOST_KEY_BYTES
}

fn get<'b>(line: &Line<'b>, command: &'b [u8], tell: Tell) -> Step<'b> {
    let list = behind(line.bytes, command);
    let keys = Keys { list, tell };
    if keys.iter().next().is_none() {
        return line.say(ERROR);
    }
    match keys.iter().all(is_key) {
        true => line.done(Ask::Read(Read::Text(keys))),
        false => line.say(BAD_FORMAT),
    }
}

fn get_and_touch<'b>(line: &Line<'b>, mut words: Words<'b>, tell: Tell) -> Step<'b> {
    let expires = words.next();
    let keys: Vec<&[u8]> = words.collect();
    let Some(expires) = expires.filter(|_| !keys.is_empty()) else {
        return line.say(ERROR);
    };
    let Some(expires) = signed(expires) else {
        return line.say(BAD_EXPIRY);
    };
    if !keys.iter().all(|key| is_key(key)) {
        return line.say(BAD_FORMAT);
    }
    let changes = keys.iter().enumerate().map(|(n, key)| {
        let is_last = n + 1 == keys.len();
        let request = touched(line, key, expires);
        (request, reply(line, Kind::Item { tell, is_last }))
    });
    line.done(Ask::Change(changes.collect()))
}

fn touched(line: &Line<'_>, key: &[u8], expires: i64) -> Request {
    Request {
        expires: Some(expiry(expires, line.now)),
        ..Request::new(Verb::Get, key)
    }
}

fn reply(line: &Line<'_>, kind: Kind) -> super::Reply {
    let is_quiet = line.is_quiet;
    super::Reply::Text(Reply { is_quiet, kind })
}

/// A command with so many words, and maybe one more, which has a key first. `Err`: it is not.
fn check<'b>(line: &Line<'b>, words: &[&[u8]], expected: usize) -> Result<(), Step<'b>> {
    if words.len() != expected && words.len() != expected + 1 {
        return Err(line.say(ERROR));
    }
    match is_key(words[0]) {
        true => Ok(()),
        false => Err(line.tell(BAD_FORMAT)),
    }
}

/// What the commands that bring a value do with it.
#[derive(Clone, Copy)]
enum Storing {
    As(Mode),
    /// `cas`.
    IfSame,
}

fn store<'b>(line: &Line<'b>, words: &[&[u8]], how: Storing) -> Step<'b> {
    let (mode, expected) = match how {
        Storing::As(mode) => (mode, 4),
        Storing::IfSame => (Mode::Set, 5),
    };
    if let Err(step) = check(line, words, expected) {
        return step;
    }
    let numbers = (unsigned_32(words[1]), signed(words[2]), signed(words[3]));
    let (Some(flags), Some(expires), Some(bytes @ 0..=MOST_ANNOUNCED)) = numbers else {
        return line.tell(BAD_FORMAT);
    };
    let cas = match how {
        Storing::As(_) => None,
        Storing::IfSame => match unsigned(words[4]) {
            Some(cas) => Some(cas),
            None => return line.tell(BAD_FORMAT),
        },
    };
    let value = match line.value(bytes as usize) {
        Ok(value) => value,
        Err(step) => return step,
    };
    let request = Request {
        value: value.to_vec(),
        flags,
        expires: Some(expiry(expires, line.now)),
        cas,
        ..Request::new(Verb::Store(mode), words[0])
    };
    let ask = Ask::change(request, reply(line, Kind::Stored));
    Step::Use(line.used + value.len() + 2, ask)
}

fn add<'b>(line: &Line<'b>, words: &[&[u8]], verb: Verb) -> Step<'b> {
    if let Err(step) = check(line, words, 2) {
        return step;
    }
    let Some(delta) = unsigned(words[1]) else {
        return line.tell("CLIENT_ERROR invalid numeric delta argument\r\n");
    };
    let request = Request {
        delta,
        ..Request::new(verb, words[0])
    };
    line.done(Ask::change(request, reply(line, Kind::Number)))
}

fn delete<'b>(line: &Line<'b>, words: &[&[u8]]) -> Step<'b> {
    match words {
        [_] | [_, b"0"] | [_, b"noreply"] | [_, b"0", b"noreply"] => {}
        [_, _] | [_, _, _] => {
            return line
                .tell("CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n");
        }
        _ => return line.say(ERROR),
    }
    if !is_key(words[0]) {
        return line.tell(BAD_FORMAT);
    }
    let request = Request::new(Verb::Delete, words[0]);
    line.done(Ask::change(request, reply(line, Kind::Deleted)))
}

fn touch<'b>(line: &Line<'b>, words: &[&[u8]]) -> Step<'b> {
    if let Err(step) = check(line, words, 2) {
        return step;
    }
    let Some(expires) = signed(words[1]) else {
        return line.tell(BAD_EXPIRY);
    };
    let request = touched(line, words[0], expires);
    line.done(Ask::change(request, reply(line, Kind::Touched)))
}

fn control<'b>(line: &Line<'b>, command: &[u8], words: &[&[u8]]) -> Step<'b> {
    match command {
        b"flush_all" if words.len() <= 2 => {
            let delay = match words {
                [] | [b"noreply"] => Some(0),
                [delay, ..] => signed(delay),
            };
            let Some(delay) = delay else {
                return line.tell(BAD_EXPIRY);
            };
            let at = expiry(delay.max(0), line.now);
            let delay = at.saturating_sub(line.now);
            line.done(Ask::FlushAll(delay, reply(line, Kind::Control)))
        }
        b"version" => line.say(&format!("VERSION {VERSION}\r\n")),
        b"quit" => line.done(Ask::Quit(Vec::new())),
        b"verbosity" if (1..=2).contains(&words.len()) => {
            // It says what the server's log has. The log here is the engine's, which no client changes.
            match unsigned_32(words[0]) {
                Some(_) => line.tell("OK\r\n"),
                None => line.tell(BAD_FORMAT),
            }
        }
        b"stats" => statistics(line, words),
        b"shutdown" => line.say("ERROR: shutdown not enabled\r\n"),
        // A browser that was led here.
        _ if words.last().is_some_and(|word| word.starts_with(b"HTTP/")) => Step::Close,
        _ => line.say(ERROR),
    }
}

/// What stands behind the kind means nothing, but for `detail`.
fn statistics<'b>(line: &Line<'b>, words: &[&[u8]]) -> Step<'b> {
    match words {
        // Nothing is counted by the beginnings of keys, whatever is asked for.
        [b"detail", b"on" | b"off", ..] => line.say("OK\r\n"),
        [b"detail", b"dump", ..] => line.say("END\r\n"),
        [b"detail", ..] => line.say("CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
        _ => {
            let kind = String::from_utf8_lossy(words.first().unwrap_or(&&b""[..]));
            line.done(Ask::Stats(kind.into_owned(), reply(line, Kind::Control)))
        }
    }
}
