//! What the caller says about the keys that it wants: where a search ends, and whether the rows are wanted at
//! all.

use smallvec::SmallVec;

use crate::base::Result;
use crate::catalog::OpenTable;
use crate::page::LONGEST_KEY;
use crate::row::{Datum, DatumBuf, Forms, KeyCodec, KeyField, MOST_FORMS, Readable, successor};
use crate::txn::Transaction;

use super::state::{Current, Direction};
use super::{Cursor, LockMode};

/// Asked about each entry of a secondary index before its row is locked or fetched, with the values of
/// [`Cursor::key_columns`], and with the position of its row. `false` passes the row over. If the entry can't
/// give its values (KEY-5), or they may be others when the row is locked, it is asked about the row instead,
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
    /// Those that can be had from some entries only, and what has to be so.
    doubts: SmallVec<[(usize, Exact); 4]>,
    /// That all can be had, and those that are wanted.
    all_exact: Exact,
    wanted_exact: Exact,
    /// Parts that are texts which have forms.
    texts: usize,
    /// The filter is to be asked about the row.
    pub asks_row: bool,
    /// The current entry's values.
    parts: DatumBuf,
}

/// What an entry must have to give values as they were stored (KEY-5).
#[derive(Clone, Default)]
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
        let all_exact = Exact::of(doubts.iter().map(|(_, exact)| exact));
        KeyReads {
            filter: None,
            suffice: false,
            columns,
            doubts,
            wanted_exact: all_exact.clone(),
            all_exact,
            texts,
            asks_row: false,
            parts: DatumBuf::new(),
        }
    }

    /// See [`Cursor::set_wanted_columns`].
    pub fn set_wanted(&mut self, wanted: Option<&[bool]>) {
        let is_wanted = |column: usize| wanted.is_none_or(|wanted| wanted[column]);
        let doubts = self.doubts.iter().filter(|(column, _)| is_wanted(*column));
        self.wanted_exact = Exact::of(doubts.map(|(_, exact)| exact));
    }

    /// Whether entries with these flags give all texts that are wanted.
    #[inline]
    pub fn has_forms(&self, flags: u8) -> bool {
        self.wanted_exact.has_forms(flags)
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
    /// on.
    pub fn set_filter(&mut self, filter: Option<EntryFilter>) {
        self.keys.filter = filter;
    }

    /// Whether the filter may want the row `row.clustered` of the entry `row.key`. An entry's key never
    /// changes, but texts of the same weights may: what it says holds for the row if `decides` or, once the
    /// row is locked, if there are no texts. Otherwise `is_row_wanted` is next.
    pub(super) fn is_wanted(&mut self, decides: bool) -> Result<bool> {
        self.keys.asks_row = false;
        let Some(mut filter) = self.keys.filter.take() else {
            return Ok(true);
        };
        let is_sure = decides || self.keys.texts == 0;
        let wanted = match is_sure.then(|| self.is_exact(&self.keys.all_exact)) {
            Some(Ok(true)) => {
                self.keys.asks_row = self.search.lock != LockMode::None && self.keys.texts > 0;
                self.take_apart()
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
        self.is_exact(&self.keys.wanted_exact)
    }

    #[inline]
    fn is_exact(&self, exact: &Exact) -> Result<bool> {
        if !exact.has_forms(self.row.flags) {
            return Ok(false);
        }
        let has_zero = |codec: &KeyCodec, key: &[u8], parts: u32| match parts {
            0 => Ok(false),
            _ => codec
                .has_zero(key, parts)
                .map_err(|d| self.index().damage_at(&self.row.key, d.expected, d.found)),
        };
        let clustered = &self.table.clustered.codec;
        Ok(!has_zero(&self.index().codec, &self.row.key, exact.own)?
            && !has_zero(clustered, &self.row.clustered, exact.clustered)?)
    }

    /// Says whether the caller wants nothing of the rows it will search for but the columns of
    /// [`key_columns`](Self::key_columns). Where the view can decide on a secondary entry alone, the row is
    /// then not fetched, and [`key_values`](Self::key_values) has what there is.
    pub fn set_keys_suffice(&mut self, keys_suffice: bool) {
        self.keys.suffice = keys_suffice && self.index != 0;
    }

    /// The columns that `key_values` gives, in its order: the index's own, then those of the primary key. For
    /// each its position in the table's list, and whether its value can be had from an entry.
    pub fn key_columns(&self) -> &[(usize, bool)] {
        &self.keys.columns
    }

    /// The values of `key_columns`, if the current row was not fetched.
    pub fn key_values(&mut self) -> Result<Option<&DatumBuf>> {
        if self.row.at != Current::Entry {
            return Ok(None);
        }
        self.take_apart()?;
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

    /// Fills `parts` with the values of the entry `row.key` of row `row.clustered`.
    fn take_apart(&mut self) -> Result<()> {
        let mut parts = std::mem::take(&mut self.keys.parts);
        parts.clear();
        let mut forms = Forms::new(self.keys.texts, self.row.flags);
        let own = self
            .index()
            .codec
            .decode(&self.row.key, &mut forms, &mut parts);
        let all = own.and_then(|_| {
            let clustered = &self.table.clustered.codec;
            clustered.decode(&self.row.clustered, &mut forms, &mut parts)
        });
        self.keys.parts = parts;
        match all {
            Ok(_) => Ok(()),
            Err(d) => Err(self.index().damage_at(&self.row.key, d.expected, d.found)),
        }
    }
}
