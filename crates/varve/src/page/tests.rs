//! Model tests of slotted pages: random operations against a sorted vector, every one of them also encoded,
//! decoded and replayed; damaged bytes that must be refused without a panic.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::base::{IndexId, NO_PAGE, PageId, PageNo, RollPtr, RowHead, SpaceId, TrxId};

const SIZE: usize = 4096;
const ID: PageId = PageId::new(SpaceId(5), PageNo(7));

type Model = Vec<(Vec<u8>, Vec<u8>)>;

fn format_op<'a>(ptype: PageType, low: &'a [u8], high: Option<&'a [u8]>) -> PageOp<'a> {
    PageOp::FormatSlotted {
        ptype,
        owner: 77,
        level: u16::from(ptype == PageType::Inner),
        user_len: if ptype == PageType::UndoLog { 100 } else { 0 },
        next: NO_PAGE,
        low,
        high,
    }
}

fn apply(page: &mut [u8], op: PageOp<'_>) {
    op.apply(page, ID).expect("an operation that fits");
}

fn contents(page: &[u8]) -> Model {
    let p = SlottedRef::new(page);
    let key = |i| match p.is_inner() {
        true => p.separator(i),
        false => p.key(i),
    };
    (0..p.n_slots())
        .map(|i| (key(i), p.payload(i).to_vec()))
        .collect()
}

/// Applies `op` to `page`, and what it decodes to after encoding to `twin`: both must stay equal.
fn apply_twice(page: &mut [u8], twin: &mut [u8], op: PageOp<'_>) -> bool {
    let before = page.to_vec();
    let mut bytes = Vec::new();
    op.encode(&mut bytes);
    let (again, len) = PageOp::decode(&bytes).expect("just encoded");
    assert_eq!(PageOp::encoded_len(&bytes), Ok(len));
    assert_eq!((again, len), (op, bytes.len()));
    let done = op.apply(page, ID).is_ok();
    assert_eq!(again.apply(twin, ID).is_ok(), done);
    assert!(page == twin, "replay differs for {op:?}");
    assert!(done || before == page, "a refused {op:?} changed the page");
    validate(page, ID).expect("an operation leaves a valid page");
    done
}

/// What `RemoveMany` does, in many operations.
fn remove_singly(page: &mut [u8], slots: &[[u8; 2]]) {
    for (n, slot) in slots.iter().enumerate() {
        let slot = u16::from_le_bytes(*slot) - n as u16;
        apply(page, PageOp::Remove { slot });
    }
}

/// Between slots and heap there may be anything.
#[track_caller]
fn assert_same_but_for_free_bytes(a: &[u8], b: &[u8]) {
    let [a, b] = [a, b].map(|page| {
        let p = SlottedRef::new(page);
        let mut page = page.to_vec();
        page[p.heap_low() - p.contiguous()..p.heap_low()].fill(0);
        page
    });
    assert!(a == b);
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Remove(prop::sample::Index),
    /// The slots for whose numbers the bits are set, which go round.
    RemoveMany(u64),
    /// At, cut, bytes.
    Update(prop::sample::Index, u16, u16, Vec<u8>),
    Patch(prop::sample::Index, u16, Vec<u8>),
    Widen(prop::sample::Index, u16, Vec<u8>),
    /// At, cut; the slots as in `RemoveMany`.
    Cut(u16, u16, u64),
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![4 => vec(any::<u8>(), 0..40), 1 => vec(any::<u8>(), 0..900)]
}

