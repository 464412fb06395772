//! Building indexes of a table whose rows are there: one scan for all of them, an external merge sort for
//! each, and the tree is loaded in order.
//!
//! The caller has a lock on the table with which nobody changes rows. So each row that is not deleted is
//! committed, and the entry gets the row's TrxId: views that see the index see these rows (MVCC-1). Others
//! don't read it (`OpenIndex::created_by`).
//!
//! - **BUILD-1** In a unique index no two entries have the same own key, but for keys with a NULL.
//!
//! Each tree is a good one at any moment (`btree/load.rs`), and the caller knows of it (LOOSE-1), so a crash
//! or a failure leaves nothing that is not given back.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::base::{Error, GoingOn, Result};
use crate::btree::{Loader, Onward, ReadAhead, Seek, Tree};
use crate::catalog::{ENTRY_LEN, EntryRecord, OpenIndex, OpenTable, RowRecord};
use crate::io::Disk;
use crate::page::{SlottedRef, max_key};
use crate::row::{ExternalValues, RowRef};

use super::external::row_for_keys;
use super::sorter::{SORT_FILE_PREFIX, Sorter};
use super::version::read_leaf;

/// Entries between two questions whether to go on.
const ASKED_EVERY: usize = 4096;

/// What sorting may take.
pub struct SortRoom {
    pub disk: Arc<dyn Disk>,
    /// Where files of runs go that do not fit in memory.
    pub dir: PathBuf,
    /// Bytes of memory, for all indexes together.
    pub memory: usize,
}

/// Who watches a build.
pub struct Watch<'a> {
    /// Ends it, and its waits, when it is set.
    pub interrupt: Option<&'a Arc<AtomicBool>>,
    /// Is shown a row that has the same key in the index of this name as another one.
    pub duplicate: &'a mut dyn FnMut(&str, &RowRef<'_>),
}

/// Why an index can't be built.
enum Refusal {
    /// BUILD-1: the row with this clustered key is one of two.
    Duplicate(Vec<u8>),
    Failed(Error),
}

impl From<Error> for Refusal {
    fn from(e: Error) -> Refusal {
        Refusal::Failed(e)
    }
}

/// Fills empty indexes of the table, which may not have them yet, with the entries of all its rows. If that
/// fails they are left as they are then.
pub fn build_indexes(
    table: &OpenTable,
    indexes: &[OpenIndex],
    room: &SortRoom,
    watch: Watch<'_>,
) -> Result<()> {
    let going_on = &|| check_interrupt(watch.interrupt);
    let sorters = sort_entries(table, indexes, room, going_on)?;
    let mut work: Vec<_> = indexes.iter().zip(sorters).collect();
    let mut done = Vec::new();
    while !work.is_empty() {
        let rest = work.split_off(work.len().min(2));
        let mut pair = work.into_iter();
        let (first, second) = (pair.next().expect("it is not empty"), pair.next());
        thread::scope(|scope| {
            let load_second = |(index, sorter)| scope.spawn(move || load(index, sorter, going_on));
            let other = second.map(load_second);
            done.push(load(first.0, first.1, going_on));
            done.extend(other.map(|other| other.join().expect("it does not panic")));
        });
        if done.iter().any(|result| result.is_err()) {
            break;
        }
        work = rest;
    }
    for (n, result) in done.into_iter().enumerate() {
        match result {
            Ok(()) => {}
            Err(Refusal::Failed(e)) => return Err(e),
            Err(Refusal::Duplicate(row)) => {
                let index = indexes[n].name.clone();
                tell_duplicate(table, &index, &row, watch.duplicate)?;
                return Err(Error::DuplicateKey { index });
            }
        }
    }
    Ok(())
}

fn check_interrupt(interrupt: Option<&Arc<AtomicBool>>) -> Result<()> {
    // Acquire: pairs with the interrupter's store, as a waiter's load.
    match interrupt.is_some_and(|flag| flag.load(Ordering::Acquire)) {
        false => Ok(()),
        true => Err(Error::Interrupted),
    }
}

/// Scans the table.
fn sort_entries(
    table: &OpenTable,
    indexes: &[OpenIndex],
    room: &SortRoom,
    going_on: GoingOn<'_>,
) -> Result<Vec<Sorter>> {
    let memory = room.memory / indexes.len();
    let sorter = |index: &OpenIndex| {
        let path = room.dir.join(format!("{SORT_FILE_PREFIX}{}", index.id));
        Sorter::new(room.disk.clone(), path, memory)
    };
    let mut sorters: Vec<_> = indexes.iter().map(sorter).collect();
    let codecs: Vec<_> = indexes.iter().map(|index| &index.codec).collect();
    let longest = max_key(table.clustered.tree.page_size());
    let mut entry = Vec::new();
    let mut values = ExternalValues::default();
    scan(&table.clustered.tree, going_on, |key, payload| {
        let damaged = || {
            let index = &table.clustered;
            index.damage_at(key, "a row", "something else")
        };
        let record = RowRecord::decode(payload).ok_or_else(damaged)?;
        if record.is_deleted() {
            return Ok(());
        }
        let row = row_for_keys(table, None, &codecs, key, record.row, &mut values)?;
        let row = row.ok_or_else(damaged)?;
        for (index, sorter) in indexes.iter().zip(&mut sorters) {
            entry.clear();
            index.codec.encode_row(&row, &mut entry)?;
            entry.extend_from_slice(key);
            if entry.len() > longest {
                return Err(Error::TooLarge {
                    what: format!("a key of index {}", index.name),
                    size: entry.len(),
                    limit: longest,
                });
            }
            let record = EntryRecord {
                flags: 0,
                trx: record.trx,
                clustered_key_len: key.len() as u16,
            };
            let has_null = index
                .codec
                .columns()
                .any(|column| row.get(column).is_none());
            let mut payload = [0; ENTRY_LEN + 1];
            payload[..ENTRY_LEN].copy_from_slice(&record.encode());
            payload[ENTRY_LEN] = u8::from(has_null);
            sorter.push(&entry, &payload)?;
        }
        Ok(())
    })?;
    Ok(sorters)
}

