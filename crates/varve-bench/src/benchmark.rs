//! What benchmarks of servers have in common: what they are told, a server on an empty data directory with
//! the same settings for each engine, engines one after the other or in turn, how a report begins and ends.

use std::fs;
use std::ops::{Deref, DerefMut, Range};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use varve_testbed::plugin;
use varve_testbed::prefix::Prefix;
use varve_testbed::server::{DataDir, Engine, Server};
use varve_testbed::workspace::{Workspace, remove_dir};

use crate::origin::Origin;
use crate::stats::Runs;
use crate::sysbench::Sysbench;

#[derive(clap::Args)]
pub struct Common {
    /// Print the result as JSON, with all that was measured
    #[arg(long)]
    pub json: bool,
    /// Compare these engines
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Engine::Varve, Engine::Innodb])]
    pub engines: Vec<Engine>,
    /// Options for mariadbd
    #[arg(last = true, value_name = "MARIADBD OPTIONS")]
    pub options: Vec<String>,
}

/// For tables that fit into the pool, with the log synced at each commit.
pub const TABLES_IN_POOL: [&str; 4] = [
    "buffer-pool-size=2G",
    "log-file-size=1G",
    "doublewrite=ON",
    "flush-log-at-trx-commit=1",
];

/// The same for tables of some hundred megabytes.
pub const SMALL_TABLES_IN_POOL: [&str; 4] = [
    "buffer-pool-size=1G",
    "log-file-size=1G",
    "doublewrite=ON",
    "flush-log-at-trx-commit=1",
];

/// A benchmark that runs.
pub struct Benchmark<'a> {
    name: &'static str,
    workspace: &'a Workspace,
    common: &'a Common,
    prefix: Prefix,
    origin: Origin,
}

impl<'a> Benchmark<'a> {
    /// Builds what the engines need, and says what is measured and where.
    pub fn begin(workspace: &'a Workspace, name: &'static str, common: &'a Common) -> Result<Self> {
        ensure!(!common.engines.is_empty(), "nothing to run");
        let prefix = plugin::prefix_for(workspace, &common.engines)?;
        let origin = Origin::here(workspace)?;
        if !common.json {
            println!("{name}: {origin}, MariaDB {}", prefix.version);
        }
        Ok(Self {
            name,
            workspace,
            common,
            prefix,
            origin,
        })
    }

    /// A server on an empty data directory, with the same settings for all engines.
    pub fn server(&self, settings: &[&str]) -> Result<BenchServer<'_>> {
        self.server_of(&self.common.engines, settings)
    }

    /// The same for some of the engines.
    pub fn server_of(&self, engines: &[Engine], settings: &[&str]) -> Result<BenchServer<'_>> {
        let dir = self.workspace.target.join(format!("bench-{}", self.name));
        if let Some(pid) = DataDir(dir.clone()).running() {
            bail!(
                "another benchmark runs on {} (pid {})",
                dir.display(),
                pid.as_raw_nonzero()
            );
        }
        let temporary = self.temporary_dir();
        remove_dir(&dir)?;
        remove_dir(&temporary)?;
        fs::create_dir_all(temporary)?;
        let options = self.options(engines, settings);
        DataDir(dir.clone()).initialise(&self.prefix)?;
        Ok(BenchServer {
            server: Server::start(&self.prefix, DataDir(dir.clone()), None, &options)?,
            dir,
            benchmark: self,
            engines: engines.to_vec(),
        })
    }

    /// For the server's temporary files. A server that starts removes those that it finds: in the system's
    /// directory also another one's.
    fn temporary_dir(&self) -> PathBuf {
        let target = &self.workspace.target;
        target.join(format!("bench-{}-tmp", self.name))
    }

    /// Options for mariadbd: the same settings for each of `engines`.
    fn options(&self, engines: &[Engine], settings: &[&str]) -> Vec<String> {
        let mut options: Vec<String> = [
            "--skip-log-bin",
            "--performance-schema=OFF",
            "--max-connections=200",
            "--query-cache-type=0",
        ]
        .map(String::from)
        .into();
        options.push(format!("--tmpdir={}", self.temporary_dir().display()));
        if engines.contains(&Engine::Varve) {
            options.push("--plugin-load-add=ha_varve".into());
        }
        for engine in engines {
            let option = |setting: &&str| format!("--{}-{setting}", engine.option_prefix());
            options.extend(settings.iter().map(option));
        }
        options.extend(self.common.options.iter().cloned());
        options
    }

    /// The result as JSON, if that is wanted: what `result` has, and where it was measured.
    pub fn end(&self, mut result: Value) {
        if self.common.json {
            result["benchmark"] = self.name.into();
            result["mariadb"] = self.prefix.version.as_str().into();
            self.origin.add_to(&mut result);
            println!("{result:#}");
        }
    }
}

