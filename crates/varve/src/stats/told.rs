//! Statistics as named values, as InnoDB keeps them in `mysql.innodb_index_stats`: so those who read and edit
//! such a table find what they know.
//!
//! Of an index of n leading columns there are `n_diff_pfx01` to `n_diff_pfxNN`, the numbers of different
//! values; `n_leaf_pages` and `size`, its pages. A secondary index that is not unique goes on with those
//! columns of the primary key that it has not got itself. Pages above the leaves are not counted, but in the
//! clustered index, whose size is all that is not another one's.
//!
//! Values come back from a table that people write into. Any is taken; a number of different values that is
//! 0, or missing, means that of the columns before.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use crate::base::Result;
use crate::catalog::{FIRST_ROOT_PAGE, IndexEstimate, OpenTable, TableDef};
use crate::row::KeyPart;

use super::{Sampler, UNWATCHED, kept, publish, secondary_pages};

/// What InnoDB calls the index of a table without a primary key, and its only column.
const HIDDEN_INDEX: &str = "GEN_CLUST_INDEX";
const HIDDEN_COLUMN: &str = "DB_ROW_ID";

const LEAF_PAGES: &str = "n_leaf_pages";
const SIZE: &str = "size";

/// One value that is known of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistic {
    pub index: String,
    pub name: String,
    pub value: u64,
    /// How many leaves were looked at for it.
    pub sampled: Option<u64>,
    /// For people.
    pub about: String,
}

/// What is known of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableStatistics {
    pub rows: u64,
    pub clustered_pages: u64,
    pub secondary_pages: u64,
    pub indexes: Vec<Statistic>,
}

/// See `Table::keep_statistics`.
pub fn keep(table: &OpenTable) -> Result<Option<TableStatistics>> {
    let _alone = table.estimates.making.lock();
    let made = table.estimates.indexes.lock().clone();
    if made.is_empty() {
        return Ok(None);
    }
    let rows = table.row_count();
    let secondary_pages = secondary_pages(&made);
    let (used, _) = table.used_and_free_bytes()?;
    let used = used / table.clustered.tree.page_size() as u64;
    let others = secondary_pages.saturating_add(FIRST_ROOT_PAGE.0.into());
    let clustered_pages = used.saturating_sub(others).max(made[0].leaf_pages);
    let told = TableStatistics {
        rows,
        clustered_pages,
        secondary_pages,
        indexes: (made.iter().enumerate())
            .flat_map(|(number, estimate)| {
                let size = match number {
                    0 => clustered_pages,
                    _ => estimate.leaf_pages,
                };
                tell(&table.def, number, estimate, rows, size)
            })
            .collect(),
    };
    // STAT-1: rounded as they will be when they are given back.
    let known = Known::new(&told);
    let rounded = (made.into_iter().enumerate())
        .map(|(number, estimate)| {
            let known = known.of(&table.def, number).expect("it was just told");
            IndexEstimate {
                sampled_leaves: estimate.sampled_leaves,
                ..known
            }
        })
        .collect();
    hold(table, &told, rounded);
    Ok(Some(told))
}

/// See `Table::set_statistics`.
pub fn take(table: &OpenTable, told: &TableStatistics) -> Result<bool> {
    let _alone = table.estimates.making.lock();
    let known = Known::new(told);
    let mut all_are_known = true;
    let indexes = (table.indexes().enumerate())
        .map(|(number, index)| match known.of(&table.def, number) {
            Some(estimate) => Ok(estimate),
            None => {
                all_are_known = false;
                match kept(table, number) {
                    Some(estimate) => Ok(estimate),
                    None => Sampler::new(table, number, index, UNWATCHED).estimate(told.rows),
                }
            }
        })
        .collect::<Result<Vec<_>>>()?;
    table.set_row_count(told.rows);
    hold(table, told, indexes);
    Ok(all_are_known)
}

/// STAT-1 from here on. The caller holds the mutex for making estimates.
fn hold(table: &OpenTable, told: &TableStatistics, indexes: Vec<IndexEstimate>) {
    publish(table, table.row_count(), indexes);
    let estimates = &table.estimates;
    // Relaxed: estimates, each of them meaningful alone.
    estimates
        .secondary_pages
        .store(told.secondary_pages, Relaxed);
    estimates
        .clustered_pages
        .store(told.clustered_pages.max(1), Relaxed);
    estimates.kept.store(true, Relaxed);
}

