//! Gap locks, and their waits with threads; model.rs has random ones. A wait that should end and does not
//! runs into `LONG`.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::Mode::Exclusive;
use super::tests::{LONG, NO_KILL, PATIENT, until_waiting};
use super::{LockManager, LockTarget, TrxLocks, Wait};
use crate::base::{Error, IndexId, Result, TrxId};

const INDEX: IndexId = IndexId(7);
/// Shares its count with `INDEX`.
const NAMESAKE: IndexId = IndexId(7 + 1024);

fn gap(m: &LockManager, l: &TrxLocks, low: &str, high: &str) {
    m.lock_gap(l, INDEX, low.as_bytes(), Some(high.as_bytes()))
        .unwrap();
}

fn keeps_out(m: &LockManager, l: &TrxLocks, key: &str) -> bool {
    m.keeps_out(l, INDEX, key.as_bytes())
}

fn insert(m: &LockManager, l: &TrxLocks, key: &str, wait: Wait<'_>) -> Result<()> {
    m.wait_to_insert(l, INDEX, key.as_bytes(), wait)
}

fn assert_all_free(m: &LockManager) {
    let status = m.status();
    assert_eq!((status.gaps, status.locked), (0, 0));
    assert_eq!(m.stats().current_waits, 0);
    let l = m.owner();
    assert!(!m.keeps_out(&l, INDEX, b"c"));
}

#[test]
fn gaps_get_along_and_keep_others_out() {
    let m = LockManager::new();
    let (a, b, c) = (m.owner(), m.owner(), m.owner());
    assert!(!keeps_out(&m, &c, "c"));
    gap(&m, &a, "b", "e");
    gap(&m, &b, "d", "g");
    m.lock_gap(&b, INDEX, b"x", None).unwrap();
    for (key, for_a, for_b, for_c) in [
        ("a", false, false, false),
        ("b", false, true, true),
        ("d", true, true, true),
        ("e", true, false, true),
        ("g", false, false, false),
        ("z", true, false, true),
    ] {
        assert_eq!(keeps_out(&m, &a, key), for_a, "{key}");
        assert_eq!(keeps_out(&m, &b, key), for_b, "{key}");
        assert_eq!(keeps_out(&m, &c, key), for_c, "{key}");
    }
    assert!(!m.keeps_out(&c, NAMESAKE, b"d"));
    assert!(insert(&m, &c, "g", Wait::No).is_ok());
    assert!(matches!(
        insert(&m, &c, "d", Wait::No),
        Err(Error::LockWaitTimeout)
    ));
    m.release_all(&a);
    assert!(!keeps_out(&m, &c, "b") && keeps_out(&m, &c, "d"));
    drop(b);
    assert_all_free(&m);
}

/// GAP-6: bounds by the beginnings of keys keep nobody in who is kept out, and are narrow again when all gaps
/// are gone, those of a namesake too.
#[test]
fn bounds_are_around_all_gaps() {
    let m = LockManager::new();
    let (a, b, c) = (m.owner(), m.owner(), m.owner());
    // Alike in their first eight bytes, and shorter than that.
    gap(&m, &a, "12345678b", "12345678d");
    gap(&m, &b, "5", "5555");
    let is_near = |key: &str| m.inner.gaps.is_near(INDEX, key.as_bytes());
    for (key, near, out) in [
        ("12345677z", false, false),
        ("12345678", true, false),
        ("12345678b", true, true),
        ("12345678d", true, false),
        ("2", true, false),
        ("5", true, true),
        ("5554z", true, true),
        ("5555", true, false),
        ("5556", false, false),
    ] {
        assert_eq!(is_near(key), near, "GAP-6: {key}");
        assert_eq!(keeps_out(&m, &c, key), out, "{key}");
    }
    m.lock_gap(&c, NAMESAKE, b"8", None).unwrap();
    m.release_all(&a);
    assert!(keeps_out(&m, &c, "5"));
    m.release_all(&b);
    assert!(is_near("9"));
    m.release_all(&c);
    gap(&m, &a, "3", "4");
    let near = ["2", "3", "4", "9"].map(is_near);
    assert_eq!(near, [false, true, true, false], "GAP-6");
}

