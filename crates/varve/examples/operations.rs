//! Does one kind of operation a given number of times: `operations read|update|scan|insert|purge COUNT
//! [PURGE_THREADS PURGE_BATCH_SIZE]`. For profilers and for counting instructions (`cargo xtask bench
//! instructions`): what COUNT adds to a run is what the operations cost, the work of background threads
//! included.

use varve::{
    ColumnType, Cursor, Database, FlushLog, Isolation, KeyMatch, LockMode, Options, PurgeOptions,
    Table, TableDef,
};

const ROWS: u64 = 20_000;
const VALUE: [u8; 182] = [7; 182];

struct Bench {
    db: Database,
    table: Table,
    cursor: Cursor,
    /// Of a generator with a long period; the low bits are not used.
    random: u64,
}

impl Bench {
    fn random_key(&mut self) -> [u8; 8] {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((self.random >> 33) % ROWS).to_le_bytes()
    }

    fn insert(&self, keys: std::ops::Range<u64>) -> varve::Result<()> {
        let mut trx = self.db.begin(Isolation::RepeatableRead);
        for key in keys {
            trx.insert(&self.table, &[Some(&key.to_le_bytes()), Some(&VALUE)])?;
        }
        trx.commit()
    }

    fn read(&mut self) -> varve::Result<()> {
        let key = self.random_key();
        let mut trx = self.db.begin(Isolation::RepeatableRead);
        let found = self
            .cursor
            .seek(&mut trx, &[Some(&key)], KeyMatch::Exact, LockMode::None)?;
        assert!(found && self.cursor.row()?.get(1).is_some());
        Ok(())
    }

    fn update(&mut self) -> varve::Result<()> {
        let key = self.random_key();
        let mut trx = self.db.begin(Isolation::RepeatableRead);
        let cursor = &mut self.cursor;
        assert!(cursor.seek(
            &mut trx,
            &[Some(&key)],
            KeyMatch::Exact,
            LockMode::Exclusive
        )?);
        let mut value = VALUE;
        value[8..16].copy_from_slice(&self.random.to_le_bytes());
        trx.update(&self.table, cursor, &[Some(&key), Some(&value)])?;
        trx.commit()
    }

    /// Reads `count` rows, from the first on, in scans that begin again at the end.
    fn scan(&mut self, count: u64) -> varve::Result<()> {
        let mut trx = self.db.begin(Isolation::RepeatableRead);
        let mut on_row = false;
        for _ in 0..count {
            on_row = match on_row {
                true => self.cursor.next(&mut trx)?,
                false => self.cursor.first(&mut trx, LockMode::None)?,
            };
            assert!(!on_row || self.cursor.row()?.get(1).is_some());
        }
        Ok(())
    }
}

/// Processor time of all threads so far, in seconds; 0 where the system does not tell.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the program's name, which is in brackets: the fields from the third on. The 14th and 15th are
    // hundredths of seconds.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks = fields
        .skip(11)
        .take(2)
        .filter_map(|n| n.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

/// Updates an indexed column `count` times in as many transactions while a view is open, then has that
/// purged: prints how many transactions a second, and the processor time.
fn purge(db: &Database, count: u64) -> varve::Result<()> {
    let def = TableDef::new("bench/indexed")
        .column("id", ColumnType::u64())
        .column("k", ColumnType::u64())
        .primary(&["id"])
        .index("k", &["k"]);
    let table = db.create_table(&def)?;
    let mut cursor = table.cursor(0)?;
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        let id = id.to_le_bytes();
        trx.insert(&table, &[Some(&id), Some(&id)])?;
    }
    trx.commit()?;
    let mut old = db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    for n in 0..count {
        // In no order of the index.
        let k = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (id, k) = ((n * 7919 % ROWS).to_le_bytes(), k.to_le_bytes());
        let mut trx = db.begin(Isolation::RepeatableRead);
        let how = (KeyMatch::Exact, LockMode::Exclusive);
        assert!(cursor.seek(&mut trx, &[Some(&id)], how.0, how.1)?);
        trx.update(&table, &cursor, &[Some(&id), Some(&k)])?;
        trx.commit()?;
    }
    old.commit()?;
    let (begun, used) = (std::time::Instant::now(), processor_time());
    assert!(db.wait_for_purge(std::time::Duration::from_secs(600)));
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    let used = processor_time() - used;
    println!("{rate:.0} transactions purged in a second, {used:.2} s of processor time");
    Ok(())
}

fn main() -> varve::Result<()> {
    let mut args = std::env::args().skip(1);
    let kind = args.next().expect("read, update, scan, insert or purge");
    let count: u64 = args.next().and_then(|n| n.parse().ok()).expect("a number");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut purge_options = PurgeOptions::default();
    let mut number = || args.next().map(|n| n.parse().expect("a number"));
    purge_options.threads = number().unwrap_or(0);
    purge_options.batch_size = number().unwrap_or(purge_options.batch_size);
    let options = Options {
        purge: purge_options,
        flush_log_at_trx_commit: FlushLog::Lazy,
        // valgrind, which counts instructions, runs one thread at a time, and no other while one waits in
        // io_uring.
        use_native_aio: false,
        ..Options::default()
    };
    let db = Database::open(dir.path(), options)?;
    let def = TableDef::new("bench/rows")
        .column("id", ColumnType::u64())
        .column("value", ColumnType::Bytes(255))
        .primary(&["id"]);
    let table = db.create_table(&def)?;
    let cursor = table.cursor(0)?;
    let mut bench = Bench {
        db,
        table,
        cursor,
        random: 1,
    };
    bench.insert(0..ROWS)?;
    match &kind[..] {
        "read" => (0..count).try_for_each(|_| bench.read())?,
        "update" => (0..count).try_for_each(|_| bench.update())?,
        "scan" => bench.scan(count)?,
        "purge" => purge(&bench.db, count)?,
        "insert" => (ROWS..ROWS + count).try_for_each(|key| bench.insert(key..key + 1))?,
        other => panic!("unknown operation {other}"),
    }
    bench.db.close()
}
