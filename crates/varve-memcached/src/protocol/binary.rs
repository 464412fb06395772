//! The binary protocol: a head of 24 bytes, then extras, key and value. Numbers are big-endian.
//!
//! | at | bytes | request | answer |
//! |---|---|---|---|
//! | 0 | 1 | 0x80 | 0x81 |
//! | 1 | 1 | operation | the same |
//! | 2 | 2 | length of the key | the same |
//! | 4 | 1 | length of the extras | the same |
//! | 6 | 2 | | status |
//! | 8 | 4 | length of extras, key and value | the same |
//! | 12 | 4 | anything | the same |
//! | 16 | 8 | cas that the item must have, or 0 | cas that it has |

use bytes::{BufMut, BytesMut};

use super::{Ask, Limits, MOST_KEY_BYTES, Read, Standing, Step, VERSION, login};
use crate::decide::{Decision, Status};
use crate::item::{ItemRef, expiry};
use crate::request::{Mode, Request, Verb};

/// The first byte of each request.
pub const REQUEST: u8 = 0x80;
const ANSWER: u8 = 0x81;
const HEAD_BYTES: usize = 24;

/// Statuses of answers, each with memcached's text.
mod status {
    pub type Failure = (u16, &'static str);
    pub const MISSING: Failure = (0x01, "Not found");
    pub const EXISTS: Failure = (0x02, "Data exists for key.");
    pub const TOO_LARGE: Failure = (0x03, "Too large.");
    pub const INVALID: Failure = (0x04, "Invalid arguments");
    pub const NOT_STORED: Failure = (0x05, "Not stored.");
    pub const NOT_NUMERIC: Failure = (0x06, "Non-numeric server-side value for incr or decr");
    pub const NOT_LET_IN: Failure = (0x20, "Auth failure.");
    pub const UNKNOWN: Failure = (0x81, "Unknown command");
    /// Its text is the engine's.
    pub const INTERNAL: u16 = 0x84;
}

/// An operation, without its quiet form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Get,
    Set,
    Add,
    Replace,
    Delete,
    Increment,
    Decrement,
    Quit,
    Flush,
    Noop,
    Version,
    GetKey,
    Append,
    Prepend,
    Stat,
    Verbosity,
    Touch,
    GetAndTouch,
    GetKeyAndTouch,
    ListMechanisms,
    Login,
    ContinueLogin,
}

/// The operation, and whether its nominal answer is left out.
fn operation(code: u8) -> Option<(Operation, bool)> {
    use Operation::*;
    let operation = match code {
        0x00 | 0x09 => Get,
        0x01 | 0x11 => Set,
        0x02 | 0x12 => Add,
        0x03 | 0x13 => Replace,
        0x04 | 0x14 => Delete,
        0x05 | 0x15 => Increment,
        0x06 | 0x16 => Decrement,
        0x07 | 0x17 => Quit,
        0x08 | 0x18 => Flush,
        0x0a => Noop,
        0x0b => Version,
        0x0c | 0x0d => GetKey,
        0x0e | 0x19 => Append,
        0x0f | 0x1a => Prepend,
        0x10 => Stat,
        0x1b => Verbosity,
        0x1c => Touch,
        0x1d | 0x1e => GetAndTouch,
        0x20 => ListMechanisms,
        0x21 => Login,
        0x22 => ContinueLogin,
        0x23 | 0x24 => GetKeyAndTouch,
        _ => return None,
    };
    let is_quiet = matches!(code, 0x09 | 0x0d | 0x11..=0x1a | 0x1e | 0x24);
    Some((operation, is_quiet))
}

/// What an answer takes over from its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    code: u8,
    operation: Operation,
    is_quiet: bool,
    anything: u32,
}

/// A read.
#[derive(Debug)]
pub struct Get<'b> {
    pub key: &'b [u8],
    reply: Reply,
}