/// GAP-4.
#[test]
fn inserts_go_on_when_nobody_is_in_their_way() {
    let m = LockManager::new();
    let (a, b) = (m.owner(), m.owner());
    gap(&m, &a, "b", "e");
    gap(&m, &b, "d", "g");
    thread::scope(|scope| {
        let run = |key| {
            let m = &m;
            move || insert(m, &m.owner(), key, PATIENT).unwrap()
        };
        let in_a = scope.spawn(run("b"));
        let in_both = scope.spawn(run("d"));
        let in_b = scope.spawn(run("f"));
        until_waiting(&m, 3);
        // One that comes now over the key of a waiter makes it wait longer, and nobody else.
        let late = m.owner();
        gap(&m, &late, "f", "g");
        m.release_all(&a);
        in_a.join().unwrap();
        until_waiting(&m, 2);
        m.release_all(&b);
        in_both.join().unwrap();
        until_waiting(&m, 1);
        drop(late);
        in_b.join().unwrap();
    });
    assert_all_free(&m);
}

#[test]
fn a_wait_times_out_or_is_killed_and_leaves_nothing_behind() {
    let m = LockManager::new();
    let a = m.owner();
    gap(&m, &a, "b", "e");
    let b = m.owner();
    let short = Wait::For {
        timeout: Duration::from_millis(20),
        interrupt: &NO_KILL,
    };
    assert!(matches!(
        insert(&m, &b, "c", short),
        Err(Error::LockWaitTimeout)
    ));
    let killed = AtomicBool::new(false);
    thread::scope(|scope| {
        let (m, killed, b) = (&m, &killed, b);
        let waiter = scope.spawn(move || {
            let wait = Wait::For {
                timeout: LONG,
                interrupt: killed,
            };
            insert(m, &b, "c", wait)
        });
        until_waiting(m, 1);
        killed.store(true, Ordering::Release);
        m.wake_interrupted();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Interrupted)));
    });
    drop(a);
    assert_all_free(&m);
}

/// Both have locked the gap and want to insert into it. The one with less to undo gives way.
#[test]
fn two_that_insert_into_a_gap_they_share_are_a_deadlock() {
    let m = LockManager::new();
    for round in 0..100 {
        let barrier = Barrier::new(2);
        let run = |weight| {
            let (m, barrier) = (&m, &barrier);
            move || {
                let l = m.owner();
                l.set_weight(weight);
                gap(m, &l, "b", "e");
                barrier.wait();
                insert(m, &l, "c", PATIENT)
            }
        };
        let (light, heavy) = thread::scope(|scope| {
            let (light, heavy) = (scope.spawn(run(1)), scope.spawn(run(2)));
            (light.join().unwrap(), heavy.join().unwrap())
        });
        assert!(matches!(light, Err(Error::Deadlock)), "round {round}");
        assert!(heavy.is_ok(), "round {round}: {heavy:?}");
    }
    assert_eq!(m.stats().deadlocks, 100);
    assert_all_free(&m);
}

/// DEAD-1: the edge to B appears while A waits already; B's own wait completes the cycle.
#[test]
fn a_deadlock_between_a_gap_and_a_row_is_found() {
    let m = LockManager::new();
    let (a, b, first) = (m.owner(), m.owner(), m.owner());
    m.set_trx(&b, TrxId(42));
    b.set_weight(5);
    m.lock_record(&a, INDEX, b"row", Exclusive, PATIENT)
        .unwrap();
    gap(&m, &first, "b", "e");
    thread::scope(|scope| {
        let m = &m;
        let a = scope.spawn(move || insert(m, &a, "c", PATIENT));
        until_waiting(m, 1);
        gap(m, &b, "c", "d");
        m.release_all(&first);
        let waiting = loop {
            if let Some(waiting) = m.status().waiting.pop() {
                break waiting;
            }
        };
        let holders = waiting.holders.iter();
        assert_eq!(
            holders.map(|(owner, _)| owner.trx).collect::<Vec<_>>(),
            [Some(TrxId(42))]
        );
        assert_eq!(
            waiting.wants.to_string(),
            "insert intention, index 7, key 0x63"
        );
        assert!(matches!(waiting.wants.target, LockTarget::Insert { .. }));
        m.lock_record(&b, INDEX, b"row", Exclusive, PATIENT)
            .unwrap();
        assert!(matches!(a.join().unwrap(), Err(Error::Deadlock)));
        m.release_all(&b);
    });
    assert_all_free(&m);
}

