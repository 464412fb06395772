//! What the estimates about indexes say of a table whose contents are known: they choose between indexes, so
//! a wrong one makes statements slow, not wrong, and nobody would notice elsewhere.

#[path = "support/dying_disk.rs"]
mod dying_disk;
#[path = "support/small.rs"]
mod small;

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use dying_disk::DyingDisk;
use varve::{
    ColumnType, Database, Isolation, LockMode, Options, Result, Table, TableDef, TableStatistics,
};

const ROWS: i64 = 6000;

/// The table that `fill` fills, without an index.
fn columns() -> TableDef {
    TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("few", ColumnType::i64())
        .column("thrice", ColumnType::i64())
        .column("same", ColumnType::text(20))
        .primary(&["id"])
}

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
    let def = columns()
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

/// STAT-1: statistics that are stored elsewhere change on request alone, and choose the same plans when they
/// are given back. What people have written into them is taken, whatever it is.
#[test]
fn statistics_come_back_as_they_were_told() {
    let dir = tempfile::tempdir().unwrap();
    let def = columns()
        .index("by_few", &["few", "id"])
        .index("by_thrice", &["thrice"])
        .unique("by_id", &["id", "few"]);
    let hidden = TableDef::new("a/hidden")
        .column("n", ColumnType::i64())
        .index("by_n", &["n"]);
    let db = Database::open(dir.path(), small::options()).unwrap();
    let table = db.create_table(&def).unwrap();
    db.create_table(&hidden).unwrap();
    assert_eq!(table.keep_statistics().unwrap(), None, "nobody has looked");
    fill(&db, &table, 0..ROWS);
    table.set_sample_leaves(1);
    table.analyze().unwrap();
    let one = table.keep_statistics().unwrap().unwrap();
    table.set_sample_leaves(20);
    table.analyze().unwrap();
    let told = table.keep_statistics().unwrap().unwrap();
    assert!(one.indexes.iter().all(|s| s.sampled.is_none_or(|n| n == 1)));
    assert!(told.indexes.iter().any(|s| s.sampled == Some(20)));

    let list = |told: &TableStatistics| -> Vec<String> {
        let with_columns = (told.indexes.iter()).filter(|s| s.name.starts_with("n_diff"));
        with_columns
            .map(|s| format!("{} {} {}", s.index, s.name, s.about))
            .collect()
    };
    assert_eq!(
        list(&told),
        [
            "PRIMARY n_diff_pfx01 id",
            "by_few n_diff_pfx01 few",
            "by_few n_diff_pfx02 few,id",
            "by_thrice n_diff_pfx01 thrice",
            "by_thrice n_diff_pfx02 thrice,id",
            "by_id n_diff_pfx01 id",
            "by_id n_diff_pfx02 id,few",
        ]
    );
    assert_eq!(told.rows, ROWS as u64);
    let all = |table: &Table| -> Vec<_> {
        (0..=table.def().indexes.len())
            .map(|n| table.index_estimate(n).unwrap().rows_per_key)
            .collect()
    };
    let before = all(&table);
    assert_eq!(before[1][0], ROWS as f64 / 5.0);
    // STAT-1: rows come, and nobody looks again.
    fill(&db, &table, ROWS..2 * ROWS);
    assert!(!table.estimates_are_stale());
    assert_eq!(table.kept_statistics_rows(), Some(ROWS as u64));
    assert_eq!(all(&table), before);
    db.close().unwrap();

    let db = Database::open(dir.path(), small::options()).unwrap();
    let table = db.table("a/t").unwrap();
    assert_eq!(table.kept_statistics_rows(), None);
    assert!(table.set_statistics(&told).unwrap(), "of all indexes");
    assert_eq!(all(&table), before);
    assert_eq!(table.row_count_estimate(), ROWS as u64);
    assert_eq!(table.keep_statistics().unwrap().unwrap().rows, ROWS as u64);

    // Nonsense is taken, and what is missing is looked at.
    let mut odd = told.clone();
    odd.rows = u64::MAX;
    for s in &mut odd.indexes {
        s.value = if s.index == "by_few" { 0 } else { u64::MAX };
    }
    odd.clustered_pages = u64::MAX;
    odd.secondary_pages = u64::MAX;
    odd.indexes.retain(|s| s.index != "by_thrice");
    assert!(!table.set_statistics(&odd).unwrap());
    assert!(
        all(&table)
            .iter()
            .flatten()
            .all(|shared| shared.is_finite())
    );
    assert_eq!(table.clustered_bytes_estimate(1), u64::MAX);
    table.analyze().unwrap();
    assert_eq!(table.kept_statistics_rows(), None, "until it is asked for");

    let hidden = db.table("a/hidden").unwrap();
    hidden.analyze().unwrap();
    assert_eq!(
        list(&hidden.keep_statistics().unwrap().unwrap()),
        [
            "GEN_CLUST_INDEX n_diff_pfx01 DB_ROW_ID",
            "by_n n_diff_pfx01 n",
            "by_n n_diff_pfx02 n,DB_ROW_ID",
        ]
    );
    db.close().unwrap();
}

