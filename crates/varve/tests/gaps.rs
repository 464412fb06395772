//! Gap locks as transactions meet them: which keys a locking read keeps others from adding, and that nothing
//! it looked at changes under it while pages split and merge.
//!
//! What could break here: a row that appears in a range which somebody has locked (a phantom), because a
//! piece of the range was not locked, or was locked too late; an insert that waits for a gap which does not
//! concern it; an insert that is never woken.

#[path = "support/small.rs"]
mod small;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{
    ColumnType, Cursor, Database, Datum, Error, Isolation, KeyMatch, LockMode, Result, Table,
    TableDef, Transaction, Value,
};

use Isolation::{ReadCommitted, RepeatableRead, Serializable};
use KeyMatch::{After, AtLeast, AtMost, Before, Exact, ExactLast};

fn open(dir: &tempfile::TempDir) -> (Database, Table) {
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .nullable("u", ColumnType::i64())
        .column("fill", ColumnType::Bytes(1000))
        .primary(&["id"])
        .index("by_k", &["k"])
        .unique("by_u", &["u"]);
    small::lazy_with(dir, &def)
}

fn put(trx: &mut Transaction, table: &Table, id: i64, k: i64, u: Option<i64>) -> Result<()> {
    put_long(trx, table, id, k, u, 1)
}

fn put_long(
    trx: &mut Transaction,
    table: &Table,
    id: i64,
    k: i64,
    u: Option<i64>,
    len: usize,
) -> Result<()> {
    let u = u.map_or(Value::Null, Value::Int);
    let fill = Value::Bytes(vec![7; len]);
    let row = [Value::Int(id), Value::Int(k), u, fill];
    trx.insert(table, &table.def().row(&row)?.datums())
}

/// Rows 10, 20, 30, each with k and u ten times its id.
fn fill(db: &Database, table: &Table) {
    let mut trx = db.begin(RepeatableRead);
    for id in [10, 20, 30] {
        put(&mut trx, table, id, id * 10, Some(id * 10)).unwrap();
    }
    trx.commit().unwrap();
}

fn int(cursor: &Cursor, column: usize) -> i64 {
    match cursor.row().unwrap().value(column).unwrap() {
        Value::Int(v) => v,
        other => panic!("{other:?}"),
    }
}

/// Finds rows from `key` on, up to `rows` of them; returns their ids.
fn read(
    trx: &mut Transaction,
    cursor: &mut Cursor,
    (how, key): (KeyMatch, i64),
    rows: usize,
    lock: LockMode,
) -> Result<Vec<i64>> {
    let key = key.to_le_bytes();
    let mut ids = Vec::new();
    let mut more = cursor.seek(trx, &[Some(&key)], how, lock)?;
    while more {
        ids.push(int(cursor, 0));
        if ids.len() == rows {
            break;
        }
        more = match how {
            Exact => cursor.next_same(trx)?,
            AtLeast | After => cursor.next(trx)?,
            ExactLast | AtMost | Before => cursor.prev(trx)?,
        };
    }
    Ok(ids)
}

/// Whether somebody keeps this row out. It is not left behind.
fn is_kept_out(db: &Database, table: &Table, (id, k, u): (i64, i64, Option<i64>)) -> bool {
    let mut trx = db.begin(ReadCommitted);
    trx.set_lock_wait_timeout(Duration::ZERO);
    match put(&mut trx, table, id, k, u) {
        Ok(()) => false,
        Err(Error::LockWaitTimeout) => true,
        Err(e) => panic!("row {id}, {k}, {u:?}: {e}"),
    }
}

/// A search, the rows it finds, and which ids or keys others can't and can add meanwhile.
struct Case {
    index: usize,
    search: (KeyMatch, i64),
    /// No more rows than this are read.
    rows: usize,
    found: &'static [i64],
    kept_out: &'static [i64],
    let_in: &'static [i64],
}

const ALL: usize = usize::MAX;

