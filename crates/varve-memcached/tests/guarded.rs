//! Clients that have to say who they are, and connections that nobody else can read.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Server, answers_to, binary, options};
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use varve::Database;
use varve_memcached::{Memcached, MemcachedOptions, TlsFiles};

const UNKNOWN: &str = "CLIENT_ERROR unauthenticated\r\n";
const REJECTED: &str = "CLIENT_ERROR authentication failure\r\n";

fn with_accounts(dir: &TempDir) -> MemcachedOptions {
    let file = dir.path().join("accounts");
    std::fs::write(&file, "ann:secret\nbob:other\n").unwrap();
    MemcachedOptions {
        accounts: Some(file),
        ..MemcachedOptions::default()
    }
}

fn say(server: &Server, text: &str) -> String {
    String::from_utf8(answers_to(server, text.as_bytes())).unwrap()
}

/// MC-8, text.
#[test]
fn strangers_reach_nothing() {
    let files = tempfile::tempdir().unwrap();
    let server = Server::with(with_accounts(&files));
    let login = "set x 0 0 10\r\nann secret\r\n";
    let told = say(&server, &format!("{login}set a 0 0 1\r\n1\r\nget a x\r\n"));
    assert_eq!(told, "STORED\r\nSTORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    for (said, told) in [
        ("get a\r\n", UNKNOWN),
        (
            "flush_all\r\nstats\r\nversion\r\nmg a v\r\n",
            &UNKNOWN.repeat(4),
        ),
        // The value is a request of its own, then.
        ("set a 0 0\r\n1\r\n", &UNKNOWN.repeat(2)),
        (
            "set a 0 0 8\r\nann othe\r\nget a\r\n",
            &[REJECTED, UNKNOWN].concat(),
        ),
        (
            "set a 0 0 9\r\nbob other\r\nget a\r\n",
            "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
        ),
        (
            "set a 0 0 3\r\nann\r\n",
            "CLIENT_ERROR bad authentication token format\r\n",
        ),
        (
            "set a 0 0 9\r\nann secret\r\n",
            "CLIENT_ERROR bad command line termination\r\n",
        ),
        // What is too long ends the connection.
        ("set a 0 0 1000000\r\n", ""),
    ] {
        let answers = say(&server, said);
        // What is left of a refused value is no request either.
        let rest = answers
            .strip_prefix(told)
            .unwrap_or_else(|| panic!("{said}: {answers}"));
        assert_eq!(rest.replace(UNKNOWN, ""), "", "{said}");
    }
    let long = format!("{} \r\n", "x".repeat(3000));
    assert_eq!(say(&server, &long), "");
    let counted = say(&server, &format!("{login}stats\r\n"));
    assert!(counted.contains("STAT auth_errors 1\r\n"), "{counted}");
    let settings = say(&server, &format!("{login}stats settings\r\n"));
    assert!(
        settings.contains("STAT auth_enabled_sasl yes\r\n"),
        "{settings}"
    );
}

/// MC-9: accounts come and go with their file; one that is no good, or is gone, changes nothing.
#[test]
fn accounts_are_read_again() {
    let files = tempfile::tempdir().unwrap();
    let options = with_accounts(&files);
    let file = options.accounts.clone().unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let server = Server::telling(options, told.clone());
    let login = |user: &str, password: &str| {
        let value = format!("{user} {password}");
        let answer = say(
            &server,
            &format!("set x 0 0 {}\r\n{value}\r\n", value.len()),
        );
        answer == "STORED\r\n"
    };
    let put = |text: &str| {
        let fresh = file.with_extension("new");
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(&fresh, &file).unwrap();
        std::thread::sleep(Duration::from_millis(1100));
    };
    assert!(login("ann", "secret"));
    put("eve:x\nann:another\n");
    assert!(login("eve", "x") && login("ann", "another") && !login("ann", "secret"));
    put("eve:y\nann\n");
    assert!(login("eve", "x") && !login("eve", "y"));
    std::fs::remove_file(&file).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert!(login("ann", "another"));
    put("bob:other\n");
    assert!(login("bob", "other") && !login("ann", "another"));
    let told = told.lock().unwrap();
    let of_accounts: Vec<_> = (told.iter())
        .filter(|what| what.contains("the accounts stay as they were"))
        .collect();
    assert_eq!(of_accounts.len(), 2, "{told:?}");
    assert!(of_accounts[0].contains("line 2 is not of the form user:password"));
    assert!(of_accounts[1].contains("No such file"), "{told:?}");
}

