//! The lock manager with threads: order, mutual exclusion, deadlocks, wake-ups. A wait that should end and
//! does not runs into `LONG`, and the test fails by `LockWaitTimeout`.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::Mode::{Exclusive, Shared};
use super::{Acquired, LockManager, Mode, TableMode, TrxLocks, Wait};
use crate::base::{Error, IndexId, Result, TableId, TrxId};

pub(super) const LONG: Duration = Duration::from_secs(60);
pub(super) static NO_KILL: AtomicBool = AtomicBool::new(false);
pub(super) const PATIENT: Wait<'static> = Wait::For {
    timeout: LONG,
    interrupt: &NO_KILL,
};
const INDEX: IndexId = IndexId(7);
const TABLE: TableId = TableId(3);

fn lock(m: &LockManager, l: &TrxLocks, key: &[u8], mode: Mode) -> Result<Acquired> {
    m.lock_record(l, INDEX, key, mode, PATIENT)
}

fn try_lock(m: &LockManager, l: &TrxLocks, key: &[u8], mode: Mode) -> Option<Acquired> {
    let conflicts = m.conflicts(l, INDEX, key, mode);
    let got = m.try_lock_record(l, INDEX, key, mode);
    assert_eq!(got.is_none(), conflicts);
    got
}

fn try_table(m: &LockManager, l: &TrxLocks, mode: TableMode) -> Option<Acquired> {
    m.lock_table(l, TABLE, mode, Wait::No).ok()
}

fn weaken(m: &LockManager, l: &TrxLocks) -> bool {
    m.weaken_table(l, TABLE, TableMode::IntentionExclusive)
}

/// Until so many requests wait.
pub(super) fn until_waiting(m: &LockManager, n: u64) {
    while m.stats().current_waits != n {
        thread::yield_now();
    }
}

fn assert_all_free(m: &LockManager) {
    let status = m.status();
    assert_eq!((status.locked, m.stats().current_waits), (0, 0));
    assert!(status.waiting.is_empty());
    let l = m.owner();
    assert_eq!(try_table(m, &l, TableMode::Exclusive), Some(Acquired::New));
}

#[test]
fn records_are_locked_by_index_and_key() {
    let m = LockManager::new();
    let (a, b) = (m.owner(), m.owner());
    let long = [9; 3000];
    for key in [&b""[..], b"k", b"a key that needs memory of its own", &long] {
        assert_eq!(try_lock(&m, &a, key, Shared), Some(Acquired::New));
        assert_eq!(try_lock(&m, &b, key, Shared), Some(Acquired::New));
        assert_eq!(try_lock(&m, &a, key, Shared), Some(Acquired::Already));
        assert_eq!(try_lock(&m, &a, key, Exclusive), None);
        assert!(m.unlock_record(&b, INDEX, key));
        assert!(!m.unlock_record(&b, INDEX, key), "unlocked twice");
        assert_eq!(try_lock(&m, &a, key, Exclusive), Some(Acquired::Upgraded));
        assert_eq!(try_lock(&m, &a, key, Shared), Some(Acquired::Already));
        assert_eq!(try_lock(&m, &b, key, Shared), None);
        assert!(m.holds_record(&a, INDEX, key, Exclusive));
        assert!(!m.holds_record(&b, INDEX, key, Shared));
        assert!(
            m.lock_record(&b, IndexId(8), key, Exclusive, Wait::No)
                .is_ok()
        );
    }
    assert_eq!((a.count(), b.count(), m.status().locked), (4, 4, 8));
    m.release_all(&a);
    assert_eq!(try_lock(&m, &b, b"k", Exclusive), Some(Acquired::New));
    drop(b);
    assert_eq!(a.count(), 0);
    assert_all_free(&m);
}

