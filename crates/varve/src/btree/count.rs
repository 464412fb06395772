//! How many records lie in a range, counted where that is cheap, estimated elsewhere; where samples of a tree
//! are taken.

use crate::base::{PageNo, Result};
use crate::buffer::SharedPage;
use crate::page::{InnerImage, PageHint, SlottedRef, page_type};

use super::descend::Aim;
use super::leaf::boundary;
use super::{OPTIMISTIC_TRIES, Seek, Tree, type_at};

/// Child taken and number of children, from the root down.
type Steps = Vec<(usize, usize)>;

/// The way from the root to a place in a leaf.
struct Path {
    steps: Steps,
    /// Boundary in the leaf, and its number of records.
    at: usize,
    records: usize,
}

/// A leaf that was chosen by its place in the tree.
pub struct ChosenLeaf {
    /// Where it begins.
    pub low: Vec<u8>,
    /// How many leaves the tree has, if every page has as many children as the one on the way to this leaf:
    /// on average over ways that go to each child as often as to the others this is how many there are
    /// (Knuth, Estimating the Efficiency of Backtrack Programs, 1975).
    pub of_leaves: f64,
}

/// A way down to a share of the leaves.
struct Way<'g> {
    /// The page that comes next, and where it was last.
    no: PageNo,
    hint: &'g PageHint,
    /// Where it begins.
    low: Vec<u8>,
    /// The share of its leaves that stay to the left.
    rest: f64,
    /// The product of the numbers of children passed.
    of_leaves: f64,
}

impl<'g> Way<'g> {
    fn step(&mut self, image: &'g InnerImage) {
        let n = image.n_children();
        let at = self.rest * n as f64;
        let child = image.child((at as usize).min(n - 1));
        self.rest = at - child.slot as f64;
        self.of_leaves *= n as f64;
        self.low = image.separator(child.slot);
        (self.no, self.hint) = (child.no, child.hint);
    }
}

impl Tree {
    /// Estimates the number of records in `[low, high)`; `None` is plus infinity. Exact if both ends lie in
    /// one leaf. Reads three leaves and images only: those at the ends, and one in between, which stands for
    /// all that lie there. The last pages of a tree are no measure: how full they are is chance.
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
                let middle = match way_to_middle(&from, &to) {
                    Some(way) => self.path_by(&way)?,
                    None => None,
                };
                // Of another height: the tree has grown or shrunk meanwhile.
                let middle = middle.filter(|m| m.steps.len() == from.steps.len());
                return Ok(estimate(&from, &to, middle.as_ref()));
            }
        }
        // The tree changes faster than we read it: what the two leaves say is all that is known.
        let from = self.latch_leaf_shared(low, Seek::Ge)?;
        Ok(from.slotted().n_slots().saturating_sub(from.at) as u64)
    }

    /// The leaves that have these shares (0 to 1) of the leaves to their left, taking all children of a page
    /// for equally large. By images; a little out of date if the tree changes. The pages
    /// on the ways there, and these leaves, are read ahead, those of a level together.
    pub fn leaves_at(&self, shares: &[f64]) -> Result<Vec<ChosenLeaf>> {
        let (pool, guard) = (&self.env.pool, &crossbeam_epoch::pin());
        let way = |share: &f64| Way {
            no: self.root,
            hint: &self.root_hint,
            low: Vec::new(),
            rest: share.clamp(0.0, 1.0),
            of_leaves: 1.0,
        };
        let mut ways: Vec<Way<'_>> = shares.iter().map(way).collect();
        let root = pool.inner(self.page_id(self.root), &self.root_hint, guard)?;
        let mut level = root.map_or(0, |image| image.level);
        let mut is_going_on = true;
        while level > 0 && is_going_on {
            is_going_on = false;
            for way in &mut ways {
                let image = pool.inner(self.page_id(way.no), way.hint, guard)?;
                // Another one is there if the tree has changed, or is damaged: the way ends here.
                if let Some(image) = image.filter(|i| (i.index, i.level) == (self.index, level)) {
                    way.step(image);
                    is_going_on = true;
                }
            }
            level -= 1;
            if pool.read_ahead_threshold() > 0 {
                let below: Vec<_> = ways.iter().map(|way| self.page_id(way.no)).collect();
                pool.prefetch(&below);
            }
        }
        let chosen = |way: Way<'_>| ChosenLeaf {
            low: way.low,
            of_leaves: way.of_leaves,
        };
        Ok(ways.into_iter().map(chosen).collect())
    }

    /// The way to a key, or to the end. `None` if the tree changed under the descent.
    fn path(&self, aim: Aim<'_>) -> Result<Option<Path>> {
        let choose = |inner: &InnerImage| aim.in_image(inner).then(|| aim.child(inner).slot);
        let Some((steps, page)) = self.walk(choose)? else {
            return Ok(None);
        };
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

    /// The way by these children, and by those in the middle below them. `None` if the tree has changed.
    fn path_by(&self, children: &[usize]) -> Result<Option<Path>> {
        let mut children = children.iter();
        let choose = |inner: &InnerImage| {
            let n = inner.n_children();
            Some(children.next().map_or(n / 2, |&slot| slot.min(n - 1)))
        };
        let Some((steps, page)) = self.walk(choose)? else {
            return Ok(None);
        };
        // Freed meanwhile, or in use for something else.
        if page_type(&page) != Some(type_at(0)) {
            return Ok(None);
        }
        let p = SlottedRef::new(&page);
        let (at, records) = (0, p.n_slots());
        let is_ours = p.owner() == self.index.0 && records > 0;
        Ok(is_ours.then_some(Path { steps, at, records }))
    }

    /// Descends by the images to the child that `choose` names in each, and latches the page below the last
    /// one: a leaf, if nothing has changed. `None`: the images don't fit together, or `choose` has given up.
    fn walk(
        &self,
        mut choose: impl FnMut(&InnerImage) -> Option<usize>,
    ) -> Result<Option<(Steps, SharedPage<'_>)>> {
        let guard = &crossbeam_epoch::pin();
        let pool = &self.env.pool;
        let mut steps = Vec::new();
        let mut no = self.root;
        let mut level = None;
        let mut image = pool.inner(self.page_id(no), &self.root_hint, guard)?;
        while let Some(inner) = image {
            let fits = level.is_none_or(|l| inner.level + 1 == l);
            if !fits || inner.index != self.index {
                return Ok(None);
            }
            let Some(slot) = choose(inner) else {
                return Ok(None);
            };
            let child = inner.child(slot);
            steps.push((slot, inner.n_children()));
            level = Some(inner.level);
            no = child.no;
            if inner.level == 1 {
                break;
            }
            image = pool.inner(self.page_id(no), child.hint, guard)?;
        }
        Ok(Some((steps, pool.shared(self.page_id(no))?)))
    }
}

