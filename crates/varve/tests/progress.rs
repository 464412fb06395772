//! How far statements have come that take long: what a user of the crate is told.

use std::sync::{Arc, Mutex};
use std::thread;

use varve::{
    ColumnType, Database, ForeignKeyChecks, Isolation, Options, Phase, Progress, RedefinitionWaits,
    Table, TableDef, Transaction, Watch, values,
};

const ROWS: u64 = 10_000;

fn def() -> TableDef {
    TableDef::new("shop/item")
        .column("id", ColumnType::i64())
        .column("n", ColumnType::i64())
        .column("m", ColumnType::i64())
        .primary(&["id"])
}

fn filled(db: &Database) -> Table {
    let table = db.create_table(&def()).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS as i64 {
        let row = values![id, id * 7919 % 10_007, -id];
        table.insert(&mut trx, row).unwrap();
    }
    trx.commit().unwrap();
    table
}

type Told = Arc<Mutex<Vec<Progress>>>;

fn watched() -> (Watch, Told) {
    let told = Told::default();
    let (to, caller) = (told.clone(), thread::current().id());
    let watch = Watch::new(move |progress| {
        assert_eq!(thread::current().id(), caller, "PROGRESS-1");
        to.lock().unwrap().push(progress);
    });
    (watch, told)
}

/// The phases, in their order, with the work that was done and estimated in the end.
fn phases(told: &Told) -> Vec<(Phase, u64, u64)> {
    let mut phases: Vec<(Phase, u64, u64)> = Vec::new();
    for Progress {
        phase,
        done,
        estimated,
    } in told.lock().unwrap().drain(..)
    {
        assert!(done <= estimated, "PROGRESS-2");
        match phases.last_mut() {
            Some(last) if last.0 == phase => {
                assert!(done >= last.1, "PROGRESS-2");
                *last = (phase, done, estimated);
            }
            _ => phases.push((phase, done, estimated)),
        }
    }
    phases
}

#[test]
fn each_phase_of_long_statements_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let table = filled(&db);
    let (watch, told) = watched();
    let waits = || RedefinitionWaits {
        watch: Some(watch.clone()),
        ..RedefinitionWaits::default()
    };
    drop(table);

    let to = def().index("by_n", &["n"]).index("by_m", &["m"]);
    let built = db.prepare_redefinition(&to, waits()).unwrap();
    built.commit(&mut |_, _| {}).unwrap();
    let three = [
        (Phase::Read, ROWS, ROWS),
        (Phase::Fill, 2 * ROWS, 2 * ROWS),
        (Phase::CatchUp, 0, 0),
    ];
    assert_eq!(phases(&told), three);

    let rebuilt = db.prepare_rebuild(&to, waits()).unwrap();
    rebuilt.commit(&mut |_, _| {}).unwrap();
    assert_eq!(phases(&told), three);

    let table = db.table("shop/item").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.set_watch(Some(watch.clone()));
    trx.check_table(&table).unwrap();
    let checked = phases(&told);
    let [pages, records] = checked[..] else {
        panic!("{checked:?}");
    };
    assert_eq!(pages.0, Phase::CheckPages);
    assert!(pages.1 > 0 && pages.1 <= pages.2, "{pages:?}");
    assert_eq!(records, (Phase::CheckRecords, 3 * ROWS, 3 * ROWS));

    trx.analyze(&table).unwrap();
    let sampled = phases(&told);
    let [sampled] = sampled[..] else {
        panic!("{sampled:?}");
    };
    assert!(sampled.0 == Phase::Sample && sampled.1 > 0, "{sampled:?}");
    trx.commit().unwrap();
}

#[test]
fn an_import_tells_of_the_files_pages_and_rows() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default()).unwrap();
    drop(filled(&db));
    db.redefine_table(&def().index("by_n", &["n"])).unwrap();
    let file = db.dir().join("shop/item.vdt");
    let copy = dir.path().join("copy");
    let export = db.export_table("shop/item", RedefinitionWaits::default());
    std::fs::copy(&file, &copy).unwrap();
    drop(export.unwrap());
    db.discard_table("shop/item", ForeignKeyChecks::On).unwrap();
    std::fs::copy(&copy, &file).unwrap();

    let (watch, told) = watched();
    let waits = RedefinitionWaits {
        watch: Some(watch),
        ..RedefinitionWaits::default()
    };
    db.import_table("shop/item", waits).unwrap();
    let told = phases(&told);
    let [pages, read, fill] = told[..] else {
        panic!("{told:?}");
    };
    let bytes = std::fs::metadata(&copy).unwrap().len();
    let all = bytes / Options::default().page_size as u64;
    assert_eq!(pages, (Phase::CheckPages, all, all));
    assert_eq!(read, (Phase::Read, ROWS, ROWS));
    assert_eq!(fill, (Phase::Fill, ROWS, ROWS));
}

#[test]
fn what_a_load_has_left_to_do_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let def = def().index("by_n", &["n"]);
    let table = db.create_table(&def).unwrap();
    let (watch, told) = watched();
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.set_watch(Some(watch));
    let mut load = db.load_table(&mut trx, &table, 1).unwrap();
    // In no order: rows are sorted, too.
    for id in (0..ROWS as i64).rev() {
        let row = def.row(&[id.into(), id.into(), id.into()]).unwrap();
        load.push(&mut trx, &row.datums()).unwrap();
    }
    assert_eq!(phases(&told), []);
    load.finish(&mut trx, &mut |_, _| {}).unwrap();
    trx.commit().unwrap();
    assert_eq!(phases(&told), [(Phase::Fill, 2 * ROWS, 2 * ROWS)]);
}

#[test]
fn a_long_rollback_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let table = filled(&db);
    let (watch, told) = watched();
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.set_watch(Some(watch));
    let mut value = 1_000_000;
    let mut change = |trx: &mut Transaction, rows: u64| {
        for id in 0..rows as i64 {
            value += 1;
            let changed = [("n", value.into())];
            table.set(trx, values![id], &changed).unwrap();
        }
    };
    change(&mut trx, ROWS);
    let savepoint = trx.savepoint();
    change(&mut trx, ROWS / 2);
    trx.rollback_to(savepoint).unwrap();
    assert_eq!(phases(&told), [(Phase::RollBack, ROWS / 2, ROWS / 2)]);
    // Too short to be told of.
    let savepoint = trx.savepoint();
    change(&mut trx, 1000);
    trx.rollback_to(savepoint).unwrap();
    assert_eq!(phases(&told), []);
    trx.rollback().unwrap();
    assert_eq!(phases(&told), [(Phase::RollBack, ROWS, ROWS)]);
}