/// Nothing here takes long; without end is what may happen.
const PATIENCE: Duration = Duration::from_secs(120);

/// Its rows are gone from the pool when another table was read.
fn make_cold(db: &Database) {
    let other = db.table("a/other").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = other.cursor(0).unwrap();
    let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
    while more {
        more = cursor.next(&mut trx).unwrap();
    }
}

/// Asks in a thread of its own how many rows share a value.
fn ask(table: &Table) -> mpsc::Receiver<Result<Vec<f64>>> {
    let (tell, told) = mpsc::channel();
    let table = table.clone();
    thread::spawn(move || {
        let index = table.index_by_name("by_few").unwrap();
        let estimate = table.index_estimate(index);
        tell.send(estimate.map(|e| e.rows_per_key)).unwrap();
    });
    told
}

/// Whoever reads a table's file says so and waits until the test lets go.
fn hold_reads(disk: &DyingDisk) -> (mpsc::Receiver<()>, mpsc::SyncSender<()>) {
    let (tell, told) = mpsc::channel();
    let (go_on, held) = mpsc::sync_channel(0);
    let held = Mutex::new(held);
    disk.before(move |operation, path| {
        if operation == "read" && path.ends_with("a/t.vdt") {
            let _ = tell.send(());
            // An error: the test has let go for good.
            let _ = held.lock().unwrap().recv();
        }
    });
    (told, go_on)
}

/// One statement that reads a cold table for its statistics kept all others that use the table waiting.
#[test]
fn nobody_waits_for_estimates_that_are_being_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let disk = DyingDisk::new();
    let open = || {
        let options = Options {
            buffer_pool_bytes: 1 << 20,
            ..small::options()
        };
        Database::open_on(Arc::new(disk.clone()), dir.path(), options).unwrap()
    };
    let db = open();
    let def = |name| {
        TableDef::new(name)
            .column("id", ColumnType::i64())
            .column("few", ColumnType::i64())
            .column("thrice", ColumnType::i64())
            .column("same", ColumnType::text(1000))
            .primary(&["id"])
    };
    let table = db
        .create_table(&def("a/t").index("by_few", &["few"]))
        .unwrap();
    fill(&db, &table, 0..ROWS);
    let other = db.create_table(&def("a/other")).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..6000 {
        let row = [id.into(), 0.into(), 0.into(), "x".repeat(1000).into()];
        (trx.insert(&other, &other.def().row(&row).unwrap().datums())).unwrap();
    }
    trx.commit().unwrap();
    let answer = |told: &mpsc::Receiver<Result<Vec<f64>>>| told.recv_timeout(PATIENCE).unwrap();

    let n = ROWS as f64;
    assert_near("old", &answer(&ask(&table)).unwrap(), &[n / 5.0, 1.0]);
    fill(&db, &table, ROWS..2 * ROWS);
    assert!(table.estimates_are_stale());
    make_cold(&db);
    let (reading, go_on) = hold_reads(&disk);
    let sampler = ask(&table);
    let comes = reading.recv_timeout(PATIENCE);
    comes.expect("whoever makes them anew reads a page");
    assert_near("meanwhile", &answer(&ask(&table)).unwrap(), &[n / 5.0, 1.0]);
    drop(go_on);
    assert_near("new", &answer(&sampler).unwrap(), &[2.0 * n / 5.0, 1.0]);

    // One that fails leaves what there was, and the next one tries again.
    fill(&db, &table, 2 * ROWS..3 * ROWS);
    make_cold(&db);
    disk.fail_reads(true);
    assert!(answer(&ask(&table)).is_err());
    assert!(table.estimates_are_stale());
    disk.fail_reads(false);
    assert_near(
        "in the end",
        &answer(&ask(&table)).unwrap(),
        &[3.0 * n / 5.0, 1.0],
    );

    // Where there are none yet, they are waited for, and made once; but only those of this table.
    db.close().unwrap();
    let db = open();
    let table = db.table("a/t").unwrap();
    let (reading, go_on) = hold_reads(&disk);
    let first = ask(&table);
    reading.recv_timeout(PATIENCE).expect("a page is read");
    let second = ask(&table);
    let (tell, told) = mpsc::channel();
    let other = db.table("a/other").unwrap();
    thread::spawn(move || tell.send(other.index_estimate(0).is_ok()).unwrap());
    assert_eq!(told.recv_timeout(PATIENCE), Ok(true));
    assert!(second.try_recv().is_err(), "from where?");
    drop(go_on);
    let n = table.row_count_estimate() as f64;
    for told in [first, second] {
        assert_near("first", &answer(&told).unwrap(), &[n / 5.0, 1.0]);
    }
    db.close().unwrap();
}

