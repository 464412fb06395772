//! Definitions: what is refused and how it is said; encoding; hostile bytes.

use proptest::prelude::*;

use super::*;
use crate::base::{Error, IndexId, PageNo, SpaceId, TableId, TrxId};
use crate::row::{CollationId, Collations, ColumnDef, ColumnType, GoneColumn, KeyPart, Value};

fn built_with(collations: &Collations) -> BuiltWith<'_> {
    BuiltWith {
        collations,
        page_size: 16 << 10,
    }
}

fn orders() -> TableDef {
    let mut def = TableDef::new("shop/orders")
        .column("id", ColumnType::u64())
        .nullable("customer", ColumnType::text_in(CollationId::UTF8_CI, 320))
        .column("total", ColumnType::Double)
        .column("rate", ColumnType::Float)
        .column("uuid", ColumnType::Fixed(16))
        .nullable("note", ColumnType::Bytes(1 << 24))
        .add_column(ColumnDef {
            added_in: 2,
            default: Some(vec![1, 0, 0]),
            ..ColumnDef::new("later", ColumnType::i24())
        })
        .primary(&["id"])
        .unique("by_uuid", &["UUID"])
        .add_index(IndexDef::new(
            "mixed",
            vec![
                KeyPart::new(1).descending().prefix(10),
                KeyPart::new(5).prefix(20),
            ],
        ))
        .auto_increment("id");
    def.schema_version = 2;
    (def.id, def.space) = (TableId(9), SpaceId(7));
    def.comment = b"anything".to_vec();
    def.indexes[0].id = IndexId(77);
    def.indexes[0].root = PageNo(4);
    def.stamp_indexes(built_with(&Collations::new())).unwrap();
    def
}

fn orders_with_parents() -> TableDef {
    orders()
        .foreign_key(ForeignKey::new(
            "by_id",
            &["id"],
            "shop/parents",
            &["their id"],
        ))
        .foreign_key(
            ForeignKey::new("by_uuid", &["UUID"], "shop/others", &["uuid"])
                .on_delete(ReferentialAction::Cascade)
                .on_update(ReferentialAction::Restrict),
        )
}

fn orders_with_history() -> TableDef {
    orders_with_parents()
        .column("since", ColumnType::Fixed(7))
        .column("until", ColumnType::Fixed(7))
        .computed(&["note", "later"])
        .system_time("since", "until", b"forever", &["note"])
}

fn orders_with_young_index() -> TableDef {
    let mut def = orders_with_history();
    def.indexes_at_first = 5;
    def.indexes[1].created_by = TrxId(1234);
    def
}

fn orders_that_lost_columns() -> TableDef {
    let mut def = orders_with_young_index();
    def.schema_version = 7;
    let mut column = ColumnDef::new("before", ColumnType::text_in(CollationId::UTF8_CI, 320));
    (column.id, column.nullable, column.nullable_since) = (99, true, 3);
    def.gone = vec![GoneColumn { column, gone_in: 6 }];
    def.columns[5].nullable_since = 7;
    def
}

fn orders_without_a_file() -> TableDef {
    let mut def = orders_that_lost_columns();
    def.discarded = true;
    def
}

fn orders_in_segments() -> TableDef {
    let mut def = orders_without_a_file();
    for part in &mut def.indexes[1].parts {
        part.segmented = true;
    }
    def
}

fn orders_on_compressed_pages() -> TableDef {
    orders_in_segments().compressed(crate::page::Compression::zstd(9))
}

#[test]
fn definitions_come_back() {
    for def in [
        orders(),
        orders_with_parents(),
        orders_with_history(),
        orders_with_young_index(),
        orders_that_lost_columns(),
        orders_without_a_file(),
        orders_in_segments(),
        orders().compressed(crate::page::Compression::LZ4),
        orders_on_compressed_pages(),
    ] {
        comes_back(def);
    }
}

/// A table that has had all versions that there are gets no column, and loses none.
#[test]
fn versions_end() {
    let mut def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("n", ColumnType::i64())
        .primary(&["id"]);
    def.schema_version = u16::MAX - 1;
    let with_more = def.clone().nullable("more", ColumnType::i64());
    let mut without = def.clone();
    without.columns.pop();
    let mut takes_null = def.clone();
    takes_null.columns[1].nullable = true;
    for to in [&with_more, &without, &takes_null] {
        assert_eq!(def.redefined(to).unwrap().schema_version, u16::MAX);
    }
    def.schema_version = u16::MAX;
    for to in [&with_more, &without, &takes_null] {
        let refused = def.redefined(to).unwrap_err().to_string();
        assert!(
            refused.contains("one more version of table a/t"),
            "{refused}"
        );
    }
    // What needs no version goes on.
    let mut renamed = def.clone();
    renamed.columns[1].name = "m".into();
    assert_eq!(def.redefined(&renamed).unwrap().columns[1].name, "m");
}

