//! What the caller says about the keys that it wants: where a search ends, and whether the rows are wanted at
//! all.

use smallvec::SmallVec;

use crate::base::Result;
use crate::catalog::{OpenTable, longest_plain};
use crate::page::LONGEST_KEY;
use crate::row::{
    Damage, Datum, DatumBuf, Forms, KeyCodec, KeyField, MOST_FORMS, Readable, successor,
};
use crate::txn::Transaction;

use super::peek::PeekedEntry;
use super::state::{Current, Direction};
use super::{Cursor, LockMode};

/// Asked about each entry of a secondary index before its row is locked or fetched, with the values of
/// [`Cursor::key_columns`], and with the position of its row. `false` passes the row over. If the entry can't
/// give the values (KEY-5), or they may be others when the row is locked, it is asked about the row instead,
/// too: columns that it looks at must be wanted. No latch is held.
pub type EntryFilter = Box<dyn FnMut(&DatumBuf, &[u8]) -> Result<bool> + Send>;

/// Which keys a search wants.
#[derive(Default)]
pub(super) struct Bounds {
    /// What the search was given: what `next_same` and exact searches find must start with it.
    pub prefix: Vec<u8>,
    pub within_prefix: bool,
    /// Searches forward end before this key, if it is not empty.
    end: Vec<u8>,
    /// Searches backward end behind this key, which may be empty.
    begin: Vec<u8>,
}

impl Bounds {
    /// The key below which a search backward wants nothing.
    pub fn floor(&self) -> &[u8] {
        match self.within_prefix && self.prefix > self.begin {
            true => &self.prefix,
            false => &self.begin,
        }
    }

    /// The key from which on a search forward wants nothing, if there is one.
    pub fn ceiling(&self) -> Option<Vec<u8>> {
        let mut past = match self.within_prefix {
            true => self.prefix.clone(),
            false => Vec::new(),
        };
        // The empty key has no successor.
        let past = successor(&mut past).then_some(past);
        let end = (!self.end.is_empty()).then(|| self.end.clone());
        match (past, end) {
            (Some(past), Some(end)) => Some(past.min(end)),
            (past, end) => past.or(end),
        }
    }

    /// Where a search in this direction ends.
    pub fn far_end(&self, direction: Direction) -> Option<Vec<u8>> {
        match direction {
            Direction::Forward => self.ceiling(),
            Direction::Backward => Some(self.floor().to_vec()),
        }
    }

    /// A search in this direction may find the key.
    pub fn contain(&self, key: &[u8], direction: Direction) -> bool {
        if self.within_prefix && !key.starts_with(&self.prefix) {
            return false;
        }
        match direction {
            Direction::Forward => self.end.is_empty() || key < &self.end[..],
            Direction::Backward => key >= &self.begin[..],
        }
    }
}

/// What is read from the keys of entries.
pub(super) struct KeyReads {
    pub filter: Option<EntryFilter>,
    /// Consistent reads of a secondary index need not fetch the row.
    pub suffice: bool,
    /// See [`Cursor::key_columns`].
    columns: Vec<(usize, bool)>,
    /// How many of them are the index's own.
    own: usize,
    /// Those that can be had from some entries only, and what has to be so.
    doubts: SmallVec<[(usize, Exact); 4]>,
    wanted: Look,
    /// Of the filter.
    asked: Look,
    /// Parts that are texts which have forms.
    texts: usize,
    /// The filter is to be asked about the row.
    pub asks_row: bool,
    /// The current entry's values.
    parts: DatumBuf,
}

/// Columns that somebody looks at.
#[derive(Default)]
struct Look {
    /// Their parts of the index's own key and of the clustered one, as bits.
    parts: [u32; 2],
    /// What entries must have to give them.
    exact: Exact,
}

impl Look {
    /// Some may become others without a change of keys.
    fn has_texts(&self) -> bool {
        !self.exact.forms.is_empty()
    }
}

/// What an entry must have to give values as they were stored (KEY-5).
#[derive(Default)]
struct Exact {
    /// Bits of its flags, not all of them 0, for each text.
    forms: SmallVec<[u8; MOST_FORMS]>,
    /// The numbers of parts of its own key and of the clustered one that are not zero, as bits.
    own: u32,
    clustered: u32,
}

