//! What happens between the phases of a run: everything is compared, changed as a whole, closed or crashed,
//! and opened again.

use super::*;

/// What the name of an index ends in that took another one's place.
pub(super) const REPLACED: &str = "_new";

impl Runner {
    /// Compares everything and reopens the database: after an orderly end, or after a crash that
    /// takes the open transactions with it.
    pub(super) fn end_phase(&mut self) {
        if self.rng.random_bool(0.5) {
            self.crash();
            self.trace.note("crash".into());
        } else {
            for number in 0..self.slots.len() {
                if let Some(slot) = self.slots[number].take() {
                    self.end(slot);
                }
            }
            self.trace.note("end of phase".into());
            self.verify_all();
            self.verify_purge();
            let table = self.rng.random_range(0..self.tables.len());
            let what = self.change_a_table(table);
            self.trace.note(what);
            self.truncate_undo();
            self.backup = None;
            self.tables.clear();
            self.db.take().expect("open").close().unwrap();
        }
        self.db = Some(self.open());
        self.decide_prepared();
        self.create_temporary_tables();
        self.open_tables();
        self.verify_all();
        self.fill();
    }

    /// From here on changes are buffered, or not any more, or some of what is buffered is merged.
    pub(super) fn change_buffering(&mut self) -> String {
        let table = self.rng.random_range(0..self.tables.len());
        match self.rng.random_range(0..4) {
            0 => {
                let all = self.rng.random_bool(0.7);
                self.db().buffer_all_changes(all);
                format!("all changes are buffered: {all}")
            }
            leaves => {
                let name = self.tables[table].def().name.clone();
                match self.db().merge_changes(&name, leaves) {
                    Ok(merged) => format!("{merged} entries of {name} are merged"),
                    Err(Error::NoSpace { .. }) => format!("no room to merge entries of {name}"),
                    Err(e) => panic!("merging entries of {name}: {e}"),
                }
            }
        }
    }

    /// Every commit was acknowledged as durable, so it must be found again, and what was prepared, and
    /// nothing else.
    pub(super) fn crash(&mut self) {
        self.backup = None;
        self.tables.clear();
        self.db.take().expect("open").crash();
        self.slots.iter_mut().for_each(|slot| *slot = None);
    }

    /// Ends what was prepared when the database stopped, as its coordinator says.
    fn decide_prepared(&mut self) {
        let prepared = self.history.prepared();
        let names: Vec<Xid> = prepared.iter().map(|(xid, _)| *xid).collect();
        assert_eq!(self.db().prepared(), names);
        for (xid, tx) in prepared {
            let commits = self.rng.random_bool(0.5);
            self.end_prepared(&xid, None, (*tx).clone(), commits);
        }
    }

    /// With nobody looking, purge gets rid of everything that was deleted.
    pub(super) fn verify_purge(&self) {
        assert!(
            super::super::purge::comes_to_an_end(self.db(), Duration::from_secs(20)),
            "purge did not come to an end"
        );
        self.db().core().undo.check().unwrap();
        for table in &self.tables {
            let check = self.db().check_table(table).unwrap();
            assert_eq!(
                (check.deleted_rows, check.old_overflow_pages, check.errors),
                (0, 0, Vec::new()),
                "{}",
                table.def().name
            );
        }
    }

    /// Now and then an undo tablespace is truncated: nobody has it by now.
    pub(super) fn truncate_undo(&mut self) {
        let spaces = self.db().core().undo.spaces().len();
        if spaces >= 2 && self.rng.random_bool(0.5) {
            let number = self.rng.random_range(1..=spaces);
            let at_most = Duration::from_secs(10);
            assert!(self.db().truncate_undo(number, at_most).unwrap());
            self.trace
                .note(format!("truncate undo tablespace {number}"));
        }
    }

