//! The workloads: what is timed, and the check that what was timed was also done.

use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::engine::{Durability, Engine, Worker};
use crate::held::{self, Held};
use crate::peers::{self, Peer};
use crate::rows::{Audit, Rng, VALUE_BYTES, belongs, count_up, fill, shuffled};

/// Rows that one transaction loads.
const LOAD_BATCH: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    LoadOrdered,
    LoadRandom,
    Scan,
    Read,
    Update(Durability),
    /// Updates without sync, first without a snapshot, then under one.
    Snapshot,
}

/// A workload with its number of threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload {
    pub name: &'static str,
    pub kind: Kind,
    pub threads: usize,
}

const fn workload(name: &'static str, kind: Kind, threads: usize) -> Workload {
    Workload {
        name,
        kind,
        threads,
    }
}

/// In the order in which they run; the first two each begin with an empty engine.
pub const WORKLOADS: [Workload; 10] = [
    workload("load_random", Kind::LoadRandom, 1),
    workload("load_ordered", Kind::LoadOrdered, 1),
    workload("scan", Kind::Scan, 1),
    workload("read", Kind::Read, 1),
    workload("read_2", Kind::Read, 2),
    workload("update", Kind::Update(Durability::Lazy), 1),
    workload("update_2", Kind::Update(Durability::Lazy), 2),
    workload("update_sync", Kind::Update(Durability::Synced), 1),
    workload("update_sync_8", Kind::Update(Durability::Synced), 8),
    workload("snapshot", Kind::Snapshot, 2),
];

pub struct Plan {
    pub rows: u64,
    pub time: Duration,
    /// Each of the two times of `Kind::Snapshot`.
    pub snapshot_time: Duration,
    pub only: Vec<String>,
}

impl Plan {
    fn wants(&self, workload: &Workload) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == workload.name)
    }
}

/// One measurement.
pub struct Figure {
    pub workload: &'static str,
    pub per_second: f64,
    /// Operations in a second of processor time of all the engine's threads: what is left of the figure when
    /// the machine does other things, too.
    pub per_cpu_second: f64,
    /// `Engine::history` at the end of an update workload.
    pub history: Option<u64>,
    /// What a snapshot cost.
    pub held: Option<Held>,
}

/// Runs every wanted workload once on one engine.
pub fn measure(peer: Peer, dir: &Path, plan: &Plan) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let random = &WORKLOADS[0];
    if plan.wants(random) {
        let keys = shuffled(plan.rows);
        let engine = fresh(peer, dir)?;
        figures.push(load(&*engine, &keys, random)?);
        audit(&*engine, plan.rows, 0)?;
    }
    let rest: Vec<&Workload> = WORKLOADS[2..].iter().filter(|w| plan.wants(w)).collect();
    if plan.wants(&WORKLOADS[1]) || !rest.is_empty() {
        let keys: Vec<u64> = (0..plan.rows).collect();
        let engine = fresh(peer, dir)?;
        let loaded = load(&*engine, &keys, &WORKLOADS[1])?;
        if plan.wants(&WORKLOADS[1]) {
            figures.push(loaded);
        }
        let mut updates = 0;
        for workload in rest {
            let name = workload.name;
            let (figure, operations) = match workload.kind {
                Kind::Snapshot => match held::run(&*engine, workload, dir, plan) {
                    Ok(done) => done,
                    // It is the last workload.
                    Err(error) if peers::is_full(&error) => {
                        eprintln!("{} has no figure for {name}: {error:#}", peer.name);
                        fs::remove_dir_all(dir)?;
                        return Ok(figures);
                    }
                    Err(error) => return Err(error.context(name)),
                },
                _ => timed(&*engine, workload, plan.rows, plan.time).context(name)?,
            };
            if matches!(workload.kind, Kind::Update(_) | Kind::Snapshot) {
                updates += operations;
            }
            figures.push(figure);
        }
        audit(&*engine, plan.rows, updates)?;
    }
    fs::remove_dir_all(dir)?;
    Ok(figures)
}

fn fresh(peer: Peer, dir: &Path) -> Result<Box<dyn Engine>> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    fs::create_dir_all(dir)?;
    (peer.open)(dir)
}

