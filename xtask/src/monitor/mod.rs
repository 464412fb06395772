//! The monitor's page in headless Chromium: what must be seen there is in `browser.py`. Under it is a program
//! with a database under load, `crates/varve-monitor/examples/shop.rs`.
//!
//! The browser comes from Debian's packages (`get-chromium.sh`), 90 MB into the cache.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use varve_testbed::cached::made_once;
use varve_testbed::command::{self, Cmd};
use varve_testbed::workspace::{Workspace, programs_as_tested};

use crate::mtr::Count;

/// It would be a script if the page took it for markup.
const EVIL: &str =
    "SELECT '<script>window.hacked = 1</script><img src=x onerror=\"window.hacked = 2\">'";
/// A statement for pictures.
const HARMLESS: &str =
    "SELECT warehouse, SUM(stock) FROM item GROUP BY warehouse ORDER BY SUM(stock) DESC";

#[derive(clap::Args)]
pub struct MonitorArgs {
    /// Take the pictures of docs/: after six minutes of load, in which a reader is forgotten
    #[arg(long)]
    docs: bool,
}

/// A load under which the page is looked at.
struct Load {
    /// So long it has been going on by then.
    warm_up: Duration,
    /// The reader's, and when it begins.
    statement: &'static str,
    forgotten_after: Duration,
}

const SHORT: Load = Load {
    warm_up: Duration::ZERO,
    statement: EVIL,
    forgotten_after: Duration::ZERO,
};
const FOR_PICTURES: Load = Load {
    warm_up: Duration::from_secs(340),
    statement: HARMLESS,
    forgotten_after: Duration::from_secs(130),
};

pub fn run(workspace: &Workspace, args: &MonitorArgs) -> Result<()> {
    let chromium = chromium(workspace)?;
    match args.docs {
        true => look(
            workspace,
            &chromium,
            &FOR_PICTURES,
            &workspace.root.join("docs"),
        ),
        false => look(workspace, &chromium, &SHORT, &pictures(workspace)),
    }
}

/// One test, or none if there is no browser.
pub fn run_suite(workspace: &Workspace) -> Result<Count> {
    let mut count = Count::default();
    match chromium(workspace) {
        Ok(chromium) => {
            look(workspace, &chromium, &SHORT, &pictures(workspace))?;
            count.passed = 1;
        }
        Err(error) => {
            println!("skipped: {error:#}");
            count.skipped = 1;
        }
    }
    Ok(count)
}

fn pictures(workspace: &Workspace) -> PathBuf {
    workspace.target.join("monitor")
}

/// The program to start.
fn chromium(workspace: &Workspace) -> Result<PathBuf> {
    let script = workspace.root.join("xtask/src/monitor/get-chromium.sh");
    let wanted = fs::read_to_string(&script)?;
    let make = |dir: &Path| command::run(Cmd::new(&script).arg(dir));
    let dir = made_once("monitor", &wanted, make).context("there is no browser")?;
    let python = command::output(Cmd::new("python3").arg("--version"));
    python.context("there is nobody to drive the browser")?;
    Ok(dir.join("chromium"))
}

fn look(workspace: &Workspace, chromium: &Path, load: &Load, pictures: &Path) -> Result<()> {
    fs::create_dir_all(pictures)?;
    let shop = Shop::open(workspace, load)?;
    thread::sleep(load.warm_up);
    let script = workspace.root.join("xtask/src/monitor/browser.py");
    let browser = Cmd::new("python3").arg(script).arg(chromium);
    let looked = command::run(browser.arg(&shop.url).arg(load.statement).arg(pictures));
    looked.and(shop.close())
}

/// The program that is looked at.
struct Shop {
    process: Child,
    /// When this ends, it does.
    input: ChildStdin,
    url: String,
}

impl Shop {
    fn open(workspace: &Workspace, load: &Load) -> Result<Shop> {
        let mut shop = Command::new(programs_as_tested(workspace)?.join("examples/shop"));
        shop.arg(load.forgotten_after.as_secs().to_string());
        shop.arg(load.statement);
        let process = shop.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = process.context("cannot run the example shop")?;
        let input = process.stdin.take().expect("it is a pipe");
        let mut output = BufReader::new(process.stdout.take().expect("it is a pipe"));
        let mut url = String::new();
        output.read_line(&mut url)?;
        let shop = Shop {
            process,
            input,
            url: url.trim().to_string(),
        };
        match shop.url.is_empty() {
            false => Ok(shop),
            true => shop.close().and(Err(anyhow::anyhow!(
                "the example shop does not say where it is"
            ))),
        }
    }

    fn close(mut self) -> Result<()> {
        drop(self.input);
        let status = self.process.wait()?;
        ensure!(status.success(), "the example shop ended with {status}");
        Ok(())
    }
}
