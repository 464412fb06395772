//! The ring: the states of the newest ids, one word each, in an array indexed by the id's low bits.
//!
//! A word holds the id's upper bits (its *lap*), a state, and for the states with a number the distance of
//! that number from the id. So a word says exactly whose state it holds, and one compare-and-swap changes it.
//!
//! Invariants:
//! - **RING-1** The word of an id is written for the first time by the thread that drew the id, and only
//!   after the id's segment was retired (`TxnSys::retire`): nothing that anybody still needs is overwritten.
//! - **RING-2** A word of lap L is never changed back to an older lap.
//! - **RING-3** A number is less than two ring lengths above its id while the id is in the ring: the counter
//!   outruns the usable end by at most one id per thread, and a ring has more words than the machine has
//!   threads.
//!
//! Orderings: a word is stored with at least Release and loaded with at least Acquire, so a thread that reads
//! a state sees what its writer did before. SeqCst is used where sys.rs says so. No latch is held, nothing
//! here can fail.

use crate::base::TrxNo;
use crate::base::sync::{AtomicU64, Ordering};

/// The state of a transaction's id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdState {
    /// It may write; nobody else sees its changes.
    Active,
    /// As `Active`, but its coordinator has been promised that a commit can't fail (XA).
    Prepared,
    /// It is drawing its number, which will be at least `floor`.
    Committing { floor: u64 },
    /// Committed with this number.
    Committed { no: TrxNo },
    /// Rolled back completely when the counter stood at `at`.
    Aborted { at: u64 },
}

impl IdState {
    /// The id's owner has not committed or rolled back completely: what it wrote is implicitly locked by it.
    pub fn is_unfinished(self) -> bool {
        matches!(
            self,
            IdState::Active | IdState::Prepared | IdState::Committing { .. }
        )
    }

    /// A code and the number that goes with it.
    pub(super) fn to_parts(self) -> (u64, u64) {
        match self {
            IdState::Active => (ACTIVE, 0),
            IdState::Prepared => (PREPARED, 0),
            IdState::Committing { floor } => (COMMITTING, floor),
            IdState::Committed { no } => (COMMITTED, no.0),
            IdState::Aborted { at } => (ABORTED, at),
        }
    }

    pub(super) fn from_parts(code: u64, number: u64) -> IdState {
        match code {
            ACTIVE => IdState::Active,
            PREPARED => IdState::Prepared,
            COMMITTING => IdState::Committing { floor: number },
            COMMITTED => IdState::Committed { no: TrxNo(number) },
            ABORTED => IdState::Aborted { at: number },
            _ => unreachable!("transaction state code {code}"),
        }
    }
}

const EMPTY: u64 = 0;
const ACTIVE: u64 = 1;
const PREPARED: u64 = 2;
const COMMITTING: u64 = 3;
const COMMITTED: u64 = 4;
const ABORTED: u64 = 5;
const NUMBER: u64 = 6;
const MOVED: u64 = 7;

const CODE_BITS: u32 = 3;

/// What the ring knows about an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// Drawn, or not even that, but not marked yet.
    Unmarked,
    State(IdState),
    /// The id is a `TrxNo`: no transaction writes under it.
    Number,
    /// The state is in the straggler map (or the id is settled and gone from there too).
    Moved,
}

/// A word as it was read, to be given back to `change`.
#[derive(Clone, Copy)]
pub(super) struct Raw(u64);

pub(super) struct Ring {
    words: Box<[AtomicU64]>,
    bits: u32,
}

impl Ring {
    pub fn new(bits: u32) -> Ring {
        assert!((3..=24).contains(&bits), "ring of 2^{bits} words");
        Ring {
            words: (0..1u64 << bits).map(|_| AtomicU64::new(EMPTY)).collect(),
            bits,
        }
    }

    pub fn len(&self) -> u64 {
        self.words.len() as u64
    }

    /// Eight neighbouring ids lie in eight different cache lines: they are drawn by different threads at the
    /// same time.
    fn word(&self, id: u64) -> &AtomicU64 {
        let pos = id & (self.len() - 1);
        let spread = (pos & 7) << (self.bits - 3) | pos >> 3;
        &self.words[spread as usize]
    }