/// No two indexes of a table have the same. One may be called like the hidden one, of which nothing is told
/// under a name that people know then.
fn name_of(def: &TableDef, number: usize) -> &str {
    match number {
        0 if def.has_row_id() => match def.index_number(HIDDEN_INDEX) {
            None => HIDDEN_INDEX,
            Some(_) => "",
        },
        0 => &def.primary.name,
        n => &def.indexes[n - 1].name,
    }
}

/// The parts of an index's keys, in order: the names of those that statistics are told of, `None` for those
/// that add nothing.
fn told_parts(def: &TableDef, number: usize) -> Vec<Option<&str>> {
    let name = |part: &KeyPart| Some(def.columns[part.column].name.as_str());
    let primary = &def.primary.parts;
    let Some(index) = number.checked_sub(1).map(|n| &def.indexes[n]) else {
        return primary.iter().map(name).collect();
    };
    let has = |part: &KeyPart| {
        let is_same =
            |own: &KeyPart| own.column == part.column && own.prefix_len == part.prefix_len;
        index.unique || index.parts.iter().any(is_same)
    };
    let more = primary.iter().map(|part| match has(part) {
        true => None,
        false => name(part),
    });
    index.parts.iter().map(name).chain(more).collect()
}

/// Whether the hidden row id, which is no part that the optimizer knows, is among those that are told.
fn tells_row_id(def: &TableDef, number: usize) -> bool {
    def.has_row_id() && !(number > 0 && def.indexes[number - 1].unique)
}

fn different_values(number: usize) -> String {
    format!("n_diff_pfx{number:02}")
}

fn tell(
    def: &TableDef,
    number: usize,
    estimate: &IndexEstimate,
    rows: u64,
    size: u64,
) -> Vec<Statistic> {
    let statistic = |name: String, value, sampled, about: &str| Statistic {
        index: name_of(def, number).into(),
        name,
        value,
        sampled,
        about: about.into(),
    };
    let mut told = Vec::new();
    let mut columns = String::new();
    let parts = told_parts(def, number);
    let parts = parts.iter().zip(&estimate.rows_per_key);
    let parts = parts.filter_map(|(part, shared)| Some(((*part)?, *shared)));
    let row_id = tells_row_id(def, number).then_some((HIDDEN_COLUMN, 1.0));
    for (part, shared) in parts.chain(row_id) {
        columns += if columns.is_empty() { "" } else { "," };
        columns += part;
        let values = (rows as f64 / shared.max(1.0)).round() as u64;
        let values = if rows == 0 { 0 } else { values.max(1) };
        let name = different_values(told.len() + 1);
        told.push(statistic(name, values, estimate.sampled_leaves, &columns));
    }
    let about = "Number of leaf pages in the index";
    told.push(statistic(
        LEAF_PAGES.into(),
        estimate.leaf_pages,
        None,
        about,
    ));
    let about = "Number of pages in the index";
    told.push(statistic(SIZE.into(), size, None, about));
    told
}

/// What was told, by index and name.
struct Known<'a> {
    rows: u64,
    values: HashMap<(&'a str, &'a str), u64>,
}

impl<'a> Known<'a> {
    fn new(told: &'a TableStatistics) -> Known<'a> {
        let by_name = |s: &'a Statistic| ((s.index.as_str(), s.name.as_str()), s.value);
        Known {
            rows: told.rows,
            values: told.indexes.iter().map(by_name).collect(),
        }
    }

    /// `None`: nothing is known of the index, not even of its first column.
    fn of(&self, def: &TableDef, number: usize) -> Option<IndexEstimate> {
        let index = name_of(def, number);
        let value = |name: &str| self.values.get(&(index, name)).copied();
        value(&different_values(1))?;
        let rows = self.rows as f64;
        let is_unique = number > 0 && def.indexes[number - 1].unique;
        let (mut told, mut shared) = (0, rows);
        let mut rows_per_key = Vec::new();
        for part in told_parts(def, number) {
            if part.is_some() {
                told += 1;
                match value(&different_values(told)) {
                    None | Some(0) => {}
                    Some(values) => shared = rows / values as f64,
                }
            } else if is_unique {
                shared = shared.min(1.0);
            }
            rows_per_key.push(shared);
        }
        Some(IndexEstimate {
            rows_per_key,
            leaf_pages: value(LEAF_PAGES).unwrap_or(1).max(1),
            sampled_leaves: None,
        })
    }
}
