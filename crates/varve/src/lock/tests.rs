use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::base::{Error, IndexId, Result, TableId};

const INDEX: IndexId = IndexId(7);
static NEVER: AtomicBool = AtomicBool::new(false);

fn secs(s: u64) -> Wait<'static> {
    Wait::For {
        timeout: Duration::from_secs(s),
        interrupt: &NEVER,
    }
}

fn until_waiting(locks: &LockManager, n: u64) {
    while locks.stats().current_waits < n {
        std::thread::yield_now();
    }
}

#[test]
fn modes_fit_together_as_in_the_textbook() {
    use TableMode::*;
    let rows = [
        (IntentionShared, [true, true, true, false]),
        (IntentionExclusive, [true, true, false, false]),
        (Shared, [true, false, true, false]),
        (Exclusive, [false; 4]),
    ];
    for (a, compatible) in rows {
        for (b, expected) in TableMode::ALL.into_iter().zip(compatible) {
            assert_eq!(a.is_compatible(b), expected, "{a:?} {b:?}");
            assert_eq!(b.is_compatible(a), expected, "{b:?} {a:?}");
        }
    }
    assert!(Exclusive.covers(IntentionShared) && Shared.covers(IntentionShared));
    assert!(!IntentionExclusive.covers(Shared) && !Shared.covers(IntentionExclusive));
}

#[test]
fn a_row_lock_excludes_and_leaves_nothing_behind() {
    let locks = LockManager::new();
    let (a, b) = (locks.owner(), locks.owner());
    for (first, second, granted) in [
        (Mode::Shared, Mode::Shared, true),
        (Mode::Shared, Mode::Exclusive, false),
        (Mode::Exclusive, Mode::Shared, false),
        (Mode::Exclusive, Mode::Exclusive, false),
    ] {
        let (a, b) = (locks.owner(), locks.owner());
        assert!(locks.try_lock_record(&a, INDEX, b"k", first).unwrap());
        assert!(
            locks.try_lock_record(&a, INDEX, b"k", first).unwrap(),
            "asking again"
        );
        assert_eq!(locks.conflicts(&b, INDEX, b"k", second), !granted);
        assert_eq!(
            locks.try_lock_record(&b, INDEX, b"k", second).unwrap(),
            granted
        );
        locks.release_all(&a);
        locks.release_all(&b);
        assert_eq!(locks.queue_count(), 0);
    }
    // Another key, another index and a table of the same number are different things.
    locks
        .lock_record(&a, INDEX, b"k", Mode::Exclusive, secs(0))
        .unwrap();
    assert!(
        locks
            .try_lock_record(&b, INDEX, b"l", Mode::Exclusive)
            .unwrap()
    );
    assert!(
        locks
            .try_lock_record(&b, IndexId(8), b"k", Mode::Exclusive)
            .unwrap()
    );
    locks
        .lock_table(&b, TableId(7), TableMode::Exclusive, secs(0))
        .unwrap();
    locks.unlock_record(&a, INDEX, b"k");
    assert!(
        locks
            .try_lock_record(&b, INDEX, b"k", Mode::Exclusive)
            .unwrap()
    );
    locks.release_all(&a);
    locks.release_all(&b);
    assert_eq!(locks.queue_count(), 0);
}

#[test]
fn a_wait_times_out_and_an_interrupt_ends_it() {
    let locks = LockManager::new();
    let (a, b) = (locks.owner(), locks.owner());
    locks
        .lock_record(&a, INDEX, b"k", Mode::Exclusive, secs(0))
        .unwrap();
    let timeout = Wait::For {
        timeout: Duration::from_millis(5),
        interrupt: &NEVER,
    };
    let got = locks.lock_record(&b, INDEX, b"k", Mode::Shared, timeout);
    assert!(matches!(got, Err(Error::LockWaitTimeout)), "{got:?}");
    let flag = AtomicBool::new(false);
    std::thread::scope(|s| {
        let waiter = s.spawn(|| {
            let wait = Wait::For {
                timeout: Duration::from_secs(60),
                interrupt: &flag,
            };
            locks.lock_record(&b, INDEX, b"k", Mode::Shared, wait)
        });
        until_waiting(&locks, 1);
        flag.store(true, Ordering::Release);
        locks.wake_interrupted();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Interrupted)));
    });
    locks.release_all(&a);
    assert_eq!(locks.queue_count(), 0, "the requests that gave up are gone");
}

