//! The three protocols: what bytes ask for, and how answers are written.
//!
//! `parse` is given all bytes that have come and are not used yet. It keeps nothing between two calls, so a
//! request that is not there whole is parsed again when more has come. The length of a line and of a value is
//! bounded (MC-4): what announces more is refused before it is there, and skipped as it comes.

mod binary;
mod login;
mod meta;
mod numbers;
mod text;

use bytes::BytesMut;

use crate::accounts::Login;
use crate::decide::Decision;
use crate::item::ItemRef;
use crate::request::Request;

/// Longer keys are refused.
pub const MOST_KEY_BYTES: usize = 250;
/// Longer lines end the connection, but those that ask for many keys.
pub const MOST_LINE_BYTES: usize = 2048;
/// No line may be longer than this.
pub const MOST_KEYS_BYTES: usize = 1 << 20;
pub const VERSION: &str = concat!("1.6.18-varve-", env!("CARGO_PKG_VERSION"));

/// What a client speaks. The first byte that it sends decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// With the meta commands.
    Text,
    Binary,
}

impl Protocol {
    /// `None`: nothing has come yet.
    pub fn of(bytes: &[u8]) -> Option<Protocol> {
        bytes.first().map(|&first| match first {
            binary::REQUEST => Protocol::Binary,
            _ => Protocol::Text,
        })
    }
}

/// What the bytes say.
#[derive(Debug)]
pub enum Step<'b> {
    /// Not enough is there.
    More,
    /// So many bytes are used.
    Use(usize, Ask<'b>),
    /// They are of no protocol, or of one that can't go on.
    Close,
}

/// What a client wants.
#[derive(Debug)]
pub enum Ask<'b> {
    Read(Read<'b>),
    Change(Vec<(Request, Reply)>),
    /// To be let in. `None`: in a way that nobody understands.
    Login(Option<Login<'b>>, Reply),
    /// All items go, after so many seconds.
    FlushAll(u32, Reply),
    /// Of a kind, which may be empty.
    Stats(String, Reply),
    /// It is to be told this, and nothing else happens. As many bytes that follow belong to it.
    Say(Vec<u8>, u64),
    /// It is told this, then the connection ends.
    Quit(Vec<u8>),
}

impl<'b> Ask<'b> {
    fn say(text: impl AsRef<[u8]>) -> Ask<'b> {
        Ask::Say(text.as_ref().to_vec(), 0)
    }

    fn change(request: Request, reply: Reply) -> Ask<'b> {
        Ask::Change(vec![(request, reply)])
    }
}

/// What is asked for without a change. The bytes lie where they came in.
#[derive(Debug)]
pub enum Read<'b> {
    Text(text::Keys<'b>),
    Meta(Box<meta::Get<'b>>),
    Binary(binary::Get<'b>),
}

impl<'b> Read<'b> {
    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let (one, many) = match self {
            Read::Text(keys) => (None, Some(keys.iter())),
            Read::Meta(get) => (Some(get.key()), None),
            Read::Binary(get) => (Some(get.key), None),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// The same as a change, where the item is one that a read has to mark.
    pub fn as_change(&self) -> Option<(Request, Reply)> {
        match self {
            Read::Meta(get) => Some(get.as_change()),
            _ => None,
        }
    }

    /// Writes what is told of one key.
    pub fn answer(&self, key: &[u8], found: Option<ItemRef<'_>>, now: u32, out: &mut BytesMut) {
        match self {
            Read::Text(keys) => found.iter().for_each(|item| keys.answer(key, item, out)),
            Read::Meta(get) => get.answer(found, now, out),
            Read::Binary(get) => get.answer(found, out),
        }
    }

    /// Writes what comes after the last key.
    pub fn end(&self, out: &mut BytesMut) {
        if let Read::Text(_) = self {
            out.extend_from_slice(text::END);
        }
    }

    /// Writes that it can't be read.
    pub fn fail(&self, why: &str, out: &mut BytesMut) {
        match self {
            Read::Binary(get) => get.fail(why, out),
            _ => text::server_error(why, out),
        }
    }
}

/// How the answer to a change is written.
#[derive(Debug)]
pub enum Reply {
    Text(text::Reply),
    Meta(meta::Reply),
    Binary(binary::Reply),
}

impl Reply {
    pub fn write(&self, request: &Request, decision: &Decision, now: u32, out: &mut BytesMut) {
        match self {
            Reply::Text(reply) => reply.write(request, decision, out),
            Reply::Meta(reply) => reply.write(decision, now, out),
            Reply::Binary(reply) => reply.write(request, decision, out),
        }
    }

    /// Writes that the engine could not do it.
    pub fn fail(&self, why: &str, out: &mut BytesMut) {
        match self {
            Reply::Binary(reply) => reply.fail(why, out),
            _ => text::server_error(why, out),
        }
    }

    /// Writes that the client is let in.
    pub fn welcome(&self, out: &mut BytesMut) {
        match self {
            Reply::Binary(reply) => reply.welcome(out),
            _ => out.extend_from_slice(login::WELCOME),
        }
    }

    /// Writes that it is not.
    pub fn reject(&self, out: &mut BytesMut) {
        match self {
            Reply::Binary(reply) => reply.reject(out),
            _ => out.extend_from_slice(login::REJECTED),
        }
    }

    /// Writes that `FlushAll` is done.
    pub fn done(&self, out: &mut BytesMut) {
        match self {
            Reply::Binary(reply) => reply.done(out),
            Reply::Text(reply) => reply.done(out),
            Reply::Meta(_) => {}
        }
    }

    /// Writes statistics of a kind; `None`: there are none.
    pub fn stats(&self, kind: &str, stats: Option<Vec<(String, String)>>, out: &mut BytesMut) {
        match self {
            Reply::Binary(reply) => reply.stats(stats, out),
            _ => text::stats(kind, stats, out),
        }
    }
}

/// What a client may say.
#[derive(Clone, Copy)]
pub struct Limits {
    pub value_bytes: usize,
    pub standing: Standing,
}

/// Whether a client has said who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nobody has to.
    NotAsked,
    /// It has to, before anything else.
    Unknown,
    Known,
}

/// What the first bytes ask for.
pub fn parse<'b>(protocol: Protocol, bytes: &'b [u8], now: u32, limits: Limits) -> Step<'b> {
    match protocol {
        Protocol::Binary => binary::parse(bytes, now, limits),
        Protocol::Text if limits.standing == Standing::Unknown => login::parse(bytes),
        Protocol::Text => text::parse(bytes, now, limits),
    }
}

