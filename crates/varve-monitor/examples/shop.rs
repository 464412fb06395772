//! A shop under load, with a monitor: writers whose load comes and goes, one connection that waits for
//! another every few seconds, a reader that somebody has forgotten, and undo tablespaces that are truncated.
//! Everything is in a temporary directory.
//!
//! ```text
//! cargo run --release -p varve-monitor --example shop [SECONDS [STATEMENT]]
//! ```
//!
//! Prints where the page is, with its token, and runs until its standard input ends. The reader opens its
//! snapshot after so many SECONDS (0 without), and STATEMENT is what the monitor is told that it ran.
//! `cargo xtask monitor` looks at the page with a browser.

use std::collections::HashMap;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use varve::{
    ColumnType, Database, FlushLog, HistoryOptions, Isolation, Options, Result, Table, TableDef,
    Transaction, values,
};
use varve_monitor::{Monitor, MonitorOptions, Session};

const ITEMS: i64 = 40_000;
/// For so long purge waits for the reader.
const STORE_DELAY: Duration = Duration::from_secs(25);
/// So often an undo tablespace is truncated.
const TRUNCATION_EVERY: Duration = Duration::from_secs(60);

struct Shop {
    db: Database,
    items: Table,
    orders: Table,
    sessions: Arc<Sessions>,
    opened: Instant,
    is_closed: AtomicBool,
}

/// What each connection is doing, by its number.
#[derive(Default)]
struct Sessions(Mutex<HashMap<u64, Doing>>);

struct Doing {
    begun: Instant,
    statement: String,
    ended: Option<Instant>,
}

impl Sessions {
    fn begin(&self, number: u64) {
        let doing = Doing {
            begun: Instant::now(),
            statement: String::new(),
            ended: None,
        };
        self.0.lock().unwrap().insert(number, doing);
    }

    /// Does what `statement` says, while the monitor may ask about it.
    fn run<T>(&self, number: u64, statement: &str, what: impl FnOnce() -> T) -> T {
        let tell = |ended| {
            if let Some(doing) = self.0.lock().unwrap().get_mut(&number) {
                doing.statement.replace_range(.., statement);
                doing.ended = ended;
            }
        };
        tell(None);
        let done = what();
        tell(Some(Instant::now()));
        done
    }

    fn tell(&self, number: u64) -> Option<Session> {
        let doing = self.0.lock().unwrap();
        doing.get(&number).map(|doing| Session {
            statement: doing.statement.clone(),
            idle: doing.ended.map(|ended| ended.elapsed()),
            active: Some(doing.begun.elapsed()),
        })
    }
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let seconds = args.next().and_then(|text| text.parse().ok());
    let statement = args.next().unwrap_or_else(|| {
        "SELECT warehouse, SUM(stock) FROM item GROUP BY warehouse ORDER BY 2 DESC".into()
    });
    let dir = tempfile::Builder::new().prefix("shop-").tempdir();
    let dir = dir.expect("a temporary directory");
    let options = Options {
        buffer_pool_bytes: 16 << 20,
        redo_capacity_bytes: 48 << 20,
        flush_log_at_trx_commit: FlushLog::Write,
        history: HistoryOptions {
            delay: STORE_DELAY,
            ..HistoryOptions::default()
        },
        ..Options::default()
    };
    let db = Database::open(dir.path(), options)?;
    let shop = open_shop(&db)?;
    let sessions = shop.sessions.clone();
    let token = uuid::Uuid::new_v4().simple().to_string();
    let monitor = Monitor::start(
        &db,
        MonitorOptions {
            token: Some(token.clone()),
            sessions: Some(Arc::new(move |number| sessions.tell(number))),
            ..MonitorOptions::new("127.0.0.1:0")
        },
    )?;
    println!("{}?token={token}", monitor.url());
    let until_forgotten = Duration::from_secs(seconds.unwrap_or(0));
    thread::scope(|scope| {
        let (shop, statement) = (&shop, &*statement);
        let works = [
            scope.spawn(move || sell(shop, 21)),
            scope.spawn(move || sell(shop, 22)),
            scope.spawn(move || order(shop, 23)),
            scope.spawn(move || browse(shop, 24)),
            scope.spawn(move || reserve(shop, 31)),
            scope.spawn(move || restock(shop, 32)),
            scope.spawn(move || forget(shop, 10, until_forgotten, statement)),
            scope.spawn(move || truncate(shop)),
        ];
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        shop.is_closed.store(true, Ordering::Relaxed);
        let mut ended = works.into_iter();
        ended.try_for_each(|work| work.join().expect("it does not panic"))
    })?;
    monitor.stop();
    drop(shop);
    db.close()
}

fn open_shop(db: &Database) -> Result<Shop> {
    let item = TableDef::new("shop/item")
        .column("id", ColumnType::i64())
        .column("stock", ColumnType::i64())
        .column("note", ColumnType::text(200))
        .primary(&["id"])
        .index("by_stock", &["stock"]);
    let order = TableDef::new("shop/orders")
        .column("id", ColumnType::i64())
        .column("item", ColumnType::i64())
        .column("note", ColumnType::text(200))
        .primary(&["id"]);
    let (items, orders) = (db.create_table(&item)?, db.create_table(&order)?);
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ITEMS {
        items.insert(&mut trx, values![id, 100, "in the third row on the left"])?;
    }
    trx.commit()?;
    Ok(Shop {
        db: db.clone(),
        items,
        orders,
        sessions: Arc::default(),
        opened: Instant::now(),
        is_closed: AtomicBool::new(false),
    })
}