#[test]
fn waiters_are_granted_in_their_order() {
    let locks = LockManager::new();
    let holder = locks.owner();
    locks
        .lock_record(&holder, INDEX, b"k", Mode::Exclusive, secs(0))
        .unwrap();
    let order = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for n in 0..8u64 {
            let (locks, order) = (&locks, &order);
            s.spawn(move || {
                let me = locks.owner();
                locks
                    .lock_record(&me, INDEX, b"k", Mode::Exclusive, secs(60))
                    .unwrap();
                order.lock().push(n);
                locks.release_all(&me);
            });
            until_waiting(locks, n + 1);
        }
        locks.release_all(&holder);
    });
    assert_eq!(*order.lock(), (0..8).collect::<Vec<_>>());
}

#[test]
fn an_upgrade_goes_before_waiters_but_not_before_holders() {
    let locks = LockManager::new();
    let (a, b, c) = (locks.owner(), locks.owner(), locks.owner());
    locks
        .lock_record(&a, INDEX, b"k", Mode::Shared, secs(0))
        .unwrap();
    locks
        .lock_record(&b, INDEX, b"k", Mode::Shared, secs(0))
        .unwrap();
    std::thread::scope(|s| {
        let third = s.spawn(|| {
            locks
                .lock_record(&c, INDEX, b"k", Mode::Exclusive, secs(60))
                .unwrap();
            let queue_of_a = locks.conflicts(&c, INDEX, b"k", Mode::Exclusive);
            locks.release_all(&c);
            queue_of_a
        });
        until_waiting(&locks, 1);
        let upgrade = s.spawn(|| locks.lock_record(&a, INDEX, b"k", Mode::Exclusive, secs(60)));
        until_waiting(&locks, 2);
        locks.release_all(&b);
        upgrade.join().unwrap().unwrap();
        assert!(
            !locks
                .try_lock_record(&b, INDEX, b"k", Mode::Shared)
                .unwrap()
        );
        locks.release_all(&a);
        assert!(!third.join().unwrap());
    });
}

#[test]
fn two_upgrades_are_a_deadlock() {
    let locks = LockManager::new();
    let (a, b) = (locks.owner(), locks.owner());
    a.set_weight(10);
    b.set_weight(5);
    locks
        .lock_record(&a, INDEX, b"k", Mode::Shared, secs(0))
        .unwrap();
    locks
        .lock_record(&b, INDEX, b"k", Mode::Shared, secs(0))
        .unwrap();
    std::thread::scope(|s| {
        let lighter = s.spawn(|| {
            let got = locks.lock_record(&b, INDEX, b"k", Mode::Exclusive, secs(60));
            locks.release_all(&b);
            got
        });
        until_waiting(&locks, 1);
        locks
            .lock_record(&a, INDEX, b"k", Mode::Exclusive, secs(60))
            .unwrap();
        assert!(
            matches!(lighter.join().unwrap(), Err(Error::Deadlock)),
            "the lighter one is the victim"
        );
    });
}