/// Few distinct bytes and short keys make equal heads, equal prefixes and duplicates likely.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(0u8..3, 0..8), vec(any::<u8>(), 0..20)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (key(), payload()).prop_map(|(k, p)| Step::Put(k, p)),
        2 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => (any::<u64>(), any::<u64>()).prop_map(|(a, b)| Step::RemoveMany(a & b)),
        2 => (any::<prop::sample::Index>(), 0u16..12, 0u16..12, payload())
            .prop_map(|(i, at, cut, p)| Step::Update(i, at, cut, p)),
        1 => (any::<prop::sample::Index>(), 0u16..50, vec(any::<u8>(), 0..20))
            .prop_map(|(i, o, b)| Step::Patch(i, o, b)),
        1 => (any::<prop::sample::Index>(), 0u16..50, vec(any::<u8>(), 0..20))
            .prop_map(|(i, o, b)| Step::Widen(i, o, b)),
        1 => (0u16..4, 0u16..8, any::<u64>(), any::<u64>())
            .prop_map(|(at, cut, a, b)| Step::Cut(at, cut, a & b)),
    ]
}

fn head_of_row(trx: u64) -> RowHead {
    RowHead {
        flags: 1,
        trx: TrxId(trx),
        roll_ptr: RollPtr::new(false, 40, PageNo(9000), 300),
    }
}

struct Pair {
    page: Vec<u8>,
    twin: Vec<u8>,
    model: Model,
    prefix: usize,
}

impl Pair {
    fn apply(&mut self, op: PageOp<'_>) -> bool {
        apply_twice(&mut self.page, &mut self.twin, op)
    }

    fn free(&self) -> usize {
        SlottedRef::new(&self.page).free_space()
    }

