//! The dashboard for Grafana and the alert rules in docs/monitoring ask for nothing that `/metrics` does not
//! give, and docs/pmm.md names nothing else: a panel whose metric was renamed stays empty, and an alert never
//! fires, without anybody being told.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use varve::{Database, Options};
use varve_monitor::{Monitor, MonitorOptions};

const DASHBOARD: &str = include_str!("../../../docs/monitoring/grafana.json");
const ALERTS: &str = include_str!("../../../docs/monitoring/alerts.yml");
/// Names metrics, and settings, which the other page has.
const PANELS: &str = include_str!("../../../docs/pmm.md");
const SETTINGS: &str = include_str!("../../../docs/mariadb.md");

/// What Prometheus adds to each sample.
const OWN_LABELS: [&str; 2] = ["instance", "job"];

/// What `/metrics` gives.
struct Given {
    /// The names of samples, and whether they are those of counters.
    samples: HashMap<String, bool>,
    labels: HashSet<String>,
}

impl Given {
    fn by_a_new_database() -> Given {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), Options::default()).unwrap();
        let monitor = Monitor::start(&db, MonitorOptions::new("127.0.0.1:0")).unwrap();
        let mut stream = TcpStream::connect(monitor.address()).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        monitor.stop();
        db.close().unwrap();
        assert!(answer.ends_with("# EOF\n"), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        Given::parse(body)
    }

    fn parse(text: &str) -> Given {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let names = samples.clone().map(|line| {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let family = name.strip_suffix("_total").unwrap_or(name);
            let is_counter = text.contains(&format!("# TYPE {family} counter\n"));
            (name.to_string(), is_counter)
        });
        let labels = samples.filter_map(|line| Some(line.split_once('{')?.1));
        let labels = labels.flat_map(|labels| {
            labels.match_indices("=\"").map(move |(at, _)| {
                let before = &labels[..at];
                let begin = before
                    .rfind(|c: char| !is_of_name(c))
                    .map_or(0, |at| at + 1);
                before[begin..].to_string()
            })
        });
        Given {
            samples: names.collect(),
            labels: labels.collect(),
        }
    }

    fn is_counter(&self, name: &str) -> bool {
        self.samples.get(name) == Some(&true)
    }

    /// What is wrong with an expression.
    fn objections(&self, expr: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (at, name) in metrics_in(expr) {
            match self.samples.get(name) {
                // A label that is called as its metric.
                None if self.labels.contains(name) => {}
                None => found.push(format!("{name} is no sample of /metrics")),
                Some(false) if is_speed(expr, at) => found.push(format!("{name} is no counter")),
                Some(_) => {}
            }
        }
        found
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The names of metrics in an expression, with their places.
fn metrics_in(expr: &str) -> Vec<(usize, &str)> {
    let begins = expr
        .match_indices("varve_")
        .filter(|(at, _)| !expr[..*at].ends_with(is_of_name));
    let whole = |at: usize| {
        let rest = &expr[at..];
        &rest[..rest.find(|c: char| !is_of_name(c)).unwrap_or(rest.len())]
    };
    begins.map(|(at, _)| (at, whole(at))).collect()
}

/// Whether the metric at this place is one of which the growth is asked for.
fn is_speed(expr: &str, at: usize) -> bool {
    ["rate(", "increase("]
        .iter()
        .any(|function| expr[..at].ends_with(function))
}

/// The panels, those of collapsed rows, too.
fn panels(of: &Value) -> Vec<&Value> {
    let listed = of["panels"].as_array().into_iter().flatten();
    listed
        .flat_map(|panel| [vec![panel], panels(panel)].concat())
        .collect()
}

fn text(of: &Value) -> &str {
    of.as_str().unwrap_or_default()
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let given = Given::by_a_new_database();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut ids = HashSet::new();
    let mut asked = 0;
    for panel in panels(&dashboard) {
        let title = text(&panel["title"]);
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expr = text(&target["expr"]);
            assert_eq!(given.objections(expr), [""; 0], "{title}: {expr}");
            assert!(!metrics_in(expr).is_empty(), "{title}: {expr}");
            // Of a plot, a counter says something only as a speed.
            if text(&panel["type"]) == "timeseries" {
                let counters = metrics_in(expr).into_iter();
                let mut counters = counters.filter(|(_, name)| given.is_counter(name));
                assert!(
                    counters.all(|(at, _)| is_speed(expr, at)),
                    "{title}: {expr}"
                );
            }
            for label in text(&target["legendFormat"]).split("{{").skip(1) {
                let label = label.split("}}").next().unwrap_or_default();
                let is_there = given.labels.contains(label) || OWN_LABELS.contains(&label);
                assert!(is_there, "{title}: no sample has the label {label}");
            }
            asked += 1;
        }
    }
    assert!(asked > 50, "only {asked} expressions were found");
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let definition = text(&variable["definition"]);
        assert_eq!(given.objections(definition), [""; 0], "{definition}");
    }
}

#[test]
fn the_alerts_ask_for_what_there_is_and_say_what_to_do() {
    let given = Given::by_a_new_database();
    // No parser of YAML: each rule begins with its name, and has one key a line.
    let mut rules = ALERTS.split("\n      - alert: ").skip(1).peekable();
    assert!(rules.peek().is_some(), "no rule was found");
    assert_eq!(
        ALERTS.matches("alert:").count(),
        rules.clone().count(),
        "all rules are indented alike"
    );
    for rule in rules {
        let name = rule.lines().next().unwrap_or_default();
        let key = |key: &str| {
            let mut lines = rule.lines().map(str::trim_start);
            lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
        };
        let expr = key("expr").unwrap_or_else(|| panic!("{name} has no expression on one line"));
        assert_eq!(given.objections(expr), [""; 0], "{name}: {expr}");
        assert!(!metrics_in(expr).is_empty(), "{name}: {expr}");
        for said in ["severity", "summary", "description", "action"] {
            assert!(key(said).is_some(), "{name} has no {said}");
        }
    }
}

#[test]
fn the_list_of_panels_names_what_there_is() {
    let given = Given::by_a_new_database();
    let quoted = PANELS.split('`').skip(1).step_by(2);
    let mut named = 0;
    for name in quoted.filter(|name| name.starts_with("varve_")) {
        let is_setting = SETTINGS.contains(&format!("\n| `{name}` |"));
        assert!(
            is_setting || given.samples.contains_key(name),
            "docs/pmm.md: {name} is neither a sample of /metrics nor a setting"
        );
        named += 1;
    }
    assert!(named > 100, "only {named} names were found");
}

/// The checks above find what they are made for.
#[test]
fn wrong_names_are_found() {
    let given = Given::parse(
        "# TYPE varve_a counter\n# HELP varve_a x\nvarve_a_total 1\n# TYPE varve_b gauge\nvarve_b{file=\"x\",varve_b=\"y\"} 2\n",
    );
    let labels = HashSet::from(["file", "varve_b"].map(String::from));
    assert_eq!(given.labels, labels);
    for (expr, wrong) in [
        ("rate(varve_a_total[1m])", 0),
        ("varve_a_total > 0", 0),
        ("varve_a > 0", 1),
        ("rate(varve_a[1m]) + varve_c", 2),
        ("rate(varve_b[1m])", 1),
        ("varve_b{varve_b!=\"y\"} == 1", 0),
        ("varve_b_total", 1),
    ] {
        assert_eq!(given.objections(expr).len(), wrong, "{expr}");
    }
}
