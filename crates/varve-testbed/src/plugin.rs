//! Builds `ha_varve.so`, checks it and puts it where this checkout's servers load it from.
//!
//! The flags are those that `check-abi.sh` proves against the shipped server: a wrong one shifts the
//! server's structures silently. Objects are rebuilt when a file they include or their command changed.
//! The library is replaced by a rename, never written in place: a running server has it mapped.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};

use crate::command::{self, Cmd};
use crate::prefix::{Prefix, link};
use crate::server::Engine;
use crate::workspace::{Workspace, cargo};

const COMPILE_FLAGS: [&str; 13] = [
    "-std=gnu++17",
    "-O2",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-fno-omit-frame-pointer",
    "-DNDEBUG",
    "-DDBUG_OFF",
    "-DHAVE_CONFIG_H",
    "-D_FILE_OFFSET_BITS=64",
    "-DMYSQL_DYNAMIC_PLUGIN",
];

/// What a Rust static library needs: `cargo rustc --release --lib -- --print native-static-libs`.
const LINK_LIBRARIES: [&str; 7] = [
    "-lgcc_s",
    "-lutil",
    "-lrt",
    "-lpthread",
    "-lm",
    "-ldl",
    "-lc",
];

/// Builds whatever changed. The returned prefix has the checked library in its plugin directory.
pub fn build(workspace: &Workspace) -> Result<Prefix> {
    let sources = sources(workspace)?;
    // On a fresh machine both take long: one waits for the network, the other for the processor.
    let (prefix, core) = thread::scope(|scope| {
        let core = scope.spawn(|| build_core(workspace));
        let prefix = Prefix::ensure(workspace);
        (prefix, core.join().expect("it does not panic"))
    });
    let (prefix, core) = (prefix?, core?);
    let dir = workspace.target.join("plugin");
    fs::create_dir_all(&dir)?;
    let objects = compile(workspace, &prefix, &sources, &dir)?;
    let library = dir.join("ha_varve.so");
    let map = workspace.root.join("mariadb/varve.map");
    let mut inputs = objects.clone();
    inputs.extend([core.clone(), map.clone()]);
    if is_older(&library, &inputs) {
        check_abi(workspace, &prefix, &dir)?;
        let fresh = dir.join("ha_varve.so.new");
        command::output(link_command(&prefix, &objects, &core, &map, &fresh))?;
        command::output(
            Cmd::new(workspace.root.join("mariadb/tools/check-symbols.sh"))
                .arg(&prefix.dir)
                .arg(&fresh),
        )?;
        fs::rename(&fresh, &library)?;
    }
    link(&library, &prefix.plugin())?;
    Ok(prefix)
}

/// The prefix for servers that need these engines: ours is built if it is among them.
pub fn prefix_for(workspace: &Workspace, engines: &[Engine]) -> Result<Prefix> {
    if engines.contains(&Engine::Varve) {
        build(workspace)
    } else {
        Prefix::ensure(workspace)
    }
}

fn sources(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let dir = workspace.root.join("mariadb");
    let mut sources: Vec<PathBuf> = fs::read_dir(&dir)
        .with_context(|| format!("cannot read {}", dir.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "cc"))
        .collect();
    sources.sort();
    ensure!(
        !sources.is_empty(),
        "{} has no C++ source: there is no plugin to build",
        dir.display()
    );
    Ok(sources)
}

fn build_core(workspace: &Workspace) -> Result<PathBuf> {
    command::run(
        Cmd::new(cargo())
            .args(["build", "--release", "--locked", "--package", "varve-capi"])
            .env("CARGO_TARGET_DIR", &workspace.target)
            .dir(&workspace.root),
    )
    .context("the engine does not build")?;
    let core = workspace.target.join("release/libvarve_capi.a");
    ensure!(
        core.is_file(),
        "varve-capi built no static library at {}",
        core.display()
    );
    Ok(core)
}

/// One compiler call: what it reads, what it makes.
struct Unit {
    command: Vec<String>,
    source: PathBuf,
    object: PathBuf,
}

impl Unit {
    fn depfile(&self) -> PathBuf {
        self.object.with_extension("d")
    }

    fn stamp(&self) -> PathBuf {
        self.object.with_extension("cmd")
    }

    fn is_stale(&self) -> bool {
        if fs::read_to_string(self.stamp()).ok().as_deref() != Some(&self.command.join("\n")) {
            return true;
        }
        match fs::read_to_string(self.depfile()) {
            Ok(text) => is_older(&self.object, &dependencies(&text)),
            Err(_) => true,
        }
    }

    fn build(&self) -> Result<()> {
        let _ = fs::remove_file(self.stamp());
        eprintln!("   Compiling {}", self.source.display());
        command::output(Cmd::new(&self.command[0]).args(&self.command[1..]))?;
        fs::write(self.stamp(), self.command.join("\n"))?;
        Ok(())
    }
}

