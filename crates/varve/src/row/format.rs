//! The row format: how the datums of a row become the bytes of a clustered record.
//!
//! ```text
//! [schema version u16][null bitmap][fixed part][end offsets u16 × v][data of the variable columns]
//! ```
//!
//! Columns stand in the order of their ids. The bitmap has one bit per nullable column. Columns of fixed
//! length have a constant offset and are zero when NULL; a variable column ends at its end offset, counted
//! from the start of the data, and starts where the one before it ends. So every column is found in
//! constant time, and a row is as long as its values.
//!
//! Invariants:
//! - **ROW-2** A row is at most [`MAX_ROW_BYTES`] long, so an end offset has its top bit free. It says that
//!   the column is *external*: its value lies on overflow pages, and the data holds a
//!   [`ExternalRef`](super::ExternalRef) to them instead.
//! - **ROW-3** A layout is a function of the columns with `added_in` ≤ schema version that were not gone
//!   then, in id order, and of whether they took NULL then, and of nothing else. A row is read by the layout
//!   of the version it carries, so columns come and go, and begin to take NULL, without a change of any row:
//!   those that it lacks read as their defaults, those that are gone are passed over.
//!
//! Failure: `encode` checks every datum and leaves the output as it was when one does not fit.

use crate::base::{Error, Result};

use super::external::{EXTERNAL_BIT, EXTERNAL_REF_BYTES, ExternalRef};
use super::{ColumnDef, Datum, GoneColumn};

/// The longest row (ROW-2). What fits in a page of the database is usually less; the table layer checks
/// that.
pub const MAX_ROW_BYTES: usize = 0x7fff;

/// `Place::null_bit` of a column that is never NULL.
pub(super) const NOT_NULLABLE: u16 = u16::MAX;

/// Bytes of the schema version at the start of a row.
pub(super) const VERSION_LEN: usize = 2;

/// Values that are not longer stay in the row: moving them would save next to nothing.
pub const MAX_SHORT_BYTES: usize = 40;

/// A column whose value lies on overflow pages, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Position in the table's list of columns.
    pub column: usize,
    pub to: ExternalRef,
}

/// Where a column is found in the rows of one schema version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) null_bit: u16,
    pub(super) slot: Slot,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Slot {
    /// `len` bytes at `offset` from the row's start.
    Fixed { offset: u16, len: u16 },
    /// The `index`-th variable column.
    Var { index: u16, max: u32 },
    /// This version has no such column: its default stands for it.
    Missing,
}

/// Where the columns are in the rows of one schema version. Those that are gone have numbers behind the
/// others'.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// The first schema version with these columns.
    pub(super) since: u16,
    /// By column position in the table's current definition.
    pub(super) places: Vec<Place>,
    /// Positions of the variable columns, in the order in which rows store them.
    pub(super) vars: Vec<u16>,
    /// Offset of the end offsets.
    pub(super) ends_at: usize,
    /// Offset of the variable data.
    pub(super) data_at: usize,
}

/// The formats of a table's rows: the current schema version's for writing, all of them for reading.
#[derive(Clone, Debug)]
pub struct RowFormat {
    pub(super) columns: Vec<ColumnDef>,
    schema_version: u16,
    /// Column positions in the order in which rows store them.
    physical: Vec<u16>,
    pub(super) current: Layout,
    /// Layouts of older versions, newest first; empty for a table whose columns are those that it had first.
    older: Vec<Layout>,
}

impl RowFormat {
    /// The format of rows of `columns`, written as `schema_version`; older ones may have columns that are
    /// gone. Fails if the columns' fixed parts alone are longer than a row may be.
    pub fn new(
        columns: &[ColumnDef],
        gone: &[GoneColumn],
        schema_version: u16,
    ) -> Result<RowFormat> {
        let had = Had { columns, gone };
        let mut physical: Vec<u16> = (0..had.len() as u16).collect();
        physical.sort_by_key(|&c| had.column(c).id);
        let mut versions = vec![1];
        for c in &physical {
            let column = had.column(*c);
            versions.extend([column.added_in, column.nullable_since]);
        }
        versions.extend(gone.iter().map(|gone| gone.gone_in));
        versions.sort_unstable_by(|a, b| b.cmp(a));
        versions.dedup();
        let mut layouts = versions
            .into_iter()
            .filter(|&v| v <= schema_version)
            .map(|v| Layout::new(had, &physical, v))
            .collect::<Result<Vec<_>>>()?;
        if layouts.is_empty() {
            return Err(Error::invalid("schema versions start at 1"));
        }
        let current = layouts.remove(0);
        physical.retain(|&c| usize::from(c) < columns.len());
        Ok(RowFormat {
            columns: columns.to_vec(),
            schema_version,
            physical,
            current,
            older: layouts,
        })
    }

    pub fn columns(&self) -> &[ColumnDef] {
        &self.columns
    }

