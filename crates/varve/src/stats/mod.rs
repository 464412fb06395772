//! Statistics for the choice between indexes: how many rows share the first columns of a key, and how many
//! leaf pages an index has. They live in memory, are made when first asked for and again when the number of
//! rows has changed by a tenth since, or on request. Whoever stores them elsewhere takes them as a list of
//! values, which they stay until the next request, and can give that back later ([`keep`], [`take`]).
//!
//! - **STAT-1** What is kept like that changes on request alone, and is the same when it is given back.
//!
//! For each index a few leaves are read, spread evenly over the tree (`Estimates::sample_leaves`). In them,
//! each pair of neighbouring keys either agrees in its first n columns or not; the share of pairs that don't,
//! times the rows, estimates how many different values the first n columns have. That is too coarse where
//! there are few different values, so those are counted: from each value the search goes on behind all keys
//! that start with it, at most `COUNTED_VALUES` times.
//!
//! One thread at a time makes those of a table. Meanwhile others are told what was known before, at once;
//! only if there is nothing yet they wait, since a plan made without would cost more. A thread that makes
//! them and fails, or gives up, leaves what there was: they are replaced when all of them are made.
//!
//! Delete-marked records count as long as they are there, but for the number of rows. The result is no
//! snapshot.
//!
//! The sampled leaves, and the pages that lead there, are read ahead, so that they are waited for once a
//! level and not one after the other. Where a count of values goes on is known only when the leaf before was
//! read, so nothing can be read ahead for that.
//!
//! In a damaged database that is only read (`Options::force_recovery`) nothing is sampled but on request:
//! [`guess`].

mod told;

use std::sync::atomic::Ordering::Relaxed;

pub use told::{Statistic, TableStatistics, keep, take};

use crate::base::{GoingOn, Meter, Phase, Result, Watch};
use crate::btree::{ChosenLeaf, Seek};
use crate::catalog::{DELETED, IndexEstimate, OpenIndex, OpenTable};
use crate::page::common_prefix_len;
use crate::row::{KeyCodec, successor};

/// So many times as many rows, or as few, are not what a sample says.
const UNLIKELY: f64 = 1.5;

/// Leaves between two that are told of.
const TOLD_EVERY: u64 = 16;

/// In a leaf, when nobody looks.
const GUESSED_RECORDS: u64 = 100;

/// Up to so many different values are counted instead of estimated.
const COUNTED_VALUES: u64 = 40;
/// Values that are come to meanwhile, with those that are NULL and not counted.
const MOST_VISITED: u64 = 2 * COUNTED_VALUES;

/// What keys with a NULL are to statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum NullsInKeys {
    /// All NULLs are one value.
    #[default]
    Equal = 0,
    /// Each one is a value of its own.
    Unequal = 1,
    /// Rows with one are not looked at: what counts is how many of the others share a key.
    Ignored = 2,
}

impl NullsInKeys {
    fn of(number: u8) -> NullsInKeys {
        match number {
            1 => NullsInKeys::Unequal,
            2 => NullsInKeys::Ignored,
            _ => NullsInKeys::Equal,
        }
    }
}

/// Makes the table's statistics anew. Waits for a thread that is doing so already. `going_on` is asked before
/// each leaf.
pub fn analyze(table: &OpenTable, watch: Option<&Watch>, going_on: GoingOn<'_>) -> Result<()> {
    let _alone = table.estimates.making.lock();
    refresh(table, watch, going_on).map(drop)
}

/// The statistics of index number `index` (0: the clustered one), made now if there are none or they are too
/// old and nobody else is at it. Waits for a thread that is making the first ones.
pub fn index_estimate(table: &OpenTable, index: usize) -> Result<IndexEstimate> {
    table.index_at(index)?;
    let usable = || kept(table, index).filter(|_| !table.estimates_are_stale());
    if let Some(usable) = usable() {
        return Ok(usable);
    }
    let making = &table.estimates.making;
    let _alone = match kept(table, index) {
        None => making.lock(),
        Some(old) => match making.try_lock() {
            None => return Ok(old),
            Some(alone) => alone,
        },
    };
    // Somebody else may have made them just now.
    match usable() {
        Some(usable) => Ok(usable),
        None => Ok(refresh(table, None, &|| Ok(()))?.swap_remove(index)),
    }
}

