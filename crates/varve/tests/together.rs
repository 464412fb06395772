//! Several tables that get their definitions together: all of them, or none. That the process may die
//! meanwhile is in `ddl_crash.rs`.

#[path = "support/small.rs"]
mod small;

use varve::{
    ColumnType, Database, Error, ForeignKey, ForeignKeyChecks, Isolation, LockMode,
    PreparedRedefinition, RedefinitionWaits, TableDef, Value,
};

const NAMES: [&str; 3] = ["a/one", "a/two", "a/three"];
const ROWS: i64 = 400;

fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .nullable("n", ColumnType::i64())
        .primary(&["id"])
        .index("by_n", &["n"])
}

/// With indexes that come and go.
fn changed(db: &Database, name: &str) -> TableDef {
    let mut def = db.table(name).unwrap().def().clone();
    def.indexes.clear();
    def.unique("unique_n", &["n"]).index("both", &["n", "id"])
}

fn filled(dir: &std::path::Path) -> Database {
    let db = Database::open(dir, small::options()).unwrap();
    for name in NAMES {
        let table = db.create_table(&definition(name)).unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        for id in 0..ROWS {
            table
                .insert(&mut trx, &[Value::Int(id), Value::Int(id + 1000)])
                .unwrap();
        }
        trx.commit().unwrap();
    }
    db
}

/// The first and the last one stay in their files, the one between is written anew.
fn prepare(db: &Database) -> PreparedRedefinition {
    let waits = RedefinitionWaits::default();
    let [one, two, three] = NAMES.map(|name| changed(db, name));
    let mut prepared = db.prepare_redefinition(&one, waits).unwrap();
    prepared.and_rebuild(&two).unwrap();
    prepared.and_redefine(&three).unwrap();
    prepared
}

/// Gives the row another number.
fn set(db: &Database, name: &str, id: i64, n: i64) {
    let table = db.table(name).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut values = vec![Value::Int(id), Value::Int(n)];
    values.resize(table.def().columns.len(), Value::Null);
    table.put(&mut trx, &values).unwrap();
    trx.commit().unwrap();
}

/// What is called so, how many rows it has, and the greatest number; the table is sound.
fn state(db: &Database, name: &str) -> (Vec<String>, i64, Value) {
    let table = db.table(name).unwrap();
    let report = db.check_table(&table).unwrap();
    assert_eq!(report.errors, [""; 0], "{name}");
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(1).unwrap();
    let (mut rows, mut greatest) = (0, Value::Null);
    let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
    while more {
        (rows, greatest) = (rows + 1, cursor.row().unwrap().value(1).unwrap());
        more = cursor.next(&mut trx).unwrap();
    }
    let def = table.def();
    let names = def.columns.iter().map(|column| column.name.clone());
    let names = names.chain(def.indexes.iter().map(|index| index.name.clone()));
    (names.collect(), rows, greatest)
}

