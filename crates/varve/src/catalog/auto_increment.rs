//! The counter that AUTO_INCREMENT values are drawn from, in memory (what the file has: `space/counter.rs`).
//!
//! It is one word. Drawing is one compare-and-swap, and writes nothing else that is shared. While somebody
//! holds or awaits the AUTO-INC lock (AUTOINC-1, `txn/auto_inc.rs`) the word says only that, and the counter
//! is under the mutex.
//!
//! - **DRAW-1** The word is [`LOCKED`], which no counter is, from the first announcement of a locker to the
//!   last withdrawal. The announcement takes the counter out of it in one step: each draw without the lock
//!   comes before that step, and counts, or finds the word locked.
//! - **DRAW-2** The counter never falls but by `set`: whoever goes by the mutex looks at the word under it.
//!
//! Relaxed: the word stands for itself, and only uniqueness counts. The rows that use the values are ordered
//! by their own latches.

use crossbeam_utils::CachePadded;

use crate::base::sync::{AtomicU64, Mutex, Ordering::Relaxed};
use crate::row::ColumnType;

const LOCKED: u64 = 0;

/// The next value; from 1 on.
pub(super) struct AutoIncrement {
    /// Alone in its cache line: every insert writes it.
    next: CachePadded<AtomicU64>,
    locked: Mutex<Locked>,
}

#[derive(Default)]
struct Locked {
    /// Statements that hold or await the lock.
    lockers: u32,
    /// The counter, as long as there are any.
    next: u64,
}

impl Default for AutoIncrement {
    fn default() -> AutoIncrement {
        AutoIncrement {
            next: CachePadded::new(AtomicU64::new(1)),
            locked: Mutex::new(Locked::default()),
        }
    }
}

impl AutoIncrement {
    pub fn get(&self) -> u64 {
        match self.next.load(Relaxed) {
            LOCKED => self.change(|next| next),
            next => next,
        }
    }

    /// Takes `n` consecutive values; returns the first. At its end the counter stays at `u64::MAX`, which is
    /// returned to everybody who comes then.
    pub fn draw(&self, n: u64) -> u64 {
        let unlocked = self.draw_unlocked(n);
        unlocked.unwrap_or_else(|| self.change(|next| next.saturating_add(n)))
    }

    /// As above, unless a statement holds or awaits the AUTO-INC lock.
    pub fn draw_unlocked(&self, n: u64) -> Option<u64> {
        self.change_unlocked(|next| next.saturating_add(n))
    }

    /// Makes the counter at least `next`.
    pub fn raise(&self, next: u64) {
        if self.change_unlocked(|now| now.max(next)).is_none() {
            self.change(|now| now.max(next));
        }
    }

    pub fn set(&self, next: u64) {
        self.change(|_| next.max(1));
    }

    /// A statement is about to ask for the AUTO-INC lock. When this returns, nobody draws without it.
    pub fn announce_lock(&self) {
        let mut locked = self.locked.lock();
        if locked.lockers == 0 {
            locked.next = self.next.swap(LOCKED, Relaxed);
        }
        locked.lockers += 1;
    }

    /// It has given the lock up, or not got it.
    pub fn withdraw_lock(&self) {
        let mut locked = self.locked.lock();
        assert!(
            locked.lockers > 0,
            "AUTOINC-1: more were withdrawn than announced"
        );
        locked.lockers -= 1;
        if locked.lockers == 0 {
            self.next.store(locked.next, Relaxed);
        }
    }

    /// Returns what the counter was; `None`: somebody holds or awaits the lock.
    fn change_unlocked(&self, to: impl Fn(u64) -> u64) -> Option<u64> {
        let mut now = self.next.load(Relaxed);
        while now != LOCKED {
            let then = to(now);
            if then == now {
                return Some(now);
            }
            match self.next.compare_exchange(now, then, Relaxed, Relaxed) {
                Ok(before) => return Some(before),
                Err(other) => now = other,
            }
        }
        None
    }

    /// The same whether or not somebody does (DRAW-2).
    fn change(&self, to: impl Fn(u64) -> u64) -> u64 {
        let mut locked = self.locked.lock();
        if locked.lockers > 0 {
            let before = locked.next;
            locked.next = to(before);
            return before;
        }
        let before = self.change_unlocked(to);
        before.expect("DRAW-1: nobody announces the lock while the mutex is held")
    }
}

