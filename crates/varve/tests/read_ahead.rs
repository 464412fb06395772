//! Scans that go on read ahead, and nothing else does: judged by the counters of a database whose pool holds
//! an eighth of a table. Whether a page was read ahead is seen in no result, so a wrong guess could otherwise
//! only be felt.

use std::path::Path;

use varve::{
    ChangeBufferOptions, ChangeBuffering, ColumnType, Database, Isolation, KeyMatch, LockMode,
    Options, Table, TableDef, Value,
};

const ROWS: i64 = 60_000;
const POOL: u64 = 256 * 4096;

fn open(dir: &Path, native: bool) -> Database {
    let options = Options {
        page_size: 4096,
        buffer_pool_bytes: POOL,
        use_native_aio: native,
        // All reads are of the trees.
        change_buffer: ChangeBufferOptions {
            buffering: ChangeBuffering::None,
            ..ChangeBufferOptions::default()
        },
        logger: Some(std::sync::Arc::new(|_, _| {})),
        ..Options::default()
    };
    Database::open(dir, options).unwrap()
}

fn fill(db: &Database) -> Table {
    let def = TableDef::new("s/t")
        .column("id", ColumnType::i64())
        .column("by", ColumnType::i64())
        .column("what", ColumnType::text(200))
        .primary(&["id"])
        .index("by", &["by"]);
    let table = db.create_table(&def).unwrap();
    let what = "x".repeat(130);
    for from in (0..ROWS).step_by(1000) {
        let mut trx = db.begin(Isolation::RepeatableRead);
        for id in from..from + 1000 {
            let row = [id.into(), (id * 7919 % ROWS).into(), what.as_str().into()];
            let row = table.def().row(&row).unwrap();
            trx.insert(&table, &row.datums()).unwrap();
        }
        trx.commit().unwrap();
    }
    table
}

fn metric(db: &Database, name: &str) -> u64 {
    let metrics = db.metrics();
    metrics.iter().find(|m| m.name == name).unwrap().value
}

/// How many pages `work` had read ahead, of how many that were read at all.
fn read_ahead(db: &Database, work: impl FnOnce()) -> (u64, u64) {
    let counts = || ["buffer_pool_read_ahead", "buffer_pool_reads"].map(|name| metric(db, name));
    let before = counts();
    work();
    let after = counts();
    let [ahead, waited] = [0, 1].map(|n| after[n] - before[n]);
    (ahead, ahead + waited)
}

/// Moves to the first row, and on to at most `most` rows.
fn scan(db: &Database, table: &Table, index: usize, lock: LockMode, most: usize) -> usize {
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(index).unwrap();
    let mut on_row = cursor.first(&mut trx, lock).unwrap();
    let mut n = 0;
    while on_row && n < most {
        n += 1;
        on_row = cursor.next(&mut trx).unwrap();
    }
    trx.commit().unwrap();
    n
}

