//! All ways of reading a table, each compared with an ordered map of what the transaction is to see.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::SmallRng;
use varve::{
    ColumnType, Cursor, Datum, IndexDef, KeyMatch, KeyPart, LockMode, Peeked, Table, TableDef,
    Transaction,
};

pub type Row = (i64, Vec<u8>);
pub type Rows = BTreeMap<i64, Row>;

/// Values of `k`.
pub const KS: i64 = 6;

pub fn definition(name: &str) -> TableDef {
    let by_text = KeyPart::new(2).descending().prefix(40);
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("text", ColumnType::Bytes(100_000))
        .primary(&["id"])
        .index("by_k", &["k"])
        .add_index(IndexDef::new("by_text", vec![by_text]))
}

pub fn row_of(cursor: &Cursor) -> (i64, Row) {
    let row = cursor.row().unwrap();
    let int = |column| i64::from_le_bytes(row.get(column).unwrap().try_into().unwrap());
    (int(0), (int(1), row.get(2).unwrap().to_vec()))
}

/// By which an index has its rows in order.
type Order = (i64, Reverse<Vec<u8>>, i64);

pub fn order(index: usize, id: i64, row: &Row) -> Order {
    match index {
        0 => (0, Reverse(vec![]), id),
        1 => (row.0, Reverse(vec![]), id),
        _ => (0, Reverse(row.1[..row.1.len().min(40)].to_vec()), id),
    }
}

/// What a transaction is to see, in the order of an index.
pub struct Sorted<'r> {
    index: usize,
    rows: Vec<(Order, &'r Row)>,
}

