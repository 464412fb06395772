//! One server with two schemas, one for each engine, and a connection to each.
//!
//! A statement goes to both at once; then both answers are awaited. Where an answer names the schema or the
//! engine, it is made alike.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use varve_testbed::client::{Answer, Client, SqlError};
use varve_testbed::plugin;
use varve_testbed::prefix::Prefix;
use varve_testbed::server::{DataDir, Engine, Server};
use varve_testbed::workspace::{Workspace, remove_dir};

use crate::draw::{Rule, Statement};
use crate::sql::SIDE;

/// What a statement came to, as it is compared.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Done {
        answer: Answer,
        warnings: Vec<String>,
    },
    Failed {
        code: u16,
        message: String,
        warnings: Vec<String>,
    },
}

impl Outcome {
    pub fn succeeded(&self) -> bool {
        matches!(self, Outcome::Done { .. })
    }
}

pub const ENGINES: [Engine; 2] = [Engine::Varve, Engine::Innodb];

/// Of equal length, so that nothing is longer on one side.
pub fn schema(engine: Engine) -> &'static str {
    match engine {
        Engine::Varve => "side_v",
        Engine::Innodb => "side_i",
    }
}

pub struct Side {
    client: Client,
    engine: Engine,
    /// The server's number of the connection.
    pub id: String,
}

impl Side {
    fn open(server: &Server, engine: Engine) -> Result<Side> {
        let mut client = server.connect()?;
        let id = client.value("SELECT CONNECTION_ID()")?;
        Ok(Side { client, engine, id })
    }

    fn receive(&mut self, rule: Rule) -> Result<Outcome> {
        let outcome = match self.client.receive() {
            Ok(answer) => Outcome::Done {
                answer: self.shown(answer, rule),
                warnings: Vec::new(),
            },
            Err(SqlError::Server { code, message }) => Outcome::Failed {
                code,
                message: alike(&message),
                warnings: Vec::new(),
            },
            Err(error @ SqlError::Lost(_)) => return Err(error.into()),
        };
        Ok(outcome)
    }

    fn shown(&self, mut answer: Answer, rule: Rule) -> Answer {
        let Some(rows) = &mut answer.rows else {
            return answer;
        };
        match rule {
            Rule::Ordered => {}
            Rule::Set => rows.sort(),
            Rule::Shown | Rule::Checked => {
                for value in rows.iter_mut().flatten().flatten() {
                    *value = alike(&String::from_utf8_lossy(value)).into_bytes();
                }
            }
        }
        if rule == Rule::Checked {
            rows.retain(|row| !is_left_out(row));
        }
        answer
    }

    fn warnings(&mut self) -> Result<Vec<String>> {
        let rows = self.client.query("SHOW WARNINGS")?;
        let line = |row: Vec<Option<String>>| {
            alike(&row.into_iter().flatten().collect::<Vec<_>>().join(" "))
        };
        Ok(rows.into_iter().map(line).collect())
    }
}

/// What `CHECK TABLE` says about rows without parents, of which InnoDB says nothing, and what is said when
/// virtual columns are computed, as InnoDB has it done there.
fn is_left_out(row: &[Option<Vec<u8>>]) -> bool {
    let text = row.last().and_then(Option::as_deref).unwrap_or_default();
    let starts: [&[u8]; 3] = [
        b"ENGINE: foreign key ",
        b"Truncated incorrect ",
        b"Incorrect datetime value: ",
    ];
    starts.iter().any(|start| text.starts_with(start))
}

/// Names of schemas and engines made alike.
pub fn alike(text: &str) -> String {
    let mut text = text.to_string();
    // The last two are these names as the binary log has those of XA transactions.
    for name in ["side_v", "side_i", "736964655f76", "736964655f69"] {
        text = text.replace(name, "side");
    }
    for name in ["InnoDB", "INNODB", "VARVE", "Varve"] {
        text = text.replace(name, "ENGINE");
    }
    without_numbers(&text)
}

/// How many rows had been looked at, and whether they were put aside in a temporary table, is the optimizer's
/// affair.
fn without_row(message: &str) -> String {
    let said = message
        .rsplit_once(" at row ")
        .map_or(message, |(said, _)| said);
    match (said.split_once(" for column `"), said.rsplit_once(".`")) {
        (Some((said, _)), Some((_, column))) => format!("{said} for column `{column}"),
        _ => said.into(),
    }
}

/// Names of tables that ALTER makes, and of temporary ones, have the connection's number in them.
fn without_numbers(text: &str) -> String {
    let mut made = text.to_string();
    for start in ["#sql-alter-", "#sql-temptable-"] {
        let mut pieces = made.split(start);
        let mut without = pieces.next().unwrap_or("").to_string();
        for piece in pieces {
            without += start;
            without += piece.trim_start_matches(|c: char| c.is_ascii_hexdigit() || c == '-');
        }
        made = without;
    }
    made
}

pub struct Pair {
    workspace: Workspace,
    pub prefix: Prefix,
    options: Vec<String>,
    pub server: Server,
    pub sides: [Side; 2],
}

