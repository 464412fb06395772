//! What transactions and locks cost, without contention and with every processor taking part. Prints
//! nanoseconds; asserts nothing.
//!
//! `cargo bench -p varve --bench txn`

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use varve::Result;
use varve::internals::base::{IndexId, TableId, TrxId};
use varve::internals::lock::{LockManager, Mode, TableMode, Wait};
use varve::internals::txn::{IdLimitLog, TxnSys};

struct NoLog;

impl IdLimitLog for NoLog {
    fn raise(&self, _: u64) -> Result<()> {
        Ok(())
    }
}

const BATCHES: u64 = 50;
const BATCH: u64 = 100_000;

/// Runs `make()`'s closure on `n` threads; nanoseconds of one call in the fastest batch: what else runs on
/// the machine makes batches slower, never faster.
fn measure<F: FnMut(u64)>(what: &str, make: impl Fn(u64) -> F + Sync) {
    let all = thread::available_parallelism().map_or(1, |n| n.get());
    let mut line = format!("{what:44}");
    for n in [1, all] {
        let fastest = thread::scope(|scope| {
            let threads: Vec<_> = (0..n)
                .map(|t| {
                    let make = &make;
                    scope.spawn(move || fastest_batch(make(t as u64)))
                })
                .collect();
            let ns = threads.into_iter().map(|t| t.join().expect("no panic"));
            ns.min_by(f64::total_cmp).expect("a thread")
        });
        line += &format!("{fastest:7.1} ns on {n} thread(s)");
    }
    println!("{line}");
}

fn fastest_batch(mut f: impl FnMut(u64)) -> f64 {
    let batch = |b: u64| {
        let begun = Instant::now();
        (b * BATCH..(b + 1) * BATCH).for_each(&mut f);
        begun.elapsed().as_nanos() as f64 / BATCH as f64
    };
    (0..BATCHES).map(batch).fold(f64::MAX, f64::min)
}

fn main() {
    let sys = TxnSys::new(1, Box::new(NoLog));
    measure("assign an id, commit", |_| {
        |_| {
            let id = sys.assign_id().expect("no log");
            let no = sys.start_commit(id);
            sys.finish_commit(id, no);
        }
    });
    measure("open and close a view", |_| |_| drop(sys.open_view(None)));
    let view = sys.open_view(None);
    measure("sees, an old id", |_| {
        |i| {
            black_box(view.sees(TrxId(black_box(i))));
        }
    });
    let active: Vec<_> = (0..64).map(|_| sys.assign_id().expect("no log")).collect();
    let view = sys.open_view(None);
    measure("sees, an active id", |_| {
        |i| {
            black_box(view.sees(active[i as usize % 64]));
        }
    });

    let locks = LockManager::new();
    for (what, len) in [("8", 8), ("100", 100)] {
        measure(
            &format!("lock and unlock a record, key of {what} bytes"),
            |t| {
                let owner = locks.owner();
                let mut key = vec![t as u8; len];
                let locks = &locks;
                move |i| {
                    key[1..5].copy_from_slice(&(i as u32).to_be_bytes());
                    locks
                        .lock_record(&owner, IndexId(1), &key, Mode::Exclusive, Wait::No)
                        .expect("nobody else");
                    locks.release_all(&owner);
                }
            },
        );
    }
    measure("lock of 100,000 records, release together", |t| {
        let owner = locks.owner();
        let locks = &locks;
        move |i| {
            let key = (t << 32 | i).to_be_bytes();
            locks
                .lock_record(&owner, IndexId(1), &key, Mode::Exclusive, Wait::No)
                .expect("nobody else");
            if i % 100_000 == 99_999 {
                locks.release_all(&owner);
            }
        }
    });
    measure("intention lock of one table and release", |_| {
        let owner = locks.owner();
        let locks = &locks;
        move |_| {
            locks
                .lock_table(&owner, TableId(1), TableMode::IntentionExclusive, Wait::No)
                .expect("nobody else");
            locks.release_all(&owner);
        }
    });
}
