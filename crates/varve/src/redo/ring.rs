//! The log buffer: a ring of words into which mini-transactions copy their redo in parallel, without a mutex.
//!
//! # Protocol
//!
//! An LSN is a position in the stream; LSN `p` lives in word `(p / 8) % words` of the ring. Four positions
//! grow:
//!
//! ```text
//!   freed  <=  complete  <=  next            next <= freed + size, once the appender has waited for room
//!   |          |             |
//!   |          |             +-- handed out to appenders by fetch_add
//!   |          +---------------- every frame below is copied completely
//!   +--------------------------- taken out by the writer; the ring's words below are zero again
//! ```
//!
//! 1. *take*: `start = next.fetch_add(len)`. Relaxed is enough: positions only have to be distinct, and two
//!    takes ordered by anything else (a lock, a transaction state) get ascending positions by coherence of
//!    one atomic.
//! 2. *wait for room* until `start + len <= freed + size` (Acquire). This waits on the writer only, never on
//!    a latch.
//! 3. *copy* the body with Relaxed stores. Words of `[start, start + len)` belong to this appender alone.
//! 4. *mark*: the frame's header word, which is never zero, is stored last with Release. One store makes the
//!    whole frame complete; there is no other place to keep in step.
//! 5. *advance*, by anybody: from `complete`, follow header words (Acquire) while they are not zero, then
//!    compare-and-swap `complete` from where the walk began to where it ended. The walk looks at position `q`
//!    only while `q < freed + size` (Acquire): there the word of the previous lap (`q - size < freed`) has
//!    been zeroed and this is visible; beyond it the word still is an older frame's. If others advanced,
//!    wrote and reused the words meanwhile, the walk may have seen anything, but then `complete` has moved
//!    and the swap fails. A reader that gets `complete` with Acquire has therefore everything that appenders
//!    did before they marked: also the pages' `first_change` that the checkpoint looks for.
//! 6. *drain*, by one thread at a time (the caller holds the writer's mutex): copies out words below
//!    `complete`, zeroes **every** one of them, since the next lap may put a header on any, and publishes
//!    `freed` with Release.
//!
//! - **LB-1** a word is zero unless a frame that is not drained yet has been copied there.
//! - **LB-2** `complete` only passes frames whose header was marked.
//!
//! The header word alone is not enough to trust what comes back from disk: that is what its checksum is for.
//! `tests` checks one thread, `loom_tests` all interleavings of two appenders and a writer on a ring of four
//! words (`RUSTFLAGS="--cfg loom" cargo test -p varve --release --lib loom_ -- --test-threads 1`).

use crossbeam_utils::CachePadded;

use crate::base::Lsn;
use crate::base::instruments::{MeasuredMemory, Memory};
use crate::base::sync::{BareAtomicU64 as AtomicU64, Ordering};

const WORD: u64 = 8;

pub struct Ring {
    words: Box<[AtomicU64]>,
    /// Ring size in bytes, a power of two.
    size: u64,
    next: CachePadded<AtomicU64>,
    complete: CachePadded<AtomicU64>,
    freed: CachePadded<AtomicU64>,
    _measured: MeasuredMemory,
}

impl Ring {
    /// An empty ring whose stream begins at `start`.
    pub fn new(size: u64, start: Lsn) -> Ring {
        assert!(
            size.is_power_of_two() && size >= 2 * WORD,
            "log buffer of {size} bytes"
        );
        assert!(
            start.0.is_multiple_of(WORD),
            "log start {start} is not aligned"
        );
        let at = || CachePadded::new(AtomicU64::new(start.0));
        Ring {
            _measured: MeasuredMemory::new(Memory::LogBuffer, size as usize),
            words: (0..size / WORD).map(|_| AtomicU64::new(0)).collect(),
            size,
            next: at(),
            complete: at(),
            freed: at(),
        }
    }

    fn word(&self, position: u64) -> &AtomicU64 {
        &self.words[(position & (self.size - 1)) as usize / WORD as usize]
    }

