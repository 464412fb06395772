//! How much redo the change of a row makes, in transactions of a hundred rows: bytes for each row, by record,
//! which the test prints.
//!
//! What could break here: a field that does not count, or bytes of a row that did not change, come into the
//! log. Each row's change is read again at every recovery, so the log's size is the time until the first
//! answer. What is asserted leaves room for ids and page numbers that are a byte longer.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use varve::internals::base::Lsn;
use varve::internals::mtr::record::{Record, records};
use varve::internals::redo::{ControlFile, RedoReader};
use varve::{
    ColumnType, Cursor, Database, Isolation, KeyMatch, LockMode, Options, Table, TableDef,
    Transaction,
};
use varve_sim::SimDisk;

const ROWS: i32 = 3000;
const ROWS_OF_A_TRANSACTION: i32 = 100;

/// The table of the benchmarks.
fn definition() -> TableDef {
    TableDef::new("bench/rows")
        .column("id", ColumnType::i32())
        .column("k", ColumnType::i32())
        .column("c", ColumnType::text(120))
        .column("pad", ColumnType::text(60))
        .primary(&["id"])
        .index("k", &["k"])
}

struct Bench {
    disk: SimDisk,
    db: Database,
    table: Table,
    cursor: Cursor,
}

impl Bench {
    fn new() -> Bench {
        let disk = SimDisk::default();
        let options = Options {
            redo_capacity_bytes: 32 << 20,
            buffer_pool_bytes: 32 << 20,
            logger: Some(Arc::new(|_, _| {})),
            ..Options::default()
        };
        let db = Database::open_on(Arc::new(disk.clone()), Path::new("/db"), options).unwrap();
        let table = db.create_table(&definition()).unwrap();
        let cursor = table.cursor(0).unwrap();
        Bench {
            disk,
            db,
            table,
            cursor,
        }
    }

    fn lsn(&self) -> Lsn {
        let metrics = self.db.metrics();
        let lsn = metrics.iter().find(|m| m.name == "log_lsn_current");
        Lsn(lsn.expect("a metric").value)
    }

    /// Does something to each row, and returns how many bytes each record of the log took for one.
    fn each(
        &mut self,
        what: &str,
        change: impl Fn(&mut Transaction, &Table, &mut Cursor, i32),
    ) -> f64 {
        let begin = self.lsn();
        for first in (0..ROWS).step_by(ROWS_OF_A_TRANSACTION as usize) {
            let mut trx = self.db.begin(Isolation::RepeatableRead);
            for id in first..first + ROWS_OF_A_TRANSACTION {
                change(&mut trx, &self.table, &mut self.cursor, id);
            }
            trx.commit().unwrap();
        }
        let end = self.lsn();
        self.db.flush_log().unwrap();
        println!("{what}:");
        let bytes = logged(&self.disk.copy(), begin, end);
        for (record, (count, bytes)) in &bytes {
            let (count, bytes) = (
                f64::from(*count) / f64::from(ROWS),
                *bytes as f64 / f64::from(ROWS),
            );
            println!("  {record:20} {count:8.2} times {bytes:8.1} bytes");
        }
        let sum = (end.0 - begin.0) as f64 / f64::from(ROWS);
        println!("  {sum:.1} bytes a row");
        sum
    }

    /// Updates each row in place.
    fn update(&mut self, what: &str, row: impl Fn(i32) -> Row) -> f64 {
        self.each(what, |trx, table, cursor, id| {
            find(trx, cursor, id);
            trx.update(table, cursor, &row(id).datums()).unwrap();
        })
    }
}

struct Row {
    id: [u8; 4],
    k: [u8; 4],
    c: String,
    pad: String,
}

impl Row {
    fn new(id: i32, k: i32, c: String) -> Row {
        Row {
            id: id.to_le_bytes(),
            k: k.to_le_bytes(),
            c,
            pad: "67847967377-48000963322-62604785301-91415491898-96926520291".into(),
        }
    }

    fn datums(&self) -> [Option<&[u8]>; 4] {
        [
            Some(&self.id),
            Some(&self.k),
            Some(self.c.as_bytes()),
            Some(self.pad.as_bytes()),
        ]
    }
}

fn find(trx: &mut Transaction, cursor: &mut Cursor, id: i32) {
    let key = [Some(&id.to_le_bytes()[..])];
    let found = cursor.seek(trx, &key, KeyMatch::Exact, LockMode::Exclusive);
    assert!(found.unwrap());
}

/// What the log has from one LSN to another, by record: how often, and how many bytes.
fn logged(disk: &SimDisk, begin: Lsn, end: Lsn) -> BTreeMap<String, (u32, u64)> {
    let dir = Path::new("/db");
    let control = ControlFile::open(disk, dir, &mut |_| ()).unwrap().control();
    let mut reader =
        RedoReader::open(disk, dir, &control.uuid, begin, &Default::default()).unwrap();
    let mut found = BTreeMap::<String, (u32, u64)>::new();
    let mut add = |name: &str, bytes: usize| {
        let of_it = found.entry(name.into()).or_default();
        *of_it = (of_it.0 + 1, of_it.1 + bytes as u64);
    };
    while let Some(frame) = reader.next().unwrap().filter(|frame| frame.start < end) {
        let mut rest = frame.body.len();
        add("frame", (frame.end.0 - frame.start.0) as usize - rest);
        for record in records(frame.body) {
            let Record::Op { op, .. } = record.unwrap() else {
                continue;
            };
            let mut encoded = Vec::new();
            op.encode(&mut encoded);
            let name = format!("{op:?}");
            add(name.split([' ', '{']).next().unwrap(), encoded.len());
            rest -= encoded.len();
        }
        add("which pages", rest);
    }
    found
}

fn text(n: i32) -> String {
    format!("{n:012}{}", "abcdefgh".repeat(13))
}

#[test]
fn a_row_takes_little_redo() {
    let mut bench = Bench::new();
    // Purge is not what is measured.
    let mut old = bench.db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    let long = |id| Row::new(id, id * 7, format!("{}abc", text(id)));
    let inserted = bench.each("insert", |trx, table, _, id| {
        trx.insert(table, &long(id).datums()).unwrap();
    });
    let shorter = bench.update("update, another length", |id| {
        Row::new(id, id * 7, text(id).to_uppercase())
    });
    let longer = bench.update("update, another length again", long);
    let same = bench.update("update, a few bytes", |id| {
        Row::new(id, id * 7, format!("{}abc", text(id + 54_321)))
    });
    let moved = bench.update("update of an indexed column", |id| {
        Row::new(id, id * 7 + 1, format!("{}abc", text(id + 54_321)))
    });
    let deleted = bench.each("delete", |trx, table, cursor, id| {
        find(trx, cursor, id);
        trx.delete(table, cursor).unwrap();
    });
    old.commit().unwrap();
    for (what, bytes, most) in [
        ("insert", inserted, 345.0),
        ("shorter", shorter, 315.0),
        ("longer", longer, 315.0),
        ("same", same, 75.0),
        ("moved", moved, 205.0),
        ("deleted", deleted, 125.0),
    ] {
        assert!(bytes <= most, "{what}: {bytes:.1} bytes of redo for a row");
    }
}
