//! Statements one after the other on both sides, until something is different.

use anyhow::Result;

use crate::binlog;
use crate::compare::{Difference, What, compare, show};
use crate::draw::{Generator, Statement};
use crate::known::known;
use crate::side::{Outcome, Pair};

/// Statements between two looks at everything.
const BATCH: usize = 150;

#[derive(Default)]
pub struct Counts {
    pub statements: u64,
    pub failed: u64,
    pub batches: u64,
    pub rows: u64,
    /// By name.
    pub known: std::collections::BTreeMap<&'static str, u64>,
    /// Batches that ended early because of a known difference.
    pub cut: u64,
}

/// Plays what one seed draws; returns the statements and what was different and not known.
pub fn play(
    pair: &mut Pair,
    seed: u64,
    counts: &mut Counts,
) -> Result<Option<(Vec<Statement>, Difference)>> {
    pair.reset()?;
    counts.batches += 1;
    let mut generator = Generator::new(seed);
    let mut played = Vec::new();
    let mut checks = Vec::new().into_iter();
    loop {
        if played.len() == BATCH {
            checks = generator.checks().into_iter();
        }
        let statement = match played.len() {
            n if n < BATCH => generator.next(),
            _ => match checks.next() {
                Some(statement) => statement,
                None => break,
            },
        };
        played.push(statement);
        let statement = played.last().expect("it was just added");
        let (outcome, difference) = step(pair, statement, played.len() - 1)?;
        counts.statements += 1;
        match &outcome {
            Outcome::Failed { .. } => counts.failed += 1,
            Outcome::Done { answer, .. } => {
                counts.rows += answer.rows.as_ref().map_or(0, |rows| rows.len() as u64);
            }
        }
        generator.ended(statement, outcome.succeeded());
        if let Some(difference) = difference {
            let Some(known) = known(&difference) else {
                return Ok(Some((played, difference)));
            };
            *counts.known.entry(known.name).or_default() += 1;
            if !known.goes_on {
                counts.cut += 1;
                return Ok(None);
            }
        }
    }
    let difference = binary_logs(pair, played.len())?;
    Ok(difference.map(|difference| (played, difference)))
}

/// Plays statements again; returns the first difference that is not known. Binary logs are compared only if
/// that is what is looked for.
pub fn replay(pair: &mut Pair, statements: &[Statement], what: What) -> Result<Option<Difference>> {
    if let Err(error) = pair.reset() {
        if what != What::ServerDied {
            return Err(error);
        }
        pair.restart()?;
        pair.reset()?;
    }
    for (at, statement) in statements.iter().enumerate() {
        let (_, difference) = step(pair, statement, at)?;
        if let Some(difference) = difference {
            match known(&difference) {
                None => return Ok(Some(difference)),
                Some(known) if known.goes_on => {}
                Some(_) => return Ok(None),
            }
        }
    }
    match what {
        What::BinaryLog => binary_logs(pair, statements.len()),
        _ => Ok(None),
    }
}

fn step(
    pair: &mut Pair,
    statement: &Statement,
    at: usize,
) -> Result<(Outcome, Option<Difference>)> {
    let sql = || statement.part.render();
    let [varve, innodb] = match pair.run(statement) {
        Ok(outcomes) => outcomes,
        Err(error) => {
            let difference = Difference {
                at,
                sql: sql(),
                what: What::ServerDied,
                varve: format!("{error:#}"),
                innodb: String::new(),
            };
            let outcome = Outcome::Failed {
                code: 0,
                message: String::new(),
                warnings: Vec::new(),
            };
            pair.restart()?;
            return Ok((outcome, Some(difference)));
        }
    };
    let difference = compare(&varve, &innodb).map(|what| Difference {
        at,
        sql: sql(),
        what,
        varve: show(&varve),
        innodb: show(&innodb),
    });
    Ok((varve, difference))
}

fn binary_logs(pair: &Pair, at: usize) -> Result<Option<Difference>> {
    let [varve, innodb] = binlog::events(pair)?;
    if varve == innodb {
        return Ok(None);
    }
    let first = (0..)
        .find(|i| varve.get(*i) != innodb.get(*i))
        .expect("they differ");
    let event = |events: &[String]| {
        events
            .get(first)
            .map_or("nothing more".into(), Clone::clone)
    };
    Ok(Some(Difference {
        at: at.saturating_sub(1),
        sql: "the binary log".into(),
        what: What::BinaryLog,
        varve: event(&varve),
        innodb: event(&innodb),
    }))
}
