//! The crash test with real processes: SIGKILL under a transfer load, restart, and look.
//!
//! Twelve clients move money between accounts of several tables. A transaction inserts a journal row,
//! updates two balances, inserts one ledger leg for each, and replaces its client's marker row (DELETE,
//! then INSERT of the same key). Some transactions roll back, some undo a wrong leg by a savepoint. A
//! thirteenth client reads the total in one snapshot all the time. What each client was told is recorded
//! here, outside the server, before the next transaction begins.
//!
//! After each restart:
//! - **KILL-1** every acknowledged transaction is there, and no other but those whose COMMIT was sent and not
//!   answered;
//! - **KILL-2** every transaction is there completely: two legs that cancel out, and each balance is its
//!   start plus its legs; the marker is the client's last transaction;
//! - **KILL-3** the sum is unchanged, by every index; so it was in each snapshot under load;
//! - **KILL-4** CHECK TABLE finds nothing.
//!
//! Every third restart is killed as well, somewhere in its recovery. A failed run prints its seed and
//! keeps the data directory; the seed repeats the load and the moments, the interleaving is the machine's.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;

use crate::client::{Client, SqlError, SqlResult};
use crate::plugin;
use crate::prefix::Prefix;
use crate::server::{DataDir, Engine, Server};
use crate::workspace::Workspace;

const CLIENTS: u64 = 12;
const TABLES: u64 = 3;
const ACCOUNTS: u64 = 200;
const START_BALANCE: i64 = 1000;
const TOTAL: i64 = (TABLES * ACCOUNTS) as i64 * START_BALANCE;
/// A transaction's id is its client and a number within it.
const SEQUENCES: u64 = 1 << 32;

#[derive(clap::Args)]
pub struct KillArgs {
    /// How often the server is killed
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Seconds of load before the kill, on average
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Repeats a run
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, value_enum, default_value_t = Engine::Varve)]
    engine: Engine,
    /// Options for mariadbd
    #[arg(last = true, value_name = "MARIADBD OPTIONS")]
    options: Vec<String>,
}

impl Default for KillArgs {
    fn default() -> Self {
        Self {
            rounds: 10,
            seconds: 3.0,
            seed: None,
            engine: Engine::Varve,
            options: Vec::new(),
        }
    }
}

/// What one client knows about its transactions, over all rounds.
#[derive(Default)]
struct Fate {
    next: u64,
    acknowledged: HashSet<u64>,
    rolled_back: HashSet<u64>,
    /// Its COMMIT was sent and not answered; what the restart made of it is then final.
    unknown: HashSet<u64>,
}

/// Shared by the clients of one round.
struct Round {
    /// Set just before the kill: from then on a lost connection is expected.
    over: AtomicBool,
    snapshots: AtomicU64,
}

pub fn run(workspace: &Workspace, args: &KillArgs) -> Result<()> {
    let prefix = Prefix::ensure(workspace)?;
    let options = server_options(workspace, &prefix, args)?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    println!(
        "kill test: {} rounds on {}, seed {seed}",
        args.rounds,
        args.engine.name()
    );
    let dir = workspace
        .target
        .join(format!("kill-{}", args.engine.option_prefix()));
    if let Some(pid) = DataDir(dir.clone()).running() {
        bail!(
            "another kill test runs on {} (pid {})",
            dir.display(),
            pid.as_raw_nonzero()
        );
    }
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    DataDir(dir.clone()).initialise(&prefix)?;
    let mut test = Test {
        args,
        prefix,
        options,
        rng: Rng::with_seed(seed),
        fates: Vec::new(),
    };
    test.fates.resize_with(CLIENTS as usize, Fate::default);
    test.run(|| DataDir(dir.clone())).with_context(|| {
        format!(
            "kill test failed; repeat with --seed {seed}, the data is in {}",
            dir.display()
        )
    })?;
    fs::remove_dir_all(&dir)?;
    Ok(())
}

