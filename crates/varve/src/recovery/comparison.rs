//! Table files against definitions, after a crash: DDL-1.
//!
//! That takes time with each file, and hardly anything depends on it: so it is done while the database is in
//! use, if redo names no file that is not where its table's name says. Until it is through DDL waits
//! ([`Tables::hold_ddl_back`](crate::catalog::Tables::hold_ddl_back)), so that no file is made, removed or
//! renamed meanwhile but by a thread that opens a table and finds its file elsewhere; and the checkpoint
//! stays before the records of removals (DDL-3). If it fails the database stops, and the next start tries
//! again.

use std::collections::HashMap;
use std::sync::Arc;

use super::files::{
    FoundFile, compare_by_name, end_waits, finish_removals, is_refusal, reconcile, require_readable,
};
use super::map::PageMap;
use super::open_wherever;
use crate::base::{Error, Result, SpaceId, map_together};
use crate::buffer::{PageStore, PendingRedo};
use crate::ddl::lookups::Prefix;
use crate::ddl::{Dictionary, FILE_EXTENSION, Lookup, lost_mark_path, table_path};
use crate::io::Disk;
use crate::space::Spaces;
use crate::txn::{Core, Isolation, Transaction};

pub struct FileComparison {
    pub core: Arc<Core>,
    pub dictionary: Arc<Dictionary>,
    pub spaces: Arc<Spaces>,
    pub disk: Arc<dyn Disk>,
    /// Tablespaces that redo removes.
    pub removed: Vec<SpaceId>,
    /// Files that the system refuses to open are left out.
    pub passes_over_refusals: bool,
    /// The same of a table that only lacks its key.
    pub gives_up_keys: bool,
}

impl FileComparison {
    fn reader(&self) -> Transaction {
        Transaction::begin(self.core.clone(), Isolation::RepeatableRead)
    }

    /// Opens the tables' files that redo names, if each of them is where its table's name says. False: one is
    /// not, or has no name; nothing is passed over.
    ///
    /// # Errors
    ///
    /// What the system refuses (REC-4).
    pub fn attach(&self, map: Option<&PageMap>) -> Result<bool> {
        let mut reader = self.reader();
        let lasting = |map: &PageMap| {
            let all = map.spaces().into_iter();
            all.filter(|last| !self.removed.contains(&last.space))
                .collect()
        };
        let lacking: Vec<_> = map.map_or(Vec::new(), lasting);
        let mut closed = Vec::new();
        for last in &lacking {
            if self.spaces.get(last.space).is_some() {
                continue;
            }
            let lookup = Lookup::Space(last.space);
            let Some(found) = self.dictionary.find(&mut reader, lookup)? else {
                return Ok(false);
            };
            closed.push((table_path(&found.name), last.space));
        }
        let opened = map_together(&closed, self.spaces.disk_threads(), |(path, space)| {
            self.spaces.open_at(path, *space).map(drop)
        });
        let mut failed = opened.into_iter().filter_map(Result::err).peekable();
        if failed.peek().is_some() {
            return failed.find(is_refusal).map_or(Ok(false), Err);
        }
        if let Some(map) = map {
            self.removed.iter().for_each(|space| map.forget(*space));
        }
        for last in lacking {
            self.spaces.ensure(last)?;
        }
        Ok(true)
    }

    /// Compares, when no page is to be read whose redo is not known yet.
    pub fn run(&self) -> Result<()> {
        self.compare(None)
    }

    /// Opens the files that have no table's name, and those that redo names.
    pub fn compare(&self, map: Option<&PageMap>) -> Result<()> {
        let note = |message: &str| self.core.note(message);
        let spaces = &self.spaces;
        let (named, incomplete) = self.named()?;
        let found = compare_by_name(&*self.disk, spaces.dir(), spaces, &named, &note)?;
        if map.is_some() && !self.passes_over_refusals {
            require_readable(&found)?;
        }
        // What decides is durable: the log goes on behind it.
        finish_removals(spaces, &found, &self.removed, &note)?;
        let lacking = map.map_or(Vec::new(), PageMap::spaces);
        // Whether there is anything in a file that nobody names is in its redo, too.
        for last in lacking
            .iter()
            .filter(|last| spaces.get(last.space).is_some())
        {
            spaces.ensure(*last)?;
        }
        self.reconcile_left(found, &named, incomplete)?;
        for last in lacking {
            let path = named.get(&last.space).map(|name| table_path(name));
            if let Some(path) = path {
                let opened = open_wherever(spaces, last.space, Some(&path));
                let passes_over = match opened {
                    Err(Error::NoKey { .. }) => self.gives_up_keys,
                    _ => self.passes_over_refusals,
                };
                if !passes_over {
                    opened?;
                }
            }
            if !spaces.ensure(last)?
                && let Some(map) = map
            {
                map.forget(last.space);
            }
        }
        self.mark_missing(&named)
    }

    /// With files that were all opened, of which those that redo removes are gone.
    pub fn reconcile(&self, found: Vec<FoundFile>) -> Result<()> {
        let (named, incomplete) = self.named()?;
        self.reconcile_left(found, &named, incomplete)?;
        self.mark_missing(&named)
    }

    /// Without those that redo removes.
    fn reconcile_left(
        &self,
        mut found: Vec<FoundFile>,
        named: &HashMap<SpaceId, String>,
        incomplete: bool,
    ) -> Result<()> {
        let is_left = |id: &SpaceId| !self.removed.contains(id);
        found.retain(|file| file.space.as_ref().map_or(true, is_left));
        // First: a file that nobody waits for may lie where a table's own is to be.
        let have_ended = self.end_waits()?;
        reconcile(&self.core, &self.spaces, &found, named, incomplete)?;
        if !have_ended {
            self.spaces.files_match(false);
        }
        Ok(())
    }

    /// See [`end_waits`].
    fn end_waits(&self) -> Result<bool> {
        let mut reader = self.reader();
        let is_discarded = &mut |path: &str| {
            let name = path.strip_suffix(FILE_EXTENSION);
            let Some(name) = name.and_then(|name| name.strip_suffix('.')) else {
                return Ok(false);
            };
            let stored = self.dictionary.read(&mut reader, name)?;
            // One that can't be read may be.
            Ok(stored.is_some_and(|stored| stored.def.map_or(true, |def| def.discarded)))
        };
        end_waits(&self.core, &*self.disk, &self.spaces, is_discarded)
    }

    fn mark_missing(&self, named: &HashMap<SpaceId, String>) -> Result<()> {
        let missed = self.spaces.missed().into_iter();
        let mut missed = missed.filter_map(|space| Some((space, named.get(&space)?)));
        missed.try_for_each(|(space, name)| self.spaces.put_mark(&lost_mark_path(name, space)))
    }

    /// The tablespaces that definitions name, with the tables' names; and whether some may not be known.
    fn named(&self) -> Result<(HashMap<SpaceId, String>, bool)> {
        let mut reader = self.reader();
        let named = self.dictionary.tablespaces(&mut reader)?;
        let unreadable = self.dictionary.all(&mut reader, &Prefix::unreadable())?;
        Ok((named, !unreadable.is_empty()))
    }
}