/// How many rows the table has. They are counted as they come and go, but from an estimate on: that of an
/// opened table, or what somebody has said. A sample that has all leaves knows better; one that says
/// something quite different is believed.
fn count_again(table: &OpenTable, sample: &Sample) -> u64 {
    let (counted, sampled) = (table.row_count(), sample.rows);
    let ratio = counted as f64 / sampled.max(1) as f64;
    if !sample.is_whole && (1.0 / UNLIKELY..UNLIKELY).contains(&ratio) {
        return counted;
    }
    // Those that come and go meanwhile stay counted.
    table.count_rows(sampled as i64 - counted as i64);
    sampled
}

fn kept(table: &OpenTable, index: usize) -> Option<IndexEstimate> {
    table.estimates.indexes.lock().get(index).cloned()
}

/// The caller holds the mutex for making them. Returns them, too.
fn refresh(
    table: &OpenTable,
    watch: Option<&Watch>,
    going_on: GoingOn<'_>,
) -> Result<Vec<IndexEstimate>> {
    let leaves = sample_leaves(table) * table.indexes().count();
    let meter = Meter::begin(watch, Phase::Sample, leaves as u64, TOLD_EVERY);
    let course = Course {
        meter: Some(&meter),
        going_on,
    };
    let clustered = Sampler::new(table, 0, &table.clustered, course);
    let sample = clustered.sample()?;
    let rows = count_again(table, &sample);
    let mut made = vec![clustered.estimate_by(&sample, rows)?];
    for (number, index) in table.indexes().enumerate().skip(1) {
        made.push(Sampler::new(table, number, index, course).estimate(rows)?);
    }
    publish(table, rows, made.clone());
    Ok(made)
}

/// Takes something for the table's statistics without looking at any page: that each part of a key is as good
/// as the others at telling rows apart. That they are not stale does not change as long as nobody changes
/// rows.
pub fn guess(table: &OpenTable) {
    let rows = table.row_count();
    let guessed = table.indexes().enumerate().map(|(number, index)| {
        let parts = codecs_of(table, number, index).n_parts();
        let of_part = |n: usize| {
            let decides = index.unique && n + 1 >= index.codec.len();
            let share = if decides {
                1.0
            } else {
                (n + 1) as f64 / parts as f64
            };
            (rows as f64).powf(1.0 - share)
        };
        IndexEstimate {
            rows_per_key: (0..parts).map(of_part).collect(),
            leaf_pages: (rows / GUESSED_RECORDS).max(1),
            sampled_leaves: None,
        }
    });
    publish(table, rows, guessed.collect());
}

/// Of the estimates of all indexes.
fn secondary_pages(made: &[IndexEstimate]) -> u64 {
    let add = |sum: u64, estimate: &IndexEstimate| sum.saturating_add(estimate.leaf_pages);
    made[1..].iter().fold(0, add)
}

fn publish(table: &OpenTable, rows: u64, made: Vec<IndexEstimate>) {
    let estimates = &table.estimates;
    let secondary_pages = secondary_pages(&made);
    *estimates.indexes.lock() = made;
    // Relaxed: estimates, each of them meaningful alone.
    estimates.made_at_rows.store(rows, Relaxed);
    estimates.secondary_pages.store(secondary_pages, Relaxed);
    estimates.clustered_pages.store(0, Relaxed);
    estimates.kept.store(false, Relaxed);
}

/// What a sample of leaves says.
struct Sample {
    /// Of the clustered index: how many rows there are.
    rows: u64,
    /// The sample is the whole tree.
    is_whole: bool,
    leaves: u64,
    records: u64,
    /// Neighbouring keys that were compared.
    pairs: u64,
    /// For n = 1, 2, …: pairs that differ in their first n parts, in the sense of `NullsInKeys`.
    changes: Vec<u64>,
    /// The same: records with a NULL there.
    nulls: Vec<u64>,
}

impl Sample {
    /// Of so many rows: how many different values the first `n` parts have.
    fn values(&self, n: usize, rows: u64) -> f64 {
        let share = self.changes[n - 1] as f64 / self.pairs.max(1) as f64;
        1.0 + share * rows.saturating_sub(1) as f64
    }

    /// Of so many rows: how many have a NULL in the first `n` parts.
    fn nulls(&self, n: usize, rows: u64) -> f64 {
        self.nulls[n - 1] as f64 / self.records.max(1) as f64 * rows as f64
    }
}