struct Packet<'b> {
    extras: &'b [u8],
    key: &'b [u8],
    value: &'b [u8],
    cas: Option<u64>,
    reply: Reply,
    used: usize,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub fn parse<'b>(bytes: &'b [u8], now: u32, limits: Limits) -> Step<'b> {
    let Some(head) = bytes.get(..HEAD_BYTES) else {
        return Step::More;
    };
    if head[0] != REQUEST {
        return Step::Close;
    }
    let key_bytes = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let extra_bytes = usize::from(head[4]);
    let body_bytes = u32_at(head, 8) as usize;
    let known = operation(head[1]).filter(|&(operation, _)| is_known(operation, limits));
    let (operation, is_quiet) = known.unwrap_or((Operation::Noop, false));
    let reply = Reply {
        code: head[1],
        operation,
        is_quiet,
        anything: u32_at(head, 12),
    };
    let Some(value_bytes) = body_bytes.checked_sub(key_bytes + extra_bytes) else {
        return Step::Use(HEAD_BYTES, Ask::Quit(reply.failure(status::UNKNOWN)));
    };
    let is_for_strangers = known.is_some() && is_for_strangers(operation, body_bytes);
    if limits.standing == Standing::Unknown && !is_for_strangers {
        return Step::Use(HEAD_BYTES, Ask::Quit(reply.failure(status::NOT_LET_IN)));
    }
    if known.is_none() {
        let text = reply.failure(status::UNKNOWN);
        return Step::Use(HEAD_BYTES, Ask::Say(text, body_bytes as u64));
    }
    if key_bytes > MOST_KEY_BYTES || !has_form(operation, extra_bytes, key_bytes, value_bytes) {
        return Step::Use(HEAD_BYTES, Ask::Quit(reply.failure(status::INVALID)));
    }
    if value_bytes > limits.value_bytes {
        let text = reply.failure(status::TOO_LARGE);
        return Step::Use(HEAD_BYTES, Ask::Say(text, body_bytes as u64));
    }
    let Some(body) = bytes.get(HEAD_BYTES..HEAD_BYTES + body_bytes) else {
        return Step::More;
    };
    let (extras, rest) = body.split_at(extra_bytes);
    let (key, value) = rest.split_at(key_bytes);
    let packet = Packet {
        extras,
        key,
        value,
        cas: Some(u64_at(head, 16)).filter(|&cas| cas != 0),
        reply,
        used: HEAD_BYTES + body_bytes,
    };
    Step::Use(packet.used, packet.ask(now))
}

/// Nobody has to log in where nobody is asked.
fn is_known(operation: Operation, limits: Limits) -> bool {
    use Operation::*;
    let is_about_login = matches!(operation, ListMechanisms | Login | ContinueLogin);
    !is_about_login || limits.standing != Standing::NotAsked
}

/// MC-8.
fn is_for_strangers(operation: Operation, body_bytes: usize) -> bool {
    use Operation::*;
    let is = matches!(operation, ListMechanisms | Login | ContinueLogin | Version);
    is && body_bytes <= login::MOST_BYTES
}

/// Whether an operation may have parts of these lengths.
fn has_form(operation: Operation, extras: usize, key: usize, value: usize) -> bool {
    use Operation::*;
    match operation {
        Get | GetKey | Delete => extras == 0 && key > 0 && value == 0,
        Set | Add | Replace => extras == 8 && key > 0,
        Append | Prepend => extras == 0 && key > 0,
        Increment | Decrement => extras == 20 && key > 0 && value == 0,
        Touch | GetAndTouch | GetKeyAndTouch => extras == 4 && key > 0 && value == 0,
        Flush => (extras == 0 || extras == 4) && key == 0 && value == 0,
        Verbosity => extras == 4 && key == 0 && value == 0,
        Quit | Noop | Version | ListMechanisms => extras == 0 && key == 0 && value == 0,
        Login | ContinueLogin => extras == 0 && key > 0,
        Stat => extras == 0 && value == 0,
    }
}

