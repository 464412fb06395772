//! Draws statements, one after the other, for tables that it remembers.
//!
//! What a statement answers must follow from the rows alone, not from the plan that the optimizer chooses by
//! each engine's estimates: rows come in an order that is decided whole or are compared as a multiset, and
//! where the order of changes decides how a statement ends, it is given.

mod alter;
mod conditions;
mod define;
mod phrases;
mod rare;
mod read;
mod write;

use std::collections::VecDeque;

use fastrand::Rng;

use crate::schema::Table;
use crate::sql::{Part, may, text};
use crate::types::{any, one_in};

/// How the rows of two answers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Rows in their order.
    Ordered,
    /// Rows as a multiset.
    Set,
    /// Rows in their order; names of schemas and engines in them are made alike.
    Shown,
    /// As `Shown`, but notes say what each engine wants.
    Checked,
}

#[derive(Clone, Debug)]
pub struct Statement {
    pub part: Part,
    pub rule: Rule,
    /// The tables that there are if it succeeds; `None` if they stay.
    pub after: Option<Vec<Table>>,
}

impl Statement {
    pub fn new(part: impl Into<Part>) -> Self {
        Self {
            part: part.into(),
            rule: Rule::Set,
            after: None,
        }
    }

    pub fn rule(self, rule: Rule) -> Self {
        Self { rule, ..self }
    }

    pub fn after(self, tables: Vec<Table>) -> Self {
        Self {
            after: Some(tables),
            ..self
        }
    }
}

pub struct Generator {
    rng: Rng,
    pub tables: Vec<Table>,
    /// The rest of a phrase that has begun.
    queue: VecDeque<Statement>,
    in_transaction: bool,
    /// Each statement outside a transaction does so by itself.
    commits: bool,
    /// ALTER TABLE copies rows in either engine.
    copies: bool,
    /// READ UNCOMMITTED is among the levels.
    reads_uncommitted: bool,
    /// There are indexes of virtual columns. At READ UNCOMMITTED InnoDB finds nothing if it sorts rows that
    /// it comes to by one, nor does it with MRR.
    virtual_keys: bool,
    /// There are XA transactions. With other images of rows the server asks the engine whether a row changes;
    /// one that has changed nothing is in the binary log with InnoDB alone.
    prepares: bool,
    /// There are triggers that tell of rows.
    logs: bool,
    /// There are unique keys of long values. At READ COMMITTED InnoDB has these looked at when the other keys
    /// are.
    hashes: bool,
    names: u32,
    time: u64,
}

/// What the binary log gets.
const IMAGES: [&str; 2] = [
    "SET binlog_row_image=MINIMAL",
    "SET binlog_row_image=NOBLOB",
];

/// Ways to the same rows.
const PLANS: [&str; 6] = [
    "SET optimizer_switch='mrr=on,mrr_cost_based=off,mrr_sort_keys=on'",
    "SET optimizer_switch='mrr=on,mrr_cost_based=off', join_cache_level=8",
    "SET optimizer_switch='index_merge_sort_intersection=on,rowid_filter=off'",
    "SET optimizer_switch='index_condition_pushdown=off,extended_keys=off'",
    "SET optimizer_switch='materialization=off,semijoin=off', join_cache_level=0",
    "SET max_length_for_sort_data=4",
];

/// Versioned tables can be altered.
const HISTORY: &str = "SET system_versioning_alter_history=KEEP";

/// Tables at a time.
const TABLES_MAX: usize = 4;

