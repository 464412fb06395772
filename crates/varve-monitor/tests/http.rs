//! The monitor as a client sees it: paths, who is answered, what a slow or greedy client gets, and that
//! stopping it lets go of the database.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use varve::{ColumnType, Database, HistoryOptions, Isolation, Options, Table, TableDef, values};
use varve_monitor::{Monitor, MonitorOptions, Session};

const TOKEN: &str = "0123456789abcdef";

struct Bed {
    db: Database,
    monitor: Monitor,
    _dir: tempfile::TempDir,
}

impl Bed {
    fn new(token: Option<&str>) -> Bed {
        let mut options = MonitorOptions::new("127.0.0.1:0");
        options.token = token.map(String::from);
        Bed::with(options)
    }

    fn with(options: MonitorOptions) -> Bed {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), Options::default()).unwrap();
        let monitor = Monitor::start(&db, options).unwrap();
        Bed {
            db,
            monitor,
            _dir: dir,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.monitor.address()).unwrap();
        let patience = Some(Duration::from_secs(30));
        stream.set_read_timeout(patience).unwrap();
        stream
    }

    /// Sends it on a connection of its own; everything that comes back.
    fn send(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        // A reset is an answer, too: to what was too much to be read.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    fn get(&self, path: &str, headers: &str) -> String {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
        ))
    }

    /// The body of a good answer, to who shows the token.
    fn body(&self, path: &str) -> String {
        let answer = self.get(path, &bearer(TOKEN));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        body.to_string()
    }

    fn json(&self, path: &str) -> serde_json::Value {
        serde_json::from_str(&self.body(path)).unwrap()
    }

    fn end(self) {
        self.monitor.stop();
        self.db.close().unwrap();
    }
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn assert_status(answer: &str, status: u16) {
    let line = format!("HTTP/1.1 {status} ");
    assert!(answer.starts_with(&line), "{status} is due: {answer}");
}

fn table(db: &Database, name: &str) -> Table {
    let def = TableDef::new(name).column("id", ColumnType::i64());
    db.create_table(&def.primary(&["id"])).unwrap()
}

#[test]
fn commits_show_in_samples_and_metrics() {
    let bed = Bed::new(None);
    let table = table(&bed.db, "a/t");
    let commits = || {
        let status = bed.db.status().into_iter();
        status
            .filter(|(name, _)| *name == "commits")
            .map(|(_, value)| value)
            .sum::<u64>()
    };
    let path = "/api/samples?columns=commits,history_list_length";
    until("a sample", || bed.json(path)["next"].as_u64() > Some(0));
    let before = commits();
    let mut trx = bed.db.begin(Isolation::RepeatableRead);
    table.insert(&mut trx, values![1]).unwrap();
    trx.commit().unwrap();
    let newest = || {
        let samples = bed.json(path);
        samples["rows"].as_array().unwrap().last().unwrap()[1]
            .as_u64()
            .unwrap()
    };
    until("the commit is in a sample", || newest() > before);
    let samples = bed.json(path);
    assert_eq!(samples["columns"][0], "commits");
    let next = samples["next"].as_u64().unwrap();
    // What a page has, it need not get again.
    let new = bed.json(&format!("{path}&since={next}"));
    assert!(
        new["rows"].as_array().unwrap().len() < next as usize,
        "{new}"
    );
    let metrics = bed.body("/metrics");
    assert!(
        metrics.contains(&format!("varve_commits_total {}\n", commits())),
        "{metrics}"
    );
    assert!(metrics.ends_with("# EOF\n"));
    let csv = bed.body("/api/samples.csv?from=1&to=99999999999");
    assert!(
        csv.starts_with("time,") && csv.lines().count() as u64 >= next,
        "{csv}"
    );
    assert_eq!(bed.body("/api/samples.csv?to=1").lines().count(), 1);
    bed.end();
}

#[test]
fn a_waiter_and_an_old_view_are_in_the_state() {
    let bed = Bed::new(None);
    // A name from data, as evil as they come.
    let table = table(&bed.db, "a/<script>alert(1)");
    let mut holder = bed.db.begin(Isolation::RepeatableRead);
    table.insert(&mut holder, values![1]).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut trx = bed.db.begin(Isolation::RepeatableRead);
            let waited = table.insert(&mut trx, values![1]);
            trx.rollback().unwrap();
            waited
        });
        until("it waits", || {
            bed.json("/api/state")["lock_waits"][0]["holders"][0].is_string()
        });
        let wait = bed.json("/api/state")["lock_waits"][0].clone();
        let wants = wait["wants"].as_str().unwrap();
        assert!(
            wants.contains("table a/<script>alert(1), index PRIMARY"),
            "{wait}"
        );
        holder.commit().unwrap();
        assert!(matches!(
            waiter.join().unwrap(),
            Err(varve::Error::DuplicateKey { .. })
        ));
    });
    assert_eq!(bed.json("/api/state")["lock_waits"], json!([]));
    let mut reader = bed.db.begin(Isolation::RepeatableRead);
    table.range(&mut reader, 0, ..).unwrap().for_each(drop);
    let state = bed.json("/api/state");
    assert_eq!(
        state["oldest_view"]["number"],
        state["purge_waits_for_view"]
    );
    assert!(state["oldest_view"]["number"].is_u64(), "{state}");
    assert_eq!(state["undo_tablespaces"].as_array().unwrap().len(), 2);
    reader.commit().unwrap();
    drop(table);
    bed.end();
}

