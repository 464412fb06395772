//! The program from outside: what it prints, and its exit status.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use varve::{ColumnType, Database, Isolation, Options, TableDef, values};

fn varve(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_varve");
    Command::new(program).args(args).output().unwrap()
}

fn status(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn open(dir: &Path) -> Database {
    let options = Options {
        logger: Some(Arc::new(|_, _| {})),
        ..Options::default()
    };
    Database::open(dir, options).unwrap()
}

/// Two tables with rows, closed.
fn build(dir: &Path) {
    let db = open(dir);
    for name in ["shop/item", "shop/other"] {
        let def = TableDef::new(name)
            .column("name", ColumnType::text(100))
            .nullable("stock", ColumnType::i64())
            .primary(&["name"])
            .index("by_stock", &["stock"]);
        let table = db.create_table(&def).unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        for n in 0..2000i64 {
            let name = format!("item {n:05}");
            table
                .insert(&mut trx, values![name.as_str(), n % 10])
                .unwrap();
        }
        trx.commit().unwrap();
    }
    db.close().unwrap();
}

fn files(dir: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push((path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    found.sort();
    found
}

#[test]
fn check_tells_by_its_status_what_it_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let nothing = varve(&["check", path]);
    assert_eq!(status(&nothing), 2, "{}", stderr(&nothing));
    build(dir.path());
    let before = files(dir.path());
    let clean = varve(&["check", path]);
    assert_eq!(status(&clean), 0, "{}", stdout(&clean));
    assert!(
        stdout(&clean).contains("4000 rows in 2 tables"),
        "{}",
        stdout(&clean)
    );
    assert!(files(dir.path()) == before, "OFF-1: a file changed");

    let db = open(dir.path());
    let busy = varve(&["check", path]);
    assert_eq!(status(&busy), 2);
    assert!(stderr(&busy).contains("in use"), "{}", stderr(&busy));
    db.close().unwrap();

    let file = dir.path().join("shop/item.vdt");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[3 * 16384 + 100] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let before = files(dir.path());
    let damaged = varve(&["check", path]);
    assert_eq!(status(&damaged), 1);
    let said = stdout(&damaged);
    assert!(
        said.contains("damage: shop/item.vdt, page 3: expected checksum"),
        "{said}"
    );
    assert!(!said.contains("shop/other"), "{said}");
    assert!(files(dir.path()) == before, "OFF-1: a file changed");
}

#[test]
fn unknown_arguments_are_refused_with_the_usage() {
    for args in [&[][..], &["chekc", "x"], &["check"]] {
        let refused = varve(args);
        assert_eq!(status(&refused), 2);
        assert!(stderr(&refused).contains("varve check DIR"));
    }
    assert_eq!(status(&varve(&["help"])), 0);
}
