//! `bench estimates`: how far off the optimizer's numbers of rows are, of columns whose values are skewed,
//! lie in runs, or depend on each other. Beside what there is stands what EXPLAIN says with each engine.
//! Statistics are taken anew for each repetition, as they are samples; an error is a factor, in either
//! direction.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{BenchServer, Benchmark, Common, TABLES_IN_POOL};
use crate::stats::{Runs, Spread, median};
use crate::sysbench::Sysbench;
use crate::table::{Cell, Table, figures_to_json};

#[derive(clap::Args)]
pub struct EstimatesArgs {
    /// Rows of the table
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(10_000..))]
    rows: u64,
    /// Take statistics so many times; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    #[command(flatten)]
    common: Common,
}

/// Columns, each with an index of its own, what is in them and what the values look like. `{n}`: the rows.
const COLUMNS: [(&str, &str); 8] = [
    // A thousand values, each as often as the others, in no order.
    ("even", "FLOOR(RAND(1) * 1000)"),
    // As many rows have values of 1 to 9 as of 10 to 99, and so on.
    ("skewed", "FLOOR(POW({n}, RAND(2)))"),
    // Every second row has the same value, all others one of their own.
    ("half", "IF(seq % 2, 0, seq)"),
    // Fifty rows that lie side by side have the same value.
    ("run", "seq DIV 50"),
    // Runs of 1 to 2,000 rows.
    ("ragged", "FLOOR(SQRT(seq))"),
    // One row in a hundred has a value.
    ("seldom", "IF(seq % 100, NULL, seq)"),
    ("street", "seq * 7919 % 10000"),
    // Each street is in one town.
    ("town", "seq * 7919 % 10000 DIV 100"),
];
const OF_TWO: (&str, &str) = ("town_street", "town, street");

/// What is asked for: the index, by which EXPLAIN is to count, and a condition.
const QUESTIONS: [(&str, &str); 30] = [
    ("even", "even = 500"),
    ("even", "even BETWEEN 500 AND 504"),
    ("even", "even < 300"),
    ("even", "even IN (1, 50, 500, 777)"),
    ("even", "even = 1000"),
    ("skewed", "skewed = 1"),
    ("skewed", "skewed = 10"),
    ("skewed", "skewed = 1000"),
    ("skewed", "skewed BETWEEN 100 AND 999"),
    ("skewed", "skewed > 100000"),
    ("skewed", "skewed IN (1, 100, 10000)"),
    ("half", "half = 0"),
    ("half", "half = 5000"),
    ("half", "half BETWEEN 1 AND 5000"),
    ("half", "half > 5000"),
    ("run", "run = 100"),
    ("run", "run BETWEEN 50 AND 99"),
    ("run", "run > 100"),
    ("ragged", "ragged = 10"),
    ("ragged", "ragged = 90"),
    ("ragged", "ragged BETWEEN 20 AND 80"),
    ("seldom", "seldom IS NULL"),
    ("seldom", "seldom IS NOT NULL"),
    ("seldom", "seldom < 5000"),
    ("town_street", "town = 50"),
    ("town_street", "town = 50 AND street = 5050"),
    ("town_street", "town = 50 AND street = 4050"),
    ("town_street", "town = 50 AND street BETWEEN 5010 AND 5019"),
    ("town_street", "town BETWEEN 10 AND 19 AND street > 1500"),
    ("PRIMARY", "id BETWEEN 5000 AND 5999"),
];
/// Rows of each value: the index, how many of its columns count, and which those are.
const AVERAGES: [(&str, usize, &str); 8] = [
    ("even", 1, "even"),
    ("skewed", 1, "skewed"),
    ("half", 1, "half"),
    ("run", 1, "run"),
    ("ragged", 1, "ragged"),
    ("seldom", 1, "seldom"),
    ("town_street", 1, "town"),
    ("town_street", 2, "town, street"),
];

/// What an engine says, question by question, and then of each average.
type Figures = [f64; ALL];
const ALL: usize = QUESTIONS.len() + AVERAGES.len();

fn names() -> impl Iterator<Item = String> {
    let questions = QUESTIONS.iter().map(|(_, condition)| (*condition).into());
    let averages = (AVERAGES.iter()).map(|(_, _, columns)| format!("rows of each ({columns})"));
    questions.chain(averages)
}

pub fn run(workspace: &Workspace, args: &EstimatesArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "estimates", &args.common)?;
    let mut server = benchmark.server(&TABLES_IN_POOL)?;
    let databases = server.databases(1, args.rows);
    let there = server.each(&databases, fill)?;
    ensure!(
        there.windows(2).all(|two| two[0] == two[1]),
        "the engines have other rows"
    );
    let there = there[0];
    let runs = server.in_turn(&databases, args.repeat as usize, |_, database| {
        estimate(database)
    })?;
    server.end()?;
    let engines = &args.common.engines;
    if !args.common.json {
        print(&there, &runs, args);
    }
    let rows: Vec<_> = names().zip(there).collect();
    benchmark.end(json!({
        "rows": args.rows, "settings": TABLES_IN_POOL, "there": rows,
        "results": figures_to_json(&runs, engines, names()),
    }));
    Ok(())
}

