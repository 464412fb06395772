//! Collations: functions that turn text into weights, whose `memcmp` order is the order of the text.
//!
//! A database has one registry, [`Collations`]. The library brings the ones below; callers register more
//! under ids below `1 << 31` (the MariaDB plugin registers the server's under the server's numbers).
//!
//! | id constant | name | order |
//! |---|---|---|
//! | `BINARY` | `binary` | bytes |
//! | `UTF8_BIN` | `utf8_nopad_bin` | Unicode code points; `'a' < 'a '` |
//! | `UTF8_BIN_PAD` | `utf8_bin` | Unicode code points, PAD SPACE: `'a' = 'a '` |
//! | `ASCII_CI` | `ascii_nopad_ci` | bytes, with `A`–`Z` as `a`–`z` |
//! | `UTF8_CI` | `utf8_nopad_simple_ci` | code points after simple lower-casing |
//!
//! `UTF8_CI` replaces every code point whose Unicode lower case is a single code point by that one, and
//! leaves all others alone: `Ä = ä`, `Σ = σ`, but `ß ≠ ss`, `İ` and `ς` stay themselves, accents count and
//! nothing is normalised. Bytes that are not UTF-8 stand for themselves in all of them.
//!
//! - **COL-1** The weights of a text never change while an index uses them. What cannot be proved is
//!   detected: a collation's fingerprint covers its name, its version and the weights of a sample, and is
//!   recorded with every key part ([`super::KeyPart::fingerprint`]).
//! - **COL-2** A tool that only looks at a database need not know its callers' collations: a registry with
//!   stand-ins lets tables be opened without them. Nothing may make keys with a stand-in
//!   (`KeyCodec::is_computable`).
//!
//! PAD SPACE: a shorter text compares as if it were filled up with spaces. `weights` leaves that out; the key
//! codec does it (see `memcmp`), from the space's weight in [`Pad::Space`].

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use crate::base::{Error, Result, fnv1a};

use super::letters::Alphabet;

/// A collation's number in a database. Numbers from `1 << 31` are the library's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollationId(pub u32);

impl CollationId {
    const OWN: u32 = 1 << 31;
    pub const BINARY: CollationId = CollationId(Self::OWN | 1);
    pub const UTF8_BIN: CollationId = CollationId(Self::OWN | 2);
    pub const UTF8_BIN_PAD: CollationId = CollationId(Self::OWN | 3);
    pub const ASCII_CI: CollationId = CollationId(Self::OWN | 4);
    pub const UTF8_CI: CollationId = CollationId(Self::OWN | 5);
}

/// The functions of a collation.
pub trait Weigh: Send + Sync {
    /// Appends the weights of `text` to `out`. Total: any bytes, valid in the character set or not.
    fn weights(&self, text: &[u8], out: &mut Vec<u8>);

    /// How many bytes the first `chars` characters of `text` take, at most `text.len()`.
    fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize;

    /// How characters are stored. If that is known, indexes may give texts back. Of a collation that indexes
    /// use it must never become another one (KEY-7).
    fn letters(&self) -> Letters {
        Letters::Unknown
    }
}

/// How a character set stores characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Letters {
    /// In any other way.
    #[default]
    Unknown,
    /// Each in one byte, those of ASCII as there.
    Bytes,
    Utf8,
}

/// How texts of different length compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pad {
    /// A text that starts another one comes before it.
    None,
    /// As if the shorter one were filled up with spaces. All weights consist of units of `unit` (1 to 4)
    /// bytes; the first `unit` bytes of `weight` are the weight of a space and of nothing that compares
    /// differently.
    Space { unit: u8, weight: [u8; 4] },
}

impl Pad {
    /// PAD SPACE where a space weighs the byte 0x20.
    pub const SPACE_BYTE: Pad = Pad::Space {
        unit: 1,
        weight: [b' ', 0, 0, 0],
    };
}

/// A collation, ready to use. Cheap to clone.
#[derive(Clone)]
pub struct Collation {
    id: CollationId,
    name: Arc<str>,
    pad: Pad,
    /// Weights are the text's own bytes: the codec need not call, and keys can be read back.
    identity: bool,
    fingerprint: u64,
    functions: Arc<dyn Weigh>,
    /// Made when an index asks for it first.
    alphabet: Arc<OnceLock<Option<Arc<Alphabet>>>>,
}

