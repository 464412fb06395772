//! `bench sizes`: how many pages a table takes, by the order in which its rows come, and by how many clients;
//! and how many its indexes take, by how they were filled. The engines take turns in one server.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Result, ensure};
use fastrand::Rng;
use serde_json::json;
use varve_testbed::client::Client;
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{Benchmark, Common};
use crate::stats::ratio_text;
use crate::sysbench::Sysbench;
use crate::table::{Cell, Table};

#[derive(clap::Args)]
pub struct SizesArgs {
    /// Rows of each table
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1000..))]
    rows: u32,
    /// Only the indexes
    #[arg(long)]
    only_indexes: bool,
    #[command(flatten)]
    common: Common,
}

/// Nothing here is about waiting for disks.
const SETTINGS: [&str; 3] = [
    "buffer-pool-size=512M",
    "log-file-size=512M",
    "flush-log-at-trx-commit=0",
];
const COLUMNS: &str =
    "g INT NOT NULL, i INT NOT NULL, note VARCHAR(250) NOT NULL, PRIMARY KEY (g, i)";
const PAGE_BYTES: u64 = 16 << 10;

/// What a statement does to rows, which have a group and a number in it.
#[derive(Clone)]
enum Statement {
    Insert(Vec<(u32, u32)>),
    /// These rows of the group get eight bytes longer.
    Grow(u32, Range<u32>),
}

use Statement::{Grow, Insert};

impl Statement {
    fn of_run(group: u32, run: Range<u32>) -> Self {
        Insert(run.map(|i| (group, i)).collect())
    }

    fn sql(&self) -> String {
        match self {
            Insert(rows) => {
                let mut sql = String::from("INSERT INTO t VALUES ");
                for (n, (g, i)) in rows.iter().enumerate() {
                    let comma = if n == 0 { "" } else { "," };
                    let len = 100 + (g * 31 + i * 7) % 100;
                    write!(sql, "{comma}({g},{i},REPEAT('n',{len}))").expect("a string takes it");
                }
                sql
            }
            Grow(g, rows) => {
                let (first, end) = (rows.start, rows.end);
                format!(
                    "UPDATE t SET note = CONCAT(note, ' changed') WHERE g = {g} AND i >= {first} AND i < {end}"
                )
            }
        }
    }
}

/// Who inserts what. Each client takes the next statement of his queue when he is done with the one before.
struct Case {
    name: String,
    queues: Vec<VecDeque<Statement>>,
    clients: usize,
}

impl Case {
    fn of(name: impl ToString, queues: Vec<Vec<Statement>>) -> Self {
        Self {
            name: name.to_string(),
            clients: queues.len(),
            queues: queues.into_iter().map(VecDeque::from).collect(),
        }
    }

    /// Fills a table with these rows. Returns how many pages it has.
    fn measure(&self, database: &Sysbench<'_>) -> Result<f64> {
        let mut client = database.begin_anew()?;
        let (name, engine) = (&database.database, database.engine);
        client.query(&format!(
            "CREATE TABLE t ({COLUMNS}) ENGINE={} CHARACTER SET latin1",
            engine.name()
        ))?;
        let queues: Vec<_> = self.queues.iter().cloned().map(Mutex::new).collect();
        let work = |n: usize| work(&database.socket, name, &queues[n % queues.len()]);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..self.clients)
                .map(|n| scope.spawn(move || work(n)))
                .collect();
            let mut ends = clients.into_iter().map(|client| client.join());
            ends.try_for_each(|end| end.expect("it does not panic"))
        })?;
        let rows = client.value("SELECT COUNT(*) FROM t")?;
        ensure!(
            rows == self.rows().to_string(),
            "{rows} rows, {}",
            self.name
        );
        let pages = pages(&mut client, name, engine, Part::Rows)?;
        client.query(&format!("DROP DATABASE {name}"))?;
        Ok(pages)
    }

    fn rows(&self) -> usize {
        let rows = |statement: &Statement| match statement {
            Insert(rows) => rows.len(),
            Grow(..) => 0,
        };
        self.queues.iter().flatten().map(rows).sum()
    }
}

fn work(socket: &Path, database: &str, queue: &Mutex<VecDeque<Statement>>) -> Result<()> {
    let mut client = Client::connect(socket)?;
    client.query(&format!("USE {database}"))?;
    // Who panics takes no statement.
    let next = || {
        queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    };
    while let Some(statement) = next() {
        client.query(&statement.sql())?;
    }
    Ok(())
}

/// What of a table is measured.
#[derive(Clone, Copy)]
enum Part {
    Rows,
    /// But the primary key.
    Indexes,
}

/// Pages of a part of the table: of InnoDB its leaves, of Varve all that its file has in use.
fn pages(client: &mut Client, database: &str, engine: Engine, part: Part) -> Result<f64> {
    client.query("ANALYZE TABLE t")?;
    let (is_primary, length) = match part {
        Part::Rows => ("=", "DATA_LENGTH"),
        Part::Indexes => ("!=", "INDEX_LENGTH"),
    };
    let pages = match engine {
        Engine::Innodb => client.value(&format!(
            "SELECT SUM(stat_value) FROM mysql.innodb_index_stats WHERE database_name = '{database}' AND \
             table_name = 't' AND index_name {is_primary} 'PRIMARY' AND stat_name = 'n_leaf_pages'"
        ))?,
        _ => client.value(&format!(
            "SELECT {length} / {PAGE_BYTES} FROM information_schema.tables WHERE \
             table_schema = '{database}' AND table_name = 't'"
        ))?,
    };
    Ok(pages.parse()?)
}