/// A client that is let in as soon as there is a place.
fn let_in(server: &Server) -> TcpStream {
    let begun = Instant::now();
    loop {
        let mut stream = server.connect();
        let mut answer = [0; 8];
        let _ = stream.write_all(b"set x 0 0 10\r\nann secret\r\n");
        if stream.read_exact(&mut answer).is_ok() && answer == *b"STORED\r\n" {
            return stream;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "there is no place"
        );
    }
}

/// MC-8: whatever a stranger says meanwhile, others get his place.
#[test]
fn strangers_have_little_time() {
    let files = tempfile::tempdir().unwrap();
    let server = Server::with(MemcachedOptions {
        connections: 3,
        ..with_accounts(&files)
    });
    let begun = Instant::now();
    let mut known = server.connect();
    known.write_all(b"set x 0 0 10\r\nann secret\r\n").unwrap();
    known.read_exact(&mut [0; 8]).unwrap();
    let mut silent = server.connect();
    let mut guesses = server.connect();
    let guess = "set x 0 0 9\r\nann wrong\r\n";
    guesses.write_all(guess.repeat(100).as_bytes()).unwrap();
    let mut answers = Vec::new();
    let _ = guesses.read_to_end(&mut answers);
    let _ = silent.read_to_end(&mut answers);
    let took = begun.elapsed().as_secs_f64();
    assert!((9.5..30.0).contains(&took), "it took {took} s");
    // A few guesses, each of which takes a second.
    assert!(answers.len() <= 11 * REJECTED.len(), "{}", answers.len());
    known.write_all(b"get a\r\n").unwrap();
    known.read_exact(&mut [0; 5]).unwrap();
    // Both their places are free, once their tasks have ended.
    let others: Vec<TcpStream> = (0..2).map(|_| let_in(&server)).collect();
    drop(others);
    let counts = server.server.as_ref().unwrap().counts();
    let count = |name| counts.iter().find(|count| count.0 == name).unwrap().1;
    // The last guess is answered or not.
    let answered = (answers.len() / REJECTED.len()) as u64;
    let errors = count("auth_errors");
    assert!(
        (answered..=answered + 1).contains(&errors),
        "{errors} of {answered}"
    );
    assert_eq!(count("auth_cmds"), errors + 3);
}

/// MC-8, binary: SASL's PLAIN.
#[test]
fn strangers_reach_nothing_by_packets() {
    const LIST: u8 = 0x20;
    const LOGIN: u8 = 0x21;
    const CONTINUE: u8 = 0x22;
    const NOT_LET_IN: u16 = 0x20;
    let files = tempfile::tempdir().unwrap();
    let server = Server::with(with_accounts(&files));
    let ask = |packets: &[Vec<u8>]| {
        let answers = answers_to(&server, &packets.concat());
        let answers = binary::answers(&answers);
        let told = answers
            .into_iter()
            .map(|(_, status, _, _, value)| (status, value));
        told.collect::<Vec<_>>()
    };
    let plain = |message: &str| binary::request(LOGIN, 0, &[], "PLAIN", message);
    let rejected = (NOT_LET_IN, "Auth failure.".to_string());
    let get = binary::request(0x00, 0, &[], "a", "");
    let set = binary::request(0x01, 0, &[0; 8], "a", "1");
    // The connection ends.
    assert_eq!(
        ask(&[get.clone(), set.clone()]),
        std::slice::from_ref(&rejected)
    );
    assert_eq!(
        ask(&[set.clone(), set.clone()]),
        std::slice::from_ref(&rejected)
    );
    let listed = ask(&[binary::request(LIST, 0, &[], "", "")]);
    assert_eq!(listed, [(0, "PLAIN".to_string())]);
    let let_in = (0, "Authenticated".to_string());
    assert_eq!(
        ask(&[plain("\0ann\0secret"), set])[..],
        [let_in, (0, String::new())]
    );
    for message in ["\0ann\0other", "\0ann", "ann secret", "", "\0\0"] {
        assert_eq!(
            ask(&[plain(message)]),
            std::slice::from_ref(&rejected),
            "{message:?}"
        );
    }
    let other = binary::request(LOGIN, 0, &[], "CRAM-MD5", "\0ann\0secret");
    let more = binary::request(CONTINUE, 0, &[], "PLAIN", "\0ann\0secret");
    assert_eq!(ask(&[other, more]), [rejected.clone(), rejected]);
    // Who was let in is not any more.
    let (good, bad) = (plain("\0ann\0secret"), plain("\0ann\0other"));
    let statuses: Vec<u16> = ask(&[good, bad, get]).iter().map(|told| told.0).collect();
    assert_eq!(statuses, [0, NOT_LET_IN]);
    // What is no operation is not looked at either.
    assert_eq!(
        ask(&[binary::request(0x70, 0, &[], "", "")])[0].0,
        NOT_LET_IN
    );
    // Where nobody is asked these are no operations.
    let open = Server::start();
    let answers = binary::answers(&answers_to(&open, &plain("\0ann\0secret")));
    assert_eq!(answers[0].1, 0x81);
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Files of an authority, of the server, and of a client (`tls/make.sh`).
struct Keys;

impl Keys {
    fn path(&self, name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/tls")
            .join(name)
    }

    fn server(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.path("localhost.pem"),
            key: self.path("localhost.key"),
            authorities: None,
        }
    }

    fn certificate(&self, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.path(name)).unwrap()
    }

    /// A client, which shows its certificate if it has one.
    fn connect(&self, server: &Server, shows: Option<&str>) -> Stream {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate("authority.pem")).unwrap();
        let provider = Arc::new(rustls_graviola::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots);
        let config = match shows {
            None => config.with_no_client_auth(),
            Some(name) => {
                let chain = vec![self.certificate(&format!("{name}.pem"))];
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = "localhost".try_into().unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(connection, server.connect())
    }

    /// What the server answers.
    fn ask(&self, server: &Server, shows: Option<&str>, text: &str) -> std::io::Result<String> {
        let mut stream = self.connect(server, shows);
        stream.write_all(text.as_bytes())?;
        let mut answers = String::new();
        stream.read_to_string(&mut answers)?;
        Ok(answers)
    }
}

