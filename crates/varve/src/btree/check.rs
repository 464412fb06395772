//! The structure check behind `CHECK TABLE` and the concurrency tests.
//!
//! Walks the tree depth first; each page is copied under its shared latch and judged afterwards, so one latch
//! is held at a time. The tree must not change meanwhile (the caller keeps writers and purge away), otherwise
//! the report tells of differences that are none.

use crate::base::{NO_PAGE, PageNo, Result};
use crate::page::{SlottedRef, common_prefix_len, page_type, validate};

use super::descend::{Aim, child_at};
use super::{MAX_LEVEL, Tree, type_at};

/// Errors beyond this many are counted, not told.
const MAX_ERRORS: usize = 50;

/// What a walk over the whole tree found.
#[derive(Debug, Default)]
pub struct TreeReport {
    /// What is wrong, a sentence each. Empty: the tree is good.
    pub errors: Vec<String>,
    /// Errors in all, told or not.
    pub error_count: u64,
    /// 1 for a tree that is a single leaf.
    #[allow(dead_code, reason = "tests look at it")]
    pub height: u32,
    pub leaf_pages: u64,
    pub inner_pages: u64,
    pub records: u64,
    /// Bytes that records and their slots take in leaves.
    pub leaf_bytes: u64,
    /// Every page of the tree, in the order of the walk. A caller that has all trees of a tablespace can tell
    /// leaked pages.
    pub pages: Vec<PageNo>,
}

impl TreeReport {
    fn error(&mut self, no: PageNo, what: impl std::fmt::Display) {
        self.error_count += 1;
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(format!("page {no}: {what}"));
        }
    }
}

/// Is shown the key and the payload of a record; an error ends the check.
type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'v;

struct Walk<'v> {
    report: TreeReport,
    seen: Vec<u64>,
    /// Per level: where the page visited last says that its right sibling is.
    expected_next: Vec<Option<PageNo>>,
    visit: &'v mut Visit<'v>,
    /// What `visit` said last.
    going_on: Result<()>,
}

/// What a parent says about its child.
struct Expected {
    no: PageNo,
    level: u16,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

impl Tree {
    /// Checks order, fences, levels, sibling links, free space accounting, and that each page is reached once
    /// and allocated. Calls `visit` for every record of the leaves, in order; an error of it ends the check.
    pub fn check<'v>(&self, visit: &'v mut Visit<'v>) -> Result<TreeReport> {
        let level = {
            let page = self.env.pool.shared(self.page_id(self.root))?;
            match self.root_level(&page) {
                Ok(level) => level,
                Err(e) => {
                    let mut report = TreeReport::default();
                    report.error(self.root, e);
                    return Ok(report);
                }
            }
        };
        let mut walk = Walk {
            report: TreeReport {
                height: u32::from(level) + 1,
                ..TreeReport::default()
            },
            seen: Vec::new(),
            expected_next: vec![None; level as usize + 1],
            visit,
            going_on: Ok(()),
        };
        self.check_page(
            &mut walk,
            Expected {
                no: self.root,
                level,
                low: Vec::new(),
                high: None,
            },
        );
        walk.going_on?;
        for (level, next) in walk.expected_next.iter().enumerate() {
            if let Some(next) = next.filter(|&next| next != NO_PAGE) {
                let what = format!("the last page of level {level} names a right sibling, {next}");
                walk.report.error(self.root, what);
            }
        }
        Ok(walk.report)
    }

    /// Checks one page and everything below it. The recursion is bounded by the level, which must fall by
    /// one.
    fn check_page(&self, walk: &mut Walk<'_>, expected: Expected) {
        let Expected { no, level, .. } = expected;
        assert!(level <= MAX_LEVEL, "the root's level was checked");
        if walk.going_on.is_err() {
            return;
        }
        if no.0 >= self.space.size_pages() {
            walk.report.error(no, "is beyond the end of the file");
            return;
        }
        if !mark(&mut walk.seen, no) {
            walk.report.error(no, "is reached more than once");
            return;
        }
        walk.report.pages.push(no);
        match self.space.is_allocated(&self.env, no) {
            Ok(true) => {}
            Ok(false) => walk.report.error(no, "is free by the allocation pages"),
            Err(e) => walk.report.error(no, e),
        }
        let page = match self.env.pool.shared(self.page_id(no)) {
            Ok(page) => page.to_vec(),
            Err(e) => return walk.report.error(no, e),
        };
        if page_type(&page) != Some(type_at(level)) {
            let what = format!("is {:?} at level {level}", page_type(&page));
            return walk.report.error(no, what);
        }
        if let Err(e) = validate(&page, self.page_id(no)) {
            return walk.report.error(no, e);
        }
        let p = SlottedRef::new(&page);
        self.check_frame(walk, p, &expected);
        check_records(&mut walk.report, no, p);
        if level == 0 {
            walk.report.leaf_pages += 1;
            walk.report.records += p.n_slots() as u64;
            walk.report.leaf_bytes += p.used_space() as u64;
            let mut key = Vec::new();
            for slot in 0..p.n_slots() {
                key.clear();
                p.push_key(slot, &mut key);
                walk.going_on = (walk.visit)(&key, p.payload(slot));
                if walk.going_on.is_err() {
                    return;
                }
            }
            return;
        }
        walk.report.inner_pages += 1;
        self.check_children(walk, p, &expected);
    }

