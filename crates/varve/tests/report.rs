//! What an administrator reads: who waits for whom, the last deadlock, and who keeps purge from going on.

use std::time::Duration;

use varve::{
    ColumnType, Database, Error, Isolation, KeyMatch, LockMode, Options, Table, TableDef,
    Transaction, Value,
};

fn lines(db: &Database, title: &str) -> String {
    let report = db.report();
    let found = report.into_iter().find(|(t, _)| *t == title);
    found.unwrap_or_else(|| panic!("no section {title}")).1
}

fn change(trx: &mut Transaction, table: &Table, id: i64) -> varve::Result<()> {
    let mut cursor = table.cursor(0)?;
    let key = table.def().key(0, &[Value::Int(id)])?;
    assert!(cursor.seek(trx, &key.datums(), KeyMatch::Exact, LockMode::Exclusive)?);
    let row = table.def().row(&[Value::Int(id), Value::Int(id + 1)])?;
    trx.update(table, &cursor, &row.datums())
}

#[test]
fn waits_deadlocks_and_old_views_are_told_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let def = TableDef::new("shop/stock")
        .column("id", ColumnType::i64())
        .column("n", ColumnType::i64())
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..5 {
        let row = def.row(&[Value::Int(id), Value::Int(0)]).unwrap();
        trx.insert(&table, &row.datums()).unwrap();
    }
    trx.commit().unwrap();
    assert!(lines(&db, "LATEST DETECTED DEADLOCK").contains("none since"));
    assert!(lines(&db, "LOCK WAITS").contains("nobody waits"));

    let mut old = db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    let view = lines(&db, "OLDEST VIEW AND TRANSACTION");
    assert!(
        view.contains("holds purge back, for at least 0 seconds"),
        "{view}"
    );
    drop(old);

    let (mut light, mut heavy) = (
        db.begin(Isolation::RepeatableRead),
        db.begin(Isolation::RepeatableRead),
    );
    change(&mut light, &table, 0).unwrap();
    for id in 1..4 {
        change(&mut heavy, &table, id).unwrap();
    }
    let (light_id, heavy_id) = (light.id().unwrap(), heavy.id().unwrap());
    std::thread::scope(|s| {
        let waiting = s.spawn(|| change(&mut heavy, &table, 0));
        while lines(&db, "LOCK WAITS").contains("nobody") {
            std::thread::sleep(Duration::from_millis(1));
        }
        let waits = lines(&db, "LOCK WAITS");
        for part in [
            format!("transaction {heavy_id} has waited"),
            "table shop/stock, index PRIMARY".to_string(),
            format!("held by transaction {light_id}"),
        ] {
            assert!(waits.contains(&part), "{part} is missing: {waits}");
        }
        let victim = change(&mut light, &table, 1);
        assert!(matches!(victim, Err(Error::Deadlock)), "{victim:?}");
        light.rollback().unwrap();
        waiting.join().unwrap().unwrap();
    });
    let deadlock = lines(&db, "LATEST DETECTED DEADLOCK");
    let rolled_back = deadlock.lines().find(|l| l.contains("it was rolled back"));
    let rolled_back = rolled_back.unwrap_or_else(|| panic!("{deadlock}"));
    assert!(
        rolled_back.starts_with(&format!("transaction {light_id}, 2 changes and locks")),
        "{deadlock}"
    );
    assert!(
        deadlock.contains(&format!("transaction {heavy_id}, 6 changes and locks")),
        "{deadlock}"
    );
    let oldest = lines(&db, "OLDEST VIEW AND TRANSACTION");
    assert!(
        oldest.contains(&format!("transaction {heavy_id} is the oldest")),
        "{oldest}"
    );
    heavy.rollback().unwrap();
}