fn load(engine: &dyn Engine, keys: &[u64], workload: &Workload) -> Result<Figure> {
    let mut worker = engine.worker(Durability::Lazy)?;
    let mut values = vec![0; LOAD_BATCH * VALUE_BYTES];
    let (mut spent, mut cpu) = (Duration::ZERO, Duration::ZERO);
    for batch in keys.chunks(LOAD_BATCH) {
        for (key, value) in batch.iter().zip(values.chunks_mut(VALUE_BYTES)) {
            fill(*key, value);
        }
        // Making the rows is not the engine's work.
        let (begin, cpu_before) = (Instant::now(), cpu_time());
        worker.load(batch, &values[..batch.len() * VALUE_BYTES])?;
        spent += begin.elapsed();
        cpu += cpu_time() - cpu_before;
    }
    Ok(Figure {
        workload: workload.name,
        per_second: keys.len() as f64 / spent.as_secs_f64(),
        per_cpu_second: keys.len() as f64 / cpu.as_secs_f64(),
        history: None,
        held: None,
    })
}

/// Processor time that all threads of the process have used.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the clock exists and the result has a place.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(code, 0, "the processor time can't be read");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs a workload for some time; also returns how many operations were acknowledged.
pub fn timed(
    engine: &dyn Engine,
    workload: &Workload,
    rows: u64,
    time: Duration,
) -> Result<(Figure, u64)> {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Barrier::new(workload.threads + 1);
    let (spent, cpu) = std::thread::scope(|scope| -> Result<(Duration, Duration)> {
        let threads: Vec<_> = (0..workload.threads)
            .map(|n| {
                let (stop, done, start) = (&stop, &done, &start);
                scope.spawn(move || -> Result<()> {
                    let durability = match workload.kind {
                        Kind::Update(durability) => durability,
                        _ => Durability::Lazy,
                    };
                    let worker = engine.worker(durability);
                    start.wait();
                    let mut operations = 0;
                    let end = work(&mut *worker?, workload.kind, rows, n, stop, &mut operations);
                    done.fetch_add(operations, Ordering::Relaxed);
                    end
                })
            })
            .collect();
        start.wait();
        let (begin, cpu_before) = (Instant::now(), cpu_time());
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("a worker panicked")?;
        }
        Ok((begin.elapsed(), cpu_time() - cpu_before))
    })?;
    let operations = done.load(Ordering::Relaxed);
    let history = match workload.kind {
        Kind::Update(_) => engine.history(),
        _ => None,
    };
    let figure = Figure {
        workload: workload.name,
        per_second: operations as f64 / spent.as_secs_f64(),
        per_cpu_second: operations as f64 / cpu.as_secs_f64(),
        history,
        held: None,
    };
    Ok((figure, operations))
}

/// One thread's loop until `stop`.
fn work(
    worker: &mut dyn Worker,
    kind: Kind,
    rows: u64,
    thread: usize,
    stop: &AtomicBool,
    operations: &mut u64,
) -> Result<()> {
    let mut rng = Rng::new(thread as u64 + 1);
    while !stop.load(Ordering::Relaxed) {
        match kind {
            Kind::Read => {
                let key = rng.below(rows);
                let mut good = false;
                worker.get(key, &mut |key, value| good = belongs(key, value))?;
                ensure!(good, "row {key} is missing or wrong");
                *operations += 1;
            }
            Kind::Update(_) => {
                worker.update(rng.below(rows), &mut count_up)?;
                *operations += 1;
            }
            Kind::Scan => {
                let (mut found, mut wrong) = (0, 0u64);
                worker.scan(&mut |key, value| {
                    found += 1;
                    wrong += u64::from(!belongs(key, value));
                })?;
                ensure!(found == rows && wrong == 0, "{found} rows, {wrong} wrong");
                *operations += found;
            }
            Kind::LoadOrdered | Kind::LoadRandom | Kind::Snapshot => {
                unreachable!("these have steps of their own")
            }
        }
    }
    Ok(())
}

/// Everything that was acknowledged is there.
fn audit(engine: &dyn Engine, rows: u64, updates: u64) -> Result<()> {
    let mut audit = Audit::default();
    let mut worker = engine.worker(Durability::Lazy)?;
    worker.scan(&mut |key, value| audit.visit(key, value))?;
    ensure!(
        audit.rows == rows && audit.damaged == 0 && audit.updates == updates,
        "{} rows of {rows}, {} damaged, {} updates of {updates}",
        audit.rows,
        audit.damaged,
        audit.updates
    );
    Ok(())
}