impl Exact {
    fn of<'a>(all: impl Iterator<Item = &'a Exact>) -> Exact {
        let mut sum = Exact::default();
        for exact in all {
            sum.forms.extend_from_slice(&exact.forms);
            sum.own |= exact.own;
            sum.clustered |= exact.clustered;
        }
        sum
    }

    #[inline]
    fn has_forms(&self, flags: u8) -> bool {
        self.forms.iter().all(|mask| flags & mask != 0)
    }
}

impl KeyReads {
    /// None yet, of this index.
    pub fn of(table: &OpenTable, index: usize) -> KeyReads {
        let own = (index > 0).then(|| (&table.def.indexes[index - 1], &table.secondary[index - 1]));
        let clustered = (&table.def.primary, &table.clustered);
        let all = || own.into_iter().chain([clustered]);
        let texts = all().map(|(_, open)| open.codec.texts()).sum();
        let mut forms = Forms::new(texts, 0);
        let (mut columns, mut doubts) = (Vec::new(), SmallVec::new());
        for (def, open) in all() {
            let is_own = open.id != table.clustered.id;
            for (n, part) in def.parts.iter().enumerate() {
                let mut exact = Exact::default();
                let is_readable = match open.codec.readable(n) {
                    Readable::InForm => {
                        exact.forms.extend(forms.next_bits());
                        !exact.forms.is_empty()
                    }
                    Readable::UnlessZero => {
                        let zeros = match is_own {
                            true => &mut exact.own,
                            false => &mut exact.clustered,
                        };
                        *zeros = 1 << n;
                        true
                    }
                    Readable::Always => {
                        columns.push((part.column, true));
                        continue;
                    }
                    Readable::No => false,
                };
                columns.push((part.column, is_readable));
                doubts.extend(is_readable.then_some((part.column, exact)));
            }
        }
        let mut reads = KeyReads {
            filter: None,
            suffice: false,
            columns,
            own: own.map_or(0, |(def, _)| def.parts.len()),
            doubts,
            wanted: Look::default(),
            asked: Look::default(),
            texts,
            asks_row: false,
            parts: DatumBuf::new(),
        };
        reads.set_wanted(None);
        reads
    }

    /// See [`Cursor::set_wanted_columns`].
    pub fn set_wanted(&mut self, wanted: Option<&[bool]>) {
        self.wanted = self.look(wanted);
    }

    /// At the columns with a flag, or all.
    fn look(&self, flags: Option<&[bool]>) -> Look {
        let is_meant = |column: usize| flags.is_none_or(|flags| flags[column]);
        let bits = |columns: &[(usize, bool)]| {
            let bits = columns.iter().enumerate();
            bits.fold(0, |bits, (n, (column, _))| {
                bits | u32::from(is_meant(*column)) << n
            })
        };
        let (own, clustered) = self.columns.split_at(self.own);
        let doubts = self.doubts.iter().filter(|(column, _)| is_meant(*column));
        Look {
            parts: [bits(own), bits(clustered)],
            exact: Exact::of(doubts.map(|(_, exact)| exact)),
        }
    }
}

