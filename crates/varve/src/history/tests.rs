//! The store against ordered maps: members that come and go, keys that are changed again and again, copies in
//! the order in which purge makes them.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow, Range};

use proptest::collection::vec;
use proptest::prelude::*;
use varve_sim::try_cases;

use super::store::Found;
use super::version::{behind_versions, decode, encode};
use super::*;
use crate::base::{Error, FIRST_HISTORY_SPACE, IndexId, SpaceId, TrxNo};
use crate::btree::SharedLeaf;
use crate::btree::tests::Fixture;
use crate::page::{max_key, max_record};

/// A letter some times, then a number: many keys have long common beginnings.
#[derive(Clone, Debug)]
struct Key {
    index: u64,
    letter: u8,
    letters: u16,
    number: u8,
}

#[derive(Clone, Debug)]
enum Step {
    /// A transaction changes the record, which may be new, and commits.
    Write {
        key: Key,
        len: u16,
    },
    /// Changes a run of records, each in a transaction of its own.
    WriteRun {
        first: Key,
        count: u8,
        len: u16,
    },
    Join,
    /// One of the members leaves.
    Leave(u8),
    /// Purge goes on by so many commits; it may have copied the first ones before.
    Purge {
        commits: u8,
        again: bool,
    },
    Sweep,
    /// A range is read by one of the members.
    Read {
        member: u8,
        from: Key,
        to: Key,
        kinds: (u8, u8),
        backward: bool,
        most: u8,
    },
    Check,
}

fn key() -> impl Strategy<Value = Key> {
    let letters = prop_oneof![6 => 0..6u16, 3 => 0..60u16, 2 => 0..3500u16];
    (0..2u64, 0..3u8, letters, 0..30u8).prop_map(|(index, letter, letters, number)| Key {
        index,
        letter,
        letters,
        number,
    })
}

fn len() -> impl Strategy<Value = u16> {
    prop_oneof![6 => 0..100u16, 2 => 0..1000u16, 1 => any::<u16>()]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (key(), len()).prop_map(|(key, len)| Step::Write { key, len }),
        4 => (key(), any::<u8>(), len())
            .prop_map(|(first, count, len)| Step::WriteRun { first, count, len }),
        4 => Just(Step::Join),
        3 => any::<u8>().prop_map(Step::Leave),
        8 => (any::<u8>(), any::<bool>())
            .prop_map(|(commits, again)| Step::Purge { commits, again }),
        2 => Just(Step::Sweep),
        6 => (any::<u8>(), key(), key(), (0..3u8, 0..3u8), any::<bool>(), 0..9u8).prop_map(
            |(member, from, to, kinds, backward, most)| Step::Read {
                member, from, to, kinds, backward, most,
            }
        ),
        1 => Just(Step::Check),
    ]
}

fn case() -> impl Strategy<Value = (usize, Vec<Step>)> {
    let page_size = prop_oneof![5 => Just(4096), 1 => Just(16 << 10)];
    (page_size, vec(step(), 1..150))
}

type Place = (u64, Vec<u8>);

/// A version of a record, and who superseded it.
struct Past {
    place: Place,
    writer: TrxNo,
    superseder: TrxNo,
    record: Vec<u8>,
}

/// What is in the store: of which record, superseded by whom, for whom.
type Copies = BTreeMap<(Place, TrxNo), Members>;

struct Run {
    store: Store,
    page_size: usize,
    counter: u64,
    members: BTreeSet<TrxNo>,
    newest: BTreeMap<Place, (TrxNo, Vec<u8>)>,
    /// By superseder.
    past: Vec<Past>,
    /// So many of `past` are purged.
    purged: usize,
    copies: Copies,
    /// Its directory goes with it.
    _fixture: Fixture,
}

impl Run {
    fn new(page_size: usize) -> Run {
        let f = Fixture::new(page_size, 128);
        let store = Store::create(f.env.clone(), f.store.clone(), FIRST_HISTORY_SPACE);
        Run {
            store: store.expect("a store"),
            page_size,
            counter: 1,
            members: BTreeSet::new(),
            newest: BTreeMap::new(),
            past: Vec::new(),
            purged: 0,
            copies: Copies::new(),
            _fixture: f,
        }
    }

    fn place(&self, key: &Key) -> Place {
        let letters = usize::from(key.letters).min(max_key(self.page_size) - 2);
        let mut bytes = vec![b'a' + key.letter; letters];
        // No key is the beginning of another one.
        bytes.extend([0, key.number]);
        (key.index, bytes)
    }