#[rustfmt::skip]
const CASES: &[Case] = &[
    // The primary key.
    Case { index: 0, search: (Exact, 20), rows: ALL, found: &[20], kept_out: &[], let_in: &[19, 21] },
    Case { index: 0, search: (Exact, 15), rows: ALL, found: &[], kept_out: &[15], let_in: &[14, 16] },
    Case { index: 0, search: (AtLeast, 15), rows: 1, found: &[20], kept_out: &[15, 19], let_in: &[14, 21] },
    Case { index: 0, search: (AtLeast, 15), rows: 2, found: &[20, 30],
           kept_out: &[15, 19, 21, 29], let_in: &[14, 31] },
    Case { index: 0, search: (AtLeast, 15), rows: ALL, found: &[20, 30],
           kept_out: &[15, 29, 31, i64::MAX], let_in: &[14] },
    Case { index: 0, search: (After, 20), rows: 1, found: &[30], kept_out: &[21, 29], let_in: &[19, 31] },
    Case { index: 0, search: (After, 30), rows: ALL, found: &[], kept_out: &[31, i64::MAX], let_in: &[29] },
    Case { index: 0, search: (AtMost, 25), rows: 1, found: &[20], kept_out: &[21, 25], let_in: &[19, 26] },
    Case { index: 0, search: (AtMost, 25), rows: ALL, found: &[20, 10],
           kept_out: &[i64::MIN, 5, 11, 25], let_in: &[26] },
    Case { index: 0, search: (Before, 20), rows: 1, found: &[10], kept_out: &[11, 19], let_in: &[9, 21] },
    // An index that is not unique: keys of by_k.
    Case { index: 1, search: (Exact, 200), rows: ALL, found: &[20], kept_out: &[200], let_in: &[199, 201] },
    Case { index: 1, search: (Exact, 150), rows: ALL, found: &[], kept_out: &[150], let_in: &[149, 151] },
    Case { index: 1, search: (ExactLast, 200), rows: 1, found: &[20], kept_out: &[200], let_in: &[199, 201] },
    Case { index: 1, search: (AtLeast, 150), rows: 1, found: &[20],
           kept_out: &[150, 199], let_in: &[149, 201] },
    Case { index: 1, search: (AtMost, 250), rows: ALL, found: &[20, 10],
           kept_out: &[-5, 150, 200, 250], let_in: &[251] },
    // A unique index: keys of by_u. With a row, nobody else can have its key anyway.
    Case { index: 2, search: (Exact, 200), rows: ALL, found: &[20], kept_out: &[], let_in: &[199, 201] },
    Case { index: 2, search: (Exact, 150), rows: ALL, found: &[], kept_out: &[150], let_in: &[149, 151] },
    Case { index: 2, search: (AtLeast, 150), rows: 1, found: &[20],
           kept_out: &[150, 199], let_in: &[149, 201] },
];

impl Case {
    fn row(&self, key: i64) -> (i64, i64, Option<i64>) {
        match self.index {
            0 => (key, 0, None),
            1 => (77, key, None),
            _ => (77, 0, Some(key)),
        }
    }

    fn check(&self, db: &Database, table: &Table, isolation: Isolation, lock: LockMode) {
        let what = format!("{:?} in index {}, {isolation:?}", self.search, self.index);
        let mut trx = db.begin(isolation);
        let mut cursor = table.cursor(self.index).unwrap();
        let found = read(&mut trx, &mut cursor, self.search, self.rows, lock).unwrap();
        assert_eq!(found, self.found, "{what}");
        let locks = isolation != ReadCommitted;
        for key in self.kept_out {
            let row = self.row(*key);
            assert_eq!(is_kept_out(db, table, row), locks, "{what}: {key}");
        }
        for key in self.let_in {
            assert!(!is_kept_out(db, table, self.row(*key)), "{what}: {key}");
        }
        trx.rollback().unwrap();
        for key in self.kept_out {
            assert!(!is_kept_out(db, table, self.row(*key)), "{what}: {key}");
        }
    }
}

#[test]
fn a_locking_read_keeps_others_from_adding_where_it_looked() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    fill(&db, &table);
    for case in CASES {
        case.check(&db, &table, RepeatableRead, LockMode::Exclusive);
        case.check(&db, &table, RepeatableRead, LockMode::Shared);
        case.check(&db, &table, Serializable, LockMode::None);
        case.check(&db, &table, ReadCommitted, LockMode::Exclusive);
    }
    assert_eq!(db.core().locks.status().gaps, 0);
}

