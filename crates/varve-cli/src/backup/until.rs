//! `varve restore --until`: what the server's binary logs have after the backup, up to a moment.
//!
//! A server is started on the restored data directory, which only this process reaches, and gets what
//! `mariadb-binlog` makes of the logs, from the backup's position on. It writes no binary log, and is shut
//! down when that is over. It has an account for that, with a password that nobody knows, which goes at the
//! end.
//!
//! `mariadb-binlog` stops between transactions: at a GTID after it, at a position before what begins there,
//! at a time before the first one whose statement is of then or later. What it has begun and can't end is
//! taken back, and so is what a position in the middle of a transaction has.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use varve::backup::Collection;

use super::restoring::is_without_innodb;
use super::server::{ELSEWHERE, last_lines, not_run};

const PAUSE: Duration = Duration::from_millis(50);
/// What is looked at of each line.
const LONGEST_LINE: usize = 300;
/// Who plays them.
const USER: &str = "varve-restore";
const ACCOUNT: &str = "'varve-restore'@'localhost'";
const PACKET: &str = "--max-allowed-packet=1G";

/// The moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Until {
    Time(String),
    Gtid(String),
    Position(String, u64),
}

impl Until {
    /// `2026-11-30 12:00:00`, `0-1-9115`, or `binlog.000012:4711`.
    pub fn parse(text: &str) -> Result<Until, String> {
        let text = text.trim();
        let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
        let are_numbers = |text: &str, by: char, n: usize| {
            text.split(by).count() == n && text.split(by).all(is_number)
        };
        if text.split(',').all(|gtid| are_numbers(gtid.trim(), '-', 3)) && !is_date(text) {
            return Ok(Until::Gtid(text.replace(' ', "")));
        }
        if let Some((day, time)) = text.split_once([' ', 'T'])
            && is_date(day)
            && are_numbers(time, ':', 3)
        {
            return Ok(Until::Time(format!("{day} {time}")));
        }
        if let Some((file, position)) = text.rsplit_once(':')
            && let (Some(_), Ok(position)) = (number_of(file), position.parse())
        {
            return Ok(Until::Position(file.into(), position));
        }
        Err(format!(
            "{text:?} is no time (2026-11-30 12:00:00), no GTID (0-1-9115), and no position (binlog.000012:4711)"
        ))
    }

    /// What is in the backup already can't be left out.
    fn check_behind(&self, backup: &Collection) -> Result<(), String> {
        let sequence = |gtid: &str| {
            let (domain, rest) = gtid.trim().split_once('-')?;
            let (_, number) = rest.split_once('-')?;
            Some((domain.to_string(), number.parse::<u64>().ok()?))
        };
        match self {
            Until::Time(time) => {
                let asked = Command::new("date").args(["+%s", "--date", time]).output();
                let asked = asked.map_err(|e| format!("date can't be run: {e}"))?;
                let seconds = String::from_utf8_lossy(&asked.stdout);
                let Ok(seconds) = seconds.trim().parse::<i64>() else {
                    return Err(format!("{time} is no time"));
                };
                let made = backup
                    .note("time")
                    .and_then(|made| made.parse::<f64>().ok());
                match made.is_some_and(|made| seconds as f64 <= made) {
                    true => Err(format!(
                        "{time} is not behind the backup: take an older one"
                    )),
                    false => Ok(()),
                }
            }
            Until::Gtid(gtids) => {
                let in_backup = backup.note("gtid").unwrap_or_default();
                let in_backup: BTreeMap<_, _> = in_backup.split(',').filter_map(sequence).collect();
                let is_in = |(domain, number): &(String, u64)| {
                    in_backup.get(domain).is_some_and(|last| number < last)
                };
                match gtids
                    .split(',')
                    .filter_map(sequence)
                    .any(|gtid| is_in(&gtid))
                {
                    true => Err(format!(
                        "gtid {gtids} is not behind the backup: take an older one"
                    )),
                    false => Ok(()),
                }
            }
            Until::Position(..) => Ok(()),
        }
    }