/// Every pair of table modes, in both orders, whether intents are noted or queued.
/// Each shard has its part of the memory, so the total is met within a few locks per shard.
#[test]
fn locks_beyond_the_memory_limit_are_refused() {
    let m = LockManager::new();
    m.set_memory_limit(512 * 1000);
    let (a, b) = (m.owner(), m.owner());
    let keys: Vec<_> = (0..20_000u32).map(u32::to_be_bytes).collect();
    let mut taken = Vec::new();
    for key in &keys {
        match lock(&m, &a, key, Mode::Exclusive) {
            Ok(_) => taken.push(key),
            Err(Error::LockTableFull) => {}
            Err(e) => panic!("{e}"),
        }
    }
    assert!((4000..=5120).contains(&taken.len()), "{}", taken.len());
    // What is held is held, tables can be locked, and what is given up is room for others.
    assert!(lock(&m, &a, taken[0], Mode::Exclusive).is_ok());
    assert!(try_table(&m, &b, TableMode::IntentionExclusive).is_some());
    m.release_all(&a);
    assert!(lock(&m, &b, taken[0], Mode::Exclusive).is_ok());
    // Long keys count with their length.
    let long: Vec<_> = (0..1000u32)
        .map(|n| [&n.to_be_bytes()[..], &[7; 900]].concat())
        .collect();
    let held = long
        .iter()
        .filter(|key| lock(&m, &b, key, Mode::Shared).is_ok());
    assert!((400..=512).contains(&held.count()));
    m.release_all(&b);
}

#[test]
fn table_modes_exclude_each_other() {
    let modes = [
        TableMode::IntentionShared,
        TableMode::IntentionExclusive,
        TableMode::Shared,
        TableMode::Exclusive,
        TableMode::AutoInc,
    ];
    for first in modes {
        for second in modes {
            let m = LockManager::new();
            let (a, b) = (m.owner(), m.owner());
            assert_eq!(try_table(&m, &a, first), Some(Acquired::New));
            let got = try_table(&m, &b, second);
            let want = (!first.conflicts_with(second)).then_some(Acquired::New);
            assert_eq!(got, want, "{} then {}", first.name(), second.name());
            assert!(m.holds_table(&a, TABLE, first));
            assert_eq!(m.holds_table(&b, TABLE, second), want.is_some());
            // The owner itself may add any mode unless the other's is in its way.
            let blocked = want.is_some() && second.conflicts_with(TableMode::Exclusive);
            assert_eq!(try_table(&m, &a, TableMode::Exclusive).is_none(), blocked);
            drop((a, b));
            assert_all_free(&m);
        }
    }
}

#[test]
fn auto_inc_is_given_up_at_the_end_of_the_statement() {
    let m = LockManager::new();
    let (a, b) = (m.owner(), m.owner());
    assert!(try_table(&m, &a, TableMode::IntentionExclusive).is_some());
    assert!(try_table(&m, &b, TableMode::IntentionExclusive).is_some());
    assert!(try_table(&m, &a, TableMode::AutoInc).is_some());
    assert!(try_table(&m, &b, TableMode::AutoInc).is_none());
    assert!(m.unlock_table(&a, TABLE, TableMode::AutoInc));
    assert!(!m.unlock_table(&a, TABLE, TableMode::AutoInc));
    assert!(try_table(&m, &b, TableMode::AutoInc).is_some());
    assert!(m.holds_table(&a, TABLE, TableMode::IntentionExclusive));
    assert!(try_table(&m, &a, TableMode::Shared).is_none());
    drop((a, b));
    assert_all_free(&m);
}

/// Others come in between, DDL does not; who holds nothing can't give anything up.
#[test]
fn an_exclusive_lock_becomes_an_intention() {
    let m = LockManager::new();
    let (a, b) = (m.owner(), m.owner());
    assert!(!weaken(&m, &a));
    assert!(try_table(&m, &b, TableMode::IntentionExclusive).is_some());
    assert!(!weaken(&m, &b));
    drop(b);
    assert!(try_table(&m, &a, TableMode::Exclusive).is_some());
    let b = m.owner();
    assert!(try_table(&m, &b, TableMode::IntentionExclusive).is_none());
    assert!(weaken(&m, &a));
    assert!(m.holds_table(&a, TABLE, TableMode::IntentionExclusive));
    assert!(!m.holds_table(&a, TABLE, TableMode::Exclusive));
    assert!(try_table(&m, &b, TableMode::IntentionExclusive).is_some());
    let c = m.owner();
    assert!(try_table(&m, &c, TableMode::Shared).is_none());
    assert!(try_table(&m, &c, TableMode::Exclusive).is_none());
    drop((b, c));
    assert!(try_table(&m, &a, TableMode::Exclusive).is_some());
    drop(a);
    assert_all_free(&m);
}