/// GAP-2: a search that is told its end locks up to there, wherever the next row is.
#[test]
fn a_range_is_locked_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    fill(&db, &table);
    for (index, scale) in [(0, 1i64), (1, 10)] {
        for (inclusive, last) in [(true, 25), (false, 24)] {
            let mut trx = db.begin(RepeatableRead);
            let mut cursor = table.cursor(index).unwrap();
            let end = if inclusive { last } else { last + 1 };
            let end = (end * scale).to_le_bytes();
            let end: [Datum<'_>; 1] = [Some(&end)];
            cursor.set_end(Some((&end[..], inclusive))).unwrap();
            let from = (AtLeast, 15 * scale);
            let found = read(&mut trx, &mut cursor, from, ALL, LockMode::Exclusive).unwrap();
            assert_eq!(found, [20]);
            let row = |n: i64| match index {
                0 => (n, 0, None),
                _ => (77, n * 10, None),
            };
            for n in [15, 19, 21, last] {
                assert!(is_kept_out(&db, &table, row(n)), "{n} {inclusive}");
            }
            for n in [14, last + 1, 29] {
                assert!(!is_kept_out(&db, &table, row(n)), "{n} {inclusive}");
            }
        }
    }
}

/// GAP-2: a filter that passes an entry over leaves its row unlocked, but not its place: what is put there
/// instead might pass.
#[test]
fn what_a_filter_passes_over_is_covered() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    fill(&db, &table);
    for (index, search) in [(1, (AtLeast, 150)), (1, (Exact, 200)), (2, (Exact, 200))] {
        let mut trx = db.begin(RepeatableRead);
        let mut cursor = table.cursor(index).unwrap();
        cursor.set_filter(Some(Box::new(|_, _| Ok(false))), None);
        let end = 250i64.to_le_bytes();
        cursor.set_end(Some((&[Some(&end[..])], true))).unwrap();
        let found = read(&mut trx, &mut cursor, search, ALL, LockMode::Exclusive).unwrap();
        assert_eq!(found, []);
        // The row is free: another may take it away.
        let mut other = db.begin(ReadCommitted);
        other.set_lock_wait_timeout(Duration::ZERO);
        let mut rows = table.cursor(0).unwrap();
        read(&mut other, &mut rows, (Exact, 20), 1, LockMode::Exclusive).unwrap();
        other.delete(&table, &rows).unwrap();
        // Nobody puts a row where the entry was, nor makes the entry live again.
        for id in [20, 77] {
            let before = other.savepoint();
            let put = put(&mut other, &table, id, 200, Some(200));
            other.rollback_to(before).unwrap();
            let what = format!("{search:?} of index {index}, {id}");
            assert!(matches!(put, Err(Error::LockWaitTimeout)), "{what}");
        }
        assert!(!is_kept_out(&db, &table, (77, 251, Some(251))));
        other.rollback().unwrap();
        trx.rollback().unwrap();
    }
}

/// A dead row that purge has not removed is a place like any other: neither it nor its entries may come back
/// to life.
#[test]
fn dead_records_in_a_gap_stay_dead() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    fill(&db, &table);
    // Keeps purge away.
    let mut old = db.begin(RepeatableRead);
    old.take_snapshot();
    let mut trx = db.begin(RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    read(&mut trx, &mut cursor, (Exact, 20), 1, LockMode::Exclusive).unwrap();
    trx.delete(&table, &cursor).unwrap();
    trx.commit().unwrap();
    // Two may look for the dead row, as they may if there were no record.
    let look = || {
        let mut trx = db.begin(RepeatableRead);
        trx.set_lock_wait_timeout(Duration::ZERO);
        let mut cursor = table.cursor(0).unwrap();
        let found = read(&mut trx, &mut cursor, (Exact, 20), 1, LockMode::Exclusive).unwrap();
        assert_eq!(found, []);
        trx
    };
    let both = (look(), look());
    assert!(is_kept_out(&db, &table, (20, 200, Some(200))));
    drop(both);
    for index in [0, 1] {
        for purged in [false, true] {
            if purged {
                old = db.begin(RepeatableRead);
                assert!(db.wait_for_purge(Duration::from_secs(60)));
            }
            let mut trx = db.begin(RepeatableRead);
            let mut cursor = table.cursor(index).unwrap();
            let from = (AtLeast, 15);
            let found = read(&mut trx, &mut cursor, from, 9, LockMode::Exclusive).unwrap();
            assert_eq!(found.len(), if index == 0 { 1 } else { 2 });
            assert!(is_kept_out(&db, &table, (20, 200, Some(200))), "{index}");
        }
    }
    drop(old);
}