fn server_options(workspace: &Workspace, prefix: &Prefix, args: &KillArgs) -> Result<Vec<String>> {
    let engine = args.engine.option_prefix();
    let mut options = vec![
        "--max-connections=100".to_string(),
        "--performance-schema=OFF".into(),
    ];
    if args.engine == Engine::Varve {
        plugin::build(workspace, prefix)?;
        options.push("--plugin-load-add=ha_varve".into());
    }
    // Small, so that pages are written and the log is reused while the load runs.
    options.push(format!("--{engine}-buffer-pool-size=8M"));
    options.push(format!("--{engine}-log-file-size=8M"));
    options.push(format!("--{engine}-flush-log-at-trx-commit=1"));
    options.extend(args.options.iter().cloned());
    Ok(options)
}

struct Test<'a> {
    args: &'a KillArgs,
    prefix: Prefix,
    options: Vec<String>,
    rng: Rng,
    fates: Vec<Fate>,
}

impl Test<'_> {
    fn run(&mut self, datadir: impl Fn() -> DataDir) -> Result<()> {
        let mut server = Server::start(&self.prefix, datadir(), None, &self.options)?;
        create_tables(&mut server.connect()?, self.args.engine)?;
        for round in 1..=self.args.rounds {
            let snapshots = self.load_and_kill(&mut server)?;
            drop(server);
            if round % 3 == 0 {
                self.kill_in_recovery(datadir())?;
            }
            let begin = Instant::now();
            server = Server::start(&self.prefix, datadir(), None, &self.options)?;
            let restart = begin.elapsed();
            self.verify(&mut server.connect()?)?;
            let acknowledged: usize = self.fates.iter().map(|fate| fate.acknowledged.len()).sum();
            println!(
                "round {round}: {acknowledged} acknowledged so far, {snapshots} snapshots, restart {:.2} s",
                restart.as_secs_f64()
            );
        }
        server.stop()?;
        let mut server = Server::start(&self.prefix, datadir(), None, &self.options)?;
        self.verify(&mut server.connect()?)
            .context("after an orderly shutdown")?;
        server.stop()
    }

    fn load_and_kill(&mut self, server: &mut Server) -> Result<u64> {
        let round = Round {
            over: AtomicBool::new(false),
            snapshots: AtomicU64::new(0),
        };
        let load = Duration::from_secs_f64(self.args.seconds * (0.2 + 1.6 * self.rng.f64()));
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| self.rng.u64(..)).collect();
        let socket = server.datadir.socket();
        thread::scope(|scope| {
            let mut clients = Vec::new();
            for (id, (fate, seed)) in self.fates.iter_mut().zip(seeds).enumerate() {
                let (round, socket) = (&round, &socket);
                clients.push(scope.spawn(move || {
                    let mut client = Client::connect(socket)?;
                    transfer_until_killed(&mut client, id as u64, fate, Rng::with_seed(seed), round)
                }));
            }
            clients.push(
                scope.spawn(|| read_totals_until_killed(&mut Client::connect(&socket)?, &round)),
            );
            let end = Instant::now() + load;
            // A client ends before the kill only if something is wrong.
            while Instant::now() < end && !clients.iter().any(|client| client.is_finished()) {
                thread::sleep(Duration::from_millis(1));
            }
            let alive = server.check_alive();
            round.over.store(true, Ordering::SeqCst);
            server.kill()?;
            let results: Vec<Result<()>> = clients
                .into_iter()
                .map(|client| client.join().expect("a client does not panic"))
                .collect();
            alive?;
            results.into_iter().collect::<Result<()>>()
        })?;
        Ok(round.snapshots.load(Ordering::Relaxed))
    }

    fn kill_in_recovery(&mut self, datadir: DataDir) -> Result<()> {
        let mut server = Server::start_unready(&self.prefix, datadir, &self.options)?;
        thread::sleep(Duration::from_millis(self.rng.u64(50..600)));
        server.check_alive()?;
        server.kill()
    }

    fn verify(&mut self, client: &mut Client) -> Result<()> {
        self.verify_journal(client)?;
        verify_completeness(client)?;
        verify_sums(client)?;
        verify_structure(client)
    }

    /// KILL-1. What was unknown is known from here on.
    fn verify_journal(&mut self, client: &mut Client) -> Result<()> {
        let mut present: Vec<HashSet<u64>> = vec![HashSet::new(); self.fates.len()];
        for row in client.query("SELECT id FROM bank.journal FORCE INDEX (PRIMARY)")? {
            let id: u64 = number(&row[0])?;
            present
                .get_mut((id / SEQUENCES) as usize)
                .with_context(|| format!("journal row {id} belongs to no client"))?
                .insert(id % SEQUENCES);
        }
        for (id, (fate, present)) in self.fates.iter_mut().zip(&present).enumerate() {
            let mut lost: Vec<_> = fate.acknowledged.difference(present).collect();
            lost.sort_unstable();
            ensure!(
                lost.is_empty(),
                "client {id}: {} acknowledged transactions are lost: {lost:?}",
                lost.len()
            );
            let undead: Vec<_> = fate.rolled_back.intersection(present).collect();
            ensure!(
                undead.is_empty(),
                "client {id}: rolled-back transactions are there: {undead:?}"
            );
            for sequence in fate.unknown.drain() {
                if present.contains(&sequence) {
                    fate.acknowledged.insert(sequence);
                } else {
                    fate.rolled_back.insert(sequence);
                }
            }
            let invented: Vec<_> = present.difference(&fate.acknowledged).collect();
            ensure!(
                invented.is_empty(),
                "client {id}: transactions that it never tried to commit: {invented:?}"
            );
        }
        Ok(())
    }
}