/// Others read, and nobody changes the table; the owner gets it for itself again.
#[test]
fn an_exclusive_lock_becomes_a_shared_one() {
    let m = LockManager::new();
    let (a, b) = (m.owner(), m.owner());
    assert!(try_table(&m, &a, TableMode::Exclusive).is_some());
    assert!(m.weaken_table(&a, TABLE, TableMode::Shared));
    assert!(!m.holds_table(&a, TABLE, TableMode::Exclusive));
    assert!(try_table(&m, &b, TableMode::IntentionShared).is_some());
    assert!(try_table(&m, &b, TableMode::IntentionExclusive).is_none());
    assert!(try_table(&m, &a, TableMode::Exclusive).is_none());
    drop(b);
    assert!(try_table(&m, &a, TableMode::Exclusive).is_some());
    drop(a);
    assert_all_free(&m);
}

/// Starts a waiter that notes its name when it gets the lock, then gives it up.
fn queue_up(
    m: &LockManager,
    log: &Arc<Mutex<Vec<String>>>,
    name: &str,
    mode: Mode,
) -> thread::JoinHandle<()> {
    let before = m.stats().current_waits;
    let (m2, log, name) = (m.clone(), log.clone(), name.to_string());
    let thread = thread::spawn(move || {
        let l = m2.owner();
        assert_eq!(lock(&m2, &l, b"row", mode).unwrap(), Acquired::New);
        log.lock().push(name);
    });
    until_waiting(m, before + 1);
    thread
}

/// QUEUE-2: conflicting requests are granted in the order in which they came; compatible neighbours together.
#[test]
fn waiters_are_served_in_order() {
    let m = LockManager::new();
    let holder = m.owner();
    lock(&m, &holder, b"row", Exclusive).unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let names = ["X0", "S1", "S2", "X3", "S4", "X5", "X6"];
    let threads: Vec<_> = names
        .iter()
        .map(|name| {
            let mode = if name.starts_with('X') {
                Exclusive
            } else {
                Shared
            };
            queue_up(&m, &log, name, mode)
        })
        .collect();
    let late = m.owner();
    assert_eq!(try_lock(&m, &late, b"row", Shared), None);
    m.release_all(&holder);
    threads.into_iter().for_each(|t| t.join().unwrap());
    let mut log = log.lock().clone();
    log[1..3].sort();
    assert_eq!(log, names);
    assert_eq!(m.stats().waits, names.len() as u64);
    assert_all_free(&m);
}

/// A request may not overtake one that conflicts with it, even if it gets along with the holders.
#[test]
fn a_waiting_writer_is_not_starved_by_readers() {
    let m = LockManager::new();
    let (reader, next) = (m.owner(), m.owner());
    lock(&m, &reader, b"row", Shared).unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let writer = queue_up(&m, &log, "X", Exclusive);
    assert_eq!(try_lock(&m, &next, b"row", Shared), None);
    drop(reader);
    writer.join().unwrap();
    assert_eq!(try_lock(&m, &next, b"row", Shared), Some(Acquired::New));
}

/// QUEUE-3.
#[test]
fn an_upgrade_goes_before_others_but_after_holders() {
    let m = LockManager::new();
    let (a, b) = (m.owner(), m.owner());
    lock(&m, &a, b"row", Shared).unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let writer = queue_up(&m, &log, "X", Exclusive);
    // The only holder: at once.
    assert_eq!(
        try_lock(&m, &a, b"row", Exclusive),
        Some(Acquired::Upgraded)
    );
    m.release_all(&a);
    writer.join().unwrap();
    lock(&m, &a, b"row", Shared).unwrap();
    lock(&m, &b, b"row", Shared).unwrap();
    let writer = queue_up(&m, &log, "X", Exclusive);
    let upgrade = thread::spawn({
        let (m, log) = (m.clone(), log.clone());
        move || {
            let got = lock(&m, &a, b"row", Exclusive).unwrap();
            assert_eq!(got, Acquired::Upgraded);
            log.lock().push("upgrade".to_string());
        }
    });
    until_waiting(&m, 2);
    m.release_all(&b);
    upgrade.join().unwrap();
    writer.join().unwrap();
    assert_eq!(*log.lock(), ["X", "upgrade", "X"]);
    assert_all_free(&m);
}

