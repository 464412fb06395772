//! The rows load: clients that change rows of their own in tables that they share and in private ones, which
//! they also create, rename, alter, truncate and drop. Transactions of several statements at random isolation
//! levels, savepoints, rollbacks, statements of their own, duplicate keys; what a client reads of its own
//! rows in the middle of a transaction must be what it wrote.
//!
//! The journal of each client says what must be there after the kill (`journal`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::{Result, bail, ensure};
use fastrand::Rng;

use crate::journal::{Ddl, Event, Journal, Tables};
use crate::round::Round;
use crate::store::{Failure, LEVELS, Outcome, SHARED, Statement, Store, Verb};

pub const CLIENTS: u32 = 6;
/// Keys of a client in a table.
const KEYS: u32 = 200;
/// Those of a greedy one, whose rows are all long.
const GREEDY_KEYS: u32 = 1000;
/// The stores make long rows of versions that this divides.
const LONG: u64 = 13;

/// One client over all rounds.
pub struct Member {
    pub id: u32,
    journal: Journal,
    next_version: u64,
    is_greedy: bool,
}

/// What a client does when a statement of a transaction has failed.
enum Next {
    GoOn,
    RollBack,
}

impl Member {
    pub fn new(id: u32, journals: &Path) -> Result<Self> {
        let tables = SHARED.map(|table| (table.to_string(), BTreeMap::new()));
        let path = journals.join(format!("client-{id}.journal"));
        Ok(Self {
            id,
            journal: Journal::create(&path, &tables.into())?,
            next_version: 1,
            is_greedy: false,
        })
    }

    /// From now on its rows take as much space as those of all the others.
    pub fn be_greedy(&mut self) {
        self.is_greedy = true;
    }

    pub fn work(&mut self, store: &mut impl Store, mut rng: Rng, round: &Round) -> Result<()> {
        loop {
            let done = match rng.u32(..20) {
                0 => self.ddl(store, &mut rng, round),
                1..5 => self.single_statement(store, &mut rng, round),
                _ => self.transaction(store, &mut rng, round),
            };
            match done? {
                Ok(()) => {}
                Err(Failure::Lost(_)) if round.over.load(Ordering::SeqCst) => return Ok(()),
                Err(failure) => bail!("client {}: {failure}", self.id),
            }
        }
    }

    fn transaction(
        &mut self,
        store: &mut impl Store,
        rng: &mut Rng,
        round: &Round,
    ) -> Result<Outcome<()>> {
        if let Err(failure) = store.begin(LEVELS[rng.usize(..LEVELS.len())]) {
            return Ok(Err(failure));
        }
        // How many changes the transaction had at each savepoint.
        let mut savepoints: Vec<usize> = Vec::new();
        for _ in 0..rng.u32(1..8) {
            let step = match rng.u32(..10) {
                0 => store.savepoint(savepoints.len()).map(|()| {
                    savepoints.push(self.journal.expected.changes());
                }),
                1 if !savepoints.is_empty() => {
                    let number = rng.usize(..savepoints.len());
                    match store.rollback_to(number) {
                        Ok(()) => {
                            savepoints.truncate(number + 1);
                            let undone = self.journal.expected.changes() - savepoints[number];
                            self.journal.write(&[Event::Forget(undone)])?;
                            Ok(())
                        }
                        Err(failure) => Err(failure),
                    }
                }
                2 => self.look(store, rng)?,
                _ => self.change(store, rng)?,
            };
            let Err(failure) = step else { continue };
            match self.after_failure(&failure, rng, round) {
                Some(Next::GoOn) => {}
                Some(Next::RollBack) => {
                    self.journal.write(&[Event::Undone])?;
                    return Ok(store.rollback());
                }
                None => return Ok(Err(failure)),
            }
        }
        if rng.u32(..8) == 0 {
            self.journal.write(&[Event::Undone])?;
            return Ok(store.rollback());
        }
        self.journal.write(&[Event::CommitSent])?;
        if let Err(failure) = store.commit() {
            return Ok(Err(failure));
        }
        self.journal.write(&[Event::Done])?;
        round.commits.fetch_add(1, Ordering::Relaxed);
        Ok(Ok(()))
    }

    /// `None` if it may not have happened.
    fn after_failure(&self, failure: &Failure, rng: &mut Rng, round: &Round) -> Option<Next> {
        match failure {
            Failure::Conflict(_) => Some(Next::RollBack),
            Failure::Full(_) if round.may_be_full.load(Ordering::SeqCst) => {
                round.refused_for_space.fetch_add(1, Ordering::Relaxed);
                Some(if rng.bool() {
                    Next::GoOn
                } else {
                    Next::RollBack
                })
            }
            _ => None,
        }
    }

    fn single_statement(
        &mut self,
        store: &mut impl Store,
        rng: &mut Rng,
        round: &Round,
    ) -> Result<Outcome<()>> {
        let statement = self.statement(rng);
        let (effects, fails) = self.effects(&statement);
        self.journal.write(&effects)?;
        self.journal.write(&[Event::CommitSent])?;
        match store.change(&statement) {
            Ok(()) if fails => bail!("{statement:?} was done in spite of a duplicate key"),
            Ok(()) => {
                self.journal.write(&[Event::Done])?;
                round.commits.fetch_add(1, Ordering::Relaxed);
            }
            Err(Failure::Duplicate) if fails => self.journal.write(&[Event::Undone])?,
            Err(failure) => match self.after_failure(&failure, rng, round) {
                Some(_) => self.journal.write(&[Event::Undone])?,
                None => return Ok(Err(failure)),
            },
        }
        Ok(Ok(()))
    }