#[test]
fn transactions_are_listed_by_what_they_pin() {
    let bed = Bed::new(None);
    assert_eq!(bed.json("/api/state")["transactions"], json!([]));
    let history = HistoryOptions {
        store: false,
        ..HistoryOptions::default()
    };
    bed.db.set_history_options(history).unwrap();
    let table = table(&bed.db, "a/t");
    let begin = |session, isolation| {
        let mut trx = bed.db.begin(isolation);
        trx.set_session(session);
        trx
    };
    let mut writer = begin(9, Isolation::RepeatableRead);
    table.insert(&mut writer, values![1]).unwrap();
    writer.commit().unwrap();
    let mut reader = begin(10, Isolation::RepeatableRead);
    reader.take_snapshot();
    let mut writer = begin(9, Isolation::RepeatableRead);
    assert!(table.delete(&mut writer, values![1]).unwrap());
    writer.commit().unwrap();
    let mut writer = begin(11, Isolation::ReadCommitted);
    for id in 2..5 {
        table.insert(&mut writer, values![id]).unwrap();
    }

    let state = bed.json("/api/state");
    assert_eq!(
        (&state["transactions_running"], &state["has_statements"]),
        (&json!(2), &json!(false))
    );
    let (first, second) = (&state["transactions"][0], &state["transactions"][1]);
    assert_eq!(first["name"], "connection 10");
    assert_eq!(first["isolation"], "repeatable read");
    assert_eq!(first["seconds"], state["oldest_view"]["seconds"]);
    let view = &first["view"];
    assert_eq!(view["number"], state["purge_waits_for_view"]);
    assert_eq!(
        (&view["in_history_store"], &view["pinned_history"]),
        (&json!(false), &json!(1))
    );
    assert_eq!(second["name"], "connection 11");
    assert_eq!(second["number"], json!(writer.id().unwrap().0));
    assert_eq!(
        [&second["state"], &second["changes"], &second["connection"]],
        [&json!("running"), &json!(3), &json!(11)]
    );
    for unknown in ["seconds", "waited", "view", "idle", "statement"] {
        assert_eq!(second[unknown], json!(null), "{unknown}");
    }
    reader.commit().unwrap();
    writer.commit().unwrap();
    drop(table);
    bed.end();
}