fn check(native: bool) {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), native);
    fill(&db);
    db.close().unwrap();
    let db = open(dir.path(), native);
    let table = db.table("s/t").unwrap();
    let pages = ROWS as u64 / 30;

    let (ahead, all) = read_ahead(&db, || {
        assert_eq!(
            scan(&db, &table, 0, LockMode::None, usize::MAX),
            ROWS as usize
        );
    });
    assert!(
        all > pages && ahead * 10 > all * 8,
        "a scan: {ahead} of {all}"
    );
    let evicted = metric(&db, "buffer_pool_read_ahead_evicted");
    assert!(
        evicted * 10 < ahead,
        "{evicted} of {ahead} were read for nothing"
    );

    let (ahead, all) = read_ahead(&db, || {
        let n = scan(&db, &table, 0, LockMode::Shared, usize::MAX);
        assert_eq!(n, ROWS as usize);
    });
    assert!(ahead * 10 > all * 8, "a locking scan: {ahead} of {all}");

    // The rows behind the entries are in no order.
    let (ahead, _) = read_ahead(&db, || {
        scan(&db, &table, 1, LockMode::None, 3000);
    });
    assert!(ahead > 3000 / 300, "a scan of a secondary index: {ahead}");

    let (ahead, _) = read_ahead(&db, || {
        scan(&db, &table, 0, LockMode::None, 20);
    });
    assert_eq!(ahead, 0, "a scan of one leaf or two");

    let (ahead, all) = read_ahead(&db, || points(&db, &table));
    assert!(ahead == 0 && all > 100, "points: {ahead} of {all}");

    for lock in [LockMode::None, LockMode::Shared] {
        let (ahead, all) = read_ahead(&db, || {
            assert_eq!(backward(&db, &table, lock), ROWS as usize);
        });
        assert!(
            all > pages && ahead * 10 > all * 8,
            "backward, {lock:?}: {ahead} of {all}"
        );
    }

    for (from, how) in [(20_000, KeyMatch::AtLeast), (40_000, KeyMatch::AtMost)] {
        let (ahead, _) = read_ahead(&db, || range(&db, &table, from, how));
        assert!(
            (1..30).contains(&ahead),
            "a range of 20 leaves, {how:?}: {ahead}"
        );
    }

    // Twelve leaves of each index, and some pages above them.
    let (ahead, all) = read_ahead(&db, || table.analyze().unwrap());
    assert!(
        ahead >= 12 && ahead * 10 > all * 8,
        "statistics: {ahead} of {all}"
    );

    let (ahead, all) = read_ahead(&db, || {
        assert_eq!(db.check_table(&table).unwrap().errors, Vec::<String>::new());
    });
    assert!(ahead * 10 > all, "CHECK TABLE: {ahead} of {all}");

    assert!(db.set_read_ahead_threshold(65).is_err());
    db.set_read_ahead_threshold(0).unwrap();
    let (ahead, all) = read_ahead(&db, || {
        scan(&db, &table, 0, LockMode::None, usize::MAX);
    });
    assert!(ahead == 0 && all > pages, "it is off: {ahead} of {all}");
    db.close().unwrap();
}

fn points(db: &Database, table: &Table) {
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    for n in 0..1000 {
        let id = n * 7919 % ROWS;
        let key = table.def().key(0, &[id.into()]).unwrap();
        let found = cursor.seek(&mut trx, &key.datums(), KeyMatch::Exact, LockMode::None);
        assert!(found.unwrap());
        let read = cursor.row().unwrap().value(0).unwrap();
        assert!(matches!(read, Value::Int(found) if found == id));
    }
}

fn backward(db: &Database, table: &Table, lock: LockMode) -> usize {
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    let mut on_row = cursor.last(&mut trx, lock).unwrap();
    let mut n = 0;
    while on_row {
        n += 1;
        on_row = cursor.prev(&mut trx).unwrap();
    }
    trx.commit().unwrap();
    n
}

/// Of some 20 leaves in the middle of a table, from either end: no leaf beyond is read ahead.
fn range(db: &Database, table: &Table, from: i64, how: KeyMatch) {
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    let [low, high] = [from, from + 500].map(|id| table.def().key(0, &[id.into()]).unwrap());
    cursor.set_end(Some((&high.datums(), true))).unwrap();
    cursor.set_begin(Some((&low.datums(), true))).unwrap();
    let is_forward = how == KeyMatch::AtLeast;
    let from = if is_forward { &low } else { &high };
    let mut on_row = cursor
        .seek(&mut trx, &from.datums(), how, LockMode::None)
        .unwrap();
    let mut n = 0;
    while on_row {
        n += 1;
        on_row = match is_forward {
            true => cursor.next(&mut trx).unwrap(),
            false => cursor.prev(&mut trx).unwrap(),
        };
    }
    assert_eq!(n, 501);
}

#[test]
fn scans_read_ahead() {
    check(true);
}

#[test]
fn scans_read_ahead_by_threads() {
    check(false);
}
