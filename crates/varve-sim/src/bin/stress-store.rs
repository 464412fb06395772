//! A database behind a socket: the process that `cargo xtask stress --embedded` kills.
//!
//! `stress-store DIR SOCKET [SETTING=VALUE …]` opens the database and then listens. Each connection is one
//! client with one transaction at a time. It sends lines and gets one line for each: `ok …`, `conflict …`,
//! `duplicate`, `full …` or `wrong …`. All that a row holds follows from its client, its key and its version,
//! and is compared when the row is read.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::ops::{Bound, RangeInclusive};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use varve::{
    ChangeBuffering, ColumnType, Database, Error, FlushLog, FlushMethod, Isolation, Options,
    Result, Savepoint, Table, TableDef, Transaction, Value, values,
};
use varve_sim::sample::Keys;

const SCHEMA: &str = "stress/";
/// How long an undo tablespace may take to become empty.
const TRUNCATE_AT_MOST: Duration = Duration::from_secs(1);
const SHARED: [&str; 4] = ["mix_0", "mix_1", "mix_2", "mix_3"];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, socket, settings @ ..] = arguments.as_slice() else {
        eprintln!("usage: stress-store DIR SOCKET [SETTING=VALUE …]");
        std::process::exit(2);
    };
    if let Err(e) = serve(Path::new(dir), Path::new(socket), settings) {
        eprintln!("stress-store: {e}");
        std::process::exit(1);
    }
}

fn serve(dir: &Path, socket: &Path, settings: &[String]) -> Result<()> {
    let db = Database::open(dir, options(settings)?)?;
    for table in SHARED {
        if db.table(&format!("{SCHEMA}{table}")).is_err() {
            db.create_table(&definition(table))?;
        }
    }
    let failed = |e| Error::io("listen on", socket, e);
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).map_err(failed)?;
    for stream in listener.incoming() {
        let (db, stream) = (db.clone(), stream.map_err(failed)?);
        std::thread::spawn(move || {
            // A client that is gone needs no answer.
            let _ = Session::new(db).serve(stream);
        });
    }
    Ok(())
}

fn options(settings: &[String]) -> Result<Options> {
    let mut options = Options {
        // However little redo there is.
        redo_index_from_bytes: 0,
        encryption_keys: Some(Arc::new(Keys(1))),
        ..Options::default()
    };
    for setting in settings {
        let parsed = setting
            .split_once('=')
            .and_then(|(name, value)| Some((name, value.parse::<u64>().ok()?)));
        let (name, value) = parsed
            .ok_or_else(|| Error::invalid(format!("setting {setting} is not NAME=NUMBER")))?;
        match name {
            "page_size" => options.page_size = value as u32,
            "undo_tablespaces" => options.undo_tablespaces = value as u32,
            "buffer_pool_size" => options.buffer_pool_bytes = value,
            "log_file_size" => options.redo_capacity_bytes = value,
            "log_buffer_size" => options.log_buffer_bytes = value,
            "flush_log_at_trx_commit" => {
                options.flush_log_at_trx_commit = FlushLog::from_number(value as u8)
                    .ok_or_else(|| Error::invalid(format!("{setting} is none of 0, 1, 2")))?;
            }
            "log_file_buffering" => options.log_file_buffering = value != 0,
            "flush_method" => {
                options.flush_method = match value {
                    0 => FlushMethod::Fsync,
                    _ => FlushMethod::Direct,
                };
            }
            "use_native_aio" => options.use_native_aio = value != 0,
            "read_ahead_threshold" => options.read_ahead_threshold = value as u32,
            "change_buffering" => {
                let buffering = ChangeBuffering::from_number(value as u8);
                options.change_buffer.buffering = buffering
                    .ok_or_else(|| Error::invalid(format!("{setting} is none of 0 to 5")))?;
            }
            "change_buffer_max_size" => options.change_buffer.max_size_pct = value as u32,
            "io_capacity" => options.flush.io_capacity = value as u32,
            "io_capacity_max" => options.flush.io_capacity_max = value as u32,
            "max_dirty_pages_pct" => options.flush.max_dirty_pages_pct = value as f64,
            "max_dirty_pages_pct_lwm" => options.flush.max_dirty_pages_pct_lwm = value as f64,
            "adaptive_flushing" => options.flush.adaptive_flushing = value != 0,
            "adaptive_flushing_lwm" => options.flush.adaptive_flushing_lwm = value as f64,
            "flushing_avg_loops" => options.flush.flushing_avg_loops = value as u32,
            "lru_scan_depth" => options.flush.lru_scan_depth = value as u32,
            "open_files" => options.open_files = value as u32,
            "lock_memory_size" => options.lock_memory_bytes = value,
            "lock_wait_timeout" => options.lock_wait_timeout = Duration::from_secs(value),
            "purge_threads" => options.purge.threads = value as u32,
            "purge_batch_size" => options.purge.batch_size = value as u32,
            "purge_rseg_truncate_frequency" => {
                options.purge.rseg_truncate_frequency = value as u32;
            }
            "undo_log_truncate" => options.purge.undo_log_truncate = value != 0,
            "max_undo_log_size" => options.purge.max_undo_log_size = value,
            "max_purge_lag" => options.purge.max_purge_lag = value,
            "max_purge_lag_delay" => {
                options.purge.max_purge_lag_delay = Duration::from_micros(value);
            }
            "history_store" => options.history.store = value != 0,
            "history_store_delay" => options.history.delay = Duration::from_millis(value),
            "history_store_max_size" => {
                options.history.max_size = (value != 0).then_some(value);
            }
            "encrypt_tables" => options.encrypt_tables = value != 0,
            "encrypt_log" => options.encrypt_log = value != 0,
            "encrypt_temporary_tables" => options.encrypt_temporary_tables = value != 0,
            "encryption_threads" => options.rotation.threads = value as u32,
            _ => return Err(Error::invalid(format!("there is no setting {name}"))),
        }
    }
    Ok(options)
}