/// Purge takes the records away, pages merge; the interval stays.
#[test]
fn a_gap_outlives_the_rows_and_pages_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let mut trx = db.begin(RepeatableRead);
    for id in 0..300 {
        put_long(&mut trx, &table, id, id, None, 300).unwrap();
    }
    trx.commit().unwrap();
    let mut trx = db.begin(RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    let mut more = cursor.first(&mut trx, LockMode::Exclusive).unwrap();
    while more {
        trx.delete(&table, &cursor).unwrap();
        more = cursor.next(&mut trx).unwrap();
    }
    trx.commit().unwrap();
    // They are still there, dead.
    let mut other = db.begin(RepeatableRead);
    let mut scan = table.cursor(1).unwrap();
    let none = read(&mut other, &mut scan, (AtLeast, 100), ALL, LockMode::Shared).unwrap();
    assert_eq!(none, []);
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    for k in [100, 150, 299, 5000] {
        assert!(is_kept_out(&db, &table, (1, k, None)), "{k}");
    }
    assert!(!is_kept_out(&db, &table, (1, 99, None)));
}

/// Two transactions look for a row that is not there and insert it: one of them is told to start over.
#[test]
fn two_that_found_nothing_and_insert_it_are_a_deadlock() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    fill(&db, &table);
    for index in 0..3 {
        let key = [25, 250, 250][index];
        let begin = || {
            let mut trx = db.begin(RepeatableRead);
            let mut cursor = table.cursor(index).unwrap();
            let search = (Exact, key);
            let found = read(&mut trx, &mut cursor, search, 1, LockMode::Exclusive).unwrap();
            assert_eq!(found, []);
            trx
        };
        let (mut first, mut second) = (begin(), begin());
        // Has more to lose.
        put(&mut second, &table, 99, 990, None).unwrap();
        put(&mut second, &table, 98, 980, None).unwrap();
        let results = thread::scope(|scope| {
            let (table, db) = (&table, &db);
            let first = scope.spawn(move || {
                let done = put(&mut first, table, 25, 250, Some(250));
                done.map(|()| first.commit().unwrap())
            });
            while !db.status().contains(&("row_lock_current_waits", 1)) {
                thread::yield_now();
            }
            let second = put(&mut second, table, 25, 250, Some(250));
            (first.join().unwrap(), second)
        });
        assert!(matches!(results.0, Err(Error::Deadlock)), "{results:?}");
        assert!(results.1.is_ok(), "{results:?}");
        second.rollback().unwrap();
    }
    db.check_table(&table).unwrap();
}

/// A transaction that goes on with the search of another one, which is on no row, covers what it passes
/// itself and no more.
#[test]
fn a_search_that_is_passed_on_covers_what_follows() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    fill(&db, &table);
    let mut holder = db.begin(ReadCommitted);
    let mut other = table.cursor(0).unwrap();
    read(&mut holder, &mut other, (Exact, 20), 1, LockMode::Exclusive).unwrap();
    let mut first = db.begin(ReadCommitted);
    first.set_lock_wait_timeout(Duration::ZERO);
    let mut cursor = table.cursor(0).unwrap();
    assert!(cursor.first(&mut first, LockMode::Exclusive).unwrap());
    let waits = cursor.next(&mut first);
    assert!(matches!(waits, Err(Error::LockWaitTimeout)), "{waits:?}");
    first.rollback().unwrap();
    holder.rollback().unwrap();
    let mut second = db.begin(RepeatableRead);
    assert!(cursor.next(&mut second).unwrap());
    assert_eq!(int(&cursor, 0), 20);
    for (id, is_covered) in [(5, false), (15, true), (25, false)] {
        assert_eq!(is_kept_out(&db, &table, (id, id, None)), is_covered, "{id}");
    }
}

