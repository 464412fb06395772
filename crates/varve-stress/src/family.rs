//! Parents and children: rows come, go and get other keys, while their tables are altered and renamed.
//!
//! Nobody keeps a journal of them. What must hold is that each row has its parent (KILL-8): a check that was
//! left out while the parent's table was being replaced, or a cascade of which a crash left a part, shows.

use anyhow::{Context, Result};
use fastrand::Rng;

use crate::bank::end_of_connection;
use crate::round::Round;
use crate::verify::{all_ok, nothing};
use varve_testbed::client::{Client, SqlError, SqlResult};
use varve_testbed::server::Engine;

/// Parents' keys are below this.
const KEYS: u64 = 40;
/// Duplicate key, a child's included; no parent; children in the way; the table has another name just now.
const REFUSALS: [u16; 6] = [1062, 1761, 1452, 1451, 1146, 1412];
const CHILDREN: [&str; 4] = ["follows", "loses", "holds", "tree"];

pub fn create_tables(client: &mut Client, engine: Engine) -> SqlResult<()> {
    let engine = engine.name();
    client.query("CREATE DATABASE family")?;
    client.query(&format!(
        "CREATE TABLE family.parents (id INT PRIMARY KEY, x INT) ENGINE={engine}"
    ))?;
    for (table, parents, actions) in [
        ("follows", "parents", "ON DELETE CASCADE ON UPDATE CASCADE"),
        ("loses", "parents", "ON DELETE SET NULL ON UPDATE SET NULL"),
        ("holds", "parents", ""),
        ("tree", "tree", "ON DELETE CASCADE"),
    ] {
        client.query(&format!(
            "CREATE TABLE family.{table} (id INT AUTO_INCREMENT PRIMARY KEY, parent INT, x INT,
             CONSTRAINT {table}_of FOREIGN KEY (parent) REFERENCES family.{parents} (id) {actions}) ENGINE={engine}"
        ))?;
    }
    Ok(())
}

fn change(rng: &mut Rng) -> String {
    let (key, other) = (rng.u64(..KEYS), rng.u64(..KEYS));
    match rng.u32(..12) {
        0 | 1 => {
            format!("INSERT IGNORE INTO family.parents (id, x) VALUES ({key}, 0), ({other}, 0)")
        }
        2 => format!("DELETE FROM family.parents WHERE id = {key}"),
        3 => format!("UPDATE family.parents SET id = {other} WHERE id = {key}"),
        4 | 5 => format!("INSERT INTO family.follows (parent) VALUES ({key}), ({other})"),
        6 => format!("INSERT INTO family.loses (parent) VALUES ({key})"),
        7 => format!("INSERT INTO family.holds (parent) VALUES ({key})"),
        8 => format!("DELETE FROM family.holds WHERE parent = {key}"),
        9 => format!("UPDATE family.follows SET parent = {other} WHERE parent = {key}"),
        10 => "INSERT INTO family.tree (parent) SELECT MAX(id) FROM family.tree".into(),
        _ => format!("DELETE FROM family.tree WHERE id % 5 = {}", rng.u64(..5)),
    }
}

pub fn change_until_killed(client: &mut Client, mut rng: Rng, round: &Round) -> Result<()> {
    loop {
        let end = if rng.bool() { "COMMIT" } else { "ROLLBACK" };
        let mut statements = vec!["SET sql_log_bin = 0".to_string(), "BEGIN".into()];
        statements.extend((0..rng.usize(1..6)).map(|_| change(&mut rng)));
        statements.push(end.into());
        for statement in statements {
            match client.query(&statement) {
                Ok(_) => {}
                Err(SqlError::Server { code, .. }) if REFUSALS.contains(&code) => {}
                // A deadlock has rolled the transaction back, a timeout the statement.
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    return end_of_connection(error, round).context(statement);
                }
            }
        }
    }
}

pub fn alter_until_killed(client: &mut Client, mut rng: Rng, round: &Round) -> Result<()> {
    let back = "RENAME TABLE IF EXISTS family.elders TO family.parents";
    let mut statements = vec!["SET sql_log_bin = 0".to_string()];
    loop {
        for statement in std::mem::take(&mut statements) {
            match client.query(&statement) {
                Ok(_) => {}
                Err(SqlError::Server { code, .. }) if REFUSALS.contains(&code) => {}
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    return end_of_connection(error, round).context(statement);
                }
            }
        }
        let table = ["parents", "follows", "loses", "tree"][rng.usize(..4)];
        statements = match rng.u32(..4) {
            0 => vec![format!(
                "ALTER TABLE family.{table} ADD COLUMN IF NOT EXISTS y INT, ALGORITHM=COPY"
            )],
            1 => vec![format!(
                "ALTER TABLE family.{table} DROP COLUMN IF EXISTS y, ALGORITHM=COPY"
            )],
            2 => {
                let how = ["COPY", "INPLACE"][rng.usize(..2)];
                vec![format!("ALTER TABLE family.{table} FORCE, ALGORITHM={how}")]
            }
            _ => vec!["RENAME TABLE family.parents TO family.elders".into()],
        };
        // Somebody may have been in its way the last time.
        statements.push(back.into());
    }
}

/// KILL-8.
pub fn verify(client: &mut Client) -> Result<()> {
    client.query("RENAME TABLE IF EXISTS family.elders TO family.parents")?;
    for table in CHILDREN {
        let parents = if table == "tree" { "tree" } else { "parents" };
        nothing(
            client,
            "rows without a parent",
            &format!(
                "SELECT c.id, c.parent FROM family.{table} c LEFT JOIN family.{parents} p ON p.id = c.parent
                 WHERE c.parent IS NOT NULL AND p.id IS NULL"
            ),
        )?;
    }
    let tables = CHILDREN.map(|table| format!("family.{table}")).join(", ");
    all_ok(client.query(&format!("CHECK TABLE family.parents, {tables}"))?)
}
