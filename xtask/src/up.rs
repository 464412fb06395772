//! `up` and `down`: a MariaDB server for people, with Varve as its default engine.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

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
        let token = token_file(&datadir.0).context("the monitor has no token")?;
        options.push(format!("--varve-monitor-token-file={}", token.display()));
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

/// The file with the token of this data directory's monitor, which nobody else may read. With a token the
/// monitor shows statements, and only to those who have it.
fn token_file(datadir: &Path) -> Result<PathBuf> {
    let path = datadir.join("varve-monitor.token");
    if !path.exists() {
        // Its owner's only from the beginning, and there when it is whole.
        let mut file = tempfile::NamedTempFile::new_in(datadir)?;
        writeln!(file, "{}", uuid::Uuid::new_v4().simple())?;
        file.persist(&path)?;
    }
    Ok(path)
}

fn how_to_connect(prefix: &Prefix, datadir: &DataDir) -> Result<()> {
    let socket = datadir.socket();
    let silent = "the server runs but does not answer";
    let mut client = Client::connect(&socket).context(silent)?;
    let port = client.value("SELECT @@port").context(silent)?;
    println!("  socket   {}", socket.display());
    println!("  TCP      127.0.0.1:{port}, user root, no password");
    println!("  log      {}", datadir.log().display());
    let log = fs::read_to_string(datadir.log()).unwrap_or_default();
    // Of a server without one, the log tells of those before it.
    let listens = client.value("SELECT @@varve_monitor_address")?;
    match monitor(&log).filter(|_| !listens.is_empty()) {
        Some(Ok(url)) => {
            let file = client.value("SELECT @@varve_monitor_token_file")?;
            match address(url, &datadir.0, &file) {
                Ok(address) => println!("  monitor  {address}"),
                Err(why) => println!("  monitor  {url}, but {why:#}"),
            }
            if !file.is_empty() {
                println!("  token    {file}, for varve top and Prometheus");
            }
        }
        Some(Err(why)) => println!("  monitor  {why}"),
        None => {}
    }
    println!(
        "  connect  {} --no-defaults -uroot -S {}",
        prefix.usr().join("bin/mariadb").display(),
        socket.display()
    );
    Ok(())
}

/// What opens the monitor's page, whose token is in this file if it has one. The server runs in its data
/// directory.
fn address(url: &str, datadir: &Path, token_file: &str) -> Result<String> {
    if token_file.is_empty() {
        return Ok(url.to_string());
    }
    let token = fs::read_to_string(datadir.join(token_file));
    let token = token.with_context(|| format!("the monitor's token in {token_file}"))?;
    Ok(format!("{url}?token={}", token.trim()))
}

/// Where the monitor of the server that runs is, or why there is none: the last one that has written to the
/// log says so.
fn monitor(log: &str) -> Option<Result<&str, &str>> {
    let said = |line: &str| line.find("VARVE: ").map(|at| at + "VARVE: ".len());
    let mut lines = log.lines().rev();
    lines.find_map(|line| {
        let text = &line[said(line)?..];
        let is_up = text.strip_prefix("the monitor is at ");
        let url = is_up.map(|rest| Ok(rest.split(", ").next().unwrap_or(rest)));
        url.or(text
            .starts_with("there is no monitor: ")
            .then_some(Err(text)))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_last_server_has_the_word() {
        let up = "1 [Note] VARVE: the monitor is at http://127.0.0.1:1/, for everybody\n2 [Note] VARVE: else\n";
        assert_eq!(monitor(up), Some(Ok("http://127.0.0.1:1/")));
        let log = format!(
            "{up}3 [ERROR] VARVE: there is no monitor: the port is taken\n4 [Note] ready\n"
        );
        assert_eq!(
            monitor(&log),
            Some(Err("there is no monitor: the port is taken"))
        );
        assert_eq!(monitor("4 [Note] ready\n"), None);
    }

    #[test]
    fn a_data_directory_has_one_token_which_the_address_shows() {
        let dir = tempfile::tempdir().unwrap();
        let file = token_file(dir.path()).unwrap();
        let token = fs::read_to_string(&file).unwrap();
        assert_eq!(token.trim().len(), 32, "{token}");
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(token_file(dir.path()).unwrap(), file);
        assert_eq!(fs::read_to_string(&file).unwrap(), token);
        let other = tempfile::tempdir().unwrap();
        let others = fs::read_to_string(token_file(other.path()).unwrap()).unwrap();
        assert_ne!(others, token, "each directory has its own");

        let url = "http://127.0.0.1:1/";
        let with = format!("{url}?token={}", token.trim());
        for name in [file.to_str().unwrap(), "varve-monitor.token"] {
            assert_eq!(address(url, dir.path(), name).unwrap(), with);
        }
        assert_eq!(address(url, dir.path(), "").unwrap(), url);
    }
}
