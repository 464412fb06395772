//! The program from outside: what it prints, and its exit status.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use varve::backup::{BackupOptions, Collection};
use varve::{ColumnType, Database, Isolation, Options, TableDef, Value, values};
use varve_monitor::{Monitor, MonitorOptions};

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
        assert!(stderr(&refused).contains("Usage: varve"));
    }
    assert_eq!(status(&varve(&["help"])), 0);
}

#[test]
fn dump_prints_what_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    build(dir.path());
    let db = open(dir.path());
    db.rename_table("shop/item", "shop/thing").unwrap();
    let def = TableDef::new("shop/odd")
        .column("id", ColumnType::i32())
        .nullable("note", ColumnType::text(60_000))
        .nullable("blob", ColumnType::Bytes(100))
        .nullable("x", ColumnType::Double)
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let long = "y".repeat(50_000);
    let null = varve::Value::Null;
    table
        .insert(&mut trx, values![-1, "say \"a,b\"\n", vec![1u8, 0xab], 1.5])
        .unwrap();
    table
        .insert(&mut trx, values![2, null.clone(), null.clone(), f64::NAN])
        .unwrap();
    table
        .insert(&mut trx, values![3, "", null.clone(), -0.25])
        .unwrap();
    table
        .insert(&mut trx, values![4, long.as_str(), null.clone(), null])
        .unwrap();
    trx.commit().unwrap();
    db.close().unwrap();

    // The file alone, somewhere else.
    let alone = tempfile::tempdir().unwrap();
    let copy = |name: &str| {
        let to = alone.path().join(name);
        std::fs::copy(dir.path().join("shop").join(name), &to).unwrap();
        to
    };
    let odd = copy("odd.vdt");
    let csv = varve(&["dump", odd.to_str().unwrap()]);
    assert_eq!(status(&csv), 0, "{}", stderr(&csv));
    let expected = format!(
        "\"id\",\"note\",\"blob\",\"x\"\n-1,\"say \"\"a,b\"\"\n\",0x01ab,1.5\n2,,,NaN\n3,\"\",,-0.25\n4,\"{long}\",,\n"
    );
    assert_eq!(stdout(&csv), expected);
    let json = varve(&["dump", "--json", odd.to_str().unwrap()]);
    let lines: Vec<String> = stdout(&json).lines().take(3).map(String::from).collect();
    assert_eq!(
        lines,
        [
            r#"{"id":-1,"note":"say \"a,b\"\u000a","blob":{"hex":"01ab"},"x":1.5}"#,
            r#"{"id":2,"note":null,"blob":null,"x":"NaN"}"#,
            r#"{"id":3,"note":"","blob":null,"x":-0.25}"#,
        ]
    );

    // A page of the external value is lost.
    let mut bytes = std::fs::read(&odd).unwrap();
    let overflow = bytes.chunks(16384).position(|page| page[12] == 11).unwrap();
    bytes[overflow * 16384 + 5000] ^= 1;
    std::fs::write(&odd, &bytes).unwrap();
    let lost = varve(&["dump", odd.to_str().unwrap()]);
    assert_eq!(status(&lost), 1);
    assert!(
        stdout(&lost).ends_with("4,#LOST 50000 bytes#,,\n"),
        "{}",
        stdout(&lost)
    );
    assert!(stderr(&lost).contains(&format!("skipped: page {overflow}: expected checksum")));

    // A leaf and the root of the renamed table are lost, and then page 0.
    let thing = copy("thing.vdt");
    let mut bytes = std::fs::read(&thing).unwrap();
    let leaves: Vec<usize> = (4..bytes.len() / 16384)
        .filter(|no| bytes[no * 16384 + 12] == 3 && bytes[no * 16384 + 48] == bytes[3 * 16384 + 48])
        .collect();
    assert!(leaves.len() > 3, "{leaves:?}");
    bytes[leaves[1] * 16384 + 9000] ^= 1;
    bytes[3 * 16384..4 * 16384].fill(0);
    std::fs::write(&thing, &bytes).unwrap();
    let part = varve(&["dump", thing.to_str().unwrap()]);
    assert_eq!(status(&part), 1);
    let rows = stdout(&part).lines().count() - 1;
    assert!((1000..2000).contains(&rows), "{rows} rows");
    assert!(
        stdout(&part).contains("\"item 00000\",0\n"),
        "{}",
        stdout(&part)
    );
    let said = stderr(&part);
    assert!(
        said.contains("no page has the rows with keys from"),
        "{said}"
    );
    bytes[..16384].fill(0x77);
    std::fs::write(&thing, &bytes).unwrap();
    let second = varve(&["dump", thing.to_str().unwrap()]);
    assert_eq!(stdout(&second), stdout(&part), "{}", stderr(&second));
    // The second copy of the definition, on page 2.
    bytes[2 * 16384 + 90] ^= 1;
    std::fs::write(&thing, &bytes).unwrap();
    let without = varve(&["dump", thing.to_str().unwrap()]);
    assert_eq!(status(&without), 2);
    assert!(stderr(&without).contains("--like"), "{}", stderr(&without));
    let other = copy("other.vdt");
    let like = varve(&[
        "dump",
        "--like",
        other.to_str().unwrap(),
        thing.to_str().unwrap(),
    ]);
    assert_eq!(stdout(&like), stdout(&part), "{}", stderr(&like));
    let from_dir = varve(&["dump", dir.path().to_str().unwrap(), "shop/thing"]);
    assert_eq!(status(&from_dir), 0, "{}", stderr(&from_dir));
    assert_eq!(stdout(&from_dir).lines().count(), 2001);
}

