//! Working through one half of a batch: its entries, or its rows; before that, if the history store has
//! members, copying what they need of each (`copying`).
//!
//! The items are sorted by index and key. Whoever takes part takes the next `CHUNK` of them until none is
//! left, so all work on one table if there is one table, on different leaves of it, and nobody waits for
//! somebody with a larger share. (InnoDB deals the records of a table to one thread, MySQL 8 by a hash;
//! neither lets one visit to a leaf remove all that is to be removed there.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::base::{Error, IndexId, Result, RollPtr, Sabotage, SpaceId, TrxId};
use crate::btree::{LeafHint, Tree, removal_log_bytes};
use crate::catalog::{
    DELETED, OpenIndex, OpenTable, RowRecord, entry_state, is_tombstone, state_bytes,
};
use crate::mtr::Mtr;
use crate::page::PageOp;
use crate::txn::{Core, Counters};
use crate::undo::UndoKind;

use super::behind::CopyTo;
use super::chains::{self, Reference};
use super::copying::{CopyScratch, Copying};
use super::in_table;
use super::work::{Item, Work};

/// Items that a thread takes at a time.
const CHUNK: usize = 128;
/// Redo that removing the records of one leaf can write.
const MAX_MTR: u32 = removal_log_bytes(CHUNK);
/// Redo that making tombstones of as many entries can write.
const BURY_LOG_BYTES: u32 = 64 + 32 * CHUNK as u32;

/// What is done with the items of a half.
#[derive(Clone)]
pub(super) enum Task {
    /// Versions that members of the history store need are copied. The items of a key stay with one thread.
    Copy(Arc<CopyTo>),
    /// What is garbage goes.
    Remove,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    Entries,
    Rows,
}

/// Where the leaf that is visited next probably is. For another tree, also that of a table that was emptied
/// meanwhile, its number is any page's, or none's.
#[derive(Clone, Copy)]
struct NextLeaf {
    tree: (SpaceId, IndexId),
    hint: LeafHint,
}

pub(super) struct Sweep {
    work: Arc<Work>,
    task: Task,
    half: Half,
    /// Logs from this one on in the batch are left alone.
    logs_end: u32,
    stop: Arc<AtomicBool>,
    /// The next item that nobody has taken. Relaxed: it hands out places; what is done there is ordered by
    /// latches, and the end by the mutex of the workers.
    next: AtomicUsize,
    failed: Mutex<Failed>,
}

/// What could not be worked off.
#[derive(Default)]
pub(super) struct Failed {
    /// The first log of the batch with such a record.
    pub log: Option<u32>,
    /// Why; `None` if purge was told to stop.
    pub error: Option<Error>,
}

impl Failed {
    pub fn merge(&mut self, other: Failed) {
        if let Some(log) = other.log {
            self.note(log, other.error);
        }
    }

    /// None of these items was worked off.
    fn note_all(&mut self, items: &[Item], error: Option<Error>) {
        if let Some(log) = items.iter().map(|item| item.log).min() {
            self.note(log, error);
        }
    }

    fn note(&mut self, log: u32, error: Option<Error>) {
        self.log = Some(self.log.map_or(log, |first| first.min(log)));
        self.error = self.error.take().or(error);
    }
}

impl Sweep {
    pub fn new(
        work: &Arc<Work>,
        (task, half): (Task, Half),
        logs_end: u32,
        stop: &Arc<AtomicBool>,
    ) -> Sweep {
        Sweep {
            work: work.clone(),
            task,
            half,
            logs_end,
            stop: stop.clone(),
            next: AtomicUsize::new(0),
            failed: Mutex::default(),
        }
    }

    fn items(&self) -> &[Item] {
        match self.half {
            Half::Entries => &self.work.entries,
            Half::Rows => &self.work.rows,
        }
    }

    /// How many threads can be of use.
    pub fn chunks(&self) -> usize {
        self.items().len().div_ceil(CHUNK)
    }

    /// What nobody could work off; after all threads have returned.
    pub fn end(&self) -> Failed {
        std::mem::take(&mut self.failed.lock())
    }

    /// Works on chunks until none is left; calls `between` before each. Returns how many items it took.
    pub fn run(&self, core: &Core, mut between: impl FnMut()) -> usize {
        let items = self.items();
        let mut taken = 0;
        loop {
            between();
            let start = self.next.fetch_add(CHUNK, Ordering::Relaxed);
            if start >= items.len() {
                return taken;
            }
            let end = items.len().min(start + CHUNK);
            match &self.task {
                Task::Copy(to) => {
                    let chunk = &items[self.key_from(start)..self.key_from(end)];
                    self.copy(core, to, chunk);
                }
                Task::Remove => {
                    self.work_through(core, &items[start..end]);
                    taken += end - start;
                }
            }
        }
    }

