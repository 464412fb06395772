//! The store's trees: putting, finding and sweeping versions.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};

use crate::base::{Error, IndexId, Result, SpaceId, TableId, TrxNo};
use crate::btree::{Seek, SharedLeaf, Tree};
use crate::encryption::Encryption;
use crate::mtr::{Mtr, MtrEnv};
use crate::page::record_cost;
use crate::space::{DefinitionCopy, NewSpace, Space, SpaceKind, Spaces};

use super::version::{
    Kind, Members, Version, VersionOf, behind_versions, decode, encode, split_key, version_key,
};

/// The store's file, relative to the data directory. It is no table's, and no start looks for it.
pub const HISTORY_FILE: &str = "history.store";
/// Its pages to begin with.
const FIRST_PAGES: u32 = 64;

/// A version's key, or a fence.
type Key = Vec<u8>;

/// What came of putting a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    Done,
    /// It was there already (STORE-3).
    Again,
}

/// A version that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    pub kind: Kind,
    pub record: Vec<u8>,
}

/// Where a sweep goes on.
#[derive(Default)]
pub struct SweepPlace {
    index: IndexId,
    from: Vec<u8>,
}

/// Some versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    pub versions: u64,
    /// Of their records in the trees.
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, other: Amount) {
        self.versions += other.versions;
        self.bytes += other.bytes;
    }

    fn remove(&mut self, other: Amount) {
        self.versions -= other.versions;
        self.bytes -= other.bytes;
    }

    fn one(key: &[u8], payload: &[u8]) -> Amount {
        Amount {
            versions: 1,
            bytes: record_cost(key.len(), payload.len()) as u64,
        }
    }
}

/// How many versions there are, and for whom.
#[derive(Default)]
struct Counts {
    all: Amount,
    by_members: HashMap<Members, Amount>,
}

/// Versions for the members that there are. Cheap to share; whoever reads or copies holds it.
pub struct Store {
    env: Arc<MtrEnv>,
    spaces: Arc<Spaces>,
    space: Arc<Space>,
    trees: RwLock<BTreeMap<IndexId, Arc<Tree>>>,
    counts: Mutex<Counts>,
    /// STORE-5. Relaxed: it stands for itself.
    max_bytes: AtomicU64,
}

impl Store {
    /// Makes an empty store in a tablespace of its own, in the place of an earlier process's.
    pub fn create(env: Arc<MtrEnv>, spaces: Arc<Spaces>, id: SpaceId) -> Result<Store> {
        let space = spaces.create(NewSpace {
            id,
            path: HISTORY_FILE,
            kind: SpaceKind::Temp,
            table: TableId(0),
            definition: DefinitionCopy::default(),
            pages: FIRST_PAGES,
            target: None,
            compression: None,
            encryption: Encryption::default(),
        })?;
        Ok(Store {
            env,
            spaces,
            space,
            trees: RwLock::default(),
            counts: Mutex::default(),
            max_bytes: AtomicU64::new(u64::MAX),
        })
    }

    /// Gives all of it back at once. Nobody reads or copies any more.
    pub fn discard(self) -> Result<()> {
        let id = self.space.id();
        self.spaces.drop_space(id)?;
        self.env.pool.drop_space(id);
        Ok(())
    }

    /// An error if its file has failed: what was copied can't be relied on.
    pub fn check_usable(&self) -> Result<()> {
        self.space.check_not_lost()
    }

    /// Nothing of it can be relied on, or `e` says that a page can't be read: then that holds from here on.
    pub fn is_lost_by(&self, e: &Error) -> bool {
        self.spaces.loses(self.space.id(), e)
    }

    /// Changes the limit (STORE-5). What is there already stays.
    pub fn set_max_bytes(&self, max: u64) {
        self.max_bytes.store(max, Relaxed);
    }

    /// Bytes in use.
    pub fn bytes(&self) -> Result<u64> {
        let pages = self.space.used_pages(&self.env)?;
        Ok(u64::from(pages) * self.page_size() as u64)
    }