/// Who looks at leaves says so, and asks whether to go on.
#[derive(Clone, Copy)]
struct Course<'a> {
    meter: Option<&'a Meter>,
    going_on: GoingOn<'a>,
}

const UNWATCHED: Course<'_> = Course {
    meter: None,
    going_on: &|| Ok(()),
};

fn sample_leaves(table: &OpenTable) -> usize {
    table.estimates.sample_leaves.load(Relaxed).max(1) as usize
}

/// Looks at the leaves of one index.
struct Sampler<'a> {
    index: &'a OpenIndex,
    codecs: Codecs<'a>,
    leaves: usize,
    nulls: NullsInKeys,
    course: Course<'a>,
}

impl<'a> Sampler<'a> {
    fn new(
        table: &'a OpenTable,
        number: usize,
        index: &'a OpenIndex,
        course: Course<'a>,
    ) -> Sampler<'a> {
        Sampler {
            index,
            codecs: codecs_of(table, number, index),
            leaves: sample_leaves(table),
            nulls: NullsInKeys::of(table.estimates.nulls.load(Relaxed)),
            course,
        }
    }

    fn estimate(&self, rows: u64) -> Result<IndexEstimate> {
        self.estimate_by(&self.sample()?, rows)
    }

    fn estimate_by(&self, sample: &Sample, rows: u64) -> Result<IndexEstimate> {
        let mut rows_per_key = Vec::with_capacity(sample.changes.len());
        for n in 1..=sample.changes.len() {
            let codec = &self.index.codec;
            let unique = self.index.unique && !codec.is_nullable() && n >= codec.len();
            rows_per_key.push(match unique {
                true => 1.0,
                false => self.rows_per_key(sample, n, rows)?,
            });
        }
        let per_leaf = (sample.records as f64 / sample.leaves as f64).max(1.0);
        Ok(IndexEstimate {
            rows_per_key,
            leaf_pages: ((rows as f64 / per_leaf).ceil() as u64).max(1),
            sampled_leaves: Some(sample.leaves),
        })
    }

    /// How many of the rows share the first `n` parts, on average.
    fn rows_per_key(&self, sample: &Sample, n: usize, rows: u64) -> Result<f64> {
        let all = rows as f64;
        // As InnoDB has it. With `Equal` none are counted.
        let nulls = sample.nulls(n, rows).min(all);
        let values = self.values(n, (sample.values(n, rows) - nulls).max(0.0))?;
        Ok(match self.nulls {
            NullsInKeys::Equal | NullsInKeys::Unequal => all / (values + nulls).max(1.0),
            NullsInKeys::Ignored if values < 1.0 => 1.0,
            NullsInKeys::Ignored => ((all - nulls) / values).max(1.0),
        })
    }

    /// The first part that is NULL, where that makes a difference.
    fn null_part(&self, key: &[u8], ends: &[usize]) -> Option<usize> {
        match self.nulls {
            NullsInKeys::Equal => None,
            NullsInKeys::Unequal | NullsInKeys::Ignored => self.index.codec.null_part(key, ends),
        }
    }

    /// How many different values the first `n` parts have, which the sample says are `estimated`; those with
    /// NULL are left out where each of them is another one.
    fn values(&self, n: usize, estimated: f64) -> Result<f64> {
        if estimated > 8.0 * COUNTED_VALUES as f64 {
            return Ok(estimated);
        }
        Ok(match self.count_values(n)? {
            Some(counted) => counted as f64,
            None => estimated.max(COUNTED_VALUES as f64),
        })
    }

    /// Counts the different values of the first `n` parts; `None` if there are more than `COUNTED_VALUES`.
    fn count_values(&self, n: usize) -> Result<Option<u64>> {
        let (mut values, mut visited) = (0, 0);
        let (mut from, mut key, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            (self.course.going_on)()?;
            let leaf = self.index.latch_leaf(&from, Seek::Ge, 1)?;
            let page = leaf.slotted();
            if leaf.at() == page.n_slots() {
                match page.high() {
                    Some(high) => from = high.to_vec(),
                    None => return Ok(Some(values)),
                }
                continue;
            }
            if values == COUNTED_VALUES || visited == MOST_VISITED {
                return Ok(None);
            }
            visited += 1;
            key.clear();
            page.push_key(leaf.at(), &mut key);
            drop(leaf);
            self.codecs.part_ends(&key, &mut ends);
            // All keys that are NULL there are passed over together.
            let null = self.null_part(&key, &ends).filter(|null| *null < n);
            values += u64::from(null.is_none());
            let Some(&end) = ends.get(null.unwrap_or(n - 1)) else {
                return Ok(None);
            };
            key.truncate(end);
            std::mem::swap(&mut from, &mut key);
            if !successor(&mut from) {
                return Ok(Some(values));
            }
        }
    }

    fn sample(&self) -> Result<Sample> {
        let mut sample = Sample {
            rows: 0,
            is_whole: true,
            leaves: 0,
            records: 0,
            pairs: 0,
            changes: vec![0; self.codecs.n_parts()],
            nulls: vec![0; self.codecs.n_parts()],
        };
        let mut previous_low: Option<Vec<u8>> = None;
        let mut ends = Vec::new();
        let share = |i| (i as f64 + 0.5) / self.leaves as f64;
        let shares: Vec<f64> = (0..self.leaves).map(share).collect();
        let chosen = self.index.tree.leaves_at(&shares)?;
        // Rows of the leaf in hand, of all that were looked at, and of those that they stand for.
        let (mut live, mut all_live, mut stood_for) = (0, 0, 0.0);
        for ChosenLeaf { low, of_leaves } in &chosen {
            (self.course.going_on)()?;
            self.course.meter.inspect(|meter| meter.add(1));
            let leaf = self.index.latch_leaf(low, Seek::Ge, usize::MAX)?;
            let page = leaf.slotted();
            // A tree with fewer leaves shows one of them several times in a row.
            if previous_low.as_deref() == Some(page.low()) {
                stood_for += of_leaves * live as f64;
                continue;
            }
            previous_low = Some(page.low().to_vec());
            let is_live = |slot: &usize| {
                page.payload(*slot)
                    .first()
                    .is_some_and(|f| f & DELETED == 0)
            };
            live = (0..page.n_slots()).filter(is_live).count() as u64;
            all_live += live;
            stood_for += of_leaves * live as f64;
            let (mut key, mut before) = (Vec::new(), Vec::new());
            for slot in 0..page.n_slots() {
                std::mem::swap(&mut key, &mut before);
                key.clear();
                page.push_key(slot, &mut key);
                self.codecs.part_ends(&key, &mut ends);
                let null = self.null_part(&key, &ends).unwrap_or(usize::MAX);
                for nulls in sample.nulls.iter_mut().skip(null) {
                    *nulls += 1;
                }
                if slot == 0 {
                    continue;
                }
                let common = common_prefix_len(&key, &before);
                // KEY-2: keys agree in their first parts if they have the same bytes up to where these end.
                for (part, (changes, &end)) in sample.changes.iter_mut().zip(&ends).enumerate() {
                    *changes += u64::from(end > common || part >= null);
                }
            }
            sample.leaves += 1;
            sample.records += page.n_slots() as u64;
            sample.pairs += page.n_slots().saturating_sub(1) as u64;
        }
        let is_all = |leaf: &ChosenLeaf| leaf.of_leaves == sample.leaves as f64;
        sample.is_whole = chosen.iter().all(is_all);
        sample.rows = match sample.is_whole {
            true => all_live,
            false => (stood_for / chosen.len() as f64).round() as u64,
        };
        Ok(sample)
    }
}

fn codecs_of<'a>(table: &'a OpenTable, number: usize, index: &'a OpenIndex) -> Codecs<'a> {
    Codecs {
        own: &index.codec,
        clustered: (number > 0).then_some(&table.clustered.codec),
    }
}

/// The parts of an index's keys: its own, then in a secondary index those of the clustered key.
struct Codecs<'a> {
    own: &'a KeyCodec,
    clustered: Option<&'a KeyCodec>,
}

impl Codecs<'_> {
    fn n_parts(&self) -> usize {
        self.own.len() + self.clustered.map_or(0, KeyCodec::len)
    }

    /// Where each part of `key` ends; fewer for a damaged key, which a read of the row will report. Parts
    /// that are not in the key of a long entry end with its hash, by which all differ.
    fn part_ends(&self, key: &[u8], ends: &mut Vec<usize>) {
        ends.clear();
        if self.own.part_ends(key, 0, ends).is_ok()
            && let Some(clustered) = self.clustered
        {
            let at = ends.last().copied().unwrap_or(0);
            if clustered.part_ends(key, at, ends).is_err() {
                ends.resize(self.n_parts(), key.len());
            }
        }
    }
}