/// Older programs read what has no parts in segments, and none of it is in older definitions.
#[test]
fn a_definition_is_as_old_as_it_can_be() {
    for (mut def, version) in [
        (orders(), 1),
        (orders_with_parents(), 2),
        (orders_with_history(), 3),
        (orders_with_young_index(), 4),
        (orders_that_lost_columns(), 5),
        (orders_without_a_file(), 6),
        (orders_in_segments(), 7),
        (orders_on_compressed_pages(), 8),
    ] {
        let mut bytes = Vec::new();
        def.encode(&mut bytes);
        assert_eq!(bytes[0], version);
        if version == 7 {
            bytes[0] = 6;
            let refused = TableDef::decode(&bytes).unwrap_err().to_string();
            assert!(refused.contains("an unknown flag"), "{refused}");
        }
        def.primary.parts[0].segmented = true;
        bytes.clear();
        def.encode(&mut bytes);
        assert_eq!(bytes[0], version.max(7));
    }
}

/// By what an older copy is known as the table's.
#[test]
fn ids_stay_where_they_are() {
    let encoded = |def: TableDef| {
        let mut bytes = Vec::new();
        def.encode(&mut bytes);
        TableDef::ids_in(&bytes).unwrap().to_vec()
    };
    let ids = encoded(orders());
    assert_eq!(ids[..8], 9u64.to_le_bytes());
    assert_eq!(ids[8..], 7u32.to_le_bytes());
    assert_eq!(encoded(orders_that_lost_columns()), ids);
}

fn comes_back(def: TableDef) {
    def.validate().unwrap();
    assert_ne!(def.indexes[1].parts[0].fingerprint, 0);
    assert_eq!(def.index_number("Mixed"), Some(2));
    let mut bytes = Vec::new();
    def.encode(&mut bytes);
    assert_eq!(TableDef::decode(&bytes).unwrap(), def);
    for len in 0..bytes.len() {
        TableDef::decode(&bytes[..len]).unwrap_err();
    }
    bytes.push(0);
    TableDef::decode(&bytes).unwrap_err();
    bytes[0] = 10;
    assert!(matches!(
        TableDef::decode(&bytes),
        Err(Error::Unsupported { .. })
    ));
}

proptest! {
    #[test]
    fn hostile_definitions_are_refused_or_usable(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = Vec::new();
        orders_in_segments().encode(&mut bytes);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(def) = TableDef::decode(&bytes) {
            def.row_format().unwrap();
            for index in def.all_indexes() {
                // An unknown or changed collation is an error, nothing is a panic (DEF-1).
                let _ = def.key_codec(index, &Collations::new());
            }
            prop_assert!(def.foreign_keys.iter().all(|key| def.child_columns(key).is_some()));
            let mut again = Vec::new();
            def.encode(&mut again);
            prop_assert_eq!(TableDef::decode(&again).unwrap(), def);
        }
    }
}

/// The table has had a column with this id, until this version.
fn lose(def: &mut TableDef, id: u32, gone_in: u16) {
    let mut column = def.columns[1].clone();
    column.id = id;
    def.gone.push(GoneColumn { column, gone_in });
}

