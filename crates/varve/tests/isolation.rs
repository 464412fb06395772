//! What each isolation level forbids and allows: docs/isolation.md as a test.
//!
//! Two or three transactions take turns in an order that shows one anomaly. The result is either the anomaly,
//! or that a transaction had to wait for another (with no time to wait, it fails), or a result without it.

#[path = "support/small.rs"]
mod small;

use std::time::Duration;

use varve::{
    AutoIncLock, ColumnType, Cursor, Database, Error, Isolation, KeyMatch, LockMode, Result, Table,
    TableDef, Transaction, Value,
};

use Isolation::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable};

const LEVELS: [Isolation; 4] = [ReadUncommitted, ReadCommitted, RepeatableRead, Serializable];

struct Play {
    db: Database,
    table: Table,
    level: Isolation,
    _dir: tempfile::TempDir,
}

/// Rows 1 to 3 with v ten times the id.
fn play(level: Isolation) -> Play {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), small::options()).unwrap();
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("v", ColumnType::i64())
        .primary(&["id"])
        .index("by_v", &["v"]);
    let table = db.create_table(&def).unwrap();
    let play = Play {
        db,
        table,
        level,
        _dir: dir,
    };
    let mut trx = play.begin();
    (1..=3).for_each(|id| play.insert(&mut trx, id, id * 10).unwrap());
    trx.commit().unwrap();
    play
}

impl Play {
    fn begin(&self) -> Transaction {
        let mut trx = self.db.begin(self.level);
        trx.set_lock_wait_timeout(Duration::ZERO);
        trx.start_statement();
        trx
    }

    fn insert(&self, trx: &mut Transaction, id: i64, v: i64) -> Result<()> {
        trx.start_statement();
        let row = [Value::Int(id), Value::Int(v)];
        trx.insert(&self.table, &self.table.def().row(&row)?.datums())
    }

    /// `v` of a row by its primary key.
    fn read(&self, trx: &mut Transaction, id: i64, lock: LockMode) -> Result<Option<i64>> {
        trx.start_statement();
        let mut cursor = self.table.cursor(0)?;
        let key = id.to_le_bytes();
        let found = cursor.seek(trx, &[Some(&key)], KeyMatch::Exact, lock)?;
        Ok(found.then(|| value(&cursor, 1)))
    }

    fn plain(&self, trx: &mut Transaction, id: i64) -> Result<Option<i64>> {
        self.read(trx, id, LockMode::None)
    }

    /// Ids of rows with at least this `v`, through the secondary index.
    fn range(&self, trx: &mut Transaction, from: i64, lock: LockMode) -> Result<Vec<i64>> {
        trx.start_statement();
        let mut cursor = self.table.cursor(1)?;
        let key = from.to_le_bytes();
        let mut ids = Vec::new();
        let mut more = cursor.seek(trx, &[Some(&key)], KeyMatch::AtLeast, lock)?;
        while more {
            ids.push(value(&cursor, 0));
            more = cursor.next(trx)?;
        }
        Ok(ids)
    }

    fn update(&self, trx: &mut Transaction, id: i64, v: i64) -> Result<()> {
        trx.start_statement();
        let mut cursor = self.table.cursor(0)?;
        let key = id.to_le_bytes();
        let found = cursor.seek(trx, &[Some(&key)], KeyMatch::Exact, LockMode::Exclusive)?;
        assert!(found, "row {id}");
        let row = [Value::Int(id), Value::Int(v)];
        trx.update(&self.table, &cursor, &self.table.def().row(&row)?.datums())?;
        Ok(())
    }
}

fn value(cursor: &varve::Cursor, column: usize) -> i64 {
    match cursor.row().unwrap().value(column).unwrap() {
        Value::Int(v) => v,
        other => panic!("{other:?}"),
    }
}

/// For each level, in the order of `LEVELS`: what `run` says.
fn check<T: PartialEq + std::fmt::Debug>(expected: [T; 4], run: impl Fn(&Play) -> Result<T>) {
    for (level, expected) in LEVELS.into_iter().zip(expected) {
        let result = run(&play(level)).unwrap_or_else(|e| panic!("{level:?}: {e}"));
        assert_eq!(result, expected, "{level:?}");
    }
}

