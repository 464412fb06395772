//! The monitor: what an open database does, over HTTP. `/metrics` is for Prometheus, `/` is a page with live
//! plots for people.
//!
//! ```
//! use varve::{Database, Options};
//! use varve_monitor::{Monitor, MonitorOptions};
//!
//! # fn main() -> varve::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! let db = Database::open(dir.path(), Options::default())?;
//! let monitor = Monitor::start(&db, MonitorOptions::new("127.0.0.1:0"))?;
//! println!("open {} in a browser", monitor.url());
//! monitor.stop();
//! db.close()
//! # }
//! ```
//!
//! | path | what |
//! |---|---|
//! | `/` | the page; `page/` has it, with uPlot for the plots |
//! | `/metrics` | every metric of the engine, and what fails, in the text format of OpenMetrics (`openmetrics`) |
//! | `/api/samples` | the samples since a number, as JSON, for the page (`samples`) |
//! | `/api/samples.csv` | the samples of an interval, as CSV |
//! | `/api/state` | what is now: a verdict in a sentence (`verdict`), transactions by what they pin (`transactions`), undo tablespaces, lock waits (`state`) |
//!
//! One thread does everything. It reads the metrics once a second, and adds nothing to what the engine's
//! threads do. An hour of samples is kept: 3,600 times about 1.2 KiB, 4.3 MiB.
//!
//! - **MON-1** It listens on loopback addresses only, and answers only requests whose `Host` is one, so
//!   that a page of another site can't read it through a name that leads here (`access`).
//! - **MON-2** With a token nothing is answered without it, neither a file of the page (`access`).
//! - **MON-3** No client takes more than its share: connections, the size of heads, how long a head and a
//!   connection may take are bounded (`server`).
//! - **MON-4** What comes from data, as names of tables and statements, becomes text of the page and nothing
//!   else: the page sets `textContent`, its policy allows scripts of its own files only, and labels are
//!   escaped (`page/page.js`, `openmetrics`).
//! - **MON-5** Samples take bounded memory, whatever the time (`samples`).
//! - **MON-6** When `stop` returns, nothing of the monitor has the database any more.
//! - **MON-7** Texts of statements are for those who have the token: without one nobody is asked for them
//!   (`server`, `transactions`).

mod access;
mod openmetrics;
mod routes;
mod samples;
mod server;
mod state;
pub mod text;
mod transactions;
mod verdict;

use std::net::SocketAddr;

use varve::{Database, Error, Result};
use varve_listen::{Background, Guard, listen_on};

use crate::access::Access;
use crate::server::Shared;

const GUARD: Guard = Guard::Lacks("it does not encrypt", "use a tunnel or a proxy with TLS");

pub use access::token_from_file;
pub use transactions::{Session, Sessions};

/// Where a monitor listens, and for whom.
#[derive(Clone)]
pub struct MonitorOptions {
    /// A loopback address with a port: `127.0.0.1:3480`, `[::1]:3480`. Port 0: one that is free.
    pub address: String,
    /// What everybody has to show. Without it everybody on this machine may look.
    pub token: Option<String>,
    /// Says what sessions are doing, for the list of transactions. Nobody is asked without a token (MON-7).
    pub sessions: Option<Sessions>,
}

impl MonitorOptions {
    /// Without a token.
    pub fn new(address: impl Into<String>) -> MonitorOptions {
        MonitorOptions {
            address: address.into(),
            token: None,
            sessions: None,
        }
    }
}

/// A monitor that runs until it is stopped or dropped.
pub struct Monitor {
    address: SocketAddr,
    has_token: bool,
    background: Background,
}

impl Monitor {
    /// Starts it. It must be stopped before the database is closed.
    ///
    /// # Errors
    ///
    /// `Invalid` for an address that is none, or is no loopback address, and for a token that is too short
    /// or has characters that it may not have; `Io` if the port is taken.
    pub fn start(db: &Database, options: MonitorOptions) -> Result<Monitor> {
        // MON-1.
        let listened = listen_on(&options.address, "the monitor", GUARD);
        let (listener, address) = listened?;
        let has_token = options.token.is_some();
        let access = Access::new(options.token, address.port())?;
        let failed = |e| Error::io("start", "the monitor", e);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let listener = {
            let _of_the_runtime = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(failed)?
        };
        let shared = Shared::new(db.clone(), access, options.sessions);
        // MON-6.
        let background = Background::start("varve-monitor", runtime, move |stopped| {
            server::run(listener, shared, stopped)
        })?;
        Ok(Monitor {
            address,
            has_token,
            background,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it asks for a token.
    pub fn has_token(&self) -> bool {
        self.has_token
    }

    /// Where the page is.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Ends its thread and closes its connections.
    pub fn stop(mut self) {
        self.background.end();
    }
}
