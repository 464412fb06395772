//! Does one kind of operation a given number of times: `operations read|update|scan|insert COUNT`. For profilers and for
//! counting instructions (`cargo xtask bench instructions`): what COUNT adds to a run is what the operations cost, the work
//! of background threads included.

use varve::{
    ColumnType, Cursor, Database, FlushLog, Isolation, KeyMatch, LockMode, Options, Table, TableDef,
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

fn main() -> varve::Result<()> {
    let mut args = std::env::args().skip(1);
    let kind = args.next().expect("read, update, scan or insert");
    let count: u64 = args.next().and_then(|n| n.parse().ok()).expect("a number");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = Options {
        flush_log_at_trx_commit: FlushLog::Lazy,
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
        "insert" => (ROWS..ROWS + count).try_for_each(|key| bench.insert(key..key + 1))?,
        other => panic!("unknown operation {other}"),
    }
    bench.db.close()
}
