//! What happens between the phases of a run: everything is compared, changed as a whole, closed or crashed, and opened again.

use super::*;

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
            self.change_a_table();
            self.truncate_undo();
            self.tables.clear();
            self.db.take().expect("open").close().unwrap();
        }
        self.db = Some(self.open());
        self.create_temporary_tables();
        self.open_tables();
        self.verify_all();
        self.fill();
    }

    /// Every commit was acknowledged as durable, so it must be found again, and nothing else.
    pub(super) fn crash(&mut self) {
        self.tables.clear();
        self.db.take().expect("open").crash();
        self.slots.iter_mut().for_each(|slot| *slot = None);
    }

    /// With nobody looking, purge gets rid of everything that was deleted.
    pub(super) fn verify_purge(&self) {
        assert!(
            self.db().wait_for_purge(Duration::from_secs(60)),
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

    /// Now and then a table is emptied or gets another name and its old one back.
    pub(super) fn change_a_table(&mut self) {
        let table = self.rng.random_range(0..self.tables.len());
        let name = self.oracle.def(table).name.clone();
        match self.rng.random_range(0..4) {
            0 => {
                self.tables.clear();
                let started = self.operations();
                self.db().truncate_table(&name).unwrap();
                self.oracle.truncate(table);
                self.acknowledged(started);
                self.trace.note(format!("truncate {name}"));
            }
            1 => {
                self.tables.clear();
                for (from, to) in [(&*name, "other/place"), ("other/place", &*name)] {
                    let started = self.operations();
                    self.db().rename_table(from, to).unwrap();
                    self.history.name(table, to);
                    self.acknowledged(started);
                }
                self.trace.note(format!("rename {name} and back"));
            }
            _ => {}
        }
    }

    pub(super) fn verify_all(&mut self) {
        let mut trx = self.db().begin(Isolation::RepeatableRead);
        let tx = self.oracle.begin();
        for (number, table) in self.tables.iter().enumerate() {
            let def = self.oracle.def(number);
            let rows = self.oracle.rows(&tx, number, Read::Latest).len();
            self.report.most_rows = self.report.most_rows.max(rows);
            for index in 0..=def.indexes.len() {
                let want: Vec<Row> = (self
                    .oracle
                    .entries(&tx, number, index, Read::Latest)
                    .into_iter())
                .map(|e| e.row)
                .collect();
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
        for (number, table) in self.tables.iter().enumerate() {
            let name = &self.oracle.def(number).name;
            let rows = self.oracle.rows(&tx, number, Read::Latest).len();
            let check = self.db().check_table(table).unwrap();
            assert!(check.errors.is_empty(), "{name}: {:?}", check.errors);
            assert_eq!(check.rows, rows as u64, "{name}");
        }
    }
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