    /// For `mariadb-binlog`.
    fn option(&self) -> String {
        match self {
            Until::Time(time) => format!("--stop-datetime={time}"),
            Until::Gtid(gtid) => format!("--stop-position={gtid}"),
            Until::Position(_, position) => format!("--stop-position={position}"),
        }
    }
}

/// A day in the calendar looks like a GTID.
fn is_date(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [4, 2, 2]
}

/// The number of a binary log, by its name.
fn number_of(name: &str) -> Option<u64> {
    let (_, number) = name.rsplit_once('.')?;
    (number.len() >= 6).then(|| number.parse().ok()).flatten()
}

/// The logs that are to be played.
#[derive(Debug)]
pub struct Logs {
    files: Vec<PathBuf>,
    /// In the first one.
    from: u64,
    until: Until,
}

impl Logs {
    /// Those in `dir` from the backup's position on, by its notes.
    pub fn find(dir: &Path, backup: &Collection, until: Until) -> Result<Logs, String> {
        let note = |key: &str| {
            let value = backup.note(key);
            value.ok_or("the backup has no position in a binary log: the server had none")
        };
        until.check_behind(backup)?;
        let (first, from) = (note("binlog")?, note("position")?);
        let from = from.parse().map_err(|_| format!("{from} is no position"))?;
        let first_number = number_of(first).ok_or_else(|| format!("{first} is no binary log"))?;
        let stem = |name: &str| name.rsplit_once('.').map(|(stem, _)| stem.to_string());
        let told = |e: std::io::Error| format!("{}: {e}", dir.display());
        let mut logs = BTreeMap::new();
        for entry in fs::read_dir(dir).map_err(told)? {
            let name = entry.map_err(told)?.file_name();
            let name = name.to_string_lossy();
            let number = number_of(&name).filter(|_| stem(&name) == stem(first));
            if let Some(number) = number.filter(|number| *number >= first_number) {
                logs.insert(number, name.into_owned());
            }
        }
        if let Until::Position(last, position) = &until {
            let number = number_of(last).filter(|_| stem(last) == stem(first));
            let is_before = number == Some(first_number) && *position < from;
            if is_before || number.is_none_or(|number| number < first_number) {
                return Err(format!(
                    "{last}:{position} is not behind the backup, which is of {first}:{from}"
                ));
            }
            logs.retain(|log, _| Some(*log) <= number);
            if number.is_some_and(|number| !logs.contains_key(&number)) {
                return Err(format!("there is no {last} in {}", dir.display()));
            }
        }
        for (number, expected) in logs.keys().zip(first_number..) {
            if *number != expected {
                return Err(format!(
                    "of the binary logs from {first} on number {expected} is not in {}",
                    dir.display()
                ));
            }
        }
        match logs.is_empty() {
            true => Err(format!(
                "there is no {first} in {}, where the backup has its position",
                dir.display()
            )),
            false => Ok(Logs {
                files: logs.into_values().map(|name| dir.join(name)).collect(),
                from,
                until,
            }),
        }
    }
}

/// The server that plays them.
struct Player {
    server: Child,
    /// Of its own, and private.
    place: tempfile::TempDir,
}

