//! Texts that are read back from their weights.
//!
//! A key has the weights of a text, and many texts may have the same. Most texts of a column are one of a few
//! **forms** of what their weights say: each weight stands for one letter, its collation's first in the order
//! of code points, of which there may be a capital and a small one. An entry says in three bits in which form
//! its text is, so that it can be read without the row.
//!
//! | form | letter by letter |
//! |---|---|
//! | 0 | not known: the text is none of these, or an older program has written the entry. The row says it |
//! | 1 | small |
//! | 2 | capital |
//! | 3 | capital where a word begins, which is where no cased letter stands before |
//! | 4 | the first cased letter is capital |
//!
//! - **KEY-6** An entry's form is what [`Recognizer`] says of the text in the row's version that the
//!   entry stands for, or 0. The text that it gives is compared with the row's when it is written, byte by
//!   byte, so that nothing about a collation is taken on trust.
//! - **KEY-7** An alphabet never changes while an index uses it: it depends on the weights (COL-1), on
//!   [`small_letter`], which is frozen with the format, and on [`Letters`], of which callers promise it: no
//!   fingerprint has them.

use std::fmt;

use super::{Collation, Letters};

/// In the flags of an entry: what is not DELETED and REVIVED.
pub const FORM_BITS: u8 = 0xfc;
const FIRST_BIT: u32 = FORM_BITS.trailing_zeros();
const BITS: u32 = FORM_BITS.count_ones();

/// Of so many texts an entry has the forms, at most: the first ones of its own columns and those of the
/// primary key, which come behind.
pub const MOST_FORMS: usize = 3;

/// Bytes of a letter, at most.
pub(super) const MOST_BYTES: usize = 3;

const SMALL: u8 = 1;
const CAPITAL: u8 = 2;
const WORDS: u8 = 3;
const FIRST: u8 = 4;

/// No code point of a letter: a surrogate.
const NONE: u16 = 0xd800;

/// Which letters the weights of a collation stand for.
pub(super) enum Alphabet {
    /// The weights are the text, but for the spaces at its end.
    Same,
    Table(Table),
}

pub(super) struct Table {
    /// Bytes of a weight.
    unit: usize,
    letters: Letters,
    /// By the last one or two bytes of a weight, those before being zero: the small letter and the capital
    /// one, which are the same if it has no case.
    by_weight: Box<[(u16, u16)]>,
}

impl Alphabet {
    /// `None` if weights of this collation do not stand for letters one by one.
    pub fn of(collation: &Collation) -> Option<Alphabet> {
        if collation.is_bytewise() {
            return Some(Alphabet::Same);
        }
        Table::of(collation).map(Alphabet::Table)
    }

    /// Bytes of a weight, as [`Recognizer`] and [`Speller`] take it.
    pub fn unit(&self) -> usize {
        match self {
            Alphabet::Same => 1,
            Alphabet::Table(table) => table.unit,
        }
    }
}

impl fmt::Debug for Alphabet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Alphabet::Same => "Same",
            Alphabet::Table(_) => "Table",
        })
    }
}

