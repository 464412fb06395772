//! `varve serve`: a database for clients of memcached.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use varve::{Database, FlushLog, Options};
use varve_memcached::{Memcached, MemcachedOptions, TlsFiles};
use varve_monitor::{Monitor, MonitorOptions};

use crate::Outcome;
use crate::keys::KeyArgs;

#[derive(clap::Args)]
pub struct Args {
    /// The database's directory, which is made if it is missing
    dir: PathBuf,
    /// The address and the port to listen on: a loopback address, unless there are a certificate, and
    /// accounts or authorities
    #[arg(long, default_value = "127.0.0.1:11211")]
    address: String,
    /// A Unix socket to listen on instead
    #[arg(long, conflicts_with = "address")]
    socket: Option<PathBuf>,
    /// The table with the items
    #[arg(long, default_value = "memcached/items")]
    table: String,
    /// The buffer pool, in MiB
    #[arg(long, default_value = "128", value_parser = clap::value_parser!(u64).range(5..=1 << 24))]
    buffer_pool: u64,
    /// When a change is answered: once it is on disk, once the system has it, or at once
    #[arg(long, value_enum, default_value = "sync")]
    durability: Durability,
    /// Threads that read requests
    #[arg(long, default_value = "4")]
    threads: usize,
    /// Threads that change items; one that waits for a lock keeps one
    #[arg(long, default_value = "16")]
    change_threads: usize,
    /// How many clients may be connected
    #[arg(long, default_value = "1024")]
    connections: usize,
    /// The longest value, in bytes
    #[arg(long, default_value = "1048576")]
    value_bytes: usize,
    /// So many changes that come together are one transaction
    #[arg(long, default_value = "32")]
    batch: usize,
    /// So many reads that a client sends together see one moment; 0: all
    #[arg(long, default_value = "0")]
    read_batch: usize,
    /// A file with a line user:password for each client; without, nobody is asked who he is
    #[arg(long)]
    accounts: Option<PathBuf>,
    /// The server's certificate, a PEM file: connections by TCP are encrypted
    #[arg(long, requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The certificate's key, a PEM file
    #[arg(long, requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Clients need a certificate of one of these authorities, a PEM file
    #[arg(long, requires = "tls_certificate")]
    tls_authorities: Option<PathBuf>,
    /// A client that says nothing for so many seconds is sent away; 0: never
    #[arg(long, default_value = "0")]
    idle_timeout: u64,
    /// Rows whose time is over are deleted every so many seconds; 0: never
    #[arg(long, default_value = "300")]
    sweep_interval: u64,
    /// Where the monitor listens; without, there is none
    #[arg(long)]
    monitor: Option<String>,
    #[command(flatten)]
    keys: KeyArgs,
    /// Encrypts what is written from now on, in all files
    #[arg(long, requires = "keys")]
    encrypt: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Durability {
    Sync,
    Write,
    Lazy,
}

impl From<Durability> for FlushLog {
    fn from(durability: Durability) -> FlushLog {
        match durability {
            Durability::Sync => FlushLog::Sync,
            Durability::Write => FlushLog::Write,
            Durability::Lazy => FlushLog::Lazy,
        }
    }
}

pub fn run(args: &Args) -> Result<Outcome, String> {
    let failed = |e: varve::Error| e.to_string();
    // Whoever ends it finds it listening for that from the beginning.
    let end = End::listen()?;
    let options = Options {
        buffer_pool_bytes: args.buffer_pool << 20,
        flush_log_at_trx_commit: args.durability.into(),
        encryption_keys: args.keys.read().map_err(failed)?,
        encrypt_tables: args.encrypt,
        encrypt_log: args.encrypt,
        encrypt_temporary_tables: args.encrypt,
        ..Options::default()
    };
    let db = Database::open(&args.dir, options).map_err(failed)?;
    let monitor = args.monitor.as_ref().map(MonitorOptions::new);
    let monitor = monitor.map(|options| Monitor::start(&db, options));
    let monitor = monitor.transpose().map_err(failed)?;
    let server = Memcached::start(&db, server_options(args)).map_err(failed)?;
    let place = match (server.address(), &args.socket) {
        (None, Some(socket)) => socket.display().to_string(),
        (address, _) => address.map_or(String::new(), |address| address.to_string()),
    };
    say(&format!("varve: listening on {place}"));
    if let Some(monitor) = &monitor {
        say(&format!("varve: the monitor is at {}", monitor.url()));
    }
    end.wait();
    server.stop();
    drop(monitor);
    db.close().map_err(failed)?;
    Ok(Outcome::Clean)
}

/// Who reads no more is told no more.
fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

fn server_options(args: &Args) -> MemcachedOptions {
    let files = args.tls_certificate.clone().zip(args.tls_key.clone());
    let seconds = |n: u64| (n > 0).then(|| Duration::from_secs(n));
    MemcachedOptions {
        address: args.socket.is_none().then(|| args.address.clone()),
        socket: args.socket.clone(),
        table: args.table.clone(),
        threads: args.threads,
        change_threads: args.change_threads,
        connections: args.connections,
        value_bytes: args.value_bytes,
        batch: args.batch,
        read_batch: NonZeroUsize::new(args.read_batch),
        accounts: args.accounts.clone(),
        tls: files.map(|(certificate, key)| TlsFiles {
            certificate,
            key,
            authorities: args.tls_authorities.clone(),
        }),
        idle_time: seconds(args.idle_timeout),
        sweep_time: seconds(args.sweep_interval),
        ..MemcachedOptions::default()
    }
}

/// What says that it is enough.
struct End {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
}

impl End {
    fn listen() -> Result<End, String> {
        let failed = |e: io::Error| format!("listening for signals: {e}");
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io().build().map_err(failed)?;
        let (terminate, interrupt) = {
            let _of_the_runtime = runtime.enter();
            (
                signal(SignalKind::terminate()).map_err(failed)?,
                signal(SignalKind::interrupt()).map_err(failed)?,
            )
        };
        Ok(End {
            runtime,
            terminate,
            interrupt,
        })
    }

    fn wait(mut self) {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
        });
    }
}
