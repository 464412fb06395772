//! Tables for the model tests, and random rows for them. Together they have every column type, NULLs,
//! descending and prefix parts, unique and plain indexes, a hidden row id, and rows long enough to split
//! pages often.

use rand::Rng;
use rand::rngs::SmallRng;
use varve::{CollationId, ColumnType, Compression, IndexDef, KeyPart, TableDef, Value};

use super::oracle::Row;

/// More than an index has together with another such column, so that a small page's keys need not hold both.
const LONG_KEY: u32 = 1600;

pub fn definitions() -> Vec<TableDef> {
    let mut defs = vec![
        TableDef::new("model/plain")
            .column("id", ColumnType::i32())
            .column("k", ColumnType::u16())
            .nullable("code", ColumnType::text(40))
            .nullable("data", ColumnType::Bytes(400))
            .primary(&["id"])
            .index("k", &["k"])
            .unique("code", &["code"]),
        TableDef::new("model/mixed")
            .column("name", ColumnType::text_in(CollationId::UTF8_CI, 60))
            .column("at", ColumnType::i64())
            .nullable("score", ColumnType::Double)
            .nullable("ratio", ColumnType::Float)
            .column("tag", ColumnType::text_in(CollationId::UTF8_BIN_PAD, 60))
            .column("raw", ColumnType::Bytes(300))
            .column("uuid", ColumnType::Fixed(16))
            .primary(&["name", "at"])
            .index("score", &["score", "ratio"])
            .index("raw", &["raw"])
            .unique("tag", &["tag", "uuid"]),
        TableDef::new("model/heap")
            .column("k", ColumnType::i24())
            .nullable("u", ColumnType::u64())
            .nullable("note", ColumnType::text_in(CollationId::ASCII_CI, 100))
            .index("k", &["k"])
            .unique("u", &["u"])
            .compressed(Compression::LZ4)
            .encrypted(2),
        TableDef::new("model/long")
            .column("key", ColumnType::Bytes(200))
            .column("fill", ColumnType::Bytes(1200))
            .primary(&["key"])
            .add_index(IndexDef::new("fill", vec![KeyPart::new(1).prefix(60)]))
            .encrypted(1),
        TableDef::new("model/overflow")
            .column("id", ColumnType::i32())
            .nullable("body", ColumnType::Bytes(200_000))
            .column("n", ColumnType::u16())
            .column("more", ColumnType::Bytes(20_000))
            .primary(&["id"])
            .index("n", &["n"])
            .add_index(IndexDef::new("body", vec![KeyPart::new(1).prefix(30)]))
            .compressed(Compression::zstd(3)),
        // On small pages most entries are long ones (TAIL-1).
        TableDef::new("model/long_keys")
            .column("key", ColumnType::Bytes(LONG_KEY))
            .nullable("k", ColumnType::Bytes(LONG_KEY))
            .column("n", ColumnType::u16())
            .primary(&["key"])
            .index("k", &["k"])
            .unique("n", &["n", "k"]),
    ];
    // The builder's names stand for whole ascending columns; these two are neither.
    defs[1].primary.parts[1].descending = true;
    defs[1].indexes[0].parts[0].descending = true;
    defs[1].indexes[1].parts[0].prefix_len = Some(3);
    defs
}

/// A random row. Key values are drawn from about `spread` different ones, so that rows meet.
pub fn row(def: &TableDef, rng: &mut SmallRng, spread: u32) -> Row {
    (0..def.columns.len())
        .map(|c| value(def, c, rng, spread))
        .collect()
}

pub fn value(def: &TableDef, column: usize, rng: &mut SmallRng, spread: u32) -> Value {
    let column = &def.columns[column];
    if column.nullable && rng.random_ratio(1, 4) {
        return Value::Null;
    }
    let n = rng.random_range(0..spread.max(1));
    match column.ty {
        // Both signs where there are two.
        ColumnType::Int { signed: true, .. } => Value::Int(n as i64 - spread as i64 / 2),
        ColumnType::Int { bytes, .. } => {
            Value::UInt(n as u64 & ((1u128 << (bytes * 8)) - 1) as u64)
        }
        ColumnType::Float => Value::Float((n as f32 - 20.0) / 4.0),
        ColumnType::Double => Value::Double((n as f64 - 20.0) * 1e10),
        ColumnType::Fixed(len) => {
            Value::Bytes((0..len).map(|i| (n >> (i % 4 * 8)) as u8).collect())
        }
        ColumnType::Bytes(LONG_KEY) => Value::Bytes(bytes(n, 900, rng)),
        ColumnType::Bytes(max) if max >= 10_000 => Value::Bytes(long(n, max as usize, rng)),
        ColumnType::Bytes(max) => Value::Bytes(bytes(n, max as usize, rng)),
        ColumnType::Text { .. } => Value::Text(text(n, rng)),
    }
}

/// The same start for the same `n`, zeros among it, and often a long tail that depends on `n`, too.
fn bytes(n: u32, max: usize, rng: &mut SmallRng) -> Vec<u8> {
    let mut out = n.to_be_bytes().to_vec();
    if max >= 1000 {
        // Not part of a key: any length will do.
        out.resize(rng.random_range(4..=max), n as u8);
    } else {
        out.resize(max.min(4 + (n as usize * 7) % max), n as u8);
    }
    out
}

/// Mostly short, at times longer than a page, rarely so long that it takes several mini-transactions to
/// write. No piece of it is like another.
fn long(n: u32, max: usize, rng: &mut SmallRng) -> Vec<u8> {
    let most = match rng.random_range(0..100) {
        0..55 => 60,
        55..82 => 3_000,
        82..98 => 12_000,
        _ => max,
    };
    let len = rng.random_range(4..=most.min(max - 4));
    let word = |i: u32| (n.rotate_left(7) ^ i.wrapping_mul(0x9e37_79b9)).to_le_bytes();
    let mut out = n.to_be_bytes().to_vec();
    out.extend((0..len as u32 / 4).flat_map(word));
    out
}

/// Upper and lower case, accents, and spaces at the end, over the same `n`.
fn text(n: u32, rng: &mut SmallRng) -> String {
    let mut out = format!("ä{:03} b{}", n % 7, n);
    if rng.random_bool(0.3) {
        out = out.to_uppercase();
    }
    if rng.random_bool(0.3) {
        out.push(' ');
    }
    out
}