    fn write(&mut self, key: &Key, len: u16) {
        let place = self.place(key);
        self.counter += 1;
        let no = TrxNo(self.counter);
        let len = usize::from(len).min(max_record(self.page_size) - place.1.len());
        let mut record = self.counter.to_le_bytes().to_vec();
        record.resize(len, self.counter as u8);
        if let Some((writer, before)) = self.newest.insert(place.clone(), (no, record)) {
            self.past.push(Past {
                place,
                writer,
                superseder: no,
                record: before,
            });
        }
    }

    fn members(&self) -> Vec<TrxNo> {
        self.members.iter().copied().collect()
    }

    fn purge(&mut self, commits: u8, again: bool) {
        let members = self.members();
        let from = match again {
            true => self.purged.saturating_sub(usize::from(commits) / 2),
            false => self.purged,
        };
        let end = (self.purged + usize::from(commits)).min(self.past.len());
        for n in from..end {
            let past = &self.past[n];
            let (index, key) = &past.place;
            let sees = |members: &[TrxNo]| members.partition_point(|c| *c <= past.writer);
            let of = Members::needing(&members, |member| *member, sees, past.superseder);
            let Some(of) = of else {
                continue;
            };
            let copied = (past.place.clone(), past.superseder);
            let expected = match self.copies.contains_key(&copied) {
                true => Put::Again,
                false => Put::Done,
            };
            let index = IndexId(*index);
            let has = self.store.has(index, key, past.superseder);
            assert_eq!(has.expect("a look"), expected == Put::Again);
            let put = self
                .store
                .put(index, key, past.superseder, of, Kind::Record, &past.record);
            assert_eq!(put.expect("room"), expected, "STORE-3");
            self.copies.entry(copied).or_insert(of);
        }
        self.purged = self.purged.max(end);
    }

    /// What the member reads of the record in the store.
    fn expected(&self, place: &Place, member: TrxNo) -> Option<Found> {
        let all = self.past[..self.purged].iter();
        let mut its = all.filter(|past| past.place == *place);
        let past = its.find(|past| past.writer < member && member <= past.superseder)?;
        Some(Found {
            kind: Kind::Record,
            record: past.record.clone(),
        })
    }

    fn is_needed(&self, of: Members) -> bool {
        self.members.range(of.least..=of.greatest).next().is_some()
    }

    fn sweep(&mut self) {
        let garbage = self.copies.values().filter(|of| !self.is_needed(**of));
        let garbage = garbage.count() as u64;
        let members = self.members();
        assert_eq!(self.store.garbage(&members), garbage, "STORE-4");
        let mut place = SweepPlace::default();
        let mut swept = 0;
        loop {
            // Leaf by leaf.
            let go_on = Cell::new(true);
            let part = self
                .store
                .sweep(&mut place, &members, || go_on.replace(false));
            let (removed, is_done) = part.expect("a sweep");
            swept += removed;
            if is_done {
                break;
            }
        }
        assert_eq!(swept, garbage, "STORE-2");
        let mut copies = std::mem::take(&mut self.copies);
        copies.retain(|_, of| self.is_needed(*of));
        self.copies = copies;
        assert_eq!(self.store.garbage(&members), 0);
    }

    fn nth_member(&self, n: u8) -> Option<TrxNo> {
        let n = usize::from(n).checked_rem(self.members.len())?;
        self.members.iter().nth(n).copied()
    }

