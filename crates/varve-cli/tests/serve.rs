//! `varve serve` from outside: it says where it listens, ends at SIGTERM, and what it has answered is there.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server, and where it listens.
fn start(dir: &Path) -> (Child, String) {
    let mut server = Command::new(env!("CARGO_BIN_EXE_varve"))
        .arg("serve")
        .arg(dir)
        .args(["--address=127.0.0.1:0", "--buffer-pool=16"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let output = server.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    let place = line.trim().strip_prefix("varve: listening on ");
    let place = place.unwrap_or_else(|| panic!("it says {line:?}")).into();
    (server, place)
}

fn say(place: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(place).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn end(mut server: Child) -> Option<i32> {
    let pid = server.id().to_string();
    let killed = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(killed.success());
    server.wait().unwrap().code()
}

#[test]
fn what_was_set_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("db");
    let (server, place) = start(&dir);
    assert_eq!(say(&place, "set a 3 0 5\r\nhello\r\n"), "STORED\r\n");
    assert_eq!(end(server), Some(0));
    let (server, place) = start(&dir);
    assert_eq!(say(&place, "get a\r\n"), "VALUE a 3 5\r\nhello\r\nEND\r\n");
    assert_eq!(end(server), Some(0));
}

#[test]
fn what_can_not_be_used_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_varve"))
        .arg("serve")
        .arg(dir.path().join("db"))
        .arg("--address=0.0.0.0:0")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("loopback addresses only"), "{said}");
}
