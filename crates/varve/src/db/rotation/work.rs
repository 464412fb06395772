//! What a thread does with one tablespace.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use super::{RotationProgress, Shared};
use crate::base::{Error, PageId, PageNo, Result, TableId};
use crate::ddl::Ddl;
use crate::io::AlignedBuf;
use crate::mtr::Mtr;
use crate::page::{self, PAGE_HEADER, PageOp, PageType};
use crate::purge::in_table;
use crate::space::{Space, Target};

/// Pages that are read together.
const PAGES_TOGETHER: u32 = 64;
/// Redo of the change of a page that changes nothing.
const TOUCH_LOG_BYTES: u32 = 512;
/// How often it is looked whether an export has ended.
const PAUSED: Duration = Duration::from_millis(50);

/// A tablespace that a thread is at; no other one is, until this is dropped.
pub(super) struct Work<'a> {
    shared: &'a Shared,
    ddl: &'a Ddl,
    space: &'a Space,
    /// Of a table.
    table: Option<TableId>,
    stop: &'a AtomicBool,
}

impl<'a> Work<'a> {
    /// `None`: another thread is at it.
    pub(super) fn begin(
        shared: &'a Shared,
        ddl: &'a Ddl,
        space: &'a Space,
        table: Option<TableId>,
        stop: &'a AtomicBool,
    ) -> Option<Work<'a>> {
        let is_free = shared.state.lock().at_work.insert(space.id());
        is_free.then(|| Work {
            shared,
            ddl,
            space,
            table,
            stop,
        })
    }

    /// Steps 1 to 4.
    pub(super) fn bring(&self) -> Result<()> {
        let (shared, space) = (self.shared, self.space);
        let (env, spaces) = (&*shared.core.mtr, &self.ddl.spaces);
        // What the file said may be older than the redo that was applied since.
        space.recover_stage(env, spaces)?;
        let Some(target) = shared.target(self.ddl, &space.header())? else {
            return Ok(());
        };
        let (on_the_way, there) = target.stages();
        if let Target::Encrypted { .. } = target {
            spaces.take_newest_key(space)?;
        }
        let id = space.id();
        let write = || shared.writer.flush_to(id, shared.core.log.next_lsn());
        if space.stage().0 != there {
            self.change(|| space.log_stage(env, on_the_way, 0))?;
            write()?;
            space.enter_stage(on_the_way, 0);
        }
        write()?;
        self.rewrite(target)?;
        write()?;
        let least = match target {
            Target::Clear => 0,
            Target::Encrypted { at_least } => at_least,
        };
        self.change(|| space.log_stage(env, there, least))?;
        space.enter_stage(there, least);
        Ok(())
    }

    /// Changes some pages of a tablespace while it stays what it is: that of a table is not dropped, renamed,
    /// checked or exported meanwhile. `NotFound`: the table has gone.
    fn change(&self, f: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some(id) = self.table else {
            return f();
        };
        let shared = self.shared;
        let _batch = loop {
            match shared.core.purge_pause.begin_batch() {
                Some(batch) => break batch,
                None if shared.is_stopped() => return Err(Error::Interrupted),
                None => thread::sleep(PAUSED),
            }
        };
        let is_there = in_table(&shared.core, id, |_| f().map(|()| true))?;
        match is_there {
            true => Ok(()),
            false => Err(Error::not_found(format!("table {id}"))),
        }
    }

    /// Step 3.
    fn rewrite(&self, target: Target) -> Result<()> {
        let (shared, space) = (self.shared, self.space);
        let pages = space.size_pages();
        let page_size = shared.core.pool.page_size();
        let mut buf = AlignedBuf::new(PAGES_TOGETHER as usize * page_size);
        let mut damage = None;
        for first in (0..pages).step_by(PAGES_TOGETHER as usize) {
            let progress = RotationProgress { page: first, pages };
            shared.state.lock().progress.insert(space.id(), progress);
            let n = PAGES_TOGETHER.min(pages - first);
            let bytes = &mut buf[..n as usize * page_size];
            self.ddl
                .spaces
                .read_run(PageId::new(space.id(), PageNo(first)), bytes)?;
            let all = (first..).zip(bytes.chunks_exact(page_size));
            let all = all.map(|(no, bytes)| (PageId::new(space.id(), PageNo(no)), bytes));
            self.pace()?;
            for (id, _) in all.filter(|(id, bytes)| is_to_rewrite(*id, bytes, target)) {
                match self.change(|| self.touch(id)) {
                    // Others may do without it.
                    Err(e @ Error::Corrupt { .. }) => drop(damage.get_or_insert(e)),
                    done => done?,
                }
                self.pace()?;
            }
        }
        damage.map_or(Ok(()), Err)
    }

    /// Counts a page that was rewritten, or some that were read together, and waits for its turn.
    fn pace(&self) -> Result<()> {
        let iops = self.shared.options.lock().iops;
        let mut early = self.shared.state.lock().pace.count(iops);
        loop {
            if self.shared.is_stopped() || self.stop.load(Relaxed) {
                return Err(Error::Interrupted);
            }
            if early.is_zero() {
                return Ok(());
            }
            let now = early.min(PAUSED);
            thread::sleep(now);
            early -= now;
        }
    }

    /// Has the page written again, by an operation that leaves it as it is.
    fn touch(&self, id: PageId) -> Result<()> {
        use PageType::{Alloc, FileHeader, Free, Unused};
        // FL-3
        self.shared.core.log.check_room()?;
        let mut mtr = Mtr::begin(&self.shared.core.mtr, TOUCH_LOG_BYTES)?;
        let h = mtr.exclusive(id)?;
        let nothing: &[u8] = &[];
        match page::page_type(mtr.bytes(h)) {
            None | Some(Unused | FileHeader | Alloc) => {}
            Some(Free) => mtr.op(h, PageOp::Free),
            Some(slotted) if slotted.is_slotted() => {
                let op = PageOp::WriteUser {
                    off: 0,
                    bytes: nothing,
                };
                mtr.op(h, op);
            }
            Some(_) => {
                let off = PAGE_HEADER as u16;
                let op = PageOp::Write {
                    off,
                    bytes: nothing,
                };
                mtr.op(h, op);
            }
        }
        mtr.commit();
        Ok(())
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.at_work.remove(&self.space.id());
        state.progress.remove(&self.space.id());
    }
}

/// Whether what is in the file is not as it is to be. What can't be read may be on its way.
fn is_to_rewrite(id: PageId, stored: &[u8], target: Target) -> bool {
    if page::verify(stored, id).is_err() {
        return true;
    }
    let version = page::key_version(stored);
    !page::is_zero(stored) && version.is_some_and(|version| !target.is_met_by(version))
}
