//! Where to split a page, and whether two fit in one. Pure functions of latched pages.
//!
//! A split point is a boundary `keep`: slots below it stay, the others go to a fresh right page. Both sides
//! have to hold their records under the new fence, and both sides of an inner page [`MIN_CHILDREN`] (BT-7).
//! For any leaf that respects `page::max_key` and `page::max_record` such a boundary exists: take the largest
//! whose left side, with the longest possible fence, fits; what is left for the right side is then less than
//! one record and one fence, and that fits beside two fences. For an inner page with four children or more,
//! too: two children fit on either side, since three always do. So take the largest boundary that leaves the
//! right side two children and whose left side fits. If it leaves the right side more, one child more would
//! not have fitted on the left; so the right side takes less than two keys and one record without a key.

use crate::base::writer_of;
use crate::page::{SlottedRef, VERSION_KEY_BYTES, common_prefix_len, max_key, record_cost};

use super::descend::child_at;

/// An inner page is left with fewer only by removals, or as the root that moves down (BT-7).
pub(super) const MIN_CHILDREN: usize = 2;

/// A split that is going to be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SplitPlan {
    pub keep: usize,
    /// Low fence of the right page, high fence of the left one.
    pub separator: Vec<u8>,
}

/// The shortest key above `left` and not above `right`.
pub(super) fn shortest_between(left: &[u8], right: &[u8]) -> Vec<u8> {
    debug_assert!(left < right);
    right[..(common_prefix_len(left, right) + 1).min(right.len())].to_vec()
}

/// A record that is about to be inserted in a leaf.
#[derive(Clone, Copy)]
struct Incoming<'a> {
    key: &'a [u8],
    pos: usize,
    /// Bytes that it takes at most.
    room: usize,
}

/// The separator of a split at `keep`; `None` if there is nothing to separate. A new key at the boundary goes
/// to the left page if an ascending run ends there, or else to the right one, if that has other records and
/// takes it.
fn separator(p: SlottedRef<'_>, keep: usize, new: Option<Incoming<'_>>) -> Option<Vec<u8>> {
    let n = p.n_slots();
    if p.is_inner() {
        let good = keep >= MIN_CHILDREN && keep + MIN_CHILDREN <= n;
        return good.then(|| p.separator(keep));
    }
    let Some(new) = new.filter(|new| new.pos == keep) else {
        return (keep > 0 && keep < n).then(|| shortest_between(&p.key(keep - 1), &p.key(keep)));
    };
    let above = (keep < n).then(|| shortest_between(new.key, &p.key(keep)));
    let below = (keep > 0).then(|| shortest_between(&p.key(keep - 1), new.key));
    let (first, second) = match ascends(p, keep) {
        true => (above, below),
        false => (below, above),
    };
    let takes_it =
        |separator: &Vec<u8>| side_size(p, keep, separator, new.key) + new.room <= p.capacity();
    let first = first.filter(|separator| second.is_none() || takes_it(separator));
    first.or(second)
}

/// Bytes that the side of the split takes to which `key` belongs.
fn side_size(p: SlottedRef<'_>, keep: usize, separator: &[u8], key: &[u8]) -> usize {
    match key < separator {
        true => size_under(p, 0..keep, p.low(), Some(separator)),
        false => size_under(p, keep..p.n_slots(), separator, p.high()),
    }
}

/// Bytes of slots and records of `p`'s records from `slots` in a page of their own whose keys share `prefix`
/// bytes.
fn records_under(p: SlottedRef<'_>, slots: std::ops::Range<usize>, prefix: usize) -> usize {
    // PG-5: the first separator is not stored there.
    let first = (p.is_inner() && !slots.is_empty()).then_some(slots.start);
    let bare = first.map_or(0, |slot| record_cost(0, p.payload(slot).len()));
    let keyed = slots.start + usize::from(first.is_some())..slots.end;
    let n = keyed.len();
    let records: usize = keyed.map(|slot| p.cost(slot)).sum();
    // Each key loses the new prefix and gets back the old one. The sum can't be negative.
    bare + records + n * p.prefix_len() - n * prefix
}

/// The same with fences, in a page that has these.
fn size_under(
    p: SlottedRef<'_>,
    slots: std::ops::Range<usize>,
    low: &[u8],
    high: Option<&[u8]>,
) -> usize {
    let prefix = high.map_or(0, |h| common_prefix_len(low, h));
    let fences = low.len() + high.map_or(0, <[u8]>::len);
    fences + records_under(p, slots, prefix)
}

