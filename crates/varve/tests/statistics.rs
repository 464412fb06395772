//! What the estimates about indexes say of a table whose contents are known: they choose between indexes, so a wrong
//! one makes statements slow, not wrong, and nobody would notice elsewhere.

#[path = "support/small.rs"]
mod small;

use varve::{ColumnType, Database, Isolation, Table, TableDef};

const ROWS: i64 = 6000;

fn fill(db: &Database, table: &Table, ids: std::ops::Range<i64>) {
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in ids {
        let row = [id.into(), (id % 5).into(), (id / 3).into(), "x".into()];
        (trx.insert(table, &table.def().row(&row).unwrap().datums())).unwrap();
    }
    trx.commit().unwrap();
}

fn rows_per_key(table: &Table, index: &str) -> Vec<f64> {
    let index = table.index_by_name(index).unwrap();
    table.index_estimate(index).unwrap().rows_per_key
}

fn assert_near(what: &str, found: &[f64], want: &[f64]) {
    assert_eq!(found.len(), want.len(), "{what}: {found:?}");
    for (f, w) in found.iter().zip(want) {
        assert!(
            (f / w - 1.0).abs() < 0.15,
            "{what}: {found:?}, not {want:?}"
        );
    }
}

#[test]
fn estimates_follow_the_contents() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), small::options()).unwrap();
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("few", ColumnType::i64())
        .column("thrice", ColumnType::i64())
        .column("same", ColumnType::text(20))
        .primary(&["id"])
        .index("by_few", &["few", "thrice"])
        .index("by_thrice", &["thrice"])
        .index("by_same", &["same"])
        .unique("by_id", &["id"]);
    let table = db.create_table(&def).unwrap();
    assert_eq!(rows_per_key(&table, "by_few"), [0.0; 3], "no rows");

    fill(&db, &table, 0..ROWS);
    let n = ROWS as f64;
    assert!(table.estimates_are_stale());
    assert_near("PRIMARY", &rows_per_key(&table, "PRIMARY"), &[1.0]);
    assert_near("few", &rows_per_key(&table, "by_few"), &[n / 5.0, 1.0, 1.0]);
    assert_near("thrice", &rows_per_key(&table, "by_thrice"), &[3.0, 1.0]);
    assert_near("same", &rows_per_key(&table, "by_same"), &[n, 1.0]);
    assert_near("id", &rows_per_key(&table, "by_id"), &[1.0, 1.0]);
    assert!(!table.estimates_are_stale());

    // Entries of four indexes take more room than the rows' 40 bytes or so, but not many times more.
    let (used, _) = table.used_and_free_bytes().unwrap();
    let secondary = table.secondary_bytes_estimate();
    assert!(
        secondary > used / 4 && secondary < used,
        "{secondary} of {used}"
    );

    // A tenth more rows: they are made again when somebody asks; a few more: only on request.
    fill(&db, &table, ROWS..2 * ROWS);
    assert!(table.estimates_are_stale());
    assert_near("same", &rows_per_key(&table, "by_same"), &[2.0 * n, 1.0]);
    fill(&db, &table, 2 * ROWS..2 * ROWS + 100);
    assert_eq!(rows_per_key(&table, "by_same")[0], 2.0 * n);
    table.analyze().unwrap();
    assert_eq!(rows_per_key(&table, "by_same")[0], 2.0 * n + 100.0);
    db.close().unwrap();
}
