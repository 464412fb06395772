//! The load: twelve clients that move money (three of them as XA coordinators: `xa`), and one that reads the
//! total in one snapshot all the time.
//!
//! A transaction inserts a journal row, updates two balances, inserts one ledger leg for each, and replaces
//! its client's marker row (DELETE, then INSERT of the same key). Some transactions roll back, some undo a
//! wrong leg by a savepoint. What a client was told is recorded in its `Fate`, outside the server, before
//! its next transaction begins.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use anyhow::{Result, bail, ensure};
use fastrand::Rng;

use crate::round::Round;
use crate::xa::{self, Asked};
use varve_testbed::client::{Client, SqlError, SqlResult};
use varve_testbed::server::Engine;

pub const CLIENTS: u64 = 12;
pub const TABLES: u64 = 3;
pub const ACCOUNTS: u64 = 200;
pub const START_BALANCE: i64 = 1000;
pub const TOTAL: i64 = (TABLES * ACCOUNTS) as i64 * START_BALANCE;
/// A transaction's id is its client and a number within it.
pub const SEQUENCES: u64 = 1 << 32;

/// What one client knows about its transactions, over all rounds.
#[derive(Default, Debug)]
pub struct Fate {
    pub next: u64,
    pub acknowledged: HashSet<u64>,
    pub rolled_back: HashSet<u64>,
    /// Its COMMIT was sent and not answered; what the restart made of it is then final.
    pub unknown: HashSet<u64>,
    /// About its newest transaction, if that is an XA branch in its second phase.
    pub asked: Option<Asked>,
}

impl Fate {
    /// How an XA branch has ended.
    pub fn know(&mut self, sequence: u64, committed: bool) {
        self.asked = None;
        match committed {
            true => self.acknowledged.insert(sequence),
            false => self.rolled_back.insert(sequence),
        };
    }
}

pub fn create_tables(client: &mut Client, engine: Engine) -> SqlResult<()> {
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

pub fn transfer_until_killed(
    client: &mut Client,
    id: u64,
    fate: &mut Fate,
    mut rng: Rng,
    round: &Round,
) -> Result<()> {
    let levels = ["READ COMMITTED", "REPEATABLE READ"];
    let level = levels[id as usize % 2];
    if let Err(error) = client.query(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}")) {
        return end_of_connection(error, round);
    }
    if xa::is_coordinator(id) {
        return xa::transfer_until_killed(client, id, fate, rng, round);
    }
    loop {
        fate.next += 1;
        let sequence = fate.next;
        let commits = rng.u32(..10) != 0;
        let begun = client.query("BEGIN").map(drop);
        let error = match begun.and_then(|()| transfer(client, id, sequence, &mut rng)) {
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
pub fn end_of_connection(error: SqlError, round: &Round) -> Result<()> {
    if matches!(error, SqlError::Lost(_)) && round.over.load(Ordering::SeqCst) {
        return Ok(());
    }
    bail!("a client got {error}");
}

/// Moves money within a transaction that has begun.
pub fn transfer(client: &mut Client, id: u64, sequence: u64, rng: &mut Rng) -> SqlResult<()> {
    let journal = id * SEQUENCES + sequence;
    let amount = rng.i64(1..50);
    let (from, to) = (
        (rng.u64(..TABLES), rng.u64(..ACCOUNTS)),
        (rng.u64(..TABLES), rng.u64(..ACCOUNTS)),
    );
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

pub fn read_totals_until_killed(client: &mut Client, round: &Round) -> Result<()> {
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
pub fn total_query(index: &str) -> String {
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