const OPTIONS: [&str; 15] = [
    "--plugin-load-add=ha_varve",
    "--log-bin=binary",
    "--binlog-format=ROW",
    "--sync-binlog=0",
    "--innodb-flush-log-at-trx-commit=0",
    "--varve-flush-log-at-trx-commit=0",
    // Old views read from the history store at once.
    "--varve-history-store-delay=0",
    "--innodb-buffer-pool-size=64M",
    "--varve-buffer-pool-size=64M",
    "--innodb-file-per-table=1",
    "--innodb-fast-shutdown=2",
    "--innodb-stats-persistent=0",
    "--character-set-server=utf8mb4",
    "--max-allowed-packet=16M",
    "--skip-name-resolve",
];

impl Pair {
    pub fn start(workspace: Workspace, autoinc_lock_mode: u64) -> Result<Pair> {
        let prefix = plugin::prefix_for(&workspace, &ENGINES)?;
        let mut options: Vec<String> = OPTIONS.map(String::from).into();
        for engine in ["innodb", "varve"] {
            options.push(format!("--{engine}-autoinc-lock-mode={autoinc_lock_mode}"));
        }
        let server = start(&workspace, &prefix, &options)?;
        let sides = open(&server)?;
        Ok(Pair {
            workspace,
            prefix,
            options,
            server,
            sides,
        })
    }

    /// A new server, after the old one has died.
    pub fn restart(&mut self) -> Result<()> {
        self.server.kill()?;
        self.server = start(&self.workspace, &self.prefix, &self.options)?;
        self.sides = open(&self.server)?;
        Ok(())
    }

    pub fn stop(mut self) -> Result<()> {
        let dir = self.server.datadir.0.clone();
        self.server.stop()?;
        remove_dir(&dir)
    }

    /// Empty schemas, new connections, an empty binary log.
    pub fn reset(&mut self) -> Result<()> {
        for side in &mut self.sides {
            let schema = schema(side.engine);
            // One may be left if the statements that would have ended it were left out.
            for end in ["END", "ROLLBACK"] {
                let _ = side.client.query(&format!("XA {end} '{schema}'"));
            }
            side.client.reset()?;
            for sql in [
                "SET foreign_key_checks=0".to_string(),
                format!("DROP DATABASE IF EXISTS {schema}"),
                format!("CREATE DATABASE {schema} COLLATE utf8mb4_general_ci"),
                format!("USE {schema}"),
                format!("SET default_storage_engine={}", side.engine.name()),
                "SET foreign_key_checks=1, timestamp=1700000000, time_zone='+00:00'".into(),
                "SET lock_wait_timeout=2, innodb_lock_wait_timeout=2, varve_lock_wait_timeout=2"
                    .into(),
            ] {
                side.client.query(&sql).with_context(|| sql.clone())?;
            }
        }
        self.sides[0].client.query("RESET MASTER")?;
        Ok(())
    }

    /// Runs a statement on both sides.
    pub fn run(&mut self, statement: &Statement) -> Result<[Outcome; 2]> {
        let sql = statement.part.render();
        for side in &mut self.sides {
            side.client.send(&sql.replace(SIDE, schema(side.engine)))?;
        }
        let [varve, innodb] = &mut self.sides;
        let counts_rows = sql.contains("SELECT ") || sql.starts_with("UPDATE");
        let mut outcomes = [
            varve.receive(statement.rule)?,
            innodb.receive(statement.rule)?,
        ];
        let wants = |outcome: &Outcome| match outcome {
            Outcome::Done { answer, .. } => answer.warnings > 0,
            Outcome::Failed { .. } => true,
        };
        if outcomes.iter().any(wants) {
            for (side, outcome) in self.sides.iter_mut().zip(&mut outcomes) {
                let (Outcome::Done { warnings, .. } | Outcome::Failed { warnings, .. }) =
                    &mut *outcome;
                *warnings = side.warnings()?;
                if counts_rows {
                    warnings
                        .iter_mut()
                        .for_each(|line| *line = without_row(line));
                    // In which order rows come that are put aside first is not certain.
                    warnings.sort();
                }
                if let (Outcome::Failed { message, .. }, true) = (&mut *outcome, counts_rows) {
                    *message = without_row(message);
                }
            }
        }
        Ok(outcomes)
    }

    /// The file of the binary log since the last reset.
    pub fn binary_log(&self) -> std::path::PathBuf {
        self.server.datadir.0.join("binary.000001")
    }
}

fn open(server: &Server) -> Result<[Side; 2]> {
    let [varve, innodb] = ENGINES;
    Ok([Side::open(server, varve)?, Side::open(server, innodb)?])
}

/// In memory if the system has a place there: nothing here has to last.
fn directory(workspace: &Workspace) -> PathBuf {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => memory.join(format!("varve-random-sql-{}", std::process::id())),
        false => workspace.target.join("random-sql"),
    }
}

fn start(workspace: &Workspace, prefix: &Prefix, options: &[String]) -> Result<Server> {
    let dir = directory(workspace);
    remove_dir(&dir)?;
    fs::create_dir_all(&dir)?;
    DataDir(dir.clone()).initialise(prefix)?;
    let server = Server::start(prefix, DataDir(dir), None, options)?;
    let mut client = server.connect()?;
    let engines =
        client.query("SELECT ENGINE FROM INFORMATION_SCHEMA.ENGINES WHERE SUPPORT <> 'NO'")?;
    for engine in ENGINES {
        let is_there = |row: &Vec<Option<String>>| row[0].as_deref() == Some(engine.name());
        ensure!(
            engines.iter().any(is_there),
            "the server has no {}",
            engine.name()
        );
    }
    Ok(server)
}