/// The value of an AUTO_INCREMENT column, if it is above zero. A floating-point one counts as the integer
/// next to it, as far as its type has all integers.
pub(super) fn positive_integer(ty: ColumnType, datum: &[u8]) -> Option<u64> {
    let value = match ty {
        ColumnType::Int { bytes, signed } => {
            let mut wide = [0; 8];
            wide[..bytes as usize].copy_from_slice(datum.get(..bytes as usize)?);
            let value = u64::from_le_bytes(wide);
            let negative = signed && value >> (8 * u32::from(bytes) - 1) & 1 == 1;
            if negative { 0 } else { value }
        }
        ColumnType::Float => {
            let value = f32::from_le_bytes(datum.try_into().ok()?);
            exact_integer(value.into(), f32::MANTISSA_DIGITS)
        }
        ColumnType::Double => {
            let value = f64::from_le_bytes(datum.try_into().ok()?);
            exact_integer(value, f64::MANTISSA_DIGITS)
        }
        _ => 0,
    };
    (value > 0).then_some(value)
}

/// The integer next to a number; 0 if that has more than so many bits, or is below zero.
fn exact_integer(value: f64, bits: u32) -> u64 {
    let value = value.round_ties_even() as u64;
    if value <= 1 << bits { value } else { 0 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_counter_goes_on_through_a_lock() {
        let counter = AutoIncrement::default();
        assert_eq!((counter.draw(2), counter.draw_unlocked(1)), (1, Some(3)));
        counter.announce_lock();
        counter.announce_lock();
        assert_eq!(counter.draw_unlocked(1), None, "DRAW-1");
        assert_eq!((counter.get(), counter.draw(3)), (4, 4));
        counter.raise(9);
        counter.raise(2);
        counter.withdraw_lock();
        assert_eq!((counter.draw_unlocked(1), counter.get()), (None, 9));
        counter.withdraw_lock();
        assert_eq!(
            (counter.draw_unlocked(0), counter.get()),
            (Some(9), 9),
            "DRAW-2"
        );
        counter.set(4);
        assert_eq!(counter.draw(1), 4);
        counter.raise(u64::MAX - 1);
        let last = [1, 5, 1].map(|n| counter.draw(n));
        assert_eq!(last, [u64::MAX - 1, u64::MAX, u64::MAX]);
    }

    /// Threads that lock, draw and raise: no value twice.
    #[test]
    fn no_value_is_drawn_twice() {
        let counter = AutoIncrement::default();
        let drawn = std::thread::scope(|s| {
            let one = |n: u64| {
                let counter = &counter;
                move || {
                    let mut drawn = Vec::new();
                    for round in 0..3000 {
                        if (round + n).is_multiple_of(7) {
                            counter.announce_lock();
                            drawn.push(counter.draw(1));
                            counter.withdraw_lock();
                        } else if let Some(value) = counter.draw_unlocked(1) {
                            drawn.push(value);
                        }
                        counter.raise(round);
                    }
                    drawn
                }
            };
            let threads = Vec::from_iter((0..4).map(|n| s.spawn(one(n))));
            let drawn = threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap());
            Vec::from_iter(drawn)
        });
        let mut each = drawn.clone();
        each.sort_unstable();
        each.dedup();
        assert_eq!(each.len(), drawn.len());
        assert!(each.last().is_some_and(|last| *last < counter.get()));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::base::model;

    /// AUTOINC-1: who announced the lock draws consecutive values. DRAW-2: none is drawn twice.
    #[test]
    fn loom_nobody_draws_between_a_lockers_values() {
        model::check(3, || {
            let counter = Arc::new(AutoIncrement::default());
            let locker = {
                let counter = counter.clone();
                thread::spawn(move || {
                    counter.announce_lock();
                    let first = counter.draw(1);
                    assert_eq!(counter.draw(1), first + 1, "AUTOINC-1");
                    counter.withdraw_lock();
                    first
                })
            };
            let other = {
                let counter = counter.clone();
                thread::spawn(move || counter.draw_unlocked(1))
            };
            let own = counter.draw_unlocked(1);
            let first = locker.join().unwrap();
            let all = [own, other.join().unwrap(), Some(first), Some(first + 1)];
            let mut drawn = Vec::from_iter(all.into_iter().flatten());
            drawn.sort_unstable();
            let expected = Vec::from_iter(1..=drawn.len() as u64);
            assert_eq!(drawn, expected, "DRAW-2");
        });
    }
}
