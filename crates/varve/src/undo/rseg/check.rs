//! Whether each undo page is where it should be (RSEG-3): for tests, and for the check of a database.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::base::{Error, NO_PAGE, PageId, PageNo, Result};
use crate::buffer::SharedPage;
use crate::page::SlottedRef;
use crate::undo::UndoEnv;
use crate::undo::header::{LogHeader, LogKind, LogSpan};

use super::free::listed_at;
use super::history::{ENTRY_COUNT, HistoryEntry, entry_at};
use super::{FREE_HEAD, FREE_LEN, Header, NEXT, Rseg, slot_at, u32_at};

/// What the pages of a rollback segment are used for.
#[derive(Default)]
struct Uses {
    pages: HashMap<PageNo, &'static str>,
}

impl Uses {
    fn add(&mut self, id: PageId, what: &'static str) -> Result<()> {
        match self.pages.entry(id.no) {
            Entry::Vacant(free) => {
                free.insert(what);
                Ok(())
            }
            Entry::Occupied(other) => {
                let found = format!("{what} and {}", other.get());
                Err(Error::corrupt(id, "one use of an undo page", found))
            }
        }
    }
}

impl Rseg {
    /// Looks at each page of the segment: the header, the queue, what lies in slots and in the history, the
    /// free chain. Returns them; an error names one that has no use or two, or holds something else.
    ///
    /// The header is latched meanwhile, shared: nobody takes a page, gives one back or commits, but logs may
    /// begin and grow within their pages.
    pub fn check(&self, env: &UndoEnv) -> Result<Vec<PageNo>> {
        // The segment stays in its tablespace.
        let _upkeep = self.upkeep.lock();
        let mut uses = Uses::default();
        uses.add(self.header(), "a segment header")?;
        let page = env.pool.shared(self.header())?;
        let header = Header::read(&page, self.header(), self.id)?;
        for slot in 0..Rseg::slot_count(page.len()) as u16 {
            let first = slot_at(&page, slot);
            if first != NO_PAGE {
                self.check_slot(env, slot, self.page(first), &mut uses)?;
            }
        }
        self.check_queue(env, &header, &mut uses)?;
        self.check_free(env, &page, &mut uses)?;
        Ok(uses.pages.into_keys().collect())
    }

    /// The free chain is as long as the header says.
    fn check_free(&self, env: &UndoEnv, header: &[u8], uses: &mut Uses) -> Result<()> {
        let (mut no, len) = (PageNo(u32_at(header, FREE_HEAD)), u32_at(header, FREE_LEN));
        let mut found = 0;
        while no != NO_PAGE {
            uses.add(self.page(no), "a free page")?;
            let page = env.pool.shared(self.page(no))?;
            let link = self.free_link(&page, no)?;
            for n in 0..link.listed {
                uses.add(self.page(listed_at(&page, n)), "a free page")?;
            }
            found += 1 + link.listed;
            no = link.next;
        }
        match found == len {
            true => Ok(()),
            false => Err(Error::corrupt(
                self.header(),
                format!("a free chain of {len} pages"),
                format!("{found}"),
            )),
        }
    }

    /// A page in a slot: cached, or with a running log.
    fn check_slot(&self, env: &UndoEnv, slot: u16, id: PageId, uses: &mut Uses) -> Result<()> {
        let first = env.pool.shared(id)?;
        let log = LogHeader::read(&first, id)?;
        if log.slot != slot {
            let expected = format!("a page of slot {slot}");
            return Err(Error::corrupt(id, expected, format!("{log:?}")));
        }
        self.check_log(env, first, &log.span(id.no), uses)
    }

    /// The pages of a log that are its own; the first is latched.
    fn check_log<'p>(
        &self,
        env: &'p UndoEnv,
        mut page: SharedPage<'p>,
        log: &LogSpan,
        uses: &mut Uses,
    ) -> Result<()> {
        let mut id = self.page(log.first);
        for n in 1..=log.pages {
            uses.add(id, "an undo log")?;
            let slotted = check_records(&page, id, log)?;
            let next = slotted.next();
            if (n < log.pages) != (next != NO_PAGE) {
                let expected = format!("page {n} of {} of an undo log", log.pages);
                return Err(Error::corrupt(id, expected, format!("a link to {next}")));
            }
            if n < log.pages {
                id = self.page(next);
                page = env.pool.shared(id)?;
            }
        }
        Ok(())
    }

    /// The queue's pages, and those that its entries close. All others must lead to a page that has a use.
    fn check_queue(&self, env: &UndoEnv, header: &Header, uses: &mut Uses) -> Result<()> {
        let (mut no, mut from) = (header.history_head, header.history_position);
        let mut shared = Vec::new();
        while no != NO_PAGE {
            uses.add(self.page(no), "a page of the history queue")?;
            let page = env.history_page(self.page(no))?;
            for n in from..u32_at(&page, ENTRY_COUNT) {
                let entry = entry_at(&page, n);
                match entry.closes {
                    true => self.check_closing(env, &entry, uses)?,
                    false => {
                        shared.push(self.page(entry.first));
                        self.check_shared(env, &entry)?;
                    }
                }
            }
            (no, from) = (PageNo(u32_at(&page, NEXT)), 0);
        }
        let lost = shared
            .into_iter()
            .find(|id| !uses.pages.contains_key(&id.no));
        match lost {
            None => Ok(()),
            Some(id) => Err(Error::corrupt(id, "an undo page in a slot", "one in none")),
        }
    }

    /// The records of a log that shares its only page with later ones.
    fn check_shared(&self, env: &UndoEnv, entry: &HistoryEntry) -> Result<()> {
        let id = self.page(entry.first);
        let page = env.pool.shared(id)?;
        let log = LogSpan {
            trx: entry.trx,
            kind: LogKind::Update,
            first: entry.first,
            records: entry.start..entry.end,
            pages: 1,
        };
        check_records(&page, id, &log).map(drop)
    }

    fn check_closing(&self, env: &UndoEnv, entry: &HistoryEntry, uses: &mut Uses) -> Result<()> {
        let id = self.page(entry.first);
        let first = env.pool.shared(id)?;
        let log = LogHeader::of_history(&first, id, entry)?.span(id.no);
        self.check_log(env, first, &log, uses)
    }
}

/// A page of the log, and that its records there are the log's.
fn check_records<'p>(page: &'p [u8], id: PageId, log: &LogSpan) -> Result<SlottedRef<'p>> {
    let (slotted, mut records) = log.check_page(page, id)?;
    match records.any(|n| log.record(slotted.payload(n)).is_none()) {
        false => Ok(slotted),
        true => {
            let expected = format!("records of transaction {}", log.trx);
            Err(Error::corrupt(id, expected, "others"))
        }
    }
}