    fn encode(&self, id: u64, code: u64, number: u64) -> u64 {
        let distance = if number == 0 {
            0
        } else {
            assert!(number > id, "number {number} of id {id} is too small");
            number - id
        };
        assert!(
            distance < 2 * self.len(),
            "RING-3: number {number} is too far from id {id}"
        );
        let distance_bits = self.bits + 1;
        (id >> self.bits) << (CODE_BITS + distance_bits) | distance << CODE_BITS | code
    }

    pub fn get(&self, id: u64) -> Word {
        self.read(id).1
    }

    pub fn read(&self, id: u64) -> (Raw, Word) {
        let raw = self.word(id).load(Ordering::SeqCst);
        let distance_bits = self.bits + 1;
        let code = raw & ((1 << CODE_BITS) - 1);
        let lap = raw >> (CODE_BITS + distance_bits);
        let wanted = id >> self.bits;
        let word = if code == EMPTY || lap < wanted {
            Word::Unmarked
        } else if lap > wanted {
            Word::Moved
        } else {
            match code {
                NUMBER => Word::Number,
                MOVED => Word::Moved,
                _ => {
                    let distance = raw >> CODE_BITS & ((1 << distance_bits) - 1);
                    Word::State(IdState::from_parts(code, id + distance))
                }
            }
        };
        (Raw(raw), word)
    }

    /// First mark of an id that became a transaction's (RING-1).
    pub fn mark_active(&self, id: u64) {
        self.mark(id, ACTIVE);
    }

    /// First mark of an id that became a `TrxNo` (RING-1).
    pub fn mark_number(&self, id: u64) {
        self.mark(id, NUMBER);
    }

    fn mark(&self, id: u64, code: u64) {
        debug_assert_eq!(self.get(id), Word::Unmarked, "RING-2: id {id}");
        self.word(id)
            .store(self.encode(id, code, 0), Ordering::Release);
    }

    /// Replaces `from`, the word of `id` as it was read; false if it has changed since.
    pub fn change(&self, id: u64, from: Raw, to: IdState) -> bool {
        let (code, number) = to.to_parts();
        self.swap(id, from, self.encode(id, code, number))
    }

    /// From here on the state is in the straggler map.
    pub fn change_to_moved(&self, id: u64, from: Raw) -> bool {
        self.swap(id, from, self.encode(id, MOVED, 0))
    }

    fn swap(&self, id: u64, from: Raw, to: u64) -> bool {
        self.word(id)
            .compare_exchange(from.0, to, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// RING-2: a word is not changed by who read it before another did.
    #[test]
    fn a_word_keeps_its_state_and_says_whose_it_is() {
        for bits in [3, 6, 20] {
            let ring = Ring::new(bits);
            let len = ring.len();
            for id in [1, 7, len - 1, len, len + 3, 5 * len + 2, (1 << 55) + 11] {
                for state in [
                    IdState::Active,
                    IdState::Prepared,
                    IdState::Committing { floor: id + 1 },
                    IdState::Committed {
                        no: TrxNo(id + len),
                    },
                    IdState::Aborted {
                        at: id + 2 * len - 1,
                    },
                ] {
                    let (raw, _) = ring.read(id);
                    assert!(ring.change(id, raw, state));
                    assert_eq!(ring.get(id), Word::State(state), "bits {bits} id {id}");
                    assert_eq!(ring.get(id + len), Word::Unmarked);
                    if id >= len {
                        assert_eq!(ring.get(id - len), Word::Moved);
                    }
                    assert!(
                        !ring.change(id, raw, IdState::Active),
                        "stale word replaced"
                    );
                }
            }
        }
    }

    #[test]
    fn every_id_of_a_lap_has_its_own_word() {
        let ring = Ring::new(6);
        for id in 64..128 {
            ring.mark_active(id);
        }
        for id in 64..128 {
            assert_eq!(ring.get(id), Word::State(IdState::Active));
        }
    }

    #[test]
    #[should_panic(expected = "RING-3")]
    fn a_number_out_of_reach_is_refused() {
        let ring = Ring::new(3);
        ring.mark_active(9);
        let (raw, _) = ring.read(9);
        ring.change(9, raw, IdState::Committed { no: TrxNo(9 + 16) });
    }
}