#[test]
fn a_wait_times_out_and_leaves_nothing_behind() {
    let m = LockManager::new();
    let (a, b) = (m.owner(), m.owner());
    lock(&m, &a, b"row", Shared).unwrap();
    lock(&m, &b, b"other", Exclusive).unwrap();
    let short = Wait::For {
        timeout: Duration::from_millis(20),
        interrupt: &NO_KILL,
    };
    // Behind the writer that gives up stands a reader, which then has no reason to wait.
    let writer = thread::spawn({
        let m = m.clone();
        move || {
            let result = m.lock_record(&b, INDEX, b"row", Exclusive, short);
            assert!(matches!(result, Err(Error::LockWaitTimeout)), "{result:?}");
            assert!(m.holds_record(&b, INDEX, b"other", Exclusive));
        }
    });
    let reader = thread::spawn({
        let m = m.clone();
        move || lock(&m, &m.owner(), b"row", Shared).unwrap()
    });
    writer.join().unwrap();
    reader.join().unwrap();
    assert_eq!(m.stats().timeouts, 1);
    drop(a);
    assert_all_free(&m);
}

#[test]
fn kill_ends_a_wait() {
    let m = LockManager::new();
    let holder = m.owner();
    lock(&m, &holder, b"row", Exclusive).unwrap();
    let killed = Arc::new(AtomicBool::new(false));
    let l = m.owner();
    let waiter = thread::spawn({
        let (m, killed) = (m.clone(), killed.clone());
        move || {
            let wait = Wait::For {
                timeout: LONG,
                interrupt: &killed,
            };
            m.lock_record(&l, INDEX, b"row", Shared, wait)
        }
    });
    until_waiting(&m, 1);
    killed.store(true, Ordering::Release);
    m.wake_interrupted();
    assert!(matches!(waiter.join().unwrap(), Err(Error::Interrupted)));
    drop(holder);
    assert_all_free(&m);
}

