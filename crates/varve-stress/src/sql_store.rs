//! The rows load through SQL.

use std::collections::BTreeMap;
use std::path::Path;

use fastrand::Rng;

use crate::journal::Ddl;
use crate::round::Round;
use crate::store::{Failure, Level, Outcome, SHARED, Statement, Store, Verb};
use varve_testbed::client::{Client, Row, SqlError, SqlResult};
use varve_testbed::server::Engine;

const DATABASE: &str = "stress";
const COLUMNS: &str = "client INT NOT NULL, k INT NOT NULL, v BIGINT NOT NULL, s INT NOT NULL, u VARCHAR(60), note MEDIUMTEXT";

/// The keys of each shared table: clustered by client, by key, by a hidden id, in partitions.
const KEYS: [&str; 4] = [
    "PRIMARY KEY (client, k), UNIQUE KEY u (u), KEY s (s), KEY note (note(20))",
    "PRIMARY KEY (k, client), UNIQUE KEY u (u), KEY s (s, v)",
    "KEY (client, k), UNIQUE KEY u (u), KEY s (s DESC)",
    "PRIMARY KEY (client, k), UNIQUE KEY u (u, k), KEY s (s, note(50))",
];

/// The last one.
const IN_PARTITIONS: &str = SHARED[SHARED.len() - 1];

pub struct SqlStore {
    client: Client,
    id: u32,
    engine: Engine,
}

/// What a row holds besides client, key and version.
struct Contents {
    s: String,
    u: String,
    note: String,
}

fn contents(table: &str, version: &str) -> Contents {
    let v = version;
    Contents {
        s: format!("(({v} * 7 + k) % 100)"),
        u: match table {
            // Its only unique key, so that a row can be replaced by it.
            "mix_2" => "CONCAT(client, '-', k)".into(),
            _ => format!("IF({v} % 5 = 0, NULL, CONCAT(client, '-', k, '-', {v} % 3))"),
        },
        note: format!(
            "CASE WHEN {v} % 13 = 0 THEN REPEAT(CONCAT({v}, '-', k, ';'), 4000) WHEN {v} % 4 = 0 THEN NULL
             ELSE REPEAT(SUBSTRING('abcdefghijklmnopqrstuvwxyz', 1 + ({v} + k) % 26, 1), ({v} * 31 + k) % 400) END"
        ),
    }
}

pub fn create_tables(client: &mut Client, engine: Engine) -> SqlResult<()> {
    client.query(&format!("CREATE DATABASE {DATABASE}"))?;
    for (table, keys) in SHARED.iter().zip(KEYS) {
        let partitions = match *table {
            IN_PARTITIONS => "PARTITION BY HASH (k) PARTITIONS 3",
            _ => "",
        };
        client.query(&format!(
            "CREATE TABLE {DATABASE}.{table} ({COLUMNS}, {keys}) ENGINE={} {partitions}",
            engine.name()
        ))?;
    }
    Ok(())
}

fn failure(error: SqlError) -> Failure {
    match error {
        SqlError::Lost(error) => Failure::Lost(error.to_string()),
        // Also a table that was altered since the snapshot, and no memory for locks.
        SqlError::Server {
            code: 1205 | 1206 | 1213 | 1020 | 1412,
            message,
        } => Failure::Conflict(message),
        SqlError::Server { code: 1062, .. } => Failure::Duplicate,
        SqlError::Server {
            code: 1021 | 1114,
            message,
        } => Failure::Full(message),
        // The server's own files: what the operating system or the engine said is in the text.
        SqlError::Server { code, message }
            if ["No space left", "Errcode: 28", "errno: 28", "errno: 135"]
                .iter()
                .any(|words| message.contains(words)) =>
        {
            Failure::Full(format!("error {code}: {message}"))
        }
        error => Failure::Wrong(error.to_string()),
    }
}

impl SqlStore {
    pub fn connect(socket: &Path, id: u32, engine: Engine) -> Outcome<Self> {
        let client = Client::connect(socket).map_err(failure)?;
        let mut store = Self { client, id, engine };
        store.run(&format!("USE {DATABASE}"))?;
        store.run("SET SESSION lock_wait_timeout = 2")?;
        store.run(&format!(
            "CREATE TEMPORARY TABLE scratch (n INT PRIMARY KEY, t TEXT, KEY (t(10))) ENGINE={}",
            store.engine.name()
        ))?;
        Ok(store)
    }

    fn run(&mut self, sql: &str) -> Outcome<Vec<Row>> {
        let done = self.client.query(sql).map_err(failure);
        done.map_err(|failure| match failure {
            Failure::Wrong(why) => Failure::Wrong(format!("{why}, by {sql}")),
            failure => failure,
        })
    }

    fn number(&mut self, sql: &str) -> Outcome<u64> {
        let rows = self.run(sql)?;
        let value = rows.first().and_then(|row| row.first().cloned().flatten());
        let value = value.unwrap_or_default();
        let wrong = |_| Failure::Wrong(format!("{value:?} from {sql}"));
        value.parse().map_err(wrong)
    }
}

