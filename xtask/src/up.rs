//! `up` and `down`: a MariaDB server for people, with Varve as its default engine.

use std::env;
use std::fs;
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
    /// The port of the page with live plots, on the loopback address; 0: none
    #[arg(long, default_value_t = 3480)]
    monitor_port: u16,
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
    if args.monitor_port > 0 {
        let address = format!("127.0.0.1:{}", args.monitor_port);
        options.push(format!("--varve-monitor-address={address}"));
    }
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
    if let Some(monitor) = monitor(&fs::read_to_string(datadir.log()).unwrap_or_default()) {
        println!("  monitor  {monitor}");
    }
    println!(
        "  connect  {} --no-defaults -uroot -S {}",
        prefix.usr().join("bin/mariadb").display(),
        socket.display()
    );
    Ok(())
}

/// What the server that runs has said about its monitor: the last one that has written to the log.
fn monitor(log: &str) -> Option<&str> {
    let said = |line: &str| line.find("VARVE: ").map(|at| at + "VARVE: ".len());
    let mut lines = log.lines().rev();
    lines.find_map(|line| {
        let text = &line[said(line)?..];
        let is_up = text.strip_prefix("the monitor is at ");
        is_up.or(text.starts_with("there is no monitor: ").then_some(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_server_has_the_word() {
        let up = "1 [Note] VARVE: the monitor is at http://127.0.0.1:1/, for everybody\n2 [Note] VARVE: else\n";
        assert_eq!(monitor(up), Some("http://127.0.0.1:1/, for everybody"));
        let log = format!(
            "{up}3 [ERROR] VARVE: there is no monitor: the port is taken\n4 [Note] ready\n"
        );
        assert_eq!(
            monitor(&log),
            Some("there is no monitor: the port is taken")
        );
        assert_eq!(monitor("4 [Note] ready\n"), None);
    }
}
