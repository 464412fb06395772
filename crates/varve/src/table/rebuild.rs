//! A table that is made anew while it is used: another one gets its rows, and takes its place in the end.
//!
//! The new table is filled by a load (`load.rs`) with the rows that the build's view sees, and catches up
//! with what is changed meanwhile in rounds (`catch_up.rs`). Its own name begins with `#`, so nobody uses it
//! before it takes the place; views that are older than that don't read it (`OpenTable::created_by`). So it
//! does not matter who wrote its rows, nor since when they are there.
//!
//! - **REBUILD-1** Between rounds the new table has a row for each that `Build::seen`'s view sees, with the
//!   same values in the columns that both have, and in new ones what the new table's definition says, or what
//!   the value source makes of the row; and no other row.
//!
//! A round is one transaction that inserts, updates and deletes as users do, with undo, since what is
//! changed may be long values, any index and the clustered key, and is little beside the table. Rows may
//! exchange what only one of them can have. So a row is updated where it is only if its keys in unique
//! indexes stay; all others are deleted first and inserted again when no old one is left: what is a
//! duplicate then (BUILD-1), some view would see.
//!
//! What the old row does not have is asked for: first what a column of another type has, which is made of the
//! old row; then what one has instead of NULL that ceases to take it; then what a new column has that is
//! computed. It is asked for of a row that is gone, too: its place in the new table may depend on it. A new
//! AUTO_INCREMENT column is asked for once for each row, in their order:
//!
//! - **REBUILD-3** Nobody changes rows while they are counted: the table is locked in shared mode meanwhile.
//!
//! A row without a primary key keeps its hidden id, by which it is found again.

use std::sync::Arc;

use crate::base::{Error, GoingOn, Meter, Phase, Result};
use crate::catalog::{OpenTable, TableDef};
use crate::lock::TableMode;
use crate::row::{ColumnDef, Datum, DatumBuf, RowRef};
use crate::txn::{Isolation, Transaction, ValueSource};

use super::build::{ASKED_EVERY, BuildRoom, TellDuplicate};
use super::catch_up::{Round, Version};
use super::cursor::{Cursor, KeyMatch, LockMode};
use super::follow::{computed_of, converted_of};
use super::load::TableLoad;
use super::version::read_leaf;
use super::write::{CurrentRow, clustered_key, delete_row, insert_row_with, update_row};

/// Where a column of the new table has its values from.
enum Source {
    /// The column of the old one at this position.
    Column(usize),
    /// It is new.
    Value(Option<Vec<u8>>),
    /// It is new, and computed of the others, or counted.
    Asked,
    /// It is new, and made of the old row.
    Converted,
}

/// A table that gets another one's rows.
pub struct NewTable {
    pub(super) table: Arc<OpenTable>,
    /// By column.
    sources: Vec<Source>,
    /// Those that are made of the old row.
    converted: Vec<usize>,
    /// Those that are asked for.
    asked: Vec<usize>,
    /// These, and what is computed of columns that may have been NULL, or something else.
    asked_anew: Vec<usize>,
    /// The new column that is counted.
    counted: Option<usize>,
}

/// Whom to ask for values that rows of the old table don't have.
struct Asking<'a> {
    source: Option<Arc<dyn ValueSource>>,
    old: &'a OpenTable,
}

/// The answers, of one row.
#[derive(Default)]
struct Answers {
    converted: DatumBuf,
    instead_of_null: DatumBuf,
    computed: DatumBuf,
}

fn null_value(column: &ColumnDef, n: u64) -> Error {
    Error::NullValue {
        column: column.name.clone(),
        row: n,
    }
}

/// Gives the row these values, one for each of the columns at these positions.
fn fill_in<'a>(
    row: &mut [Datum<'a>],
    columns: &[usize],
    values: &'a DatumBuf,
    def: &TableDef,
    n: u64,
) -> Result<()> {
    for (&at, value) in columns.iter().zip(values.datums()) {
        if value.is_none() && !def.columns[at].nullable {
            return Err(null_value(&def.columns[at], n));
        }
        row[at] = value;
    }
    Ok(())
}

impl NewTable {
    /// `table` is empty and has the columns of `def`, which says by their ids which ones are those of `old`,
    /// and what others have in its rows, but for those at the positions in `converted`, which are new.
    pub fn new(
        table: Arc<OpenTable>,
        def: &TableDef,
        old: &TableDef,
        converted: &[usize],
    ) -> NewTable {
        let source = |(at, column): (usize, &ColumnDef)| {
            let own = old.columns.iter().position(|own| own.id == column.id);
            match own {
                Some(at) => Source::Column(at),
                None if converted.contains(&at) => Source::Converted,
                None if def.computed.contains(&at) => Source::Asked,
                None if def.auto_increment == Some(at) => Source::Asked,
                None => Source::Value(column.default.clone()),
            }
        };
        let sources: Vec<_> = def.columns.iter().enumerate().map(source).collect();
        let is_asked = |at: &usize| matches!(sources[*at], Source::Asked);
        // What is counted comes first: others may be computed of it.
        let counted = def.auto_increment.filter(is_asked);
        let computed = (0..sources.len()).filter(|at| Some(*at) != counted);
        let asked = counted
            .into_iter()
            .chain(computed.filter(is_asked))
            .collect();
        let computed = def.computed.iter().copied();
        let asked_anew = counted.into_iter().chain(computed).collect();
        NewTable {
            table,
            converted: converted.to_vec(),
            asked,
            asked_anew,
            counted,
            sources,
        }
    }

