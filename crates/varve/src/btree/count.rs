//! How large a tree is, and how many records lie in a range: counted where that is cheap, estimated elsewhere.

use crate::base::{NO_PAGE, Result};
use crate::page::SlottedRef;

use super::descend::{Aim, Found};
use super::leaf::boundary;
use super::{OPTIMISTIC_TRIES, Seek, Tree};

/// A tree's pages, counted at level 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TreeShape {
    /// 1 for a tree that is a single leaf.
    pub height: u32,
    pub leaf_pages: u64,
}

/// The way from the root to a place in a leaf.
struct Path {
    /// Child taken and number of children, from the root down.
    steps: Vec<(usize, usize)>,
    /// Boundary in the leaf, and its number of records.
    at: usize,
    records: usize,
}

impl Tree {
    /// Reads the pages of level 1, by image. Not a snapshot, if the tree changes meanwhile.
    pub fn shape(&self) -> Result<TreeShape> {
        let height = u32::from(self.root_level_now()?) + 1;
        let mut leaf_pages = 0;
        let mut key = Vec::new();
        loop {
            match self.locate_inner(&key, 1)? {
                Found::AboveRoot => {
                    leaf_pages = 1;
                    break;
                }
                Found::Stale => std::thread::yield_now(),
                Found::Page(spot) => {
                    let no = spot.no;
                    let page = self.env.pool.shared(self.page_id(no))?;
                    if !self.arrived(&page, Aim::At(&key), 1) {
                        continue;
                    }
                    let p = SlottedRef::new(&page);
                    leaf_pages += p.n_slots() as u64;
                    match p.high() {
                        Some(high) if p.next() != NO_PAGE => key = high.to_vec(),
                        _ => break,
                    }
                }
            }
        }
        Ok(TreeShape { height, leaf_pages })
    }

    fn root_level_now(&self) -> Result<u16> {
        let page = self.env.pool.shared(self.page_id(self.root))?;
        self.root_level(&page)
    }

    /// Estimates the number of records in `[low, high)`; `None` is plus infinity. Exact if both ends lie in one leaf.
    /// Reads two leaves and images only.
    pub fn estimate_between(&self, low: &[u8], high: Option<&[u8]>) -> Result<u64> {
        if high.is_some_and(|h| h <= low) {
            return Ok(0);
        }
        for _ in 0..OPTIMISTIC_TRIES {
            let from = self.path(Aim::At(low))?;
            let to = self.path(high.map_or(Aim::End, Aim::At))?;
            if let (Some(from), Some(to)) = (from, to)
                && from.steps.len() == to.steps.len()
            {
                return Ok(estimate(&from, &to));
            }
        }
        // The tree changes faster than we read it: what the two leaves say is all that is known.
        let from = self.latch_leaf_shared(low, Seek::Ge)?;
        Ok(from.slotted().n_slots().saturating_sub(from.at) as u64)
    }

    /// Where the leaf begins that has the share `fraction` (0 to 1) of the leaves to its left, taking all children of
    /// a page for equally large. By images; a little out of date if the tree changes.
    pub fn leaf_low_at(&self, fraction: f64) -> Result<Vec<u8>> {
        let guard = &crossbeam_epoch::pin();
        let pool = &self.env.pool;
        let mut low = Vec::new();
        let mut rest = fraction.clamp(0.0, 1.0);
        let mut image = pool.inner(self.page_id(self.root), &self.root_hint, guard)?;
        while let Some(inner) = image {
            if inner.index != self.index {
                break;
            }
            let n = inner.n_children();
            let at = rest * n as f64;
            let slot = (at as usize).min(n - 1);
            rest = at - slot as f64;
            low = inner.separator(slot);
            if inner.level == 1 {
                break;
            }
            let child = inner.child(slot);
            image = pool.inner(self.page_id(child.no), child.hint, guard)?;
        }
        Ok(low)
    }

    /// `None` if the tree changed under the descent.
    fn path(&self, aim: Aim<'_>) -> Result<Option<Path>> {
        let mut steps = Vec::new();
        let guard = &crossbeam_epoch::pin();
        let pool = &self.env.pool;
        let mut no = self.root;
        let mut level = None;
        let mut image = pool.inner(self.page_id(no), &self.root_hint, guard)?;
        while let Some(inner) = image {
            let fits = level.is_none_or(|l| inner.level + 1 == l);
            if !fits || inner.index != self.index || !aim.in_image(inner) {
                return Ok(None);
            }
            let child = aim.child(inner);
            steps.push((child.slot, inner.n_children()));
            level = Some(inner.level);
            no = child.no;
            if inner.level == 1 {
                break;
            }
            image = pool.inner(self.page_id(no), child.hint, guard)?;
        }
        let page = pool.shared(self.page_id(no))?;
        if !self.arrived(&page, aim, 0) {
            return Ok(None);
        }
        let p = SlottedRef::new(&page);
        let at = match aim {
            Aim::At(key) | Aim::Below(key) => boundary(p, key, Seek::Ge),
            Aim::End => p.n_slots(),
        };
        let records = p.n_slots();
        Ok(Some(Path { steps, at, records }))
    }
}

/// Records between two places: what lies beside the two paths, taken as if pages off the paths were as full as those on
/// them.
fn estimate(from: &Path, to: &Path) -> u64 {
    let depth = from.steps.len();
    let Some(fork) = (0..depth).find(|&i| from.steps[i].0 != to.steps[i].0) else {
        return to.at.saturating_sub(from.at) as u64;
    };
    if to.steps[fork].0 < from.steps[fork].0 {
        return 0;
    }
    // Records below one child of the level in hand, from the leaves up.
    let mut below = (from.records + to.records) as f64 / 2.0;
    let mut rows = (from.records - from.at + to.at) as f64;
    for i in (fork..depth).rev() {
        let ((a, a_children), (b, b_children)) = (from.steps[i], to.steps[i]);
        if i == fork {
            rows += (b - a - 1) as f64 * below;
        } else {
            rows += (a_children - a - 1 + b) as f64 * below;
            below *= (a_children + b_children) as f64 / 2.0;
        }
    }
    rows.round() as u64
}