    /// The first item from there on that does not have the key of the one before.
    fn key_from(&self, at: usize) -> usize {
        let items = self.items();
        let is_same = |n: &usize| self.work.is_same_key(&items[*n - 1], &items[*n]);
        match at {
            0 => 0,
            _ => at + (at..items.len()).take_while(is_same).count(),
        }
    }

    /// True after `stop`, which is noted.
    fn is_stopped_before(&self, items: &[Item]) -> bool {
        // Relaxed: nothing else depends on it.
        let stopped = self.stop.load(Ordering::Relaxed);
        if stopped {
            self.failed.lock().note_all(items, None);
        }
        stopped
    }

    /// Copies what members need of these items' versions.
    fn copy(&self, core: &Core, to: &CopyTo, mut items: &[Item]) {
        let mut scratch = CopyScratch::default();
        let copying = Copying::new(core, to, &self.work);
        while !items.is_empty() && !self.is_stopped_before(items) {
            let (of_key, rest) = items.split_at(copying.items_of_first_key(items));
            items = rest;
            if of_key.iter().all(|item| self.is_left_alone(item)) {
                continue;
            }
            // COPY-3: a key's items are in no order.
            if let Err(e) = copying.copy(of_key, &mut scratch) {
                let noted = match core.log.is_sabotaged(Sabotage::WrongLogKept) {
                    true => (of_key.iter().max_by_key(|item| item.log))
                        .map_or(of_key, std::slice::from_ref),
                    false => of_key,
                };
                self.failed.lock().note_all(noted, Some(e));
            }
        }
        scratch.count(core);
    }

    fn work_through(&self, core: &Core, mut items: &[Item]) {
        let mut leaf = None;
        while let Some(first) = items.first() {
            if self.is_stopped_before(items) {
                return;
            }
            let done = match self.remove_run(core, items, &mut leaf) {
                Ok(done) => done,
                Err(e) => {
                    self.failed.lock().note(first.log, Some(e));
                    1
                }
            };
            items = &items[done..];
        }
    }

    fn is_left_alone(&self, item: &Item) -> bool {
        item.log >= self.logs_end
    }

    /// Works off the first items: those of one leaf. Returns how many. `leaf`: where that leaf probably is,
    /// then the next one.
    fn remove_run(
        &self,
        core: &Core,
        items: &[Item],
        leaf: &mut Option<NextLeaf>,
    ) -> Result<usize> {
        let done = match items[0].removes() && !self.is_left_alone(&items[0]) {
            true => in_table(core, items[0].table, |table| {
                self.remove_in(core, table, items, leaf)
            })?,
            false => None,
        };
        // Nothing is to be removed, or nothing is there to remove it from.
        let done = done.unwrap_or(1);
        let (mut deletions, mut others) = (0, 0);
        for item in &items[..done] {
            if self.is_left_alone(item) {
                continue;
            }
            match item.kind {
                UndoKind::RowDeleteMark => deletions += 1,
                _ => others += 1,
            }
            if item.frees {
                self.free_external_values(core, item);
            }
        }
        let counters = &core.counters;
        Counters::add(&counters.purge_del_mark_records, deletions);
        Counters::add(&counters.purge_upd_exist_or_extern_records, others);
        Ok(done)
    }

    fn free_external_values(&self, core: &Core, item: &Item) {
        if core.log.is_sabotaged(Sabotage::OverflowLeaked) {
            return;
        }
        let record = self.work.record(item);
        for reference in Reference::all_of(&record, item.at) {
            match chains::free(core, item.table, reference, &self.stop) {
                Ok(true) => {}
                Ok(false) => self.failed.lock().note(item.log, None),
                Err(e) => self.failed.lock().note(item.log, Some(e)),
            }
        }
    }