impl Drop for Player {
    fn drop(&mut self) {
        // One that was shut down has ended.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Player {
    fn start(dir: &Path, defaults: Option<&Path>, backup: &Collection) -> Result<Player, String> {
        let place = tempfile::tempdir().map_err(|e| format!("a directory for a socket: {e}"))?;
        let own = |name: &str| place.path().join(name).display().to_string();
        let told = |e: std::io::Error| format!("{}: {e}", place.path().display());
        let options = match defaults {
            Some(file) => vec![format!("--defaults-file={}", file.display())],
            None => vec!["--no-defaults".into(), "--plugin-load-add=ha_varve".into()],
        };
        // What plugins may ask of a password is in it.
        let password: String = (0..30).map(|_| fastrand::alphanumeric()).collect();
        let password = format!("aB3-{password}");
        let account = format!(
            "CREATE OR REPLACE USER {ACCOUNT} IDENTIFIED BY '{password}';\n\
             GRANT ALL PRIVILEGES ON *.* TO {ACCOUNT} WITH GRANT OPTION;\n"
        );
        fs::write(own("init"), account).map_err(told)?;
        let client = format!(
            "[client]\nuser={USER}\npassword={password}\nsocket={}\n",
            own("socket")
        );
        fs::write(own("client"), client).map_err(told)?;
        let dir = std::path::absolute(dir).map_err(told)?;
        // All files are in the data directory now.
        let directories = ELSEWHERE.map(|name| match name.starts_with("varve") {
            true => format!("--loose-{name}="),
            false => format!("--loose-{name}={}", dir.display()),
        });
        let as_before = backup.notes.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix("server:")?;
            Some(format!("--loose-{name}={value}"))
        });
        let log = fs::File::create(own("log")).map_err(told)?;
        let said = log.try_clone().map_err(told)?;
        let server = Command::new("mariadbd")
            .args(options)
            .arg(format!("--datadir={}", dir.display()))
            .arg(format!("--socket={}", own("socket")))
            .arg(format!("--pid-file={}", own("pid")))
            .arg(format!("--init-file={}", own("init")))
            .args([
                "--skip-networking",
                "--skip-log-bin",
                "--skip-slave-start",
                "--skip-log-error",
                "--event-scheduler=OFF",
                PACKET,
            ])
            .args(directories)
            .args(as_before)
            .args(is_without_innodb(backup).then_some("--skip-innodb"))
            .args(super::is_root().then_some("--user=root"))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(said)
            .spawn();
        let server = server.map_err(|e| not_run("mariadbd", &e))?;
        Ok(Player { server, place })
    }

    fn client(&self) -> Command {
        let mut client = Command::new("mariadb");
        let options = self.place.path().join("client");
        client
            .arg(format!("--defaults-file={}", options.display()))
            .args(["--binary-mode", PACKET]);
        client
    }

    /// Until it answers: it recovers first.
    fn wait(&mut self) -> Result<(), String> {
        loop {
            if let Ok(Some(status)) = self.server.try_wait() {
                return Err(format!(
                    "the server that is to play the binary logs has ended, {status}: {}",
                    self.said()
                ));
            }
            let mut asked = self.client();
            let asked = asked.args(["--execute", "SELECT 1"]).output();
            let asked = asked.map_err(|e| not_run("mariadb", &e))?;
            if asked.status.success() {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
    }

    /// The end of its error log.
    fn said(&self) -> String {
        last_lines(&self.place.path().join("log"))
    }
}

/// Plays them on the data directory, and says where it is then.
pub fn play(
    logs: &Logs,
    dir: &Path,
    defaults: Option<&Path>,
    backup: &Collection,
) -> Result<String, String> {
    let mut player = Player::start(dir, defaults, backup)?;
    player.wait()?;
    let mut read = Command::new("mariadb-binlog")
        .args(["--no-defaults", &format!("--start-position={}", logs.from)])
        .arg(logs.until.option())
        .args(&logs.files)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| not_run("mariadb-binlog", &e))?;
    let mut played = player
        .client()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| not_run("mariadb", &e))?;
    let whole = |text: Option<&mut dyn Read>| {
        let mut bytes = Vec::new();
        text.map(|text| text.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).trim().to_string()
    };
    let (mut warned, mut refused) = (read.stderr.take(), played.stderr.take());
    let (reached, warned, refused) = thread::scope(|scope| {
        let warned = scope.spawn(|| whole(warned.as_mut().map(|e| e as &mut dyn Read)));
        let refused = scope.spawn(|| whole(refused.as_mut().map(|e| e as &mut dyn Read)));
        let from = read.stdout.take().expect("it is a pipe");
        let mut to = played.stdin.take().expect("it is a pipe");
        // Where it can't be written the client has ended, and says why.
        let reached = hand_on(BufReader::new(from), &mut to).unwrap_or_default();
        let is_all = read.wait().is_ok_and(|status| status.success());
        if is_all {
            let _ = to.write_all(format!("\nDROP USER {ACCOUNT};\nSHUTDOWN;\n").as_bytes());
        }
        drop(to);
        let joined = "reading does not panic";
        let (warned, refused) = (warned.join().expect(joined), refused.join().expect(joined));
        (is_all.then_some(reached), warned, refused)
    });
    let left = format!(
        "{} is somewhere between the backup and there: remove it",
        dir.display()
    );
    let done = played.wait().is_ok_and(|status| status.success());
    let Some(reached) = reached.filter(|_| done) else {
        let why = if refused.is_empty() { warned } else { refused };
        return Err(format!("the binary logs can't be played: {why}; {left}"));
    };
    let ended = player.server.wait().is_ok_and(|status| status.success());
    if !ended {
        return Err(format!(
            "the server has not shut down well: {}; {left}",
            player.said()
        ));
    }
    let missed = warned.lines().find(|line| line.contains("Did not reach"));
    match (missed, &logs.until) {
        (None, _) => Ok(reached.words()),
        (Some(_), Until::Time(_)) => Ok(format!(
            "{}; the binary logs end before the time that was given",
            reached.words()
        )),
        (Some(missed), _) => Err(format!(
            "the binary logs end before the moment that was given: {missed}; {} is at their end: {}",
            dir.display(),
            reached.words()
        )),
    }
}