    /// Owner, level, fences, prefix, sibling link.
    fn check_frame(&self, walk: &mut Walk<'_>, p: SlottedRef<'_>, expected: &Expected) {
        let Expected { no, level, .. } = *expected;
        let report = &mut walk.report;
        if p.owner() != self.index.0 {
            let what = format!("belongs to index {}, not {}", p.owner(), self.index);
            report.error(no, what);
        }
        if p.level() != level {
            report.error(no, format!("has level {}, not {level}", p.level()));
        }
        if p.low() != expected.low || p.high() != expected.high.as_deref() {
            let what = format!(
                "has fences {:02x?} and {:02x?}, its parent says {:02x?} and {:02x?}",
                p.low(),
                p.high(),
                expected.low,
                expected.high
            );
            report.error(no, what);
        }
        if p.prefix_len() != p.high().map_or(0, |h| common_prefix_len(p.low(), h)) {
            report.error(no, "its prefix is not what its fences share");
        }
        if let Some(next) = walk.expected_next[level as usize].replace(p.next())
            && next != no
        {
            let what = format!("its left sibling names page {next} as its right sibling");
            walk.report.error(no, what);
        }
    }

    fn check_children(&self, walk: &mut Walk<'_>, p: SlottedRef<'_>, expected: &Expected) {
        let Expected { no, level, .. } = *expected;
        let n = p.n_slots();
        if n == 0 {
            return walk.report.error(no, "is an inner page without children");
        }
        if !p.key_suffix(0).is_empty() {
            walk.report
                .error(no, "it stores a first separator beside its low fence");
        }
        for slot in 0..n {
            if level == 1 {
                let child = |slot| child_at(p, slot).map(|no| self.page_id(no));
                self.env.pool.prefetch_walk(slot, child);
            }
            let Some(child) = child_at(p, slot) else {
                walk.report
                    .error(no, format!("slot {slot} holds no page number"));
                continue;
            };
            let high = match slot + 1 < n {
                true => Some(p.separator(slot + 1)),
                false => p.high().map(<[u8]>::to_vec),
            };
            let child = Expected {
                no: child,
                level: level - 1,
                low: p.separator(slot),
                high,
            };
            self.check_page(walk, child);
        }
    }
}

/// Keys ascend, lie between the fences, can be found, and the space adds up.
fn check_records(report: &mut TreeReport, no: PageNo, p: SlottedRef<'_>) {
    let mut before: Option<Vec<u8>> = None;
    for slot in 0..p.n_slots() {
        let key = match p.is_inner() {
            true => p.separator(slot),
            false => p.key(slot),
        };
        if before.as_ref().is_some_and(|b| *b >= key) {
            report.error(
                no,
                format!("keys of slots {} and {slot} are not ascending", slot - 1),
            );
        }
        if !p.covers(&key) {
            report.error(no, format!("the key of slot {slot} is outside the fences"));
        }
        let found = match p.is_inner() {
            true => Aim::At(&key).slot(p) == slot,
            false => p.search(&key) == Ok(slot),
        };
        if !found {
            report.error(no, format!("a search does not find slot {slot}"));
        }
        before = Some(key);
    }
}

/// Sets the page's bit; false if it was set.
fn mark(seen: &mut Vec<u64>, no: PageNo) -> bool {
    let (word, bit) = (no.0 as usize / 64, 1 << (no.0 % 64));
    if seen.len() <= word {
        seen.resize(word + 1, 0);
    }
    let fresh = seen[word] & bit == 0;
    seen[word] |= bit;
    fresh
}