/// KILL-2.
fn verify_completeness(client: &mut Client) -> Result<()> {
    nothing(client, "transactions without exactly two legs that cancel out", "
        SELECT j.id, COUNT(l.side), SUM(l.delta) FROM bank.journal j LEFT JOIN bank.leg l ON l.id = j.id
        GROUP BY j.id HAVING COUNT(l.side) <> 2 OR SUM(l.delta) <> 0")?;
    nothing(client, "legs without their transaction", "
        SELECT l.id, l.side FROM bank.leg l LEFT JOIN bank.journal j ON j.id = l.id WHERE j.id IS NULL")?;
    nothing(client, "markers that are not their client's last transaction", "
        SELECT m.client, m.sequence, MAX(j.sequence) FROM bank.marker m LEFT JOIN bank.journal j ON j.client = m.client
        GROUP BY m.client, m.sequence HAVING m.sequence <> COALESCE(MAX(j.sequence), 0)")?;
    let markers: u64 = client.value("SELECT COUNT(*) FROM bank.marker")?.parse()?;
    ensure!(markers == CLIENTS, "{markers} markers, {CLIENTS} clients");

    let mut expected: HashMap<(u64, u64), i64> = HashMap::new();
    for row in
        client.query("SELECT account_table, account, SUM(delta) FROM bank.leg GROUP BY 1, 2")?
    {
        expected.insert((number(&row[0])?, number(&row[1])?), number(&row[2])?);
    }
    for table in 0..TABLES {
        let rows = client.query(&format!(
            "SELECT id, balance FROM bank.account_{table} FORCE INDEX (PRIMARY)"
        ))?;
        ensure!(
            rows.len() as u64 == ACCOUNTS,
            "account_{table} has {} rows, not {ACCOUNTS}",
            rows.len()
        );
        for row in rows {
            let (id, balance): (u64, i64) = (number(&row[0])?, number(&row[1])?);
            let expected = START_BALANCE + expected.get(&(table, id)).copied().unwrap_or(0);
            ensure!(
                balance == expected,
                "account {id} of table {table} holds {balance}, its legs say {expected}"
            );
        }
    }
    Ok(())
}

/// KILL-3, by every index.
fn verify_sums(client: &mut Client) -> Result<()> {
    for index in ["PRIMARY", "branch", "balance", "code"] {
        let total: i64 = client.value(&total_query(index))?.parse()?;
        ensure!(
            total == TOTAL,
            "the balances' sum by index {index} is {total}, not {TOTAL}"
        );
    }
    for (table, indexes) in [
        ("journal", ["client", "amount"]),
        ("leg", ["account_table", "delta"]),
    ] {
        let rows = client.value(&format!(
            "SELECT COUNT(*) FROM bank.{table} FORCE INDEX (PRIMARY)"
        ))?;
        for index in indexes {
            let sql = format!(
                "SELECT COUNT({index}) FROM bank.{table} FORCE INDEX ({index}) WHERE {index} > -1000000"
            );
            let entries = client.value(&sql)?;
            ensure!(
                entries == rows,
                "{table} has {rows} rows, but {entries} by its index {index}"
            );
        }
    }
    Ok(())
}

/// KILL-4.
fn verify_structure(client: &mut Client) -> Result<()> {
    let accounts: Vec<String> = (0..TABLES)
        .map(|table| format!("bank.account_{table}"))
        .collect();
    let sql = format!(
        "CHECK TABLE bank.journal, bank.leg, bank.marker, {} EXTENDED",
        accounts.join(", ")
    );
    let rows = client.query(&sql)?;
    ensure!(
        rows.len() as u64 >= TABLES + 3,
        "CHECK TABLE answered {rows:?}"
    );
    for row in rows {
        let text: Vec<&str> = row
            .iter()
            .map(|value| value.as_deref().unwrap_or("NULL"))
            .collect();
        ensure!(
            text.ends_with(&["status", "OK"]),
            "CHECK TABLE: {}",
            text.join(" ")
        );
    }
    Ok(())
}

fn nothing(client: &mut Client, what: &str, sql: &str) -> Result<()> {
    let rows = client.query(sql)?;
    ensure!(
        rows.is_empty(),
        "{what}: {} rows, the first: {:?}",
        rows.len(),
        rows[0]
    );
    Ok(())
}

fn number<T: std::str::FromStr>(value: &Option<String>) -> Result<T> {
    let text = value.as_deref().context("a NULL where none can be")?;
    text.parse()
        .ok()
        .with_context(|| format!("{text} where a number belongs"))
}

fn create_tables(client: &mut Client, engine: Engine) -> SqlResult<()> {
    let engine = engine.name();
    client.query("CREATE DATABASE bank")?;
    for table in 0..TABLES {
        client.query(&format!(
            "CREATE TABLE bank.account_{table} (id INT PRIMARY KEY, branch INT NOT NULL, balance BIGINT NOT NULL,
             code VARCHAR(40) NOT NULL, note VARCHAR(200), KEY (branch), KEY (balance), UNIQUE KEY (code)) ENGINE={engine}"
        ))?;
        let rows: Vec<String> = (0..ACCOUNTS)
            .map(|id| {
                format!(
                    "({id}, {}, {START_BALANCE}, 'account {id}', REPEAT('n', {id}))",
                    id % 7
                )
            })
            .collect();
        client.query(&format!(
            "INSERT INTO bank.account_{table} VALUES {}",
            rows.join(", ")
        ))?;
    }
    for definition in [
        "journal (id BIGINT PRIMARY KEY, client INT NOT NULL, sequence BIGINT NOT NULL, amount INT NOT NULL,
         UNIQUE KEY (client, sequence), KEY (amount))",
        "leg (id BIGINT, side INT, account_table INT NOT NULL, account INT NOT NULL, delta BIGINT NOT NULL,
         PRIMARY KEY (id, side), KEY (account_table, account), KEY (delta))",
        "marker (client INT PRIMARY KEY, sequence BIGINT NOT NULL, KEY (sequence))",
    ] {
        client.query(&format!("CREATE TABLE bank.{definition} ENGINE={engine}"))?;
    }
    for id in 0..CLIENTS {
        client.query(&format!("INSERT INTO bank.marker VALUES ({id}, 0)"))?;
    }
    Ok(())
}