    /// The words from a position to the ring's end.
    fn words_from(&self, position: u64) -> &[AtomicU64] {
        &self.words[(position & (self.size - 1)) as usize / WORD as usize..]
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn next(&self) -> Lsn {
        Lsn(self.next.load(Ordering::Relaxed))
    }

    /// Bytes handed out up to there and not drained yet; more than the size while appenders wait for room.
    pub fn used_to(&self, end: Lsn) -> u64 {
        end.0.saturating_sub(self.freed.load(Ordering::Relaxed))
    }

    /// Step 1: hands out `len` bytes of the stream.
    pub fn take(&self, len: u64) -> Lsn {
        debug_assert!(len.is_multiple_of(WORD) && len <= self.size);
        Lsn(self.next.fetch_add(len, Ordering::Relaxed))
    }

    /// Step 2: whether `[start, start + len)` may be copied now.
    pub fn has_room(&self, start: Lsn, len: u64) -> bool {
        start.0 + len <= self.freed.load(Ordering::Acquire) + self.size
    }

    /// Step 3: copies the pieces one after the other to `at`, and zeros up to the end of the last word.
    pub fn copy(&self, at: Lsn, parts: &[&[u8]]) {
        let mut out = WordWriter {
            ring: self,
            position: at.0,
            partial: 0,
            bits: 0,
        };
        for part in parts {
            out.put(part);
        }
        out.finish();
    }

    /// Step 4: makes the frame at `start` complete.
    pub fn mark(&self, start: Lsn, header: u64) {
        debug_assert_ne!(header, 0);
        self.word(start.0).store(header, Ordering::Release);
    }

    /// Step 5: moves `complete` over every marked frame and returns it. `frame_len` reads a frame's length
    /// from its header word.
    pub fn advance(&self, frame_len: impl Fn(u64) -> u64) -> Lsn {
        loop {
            let from = self.complete.load(Ordering::Acquire);
            let limit = self.freed.load(Ordering::Acquire) + self.size;
            let mut to = from;
            while to < limit {
                let header = self.word(to).load(Ordering::Acquire);
                if header == 0 {
                    break;
                }
                // A word of a reused frame may claim any length, also none: go on, the swap will fail.
                to += frame_len(header).max(WORD);
            }
            if to == from {
                return Lsn(from);
            }
            let swapped =
                self.complete
                    .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
            if swapped.is_ok() {
                return Lsn(to);
            }
        }
    }

    /// Step 6: copies `[from, to)` to `out`, which is as long, and frees the room. `from` is where the
    /// previous drain ended, `to` is not above `complete`. One thread at a time.
    pub fn drain(&self, from: Lsn, to: Lsn, out: &mut [u8]) {
        assert!(
            from.0 == self.freed.load(Ordering::Relaxed)
                && to.0 <= self.complete.load(Ordering::Relaxed)
        );
        assert_eq!(to.0 - from.0, out.len() as u64);
        let mut rest = out.as_chunks_mut::<8>().0;
        let mut at = from.0;
        while !rest.is_empty() {
            let words = self.words_from(at);
            let (now, later) = rest.split_at_mut(rest.len().min(words.len()));
            for (to, word) in now.iter_mut().zip(words) {
                *to = word.load(Ordering::Relaxed).to_le_bytes();
                word.store(0, Ordering::Relaxed);
            }
            at += now.len() as u64 * WORD;
            rest = later;
        }
        self.freed.store(to.0, Ordering::Release);
    }
}

/// Packs byte slices of any length into the ring's words.
struct WordWriter<'a> {
    ring: &'a Ring,
    position: u64,
    /// The word being filled; its low `bits` bits are valid.
    partial: u64,
    bits: u32,
}

