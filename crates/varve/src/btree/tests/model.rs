//! A tree against a sorted map: what it finds, in both directions; that it is sound; that no page leaks; and
//! that its log alone rebuilds it. Cases are made smaller by `varve_sim::try_cases`.

use std::cell::Cell;

use proptest::collection::vec;
use proptest::prelude::*;
use varve_sim::try_cases;

use super::*;
use crate::mtr::replay::apply_frame;
use crate::page::{max_key, max_record};
use crate::redo::RedoReader;

/// Some bytes of one letter, then a number: many keys have long common beginnings. Cut to what a page takes.
#[derive(Clone, Debug)]
struct Key {
    letter: u8,
    letters: u16,
    number: u16,
}

#[derive(Clone, Debug)]
enum Step {
    /// Inserts the key, or replaces its payload.
    Put { key: Key, len: u16 },
    /// Inserts `count` keys one after the other, upward or downward.
    PutRun {
        first: Key,
        count: u8,
        up: bool,
        len: u16,
    },
    /// Removes the key, or tries to.
    Remove(Key),
    /// Removes up to `count` keys that are there, from the nearest one on.
    RemoveRun { first: Key, count: u8, up: bool },
    /// Removes the garbage among up to `count` records from here on, leaf by leaf.
    RemoveGarbage { first: Key, count: u8 },
    /// Reads some keys from here on, in all four ways.
    Seek(Key),
    /// Looks at every page.
    Check,
}

#[derive(Clone, Debug)]
struct Case {
    page_size: usize,
    is_dense: bool,
    steps: Vec<Step>,
}

fn key() -> impl Strategy<Value = Key> {
    let letters = prop_oneof![6 => 0..6u16, 3 => 0..60u16, 2 => 0..400u16, 2 => 0..3500u16];
    (0..3u8, letters, prop_oneof![0..40u16, any::<u16>()]).prop_map(|(letter, letters, number)| {
        Key {
            letter,
            letters,
            number,
        }
    })
}

/// Of payloads; cut to what a page takes.
fn len() -> impl Strategy<Value = u16> {
    prop_oneof![6 => 0..100u16, 2 => 0..1000u16, 1 => any::<u16>()]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (key(), len()).prop_map(|(key, len)| Step::Put { key, len }),
        4 => (key(), any::<u8>(), any::<bool>(), len())
            .prop_map(|(first, count, up, len)| Step::PutRun { first, count, up, len }),
        6 => key().prop_map(Step::Remove),
        4 => (key(), any::<u8>(), any::<bool>())
            .prop_map(|(first, count, up)| Step::RemoveRun { first, count, up }),
        4 => (key(), any::<u8>()).prop_map(|(first, count)| Step::RemoveGarbage { first, count }),
        4 => key().prop_map(Step::Seek),
        1 => Just(Step::Check),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let page_size = prop_oneof![5 => Just(4096), 1 => Just(16 << 10), 1 => Just(64 << 10)];
    (page_size, any::<bool>(), vec(step(), 1..120)).prop_map(|(page_size, is_dense, steps)| Case {
        page_size,
        is_dense,
        steps,
    })
}

/// What a case did.
#[derive(Default)]
struct Reached {
    height: Cell<u32>,
    splits: Cell<u64>,
    merges: Cell<u64>,
    shifts: Cell<u64>,
}

pub(super) struct Run {
    pub(super) f: Fixture,
    pub(super) model: Model,
    page_size: usize,
    /// How many payloads there were: no two are equal.
    payloads: u64,
}

impl Run {
    pub(super) fn new(page_size: usize, frames: usize) -> Run {
        Run::on(Fixture::new(page_size, frames))
    }

    fn on(f: Fixture) -> Run {
        Run {
            page_size: f.tree.page_size(),
            f,
            model: Model::new(),
            payloads: 0,
        }
    }

    fn key(&self, key: &Key) -> Vec<u8> {
        let letters = usize::from(key.letters).min(max_key(self.page_size) - 2);
        let mut bytes = vec![b'a' + key.letter; letters];
        bytes.extend(key.number.to_be_bytes());
        bytes
    }