impl Table {
    fn of(collation: &Collation) -> Option<Table> {
        let letters = collation.letters();
        let last = match letters {
            Letters::Unknown => return None,
            Letters::Bytes => 0xff,
            Letters::Utf8 => 0xffff,
        };
        let mut text = Vec::new();
        let mut weight = Vec::new();
        let mut weigh = |c: u16| {
            text.clear();
            weight.clear();
            let (bytes, len) = letters.encode(c);
            text.extend_from_slice(&bytes[..len]);
            collation.weights(&text, &mut weight);
            let zeros = weight.len().saturating_sub(2);
            let is_short = weight[..zeros].iter().all(|b| *b == 0);
            let place = weight[zeros..].iter().fold(0, |w, b| w << 8 | *b as usize);
            is_short.then_some((weight.len(), place))
        };
        let (unit, _) = weigh(u16::from(b'a'))?;
        if !(1..=3).contains(&unit) {
            return None;
        }
        let is_letter = |c: &u16| !(0xd800..0xe000).contains(c);
        let places: Vec<_> = (0..=last)
            .map(|c| Some(c).filter(is_letter).and_then(&mut weigh))
            .map(|weight| weight.filter(|(len, _)| *len == unit).map(|(_, at)| at))
            .collect();
        let size = if unit == 1 { 1 << 8 } else { 1 << 16 };
        let mut by_weight = vec![(NONE, NONE); size].into_boxed_slice();
        let mut set = |place: usize, pair| {
            if by_weight[place] == (NONE, NONE) {
                by_weight[place] = pair;
            }
        };
        for capital in 0..=last {
            if let Some(small) = small_letter(capital, letters)
                && let Some(place) = places[usize::from(capital)]
                && places[usize::from(small)] == Some(place)
            {
                set(place, (small, capital));
            }
        }
        for (c, place) in (0..=last).zip(&places) {
            place.iter().for_each(|place| set(*place, (c, c)));
        }
        Some(Table {
            unit,
            letters,
            by_weight,
        })
    }

    #[inline]
    fn pair(&self, weight: &[u8]) -> Option<(u16, u16)> {
        let at = match *weight {
            [a] | [0, 0, a] => usize::from(a),
            [a, b] | [0, a, b] => usize::from(u16::from_be_bytes([a, b])),
            _ => return None,
        };
        let pair = *self.by_weight.get(at)?;
        (pair.0 != NONE).then_some(pair)
    }
}

/// Where in a text a letter stands, as far as its form depends on it.
#[derive(Clone, Copy)]
struct Place {
    begins_word: bool,
    is_first: bool,
}

impl Place {
    const START: Place = Place {
        begins_word: true,
        is_first: true,
    };

    /// The forms, as bits, in which a cased letter is a capital one here.
    #[inline]
    fn capitals(self) -> u8 {
        1 << CAPITAL | u8::from(self.begins_word) << WORDS | u8::from(self.is_first) << FIRST
    }

    #[inline]
    fn pass(&mut self, has_case: bool) {
        self.begins_word = !has_case;
        self.is_first &= !has_case;
    }
}

/// Who is shown the weights of a text one by one.
pub(super) trait SeesWeights {
    fn see(&mut self, weight: &[u8]);
}

/// Finds out in which form a text is, while it sees its weights.
pub(super) struct Recognizer<'a> {
    alphabet: &'a Alphabet,
    /// What is left of it.
    text: &'a [u8],
    place: Place,
    /// Those that it may have, as bits.
    forms: u8,
}

impl<'a> Recognizer<'a> {
    /// The form may be `most` at most.
    pub fn new(alphabet: &'a Alphabet, text: &'a [u8], most: u8) -> Recognizer<'a> {
        Recognizer {
            alphabet,
            text,
            place: Place::START,
            forms: (2u8 << most) - 2,
        }
    }

    /// Takes the letter of this weight off the text; `None` if it begins with another one.
    #[inline]
    fn take(&mut self, weight: &[u8]) -> Option<()> {
        let Alphabet::Table(table) = self.alphabet else {
            self.text = self.text.strip_prefix(weight)?;
            return Some(());
        };
        let (small, capital) = table.pair(weight)?;
        let letter = table.letters.take(&mut self.text)?;
        let has_case = small != capital;
        match letter {
            _ if letter == small && !has_case => {}
            _ if letter == small => self.forms &= !self.place.capitals(),
            _ if letter == capital => self.forms &= self.place.capitals(),
            _ => return None,
        }
        self.place.pass(has_case);
        Some(())
    }

    /// The form of a text all of whose weights were shown; 0 if it has none.
    pub fn form(&self) -> u8 {
        match self.text.is_empty() && self.forms != 0 {
            true => self.forms.trailing_zeros() as u8,
            false => 0,
        }
    }
}

impl SeesWeights for Recognizer<'_> {
    #[inline(always)]
    fn see(&mut self, weight: &[u8]) {
        if self.take(weight).is_none() {
            self.forms = 0;
        }
    }
}