    /// Removes what is garbage in the leaf of the first item. Returns how many items that settles.
    fn remove_in(
        &self,
        core: &Core,
        table: &OpenTable,
        items: &[Item],
        leaf: &mut Option<NextLeaf>,
    ) -> Result<Option<usize>> {
        let Some(index) = table.index(items[0].index) else {
            return Ok(None);
        };
        let is_garbage = |n: usize, payload: &[u8]| {
            let item = &items[n];
            item.removes() && !self.is_left_alone(item) && self.is_garbage(table, payload, item)
        };
        let of_index = items.iter().take_while(|item| item.index == index.id);
        let keys = of_index.map(|item| self.work.key(item));
        let mut of_own_tree = usize::MAX;
        if let Some(tree) = index.buffer.tree_in_use()? {
            match bury(core, (index, tree), keys.clone(), is_garbage)? {
                Buried::Settled(first) => return Ok(Some(first)),
                Buried::NotThere(first) => of_own_tree = first,
            }
        }
        let keys = keys.take(of_own_tree);
        let mut mtr = Mtr::begin_in(&core.mtr, index.space(), MAX_MTR)?;
        let tree = &index.tree;
        let its = (index.space(), index.id);
        let next = leaf.take().filter(|next| next.tree == its);
        let hint = next.map(|next| next.hint);
        let visit = tree.remove_from_leaf(&mut mtr, hint, keys, is_garbage)?;
        mtr.commit();
        *leaf = visit.next.map(|hint| NextLeaf { tree: its, hint });
        if visit.removed > 0 {
            Counters::add(&core.counters.purged_records, visit.removed as u64);
        }
        if visit.is_sparse {
            tree.maybe_merge(self.work.key(&items[0]))?;
        }
        Ok(Some(visit.covered))
    }

    /// The rules in purge/mod.rs.
    fn is_garbage(&self, table: &OpenTable, payload: &[u8], item: &Item) -> bool {
        let is_row = item.kind.is_row();
        if is_row != (item.index == table.clustered.id) {
            return false;
        }
        let now = match is_row {
            true => {
                RowRecord::decode(payload).map(|r| (r.is_deleted(), r.flags, r.trx, r.roll_ptr))
            }
            // Entries have no roll pointers.
            false => entry_state(payload)
                .map(|(flags, trx)| (flags & DELETED != 0, flags, trx, RollPtr::default())),
        };
        let Some((true, flags, trx, roll_ptr)) = now else {
            return false;
        };
        match item.kind {
            UndoKind::EntryDeleteMark | UndoKind::EntryMarkUnread => trx == item.trx,
            UndoKind::RowDeleteMark => trx == item.trx && roll_ptr == item.at,
            UndoKind::RowUnmark | UndoKind::EntryUnmark => {
                let was = self.work.record(item).previous;
                was.is_some_and(|was| (flags, trx, roll_ptr) == (was.flags, was.trx, was.roll_ptr))
            }
            _ => false,
        }
    }
}

/// What the change buffer says of the first keys of some.
enum Buried {
    /// So many are settled: there is nothing left to be removed.
    Settled(usize),
    /// So many are to be looked for in the index's own tree.
    NotThere(usize),
}

/// Makes tombstones (CB-5) of what is garbage in a change buffer among the first of these keys: those of one
/// leaf, as far as they have the same answer.
fn bury<'k>(
    core: &Core,
    (index, tree): (&OpenIndex, &Tree),
    keys: impl Iterator<Item = &'k [u8]> + Clone,
    is_garbage: impl Fn(usize, &[u8]) -> bool,
) -> Result<Buried> {
    let first = keys.clone().next().unwrap_or_default();
    let mut mtr = Mtr::begin_in(&core.mtr, index.space(), BURY_LOG_BYTES)?;
    let pos = tree.latch_leaf_behind(&mut mtr, first)?;
    let mut buried = 0;
    let (mut n, mut are_settled) = (0, false);
    for key in keys.take(CHUNK) {
        let page = pos.slotted(&mtr);
        if !page.covers(key) {
            break;
        }
        let payload = page
            .search_covered(key)
            .map(|slot| (slot, page.payload(slot)));
        let is_settled = match payload {
            Ok((_, payload)) => is_tombstone(payload) || is_garbage(n, payload),
            Err(_) => false,
        };
        if n > 0 && is_settled != are_settled {
            break;
        }
        are_settled = is_settled;
        n += 1;
        if let Ok((slot, payload)) = payload
            && is_settled
            && !is_tombstone(payload)
        {
            debug_assert!(payload[0] & DELETED != 0, "CB-5: a live entry is buried");
            let state = state_bytes(payload[0], TrxId(0));
            let (slot, off) = (slot as u16, 0);
            let bytes = &state[..];
            mtr.op(pos.h, PageOp::PatchPayload { slot, off, bytes });
            buried += 1;
        }
    }
    mtr.commit();
    Counters::add(&core.counters.purged_records, buried);
    core.pool.change_buffers.counters.deletes.add(buried);
    Ok(match are_settled {
        true => Buried::Settled(n),
        false => Buried::NotThere(n),
    })
}