/// The newest GTID of each domain.
#[derive(Default)]
struct Reached {
    gtids: BTreeMap<String, String>,
    /// What has begun, and whether it is all of a group.
    begun: Option<(String, bool)>,
}

impl Reached {
    fn note(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(&line[..line.len().min(LONGEST_LINE)]);
        if line.starts_with("COMMIT") || line.starts_with("XA ") {
            self.end_group();
        }
        // #261130 12:00:00 server id 1  end_log_pos 371 CRC32 0x0b3df1e2 	GTID 0-1-9 trans
        if let Some((_, rest)) = line.split_once("\tGTID ").filter(|_| line.starts_with('#')) {
            self.end();
            let gtid = rest.split_whitespace().next().unwrap_or_default();
            self.begun = Some((gtid.into(), rest.contains(" ddl")));
        }
    }

    fn end_group(&mut self) {
        if let Some((gtid, _)) = self.begun.take() {
            let domain = gtid.split('-').next().unwrap_or_default();
            self.gtids.insert(domain.into(), gtid);
        }
    }

    /// Nothing more comes of what has begun.
    fn end(&mut self) {
        match self.begun {
            Some((_, true)) => self.end_group(),
            _ => self.begun = None,
        }
    }

    fn words(&self) -> String {
        match self.gtids.is_empty() {
            true => "there was nothing to play".into(),
            false => {
                let gtids: Vec<&str> = self.gtids.values().map(String::as_str).collect();
                format!("played up to gtid {}", gtids.join(","))
            }
        }
    }
}