    pub(super) fn put(&mut self, key: Vec<u8>, len: u16) {
        self.payloads += 1;
        let len = usize::from(len).min(max_record(self.page_size) - key.len());
        let mut payload = self.payloads.to_le_bytes().to_vec();
        payload.resize(len, self.payloads as u8);
        put_in_both(&self.f.tree, &mut self.model, key, payload);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Put { key, len } => self.put(self.key(key), *len),
            Step::PutRun {
                first,
                count,
                up,
                len,
            } => {
                for n in 0..u16::from(*count) {
                    let number = match up {
                        true => first.number.saturating_add(n),
                        false => first.number.saturating_sub(n),
                    };
                    let key = Key {
                        number,
                        ..first.clone()
                    };
                    self.put(self.key(&key), *len);
                }
            }
            Step::Remove(key) => {
                let key = self.key(key);
                let was_there = self.model.remove(&key).is_some();
                assert_eq!(remove(&self.f.tree, &key), was_there);
            }
            Step::RemoveRun { first, count, up } => {
                let first = self.key(first);
                let count = usize::from(*count);
                let keys: Vec<_> = match up {
                    true => self.model.range(first..).take(count).collect(),
                    false => self.model.range(..=first).rev().take(count).collect(),
                };
                let keys: Vec<_> = keys.into_iter().map(|(key, _)| key.clone()).collect();
                for key in keys {
                    assert!(remove(&self.f.tree, &key), "{key:02x?} is not there");
                    self.model.remove(&key);
                }
            }
            Step::RemoveGarbage { first, count } => {
                let first = self.key(first);
                let there = self
                    .model
                    .range(first.clone()..)
                    .map(|(key, _)| key.clone());
                // One that may not be there; and each may come twice.
                let keys = [first.clone()]
                    .into_iter()
                    .chain(there.take((*count).into()));
                let keys: Vec<_> = keys.flat_map(|key| [key.clone(), key]).collect();
                let is_garbage = |payload: &[u8]| payload.first().is_none_or(|byte| byte % 4 > 0);
                let removed = remove_garbage(&self.f.tree, &keys, is_garbage);
                let before = self.model.len();
                self.model.retain(|key, payload| {
                    keys.binary_search(key).is_err() || !is_garbage(payload)
                });
                assert_eq!(removed, before - self.model.len());
            }
            Step::Seek(key) => self.check_seeks(&self.key(key)),
            Step::Check => {
                self.f.check_is(&self.model);
            }
        }
    }

    fn check_seeks(&self, key: &[u8]) {
        const SOME: usize = 20;
        let is = |k: &&Vec<u8>| **k == key;
        let up = || self.model.range(key.to_vec()..).map(|(k, _)| k);
        let down = || self.model.range(..=key.to_vec()).rev().map(|(k, _)| k);
        let some = |keys: &mut dyn Iterator<Item = &Vec<u8>>| -> Vec<Vec<u8>> {
            keys.take(SOME).cloned().collect()
        };
        for (seek, expected) in [
            (Seek::Ge, some(&mut up())),
            (Seek::Gt, some(&mut up().skip_while(is))),
            (Seek::Lt, some(&mut down().skip_while(is))),
        ] {
            let found = scan(&self.f.tree, Some(key), seek, SOME);
            assert!(
                found == expected,
                "{seek:?} of a key of {} bytes: {} keys instead of {}, or others",
                key.len(),
                found.len(),
                expected.len()
            );
        }
        assert_eq!(get(&self.f.tree, key), self.model.get(key).cloned());
    }

    /// Everything is found in both directions.
    pub(super) fn check_scans(&self) {
        let mut keys: Vec<_> = self.model.keys().cloned().collect();
        assert!(scan(&self.f.tree, None, Seek::Ge, usize::MAX) == keys);
        keys.reverse();
        assert!(scan(&self.f.tree, None, Seek::Lt, usize::MAX) == keys);
    }

    /// A new file and an empty pool, which know nothing but the log.
    pub(super) fn check_replay(&self) {
        let log = &self.f.env.log;
        log.sync_to(log.next_lsn()).expect("the log syncs");
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = Arc::new(Overlay::new(Arc::new(RealDisk)));
        let store = Spaces::new(disk, dir.path(), self.page_size, UUID, 10);
        let store = Arc::new(store);
        let space = new_space(&store);
        let frames = 64 + u64::from(self.f.tree.space.size_pages());
        let settings = PoolSettings {
            bytes: frames * self.page_size as u64,
            page_size: self.page_size,
        };
        let pool = BufferPool::new(settings, store).expect("a pool");
        let mut frames = RedoReader::open(
            &*self.f.disk,
            self.f.log_dir(),
            &UUID,
            START,
            &Default::default(),
        )
        .expect("a log");
        while let Some(frame) = frames.next().expect("a frame") {
            apply_frame(&pool, frame.start, frame.end, frame.body, |_| Ok(())).expect("replay");
        }
        let env = Arc::new(MtrEnv::new(Arc::new(pool), log.clone()));
        let used = space.used_pages(&env).expect("a count");
        let tree = Tree::open(env, space, self.f.tree.root, self.f.tree.index);
        let report = check_is(&tree, &self.model);
        let pages = report.leaf_pages + report.inner_pages;
        assert_eq!(u64::from(used) - 2, pages, "pages leaked");
    }

    /// From both ends in turn: the tree shrinks back to its root, every page is given back.
    pub(super) fn remove_everything(&mut self) {
        let mut from_below = false;
        while let Some(key) = match from_below {
            true => self.model.pop_first(),
            false => self.model.pop_last(),
        } {
            assert!(remove(&self.f.tree, &key.0), "{:02x?} is not there", key.0);
            from_below = !from_below;
        }
        let report = self.f.check_is(&self.model);
        assert_eq!((report.height, report.leaf_pages), (1, 1));
        assert_eq!(self.f.used_pages(), 1, "pages leaked");
    }
}

/// BT-2: the check after each case compares the fences of every page with what its parent says.
#[test]
fn a_tree_behaves_like_a_sorted_map() {
    let reached = Reached::default();
    try_cases(150, case(), |case| {
        let f = Fixture::new(case.page_size, 96);
        let mut run = Run::on(if case.is_dense { f.dense() } else { f });
        case.steps.iter().for_each(|step| run.step(step));
        let report = run.f.check_is(&run.model);
        reached.height.set(reached.height.get().max(report.height));
        run.check_scans();
        run.check_replay();
        run.remove_everything();
        let counters = &run.f.tree.counters;
        reached.splits.update(|n| n + counters.splits.load(Relaxed));
        reached.merges.update(|n| n + counters.merges.load(Relaxed));
        reached.shifts.update(|n| n + counters.shifts.load(Relaxed));
    });
    let (height, shifts) = (reached.height.get(), reached.shifts.get());
    let (splits, merges) = (reached.splits.get(), reached.merges.get());
    println!("{height} levels, {splits} splits, {merges} merges, {shifts} shifts");
    assert!(height >= 3 && splits > 3000 && merges > 3000 && shifts > 20);
}
