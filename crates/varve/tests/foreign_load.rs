//! Children come while their parent's table is dropped, emptied, renamed, copied, rebuilt and altered. Their
//! statements name the child's table alone, so nobody but the engine keeps these apart (FK-4).
//!
//! What could break here: a parent goes between the look at its row and the child's commit; a parent that is
//! there under some name is not found; a child that has waited is checked by the table that went.

#[path = "support/family.rs"]
mod family;
#[path = "support/small.rs"]
mod small;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use varve::{
    Database, Error, FlushLog, ForeignKeyChecks, Isolation, Options, ReferentialAction, Table,
    Value,
};

use family::{Family, child, family_with, parents, put, rows};

/// The parent of all children that come.
const PARENT: i64 = 1;

/// Far longer than a few transactions take on a busy machine, and than one waits for a lock.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the threads know of each other.
#[derive(Default)]
struct Load {
    /// Odd while the parent may be away.
    epoch: AtomicU64,
    inserted: AtomicU64,
    refused: AtomicU64,
    is_over: AtomicBool,
}

/// Ends the load also if the thread that alters tables fails.
struct Ends<'a>(&'a Load);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, SeqCst);
    }
}

impl Load {
    /// Transactions of one to three children with ids from `id`, every fourth rolled back. Returns those that
    /// were committed.
    fn insert(&self, db: &Database, children: &Table, mut id: i64) -> Vec<(i64, Option<i64>)> {
        let mut committed = Vec::new();
        for n in 0.. {
            if self.is_over.load(SeqCst) {
                break;
            }
            let before = self.epoch.load(SeqCst);
            let mut trx = db.begin([Isolation::RepeatableRead, Isolation::ReadCommitted][n % 2]);
            trx.trust_metadata_locks();
            let new: Vec<_> = (id..=id + n as i64 % 3).collect();
            id += 3;
            let insert = |id: &i64| child(&mut trx, children, *id, Some(PARENT));
            match new.iter().try_for_each(insert) {
                Ok(()) if n % 4 == 3 => trx.rollback().unwrap(),
                Ok(()) => {
                    trx.commit().unwrap();
                    committed.extend(new.iter().map(|id| (*id, Some(PARENT))));
                    self.inserted.fetch_add(1, SeqCst);
                }
                Err(Error::NoReferencedRow(_)) => {
                    trx.rollback().unwrap();
                    let was_there = before.is_multiple_of(2) && before == self.epoch.load(SeqCst);
                    assert!(
                        !was_there,
                        "the parent was there, and child {id} was refused"
                    );
                    self.refused.fetch_add(1, SeqCst);
                }
                Err(e) => panic!("child {id}: {e}"),
            }
        }
        committed
    }

    /// Returns when a counter has grown by some.
    fn goes_on(&self, counter: &AtomicU64) {
        let (begun, from) = (Instant::now(), counter.load(SeqCst));
        while counter.load(SeqCst) < from + 6 {
            assert!(begun.elapsed() < PATIENCE, "the load stands still");
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Takes the parent away, and brings it back: meanwhile no child comes.
    fn without_parent(&self, f: &Family, take_away: impl FnOnce(), bring_back: impl FnOnce()) {
        self.epoch.fetch_add(1, SeqCst);
        take_away();
        let there = f.children();
        self.goes_on(&self.refused);
        assert_eq!(f.children(), there, "a child came without a parent");
        bring_back();
        put_parent(&f.db, "a/parents");
        self.epoch.fetch_add(1, SeqCst);
        self.goes_on(&self.inserted);
    }
}

fn put_parent(db: &Database, table: &str) {
    let mut trx = db.begin(Isolation::RepeatableRead);
    put(
        &mut trx,
        &db.table(table).unwrap(),
        &[Value::Int(PARENT), Value::Null],
    )
    .unwrap();
    trx.commit().unwrap();
}

/// As ALTER TABLE does it that copies.
fn copy(db: &Database) {
    let mut def = parents();
    def.name = "a/#copy".into();
    db.create_table(&def).unwrap();
    put_parent(db, "a/#copy");
    db.rename_table("a/parents", "a/#old").unwrap();
    db.rename_table("a/#copy", "a/parents").unwrap();
    db.drop_table("a/#old").unwrap();
}

/// All kinds of DDL that a parent can have, once.
fn alter_all(f: &Family, load: &Load) {
    let (db, off) = (&f.db, ForeignKeyChecks::Off);
    for refused in [db.drop_table("a/parents"), db.truncate_table("a/parents")] {
        assert!(
            matches!(refused, Err(Error::TableIsReferenced(_))),
            "{refused:?}"
        );
    }
    let drop_it = || db.drop_table_with("a/parents", off).unwrap();
    load.without_parent(f, drop_it, || drop(db.create_table(&parents()).unwrap()));
    let empty_it = || db.truncate_table_with("a/parents", off).unwrap();
    load.without_parent(f, empty_it, || ());
    let more = parents().index("more", &["code", "id"]);
    let steps: [&dyn Fn(); 6] = [
        &|| db.rename_table("a/parents", "b/elders").unwrap(),
        &|| db.rename_table("b/elders", "a/parents").unwrap(),
        &|| copy(db),
        &|| db.rebuild_table(&parents()).unwrap(),
        &|| db.redefine_table(&more).unwrap(),
        &|| db.redefine_table(&parents()).unwrap(),
    ];
    for step in steps {
        step();
        load.goes_on(&load.inserted);
    }
}

#[test]
fn a_parent_is_altered_while_children_come() {
    let options = Options {
        flush_log_at_trx_commit: FlushLog::Lazy,
        lock_wait_timeout: Duration::from_secs(120),
        ..small::options()
    };
    let no_action = ReferentialAction::NoAction;
    let f = family_with(no_action, no_action, options);
    let load = Load::default();
    let mut expected = f.children();
    let committed = thread::scope(|scope| {
        let insert = |n: i64| {
            let (f, load) = (&f, &load);
            scope.spawn(move || load.insert(&f.db, &f.children, n * 1_000_000))
        };
        let inserters: Vec<_> = (1..=3).map(insert).collect();
        let ends = Ends(&load);
        for _ in 0..8 {
            alter_all(&f, &load);
        }
        drop(ends);
        let joined = inserters.into_iter().map(|thread| thread.join().unwrap());
        joined.flatten().collect::<Vec<_>>()
    });
    expected.extend(committed);
    expected.sort_unstable();
    let mut trx = f.begin(Isolation::ReadCommitted);
    assert_eq!(rows(&mut trx, &f.children), expected);
    drop(trx);
    assert_eq!(f.db.check_table(&f.children).unwrap().errors, [""; 0]);
}
