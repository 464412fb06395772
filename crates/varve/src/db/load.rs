//! The second half of opening a database: transactions and tables are loaded, and what had not ended is
//! brought to its end.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use super::open::OpenPurpose;
use crate::base::{
    DISK_THREADS, Error, FIRST_TEMPORARY_ID, PageId, PageNo, Result, Sabotage, SpaceId, TableId,
    TrxId, map_together,
};
use crate::buffer::BufferPool;
use crate::catalog::{BrokenTable, OpenTable, TableDef, Tables};
use crate::db::options::{FORCE_DAMAGE, FORCE_NO_ROLLBACK, FORCE_NO_UNDO, Options};
use crate::ddl::{self, Ddl, StoredDef};
use crate::flush::{CheckpointHold, Flusher};
use crate::mtr::{Mtr, MtrEnv, RawRecord};
use crate::recovery::{self, FoundFile, PageMap, PendingRecovery};
use crate::redo::{ControlFile, RedoLog};
use crate::row::Collations;
use crate::space::{SpaceKind, Spaces};
use crate::stats;
use crate::txn::{
    Core, DynamicSettings, IdLimitLog, IdState, Isolation, LogLevel, Logger, Transaction, TxnSys,
};
use crate::undo::{Directory, ReadAhead, TrxUndo, UndoEnv, UndoSys, format_temporary_segments};

/// Logs id limits for the transaction system.
struct LogIdLimit(Arc<MtrEnv>);

impl IdLimitLog for LogIdLimit {
    fn raise(&self, limit: u64) -> Result<()> {
        let mut mtr = Mtr::begin(&self.0, 256)?;
        mtr.log_raw(&RawRecord::IdLimit { limit });
        mtr.commit();
        Ok(())
    }
}

/// Tables whose pages are read ahead before they are opened.
const TABLES_TOGETHER: usize = 64;

/// A database that can be used: its redo may still have to be applied, and losers to be rolled back.
pub(super) struct Loaded {
    pub core: Arc<Core>,
    pub ddl: Ddl,
    pub flusher: Flusher,
    pub rest: PendingRecovery,
}

/// What the second half of opening works with: pages are up to date, transactions and tables are not loaded
/// yet.
pub(super) struct Loader<'a> {
    pub options: &'a Options,
    pub purpose: OpenPurpose,
    pub is_after_crash: bool,
    pub logger: Logger,
    pub spaces: Arc<Spaces>,
    pub pool: Arc<BufferPool>,
    pub log: Arc<RedoLog>,
    pub control_file: Arc<ControlFile>,
    pub flusher: Flusher,
    /// Until the files that have missed redo are marked, and no page lacks redo. Goes after the page cleaner
    /// has ended.
    pub hold: Option<CheckpointHold>,
    /// What pages lack.
    pub map: Option<Arc<PageMap>>,
    pub redo_bytes: u64,
    pub directory: Directory,
    /// Tablespaces that redo removes.
    pub removed: Vec<SpaceId>,
}

