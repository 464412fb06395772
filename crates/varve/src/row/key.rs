//! The key codec: the columns of an index as one byte string, ordered by `memcmp`.
//!
//! A key is its parts one behind the other. A part of a nullable column starts with `00` for NULL, and that
//! is all, or with `01` and the value; other parts are the value alone. Values are encoded as in `memcmp`,
//! those of any length in some indexes as in `segments`. A descending part is the same bytes inverted, so
//! NULL comes last there.
//!
//! A secondary index entry's key is its own parts followed by the row's clustered key, which makes it unique
//! and carries the way to the row. The codec writes and reads the own parts; the caller appends the clustered
//! key. A table without a primary key has its row id as clustered key, 8 bytes big-endian.
//!
//! The invariants KEY-1 (order) and KEY-2 (prefix-free) of `memcmp` carry over to whole keys. Because of
//! KEY-2 the keys of all entries whose first n parts have given values are exactly the byte strings that
//! start with the encoding of those n values: a search by fewer parts is a search by prefix, and
//! [`successor`] of the prefix is where it ends.
//!
//! A key gives values back: all but beginnings of values, and texts whose entries have no room to say in
//! which form they are (`letters`). It can't say which zero a floating-point value was, because −0 and 0 are
//! equal, in unique indexes, too:
//!
//! - **KEY-5** An entry whose wanted values are no floating-point zeros and no texts of form 0 gives them as
//!   they were stored. Whoever wants values of another one reads the row.
//!
//! - **KEY-3** The own parts of a key are at most [`MAX_KEY_BYTES`] long; longer ones are refused when a row
//!   is written, not when it is searched. With its clustered key a secondary entry's key may be longer than a
//!   page of its tree permits (`page::max_key`): that is a long entry (`catalog::record`).

use std::sync::Arc;

use crate::base::{Error, Result};

use super::letters::{Alphabet, Forms, MOST_BYTES, Recognizer, SeesWeights, Speller};
use super::{
    Collation, Collations, ColumnDef, ColumnType, Damage, Datum, DatumBuf, KeyPart, Pad, RowRef,
    memcmp, segments,
};

/// The longest encoded key of an index's own parts (KEY-3).
pub const MAX_KEY_BYTES: usize = 4016;

/// The longest sum of the lengths that an index's columns may have.
pub const MAX_KEY_SOURCE_BYTES: usize = 3072;

/// How many columns an index may have.
pub const MAX_KEY_PARTS: usize = 32;

/// More than the longest character of any character set has.
const MAX_CHAR_BYTES: usize = 8;

/// Bytes of a part that is NULL.
const NULL_LEN: usize = 1;

/// Encodes and decodes the keys of one index.
#[derive(Clone, Debug)]
pub struct KeyCodec {
    pub(super) parts: Vec<PartCodec>,
    /// See `texts`.
    texts: usize,
}

#[derive(Clone, Debug)]
pub(super) struct PartCodec {
    pub(super) column: usize,
    pub(super) nullable: bool,
    /// 0xff for a descending part, 0 otherwise: what the bytes are XORed with.
    pub(super) flip: u8,
    /// Characters of a text, bytes of anything else; `usize::MAX` for the whole value.
    pub(super) prefix: usize,
    pub(super) kind: Kind,
    /// A value of any length is in segments.
    pub(super) segmented: bool,
    /// The part is of a whole value.
    pub(super) is_whole: bool,
    /// What a text's weights say, if its value is had by them.
    letters: Option<Arc<Alphabet>>,
    pub(super) def: ColumnDef,
}

/// How far the value of a part can be read back from an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readable {
    /// Not at all: beginnings of values, and texts whose weights say no letters.
    No,
    /// Unless it is zero, which may be −0: floating point.
    UnlessZero,
    /// If the entry has the form of the text: see the module `letters`.
    InForm,
    Always,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Int { bytes: usize, signed: bool },
    Float,
    Double,
    Fixed { len: usize },
    Bytes,
    Text(Collation),
}