impl WordWriter<'_> {
    fn store(&mut self, word: u64) {
        self.ring.word(self.position).store(word, Ordering::Relaxed);
        self.position += WORD;
    }

    /// Stores words while none is being filled.
    fn store_all(&mut self, mut words: &[[u8; 8]]) {
        while !words.is_empty() {
            let room = self.ring.words_from(self.position);
            let (now, later) = words.split_at(words.len().min(room.len()));
            for (to, word) in room.iter().zip(now) {
                to.store(u64::from_le_bytes(*word), Ordering::Relaxed);
            }
            self.position += now.len() as u64 * WORD;
            words = later;
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        if self.bits == 0 {
            self.store_all(words);
        } else {
            for word in words {
                let word = u64::from_le_bytes(*word);
                self.store(self.partial | word << self.bits);
                self.partial = word >> (64 - self.bits);
            }
        }
        for &byte in rest {
            self.partial |= u64::from(byte) << self.bits;
            self.bits += 8;
            if self.bits == 64 {
                self.store(self.partial);
                (self.partial, self.bits) = (0, 0);
            }
        }
    }

    fn finish(mut self) {
        if self.bits > 0 {
            self.store(self.partial);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_length_come_back_in_order() {
        let bytes: Vec<u8> = (1..=200).collect();
        for cuts in [vec![], vec![1, 2, 3], vec![8, 16], vec![5, 13, 14, 77]] {
            let ring = Ring::new(256, Lsn(4088));
            let mut parts = Vec::new();
            let mut from = 0;
            for cut in cuts.iter().copied().chain([bytes.len()]) {
                parts.push(&bytes[from..cut]);
                from = cut;
            }
            let start = ring.take(208);
            assert!(ring.has_room(start, 208));
            ring.copy(Lsn(start.0 + 8), &parts);
            ring.mark(start, 208);
            let end = ring.advance(|h| h);
            assert_eq!(end, Lsn(4088 + 208));
            let mut out = [0; 208];
            ring.drain(start, end, &mut out);
            assert_eq!(&out[8..], bytes, "cut at {cuts:?}");
        }
    }

    #[test]
    fn a_full_ring_has_no_room_and_is_not_walked_twice() {
        let ring = Ring::new(32, Lsn(0));
        for start in [0, 16] {
            assert_eq!(ring.take(16), Lsn(start));
            ring.copy(Lsn(start + 8), &[&[9; 8]]);
            ring.mark(Lsn(start), 16);
        }
        // The next header position holds the first frame's header: step 5's limit keeps the walk off it.
        assert_eq!(ring.advance(|h| h), Lsn(32));
        let start = ring.take(16);
        assert!(!ring.has_room(start, 16));
        ring.drain(Lsn(0), Lsn(16), &mut [0; 16]);
        assert!(ring.has_room(start, 16));
        assert_eq!(
            ring.advance(|h| h),
            Lsn(32),
            "LB-1: the drained header is gone"
        );
    }

    #[test]
    fn complete_stops_at_a_gap() {
        let ring = Ring::new(64, Lsn(0));
        let (a, b) = (ring.take(16), ring.take(16));
        ring.mark(b, 16);
        assert_eq!(ring.advance(|h| h), Lsn(0), "LB-2");
        ring.mark(a, 16);
        assert_eq!(ring.advance(|h| h), Lsn(32));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::base::model;
    use loom::sync::Arc;
    use loom::thread;

    /// A header word of 16 bytes' length whose upper bits name its start, and the body that belongs to it.
    fn frame(start: Lsn) -> (u64, [u8; 8]) {
        (16 | start.0 << 32, (!start.0).to_le_bytes())
    }

    fn append(ring: &Ring) {
        let start = ring.take(16);
        while !ring.has_room(start, 16) {
            thread::yield_now();
        }
        let (header, body) = frame(start);
        ring.copy(Lsn(start.0 + 8), &[&body]);
        ring.mark(start, header);
    }

    /// Takes everything out until `end`, checking each frame against its place.
    fn drain(ring: &Ring, end: u64) {
        let mut at = 0;
        while at < end {
            let complete = ring.advance(|header| header & 0xffff_ffff);
            let mut out = vec![0; (complete.0 - at) as usize];
            ring.drain(Lsn(at), complete, &mut out);
            for (i, bytes) in out.chunks(16).enumerate() {
                let (header, body) = frame(Lsn(at + 16 * i as u64));
                assert_eq!(bytes[..8], header.to_le_bytes(), "LB-2");
                assert_eq!(bytes[8..], body);
            }
            if complete.0 == at {
                thread::yield_now();
            }
            at = complete.0;
        }
    }

    /// Two appenders of one frame each and a writer, after `before` frames.
    fn check(before: u64, preemptions: usize) {
        model::check(preemptions, move || {
            let ring = Arc::new(Ring::new(32, Lsn(0)));
            (0..before).for_each(|_| append(&ring));
            let threads = [(); 2].map(|()| {
                let ring = ring.clone();
                thread::spawn(move || append(&ring))
            });
            drain(&ring, 16 * (before + 2));
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }

    #[test]
    fn loom_appenders_and_writer() {
        check(0, 3);
    }

    /// The appenders wait for room and use words that the writer has just zeroed.
    #[test]
    fn loom_ring_wraps() {
        check(1, 2);
    }

    /// A second thread advances while the writer drains and the words are used again: its walk may go over
    /// anything, its swap must not count.
    #[test]
    fn loom_bystander_advances() {
        model::check_long(2, || {
            let ring = Arc::new(Ring::new(32, Lsn(0)));
            let (a, b) = (ring.clone(), ring.clone());
            let appender = thread::spawn(move || (0..3).for_each(|_| append(&a)));
            let bystander = thread::spawn(move || {
                let complete = b.advance(|header| header & 0xffff_ffff);
                assert!(complete.0 <= 48 && complete.0 % 16 == 0);
            });
            drain(&ring, 48);
            appender.join().unwrap();
            bystander.join().unwrap();
        });
    }
}
