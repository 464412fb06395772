//! Rows and keys of random tables: what goes in comes out, keys sort as their values do, and no bytes make
//! a reader panic.

use std::cmp::Ordering;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::base::{Error, PageNo, TrxId};

/// Short texts of few characters: equal, nearly equal and padded ones are frequent.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let c = prop_oneof![
        Just(' '),
        Just('a'),
        Just('A'),
        Just('b'),
        Just('\0'),
        Just('\x1f'),
        Just('ä'),
        Just('Ä'),
        Just('😀')
    ];
    prop_oneof![3 => vec(c.clone(), 0..6), 1 => vec(c, 6..11)]
        .prop_map(|s| s.into_iter().collect::<String>().into_bytes())
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(
        prop_oneof![3 => Just(0u8), 1 => Just(1), 1 => Just(0xff), 2 => any::<u8>()],
        0..=max,
    )
}

fn collation() -> impl Strategy<Value = CollationId> {
    prop_oneof![
        Just(CollationId::BINARY),
        Just(CollationId::UTF8_BIN),
        Just(CollationId::UTF8_BIN_PAD),
        Just(CollationId::ASCII_CI),
        Just(CollationId::UTF8_CI)
    ]
}

fn column_type() -> impl Strategy<Value = ColumnType> {
    prop_oneof![
        4 => (prop_oneof![Just(1u8), Just(2), Just(3), Just(4), Just(8)], any::<bool>())
            .prop_map(|(bytes, signed)| ColumnType::Int { bytes, signed }),
        1 => Just(ColumnType::Float),
        1 => Just(ColumnType::Double),
        1 => (1u32..6).prop_map(ColumnType::Fixed),
        2 => (1u32..12).prop_map(ColumnType::Bytes),
        3 => collation().prop_map(|c| ColumnType::text_in(c, 40)),
    ]
}

/// A datum of the type; integers and floats are often at the edges.
fn datum(ty: ColumnType) -> BoxedStrategy<Vec<u8>> {
    let edge = |n: usize| {
        prop_oneof![
            Just(vec![0; n]),
            Just(vec![0xff; n]),
            Just([vec![0; n - 1], vec![0x80]].concat()),
            Just([vec![0xff; n - 1], vec![0x7f]].concat()),
            vec(any::<u8>(), n)
        ]
    };
    match ty {
        ColumnType::Float => any::<f32>().prop_map(|v| v.to_le_bytes().to_vec()).boxed(),
        ColumnType::Double => prop_oneof![Just(-0.0), Just(0.0), any::<f64>()]
            .prop_map(|v: f64| v.to_le_bytes().to_vec())
            .boxed(),
        ColumnType::Int { bytes, .. } => edge(bytes as usize).boxed(),
        ColumnType::Fixed(n) => edge(n as usize).boxed(),
        ColumnType::Bytes(n) => bytes(n as usize).boxed(),
        ColumnType::Text { .. } => text().boxed(),
    }
}

fn maybe(column: &ColumnDef) -> BoxedStrategy<Option<Vec<u8>>> {
    let some = datum(column.ty).prop_map(Some);
    if column.nullable {
        prop_oneof![1 => Just(None), 3 => some].boxed()
    } else {
        some.boxed()
    }
}

fn columns(max: usize) -> impl Strategy<Value = Vec<ColumnDef>> {
    vec((column_type(), any::<bool>()), 1..=max).prop_map(|types| {
        let column = |(i, (ty, nullable)): (usize, (ColumnType, bool))| {
            let mut c = ColumnDef::new(format!("c{i}"), ty);
            (c.nullable, c.id) = (nullable, i as u32 + 1);
            c
        };
        types.into_iter().enumerate().map(column).collect()
    })
}

type OwnedRow = Vec<Option<Vec<u8>>>;

fn row_of(columns: &[ColumnDef]) -> BoxedStrategy<OwnedRow> {
    columns.iter().map(maybe).collect::<Vec<_>>().boxed()
}

