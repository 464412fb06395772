//! A client that creates, fills, renames, alters, truncates and drops tables without end.
//!
//! Each step is one statement, so that after a kill the table is either as the last acknowledged step left
//! it or as the one in flight would have (KILL-5): in the server's eyes, in the engine's, and on disk.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::bank::end_of_connection;
use crate::round::Round;
use varve_testbed::client::{Client, SqlError};
use varve_testbed::server::Engine;

const ROWS: u64 = 200;
/// How long the engine may take to remove the files of dropped tables.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(20);

/// A table as a client sees it: name, columns, rows.
type Seen = Option<(&'static str, u64, u64)>;

/// What each step leaves; the last brings back the beginning.
const AFTER_STEP: [Seen; 7] = [
    Some(("ddl_first", 3, 0)),
    Some(("ddl_first", 3, ROWS)),
    Some(("ddl_second", 3, ROWS)),
    Some(("ddl_second", 4, ROWS)),
    Some(("ddl_second", 4, ROWS)),
    Some(("ddl_second", 4, 0)),
    None,
];

fn statement(step: usize, engine: Engine) -> String {
    match step {
        0 => format!(
            "CREATE TABLE bank.ddl_first (id INT AUTO_INCREMENT PRIMARY KEY, a INT, b VARCHAR(300), KEY (a))
             ENGINE={}",
            engine.name()
        ),
        1 => format!("INSERT INTO bank.ddl_first (a, b) SELECT seq % 10, REPEAT('b', seq) FROM seq_1_to_{ROWS}"),
        2 => "RENAME TABLE bank.ddl_first TO bank.ddl_second".into(),
        3 => "ALTER TABLE bank.ddl_second ADD COLUMN c BIGINT NOT NULL DEFAULT 7, ALGORITHM=COPY".into(),
        4 => "CREATE INDEX b ON bank.ddl_second (b)".into(),
        5 => "TRUNCATE TABLE bank.ddl_second".into(),
        _ => "DROP TABLE bank.ddl_second".into(),
    }
}

/// What the client knows of its table.
#[derive(Default)]
pub struct DdlFate {
    /// Acknowledged steps, over all rounds.
    pub steps: u64,
    /// A step was sent and not answered.
    in_flight: bool,
}

impl DdlFate {
    fn next_step(&self) -> usize {
        (self.steps % AFTER_STEP.len() as u64) as usize
    }

    /// The states in which the table may be.
    fn allowed(&self) -> Vec<Seen> {
        let next = self.next_step();
        let last = (next + AFTER_STEP.len() - 1) % AFTER_STEP.len();
        let mut allowed = vec![AFTER_STEP[last]];
        if self.in_flight {
            allowed.push(AFTER_STEP[next]);
        }
        allowed
    }
}

pub fn run_until_killed(
    client: &mut Client,
    engine: Engine,
    fate: &mut DdlFate,
    round: &Round,
) -> Result<()> {
    if let Err(error) = client.query("USE bank") {
        return end_of_connection(error, round);
    }
    loop {
        fate.in_flight = true;
        match client.query(&statement(fate.next_step(), engine)) {
            Ok(_) => fate.steps += 1,
            Err(error @ SqlError::Server { .. }) => {
                return Err(error).context(statement(fate.next_step(), engine));
            }
            Err(error) => return end_of_connection(error, round),
        }
        fate.in_flight = false;
    }
}

/// KILL-5. Drops the table, so that the next round begins anew and nothing of it may remain.
pub fn verify(client: &mut Client, fate: &mut DdlFate, datadir: &Path) -> Result<()> {
    let mut seen = Vec::new();
    for name in ["ddl_first", "ddl_second"] {
        if let Some(found) = look(client, name)? {
            seen.push(Some(found));
        }
    }
    if seen.is_empty() {
        seen.push(None);
    }
    let allowed = fate.allowed();
    ensure!(
        seen.len() == 1 && allowed.contains(&seen[0]),
        "after {} steps of DDL there is {seen:?}, not one of {allowed:?}",
        fate.steps
    );
    client.query("DROP TABLE IF EXISTS bank.ddl_first, bank.ddl_second")?;
    let round = AFTER_STEP.len() as u64;
    *fate = DdlFate {
        steps: fate.steps.next_multiple_of(round),
        in_flight: false,
    };
    nothing_left(datadir)
}

fn look(client: &mut Client, name: &'static str) -> Result<Seen> {
    let columns = client.value(&format!(
        "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = 'bank' AND table_name = '{name}'"
    ))?;
    if columns == "0" {
        return Ok(None);
    }
    let rows = client.value(&format!(
        "SELECT COUNT(*) FROM bank.{name} FORCE INDEX (PRIMARY)"
    ))?;
    let by_index = client.value(&format!(
        "SELECT COUNT(*) FROM bank.{name} FORCE INDEX (a) WHERE a >= 0"
    ))?;
    ensure!(
        rows == by_index,
        "{name} has {rows} rows, {by_index} by its index"
    );
    let check = client.query(&format!("CHECK TABLE bank.{name}"))?;
    let verdict = check
        .last()
        .and_then(|row| row.last())
        .and_then(|text| text.as_deref());
    ensure!(verdict == Some("OK"), "CHECK TABLE {name}: {check:?}");
    Ok(Some((name, columns.parse()?, rows.parse()?)))
}

/// No file of a dropped or half-made table, in whatever place the engine keeps it.
fn nothing_left(datadir: &Path) -> Result<()> {
    let begin = Instant::now();
    loop {
        let mut left = Vec::new();
        collect_leftovers(datadir, &mut left)?;
        if left.is_empty() {
            return Ok(());
        }
        ensure!(
            begin.elapsed() < REMOVAL_TIMEOUT,
            "files of tables that are gone: {}",
            left.join(", ")
        );
        thread::sleep(Duration::from_millis(50));
    }
}

fn collect_leftovers(dir: &Path, left: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            collect_leftovers(&entry.path(), left)?;
        } else if name.starts_with("ddl_first.")
            || name.starts_with("ddl_second.")
            || name.contains("sql-")
        {
            left.push(entry.path().display().to_string());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_in_flight_allows_its_result_too() {
        let first = |steps, in_flight| DdlFate { steps, in_flight }.allowed();
        assert_eq!(first(0, false), [None]);
        assert_eq!(first(0, true), [None, Some(("ddl_first", 3, 0))]);
        assert_eq!(first(6, true), [Some(("ddl_second", 4, 0)), None]);
    }
}