/// The server of a benchmark, with a database for each engine.
pub struct BenchServer<'a> {
    server: Server,
    pub dir: PathBuf,
    benchmark: &'a Benchmark<'a>,
    engines: Vec<Engine>,
}

impl Deref for BenchServer<'_> {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for BenchServer<'_> {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

impl<'a> BenchServer<'a> {
    /// Where sysbench works with each engine: so many tables with so many rows, which are not there yet.
    pub fn databases(&self, tables: u32, rows: u64) -> Vec<Sysbench<'a>> {
        let database = |(n, engine): (usize, &Engine)| Sysbench {
            prefix: &self.benchmark.prefix,
            socket: self.server.datadir.socket(),
            engine: *engine,
            database: format!("sbtest_{n}"),
            tables,
            rows,
        };
        self.engines.iter().enumerate().map(database).collect()
    }

    /// Bytes of the files of a database.
    pub fn bytes_of(&self, database: &Sysbench<'_>) -> Result<u64> {
        let mut bytes = 0;
        for entry in fs::read_dir(self.dir.join(&database.database))? {
            bytes += entry?.metadata()?.len();
        }
        Ok(bytes)
    }

    /// Measures the engines one after the other.
    pub fn each<T>(
        &mut self,
        databases: &[Sysbench<'a>],
        mut measure: impl FnMut(&Self, &Sysbench<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let one = |database| self.measure(database, &mut measure);
        databases.iter().map(one).collect()
    }

    /// Measures each engine so many times. The one that begins changes from round to round, so that a machine
    /// that slows down hurts all alike.
    pub fn in_turn<T>(
        &mut self,
        databases: &[Sysbench<'a>],
        rounds: usize,
        mut measure: impl FnMut(&Self, &Sysbench<'a>) -> Result<T>,
    ) -> Result<Runs<T>> {
        self.in_rounds(databases, 0..rounds, |server, database, _| {
            measure(server, database)
        })
    }

    /// The same in these of all rounds, whose number is told.
    pub fn in_rounds<T>(
        &mut self,
        databases: &[Sysbench<'a>],
        rounds: Range<usize>,
        mut measure: impl FnMut(&Self, &Sysbench<'a>, usize) -> Result<T>,
    ) -> Result<Runs<T>> {
        let mut runs = Runs::new(databases.len());
        for round in rounds {
            for n in 0..databases.len() {
                let n = (n + round) % databases.len();
                let mut measure =
                    |server: &Self, database: &Sysbench<'a>| measure(server, database, round);
                runs.add(n, self.measure(&databases[n], &mut measure)?);
            }
        }
        Ok(runs)
    }

    fn measure<T>(
        &mut self,
        database: &Sysbench<'a>,
        measure: &mut impl FnMut(&Self, &Sysbench<'a>) -> Result<T>,
    ) -> Result<T> {
        let measured = measure(self, database);
        let measured = measured.with_context(|| database.engine.name())?;
        self.server.check_alive()?;
        Ok(measured)
    }

    /// Starts it again with other settings; `start` says how.
    pub fn restart(
        &mut self,
        settings: &[&str],
        start: fn(&Prefix, DataDir, &[String]) -> Result<Server>,
    ) -> Result<()> {
        let options = self.benchmark.options(&self.engines, settings);
        self.server = start(&self.benchmark.prefix, DataDir(self.dir.clone()), &options)?;
        Ok(())
    }

    /// Another server with the same engines, on a data directory that is there.
    pub fn second(&self, dir: &Path, settings: &[&str]) -> Result<Server> {
        let options = self.benchmark.options(&self.engines, settings);
        let dir = DataDir(dir.to_path_buf());
        Server::start(&self.benchmark.prefix, dir, None, &options)
    }

    /// An orderly end, after which nothing is left.
    pub fn end(mut self) -> Result<()> {
        self.server.stop()?;
        drop(self.server);
        remove_dir(&self.dir)?;
        remove_dir(&self.benchmark.temporary_dir())
    }
}