impl KeyCodec {
    /// The codec for an index on `parts` of `columns`. Fails if a collation is unknown, or is not the one
    /// that the index was built with.
    pub fn new(
        columns: &[ColumnDef],
        parts: &[KeyPart],
        collations: &Collations,
    ) -> Result<KeyCodec> {
        let part = |p: &KeyPart| -> Result<PartCodec> {
            let def = columns.get(p.column).ok_or_else(|| {
                Error::invalid(format!("a key part names column number {}", p.column))
            })?;
            let prefix = p.prefix_len.map_or(usize::MAX, |n| n as usize);
            let kind = match def.ty {
                ColumnType::Int { bytes, signed } => Kind::Int {
                    bytes: bytes as usize,
                    signed,
                },
                ColumnType::Float => Kind::Float,
                ColumnType::Double => Kind::Double,
                ColumnType::Fixed(n) => Kind::Fixed { len: n as usize },
                ColumnType::Bytes(_) => Kind::Bytes,
                ColumnType::Text { collation, .. } => {
                    let collation = collations.get(collation)?;
                    check_fingerprint(&collation, p.fingerprint, &def.name)?;
                    Kind::Text(collation)
                }
            };
            Ok(PartCodec {
                column: p.column,
                nullable: def.nullable,
                flip: if p.descending { 0xff } else { 0 },
                prefix,
                is_whole: prefix == usize::MAX,
                letters: match &kind {
                    Kind::Text(collation) if prefix == usize::MAX => collation.alphabet(),
                    _ => None,
                },
                kind,
                segmented: p.segmented,
                def: def.clone(),
            })
        };
        let parts: Vec<_> = parts.iter().map(part).collect::<Result<_>>()?;
        let texts = parts.iter().filter(|part| part.letters.is_some()).count();
        Ok(KeyCodec { parts, texts })
    }

    /// Whether keys can be made of rows: not without the collation of a column (COL-2).
    pub fn is_computable(&self) -> bool {
        let known = |p: &PartCodec| !matches!(&p.kind, Kind::Text(c) if c.is_stand_in());
        self.parts.iter().all(known)
    }