/// Values of several records of TLS come and go, and who speaks without it is not answered.
#[test]
fn nobody_else_can_read() {
    let keys = Keys;
    let server = Server::with(MemcachedOptions {
        tls: Some(keys.server()),
        ..MemcachedOptions::default()
    });
    let value = "v".repeat(300_000);
    let text = format!("set a 0 0 300000\r\n{value}\r\nget a\r\nquit\r\n");
    let told = keys.ask(&server, None, &text).unwrap();
    assert_eq!(
        told,
        format!("STORED\r\nVALUE a 0 300000\r\n{value}\r\nEND\r\n")
    );
    let in_the_clear = answers_to(&server, b"version\r\n");
    assert!(!in_the_clear.starts_with(b"VERSION"), "{in_the_clear:?}");
    let settings = keys
        .ask(&server, None, "stats settings\r\nquit\r\n")
        .unwrap();
    assert!(settings.contains("STAT ssl_enabled yes\r\n"), "{settings}");
}

/// Who reads late gets all, though the server waits for his next request by then: what its socket has no room
/// for must not stay where it was encrypted. How much room there is nobody knows, so all lengths are tried,
/// in steps shorter than what rustls keeps (64 KiB).
#[test]
fn nothing_of_an_answer_is_kept() {
    const VALUE_BYTES: usize = 50_000;
    const MOST_BYTES: usize = 7_000_000;
    let keys = Keys;
    let server = Server::with(MemcachedOptions {
        tls: Some(keys.server()),
        ..MemcachedOptions::default()
    });
    let value = "v".repeat(VALUE_BYTES);
    let text = format!("set a 0 0 {VALUE_BYTES}\r\n{value}\r\nquit\r\n");
    assert_eq!(keys.ask(&server, None, &text).unwrap(), "STORED\r\n");
    let one = format!("VALUE a 0 {VALUE_BYTES}\r\n{value}\r\nEND\r\n");
    for times in 1..MOST_BYTES / VALUE_BYTES {
        let mut stream = keys.connect(&server, None);
        let patience = Some(Duration::from_secs(10));
        stream.sock.set_read_timeout(patience).unwrap();
        let text = "get a\r\n".repeat(times);
        stream.write_all(text.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let mut answers = vec![0; times * one.len()];
        let all = stream.read_exact(&mut answers);
        all.unwrap_or_else(|e| panic!("{times} answers: {e}"));
        assert!(answers == one.repeat(times).as_bytes(), "{times} answers");
        // And says properly that it is over.
        stream.write_all(b"quit\r\n").unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn clients_show_certificates() {
    let keys = Keys;
    let tls = TlsFiles {
        authorities: Some(keys.path("authority.pem")),
        ..keys.server()
    };
    let server = Server::with(MemcachedOptions {
        // LISTEN-1.
        address: Some("0.0.0.0:0".into()),
        tls: Some(tls),
        ..MemcachedOptions::default()
    });
    let text = "version\r\nquit\r\n";
    let known = keys.ask(&server, Some("client"), text).unwrap();
    assert!(known.starts_with("VERSION"), "{known}");
    let stranger = keys.ask(&server, None, text);
    assert!(stranger.is_err(), "{stranger:?}");
}

/// MC-9: who comes after files have changed gets what they say; those that are no good, or don't fit each
/// other yet, change nothing, and who is connected stays so.
#[test]
fn certificates_are_read_again() {
    let keys = Keys;
    let files = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &[u8]| {
        let fresh = files.path().join("new");
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(&fresh, files.path().join(name)).unwrap();
    };
    let put_one = |name: &str, of: &str| put(name, &std::fs::read(keys.path(of)).unwrap());
    put_one("certificate", "localhost.pem");
    put_one("key", "localhost.key");
    put_one("authorities", "authority.pem");
    let told = Arc::new(Mutex::new(Vec::new()));
    let tls = TlsFiles {
        certificate: files.path().join("certificate"),
        key: files.path().join("key"),
        authorities: Some(files.path().join("authorities")),
    };
    let how = MemcachedOptions {
        tls: Some(tls),
        ..MemcachedOptions::default()
    };
    let server = Server::telling(how, told.clone());
    let ask = || {
        std::thread::sleep(Duration::from_millis(1100));
        let told = keys.ask(&server, Some("client"), "version\r\nquit\r\n");
        told.map_err(|e| e.to_string())
    };
    let is_named = |told: Result<String, String>| match told {
        Ok(told) => told.starts_with("VERSION"),
        // It shows the other certificate, which is one of the authority, too.
        Err(why) if why.contains("not valid for name") => false,
        Err(why) => panic!("{why}"),
    };
    assert!(is_named(ask()));
    let mut before = keys.connect(&server, Some("client"));
    before.write_all(b"mn\r\n").unwrap();
    before.read_exact(&mut [0; 4]).unwrap();
    put_one("certificate", "client.pem");
    put_one("key", "client.key");
    assert!(!is_named(ask()));
    put("certificate", b"nothing");
    assert!(!is_named(ask()));
    put_one("certificate", "localhost.pem");
    assert!(!is_named(ask()));
    put_one("key", "localhost.key");
    assert!(is_named(ask()));
    // Nobody whom the client's certificate is of.
    put_one("authorities", "localhost.pem");
    assert!(ask().is_err());
    put_one("authorities", "authority.pem");
    assert!(is_named(ask()));
    before.write_all(b"mn\r\n").unwrap();
    before.read_exact(&mut [0; 4]).unwrap();
    let told = told.lock().unwrap();
    let of_files: Vec<_> = (told.iter())
        .filter(|what| what.contains("certificates stay as they were"))
        .collect();
    assert_eq!(of_files.len(), 2, "{told:?}");
    assert!(of_files[0].contains("there is no certificate"), "{told:?}");
    // The certificate is that of another key.
    assert!(of_files[1].contains("KeyMismatch"), "{told:?}");
}

/// What it can't do it says before it listens.
#[test]
fn files_are_read_at_the_start() {
    let keys = Keys;
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let start = |how: MemcachedOptions| match Memcached::start(&db, how) {
        Ok(_) => String::new(),
        Err(e) => e.to_string(),
    };
    let tls = |certificate: &str, key: &str| TlsFiles {
        certificate: keys.path(certificate),
        key: keys.path(key),
        authorities: None,
    };
    let with = |files| MemcachedOptions {
        tls: Some(files),
        ..MemcachedOptions::default()
    };
    for (files, why) in [
        (tls("none.pem", "localhost.key"), "none.pem: "),
        (
            tls("localhost.key", "localhost.key"),
            "localhost.key: there is no certificate",
        ),
        (tls("localhost.pem", "localhost.pem"), "localhost.pem: "),
        (tls("localhost.pem", "client.key"), "localhost.pem: "),
    ] {
        let told = start(with(files));
        assert!(told.contains(why), "{why}: {told}");
    }
    let nobody = MemcachedOptions {
        accounts: Some(keys.path("nobody")),
        ..MemcachedOptions::default()
    };
    assert!(start(nobody).contains("read the accounts in"));
    // LISTEN-1.
    let anywhere = |how: MemcachedOptions| MemcachedOptions {
        address: Some("0.0.0.0:0".into()),
        ..how
    };
    for (how, lacks) in [
        (MemcachedOptions::default(), "does not encrypt"),
        (with_accounts(&dir), "does not encrypt"),
        (with(keys.server()), "asks nobody who he is"),
    ] {
        let told = start(anywhere(how));
        assert!(told.contains(lacks), "LISTEN-1: {told}");
    }
    let both = MemcachedOptions {
        tls: Some(keys.server()),
        ..with_accounts(&dir)
    };
    assert_eq!(start(anywhere(both)), "");
}