impl Collation {
    /// A collation with weights of its own. `version` names the data behind it (a Unicode version, a
    /// library's version): another version is another order.
    pub fn new(
        id: CollationId,
        name: &str,
        version: &str,
        pad: Pad,
        functions: Arc<dyn Weigh>,
    ) -> Result<Collation> {
        Self::checked(id, name, version, pad, false, functions)
    }

    /// A collation whose weights are the text's bytes; of `functions` only `prefix_bytes` is used.
    pub fn bytewise(
        id: CollationId,
        name: &str,
        pad: Pad,
        functions: Arc<dyn Weigh>,
    ) -> Result<Collation> {
        Self::checked(id, name, "bytes", pad, true, functions)
    }

    fn checked(
        id: CollationId,
        name: &str,
        version: &str,
        pad: Pad,
        identity: bool,
        functions: Arc<dyn Weigh>,
    ) -> Result<Collation> {
        if let Pad::Space { unit, .. } = pad
            && !(1..=4).contains(&unit)
        {
            return Err(Error::invalid(format!(
                "collation {name}: weights come in units of 1 to 4 bytes, not {unit}"
            )));
        }
        let mut c = Collation {
            id,
            name: name.into(),
            pad,
            identity,
            fingerprint: 0,
            functions,
            alphabet: Arc::default(),
        };
        c.fingerprint = fingerprint(&c, version);
        Ok(c)
    }

    pub fn id(&self) -> CollationId {
        self.id
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pad(&self) -> Pad {
        self.pad
    }

    /// Stands for a collation that is not known (COL-2).
    fn stand_in(id: CollationId) -> Collation {
        Collation {
            id,
            name: format!("number {}", id.0).into(),
            pad: Pad::None,
            identity: true,
            fingerprint: 0,
            functions: Arc::new(AsciiCi),
            alphabet: Arc::default(),
        }
    }

    /// COL-2.
    pub fn is_stand_in(&self) -> bool {
        self.fingerprint == 0
    }

    /// See COL-1. 0 only for a stand-in.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub fn is_bytewise(&self) -> bool {
        self.identity
    }

    /// See [`Weigh::letters`].
    pub fn letters(&self) -> Letters {
        self.functions.letters()
    }

    /// What weights say of texts; `None` if they say the whole text anyway, or nothing.
    pub(super) fn alphabet(&self) -> Option<Arc<Alphabet>> {
        if self.is_stand_in() || (self.identity && self.pad == Pad::None) {
            return None;
        }
        let alphabet = || Alphabet::of(self).map(Arc::new);
        self.alphabet.get_or_init(alphabet).clone()
    }

    /// Whether texts can be had from weights, if not all of them.
    pub fn reads_texts(&self) -> bool {
        self.identity || self.alphabet().is_some()
    }

    /// Appends the weights of `text`, without padding.
    pub fn weights(&self, text: &[u8], out: &mut Vec<u8>) {
        if self.identity {
            out.extend_from_slice(text);
        } else {
            self.functions.weights(text, out);
        }
    }

    /// The first `chars` characters of `text`.
    pub fn prefix<'a>(&self, text: &'a [u8], chars: usize) -> &'a [u8] {
        if text.len() <= chars {
            // No character set has characters of less than one byte.
            return text;
        }
        let len = self.functions.prefix_bytes(text, chars);
        &text[..len.min(text.len())]
    }
}

impl fmt::Debug for Collation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collation({} {})", self.id.0, self.name)
    }
}

/// FNV-1a over the name, the version, the padding and the weights of a sample.
fn fingerprint(c: &Collation, version: &str) -> u64 {
    let mut fed = Vec::new();
    let mut feed = |bytes: &[u8]| {
        // The length keeps adjacent parts apart.
        fed.extend((bytes.len() as u32).to_le_bytes());
        fed.extend(bytes);
    };
    feed(c.name.as_bytes());
    feed(version.as_bytes());
    if let Pad::Space { unit, weight } = c.pad {
        feed(&weight[..unit as usize]);
    }
    let mut weights = Vec::new();
    for byte in 1..=127u8 {
        c.weights(&[byte], &mut weights);
    }
    for text in [
        "Straße",
        "STRASSE",
        "Ärger",
        "ÆON",
        "éE",
        "Σίσυφος",
        "Ёж",
        "İIıi",
        "日本語",
        "😀",
        " a b ",
    ] {
        c.weights(text.as_bytes(), &mut weights);
    }
    feed(&weights);
    fnv1a(fed).max(1)
}

