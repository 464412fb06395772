//! The binary log as a second witness: KILL-6.
//!
//! A replica in memory follows the log's row events, as `mariadb-binlog` prints them, and is compared row by
//! row with the tables. So each transaction in the log is in the engine, and each one in the engine is in the
//! log. What the kill left of a transaction at a file's end is none: the server has rolled it back.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::mem;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};

use crate::bank::TABLES;
use varve_testbed::client::{Client, Row};
use varve_testbed::prefix::Prefix;

pub const SERVER_OPTIONS: [&str; 4] = [
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--sync-binlog=1",
    "--server-id=1",
];
const INDEX_FILE: &str = "binlog.index";

/// What the binary log adds up to.
#[derive(Default)]
pub struct Replica {
    pub transactions: u64,
    tables: HashMap<String, Table>,
    /// Files that were read.
    files: usize,
    /// Of the transaction that is being read.
    pending: Vec<Change>,
    /// Of XA branches that are prepared.
    prepared: HashMap<String, Vec<Change>>,
}

/// Rows by primary key.
type Table = HashMap<Row, Row>;

/// A row event: the row before it, the row after it.
#[derive(Default)]
struct Change {
    table: String,
    before: Row,
    after: Row,
    values_are_old: bool,
}

/// How many of a table's first columns are its primary key; `None` for tables that are not compared.
fn key_columns(table: &str) -> Option<usize> {
    match table {
        "leg" => Some(2),
        "journal" | "marker" => Some(1),
        account if account.starts_with("account_") => Some(1),
        _ => None,
    }
}

impl Replica {
    /// Reads the files that are complete: all but the one that the running server writes.
    pub fn follow(&mut self, prefix: &Prefix, datadir: &Path) -> Result<()> {
        let index = fs::read_to_string(datadir.join(INDEX_FILE))
            .context("the server has no index of its binary log")?;
        let files: Vec<&str> = index.lines().collect();
        let complete = files.len().saturating_sub(1);
        for file in &files[self.files..complete] {
            self.read(prefix, &datadir.join(file))?;
        }
        self.files = complete;
        Ok(())
    }

