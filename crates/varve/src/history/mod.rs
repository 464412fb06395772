//! The history store: versions that old read views need, so that purge need not wait for these views.
//!
//! A view that has held purge back for longer than `history_store_delay` becomes a **member**. From then on
//! purge goes on behind it, and copies each version that a member needs before it destroys what the version
//! was made from. What no member needs is not copied (ARCHITECTURE.md, section 10). Related work: HANA's
//! interval garbage collection (Lee et al., SIGMOD 2016) finds versions between the views, too, but in place;
//! vDriver (SIGMOD 2020) and Steam (VLDB 2020) move or prune versions by the views' intervals in memory.
//! WiredTiger's history store is a file like this one, filled at eviction with all versions, whether or not
//! any view needs them.
//!
//! # What a member needs
//!
//! A version that W wrote and S superseded is what a view with the number `c` reads iff `no(W) < c ≤ no(S)`:
//! a view sees the numbers below its own. The members with such a number are an interval of all members; its
//! least and greatest are kept with the version ([`Members`]).
//!
//! # Members
//!
//! Purge's coordinator makes a view a member, in the walk over the view slots by which it finds its limit
//! (`TxnSys::purge_limit_past`); nobody else does. The slot remembers which of its views it was: the next one
//! is none. Membership ends when the view leaves the slot, where the next walk does not find it. A walk may
//! take the number of a view for that of the one before it in its slot. That does no harm: this view was
//! published after the walk had raised the gate's limit, so its number is not below what the walk returns,
//! and nothing that it needs is removed on the strength of this walk. A view that the gate refuses when it is
//! a member already draws a larger number and stays one; each walk reads the numbers again.
//!
//! A reader asks whether it is a member only after it has met something that purge has removed, under the
//! latch with which purge removed it: so it finds itself to be one.
//!
//! Whether views see a writer, purge asks in their stead (`TxnSys::first_that_sees`): by the writer's number,
//! if that is still known; else by the list of what each of them does not see. A view that closes meanwhile
//! says so before it gives up its list. So its answer is known to be none, and does not stand for that of
//! others, not even of one with the same number.
//!
//! # The store
//!
//! A tree for each index, with the index's own keys and the superseder's number behind ([`version`]); so all
//! versions are records of their own, of at most 25 bytes more than a record of the index's tree, for which a
//! page has room. (One record for each key with a list of versions would have to spill to further pages.) All
//! trees lie in one tablespace that is not redo-logged and ends with the process or with the last member.
//!
//! - **STORE-1** Of the versions of a key, each one's members lie above the number that superseded the one
//!   before, and not above the one that superseded it. So a member's version is the first one with
//!   `no(S) ≥ c`, if `c` is not below its least member; else the member sees no such record.
//! - **STORE-2** A version never changes. It goes when none of the present members lies between its least and
//!   its greatest one, or with its index.
//! - **STORE-3** A version that is put once more stays as it is: copying may be repeated.
//! - **STORE-4** How many versions were copied for each pair of least and greatest member is known exactly:
//!   what is garbage once a member has gone is a sum over a few numbers.
//! - **STORE-5** The store never takes more than its limit, but for the pages of splits that are under way:
//!   one that is full refuses a version, and what purge then leaves alone is still in the undo logs.
//!
//! Latches: a page of the store's trees is latched under no other latch.

mod external;
mod keeper;
mod store;
#[cfg(all(test, not(loom)))]
mod tests;
mod version;

pub use keeper::History;
pub use store::{Amount, HISTORY_FILE, Put, Store, SweepPlace, version_in};
pub use version::{Kind, Members, VersionOf, head_len};
