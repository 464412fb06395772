//! The sentence that names the culprit, from databases in which somebody has forgotten a snapshot, and what
//! comes of it when that ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use varve::{
    ColumnType, Database, FlushLog, HistoryOptions, Isolation, Options, TableDef, Transaction,
    values,
};
use varve_monitor::{Monitor, MonitorOptions};

struct Bed {
    db: Database,
    monitor: Monitor,
    _dir: tempfile::TempDir,
}

/// A database in which connection 10 has a snapshot, and somebody changes 2,000 rows, one in each
/// transaction, until the monitor says something of it.
fn forgotten(history: HistoryOptions, more: &str) -> (Bed, Transaction, String) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        flush_log_at_trx_commit: FlushLog::Lazy,
        ..Options::default()
    };
    let db = Database::open(dir.path(), options).unwrap();
    db.set_history_options(history).unwrap();
    let monitor = Monitor::start(&db, MonitorOptions::new("127.0.0.1:0")).unwrap();
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("text", ColumnType::text(2000));
    let table = db.create_table(&def.primary(&["id"])).unwrap();
    let change = |n: i64| {
        for id in 0..2000 {
            let mut trx = db.begin(Isolation::ReadCommitted);
            if n > 0 {
                assert!(table.delete(&mut trx, values![id]).unwrap());
            }
            let text = format!("{n:1000}");
            table.insert(&mut trx, values![id, text.as_str()]).unwrap();
            trx.commit().unwrap();
        }
    };
    change(0);
    let mut reader = db.begin(Isolation::RepeatableRead);
    reader.set_session(10);
    reader.take_snapshot();
    (1..4).for_each(change);
    let bed = Bed {
        db,
        monitor,
        _dir: dir,
    };
    let said = bed.says("A snapshot of connection 10 has been open for ", more);
    (bed, reader, said)
}

impl Bed {
    fn state(&self) -> serde_json::Value {
        let mut stream = TcpStream::connect(self.monitor.address()).unwrap();
        let request = "GET /api/state HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    /// A finding that begins and goes on so, once there is one.
    fn says(&self, beginning: &str, more: &str) -> String {
        let begun = Instant::now();
        loop {
            let state = self.state();
            let findings = state["findings"].as_array().unwrap().iter();
            let mut texts = findings.map(|finding| finding["text"].as_str().unwrap());
            if let Some(found) = texts.find(|t| t.starts_with(beginning) && t.contains(more)) {
                return found.into();
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{state:#}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn end(self) {
        self.monitor.stop();
        self.db.close().unwrap();
    }
}

#[test]
fn it_costs_others_nothing_with_the_history_store() {
    let costs = " of old versions are kept for it; it costs others nothing";
    let (bed, reader, said) = forgotten(HistoryOptions::default(), costs);
    println!("{said}");
    // Others' history goes, though the snapshot is there.
    let begun = Instant::now();
    while bed.db.purge_standing().history >= 1000 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{said}");
        thread::sleep(Duration::from_millis(10));
    }
    reader.commit().unwrap();
    bed.says("Nothing", "");
    bed.end();
}

#[test]
fn purge_waits_for_it_without() {
    let history = HistoryOptions {
        store: false,
        ..HistoryOptions::default()
    };
    let (bed, reader, said) = forgotten(history, "; purge waits for it: the undo of ");
    println!("{said}");
    let (_, rest) = said.split_once("the undo of ").unwrap();
    let (history, rest) = rest.split_once(" transactions is kept, ").unwrap();
    let history: u64 = history.replace(',', "").parse().unwrap();
    assert!((6_000..=8_000).contains(&history), "{said}");
    // Some 100 bytes each.
    let (kib, _) = rest.split_once(" KiB").expect(&said);
    assert!((300..2_000).contains(&kib.parse().unwrap()), "{said}");
    reader.commit().unwrap();
    assert!(bed.db.wait_for_purge(Duration::from_secs(60)));
    bed.says("Nothing", "");
    bed.end();
}