    /// How others may use the old table meanwhile (REBUILD-3).
    pub(super) fn others_may(&self) -> TableMode {
        match self.counted {
            Some(_) => TableMode::Shared,
            None => TableMode::IntentionExclusive,
        }
    }

    fn asking<'a>(&self, trx: &Transaction, old: &'a OpenTable) -> Result<Asking<'a>> {
        let source = match self.asked.is_empty() && self.converted.is_empty() {
            true => trx.values(),
            false => Some(trx.value_source(old)?),
        };
        Ok(Asking { source, old })
    }

    /// The new table's row of an old one, the `n`th that is looked at; 0: it was looked at before, or is
    /// gone.
    fn values<'a>(
        &'a self,
        row: &RowRef<'a>,
        n: u64,
        asking: &Asking<'_>,
        answers: &'a mut Answers,
    ) -> Result<Vec<Datum<'a>>> {
        let Asking { source, old } = asking;
        let Answers {
            converted,
            instead_of_null,
            computed,
        } = answers;
        let value = |source: &'a Source| match source {
            Source::Column(at) => row.get(*at),
            Source::Value(value) => value.as_deref(),
            Source::Asked | Source::Converted => None,
        };
        let mut values: Vec<Datum<'a>> = self.sources.iter().map(value).collect();
        let def = &self.table.def;
        if let Some(source) = source.as_ref().filter(|_| !self.converted.is_empty()) {
            let row: Vec<Datum<'_>> = (0..row.len()).map(|column| row.get(column)).collect();
            *converted = converted_of(&**source, old, &row, &self.converted, n)?;
            fill_in(&mut values, &self.converted, converted, def, n)?;
        }
        let mut missing = Vec::new();
        for (at, column) in def.columns.iter().enumerate() {
            if values[at].is_some() || column.nullable || self.asked.contains(&at) {
                continue;
            }
            let source = source.as_ref();
            let value = source.and_then(|source| source.instead_of_null(&old.def.name, at, n));
            instead_of_null.push(Some(&value.ok_or_else(|| null_value(column, n))?));
            missing.push(at);
        }
        // What was computed of NULL, or of another type, is something else now.
        let to_compute = match missing.is_empty() && self.converted.is_empty() {
            true => &self.asked,
            false => &self.asked_anew,
        };
        for (at, value) in missing.into_iter().zip(instead_of_null.datums()) {
            values[at] = value;
        }
        if let Some(source) = source.as_ref().filter(|_| !to_compute.is_empty()) {
            *computed = computed_of(&**source, old, &values, to_compute)?;
            fill_in(&mut values, to_compute, computed, def, n)?;
        }
        Ok(values)
    }

    /// What the new table's row has as hidden row id, if it has one.
    fn row_id<'k>(&self, old_key: &'k [u8]) -> Option<&'k [u8]> {
        self.table.def.has_row_id().then_some(old_key)
    }

    /// A transaction that fills the table.
    fn filler(&self, of: &Transaction) -> Transaction {
        let mut filler = Transaction::begin(of.core().clone(), Isolation::RepeatableRead);
        filler.wait_as(of);
        // The old table's rows have parents, and nobody is this one's child.
        filler.set_foreign_key_checks(false);
        filler
    }

    /// Fills the table with what the view of `seen` sees of the old one.
    pub(super) fn fill(
        &self,
        old: &Arc<OpenTable>,
        room: BuildRoom,
        seen: &mut Transaction,
        tell: TellDuplicate<'_>,
        going_on: GoingOn<'_>,
    ) -> Result<()> {
        let asking = self.asking(seen, old)?;
        let mut filler = self.filler(seen);
        let mut load = TableLoad::begin(&mut filler, &self.table, room)?;
        load.tell_late();
        let meter = Meter::begin(
            seen.watch(),
            Phase::Read,
            old.row_count(),
            ASKED_EVERY as u64,
        );
        let mut cursor = Cursor::open(old.clone(), 0)?;
        let mut found = cursor.first(seen, LockMode::None)?;
        let mut n = 0usize;
        while found {
            let row = cursor.row()?;
            n += 1;
            let mut answers = Answers::default();
            let values = self.values(&row, n as u64, &asking, &mut answers)?;
            load.push_with(&mut filler, self.row_id(cursor.key()), &values)?;
            meter.add(1);
            if n.is_multiple_of(ASKED_EVERY) {
                going_on()?;
            }
            found = cursor.next(seen)?;
        }
        drop(meter);
        load.finish(&mut filler, tell)?;
        filler.commit()
    }

    /// A round (REBUILD-1).
    pub(super) fn catch_up(&self, round: &Round<'_>, tell: TellDuplicate<'_>) -> Result<()> {
        assert!(
            self.others_may() != TableMode::Shared || round.keys.is_empty(),
            "REBUILD-3: rows were changed while they were being counted"
        );
        let asking = self.asking(round.now, round.table)?;
        let mut trx = self.filler(round.now);
        trx.use_table(&self.table, TableMode::Exclusive)?;
        let coming = self.remove_old(&mut trx, round, &asking)?;
        let mut version = Version::default();
        for key in coming {
            trx.check_interrupt()?;
            version.read(round.now, round.table, key)?;
            let row = version.whole_row(round.now, round.table, key)?;
            let mut answers = Answers::default();
            let values = self.values(&row, 0, &asking, &mut answers)?;
            let done = insert_row_with(&mut trx, &self.table, self.row_id(key), &values);
            if let Err(Error::DuplicateKey { index }) = &done {
                self.tell_other(&mut trx, index, &values, tell)?;
            }
            done?;
        }
        trx.commit()
    }

    /// Shows the row that is in the way of one with these values.
    fn tell_other(
        &self,
        trx: &mut Transaction,
        index: &str,
        values: &[Datum<'_>],
        tell: TellDuplicate<'_>,
    ) -> Result<()> {
        let number = self.table.def.index_number(index).unwrap_or_default();
        let codec = &self.table.index_at(number)?.codec;
        let key: Vec<Datum<'_>> = codec.columns().map(|column| values[column]).collect();
        let mut cursor = Cursor::open(self.table.clone(), number)?;
        if cursor.seek(trx, &key, KeyMatch::Exact, LockMode::Shared)? {
            tell(index, &cursor.row()?);
        }
        Ok(())
    }

    /// Deletes the rows that are not there any more, and updates those whose unique keys are the same.
    /// Returns the keys of those that are to be inserted.
    fn remove_old<'k>(
        &self,
        trx: &mut Transaction,
        round: &Round<'k>,
        asking: &Asking<'_>,
    ) -> Result<Vec<&'k [u8]>> {
        let (was, now, from) = (round.was, round.now, round.table);
        let (mut old, mut new) = (Version::default(), Version::default());
        let (mut at, mut payload) = (Vec::new(), Vec::new());
        let mut coming = Vec::new();
        for (n, &key) in (1..).zip(round.keys) {
            trx.check_interrupt()?;
            round.meter.add(1);
            let writers = (old.read(was, from, key)?, new.read(now, from, key)?);
            // Of what one transaction wrote views see only the last.
            if writers.0 == writers.1 {
                continue;
            }
            let old = writers.0.map(|_| old.whole_row(was, from, key));
            let new = writers.1.map(|_| new.whole_row(now, from, key));
            let (old, new) = (old.transpose()?, new.transpose()?);
            let (mut of_new, mut of_old) = (Answers::default(), Answers::default());
            let new = new.as_ref();
            let new = new.map(|row| self.values(row, n, asking, &mut of_new));
            let new = new.transpose()?;
            let Some(old) = old else {
                coming.extend(new.is_some().then_some(key));
                continue;
            };
            let old = self.values(&old, 0, asking, &mut of_old)?;
            at.clear();
            clustered_key(&self.table, self.row_id(key), &old, &mut at)?;
            if !read_leaf(&self.table.clustered, &at, &mut payload)? {
                let expected = "REBUILD-1: a row that was changed since";
                return Err(self.table.clustered.damage_at(&at, expected, "none"));
            }
            let current = CurrentRow {
                key: &at,
                payload: &payload,
            };
            match new {
                Some(new) if self.has_unique_keys_of(&new, &old)? => {
                    update_row(trx, &self.table, current, &new)?;
                }
                new => {
                    delete_row(trx, &self.table, current)?;
                    coming.extend(new.is_some().then_some(key));
                }
            }
        }
        Ok(coming)
    }

    /// Whether two rows, which are one in the old table, have the same keys that no other row may have.
    fn has_unique_keys_of(&self, a: &[Datum<'_>], b: &[Datum<'_>]) -> Result<bool> {
        let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
        for index in self.table.indexes() {
            if index.unique || index.id == self.table.clustered.id {
                index.codec.encode_columns(a, &mut of_a)?;
                index.codec.encode_columns(b, &mut of_b)?;
            }
        }
        Ok(of_a == of_b)
    }
}