fn fits(p: SlottedRef<'_>, keep: usize, separator: &[u8]) -> bool {
    size_under(p, 0..keep, p.low(), Some(separator)) <= p.capacity()
        && size_under(p, keep..p.n_slots(), separator, p.high()) <= p.capacity()
}

/// Chooses the boundary for a page without `room` for `key` (in a leaf: to be inserted, or its record to
/// grow; in an inner page: to be covered). `None` if no boundary helps: in a leaf the record is larger than
/// the format allows, and an inner page has too few children.
pub(super) fn plan_split(p: SlottedRef<'_>, key: &[u8], room: usize) -> Option<SplitPlan> {
    let n = p.n_slots();
    if p.is_inner() && n < 2 * MIN_CHILDREN {
        return None;
    }
    let found = p.search(key);
    let new = found.err().map(|pos| Incoming { key, pos, room });
    let good = |keep: usize| {
        let separator = separator(p, keep, new)?;
        fits(p, keep, &separator).then_some(SplitPlan { keep, separator })
    };
    let has_room =
        |plan: &SplitPlan| side_size(p, plan.keep, &plan.separator, key) + room <= p.capacity();
    let by_pattern = match found {
        Err(pos) => run_boundary(p, pos).and_then(good),
        Ok(pos) => growth_boundary(p, pos).and_then(good).filter(has_room),
    };
    by_pattern
        .or_else(|| boundary_near(p, p.used_space() / 2).and_then(good))
        .or_else(|| {
            (0..=n)
                .filter_map(good)
                .min_by_key(|s| s.keep.abs_diff(n / 2))
        })
}

/// The split of an inner page without room, with three children, whose child in slot `child` is split at
/// `between` at the same time: of the four, two stay on either side. `None` if the page is not one to which
/// `page::max_key` promises room for them: it has another number of children, longer keys, or what no inner
/// page has.
pub(super) fn plan_joint(p: SlottedRef<'_>, child: usize, between: &[u8]) -> Option<SplitPlan> {
    let n = p.n_slots();
    let has_children_only = p.user().is_empty() && (0..n).all(|slot| child_at(p, slot).is_some());
    if n != 2 * MIN_CHILDREN - 1 || !has_children_only {
        return None;
    }
    let separators = [p.separator(1), p.separator(2)];
    let keys = separators.iter().map(Vec::as_slice).chain(p.high());
    let longest = keys.chain([p.low(), between]).map(<[u8]>::len).max();
    if longest > Some(max_key(p.bytes().len()) + VERSION_KEY_BYTES) {
        return None;
    }
    let [first, second] = separators;
    let (keep, separator) = match child {
        0 => (1, first),
        1 => (2, between.to_vec()),
        _ => (2, second),
    };
    Some(SplitPlan { keep, separator })
}

/// Records that go from one of two neighbouring leaves to the other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShiftPlan {
    pub moved: Moved,
    /// The new one between the two.
    pub separator: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// The left page's from this slot on.
    Right(usize),
    /// The right page's below this slot.
    Left(usize),
}

/// A leaf without room for `key` is worth a look at its neighbours: a record grows, or one is to be inserted
/// at the end of an ascending run that has others' records beyond it.
pub(super) fn may_shift(p: SlottedRef<'_>, key: &[u8]) -> bool {
    match p.search(key) {
        Ok(_) => true,
        Err(pos) => pos < p.n_slots() && ascends(p, pos),
    }
}