/// Writes a number in decimal digits.
fn put_number(number: impl itoa::Integer, out: &mut BytesMut) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        value_bytes: 100,
        standing: Standing::NotAsked,
    };

    const REQUESTS: [&[u8]; 9] = [
        b"get a b\r\n",
        b"gats 10 a b c\r\n",
        b"cas a 1 2 3 4 noreply\r\nabc\r\n",
        b"mg YQ== b k v Oxy T10\r\n",
        b"ms a 3 F1 MA C7\r\nabc\r\n",
        b"ma a N0 J1 D2 MD\r\n",
        b"delete a noreply\r\n",
        b"\x80\x01\x00\x01\x08\x00\x00\x00\x00\x00\x00\x0cany.\0\0\0\0\0\0\0\0flagtimekabc",
        b"\x80\x05\x00\x01\x14\x00\x00\x00\x00\x00\x00\x15any.\0\0\0\0\0\0\0\0delta...initial.timek",
    ];

    /// Parses until nothing more can be. Every byte is used once, and each request can be answered.
    fn parse_all(bytes: &[u8]) -> usize {
        parse_all_of(bytes, Standing::NotAsked)
    }

    fn parse_all_of(mut bytes: &[u8], standing: Standing) -> usize {
        let limits = Limits { standing, ..LIMITS };
        let protocol = Protocol::of(bytes).unwrap_or(Protocol::Text);
        let mut requests = 0;
        let mut out = BytesMut::new();
        loop {
            match parse(protocol, bytes, 1_000_000, limits) {
                Step::More | Step::Close => return requests,
                Step::Use(used, ask) => {
                    assert!(used > 0 && used <= bytes.len(), "MC-5");
                    if let Ask::Read(read) = &ask {
                        for key in read.keys() {
                            assert!((1..=MOST_KEY_BYTES).contains(&key.len()), "MC-4");
                            read.answer(key, None, 0, &mut out);
                        }
                        read.end(&mut out);
                    }
                    let is_stranger = standing == Standing::Unknown;
                    assert!(
                        !is_stranger || matches!(ask, Ask::Login(..) | Ask::Say(..) | Ask::Quit(_)),
                        "MC-8"
                    );
                    if let Ask::Change(changes) = &ask {
                        for (request, reply) in changes {
                            assert!((1..=MOST_KEY_BYTES).contains(&request.key.len()), "MC-4");
                            assert!(request.value.len() <= LIMITS.value_bytes, "MC-4");
                            let item = crate::item::Item::default();
                            let found = Some(item.by_ref());
                            let decision = crate::decide::decide(request, found, 1, 100);
                            reply.write(request, &decision, 0, &mut out);
                        }
                    }
                    bytes = &bytes[used..];
                    requests += 1;
                }
            }
        }
    }

    #[test]
    fn whole_requests_are_understood() {
        let (text, packets) = REQUESTS.split_at(7);
        assert_eq!(parse_all(&text.concat()), text.len());
        assert_eq!(parse_all(&packets.concat()), packets.len());
        for request in REQUESTS {
            for end in 1..request.len() {
                let protocol = Protocol::of(request).unwrap();
                let part = parse(protocol, &request[..end], 0, LIMITS);
                assert!(matches!(part, Step::More), "{end} of {request:?}: {part:?}");
            }
        }
    }

    proptest! {
        /// MC-5.
        #[test]
        fn any_bytes_are_parsed(bytes in vec(any::<u8>(), 0..400)) {
            parse_all(&bytes);
            parse_all_of(&bytes, Standing::Unknown);
        }

        /// Requests with some bytes that are others.
        #[test]
        fn nearly_requests_are_parsed(
            which in vec(0..REQUESTS.len(), 1..6),
            others in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        ) {
            let mut bytes = which.iter().flat_map(|&n| REQUESTS[n]).copied().collect::<Vec<u8>>();
            for (at, byte) in others {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            parse_all(&bytes);
            parse_all_of(&bytes, Standing::Unknown);
        }
    }
}
