//! Rows and keys of tables that the input chooses.
//!
//! What holds, whatever the bytes are:
//!
//! - a row that is accepted is read back as it was; a key, as far as the codec says that it can be
//!   (`readable`);
//! - rows that are equal in an index's columns have one key, and no key of one index is the beginning of
//!   another (KEY-2);
//! - the key of a row and the key of its stored form are the same;
//! - bytes that are no row, no key and no text of the character set are refused or read, never a panic.
//!
//! Input: columns, key parts, two rows, then bytes that are taken for a row and for a key.

use varve::internals::row::{Collations, Forms, KeyCodec, Readable, RowFormat, RowRef, successor};
use varve::{CollationId, ColumnDef, ColumnType, Datum, DatumBuf, KeyPart, Peeked};

use crate::input::Input;

const COLLATIONS: [CollationId; 5] = [
    CollationId::BINARY,
    CollationId::UTF8_BIN,
    CollationId::UTF8_BIN_PAD,
    CollationId::ASCII_CI,
    CollationId::UTF8_CI,
];

type Row = Vec<Option<Vec<u8>>>;

fn column(input: &mut Input<'_>, n: usize) -> ColumnDef {
    let ty = match input.below(8) {
        0 => ColumnType::Int {
            bytes: input.of(&[1, 2, 3, 4, 8]),
            signed: input.bool(),
        },
        1 => ColumnType::Float,
        2 => ColumnType::Double,
        3 => ColumnType::Fixed(1 + u32::from(input.u8())),
        4 => ColumnType::Bytes(u32::from(input.u16())),
        _ => ColumnType::text_in(input.of(&COLLATIONS), u32::from(input.u16())),
    };
    let mut column = ColumnDef::new(format!("c{n}"), ty);
    (column.id, column.nullable) = (n as u32 + 1, input.bool());
    column
}

fn part(input: &mut Input<'_>, columns: &[ColumnDef]) -> KeyPart {
    let mut part = KeyPart::new(input.below(columns.len()));
    part.descending = input.bool();
    let may_be_cut = matches!(
        columns[part.column].ty,
        ColumnType::Fixed(_) | ColumnType::Bytes(_) | ColumnType::Text { .. }
    );
    let form = input.u8();
    let prefix = u32::from(form % 8);
    part.prefix_len = (may_be_cut && prefix > 0).then_some(prefix);
    part.segmented = form & 8 != 0;
    part
}

/// A value that is mostly, but not always, one of the column.
fn value(input: &mut Input<'_>, column: &ColumnDef) -> Option<Vec<u8>> {
    let choice = input.u8();
    if choice == 0 {
        return None;
    }
    let len = match column.ty.fixed_len() {
        Some(len) if choice != 1 => len,
        _ => input.below(256),
    };
    let mut bytes = input.bytes(len).to_vec();
    if choice != 1 && column.ty.fixed_len().is_some() {
        bytes.resize(len, 0);
    }
    Some(bytes)
}

fn datums(row: &Row) -> Vec<Datum<'_>> {
    row.iter().map(|d| d.as_deref()).collect()
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let n = 1 + input.below(6);
    let columns: Vec<ColumnDef> = (0..n).map(|n| column(&mut input, n)).collect();
    let n = 1 + input.below(3);
    let parts: Vec<KeyPart> = (0..n).map(|_| part(&mut input, &columns)).collect();
    let Ok(format) = RowFormat::new(&columns, &[], 1) else {
        return;
    };
    let codec = KeyCodec::new(&columns, &parts, &Collations::new()).expect("known collations");
    let mut row = || -> Row { columns.iter().map(|c| value(&mut input, c)).collect() };
    let rows = [row(), row()];
    let [a, b] = [&rows[0], &rows[1]].map(|row| keys(&format, &codec, row));
    if let (Some(a), Some(b)) = (a, b) {
        let is_same = (parts.iter()).all(|p| rows[0][p.column] == rows[1][p.column]);
        assert!(!is_same || a == b);
        assert!(a == b || !a.starts_with(&b) && !b.starts_with(&a), "KEY-2");
    }
    hostile(&format, &codec, input.rest());
}