    fn read(&mut self, prefix: &Prefix, file: &Path) -> Result<()> {
        let mut child = prefix
            .program("mariadb-binlog")
            .args(["--no-defaults", "--verbose", "--base64-output=decode-rows"])
            .arg(file)
            .into_inner()
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run mariadb-binlog")?;
        let stdout = child.stdout.take().context("the pipe was just made")?;
        for line in BufReader::new(stdout).split(b'\n') {
            self.line(&String::from_utf8_lossy(&line?))
                .with_context(|| format!("in {}", file.display()))?;
        }
        // It complains about a torn end, which the kill may have left; other damage shows in the comparison.
        child.wait()?;
        self.pending.clear();
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<()> {
        match line {
            "COMMIT/*!*/;" => return self.apply(),
            "ROLLBACK/*!*/;" => self.pending.clear(),
            _ => {}
        }
        if let Some(statement) = line.strip_prefix("XA ") {
            return self.branch(statement);
        }
        let Some(event) = line.strip_prefix("### ") else {
            return Ok(());
        };
        if let Some(value) = event.strip_prefix("  @") {
            let (_, value) = value.split_once('=').context("a column without a value")?;
            let change = self.pending.last_mut().context("a column without a row")?;
            match change.values_are_old {
                true => change.before.push(parse(value)),
                false => change.after.push(parse(value)),
            }
            return Ok(());
        }
        match event {
            "WHERE" | "SET" => {
                let change = self.pending.last_mut().context("values without a row")?;
                change.values_are_old = event == "WHERE";
            }
            _ => {
                let table = event.rsplit('`').nth(1).unwrap_or_default();
                self.pending.push(Change {
                    table: table.to_string(),
                    ..Change::default()
                });
            }
        }
        Ok(())
    }

    /// What is prepared counts when it is committed. A kill between the two logs makes the coordinator repeat
    /// its decision; a branch that the engine did not get to prepare is never decided.
    fn branch(&mut self, statement: &str) -> Result<()> {
        let statement = statement.trim_end_matches("/*!*/;").trim_end();
        let (verb, xid) = statement.split_once(' ').unwrap_or((statement, ""));
        match verb {
            "PREPARE" => {
                let changes = mem::take(&mut self.pending);
                self.prepared.insert(xid.to_string(), changes);
            }
            "COMMIT" if xid.ends_with(" ONE PHASE") => return self.apply(),
            "COMMIT" => {
                if let Some(changes) = self.prepared.remove(xid) {
                    self.pending = changes;
                    return self.apply();
                }
            }
            "ROLLBACK" => drop(self.prepared.remove(xid)),
            _ => {}
        }
        Ok(())
    }

    fn apply(&mut self) -> Result<()> {
        let changes = mem::take(&mut self.pending);
        self.transactions += u64::from(!changes.is_empty());
        for change in changes {
            let Some(key_columns) = key_columns(&change.table) else {
                continue;
            };
            let key = |row: &Row| row[..key_columns].to_vec();
            let table = self.tables.entry(change.table.clone()).or_default();
            if !change.before.is_empty() {
                let before = table.remove(&key(&change.before));
                ensure!(
                    before.as_ref() == Some(&change.before),
                    "the binary log changes row {:?} of {}, which was {before:?}",
                    change.before,
                    change.table
                );
            }
            if !change.after.is_empty() {
                let before = table.insert(key(&change.after), change.after);
                ensure!(
                    before.is_none(),
                    "the binary log inserts over row {before:?} of {}",
                    change.table
                );
            }
        }
        Ok(())
    }

    /// KILL-6.
    pub fn compare(&mut self, client: &mut Client) -> Result<()> {
        let accounts = (0..TABLES).map(|table| format!("account_{table}"));
        for table in ["journal", "leg", "marker"]
            .map(String::from)
            .into_iter()
            .chain(accounts)
        {
            let rows =
                client.query(&format!("SELECT * FROM bank.{table} FORCE INDEX (PRIMARY)"))?;
            let logged = self.tables.entry(table.clone()).or_default();
            let key_columns = key_columns(&table).context("a table of the bank")?;
            for row in &rows {
                let expected = logged.get(&row[..key_columns]);
                if expected != Some(row) {
                    bail!("{table} has row {row:?}, the binary log {expected:?}");
                }
            }
            ensure!(
                rows.len() == logged.len(),
                "{table} has {} rows, the binary log {}",
                rows.len(),
                logged.len()
            );
        }
        Ok(())
    }
}

/// A value as `mariadb-binlog` prints it: NULL, a quoted text, or a number, which it repeats as unsigned if
/// it is negative.
fn parse(value: &str) -> Option<String> {
    if value == "NULL" {
        return None;
    }
    let text = value
        .strip_prefix('\'')
        .and_then(|text| text.strip_suffix('\''));
    let number = || value.split(' ').next().unwrap_or_default();
    Some(text.unwrap_or_else(number).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_add_up_and_a_torn_one_is_none() {
        let mut replica = Replica::default();
        let mut read = |text: &str| text.lines().try_for_each(|line| replica.line(line));
        read(
            "### INSERT INTO `bank`.`marker`\n### SET\n###   @1=3\n###   @2=-7 (4294967289)\n\
             ### INSERT INTO `bank`.`ddl_first`\n### SET\n###   @1=1\nCOMMIT/*!*/;\n\
             ### UPDATE `bank`.`marker`\n### WHERE\n###   @1=3\n###   @2=-7 (4294967289)\n\
             ### SET\n###   @1=3\n###   @2='a b'\nCOMMIT/*!*/;\n\
             ### DELETE FROM `bank`.`marker`\n### WHERE\n###   @1=3\n###   @2='a b'\n",
        )
        .unwrap();
        let marker = |row: [&str; 2]| HashMap::from([(text(&row[..1]), text(&row))]);
        assert_eq!(replica.tables["marker"], marker(["3", "a b"]));
        assert_eq!((replica.transactions, replica.tables.len()), (2, 1));
        // The kill came before its commit. What follows does not fit what the log said before.
        replica.pending.clear();
        let mut read = |text: &str| text.lines().try_for_each(|line| replica.line(line));
        let wrong =
            "### DELETE FROM `bank`.`marker`\n### WHERE\n###   @1=3\n###   @2='x'\nCOMMIT/*!*/;";
        assert!(read(wrong).is_err());
    }

    #[test]
    fn prepared_branches_count_when_they_are_committed() {
        let mut replica = Replica::default();
        let mut read = |text: &str| text.lines().try_for_each(|line| replica.line(line));
        let branch = |n: u32| {
            format!(
                "XA START X'{n}',X'',1\n### INSERT INTO `bank`.`marker`\n### SET\n###   @1={n}\n###   @2=0\n\
                 XA END X'{n}',X'',1\n/*!*/;\nXA PREPARE X'{n}',X'',1\n/*!*/;\n"
            )
        };
        for n in 1..=3 {
            read(&branch(n)).unwrap();
        }
        // The second commit is a coordinator's after a crash.
        read("XA COMMIT X'2',X'',1\n/*!*/;\nXA COMMIT X'2',X'',1\nXA ROLLBACK X'3',X'',1").unwrap();
        assert_eq!(replica.transactions, 1);
        let keys: Vec<_> = replica.tables["marker"].keys().cloned().collect();
        assert_eq!(keys, [text(&["2"])]);
        assert_eq!(replica.prepared.len(), 1);
    }

    fn text(values: &[&str]) -> Row {
        values.iter().map(|v| Some(v.to_string())).collect()
    }
}