fn definition(table: &str) -> TableDef {
    let def = TableDef::new(format!("{SCHEMA}{table}"))
        .column("client", ColumnType::u64())
        .column("k", ColumnType::u64())
        .column("v", ColumnType::u64())
        .column("s", ColumnType::u64())
        .nullable("u", ColumnType::text(60))
        .nullable("note", ColumnType::text(200_000));
    match table {
        "mix_1" => def
            .primary(&["k", "client"])
            .unique("u", &["u"])
            .index("s", &["s", "v"]),
        "mix_2" => def
            .primary(&["client", "k"])
            .index("s", &["s"])
            .index("v", &["v"]),
        "mix_3" => def.primary(&["client", "k"]).unique("u", &["u", "k"]),
        _ => def
            .primary(&["client", "k"])
            .unique("u", &["u"])
            .index("s", &["s"]),
    }
}

/// The whole row, in the order of the columns.
fn row(client: u64, k: u64, v: u64) -> [Value; 6] {
    let u = match v % 5 {
        0 => Value::Null,
        _ => Value::Text(format!("{client}-{k}-{}", v % 3)),
    };
    let note = match () {
        () if v.is_multiple_of(13) => Value::Text(format!("{v}-{k};").repeat(4000)),
        () if v.is_multiple_of(4) => Value::Null,
        () => {
            let letter = char::from(b'a' + ((v + k) % 26) as u8);
            Value::Text(letter.to_string().repeat(((v * 31 + k) % 400) as usize))
        }
    };
    let s = Value::UInt((v * 7 + k) % 100);
    [
        Value::UInt(client),
        Value::UInt(k),
        Value::UInt(v),
        s,
        u,
        note,
    ]
}

fn key(def: &TableDef, client: u64, k: u64) -> [Value; 2] {
    match def.columns[def.primary.parts[0].column].name.as_str() {
        "k" => [Value::UInt(k), Value::UInt(client)],
        _ => [Value::UInt(client), Value::UInt(k)],
    }
}

struct Session {
    db: Database,
    client: u64,
    trx: Option<Transaction>,
    savepoints: Vec<Savepoint>,
    scratch: Option<Table>,
}

impl Session {
    fn new(db: Database) -> Session {
        Session {
            db,
            client: 0,
            trx: None,
            savepoints: Vec::new(),
            scratch: None,
        }
    }