impl<'r> Sorted<'r> {
    pub fn new(index: usize, rows: &'r Rows) -> Sorted<'r> {
        let place = |(id, row): (&i64, &'r Row)| (order(index, *id, row), row);
        let mut rows: Vec<_> = rows.iter().map(place).collect();
        rows.sort();
        Sorted { index, rows }
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn row(&self, at: usize) -> (i64, Row) {
        let (order, row) = &self.rows[at];
        (order.2, (*row).clone())
    }

    /// The place of the first row that comes after `order`, and of the last that comes before it.
    pub fn around(&self, order: &Order) -> (Option<usize>, Option<usize>) {
        let after = self.rows.partition_point(|(o, _)| o <= order);
        let before = self.rows.partition_point(|(o, _)| o < order);
        ((after < self.len()).then_some(after), before.checked_sub(1))
    }

    /// The first row whose key is at least `key`, or above it.
    fn from(&self, key: i64, is_above: bool) -> usize {
        let value = |order: &Order| if self.index == 0 { order.2 } else { order.0 };
        let is_before = |o: &Order| value(o) < key || is_above && value(o) == key;
        self.rows.partition_point(|(o, _)| is_before(o))
    }

    /// The cursor, which says whether it is on a row, must be at this place.
    #[track_caller]
    pub fn is_at(&self, cursor: &Cursor, found: bool, at: Option<usize>, doing: &str) {
        let index = self.index;
        assert_eq!(cursor.on_row(), found);
        match at {
            None => assert!(
                !found,
                "index {index}, {doing}: {} is found",
                row_of(cursor).0
            ),
            Some(at) => {
                let (id, row) = self.row(at);
                let head = (row.0, row.1.len());
                assert!(
                    found,
                    "index {index}, {doing}: {id} {head:?} is not found, {at} of {}",
                    self.len()
                );
                let (found_id, got) = row_of(cursor);
                let got_head = (got.0, got.1.len());
                let heads = ((found_id, got_head), (id, head));
                assert_eq!(heads.0, heads.1, "index {index}, {doing}");
                assert!(got == row, "index {index}, {doing}: the text of {id}");
            }
        }
    }
}

/// Reads the table in all ways.
pub fn compare(table: &Table, trx: &mut Transaction, rows: &Rows, rng: &mut SmallRng, ids: i64) {
    for index in 0..3 {
        let sorted = Sorted::new(index, rows);
        scan(table, trx, &sorted, rng.random());
        walk(table, trx, &sorted, rng);
    }
    for index in 0..2 {
        let sorted = Sorted::new(index, rows);
        let keys = [ids, KS][index];
        for _ in 0..4 {
            seek(table, trx, &sorted, rng.random_range(-1..=keys), rng);
        }
        within_bounds(table, trx, &sorted, keys, rng);
        in_portions(table, trx, &sorted, rng);
    }
    keys_only(table, trx, rows, rng);
}

fn scan(table: &Table, trx: &mut Transaction, sorted: &Sorted<'_>, backward: bool) {
    let mut cursor = table.cursor(sorted.index).unwrap();
    let mut found = match backward {
        true => cursor.last(trx, LockMode::None).unwrap(),
        false => cursor.first(trx, LockMode::None).unwrap(),
    };
    for n in 0..sorted.len() {
        let at = if backward { sorted.len() - 1 - n } else { n };
        let doing = format!("scan, backward {backward}");
        sorted.is_at(&cursor, found, Some(at), &doing);
        found = match backward {
            true => cursor.prev(trx).unwrap(),
            false => cursor.next(trx).unwrap(),
        };
    }
    sorted.is_at(&cursor, found, None, "the end of a scan");
}

/// Turns round now and then.
fn walk(table: &Table, trx: &mut Transaction, sorted: &Sorted<'_>, rng: &mut SmallRng) {
    let mut cursor = table.cursor(sorted.index).unwrap();
    let (mut found, mut at) = match rng.random() {
        true => (cursor.first(trx, LockMode::None).unwrap(), 0),
        false => {
            let last = sorted.len().saturating_sub(1);
            (cursor.last(trx, LockMode::None).unwrap(), last)
        }
    };
    let mut backward: bool = rng.random();
    for _ in 0..30 {
        sorted.is_at(
            &cursor,
            found,
            (at < sorted.len()).then_some(at),
            "walk that turns",
        );
        if !found {
            return;
        }
        if rng.random_ratio(1, 5) {
            backward = !backward;
        }
        at = if backward { at.wrapping_sub(1) } else { at + 1 };
        found = match backward {
            true => cursor.prev(trx).unwrap(),
            false => cursor.next(trx).unwrap(),
        };
    }
}

fn seek(table: &Table, trx: &mut Transaction, sorted: &Sorted<'_>, key: i64, rng: &mut SmallRng) {
    use KeyMatch::{After, AtLeast, AtMost, Before, Exact, ExactLast};
    let how = [Exact, ExactLast, AtLeast, After, AtMost, Before][rng.random_range(0..6)];
    let (first, behind) = (sorted.from(key, false), sorted.from(key, true));
    let mut at = match how {
        Exact if first < behind => Some(first),
        ExactLast if first < behind => Some(behind - 1),
        Exact | ExactLast => None,
        AtLeast => Some(first),
        After => Some(behind),
        AtMost => behind.checked_sub(1),
        Before => first.checked_sub(1),
    };
    at = at.filter(|at| *at < sorted.len());
    let doing = format!("{how:?} {key}");
    let bytes = key.to_le_bytes();
    let mut cursor = table.cursor(sorted.index).unwrap();
    let values: [Datum; 1] = [Some(&bytes)];
    let mut found = cursor.seek(trx, &values, how, LockMode::None).unwrap();
    for _ in 0..6 {
        sorted.is_at(&cursor, found, at, &doing);
        if !found {
            return;
        }
        (found, at) = match how {
            Exact => {
                let next = at.map(|at| at + 1).filter(|at| *at < behind);
                (cursor.next_same(trx).unwrap(), next)
            }
            ExactLast | AtMost | Before => {
                let next = at.and_then(|at| at.checked_sub(1));
                (cursor.prev(trx).unwrap(), next)
            }
            AtLeast | After => {
                let next = at.map(|at| at + 1).filter(|at| *at < sorted.len());
                (cursor.next(trx).unwrap(), next)
            }
        };
    }
}

fn within_bounds(
    table: &Table,
    trx: &mut Transaction,
    sorted: &Sorted<'_>,
    keys: i64,
    rng: &mut SmallRng,
) {
    let (low, high) = (rng.random_range(0..keys), rng.random_range(0..keys));
    let (low, high) = (low.min(high), low.max(high));
    let (low_in, high_in) = (rng.random::<bool>(), rng.random::<bool>());
    let (low_bytes, high_bytes) = (low.to_le_bytes(), high.to_le_bytes());
    let (start, end) = (sorted.from(low, !low_in), sorted.from(high, high_in));
    let mut cursor = table.cursor(sorted.index).unwrap();
    let doing = format!("from {low} ({low_in}) to {high} ({high_in})");
    let (none, low, high): (_, [Datum; 1], [Datum; 1]) =
        (LockMode::None, [Some(&low_bytes)], [Some(&high_bytes)]);
    if rng.random() {
        cursor.set_end(Some((&high, high_in))).unwrap();
        let how = if low_in {
            KeyMatch::AtLeast
        } else {
            KeyMatch::After
        };
        let mut found = cursor.seek(trx, &low, how, none).unwrap();
        for at in start..end {
            sorted.is_at(&cursor, found, Some(at), &doing);
            found = cursor.next(trx).unwrap();
        }
        assert!(!found, "{doing}: more than {} rows", end - start);
    } else {
        cursor.set_begin(Some((&low, low_in))).unwrap();
        let how = if high_in {
            KeyMatch::AtMost
        } else {
            KeyMatch::Before
        };
        let mut found = cursor.seek(trx, &high, how, none).unwrap();
        for at in (start..end).rev() {
            sorted.is_at(&cursor, found, Some(at), &doing);
            found = cursor.prev(trx).unwrap();
        }
        assert!(
            !found,
            "{doing}, backward: more than {} rows",
            end.saturating_sub(start)
        );
    }
}

/// Looks at rows ahead, and passes over them.
fn in_portions(table: &Table, trx: &mut Transaction, sorted: &Sorted<'_>, rng: &mut SmallRng) {
    let mut cursor = table.cursor(sorted.index).unwrap();
    cursor.set_keys_suffice(true);
    let mut found = cursor.first(trx, LockMode::None).unwrap();
    let mut at = 0;
    while found {
        let mut portion = 0;
        for n in 0..cursor.peekable().min(rng.random_range(0..20)) {
            let Some(peeked) = cursor.peek(trx, n) else {
                break;
            };
            assert!(at + 1 + n < sorted.len(), "a row too many is looked at");
            let (id, row) = sorted.row(at + 1 + n);
            match peeked {
                Peeked::Row(got) => {
                    assert_eq!(got.get(0), Some(&id.to_le_bytes()[..]), "looked at");
                    assert_eq!(got.get(1), Some(&row.0.to_le_bytes()[..]), "looked at");
                    assert!(got.get(2) == Some(&row.1[..]), "looked at {id}");
                }
                Peeked::Entry(entry) => {
                    let key = [entry.key.0, entry.key.1].concat();
                    assert!(key.ends_with(&position(id)), "looked at {id}");
                }
            }
            portion = n + 1;
        }
        cursor.pass(trx, portion);
        at += portion;
        let is_it = at < sorted.len() && cursor.position() == position(sorted.row(at).0);
        assert!(is_it, "index {}, portions: {at}", sorted.index);
        at += 1;
        found = cursor.next(trx).unwrap();
    }
    assert_eq!(at, sorted.len(), "index {}, portions", sorted.index);
}

/// The clustered key of a row with this id.
fn position(id: i64) -> [u8; 8] {
    (id ^ i64::MIN).to_be_bytes()
}

fn keys_only(table: &Table, trx: &mut Transaction, rows: &Rows, rng: &mut SmallRng) {
    let k = rng.random_range(0..KS);
    let mut expected: Vec<i64> = rows
        .iter()
        .filter(|(_, row)| row.0 == k)
        .map(|(id, _)| *id)
        .collect();
    let how = match rng.random() {
        true => KeyMatch::Exact,
        false => {
            expected.reverse();
            KeyMatch::ExactLast
        }
    };
    let mut cursor = table.cursor(1).unwrap();
    cursor.set_keys_suffice(true);
    let key = k.to_le_bytes();
    let mut found = cursor
        .seek(trx, &[Some(&key)], how, LockMode::None)
        .unwrap();
    let mut ids = Vec::new();
    while found {
        ids.push(i64::from_be_bytes(cursor.position().try_into().unwrap()) ^ i64::MIN);
        found = match how {
            KeyMatch::Exact => cursor.next_same(trx).unwrap(),
            _ => cursor.prev(trx).unwrap() && cursor.key()[..cursor.key().len() - 8] == key_of(k),
        };
    }
    assert_eq!(ids, expected, "rows with k = {k}, {how:?}");
}

/// What the entry of a row with this `k` begins with: no NULL, then the value.
fn key_of(k: i64) -> Vec<u8> {
    (k ^ i64::MIN).to_be_bytes().to_vec()
}
