//! The disk fails where temporary tables are. What is lost then is lost at the next start anyway: it costs
//! them, and nobody else.
//!
//! What could break here (TEMP-6): a failed write that stops the database; a page that is read as it was
//! before the write that failed; a transaction over both kinds of tables that can't end any more, or ends by
//! half; frames that nobody can write and so nobody can use; history that purge does not get through; a table
//! that can't be dropped.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use varve::Isolation::RepeatableRead;
use varve::internals::io::{Disk, OpenMode};
use varve::{ColumnType, Database, Error, Options, Result, Table, TableDef, Transaction, values};
use varve_sim::{Failure, Fault, Operation, SimDisk};

const DIR: &str = "/data/db";
const ROWS: i64 = 3000;

fn open(disk: &SimDisk) -> Database {
    let options = Options {
        page_size: 4096,
        buffer_pool_bytes: 1 << 20,
        redo_capacity_bytes: 8 << 20,
        ..Options::default()
    };
    Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options).unwrap()
}

fn def(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("fill", ColumnType::Bytes(1000))
        .primary(&["id"])
}

struct Play {
    disk: SimDisk,
    db: Database,
    lasting: Table,
    temporary: Table,
    /// Of another session.
    other: Table,
}

fn play() -> Play {
    let disk = SimDisk::default();
    let db = open(&disk);
    let lasting = db.create_table(&def("a/t")).unwrap();
    let [temporary, other] = ["a/#1", "a/#2"].map(|n| db.create_temporary_table(&def(n)).unwrap());
    Play {
        disk,
        db,
        lasting,
        temporary,
        other,
    }
}

fn insert(trx: &mut Transaction, table: &Table, ids: std::ops::Range<i64>) -> Result<()> {
    let put = |id: i64| table.insert(trx, values![id, vec![id as u8; 1000]]);
    ids.into_iter().try_for_each(put)
}

fn count(trx: &mut Transaction, table: &Table) -> Result<usize> {
    let mut rows = 0;
    for row in table.range(trx, 0, values![i64::MIN]..values![i64::MAX])? {
        row?;
        rows += 1;
    }
    Ok(rows)
}

fn is_of_temporary_tables(e: &Error) {
    let text = e.to_string();
    let says = ["temp.vdt", "temporary tables", "drop them"];
    assert!(says.iter().all(|s| text.contains(s)), "{text}");
}

impl Play {
    fn fail(&self, operation: Operation, failure: Failure) {
        let fault = Fault::always(operation, failure);
        self.disk.inject(fault.on("temp.vdt"));
    }

    /// More than the pool holds goes through it.
    fn push_all_out(&self, ids: std::ops::Range<i64>) {
        let mut trx = self.db.begin(RepeatableRead);
        insert(&mut trx, &self.lasting, ids).unwrap();
        trx.commit().unwrap();
    }

    /// Temporary tables are refused and can be dropped; all else goes on, in this process and the next.
    fn only_temporary_tables_are_lost(self, lasting_rows: i64) {
        let db = &self.db;
        db.core().check_usable().unwrap();
        let mut trx = db.begin(RepeatableRead);
        is_of_temporary_tables(&count(&mut trx, &self.other).unwrap_err());
        is_of_temporary_tables(&insert(&mut trx, &self.other, 9..10).unwrap_err());
        trx.rollback().unwrap();
        is_of_temporary_tables(&db.create_temporary_table(&def("a/#3")).err().unwrap());
        is_of_temporary_tables(&db.truncate_table("a/#2").unwrap_err());
        // As a session does it, and as DROP TABLE does.
        let mut trx = db.begin(RepeatableRead);
        trx.drop_temporary_table(&self.temporary).unwrap();
        trx.commit().unwrap();
        db.drop_table("a/#2").unwrap();

        self.push_all_out(100_000..100_000 + ROWS);
        let mut trx = db.begin(RepeatableRead);
        let all = lasting_rows + ROWS;
        assert_eq!(count(&mut trx, &self.lasting).unwrap() as i64, all);
        trx.rollback().unwrap();
        assert!(db.wait_for_purge(Duration::from_secs(120)));
        let report = db.check_table(&self.lasting).unwrap();
        assert_eq!((report.errors, report.rows as i64), (vec![], all));
        let core = db.core();
        let end = core.log.next_lsn();
        core.check_usable().unwrap();
        let Play { disk, db, .. } = self;
        db.close().unwrap();

        disk.heal();
        let db = open(&disk);
        let mut trx = db.begin(RepeatableRead);
        let lasting = db.table("a/t").unwrap();
        assert_eq!(count(&mut trx, &lasting).unwrap() as i64, all);
        let temporary = db.create_temporary_table(&def("a/#1")).unwrap();
        insert(&mut trx, &temporary, 0..ROWS).unwrap();
        assert_eq!(count(&mut trx, &temporary).unwrap() as i64, ROWS);
        trx.commit().unwrap();
        assert!(db.core().log.next_lsn() > end);
        db.close().unwrap();
    }
}