/// Under SERIALIZABLE, and for locking reads under REPEATABLE READ, a range that was read twice is the same
/// twice, whatever others insert, delete and move, while pages split and merge and purge runs.
#[test]
fn there_are_no_phantoms() {
    let seed = std::env::var("VARVE_SEED").map_or(1, |s| s.parse().expect("a number"));
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    const IDS: i64 = 400;
    let mut trx = db.begin(RepeatableRead);
    for id in (0..IDS).step_by(2) {
        put_long(&mut trx, &table, id, id / 4, Some(id), 300).unwrap();
    }
    trx.commit().unwrap();
    let end = Instant::now() + Duration::from_secs(3);
    let (scans, changes) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for n in 0..3 {
            let (db, table, changes) = (&db, &table, &changes);
            let mut rng = SmallRng::seed_from_u64(seed * 100 + n);
            scope.spawn(move || {
                while Instant::now() < end {
                    match change(db, table, IDS, &mut rng) {
                        Ok(()) => _ = changes.fetch_add(1, Relaxed),
                        Err(Error::Deadlock | Error::LockWaitTimeout) => {}
                        Err(e) => panic!("seed {seed}: {e}"),
                    }
                }
            });
        }
        for n in 10..12 {
            let (db, table, scans) = (&db, &table, &scans);
            let mut rng = SmallRng::seed_from_u64(seed * 100 + n);
            scope.spawn(move || {
                while Instant::now() < end {
                    match scan_twice(db, table, IDS, &mut rng) {
                        Ok(()) => _ = scans.fetch_add(1, Relaxed),
                        Err(Error::Deadlock | Error::LockWaitTimeout) => {}
                        Err(e) => panic!("seed {seed}: {e}"),
                    }
                }
            });
        }
    });
    assert!(scans.load(Relaxed) > 0 && changes.load(Relaxed) > 0);
    let report = db.check_table(&table).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    let status = db.core().locks.status();
    assert_eq!((status.gaps, status.locked), (0, 0));
}

/// Inserts or deletes a run of rows.
fn change(db: &Database, table: &Table, ids: i64, rng: &mut SmallRng) -> Result<()> {
    let mut trx = db.begin(ReadCommitted);
    trx.set_lock_wait_timeout(Duration::from_secs(5));
    let from = rng.random_range(0..ids);
    let delete = rng.random_ratio(1, 2);
    let mut cursor = table.cursor(0)?;
    for id in from..(from + rng.random_range(1..20)).min(ids) {
        if delete {
            let found = read(&mut trx, &mut cursor, (Exact, id), 1, LockMode::Exclusive)?;
            if !found.is_empty() {
                trx.delete(table, &cursor)?;
            }
        } else {
            let len = rng.random_range(1..800);
            match put_long(&mut trx, table, id, rng.random_range(0..100), Some(id), len) {
                Ok(()) | Err(Error::DuplicateKey { .. }) => {}
                Err(e) => return Err(e),
            }
        }
    }
    match rng.random_ratio(1, 4) {
        true => trx.rollback(),
        false => trx.commit(),
    }
}

fn scan_twice(db: &Database, table: &Table, ids: i64, rng: &mut SmallRng) -> Result<()> {
    let (isolation, lock) = match rng.random_range(0..3) {
        0 => (Serializable, LockMode::None),
        1 => (RepeatableRead, LockMode::Exclusive),
        _ => (RepeatableRead, LockMode::Shared),
    };
    let mut trx = db.begin(isolation);
    trx.set_lock_wait_timeout(Duration::from_secs(5));
    let index = rng.random_range(0..3);
    let spread = if index == 1 { 100 } else { ids };
    let how = [AtLeast, After, AtMost, Before, Exact, ExactLast][rng.random_range(0..6)];
    let search = (how, rng.random_range(0..spread));
    let rows = rng.random_range(1..60);
    let mut cursor = table.cursor(index)?;
    let first = read(&mut trx, &mut cursor, search, rows, lock)?;
    for _ in 0..rng.random_range(0..3) {
        thread::sleep(Duration::from_micros(rng.random_range(0..500)));
        let again = read(&mut trx, &mut cursor, search, rows, lock)?;
        assert_eq!(
            first, again,
            "phantoms: {search:?}, index {index}, {rows} rows"
        );
    }
    trx.commit()
}