impl Store for SqlStore {
    fn begin(&mut self, level: Level) -> Outcome<()> {
        let level = match level {
            Level::ReadUncommitted => "READ UNCOMMITTED",
            Level::ReadCommitted => "READ COMMITTED",
            Level::RepeatableRead => "REPEATABLE READ",
            Level::Serializable => "SERIALIZABLE",
        };
        self.run(&format!("SET TRANSACTION ISOLATION LEVEL {level}"))?;
        self.run("BEGIN").map(drop)
    }

    fn commit(&mut self) -> Outcome<()> {
        self.run("COMMIT").map(drop)
    }

    fn rollback(&mut self) -> Outcome<()> {
        self.run("ROLLBACK").map(drop)
    }

    fn savepoint(&mut self, number: usize) -> Outcome<()> {
        self.run(&format!("SAVEPOINT s{number}")).map(drop)
    }

    fn rollback_to(&mut self, number: usize) -> Outcome<()> {
        self.run(&format!("ROLLBACK TO SAVEPOINT s{number}"))
            .map(drop)
    }

    fn change(&mut self, statement: &Statement) -> Outcome<()> {
        let Statement { table, version, .. } = statement;
        let (first, last) = (statement.keys.start(), statement.keys.end());
        let id = self.id;
        let Contents { s, u, note } = contents(table, &version.to_string());
        let own = format!("client = {id} AND k BETWEEN {first} AND {last}");
        let insert = |verb: &str| {
            format!(
                "{verb} INTO {table} (client, k, v, s, u, note) SELECT client, k, {version}, {s}, {u}, {note}
                 FROM (SELECT {id} AS client, seq AS k FROM seq_{first}_to_{last}) AS keys_of_it"
            )
        };
        // A table that nobody else sees, and that must not get in the way of anything.
        if version % 8 == 0 {
            let n = version % 50;
            self.run(&format!(
                "REPLACE INTO scratch VALUES ({n}, REPEAT('t', {version} % 900))"
            ))?;
        }
        let sql = match statement.verb {
            Verb::Insert => insert("INSERT"),
            Verb::Replace => insert("REPLACE"),
            Verb::Upsert => format!(
                "{} ON DUPLICATE KEY UPDATE v = VALUES(v), s = VALUES(s), u = VALUES(u), note = VALUES(note)",
                insert("INSERT")
            ),
            Verb::Update => format!(
                "UPDATE {table} SET v = {version}, s = {s}, u = {u}, note = {note} WHERE {own}"
            ),
            Verb::Delete => format!("DELETE FROM {table} WHERE {own}"),
        };
        self.run(&sql).map(drop)
    }

    fn read(&mut self, table: &str) -> Outcome<BTreeMap<u32, u64>> {
        let Contents { s, u, note } = contents(table, "v");
        let rows = self.run(&format!(
            "SELECT k, v, s <=> {s} AND u <=> {u} AND note <=> {note} FROM {table} WHERE client = {}",
            self.id
        ))?;
        let mut versions = BTreeMap::new();
        for row in rows {
            let wrong = || Failure::Wrong(format!("{table} of client {}: row {row:?}", self.id));
            let number = |at: usize| row.get(at).and_then(|v| v.as_deref()?.parse::<u64>().ok());
            let (Some(key), Some(version), Some(1)) = (number(0), number(1), number(2)) else {
                return Err(wrong());
            };
            if versions.insert(key as u32, version).is_some() {
                return Err(wrong());
            }
        }
        Ok(versions)
    }

    fn begin_view(&mut self) -> Outcome<()> {
        self.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")?;
        self.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            .map(drop)
    }

    fn sums(&mut self, table: &str) -> Outcome<Vec<String>> {
        let (columns, indexes) = scans(table);
        let sums = |scan: &&str| {
            let sql = format!(
                "SELECT COUNT(*), SUM(CRC32(CONCAT_WS('|', {columns}))) FROM {table} {scan}"
            );
            let row = self.run(&sql)?.into_iter().flatten().flatten();
            Ok(row.collect::<Vec<_>>().join(":"))
        };
        indexes.iter().map(sums).collect()
    }

    fn ddl(&mut self, ddl: &Ddl) -> Outcome<()> {
        let sql = match ddl {
            Ddl::Create(name) => format!(
                "CREATE TABLE {name} ({COLUMNS}, {}) ENGINE={}",
                KEYS[0],
                self.engine.name()
            ),
            Ddl::Rename(from, to) => format!("RENAME TABLE {from} TO {to}"),
            Ddl::Truncate(name) => format!("TRUNCATE TABLE {name}"),
            Ddl::Drop(name) => format!("DROP TABLE {name}"),
            Ddl::Alter(name, how) => alteration(name, *how),
        };
        self.run(&sql).map(drop)
    }

    fn truncate_undo(&mut self, number: u32) -> Outcome<()> {
        let prefix = self.engine.option_prefix();
        self.run(&format!("SET GLOBAL {prefix}_truncate_undo = {number}"))
            .map(drop)
    }