    /// A statement of a transaction.
    fn change(&mut self, store: &mut impl Store, rng: &mut Rng) -> Result<Outcome<()>> {
        let statement = self.statement(rng);
        let (effects, fails) = self.effects(&statement);
        match store.change(&statement) {
            Ok(()) if fails => bail!("{statement:?} was done in spite of a duplicate key"),
            Ok(()) => self.journal.write(&effects)?,
            Err(Failure::Duplicate) if fails => {}
            Err(failure) => return Ok(Err(failure)),
        }
        Ok(Ok(()))
    }

    fn statement(&mut self, rng: &mut Rng) -> Statement {
        let tables: Vec<&String> = self.journal.expected.before().keys().collect();
        let table = match self.is_greedy {
            true => SHARED[0].to_string(),
            false => tables[rng.usize(..tables.len())].clone(),
        };
        let rows = self.journal.expected.visible(&table);
        let keys = if self.is_greedy { GREEDY_KEYS } else { KEYS };
        let first = rng.u32(..keys);
        let mut last = (first + rng.u32(..12)).min(keys - 1);
        let is_free = |key: &u32| !rows.contains_key(key);
        let verb = match rng.u32(..10) {
            0..4 if is_free(&first) => {
                if rng.u32(..6) != 0 {
                    // Up to the next key that is there, but at times into it: a duplicate key.
                    last = (first..=last).take_while(is_free).last().unwrap_or(first);
                }
                Verb::Insert
            }
            0..7 => Verb::Update,
            7 => Verb::Delete,
            8 => Verb::Upsert,
            _ => Verb::Replace,
        };
        if matches!(verb, Verb::Upsert | Verb::Replace) {
            last = first;
        }
        self.next_version += 1;
        if self.is_greedy {
            self.next_version = self.next_version.next_multiple_of(LONG);
        }
        Statement {
            verb,
            table,
            keys: first..=last,
            version: self.next_version,
        }
    }

    /// What the statement does to which rows, and whether it must fail with a duplicate key instead.
    fn effects(&self, statement: &Statement) -> (Vec<Event>, bool) {
        let rows = self.journal.expected.visible(&statement.table);
        let table = || statement.table.clone();
        let (mut there, keys) = (false, statement.keys.clone());
        let mut events = Vec::new();
        for key in keys {
            let exists = rows.contains_key(&key);
            there |= exists;
            match statement.verb {
                Verb::Insert | Verb::Upsert | Verb::Replace => {
                    events.push(Event::Put(table(), key, statement.version));
                }
                Verb::Update if exists => {
                    events.push(Event::Put(table(), key, statement.version));
                }
                Verb::Delete if exists => events.push(Event::Delete(table(), key)),
                Verb::Update | Verb::Delete => {}
            }
        }
        (events, statement.verb == Verb::Insert && there)
    }

    /// STRESS-2: a transaction sees its own changes, and nobody else changes its rows.
    fn look(&mut self, store: &mut impl Store, rng: &mut Rng) -> Result<Outcome<()>> {
        let table = SHARED[rng.usize(..SHARED.len())];
        let rows = match store.read(table) {
            Ok(rows) => rows,
            Err(failure) => return Ok(Err(failure)),
        };
        let expected = self.journal.expected.visible(table);
        ensure!(
            rows == expected,
            "client {} reads in {table} {rows:?}, not {expected:?}",
            self.id
        );
        Ok(Ok(()))
    }

    fn ddl(&mut self, store: &mut impl Store, rng: &mut Rng, round: &Round) -> Result<Outcome<()>> {
        let [a, b] = ["a", "b"].map(|name| format!("own_{}_{name}", self.id));
        let tables = self.journal.expected.before();
        let (there, other) = match (tables.contains_key(&a), tables.contains_key(&b)) {
            (true, _) => (Some(a), b),
            (false, true) => (Some(b), a),
            (false, false) => (None, a),
        };
        let ddl = match (there, rng.u32(..6)) {
            (None, _) => Ddl::Create(other),
            (Some(there), 0) => Ddl::Drop(there),
            (Some(there), 1) => Ddl::Truncate(there),
            (Some(there), 2 | 3) => Ddl::Rename(there, other),
            (Some(there), how) => Ddl::Alter(there, how),
        };
        self.journal.write(&[Event::DdlSent(ddl.clone())])?;
        match store.ddl(&ddl) {
            Ok(()) => {
                self.journal.write(&[Event::Done])?;
                round.ddl.fetch_add(1, Ordering::Relaxed);
            }
            Err(failure) => match self.after_failure(&failure, rng, round) {
                Some(_) => self.journal.write(&[Event::Undone])?,
                None => return Ok(Err(failure)),
            },
        }
        Ok(Ok(()))
    }

    /// STRESS-1.
    pub fn judge(&mut self, store: &mut impl Store) -> Result<()> {
        let own = format!("own_{}_", self.id);
        let mut found = Tables::new();
        for table in get(store.tables())? {
            if table.starts_with(&own) || SHARED.contains(&table.as_str()) {
                let rows = get(store.read(&table))?;
                found.insert(table, rows);
            }
        }
        self.journal.judge(&found)
    }
}

/// STRESS-3: what the checks of all tables say.
pub fn check(store: &mut impl Store) -> Result<()> {
    for table in get(store.tables())? {
        get(store.check(&table))?;
    }
    Ok(())
}

/// For those whom no failure is expected to meet.
pub fn get<T>(outcome: Outcome<T>) -> Result<T> {
    outcome.map_err(|failure| anyhow::anyhow!("{failure}"))
}