impl Cursor {
    /// Where the searches forward that follow end: at rows whose key comes after `values`, the first parts of
    /// a search key, or starts with them unless `inclusive`. Rows from there on are not even locked. `None`
    /// lifts the end.
    pub fn set_end(&mut self, end: Option<(&[Datum<'_>], bool)>) -> Result<()> {
        let mut key = std::mem::take(&mut self.bounds.end);
        key.clear();
        if let Some((values, inclusive)) = end {
            self.table.encode_search(self.index, values, &mut key)?;
            if inclusive && !successor(&mut key) {
                key.clear();
            }
        }
        self.bounds.end = key;
        Ok(())
    }

    /// Where the searches backward that follow end: at rows whose key comes before `values`, the first parts
    /// of a search key, or starts with them unless `inclusive`. Rows from there on are not even locked.
    /// `None` lifts the end.
    pub fn set_begin(&mut self, begin: Option<(&[Datum<'_>], bool)>) -> Result<()> {
        let mut key = std::mem::take(&mut self.bounds.begin);
        key.clear();
        if let Some((values, inclusive)) = begin {
            self.table.encode_search(self.index, values, &mut key)?;
            if !inclusive && !successor(&mut key) {
                key = vec![0xff; LONGEST_KEY + 1];
            }
        }
        self.bounds.begin = key;
        Ok(())
    }

    /// Passes over the rows of a secondary index whose entries the filter does not want, from the next search
    /// on. It looks at `columns`, one flag for each column of the table; `None`: at all.
    pub fn set_filter(&mut self, filter: Option<EntryFilter>, columns: Option<&[bool]>) {
        self.keys.filter = filter;
        self.keys.asked = self.keys.look(columns);
    }

    /// Whether the filter may want the row `row.clustered` of the entry `row.key`. An entry's key never
    /// changes, but texts of the same weights may: what it says holds for the row if `decides` or, once the
    /// row is locked, if there are no texts. Otherwise `is_row_wanted` is next.
    pub(super) fn is_wanted(&mut self, decides: bool) -> Result<bool> {
        self.keys.asks_row = false;
        let Some(mut filter) = self.keys.filter.take() else {
            return Ok(true);
        };
        let is_sure = decides || !self.keys.asked.has_texts();
        let wanted = match is_sure.then(|| self.gives(&self.keys.asked)) {
            Some(Ok(true)) => {
                self.keys.asks_row =
                    self.search.lock != LockMode::None && self.keys.asked.has_texts();
                self.take_apart(self.keys.asked.parts)
                    .and_then(|()| filter(&self.keys.parts, &self.row.clustered))
            }
            Some(Err(e)) => Err(e),
            _ => {
                self.keys.asks_row = true;
                Ok(true)
            }
        };
        self.keys.filter = Some(filter);
        wanted
    }

    /// Whether the filter wants the row that was fetched, if its entry could not say.
    #[inline]
    pub(super) fn is_row_wanted(&mut self, trx: &mut Transaction) -> Result<bool> {
        if !std::mem::take(&mut self.keys.asks_row) {
            return Ok(true);
        }
        self.ask_about_row(trx)
    }

    #[cold]
    fn ask_about_row(&mut self, trx: &mut Transaction) -> Result<bool> {
        let Some(mut filter) = self.keys.filter.take() else {
            return Ok(true);
        };
        let mut parts = std::mem::take(&mut self.keys.parts);
        parts.clear();
        let row = self.row();
        let wanted = row.and_then(|row| {
            for (column, is_readable) in &self.keys.columns {
                let value = is_readable.then(|| row.fetched(*column));
                parts.push(value.flatten().flatten());
            }
            filter(&parts, self.position())
        });
        self.keys.parts = parts;
        self.keys.filter = Some(filter);
        if let Ok(false) = wanted {
            self.unlock_row(trx);
            self.row.at = Current::None;
        }
        wanted
    }

    /// Whether the entry `row.key` of row `row.clustered` gives what is wanted of it as it was stored
    /// (KEY-5).
    #[inline]
    pub(super) fn gives_wanted(&self) -> Result<bool> {
        self.gives(&self.keys.wanted)
    }

    #[inline]
    fn gives(&self, look: &Look) -> Result<bool> {
        let keys = (&self.row.key[..], &self.row.clustered[..]);
        self.is_exact(keys, self.row.flags, &look.exact)
            .map_err(|d| self.index().damage_at(&self.row.key, d.expected, d.found))
    }

    /// The same of the entry with this key, of the row with that clustered key.
    #[inline]
    fn is_exact(
        &self,
        (key, clustered): (&[u8], &[u8]),
        flags: u8,
        exact: &Exact,
    ) -> std::result::Result<bool, Damage> {
        if !exact.has_forms(flags) {
            return Ok(false);
        }
        let has_zero = |codec: &KeyCodec, key: &[u8], parts: u32| match parts {
            0 => Ok(false),
            _ => codec.has_zero(key, parts),
        };
        Ok(!has_zero(&self.index().codec, key, exact.own)?
            && !has_zero(&self.table.clustered.codec, clustered, exact.clustered)?)
    }

    /// Says whether the caller wants nothing of the rows it will search for but the columns of
    /// [`key_columns`](Self::key_columns). Where the view can decide on a secondary entry alone, the row is
    /// then not fetched, and [`key_values`](Self::key_values) has what there is.
    pub fn set_keys_suffice(&mut self, keys_suffice: bool) {
        self.keys.suffice = keys_suffice && self.index != 0;
    }

    /// The columns that `key_values` gives, in its order: the index's own, then those of the primary key. For
    /// each its position in the table's list, and whether its value can be had from an entry. What is not
    /// wanted ([`set_wanted_columns`](Self::set_wanted_columns)) is NULL there.
    pub fn key_columns(&self) -> &[(usize, bool)] {
        &self.keys.columns
    }

    /// The values of `key_columns`, if the current row was not fetched.
    pub fn key_values(&mut self) -> Result<Option<&DatumBuf>> {
        if self.row.at != Current::Entry {
            return Ok(None);
        }
        self.take_apart(self.keys.wanted.parts)?;
        Ok(Some(&self.keys.parts))
    }

    /// The columns of `key_columns` whose values stand at constant places in the index's keys.
    pub fn key_fields(&self) -> Vec<KeyField> {
        let mut fields = Vec::new();
        let clustered = &self.table.clustered.codec;
        let end = match self.index {
            0 => Some(0),
            _ => self.index().codec.fields(0, &mut fields),
        };
        if let Some(end) = end {
            clustered.fields(end, &mut fields);
        }
        let page_size = self.table.clustered.tree.page_size();
        // What comes behind is not in the key of a long entry.
        fields.retain(|field| field.end() <= longest_plain(page_size));
        fields
    }

    /// Reads fields of the current row's key, if the row was not fetched: `out` gets their values one behind
    /// the other, and has just the room for them. `false` if it was.
    #[inline]
    pub fn read_fields(&self, fields: &[KeyField], mut out: &mut [u8]) -> Result<bool> {
        if self.row.at != Current::Entry {
            return Ok(false);
        }
        for field in fields {
            let (value, rest) = out.split_at_mut(field.len());
            if let Err(d) = field.read(&self.row.key, value) {
                return Err(self.index().damage_at(&self.row.key, d.expected, d.found));
            }
            out = rest;
        }
        Ok(true)
    }

    /// Fills `parts` with the values of these parts of the entry `row.key` of row `row.clustered`.
    fn take_apart(&mut self, wanted: [u32; 2]) -> Result<()> {
        let mut parts = std::mem::take(&mut self.keys.parts);
        parts.clear();
        let keys = (&self.row.key[..], &self.row.clustered[..]);
        let read = self.read_entry(keys, self.row.flags, wanted, &mut parts);
        self.keys.parts = parts;
        read.map_err(|d| self.index().damage_at(&self.row.key, d.expected, d.found))
    }

    /// Appends the values of the entry with this key, of the row with that clustered key, to `out`.
    #[inline]
    fn read_entry(
        &self,
        (key, clustered): (&[u8], &[u8]),
        flags: u8,
        [own_wanted, clustered_wanted]: [u32; 2],
        out: &mut DatumBuf,
    ) -> std::result::Result<(), Damage> {
        let mut forms = Forms::new(self.keys.texts, flags);
        self.index()
            .codec
            .decode(key, own_wanted, &mut forms, out)?;
        let codec = &self.table.clustered.codec;
        codec.decode(clustered, clustered_wanted, &mut forms, out)?;
        Ok(())
    }

    /// As [`key_values`](Self::key_values), of an entry that was peeked at, at the end of `out`; `key` is
    /// room for its key. `None` if the entry does not give what is wanted of it (KEY-5), or is damaged: the
    /// move there says so.
    #[inline]
    pub fn read_peeked(
        &self,
        entry: &PeekedEntry<'_>,
        key: &mut Vec<u8>,
        out: &mut DatumBuf,
    ) -> Option<()> {
        let (prefix, suffix) = entry.key;
        key.clear();
        key.extend_from_slice(prefix);
        key.extend_from_slice(suffix);
        let (keys, flags) = (
            (&key[..], entry.record.clustered_key(key)?.in_key()?),
            entry.record.flags,
        );
        let wanted = &self.keys.wanted;
        let is_exact = self.is_exact(keys, flags, &wanted.exact);
        is_exact.ok()?.then_some(())?;
        self.read_entry(keys, flags, wanted.parts, out).ok()
    }
}