/// Rows that a crash left to recovery, and deleted ones.
#[test]
fn dump_shows_deleted_rows_and_recovered_ones_on_demand() {
    let dir = tempfile::tempdir().unwrap();
    build(dir.path());
    let path = dir.path().to_str().unwrap();
    let db = open(dir.path());
    let table = db.table("shop/item").unwrap();
    let mut old = db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    let mut trx = db.begin(Isolation::RepeatableRead);
    table.delete(&mut trx, values!["item 00007"]).unwrap();
    table.insert(&mut trx, values!["zebra", 1]).unwrap();
    trx.commit().unwrap();
    std::mem::forget(old);
    db.crash();
    let file = dir.path().join("shop/item.vdt");
    let stale = stdout(&varve(&["dump", file.to_str().unwrap()]));
    assert!(!stale.contains("zebra"));
    let new = stdout(&varve(&["dump", path, "shop/item"]));
    assert!(new.contains("\"zebra\",1\n") && !new.contains("item 00007"));
    let all = stdout(&varve(&["dump", "--deleted", path, "shop/item"]));
    assert!(all.starts_with("#deleted,") && all.contains("1,\"item 00007\",7\n"));
    assert!(all.contains("0,\"zebra\",1\n"));
}

/// A definition that is longer than a page is read from the file alone, also if page 0 is lost.
#[test]
fn dump_finds_a_long_definition_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let names: Vec<String> = (0..1000).map(|n| format!("column_number_{n:04}")).collect();
    let mut def = TableDef::new("shop/wide");
    for name in &names {
        def = def.column(name, ColumnType::i32());
    }
    def = def.primary(&[&names[0]]);
    for (n, name) in names[1..65].iter().enumerate() {
        def = def.index(&format!("index_number_{n:02}"), &[name]);
    }
    let db = open(dir.path());
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..20i64 {
        let row: Vec<Value> = (0..1000).map(|n| Value::Int(id + n)).collect();
        table.insert(&mut trx, &row).unwrap();
    }
    trx.commit().unwrap();
    db.close().unwrap();
    let from_dir = varve(&["dump", path, "shop/wide"]);
    assert_eq!(status(&from_dir), 0, "{}", stderr(&from_dir));
    let lines: Vec<String> = stdout(&from_dir).lines().map(String::from).collect();
    assert_eq!(lines.len(), 21);
    for (id, line) in lines[1..].iter().enumerate() {
        let values: Vec<String> = (id..id + 1000).map(|n| n.to_string()).collect();
        assert_eq!(*line, values.join(","));
    }
    let checked = varve(&["check", path]);
    assert_eq!(status(&checked), 0, "{}", stdout(&checked));

    let file = dir.path().join("shop/wide.vdt");
    let mut bytes = std::fs::read(&file).unwrap();
    let alone = dir.path().join("alone.vdt");
    let dump = |bytes: &[u8]| {
        std::fs::write(&alone, bytes).unwrap();
        varve(&["dump", alone.to_str().unwrap()])
    };
    let whole = dump(&bytes);
    assert_eq!(status(&whole), 0, "{}", stderr(&whole));
    assert_eq!(stdout(&whole), stdout(&from_dir));
    bytes[..16384].fill(0x77);
    let rest = dump(&bytes);
    assert_eq!(status(&rest), 1);
    assert_eq!(stdout(&rest), stdout(&from_dir));
    // Behind the 65 roots it goes on.
    bytes[68 * 16384 + 5000] ^= 1;
    let lost = dump(&bytes);
    assert_eq!(status(&lost), 2);
    assert!(stderr(&lost).contains("--like"), "{}", stderr(&lost));
}