fn files(db: &Database) -> Vec<String> {
    let files = std::fs::read_dir(db.dir().join("a")).unwrap();
    let mut names: Vec<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn all_get_their_definitions() {
    let dir = tempfile::tempdir().unwrap();
    let db = filled(dir.path());
    let mut prepared = prepare(&db);
    NAMES.iter().for_each(|name| set(&db, name, 1, 5000));
    prepared.build(&mut |_, _| {}).unwrap();
    NAMES.iter().for_each(|name| set(&db, name, 2, 6000));
    prepared.commit(&mut |_, _| {}).unwrap();
    let expected = ["id", "n", "unique_n", "both"].map(String::from);
    let check = |db: &Database| {
        for name in NAMES {
            let (names, rows, greatest) = state(db, name);
            assert_eq!((&*names, rows), (&expected[..], ROWS), "{name}");
            assert_eq!(greatest, Value::Int(6000), "{name}");
        }
        assert_eq!(files(db), ["one.vdt", "three.vdt", "two.vdt"]);
    };
    check(&db);
    // TOGETHER-1: one commit, which is in the log.
    db.crash();
    let db = Database::open(dir.path(), small::options()).unwrap();
    check(&db);
    // What the tables already have is no change.
    let waits = RedefinitionWaits::default();
    let same = NAMES.map(|name| db.table(name).unwrap().def().clone());
    let mut prepared = db.prepare_redefinition(&same[0], waits).unwrap();
    prepared.and_redefine(&same[1]).unwrap();
    prepared.commit(&mut |_, _| {}).unwrap();
    check(&db);
}

/// Two rows with the same number, in one of the tables.
#[test]
fn none_gets_its_definition_if_one_is_refused() {
    for (at, name) in NAMES.iter().enumerate() {
        for is_late in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let db = filled(dir.path());
            let before = NAMES.map(|name| (state(&db, name).0, state(&db, name).1));
            let mut prepared = prepare(&db);
            if is_late {
                prepared.build(&mut |_, _| {}).unwrap();
            }
            set(&db, name, 7, 1009);
            let mut told = Vec::new();
            let refused = prepared.commit(&mut |index, row| {
                told.push((index.to_string(), row.value(1).unwrap()));
            });
            let refused = refused.unwrap_err();
            assert!(
                matches!(refused, Error::DuplicateKey { .. }),
                "{at}: {refused}"
            );
            assert_eq!(told, [("unique_n".to_string(), Value::Int(1009))], "{at}");
            let after = NAMES.map(|name| (state(&db, name).0, state(&db, name).1));
            assert_eq!(after, before, "{at}");
            assert_eq!(files(&db), ["one.vdt", "three.vdt", "two.vdt"], "{at}");
            // Nothing that is left is in the way.
            set(&db, name, 7, 1007);
            prepare(&db).commit(&mut |_, _| {}).unwrap();
            assert_eq!(state(&db, name).0.len(), 4, "{at}");
        }
    }
}

/// TOGETHER-2.
#[test]
fn a_table_is_there_once_and_has_no_relations() {
    let dir = tempfile::tempdir().unwrap();
    let db = filled(dir.path());
    let waits = RedefinitionWaits::default;
    let mut prepared = prepare(&db);
    let twice = prepared.and_redefine(&changed(&db, NAMES[1])).unwrap_err();
    assert!(twice.to_string().contains("two definitions"), "{twice}");
    // It does not go on without the one that has failed.
    let over = prepared.commit(&mut |_, _| {}).unwrap_err();
    assert!(matches!(over, Error::Invalid { .. }), "{over}");
    assert_eq!(state(&db, NAMES[0]).0, ["id", "n", "by_n"]);
    let key = ForeignKey::new("own", &["n"], NAMES[0], &["id"]);
    let child = definition("a/child").foreign_key(key);
    db.create_table_with(&child, ForeignKeyChecks::On).unwrap();
    for related in [NAMES[0], "a/child"] {
        let to = |name: &str| {
            let def = db.table(name).unwrap().def().clone();
            def.nullable("more", ColumnType::i32())
        };
        let mut prepared = db.prepare_redefinition(&to(NAMES[1]), waits()).unwrap();
        prepared.and_redefine(&to(related)).unwrap();
        let refused = prepared.commit(&mut |_, _| {}).unwrap_err();
        assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
        assert_eq!(state(&db, NAMES[1]).0, ["id", "n", "by_n"]);
    }
}

/// The locks of all tables are one transaction's: a deadlock with them is found.
#[test]
fn a_deadlock_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let db = filled(dir.path());
    let prepared = prepare(&db);
    let mut trx = db.begin(Isolation::RepeatableRead);
    let put = |trx: &mut varve::Transaction, name: &str| {
        let table = db.table(name).unwrap();
        table.put(trx, &[Value::Int(1), Value::Int(7)])
    };
    put(&mut trx, NAMES[2]).unwrap();
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| prepared.commit(&mut |_, _| {}));
        while !db.status().contains(&("row_lock_current_waits", 1)) {
            std::thread::yield_now();
        }
        // The redefinition has this table, and waits for the last one.
        let refused = put(&mut trx, NAMES[0]).unwrap_err();
        assert!(matches!(refused, Error::Deadlock), "{refused}");
        drop(trx);
        commit.join().unwrap().unwrap();
    });
    assert_eq!(state(&db, NAMES[2]).1, ROWS);
}