/// Each of `n` locks its row, then the next one's. Returns the members that were told to give up.
fn run_cycle(m: &LockManager, n: usize, weights: &[u64], modes: [Mode; 2]) -> Vec<usize> {
    let barrier = Barrier::new(n);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..n)
            .map(|i| {
                let (m, barrier) = (m, &barrier);
                let weight = weights[i];
                scope.spawn(move || {
                    let l = m.owner();
                    l.set_weight(weight);
                    lock(m, &l, &[i as u8], modes[0]).unwrap();
                    barrier.wait();
                    match lock(m, &l, &[((i + 1) % n) as u8], modes[1]) {
                        Ok(_) => None,
                        Err(Error::Deadlock) => Some(i),
                        Err(e) => panic!("member {i} of {n}: {e}"),
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .filter_map(|t| t.join().unwrap())
            .collect()
    })
}

#[test]
fn deadlocks_of_two_to_five_are_broken_by_the_lightest() {
    let m = LockManager::new();
    let mut rng = SmallRng::seed_from_u64(1);
    let mut expected = 0;
    for n in 2..=5 {
        for modes in [
            [Exclusive, Exclusive],
            [Shared, Exclusive],
            [Exclusive, Shared],
        ] {
            for _ in 0..20 {
                let mut weights: Vec<u64> = (1..=n as u64).collect();
                weights.shuffle(&mut rng);
                let victims = run_cycle(&m, n, &weights, modes);
                let lightest = weights.iter().position(|w| *w == 1).unwrap();
                assert_eq!(victims, [lightest], "weights {weights:?}");
                expected += 1;
            }
        }
    }
    assert_eq!(m.stats().deadlocks, expected);
    let report = m.status().last_deadlock.expect("a report");
    assert_eq!(report.members.len(), 5);
    assert_eq!(report.members.iter().filter(|m| m.victim).count(), 1);
    assert_all_free(&m);
}

/// However light it is: what it did elsewhere can't be taken back.
#[test]
fn who_is_spared_is_no_victim() {
    let m = LockManager::new();
    for both in [false, true] {
        let (a, b) = (m.owner(), m.owner());
        for (l, weight, key) in [(&a, 1, b"1"), (&b, 9, b"2")] {
            l.set_weight(weight);
            l.set_spared(both);
            lock(&m, l, key, Exclusive).unwrap();
        }
        a.set_spared(true);
        let waiter = thread::spawn({
            let m = m.clone();
            move || lock(&m, &a, b"2", Exclusive).map(drop)
        });
        until_waiting(&m, 1);
        let own = lock(&m, &b, b"1", Exclusive).map(drop);
        drop(b);
        let other = waiter.join().unwrap();
        let (victim, winner) = if both { (other, own) } else { (own, other) };
        assert!(matches!(victim, Err(Error::Deadlock)), "{victim:?}");
        winner.unwrap();
    }
    assert_all_free(&m);
}

/// DEAD-5: a cycle stays while nobody looks for it, and is broken when somebody does again.
#[test]
fn deadlocks_are_left_alone_while_detection_is_off() {
    let m = LockManager::new();
    m.set_deadlock_detection(false);
    let (a, b) = (m.owner(), m.owner());
    lock(&m, &a, b"1", Exclusive).unwrap();
    lock(&m, &b, b"2", Exclusive).unwrap();
    let spawn = |l: TrxLocks, key: &'static [u8]| {
        let m = m.clone();
        thread::spawn(move || lock(&m, &l, key, Exclusive).map(drop))
    };
    let waiters = [spawn(a, b"2"), spawn(b, b"1")];
    until_waiting(&m, 2);
    // Both are in the graph, where a search would have chosen one.
    while m.status().waiting.len() < 2 {
        assert_eq!(m.stats().deadlocks, 0, "DEAD-5");
        thread::yield_now();
    }
    assert_eq!(m.stats().deadlocks, 0, "DEAD-5");
    m.set_deadlock_detection(true);
    let results = waiters.map(|waiter| waiter.join().unwrap());
    let lost = results.iter().filter(|r| matches!(r, Err(Error::Deadlock)));
    assert_eq!(lost.count(), 1, "DEAD-5: {results:?}");
    assert_all_free(&m);
}

/// Two readers of one row who both want to write it: a cycle within one queue.
#[test]
fn two_upgrades_of_one_row_are_a_deadlock() {
    let m = LockManager::new();
    for _ in 0..200 {
        let barrier = Barrier::new(2);
        let run = || {
            let l = m.owner();
            lock(&m, &l, b"row", Shared).unwrap();
            barrier.wait();
            lock(&m, &l, b"row", Exclusive)
        };
        let results = thread::scope(|scope| {
            let (a, b) = (scope.spawn(run), scope.spawn(run));
            [a.join().unwrap(), b.join().unwrap()]
        });
        let won = results.iter().filter(|r| r.is_ok()).count();
        let lost = results.iter().filter(|r| matches!(r, Err(Error::Deadlock)));
        assert_eq!((won, lost.count()), (1, 1), "{results:?}");
    }
    assert_all_free(&m);
}

/// The cycle leads through a waiter, not a holder: C waits behind B only because B came first.
#[test]
fn a_cycle_through_a_waiter_is_found() {
    let m = LockManager::new();
    let (a, b, c) = (m.owner(), m.owner(), m.owner());
    lock(&m, &a, b"1", Shared).unwrap();
    lock(&m, &c, b"2", Exclusive).unwrap();
    b.set_weight(10);
    a.set_weight(10);
    let spawn = |l: TrxLocks, key: &'static [u8], mode| {
        let m = m.clone();
        thread::spawn(move || lock(&m, &l, key, mode))
    };
    let b = spawn(b, b"1", Exclusive);
    until_waiting(&m, 1);
    let c = spawn(c, b"1", Shared);
    until_waiting(&m, 2);
    // A waits for C, C behind B, B for A.
    let a = spawn(a, b"2", Exclusive);
    assert!(matches!(c.join().unwrap(), Err(Error::Deadlock)));
    assert!(a.join().unwrap().is_ok());
    assert!(b.join().unwrap().is_ok());
    assert_all_free(&m);
}

#[test]
fn a_deadlock_between_a_row_and_a_table_is_found() {
    let m = LockManager::new();
    let (a, b) = (m.owner(), m.owner());
    a.set_weight(5);
    // The intent is only noted when B asks for the table.
    m.lock_table(&a, TABLE, TableMode::IntentionExclusive, PATIENT)
        .unwrap();
    lock(&m, &b, b"row", Exclusive).unwrap();
    let ddl = thread::spawn({
        let m = m.clone();
        move || {
            m.lock_table(&b, TABLE, TableMode::Exclusive, PATIENT)
                .map(|_| ())
        }
    });
    until_waiting(&m, 1);
    assert_eq!(lock(&m, &a, b"row", Exclusive).unwrap(), Acquired::New);
    assert!(matches!(ddl.join().unwrap(), Err(Error::Deadlock)));
    drop(a);
    assert_all_free(&m);
}