impl<'b> Packet<'b> {
    fn ask(&self, now: u32) -> Ask<'b> {
        let time = |at| expiry(i64::from(u32_at(self.extras, at)), now);
        let change = |request: Request| Ask::change(request, super::Reply::Binary(self.reply));
        let request = |verb| Request {
            cas: self.cas,
            ..Request::new(verb, self.key)
        };
        let stored = |mode| Request {
            value: self.value.to_vec(),
            ..request(Verb::Store(mode))
        };
        let kept = |mode| Request {
            flags: u32_at(self.extras, 0),
            expires: Some(time(4)),
            ..stored(mode)
        };
        // This time says: none is made.
        let vivify = || (u32_at(self.extras, 16) != u32::MAX).then(|| time(16));
        let counted = |verb| Request {
            delta: u64_at(self.extras, 0),
            initial: u64_at(self.extras, 8),
            vivify: vivify(),
            ..request(verb)
        };
        match self.reply.operation {
            Operation::Get | Operation::GetKey => Ask::Read(Read::Binary(Get {
                key: self.key,
                reply: self.reply,
            })),
            Operation::Touch | Operation::GetAndTouch | Operation::GetKeyAndTouch => {
                change(Request {
                    expires: Some(time(0)),
                    cas: None,
                    ..request(Verb::Get)
                })
            }
            // With a cas there must be an item, whatever the operation.
            Operation::Set | Operation::Add | Operation::Replace if self.cas.is_some() => {
                change(kept(Mode::Set))
            }
            Operation::Set => change(kept(Mode::Set)),
            Operation::Add => change(kept(Mode::Add)),
            Operation::Replace => change(kept(Mode::Replace)),
            Operation::Append => change(stored(Mode::Append)),
            Operation::Prepend => change(stored(Mode::Prepend)),
            Operation::Delete => change(request(Verb::Delete)),
            Operation::Increment => change(counted(Verb::Increment)),
            Operation::Decrement => change(counted(Verb::Decrement)),
            Operation::Flush => {
                let at = if self.extras.is_empty() { 0 } else { time(0) };
                let reply = super::Reply::Binary(self.reply);
                Ask::FlushAll(at.saturating_sub(now), reply)
            }
            // Nothing is counted by the beginnings of keys, whatever is asked for.
            Operation::Stat if matches!(self.key, b"detail on" | b"detail off") => {
                Ask::Say(self.reply.success(0, &[], &[], &[]), 0)
            }
            Operation::Stat if self.key == b"detail dump" => {
                let mut out = BytesMut::new();
                let none = vec![("detailed".into(), "END\r\n".into())];
                self.reply.stats(Some(none), &mut out);
                Ask::Say(out.to_vec(), 0)
            }
            Operation::Stat => {
                let kind = String::from_utf8_lossy(self.key).into_owned();
                Ask::Stats(kind, super::Reply::Binary(self.reply))
            }
            Operation::Version => Ask::Say(self.reply.success(0, &[], &[], VERSION.as_bytes()), 0),
            Operation::Noop | Operation::Verbosity => {
                Ask::Say(self.reply.success(0, &[], &[], &[]), 0)
            }
            Operation::ListMechanisms => Ask::Say(self.reply.success(0, &[], &[], login::PLAIN), 0),
            Operation::Login => {
                let login = login::plain(self.key, self.value);
                Ask::Login(login, super::Reply::Binary(self.reply))
            }
            // PLAIN says all at once.
            Operation::ContinueLogin => Ask::Login(None, super::Reply::Binary(self.reply)),
            Operation::Quit if self.reply.is_quiet => Ask::Quit(Vec::new()),
            Operation::Quit => Ask::Quit(self.reply.success(0, &[], &[], &[])),
        }
    }
}

impl Get<'_> {
    pub fn answer(&self, found: Option<ItemRef<'_>>, out: &mut BytesMut) {
        match found {
            Some(item) => self.reply.item(self.key, &item, out),
            None => self.reply.miss(self.key, out),
        }
    }

    pub fn fail(&self, why: &str, out: &mut BytesMut) {
        self.reply.fail(why, out);
    }
}

impl Reply {
    fn head(&self, status: u16, cas: u64, parts: [&[u8]; 3], out: &mut BytesMut) {
        let [extras, key, value] = parts;
        let body = extras.len() + key.len() + value.len();
        out.reserve(HEAD_BYTES + body);
        out.put_u8(ANSWER);
        out.put_u8(self.code);
        out.put_u16(key.len() as u16);
        out.put_u8(extras.len() as u8);
        out.put_u8(0);
        out.put_u16(status);
        out.put_u32(body as u32);
        out.put_u32(self.anything);
        out.put_u64(cas);
        parts.iter().for_each(|part| out.extend_from_slice(part));
    }