    fn tables(&mut self) -> Outcome<Vec<String>> {
        let rows = self.run(&format!("SHOW TABLES FROM {DATABASE}"))?;
        Ok(rows.into_iter().flatten().flatten().collect())
    }

    fn check(&mut self, table: &str) -> Outcome<()> {
        let rows = self.run(&format!("CHECK TABLE {table} EXTENDED"))?;
        let verdict = rows.last().and_then(|row| row.last().cloned().flatten());
        if verdict.as_deref() != Some("OK") {
            return Err(Failure::Wrong(format!("CHECK TABLE {table}: {rows:?}")));
        }
        let all = self.number(&format!("SELECT COUNT(*) FROM {table} IGNORE INDEX (s)"))?;
        let by_index = self.number(&format!(
            "SELECT COUNT(*) FROM {table} FORCE INDEX (s) WHERE s >= 0"
        ))?;
        if all != by_index {
            let why = format!("{table} has {all} rows, {by_index} by its index s");
            return Err(Failure::Wrong(why));
        }
        Ok(())
    }
}

/// All columns of a table, and how each of its indexes is made to find all rows: by a range over everything.
fn scans(table: &str) -> (&'static str, &'static [&'static str]) {
    match table {
        "bank.journal" => (
            "id, client, sequence, amount",
            &[
                "FORCE INDEX (PRIMARY) WHERE id >= 0",
                "FORCE INDEX (client) WHERE client >= 0",
                "FORCE INDEX (amount) WHERE amount > -1000000",
            ],
        ),
        "bank.leg" => (
            "id, side, account_table, account, delta",
            &[
                "FORCE INDEX (PRIMARY) WHERE id >= 0",
                "FORCE INDEX (account_table) WHERE account_table >= 0",
                "FORCE INDEX (delta) WHERE delta > -1000000",
            ],
        ),
        _ if table.starts_with("bank.account") => (
            "id, branch, balance, code, note",
            &[
                "FORCE INDEX (PRIMARY) WHERE id >= 0",
                "FORCE INDEX (branch) WHERE branch >= 0",
                "FORCE INDEX (balance) WHERE balance > -1000000000",
                "FORCE INDEX (code) WHERE code >= ''",
            ],
        ),
        _ => (
            "client, k, v, s, IFNULL(u, '-'), IFNULL(note, '-')",
            &[
                "IGNORE INDEX (s, u)",
                "FORCE INDEX (s) WHERE s >= 0",
                "FORCE INDEX (u) WHERE u IS NULL OR u >= ''",
            ],
        ),
    }
}

/// A change of the table's form; those of its rows that the load reads stay.
fn alteration(table: &str, how: u32) -> String {
    let how = match how % 8 {
        // It is to have no primary key.
        5 | 6 if table == "mix_2" => 7,
        // What would be copied.
        4..=6 if table == IN_PARTITIONS => 7,
        how => how,
    };
    let what = match how {
        0 => "ADD INDEX IF NOT EXISTS extra (v, s)",
        1 => "DROP INDEX IF EXISTS extra",
        2 => "ADD COLUMN IF NOT EXISTS more VARCHAR(100) NOT NULL DEFAULT 'more'",
        3 => "DROP COLUMN IF EXISTS more",
        4 => {
            "ADD COLUMN IF NOT EXISTS doubled BIGINT AS (v * 2) VIRTUAL, ADD INDEX IF NOT EXISTS doubled (doubled)"
        }
        5 => "DROP PRIMARY KEY, ADD PRIMARY KEY (k, client)",
        6 => {
            "DROP PRIMARY KEY, ADD PRIMARY KEY (client, k), ADD COLUMN IF NOT EXISTS other INT, ADD INDEX IF NOT EXISTS other (other)"
        }
        _ => "FORCE",
    };
    // The server, whatever the engine, loses a table in partitions if it is killed while it puts a copy in
    // its place (the copy stays behind as `#sql-alter-…`).
    let algorithm = match table {
        IN_PARTITIONS => ", ALGORITHM=INPLACE",
        _ => "",
    };
    format!("ALTER TABLE {table} {what}{algorithm}")
}

/// A client that alters the shared tables while the others work, and settings that can be changed.
pub fn alter_until_killed(
    socket: &Path,
    engine: Engine,
    mut rng: Rng,
    round: &Round,
) -> Outcome<()> {
    let mut store = SqlStore::connect(socket, u32::MAX, engine)?;
    loop {
        // After a crash the server does not say which version of a table in partitions it asks for.
        let tables = match engine {
            Engine::Varve => &SHARED[..],
            Engine::Innodb => &SHARED[..SHARED.len() - 1],
        };
        let table = tables[rng.usize(..tables.len())];
        let sql = match rng.u32(..14) {
            0 => format!("ANALYZE TABLE {IN_PARTITIONS}"),
            1 => format!(
                "SET GLOBAL {}_flush_log_at_trx_commit = {}",
                engine.option_prefix(),
                rng.u32(1..3)
            ),
            2 => "FLUSH TABLES".into(),
            how => alteration(table, how),
        };
        round.was_done(store.run(&sql))?;
        std::thread::sleep(std::time::Duration::from_millis(rng.u64(..100)));
    }
}