#[test]
fn top_prints_what_a_monitor_says() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let file = dir.path().join("token");
    let token = "0123456789abcdef";
    std::fs::write(&file, token).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let options = MonitorOptions {
        token: Some(token.into()),
        ..MonitorOptions::new("127.0.0.1:0")
    };
    let monitor = Monitor::start(&db, options).unwrap();
    let address = monitor.address().to_string();

    let refused = varve(&["top", &address, "--once"]);
    assert_eq!(status(&refused), 2);
    assert!(
        stderr(&refused).contains("wants its token: name the file that has it by --token-file")
    );
    let file = file.to_str().unwrap();
    let shown = varve(&["top", &address, "--once", "--token-file", file]);
    assert_eq!(status(&shown), 0, "{}", stderr(&shown));
    let screen = stdout(&shown);
    assert!(screen.contains("Well  Nothing is wrong"), "{screen}");
    let no_terminal = varve(&["top", &address, "--token-file", file]);
    assert!(stderr(&no_terminal).contains("standard output is no terminal"));

    monitor.stop();
    db.close().unwrap();
    let gone = varve(&["top", &address, "--once"]);
    assert_eq!(status(&gone), 2);
    assert!(stderr(&gone).contains(&format!("no monitor answers at {address}")));
}

#[test]
fn the_demo_reports_what_a_forgotten_reader_costs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let demo = [
        "demo",
        "--plain",
        "--seconds",
        "8",
        "--rows",
        "1000",
        "--dir",
        path,
    ];
    let played = varve(&demo);
    assert_eq!(status(&played), 0, "{}", stderr(&played));
    let said = stdout(&played);
    let report = said.split("commits/s").nth(1).expect(&said);
    let history = |act: &str| {
        let line = report.lines().find(|line| line.starts_with(act));
        let line = line.unwrap_or_else(|| panic!("{act} in {said}"));
        let numbers = line[46..].split_whitespace().nth(1);
        numbers.unwrap().replace(',', "").parse::<u64>().unwrap()
    };
    // How far purge came in two seconds is the machine's affair.
    for act in ["nobody reads", "a forgotten", "another one", "it has ended"] {
        history(act);
    }
    // The directory stays, and is not taken for another one.
    assert_eq!(status(&varve(&["check", path])), 0);
    let again = varve(&demo);
    assert!(
        stderr(&again).contains("is not empty"),
        "{}",
        stderr(&again)
    );
}

#[test]
fn a_backup_is_verified_and_restored() {
    let dir = tempfile::tempdir().unwrap();
    let [data, made, to] = ["data", "made", "to"].map(|name| dir.path().join(name));
    build(&data);
    let db = open(&data);
    db.backup(&made, BackupOptions::default()).unwrap();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let whole = varve(&["verify", &path(&made)]);
    assert_eq!(status(&whole), 0, "{}", stderr(&whole));
    assert!(
        stdout(&whole).starts_with("a whole backup: "),
        "{}",
        stdout(&whole)
    );
    let restored = varve(&["restore", &path(&made), &path(&to)]);
    assert_eq!(status(&restored), 0, "{}", stderr(&restored));
    let checked = varve(&["check", &path(&to)]);
    assert_eq!(status(&checked), 0, "{}", stdout(&checked));
    assert!(
        stdout(&checked).contains("4000 rows in"),
        "{}",
        stdout(&checked)
    );
    // Not over another one.
    let refused = varve(&["restore", &path(&made), &path(&data)]);
    assert_eq!(status(&refused), 2);
    assert!(
        stderr(&refused).contains("not empty"),
        "{}",
        stderr(&refused)
    );
    // Neither is no backup.
    for nothing in [&data, &dir.path().join("nothing")] {
        let refused = varve(&["verify", &path(nothing)]);
        assert_eq!(status(&refused), 2);
        assert!(
            stderr(&refused).contains("a backup in"),
            "{}",
            stderr(&refused)
        );
    }
    let file = made.join("shop/item.vdt");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let changed = varve(&["verify", &path(&made)]);
    assert_eq!(status(&changed), 1);
    assert!(
        stdout(&changed).contains("item.vdt"),
        "{}",
        stdout(&changed)
    );
}