/// How the transaction ends that met the failure.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Commit,
    Rollback,
    Statement,
}

const ENDS: [End; 3] = [End::Commit, End::Rollback, End::Statement];

/// Ends it; returns how many rows of the lasting table stay.
fn end(mut trx: Transaction, how: End) -> i64 {
    match how {
        End::Commit => trx.commit().unwrap(),
        End::Rollback => trx.rollback().unwrap(),
        End::Statement => {
            trx.rollback_statement().unwrap();
            trx.commit().unwrap();
        }
    }
    if how == End::Rollback { 0 } else { 10 }
}

/// TEMP-6.
#[test]
fn writes_that_fail_cost_temporary_tables_only() {
    for (how, failure) in ENDS
        .map(|how| (how, Failure::Io))
        .into_iter()
        .chain([(End::Commit, Failure::NoSpace)])
    {
        let play = play();
        let mut trx = play.db.begin(RepeatableRead);
        insert(&mut trx, &play.lasting, 0..10).unwrap();
        insert(&mut trx, &play.temporary, 0..100).unwrap();
        play.fail(Operation::Write, failure);
        trx.start_statement();
        // More than the pool holds: what can't be written is wanted again.
        let went = insert(&mut trx, &play.temporary, 100..20 * ROWS);
        is_of_temporary_tables(&went.unwrap_err());
        let rows = end(trx, how);
        play.only_temporary_tables_are_lost(rows);
    }
}

/// RB-3: a transaction ends, part of whose undo of temporary tables is on the disk only when that is lost.
fn ends_without_its_undo(how: End, lose: impl Fn(&Play)) {
    // A commit wants few pages, which may all have stayed in the pool.
    let met = (0..20).any(|_| {
        let play = play();
        let mut trx = play.db.begin(RepeatableRead);
        insert(&mut trx, &play.lasting, 0..10).unwrap();
        insert(&mut trx, &play.temporary, 0..ROWS).unwrap();
        // A statement that is to be taken back.
        trx.start_statement();
        insert(&mut trx, &play.temporary, ROWS..2 * ROWS).unwrap();
        play.push_all_out(200_000..200_000 + ROWS);
        lose(&play);
        let rows = end(trx, how);
        play.push_all_out(300_000..300_000 + ROWS);
        let met = play.db.core().undo.env.spaces.check_temporary().is_err();
        if met {
            play.only_temporary_tables_are_lost(rows + 2 * ROWS);
        }
        met
    });
    assert!(met, "{how:?} never wanted a page that it could not read");
}

#[test]
fn reads_that_fail_cost_temporary_tables_only() {
    for how in ENDS {
        ends_without_its_undo(how, |play| play.fail(Operation::Read, Failure::Io));
    }
}

#[test]
fn damaged_pages_cost_temporary_tables_only() {
    for how in ENDS {
        ends_without_its_undo(how, |play| {
            let path = Path::new(DIR).join("temp.vdt");
            let file = play.disk.open(&path, OpenMode::Existing).unwrap();
            let garbage = vec![0x5a; file.len().unwrap() as usize];
            file.write_at(&garbage, 0).unwrap();
        });
    }
}