impl Loader<'_> {
    pub fn load(
        mut self,
        id_limit: u64,
        id_limits: &OnceLock<Arc<Core>>,
        found: &[FoundFile],
    ) -> Result<Loaded> {
        let mtr = Arc::new(MtrEnv::new(self.pool.clone(), self.log.clone()));
        let (undo, unfinished) = self.load_undo(&mtr, id_limit)?;
        let ring_bits = self.options.transaction_ring_bits();
        let sys = TxnSys::with_ring(id_limit, Box::new(LogIdLimit(mtr.clone())), ring_bits);
        if self.options.is_sabotaged(Sabotage::DoubtsForgotten) {
            sys.forget_doubts();
        }
        for trx in &unfinished {
            let state = match self.is_prepared(trx) {
                true => IdState::Prepared,
                false => IdState::Active,
            };
            sys.adopt(trx.trx(), state)?;
        }
        let collations = self.collations()?;
        let system_def = ddl::system_def(self.directory.catalog_root, self.pool.page_size());
        let system = OpenTable::open(system_def, TrxId(0), &mtr, &self.spaces, &collations)?;
        let system = Arc::new(system);
        let core = Arc::new(self.core(mtr, sys, undo, &system));
        let first = id_limits.set(core.clone());
        debug_assert!(first.is_ok());
        let ddl = Ddl {
            core: core.clone(),
            spaces: self.spaces.clone(),
            control: self.control_file.clone(),
            checkpointer: self.flusher.checkpointer(),
            collations,
            system,
            next_temporary: AtomicU64::new(FIRST_TEMPORARY_ID),
        };
        let losers = self.finish_transactions(&core, &ddl, unfinished, found)?;
        let rest = PendingRecovery {
            rolls_back: self.rolls_back(),
            map: self.map,
            hold: self.hold,
            passes_over_damage: self.options.force_recovery >= FORCE_DAMAGE,
            losers,
            redo_bytes: self.redo_bytes,
        };
        Ok(Loaded {
            core,
            ddl,
            flusher: self.flusher,
            rest,
        })
    }

    /// Rollback segments, and the transactions that had not ended.
    fn load_undo(&self, mtr: &Arc<MtrEnv>, id_limit: u64) -> Result<(UndoSys, Vec<TrxUndo>)> {
        let note = |message: &str| (self.logger)(LogLevel::Note, message);
        let undo_spaces = &self.directory.undo_spaces;
        let looks_at_undo = self.options.force_recovery < FORCE_NO_UNDO;
        if looks_at_undo {
            recovery::reconcile_undo(&self.spaces, &self.pool, undo_spaces, &note)?;
        }
        let undo_env = UndoEnv {
            mtr: mtr.clone(),
            pool: self.pool.clone(),
            spaces: self.spaces.clone(),
            page_size: self.pool.page_size(),
        };
        format_temporary_segments(&undo_env)?;
        let ahead = |pages: &[PageId]| {
            let threads = self.options.recovery_threads();
            recovery::load_ahead(&self.pool, self.map.as_deref(), pages, threads);
        };
        let ahead = self.may_read_ahead().then_some(&ahead as ReadAhead<'_>);
        let (undo, unfinished) = match looks_at_undo {
            true => UndoSys::load(undo_env, undo_spaces, id_limit, ahead)?,
            false => (UndoSys::load_temporary(undo_env, id_limit)?, Vec::new()),
        };
        undo.use_rsegs(self.options.undo_logs as usize);
        Ok((undo, unfinished))
    }

    fn collations(&self) -> Result<Arc<Collations>> {
        let collations = Arc::new(match (self.purpose, &self.options.find_collation) {
            (OpenPurpose::Check, _) => Collations::with_stand_ins(),
            (OpenPurpose::Use, Some(find)) => Collations::with_finder(find.clone()),
            (OpenPurpose::Use, None) => Collations::new(),
        });
        for collation in &self.options.collations {
            collations.register(collation.clone())?;
        }
        Ok(collations)
    }

    fn core(&self, mtr: Arc<MtrEnv>, sys: TxnSys, undo: UndoSys, system: &Arc<OpenTable>) -> Core {
        let tables = Tables::default();
        tables.add_hidden(system.clone());
        let settings = DynamicSettings::new(
            self.options.flush_log_at_trx_commit,
            self.options.lock_wait_timeout,
            self.options.purge,
        );
        let mut core = Core::new(
            mtr,
            self.pool.clone(),
            self.log.clone(),
            sys,
            undo,
            tables,
            settings,
            self.logger.clone(),
        );
        if self.options.is_read_only() {
            let level = self.options.force_recovery;
            core.refuse_changes(format!(
                "the database was opened with force_recovery {level}; save what can be read, or open it with less than 4"
            ));
        }
        core.locks.set_memory_limit(self.options.lock_memory_bytes);
        if self.options.is_sabotaged(Sabotage::LockWakeForgotten) {
            core.locks.forget_to_wake();
        }
        core
    }

    /// Whether there is something to be won by having several pages read at the same time.
    fn may_read_ahead(&self) -> bool {
        self.pool.store().reads_in_background()
    }

    /// Has the pages in the pool that `open_table` looks at. After a crash each may have redo to be read and
    /// applied first.
    fn read_ahead(&self, core: &Core, stored: &StoredDef) {
        let Ok(def) = &stored.def else {
            return;
        };
        OpenTable::read_ahead(def, &core.mtr, &self.spaces);
        if self.is_after_crash {
            // The copy of the definition is on it. A reader of that page reports what is wrong with it.
            let _ = self.pool.shared(PageId::new(def.space, PageNo(0)));
        }
    }

    fn rolls_back(&self) -> bool {
        self.options.force_recovery < FORCE_NO_ROLLBACK
    }

    fn is_prepared(&self, undo: &TrxUndo) -> bool {
        undo.xid().is_some() && !self.log.is_sabotaged(Sabotage::PreparedForgotten)
    }

    /// Rolls back what had not ended and loads the tables in between: first the transactions that changed
    /// definitions, so that the definitions are the committed ones. What was prepared gets its locks and
    /// waits for its coordinator. The others get theirs, too, and are returned: they are rolled back while
    /// the database is in use.
    fn finish_transactions(
        &mut self,
        core: &Arc<Core>,
        ddl: &Ddl,
        unfinished: Vec<TrxUndo>,
        found: &[FoundFile],
    ) -> Result<Vec<Transaction>> {
        let note = |message: &str| (self.logger)(LogLevel::Note, message);
        let mut rest = Vec::new();
        let (prepared, losers): (Vec<_>, Vec<_>) = unfinished
            .into_iter()
            .partition(|undo| self.is_prepared(undo));
        if !losers.is_empty() {
            note(&format!(
                "recovery: rolling back {} transactions",
                losers.len()
            ));
        }
        for undo in prepared {
            let trx = Transaction::recovered_prepared(core.clone(), undo)?;
            let (id, xid) = (trx.id(), trx.xid());
            let (id, xid) = id.zip(xid).expect("a prepared transaction has both");
            note(&format!(
                "recovery: transaction {id} is prepared under the name {xid}"
            ));
        }
        for undo in losers {
            match undo.newest_table(&core.undo.env)? {
                Some(table) if table == ddl::SYSTEM_TABLE && self.rolls_back() => {
                    recovery::roll_back(core, undo)?;
                }
                _ => rest.push(undo),
            }
        }
        let mut reader = Transaction::begin(core.clone(), Isolation::RepeatableRead);
        let defs = ddl::load_defs(&mut reader, &ddl.system)?;
        drop(reader);
        let named = defs.iter().filter_map(|d| d.def.as_ref().ok());
        let named: HashMap<_, _> = named.map(|d| (d.space, d.name.clone())).collect();
        let incomplete = defs.iter().any(|d| d.def.is_err());
        let by_path: HashMap<_, _> = found
            .iter()
            .map(|file| (file.path.as_str(), file))
            .collect();
        self.raise_ids(&defs)?;
        let missing = recovery::reconcile(core, &self.spaces, found, &named, incomplete)?;
        let mut defs = defs.into_iter().peekable();
        while defs.peek().is_some() {
            let batch: Vec<StoredDef> = defs.by_ref().take(TABLES_TOGETHER).collect();
            if self.may_read_ahead() {
                map_together(&batch, DISK_THREADS, |stored| self.read_ahead(core, stored));
            }
            for stored in batch {
                let file_is_missing = missing.contains(&stored.name);
                let path = ddl::table_path(&stored.name);
                let file = by_path.get(path.as_str());
                let refused = file.and_then(|file| file.refused());
                self.open_table(core, ddl, stored, file_is_missing, refused)?;
            }
        }
        core.tables.link_all();
        if self.map.is_none() {
            self.hold = None;
        }
        if self.purpose == OpenPurpose::Check {
            let mut rest = rest.into_iter();
            rest.try_for_each(|undo| recovery::roll_back(core, undo))?;
            return Ok(Vec::new());
        }
        let tables: Vec<TableId> = core.tables.all().iter().map(|table| table.id()).collect();
        let locked = |undo| Transaction::recovered_loser(core.clone(), undo, &tables);
        rest.into_iter().map(locked).collect()
    }

    /// Ids that a definition, an undo tablespace or a tablespace that redo removes has are not given again:
    /// such redo would take the file of the table that got one. That matters only if the newest copy of the
    /// control file was lost.
    fn raise_ids(&self, defs: &[StoredDef]) -> Result<()> {
        let old = self.control_file.control();
        let mut new = old;
        for def in defs.iter().filter_map(|d| d.def.as_ref().ok()) {
            new.next_table = new.next_table.max(def.id.0.saturating_add(1));
            new.next_space = new.next_space.max(def.space.0.saturating_add(1));
            for index in def.all_indexes() {
                new.next_index = new.next_index.max(index.id.0.saturating_add(1));
            }
        }
        let spaces = self.spaces.all();
        let undo = spaces.iter().filter(|s| s.kind() == SpaceKind::Undo);
        for id in undo.map(|s| s.id()).chain(self.removed.iter().copied()) {
            new.next_space = new.next_space.max(id.0.saturating_add(1));
        }
        match new == old {
            true => Ok(()),
            false => self.control_file.update(|c| {
                (c.next_table, c.next_space, c.next_index) =
                    (new.next_table, new.next_space, new.next_index);
            }),
        }
    }

    /// Makes a table usable; one that can't be is remembered with the reason (REC-3).
    fn open_table(
        &self,
        core: &Arc<Core>,
        ddl: &Ddl,
        stored: StoredDef,
        file_is_missing: bool,
        refused: Option<&Error>,
    ) -> Result<()> {
        let StoredDef { name, def, writer } = stored;
        if let Ok(def) = &def
            && file_is_missing
            && self.spaces.missed_replay(def.space)
        {
            self.spaces.put_mark(&ddl::lost_mark_path(def))?;
        }
        let opened = def.as_ref().map_err(Error::clone).and_then(|def| {
            match file_is_missing {
                true => {
                    let missing = || missing_file(self.spaces.dir(), def);
                    return Err(refused.cloned().unwrap_or_else(missing));
                }
                false => check_file(core, &self.spaces, def)?,
            }
            OpenTable::open(
                def.clone(),
                writer,
                &core.mtr,
                &self.spaces,
                &ddl.collations,
            )
        });
        match opened {
            Ok(table) => {
                match core.is_read_only() {
                    true => stats::guess(&table),
                    false if self.is_after_crash => ddl.refresh_copy(&table.def),
                    false => {}
                }
                core.tables.add_unlinked(Arc::new(table));
            }
            Err(why) => {
                core.error(&format!("table {name} can't be used: {why}"));
                let def = def.ok();
                core.tables.add_broken(name, BrokenTable { why, def });
            }
        }
        Ok(())
    }
}