fn datums(row: &OwnedRow) -> Vec<Datum<'_>> {
    row.iter().map(|d| d.as_deref()).collect()
}

/// Columns, index parts on some of them, and rows.
fn indexed(rows: usize) -> impl Strategy<Value = (Vec<ColumnDef>, Vec<KeyPart>, Vec<OwnedRow>)> {
    columns(4).prop_flat_map(move |columns| {
        let parts: Vec<_> = (0..columns.len())
            .map(|c| {
                let is_of_any_length = columns[c].ty.fixed_len().is_none();
                let prefixable = matches!(
                    columns[c].ty,
                    ColumnType::Fixed(_) | ColumnType::Bytes(_) | ColumnType::Text { .. }
                );
                let flags = (any::<bool>(), any::<bool>(), 0u32..6);
                flags.prop_map(move |(descending, segmented, prefix)| KeyPart {
                    descending,
                    segmented: segmented && is_of_any_length,
                    prefix_len: (prefixable && prefix > 0 && prefix < 4).then_some(prefix),
                    ..KeyPart::new(c)
                })
            })
            .collect();
        let parts = parts.prop_shuffle();
        let rows = vec(row_of(&columns), rows);
        (Just(columns), parts, rows)
    })
}

/// How two values of a column compare, said without any encoding.
fn semantic_cmp(ty: ColumnType, prefix: Option<u32>, a: &[u8], b: &[u8]) -> Ordering {
    let cut = |v: &[u8]| v[..v.len().min(prefix.map_or(usize::MAX, |n| n as usize))].to_vec();
    match ty {
        ColumnType::Int { bytes, signed } => {
            let value = |v: &[u8]| -> i128 {
                let mut word = [0; 16];
                word[..v.len()].copy_from_slice(v);
                let v = i128::from_le_bytes(word);
                let half = 1i128 << (bytes as u32 * 8 - 1);
                if signed && v >= half { v - 2 * half } else { v }
            };
            value(a).cmp(&value(b))
        }
        ColumnType::Float => {
            let value = |v: &[u8]| f32::from_le_bytes(v.try_into().unwrap()) + 0.0;
            value(a).total_cmp(&value(b))
        }
        ColumnType::Double => {
            let value = |v: &[u8]| f64::from_le_bytes(v.try_into().unwrap()) + 0.0;
            value(a).total_cmp(&value(b))
        }
        ColumnType::Fixed(_) | ColumnType::Bytes(_) => cut(a).cmp(&cut(b)),
        ColumnType::Text { collation, .. } => text_cmp(collation, prefix, a, b),
    }
}

fn text_cmp(collation: CollationId, prefix: Option<u32>, a: &[u8], b: &[u8]) -> Ordering {
    let chars = |v: &[u8]| -> Vec<char> {
        let text = String::from_utf8(v.to_vec()).unwrap();
        let n = prefix.map_or(usize::MAX, |n| n as usize);
        if matches!(collation, CollationId::BINARY | CollationId::ASCII_CI) {
            // Characters of one byte each.
            let v = &v[..v.len().min(n)];
            return v
                .iter()
                .map(|b| char::from_u32(*b as u32).unwrap())
                .collect();
        }
        text.chars().take(n).collect()
    };
    let fold = |c: char| match collation {
        CollationId::ASCII_CI => c.to_ascii_lowercase(),
        CollationId::UTF8_CI => c.to_lowercase().next().unwrap(),
        _ => c,
    };
    let (mut a, mut b): (Vec<_>, Vec<_>) = (
        chars(a).into_iter().map(fold).collect(),
        chars(b).into_iter().map(fold).collect(),
    );
    if collation == CollationId::UTF8_BIN_PAD {
        let len = a.len().max(b.len());
        a.resize(len, ' ');
        b.resize(len, ' ');
    }
    a.cmp(&b)
}