    /// A table is emptied, gets another name and its old one back, is dropped and made again, or gets another
    /// index in the place of one of its own. Who uses it, or may look at it as it was, ends before.
    pub(super) fn change_a_table(&mut self, table: usize) -> String {
        if self.is_temporary(table) {
            return "nothing".into();
        }
        for number in 0..self.slots.len() {
            let uses = |slot: &mut Slot| slot.tx.touched[table] || slot.tx.has_snapshot();
            if let Some(slot) = self.slots[number].take_if(uses) {
                self.end(slot);
            }
        }
        let def = self.oracle.def(table).clone();
        let name = def.name.clone();
        let mut started = self.operations();
        self.trace.doing = format!("change of {name}");
        let kind = self.rng.random_range(0..4);
        let first = match kind {
            0 => self.db().truncate_table(&name),
            1 => self.db().rename_table(&name, "other/place"),
            3 => self.replace_index(&name),
            _ => self.db().drop_table(&name),
        };
        match first {
            // Another one has read it.
            Err(Error::LockWaitTimeout) if self.slots.iter().any(Option::is_some) => {
                self.report.waits += 1;
                return format!("change of {name} would have to wait");
            }
            done => done.unwrap(),
        }
        match kind {
            0 => self.oracle.truncate(table),
            1 => {
                self.history.name(table, Some("other/place"));
                self.acknowledged(started);
                started = self.operations();
                self.db().rename_table("other/place", &name).unwrap();
                self.history.name(table, Some(&name));
            }
            3 => {}
            _ => {
                self.oracle.truncate(table);
                self.history.name(table, None);
                self.acknowledged(started);
                started = self.operations();
                self.create_table(table, &def);
                self.history.name(table, Some(&name));
            }
        }
        self.acknowledged(started);
        self.tables[table] = self.db().table(&name).unwrap();
        let what = [
            "truncate",
            "rename and back",
            "drop and create",
            "replace an index of",
        ][kind];
        format!("{what} {name}")
    }

    /// Takes an index of the table away and builds one like it, under another name.
    fn replace_index(&mut self, table: &str) -> varve::Result<()> {
        let mut def = self.db().table(table)?.def().clone();
        let n = self.rng.random_range(0..def.indexes.len());
        let index = &mut def.indexes[n];
        index.id = IndexId(0);
        match index.name.strip_suffix(REPLACED) {
            Some(name) => index.name = name.to_string(),
            None => index.name.push_str(REPLACED),
        }
        self.db().redefine_table(&def)
    }

    pub(super) fn verify_all(&mut self) {
        let most_rows = verify(&self.oracle, self.db(), &self.tables, &|_| true);
        self.report.most_rows = self.report.most_rows.max(most_rows);
    }
}

/// The tables that `is_there` says have what has committed, and nothing else. Returns the most rows of one.
pub(super) fn verify(
    oracle: &Oracle,
    db: &Database,
    tables: &[Table],
    is_there: &dyn Fn(usize) -> bool,
) -> usize {
    let mut trx = db.begin(Isolation::RepeatableRead);
    let tx = oracle.begin();
    let mut most_rows = 0;
    let there = || tables.iter().enumerate().filter(|(n, _)| is_there(*n));
    for (number, table) in there() {
        let def = oracle.def(number);
        let rows = oracle.rows(&tx, number, Read::Latest).len();
        most_rows = most_rows.max(rows);
        for index in 0..=def.indexes.len() {
            let want = oracle.entries(&tx, number, index, Read::Latest);
            let want: Vec<Row> = want.into_iter().map(|e| e.row).collect();
            let mut cursor = table.cursor(index).unwrap();
            let forward = read_all(&mut cursor, &mut trx, Cursor::first, Cursor::next);
            all_same(
                &forward,
                &want,
                &format!("{} index {index} forward", def.name),
            );
            let mut backward = read_all(&mut cursor, &mut trx, Cursor::last, Cursor::prev);
            backward.reverse();
            all_same(
                &backward,
                &want,
                &format!("{} index {index} backward", def.name),
            );
        }
    }
    trx.commit().unwrap();
    for (number, table) in there() {
        let name = &oracle.def(number).name;
        let rows = oracle.rows(&tx, number, Read::Latest).len();
        let check = db.check_table(table).unwrap();
        assert!(check.errors.is_empty(), "{name}: {:?}", check.errors);
        assert_eq!(check.rows, rows as u64, "{name}");
    }
    most_rows
}

fn read_all(
    cursor: &mut Cursor,
    trx: &mut Transaction,
    start: fn(&mut Cursor, &mut Transaction, LockMode) -> varve::Result<bool>,
    step: fn(&mut Cursor, &mut Transaction) -> varve::Result<bool>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut on_row = start(cursor, trx, LockMode::None).unwrap();
    while on_row {
        rows.push(cursor.row().unwrap().values().unwrap());
        on_row = step(cursor, trx).unwrap();
    }
    rows
}

#[track_caller]
fn all_same(got: &[Row], want: &[Row], what: &str) {
    let first = got.iter().zip(want).position(|(g, w)| g != w);
    if let Some(at) = first {
        panic!(
            "{what}, row {at}: found {:?}, expected {:?}",
            Brief(&got[at]),
            Brief(&want[at])
        );
    }
    assert_eq!(got.len(), want.len(), "{what}: number of rows");
}
