//! What one client knows about its rows, in a file outside the database: it judges what a killed process
//! left.
//!
//! A line is in the file before what it intends is sent, and the line `done` after that was answered. So at
//! any moment the file allows the state that was acknowledged last and, if something was in flight, the one
//! that this makes of it: nothing between them (STRESS-1). Each key belongs to one client, so nobody
//! else's transactions come in between.
//!
//! The file is written through, not synced: the processes that are killed are others.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail, ensure};

/// A client's rows by table: the version of each key.
pub type Tables = BTreeMap<String, BTreeMap<u32, u64>>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ddl {
    Create(String),
    Rename(String, String),
    Truncate(String),
    Drop(String),
    /// Changes the form of a table, by a number that chooses how, and none of its rows.
    Alter(String, u32),
}

impl Ddl {
    fn apply(&self, tables: &mut Tables) {
        match self {
            Self::Create(name) | Self::Truncate(name) => {
                tables.insert(name.clone(), BTreeMap::new());
            }
            Self::Rename(from, to) => {
                if let Some(rows) = tables.remove(from) {
                    tables.insert(to.clone(), rows);
                }
            }
            Self::Drop(name) => drop(tables.remove(name)),
            Self::Alter(..) => {}
        }
    }
}

impl Display for Ddl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(name) => write!(f, "create {name}"),
            Self::Rename(from, to) => write!(f, "rename {from} {to}"),
            Self::Truncate(name) => write!(f, "truncate {name}"),
            Self::Drop(name) => write!(f, "drop {name}"),
            Self::Alter(name, how) => write!(f, "alter {name} {how}"),
        }
    }
}

/// A line of the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A table that is there from the start.
    Table(String),
    /// A statement of the transaction was answered, or is all of it: it wrote this version of a row.
    Put(String, u32, u64),
    Delete(String, u32),
    /// The newest so many changes of the transaction are taken back.
    Forget(usize),
    CommitSent,
    DdlSent(Ddl),
    /// What was sent last was answered: it is done.
    Done,
    /// What was sent last was refused, or the transaction rolled back: nothing of it may be seen again.
    Undone,
}

impl Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(name) => write!(f, "table {name}"),
            Self::Put(table, key, version) => write!(f, "put {table} {key} {version}"),
            Self::Delete(table, key) => write!(f, "delete {table} {key}"),
            Self::Forget(changes) => write!(f, "forget {changes}"),
            Self::CommitSent => f.write_str("commit"),
            Self::DdlSent(ddl) => write!(f, "ddl {ddl}"),
            Self::Done => f.write_str("done"),
            Self::Undone => f.write_str("undone"),
        }
    }
}

