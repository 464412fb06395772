//! `up` and `down`: a MariaDB server for people, with Varve as its default engine.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};

use varve_testbed::client::Client;
use varve_testbed::plugin;
use varve_testbed::prefix::Prefix;
use varve_testbed::server::{DataDir, Server, stop_running};
use varve_testbed::workspace::Workspace;

#[derive(clap::Args)]
pub struct UpArgs {
    /// The data directory; initialised if it is empty [default: up-data in the target folder]
    #[arg(long)]
    datadir: Option<PathBuf>,
    /// The TCP port on the loopback address
    #[arg(long, default_value_t = 3406)]
    port: u16,
    /// Options that reach mariadbd as they are
    #[arg(last = true, value_name = "MARIADBD OPTIONS")]
    options: Vec<String>,
}

#[derive(clap::Args)]
pub struct DownArgs {
    /// The data directory that was given to `up`
    #[arg(long)]
    datadir: Option<PathBuf>,
}

pub fn up(workspace: &Workspace, args: UpArgs) -> Result<()> {
    let datadir = datadir(workspace, args.datadir)?;
    if let Some(pid) = datadir.running() {
        println!(
            "A server already runs on {} (pid {}).",
            datadir.0.display(),
            pid.as_raw_nonzero()
        );
        return how_to_connect(&Prefix::ensure(workspace)?, &datadir);
    }
    let prefix = plugin::build(workspace)?;
    datadir.initialise(&prefix)?;
    let mut options: Vec<String> = [
        "--plugin-load-add=ha_varve",
        "--default-storage-engine=VARVE",
        "--default-tmp-storage-engine=Aria",
    ]
    .map(String::from)
    .into();
    options.push(format!("--log-error={}", datadir.log().display()));
    options.extend(args.options);
    let server = Server::start(&prefix, datadir, Some(args.port), &options)?;
    println!("MariaDB with Varve is up (pid {}).", server.pid());
    let datadir = server.detach();
    how_to_connect(&prefix, &datadir)
}

pub fn down(workspace: &Workspace, args: DownArgs) -> Result<()> {
    let datadir = datadir(workspace, args.datadir)?;
    if stop_running(&datadir)? {
        println!("The server on {} is down.", datadir.0.display());
    } else {
        println!("No server runs on {}.", datadir.0.display());
    }
    Ok(())
}

fn datadir(workspace: &Workspace, given: Option<PathBuf>) -> Result<DataDir> {
    Ok(DataDir(match given {
        Some(dir) => env::current_dir()?.join(dir),
        None => workspace.target.join("up-data"),
    }))
}

fn how_to_connect(prefix: &Prefix, datadir: &DataDir) -> Result<()> {
    let port = Client::connect(&datadir.socket())
        .and_then(|mut client| client.value("SELECT @@port"))
        .context("the server runs but does not answer")?;
    let socket = datadir.socket();
    println!("  socket   {}", socket.display());
    println!("  TCP      127.0.0.1:{port}, user root, no password");
    println!("  log      {}", datadir.log().display());
    println!(
        "  connect  {} --no-defaults -uroot -S {}",
        prefix.usr().join("bin/mariadb").display(),
        socket.display()
    );
    Ok(())
}