/// Writes a text letter by letter, while it sees its weights.
pub(super) struct Speller<'a> {
    alphabet: &'a Alphabet,
    /// A cased letter would be a capital one here; it would be behind any letter without case; it always is.
    capital: bool,
    words: bool,
    all: bool,
    /// Of which the first `len` bytes are written.
    to: &'a mut [u8],
    pub len: usize,
    /// There was no room for some.
    pub is_full: bool,
    /// All weights had letters, and the form is one.
    pub is_right: bool,
}

impl<'a> Speller<'a> {
    /// Each letter takes up to [`MOST_BYTES`] of `to`.
    pub fn new(alphabet: &'a Alphabet, form: u8, to: &'a mut [u8]) -> Speller<'a> {
        Speller {
            alphabet,
            capital: form != SMALL,
            words: form == WORDS,
            all: form == CAPITAL,
            to,
            len: 0,
            is_full: false,
            is_right: (SMALL..=FIRST).contains(&form),
        }
    }

    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        match self.to.get_mut(self.len..self.len + bytes.len()) {
            Some(to) => {
                to.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.is_full = true,
        }
    }
}

impl SeesWeights for Speller<'_> {
    #[inline(always)]
    fn see(&mut self, weight: &[u8]) {
        let Alphabet::Table(table) = self.alphabet else {
            return self.put(weight);
        };
        let Some((small, capital)) = table.pair(weight) else {
            self.is_right = false;
            return;
        };
        let letter = if self.capital { capital } else { small };
        let has_case = small != capital;
        self.capital = self.all | (!has_case & (self.capital | self.words));
        match letter {
            0..0x80 => self.put(&[letter as u8]),
            _ => {
                let (bytes, len) = table.letters.encode(letter);
                self.put(&bytes[..len]);
            }
        }
    }
}

impl Letters {
    /// A letter's bytes, and how many there are.
    #[inline]
    fn encode(self, c: u16) -> ([u8; MOST_BYTES], usize) {
        match (self, c) {
            (Letters::Utf8, 0x80..=0x7ff) => ([0xc0 | (c >> 6) as u8, trail(c), 0], 2),
            (Letters::Utf8, 0x800..) => ([0xe0 | (c >> 12) as u8, trail(c >> 6), trail(c)], 3),
            _ => ([c as u8, 0, 0], 1),
        }
    }

    /// Takes the first letter of a text that has one.
    #[inline]
    fn take(self, text: &mut &[u8]) -> Option<u16> {
        let low = |b: u8| u16::from(b & 0x3f);
        let (c, rest) = match (self, *text) {
            (Letters::Utf8, [a @ 0xc2..=0xdf, b @ 0x80..=0xbf, rest @ ..]) => {
                (u16::from(a & 0x1f) << 6 | low(*b), rest)
            }
            (Letters::Utf8, [a @ 0xe0..=0xef, b @ 0x80..=0xbf, c @ 0x80..=0xbf, rest @ ..]) => {
                let letter = u16::from(*a) << 12 | low(*b) << 6 | low(*c);
                (Some(letter).filter(|letter| *letter >= 0x800)?, rest)
            }
            (Letters::Utf8, [a, ..]) if *a >= 0x80 => return None,
            (_, [a, rest @ ..]) => (u16::from(*a), rest),
            (_, []) => return None,
        };
        *text = rest;
        Some(c)
    }
}

fn trail(bits: u16) -> u8 {
    0x80 | (bits & 0x3f) as u8
}