/// How to make room for `key`, which is to be inserted, or its record to grow, in one of two neighbouring
/// leaves that has no such `room`. If records grow one after the other, the leaf where they have done so is
/// filled, or what is still to grow goes where there is room; otherwise both become equally full. `None` if
/// there is too little to gain. If insertions come in a run, which leaves full pages behind by itself, the
/// right leaf gets no more than what lies beyond its end.
pub(super) fn plan_shift(
    left: SlottedRef<'_>,
    right: SlottedRef<'_>,
    key: &[u8],
    room: usize,
) -> Option<ShiftPlan> {
    let is_left_full = left.high().is_some_and(|high| key < high);
    let (full, other) = match is_left_full {
        true => (left, right),
        false => (right, left),
    };
    let (n, found) = (full.n_slots(), full.search(key));
    let new = found.err().map(|pos| Incoming { key, pos, room });
    if let Some(end) = new.and_then(|new| run_boundary(full, new.pos)) {
        let goes = is_left_full && end < n && ascends(full, end);
        let separator = separator(full, end, new).filter(|_| goes)?;
        let plan = shift_that_fits(left, right, Moved::Right(end), separator, (key, room))?;
        let spare = right.capacity() / 8;
        let size = sizes_after_shift(left, right, &plan.moved, &plan.separator)[1];
        return (size + spare <= right.capacity()).then_some(plan);
    }
    let (capacity, most, least) = (
        full.capacity(),
        full.used_space() + room,
        other.used_space(),
    );
    let fills = |bytes: usize| (bytes >= capacity / 16).then_some(bytes);
    let half = || match most + least + capacity / 8 > 2 * capacity {
        true => None,
        false => Some(most.checked_sub(least)? / 2),
    };
    // So many bytes go, from the end next to the other page on.
    let mut excess = match found.map(|pos| (pos, growth_at(full, pos))) {
        // What is in the other page has grown, and needs no room, but for what goes there now.
        Ok((_, Some(order))) if (order == Growth::Ascending) != is_left_full => {
            fills(capacity.checked_sub(least + room)? / 9 * 8)?
        }
        // What is to grow goes where there is room.
        Ok((pos, Some(order))) => {
            let waiting = match order {
                Growth::Ascending => pos + 1..n,
                Growth::Descending => 0..pos,
            };
            let waiting: usize = waiting.map(|slot| full.cost(slot)).sum();
            waiting.max(capacity / 8).max(room).min(half()?)
        }
        // Perhaps some of them do: mostly it is in the order of their keys.
        Ok((_, None)) if !is_left_full => fills(capacity.checked_sub(least + capacity / 16)?)?,
        _ => half()?,
    };
    let slots: &mut dyn Iterator<Item = usize> = match is_left_full {
        true => &mut (1..n).rev(),
        false => &mut (0..n.saturating_sub(1)),
    };
    let goes = |slot: &usize| {
        let left = excess.checked_sub(full.cost(*slot));
        left.map(|left| excess = left).is_some()
    };
    let last = slots.take_while(goes).last()?;
    let keep = last + usize::from(!is_left_full);
    let moved = match is_left_full {
        true => Moved::Right(keep),
        false => Moved::Left(keep),
    };
    let separator = separator(full, keep, new)?;
    shift_that_fits(left, right, moved, separator, (key, room))
}

/// The shift, if both leaves take what they will have, and the key's `room`.
fn shift_that_fits(
    left: SlottedRef<'_>,
    right: SlottedRef<'_>,
    moved: Moved,
    separator: Vec<u8>,
    (key, room): (&[u8], usize),
) -> Option<ShiftPlan> {
    let mut sizes = sizes_after_shift(left, right, &moved, &separator);
    sizes[usize::from(key >= &separator[..])] += room;
    let fits = sizes.iter().all(|size| *size <= left.capacity());
    fits.then_some(ShiftPlan { moved, separator })
}

/// Bytes that two neighbouring leaves take then, fences included.
fn sizes_after_shift(
    left: SlottedRef<'_>,
    right: SlottedRef<'_>,
    moved: &Moved,
    separator: &[u8],
) -> [usize; 2] {
    let (low, high) = (left.low(), right.high());
    let (l, r) = (left.n_slots(), right.n_slots());
    match *moved {
        Moved::Right(keep) => {
            let prefix = high.map_or(0, |high| common_prefix_len(separator, high));
            let gets = records_under(left, keep..l, prefix);
            [
                size_under(left, 0..keep, low, Some(separator)),
                size_under(right, 0..r, separator, high) + gets,
            ]
        }
        Moved::Left(keep) => {
            let gets = records_under(right, 0..keep, common_prefix_len(low, separator));
            [
                size_under(left, 0..l, low, Some(separator)) + gets,
                size_under(right, keep..r, separator, high),
            ]
        }
    }
}

/// The page's last insertion was right before this place.
fn ascends(p: SlottedRef<'_>, pos: usize) -> bool {
    pos > 0 && p.last_insert() == Some(pos - 1)
}

