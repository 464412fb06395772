//! Scripts for several sessions: small tables, and statements that meet on their rows.
//!
//! Which rows a statement locks depends on the index by which it comes to them, so each statement leaves no
//! choice: it names the index, or there is but one that serves.

use fastrand::Rng;

use crate::types::{any, one_in};

#[derive(Clone, Debug)]
pub struct Step {
    pub session: usize,
    pub sql: String,
}

#[derive(Clone, Debug)]
pub struct Script {
    pub levels: Vec<&'static str>,
    pub tables: Vec<String>,
    pub steps: Vec<Step>,
}

const LEVELS: [&str; 6] = [
    "READ UNCOMMITTED",
    "READ COMMITTED",
    "READ COMMITTED",
    "REPEATABLE READ",
    "REPEATABLE READ",
    "SERIALIZABLE",
];

/// Statements of a script, but for the ends of its transactions.
const STEPS: std::ops::Range<usize> = 6..24;

pub fn draw(seed: u64) -> Script {
    let rng = &mut Rng::with_seed(seed);
    let sessions = rng.usize(2..4);
    let one_level = *any(rng, &LEVELS);
    let same = rng.bool();
    let level = |rng: &mut Rng| if same { one_level } else { *any(rng, &LEVELS) };
    let levels: Vec<_> = (0..sessions).map(|_| level(rng)).collect();
    let tables = tables(rng);
    let mut steps = Vec::new();
    let mut begun = vec![false; sessions];
    for _ in 0..rng.usize(STEPS) {
        let session = rng.usize(..sessions);
        let sql = match (begun[session], rng.u32(..10)) {
            (false, 0..8) => {
                begun[session] = true;
                "BEGIN".to_string()
            }
            (true, 0) => {
                begun[session] = false;
                any(rng, &["COMMIT", "COMMIT", "ROLLBACK"]).to_string()
            }
            (true, 1) if one_in(rng, 2) => any(rng, &["SAVEPOINT s", "ROLLBACK TO s"]).to_string(),
            _ => statement(rng, levels[session] == "READ UNCOMMITTED"),
        };
        steps.push(Step { session, sql });
    }
    Script {
        levels,
        tables,
        steps,
    }
}

/// `p` is a parent of `c`; both have a unique and a plain index.
fn tables(rng: &mut Rng) -> Vec<String> {
    let descending = *any(rng, &["", " DESC"]);
    let action = *any(
        rng,
        &[
            "",
            " ON DELETE CASCADE",
            " ON DELETE SET NULL",
            " ON UPDATE CASCADE ON DELETE CASCADE",
        ],
    );
    let rows = |rng: &mut Rng, row: fn(&mut Rng, u32) -> String| {
        let mut rows: Vec<String> = Vec::new();
        for n in 0..10 {
            if rng.bool() {
                rows.push(row(rng, n * 2));
            }
        }
        rows.push(row(rng, 21));
        rows.join(", ")
    };
    let parents = rows(rng, |rng, n| {
        format!("({n}, {}, {}, 0)", n + 100, rng.u32(..4))
    });
    let children = rows(rng, |rng, n| {
        format!("({n}, {}, {})", any(rng, &["NULL", "21"]), rng.u32(..4))
    });
    vec![
        format!(
            "CREATE TABLE p (id INT, u INT, k INT, v INT, PRIMARY KEY (id{descending}), UNIQUE KEY u (u), KEY k (k))"
        ),
        format!(
            "CREATE TABLE c (id INT PRIMARY KEY AUTO_INCREMENT, r INT, k INT, KEY r (r), KEY k (k), \
             FOREIGN KEY (r) REFERENCES p (id){action})"
        ),
        format!("INSERT INTO p VALUES {parents}"),
        format!("INSERT INTO c VALUES {children}"),
    ]
}

fn number(rng: &mut Rng) -> u32 {
    rng.u32(..23)
}

/// The index and a condition on its column.
fn place(rng: &mut Rng, table: &str) -> (&'static str, String) {
    let (index, column) = match (table, rng.u32(..4)) {
        (_, 0..2) => ("PRIMARY", "id"),
        ("p", 2) => ("u", "u"),
        ("c", 2) => ("r", "r"),
        _ => ("k", "k"),
    };
    let mut value = || match column {
        "u" => number(rng) + 100,
        "k" => rng.u32(..5),
        _ => number(rng),
    };
    let (low, high) = (value(), value());
    let condition = match rng.u32(..8) {
        0..4 => format!("{column} = {low}"),
        4 => format!("{column} BETWEEN {} AND {}", low.min(high), low.max(high)),
        5 => format!("{column} >= {low}"),
        6 => format!("{column} < {low}"),
        _ => format!("{column} IN ({low}, {high})"),
    };
    (index, condition)
}

fn statement(rng: &mut Rng, reads_uncommitted: bool) -> String {
    let table = *any(rng, &["p", "p", "c"]);
    let (index, condition) = place(rng, table);
    match rng.u32(..20) {
        0..6 => {
            let lock = *any(
                rng,
                &[
                    "",
                    "",
                    " LOCK IN SHARE MODE",
                    " FOR UPDATE",
                    " FOR UPDATE",
                    " FOR UPDATE NOWAIT",
                ],
            );
            let order = if one_in(rng, 4) {
                " ORDER BY id LIMIT 2"
            } else {
                ""
            };
            let index = if order.is_empty() { index } else { "PRIMARY" };
            format!("SELECT * FROM {table} FORCE INDEX ({index}) WHERE {condition}{order}{lock}")
        }
        6..10 => {
            let set = match (table, rng.u32(..4)) {
                ("p", 0) => format!("u = {}", number(rng) + 100),
                ("p", _) => "v = v + 1".to_string(),
                (_, 0..2) => format!("r = {}", number(rng)),
                _ => format!("k = {}", rng.u32(..5)),
            };
            format!("UPDATE {table} FORCE INDEX ({index}) SET {set} WHERE {condition}")
        }
        10..12 => {
            let column = if table == "p" { "u" } else { "k" };
            match rng.bool() {
                true => format!("DELETE FROM {table} WHERE id = {}", number(rng)),
                false => format!("DELETE FROM {table} WHERE {column} = {}", number(rng)),
            }
        }
        12 => format!(
            "UPDATE p SET id = {} WHERE id = {}",
            number(rng),
            number(rng)
        ),
        13..16 if table == "p" => {
            let verb = *any(rng, &["INSERT", "INSERT", "INSERT IGNORE", "REPLACE"]);
            let (id, u, k) = (number(rng), number(rng) + 100, rng.u32(..5));
            format!("{verb} INTO p VALUES ({id}, {u}, {k}, 1)")
        }
        16 => format!(
            "INSERT INTO p VALUES ({}, {}, 1, 1) ON DUPLICATE KEY UPDATE v = v + 10",
            number(rng),
            number(rng) + 100
        ),
        // Whether rows are read before the first one waits for its parent is the engine's affair.
        17 if !reads_uncommitted => format!(
            "INSERT INTO c (r, k) SELECT id, k FROM p FORCE INDEX (PRIMARY) WHERE id < {}",
            number(rng)
        ),
        _ => format!(
            "INSERT INTO c (r, k) VALUES ({}, {})",
            number(rng),
            rng.u32(..5)
        ),
    }
}