/// Purge meets it, with which nobody waits for an answer.
#[test]
fn purge_passes_over_what_is_lost() {
    let play = play();
    let mut trx = play.db.begin(RepeatableRead);
    insert(&mut trx, &play.temporary, 0..ROWS).unwrap();
    trx.commit().unwrap();
    play.push_all_out(0..ROWS);
    play.fail(Operation::Read, Failure::Io);
    let mut trx = play.db.begin(RepeatableRead);
    let seen = count(&mut trx, &play.temporary);
    assert!(matches!(seen, Err(Error::Io { .. })), "{:?}", seen.err());
    trx.rollback().unwrap();
    play.disk.heal();
    // One statement could not read; nothing is lost by that.
    let mut trx = play.db.begin(RepeatableRead);
    for id in 0..ROWS {
        assert!(play.temporary.delete(&mut trx, values![id]).unwrap());
    }
    play.fail(Operation::Read, Failure::Io);
    trx.commit().unwrap();
    play.push_all_out(ROWS..2 * ROWS);
    assert!(play.db.wait_for_purge(Duration::from_secs(120)));
    play.db.core().check_usable().unwrap();
    play.db.close().unwrap();
}

/// A full disk refuses statements. Nothing is lost by that.
#[test]
fn a_full_disk_costs_nothing() {
    let play = play();
    play.fail(Operation::Extend, Failure::NoSpace);
    let mut trx = play.db.begin(RepeatableRead);
    insert(&mut trx, &play.temporary, 0..10).unwrap();
    trx.start_statement();
    let went = insert(&mut trx, &play.temporary, 10..20 * ROWS);
    assert!(matches!(went, Err(Error::NoSpace { .. })), "{went:?}");
    trx.rollback_statement().unwrap();
    assert_eq!(count(&mut trx, &play.temporary).unwrap(), 10);
    play.disk.heal();
    insert(&mut trx, &play.temporary, 10..ROWS).unwrap();
    assert_eq!(count(&mut trx, &play.temporary).unwrap() as i64, ROWS);
    trx.commit().unwrap();
    play.db.close().unwrap();
}

/// A session's work, with splits, merges, undo of several pages, and tables that come and go. Counts the rows
/// that it leaves in the other table.
fn work(db: &Database, lasting: &Table, kept: &mut i64) -> Result<()> {
    let table = db.create_temporary_table(&def("a/#9"))?;
    for round in 0..3 {
        let mut trx = db.begin(RepeatableRead);
        insert(&mut trx, lasting, 100 * round..100 * round + 10).unwrap();
        let ids = 1000 * round..1000 * round + 600;
        let done = insert(&mut trx, &table, ids.clone()).and_then(|()| {
            trx.start_statement();
            let mut even = ids.filter(|id| id % 2 == 0);
            even.try_for_each(|id| table.delete(&mut trx, values![id]).map(drop))?;
            match round {
                1 => trx.rollback_statement(),
                _ => Ok(()),
            }
        });
        // What concerns the other table is taken back and kept whatever becomes of the temporary one.
        match round {
            2 => trx.rollback().unwrap(),
            _ => {
                trx.commit().unwrap();
                *kept += 10;
            }
        }
        done?;
    }
    db.drop_table("a/#9")
}

/// Wherever the disk begins to fail.
#[test]
fn any_read_or_write_may_be_the_first_to_fail() {
    let mut lost = 0;
    for operation in [Operation::Read, Operation::Write] {
        for after in (0..12).chain((12..600).step_by(49)) {
            let play = play();
            play.push_all_out(500_000..500_000 + ROWS);
            let fault = Fault::always(operation, Failure::Io);
            play.disk
                .inject(fault.on("temp.vdt").limited(after, u64::MAX));
            let mut kept = ROWS;
            let went = work(&play.db, &play.lasting, &mut kept);
            let context = format!("{operation:?} number {after}");
            play.db.core().check_usable().expect(&context);
            let mut trx = play.db.begin(RepeatableRead);
            let found = count(&mut trx, &play.lasting).unwrap();
            assert_eq!(found as i64, kept, "{context}");
            trx.rollback().unwrap();
            assert!(play.db.wait_for_purge(Duration::from_secs(120)));
            play.db.core().check_usable().expect(&context);
            lost += u32::from(went.is_err());
            play.db.close().unwrap();
        }
    }
    println!("{lost} times the work met a failure");
    assert!(lost > 20, "{lost}");
}
