//! Range locks; model.rs has random ones beside other locks. A wait that should end and does not runs into
//! `LONG`.

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::Mode::{Exclusive, Shared};
use super::tests::{PATIENT, until_waiting};
use super::{Acquired, LastRow, LockManager, Mode, Need, TrxLocks, Wait};
use crate::base::{Error, IndexId, Result, TrxId};

const INDEX: IndexId = IndexId(7);

fn lock(m: &LockManager, l: &TrxLocks, key: u32, mode: Mode, wait: Wait<'_>) -> Result<Acquired> {
    m.lock_record(l, INDEX, &key.to_be_bytes(), mode, wait)
}

/// As a scan does it: each row is waited for.
fn scan(m: &LockManager, l: &TrxLocks, keys: std::ops::Range<u32>, mode: Mode) -> Result<()> {
    for key in keys {
        let got = lock(m, l, key, mode, PATIENT)?;
        let is_new = got == Acquired::New;
        let (low, high) = (key.to_be_bytes(), (key + 1).to_be_bytes());
        let row = Some(LastRow { key: &low, is_new });
        m.lock_range(l, INDEX, (&low, Some(&high)), mode, row)?;
    }
    Ok(())
}

fn is_free(m: &LockManager, key: u32, mode: Mode) -> bool {
    let l = m.owner();
    lock(m, &l, key, mode, Wait::No).is_ok()
}

/// RANGE-1, RANGE-3: rows without number are locked by one interval, until all is released.
#[test]
fn a_long_scan_takes_no_memory() {
    const ROWS: u32 = 20_000;
    let m = LockManager::new();
    let a = m.owner();
    assert!(!m.holds_many(&a), "it holds nothing");
    m.set_few_locks(0);
    assert!(m.holds_many(&a));
    scan(&m, &a, 0..ROWS, Exclusive).unwrap();
    assert_eq!((m.status().locked, a.count()), (0, ROWS as usize));
    a.shown().begin(1, 0);
    assert_eq!(m.transactions()[0].locks.records, u64::from(ROWS));
    assert!(m.memory_bytes() < 1000, "{} bytes", m.memory_bytes());
    for key in [0, 1, ROWS / 2, ROWS - 1] {
        assert!(!is_free(&m, key, Shared), "RANGE-1: {key}");
        assert!(!m.unlock_record(&a, INDEX, &key.to_be_bytes()), "RANGE-3");
        assert!(!is_free(&m, key, Shared), "RANGE-3: {key}");
        let again = lock(&m, &a, key, Exclusive, Wait::No);
        assert_eq!(again.unwrap(), Acquired::Already);
    }
    assert!(is_free(&m, ROWS, Exclusive));
    assert_eq!(m.status().locked, 0, "what was refused left something");
    m.release_all(&a);
    assert_eq!((m.memory_bytes(), a.count()), (0, 0));
    assert!(is_free(&m, 0, Exclusive));
    // RANGE-2: nobody has any more.
    assert!(!m.inner.gaps.is_near_ranges(INDEX, &0u32.to_be_bytes()));
}

/// Who has to wait for a row of a range waits in its queue, and is let on when the range's owner ends.
#[test]
fn a_wait_makes_a_row_of_a_range_explicit() {
    let m = LockManager::new();
    let (a, b) = (m.owner(), m.owner());
    m.set_trx(&a, TrxId(1));
    scan(&m, &a, 0..100, Exclusive).unwrap();
    thread::scope(|scope| {
        let m = &m;
        let waiter = scope.spawn(move || {
            let got = lock(m, &b, 50, Shared, PATIENT);
            m.release_all(&b);
            got
        });
        until_waiting(m, 1);
        let status = m.status();
        assert_eq!((status.locked, status.waiting.len()), (1, 1));
        assert_eq!(status.waiting[0].holders[0].0.trx, Some(TrxId(1)));
        m.release_all(&a);
        assert_eq!(waiter.join().unwrap().unwrap(), Acquired::New);
    });
    assert_eq!(m.status().locked, 0);
}

/// Shared ranges get along. Of two owners that both want more in the other's range one is a deadlock's
/// victim; the other goes on when that one is gone (QUEUE-3, DEAD-1).
#[test]
fn two_that_upgrade_in_ranges_are_a_deadlock() {
    let m = LockManager::new();
    let (a, b) = (m.owner(), m.owner());
    scan(&m, &a, 0..100, Shared).unwrap();
    scan(&m, &b, 50..150, Shared).unwrap();
    assert!(is_free(&m, 70, Shared) && !is_free(&m, 70, Exclusive));
    let upgraded = lock(&m, &a, 20, Exclusive, Wait::No);
    assert_eq!(upgraded.unwrap(), Acquired::Upgraded);
    thread::scope(|scope| {
        let m = &m;
        let ends = [a, b].map(|l| {
            scope.spawn(move || {
                let end = lock(m, &l, 70, Exclusive, PATIENT);
                m.release_all(&l);
                end
            })
        });
        let ends = ends.map(|end| end.join().unwrap());
        let is_victim = |end: &Result<Acquired>| matches!(end, Err(Error::Deadlock));
        let is_let_on = |end: &Result<Acquired>| matches!(end, Ok(Acquired::Upgraded));
        assert_eq!(ends.iter().filter(|end| is_victim(end)).count(), 1);
        assert_eq!(ends.iter().filter(|end| is_let_on(end)).count(), 1);
    });
}