/// Where two paths part.
fn fork(from: &Path, to: &Path) -> Option<usize> {
    let mut steps = from.steps.iter().zip(&to.steps);
    steps.position(|(a, b)| a.0 != b.0)
}

/// The children to take, from the root, to one between the two paths; at the highest level where there is
/// one.
fn way_to_middle(from: &Path, to: &Path) -> Option<Vec<usize>> {
    let slots = |path: &Path, n: usize| path.steps[..n].iter().map(|step| step.0).collect();
    let fork = fork(from, to)?;
    let (a, b) = (from.steps[fork].0, to.steps[fork].0);
    if b < a {
        return None;
    }
    let mut way: Vec<usize>;
    if b > a + 1 {
        way = slots(from, fork);
        way.push((a + 1).midpoint(b));
        return Some(way);
    }
    let (&(a, children), &(b, _)) = (from.steps.get(fork + 1)?, to.steps.get(fork + 1)?);
    let right_of_from = children - a - 1;
    if right_of_from.max(b) == 0 {
        return None;
    }
    if right_of_from >= b {
        way = slots(from, fork + 1);
        way.push(a + 1 + right_of_from / 2);
    } else {
        way = slots(to, fork + 1);
        way.push(b / 2);
    }
    Some(way)
}

/// Records between two places: what lies beside the two paths, taken as if pages off the paths were as full
/// as those in the middle; as those on the paths where there is no middle.
fn estimate(from: &Path, to: &Path, middle: Option<&Path>) -> u64 {
    let depth = from.steps.len();
    let Some(fork) = fork(from, to) else {
        return to.at.saturating_sub(from.at) as u64;
    };
    if to.steps[fork].0 < from.steps[fork].0 {
        return 0;
    }
    let mean = |a: usize, b: usize| (a + b) as f64 / 2.0;
    // Records below one child of the level in hand, from the leaves up.
    let mut below = middle.map_or(mean(from.records, to.records), |m| m.records as f64);
    let mut rows = (from.records - from.at + to.at) as f64;
    for i in (fork..depth).rev() {
        let ((a, a_children), (b, b_children)) = (from.steps[i], to.steps[i]);
        if i == fork {
            rows += (b - a - 1) as f64 * below;
        } else {
            rows += (a_children - a - 1 + b) as f64 * below;
            below *= middle.map_or(mean(a_children, b_children), |m| m.steps[i].1 as f64);
        }
    }
    rows.round() as u64
}