fn missing_file(dir: &Path, def: &TableDef) -> Error {
    Error::CorruptFile {
        path: dir.join(ddl::table_path(&def.name)),
        expected: format!("tablespace {} of table {}", def.space, def.name),
        found: "no file that is it; put it back and start again, or drop the table".into(),
    }
}

/// The tablespace that a definition names is that table's, has all changes, and no other table has been
/// opened in it.
fn check_file(core: &Core, spaces: &Spaces, def: &TableDef) -> Result<()> {
    if spaces.has_mark(&ddl::lost_mark_path(def))? {
        return Err(Error::CorruptFile {
            path: spaces.dir().join(ddl::table_path(&def.name)),
            expected: format!("all changes to table {}", def.name),
            found: "a file that was missing while a crash was recovered; drop the table".into(),
        });
    }
    let space = spaces.require(def.space)?;
    let named = |id| core.tables.by_id(id);
    let other = named(def.id).or_else(|| named(space.table()));
    let found = match (space.kind(), space.table(), other) {
        (SpaceKind::Table, table, None) if table == def.id => return Ok(()),
        (_, _, Some(other)) => format!("that of table {}", other.def.name),
        (kind, table, None) => format!("{kind:?} tablespace of table number {table}"),
    };
    let header = PageId::new(def.space, PageNo(0));
    let expected = format!("the tablespace of table {}, number {}", def.name, def.id);
    Err(Error::corrupt(header, expected, found))
}