    fn read(
        &self,
        member: TrxNo,
        from: &Place,
        to: &[u8],
        kinds: (u8, u8),
        backward: bool,
        most: u8,
    ) {
        let (index, from) = from;
        let bound = |kind, key| match kind {
            0 => Bound::Included(key),
            1 => Bound::Excluded(key),
            _ => Bound::Unbounded,
        };
        let range = (bound(kinds.0, &from[..]), bound(kinds.1, to));
        let keys: BTreeSet<&Vec<u8>> = self
            .newest
            .keys()
            .filter(|k| k.0 == *index)
            .map(|k| &k.1)
            .collect();
        let is_within = |key: &Vec<u8>| std::ops::RangeBounds::contains(&range, &&key[..]);
        let mut expected: Vec<(Vec<u8>, Found)> = keys
            .into_iter()
            .filter(|key| is_within(key))
            .filter_map(|key| Some((key.clone(), self.expected(&(*index, key.clone()), member)?)))
            .collect();
        if backward {
            expected.reverse();
        }
        let most = usize::from(most);
        let mut found = Vec::new();
        let mut take = |leaf: &SharedLeaf<'_>, slots: Range<usize>| {
            let p = leaf.slotted();
            let mut slots: Vec<usize> = slots.collect();
            if backward {
                slots.reverse();
            }
            for slot in slots {
                let (suffix, payload) = p.entry(slot);
                let (key, version) = version_in(leaf, p.prefix(), suffix, payload)?;
                if !version.members.contain(member) {
                    continue;
                }
                found.push((key.to_vec(), Found::from(version)));
                if found.len() >= most {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        };
        self.store
            .visit_leaves(IndexId(*index), range, backward, &mut take)
            .expect("a read");
        expected.truncate(most.max(1));
        assert_eq!(found, expected);
    }

    fn check(&self) {
        self.store.check();
        assert_eq!(self.store.versions(), self.copies.len() as u64);
        for member in &self.members {
            for place in self.newest.keys() {
                let found = self.store.find(IndexId(place.0), &place.1, *member);
                assert_eq!(
                    found.expect("a look"),
                    self.expected(place, *member),
                    "{member}"
                );
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Write { key, len } => self.write(key, *len),
            Step::WriteRun { first, count, len } => {
                for n in 0..*count {
                    let number = first.number.wrapping_add(n);
                    let key = Key {
                        number,
                        ..first.clone()
                    };
                    self.write(&key, *len);
                }
            }
            Step::Join => {
                self.counter += 1;
                self.members.insert(TrxNo(self.counter));
            }
            Step::Leave(n) => {
                if let Some(member) = self.nth_member(*n) {
                    self.members.remove(&member);
                }
            }
            Step::Purge { commits, again } => self.purge(*commits, *again),
            Step::Sweep => self.sweep(),
            Step::Read {
                member,
                from,
                to,
                kinds,
                backward,
                most,
            } => {
                if let Some(member) = self.nth_member(*member) {
                    let (from, to) = (self.place(from), self.place(to));
                    let (low, high) = match from.1 <= to.1 {
                        true => (from.1, to.1),
                        false => (to.1, from.1),
                    };
                    // Of equal bounds one that is left out leaves nothing, which is no range of a reader.
                    if low < high {
                        self.read(member, &(from.0, low), &high, *kinds, *backward, *most);
                    }
                }
            }
            Step::Check => self.check(),
        }
    }
}

/// STORE-1, STORE-2, STORE-3, STORE-4.
#[test]
fn the_store_behaves_like_ordered_maps() {
    let (copied, swept) = (Cell::new(0), Cell::new(0));
    try_cases(100, case(), |(page_size, steps)| {
        let mut run = Run::new(page_size);
        steps.iter().for_each(|step| run.step(step));
        run.check();
        let before = run.copies.len();
        copied.update(|n| n + before);
        run.members = run.members.iter().copied().step_by(2).collect();
        run.sweep();
        run.check();
        run.members.clear();
        run.sweep();
        run.check();
        assert!(run.copies.is_empty());
        swept.update(|n| n + before);
        let pages = run.store.bytes().expect("a count") / run.page_size as u64;
        assert!(pages <= 2 + 2, "{pages} pages are left of two empty trees");
        run.store.discard().expect("no file");
    });
    println!("{} versions copied", copied.get());
    assert!(copied.get() > 300 && swept.get() > 300);
}

fn write_some(store: &Store, n: u64, len: usize) -> Result<u64, Error> {
    let of = Members {
        least: TrxNo(5),
        greatest: TrxNo(7),
    };
    for i in 0..n {
        let key = i.to_be_bytes();
        store.put(IndexId(3), &key, TrxNo(9), of, Kind::Record, &vec![1; len])?;
    }
    Ok(n)
}

/// STORE-5: a full store refuses, and goes on once there is room.
#[test]
fn a_full_store_refuses() {
    let f = Fixture::new(4096, 128);
    let store = Store::create(f.env.clone(), f.store.clone(), FIRST_HISTORY_SPACE).unwrap();
    store.set_max_bytes(400 << 10);
    let refused = write_some(&store, 10_000, 100).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    assert!(store.bytes().unwrap() < 420 << 10);
    let versions = store.versions();
    store.check();
    let mut place = SweepPlace::default();
    store.sweep(&mut place, &[TrxNo(8)], || true).unwrap();
    assert_eq!(store.versions(), 0);
    assert_eq!(
        write_some(&store, versions - 10, 100).unwrap(),
        versions - 10
    );
    store.check();
}

/// What an index had is given back with it, and a store after it has another tablespace.
#[test]
fn indexes_and_stores_go() {
    let f = Fixture::new(4096, 128);
    let store = Store::create(f.env.clone(), f.store.clone(), FIRST_HISTORY_SPACE).unwrap();
    write_some(&store, 1000, 50).unwrap();
    assert!(
        store
            .find(IndexId(3), &7u64.to_be_bytes(), TrxNo(6))
            .unwrap()
            .is_some()
    );
    assert_eq!(
        store
            .find(IndexId(3), &7u64.to_be_bytes(), TrxNo(8))
            .unwrap(),
        None
    );
    store.forget(IndexId(3)).unwrap();
    store.forget(IndexId(3)).unwrap();
    assert_eq!(store.versions(), 0);
    assert_eq!(
        store
            .find(IndexId(3), &7u64.to_be_bytes(), TrxNo(6))
            .unwrap(),
        None
    );
    store.check();
    write_some(&store, 1000, 50).unwrap();
    store.discard().unwrap();
    let next = SpaceId(FIRST_HISTORY_SPACE.0 + 1);
    let store = Store::create(f.env.clone(), f.store.clone(), next).unwrap();
    assert_eq!(
        store
            .find(IndexId(3), &7u64.to_be_bytes(), TrxNo(6))
            .unwrap(),
        None
    );
    write_some(&store, 1000, 50).unwrap();
    store.check();
}

/// The largest rows and keys that any tree takes.
#[test]
fn the_largest_record_has_its_place() {
    for page_size in [4096, 8192, 16 << 10, 32 << 10, 64 << 10] {
        let f = Fixture::new(page_size, 128);
        let store = Store::create(f.env.clone(), f.store.clone(), FIRST_HISTORY_SPACE).unwrap();
        let of = Members {
            least: TrxNo(1),
            greatest: TrxNo(1),
        };
        let mut key = vec![7; max_key(page_size)];
        let len = max_record(page_size) - key.len();
        for i in 0..40u64 {
            let at = key.len() - 8;
            key[at..].copy_from_slice(&(i / 2).to_be_bytes());
            let put = store.put(
                IndexId(3),
                &key,
                TrxNo(i + 2),
                of,
                Kind::Record,
                &vec![2; len],
            );
            assert_eq!(put.unwrap(), Put::Done);
        }
        // Two versions of each key: STORE-1 would not have them for one member.
        assert!(behind_versions(&key) > key);
        assert_eq!(store.versions(), 40);
    }
}

/// However the keys of a leaf are cut, versions are compared like whole keys.
#[test]
fn keys_in_pieces() {
    let keys: [&[u8]; 8] = [
        b"same-a",
        b"same-aaaaaaaa",
        b"same-aaaaaaaab",
        b"same-aaaaaaab",
        b"same-b",
        b"same-baaaaaaa\xff",
        b"same-b\0",
        b"same-\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    for (key, other) in keys.iter().flat_map(|key| keys.map(|other| (*key, other))) {
        let whole = VersionOf::whole(key);
        for n in 0..=5 {
            assert_eq!(whole.compare_behind(n, &other[n..]), key.cmp(other));
            let stored = [key, &[7; 8]].concat();
            for cut in 0..=key.len() {
                let pieces = VersionOf::split(&stored[..cut], &stored[cut..]).expect("a key");
                assert_eq!(pieces.to_vec(), key);
                assert_eq!(pieces.compare_behind(n, &other[n..]), key.cmp(other));
            }
        }
    }
}

/// Versions are what they were, whatever their numbers are; what is cut off or altered is none, or another
/// one, and nothing worse.
#[test]
fn versions_are_encoded_and_decoded() {
    let numbers = [0, 1, 255, 256, 65_535, 1 << 16, 1 << 24, (1 << 56) - 1].map(TrxNo);
    let pairs = numbers
        .iter()
        .flat_map(|least| numbers.map(|greatest| (*least, greatest)));
    for (least, greatest) in pairs.filter(|(least, greatest)| least <= greatest) {
        let members = Members { least, greatest };
        for (kind, record) in [
            (Kind::Record, &b"a record of some length"[..]),
            (Kind::Record, b""),
            (Kind::Damaged, b""),
        ] {
            let mut payload = Vec::new();
            encode(members, kind, record, &mut payload);
            let version = decode(&payload).expect("a version");
            assert_eq!((version.members, version.kind), (members, kind));
            assert_eq!(version.record, record);
            assert_eq!(head_len(&payload), payload.len() - record.len());
            for cut in 0..head_len(&payload) {
                assert!(decode(&payload[..cut]).is_none());
            }
            for first in 0..=255 {
                payload[0] = first;
                let _ = decode(&payload);
            }
        }
    }
}