    fn serve(mut self, stream: UnixStream) -> std::io::Result<()> {
        let mut answers = stream.try_clone()?;
        for line in BufReader::new(stream).lines() {
            let line = line?;
            let words: Vec<&str> = line.split(' ').collect();
            let answer = match self.command(&words) {
                Ok(answer) => format!("ok {answer}\n"),
                Err(e) => format!("{}\n", refusal(&e).replace('\n', " ")),
            };
            answers.write_all(answer.as_bytes())?;
        }
        Ok(())
    }

    fn command(&mut self, words: &[&str]) -> Result<String> {
        let number = |at: usize| -> Result<u64> {
            let word: &str = words.get(at).copied().unwrap_or_default();
            word.parse()
                .map_err(|_| Error::invalid(format!("{word:?} in {words:?}")))
        };
        let name = |at: usize| format!("{SCHEMA}{}", words.get(at).copied().unwrap_or_default());
        match words[0] {
            "client" => self.introduce(number(1)?)?,
            "begin" => {
                let level = match number(1)? {
                    0 => Isolation::ReadUncommitted,
                    1 => Isolation::ReadCommitted,
                    2 => Isolation::RepeatableRead,
                    _ => Isolation::Serializable,
                };
                self.savepoints.clear();
                self.trx = Some(self.db.begin(level));
            }
            "begin_view" => {
                let mut trx = self.db.begin(Isolation::RepeatableRead);
                trx.take_snapshot();
                self.trx = Some(trx);
            }
            "commit" => self.trx.take().map_or(Ok(()), Transaction::commit)?,
            "rollback" => self.trx.take().map_or(Ok(()), Transaction::rollback)?,
            "savepoint" => {
                if let Some(trx) = &self.trx {
                    self.savepoints.truncate(number(1)? as usize);
                    self.savepoints.push(trx.savepoint());
                }
            }
            "rollback_to" => {
                if let Some(trx) = &mut self.trx {
                    self.savepoints.truncate(number(1)? as usize + 1);
                    let savepoint = self.savepoints.last().copied();
                    trx.rollback_to(savepoint.ok_or_else(|| Error::not_found("the savepoint"))?)?;
                }
            }
            "insert" | "replace" | "upsert" | "update" | "delete" => {
                let keys = number(2)?..=number(3)?;
                self.statement(words[0], &name(1), keys, number(4)?)?;
            }
            "read" => return self.read(&name(1)),
            "sums" => return self.sums(&name(1)),
            "create" => drop(self.db.create_table(&definition(words[1]))?),
            "rename" => self.db.rename_table(&name(1), &name(2))?,
            "truncate" => self.db.truncate_table(&name(1))?,
            "drop" => self.db.drop_table(&name(1))?,
            // The library changes no table's form: other work on its definition.
            "alter" => self.db.table(&name(1))?.analyze()?,
            "truncate_undo" => {
                if !self
                    .db
                    .truncate_undo(number(1)? as usize, TRUNCATE_AT_MOST)?
                {
                    return Err(Error::LockWaitTimeout);
                }
            }
            "tables" => {
                let tables = self.db.tables()?;
                let names = tables.iter().filter_map(|name| name.strip_prefix(SCHEMA));
                return Ok(names.collect::<Vec<_>>().join(" "));
            }
            "check" => {
                let report = self.db.check_table(&self.db.table(&name(1))?)?;
                if !report.errors.is_empty() {
                    return Err(Error::invalid(report.errors.join("; ")));
                }
            }
            other => return Err(Error::invalid(format!("there is no command {other}"))),
        }
        Ok(String::new())
    }

    fn introduce(&mut self, client: u64) -> Result<()> {
        self.client = client;
        let def = TableDef::new(format!("tmp/scratch{client}"))
            .column("n", ColumnType::u64())
            .column("t", ColumnType::text(1000))
            .primary(&["n"])
            .index("t", &["t"]);
        self.scratch = Some(match self.db.table(&def.name) {
            Ok(table) => table,
            Err(_) => self.db.create_temporary_table(&def)?,
        });
        Ok(())
    }