/// Fills the table, and counts what there is.
fn fill(_: &BenchServer<'_>, database: &Sysbench<'_>) -> Result<Figures> {
    let mut client = database.begin_anew()?;
    let (engine, n) = (database.engine.name(), database.rows);
    let column = |(name, _): &(&str, &str)| format!("{name} INT, KEY {name} ({name}), ");
    let columns: String = COLUMNS.iter().map(column).collect();
    let values: Vec<String> = (COLUMNS.iter())
        .map(|(_, value)| value.replace("{n}", &n.to_string()))
        .collect();
    let (of_two, both) = OF_TWO;
    client.query(&format!(
        "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, {columns}pad CHAR(60) NOT NULL, \
         KEY {of_two} ({both})) ENGINE={engine} CHARACTER SET latin1"
    ))?;
    client.query(&format!(
        "INSERT INTO t SELECT seq, {}, MD5(seq) FROM seq_1_to_{n}",
        values.join(", ")
    ))?;
    let mut there = [0.0; ALL];
    let (questions, averages) = there.split_at_mut(QUESTIONS.len());
    for (count, (index, condition)) in questions.iter_mut().zip(QUESTIONS) {
        let sql = format!("SELECT COUNT(*) FROM t FORCE INDEX ({index}) WHERE {condition}");
        *count = client.value(&sql)?.parse()?;
    }
    for (average, (_, _, columns)) in averages.iter_mut().zip(AVERAGES) {
        // A value finds no NULL.
        let values = "SELECT COUNT(*) / COUNT(DISTINCT {columns}) FROM t WHERE CONCAT({columns}) IS NOT NULL";
        *average = client
            .value(&values.replace("{columns}", columns))?
            .parse()?;
    }
    Ok(there)
}

fn estimate(database: &Sysbench<'_>) -> Result<Figures> {
    let mut client = database.connect()?;
    let analyzed = client.query("ANALYZE TABLE t")?;
    let told = analyzed.last().and_then(|row| row[3].as_deref());
    ensure!(told == Some("OK"), "ANALYZE TABLE: {analyzed:?}");
    client.query("FLUSH TABLES")?;
    let mut said = [0.0; ALL];
    let (questions, averages) = said.split_at_mut(QUESTIONS.len());
    for (estimate, (index, condition)) in questions.iter_mut().zip(QUESTIONS) {
        let sql =
            format!("EXPLAIN SELECT COUNT(pad) FROM t FORCE INDEX ({index}) WHERE {condition}");
        let answer = client.query(&sql)?;
        let rows = answer.first().and_then(|row| row.get(8)?.as_deref());
        *estimate = match rows {
            Some(rows) => rows.parse()?,
            // The optimizer knows that there are none.
            None => 0.0,
        };
    }
    for (average, (index, columns, _)) in averages.iter_mut().zip(AVERAGES) {
        let sql = format!(
            "SELECT t.TABLE_ROWS / NULLIF(s.CARDINALITY, 0) FROM information_schema.STATISTICS s \
             JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME) \
             WHERE TABLE_SCHEMA = DATABASE() AND INDEX_NAME = '{index}' AND SEQ_IN_INDEX = {columns}"
        );
        let said = client.value(&sql)?;
        *average = said.parse().with_context(|| format!("{index}: {said}"))?;
    }
    Ok(said)
}

/// By what factor `said` is off; less than a row counts as one.
fn error(there: f64, said: f64) -> f64 {
    let (there, said) = (there.max(1.0), said.max(1.0));
    (there / said).max(said / there)
}

fn print(there: &Figures, runs: &Runs<Figures>, args: &EstimatesArgs) {
    println!("{} rows, medians of {} samples", args.rows, args.repeat);
    let engines = &args.common.engines;
    let columns = |engine: &Engine| format!("{0}:>10|off (worst):>18|", engine.name());
    let columns: String = engines.iter().map(columns).collect();
    let columns = format!("rows where:<42|there:>10|{columns}");
    let table = Table::new(columns.trim_end_matches('|'));
    table.print_head();
    let of = |engine: usize, n: usize| runs.figures(engine, move |figures: &Figures| figures[n]);
    for (n, name) in names().enumerate() {
        let mut row = vec![Cell::from(name), Cell::of(there[n].round())];
        for engine in 0..engines.len() {
            let said = of(engine, n);
            let errors: Vec<f64> = said.iter().map(|said| error(there[n], *said)).collect();
            let errors = Spread::of(&errors);
            row.push(Cell::of(median(said).round()));
            row.push(format!("{:.2} ({:.2})", errors.median, errors.greatest).into());
        }
        table.print(row);
    }
    let mut row = vec![Cell::from("median and worst of all"), Cell::from("")];
    for engine in 0..engines.len() {
        let all =
            (0..there.len()).flat_map(|n| of(engine, n).into_iter().map(move |said| (n, said)));
        let errors: Vec<f64> = all.map(|(n, said)| error(there[n], said)).collect();
        let errors = Spread::of(&errors);
        row.push("".into());
        row.push(format!("{:.2} ({:.2})", errors.median, errors.greatest).into());
    }
    table.print(row);
}

#[cfg(test)]
mod tests {
    use super::error;

    #[test]
    fn an_error_is_a_factor() {
        assert_eq!(error(100.0, 50.0), 2.0);
        assert_eq!(error(50.0, 100.0), 2.0);
        assert_eq!(error(0.0, 1.0), 1.0);
        assert_eq!(error(0.0, 7.0), 7.0);
    }
}