fn transfer_until_killed(
    client: &mut Client,
    id: u64,
    fate: &mut Fate,
    mut rng: Rng,
    round: &Round,
) -> Result<()> {
    let levels = ["READ COMMITTED", "REPEATABLE READ"];
    client.query(&format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL {}",
        levels[id as usize % 2]
    ))?;
    loop {
        fate.next += 1;
        let sequence = fate.next;
        let commits = rng.u32(..10) != 0;
        let error = match transfer(client, id, sequence, &mut rng) {
            Ok(()) if commits => match client.query("COMMIT") {
                Ok(_) => {
                    fate.acknowledged.insert(sequence);
                    continue;
                }
                Err(error) => {
                    fate.unknown.insert(sequence);
                    return end_of_connection(error, round);
                }
            },
            Ok(()) => None,
            Err(error) => Some(error),
        };
        // Nobody asked for a commit, so whatever happens now, nothing of it may be seen again.
        fate.rolled_back.insert(sequence);
        if let Some(error) = error.filter(|error| !error.is_conflict()) {
            return end_of_connection(error, round);
        }
        // After a conflict, too: a lock wait timeout undid one statement only.
        if let Err(error) = client.query("ROLLBACK") {
            return end_of_connection(error, round);
        }
    }
}

/// The only good reason to stop is the kill, and `over` is set before it.
fn end_of_connection(error: SqlError, round: &Round) -> Result<()> {
    if matches!(error, SqlError::Lost(_)) && round.over.load(Ordering::SeqCst) {
        return Ok(());
    }
    bail!("a client got {error}");
}

