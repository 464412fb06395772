//! Grants, cancellations and deadlocks: every interleaving, up to a bound on preemptions, of two or three transactions.
//!
//! Modelled: all mutexes of the lock manager, the condition variable that an owner sleeps on, the counts of strong table
//! requests. No time passes, so nobody's wait times out: a wake-up that is lost is a deadlock of the model, which
//! loom reports. The waits-for graph is searched as always.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use loom::thread;

use super::{Acquired, LockManager, Mode, TableMode, TrxLocks, Wait};
use crate::base::{Error, IndexId, Result, TableId, model};

const INDEX: IndexId = IndexId(1);
const TABLE: TableId = TableId(1);

static NEVER: AtomicBool = AtomicBool::new(false);

fn patiently(interrupt: &AtomicBool) -> Wait<'_> {
    let timeout = Duration::from_secs(3600);
    Wait::For { timeout, interrupt }
}

fn lock(manager: &LockManager, locks: &TrxLocks, key: &[u8]) -> Result<Acquired> {
    manager.lock_record(locks, INDEX, key, Mode::Exclusive, patiently(&NEVER))
}

/// Nobody holds or awaits anything: another owner gets the lock at once.
fn assert_free(manager: &LockManager, key: &[u8]) {
    let other = manager.owner();
    let now = manager.lock_record(&other, INDEX, key, Mode::Exclusive, Wait::No);
    assert_eq!(now.unwrap(), Acquired::New);
}

/// LOCK-1 and LOCK-2: each gets the lock, one at a time.
#[test]
fn loom_everybody_is_granted_in_turn() {
    model::check(2, || {
        let manager = LockManager::new();
        let holders = Arc::new(AtomicU32::new(0));
        let turn = |manager: &LockManager, holders: &AtomicU32| {
            let locks = manager.owner();
            lock(manager, &locks, b"k").unwrap();
            assert_eq!(holders.fetch_add(1, Ordering::Relaxed), 0, "LOCK-1");
            thread::yield_now();
            holders.fetch_sub(1, Ordering::Relaxed);
            manager.release_all(&locks);
        };
        let other = thread::spawn({
            let (manager, holders) = (manager.clone(), holders.clone());
            move || turn(&manager, &holders)
        });
        turn(&manager, &holders);
        other.join().unwrap();
        assert_free(&manager, b"k");
    });
}

/// DEAD-1, DEAD-2, DEAD-4: of two that wait for each other exactly one is told, and the other one goes on; if they
/// missed each other, none is.
#[test]
fn loom_a_deadlock_has_one_victim() {
    model::check(2, || {
        let manager = LockManager::new();
        let cross = |manager: &LockManager, first: &[u8], second: &[u8]| {
            let locks = manager.owner();
            lock(manager, &locks, first).unwrap();
            let result = lock(manager, &locks, second);
            manager.release_all(&locks);
            match result {
                Ok(_) => false,
                Err(Error::Deadlock) => true,
                Err(e) => panic!("{e}"),
            }
        };
        let other = thread::spawn({
            let manager = manager.clone();
            move || cross(&manager, b"a", b"b")
        });
        let own = cross(&manager, b"b", b"a");
        let other = other.join().unwrap();
        assert!(!(own && other), "DEAD-2: two victims of one cycle");
        assert_free(&manager, b"a");
        assert_free(&manager, b"b");
    });
}

/// A wait is interrupted while it is granted: it ends one way or the other, and leaves nothing behind.
#[test]
fn loom_an_interrupt_meets_a_grant() {
    model::check(2, || {
        let manager = LockManager::new();
        let holder = manager.owner();
        lock(&manager, &holder, b"k").unwrap();
        let interrupt = Arc::new(AtomicBool::new(false));
        let waiter = thread::spawn({
            let (manager, interrupt) = (manager.clone(), interrupt.clone());
            move || {
                let locks = manager.owner();
                let wait = patiently(&interrupt);
                let result = manager.lock_record(&locks, INDEX, b"k", Mode::Exclusive, wait);
                let holds = manager.holds_record(&locks, INDEX, b"k", Mode::Exclusive);
                match result {
                    Ok(_) => assert!(holds),
                    Err(Error::Interrupted) => assert!(!holds),
                    Err(e) => panic!("{e}"),
                }
            }
        });
        interrupt.store(true, Ordering::Release);
        manager.wake_interrupted();
        manager.release_all(&holder);
        waiter.join().unwrap();
        assert_free(&manager, b"k");
    });
}

/// LOCK-3: an intent that is only noted and a lock on the whole table exclude each other.
#[test]
fn loom_intents_meet_a_table_lock() {
    model::check(2, || {
        let manager = LockManager::new();
        let inside = Arc::new(AtomicU32::new(0));
        let turn = |manager: &LockManager, inside: &AtomicU32, mode| {
            let locks = manager.owner();
            manager
                .lock_table(&locks, TABLE, mode, patiently(&NEVER))
                .unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "LOCK-3");
            thread::yield_now();
            inside.fetch_sub(1, Ordering::Relaxed);
            manager.release_all(&locks);
        };
        let other = thread::spawn({
            let (manager, inside) = (manager.clone(), inside.clone());
            move || turn(&manager, &inside, TableMode::IntentionExclusive)
        });
        turn(&manager, &inside, TableMode::Exclusive);
        other.join().unwrap();
        let locks = manager.owner();
        let now = manager.lock_table(&locks, TABLE, TableMode::Exclusive, Wait::No);
        assert_eq!(now.unwrap(), Acquired::New);
    });
}

/// GAP-4: who waits to insert goes on when the gap lock is released.
#[test]
fn loom_an_insert_waits_for_a_gap() {
    model::check(2, || {
        let manager = LockManager::new();
        let holder = manager.owner();
        manager.lock_gap(&holder, INDEX, b"a", Some(b"c")).unwrap();
        let inserter = thread::spawn({
            let manager = manager.clone();
            move || {
                let locks = manager.owner();
                manager
                    .wait_to_insert(&locks, INDEX, b"b", patiently(&NEVER))
                    .unwrap();
                assert!(!manager.keeps_out(&locks, INDEX, b"b"));
            }
        });
        manager.release_all(&holder);
        inserter.join().unwrap();
    });
}
