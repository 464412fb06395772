//! Definitions of tables, as the system table and the files' headers have them.
//!
//! What holds, whatever the bytes are: a definition that can be decoded is encoded again as the same bytes,
//! and codecs for its rows and keys can be made of it, or say why not.

use varve::internals::row::{Collations, KeyCodec, RowFormat, RowRef};
use varve::{CollationId, ColumnDef, ColumnType, TableDef};

use crate::sample;

pub fn run(data: &[u8]) {
    let Ok(def) = TableDef::decode(data) else {
        return;
    };
    let mut encoded = Vec::new();
    def.encode(&mut encoded);
    let again = TableDef::decode(&encoded).expect("just encoded");
    assert_eq!(format!("{def:?}"), format!("{again:?}"));
    assert_eq!(encoded.len(), data.len());
    let Ok(format) = RowFormat::new(&def.columns, &def.gone, def.schema_version) else {
        return;
    };
    if let Ok(row) = RowRef::read(&format, data) {
        let values = (0..row.len()).filter_map(|column| row.fetched(column).flatten());
        assert!(values.map(<[u8]>::len).max() <= Some(data.len()));
    }
    let collations = Collations::new();
    for index in [&def.primary].into_iter().chain(&def.indexes) {
        let _ = KeyCodec::new(&def.columns, &index.parts, &collations);
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let types = [
        ColumnType::i8(),
        ColumnType::u24(),
        ColumnType::Float,
        ColumnType::Double,
        ColumnType::Fixed(5),
        ColumnType::Bytes(100),
        ColumnType::text_in(CollationId::UTF8_BIN_PAD, 40),
    ];
    let mut wide = TableDef::new("a/wide").primary(&[]);
    for (n, ty) in types.into_iter().enumerate() {
        let mut column = ColumnDef::new(format!("c{n}"), ty);
        column.nullable = n % 2 == 0;
        wide = wide.add_column(column);
    }
    wide.comment = b"a comment".to_vec();
    let mut defs: Vec<TableDef> = varve_sim::sample::definitions().into();
    defs.push(wide.index("i", &["c0", "c6"]));
    let db = varve_sim::sample::open(&sample::closed_disk()).expect("the sample opens");
    for name in db.tables().expect("the sample has tables") {
        defs.push(db.table(&name).expect("a table").def().clone());
    }
    db.crash();
    let encode = |def: &TableDef| {
        let mut out = Vec::new();
        def.encode(&mut out);
        out
    };
    defs.iter().map(encode).collect()
}