/// The row's key, if it is a row.
fn keys(format: &RowFormat, codec: &KeyCodec, row: &Row) -> Option<Vec<u8>> {
    let datums = datums(row);
    let (mut stored, mut key, mut again) = (Vec::new(), Vec::new(), Vec::new());
    let is_row = format.encode(&datums, &mut stored).is_ok();
    let has_key = codec.encode_columns(&datums, &mut key).is_ok();
    if !is_row {
        return None;
    }
    let read = RowRef::read(format, &stored).expect("just encoded");
    assert_eq!(read.iter().collect::<Vec<_>>(), datums);
    assert_eq!(codec.encode_row(&read, &mut again).is_ok(), has_key);
    let _ = read.values();
    if !has_key {
        return None;
    }
    assert_eq!(key, again);
    let mut out = DatumBuf::new();
    let new = |flags| Forms::new(codec.texts(), flags);
    let mut forms = new(0);
    let set = codec.set_forms(&key, |column| datums[column], &mut forms);
    set.expect("just encoded");
    let (mut forms, mut of_texts) = (new(forms.bits()), new(forms.bits()));
    assert_eq!(
        codec.decode(&key, u32::MAX, &mut forms, &mut out),
        Ok(key.len())
    );
    for (n, column) in codec.columns().enumerate() {
        let want = match codec.readable(n) {
            Readable::No => None,
            Readable::InForm => Some(of_texts.take())
                .filter(|f| *f != 0)
                .and(datums[column]),
            Readable::UnlessZero if codec.has_zero(&key, 1 << n).expect("just encoded") => continue,
            Readable::UnlessZero | Readable::Always => datums[column],
        };
        assert_eq!(out.get(n), want, "part {n}");
    }
    Some(key)
}

fn hostile(format: &RowFormat, codec: &KeyCodec, bytes: &[u8]) {
    if let Ok(row) = RowRef::read(format, bytes) {
        let values = (0..row.len()).filter_map(|c| row.fetched(c).flatten());
        assert!(values.map(<[u8]>::len).sum::<usize>() <= bytes.len());
        let _ = row.external_refs().count();
        if !row.has_external_values() {
            let mut key = Vec::new();
            let _ = codec.encode_row(&row, &mut key);
            let _ = row.values();
        }
    }
    let (mut out, mut ends) = (DatumBuf::new(), Vec::new());
    // Forms that the key has not, most often.
    let flags = bytes.first().copied().unwrap_or_default();
    let mut forms = Forms::new(codec.texts(), flags);
    let _ = codec.decode(bytes, u32::MAX, &mut forms, &mut out);
    let decoded = codec.own_len(bytes);
    let _ = codec.has_zero(bytes, u32::MAX);
    let ended = codec.part_ends(bytes, 0, &mut ends);
    assert_eq!(decoded.ok(), ended.ok().map(|()| ends[ends.len() - 1]));
    let mut fields = Vec::new();
    let _ = codec.fields(0, &mut fields);
    for field in fields {
        let mut value = vec![0; field.len()];
        for key in [(&[][..], bytes), bytes.split_at(bytes.len() / 2)] {
            Peeked::read_fields(key, &[field], &mut value);
        }
    }
    let mut next = bytes.to_vec();
    if successor(&mut next) {
        assert!(next.as_slice() > bytes && !next.starts_with(bytes));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for kind in 0..8u8 {
        for (choice, form) in [(0, 0), (1, 1), (2, 2), (0, 8), (2, 8)] {
            // Two columns of the type, an index on both, two rows, and a tail.
            let column = [kind, choice, 1 + choice, 0, 1];
            let mut seed = [&[1], &column[..], &column[..]].concat();
            seed.extend([1, 0, choice, form, 1, 1, form]);
            for n in 0..4u8 {
                seed.extend([2, 8, b'a', n, b' ', 0, 0xff, 0xc3, 0xa4, n]);
            }
            seed.extend([1; 40]);
            seeds.push(seed);
        }
    }
    seeds
}