/// Hands all lines on, and says what was in them.
fn hand_on(mut from: impl BufRead, to: &mut impl Write) -> std::io::Result<Reached> {
    let (mut reached, mut line) = (Reached::default(), Vec::new());
    while from.read_until(b'\n', &mut line)? > 0 {
        reached.note(&line);
        to.write_all(&line)?;
        line.clear();
    }
    reached.end();
    Ok(reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted<const N: usize>(notes: [(&str, &str); N]) -> Collection {
        Collection {
            notes: notes.map(|(key, value)| (key.into(), value.into())).into(),
            ..Collection::default()
        }
    }

    #[test]
    fn moments_are_told_apart() {
        let time = Until::Time("2026-11-30 12:00:00".into());
        assert_eq!(Until::parse("2026-11-30 12:00:00"), Ok(time.clone()));
        assert_eq!(Until::parse(" 2026-11-30T12:00:00"), Ok(time));
        assert_eq!(Until::parse("0-1-9115"), Ok(Until::Gtid("0-1-9115".into())));
        assert_eq!(
            Until::parse("0-1-9, 2-1-7"),
            Ok(Until::Gtid("0-1-9,2-1-7".into()))
        );
        let position = Until::Position("my:bin.000012".into(), 4711);
        assert_eq!(Until::parse("my:bin.000012:4711"), Ok(position));
        for text in [
            "",
            "yesterday",
            "2026-11-30",
            "12:00:00",
            "binlog.12:4",
            "0-1",
            "binlog.000012",
        ] {
            let told = Until::parse(text).unwrap_err();
            assert!(told.contains("is no time"), "{told}");
        }
    }

    #[test]
    fn logs_are_those_from_the_backup_on() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "b.000001", "b.000002", "b.000003", "b.000005", "c.000002", "b.index",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let find = |file: &str, until: &str| {
            let until = Until::parse(until).unwrap();
            let backup = noted([("binlog", file), ("position", "100")]);
            Logs::find(dir.path(), &backup, until).map(|logs| logs.files.len())
        };
        assert_eq!(find("b.000005", "0-1-2"), Ok(1));
        assert_eq!(find("b.000001", "b.000003:7"), Ok(3));
        assert_eq!(find("b.000002", "b.000002:100"), Ok(1));
        for (file, until, says) in [
            ("b.000002", "0-1-2", "number 4 is not"),
            ("b.000004", "0-1-2", "number 4 is not"),
            ("b.000006", "0-1-2", "no b.000006"),
            ("b.000002", "b.000002:99", "not behind the backup"),
            ("b.000002", "b.000001:999", "not behind the backup"),
            ("b.000002", "c.000002:999", "not behind the backup"),
            ("b.000005", "b.000007:4", "no b.000007"),
        ] {
            let told = find(file, until).unwrap_err();
            assert!(told.contains(says), "{told}");
        }
        let behind = |until: &str| {
            let backup = noted([("time", "1764500000.5"), ("gtid", "0-1-7,2-1-9")]);
            Until::parse(until).unwrap().check_behind(&backup)
        };
        assert_eq!(behind("2099-01-01 00:00:00"), Ok(()));
        assert_eq!(behind("0-1-8,1-1-1"), Ok(()));
        for until in ["2024-01-01 00:00:00", "0-1-6", "0-3-8,2-1-8"] {
            let told = behind(until).unwrap_err();
            assert!(told.contains("not behind"), "{told}");
        }
        assert!(
            behind("2026-13-01 00:00:00")
                .unwrap_err()
                .contains("is no time")
        );
        let until = Until::Gtid("0-1-2".into());
        let told = Logs::find(dir.path(), &Collection::default(), until).unwrap_err();
        assert!(told.contains("the server had none"), "{told}");
    }

    #[test]
    fn what_was_taken_back_was_not_reached() {
        let gtid = |gtid: &str, flags: &str| {
            format!(
                "#261130 12:00:00 server id 1  end_log_pos 371 CRC32 0x1 \tGTID {gtid} {flags}\n"
            )
        };
        let footer = "ROLLBACK /* added by mysqlbinlog */;\n";
        let whole = gtid("1-1-7", "ddl")
            + "CREATE TABLE t (a INT)\n"
            + &gtid("0-1-9", "trans")
            + "COMMIT\n";
        let cut = whole.clone() + &gtid("0-1-10", "trans") + "# at 400\n" + footer;
        let whole = whole + &gtid("0-1-10", "ddl") + "DROP TABLE t\n" + footer;
        let told = [cut, whole].map(|text| {
            let mut out = Vec::new();
            let reached = hand_on(text.as_bytes(), &mut out).unwrap();
            assert!(out.ends_with(text.as_bytes()));
            reached.words()
        });
        assert_eq!(
            told,
            [
                "played up to gtid 0-1-9,1-1-7",
                "played up to gtid 0-1-10,1-1-7"
            ]
        );
    }
}