    pub(super) fn page_size(&self) -> usize {
        self.env.pool.page_size()
    }

    /// How many versions there are.
    pub fn versions(&self) -> u64 {
        self.counts.lock().all.versions
    }

    /// What is here.
    pub fn amount(&self) -> Amount {
        self.counts.lock().all
    }

    /// How many versions none of `members`, which are in order, needs any more (STORE-4).
    pub fn garbage(&self, members: &[TrxNo]) -> u64 {
        let counts = self.counts.lock();
        let by_members = counts.by_members.iter();
        let garbage = by_members.filter(|(of, _)| is_garbage(**of, members));
        garbage.map(|(_, amount)| amount.versions).sum()
    }

    /// What is here for this member, and maybe for others, too.
    pub fn amount_for(&self, member: TrxNo) -> Amount {
        let counts = self.counts.lock();
        let mut sum = Amount::default();
        let its = counts
            .by_members
            .iter()
            .filter(|(of, _)| of.contain(member));
        its.for_each(|(_, amount)| sum.add(*amount));
        sum
    }

    /// Keeps a version of the record `key`, which `superseder` replaced, for `members`. One thread at a time
    /// does that for a key.
    ///
    /// # Errors
    ///
    /// `NoSpace` if the store is full or the disk is: nothing happened.
    pub fn put(
        &self,
        index: IndexId,
        key: &[u8],
        superseder: TrxNo,
        members: Members,
        kind: Kind,
        record: &[u8],
    ) -> Result<Put> {
        // Before anything is asked for: a leaf may have no room for the version beside itself.
        if self.has(index, key, superseder)? {
            return Ok(Put::Again);
        }
        self.put_new(index, key, superseder, members, kind, record)?;
        Ok(Put::Done)
    }

    /// The same for a version that is not there.
    pub fn put_new(
        &self,
        index: IndexId,
        key: &[u8],
        superseder: TrxNo,
        members: Members,
        kind: Kind,
        record: &[u8],
    ) -> Result<()> {
        assert!(
            members.least <= members.greatest && members.greatest <= superseder,
            "STORE-1: a version that {superseder} superseded, for {members:?}"
        );
        self.check_room()?;
        let tree = self.tree_or_new(index)?;
        let key = version_key(key, superseder);
        let mut payload = Vec::new();
        encode(members, kind, record, &mut payload);
        let mut mtr = Mtr::begin_in(&self.env, self.space.id(), 0)?;
        let room = record_cost(key.len(), payload.len());
        let mut at = tree.latch_leaf_to_insert(&mut mtr, &key, room, None, None)?;
        assert!(
            !at.found,
            "STORE-3: two threads copy the version of one key"
        );
        at.insert(&mut mtr, &key, &payload);
        // Before anybody can find it, and remove it.
        let one = Amount::one(&key, &payload);
        let mut counts = self.counts.lock();
        counts.all.add(one);
        counts.by_members.entry(members).or_default().add(one);
        drop(counts);
        mtr.commit();
        Ok(())
    }

    /// Whether the version of the record `key` that `superseder` replaced is there.
    pub fn has(&self, index: IndexId, key: &[u8], superseder: TrxNo) -> Result<bool> {
        let Some(tree) = self.tree(index) else {
            return Ok(false);
        };
        let leaf = tree.latch_leaf_shared(&version_key(key, superseder), Seek::Ge)?;
        Ok(leaf.exact)
    }

    /// The version of the record `key` that the member reads; `None`: it sees no such record.
    pub fn find(&self, index: IndexId, key: &[u8], member: TrxNo) -> Result<Option<Found>> {
        let Some(tree) = self.tree(index) else {
            return Ok(None);
        };
        let mut leaf = tree.latch_leaf_shared(&version_key(key, member), Seek::Ge)?;
        // The leaf with the place may end before the version.
        while leaf.at == leaf.slotted().n_slots() {
            let Some(high) = leaf.slotted().high().map(<[u8]>::to_vec) else {
                return Ok(None);
            };
            drop(leaf);
            leaf = tree.latch_leaf_shared(&high, Seek::Ge)?;
        }
        let found = leaf.slotted().key(leaf.at);
        let (found_key, _) = self.split(&leaf, &found)?;
        let version = self.decode(&leaf, leaf.at)?;
        // STORE-1.
        let is_it = found_key == key && version.members.contain(member);
        Ok(is_it.then(|| version.into()))
    }