/// GAP-1 and GAP-5: threads lock ranges and insert into them, as transactions do: a look, then a wait, then
/// another look. A range that one has locked does not change under it.
#[test]
fn nobody_gets_into_a_locked_gap() {
    use parking_lot::Mutex;
    let m = LockManager::new();
    // The index: its "leaf latch", and how often each key was inserted.
    let leaf = Mutex::new([0u32; 16]);
    let phantoms = |rng: &mut SmallRng| -> Result<()> {
        let l = m.owner();
        let low = rng.random_range(0..12u8);
        let high = low + rng.random_range(1..4);
        let count = |leaf: &[u32; 16]| -> u32 { leaf[low as usize..high as usize].iter().sum() };
        let before = {
            let leaf = leaf.lock();
            m.lock_gap(&l, INDEX, &[low], Some(&[high])).unwrap();
            count(&leaf)
        };
        let mut own = 0;
        for _ in 0..3 {
            let key = rng.random_range(0..16u8);
            loop {
                let mut leaf = leaf.lock();
                if !m.keeps_out(&l, INDEX, &[key]) {
                    leaf[key as usize] += 1;
                    own += u32::from((low..high).contains(&key));
                    break;
                }
                drop(leaf);
                m.wait_to_insert(&l, INDEX, &[key], PATIENT)?;
            }
            thread::yield_now();
        }
        assert_eq!(count(&leaf.lock()), before + own, "a phantom");
        Ok(())
    };
    thread::scope(|scope| {
        for seed in 0..4 {
            let phantoms = &phantoms;
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed);
                for _ in 0..500 {
                    match phantoms(&mut rng) {
                        Ok(()) | Err(Error::Deadlock) => {}
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
    });
    assert_all_free(&m);
}

/// Gap locks and record locks have one memory limit together; what one kind gives back is room for the other.
#[test]
fn gaps_share_the_memory_of_locks() {
    const LIMIT: usize = 1 << 20;
    let m = LockManager::new();
    m.set_memory_limit(LIMIT as u64);
    let (a, b) = (m.owner(), m.owner());
    let index = |n: u32| IndexId(u64::from(n % 7));
    let gap = |n: u32| {
        let low = (2 * n).to_be_bytes();
        m.lock_gap(&a, index(n), &low, Some(&(2 * n + 1).to_be_bytes()))
    };
    let record = |n: u32| {
        m.lock_record(
            &b,
            index(n),
            &n.to_be_bytes(),
            super::Mode::Shared,
            Wait::No,
        )
    };
    // Half of it for records, the rest for gaps. A shard may be full while others are not.
    let records = (0..20_000).take_while(|_| m.memory_bytes() < LIMIT / 2);
    let records = records.filter(|n| record(*n).is_ok()).count();
    assert!(records > 4000, "{records}");
    let gaps = (0..20_000).take_while(|n| gap(*n).is_ok()).count();
    assert!((4000..6000).contains(&gaps), "{gaps}");
    assert!(
        m.memory_bytes() <= LIMIT + (64 << 10),
        "{}",
        m.memory_bytes()
    );
    let more = (50_000..51_000).filter(|n| record(*n).is_ok()).count();
    assert!(more < 800, "{more}");
    // An interval that grows over others leaves less of them.
    for n in 0..7 {
        m.lock_gap(&a, index(n), &[], None).unwrap();
    }
    assert!(m.memory_bytes() < LIMIT * 6 / 10);
    m.release_all(&b);
    // Locks are spread over the shards at random: not as many as would just fit.
    assert!((60_000..62_000).all(|n| record(n).is_ok()));
    m.release_all(&a);
    m.release_all(&b);
    assert_eq!(m.memory_bytes(), 0);
}