/// A table that was opened counts from an estimate on, and one whose statistics somebody has edited from what
/// they said: looking at it has to say how many rows there are.
#[test]
fn looking_at_a_table_counts_its_rows_again() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), small::options()).unwrap();
    let def = columns();
    let table = db.create_table(&def).unwrap();
    let said = |rows| {
        let told = TableStatistics {
            rows,
            ..TableStatistics::default()
        };
        table.set_statistics(&told).unwrap();
        assert_eq!(table.row_count_estimate(), rows);
        table.analyze().unwrap();
        table.row_count_estimate()
    };
    // A sample of the whole table is exact, though rows of it are only marked as deleted.
    fill(&db, &table, 0..100);
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    let mut more = cursor.first(&mut trx, LockMode::Exclusive).unwrap();
    for _ in 0..40 {
        assert!(more);
        trx.delete(&table, &cursor).unwrap();
        more = cursor.next(&mut trx).unwrap();
    }
    assert_eq!((said(0), said(70), said(1000)), (60, 60, 60));
    trx.rollback().unwrap();
    assert_eq!(said(0), 100);

    // Of a larger one it is near enough, and a number that may be right is kept.
    fill(&db, &table, 100..20 * ROWS);
    let n = 20.0 * ROWS as f64;
    for odd in [1, 3 * n as u64, u64::MAX / 4] {
        let counted = said(odd) as f64;
        assert!((0.75..1.33).contains(&(counted / n)), "{odd}: {counted}");
    }
    assert_eq!(said(n as u64 + 1), n as u64 + 1);
    db.close().unwrap();
}

/// An index may be called like the hidden one: both are told, each as itself.
#[test]
fn an_index_may_have_the_hidden_ones_name() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), small::options()).unwrap();
    let def = TableDef::new("a/t")
        .column("n", ColumnType::i64())
        .index("GEN_CLUST_INDEX", &["n"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for n in 0..300i64 {
        let row = [(n % 3).into()];
        (trx.insert(&table, &table.def().row(&row).unwrap().datums())).unwrap();
    }
    trx.commit().unwrap();
    table.analyze().unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let told = trx.keep_statistics(&table).unwrap().unwrap();
    let mut names: Vec<_> = told.indexes.iter().map(|s| (&s.index, &s.name)).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), told.indexes.len());
    let known = [0, 1].map(|index| table.index_estimate(index).unwrap());
    assert_eq!(known[1].rows_per_key[0], 100.0);
    assert!(table.set_statistics(&told).unwrap());
    let again = [0, 1].map(|index| table.index_estimate(index).unwrap());
    assert_eq!(again[1].rows_per_key, known[1].rows_per_key);
    // Nobody drops the table while its statistics are stored.
    let (dropping, dropped) = mpsc::channel();
    let other = db.clone();
    thread::spawn(move || dropping.send(other.drop_table("a/t")).unwrap());
    assert!(dropped.recv_timeout(Duration::from_millis(200)).is_err());
    trx.commit().unwrap();
    dropped.recv_timeout(PATIENCE).unwrap().unwrap();
}