fn row_cmp(columns: &[ColumnDef], parts: &[KeyPart], a: &OwnedRow, b: &OwnedRow) -> Ordering {
    for part in parts {
        let ty = columns[part.column].ty;
        let order = match (&a[part.column], &b[part.column]) {
            (Some(a), Some(b)) => semantic_cmp(ty, part.prefix_len, a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        };
        let order = if part.descending {
            order.reverse()
        } else {
            order
        };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn rows_come_back(
        (columns, row) in columns(20).prop_flat_map(|c| { let r = row_of(&c); (Just(c), r) }),
        head in bytes(3),
    ) {
        let format = RowFormat::new(&columns, &[], 1).unwrap();
        let mut stored = head.clone();
        format.encode(&datums(&row), &mut stored).unwrap();
        prop_assert!(stored.starts_with(&head), "encode appends");
        let read = RowRef::new(&format, &stored[head.len()..]).unwrap();
        prop_assert_eq!(read.iter().collect::<Vec<_>>(), datums(&row));
        for (c, column) in columns.iter().enumerate() {
            // Values make the way as well, and encode to the same bytes.
            let mut buf = DatumBuf::new();
            read.value(c).unwrap().encode(column, &mut buf).unwrap();
            prop_assert_eq!(buf.get(0), read.get(c));
        }
    }

    #[test]
    fn keys_sort_as_values_do((columns, parts, rows) in indexed(2)) {
        let codec = KeyCodec::new(&columns, &parts, &Collations::new()).unwrap();
        let format = RowFormat::new(&columns, &[], 1).unwrap();
        let key = |row: &OwnedRow| {
            let (mut a, mut b, mut stored) = (vec![7], Vec::new(), Vec::new());
            codec.encode_columns(&datums(row), &mut a).unwrap();
            format.encode(&datums(row), &mut stored).unwrap();
            codec.encode_row(&RowRef::new(&format, &stored).unwrap(), &mut b).unwrap();
            assert_eq!(a[1..], b, "the same key from either form of a row");
            b
        };
        let (a, b) = (key(&rows[0]), key(&rows[1]));
        let want = row_cmp(&columns, &parts, &rows[0], &rows[1]);
        prop_assert_eq!(a.cmp(&b), want, "KEY-1 {:?}\n{:?}", a, b);
        prop_assert!(want.is_eq() || !b.starts_with(&a), "KEY-2");
    }

    #[test]
    fn a_prefix_finds_exactly_its_rows((columns, parts, rows) in indexed(2), n in 0usize..5) {
        let codec = KeyCodec::new(&columns, &parts, &Collations::new()).unwrap();
        let n = n.min(parts.len());
        let values: Vec<Datum<'_>> = parts[..n].iter().map(|p| rows[0][p.column].as_deref()).collect();
        let mut low = Vec::new();
        codec.encode_values(&values, &mut low).unwrap();
        let mut high = low.clone();
        let bounded = successor(&mut high);
        let mut key = Vec::new();
        codec.encode_columns(&datums(&rows[1]), &mut key).unwrap();
        // Behind the own parts of a secondary entry stands any clustered key.
        key.extend([0xff; 3]);
        let want = row_cmp(&columns, &parts[..n], &rows[1], &rows[0]);
        prop_assert_eq!(key.starts_with(&low), want.is_eq());
        let inside = key >= low && (!bounded || key < high);
        prop_assert_eq!(inside, want.is_eq());
    }

    #[test]
    fn keys_are_read_back((columns, parts, rows) in indexed(1), tail in bytes(4)) {
        let codec = KeyCodec::new(&columns, &parts, &Collations::new()).unwrap();
        let mut key = Vec::new();
        codec.encode_columns(&datums(&rows[0]), &mut key).unwrap();
        let own = key.len();
        key.extend(&tail);
        let mut out = DatumBuf::new();
        let of_row = |c: usize| rows[0][c].as_deref();
        let mut forms = Forms::new(codec.texts(), 0);
        codec.set_forms(&key[..own], of_row, &mut forms).unwrap();
        let forms = Forms::new(codec.texts(), forms.bits());
        let mut of_texts = forms;
        prop_assert_eq!(codec.decode(&key, u32::MAX, &mut { forms }, &mut out), Ok(own));
        prop_assert_eq!(codec.own_len(&key), Ok(own));
        for (i, part) in parts.iter().enumerate() {
            let stored = rows[0][part.column].as_deref();
            let want = match codec.readable(i) {
                Readable::No => None,
                // KEY-6.
                Readable::InForm => Some(of_texts.take()).filter(|form| *form != 0).and(stored),
                Readable::Always | Readable::UnlessZero => stored,
            };
            let is_float = codec.readable(i) == Readable::UnlessZero;
            let is_zero = |v: &[u8]| v[..v.len() - 1].iter().all(|b| *b == 0) && v[v.len() - 1] & 0x7f == 0;
            if is_float && want.is_some_and(is_zero) {
                prop_assert!(codec.has_zero(&key, 1 << i).unwrap(), "KEY-5");
                prop_assert!(out.get(i).unwrap().iter().all(|b| *b == 0));
                continue;
            }
            prop_assert!(!is_float || !codec.has_zero(&key, 1 << i).unwrap());
            prop_assert_eq!(out.get(i), want);
        }
        // Values that are not wanted are left out.
        for wanted in [0, 1, 2, 5, 6] {
            let mut few = DatumBuf::new();
            codec.decode(&key, wanted, &mut { forms }, &mut few).unwrap();
            let of = |i| Some(i).filter(|i| wanted >> i & 1 != 0).and_then(|i: usize| out.get(i));
            prop_assert!(few.iter().eq((0..parts.len()).map(of)), "{:b} {:?}", wanted, few);
        }
        for len in 0..own {
            prop_assert!(codec.decode(&key[..len], u32::MAX, &mut { forms }, &mut out).is_err(), "cut at {}", len);
        }
        // Fields say the same (KEY-4), wherever the key begins.
        for at in [0, 3] {
            let mut fields = Vec::new();
            let end = codec.fields(at, &mut fields);
            prop_assert!(end.is_none_or(|end| end == at + own));
            let moved = [&vec![7; at], &key[..own]].concat();
            for field in &fields {
                let mut value = vec![0; field.len()];
                field.read(&moved, &mut value).unwrap();
                prop_assert_eq!(rows[0][field.column].as_deref(), Some(&value[..]));
                prop_assert!(field.read(&moved[..at], &mut value).is_err());
                for cut in 0..moved.len() {
                    let (prefix, suffix) = moved.split_at(cut);
                    field.read_split(prefix, suffix, &mut value).unwrap();
                    prop_assert_eq!(rows[0][field.column].as_deref(), Some(&value[..]));
                }
            }
            let constant = parts.iter().enumerate().take_while(|(_, part)| {
                let column = &columns[part.column];
                !column.nullable && column.ty.fixed_len().is_some()
            });
            let readable = constant.filter(|(i, _)| codec.readable(*i) == Readable::Always);
            let readable = readable.count();
            prop_assert_eq!(fields.len(), readable);
        }
    }

    #[test]
    fn hostile_rows_are_refused_or_read(
        (columns, row) in columns(6).prop_flat_map(|c| { let r = row_of(&c); (Just(c), r) }),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        noise in bytes(40),
    ) {
        let format = RowFormat::new(&columns, &[], 1).unwrap();
        let codec_parts: Vec<_> = (0..columns.len()).map(KeyPart::new).collect();
        let codec = KeyCodec::new(&columns, &codec_parts, &Collations::new()).unwrap();
        let mut stored = Vec::new();
        format.encode(&datums(&row), &mut stored).unwrap();
        for (at, byte) in changes {
            let at = at.index(stored.len());
            stored[at] = byte;
        }
        let mut out = DatumBuf::new();
        for bytes in [&stored[..], &stored[..cut.index(stored.len())], &noise] {
            if let Ok(row) = RowRef::new(&format, bytes) {
                let columns = (0..row.len()).filter_map(|c| row.fetched(c).flatten());
                prop_assert!(columns.map(<[u8]>::len).sum::<usize>() <= bytes.len());
                prop_assert!(row.external_columns().count() * EXTERNAL_REF_BYTES <= bytes.len());
            }
            // Forms that the key has not, most often.
            let mut forms = Forms::new(codec.texts(), bytes.first().copied().unwrap_or(0));
            let _ = codec.decode(bytes, u32::MAX, &mut forms, &mut out);
        }
    }
}

#[test]
fn a_row_has_the_documented_bytes() {
    let columns: Vec<ColumnDef> = [
        ColumnDef::new("a", ColumnType::i32()),
        ColumnDef::new("b", ColumnType::text(9)).nullable(),
        ColumnDef::new("c", ColumnType::u16()).nullable(),
        ColumnDef::new("d", ColumnType::Bytes(9)),
    ]
    .into_iter()
    .zip([1, 2, 3, 4])
    .map(|(c, id)| ColumnDef { id, ..c })
    .collect();
    let format = RowFormat::new(&columns, &[], 1).unwrap();
    let mut out = Vec::new();
    let a = (-2i32).to_le_bytes();
    format
        .encode(&[Some(&a), Some(b"xy"), None, Some(b"z")], &mut out)
        .unwrap();
    #[rustfmt::skip]
    assert_eq!(out, [1, 0, 0b10, 0xfe, 0xff, 0xff, 0xff, 0, 0, 2, 0, 3, 0, b'x', b'y', b'z']);
    // The top bit of an end offset says that a reference stands there, which has its length (ROW-2, ROW-4).
    out[10] = 0x80;
    RowRef::new(&format, &out).unwrap_err();
}

#[test]
fn external_values_leave_the_row_longest_first() {
    let columns: Vec<ColumnDef> = [
        ColumnDef::new("a", ColumnType::Bytes(1 << 20)).nullable(),
        ColumnDef::new("b", ColumnType::text(100_000)),
        ColumnDef::new("n", ColumnType::u32()),
        ColumnDef::new("c", ColumnType::Bytes(1 << 20)),
    ]
    .into_iter()
    .zip([1, 2, 3, 4])
    .map(|(c, id)| ColumnDef { id, ..c })
    .collect();
    let format = RowFormat::new(&columns, &[], 1).unwrap();
    let (a, b, c) = (vec![b'a'; 5000], vec![b'b'; 70_000], vec![b'c'; 40]);
    let values: [Datum<'_>; 4] = [Some(&a), Some(&b), Some(&[1, 2, 3, 4]), Some(&c)];
    let fixed = 2 + 1 + 4 + 6;
    assert_eq!(format.encoded_len(&values), fixed + 75_040);
    for (limit, want) in [
        (80_000, Some(&[][..])),
        (fixed + 5000 + 40 + 21, Some(&[1])),
        (fixed + 5000 + 40 + 20, Some(&[1, 0])),
        (fixed + 40 + 42, Some(&[1, 0])),
        // What is 40 bytes long stays.
        (fixed + 40 + 41, None),
    ] {
        let moved = format.columns_to_move(&values, limit).ok();
        assert_eq!(moved.as_deref(), want, "limit {limit}");
    }
    let to = |column, seq| Moved {
        column,
        to: ExternalRef {
            page: PageNo(9),
            len: values[column].unwrap().len() as u32,
            trx: TrxId(5),
            seq,
        },
    };
    let moved = [to(1, 77), to(0, 78)];
    let mut out = b"head".to_vec();
    format.encode_moved(&values, &moved, &mut out).unwrap();
    assert_eq!(out.len(), 4 + fixed + 40 + 42);
    let row = RowRef::new(&format, &out[4..]).unwrap();
    let found: Vec<_> = row.external_columns().map(|(c, r)| (c, r.seq)).collect();
    assert_eq!(found, [(0, 78), (1, 77)]);
    assert_eq!((row.fetched(1), row.fetched(3)), (None, Some(Some(&c[..]))));
    let mut long = ExternalValues::default();
    long.push_with(1, |out| out.extend_from_slice(&b));
    let row = row.with_external(&long);
    assert_eq!(row.get(1), Some(&b[..]));
    assert_eq!(row.fetched(0), None);
    let short = |bytes: u32| [ColumnDef::new("s", ColumnType::Bytes(bytes))];
    let format = RowFormat::new(&short(60), &[], 1).unwrap();
    let too_long = vec![0; 61];
    let refused = format.encode_moved(&[Some(&too_long)], &[to(0, 1)], &mut out);
    assert!(matches!(refused, Err(Error::TooLarge { .. })));
}

#[test]
#[should_panic(expected = "ROW-5: the external value of column a")]
fn an_external_value_that_was_not_fetched_is_nothing_else() {
    let columns = [ColumnDef::new("a", ColumnType::Bytes(1000))];
    let format = RowFormat::new(&columns, &[], 1).unwrap();
    let to = ExternalRef {
        page: PageNo(9),
        len: 900,
        trx: TrxId(5),
        seq: 1,
    };
    let (value, mut out) = (vec![0; 900], Vec::new());
    let moved = [Moved { column: 0, to }];
    format
        .encode_moved(&[Some(&value)], &moved, &mut out)
        .unwrap();
    RowRef::new(&format, &out).unwrap().get(0);
}

#[test]
fn keys_say_how_much_of_a_value_they_need() {
    let columns = [
        ColumnDef::new("b", ColumnType::Bytes(1 << 20)),
        ColumnDef::new("t", ColumnType::text(1 << 20)),
        ColumnDef::new("u", ColumnType::text(100)),
    ];
    let parts = [
        KeyPart::new(0).prefix(10),
        KeyPart::new(1).prefix(10),
        KeyPart::new(2),
    ];
    let codec = KeyCodec::new(&columns[..], &parts, &Collations::new()).unwrap();
    assert_eq!(codec.bytes_needed(0), 10);
    assert!(codec.bytes_needed(1) >= 40);
    assert_eq!(codec.bytes_needed(2), usize::MAX);
    // The ends of values are not compared where they are not in the key.
    let format = RowFormat::new(&columns, &[], 1).unwrap();
    let mut stored = Vec::new();
    let values = [&b"0123456789"[..], "ä23456789 and some".as_bytes(), b"u"].map(Some);
    format.encode(&values, &mut stored).unwrap();
    let old = RowRef::new(&format, &stored).unwrap();
    let same = |column: usize, value: &str| {
        let mut new = values;
        new[column] = Some(value.as_bytes());
        codec.same_columns(&old, &new)
    };
    assert!(same(0, "0123456789 and more") && !same(0, "012345678"));
    assert!(same(1, "ä23456789 ") && same(1, "ä23456789 xyz") && !same(1, "a23456789 and some"));
    assert!(!same(2, "u and more"));
    let codec = KeyCodec::new(&columns, &parts[..1], &Collations::new()).unwrap();
    assert_eq!(codec.bytes_needed(1), 0);
}

/// ROW-3.
#[test]
fn older_rows_read_with_defaults() {
    let column = |name: &str, ty, id, added_in, default: Option<&[u8]>| ColumnDef {
        id,
        added_in,
        default: default.map(<[u8]>::to_vec),
        ..ColumnDef::new(name, ty)
    };
    let a = column("a", ColumnType::u8(), 1, 1, None);
    let t = column("t", ColumnType::text(9), 2, 1, None);
    let n = column("n", ColumnType::u16(), 3, 3, None).nullable();
    let d = column("d", ColumnType::text(9), 4, 5, Some(b"new"));
    let one = RowFormat::new(&[a.clone(), t.clone()], &[], 1).unwrap();
    let three = RowFormat::new(&[a.clone(), t.clone(), n.clone()], &[], 4).unwrap();
    // The last column comes first in the definition; rows keep id order.
    let five = RowFormat::new(&[d, a, t, n], &[], 6).unwrap();
    let row = |format: &RowFormat, values: &[Datum<'_>]| {
        let mut out = Vec::new();
        format.encode(values, &mut out).unwrap();
        out
    };
    let (x, y): (Datum<'_>, Datum<'_>) = (Some(&[7]), Some(b"text"));
    for (stored, want) in [
        (row(&one, &[x, y]), [Some(b"new".as_slice()), x, y, None]),
        (
            row(&three, &[x, y, Some(&[1, 2])]),
            [Some(b"new"), x, y, Some(&[1, 2])],
        ),
        (
            row(&five, &[Some(b"own"), x, y, None]),
            [Some(b"own"), x, y, None],
        ),
    ] {
        let read = RowRef::new(&five, &stored).unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), want);
    }
    let newer = row(&five, &[Some(b"own"), x, y, None]);
    RowRef::new(&three, &newer).unwrap_err();
    assert_eq!(RowRef::new(&five, &newer).unwrap().schema_version(), 6);
}

/// ROW-1: no row is made with a datum whose length its type does not allow.
#[test]
fn refusals_name_the_column_and_leave_the_output_alone() {
    let columns: Vec<ColumnDef> = [
        ColumnDef::new("small", ColumnType::i8()),
        ColumnDef::new("long", ColumnType::Bytes(1 << 20)).nullable(),
        ColumnDef::new("tag", ColumnType::text(3)),
    ]
    .into_iter()
    .zip([1, 2, 3])
    .map(|(c, id)| ColumnDef { id, ..c })
    .collect();
    let format = RowFormat::new(&columns, &[], 1).unwrap();
    let long = vec![1; MAX_ROW_BYTES];
    let longer = vec![1; 70_000];
    let (small, tag): (Datum<'_>, Datum<'_>) = (Some(&[1]), Some(b"abc"));
    for (row, want) in [
        (vec![None, None, tag], "column small does not take NULL"),
        (
            vec![Some(b"12".as_slice()), None, tag],
            "column small takes exactly 1 bytes, got 2",
        ),
        (
            vec![small, None, Some(b"abcd")],
            "value of column tag has 4 bytes, the limit is 3",
        ),
        (
            vec![small, Some(&long), tag],
            "row has 32778 bytes, the limit is 32767",
        ),
        (
            vec![small, Some(&longer), tag],
            "row has 70011 bytes, the limit is 32767",
        ),
        (vec![small, tag], "a row of this table has 3 columns, got 2"),
    ] {
        let mut out = b"head".to_vec();
        let refused = format.encode(&row, &mut out).unwrap_err().to_string();
        assert!(refused.contains(want), "{refused} / {want}");
        assert_eq!(out, b"head");
    }
}

#[test]
fn values_are_checked_against_their_column() {
    let reject = |ty: ColumnType, v: Value| {
        let mut out = DatumBuf::new();
        let e = v.encode(&ColumnDef::new("c", ty), &mut out).unwrap_err();
        assert!(out.is_empty());
        e.to_string()
    };
    for (ty, v, want) in [
        (
            ColumnType::u8(),
            Value::Int(-1),
            "value -1 is out of range for column c (u8, 0 to 255)",
        ),
        (
            ColumnType::i24(),
            Value::UInt(8_388_608),
            "(i24, -8388608 to 8388607)",
        ),
        (
            ColumnType::i64(),
            Value::UInt(1 << 63),
            "out of range for column c",
        ),
        (
            ColumnType::i64(),
            "1".into(),
            "column c (i64) does not take text",
        ),
        (
            ColumnType::Double,
            Value::Int(1),
            "column c (double) does not take an integer",
        ),
        (
            ColumnType::text(2),
            "abc".into(),
            "value of column c has 3 bytes, the limit is 2",
        ),
        (
            ColumnType::Fixed(4),
            Value::Bytes(vec![1]),
            "column c takes exactly 4 bytes, got 1",
        ),
        (ColumnType::i8(), Value::Null, "column c does not take NULL"),
    ] {
        let got = reject(ty, v);
        assert!(got.contains(want), "{got} / {want}");
    }
}

/// COL-1: keys that were made with other weights are noticed.
#[test]
fn a_changed_collation_closes_the_index() {
    let columns = [ColumnDef::new("t", ColumnType::text(9))];
    let part = |fingerprint| KeyPart {
        fingerprint,
        ..KeyPart::new(0)
    };
    let all = Collations::new();
    let now = all.get(CollationId::UTF8_BIN).unwrap().fingerprint();
    KeyCodec::new(&columns, &[part(now)], &all).unwrap();
    let refused = KeyCodec::new(&columns, &[part(now ^ 1)], &all);
    assert!(matches!(refused, Err(Error::Unsupported { .. })));
}

/// KEY-3.
#[test]
fn long_keys_are_refused_on_write() {
    let columns = [ColumnDef::new("b", ColumnType::Bytes(3072))];
    let codec = KeyCodec::new(&columns, &[KeyPart::new(0)], &Collations::new()).unwrap();
    let plain = vec![1; 3072];
    let zeros = [0, 1].repeat(1536);
    let mut out = Vec::new();
    codec.encode_columns(&[Some(&plain)], &mut out).unwrap();
    let refused = codec.encode_columns(&[Some(&zeros)], &mut out);
    assert!(matches!(refused, Err(Error::TooLarge { .. })));
    assert_eq!(out.len(), 3074, "nothing is left of the refused key");
    codec.encode_values(&[Some(&zeros)], &mut out).unwrap();
}

#[test]
fn successor_is_the_next_string_above_the_prefix() {
    for (prefix, want) in [
        (&b"ab"[..], Some(&b"ac"[..])),
        (b"a\xff\xff", Some(b"b")),
        (b"\xff", None),
        (b"", None),
    ] {
        let mut key = prefix.to_vec();
        assert_eq!(successor(&mut key).then_some(&key[..]), want);
    }
}

#[test]
fn row_ids_keep_order() {
    let key = |id| {
        let mut out = Vec::new();
        put_row_id(id, &mut out);
        out
    };
    assert!(key(255) < key(256));
    assert_eq!(row_id_of(&key(u64::MAX - 1)), Ok(u64::MAX - 1));
    row_id_of(b"short").unwrap_err();
}

/// A run of zeros takes fewer bytes in a key than in the text.
#[test]
fn long_runs_of_zeros_are_read_back() {
    let columns = [ColumnDef::new(
        "t",
        ColumnType::text_in(CollationId::UTF8_BIN, 5000),
    )];
    let codec = KeyCodec::new(&columns, &[KeyPart::new(0)], &Collations::new()).unwrap();
    for text in [
        vec![0; 3000],
        [vec![b'x'; 20], vec![0; 400], vec![b'y']].concat(),
        vec![],
    ] {
        let (mut key, mut out) = (Vec::new(), DatumBuf::new());
        codec.encode_columns(&[Some(&text)], &mut key).unwrap();
        let mut forms = Forms::new(1, 0);
        codec.set_forms(&key, |_| Some(&text), &mut forms).unwrap();
        let mut forms = Forms::new(1, forms.bits());
        assert_eq!(codec.decode(&key, 1, &mut forms, &mut out), Ok(key.len()));
        assert_eq!(out.get(0), Some(&text[..]));
    }
}