    fn success(&self, cas: u64, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut out = BytesMut::new();
        self.head(0, cas, [extras, key, value], &mut out);
        out.to_vec()
    }

    fn failure(&self, failure: status::Failure) -> Vec<u8> {
        let mut out = BytesMut::new();
        self.failed(failure, &mut out);
        out.to_vec()
    }

    fn failed(&self, (status, text): status::Failure, out: &mut BytesMut) {
        self.head(status, 0, [&[], &[], text.as_bytes()], out);
    }

    pub fn fail(&self, why: &str, out: &mut BytesMut) {
        self.failed_with(status::INTERNAL, why, out);
    }

    fn failed_with(&self, status: u16, why: &str, out: &mut BytesMut) {
        self.head(status, 0, [&[], &[], why.as_bytes()], out);
    }

    fn item(&self, key: &[u8], item: &ItemRef<'_>, out: &mut BytesMut) {
        use Operation::{GetKey, GetKeyAndTouch, Touch};
        let key = match self.operation {
            GetKey | GetKeyAndTouch => key,
            _ => &[],
        };
        let value = match self.operation {
            Touch => &[],
            _ => item.value,
        };
        self.head(0, item.cas, [&item.flags.to_be_bytes(), key, value], out);
    }

    fn miss(&self, key: &[u8], out: &mut BytesMut) {
        use Operation::{GetKey, GetKeyAndTouch};
        match self.operation {
            _ if self.is_quiet => {}
            GetKey | GetKeyAndTouch => self.head(status::MISSING.0, 0, [&[], key, &[]], out),
            _ => self.failed(status::MISSING, out),
        }
    }

    pub fn write(&self, request: &Request, decision: &Decision, out: &mut BytesMut) {
        let item = decision.item();
        let cas = item.map_or(0, |item| item.cas);
        match (decision.status, request.verb) {
            (Status::Done, Verb::Get) => {
                let item = item.expect("there is one");
                self.item(&request.key, &item, out);
            }
            (Status::Missing, Verb::Get) => self.miss(&request.key, out),
            (Status::Done, _) if self.is_quiet => {}
            (Status::Done, Verb::Increment | Verb::Decrement) => {
                let number = decision.number.to_be_bytes();
                self.head(0, cas, [&[], &[], &number], out);
            }
            (Status::Done, _) => self.head(0, cas, [&[], &[], &[]], out),
            (Status::Missing, _) => self.failed(status::MISSING, out),
            (Status::Exists, _) => self.failed(status::EXISTS, out),
            (Status::TooLarge, _) => self.failed(status::TOO_LARGE, out),
            (Status::NotNumeric, _) => self.failed(status::NOT_NUMERIC, out),
            (Status::NotStored, Verb::Store(Mode::Add)) => self.failed(status::EXISTS, out),
            (Status::NotStored, Verb::Store(Mode::Replace)) => self.failed(status::MISSING, out),
            (Status::NotStored, _) => self.failed(status::NOT_STORED, out),
        }
    }

    pub fn welcome(&self, out: &mut BytesMut) {
        self.head(0, 0, [&[], &[], b"Authenticated"], out);
    }

    pub fn reject(&self, out: &mut BytesMut) {
        self.failed(status::NOT_LET_IN, out);
    }

    pub fn done(&self, out: &mut BytesMut) {
        if !self.is_quiet {
            self.head(0, 0, [&[]; 3], out);
        }
    }

    /// Each in an answer of its own, and an empty one behind the last.
    pub fn stats(&self, stats: Option<Vec<(String, String)>>, out: &mut BytesMut) {
        let Some(stats) = stats else {
            return self.failed(status::MISSING, out);
        };
        for (name, value) in stats {
            self.head(0, 0, [&[], name.as_bytes(), value.as_bytes()], out);
        }
        self.head(0, 0, [&[]; 3], out);
    }
}