/// "waits" for a lock, instead of what the others do.
fn or_waits(result: Result<&'static str>) -> Result<&'static str> {
    match result {
        Err(Error::LockWaitTimeout) => Ok("waits"),
        other => other,
    }
}

#[test]
fn dirty_write() {
    check(["waits"; 4], |p| {
        let (mut a, mut b) = (p.begin(), p.begin());
        p.update(&mut a, 1, 11)?;
        or_waits(p.update(&mut b, 1, 12).map(|()| "overwritten"))
    });
}

#[test]
fn dirty_read() {
    let expected = [Some(11), Some(10), Some(10), None];
    check(expected, |p| {
        let (mut a, mut b) = (p.begin(), p.begin());
        p.update(&mut a, 1, 11)?;
        match p.plain(&mut b, 1) {
            Err(Error::LockWaitTimeout) => Ok(None),
            other => other,
        }
    });
}

/// A cursor reads ahead. What it copied while the writer was still at work is no version for the view of a
/// later statement, which sees the writer: it was never committed.
#[test]
fn intermediate_read_by_a_cursor_of_an_earlier_statement() {
    let value = next_of_an_earlier_statement(|p, mut a, b| {
        p.update(&mut a, 2, 22).unwrap();
        a.commit().unwrap();
        b.start_statement();
    });
    assert_eq!(value, 22);
}

/// What a cursor at row 1 comes to next if the writer of row 2 ends, and its own next statement begins, in
/// this order.
fn next_of_an_earlier_statement(end: impl FnOnce(&Play, Transaction, &mut Transaction)) -> i64 {
    let p = play(ReadCommitted);
    let (mut a, mut b) = (p.begin(), p.begin());
    p.update(&mut a, 2, 21).unwrap();
    let mut cursor = p.table.cursor(0).unwrap();
    b.start_statement();
    assert!(cursor.first(&mut b, LockMode::None).unwrap());
    end(&p, a, &mut b);
    assert!(cursor.next(&mut b).unwrap());
    value(&cursor, 1)
}

/// The same of a writer that rolls back, which draws no number: the later view is as old as the first one,
/// but for that writer.
#[test]
fn dirty_read_by_a_cursor_of_an_earlier_statement() {
    let value = next_of_an_earlier_statement(|_, a, b| {
        b.start_statement();
        a.rollback().unwrap();
    });
    assert_eq!(value, 20);
}

/// What a transaction has taken back it does not read any more, whatever was read ahead.
#[test]
fn a_cursor_does_not_give_what_its_own_transaction_has_taken_back() {
    for level in LEVELS {
        let p = play(level);
        let mut a = p.begin();
        let before = a.savepoint();
        p.update(&mut a, 2, 21).unwrap();
        let mut cursor = p.table.cursor(0).unwrap();
        assert!(cursor.first(&mut a, LockMode::None).unwrap());
        a.rollback_to(before).unwrap();
        assert!(cursor.next(&mut a).unwrap());
        assert_eq!(value(&cursor, 1), 20, "{level:?}");
    }
}

/// An insert, a delete and a moved key that are rolled back later, through both indexes.
#[test]
fn read_uncommitted_sees_the_newest_version_of_everything() {
    let expected = [
        vec![4, 1],
        vec![1, 2, 3],
        vec![1, 2, 3],
        // It waits.
        vec![],
    ];
    check(expected, |p| {
        let (mut a, mut b) = (p.begin(), p.begin());
        p.insert(&mut a, 4, 5)?;
        p.update(&mut a, 1, 99)?;
        for id in [2, 3] {
            a.start_statement();
            let mut cursor = p.table.cursor(0)?;
            let key = i64::to_le_bytes(id);
            cursor.seek(&mut a, &[Some(&key)], KeyMatch::Exact, LockMode::Exclusive)?;
            a.delete(&p.table, &cursor)?;
        }
        let seen = match p.range(&mut b, 0, LockMode::None) {
            Err(Error::LockWaitTimeout) => vec![],
            other => other?,
        };
        let mut one_by_one = Vec::new();
        for id in 1..=4 {
            match p.plain(&mut b, id) {
                Ok(Some(_)) => one_by_one.push(id),
                Ok(None) | Err(Error::LockWaitTimeout) => {}
                Err(e) => return Err(e),
            }
        }
        one_by_one.sort_by_key(|id| seen.iter().position(|s| s == id));
        assert_eq!(one_by_one, seen);
        Ok(seen)
    });
}

#[test]
fn non_repeatable_read() {
    check([(10, 11), (10, 11), (10, 10), (10, 10)], |p| {
        let (mut a, mut b) = (p.begin(), p.begin());
        let before = p.plain(&mut a, 1)?;
        // Under SERIALIZABLE it waits for the reader.
        if p.level != Serializable {
            p.update(&mut b, 1, 11)?;
            b.commit()?;
        } else {
            let result = p.update(&mut b, 1, 11);
            assert!(matches!(result, Err(Error::LockWaitTimeout)));
        }
        let after = p.plain(&mut a, 1)?;
        Ok((before.unwrap(), after.unwrap()))
    });
}

#[test]
fn phantom() {
    check([3, 3, 2, 2], |p| {
        let (mut a, mut b) = (p.begin(), p.begin());
        assert_eq!(p.range(&mut a, 20, LockMode::None)?, [2, 3]);
        let inserted = p.insert(&mut b, 4, 25);
        assert_eq!(inserted.is_err(), p.level == Serializable);
        b.commit()?;
        Ok(p.range(&mut a, 20, LockMode::None)?.len())
    });
}

/// Locking reads lock the range from REPEATABLE READ on.
#[test]
fn phantom_in_a_locking_read() {
    check(["phantom", "phantom", "waits", "waits"], |p| {
        let (mut a, mut b) = (p.begin(), p.begin());
        p.range(&mut a, 20, LockMode::Shared)?;
        or_waits(p.insert(&mut b, 4, 25).map(|()| "phantom"))
    });
}

/// A row that was read plainly is written on the strength of what was read.
#[test]
fn lost_update() {
    check(["lost", "lost", "lost", "waits"], |p| {
        let (mut a, mut b) = (p.begin(), p.begin());
        let old = p.plain(&mut a, 1)?.unwrap();
        let result = p.plain(&mut b, 1).and_then(|_| p.update(&mut b, 1, 50));
        or_waits(result.map(|()| "lost")).and_then(|result| {
            if result == "lost" {
                b.commit()?;
                p.update(&mut a, 1, old + 1)?;
            }
            Ok(result)
        })
    });
}

/// REPEATABLE READ reads its view, but writes the newest rows, and sees what it wrote: as in InnoDB.
#[test]
fn a_write_reaches_rows_that_the_view_does_not_see() {
    check([vec![3, 4], vec![3, 4], vec![3, 4], vec![]], |p| {
        let (mut a, mut b) = (p.begin(), p.begin());
        if p.range(&mut a, 30, LockMode::None)? != [3] {
            panic!("another start");
        }
        match p.insert(&mut b, 4, 40) {
            Err(Error::LockWaitTimeout) => return Ok(vec![]),
            other => other?,
        }
        b.commit()?;
        p.update(&mut a, 4, 41)?;
        p.range(&mut a, 30, LockMode::None)
    });
}

/// Each reads what the other writes. Only SERIALIZABLE sees to it that one of them fails.
#[test]
fn write_skew() {
    check(["skewed", "skewed", "skewed", "waits"], |p| {
        let (mut a, mut b) = (p.begin(), p.begin());
        p.plain(&mut a, 1)?;
        p.plain(&mut a, 2)?;
        p.plain(&mut b, 1)?;
        p.plain(&mut b, 2)?;
        let one = p.update(&mut a, 1, 0);
        or_waits(one.and_then(|()| p.update(&mut b, 2, 0)).map(|()| "skewed"))
    });
}

/// As above with rows that are not there yet.
#[test]
fn write_skew_on_a_range() {
    check(["skewed", "skewed", "skewed", "waits"], |p| {
        let (mut a, mut b) = (p.begin(), p.begin());
        p.range(&mut a, 100, LockMode::None)?;
        p.range(&mut b, 100, LockMode::None)?;
        let one = p.insert(&mut a, 4, 100);
        or_waits(
            one.and_then(|()| p.insert(&mut b, 5, 100))
                .map(|()| "skewed"),
        )
    });
}

/// What is locked is passed over: by a lock in the lock table, by a change, by an insert, by a delete, in
/// both indexes.
#[test]
fn skip_locked_passes_over_what_others_have_locked() {
    let (exclusive, shared) = (LockMode::ExclusiveSkipLocked, LockMode::SharedSkipLocked);
    check([(); 4], |p| {
        let (mut a, mut b) = (p.begin(), p.begin());
        p.read(&mut a, 1, LockMode::Shared)?;
        assert_eq!(p.range(&mut b, 0, exclusive)?, [2, 3]);
        assert_eq!(p.range(&mut b, 0, shared)?, [1, 2, 3]);
        assert_eq!(p.read(&mut b, 1, exclusive)?, None);
        assert_eq!(p.read(&mut b, 1, shared)?, Some(10));
        b.commit()?;
        p.update(&mut a, 2, 21)?;
        let mut b = p.begin();
        assert_eq!(p.range(&mut b, 0, shared)?, [1, 3]);
        assert_eq!(p.read(&mut b, 2, shared)?, None);
        b.rollback()?;
        p.insert(&mut a, 4, 40)?;
        let mut b = p.begin();
        assert_eq!(p.range(&mut b, 0, shared)?, [1, 3]);
        assert_eq!(p.read(&mut b, 4, exclusive)?, None);
        a.commit()?;
        assert_eq!(p.range(&mut b, 0, exclusive)?, [1, 2, 3, 4]);
        // What was read so can be changed.
        let mut cursor = p.table.cursor(0)?;
        assert!(cursor.first(&mut b, exclusive)?);
        b.delete(&p.table, &cursor)
    });
}

/// SEMI-1: where gaps are not locked, a scan that asks for it is given what was committed last of rows that
/// others have locked, and waits only for those that it comes back to.
#[test]
fn a_semi_consistent_scan_waits_for_what_it_wants() {
    let semi_consistent = LockMode::ExclusiveSemiConsistent;
    for backward in [false, true] {
        let result = check_semi_consistent(ReadCommitted, backward)
            .and_then(|()| check_semi_consistent(ReadUncommitted, backward));
        result.unwrap();
    }
    for level in [RepeatableRead, Serializable] {
        let p = play(level);
        let (mut a, mut b) = (p.begin(), p.begin());
        p.update(&mut a, 1, 11).unwrap();
        let mut cursor = p.table.cursor(0).unwrap();
        let waits = cursor.first(&mut b, semi_consistent);
        assert!(matches!(waits, Err(Error::LockWaitTimeout)), "{level:?}");
    }
}

fn check_semi_consistent(level: Isolation, backward: bool) -> Result<()> {
    let p = play(level);
    let mut cursor = p.table.cursor(0)?;
    let start = |cursor: &mut Cursor, trx: &mut Transaction| match backward {
        false => cursor.first(trx, LockMode::ExclusiveSemiConsistent),
        true => cursor.last(trx, LockMode::ExclusiveSemiConsistent),
    };
    let go = |cursor: &mut Cursor, trx: &mut Transaction| match backward {
        false => cursor.next(trx),
        true => cursor.prev(trx),
    };
    let in_order = |mut rows: Vec<(i64, i64, bool)>| {
        if backward {
            rows.reverse();
        }
        rows
    };
    let (mut a, mut b) = (p.begin(), p.begin());
    p.read(&mut a, 1, LockMode::Shared)?;
    p.update(&mut a, 2, 21)?;
    p.update(&mut a, 2, 22)?;
    let mut third = p.table.cursor(0)?;
    assert!(third.last(&mut a, LockMode::Exclusive)?);
    a.delete(&p.table, &third)?;
    p.insert(&mut a, 4, 40)?;
    // Nothing of it is wanted: nobody waits.
    let mut seen = Vec::new();
    let mut found = start(&mut cursor, &mut b)?;
    while found {
        seen.push((
            value(&cursor, 0),
            value(&cursor, 1),
            cursor.was_semi_consistent(),
        ));
        let refused = b.delete(&p.table, &cursor);
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
        cursor.unlock_row(&mut b);
        assert!(!cursor.was_semi_consistent());
        found = go(&mut cursor, &mut b)?;
    }
    let committed = in_order(vec![(1, 10, true), (2, 20, true), (3, 30, true)]);
    assert_eq!(seen, committed);
    // The scan comes back to what it does not pass over, and waits.
    assert!(start(&mut cursor, &mut b)?);
    for _ in 0..2 {
        let waits = go(&mut cursor, &mut b);
        assert!(matches!(waits, Err(Error::LockWaitTimeout)), "{waits:?}");
    }
    // What it finds then is the newest; nobody else gets it.
    let mut seen = Vec::new();
    let mut found = start(&mut cursor, &mut b)?;
    let before = value(&cursor, 0);
    a.commit()?;
    let mut c = p.begin();
    while found {
        if !cursor.was_semi_consistent() {
            let (id, v) = (value(&cursor, 0), value(&cursor, 1));
            seen.push((id, v));
            let busy = p.read(&mut c, id, LockMode::Exclusive);
            assert!(matches!(busy, Err(Error::LockWaitTimeout)), "{busy:?}");
        }
        found = go(&mut cursor, &mut b)?;
    }
    assert!([1, 3].contains(&before));
    let newest = match backward {
        false => vec![(1, 10), (2, 22), (4, 40)],
        // The fourth row was not there when the scan passed.
        true => vec![(2, 22), (1, 10)],
    };
    assert_eq!(seen, newest);
    // In another index, and by its whole key, a row is waited for.
    let mut entries = p.table.cursor(1)?;
    let waits = entries.first(&mut c, LockMode::ExclusiveSemiConsistent);
    assert!(matches!(waits, Err(Error::LockWaitTimeout)), "{waits:?}");
    let waits = p.read(&mut c, 2, LockMode::ExclusiveSemiConsistent);
    assert!(matches!(waits, Err(Error::LockWaitTimeout)), "{waits:?}");
    Ok(())
}

/// AUTOINC-1: a statement that locks the counter is the only one to draw, until it ends.
#[test]
fn a_locked_counter_is_drawn_from_by_one_statement() {
    let p = play(RepeatableRead);
    let def = TableDef::new("a/counted")
        .column("id", ColumnType::i64())
        .primary(&["id"])
        .auto_increment("id");
    let table = p.db.create_table(&def).unwrap();
    let (mut bulk, mut other) = (p.begin(), p.begin());
    let draw = |trx: &mut Transaction, lock| trx.auto_increment_reserve(&table, 2, lock);
    let first = draw(&mut other, AutoIncLock::AfterOthers).unwrap();
    assert_eq!(draw(&mut bulk, AutoIncLock::Statement).unwrap(), first + 2);
    for lock in [AutoIncLock::AfterOthers, AutoIncLock::Statement] {
        let result = draw(&mut other, lock);
        assert!(matches!(result, Err(Error::LockWaitTimeout)), "{lock:?}");
    }
    assert_eq!(draw(&mut other, AutoIncLock::None).unwrap(), first + 4);
    assert_eq!(
        draw(&mut bulk, AutoIncLock::AfterOthers).unwrap(),
        first + 6
    );
    bulk.end_statement();
    assert_eq!(draw(&mut other, AutoIncLock::Statement).unwrap(), first + 8);
    other.rollback().unwrap();
    assert_eq!(draw(&mut bulk, AutoIncLock::Statement).unwrap(), first + 10);
    bulk.commit().unwrap();
    let mut last = p.begin();
    assert_eq!(
        draw(&mut last, AutoIncLock::AfterOthers).unwrap(),
        first + 12
    );
}
