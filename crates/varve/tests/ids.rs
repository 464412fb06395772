//! Counters that run out are refused by name: hidden row ids, AUTO_INCREMENT values. (Ids of transactions,
//! tables, pages and undo records have their tests beside the code.) And what names external values is not
//! used twice.

use varve::internals::catalog::{OverflowPage, ROW_IDS_END};
use varve::{ColumnType, Database, Error, Isolation, Options, TableDef, Value};

#[test]
fn hidden_row_ids_end_with_an_error_and_never_start_again() {
    let dir = tempfile::tempdir().unwrap();
    let def = TableDef::new("a/heap").column("n", ColumnType::i64());
    let row = def.row(&[Value::Int(1)]).unwrap();
    for life in 0..2 {
        let db = Database::open(dir.path(), Options::default()).unwrap();
        if life == 0 {
            db.create_table(&def).unwrap();
            let open = db.core().tables.get("a/heap").unwrap();
            open.raise_row_id(ROW_IDS_END - 2);
        }
        let table = db.table("a/heap").unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        let mut done = 0;
        let refused = loop {
            match trx.insert(&table, &row.datums()) {
                Ok(()) => done += 1,
                Err(e) => break e,
            }
        };
        // What was inserted before stays, and a new start does not give numbers out again.
        assert_eq!(done, [2, 0][life]);
        assert!(
            matches!(&refused, Error::NoSpace { what } if what.contains("a/heap")),
            "{refused}"
        );
        trx.commit().unwrap();
        assert_eq!(db.check_table(&table).unwrap().rows, 2);
        db.close().unwrap();
    }
}

#[test]
fn auto_increment_stays_at_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let mut def = TableDef::new("a/t")
        .column("n", ColumnType::u64())
        .primary(&["n"]);
    def.auto_increment = Some(0);
    let table = db.create_table(&def).unwrap();
    table.auto_increment_raise(u64::MAX - 3);
    let taken: Vec<_> = [2, 2, 1, 5].map(|n| table.auto_increment_reserve(n)).into();
    assert_eq!(taken, [u64::MAX - 3, u64::MAX - 1, u64::MAX, u64::MAX]);
    let mut trx = db.begin(Isolation::RepeatableRead);
    let row = def.row(&[Value::UInt(u64::MAX)]).unwrap();
    trx.insert(&table, &row.datums()).unwrap();
    trx.commit().unwrap();
    assert_eq!(table.auto_increment_next(), u64::MAX);
    db.close().unwrap();
    let db = Database::open(dir.path(), Options::default()).unwrap();
    assert_eq!(db.table("a/t").unwrap().auto_increment_next(), u64::MAX);
}

/// OVF-1: of no two pages it is said that they are the same page of the same chain: not of values of one
/// transaction, also after it took something back, and not of those before and after a crash.
#[test]
fn overflow_pages_have_names_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("one", ColumnType::Bytes(1 << 20))
        .column("two", ColumnType::Bytes(1 << 20))
        .primary(&["id"]);
    let long = |byte| Value::Bytes(vec![byte; 40_000]);
    let row = |id: i64| [Value::Int(id), long(1), long(2)];
    for life in 0..3 {
        let db = Database::open(dir.path(), Options::default()).unwrap();
        let table = match life {
            0 => db.create_table(&def).unwrap(),
            _ => db.table("a/t").unwrap(),
        };
        let mut trx = db.begin(Isolation::RepeatableRead);
        table.insert(&mut trx, &row(10 * life)).unwrap();
        let savepoint = trx.savepoint();
        table.insert(&mut trx, &row(10 * life + 1)).unwrap();
        trx.rollback_to(savepoint).unwrap();
        table.insert(&mut trx, &row(10 * life + 2)).unwrap();
        trx.commit().unwrap();
        db.flush_log().unwrap();
        db.crash();
    }
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let report = db.check_table(&db.table("a/t").unwrap()).unwrap();
    assert_eq!((report.rows, report.errors), (6, vec![]));
    db.close().unwrap();
    let file = std::fs::read(dir.path().join("a/t.vdt")).unwrap();
    let pages = file.chunks(16 << 10).filter_map(OverflowPage::decode);
    let mut names: Vec<_> = pages.map(|p| (p.table, p.trx, p.seq, p.index)).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len() as u64, report.overflow_pages);
}