fn run_cycle(members: usize) -> Vec<Result<()>> {
    let locks = LockManager::new();
    let barrier = Barrier::new(members);
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..members)
            .map(|n| {
                let (locks, barrier) = (&locks, &barrier);
                s.spawn(move || {
                    let me = locks.owner();
                    let key = |n: usize| [(n % members) as u8];
                    locks
                        .lock_record(&me, INDEX, &key(n), Mode::Exclusive, secs(60))
                        .unwrap();
                    barrier.wait();
                    let got = locks.lock_record(&me, INDEX, &key(n + 1), Mode::Exclusive, secs(60));
                    locks.release_all(&me);
                    got
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn every_cycle_loses_exactly_one_member() {
    for members in 2..=5 {
        for _ in 0..200 {
            let results = run_cycle(members);
            let lost = results
                .iter()
                .filter(|r| matches!(r, Err(Error::Deadlock)))
                .count();
            assert_eq!(lost, 1, "{results:?}");
        }
    }
}

/// Threads lock random rows in random order, wait as long as it takes, and give up only as deadlock victims: a missed
/// deadlock or a lost wake-up shows as a timeout, a wrong grant as a broken count.
#[test]
fn random_locking_excludes_and_always_ends() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let locks = LockManager::new();
    const KEYS: usize = 6;
    let readers: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let writers: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|s| {
        for t in 0..6 {
            let (locks, readers, writers) = (&locks, &readers, &writers);
            s.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed ^ t);
                for _ in 0..3000 {
                    one_transaction(locks, &mut rng, readers, writers);
                }
            });
        }
    });
    assert_eq!(locks.queue_count(), 0);
    assert_eq!(locks.stats().timeouts, 0, "seed {seed}");
}

fn one_transaction(
    locks: &LockManager,
    rng: &mut StdRng,
    readers: &[AtomicU64],
    writers: &[AtomicU64],
) {
    let me = locks.owner();
    let mut held: HashMap<usize, Mode> = HashMap::new();
    for _ in 0..rng.random_range(1..4) {
        let key = rng.random_range(0..readers.len());
        let mode = if rng.random() {
            Mode::Shared
        } else {
            Mode::Exclusive
        };
        match locks.lock_record(&me, INDEX, &[key as u8], mode, secs(30)) {
            Ok(()) => {}
            Err(Error::Deadlock) => break,
            Err(e) => panic!("{e}"),
        }
        match (held.get(&key), mode) {
            (None, Mode::Shared) => {
                assert_eq!(writers[key].load(Ordering::SeqCst), 0);
                readers[key].fetch_add(1, Ordering::SeqCst);
                held.insert(key, mode);
            }
            (None | Some(Mode::Shared), Mode::Exclusive) => {
                let own = u64::from(held.contains_key(&key));
                assert_eq!(readers[key].load(Ordering::SeqCst), own);
                readers[key].fetch_sub(own, Ordering::SeqCst);
                assert_eq!(writers[key].fetch_add(1, Ordering::SeqCst), 0);
                held.insert(key, mode);
            }
            _ => {}
        }
    }
    for (key, mode) in held {
        let counts = if mode == Mode::Shared {
            readers
        } else {
            writers
        };
        counts[key].fetch_sub(1, Ordering::SeqCst);
    }
    locks.release_all(&me);
}

#[test]
fn many_intention_locks_and_one_exclusive_one() {
    let locks = Arc::new(LockManager::new());
    let table = TableId(3);
    let writers: Vec<_> = (0..50).map(|_| locks.owner()).collect();
    for w in &writers {
        locks
            .lock_table(w, table, TableMode::IntentionExclusive, secs(0))
            .unwrap();
    }
    let ddl = locks.owner();
    let now = Wait::For {
        timeout: Duration::ZERO,
        interrupt: &NEVER,
    };
    assert!(
        locks
            .lock_table(&ddl, table, TableMode::Exclusive, now)
            .is_err()
    );
    writers.iter().for_each(|w| locks.release_all(w));
    locks
        .lock_table(&ddl, table, TableMode::Exclusive, secs(0))
        .unwrap();
    assert!(
        locks
            .lock_table(&writers[0], table, TableMode::IntentionShared, now)
            .is_err()
    );
    locks.release_all(&ddl);
    assert_eq!(locks.queue_count(), 0);
}

/// Not a test of anything: `cargo test --release -- --ignored --nocapture lock_cost`.
#[test]
#[ignore = "a measurement"]
fn lock_cost() {
    let locks = LockManager::new();
    let (n, started) = (1_000_000u64, std::time::Instant::now());
    for i in 0..n {
        let me = locks.owner();
        locks
            .try_lock_record(&me, INDEX, &i.to_be_bytes(), Mode::Exclusive)
            .unwrap();
        locks.release_all(&me);
    }
    println!(
        "owner + lock + release: {} ns",
        started.elapsed().as_nanos() as u64 / n
    );
}