    fn step(&mut self, s: &Step, fence: &[u8]) {
        match s {
            Step::Put(tail, payload) => {
                let key = [fence, tail].concat();
                let found = SlottedRef::new(&self.page).search(&key);
                assert_eq!(found, self.model.binary_search_by(|(k, _)| k.cmp(&key)));
                let Err(at) = found else { return };
                let suffix = &key[self.prefix..];
                let fits = record_cost(suffix.len(), payload.len()) <= self.free();
                let slot = at as u16;
                let done = self.apply(PageOp::Insert {
                    slot,
                    suffix,
                    payload,
                });
                assert_eq!(done, fits, "an insert succeeds when there is room in total");
                if done {
                    self.model.insert(at, (key.clone(), payload.clone()));
                }
            }
            Step::Remove(_) | Step::Update(..) | Step::Patch(..) | Step::Widen(..)
                if self.model.is_empty() => {}
            Step::Remove(i) => {
                let at = i.index(self.model.len());
                assert!(self.apply(PageOp::Remove { slot: at as u16 }));
                self.model.remove(at);
            }
            Step::RemoveMany(bits) => {
                let is_removed = |slot: usize| bits >> (slot % 64) & 1 == 1;
                let slots = (0..self.model.len()).filter(|slot| is_removed(*slot));
                let slots: Vec<[u8; 2]> = slots.map(|slot| (slot as u16).to_le_bytes()).collect();
                let mut one_by_one = self.page.clone();
                remove_singly(&mut one_by_one, &slots);
                assert!(self.apply(PageOp::RemoveMany { slots: &slots }));
                assert_same_but_for_free_bytes(&self.page, &one_by_one);
                let mut slot = 0..;
                self.model.retain(|_| !slot.next().is_some_and(is_removed));
            }
            Step::Update(i, at, cut, bytes) => {
                let n = i.index(self.model.len());
                let head = head_of_row(u64::from(*at) << 40);
                let free = self.free();
                let row = &mut self.model[n].1;
                let from = RowHead::LEN + usize::from(*at);
                let to = from + usize::from(*cut);
                let fits = to <= row.len() && bytes.len() <= usize::from(*cut) + free;
                if fits {
                    row.splice(from..to, bytes.iter().copied());
                    row[..RowHead::LEN].copy_from_slice(&head.to_bytes());
                }
                let op = PageOp::UpdateRow {
                    slot: n as u16,
                    head,
                    at: *at,
                    cut: *cut,
                    bytes,
                };
                assert_eq!(self.apply(op), fits);
            }
            Step::Patch(i, off, bytes) => {
                let at = i.index(self.model.len());
                let end = *off as usize + bytes.len();
                let fits = end <= self.model[at].1.len();
                let op = PageOp::PatchPayload {
                    slot: at as u16,
                    off: *off,
                    bytes,
                };
                assert_eq!(self.apply(op), fits);
                if fits {
                    self.model[at].1[*off as usize..end].copy_from_slice(bytes);
                }
            }
            Step::Widen(i, off, bytes) => {
                let n = i.index(self.model.len());
                let (at, free) = (usize::from(*off), self.free());
                let payload = &mut self.model[n].1;
                let fits = at <= payload.len() && bytes.len() <= free;
                if fits {
                    payload.splice(at..at, bytes.iter().copied());
                }
                let (slot, off) = (n as u16, *off);
                assert_eq!(self.apply(PageOp::WidenPayload { slot, off, bytes }), fits);
            }
            Step::Cut(off, cut, bits) => {
                let n = self.model.len();
                let is_cut = |slot: usize| bits >> (slot % 64) & 1 == 1;
                let mut slots = vec![0; n.div_ceil(8)];
                (0..n)
                    .filter(|slot| is_cut(*slot))
                    .for_each(|slot| slots[slot / 8] |= 1 << (slot % 8));
                let (from, to) = (usize::from(*off), usize::from(off + cut));
                let mut all = self.model.iter().enumerate();
                let fits = all.all(|(slot, (_, payload))| !is_cut(slot) || to <= payload.len());
                let (off, cut, slots) = (*off, *cut, &slots[..]);
                let last = SlottedRef::new(&self.page).last_insert();
                assert_eq!(self.apply(PageOp::CutPayloads { off, cut, slots }), fits);
                assert_eq!(SlottedRef::new(&self.page).last_insert(), last);
                let mut all = self.model.iter_mut().enumerate();
                all.by_ref()
                    .filter(|(slot, _)| fits && is_cut(*slot))
                    .for_each(|(_, (_, payload))| drop(payload.drain(from..to)));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// PG-1: each operation is done twice, the second time as decoded, with the same outcome. PG-4: all keys
    /// have the prefix, and lie between the fences.
    #[test]
    fn a_page_behaves_like_a_sorted_vector(
        fence in vec(any::<u8>(), 0..6),
        bounded in any::<bool>(),
        steps in vec(step(), 1..120),
    ) {
        // All keys start with `fence`; the upper fence is the smallest string above all of them.
        let mut high = fence.clone();
        high.extend_from_slice(&[0xff; 24]);
        let mut pair = Pair { page: vec![0; SIZE], twin: vec![0; SIZE], model: Vec::new(), prefix: 0 };
        pair.apply(format_op(PageType::Leaf, &fence, bounded.then_some(&high[..])));
        pair.prefix = SlottedRef::new(&pair.page).prefix_len();
        prop_assert_eq!(pair.prefix, if bounded { fence.len() } else { 0 });
        for s in &steps {
            pair.step(s, &fence);
            prop_assert_eq!(&contents(&pair.page), &pair.model);
        }
        let p = SlottedRef::new(&pair.page);
        for (i, (k, _)) in pair.model.iter().enumerate() {
            prop_assert_eq!(p.search(k), Ok(i));
            prop_assert!(p.covers(k));
        }
    }

    #[test]
    fn splitting_and_merging_keeps_every_record(
        start in vec(0u8..3, 0..5),
        tails in prop::collection::btree_set(vec(0u8..4, 0..12), 2..80),
        cut in any::<prop::sample::Index>(),
        ptype in prop::sample::select(vec![PageType::Leaf, PageType::Inner]),
    ) {
        let mut high = start.clone();
        high.push(0xff);
        let mut left = vec![0; SIZE];
        apply(&mut left, format_op(ptype, &start, Some(&high)));
        let prefix = SlottedRef::new(&left).prefix_len();
        for (i, t) in tails.iter().enumerate() {
            let key = [&start[..], t].concat();
            let suffix = match (i, ptype) {
                (0, PageType::Inner) => &[][..],
                _ => &key[prefix..],
            };
            apply(&mut left, PageOp::Insert { slot: i as u16, suffix, payload: t });
        }
        let whole = contents(&left);
        prop_assert_eq!(&whole[1].0, &[&start[..], tails.iter().nth(1).expect("two")].concat());
        let at = 1 + cut.index(whole.len() - 1);
        let sep = whole[at].0.clone();

        let mut right = vec![0; SIZE];
        let from = SlottedRef::new(&left);
        let recs = BulkRecsBuilder::rebase(from, at..whole.len(), &sep, Some(&high));
        apply(&mut right, format_op(ptype, &sep, Some(&high)));
        apply(&mut right, PageOp::BulkInsert { recs: recs.recs() });
        let mut twin = left.clone();
        let trim = PageOp::Trim { keep: at as u16, high: &sep, next: PageNo(9) };
        prop_assert!(apply_twice(&mut left, &mut twin, trim));
        prop_assert_eq!(&contents(&left), &whole[..at]);
        prop_assert_eq!(&contents(&right), &whole[at..]);
        prop_assert_eq!(SlottedRef::new(&left).high(), Some(&sep[..]));

        let r = SlottedRef::new(&right);
        let recs = BulkRecsBuilder::rebase(r, 0..r.n_slots(), &start, r.high());
        let widen = PageOp::Widen { high: r.high(), next: r.next() };
        prop_assert!(apply_twice(&mut left, &mut twin, widen));
        let fill = PageOp::BulkInsert { recs: recs.recs() };
        prop_assert!(apply_twice(&mut left, &mut twin, fill));
        prop_assert_eq!(contents(&left), whole);
    }

    #[test]
    fn an_image_restores_the_page(tails in vec(payload(), 0..4), raw in any::<bool>()) {
        let mut page = vec![0; SIZE];
        if raw {
            apply(&mut page, PageOp::FormatRaw { ptype: PageType::Raw });
            apply(&mut page, PageOp::Write { off: 200, bytes: b"something" });
        } else {
            apply(&mut page, format_op(PageType::UndoLog, b"", None));
            apply(&mut page, PageOp::WriteUser { off: 3, bytes: b"user" });
            for payload in &tails {
                apply(&mut page, PageOp::Append { payload });
            }
        }
        let mut scratch = Vec::new();
        let op = PageOp::image_of(&page, &mut scratch);
        let mut encoded = Vec::new();
        op.encode(&mut encoded);
        prop_assert!(encoded.len() < page.len());
        let mut other = vec![0; SIZE];
        apply(&mut other, PageOp::decode(&encoded).expect("just encoded").0);
        prop_assert!(other == page);
    }

    /// PG-2 and PG-3.
    #[test]
    fn any_bytes_as_operations_leave_a_valid_page_or_change_nothing(
        start in any::<[u8; 4]>(),
        op in 0u8..20,
        small in vec(0u8..12, 0..60),
        wild in vec(any::<u8>(), 0..60),
    ) {
        for tail in [&small, &wild] {
            let mut page = vec![0; SIZE];
            apply(&mut page, format_op(PageType::Leaf, b"", Some(b"zz")));
            for slot in 0..4u8 {
                let (suffix, payload) = (&[slot, start[slot as usize]], &start);
                apply(&mut page, PageOp::Insert { slot: slot as u16, suffix, payload });
            }
            let bytes = [&[op], &tail[..]].concat();
            if let Ok((op, len)) = PageOp::decode(&bytes) {
                assert_eq!(PageOp::encoded_len(&bytes), Ok(len));
                prop_assert!(len <= bytes.len());
                let mut twin = page.clone();
                apply_twice(&mut page, &mut twin, op);
            }
        }
    }

    /// PG-2.
    #[test]
    fn a_damaged_page_is_refused_or_readable(
        ptype in prop::sample::select(vec![PageType::Leaf, PageType::Inner, PageType::UndoLog]),
        damage in vec((48usize..400, any::<u8>()), 0..12),
        records in 0u8..20,
        key in vec(any::<u8>(), 0..6),
    ) {
        let mut page = vec![0; SIZE];
        apply(&mut page, format_op(ptype, b"aa", Some(b"ab")));
        for i in 0..records {
            let (slot, suffix, payload) = (i as u16, &[i][..], &[i, 0, 0, 0]);
            let suffix = if ptype == PageType::Inner && i == 0 { &[] } else { suffix };
            apply(&mut page, PageOp::Insert { slot, suffix, payload });
        }
        for (at, v) in damage {
            page[at] = v;
        }
        if validate(&page, ID).is_ok() {
            let p = SlottedRef::new(&page);
            for i in 0..p.n_slots() {
                let _ = (p.key(i), p.payload(i));
            }
            let _ = (p.search(&key), p.covers(&key), p.user(), p.free_space(), p.used_space());
            if let Ok(image) = InnerImage::decode(&page, ID) {
                let _ = (image.child_for(&key).no, image.child_below(&key).no);
            }
        }
    }

    #[test]
    fn an_inner_image_finds_what_a_scan_finds(
        low in vec(0u8..3, 0..4),
        tails in prop::collection::btree_set(vec(0u8..3, 0..14), 0..60),
        probes in vec(vec(0u8..3, 0..14), 1..20),
    ) {
        let mut high = low.clone();
        high.push(9);
        let mut separators = vec![low.clone()];
        separators.extend(tails.iter().filter(|t| !t.is_empty()).map(|t| [&low[..], t].concat()));
        let mut page = vec![0; SIZE];
        apply(&mut page, format_op(PageType::Inner, &low, Some(&high)));
        for (i, s) in separators.iter().enumerate() {
            let suffix = if i == 0 { &[] } else { &s[SlottedRef::new(&page).prefix_len()..] };
            let payload = &(1000 + i as u32).to_le_bytes();
            apply(&mut page, PageOp::Insert { slot: i as u16, suffix, payload });
        }
        let image = InnerImage::decode(&page, ID).expect("a well-formed inner page");
        prop_assert_eq!((image.index, image.level), (IndexId(77), 1));
        for (i, s) in separators.iter().enumerate() {
            prop_assert_eq!(&image.separator(i), s);
        }
        let mut keys: Vec<Vec<u8>> = probes.iter().map(|p| [&low[..], p].concat()).collect();
        keys.extend(separators.iter().cloned());
        for k in keys {
            let at = separators.iter().rposition(|s| s <= &k).expect("low fence ≤ key");
            prop_assert_eq!(image.child_for(&k).no, PageNo(1000 + at as u32));
            if k > low {
                let at = separators.iter().rposition(|s| s < &k).expect("low fence < key");
                prop_assert_eq!(image.child_below(&k).no, PageNo(1000 + at as u32));
            }
        }
        prop_assert_eq!(image.child_below(&high).no, PageNo(999 + separators.len() as u32));
    }
}

#[test]
fn the_largest_keys_leave_room_for_three_children() {
    for size in [4096, 8192, 16384, 32768, 65536] {
        let mut page = vec![0; size];
        let key = |last: u8| {
            let mut k = vec![last; max_key(size)];
            k[0] = last;
            k
        };
        let (low, high) = (key(1), key(9));
        apply(&mut page, format_op(PageType::Inner, &low, Some(&high)));
        for (slot, k) in [vec![], key(4), key(5)].iter().enumerate() {
            let (slot, suffix, payload) = (slot as u16, &k[..], &[0; 4]);
            apply(
                &mut page,
                PageOp::Insert {
                    slot,
                    suffix,
                    payload,
                },
            );
        }
        apply(&mut page, format_op(PageType::Leaf, &low, Some(&high)));
        let (suffix, payload) = (&key(5)[..], vec![0; max_record(size) - max_key(size)]);
        apply(
            &mut page,
            PageOp::Insert {
                slot: 0,
                suffix,
                payload: &payload,
            },
        );
    }
}

/// What an undo page gets is what an insert of an empty key behind all others makes of it.
#[test]
fn an_appended_record_is_the_last_one() {
    let mut page = vec![0; SIZE];
    apply(&mut page, format_op(PageType::UndoPage, b"", None));
    let mut twin = page.clone();
    let mut n = 0;
    while SlottedRef::new(&page).free_space() >= record_cost(0, 300) {
        let payload = &[n as u8; 300];
        let (slot, suffix) = (n, &[][..]);
        let insert = PageOp::Insert {
            slot,
            suffix,
            payload,
        };
        apply(&mut page, PageOp::Append { payload });
        apply(&mut twin, insert);
        assert!(page == twin);
        n += 1;
    }
    let before = page.clone();
    let append = PageOp::Append { payload: &[0; 300] };
    assert!(append.apply(&mut page, ID).is_err() && page == before && n > 10);
}

/// The operations of which each row that is written takes one or two are as short as docs/format.md says.
#[test]
fn operations_on_records_are_short() {
    for (op, len) in [
        (
            PageOp::UpdateRow {
                slot: 70,
                head: head_of_row(120_000),
                at: 17,
                cut: 5,
                bytes: b"12345",
            },
            20,
        ),
        (PageOp::Append { payload: &[7; 30] }, 32),
        (PageOp::Append { payload: &[7; 130] }, 133),
        (
            PageOp::Insert {
                slot: 200,
                suffix: b"key",
                payload: &[7; 30],
            },
            38,
        ),
        (
            PageOp::PatchPayload {
                slot: 70,
                off: 0,
                bytes: b"8 bytes.",
            },
            12,
        ),
        (PageOp::Remove { slot: 70 }, 2),
        (
            PageOp::CutPayloads {
                off: 1,
                cut: 7,
                slots: &[0xff; 70],
            },
            74,
        ),
    ] {
        let mut bytes = Vec::new();
        op.encode(&mut bytes);
        assert_eq!(bytes.len(), len, "{op:?}");
    }
}

/// PG-3: slots that are not there, or that do not ascend, are refused as a whole.
#[test]
fn removing_many_takes_slots_that_are_there_and_ascend() {
    for ptype in [PageType::Leaf, PageType::Inner] {
        let mut page = vec![0; SIZE];
        apply(&mut page, format_op(ptype, b"aa", Some(b"az")));
        for n in 0..5u8 {
            let (key, payload) = ([b'a' + n], &[n; 4]);
            let suffix = match (n, ptype) {
                (0, PageType::Inner) => &[][..],
                _ => &key[..],
            };
            let slot = n.into();
            let op = PageOp::Insert {
                slot,
                suffix,
                payload,
            };
            apply(&mut page, op);
        }
        let check = |removed: &[u16], left: &[u8]| {
            let slots: Vec<[u8; 2]> = removed.iter().map(|slot| slot.to_le_bytes()).collect();
            let (mut after, mut twin) = (page.clone(), page.clone());
            let op = PageOp::RemoveMany { slots: &slots };
            let done = apply_twice(&mut after, &mut twin, op);
            assert_eq!(
                done,
                left.len() + removed.len() == 5,
                "{ptype:?}, {removed:?}"
            );
            let found: Vec<u8> = contents(&after).iter().map(|(_, p)| p[0]).collect();
            assert_eq!(found, left, "{ptype:?}, {removed:?}");
        };
        let all = [0, 1, 2, 3, 4];
        check(&[], &all);
        check(&[1], &[0, 2, 3, 4]);
        check(&[1, 2, 4], &[0, 3]);
        check(&[1, 2, 3, 4], &[0]);
        check(&[0, 1, 2, 3, 4], &[]);
        for refused in [&[5][..], &[1, 5], &[1, 1], &[3, 2], &[1, 9, 2], &[4, 65535]] {
            check(refused, &all);
        }
        // PG-5
        match ptype {
            PageType::Inner => check(&[0, 2], &all),
            _ => check(&[0, 2], &[1, 3, 4]),
        }
    }
    assert_eq!(
        PageOp::decode(&[15, 3, 0, 1, 0, 2]),
        Err("half a slot number")
    );
}

/// PG-5: what would store a first separator, or put another one in its place, is refused.
#[test]
fn an_inner_page_does_not_store_its_first_separator() {
    let mut page = vec![0; SIZE];
    apply(&mut page, format_op(PageType::Inner, b"aa", Some(b"ac")));
    let mut recs = BulkRecsBuilder::default();
    recs.push(b"b", b"", &[0; 4]);
    let (slot, payload) = (0, &[0; 4][..]);
    let insert = |suffix| PageOp::Insert {
        slot,
        suffix,
        payload,
    };
    let recs = recs.recs();
    for op in [insert(b"b"), PageOp::BulkInsert { recs }] {
        let mut twin = page.clone();
        assert!(!apply_twice(&mut page, &mut twin, op));
    }
    apply(&mut page, insert(b""));
    apply(&mut page, PageOp::BulkInsert { recs });
    for op in [insert(b""), PageOp::Remove { slot }] {
        let mut twin = page.clone();
        assert!(!apply_twice(&mut page, &mut twin, op));
    }
    let p = SlottedRef::new(&page);
    assert_eq!([p.separator(0), p.separator(1)], [&b"aa"[..], b"ab"]);
    validate_keys(&page, ID).expect("in order");
    apply(&mut page, PageOp::Remove { slot: 1 });
    apply(&mut page, PageOp::Remove { slot });

    // A leaf that says it is an inner page.
    let mut page = vec![0; SIZE];
    apply(&mut page, format_op(PageType::Leaf, b"aa", Some(b"ac")));
    apply(&mut page, insert(b"b"));
    (page[12], page[56]) = (PageType::Inner as u8, 1);
    validate(&page, ID).expect("well-formed");
    assert!(validate_keys(&page, ID).is_err() && InnerImage::decode(&page, ID).is_err());
}

/// Prints the cost of a search in a full page; run with `--release -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn measure_search() {
    use std::hint::black_box;
    let key = |i: u64| (i * 977).to_be_bytes();
    let mut x = 88172645463325252u64;
    let mut random = move |n: usize| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (((x >> 32) * n as u64) >> 32) as usize
    };
    let rounds = 10_000_000;
    for (what, high, payload) in [
        ("leaf, heads differ", Some(&[0, 0, 0, 0, 1][..]), 100),
        ("leaf, heads equal", None, 100),
        ("inner", None, 4),
    ] {
        let mut page = vec![0; 16384];
        let ptype = if payload == 4 {
            PageType::Inner
        } else {
            PageType::Leaf
        };
        apply(&mut page, format_op(ptype, &[0; 5], high));
        let skip = SlottedRef::new(&page).prefix_len();
        let mut keys = Vec::new();
        loop {
            let (slot, k) = (keys.len() as u16, key(keys.len() as u64));
            let skip = if slot == 0 && payload == 4 {
                k.len()
            } else {
                skip
            };
            let (suffix, payload) = (&k[skip..], &[7; 100][..payload]);
            let op = PageOp::Insert {
                slot,
                suffix,
                payload,
            };
            if op.apply(&mut page, ID).is_err() {
                break;
            }
            keys.push(k);
        }
        let image = (payload == 4).then(|| InnerImage::decode(&page, ID).expect("well-formed"));
        let mut sum = 0;
        let t = std::time::Instant::now();
        for _ in 0..rounds {
            let k = &keys[random(keys.len())];
            sum += match &image {
                Some(image) => black_box(image).child_for(k).slot,
                None => SlottedRef::new(black_box(&page))
                    .search(k)
                    .expect("present"),
            };
        }
        let ns = t.elapsed().as_nanos() as f64 / rounds as f64;
        println!(
            "{what}: {} records, {ns:.1} ns ({})",
            keys.len(),
            black_box(sum) % 7
        );
    }
}