/// Rows of so many groups in turn, so many a statement.
fn in_turn(rows: u32, groups: Range<u32>, of: u32, batch: u32) -> Vec<Statement> {
    let each = rows / of;
    let rounds = (0..each).step_by(batch as usize);
    let round = |first: u32| {
        let run = first..(first + batch).min(each);
        groups
            .clone()
            .map(move |g| Statement::of_run(g, run.clone()))
    };
    rounds.flat_map(round).collect()
}

/// The same by two clients, each of whom has half of the groups.
fn in_turn_by_two(rows: u32, groups: u32, batch: u32) -> Vec<Vec<Statement>> {
    let half = groups / 2;
    let halves = [0..half, half..groups];
    halves.map(|some| in_turn(rows, some, groups, batch)).into()
}

/// Each of two clients fills one of four groups after the other, as warehouses' stock is loaded.
fn group_after_group(rows: u32) -> Vec<Vec<Statement>> {
    let of = |first: u32| {
        let groups = (first..4).step_by(2);
        groups
            .flat_map(|g| in_turn(rows, g..g + 1, 4, 500))
            .collect()
    };
    vec![of(0), of(1)]
}

/// Orders of 5 to 15 lines, each in a group drawn at random of ten. If they grow, each group's orders do so
/// one after the other, so many behind its last one.
fn order_lines(rng: &mut Rng, rows: u32, lag: Option<usize>) -> Vec<Statement> {
    let (mut ends, mut orders) = ([0; 10], vec![Vec::new(); 10]);
    let (mut delivered, mut statements) = ([0; 10], Vec::new());
    let mut left = rows;
    while left > 0 {
        let g = rng.usize(0..10);
        let lines = ends[g]..ends[g] + rng.u32(5..=15).min(left);
        left -= lines.end - lines.start;
        ends[g] = lines.end;
        statements.push(Statement::of_run(g as u32, lines.clone()));
        orders[g].push(lines);
        let g = rng.usize(0..10);
        if let Some(lag) = lag
            && delivered[g] + lag < orders[g].len()
        {
            statements.push(Grow(g as u32, orders[g][delivered[g]].clone()));
            delivered[g] += 1;
        }
    }
    statements
}

fn at_random(rng: &mut Rng, rows: u32) -> Vec<Statement> {
    let mut numbers: Vec<u32> = (0..rows).collect();
    rng.shuffle(&mut numbers);
    let statement = |some: &[u32]| Insert(some.iter().map(|i| (0, *i)).collect());
    numbers.chunks(100).map(statement).collect()
}

fn downward(rows: u32) -> Vec<Statement> {
    (0..rows).rev().map(|i| Insert(vec![(0, i)])).collect()
}

fn then_grow(mut statements: Vec<Statement>, rows: u32) -> Vec<Statement> {
    let firsts = (0..rows).step_by(100);
    statements.extend(firsts.map(|first| Grow(0, first..(first + 100).min(rows))));
    statements
}

fn cases(rows: u32) -> Vec<Case> {
    let rng = &mut Rng::with_seed(3);
    let one_run = || in_turn(rows, 0..1, 1, 100);
    let mut cases = vec![
        Case::of("one run", vec![one_run()]),
        Case::of("one run downward", vec![downward(rows)]),
        Case::of("at random", vec![at_random(rng, rows)]),
    ];
    for (groups, batch) in [(4, 10), (4, 100), (16, 10), (100, 10)] {
        let name = format!("{groups} runs in turn, {batch} rows a statement");
        cases.push(Case::of(
            &name,
            vec![in_turn(rows, 0..groups, groups, batch)],
        ));
        let name = format!("{name}, 2 clients");
        cases.push(Case::of(name, in_turn_by_two(rows, groups, batch)));
    }
    let name = "4 runs one after the other, 500 rows, 2 clients";
    cases.push(Case::of(name, group_after_group(rows)));
    for (clients, batch) in [(2, 20), (16, 1), (16, 20), (16, 500)] {
        let name = format!("a counter, {batch} rows a statement, {clients} clients");
        let queue = in_turn(rows, 0..1, 1, batch);
        cases.push(Case {
            clients,
            ..Case::of(name, vec![queue])
        });
    }
    cases.extend([
        Case::of("order lines", vec![order_lines(rng, rows, None)]),
        Case::of(
            "order lines that grow",
            vec![order_lines(rng, rows, Some(30))],
        ),
        Case::of("one run, then all grow", vec![then_grow(one_run(), rows)]),
        Case::of(
            "at random, then all grow",
            vec![then_grow(at_random(rng, rows), rows)],
        ),
    ]);
    cases
}

