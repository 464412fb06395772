//! The workspace's test programs, several at a time: many of their tests wait more than they work.
//!
//! Cargo builds them and says what they are; each runs in its package's directory, as `cargo test` would run
//! it, and what it says is printed when it has ended. One that does not end is killed with all that it has
//! started, after a debugger, where there is one, has said where its threads are.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use varve_testbed::command::{self, Cmd};
use varve_testbed::workspace::{Workspace, cargo};

/// Those that take longest, so that they begin first.
const LONGEST: [&str; 4] = ["sabotage", "crash_points", "model", "varve"];

/// Far longer than any takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

struct Program {
    name: String,
    path: PathBuf,
    /// The directory of its package.
    dir: PathBuf,
}

/// Builds the programs, runs them all, and hands each line that they print to `each`. Whether all succeeded;
/// those that did not are named at the end.
pub fn run(
    workspace: &Workspace,
    options: &[&str],
    mut each: impl FnMut(&str) + Send,
) -> Result<bool> {
    let mut programs = build(workspace, options)?;
    let place = |program: &Program| LONGEST.iter().position(|name| *name == program.name);
    // The last one is taken first.
    programs.sort_by_key(|program| std::cmp::Reverse(place(program).unwrap_or(LONGEST.len())));
    let left = Mutex::new(programs);
    let done = Mutex::new((&mut each, Vec::new()));
    let costs = Mutex::new(Vec::new());
    // The two that take longest use half a processor each.
    let processors = thread::available_parallelism().map_or(1, |n| n.get());
    let at_once = processors + processors.div_ceil(2);
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                let next = || left.lock().expect("nobody panics").pop();
                while let Some(program) = next() {
                    let (said, succeeded, cost) = play(workspace, &program);
                    costs
                        .lock()
                        .expect("nobody panics")
                        .push((cost, program.name.clone()));
                    let mut done = done.lock().expect("nobody panics");
                    println!("-- {}", program.name);
                    for line in said.lines() {
                        println!("{line}");
                        (done.0)(line);
                    }
                    if !succeeded {
                        done.1.push(program.name);
                    }
                }
            });
        }
    });
    tell_dearest(costs.into_inner().expect("nobody panics"));
    let failed = done.into_inner().expect("nobody panics").1;
    if !failed.is_empty() {
        println!("-- failed: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

fn build(workspace: &Workspace, options: &[&str]) -> Result<Vec<Program>> {
    let built = command::output_of(
        Cmd::new(cargo())
            .args([
                "test",
                "--no-run",
                "--message-format=json-render-diagnostics",
            ])
            .args(options)
            .dir(&workspace.root),
    )?;
    let mut programs = Vec::new();
    for line in built.lines() {
        programs.extend(program(line)?);
    }
    Ok(programs)
}

/// What a line of cargo's says was built, if that is a test program.
fn program(line: &str) -> Result<Option<Program>> {
    let line: Value = serde_json::from_str(line).context("cannot read what cargo says")?;
    let text = |value: &Value| value.as_str().map(String::from);
    let is_test = line["profile"]["test"].as_bool() == Some(true);
    let (Some(path), Some(name), Some(manifest), true) = (
        text(&line["executable"]),
        text(&line["target"]["name"]),
        text(&line["manifest_path"]),
        is_test,
    ) else {
        return Ok(None);
    };
    let dir = Path::new(&manifest).parent();
    Ok(Some(Program {
        name,
        path: path.into(),
        dir: dir.context("a manifest lies in a directory")?.into(),
    }))
}

/// What a program took, in seconds of all processors together and on the clock.
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
struct Cost {
    processor: f64,
    clock: f64,
}

/// The programs that took most, so that somebody who wants the tests to be faster knows where to look.
fn tell_dearest(mut costs: Vec<(Cost, String)>) {
    costs.sort_by(|(a, _), (b, _)| b.processor.total_cmp(&a.processor));
    let all: f64 = costs.iter().map(|(cost, _)| cost.processor).sum();
    println!("-- {all:.0} s of processor time, most of it for:");
    for (Cost { processor, clock }, name) in costs.iter().take(10) {
        println!("   {name:<20} {processor:>7.1} s, {clock:>6.1} s on the clock");
    }
}

/// Runs it to its end: what it said, whether it succeeded, and what it took.
fn play(workspace: &Workspace, program: &Program) -> (String, bool, Cost) {
    match try_play(workspace, program) {
        Ok(result) => result,
        Err(error) => {
            let error = error.context(format!("{} did not run", program.name));
            (format!("error: {error:#}"), false, Cost::default())
        }
    }
}

fn try_play(workspace: &Workspace, program: &Program) -> Result<(String, bool, Cost)> {
    // A file takes whatever it says, however much and whoever of its children says it.
    let mut said = output_file(workspace, &program.path)?;
    let mut command = Cmd::new(&program.path)
        .env("CARGO_MANIFEST_DIR", &program.dir)
        .dir(&program.dir)
        .into_inner();
    let mut child = command
        .stdout(said.try_clone()?)
        .stderr(said.try_clone()?)
        .spawn()?;
    let mut cost = Cost::default();
    let ended = wait(&mut child, PATIENCE, &mut cost)?;
    let mut text = Vec::new();
    said.rewind()?;
    said.read_to_end(&mut text)?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    if let Err(why) = &ended {
        text += &format!("\n{} {why}\n", program.name);
    }
    Ok((text, ended.is_ok(), cost))
}

fn output_file(workspace: &Workspace, program: &Path) -> Result<File> {
    let name = program.file_name().context("a program has a name")?;
    let path = workspace.target.join("test-output").join(name);
    std::fs::create_dir_all(path.parent().context("it lies in a directory")?)?;
    File::create(&path)?;
    let file = File::options().read(true).append(true).open(&path)?;
    Ok(file)
}

/// What became of it, unless it succeeded; with the stacks of its threads, if it had to be killed. What it
/// took may lack the last moment.
fn wait(child: &mut Child, at_most: Duration, cost: &mut Cost) -> Result<Result<(), String>> {
    let begin = Instant::now();
    loop {
        cost.processor = processor_seconds(child.id()).unwrap_or(cost.processor);
        cost.clock = begin.elapsed().as_secs_f64();
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(Ok(())),
            Some(status) => return Ok(Err(format!("ended with {status}"))),
            None => {}
        }
        if begin.elapsed() > at_most {
            let stacks = stacks(child.id());
            kill_with_children(child)?;
            child.wait()?;
            let minutes = at_most.as_secs() / 60;
            return Ok(Err(format!(
                "did not end within {minutes} minutes and was killed; its threads:\n{stacks}"
            )));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// What a process and its children that have ended have taken so far; `None` if it has ended itself.
fn processor_seconds(pid: u32) -> Option<f64> {
    let fields = stat(pid)?;
    let ticks = fields.iter().skip(11).take(4);
    let ticks: Vec<u64> = ticks.map_while(|n| n.parse().ok()).collect();
    // Linux counts in hundredths of a second.
    (ticks.len() == 4).then(|| ticks.iter().sum::<u64>() as f64 / 100.0)
}

/// What the system says of a process behind its name: its state, its parent and so on. `None` if it is gone.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets, and may have any in it.
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.split_whitespace().map(String::from).collect())
}

/// Kills a process and those that it and they have started. (A process group would do the same, but then
/// Ctrl-C would not reach them.)
fn kill_with_children(child: &mut Child) -> Result<()> {
    // Stopped first, so that it starts no more of them meanwhile.
    signal(child.id(), Signal::STOP);
    let mut found = vec![child.id()];
    let mut looked_at = 0;
    while let Some(&parent) = found.get(looked_at) {
        found.extend(children(parent)?);
        looked_at += 1;
    }
    child.kill()?;
    for &pid in &found[1..] {
        signal(pid, Signal::KILL);
    }
    Ok(())
}

/// Sends a signal, to a process that may be gone.
fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let _ = kill_process(pid, signal);
    }
}