fn transfer(client: &mut Client, id: u64, sequence: u64, rng: &mut Rng) -> SqlResult<()> {
    let journal = id * SEQUENCES + sequence;
    let amount = rng.i64(1..50);
    let (from, to) = (
        (rng.u64(..TABLES), rng.u64(..ACCOUNTS)),
        (rng.u64(..TABLES), rng.u64(..ACCOUNTS)),
    );
    client.query("BEGIN")?;
    client.query(&format!(
        "INSERT INTO bank.journal VALUES ({journal}, {id}, {sequence}, {amount})"
    ))?;
    leg(client, journal, 0, from, -amount)?;
    if rng.u32(..8) == 0 {
        client.query("SAVEPOINT wrong")?;
        leg(
            client,
            journal,
            1,
            (to.0, (to.1 + 1) % ACCOUNTS),
            amount * 1000,
        )?;
        client.query("ROLLBACK TO SAVEPOINT wrong")?;
    }
    leg(client, journal, 1, to, amount)?;
    client.query(&format!("DELETE FROM bank.marker WHERE client = {id}"))?;
    client.query(&format!(
        "INSERT INTO bank.marker VALUES ({id}, {sequence})"
    ))?;
    Ok(())
}

fn leg(
    client: &mut Client,
    journal: u64,
    side: u32,
    account: (u64, u64),
    delta: i64,
) -> SqlResult<()> {
    let (table, id) = account;
    // The note changes its length now and then, so that rows move within and between pages.
    client.query(&format!(
        "UPDATE bank.account_{table} SET balance = balance + ({delta}), note = REPEAT('n', ({journal} + {side}) % 200)
         WHERE id = {id}"
    ))?;
    client.query(&format!(
        "INSERT INTO bank.leg VALUES ({journal}, {side}, {table}, {id}, {delta})"
    ))?;
    Ok(())
}

fn read_totals_until_killed(client: &mut Client, round: &Round) -> Result<()> {
    let indexes = ["PRIMARY", "branch", "code"];
    for index in indexes.iter().cycle() {
        let total = match client.value(&total_query(index)) {
            Ok(total) => total,
            Err(error) => return end_of_connection(error, round),
        };
        ensure!(
            total == TOTAL.to_string(),
            "a snapshot under load by index {index} adds up to {total}, not {TOTAL}"
        );
        round.snapshots.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// One statement, hence one snapshot in every isolation level.
fn total_query(index: &str) -> String {
    let tables: Vec<String> = (0..TABLES)
        .map(|table| {
            format!(
                "SELECT balance FROM bank.account_{table} FORCE INDEX ({index}) WHERE {}",
                condition(index)
            )
        })
        .collect();
    format!(
        "SELECT SUM(balance) FROM ({}) AS balances",
        tables.join(" UNION ALL ")
    )
}

/// A range over everything makes the optimiser use the index that it was told to use.
fn condition(index: &str) -> &'static str {
    match index {
        "branch" => "branch >= 0",
        "balance" => "balance > -1000000000",
        "code" => "code >= ''",
        _ => "id >= 0",
    }
}