#[test]
fn validate_says_what_is_wrong() {
    let ok = || {
        TableDef::new("s/t")
            .column("a", ColumnType::i32())
            .nullable("b", ColumnType::text(9000))
    };
    let with = |change: fn(&mut TableDef)| {
        let mut def = ok();
        change(&mut def);
        def
    };
    ok().validate().unwrap();
    let many = (0..=MAX_COLUMNS).fold(TableDef::new("s/t"), |d, i| {
        d.column(&format!("c{i}"), ColumnType::i8())
    });
    let wide = (0..40).fold(TableDef::new("s/t"), |d, i| {
        d.column(&format!("c{i}"), ColumnType::Fixed(1000))
    });
    let indexes = (0..=MAX_INDEXES).fold(ok(), |d, i| d.index(&format!("i{i}"), &["a"]));
    for (def, want) in [
        (
            TableDef::new("t").column("a", ColumnType::i8()),
            "schema/table",
        ),
        (
            TableDef::new("s/../t").column("a", ColumnType::i8()),
            "can't be a file's",
        ),
        (
            TableDef::new("s/.t").column("a", ColumnType::i8()),
            "can't be a file's",
        ),
        (
            TableDef::new("s/").column("a", ColumnType::i8()),
            "a name of 0 bytes",
        ),
        (
            TableDef::new("s/t\n").column("a", ColumnType::i8()),
            "can't be a file's",
        ),
        (ok().column("a\0b", ColumnType::i8()), "a zero byte"),
        (many, "1018 columns"),
        (wide, "fixed part of a row"),
        (
            ok().column("A", ColumnType::i8()),
            "two columns are called A",
        ),
        (
            ok().column(
                "x",
                ColumnType::Int {
                    bytes: 5,
                    signed: true,
                },
            ),
            "column x: integers have 1, 2, 3, 4 or 8 bytes, not 5",
        ),
        (ok().column("x", ColumnType::Fixed(0)), "fixed length of 0"),
        (
            ok().index("k", &["nope"]),
            "index k names column nope, which does not exist",
        ),
        (ok().index("k", &[]), "index k: no columns"),
        (
            ok().index("k", &["a"]).index("K", &["a"]),
            "two indexes are called K",
        ),
        (
            ok().index("primary", &["a"]),
            "two indexes are called primary",
        ),
        (ok().index("k", &["a", "a"]), "column a is in it twice"),
        (
            ok().index("k", &["b"]),
            "values of column b may have 9000 bytes; give a prefix length",
        ),
        (ok().primary(&["b"]), "column b takes NULL"),
        (
            ok().add_index(IndexDef::new("k", vec![KeyPart::new(0).prefix(2)])),
            "a prefix of column a, which is i32",
        ),
        (
            ok().add_index(IndexDef::new("k", vec![KeyPart::new(1).prefix(0)])),
            "a prefix of no bytes",
        ),
        (
            ok().add_index(IndexDef::new(
                "k",
                vec![KeyPart::new(1).prefix(3070), KeyPart::new(0)],
            )),
            "up to 3074 bytes",
        ),
        (
            ok().add_index(IndexDef::new("k", vec![KeyPart::new(9)])),
            "column number 9",
        ),
        (indexes, "65 indexes"),
        (ok().auto_increment("a"), "not the first column of an index"),
        (ok().auto_increment("c"), "AUTO_INCREMENT names column c"),
        (ok().auto_increment("b"), "is no number"),
        (
            with(|d| d.columns[1].id = 1),
            "column b has no id of its own",
        ),
        (
            with(|d| d.columns[0].added_in = 2),
            "added in schema version 2, the table is at 1",
        ),
        (
            with(|d| {
                d.schema_version = 2;
                d.columns[0].added_in = 2
            }),
            "its default does not fit",
        ),
        (
            with(|d| d.columns[1].nullable_since = 2),
            "takes NULL since schema version 2, the table is at 1",
        ),
        (with(|d| lose(d, 9, 2)), "column b gone in schema version 2"),
        (
            with(|d| lose(d, 1, 1)),
            "which is gone, has no id of its own",
        ),
        (
            with(|d| d.primary.unique = false),
            "the clustered index is unique",
        ),
    ] {
        let refused = def.validate().unwrap_err().to_string();
        assert!(refused.contains(want), "{refused} / {want}");
    }
}

#[test]
fn typed_rows_and_keys_are_checked() {
    let def = TableDef::new("s/t")
        .column("id", ColumnType::u32())
        .nullable("t", ColumnType::text(9))
        .primary(&["id"])
        .index("t", &["t"]);
    let row = def.row(&[7u32.into(), "x".into()]).unwrap();
    assert_eq!(row.datums(), [Some(&[7, 0, 0, 0][..]), Some(b"x")]);
    assert_eq!(def.key(1, &[Value::Null]).unwrap().datums(), [None]);
    for refused in [
        def.row(&[7u32.into()]).map(|_| ()),
        def.key(0, &["x".into()]).map(|_| ()),
        def.key(0, &[1.into(), 2.into()]).map(|_| ()),
        def.key(2, &[]).map(|_| ()),
    ] {
        refused.unwrap_err();
    }
}

/// FREEZE-2: of all changes of a primary key's column that keep the rows.
#[test]
fn clustered_keys_keep_having_one_length() {
    let text = |max| ColumnType::text_in(CollationId::UTF8_BIN, max);
    let types = [
        ColumnType::i16(),
        ColumnType::i32(),
        ColumnType::u32(),
        ColumnType::i64(),
        ColumnType::Float,
        ColumnType::Double,
        ColumnType::Fixed(4),
        ColumnType::Fixed(8),
        ColumnType::Bytes(4),
        ColumnType::Bytes(8),
        text(4),
        text(8),
    ];
    let collations = Collations::new();
    let def = |ty| {
        let def = TableDef::new("a/t").column("id", ty).primary(&["id"]);
        def.index("by_id", &["id"])
    };
    let len = |def: &TableDef| {
        let codec = def.key_codec(&def.primary, &collations).unwrap();
        codec.constant_len()
    };
    let mut kept = 0;
    for (from, to) in types.iter().flat_map(|from| types.map(|to| (*from, to))) {
        if let Ok(after) = def(from).redefined(&def(to)) {
            assert_eq!(len(&after), len(&def(from)), "{from} becomes {to}");
            kept += 1;
        }
    }
    assert_eq!(kept, types.len() + 2);
    assert_eq!(len(&def(ColumnType::Fixed(4))), Some(4));
}
