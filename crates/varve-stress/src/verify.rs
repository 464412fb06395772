//! What must be true after each restart: `KILL-1` to `KILL-4`.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, ensure};

use crate::bank::{ACCOUNTS, CLIENTS, Fate, SEQUENCES, START_BALANCE, TABLES, TOTAL, total_query};
use varve_testbed::client::{Client, Row};

pub fn everything(client: &mut Client, fates: &mut [Fate]) -> Result<()> {
    journal(client, fates)?;
    completeness(client)?;
    sums(client)?;
    structure(client)
}

/// KILL-1. What was unknown is known from here on.
fn journal(client: &mut Client, fates: &mut [Fate]) -> Result<()> {
    let mut present: Vec<HashSet<u64>> = vec![HashSet::new(); fates.len()];
    for row in client.query("SELECT id FROM bank.journal FORCE INDEX (PRIMARY)")? {
        let id: u64 = number(&row[0])?;
        present
            .get_mut((id / SEQUENCES) as usize)
            .with_context(|| format!("journal row {id} belongs to no client"))?
            .insert(id % SEQUENCES);
    }
    for (id, (fate, present)) in fates.iter_mut().zip(&present).enumerate() {
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

/// KILL-2.
fn completeness(client: &mut Client) -> Result<()> {
    nothing(client, "transactions without exactly two legs that cancel out", "
        SELECT j.id, COUNT(l.side), SUM(l.delta) FROM bank.journal j LEFT JOIN bank.leg l ON l.id = j.id
        GROUP BY j.id HAVING COUNT(l.side) <> 2 OR SUM(l.delta) <> 0")?;
    nothing(client, "legs without their transaction", "
        SELECT l.id, l.side FROM bank.leg l LEFT JOIN bank.journal j ON j.id = l.id WHERE j.id IS NULL")?;
    nothing(
        client,
        "markers that are not their client's last transaction",
        "
        SELECT m.client, m.sequence, MAX(j.sequence) FROM bank.marker m
        LEFT JOIN bank.journal j ON j.client = m.client
        GROUP BY m.client, m.sequence HAVING m.sequence <> COALESCE(MAX(j.sequence), 0)",
    )?;
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
fn sums(client: &mut Client) -> Result<()> {
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
fn structure(client: &mut Client) -> Result<()> {
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
    all_ok(rows)
}

/// Whether CHECK TABLE found nothing wrong.
pub fn all_ok(rows: Vec<Row>) -> Result<()> {
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

pub fn nothing(client: &mut Client, what: &str, sql: &str) -> Result<()> {
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