    /// The layout for rows of `version`, `None` if the version is newer than this definition.
    pub(super) fn layout(&self, version: u16) -> Option<&Layout> {
        if version >= self.current.since {
            return (version <= self.schema_version).then_some(&self.current);
        }
        self.older.iter().find(|l| l.since <= version)
    }

    /// Bytes of the shortest row: all that has a fixed length, and no data of other columns.
    pub fn shortest_row(&self) -> usize {
        self.current.data_at
    }

    /// Bytes that the row of `values` takes if all of them stand in it.
    #[inline]
    pub fn encoded_len(&self, values: &[Datum<'_>]) -> usize {
        let vars = self.current.vars.iter();
        let data: usize = vars.map(|&c| len_of(values, c)).sum();
        self.current.data_at + data
    }

    /// The columns that have to move to overflow pages so that the row of `values` takes at most `limit`
    /// bytes: the longest values first, as few as will do. Fails if what can't be moved is too long.
    pub fn columns_to_move(&self, values: &[Datum<'_>], limit: usize) -> Result<Vec<usize>> {
        let mut len = self.encoded_len(values);
        let mut longest: Vec<u16> = (self.current.vars.iter().copied())
            .filter(|&c| len_of(values, c) > MAX_SHORT_BYTES)
            .collect();
        // A stable order: columns of one length in the order of their ids.
        longest.sort_by_key(|&c| std::cmp::Reverse(len_of(values, c)));
        let mut moved = Vec::new();
        for c in longest {
            if len <= limit {
                break;
            }
            len -= len_of(values, c) - EXTERNAL_REF_BYTES;
            moved.push(c as usize);
        }
        if len > limit {
            return Err(Error::TooLarge {
                what: "what a row keeps in its page".into(),
                size: len,
                limit,
            });
        }
        Ok(moved)
    }

    /// Appends the row of `values` to `out`; those in `moved` are on overflow pages already.
    pub fn encode_moved(
        &self,
        values: &[Datum<'_>],
        moved: &[Moved],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.check_count(values)?;
        let refs: Vec<_> = moved.iter().map(|m| m.to.encode()).collect();
        let mut stored = values.to_vec();
        for (m, bytes) in moved.iter().zip(&refs) {
            self.columns[m.column].check(values[m.column])?;
            stored[m.column] = Some(bytes);
        }
        let base = out.len();
        self.encode(&stored, out)?;
        for m in moved {
            let Slot::Var { index, .. } = self.current.places[m.column].slot else {
                unreachable!("only variable columns are moved");
            };
            let high_byte = base + self.current.ends_at + 2 * index as usize + 1;
            out[high_byte] |= (EXTERNAL_BIT >> 8) as u8;
        }
        Ok(())
    }

    /// Does each value fit its column? The error names the first that does not.
    pub fn check(&self, values: &[Datum<'_>]) -> Result<()> {
        self.check_count(values)?;
        let mut pairs = self.columns.iter().zip(values);
        pairs.try_for_each(|(column, value)| column.check(*value))
    }

    /// Is there one value for each column?
    pub fn check_count(&self, values: &[Datum<'_>]) -> Result<()> {
        if values.len() == self.columns.len() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a row of this table has {} columns, got {}",
            self.columns.len(),
            values.len()
        )))
    }

    /// Appends the row of `values`, one datum per column in definition order, to `out`.
    pub fn encode(&self, values: &[Datum<'_>], out: &mut Vec<u8>) -> Result<()> {
        self.check_count(values)?;
        let base = out.len();
        out.resize(base + self.current.data_at, 0);
        out[base..base + VERSION_LEN].copy_from_slice(&self.schema_version.to_le_bytes());
        for &column in &self.physical {
            let column = column as usize;
            if !self.put(column, values[column], base, out) {
                out.truncate(base);
                return Err(self.refusal(column, values));
            }
        }
        if out.len() - base > MAX_ROW_BYTES {
            out.truncate(base);
            return Err(self.too_long(values));
        }
        Ok(())
    }

    /// Writes one column into the row that starts at `base`; false if the datum does not fit the column.
    #[inline]
    fn put(&self, column: usize, datum: Datum<'_>, base: usize, out: &mut Vec<u8>) -> bool {
        let place = self.current.places[column];
        match (place.slot, datum) {
            (Slot::Fixed { offset, len }, Some(bytes)) => {
                if bytes.len() != len as usize {
                    return false;
                }
                let at = base + offset as usize;
                match (<[u8; 4]>::try_from(bytes), <[u8; 8]>::try_from(bytes)) {
                    // Two lengths make up most columns; as constants they need no call to memcpy.
                    (Ok(four), _) => out[at..at + 4].copy_from_slice(&four),
                    (_, Ok(eight)) => out[at..at + 8].copy_from_slice(&eight),
                    _ => out[at..at + bytes.len()].copy_from_slice(bytes),
                }
            }
            (Slot::Var { max, .. }, Some(bytes)) => {
                if bytes.len() > max as usize || bytes.len() > MAX_ROW_BYTES {
                    return false;
                }
                out.extend_from_slice(bytes);
            }
            (_, None) => {
                if place.null_bit == NOT_NULLABLE {
                    return false;
                }
                out[base + VERSION_LEN + place.null_bit as usize / 8] |= 1 << (place.null_bit % 8);
            }
            (Slot::Missing, Some(_)) => unreachable!("the current version has every column"),
        }
        if let Slot::Var { index, .. } = place.slot {
            // A row that is too long is refused at the end; until then the offset may wrap.
            let end = (out.len() - base - self.current.data_at) as u16;
            let at = base + self.current.ends_at + 2 * index as usize;
            out[at..at + 2].copy_from_slice(&end.to_le_bytes());
        }
        true
    }

    /// Why `values[column]` was refused.
    #[cold]
    fn refusal(&self, column: usize, values: &[Datum<'_>]) -> Error {
        match self.columns[column].check(values[column]) {
            Err(e) => e,
            Ok(()) => self.too_long(values),
        }
    }

    #[cold]
    fn too_long(&self, values: &[Datum<'_>]) -> Error {
        let var: usize = (values.iter().zip(&self.columns))
            .filter(|(_, c)| c.ty.fixed_len().is_none())
            .map(|(v, _)| v.map_or(0, <[u8]>::len))
            .sum();
        Error::TooLarge {
            what: "row".into(),
            size: self.current.data_at + var,
            limit: MAX_ROW_BYTES,
        }
    }
}

/// Length of a value; 0 for NULL, and for one that the caller forgot.
#[inline]
fn len_of(values: &[Datum<'_>], column: u16) -> usize {
    let value = values.get(column as usize).copied().flatten();
    value.map_or(0, <[u8]>::len)
}

/// All columns that a table has had, by number.
#[derive(Clone, Copy)]
struct Had<'a> {
    columns: &'a [ColumnDef],
    gone: &'a [GoneColumn],
}

impl<'a> Had<'a> {
    fn len(self) -> usize {
        self.columns.len() + self.gone.len()
    }

    fn column(self, number: u16) -> &'a ColumnDef {
        let number = usize::from(number);
        match number.checked_sub(self.columns.len()) {
            None => &self.columns[number],
            Some(gone) => &self.gone[gone].column,
        }
    }

    /// Whether rows of this version have the column.
    fn is_in(self, number: u16, version: u16) -> bool {
        let gone = usize::from(number).checked_sub(self.columns.len());
        let is_gone = gone.is_some_and(|gone| self.gone[gone].gone_in <= version);
        self.column(number).added_in <= version && !is_gone
    }

    /// Whether it may be NULL in them.
    fn is_nullable_in(self, number: u16, version: u16) -> bool {
        let column = self.column(number);
        column.nullable && column.nullable_since <= version
    }
}

impl Layout {
    fn new(had: Had<'_>, physical: &[u16], version: u16) -> Result<Layout> {
        let here = |c: &&u16| had.is_in(**c, version);
        let nullable = (physical.iter().filter(here)).filter(|&&c| had.is_nullable_in(c, version));
        let mut at = VERSION_LEN + nullable.count().div_ceil(8);
        let missing = Place {
            null_bit: NOT_NULLABLE,
            slot: Slot::Missing,
        };
        let mut places = vec![missing; had.len()];
        let mut null_bits = 0;
        let mut vars: Vec<u16> = Vec::new();
        for &c in physical.iter().filter(here) {
            let (column, place) = (had.column(c), &mut places[c as usize]);
            if had.is_nullable_in(c, version) {
                place.null_bit = null_bits;
                null_bits += 1;
            }
            place.slot = match column.ty.fixed_len() {
                Some(len) => {
                    let offset = at as u16;
                    at = at.saturating_add(len);
                    if at > MAX_ROW_BYTES {
                        return Err(fixed_part_too_long(at));
                    }
                    let len = len as u16;
                    Slot::Fixed { offset, len }
                }
                None => {
                    vars.push(c);
                    Slot::Var {
                        index: vars.len() as u16 - 1,
                        max: column.ty.max_len() as u32,
                    }
                }
            };
        }
        let data_at = at + 2 * vars.len();
        if data_at > MAX_ROW_BYTES {
            return Err(fixed_part_too_long(data_at));
        }
        places.truncate(had.columns.len());
        Ok(Layout {
            since: version,
            places,
            vars,
            ends_at: at,
            data_at,
        })
    }
}

#[cold]
fn fixed_part_too_long(size: usize) -> Error {
    Error::TooLarge {
        what: "the fixed part of a row".into(),
        size,
        limit: MAX_ROW_BYTES,
    }
}