impl FromStr for Event {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let name = |word: &&str| word.to_string();
        Ok(match words.as_slice() {
            ["table", table] => Self::Table(name(table)),
            ["put", table, key, version] => Self::Put(name(table), key.parse()?, version.parse()?),
            ["delete", table, key] => Self::Delete(name(table), key.parse()?),
            ["forget", changes] => Self::Forget(changes.parse()?),
            ["commit"] => Self::CommitSent,
            ["ddl", "create", table] => Self::DdlSent(Ddl::Create(name(table))),
            ["ddl", "rename", from, to] => Self::DdlSent(Ddl::Rename(name(from), name(to))),
            ["ddl", "truncate", table] => Self::DdlSent(Ddl::Truncate(name(table))),
            ["ddl", "drop", table] => Self::DdlSent(Ddl::Drop(name(table))),
            ["ddl", "alter", table, how] => Self::DdlSent(Ddl::Alter(name(table), how.parse()?)),
            ["done"] => Self::Done,
            ["undone"] => Self::Undone,
            _ => bail!("{line:?} is no line of a journal"),
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Change {
    table: String,
    key: u32,
    version: Option<u64>,
}

/// What the lines so far say.
#[derive(Default, Debug)]
pub struct Expected {
    acknowledged: Tables,
    /// Of the transaction that has not ended.
    changes: Vec<Change>,
    sent: Option<Sent>,
}

#[derive(Debug)]
enum Sent {
    Commit,
    Ddl(Ddl),
}

impl Expected {
    fn apply(&mut self, event: &Event) {
        match event.clone() {
            Event::Table(name) => drop(self.acknowledged.entry(name).or_default()),
            Event::Put(table, key, version) => self.changes.push(Change {
                table,
                key,
                version: Some(version),
            }),
            Event::Delete(table, key) => self.changes.push(Change {
                table,
                key,
                version: None,
            }),
            Event::Forget(changes) => {
                let left = self.changes.len().saturating_sub(changes);
                self.changes.truncate(left);
            }
            Event::CommitSent => self.sent = Some(Sent::Commit),
            Event::DdlSent(ddl) => self.sent = Some(Sent::Ddl(ddl)),
            Event::Done => {
                if let Some(after) = self.after() {
                    self.acknowledged = after;
                }
                (self.changes, self.sent) = (Vec::new(), None);
            }
            Event::Undone => (self.changes, self.sent) = (Vec::new(), None),
        }
    }

    /// What was acknowledged.
    pub fn before(&self) -> &Tables {
        &self.acknowledged
    }

    /// What is there if what is in flight is done; `None` if nothing is.
    pub fn after(&self) -> Option<Tables> {
        let mut tables = self.acknowledged.clone();
        match self.sent.as_ref()? {
            Sent::Commit => self.changes.iter().for_each(|change| {
                let rows = tables.entry(change.table.clone()).or_default();
                change.apply(rows);
            }),
            Sent::Ddl(ddl) => ddl.apply(&mut tables),
        }
        Some(tables)
    }

    /// How many changes the transaction has made.
    pub fn changes(&self) -> usize {
        self.changes.len()
    }

    /// A table's rows as the transaction sees its own.
    pub fn visible(&self, table: &str) -> BTreeMap<u32, u64> {
        let mut rows = self.acknowledged.get(table).cloned().unwrap_or_default();
        let own = self.changes.iter().filter(|change| change.table == table);
        own.for_each(|change| change.apply(&mut rows));
        rows
    }
}

impl Change {
    fn apply(&self, rows: &mut BTreeMap<u32, u64>) {
        match self.version {
            Some(version) => drop(rows.insert(self.key, version)),
            None => drop(rows.remove(&self.key)),
        }
    }
}

pub struct Journal {
    path: PathBuf,
    file: File,
    pub expected: Expected,
}

impl Journal {
    /// Begins a journal in which the client has these tables, with their rows.
    pub fn create(path: &Path, tables: &Tables) -> Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .open(path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        let mut journal = Self {
            path: path.to_path_buf(),
            file,
            expected: Expected::default(),
        };
        let mut events: Vec<Event> = tables.keys().cloned().map(Event::Table).collect();
        for (table, rows) in tables {
            events.extend(rows.iter().map(|(k, v)| Event::Put(table.clone(), *k, *v)));
        }
        events.extend([Event::CommitSent, Event::Done]);
        journal.write(&events)?;
        Ok(journal)
    }

    /// Lines that belong together are written together.
    pub fn write(&mut self, events: &[Event]) -> Result<()> {
        let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
        self.file
            .write_all(lines.as_bytes())
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        events.iter().for_each(|event| self.expected.apply(event));
        Ok(())
    }

    /// STRESS-1: what was found is one of the states that the file allows. A new file begins with it; the
    /// old one is kept beside it until the next time.
    pub fn judge(&mut self, found: &Tables) -> Result<()> {
        let expected = read(&self.path)?;
        let after = expected.after();
        ensure!(
            found == expected.before() || Some(found) == after.as_ref(),
            "{}: {}{}",
            self.path.display(),
            difference(found, expected.before()),
            after.map_or(String::new(), |after| format!(
                "; if what was in flight is done: {}",
                difference(found, &after)
            ))
        );
        fs::rename(&self.path, self.path.with_extension("previous"))?;
        *self = Self::create(&self.path, found)?;
        Ok(())
    }
}

fn read(path: &Path) -> Result<Expected> {
    let text = fs::read_to_string(path)?;
    let mut expected = Expected::default();
    for (at, line) in text.lines().enumerate() {
        let event: Event = line
            .parse()
            .with_context(|| format!("{}:{}", path.display(), at + 1))?;
        expected.apply(&event);
    }
    Ok(expected)
}

/// The first few places where two states differ.
fn difference(found: &Tables, expected: &Tables) -> String {
    let names = |tables: &Tables| tables.keys().cloned().collect::<Vec<_>>();
    if names(found) != names(expected) {
        return format!("tables {:?}, not {:?}", names(found), names(expected));
    }
    let mut places = Vec::new();
    for (table, rows) in found {
        let expected = &expected[table];
        let mut keys: Vec<&u32> = rows.keys().chain(expected.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let (found, expected) = (rows.get(key), expected.get(key));
            if found != expected {
                places.push(format!("{table} {key} is {found:?}, not {expected:?}"));
            }
        }
    }
    let more = places.len().saturating_sub(5);
    places.truncate(5);
    format!("{} and {more} more", places.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(events: &[Event]) -> Expected {
        let mut expected = Expected::default();
        for event in events {
            // A round through the file's form.
            let line = event.to_string();
            let back: Event = line.parse().unwrap();
            assert_eq!(&back, event);
            expected.apply(&back);
        }
        expected
    }

    fn tables(rows: &[(&str, &[(u32, u64)])]) -> Tables {
        let own = |rows: &[(u32, u64)]| rows.iter().copied().collect();
        rows.iter()
            .map(|(name, rows)| (name.to_string(), own(rows)))
            .collect()
    }

    #[test]
    fn a_commit_in_flight_is_there_whole_or_not() {
        let name = || "a".to_string();
        let mut events = vec![
            Event::Table(name()),
            Event::Put(name(), 1, 10),
            Event::CommitSent,
            Event::Done,
            Event::Put(name(), 2, 11),
            Event::Delete(name(), 1),
            Event::Put(name(), 3, 12),
            Event::Forget(1),
        ];
        let open = say(&events);
        assert_eq!(open.before(), &tables(&[("a", &[(1, 10)])]));
        assert_eq!(open.after(), None);
        assert_eq!(open.visible("a"), BTreeMap::from([(2, 11)]));
        events.push(Event::CommitSent);
        let in_flight = say(&events);
        assert_eq!(in_flight.before(), &tables(&[("a", &[(1, 10)])]));
        assert_eq!(in_flight.after(), Some(tables(&[("a", &[(2, 11)])])));
        events.push(Event::Undone);
        assert_eq!(say(&events).after(), None);
        assert_eq!(say(&events).before(), &tables(&[("a", &[(1, 10)])]));
    }

    #[test]
    fn ddl_in_flight_is_done_or_not() {
        let [a, b] = ["a", "b"].map(String::from);
        let start = [
            Event::DdlSent(Ddl::Create(a.clone())),
            Event::Done,
            Event::Put(a.clone(), 1, 10),
            Event::CommitSent,
            Event::Done,
        ];
        for (ddl, after) in [
            (
                Ddl::Rename(a.clone(), b.clone()),
                tables(&[("b", &[(1, 10)])]),
            ),
            (Ddl::Truncate(a.clone()), tables(&[("a", &[])])),
            (Ddl::Drop(a.clone()), tables(&[])),
            (Ddl::Alter(a.clone(), 3), tables(&[("a", &[(1, 10)])])),
        ] {
            let expected = say(&[&start[..], &[Event::DdlSent(ddl)]].concat());
            assert_eq!(expected.before(), &tables(&[("a", &[(1, 10)])]));
            assert_eq!(expected.after(), Some(after));
        }
    }

    #[test]
    fn a_file_judges_what_is_found() {
        let path = std::env::temp_dir().join(format!("varve-journal-{}", std::process::id()));
        let start = tables(&[("a", &[(1, 10)])]);
        let mut journal = Journal::create(&path, &start).unwrap();
        journal.write(&[Event::Put("a".into(), 2, 11)]).unwrap();
        // Not sent: it may not be there.
        let after = tables(&[("a", &[(1, 10), (2, 11)])]);
        let wrong = journal.judge(&after).unwrap_err().to_string();
        assert!(wrong.contains("a 2 is Some(11), not None"), "{wrong}");
        journal.write(&[Event::CommitSent]).unwrap();
        assert!(journal.judge(&tables(&[("a", &[(2, 11)])])).is_err());
        journal.judge(&after).unwrap();
        // From here on it is settled.
        assert!(journal.judge(&start).is_err());
        fs::remove_file(&path).unwrap();
        fs::remove_file(path.with_extension("previous")).unwrap();
    }
}