/// Finds a collation of the caller's by its number; `None` if there is none.
pub type FindCollation = Arc<dyn Fn(CollationId) -> Result<Option<Collation>> + Send + Sync>;

/// The collations that a database knows.
pub struct Collations {
    by_id: RwLock<HashMap<CollationId, Collation>>,
    /// Asked for numbers that are not registered, so that a caller with many need not register all of them.
    find: Option<FindCollation>,
    /// Collations that nobody knows get a stand-in (COL-2).
    stand_ins: bool,
}

impl Collations {
    /// A registry with the library's own collations.
    pub fn new() -> Collations {
        let own = own().expect("the library's collations are well formed");
        Collations {
            by_id: RwLock::new(own.into_iter().map(|c| (c.id, c)).collect()),
            find: None,
            stand_ins: false,
        }
    }

    /// As `new`, and stand-ins for all others (COL-2).
    pub fn with_stand_ins() -> Collations {
        Collations {
            stand_ins: true,
            ..Collations::new()
        }
    }

    /// As `new`, and what `find` knows.
    pub fn with_finder(find: FindCollation) -> Collations {
        Collations {
            find: Some(find),
            ..Collations::new()
        }
    }

    /// Adds a collation. The same one again is fine; another one under a number in use is refused.
    pub fn register(&self, collation: Collation) -> Result<()> {
        let mut by_id = self.by_id.write();
        match by_id.get(&collation.id) {
            Some(old) if old.fingerprint == collation.fingerprint => Ok(()),
            Some(old) => Err(Error::AlreadyExists {
                what: format!("collation {} ({})", collation.id.0, old.name),
            }),
            None => {
                by_id.insert(collation.id, collation);
                Ok(())
            }
        }
    }

    pub fn get(&self, id: CollationId) -> Result<Collation> {
        if let Some(known) = self.by_id.read().get(&id) {
            return Ok(known.clone());
        }
        // Not under the lock: the caller's function may take its time, and locks of its own.
        let found = match &self.find {
            Some(find) => find(id)?,
            None => None,
        };
        let Some(collation) = found else {
            if self.stand_ins {
                return Ok(Collation::stand_in(id));
            }
            return Err(Error::not_found(format!(
                "collation {} (register it before use)",
                id.0
            )));
        };
        if collation.id != id {
            return Err(Error::invalid(format!(
                "collation {} was asked for, {} was given",
                id.0, collation.id.0
            )));
        }
        self.register(collation.clone())?;
        Ok(collation)
    }
}

impl Default for Collations {
    fn default() -> Collations {
        Collations::new()
    }
}

impl fmt::Debug for Collations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_id.read().values()).finish()
    }
}

fn own() -> Result<Vec<Collation>> {
    let (major, minor, update) = char::UNICODE_VERSION;
    let unicode = format!("unicode {major}.{minor}.{update}");
    Ok(vec![
        Collation::bytewise(CollationId::BINARY, "binary", Pad::None, Arc::new(Binary))?,
        Collation::bytewise(
            CollationId::UTF8_BIN,
            "utf8_nopad_bin",
            Pad::None,
            Arc::new(Utf8),
        )?,
        Collation::bytewise(
            CollationId::UTF8_BIN_PAD,
            "utf8_bin",
            Pad::SPACE_BYTE,
            Arc::new(Utf8),
        )?,
        Collation::new(
            CollationId::ASCII_CI,
            "ascii_nopad_ci",
            "1",
            Pad::None,
            Arc::new(AsciiCi),
        )?,
        Collation::new(
            CollationId::UTF8_CI,
            "utf8_nopad_simple_ci",
            &unicode,
            Pad::None,
            Arc::new(Utf8Ci),
        )?,
    ])
}

struct Binary;

impl Weigh for Binary {
    fn weights(&self, text: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(text);
    }

    fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
        chars.min(text.len())
    }
}

struct Utf8;

impl Weigh for Utf8 {
    fn weights(&self, text: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(text);
    }

    fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
        utf8_prefix_bytes(text, chars)
    }
}

struct AsciiCi;

impl Weigh for AsciiCi {
    fn weights(&self, text: &[u8], out: &mut Vec<u8>) {
        out.extend(text.iter().map(u8::to_ascii_lowercase));
    }

    fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
        chars.min(text.len())
    }

    fn letters(&self) -> Letters {
        Letters::Bytes
    }
}

struct Utf8Ci;

impl Weigh for Utf8Ci {
    fn weights(&self, text: &[u8], out: &mut Vec<u8>) {
        for chunk in text.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_ascii() {
                    out.push(c.to_ascii_lowercase() as u8);
                    continue;
                }
                let mut lower = c.to_lowercase();
                let c = match (lower.next(), lower.next()) {
                    (Some(single), None) => single,
                    _ => c,
                };
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            out.extend_from_slice(chunk.invalid());
        }
    }

    fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
        utf8_prefix_bytes(text, chars)
    }

    fn letters(&self) -> Letters {
        Letters::Utf8
    }
}

/// Characters begin at every byte that is not a continuation byte.
fn utf8_prefix_bytes(text: &[u8], chars: usize) -> usize {
    let mut starts = (text.iter().enumerate()).filter(|(_, b)| **b & 0xc0 != 0x80);
    starts.nth(chars).map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(id: CollationId, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Collations::new().get(id).unwrap().weights(text, &mut out);
        out
    }

    #[test]
    fn case_insensitive_collations_fold_what_they_document() {
        for (id, a, b, equal) in [
            (CollationId::ASCII_CI, "Hello Z[", "hELLO z[", true),
            (CollationId::ASCII_CI, "Ä", "ä", false),
            (CollationId::UTF8_CI, "ÄRGER Σ Ё", "ärger σ ё", true),
            (CollationId::UTF8_CI, "ß", "ss", false),
            (CollationId::UTF8_CI, "é", "e", false),
            (CollationId::UTF8_CI, "İ", "i", false),
            (CollationId::UTF8_CI, "ς", "σ", false),
            (CollationId::UTF8_BIN, "a", "A", false),
        ] {
            let same = weights(id, a.as_bytes()) == weights(id, b.as_bytes());
            assert_eq!(same, equal, "{id:?} {a} {b}");
        }
        assert_eq!(weights(CollationId::UTF8_CI, b"A\xff\xc3"), b"a\xff\xc3");
    }

    #[test]
    fn prefixes_cut_between_characters() {
        let all = Collations::new();
        for (id, text, chars, want) in [
            (CollationId::UTF8_BIN, "äöü", 2, "äö"),
            (CollationId::UTF8_CI, "😀x", 1, "😀"),
            (CollationId::UTF8_BIN, "abc", 5, "abc"),
            (CollationId::UTF8_BIN, "ab", 0, ""),
            (CollationId::ASCII_CI, "abc", 2, "ab"),
        ] {
            let got = all.get(id).unwrap();
            assert_eq!(got.prefix(text.as_bytes(), chars), want.as_bytes());
        }
    }

    #[test]
    fn the_registry_asks_for_what_it_does_not_know() {
        let find: FindCollation = Arc::new(|id| match id.0 {
            46 | 47 => Ok(Some(Collation::bytewise(
                CollationId(46),
                "x_bin",
                Pad::None,
                Arc::new(Utf8),
            )?)),
            _ => Ok(None),
        });
        let all = Collations::with_finder(find);
        assert_eq!(all.get(CollationId(46)).unwrap().name(), "x_bin");
        let other = all.get(CollationId(47));
        assert!(matches!(other, Err(Error::Invalid { .. })));
        let none = all.get(CollationId(48));
        assert!(matches!(none, Err(Error::NotFound { .. })));
        assert!(all.get(CollationId::BINARY).is_ok());
    }

    #[test]
    fn the_registry_refuses_a_second_meaning() {
        let all = Collations::new();
        let id = CollationId(46);
        let one = Collation::bytewise(id, "x_bin", Pad::None, Arc::new(Utf8)).unwrap();
        let padded = Collation::bytewise(id, "x_bin", Pad::SPACE_BYTE, Arc::new(Utf8)).unwrap();
        let other = Collation::new(id, "x_bin", "bytes", Pad::None, Arc::new(AsciiCi)).unwrap();
        assert!(matches!(all.get(id), Err(Error::NotFound { .. })));
        all.register(one.clone()).unwrap();
        all.register(one.clone()).unwrap();
        for changed in [padded, other] {
            assert_ne!(changed.fingerprint(), one.fingerprint());
            let refused = all.register(changed);
            assert!(matches!(refused, Err(Error::AlreadyExists { .. })));
        }
    }
}