impl Shop {
    fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Relaxed)
    }

    /// Customers come in waves.
    fn pause(&self, pace_per_second: f64) {
        let seconds = self.opened.elapsed().as_secs_f64();
        let rush = 1.0 + 0.5 * (seconds / 23.0).sin() + 0.3 * (seconds / 7.0).sin();
        thread::sleep(Duration::from_secs_f64(1.0 / (pace_per_second * rush)));
    }

    /// As long as it is open.
    fn sleep(&self, time: Duration) {
        let begun = Instant::now();
        while self.is_open() && begun.elapsed() < time {
            thread::sleep(time.min(Duration::from_millis(50)));
        }
    }

    fn begin(&self, session: u64, isolation: Isolation) -> Transaction {
        let mut trx = self.db.begin(isolation);
        trx.set_session(session);
        self.sessions.begin(session);
        trx
    }
}

/// Counts a few items again.
fn sell(shop: &Shop, session: u64) -> Result<()> {
    while shop.is_open() {
        let mut trx = shop.begin(session, Isolation::ReadCommitted);
        let mut ids = [0; 3].map(|_| fastrand::i64(1..ITEMS));
        // In this order no two of them wait for each other.
        ids.sort_unstable();
        for id in ids {
            let stock = fastrand::i64(0..100);
            let statement = format!("UPDATE item SET stock = {stock} WHERE id = {id}");
            shop.sessions.run(session, &statement, || {
                let changes = [("stock", stock.into())];
                shop.items.set(&mut trx, values![id], &changes)
            })?;
        }
        match fastrand::u32(0..40) {
            0 => trx.rollback()?,
            _ => trx.commit()?,
        }
        shop.pause(120.0);
    }
    Ok(())
}

/// New orders, and old ones that are shipped.
fn order(shop: &Shop, session: u64) -> Result<()> {
    const OPEN: i64 = 5000;
    let mut id = 0;
    while shop.is_open() {
        let mut trx = shop.begin(session, Isolation::RepeatableRead);
        shop.sessions
            .run(session, "INSERT INTO orders VALUES …", || {
                (id..id + 5).try_for_each(|id| {
                    let item = fastrand::i64(0..ITEMS);
                    shop.orders.insert(&mut trx, values![id, item, "by post"])
                })
            })?;
        let shipped = "DELETE FROM orders WHERE id < …";
        shop.sessions.run(session, shipped, || {
            (id..id + 5).try_for_each(|id| {
                shop.orders.delete(&mut trx, values![id - OPEN])?;
                Ok::<_, varve::Error>(())
            })
        })?;
        id += 5;
        trx.commit()?;
        shop.pause(60.0);
    }
    Ok(())
}

/// Looks at some of what there is.
fn browse(shop: &Shop, session: u64) -> Result<()> {
    while shop.is_open() {
        let mut trx = shop.begin(session, Isolation::ReadCommitted);
        let from = fastrand::i64(0..ITEMS - 500);
        let statement = format!("SELECT * FROM item WHERE id >= {from} LIMIT 500");
        shop.sessions.run(session, &statement, || {
            let rows = shop.items.range(&mut trx, 0, values![from]..)?;
            rows.take(500).try_for_each(|row| row.map(drop))
        })?;
        trx.commit()?;
        shop.pause(25.0);
    }
    Ok(())
}

/// Holds on to the first item for a moment, every few seconds.
fn reserve(shop: &Shop, session: u64) -> Result<()> {
    while shop.is_open() {
        let mut trx = shop.begin(session, Isolation::RepeatableRead);
        let statement = "SELECT * FROM item WHERE id = 0 FOR UPDATE";
        shop.sessions.run(session, statement, || {
            shop.items.get_for_update(&mut trx, values![0])
        })?;
        shop.sleep(Duration::from_millis(900));
        trx.commit()?;
        shop.sleep(Duration::from_millis(fastrand::u64(2000..6000)));
    }
    Ok(())
}

/// Wants the same item.
fn restock(shop: &Shop, session: u64) -> Result<()> {
    while shop.is_open() {
        let mut trx = shop.begin(session, Isolation::RepeatableRead);
        let statement = "UPDATE item SET stock = 100 WHERE id = 0";
        shop.sessions.run(session, statement, || {
            let changes = [("stock", 100_i64.into())];
            shop.items.set(&mut trx, values![0], &changes)
        })?;
        trx.commit()?;
        shop.sleep(Duration::from_millis(60));
    }
    Ok(())
}

/// Reads something in a transaction that nobody ends.
fn forget(shop: &Shop, session: u64, after: Duration, statement: &str) -> Result<()> {
    shop.sleep(after);
    let mut trx = shop.begin(session, Isolation::RepeatableRead);
    shop.sessions.run(session, statement, || {
        shop.items.rows(&mut trx)?.try_for_each(|row| row.map(drop))
    })?;
    while shop.is_open() {
        shop.sleep(Duration::from_secs(1));
    }
    trx.commit()
}

/// Has one undo tablespace truncated after the other: they stay too small here to be so by themselves. While
/// purge waits for the forgotten reader, that waits, too.
fn truncate(shop: &Shop) -> Result<()> {
    let mut numbers = [1, 2].into_iter().cycle();
    while shop.is_open() {
        let begun = Instant::now();
        // The monitor tells of those that come after its first sample.
        shop.sleep(Duration::from_secs(5));
        let number = numbers.next().expect("they have no end");
        while shop.is_open() && !shop.db.truncate_undo(number, TRUNCATION_EVERY)? {}
        shop.sleep(TRUNCATION_EVERY.saturating_sub(begun.elapsed()));
    }
    Ok(())
}