/// The small letter of a capital one, where that is a matter of numbers. Which letters have case is decided
/// by the collation, which weighs both the same; this only finds pairs (KEY-7).
fn small_letter(c: u16, letters: Letters) -> Option<u16> {
    let is_even = c.is_multiple_of(2);
    let by = match (letters, c) {
        (_, 0x41..=0x5a) => 0x20,
        // Most character sets of one byte.
        (Letters::Bytes, 0x80..=0xdf) => 0x20,
        (Letters::Bytes, _) => return None,
        // Latin-1, Greek, Cyrillic.
        (_, 0xc0..=0xde | 0x391..=0x3a9 | 0x410..=0x42f) => 0x20,
        (_, 0x400..=0x40f) => 0x50,
        // Latin Extended-A, Cyrillic.
        (_, 0x100..=0x137 | 0x14a..=0x177 | 0x460..=0x481 | 0x48a..=0x4bf | 0x4d0..=0x52f)
            if is_even =>
        {
            1
        }
        (_, 0x139..=0x148 | 0x179..=0x17e | 0x4c1..=0x4ce) if !is_even => 1,
        _ => return None,
    };
    Some(c + by)
}

/// The forms of an entry's texts, its own first, then those of the clustered key, as they stand in its flags.
/// Up to two have three bits each. Of more, the first three have two bits each, and no form 4.
#[derive(Clone, Copy, Debug)]
pub struct Forms {
    bits: u8,
    /// Where the next one's bits are.
    at: u32,
    width: u32,
}

impl Forms {
    /// Of an entry with so many texts, and these flags.
    pub fn new(texts: usize, flags: u8) -> Forms {
        Forms {
            bits: flags & FORM_BITS,
            at: FIRST_BIT,
            width: BITS / texts.clamp(2, MOST_FORMS) as u32,
        }
    }

    /// As they stand in flags.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// The bits of the next text; `None` if it has none.
    pub fn next_bits(&mut self) -> Option<u8> {
        let at = self.at;
        (at + self.width <= u8::BITS).then(|| {
            self.at += self.width;
            ((1u8 << self.width) - 1) << at
        })
    }

    /// The form of the next text.
    pub fn take(&mut self) -> u8 {
        let at = self.at;
        self.next_bits().map_or(0, |mask| (self.bits & mask) >> at)
    }

    /// How many texts more have bits.
    pub(super) fn left(&self) -> usize {
        ((u8::BITS - self.at) / self.width) as usize
    }

    /// The last form that they can have.
    pub(super) fn most(&self) -> u8 {
        ((1 << self.width) - 1).min(FIRST)
    }