/// A table whose indexes are measured: of a number that comes in no order, of one that ascends, and of texts.
const INDEXED: &str =
    "i INT NOT NULL PRIMARY KEY, k INT NOT NULL, d INT NOT NULL, s VARCHAR(20) NOT NULL";
const INDEXES: [&str; 3] = ["INDEX (k)", "INDEX (d)", "INDEX (s)"];

/// How the indexes come to be: what is asked before they are measured.
struct IndexCase {
    name: &'static str,
    made: Made,
    statements: Vec<String>,
}

/// When the indexes are made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    WithTable,
    OfRows,
}

fn indexed_row(i: u32) -> String {
    // No two rows that lie side by side have neighbouring numbers.
    let k = i.wrapping_mul(0x9e37_79b1) >> 4;
    format!("({i},{k},{i},'name {}')", k % 1_000_000)
}

fn index_cases(rows: u32) -> Vec<IndexCase> {
    let rng = &mut Rng::with_seed(5);
    let ascending: Vec<u32> = (0..rows).collect();
    let mut shuffled = ascending.clone();
    rng.shuffle(&mut shuffled);
    let insert = |some: &[u32]| {
        let rows: Vec<_> = some.iter().map(|&i| indexed_row(i)).collect();
        format!("INSERT INTO t VALUES {}", rows.join(","))
    };
    let in_tens = |order: &[u32]| -> Vec<String> { order.chunks(10).map(insert).collect() };
    let at_once = |order: &[u32]| -> Vec<String> {
        let mut statements: Vec<_> = order.chunks(1000).map(insert).collect();
        statements.insert(0, "BEGIN".into());
        statements.push("COMMIT".into());
        statements
    };
    let changes = (0..rows).map(|_| {
        let (i, k) = (rng.u32(0..rows), rng.u32(0..1 << 28));
        format!("UPDATE t SET k = {k} WHERE i = {i}")
    });
    let changed = [in_tens(&ascending), changes.collect()].concat();
    let case = |name, made, statements| IndexCase {
        name,
        made,
        statements,
    };
    vec![
        case(
            "indexes: rows in order, 10 a statement",
            Made::WithTable,
            in_tens(&ascending),
        ),
        case(
            "indexes: at random, 10 a statement",
            Made::WithTable,
            in_tens(&shuffled),
        ),
        case(
            "indexes: one transaction",
            Made::WithTable,
            at_once(&ascending),
        ),
        case(
            "indexes: as many updates of one as rows",
            Made::WithTable,
            changed,
        ),
        case(
            "indexes: made of the rows that are there",
            Made::OfRows,
            in_tens(&ascending),
        ),
    ]
}

impl IndexCase {
    /// Fills a table so. Returns how many pages its indexes have, without the primary key.
    fn measure(&self, database: &Sysbench<'_>) -> Result<f64> {
        let mut client = database.begin_anew()?;
        let (name, engine) = (&database.database, database.engine);
        let indexes = INDEXES.join(", ");
        let columns = match self.made {
            Made::WithTable => format!("{INDEXED}, {indexes}"),
            Made::OfRows => INDEXED.into(),
        };
        client.query(&format!(
            "CREATE TABLE t ({columns}) ENGINE={} CHARACTER SET latin1",
            engine.name()
        ))?;
        for statement in &self.statements {
            client.query(statement)?;
        }
        if self.made == Made::OfRows {
            client.query(&format!("ALTER TABLE t ADD {}", INDEXES.join(", ADD ")))?;
        }
        let pages = pages(&mut client, name, engine, Part::Indexes)?;
        client.query(&format!("DROP DATABASE {name}"))?;
        Ok(pages)
    }
}

pub fn run(workspace: &Workspace, args: &SizesArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "sizes", &args.common)?;
    let mut server = benchmark.server(&SETTINGS)?;
    let databases = server.databases(1, args.rows.into());
    let columns = databases.iter().map(|d| format!("{}:>9|", d.engine.name()));
    let table = Table::new(&format!(
        "pages:<60|{}ratio:>6",
        columns.collect::<String>()
    ));
    if !args.common.json {
        println!("{} rows", args.rows);
        table.print_head();
    }
    let mut results = Vec::new();
    let mut tell = |name: &str, pages: Vec<f64>| {
        if !args.common.json {
            let mut cells: Vec<Cell> = vec![name.into()];
            cells.extend(pages.iter().map(|pages| Cell::from(*pages)));
            let ratio = (pages.len() == 2).then(|| pages[0] / pages[1]);
            cells.push(ratio_text(ratio).into());
            table.print(cells);
        }
        results.push(json!({ "case": name, "pages": pages }));
    };
    if !args.only_indexes {
        for case in cases(args.rows) {
            let pages = server.each(&databases, |_, database| case.measure(database))?;
            tell(&case.name, pages);
        }
    }
    for case in index_cases(args.rows) {
        let pages = server.each(&databases, |_, database| case.measure(database))?;
        tell(case.name, pages);
    }
    server.end()?;
    benchmark.end(json!({ "rows": args.rows, "settings": SETTINGS, "results": results }));
    Ok(())
}