impl Generator {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let copies = rng.bool();
        let reads_uncommitted = one_in(&mut rng, 6);
        let hashes = !reads_uncommitted && one_in(&mut rng, 4);
        let mut begin = VecDeque::new();
        if copies {
            begin.push_back(Statement::new("SET alter_algorithm=COPY"));
        }
        let plan = one_in(&mut rng, 4).then(|| *any(&mut rng, &PLANS));
        let virtual_keys = !reads_uncommitted && !plan.is_some_and(|plan| plan.contains("mrr=on"));
        // Hashes are in a row's image that may be of another version of it.
        let image = (!hashes && one_in(&mut rng, 4)).then(|| *any(&mut rng, &IMAGES));
        let history = one_in(&mut rng, 4).then_some(HISTORY);
        begin.extend(
            [plan, image, history]
                .into_iter()
                .flatten()
                .map(Statement::new),
        );
        Self {
            rng,
            tables: Vec::new(),
            queue: begin,
            in_transaction: false,
            commits: true,
            copies,
            reads_uncommitted,
            virtual_keys,
            logs: false,
            prepares: image.is_none(),
            hashes,
            names: 0,
            time: 1_700_000_000,
        }
    }

    /// Draws the next statement.
    pub fn next(&mut self) -> Statement {
        if let Some(statement) = self.queue.pop_front() {
            return statement;
        }
        let few = self.tables.len() < 2;
        if few || (self.tables.len() < TABLES_MAX && one_in(&mut self.rng, 60)) {
            return self.create_table();
        }
        match self.rng.u32(..100) {
            0..28 => self.insert(),
            28..43 => self.update(),
            43..50 => self.delete(),
            50..76 => self.select(),
            76..85 => self.transaction(),
            85..91 => self.alter(),
            91..94 => self.setting(),
            _ => self.phrase(),
        }
    }

    /// Hears how a statement ended.
    pub fn ended(&mut self, statement: &Statement, succeeded: bool) {
        if succeeded && let Some(tables) = &statement.after {
            self.tables.clone_from(tables);
        }
    }

    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn table(&mut self) -> Table {
        any(&mut self.rng, &self.tables).clone()
    }

    fn is_parent(&self, table: &Table) -> bool {
        let mut keys = self.tables.iter().flat_map(|table| &table.foreign);
        keys.any(|key| key.parent == table.name)
    }

    fn transaction(&mut self) -> Statement {
        if one_in(&mut self.rng, 20) {
            self.commits = !self.commits;
            self.in_transaction |= !self.commits;
            return Statement::new(format!("SET autocommit={}", u8::from(self.commits)));
        }
        let (sql, begun) = match (self.in_transaction, self.rng.u32(..8)) {
            (false, 0) => ("START TRANSACTION WITH CONSISTENT SNAPSHOT", true),
            (false, _) => ("BEGIN", true),
            (true, 0..3) => ("COMMIT", false),
            (true, 3) => ("ROLLBACK", false),
            (true, 4) => ("COMMIT AND CHAIN", true),
            (true, 5) => ("SAVEPOINT s1", true),
            (true, 6) => ("SAVEPOINT s2", true),
            (true, _) => (
                *any(
                    &mut self.rng,
                    &[
                        "ROLLBACK TO SAVEPOINT s1",
                        "ROLLBACK TO s2",
                        "RELEASE SAVEPOINT s1",
                    ],
                ),
                true,
            ),
        };
        self.in_transaction = begun || !self.commits;
        Statement::new(sql)
    }

    fn setting(&mut self) -> Statement {
        let rng = &mut self.rng;
        let sql = match rng.u32(..12) {
            0 => "SET sql_mode=''",
            1 => "SET sql_mode='STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE'",
            2..5 => "SET sql_mode=DEFAULT",
            5 => "SET sql_mode='PAD_CHAR_TO_FULL_LENGTH,STRICT_TRANS_TABLES'",
            // Without either InnoDB fills empty tables in a way of its own, and lets duplicates in.
            6 => any(
                rng,
                &[
                    "SET foreign_key_checks=0, unique_checks=1",
                    "SET foreign_key_checks=1",
                ],
            ),
            7 => any(
                rng,
                &[
                    "SET unique_checks=0, foreign_key_checks=1",
                    "SET unique_checks=1",
                ],
            ),
            8 if self.reads_uncommitted && rng.bool() => {
                "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED"
            }
            8 if self.hashes => "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            8 => any(
                rng,
                &[
                    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
                    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
                    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
                ],
            ),
            9 => any(
                rng,
                &[
                    "SET sql_mode='STRICT_TRANS_TABLES,ALLOW_INVALID_DATES,EMPTY_STRING_IS_NULL'",
                    "SET sql_mode='TIME_ROUND_FRACTIONAL,NO_ENGINE_SUBSTITUTION'",
                    "SET sql_mode='TRADITIONAL'",
                ],
            ),
            _ => {
                self.time += rng.u64(1..1000);
                return Statement::new(format!("SET timestamp={}", self.time));
            }
        };
        Statement::new(sql)
    }

    /// What is looked at in the end: all that lasts.
    pub fn checks(&self) -> Vec<Statement> {
        let mut checks = vec![
            Statement::new("UNLOCK TABLES"),
            Statement::new("COMMIT"),
            Statement::new(
                "SELECT TABLE_NAME, TABLE_TYPE, AUTO_INCREMENT, TABLE_COLLATION, CREATE_OPTIONS, TABLE_COMMENT \
                 FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_SCHEMA = DATABASE() ORDER BY 1",
            )
            .rule(Rule::Shown),
        ];
        if self.logs {
            checks.push(Statement::new(format!("SELECT * FROM {}", rare::LOG)));
        }
        for table in &self.tables {
            checks.extend(checks_of(table));
        }
        checks
    }
}

/// The rows of a table, what it looks like, and whether it is sound.
fn checks_of(table: &Table) -> Vec<Statement> {
    let name = &table.name;
    let invisible = table.columns.iter().filter(|column| column.invisible);
    let invisible: String = invisible
        .map(|column| format!(", {}", column.name))
        .collect();
    let mut checks = vec![
        Statement::new(format!("SELECT *{invisible} FROM {name}")),
        Statement::new(format!("SHOW CREATE TABLE {name}")).rule(Rule::Shown),
        Statement::new(format!("CHECK TABLE {name} EXTENDED")).rule(Rule::Checked),
    ];
    if table.versioned {
        let all = format!("SELECT *, row_start, row_end FROM {name} FOR SYSTEM_TIME ALL");
        checks.push(Statement::new(all));
    }
    checks
}

/// A part in some of the cases.
fn sometimes(rng: &mut Rng, n: u32, part: impl Into<Part>) -> Part {
    match one_in(rng, n) {
        true => may(part),
        false => text(""),
    }
}