    /// How many parts the index has of its own.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The column positions of the parts.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.parts.iter().map(|p| p.column)
    }

    /// How many bytes of the value of `column` its key parts may depend on; 0 if the index does not have the
    /// column.
    pub fn bytes_needed(&self, column: usize) -> usize {
        let parts = self.parts.iter().filter(|p| p.column == column);
        let needed = parts.map(|p| match p.kind {
            Kind::Text(_) => p.prefix.saturating_mul(MAX_CHAR_BYTES),
            _ => p.prefix,
        });
        needed.max().unwrap_or(0)
    }

    /// Appends the key of a stored row to `out`.
    #[inline]
    pub fn encode_row(&self, row: &RowRef<'_>, out: &mut Vec<u8>) -> Result<()> {
        self.encode_with(|column| row.get(column), out)
    }

    /// Appends the key of a row given as one datum per column of the table.
    #[inline]
    pub fn encode_columns(&self, row: &[Datum<'_>], out: &mut Vec<u8>) -> Result<()> {
        self.encode_with(|column| row[column], out)
    }

    #[inline]
    fn encode_with<'a>(
        &self,
        column: impl Fn(usize) -> Datum<'a>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = out.len();
        for part in &self.parts {
            if !part.encode(column(part.column), out) {
                out.truncate(start);
                return Err(part.refusal(column(part.column)));
            }
        }
        if out.len() - start > MAX_KEY_BYTES {
            let size = out.len() - start;
            out.truncate(start);
            return Err(key_too_long(size));
        }
        Ok(())
    }

    /// Appends the encoding of the first `values.len()` parts, for a search.
    #[inline]
    pub fn encode_values(&self, values: &[Datum<'_>], out: &mut Vec<u8>) -> Result<()> {
        if values.len() > self.parts.len() {
            return Err(Error::invalid(format!(
                "the index has {} parts, the search key {}",
                self.parts.len(),
                values.len()
            )));
        }
        let start = out.len();
        for (part, value) in self.parts.iter().zip(values) {
            if !part.encode(*value, out) {
                out.truncate(start);
                return Err(part.refusal(*value));
            }
        }
        Ok(())
    }

    /// Is any part of the key of `row` (one datum per column of the table) NULL? Such keys are never
    /// duplicates.
    pub fn has_null(&self, row: &[Datum<'_>]) -> bool {
        self.parts.iter().any(|p| row[p.column].is_none())
    }

    /// Have all columns of the index the same bytes in both rows, as far as it has them? Then their keys are
    /// the same, too; the opposite need not be true (`'a'` and `'A'` may have one key). Of a long value the
    /// old row may have no more than [`bytes_needed`](Self::bytes_needed).
    pub fn same_columns(&self, old: &RowRef<'_>, new: &[Datum<'_>]) -> bool {
        self.parts.iter().all(|p| {
            let (old, new) = (old.get(p.column), new[p.column]);
            match p.is_whole {
                true => old == new,
                false => old.map(|old| p.kept(old)) == new.map(|new| p.kept(new)),
            }
        })
    }

    /// How far the value of part `part` can be read back from a key.
    pub fn readable(&self, part: usize) -> Readable {
        let part = &self.parts[part];
        match part.kind {
            _ if !part.is_whole => Readable::No,
            Kind::Float | Kind::Double => Readable::UnlessZero,
            Kind::Text(_) if part.letters.is_some() => Readable::InForm,
            Kind::Text(ref c) if !c.is_bytewise() => Readable::No,
            _ => Readable::Always,
        }
    }

    /// How many parts are texts that have a form.
    pub fn texts(&self) -> usize {
        self.texts
    }

    /// Sets the forms of the texts in `key`, which was made of these values (KEY-6).
    pub fn set_forms<'a>(
        &self,
        key: &[u8],
        column: impl Fn(usize) -> Datum<'a>,
        forms: &mut Forms,
    ) -> Result<(), Damage> {
        // Those without bits are not looked at.
        let mut texts = self.texts.min(forms.left());
        let (mut at, mut unused) = (0, Vec::new());
        for part in &self.parts {
            if texts == 0 {
                break;
            }
            let rest = &key[at..];
            let Some(letters) = &part.letters else {
                at += part.decode(rest, false, &mut unused)?.0;
                continue;
            };
            texts -= 1;
            at += match column(part.column) {
                Some(text) => {
                    let mut recognizer = Recognizer::new(letters, text, forms.most());
                    let weights = part.weights(rest, letters.unit(), &mut recognizer)?;
                    forms.set(recognizer.form());
                    weights.map_or(NULL_LEN, |(len, _)| len)
                }
                // It is read as such.
                None => {
                    forms.set(1);
                    NULL_LEN
                }
            };
        }
        Ok(())
    }

    /// Is one of the floating-point values in `key`, of those parts whose bits are set, zero? Total on any
    /// bytes.
    pub fn has_zero(&self, key: &[u8], parts: u32) -> Result<bool, Damage> {
        let (mut at, mut value) = (0, Vec::new());
        for (n, part) in self.parts.iter().enumerate() {
            if parts >> n == 0 {
                break;
            }
            let is_asked = parts >> n & 1 != 0;
            value.clear();
            let (len, is_value) = part.decode(&key[at..], is_asked, &mut value)?;
            if is_value && is_asked && value.iter().all(|b| *b == 0) {
                return Ok(true);
            }
            at += len;
        }
        Ok(false)
    }

    /// How many bytes the own parts of `key` take. Total on any bytes.
    pub fn own_len(&self, key: &[u8]) -> Result<usize, Damage> {
        let (mut at, mut unused) = (0, Vec::new());
        for part in &self.parts {
            at += part.decode(&key[at..], false, &mut unused)?.0;
        }
        Ok(at)
    }

    /// Takes the own parts of `key` apart: pushes one datum per part to `out`, NULL for those whose bits in
    /// `wanted` are not set, that are not [`readable`](Self::readable), and texts of form 0. Returns how many
    /// bytes they took, up to the last one that is wanted: of a secondary entry of which all are, where its
    /// clustered key follows. Total on any bytes.
    pub fn decode(
        &self,
        key: &[u8],
        wanted: u32,
        forms: &mut Forms,
        out: &mut DatumBuf,
    ) -> Result<usize, Damage> {
        let mut at = 0;
        for (n, part) in self.parts.iter().enumerate() {
            let form = part.letters.as_ref().map_or(0, |_| forms.take());
            if wanted >> n == 0 {
                out.push(None);
                continue;
            }
            let is_wanted = wanted >> n & 1 != 0;
            if let (Kind::Int { bytes, signed }, false, true) =
                (&part.kind, part.nullable, is_wanted)
            {
                // The bulk of all key parts.
                let Some(be) = key.get(at..at + bytes) else {
                    return Err(Damage::new("a whole key part", key.len() - at));
                };
                out.push_with(|out| memcmp::get_int(be, *signed, part.flip, out));
                at += bytes;
                continue;
            }
            at += out.try_push_part(|bytes| match &part.letters {
                Some(letters) if is_wanted => part.decode_text(&key[at..], letters, form, bytes),
                _ => part.decode(&key[at..], is_wanted && part.is_readable(), bytes),
            })?;
        }
        Ok(at)
    }

    /// Appends to `ends` where each of the own parts of `key` ends, the first of which starts at `at`. Total
    /// on any bytes.
    pub fn part_ends(
        &self,
        key: &[u8],
        mut at: usize,
        ends: &mut Vec<usize>,
    ) -> Result<(), Damage> {
        let mut unused = Vec::new();
        for part in &self.parts {
            let rest = key.get(at..).unwrap_or_default();
            at += part.decode(rest, false, &mut unused)?.0;
            ends.push(at);
        }
        Ok(())
    }

    /// The first part of `key`, whose parts end there, that is NULL.
    pub fn null_part(&self, key: &[u8], ends: &[usize]) -> Option<usize> {
        let starts = std::iter::once(&0).chain(ends);
        let mut parts = self.parts.iter().zip(starts);
        parts.position(|(part, &start)| {
            part.nullable && key.get(start).is_some_and(|mark| mark ^ part.flip == 0)
        })
    }

    pub fn is_nullable(&self) -> bool {
        self.parts.iter().any(|part| part.nullable)
    }
}