    /// All of it or nothing, in the transaction or in one of its own.
    fn statement(
        &mut self,
        verb: &str,
        table: &str,
        keys: RangeInclusive<u64>,
        version: u64,
    ) -> Result<()> {
        let table = self.db.table(table)?;
        let (client, scratch) = (self.client, self.scratch.clone());
        let run = |trx: &mut Transaction| -> Result<()> {
            if let Some(scratch) = scratch.filter(|_| version.is_multiple_of(8)) {
                let text = "t".repeat((version % 900) as usize);
                scratch.put(trx, values![version % 50, text])?;
            }
            change(trx, &table, verb, client, keys, version)
        };
        let Some(trx) = &mut self.trx else {
            let mut trx = self.db.begin(Isolation::RepeatableRead);
            return match run(&mut trx) {
                Ok(()) => trx.commit(),
                Err(e) => trx.rollback().and(Err(e)),
            };
        };
        let start = trx.savepoint();
        match run(trx) {
            // The whole transaction is rolled back next.
            Err(e @ (Error::Deadlock | Error::LockTableFull)) => Err(e),
            Err(e) => trx.rollback_to(start).and(Err(e)),
            done => done,
        }
    }

    /// By each index: how many rows the transaction sees, and a sum of all that is in them.
    fn sums(&mut self, table: &str) -> Result<String> {
        let table = self.db.table(table)?;
        let none = || Error::invalid("no transaction has begun");
        let trx = self.trx.as_mut().ok_or_else(none)?;
        let mut answer = Vec::new();
        for index in 0..=table.def().indexes.len() {
            let (mut rows, mut sum) = (0, 0u64);
            for found in
                table.range(trx, index, (Bound::<&[Value]>::Unbounded, Bound::Unbounded))?
            {
                let mut hasher = DefaultHasher::new();
                format!("{:?}", found?.values()?).hash(&mut hasher);
                sum = sum.wrapping_add(hasher.finish());
                rows += 1;
            }
            answer.push(format!("{rows}:{sum:x}"));
        }
        Ok(answer.join(" "))
    }

    /// The client's rows: key and version of each.
    fn read(&mut self, table: &str) -> Result<String> {
        let table = self.db.table(table)?;
        let mut own = None;
        let trx = match &mut self.trx {
            Some(trx) => trx,
            None => own.insert(self.db.begin(Isolation::RepeatableRead)),
        };
        let mut answer = Vec::new();
        for found in table.rows(trx)? {
            let found = found?.values()?;
            let number = |at: usize| match found[at] {
                Value::UInt(n) => n,
                _ => u64::MAX,
            };
            let (client, k, v) = (number(0), number(1), number(2));
            if client != self.client {
                continue;
            }
            if found != row(client, k, v) {
                let name = &table.def().name;
                return Err(Error::invalid(format!(
                    "row {k} of client {client} in {name} is not what version {v} wrote"
                )));
            }
            answer.push(format!("{k} {v}"));
        }
        Ok(answer.join(" "))
    }
}

fn change(
    trx: &mut Transaction,
    table: &Table,
    verb: &str,
    client: u64,
    keys: RangeInclusive<u64>,
    version: u64,
) -> Result<()> {
    let columns = ["v", "s", "u", "note"];
    if verb == "insert" {
        let rows: Vec<[Value; 6]> = keys.map(|k| row(client, k, version)).collect();
        let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
        return table.insert_many(trx, &rows);
    }
    for k in keys {
        let row = row(client, k, version);
        let key = key(table.def(), client, k);
        match verb {
            "upsert" => table.put(trx, &row)?,
            "replace" => {
                table.delete(trx, &key)?;
                table.insert(trx, &row)?;
            }
            "update" => {
                let values = columns.into_iter().zip(row[2..].iter().cloned());
                table.set(trx, &key, &values.collect::<Vec<_>>())?;
            }
            _ => drop(table.delete(trx, &key)?),
        }
    }
    Ok(())
}

fn refusal(error: &Error) -> String {
    match error {
        Error::Deadlock
        | Error::LockWaitTimeout
        | Error::LockTableFull
        | Error::DefinitionChanged { .. } => format!("conflict {error}"),
        Error::DuplicateKey { .. } => "duplicate".into(),
        Error::NoSpace { .. } => format!("full {error}"),
        _ => format!("wrong {error}"),
    }
}
