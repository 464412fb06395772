//! Clients that are coordinators: each of their transfers is an XA branch, prepared and then decided. What
//! they asked for last is remembered, and after a restart it is done again, as a coordinator would.

use std::collections::HashSet;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use crate::bank::{self, Fate};
use crate::round::Round;
use varve_testbed::client::{Client, SqlError, SqlResult};

/// Every fourth client is one.
pub fn is_coordinator(client: u64) -> bool {
    client % 4 == 3
}

/// What a client has asked for, and not been told the end of: about the branch of its newest sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// XA PREPARE was sent.
    Prepare,
    /// It was answered.
    Nothing,
    Commit,
    Rollback,
}

pub fn transfer_until_killed(
    client: &mut Client,
    id: u64,
    fate: &mut Fate,
    mut rng: Rng,
    round: &Round,
) -> Result<()> {
    loop {
        fate.next += 1;
        let Err(error) = branch(client, id, fate, &mut rng) else {
            continue;
        };
        if fate.asked.is_none() {
            // Nobody has promised anything.
            fate.rolled_back.insert(fate.next);
        }
        if !error.is_conflict() {
            return bank::end_of_connection(error, round);
        }
        if let Err(error) = give_up(client, &name(id, fate.next)) {
            return bank::end_of_connection(error, round);
        }
    }
}

fn name(client: u64, sequence: u64) -> String {
    format!("'{client}-{sequence}'")
}

fn branch(client: &mut Client, id: u64, fate: &mut Fate, rng: &mut Rng) -> SqlResult<()> {
    let sequence = fate.next;
    let xid = name(id, sequence);
    let commits = rng.u32(..10) != 0;
    client.query(&format!("XA START {xid}"))?;
    bank::transfer(client, id, sequence, rng)?;
    client.query(&format!("XA END {xid}"))?;
    fate.asked = Some(Asked::Prepare);
    client.query(&format!("XA PREPARE {xid}"))?;
    fate.asked = Some(Asked::Nothing);
    if rng.u32(..4) == 0 {
        // Time for a kill between the two phases.
        std::thread::sleep(std::time::Duration::from_millis(rng.u64(..20)));
    }
    fate.asked = Some(match commits {
        true => Asked::Commit,
        false => Asked::Rollback,
    });
    decide(client, &xid, commits)?;
    fate.know(sequence, commits);
    Ok(())
}

fn decide(client: &mut Client, xid: &str, commits: bool) -> SqlResult<()> {
    let verb = if commits { "COMMIT" } else { "ROLLBACK" };
    client.query(&format!("XA {verb} {xid}")).map(drop)
}

/// After a conflict: the server may have ended the branch or rolled it back already, and says so.
fn give_up(client: &mut Client, xid: &str) -> SqlResult<()> {
    for statement in ["XA END", "XA ROLLBACK"] {
        match client.query(&format!("{statement} {xid}")) {
            Err(SqlError::Lost(error)) => return Err(SqlError::Lost(error)),
            Ok(_) | Err(SqlError::Server { .. }) => {}
        }
    }
    Ok(())
}

/// KILL-7, after a restart: decides what is prepared as it was asked for before the kill. What nobody had
/// decided is committed in half of the cases.
pub fn resolve(client: &mut Client, fates: &mut [Fate]) -> Result<()> {
    let mut prepared = HashSet::new();
    for row in client.query("XA RECOVER")? {
        let data = row.get(3).cloned().flatten();
        prepared.insert(data.context("XA RECOVER lists a branch without a name")?);
    }
    for (id, fate) in fates.iter_mut().enumerate() {
        let Some(asked) = fate.asked else {
            continue;
        };
        let sequence = fate.next;
        let is_prepared = prepared.remove(&format!("{id}-{sequence}"));
        ensure!(
            is_prepared || asked != Asked::Nothing,
            "client {id}: its branch {sequence}, which was prepared, is lost"
        );
        let commits = match asked {
            Asked::Prepare | Asked::Rollback => false,
            Asked::Nothing => sequence % 2 == 0,
            Asked::Commit => true,
        };
        if is_prepared {
            decide(client, &name(id as u64, sequence), commits)?;
        }
        fate.know(sequence, commits);
    }
    ensure!(
        prepared.is_empty(),
        "branches are prepared that nobody asked for, or that were decided: {prepared:?}"
    );
    Ok(())
}