impl PartCodec {
    /// Appends the value; false if it is not of this column's type.
    #[inline]
    fn encode(&self, value: Datum<'_>, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        match value {
            None if self.nullable => out.push(0),
            None => return false,
            Some(bytes) => {
                if self.nullable {
                    out.push(1);
                }
                if !self.encode_value(bytes, out) {
                    return false;
                }
            }
        }
        if self.flip != 0 {
            out[start..].iter_mut().for_each(|b| *b = !*b);
        }
        true
    }

    /// What the part is of.
    fn kept<'a>(&self, value: &'a [u8]) -> &'a [u8] {
        match &self.kind {
            Kind::Text(collation) => collation.prefix(value, self.prefix),
            _ => &value[..self.prefix.min(value.len())],
        }
    }

    #[inline]
    fn encode_value(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        match &self.kind {
            Kind::Int { bytes, signed } => {
                if value.len() != *bytes {
                    return false;
                }
                memcmp::put_int(value, *signed, out);
            }
            Kind::Float => match value.try_into() {
                Ok(le) => memcmp::put_f32(le, out),
                Err(_) => return false,
            },
            Kind::Double => match value.try_into() {
                Ok(le) => memcmp::put_f64(le, out),
                Err(_) => return false,
            },
            Kind::Fixed { len } => {
                // The search value of a prefix part may be cut already.
                let kept = self.prefix.min(*len);
                if value.len() != *len && value.len() != kept {
                    return false;
                }
                out.extend_from_slice(&value[..kept]);
            }
            Kind::Bytes => self.put_bytes(self.kept(value), out),
            Kind::Text(collation) => self.encode_text(collation, value, out),
        }
        true
    }

    fn encode_text(&self, collation: &Collation, value: &[u8], out: &mut Vec<u8>) {
        let value = self.kept(value);
        match collation.pad() {
            Pad::None if collation.is_bytewise() => self.put_bytes(value, out),
            Pad::None => {
                let start = out.len();
                collation.weights(value, out);
                match self.segmented {
                    true => segments::put(&out.split_off(start), out),
                    false => memcmp::escape_in_place(start, out),
                }
            }
            Pad::Space { unit, weight } => {
                let start = out.len();
                collation.weights(value, out);
                let space = &weight[..unit as usize];
                match self.segmented {
                    true => segments::put_padded(out.split_off(start), space, out),
                    false => memcmp::pad_in_place(start, space, out),
                }
            }
        }
    }

    fn put_bytes(&self, bytes: &[u8], out: &mut Vec<u8>) {
        match self.segmented {
            true => segments::put(bytes, out),
            false => memcmp::put_escaped(bytes, out),
        }
    }

    #[inline]
    fn get_bytes(&self, src: &[u8], put: impl FnMut(u8)) -> Result<usize, Damage> {
        match self.segmented {
            true => segments::get(src, self.flip, put),
            false => memcmp::get_escaped(src, self.flip, put),
        }
    }

    #[inline]
    fn get_padded(
        &self,
        src: &[u8],
        space: &[u8],
        see: impl FnMut(&[u8]),
    ) -> Result<usize, Damage> {
        match self.segmented {
            true => segments::get_padded(src, space, self.flip, see),
            false => memcmp::get_padded(src, space, self.flip, see),
        }
    }

    /// The part alone says the value, but for the sign of zero.
    fn is_readable(&self) -> bool {
        self.is_whole && !matches!(&self.kind, Kind::Text(c) if !c.is_bytewise())
    }

    /// As `decode`, of a text in this form. Its loop over the letters wants the registers for itself.
    #[inline(never)]
    fn decode_text(
        &self,
        key: &[u8],
        letters: &Alphabet,
        form: u8,
        out: &mut Vec<u8>,
    ) -> Result<(usize, bool), Damage> {
        if form == 0 {
            return self.decode(key, false, out);
        }
        let start = out.len();
        let mut room = key.len() / letters.unit() * MOST_BYTES;
        let (weights, is_right) = loop {
            out.resize(start + room, 0);
            let mut speller = Speller::new(letters, form, &mut out[start..]);
            let weights = self.weights(key, letters.unit(), &mut speller)?;
            if speller.is_full {
                // Two escaped bytes can stand for a run of zeros.
                room = room.max(1) * memcmp::RUN_ON as usize;
                continue;
            }
            let (len, is_right) = (speller.len, speller.is_right);
            out.truncate(start + len);
            break (weights, is_right);
        };
        match weights {
            None => Ok((NULL_LEN, false)),
            Some((len, true)) if is_right => Ok((len, true)),
            _ => Err(Damage::new(
                "the weights of a text of its form",
                form.into(),
            )),
        }
    }

    /// Shows the weights of the text at the start of `key`, `unit` bytes (1 to 3) at a time. `None` if it is
    /// NULL; else how many bytes it takes, and whether no part of a weight is left over.
    #[inline]
    fn weights(
        &self,
        key: &[u8],
        unit: usize,
        to: &mut impl SeesWeights,
    ) -> Result<Option<(usize, bool)>, Damage> {
        let Some(head) = self.value_at(key)? else {
            return Ok(None);
        };
        let rest = &key[head..];
        let pad = match &self.kind {
            Kind::Text(collation) => collation.pad(),
            _ => Pad::None,
        };
        if let Pad::Space { unit: n, weight } = pad
            && n as usize == unit
        {
            // Nearly all.
            let space = &weight[..unit];
            let len = self.get_padded(rest, space, |weight| to.see(weight))?;
            return Ok(Some((head + len, true)));
        }
        let (mut weight, mut n) = ([0; 3], 0);
        let mut put = |byte| {
            weight[n] = byte;
            n += 1;
            if n == unit {
                to.see(&weight[..unit]);
                n = 0;
            }
        };
        let len = match pad {
            Pad::Space { unit, weight } => {
                let space = &weight[..unit as usize];
                self.get_padded(rest, space, |bytes| {
                    bytes.iter().for_each(|byte| put(*byte));
                })?
            }
            Pad::None => self.get_bytes(rest, put)?,
        };
        Ok(Some((head + len, n == 0)))
    }

    /// Where the value begins in a part; `None` if it is NULL.
    #[inline]
    fn value_at(&self, key: &[u8]) -> Result<Option<usize>, Damage> {
        if !self.nullable {
            return Ok(Some(0));
        }
        match key.first().map(|b| b ^ self.flip) {
            Some(0) => Ok(None),
            Some(1) => Ok(Some(1)),
            Some(other) => Err(Damage::new("a NULL mark of 0 or 1", other as usize)),
            None => Err(Damage::new("a NULL mark", 0)),
        }
    }

    /// Reads the part at the start of `key` into `out`, of a text its weights; how many bytes it took, and
    /// whether it is a value: not NULL, and wanted.
    #[inline]
    fn decode(
        &self,
        key: &[u8],
        readable: bool,
        out: &mut Vec<u8>,
    ) -> Result<(usize, bool), Damage> {
        let Some(head) = self.value_at(key)? else {
            return Ok((NULL_LEN, false));
        };
        let rest = &key[head..];
        let fixed = |len: usize| {
            rest.get(..len)
                .ok_or(Damage::new("a whole key part", rest.len()))
        };
        let len = match &self.kind {
            Kind::Int { bytes, signed } => {
                let value = fixed(*bytes)?;
                if readable {
                    memcmp::get_int(value, *signed, self.flip, out);
                }
                value.len()
            }
            Kind::Float | Kind::Double => {
                let value = fixed(if matches!(self.kind, Kind::Float) {
                    4
                } else {
                    8
                })?;
                if readable {
                    memcmp::get_float(value, self.flip, out);
                }
                value.len()
            }
            Kind::Fixed { len } => {
                let value = fixed(self.prefix.min(*len))?;
                if readable {
                    out.extend(value.iter().map(|b| b ^ self.flip));
                }
                value.len()
            }
            Kind::Text(c) if c.pad() != Pad::None => {
                let Pad::Space { unit, weight } = c.pad() else {
                    unreachable!()
                };
                let space = &weight[..unit as usize];
                match readable {
                    true => self.get_padded(rest, space, |bytes| {
                        out.extend_from_slice(bytes);
                    })?,
                    false => self.get_padded(rest, space, |_| ())?,
                }
            }
            Kind::Bytes | Kind::Text(_) if readable => self.get_bytes(rest, |b| out.push(b))?,
            Kind::Bytes | Kind::Text(_) => self.get_bytes(rest, |_| ())?,
        };
        Ok((head + len, readable))
    }

    #[cold]
    fn refusal(&self, value: Datum<'_>) -> Error {
        let got = value.map_or("NULL".into(), |v| format!("{} bytes", v.len()));
        let name = &self.def.name;
        Error::invalid(match (value, self.def.ty.fixed_len()) {
            (Some(_), Some(len)) => format!("key column {name} takes {len} bytes, got {got}"),
            _ => format!("key column {name} does not take {got}"),
        })
    }
}

