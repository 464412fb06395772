//! Compiles each program in `tests/c` against `varve.h` and the static library, as a C user would, and runs
//! it in a directory of its own. A program says what went wrong on standard error and exits with 1.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// What a Rust static library needs: `cargo rustc --lib -- --print native-static-libs`.
const LIBRARIES: [&str; 7] = [
    "-lgcc_s",
    "-lutil",
    "-lrt",
    "-lpthread",
    "-lm",
    "-ldl",
    "-lc",
];

/// Cargo builds the static library beside this test, under a name with a hash. The newest one belongs to this
/// run.
fn static_library() -> PathBuf {
    let exe = env::current_exe().unwrap();
    let libraries = fs::read_dir(exe.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| {
            let name = entry.file_name().into_string().unwrap_or_default();
            name.starts_with("libvarve_capi") && name.ends_with(".a")
        });
    libraries
        .max_by_key(|library| library.metadata().unwrap().modified().unwrap())
        .expect("the static library is built before the tests")
        .path()
}

fn check(what: &str, output: Output) {
    assert!(
        output.status.success(),
        "{what}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn compile_and_run(program: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().unwrap();
    let exe = dir.path().join(program);
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let compiled = Command::new(compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-I"])
        .arg(root.join("include"))
        .arg(root.join("tests/c").join(program).with_extension("c"))
        .arg("-o")
        .arg(&exe)
        .arg(static_library())
        .args(LIBRARIES)
        .output()
        .unwrap();
    check("compiling", compiled);
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    check(program, Command::new(&exe).arg(&data).output().unwrap());
}

#[test]
fn lists_of_transactions_and_waits() {
    compile_and_run("transactions");
}

#[test]
fn what_is_stored_through_the_c_interface() {
    compile_and_run("catalog");
}

/// CAPI-2: also with null where a pointer may be null.
#[test]
fn rows_through_the_c_interface() {
    compile_and_run("rows");
}

#[test]
fn errors_through_the_c_interface() {
    compile_and_run("errors");
}

#[test]
fn temporary_tables_through_the_c_interface() {
    compile_and_run("temporary");
}

#[test]
fn tables_elsewhere_through_the_c_interface() {
    compile_and_run("elsewhere");
}

#[test]
fn foreign_keys_through_the_c_interface() {
    compile_and_run("foreign");
}

#[test]
fn backups_through_the_c_interface() {
    compile_and_run("backup");
}

#[test]
fn loads_through_the_c_interface() {
    compile_and_run("load");
}

#[test]
fn two_phase_commit_through_the_c_interface() {
    compile_and_run("xa");
}

#[test]
fn a_monitor_through_the_c_interface() {
    compile_and_run("monitor");
}