    /// Goes over the leaves with versions of the records with keys from `from` up to `to`, in the order of
    /// the keys or, `backward`, the other way round, until `f`, which gets each leaf latched and which of its
    /// slots those are, says `Break`. Bounds are keys or fences.
    pub fn visit_leaves(
        &self,
        index: IndexId,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        backward: bool,
        mut f: impl FnMut(&SharedLeaf<'_>, Range<usize>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let Some(tree) = self.tree(index) else {
            return Ok(());
        };
        // Behind all versions of a key that is left out at the lower end, or taken in at the upper end.
        let lowest = match from {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => behind_versions(key),
        };
        let end = match to {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(behind_versions(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
        };
        let end = end.as_deref();
        let mut leaf = match (backward, end) {
            (false, _) => tree.latch_leaf_shared(&lowest, Seek::Ge)?,
            (true, Some(end)) => tree.latch_leaf_shared(end, Seek::Lt)?,
            (true, None) => tree.latch_last_leaf()?,
        };
        loop {
            let p = leaf.slotted();
            let slots = slots_within(&leaf, (&lowest, end), backward);
            let next = match backward {
                true => Some(p.low()).filter(|low| !low.is_empty() && **low > *lowest),
                false => p.high().filter(|high| end.is_none_or(|end| *high < end)),
            };
            let next = next.map(<[u8]>::to_vec);
            if f(&leaf, slots)?.is_break() {
                return Ok(());
            }
            let Some(next) = next else {
                return Ok(());
            };
            drop(leaf);
            let seek = if backward { Seek::Lt } else { Seek::Ge };
            leaf = tree.latch_leaf_shared(&next, seek)?;
        }
    }

    /// Visits all versions of the records with keys from `from` up to `to`, in the order of the keys, until
    /// `f`, which gets the records' keys, says `Break`. A page of the store is latched meanwhile.
    pub fn visit(
        &self,
        index: IndexId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        mut f: impl FnMut(VersionOf<'_>, Version<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.visit_leaves(index, range, false, |leaf, slots| {
            let p = leaf.slotted();
            for slot in slots {
                let (suffix, payload) = p.entry(slot);
                let (key, version) = version_in(leaf, p.prefix(), suffix, payload)?;
                if f(key, version).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Removes what none of `members`, which are in order, needs any more (STORE-2), from `place` on, which
    /// is where it goes on then. `go_on` is asked between two leaves. Returns how many versions went, and
    /// whether it has come to the end.
    pub fn sweep(
        &self,
        place: &mut SweepPlace,
        members: &[TrxNo],
        mut go_on: impl FnMut() -> bool,
    ) -> Result<(u64, bool)> {
        let mut removed = 0;
        loop {
            let next = self
                .trees
                .read()
                .range(place.index..)
                .next()
                .map(|(id, t)| (*id, t.clone()));
            let Some((index, tree)) = next else {
                *place = SweepPlace::default();
                return Ok((removed, true));
            };
            if index != place.index {
                *place = SweepPlace {
                    index,
                    from: Vec::new(),
                };
            }
            if !go_on() {
                return Ok((removed, false));
            }
            let (garbage, next) = self.garbage_in_leaf(&tree, &place.from, members)?;
            if !garbage.is_empty() {
                removed += self.remove(&tree, &garbage, members)?;
            }
            match next {
                Some(next) => place.from = next,
                None => {
                    *place = SweepPlace {
                        index: IndexId(index.0 + 1),
                        from: Vec::new(),
                    }
                }
            }
        }
    }

    /// Forgets an index and its versions: its table is gone. Nobody looks for them any more.
    pub fn forget(&self, index: IndexId) -> Result<()> {
        let Some(tree) = self.trees.write().remove(&index) else {
            return Ok(());
        };
        let mut from = Vec::new();
        loop {
            let leaf = tree.latch_leaf_shared(&from, Seek::Ge)?;
            let p = leaf.slotted();
            for slot in leaf.at..p.n_slots() {
                let one = Amount::one(&p.key(slot), p.payload(slot));
                self.count_removed(self.decode(&leaf, slot)?.members, one);
            }
            let Some(high) = p.high() else {
                break;
            };
            from = high.to_vec();
        }
        tree.discard()
    }

    /// The keys of garbage in the leaf that covers `from`, and where the next one begins.
    fn garbage_in_leaf(
        &self,
        tree: &Tree,
        from: &[u8],
        members: &[TrxNo],
    ) -> Result<(Vec<Key>, Option<Key>)> {
        let leaf = tree.latch_leaf_shared(from, Seek::Ge)?;
        let p = leaf.slotted();
        let mut garbage = Vec::new();
        for slot in leaf.at..p.n_slots() {
            if is_garbage(self.decode(&leaf, slot)?.members, members) {
                garbage.push(p.key(slot));
            }
        }
        Ok((garbage, p.high().map(<[u8]>::to_vec)))
    }

    fn remove(&self, tree: &Tree, garbage: &[Key], members: &[TrxNo]) -> Result<u64> {
        let mut rest = garbage;
        let mut removed = 0;
        // Usually one leaf, unless that was split meanwhile.
        while let Some(first) = rest.first() {
            let mut mtr = Mtr::begin_in(&self.env, self.space.id(), 0)?;
            let keys = rest.iter().map(Vec::as_slice);
            let visit = tree.remove_from_leaf(&mut mtr, None, keys, |n, payload| {
                let of = decode(payload).map(|version| version.members);
                let goes = of.filter(|of| is_garbage(*of, members));
                if let Some(of) = goes {
                    self.count_removed(of, Amount::one(&rest[n], payload));
                }
                goes.is_some()
            })?;
            mtr.commit();
            if visit.is_sparse {
                tree.maybe_merge(first)?;
            }
            removed += visit.removed as u64;
            rest = &rest[visit.covered..];
        }
        Ok(removed)
    }

    fn count_removed(&self, of: Members, one: Amount) {
        let mut counts = self.counts.lock();
        counts.all.remove(one);
        let left = counts.by_members.get_mut(&of).expect("STORE-4");
        left.remove(one);
        if left.versions == 0 {
            counts.by_members.remove(&of);
        }
    }

    /// STORE-5.
    fn check_room(&self) -> Result<()> {
        let (used, max) = (self.bytes()?, self.max_bytes.load(Relaxed));
        if used < max {
            return Ok(());
        }
        Err(Error::NoSpace {
            what: format!("the history store has {used} bytes of at most {max}"),
        })
    }

    fn tree(&self, index: IndexId) -> Option<Arc<Tree>> {
        self.trees.read().get(&index).cloned()
    }

    fn tree_or_new(&self, index: IndexId) -> Result<Arc<Tree>> {
        if let Some(tree) = self.tree(index) {
            return Ok(tree);
        }
        let mut trees = self.trees.write();
        if let Some(tree) = trees.get(&index) {
            return Ok(tree.clone());
        }
        let reserved = self.space.reserve(&self.env, 1)?;
        let mut mtr = Mtr::begin_in(&self.env, self.space.id(), 0)?;
        let root = Tree::create(&mut mtr, &self.space, index)?;
        mtr.commit();
        drop(reserved);
        let tree = Tree::open(self.env.clone(), self.space.clone(), root, index);
        let tree = Arc::new(tree.of_versions());
        trees.insert(index, tree.clone());
        Ok(tree)
    }

    fn split<'k>(&self, leaf: &SharedLeaf<'_>, key: &'k [u8]) -> Result<(&'k [u8], TrxNo)> {
        split_key(key).ok_or_else(|| no_version_key(leaf, key.len()))
    }

    fn decode<'l>(&self, leaf: &'l SharedLeaf<'_>, slot: usize) -> Result<Version<'l>> {
        let payload = leaf.slotted().payload(slot);
        decode(payload).ok_or_else(|| no_version(leaf, payload.len()))
    }

    /// The pages are in use that the trees have, the trees are sound, the counts are right (STORE-4), and
    /// members of a key's versions follow each other (STORE-1).
    #[cfg(test)]
    pub fn check(&self) {
        let mut counts = Counts::default();
        let mut pages = 0;
        for tree in self.trees.read().values() {
            let mut last: Option<(Vec<u8>, TrxNo)> = None;
            let report = tree.check(&mut |key, payload| {
                let one = Amount::one(key, payload);
                let (key, no) = split_key(key).expect("a version's key");
                let of = decode(payload).expect("a version").members;
                if let Some((before, before_no)) = &last {
                    assert!(before != key || of.least > *before_no, "STORE-1");
                }
                assert!(of.greatest <= no, "STORE-1");
                last = Some((key.to_vec(), no));
                counts.all.add(one);
                counts.by_members.entry(of).or_default().add(one);
                Ok(())
            });
            let report = report.expect("a check");
            assert_eq!(report.errors, Vec::<String>::new());
            pages += report.pages.len() as u32;
        }
        let known = self.counts.lock();
        assert_eq!(known.all, counts.all, "STORE-4");
        assert_eq!(known.by_members, counts.by_members, "STORE-4");
        let used = self.space.used_pages(&self.env).expect("a count");
        assert_eq!(used, 2 + pages, "pages of trees, and the tablespace's own");
    }
}

impl From<Version<'_>> for Found {
    fn from(version: Version<'_>) -> Found {
        Found {
            kind: version.kind,
            record: version.record.to_vec(),
        }
    }
}

/// A record of a leaf of the store, or of a copy of it, taken apart.
#[inline]
pub fn version_in<'b>(
    leaf: &SharedLeaf<'_>,
    prefix: &'b [u8],
    suffix: &'b [u8],
    payload: &'b [u8],
) -> Result<(VersionOf<'b>, Version<'b>)> {
    let version = decode(payload).ok_or_else(|| no_version(leaf, payload.len()))?;
    let key = VersionOf::split(prefix, suffix);
    Ok((
        key.ok_or_else(|| no_version_key(leaf, suffix.len()))?,
        version,
    ))
}

#[cold]
fn no_version(leaf: &SharedLeaf<'_>, len: usize) -> Error {
    Error::corrupt(leaf.page_id(), "a version", format!("{len} bytes"))
}

#[cold]
fn no_version_key(leaf: &SharedLeaf<'_>, len: usize) -> Error {
    let found = format!("a key of {len} bytes");
    Error::corrupt(leaf.page_id(), "a version's key", found)
}

/// The slots of a leaf with keys from `lowest` to `end`, as far as a search in this direction from where it
/// is at goes.
fn slots_within(
    leaf: &SharedLeaf<'_>,
    (lowest, end): (&[u8], Option<&[u8]>),
    backward: bool,
) -> Range<usize> {
    let p = leaf.slotted();
    let at = |key: &[u8]| {
        let (Ok(at) | Err(at)) = p.search(key);
        at
    };
    match (backward, end) {
        (true, _) if p.low() < lowest => at(lowest).min(leaf.at)..leaf.at,
        (true, _) => 0..leaf.at,
        (false, Some(end)) if p.high().is_none_or(|high| high > end) => {
            leaf.at..at(end).max(leaf.at)
        }
        (false, _) => leaf.at..p.n_slots(),
    }
}

/// STORE-2. `members` are in order.
fn is_garbage(of: Members, members: &[TrxNo]) -> bool {
    let next = members.partition_point(|member| *member < of.least);
    members.get(next).is_none_or(|member| *member > of.greatest)
}