/// Hands each record of a tree to `each`, in the order of their keys and without a latch, and asks before
/// each leaf whether to go on. Records that are there all the time are handed over once, whatever purge
/// removes and merges meanwhile.
fn scan(
    tree: &Tree,
    going_on: GoingOn<'_>,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let (mut page, mut low, mut key) = (Vec::new(), Vec::new(), Vec::new());
    let mut ahead = ReadAhead::default();
    loop {
        going_on()?;
        let leaf = tree.latch_leaf_shared(&low, Seek::Ge)?;
        page.clear();
        page.extend_from_slice(leaf.slotted().bytes());
        // The leaf may have been merged with the one before.
        let first = leaf.at;
        drop(leaf);
        let p = SlottedRef::new(&page);
        for slot in first..p.n_slots() {
            key.clear();
            key.extend_from_slice(p.prefix());
            key.extend_from_slice(p.key_suffix(slot));
            each(&key, p.payload(slot))?;
        }
        let Some(high) = p.high() else {
            return Ok(());
        };
        low.clear();
        low.extend_from_slice(high);
        let onward = Onward {
            from: &low,
            seek: Seek::Ge,
            bound: None,
        };
        tree.leaf_passed(&mut ahead, onward);
    }
}

fn load(
    index: &OpenIndex,
    sorter: Sorter,
    going_on: GoingOn<'_>,
) -> std::result::Result<(), Refusal> {
    let mut entries = sorter.finish()?;
    let mut loader = Loader::new(&index.tree)?;
    // The last entry, and how long its own key is, which may not come again; 0 if it may.
    let (mut last, mut own_len) = (Vec::new(), 0);
    let mut n = 0usize;
    while let Some((key, payload)) = entries.next_record()? {
        // A file of runs is read like any other.
        let damaged = || index.damage_at(key, "a sorted entry", "something else");
        let (record, has_null) = payload.split_at_checked(ENTRY_LEN).ok_or_else(damaged)?;
        if index.unique {
            let entry = EntryRecord::decode(record);
            let pk = entry.and_then(|entry| entry.clustered_key(key));
            let own = &key[..key.len() - pk.ok_or_else(damaged)?.len()];
            if own_len > 0 && last[..own_len] == *own {
                return Err(Refusal::Duplicate(last.split_off(own_len)));
            }
            own_len = if has_null == [0] { own.len() } else { 0 };
            last.clear();
            last.extend_from_slice(key);
        }
        loader.push(key, record)?;
        n += 1;
        if n.is_multiple_of(ASKED_EVERY) {
            going_on()?;
        }
    }
    loader.finish()?;
    Ok(())
}

fn tell_duplicate(
    table: &OpenTable,
    index: &str,
    key: &[u8],
    tell: &mut dyn FnMut(&str, &RowRef<'_>),
) -> Result<()> {
    let mut payload = Vec::new();
    if !read_leaf(&table.clustered, key, &mut payload)? {
        return Ok(());
    }
    let Some(record) = RowRecord::decode(&payload) else {
        return Ok(());
    };
    let all: Vec<_> = table.indexes().map(|index| &index.codec).collect();
    let mut values = ExternalValues::default();
    if let Some(row) = row_for_keys(table, None, &all, key, record.row, &mut values)? {
        tell(index, &row);
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::btree::removal_log_bytes;
    use crate::btree::tests::Fixture;
    use crate::mtr::Mtr;

    /// Removes nine of ten keys, and merges what it can.
    fn thin_out(f: &Fixture, keys: &[Vec<u8>]) {
        for key in keys {
            let mut mtr = Mtr::begin(&f.env, removal_log_bytes(1)).unwrap();
            let one = [&key[..]].into_iter();
            f.tree
                .remove_from_leaf(&mut mtr, None, one, |_, payload| payload[0] > 0)
                .unwrap();
            mtr.commit();
        }
        for key in keys {
            f.tree.maybe_merge(key).unwrap();
        }
    }

    #[test]
    fn records_are_read_once_while_leaves_are_merged() {
        let f = Fixture::new(4096, 300);
        let key = |n: u32| n.to_be_bytes().to_vec();
        let keys: Vec<_> = (0..3000).map(key).collect();
        let mut loader = Loader::new(&f.tree).unwrap();
        for (n, key) in keys.iter().enumerate() {
            loader.push(key, &[(n % 10) as u8; 20]).unwrap();
        }
        loader.finish().unwrap();
        let asked = Cell::new(0);
        let going_on = || {
            asked.set(asked.get() + 1);
            if asked.get() == 10 {
                thin_out(&f, &keys);
            }
            Ok(())
        };
        let found = RefCell::new(Vec::new());
        scan(&f.tree, &going_on, |key, payload| {
            if payload[0] == 0 {
                found.borrow_mut().push(key.to_vec());
            }
            Ok(())
        })
        .unwrap();
        let stay: Vec<_> = (0..3000).step_by(10).map(key).collect();
        assert!(found.into_inner() == stay);
    }
}