/// The boundary that suits a run of insertions, if the page's last one was next to this one: where the run
/// goes on. What lies beyond belongs to others, such as another run that began behind this one. It goes to
/// a page of its own, and the run has the rest of this one (`separator`): then the next split is at its end,
/// and leaves a full page. Others that stayed with the run would be split off again and again, and each page
/// left behind would lack what they take.
///
/// The last leaf is where several clients insert numbers that somebody counts, and not quite in their order.
/// So an insertion behind its middle is taken for one of those: the page is left nearly full, with some room
/// for those that come late.
fn run_boundary(p: SlottedRef<'_>, pos: usize) -> Option<usize> {
    let n = p.n_slots();
    let goes_on = ascends(p, pos) || p.last_insert() == Some(pos);
    match p.level() {
        0 if goes_on => Some(pos),
        0 if p.high().is_none() && 2 * pos >= n => Some(n - n / 8),
        1.. if goes_on => Some(pos.clamp(MIN_CHILDREN, n - MIN_CHILDREN)),
        _ => None,
    }
}

/// Where to split a full leaf in which the record in slot `pos` grows, if its records do one after the other.
/// Those that have grown need no more room: they stay together, about seven eighths of the page at least. The
/// other page, nearly empty, takes what has no room elsewhere ([`plan_shift`]); halves would stay halves.
fn growth_boundary(p: SlottedRef<'_>, pos: usize) -> Option<usize> {
    let last = p.n_slots().checked_sub(1)?;
    let (used, least) = (p.used_space(), p.used_space() / 8);
    Some(match growth_at(p, pos)? {
        Growth::Ascending => boundary_near(p, used - least)?.max(pos + 1).min(last),
        Growth::Descending => boundary_near(p, least)?.min(pos).max(1),
    })
}

/// The order in which the records of a leaf grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Growth {
    Ascending,
    Descending,
}

/// In which order they do, where the next one is that in slot `pos`: those on one side of it have a younger
/// writer than those on the other. `None` if it does not look like either order.
fn growth_at(p: SlottedRef<'_>, pos: usize) -> Option<Growth> {
    const LOOKED_AT: usize = 4;
    let range = |slots: std::ops::Range<usize>| {
        let writers = slots.map(|slot| writer_of(p.payload(slot)).unwrap_or_default());
        (writers.clone().min(), writers.max())
    };
    let before = range(pos.saturating_sub(LOOKED_AT)..pos);
    let after = range(pos + 1..(pos + 1 + LOOKED_AT).min(p.n_slots()));
    // None at one end of the page is no answer either.
    match (before, after) {
        ((Some(oldest), _), (_, Some(youngest))) if oldest > youngest => Some(Growth::Ascending),
        ((_, Some(youngest)), (Some(oldest), _)) if youngest < oldest => Some(Growth::Descending),
        _ => None,
    }
}

/// The boundary below which there are as near as possible so many bytes, or one near it with a shorter
/// separator.
fn boundary_near(p: SlottedRef<'_>, bytes: usize) -> Option<usize> {
    let n = p.n_slots();
    let least = match p.is_inner() {
        true => MIN_CHILDREN,
        false => 1,
    };
    if n < 2 * least {
        return None;
    }
    let mut sum = 0;
    let mut mid = 0;
    while mid < n && sum + p.cost(mid) / 2 < bytes {
        sum += p.cost(mid);
        mid += 1;
    }
    let mid = mid.clamp(least, n - least);
    let reach = n / 16;
    (mid.saturating_sub(reach).max(least)..=(mid + reach).min(n - least)).min_by_key(|&keep| {
        let length = match p.level() {
            0 => common_prefix_len(p.key_suffix(keep - 1), p.key_suffix(keep)),
            _ => p.key_suffix(keep).len(),
        };
        (length, keep.abs_diff(mid))
    })
}

/// `right`'s records go into `left`, its left neighbour, with room to spare: a page that is full again at
/// once would soon be split again. An empty page goes in any case, and so does an inner page with one child:
/// it only makes trees higher.
pub(super) fn can_merge(left: SlottedRef<'_>, right: SlottedRef<'_>) -> bool {
    let (low, high) = (left.low(), right.high());
    let prefix = high.map_or(0, |h| common_prefix_len(low, h));
    // The right page's first separator, which it has as its low fence only, is between two others then
    // (PG-5).
    let between = match right.is_inner() {
        true => right.low().len() - prefix,
        false => 0,
    };
    let sum = size_under(left, 0..left.n_slots(), low, high)
        + between
        + records_under(right, 0..right.n_slots(), prefix);
    let spare = match left.n_slots().min(right.n_slots()) {
        0 => 0,
        1 if left.is_inner() => 0,
        _ => left.capacity() / 8,
    };
    sum + spare <= left.capacity()
}
