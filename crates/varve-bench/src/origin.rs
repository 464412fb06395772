//! Where figures come from: the day, the commit and the machine, without which they can't be quoted.

use std::fmt::{self, Display};
use std::fs;
use std::thread;

use anyhow::Result;
use serde_json::Value;
use varve_testbed::command::{self, Cmd};
use varve_testbed::workspace::Workspace;

pub struct Origin {
    date: String,
    commit: String,
    machine: String,
}

impl Origin {
    pub fn here(workspace: &Workspace) -> Result<Self> {
        let date = command::output(Cmd::new("date").args(["--utc", "+%F"]))?;
        let describe = ["describe", "--always", "--dirty", "--exclude=*"];
        // Sources may come without their history.
        let commit = command::output(Cmd::new("git").args(describe).dir(&workspace.root));
        Ok(Self {
            date: date.trim().into(),
            commit: commit.map_or("unknown".into(), |commit| commit.trim().into()),
            machine: machine(
                thread::available_parallelism()?.get(),
                &fs::read_to_string("/proc/cpuinfo")?,
                &fs::read_to_string("/proc/meminfo")?,
            ),
        })
    }

    pub fn add_to(&self, result: &mut Value) {
        for (name, value) in [
            ("date", &self.date),
            ("commit", &self.commit),
            ("machine", &self.machine),
        ] {
            result[name] = value.as_str().into();
        }
    }
}

impl Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            date,
            commit,
            machine,
        } = self;
        write!(f, "{date}, commit {commit}, {machine}")
    }
}

/// By what Linux says of the processors and the memory.
fn machine(processors: usize, cpuinfo: &str, meminfo: &str) -> String {
    let field = |text: &str, name: &str| {
        let value = |line: &str| {
            Some(
                line.strip_prefix(name)?
                    .split_once(':')?
                    .1
                    .trim()
                    .to_string(),
            )
        };
        text.lines().find_map(value)
    };
    let model = field(cpuinfo, "model name").unwrap_or("unknown".into());
    let kibibytes =
        field(meminfo, "MemTotal").and_then(|size| size.strip_suffix(" kB")?.parse().ok());
    let gibibytes = kibibytes.unwrap_or(0.0) / f64::from(1 << 20);
    format!("{processors} processors ({model}), {gibibytes:.0} GiB of memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let here = Origin::here(&Workspace::find().unwrap()).unwrap();
        let mut result = Value::Object(Default::default());
        here.add_to(&mut result);
        assert_eq!(
            result["date"].as_str().map(str::len),
            Some("2026-11-23".len())
        );
        assert!(here.to_string().contains(" GiB of memory"), "{here}");
    }

    #[test]
    fn a_machine_is_described() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 1\nmodel name\t: A fast one\nprocessor\t: 1\n";
        let meminfo = "MemTotal:        8123456 kB\nMemFree:          234 kB\n";
        let described = machine(2, cpuinfo, meminfo);
        assert_eq!(described, "2 processors (A fast one), 8 GiB of memory");
    }
}
