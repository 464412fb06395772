//! Merging the entries of change buffers into the indexes' own trees (CB-4).
//!
//! A **hand** goes through the keys of each change buffer, from the first to the last and again from the
//! first. Where it comes to an entry that can be merged, the leaf of the own tree for it is latched, then
//! that of the change buffer, and all that the latter has for the former is merged in one mini-transaction.
//! The leaves that come next are read ahead, many at a time. The longer the hand is away, the more entries
//! there are for a leaf when it comes: a pass costs one read and one write of a leaf, however many they are.
//!
//! Who moves the hand: a thread in the background (`purge/merger.rs`), when the change buffers have much of
//! what they may have, or nobody has put anything there for a while; and whoever finds them full, by one leaf
//! for each change. So what is buffered is bounded, and a change then costs at most what it would without a
//! change buffer.

use crate::base::{Error, Result, Sabotage, TrxId};
use crate::btree::{LeafPos, Seek, Tree};
use crate::catalog::{
    DELETED, FROZEN_CUT, OpenIndex, OpenTable, Payload, REVIVED, entry_state, is_tombstone,
};
use crate::mtr::Mtr;
use crate::page::{PageOp, record_cost};
use crate::txn::{Core, Transaction};

use super::entry::Freezer;
use super::write::MAX_MTR;

/// Redo of merging an entry, beside its key and payload: the heads of the operations.
const ENTRY_LOG_BYTES: usize = 64;
/// So many keys of a change buffer are looked at to see which leaves come next.
const LOOK_AHEAD: usize = 1024;
/// So many leaves of a change buffer are looked at, for each leaf of the own tree that is to be found: there
/// may be nothing that can be merged.
const LOOKS: usize = 4;
/// Leaves that are read ahead together.
const READ_TOGETHER: usize = 64;

/// What the hand came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Merged {
    pub leaves: usize,
    pub entries: usize,
}