/// A backup as `varve backup` makes it, whose other part has a few files.
fn backup_of_a_server(dir: &Path, others: &[&str]) {
    build(&dir.join("data"));
    let made = dir.join("made");
    let db = open(&dir.join("data"));
    db.backup(made.join("varve"), BackupOptions::default())
        .unwrap();
    for other in others {
        let path = made.join("server").join(other);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, other).unwrap();
    }
    let notes = vec![
        ("gtid".to_string(), "0-1-7".to_string()),
        ("setting:varve_data_home_dir".into(), "/fast".into()),
    ];
    Collection::make(made.join("server"), notes).unwrap();
}

/// `varve` with a `mariadb-backup` that does what the script says, or none.
fn varve_beside(script: Option<&str>, dir: &Path, args: &[&str]) -> Output {
    let programs = dir.join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    if let Some(script) = script {
        let path = programs.join("mariadb-backup");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let program = env!("CARGO_BIN_EXE_varve");
    let mut varve = Command::new(program);
    varve.env("PATH", programs).args(args).output().unwrap()
}

#[test]
fn a_server_is_restored_or_nothing_starts_there() {
    let dir = tempfile::tempdir().unwrap();
    backup_of_a_server(dir.path(), &["ibdata1", "shop/item.frm"]);
    let [made, to] = ["made", "to"].map(|name| dir.path().join(name));
    let [made_text, to_text] = [&made, &to].map(|path| path.to_str().unwrap());
    let restore = |script| varve_beside(script, dir.path(), &["restore", made_text, to_text]);
    // Cut off at the step that is another program's.
    for script in [None, Some("exit 1")] {
        let failed = restore(script);
        assert_eq!(status(&failed), 2);
        assert!(
            stderr(&failed).contains("mariadb-backup"),
            "{}",
            stderr(&failed)
        );
        assert!(to.join("ibdata1").exists());
        let told = Database::open(&to, Options::default())
            .map(drop)
            .unwrap_err();
        assert!(
            told.to_string().contains("did not come to its end"),
            "{told}"
        );
        std::fs::remove_dir_all(&to).unwrap();
    }
    // What was changed is told before anything is written.
    let file = made.join("server/shop/item.frm");
    std::fs::write(&file, "shop/item.frn").unwrap();
    let failed = restore(Some("exit 0"));
    assert!(stderr(&failed).contains("item.frm"), "{}", stderr(&failed));
    assert!(!to.exists());
    std::fs::write(&file, "shop/item.frm").unwrap();
    let restored = restore(Some("exit 0"));
    assert_eq!(status(&restored), 0, "{}", stderr(&restored));
    let said = stdout(&restored);
    assert!(
        said.contains("gtid 0-1-7") && said.contains("varve_data_home_dir = /fast"),
        "{said}"
    );
    assert_eq!(
        std::fs::read_to_string(to.join("shop/item.frm")).unwrap(),
        "shop/item.frm"
    );
    let db = open(&to);
    assert_eq!(db.tables().unwrap(), ["shop/item", "shop/other"]);
    let verified = varve(&["verify", made_text]);
    assert!(
        stdout(&verified).starts_with("a whole backup of a server"),
        "{}",
        stdout(&verified)
    );
}

#[test]
fn a_server_whose_files_are_elsewhere_is_not_restored() {
    let dir = tempfile::tempdir().unwrap();
    backup_of_a_server(dir.path(), &["shop/far.isl"]);
    let [made, to] = ["made", "to"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
    let refused = varve_beside(Some("exit 0"), dir.path(), &["restore", &made, &to]);
    assert_eq!(status(&refused), 2);
    assert!(
        stderr(&refused).contains("--copy-back"),
        "{}",
        stderr(&refused)
    );
    assert!(!Path::new(&to).exists());
}
