//! What the threads of a process have used, by Linux's records.

use std::fs;
use std::ops::Sub;

use anyhow::{Context, Result};

/// Since they were started. A thread that has ended is not counted: those of a server's connections stay for
/// the next ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Microseconds on a processor.
    pub run_us: f64,
    /// Microseconds in which a thread could have run, and had no processor.
    pub queue_us: f64,
    /// Times that a thread slept.
    pub sleeps: f64,
}

impl Usage {
    pub fn of(pid: u32) -> Result<Usage> {
        let mut sum = Usage::default();
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?.path();
            // It may end meanwhile.
            let read = |file| fs::read_to_string(task.join(file)).unwrap_or_default();
            let (times, status) = (read("schedstat"), read("status"));
            if times.is_empty() || status.is_empty() {
                continue;
            }
            let of_task = Usage::parse(&times, &status)
                .with_context(|| format!("{}: {times}, {status}", task.display()))?;
            sum.run_us += of_task.run_us;
            sum.queue_us += of_task.queue_us;
            sum.sleeps += of_task.sleeps;
        }
        Ok(sum)
    }

    /// Of a thread's `schedstat` and `status`.
    fn parse(times: &str, status: &str) -> Option<Usage> {
        let mut times = times.split_whitespace().map(str::parse::<f64>);
        Some(Usage {
            run_us: times.next()?.ok()? / 1000.0,
            queue_us: times.next()?.ok()? / 1000.0,
            sleeps: field(status, "voluntary_ctxt_switches")?.parse().ok()?,
        })
    }
}

impl Sub for Usage {
    type Output = Usage;

    fn sub(self, before: Usage) -> Usage {
        Usage {
            run_us: self.run_us - before.run_us,
            queue_us: self.queue_us - before.queue_us,
            sleeps: self.sleeps - before.sleeps,
        }
    }
}

/// Bytes that a process has had the devices read and write, since it was started.
#[derive(Clone, Copy, Debug)]
pub struct Transferred {
    pub read: u64,
    pub written: u64,
}

impl Transferred {
    pub fn of(pid: u32) -> Result<Transferred> {
        let record = fs::read_to_string(format!("/proc/{pid}/io"))?;
        let bytes = |name| {
            let bytes = field(&record, name).and_then(|value| value.parse().ok());
            bytes.with_context(|| format!("no {name} of process {pid}"))
        };
        Ok(Transferred {
            read: bytes("read_bytes")?,
            written: bytes("write_bytes")?,
        })
    }
}

/// A field of the process's `status` that is a size, in bytes: `VmRSS`, the memory that it has; `VmHWM`, the
/// most that it has had.
pub fn memory_bytes(pid: u32, name: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kibibytes = field(&status, name).and_then(|value| value.strip_suffix("kB"));
    let kibibytes = kibibytes.with_context(|| format!("no {name} of process {pid}"))?;
    let kibibytes: u64 = kibibytes.trim().parse().context("not a number")?;
    Ok(kibibytes * 1024)
}

/// `VmHWM` is the most from now on.
pub fn forget_peak(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").with_context(|| format!("can't write {path}"))
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let of_name = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':').map(str::trim);
    status.lines().find_map(of_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read() {
        let status =
            "Name:\tmariadbd\nvoluntary_ctxt_switches:\t20\nnonvoluntary_ctxt_switches:\t3\n";
        let usage = Usage {
            run_us: 1.5,
            queue_us: 0.5,
            sleeps: 20.0,
        };
        assert_eq!(Usage::parse("1500 500 7\n", status), Some(usage));
        assert_eq!(Usage::parse("1500\n", status), None);
        let me = std::process::id();
        assert!(Usage::of(me).unwrap().run_us > 0.0);
        forget_peak(me).unwrap();
        let [now, most] = ["VmRSS", "VmHWM"].map(|name| memory_bytes(me, name).unwrap());
        assert!(1 << 20 < now && now <= most + (1 << 20), "{now}, {most}");
        assert!(memory_bytes(me, "VmNothing").is_err());
        let before = Transferred::of(me).unwrap();
        assert!(Transferred::of(me).unwrap().written >= before.written);
    }
}