/// The processes that a process has started itself.
fn children(parent: u32) -> Result<Vec<u32>> {
    let (parent, mut children) = (parent.to_string(), Vec::new());
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may be gone by now.
        if stat(pid).is_some_and(|fields| fields.get(1) == Some(&parent)) {
            children.push(pid);
        }
    }
    Ok(children)
}

/// What a debugger says about the threads of a process.
fn stacks(pid: u32) -> String {
    let all = ["--batch", "-ex", "thread apply all backtrace"];
    let gdb = Cmd::new("gdb").args(all).args(["-p", &pid.to_string()]);
    command::output(gdb).unwrap_or_else(|error| format!("unknown: {error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_in_what_cargo_says() {
        let line = |executable: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","target":{{"name":"t"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let found = program(&line(r#""/w/target/t-1""#, true)).unwrap().unwrap();
        assert_eq!(
            (found.name.as_str(), found.dir),
            ("t", PathBuf::from("/w/a"))
        );
        for other in [
            line("null", true),
            line(r#""/w/target/t""#, false),
            r#"{"reason":"build-finished","success":true}"#.into(),
        ] {
            assert!(program(&other).unwrap().is_none(), "{other}");
        }
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let mut child = Cmd::new("sleep").arg("60").into_inner().spawn().unwrap();
        let mut cost = Cost::default();
        let result = wait(&mut child, Duration::from_millis(50), &mut cost).unwrap();
        assert!(result.unwrap_err().contains("its threads"));
        assert!(cost.clock >= 0.05 && cost.processor < cost.clock);
    }

    #[test]
    fn the_time_of_a_busy_program_is_counted() {
        let loop_for_long = "i=0; while [ $i -lt 30000000 ]; do i=$((i+1)); done";
        let mut child = Cmd::new("sh").args(["-c", loop_for_long]).into_inner();
        let mut child = child.spawn().unwrap();
        let is_counted = || processor_seconds(child.id()).is_some_and(|seconds| seconds > 0.0);
        while !is_counted() {
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(processor_seconds(child.id()), None);
    }

    #[test]
    fn what_it_has_started_is_killed_with_it() {
        let script = "(sleep 60; true) & sleep 60; true";
        let command = Cmd::new("sh").args(["-c", script]);
        let mut child = command.into_inner().spawn().unwrap();
        let mut started = Vec::new();
        while started.len() < 3 {
            started = children(child.id()).unwrap();
            for pid in started.clone() {
                started.extend(children(pid).unwrap());
            }
        }
        let killed = wait(&mut child, Duration::ZERO, &mut Cost::default());
        killed.unwrap().unwrap_err();
        let is_alive = |pid: &u32| stat(*pid).is_some_and(|fields| fields[0] != "Z");
        let begin = Instant::now();
        while started.iter().any(is_alive) {
            assert!(begin.elapsed() < Duration::from_secs(10), "{started:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn how_a_program_ended_is_told() {
        let end_of = |program| {
            let mut child = Cmd::new("sh").args(["-c", program]).into_inner();
            wait(&mut child.spawn().unwrap(), PATIENCE, &mut Cost::default()).unwrap()
        };
        assert_eq!(end_of("exit 0"), Ok(()));
        assert!(end_of("exit 101").unwrap_err().contains("101"));
        assert!(end_of("kill -ABRT $$").unwrap_err().contains("signal: 6"));
    }
}