/// A transaction whose rollback failed must not let others change what it wrote.
#[test]
fn a_dropped_handle_with_an_id_keeps_its_locks() {
    let m = LockManager::new();
    let (reader, writer, other) = (m.owner(), m.owner(), m.owner());
    lock(&m, &reader, b"read", Exclusive).unwrap();
    m.set_trx(&writer, TrxId(5));
    lock(&m, &writer, b"written", Exclusive).unwrap();
    drop((reader, writer));
    assert!(try_lock(&m, &other, b"read", Shared).is_some());
    assert!(try_lock(&m, &other, b"written", Shared).is_none());
    assert!(m.convert_implicit(TrxId(5), INDEX, b"implicit"));
    assert!(try_lock(&m, &other, b"implicit", Shared).is_none());
}

/// QUEUE-1: the row that B wanted was gone when B asked for its lock, and A has inserted it again before B
/// looks at it.
#[test]
fn who_has_a_lock_waits_for_a_writer_that_has_it_too() {
    for mode in [Shared, Exclusive] {
        let m = LockManager::new();
        let (a, b) = (m.owner(), m.owner());
        m.set_trx(&a, TrxId(41));
        assert_eq!(lock(&m, &b, b"k", mode).unwrap(), Acquired::New);
        assert!(m.convert_implicit(TrxId(41), INDEX, b"k"));
        thread::scope(|s| {
            let m = &m;
            let b = s.spawn(move || {
                let got = lock(m, &b, b"k", mode);
                m.release_all(&b);
                got
            });
            until_waiting(m, 1);
            m.release_all(&a);
            assert_eq!(b.join().unwrap().unwrap(), Acquired::Upgraded);
        });
        assert_all_free(&m);
    }
    // And a deadlock that comes of it is found: A waits for B elsewhere.
    let m = LockManager::new();
    let (a, b) = (m.owner(), m.owner());
    m.set_trx(&a, TrxId(41));
    lock(&m, &b, b"k", Exclusive).unwrap();
    lock(&m, &b, b"other", Exclusive).unwrap();
    b.set_weight(1);
    thread::scope(|s| {
        let m = &m;
        let a = s.spawn(move || {
            let got = lock(m, &a, b"other", Exclusive);
            m.release_all(&a);
            got
        });
        until_waiting(m, 1);
        assert!(m.convert_implicit(TrxId(41), INDEX, b"k"));
        lock(m, &b, b"k", Exclusive).unwrap();
        assert!(matches!(a.join().unwrap(), Err(Error::Deadlock)));
    });
    m.release_all(&b);
    assert_all_free(&m);
}

/// OWNER-3: a lock given to a transaction that ends at the same moment is either released by it or refused.
#[test]
fn implicit_locks_are_converted_or_their_owner_has_ended() {
    let m = LockManager::new();
    let current = AtomicU64::new(0);
    let ended = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let converted = AtomicU64::new(0);
    thread::scope(|scope| {
        let writer = || {
            let l = m.owner();
            for id in 1..20_000 {
                m.set_trx(&l, TrxId(id));
                current.store(id, Ordering::SeqCst);
                if id % 3 == 0 {
                    thread::yield_now();
                }
                ended.store(id, Ordering::SeqCst);
                m.release_all(&l);
            }
            stop.store(true, Ordering::SeqCst);
        };
        let other = || {
            let l = m.owner();
            while !stop.load(Ordering::SeqCst) {
                let id = current.load(Ordering::SeqCst);
                if id == 0 {
                    continue;
                }
                if m.convert_implicit(TrxId(id), INDEX, b"row") {
                    converted.fetch_add(1, Ordering::Relaxed);
                    lock(&m, &l, b"row", Exclusive).unwrap();
                }
                assert!(
                    ended.load(Ordering::SeqCst) >= id,
                    "{id} still holds the row"
                );
                m.release_all(&l);
            }
        };
        scope.spawn(writer);
        scope.spawn(other);
        scope.spawn(other);
    });
    assert!(converted.load(Ordering::Relaxed) > 0);
    assert_all_free(&m);
}

/// What the rows' users believe: -1 a writer, n readers.
struct Row(AtomicI64);