/// A prepared transaction gives up its ranges, and of the rows that others made explicit those that it does
/// not want.
#[test]
fn ranges_are_given_up_with_searches() {
    let m = LockManager::new();
    let (a, b, c) = (m.owner(), m.owner(), m.owner());
    scan(&m, &a, 0..100, Exclusive).unwrap();
    thread::scope(|scope| {
        let m = &m;
        let let_on = scope.spawn(move || lock(m, &b, 10, Exclusive, PATIENT).map(drop));
        let waiter = scope.spawn(move || lock(m, &c, 20, Exclusive, PATIENT).map(drop));
        until_waiting(m, 2);
        let written = 20u32.to_be_bytes();
        m.release_searches(&a, |index, key| index == INDEX && key == written);
        let_on.join().unwrap().unwrap();
        assert!(is_free(m, 30, Exclusive));
        assert_eq!(m.stats().current_waits, 1);
        m.release_all(&a);
        waiter.join().unwrap().unwrap();
    });
}

/// WRITTEN-1: a shared range does not stand for the exclusive lock that a written record's owner gets back.
#[test]
fn a_written_record_in_a_shared_range_is_locked_again() {
    let m = LockManager::new();
    m.set_few_locks(0);
    let a = m.owner();
    scan(&m, &a, 0..10, Shared).unwrap();
    let key = 5u32.to_be_bytes();
    lock(&m, &a, 5, Exclusive, Wait::No).unwrap();
    m.give_up_written(&a, INDEX, &key);
    assert!(m.relies_on_writing(&a) && is_free(&m, 5, Shared));
    assert!(m.lock_again(&a, INDEX, &key, Need::IfMemory));
    assert!(!is_free(&m, 5, Shared), "WRITTEN-1");
    assert!(!m.lock_again(&a, INDEX, &key, Need::IfMemory), "it has it");
    m.release_all(&a);
    scan(&m, &a, 0..10, Exclusive).unwrap();
    assert!(
        !m.lock_again(&a, INDEX, &key, Need::Must),
        "its range says so"
    );
    m.release_all(&a);
    assert_eq!(m.status().locked, 0);
    // Without memory a row that must be locked is locked all the same.
    m.set_memory_limit(0);
    assert!(!m.lock_again(&a, INDEX, &key, Need::IfMemory));
    assert_eq!(m.status().locked, 0);
    assert!(m.lock_again(&a, INDEX, &key, Need::Must));
    assert_eq!(m.status().locked, 1);
    m.release_all(&a);
}

/// RANGE-1 with threads: nobody is in a row where somebody else is who should not be.
#[test]
fn rows_in_ranges_exclude_each_other() {
    const KEYS: u32 = 12;
    let m = LockManager::new();
    // Readers, or -1000 for a writer.
    let inside: Vec<_> = (0..KEYS).map(|_| AtomicI64::new(0)).collect();
    let enter = |key: u32, mode| {
        let add = if mode == Shared { 1 } else { -1000 };
        let before = inside[key as usize].fetch_add(add, Ordering::SeqCst);
        let fits = if mode == Shared {
            before >= 0
        } else {
            before == 0
        };
        assert!(fits, "RANGE-1: {mode:?} of {key} beside {before}");
        (key, add)
    };
    thread::scope(|scope| {
        for seed in 0..4 {
            let (m, inside, enter) = (&m, &inside, &enter);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed);
                let l = m.owner();
                for _ in 0..3000 {
                    let mode = if rng.random_bool(0.5) {
                        Shared
                    } else {
                        Exclusive
                    };
                    let from = rng.random_range(0..KEYS);
                    let to = rng.random_range(from..KEYS) + 1;
                    let mut entered = Vec::new();
                    let done = match rng.random_bool(0.5) {
                        true => scan(m, &l, from..to, mode).map(|()| entered.extend(from..to)),
                        false => lock(m, &l, from, mode, PATIENT).map(|_| entered.push(from)),
                    };
                    match done {
                        Ok(()) => {}
                        Err(Error::Deadlock) => entered.clear(),
                        Err(e) => panic!("{e}"),
                    }
                    let entered: Vec<_> = entered.into_iter().map(|key| enter(key, mode)).collect();
                    for (key, add) in entered {
                        inside[key as usize].fetch_sub(add, Ordering::SeqCst);
                    }
                    m.release_all(&l);
                }
            });
        }
    });
    assert_eq!((m.status().locked, m.memory_bytes()), (0, 0));
}