/// The tree of the index's change buffer, which is made if there is none; `None` if there is no room in it,
/// and none could be made.
pub(super) fn buffer_with_room<'i>(
    trx: &mut Transaction,
    table: &'i OpenTable,
    index: &'i OpenIndex,
) -> Result<Option<&'i Tree>> {
    let core = trx.core();
    let (pool, all) = (&core.pool, &core.pool.change_buffers);
    if all.pages() >= all.most_pages(pool.n_frames()) && !all.is_always() {
        // What is wrong with another leaf is not for this change to report.
        let merged = merge_on(core, table, index, 1).unwrap_or_default();
        if merged.entries == 0 {
            return Ok(None);
        }
    }
    match table.change_buffer(index) {
        Ok(tree) => Ok(Some(tree)),
        Err(Error::NoSpace { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Moves the hand of an index on until entries were merged into so many leaves, it has looked at several
/// times as many in vain, or it comes to the end. Does nothing if somebody else moves it. The caller holds no
/// latch.
pub fn merge_on(
    core: &Core,
    table: &OpenTable,
    index: &OpenIndex,
    leaves: usize,
) -> Result<Merged> {
    let mut merged = Merged::default();
    let (Some(tree), Some(mut hand)) = (index.buffer.tree_in_use()?, index.buffer.hand.try_lock())
    else {
        return Ok(merged);
    };
    let merger = Merger {
        core,
        table,
        index,
        tree,
        limit: core.sys.freeze_limit(),
    };
    if leaves > 1 {
        // What is wrong the merge itself will meet.
        let _ = merger.read_ahead(&hand, LOOKS * leaves);
    }
    let (mut visits, mut failed) = (0, None);
    for _ in 0..LOOKS * leaves {
        if visits == leaves {
            break;
        }
        let (first, room) = match merger.look(&hand) {
            Ok(Look::Mergeable(first, room)) => (first, room),
            Ok(Look::Next(next)) => {
                *hand = next;
                continue;
            }
            Ok(Look::End) => {
                hand.clear();
                failed = failed.or(merger.note_if_empty().err());
                break;
            }
            Err(e) => {
                failed = Some(e);
                break;
            }
        };
        // Whatever comes of it, it goes on behind that.
        *hand = behind(&first);
        match merger.merge_leaf(&first, room) {
            Ok((entries, next)) => {
                visits += 1;
                merged.leaves += usize::from(entries > 0);
                merged.entries += entries;
                *hand = next;
            }
            Err(e) => failed = failed.or(Some(e)),
        }
    }
    index.buffer.note_pages();
    let counters = &core.pool.change_buffers.counters;
    counters.merges.add(merged.leaves as u64);
    failed.map_or(Ok(merged), Err)
}

/// What the hand finds in a leaf of a change buffer.
enum Look {
    /// The first entry's key, and the room that it takes.
    Mergeable(Vec<u8>, usize),
    /// Nothing. The next leaf begins there.
    Next(Vec<u8>),
    End,
}

/// One who moves a hand.
struct Merger<'a> {
    core: &'a Core,
    table: &'a OpenTable,
    index: &'a OpenIndex,
    /// Of the change buffer.
    tree: &'a Tree,
    /// Everybody sees what transactions with ids below this one did.
    limit: TrxId,
}

impl Merger<'_> {
    /// CB-4, as far as the change buffer can tell.
    fn is_mergeable(&self, payload: &[u8]) -> bool {
        let Some((flags, trx)) = entry_state(payload) else {
            return false;
        };
        let is_live = flags & DELETED == 0;
        trx == TrxId(0) || is_live && !self.core.sys.is_unfinished(trx)
    }

    /// Looks for an entry that can be merged, in one leaf.
    fn look(&self, from: &[u8]) -> Result<Look> {
        let leaf = self.tree.latch_leaf_shared(from, Seek::Ge)?;
        let page = leaf.slotted();
        let mut slots = leaf.at..page.n_slots();
        let found = slots.find(|&slot| self.is_mergeable(page.payload(slot)));
        Ok(match (found, page.high()) {
            (Some(slot), _) => {
                let key = page.key(slot);
                let room = record_cost(key.len(), page.payload(slot).len());
                Look::Mergeable(key, room)
            }
            (None, Some(high)) => Look::Next(high.to_vec()),
            (None, None) => Look::End,
        })
    }

    /// Rollback, or a merge of leaves, may have left nothing.
    fn note_if_empty(&self) -> Result<()> {
        let mut mtr = Mtr::begin(self.table.mtr_env(), 0)?;
        let root = self.tree.latch_leaf_behind(&mut mtr, &[])?;
        self.index.buffer.note_empty(root.slotted(&mtr));
        Ok(())
    }

    /// Asks for the leaves of the own tree that come next, by so many leaves of the change buffer.
    fn read_ahead(&self, from: &[u8], mut looks: usize) -> Result<()> {
        let mut keys = Vec::new();
        let mut from = from.to_vec();
        while keys.len() < LOOK_AHEAD && looks > 0 {
            looks -= 1;
            let leaf = self.tree.latch_leaf_shared(&from, Seek::Ge)?;
            let page = leaf.slotted();
            let slots = (leaf.at..page.n_slots()).take(LOOK_AHEAD - keys.len());
            let mergeable = slots.filter(|&slot| self.is_mergeable(page.payload(slot)));
            keys.extend(mergeable.map(|slot| page.key(slot)));
            match page.high() {
                Some(high) => from = high.to_vec(),
                None => break,
            }
        }
        self.index.tree.read_leaves_ahead(&keys, READ_TOGETHER)
    }

    /// Merges what the change buffer has for the leaf of `first`, as far as one leaf of its tree goes, from
    /// that key on, for which there is to be room. Returns how many entries these are, and where the hand
    /// goes on.
    fn merge_leaf(&self, first: &[u8], room: usize) -> Result<(usize, Vec<u8>)> {
        let (own, env) = (&self.index.tree, self.table.mtr_env());
        let mut mtr = Mtr::begin_in(env, self.index.space(), MAX_MTR)?;
        let freezer = Freezer(self.core);
        let mut pos = own.latch_leaf_to_insert(&mut mtr, first, room, None, Some(&freezer))?;
        if pos.found && pos.slotted(&mtr).free_space() < FROZEN_CUT {
            // It may be frozen, and what takes its place not.
            mtr.release(pos.h);
            pos = own.latch_shortened_leaf(&mut mtr, first, FROZEN_CUT, None, &freezer)?;
        }
        let from = self.tree.latch_leaf_behind(&mut mtr, first)?;
        let (merged, next) = self.merge_latched(&mut mtr, pos, from);
        let is_sparse = [pos, from].map(|pos| pos.is_sparse(&mtr, merged));
        if merged > 0 {
            self.index.buffer.note_empty(from.slotted(&mtr));
        }
        mtr.commit();
        for (tree, is_sparse) in [own, self.tree].into_iter().zip(is_sparse) {
            if is_sparse {
                // An optimisation: if it fails, the tree is as correct as before.
                let _ = tree.maybe_merge(first);
            }
        }
        Ok((merged, next))
    }

    /// Both leaves are latched.
    fn merge_latched(&self, mtr: &mut Mtr<'_>, pos: LeafPos, from: LeafPos) -> (usize, Vec<u8>) {
        let (taken, mut next) = self.take(mtr, pos, from);
        let mut slots: Vec<[u8; 2]> = Vec::new();
        for entry in &taken {
            let number = entry.slot.to_le_bytes();
            if self.core.log.is_sabotaged(Sabotage::BufferedEntryLost) && slots.is_empty() {
                slots.push(number);
                continue;
            }
            let (key, payload) = (&entry.key[..], &entry.payload[..]);
            let log_bytes = key.len() + payload.len() + ENTRY_LOG_BYTES + 2 * slots.len();
            let done = match log_bytes > mtr.log_room() {
                true => Done::NoRoom,
                false => self.merge_entry(mtr, pos, key, payload),
            };
            match done {
                Done::Merged => {}
                Done::Left => continue,
                Done::NoRoom => {
                    next = key.to_vec();
                    break;
                }
            }
            slots.push(number);
            let counters = &self.core.pool.change_buffers.counters;
            let counter = match is_tombstone(payload) {
                true => &counters.merged_deletes,
                false => &counters.merged_inserts,
            };
            counter.add(1);
        }
        if !slots.is_empty() {
            mtr.op(from.h, PageOp::RemoveMany { slots: &slots });
        }
        (slots.len(), next)
    }

    /// Copies what can be merged of what the change buffer's leaf has for the other one, and says where the
    /// hand goes on behind all that.
    fn take(&self, mtr: &Mtr<'_>, pos: LeafPos, from: LeafPos) -> (Vec<Taken>, Vec<u8>) {
        let (own, buffer) = (pos.slotted(mtr), from.slotted(mtr));
        let mut taken = Vec::new();
        let mut key = Vec::new();
        for slot in usize::from(from.slot)..buffer.n_slots() {
            key.clear();
            buffer.push_key(slot, &mut key);
            if own.high().is_some_and(|high| &key[..] >= high) {
                return (taken, key);
            }
            let payload = buffer.payload(slot);
            if self.is_mergeable(payload) {
                let is_revived = payload[0] & REVIVED != 0;
                debug_assert!(is_tombstone(payload) || is_revived, "CB-3");
                taken.push(Taken {
                    slot: slot as u16,
                    key: key.clone(),
                    payload: payload.into(),
                });
            }
        }
        // At the end of all: behind the last key, where nothing is found.
        let next = buffer.high().map_or_else(|| behind(&key), <[u8]>::to_vec);
        (taken, next)
    }

    /// Makes the latched leaf say of the entry with this key, which it covers, what the change buffer's
    /// payload does.
    fn merge_entry(&self, mtr: &mut Mtr<'_>, leaf: LeafPos, key: &[u8], payload: &[u8]) -> Done {
        let (h, page) = (leaf.h, leaf.slotted(mtr));
        let found = page.search_covered(key);
        let goes = is_tombstone(payload);
        let suffix = &key[page.prefix_len()..];
        let (Ok(slot) | Err(slot)) = found;
        let at = slot as u16;
        let insert = PageOp::Insert {
            slot: at,
            suffix,
            payload,
        };
        if found.is_err() {
            if goes {
                return Done::Merged;
            }
            if page.free_space() < record_cost(suffix.len(), payload.len()) {
                return Done::NoRoom;
            }
            mtr.op(h, insert);
            return Done::Merged;
        }
        if goes {
            mtr.op(h, PageOp::Remove { slot: at });
            return Done::Merged;
        }
        let own = page.payload(slot);
        let is_live = own[0] & DELETED == 0;
        if is_live && entry_state(payload).is_none_or(|(_, trx)| trx >= self.limit) {
            return Done::Left;
        }
        if own.len() == payload.len() {
            let (slot, off) = (at, 0);
            let bytes = payload;
            mtr.op(h, PageOp::PatchPayload { slot, off, bytes });
            return Done::Merged;
        }
        // One of them is frozen.
        if page.free_space() < payload.len().saturating_sub(own.len()) {
            return Done::NoRoom;
        }
        mtr.op(h, PageOp::Remove { slot: at });
        mtr.op(h, insert);
        Done::Merged
    }
}

/// An entry of a change buffer that can be merged.
struct Taken {
    slot: u16,
    key: Vec<u8>,
    payload: Payload,
}

/// What became of an entry of a change buffer.
enum Done {
    Merged,
    Left,
    /// The leaf is full.
    NoRoom,
}

/// The smallest key behind this one.
fn behind(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}