impl Row {
    fn enter(&self, mode: Mode) {
        if mode == Exclusive {
            let before = self.0.swap(-1, Ordering::SeqCst);
            assert_eq!(before, 0, "LOCK-1: a writer met {before}");
        } else {
            let before = self.0.fetch_add(1, Ordering::SeqCst);
            assert!(before >= 0, "LOCK-1: a reader met a writer");
        }
    }

    fn leave(&self, mode: Mode) {
        if mode == Exclusive {
            self.0.store(0, Ordering::SeqCst);
        } else {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn upgrade(&self) {
        let before = self.0.swap(-1, Ordering::SeqCst);
        assert_eq!(before, 1, "LOCK-1: an upgrade met {before}");
    }
}

/// One transaction: a few locks in any order, some given up early. Returns false if it was a deadlock's
/// victim.
fn transact(m: &LockManager, l: &TrxLocks, rows: &[Row], rng: &mut SmallRng) -> bool {
    let mut held: Vec<(usize, Mode)> = Vec::new();
    let leave_all = |held: &[(usize, Mode)]| held.iter().for_each(|(r, m)| rows[*r].leave(*m));
    for _ in 0..rng.random_range(1..5) {
        let row = rng.random_range(0..rows.len());
        let mode = if rng.random_ratio(1, 2) {
            Shared
        } else {
            Exclusive
        };
        let timeout = if rng.random_ratio(1, 20) {
            Duration::from_micros(rng.random_range(0..300))
        } else {
            LONG
        };
        let wait = Wait::For {
            timeout,
            interrupt: &NO_KILL,
        };
        match m.lock_record(l, INDEX, &[row as u8; 30], mode, wait) {
            Ok(Acquired::New) => {
                rows[row].enter(mode);
                held.push((row, mode));
            }
            Ok(Acquired::Upgraded) => {
                rows[row].upgrade();
                held.iter_mut().find(|(r, _)| *r == row).unwrap().1 = Exclusive;
            }
            Ok(Acquired::Already) => {}
            Err(Error::LockWaitTimeout) if timeout < LONG => {}
            Err(Error::Deadlock) => {
                leave_all(&held);
                m.release_all(l);
                return false;
            }
            Err(e) => panic!("{e}"),
        }
        if rng.random_ratio(1, 4)
            && let Some((row, mode)) = held.pop()
        {
            rows[row].leave(mode);
            assert!(m.unlock_record(l, INDEX, &[row as u8; 30]));
        }
        if rng.random_ratio(1, 8) {
            thread::yield_now();
        }
    }
    leave_all(&held);
    m.release_all(l);
    true
}

/// LOCK-1 in the rows.
#[test]
fn locks_exclude_under_load() {
    let seed = std::env::var("VARVE_SEED")
        .map_or_else(|_| rand::random_range(0..1 << 40), |n| n.parse().unwrap());
    println!("seed {seed}");
    for (threads, n_rows) in [(2, 2), (4, 3), (8, 6), (8, 50)] {
        let m = LockManager::new();
        let rows: Vec<_> = (0..n_rows).map(|_| Row(AtomicI64::new(0))).collect();
        let victims = AtomicU64::new(0);
        thread::scope(|scope| {
            for n in 0..threads {
                let (m, rows, victims) = (&m, &rows, &victims);
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(seed + n);
                    let l = m.owner();
                    for _ in 0..4000 {
                        if !transact(m, &l, rows, &mut rng) {
                            victims.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(m.stats().deadlocks, victims.load(Ordering::Relaxed));
        assert_all_free(&m);
    }
}

/// LOCK-3: noted intents and strong table locks.
#[test]
fn intents_and_strong_table_locks_exclude_under_load() {
    let m = LockManager::new();
    let table = Row(AtomicI64::new(0));
    thread::scope(|scope| {
        for n in 0..6u64 {
            let (m, table) = (&m, &table);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(n);
                let l = m.owner();
                for _ in 0..5000 {
                    let ddl = rng.random_ratio(1, 40);
                    let mode = if ddl {
                        TableMode::Exclusive
                    } else {
                        TableMode::IntentionExclusive
                    };
                    let got = m.lock_table(&l, TABLE, mode, PATIENT).unwrap();
                    assert_eq!(got, Acquired::New);
                    let role = if ddl { Exclusive } else { Shared };
                    table.enter(role);
                    if rng.random_ratio(1, 10) {
                        thread::yield_now();
                    }
                    table.leave(role);
                    m.release_all(&l);
                }
            });
        }
    });
    assert_all_free(&m);
}