/// Bytes of the clustered key of a table without a primary key.
pub const ROW_ID_BYTES: usize = 8;

/// Appends the clustered key of a row of a table without a primary key.
pub fn put_row_id(row_id: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&row_id.to_be_bytes());
}

/// The row id in the clustered key of a table without a primary key.
pub fn row_id_of(key: &[u8]) -> Result<u64, Damage> {
    match key.try_into() {
        Ok(be) => Ok(u64::from_be_bytes(be)),
        Err(_) => Err(Damage::new("a row id of 8 bytes", key.len())),
    }
}

/// Turns a prefix into the smallest byte string above everything that starts with it. False, and `key` left
/// empty, if there is none: the prefix is empty or all FF.
pub fn successor(key: &mut Vec<u8>) -> bool {
    while let Some(last) = key.pop() {
        if last < 0xff {
            key.push(last + 1);
            return true;
        }
    }
    false
}

fn check_fingerprint(collation: &Collation, built_with: u64, column: &str) -> Result<()> {
    if built_with == 0 || collation.is_stand_in() || built_with == collation.fingerprint() {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "collation {} of column {column} is not the one that the index was built with; rebuild the index",
        collation.name()
    )))
}

#[cold]
fn key_too_long(size: usize) -> Error {
    Error::TooLarge {
        what: "index key".into(),
        size,
        limit: MAX_KEY_BYTES,
    }
}