fn compile(
    workspace: &Workspace,
    prefix: &Prefix,
    sources: &[PathBuf],
    dir: &Path,
) -> Result<Vec<PathBuf>> {
    let units: Vec<Unit> = sources
        .iter()
        .map(|source| unit(workspace, prefix, source, dir))
        .collect();
    let stale: Vec<&Unit> = units.iter().filter(|unit| unit.is_stale()).collect();
    let next = AtomicUsize::new(0);
    let errors = Mutex::new(Vec::new());
    let workers = thread::available_parallelism()
        .map_or(1, |n| n.get())
        .min(stale.len());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(unit) = stale.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = unit.build() {
                        errors.lock().expect("no holder panics").push(error);
                    }
                }
            });
        }
    });
    let errors = errors.into_inner().expect("no holder panics");
    if !errors.is_empty() {
        let texts: Vec<String> = errors.iter().map(|error| format!("{error:#}")).collect();
        bail!("the plugin does not compile\n{}", texts.join("\n"));
    }
    Ok(units.into_iter().map(|unit| unit.object).collect())
}

fn unit(workspace: &Workspace, prefix: &Prefix, source: &Path, dir: &Path) -> Unit {
    let (usr, src) = (prefix.usr(), prefix.dir.join("src"));
    let system_includes = [
        usr.join("include/mariadb/server"),
        src.join("include"),
        src.join("sql"),
        src.join("wsrep-lib/include"),
        src.join("wsrep-lib/wsrep-API/v26"),
    ];
    let own_includes = [
        workspace.root.join("mariadb"),
        workspace.root.join("crates/varve-capi/include"),
    ];
    let object = dir
        .join(source.file_name().expect("a source is a file"))
        .with_extension("o");
    let mut command = vec!["g++".to_string()];
    command.extend(COMPILE_FLAGS.map(String::from));
    for include in own_includes {
        command.extend(["-I".to_string(), include.display().to_string()]);
    }
    for include in system_includes {
        command.extend(["-isystem".to_string(), include.display().to_string()]);
    }
    command.extend(["-MMD", "-c"].map(String::from));
    command.extend([
        source.display().to_string(),
        "-o".into(),
        object.display().to_string(),
    ]);
    Unit {
        command,
        source: source.to_path_buf(),
        object,
    }
}

fn link_command(prefix: &Prefix, objects: &[PathBuf], core: &Path, map: &Path, to: &Path) -> Cmd {
    Cmd::new("g++")
        .args(["-shared", "-o"])
        .arg(to)
        .args(objects)
        .arg(format!("-Wl,--version-script={}", map.display()))
        .args(["-Wl,-z,nodelete,-z,now,-z,relro", "-Wl,--gc-sections"])
        .arg(core)
        .arg(prefix.library_path().join("libmysqlservices.a"))
        .args(LINK_LIBRARIES)
}

/// Once for each server version: nothing but the server, the compiler and the script decides it.
fn check_abi(workspace: &Workspace, prefix: &Prefix, dir: &Path) -> Result<()> {
    let script = workspace.root.join("mariadb/tools/check-abi.sh");
    let compiler = command::output(Cmd::new("g++").arg("--version"))?;
    let key = format!(
        "{}\n{compiler}\n{}",
        prefix.version,
        fs::read_to_string(&script)?
    );
    let stamp = dir.join("abi.checked");
    if fs::read_to_string(&stamp).ok().as_deref() == Some(&key) {
        return Ok(());
    }
    command::output(Cmd::new(&script).arg(&prefix.dir))
        .context("the plugin would not fit the server: other compiler, flags or headers")?;
    fs::write(stamp, key)?;
    Ok(())
}

/// The files after the colon of a make rule.
fn dependencies(depfile: &str) -> Vec<PathBuf> {
    let rule = depfile.replace("\\\n", " ");
    let list = rule.split_once(": ").map_or("", |(_, list)| list);
    list.split_whitespace().map(PathBuf::from).collect()
}

/// Whether `product` is missing or older than one of `inputs`, or an input is missing.
fn is_older(product: &Path, inputs: &[PathBuf]) -> bool {
    let Some(made) = modified(product) else {
        return true;
    };
    inputs
        .iter()
        .any(|input| modified(input).is_none_or(|time| time > made))
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depfile_lists_what_follows_the_colon() {
        let text = "a.o: a.cc b.h \\\n c.h\n";
        assert_eq!(
            dependencies(text),
            ["a.cc", "b.h", "c.h"].map(PathBuf::from)
        );
        assert!(dependencies("").is_empty());
    }
}
