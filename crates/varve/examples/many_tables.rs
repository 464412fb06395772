//! A database of many tables, for `cargo xtask bench dictionary`, which runs this once for each step and adds
//! up what it prints.
//!
//! ```text
//! many_tables DIR create TABLES     makes the tables, each with a row; tells how many a second
//! many_tables DIR drop TABLES       drops as many of them
//! many_tables DIR open              opens the database and reads a row of one table; tells how long it took
//! many_tables DIR touch TABLES      changes a row in each of the tables; tells bytes of memory
//! many_tables DIR write TABLES      the same, and kills itself when that is durable
//! ```

use std::process::ExitCode;
use std::time::Instant;

use varve::{
    ColumnType, Database, Error, FlushLog, Isolation, KeyMatch, LockMode, Options, Result,
    TableDef, Value,
};

/// As InnoDB and the server have it.
const TABLE_CACHE: u32 = 400;

fn name(n: u64) -> String {
    format!("many/t{n:06}")
}

fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("c", ColumnType::Bytes(120))
        .primary(&["id"])
        .index("by_k", &["k"])
}

fn open(dir: &str, flush: FlushLog) -> Result<Database> {
    let options = Options {
        table_cache: TABLE_CACHE,
        // So that many tables take little space.
        page_size: 4096,
        flush_log_at_trx_commit: flush,
        logger: Some(std::sync::Arc::new(|_, _| {})),
        ..Options::default()
    };
    Database::open(dir, options)
}

fn create(db: &Database, tables: u64) -> Result<()> {
    let begun = Instant::now();
    for n in 0..tables {
        let table = db.create_table(&definition(&name(n)))?;
        let mut trx = db.begin(Isolation::RepeatableRead);
        let row = [Value::Int(1), Value::Int(2), Value::Bytes(vec![3; 60])];
        trx.insert(&table, &table.def().row(&row)?.datums())?;
        trx.commit()?;
    }
    println!(
        "{:.0} tables/s",
        tables as f64 / begun.elapsed().as_secs_f64()
    );
    Ok(())
}

fn drop_tables(db: &Database, tables: u64) -> Result<()> {
    let begun = Instant::now();
    (0..tables).try_for_each(|n| db.drop_table(&name(n)))?;
    println!(
        "{:.0} tables/s",
        tables as f64 / begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Changes the row of each table.
fn change(db: &Database, tables: u64) -> Result<()> {
    let key = 1i64.to_le_bytes();
    for n in 0..tables {
        let table = db.table(&name(n))?;
        let mut trx = db.begin(Isolation::RepeatableRead);
        let mut cursor = table.cursor(0)?;
        assert!(cursor.seek(
            &mut trx,
            &[Some(&key)],
            KeyMatch::Exact,
            LockMode::Exclusive
        )?);
        let row = [
            Value::Int(1),
            Value::Int(n as i64),
            Value::Bytes(vec![4; 60]),
        ];
        trx.update(&table, &cursor, &table.def().row(&row)?.datums())?;
        trx.commit()?;
    }
    Ok(())
}

fn read(db: &Database, n: u64) -> Result<()> {
    let table = db.table(&name(n))?;
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0)?;
    assert!(cursor.first(&mut trx, LockMode::None)?);
    trx.commit()
}

/// Bytes of memory that the process has, as the system counts them.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    kib.unwrap_or(0u64) * 1024
}

fn run(dir: &str, what: &str, tables: u64) -> Result<()> {
    let begun = Instant::now();
    let flush = if what == "create" || what == "drop" {
        FlushLog::Sync
    } else {
        FlushLog::Write
    };
    let db = open(dir, flush)?;
    let opened = begun.elapsed().as_secs_f64();
    match what {
        "create" => create(&db, tables)?,
        "drop" => drop_tables(&db, tables)?,
        "open" => {
            read(&db, 50)?;
            let answered = begun.elapsed().as_secs_f64();
            let mib = resident_bytes() as f64 / f64::from(1 << 20);
            println!(
                "opened {:.1} ms, answered {:.1} ms, {mib:.1} MiB",
                opened * 1e3,
                answered * 1e3
            );
        }
        "touch" | "write" => {
            change(&db, tables)?;
            println!("{:.1} MiB", resident_bytes() as f64 / f64::from(1 << 20));
        }
        other => {
            let known = "create, drop, open, touch or write";
            let what = format!("{other}: this is none of {known}");
            return Err(Error::Invalid { what });
        }
    }
    if what == "write" {
        db.flush_log()?;
        std::process::abort();
    }
    db.close()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let number = args.get(3).map_or(Ok(0), |number| number.parse());
    let (Some(dir), Some(what), Ok(number)) = (args.get(1), args.get(2), number) else {
        eprintln!("many_tables DIR create|drop|open|touch|write [TABLES]");
        return ExitCode::FAILURE;
    };
    match run(dir, what, number) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