    /// Sets the form of the next text, if it has bits.
    pub(super) fn set(&mut self, form: u8) {
        let at = self.at;
        if let Some(mask) = self.next_bits() {
            self.bits = self.bits & !mask | form << at;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{CollationId, Collations, Pad, Weigh};
    use super::*;

    /// Two bytes for each letter, as several of MariaDB's: accents and case don't count in Latin-1.
    struct Pairs;

    impl Weigh for Pairs {
        fn weights(&self, text: &[u8], out: &mut Vec<u8>) {
            for c in String::from_utf8_lossy(text).chars() {
                let c = match c.to_ascii_uppercase() {
                    'À'..='Å' | 'à'..='å' => 'A',
                    'α'..='ω' => char::from_u32(c as u32 - 0x20).unwrap(),
                    'а'..='я' => char::from_u32(c as u32 - 0x20).unwrap(),
                    c => c,
                };
                out.extend(u16::try_from(c as u32).unwrap_or(0xfffd).to_be_bytes());
            }
        }

        fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
            chars.min(text.len())
        }

        fn letters(&self) -> Letters {
            Letters::Utf8
        }
    }

    fn pairs() -> Collation {
        Collation::new(CollationId(1), "pairs", "1", Pad::None, Arc::new(Pairs)).unwrap()
    }

    #[test]
    fn texts_have_the_forms_that_the_table_names() {
        let collation = pairs();
        let alphabet = Alphabet::of(&collation).unwrap();
        for (text, form) in [
            ("", 1),
            ("12-34", 1),
            ("new york", 1),
            ("NEW YORK", 2),
            ("New York", 3),
            ("Brand#13-b", 4),
            ("BranD#13", 0),
            ("Brand#13-B", 3),
            ("Mailbox", 3),
            ("In progress", 4),
            ("7 small words", 1),
            ("7 Small words", 4),
            ("neW", 0),
            ("naïve", 1),
            ("là", 0),
            ("ΑΒΓ", 2),
            ("Москва", 3),
            ("日本", 1),
            ("😀", 0),
        ] {
            let mut weights = Vec::new();
            collation.weights(text.as_bytes(), &mut weights);
            let form_of = |most| {
                let mut recognizer = Recognizer::new(&alphabet, text.as_bytes(), most);
                weights.chunks(2).for_each(|w| recognizer.see(w));
                recognizer.form()
            };
            assert_eq!(form_of(FIRST), form, "{text}");
            let without_first = if form == FIRST { 0 } else { form };
            assert_eq!(form_of(WORDS), without_first, "{text}");
            if form > 0 {
                assert_eq!(spell(&alphabet, &weights, form).as_deref(), Some(text));
            }
        }
        assert_eq!(spell(&alphabet, &[0xd8, 0], SMALL), None, "no letter");
        assert_eq!(spell(&alphabet, &[0, b'A'], 5), None, "no form");
    }

    fn spell(alphabet: &Alphabet, weights: &[u8], form: u8) -> Option<String> {
        let mut out = vec![0; weights.len() * MOST_BYTES];
        let mut speller = Speller::new(alphabet, form, &mut out);
        weights.chunks(2).for_each(|w| speller.see(w));
        let len = speller.len;
        let is_right = speller.is_right;
        is_right.then(|| String::from_utf8(out[..len].to_vec()).unwrap())
    }

    /// KEY-7: the tables of the library's own collations, and of the pairs, are those that they have always
    /// been.
    #[test]
    fn alphabets_stay_as_they_are() {
        let own = Collations::new();
        let hash = |collation: &Collation| {
            let Some(Alphabet::Table(table)) = Alphabet::of(collation) else {
                panic!("{collation:?} has no table");
            };
            let pairs = table.by_weight.iter();
            let bytes = pairs.flat_map(|(a, b)| [a.to_le_bytes(), b.to_le_bytes()].concat());
            crate::base::fnv1a(bytes.collect::<Vec<_>>())
        };
        let of = |id| hash(&own.get(id).unwrap());
        let hashes = [
            of(CollationId::ASCII_CI),
            of(CollationId::UTF8_CI),
            hash(&pairs()),
        ];
        let as_ever = [
            7_152_294_084_071_662_973,
            6_463_543_397_563_449_213,
            14_794_803_051_394_053_165,
        ];
        assert_eq!(hashes, as_ever);
    }

    #[test]
    fn letters_survive_the_round_trip() {
        for letters in [Letters::Bytes, Letters::Utf8] {
            let last = if letters == Letters::Bytes {
                0xff
            } else {
                0xffff
            };
            for c in 0..=last {
                let mut out = Vec::new();
                let (bytes, len) = letters.encode(c);
                out.extend_from_slice(&bytes[..len]);
                let mut text = &out[..];
                assert_eq!((letters.take(&mut text), text), (Some(c), &b""[..]));
            }
        }
        for bad in [
            &b"\xc1\x80"[..],
            b"\xe0\x80\x80",
            b"\xe1\x80",
            b"\x80",
            b"\xff",
            b"",
        ] {
            assert_eq!(Letters::Utf8.take(&mut &*bad), None, "{bad:x?}");
        }
    }

    #[test]
    fn forms_have_bits_as_far_as_there_are_some() {
        for (texts, want) in [
            (1, &[4u8][..]),
            (2, &[4, 4]),
            (3, &[3, 3, 3]),
            (5, &[3, 3, 3, 0, 0]),
            (33, &[3, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            let mut forms = Forms::new(texts, 3);
            want.iter().for_each(|_| forms.set(forms.most()));
            let mut back = Forms::new(texts, forms.bits() | 1);
            let back: Vec<u8> = want.iter().map(|_| back.take()).collect();
            assert_eq!(back, want);
        }
    }
}
