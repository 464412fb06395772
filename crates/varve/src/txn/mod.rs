//! Transactions and read views: who sees what, in which order commits happened, what purge may remove.
//!
//! | file | what |
//! |---|---|
//! | sys.rs | the counter, states of ids, numbers of commits, `low`, the purge limit |
//! | ring.rs | the states of the newest 2^20 ids, a word each |
//! | stragglers.rs | the states of unfinished ids that left the ring, and of recovered transactions |
//! | upkeep.rs | retires ring segments, forgets finished stragglers, hands views what they doubt |
//! | view.rs | read views, their slots, the gate |
//! | id_limit.rs | the logged limit from which the counter starts after a crash |
//! | transaction.rs, rollback.rs | a transaction from begin to its end |
//! | value_source.rs | what the engine asks when it makes a row by itself |
//! | prepared.rs | transactions that wait for their coordinator's decision |
//!
//! # The protocol
//!
//! There is one counter, `next`. A transaction draws an id from it at its first write and a number when it
//! commits. A view is `c`, the counter when it opened. The view sees a transaction iff its number is below
//! `c`; everything below is about answering that without knowing who is active, and with bounded memory.
//!
//! **States.** An id goes Active → (Prepared →) Committing(floor) → Committed(no), or → Aborted(at). Only its
//! owner takes it there. A drawn value that became a number is marked Number. The states of recent ids are in
//! the ring; upkeep moves unfinished ones to the straggler map before the ring's words are used again.
//!
//! **Numbers and views** (VIEW-1). The committer stores Committing, then draws its number with a
//! read-modify-write that releases; a view loads the counter with Acquire, then reads states. Let `no` be the
//! number and `c` the view's.
//! - The view reads Active. If `no < c`, the view's load of the counter read the committer's draw or a later
//!   read-modify-write in the same release sequence, so the store of Committing happened before the view's
//!   read, which can't then return Active. Hence `no >= c`: 'no' is final.
//! - It reads Committing(floor) with `floor >= c`: the floor was loaded before the draw by the same thread,
//!   so `no >= floor >= c`: 'no' is final. With `floor < c` it doesn't know, and says so.
//! - It reads Committed(no): compares.
//! - It reads Aborted, or the id is at least `c`: 'no'. (An id of at least `c` has a number above that.)
//!
//! **Dependents** (TXN-2). If B starts to commit after it saw A finished (it read Committed, or got a lock
//! that A released after that), then A's draw happened before B's, so A's number is smaller.
//!
//! **`low`** (TXN-1) passes an id when its word is exactly its own and finished, a number, or moved to the
//! map. The thread that finishes the id at `low` moves it; `advance_low` says why nobody's help gets lost. A
//! view loads `low` before `c`: what `low` passed as finished drew its number before, so its number is below
//! `c`: 'yes' (what was rolled back is no longer on any record). What it passed as moved is found in the map,
//! or left it since: see below.
//!
//! # What a view may rely on
//!
//! A view loads `low`, then `first` and `last` of the straggler map, then `c`, publishes `low` and `c` in its
//! slot, and looks at the gate. Let an id be below `low`, and neither finished when `low` passed it; so it
//! was in the map by then (STRAG-1). If the view reads bounds that exclude it, it had left the map before
//! that, so its number was drawn before the view loaded `c`: 'yes' is right. If they include it, the view
//! asks ring, map and its own list.
//!
//! **The gate.** Four parties need to know all open views: purge, to remove what no view needs; who freezes
//! entries; upkeep, when it reuses a ring segment; and upkeep, when it forgets a straggler. Each of them (1)
//! raises a bound in the gate, (2) passes a SeqCst fence, (3) walks over the slots. A view (1) publishes its
//! slot, (2) passes a SeqCst fence, (3) looks at the gate, and draws new numbers if it does not comply with a
//! bound. By the fences, at least one of the two sees what the other did in (1): either the walk meets the
//! slot, or the view complies with the bound.
//! - *Purge* raises `limit` to `t = next`. A view the walk misses has `c >= t`. The purge limit is the least
//!   of `t`, the `c` of the slots it met, and the floors of commits under way. Views that open later have
//!   `c >= t` as well (VIEW-2). Now let a number be below the returned limit, so below `t`: its draw was seen
//!   by the load of `t`, so the walk over ring and map, which comes later, found its transaction Committing,
//!   with a floor at most the number (then the limit is not above it), or Committed (TXN-3).
//! - *Freezing* (TXN-6) does the same walk, members included, and compares with a `next` that it noted
//!   before: once no view has a smaller `c`, all see what was finished then.
//! - *Retiring a segment* raises `retired` to the segment's end, after `low` has passed it. A view that the
//!   walk misses has `low` at least there: it asks about an id of the segment only if the bounds say that it
//!   may be in the map. A view that it meets, and that has a smaller `low`, gets the segment's finished ids
//!   that it does not see as a list: those below its `c` whose number is not. They were unfinished when it
//!   opened, so they are few. All this happens before `usable_end` is raised, which a thread that overwrites
//!   a word has loaded: a view that finds a newer word finds map and list complete (VIEW-3).
//! - *Forgetting stragglers* raises `limit` to the largest of their numbers plus one. A view that the walk
//!   misses sees them all; one that it meets gets those it does not see on its list, and only then do they
//!   leave the map. A view looks at the map first, then at its list. An Aborted id needs no gate: only a view
//!   that was open, hence met, before its rollback can still hold a copy of a record with that id; it gets
//!   the id on its list, too.
//!
//! A list entry is `(c, id)` and true of every view with that `c`, so one that arrives after its view closed
//! can't mislead the slot's next view.
//!
//! **Moving an id** (STRAG-1). Upkeep puts the id into the map, then swaps the word from the state that it
//! put there to Moved. If the swap fails, the owner was faster: upkeep copies the new state, or takes the id
//! out again if it is finished. Until the swap the word counts, after it the map: readers look at the word
//! first, and the owner's own swap fails on Moved.
//!
//! **Who waits.** Nobody waits for an open view or a long writer. A thread that draws a value in a segment
//! that is not usable yet waits for the upkeep thread, which works half a segment ahead; upkeep waits for
//! threads that have drawn an id and not marked it, which is a few instructions and never behind the upkeep
//! mutex. `wait_settled` waits for a commit between its draw and its last store, until the database has
//! stopped or the reader is interrupted.
//!
//! loom_tests.rs runs the protocol under the model checker; tests.rs compares threads with a sequential
//! oracle.

mod auto_inc;
mod core;
mod handle;
mod id_limit;
mod interrupt;
#[cfg(all(test, loom))]
mod loom_tests;
mod pacer;
mod parts;
mod prepared;
mod purge_pause;
mod purge_progress;
mod ring;
mod rollback;
mod settings;
mod stragglers;
mod sys;
#[cfg(all(test, not(loom)))]
mod tests;
mod told;
mod transaction;
mod upkeep;
mod value_source;
mod view;

pub use self::core::{Core, Counters, LogLevel, Logger, Wakeup};
pub use auto_inc::AutoIncLock;
pub use handle::{CoreHandle, CoreHandles};
pub use id_limit::IdLimitLog;
pub use interrupt::Interrupt;
pub use pacer::Pacer;
pub use parts::TrxNumber;
pub use purge_pause::PurgePaused;
pub use purge_progress::{PurgeProgress, PurgeState};
pub use ring::IdState;
pub use settings::{DynamicSettings, FlushLog, HistoryOptions, PurgeOptions};
pub use sys::{RING_BITS, TxnSys};
pub use transaction::{Isolation, Savepoint, Transaction};
pub use value_source::ValueSource;
pub use view::{Member, OpenView, ReadView, ViewKey, ViewPlace, Visibility};