/// MON-7, MON-4.
#[test]
fn statements_are_for_those_who_have_the_token() {
    const STATEMENT: &str = "SELECT '<script>alert(1)</script>', \"\u{e4}\"\n-- \0";
    let asked = Arc::new(AtomicU32::new(0));
    let options = |token: Option<&str>| {
        let asked = asked.clone();
        let mut options = MonitorOptions::new("127.0.0.1:0");
        options.token = token.map(String::from);
        options.sessions = Some(Arc::new(move |number| {
            asked.fetch_add(1, Ordering::Relaxed);
            (number == 10).then(|| Session {
                statement: STATEMENT.into(),
                idle: Some(Duration::from_secs(70)),
                active: Some(Duration::from_secs(90)),
            })
        }));
        options
    };
    let state = |token: Option<&str>| {
        let bed = Bed::with(options(token));
        let transactions = [10, 11, 0].map(|session| {
            let mut trx = bed.db.begin(Isolation::RepeatableRead);
            trx.set_session(session);
            trx
        });
        let (text, state) = (bed.body("/api/state"), bed.json("/api/state"));
        if token.is_some() {
            assert_status(&bed.get("/api/state", ""), 401);
        }
        for trx in transactions {
            trx.rollback().unwrap();
        }
        bed.end();
        (text, state)
    };
    let (text, open) = state(None);
    assert!(!text.contains("alert"), "MON-7: {text}");
    assert_eq!(asked.load(Ordering::Relaxed), 0, "MON-7");
    assert_eq!(open["has_statements"], false);
    assert_eq!(open["transactions_running"], 3);
    let (text, told) = state(Some(TOKEN));
    assert_eq!(told["has_statements"], true);
    assert_eq!(told["transactions"].as_array().unwrap().len(), 3);
    for trx in told["transactions"].as_array().unwrap() {
        let said = [&trx["statement"], &trx["idle"], &trx["seconds"]];
        match trx["connection"].as_u64() {
            Some(10) => assert_eq!(said, [&json!(STATEMENT), &json!(70), &json!(90)]),
            _ => assert_eq!(said, [&json!(null); 3]),
        }
    }
    // It is data of JSON, and no page by mistake.
    assert!(
        text.contains(r#"SELECT '<script>alert(1)</script>', \"ä\"\n-- \u0000"#),
        "MON-4: {text}"
    );
    assert_eq!(asked.load(Ordering::Relaxed), 4, "two sessions, twice");
}

/// MON-4: whatever text gets into the page, it runs nothing.
#[test]
fn the_page_comes_with_a_policy() {
    let bed = Bed::new(None);
    for path in [
        "/",
        "/page.js",
        "/plots.js",
        "/page.css",
        "/icon.svg",
        "/uplot.js",
        "/uplot.css",
        "/uplot.LICENSE",
        "/metrics",
        "/api/state",
    ] {
        let answer = bed.get(path, "");
        assert_status(&answer, 200);
        let policy = "content-security-policy: default-src 'none'; script-src 'self';";
        assert!(answer.contains(policy), "MON-4: {path}");
        assert!(
            answer.contains("x-content-type-options: nosniff"),
            "MON-4: {path}"
        );
        assert!(
            !answer.contains("innerHTML") || path == "/uplot.js",
            "MON-4: {path}"
        );
    }
    let page = bed.body("/");
    assert!(
        !page.contains("http://") && !page.contains("https://"),
        "nothing is loaded from elsewhere"
    );
    bed.end();
}

#[test]
fn bad_requests_are_refused() {
    let bed = Bed::new(None);
    assert_status(&bed.get("/none", ""), 404);
    let bad = bed.get("/api/samples?since=x", "");
    assert_status(&bad, 400);
    assert!(bad.contains("`since` is no number"), "{bad}");
    assert!(
        bed.get("/api/samples.csv?to=x", "")
            .contains("`to` is no number")
    );
    assert_status(
        &bed.send(
            "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        ),
        405,
    );
    // MON-1.
    assert_status(
        &bed.send("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"),
        421,
    );
    assert_status(
        &bed.send("GET / HTTP/1.0\r\n\r\n")
            .replace("HTTP/1.0", "HTTP/1.1"),
        421,
    );
    bed.end();
}

/// MON-2.
#[test]
fn a_token_opens_the_page_by_a_cookie() {
    let bed = Bed::new(Some(TOKEN));
    for path in [
        "/",
        "/metrics",
        "/api/state",
        "/api/samples",
        "/page.js",
        "/none",
    ] {
        let answer = bed.get(path, "");
        assert_status(&answer, 401);
        assert!(!answer.contains("varve_commits"), "MON-2: {path}");
    }
    assert_status(&bed.get("/metrics", &bearer(TOKEN)), 200);
    assert_status(&bed.get("/?token=0123456789abcdeX", ""), 401);
    let lead = bed.get(&format!("/?token={TOKEN}"), "");
    assert_status(&lead, 303);
    assert!(lead.contains("location: /\r\n"), "{lead}");
    let cookie = lead
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .unwrap();
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    let shown = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    assert_status(&bed.get("/", &shown), 200);
    let mut short = MonitorOptions::new("127.0.0.1:0");
    short.token = Some("short".into());
    let why = Monitor::start(&bed.db, short).err().unwrap().to_string();
    assert!(
        why.contains("the monitor's token has 5 characters"),
        "{why}"
    );
    bed.end();
}

/// MON-3: heads that are too large, too slow, and too many connections.
#[test]
fn greedy_clients_get_their_share() {
    let bed = Bed::new(None);
    let large = format!("X: {}\r\n", "x".repeat(40_000));
    let answer = bed.get("/", &large);
    assert!(!answer.contains("200 OK"), "MON-3: {answer}");
    let many: String = (0..100).map(|n| format!("X-{n}: 1\r\n")).collect();
    assert_status(&bed.get("/", &many), 431);
    // Those that say nothing hold all places, until the time for their heads is over.
    let silent: Vec<TcpStream> = (0..32).map(|_| bed.connect()).collect();
    until("there is no room", || bed.get("/none", "").is_empty());
    until("their time is over", || {
        bed.get("/none", "").starts_with("HTTP/1.1 404")
    });
    for mut stream in silent {
        // Closed, perhaps with an answer: this would run into the time limit otherwise.
        stream.read_to_end(&mut Vec::new()).expect("MON-3");
    }
    bed.end();
}

/// MON-6.
#[test]
fn stopping_lets_go_of_the_database_and_the_port() {
    let bed = Bed::new(None);
    let address = bed.monitor.address();
    // One in the middle of a request.
    let mut open = bed.connect();
    open.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let taken = Monitor::start(&bed.db, MonitorOptions::new(address.to_string()));
    let why = taken.err().unwrap().to_string();
    assert!(why.contains(&address.to_string()), "{why}");
    bed.monitor.stop();
    assert!(TcpStream::connect(address).is_err(), "MON-6");
    assert_eq!(open.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
    let dir = bed.db.dir().to_path_buf();
    // The last handle: the directory is free afterwards.
    drop(bed.db);
    let again = Database::open(&dir, Options::default()).expect("MON-6");
    again.close().unwrap();
}
