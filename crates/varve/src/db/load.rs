//! The second half of opening a database: transactions and tables are loaded, and what had not ended is
//! brought to its end.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::open::{OpenPurpose, TableFiles};
use super::opener::TableOpener;
use crate::base::{FIRST_TEMPORARY_ID, PageId, Result, Sabotage, SpaceId, TrxId};
use crate::buffer::BufferPool;
use crate::catalog::{OpenTable, Tables};
use crate::db::options::{FORCE_DAMAGE, FORCE_NO_UNDO, Options};
use crate::ddl::lookups::Prefix;
use crate::ddl::{self, Ddl, Dictionary};
use crate::flush::{CheckpointHold, Flusher};
use crate::io::Disk;
use crate::mtr::{Mtr, MtrEnv, RawRecord};
use crate::recovery::{self, FileComparison, PageMap, PendingRecovery};
use crate::redo::{ControlFile, RedoLog};
use crate::row::Collations;
use crate::space::{SpaceKind, Spaces};
use crate::table::SortHelpers;
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

/// A database that can be used: its redo may still have to be applied, and losers to be rolled back.
pub(super) struct Loaded {
    pub core: Arc<Core>,
    pub ddl: Ddl,
    pub flusher: Flusher,
    pub rest: PendingRecovery,
    /// A crash may have left tables that were to take others' places.
    pub has_leftovers: bool,
}

/// What the second half of opening works with: pages are up to date, transactions and tables are not loaded
/// yet.
pub(super) struct Loader<'a> {
    pub options: &'a Options,
    pub purpose: OpenPurpose,
    pub logger: Logger,
    pub disk: Arc<dyn Disk>,
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
    pub tables: TableFiles,
}

impl Loader<'_> {
    pub fn load(mut self, id_limit: u64, id_limits: &OnceLock<Arc<Core>>) -> Result<Loaded> {
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
        let unfinished = self.finish_definitions(&core, unfinished)?;
        let ddl = self.ddl(&core, collations, system)?;
        let has_leftovers = !matches!(self.tables, TableFiles::Match);
        let comparison = self.finish_files(&core, &ddl)?;
        let losers = self.lock_losers(&core, unfinished)?;
        let rest = PendingRecovery {
            rolls_back: self.options.rolls_back(),
            map: self.map,
            hold: self.hold,
            comparison,
            passes_over_damage: self.options.force_recovery >= FORCE_DAMAGE,
            losers,
            redo_bytes: self.redo_bytes,
        };
        Ok(Loaded {
            core,
            ddl,
            flusher: self.flusher,
            rest,
            has_leftovers,
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
        let tables = Tables::new(self.options.table_cache as usize);
        tables.add_hidden(system.clone());
        let settings = DynamicSettings::new(
            self.options.flush_log_at_trx_commit,
            self.options.lock_wait_timeout,
            self.options.purge,
            self.options.history,
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
            core.refuse_changes(match self.options.read_only {
                true => "the database was opened with read_only; to change it, open it without".into(),
                false => format!(
                    "the database was opened with force_recovery {level}; save what can be read, or open it with less than 4"
                ),
            });
        }
        core.locks.set_memory_limit(self.options.lock_memory_bytes);
        if self.options.is_sabotaged(Sabotage::LockWakeForgotten) {
            core.locks.forget_to_wake();
        }
        if self.options.is_sabotaged(Sabotage::RangesIgnored) {
            core.locks.ignore_ranges();
        }
        core
    }

    /// Whether there is something to be won by having several pages read at the same time.
    fn may_read_ahead(&self) -> bool {
        self.pool.store().reads_in_background()
    }

    fn is_prepared(&self, undo: &TrxUndo) -> bool {
        undo.xid().is_some() && !self.log.is_sabotaged(Sabotage::PreparedForgotten)
    }

    /// Rolls back the transactions that changed definitions, so that these are the committed ones. What was
    /// prepared gets its locks and waits for its coordinator. Returns the others.
    fn finish_definitions(
        &self,
        core: &Arc<Core>,
        unfinished: Vec<TrxUndo>,
    ) -> Result<Vec<TrxUndo>> {
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
                Some(table) if table == ddl::SYSTEM_TABLE && self.options.rolls_back() => {
                    recovery::roll_back(core, undo)?;
                }
                _ => rest.push(undo),
            }
        }
        Ok(rest)
    }

    /// From here on tables can be opened.
    fn ddl(
        &self,
        core: &Arc<Core>,
        collations: Arc<Collations>,
        system: Arc<OpenTable>,
    ) -> Result<Ddl> {
        let reader = || Transaction::begin(core.clone(), Isolation::RepeatableRead);
        let is_only_looked_at = self.purpose == OpenPurpose::Check || core.is_read_only();
        let dictionary = match is_only_looked_at {
            true => Dictionary::collect(&mut reader(), system)?,
            false => Dictionary::new(system),
        };
        let ddl = Ddl {
            core: core.clone(),
            spaces: self.spaces.clone(),
            control: self.control_file.clone(),
            checkpointer: self.flusher.checkpointer(),
            collations,
            dictionary: Arc::new(dictionary),
            next_temporary: AtomicU64::new(FIRST_TEMPORARY_ID),
            sort_buffer: AtomicU64::new(self.options.sort_buffer_bytes),
            sort_directory: self.options.sort_directory_in(self.spaces.dir()),
            sort_helpers: SortHelpers::new(),
            fill_factor_pct: AtomicU32::new(self.options.fill_factor_pct),
            online_log: AtomicU64::new(self.options.online_log_bytes),
            abandoned: Mutex::default(),
        };
        self.raise_ids(&mut reader(), &ddl.dictionary)?;
        if !is_only_looked_at {
            ddl.make_lookups()?;
        }
        core.tables.set_source(Box::new(TableOpener {
            core: Arc::downgrade(core),
            dictionary: ddl.dictionary.clone(),
            spaces: self.spaces.clone(),
            collations: ddl.collations.clone(),
            only_looks: is_only_looked_at,
            told_keys: Mutex::default(),
        }));
        Ok(ddl)
    }

    /// Makes the table files those that the definitions name (DDL-1). Files that are missing, and have missed
    /// redo, get a mark. Returns what is left to be done while the database is in use.
    fn finish_files(&mut self, core: &Arc<Core>, ddl: &Ddl) -> Result<Option<FileComparison>> {
        if let Err(e) = core.history.remove_leftover() {
            core.warn(&format!(
                "what is left of an earlier history store stays: {e}"
            ));
        }
        let comparison = FileComparison {
            core: core.clone(),
            dictionary: ddl.dictionary.clone(),
            spaces: self.spaces.clone(),
            disk: self.disk.clone(),
            removed: std::mem::take(&mut self.removed),
            passes_over_refusals: self.options.force_recovery >= FORCE_DAMAGE,
            gives_up_keys: self.options.gives_up_keys(),
        };
        let map = self.map.as_deref();
        let left = match std::mem::replace(&mut self.tables, TableFiles::Match) {
            TableFiles::Match => None,
            TableFiles::Found(found) => {
                comparison.reconcile(found)?;
                None
            }
            TableFiles::MayDiffer if self.may_compare_later() && comparison.attach(map)? => {
                core.tables.hold_ddl_back();
                Some(comparison)
            }
            TableFiles::MayDiffer => {
                comparison.compare(map)?;
                None
            }
        };
        if self.map.is_none() && left.is_none() {
            self.hold = None;
        }
        Ok(left)
    }

    fn may_compare_later(&self) -> bool {
        self.options.force_recovery == 0
            && !self.options.read_only
            && self.options.recovery_threads() > 0
    }

    /// Has the others keep DDL away from their tables: they are rolled back while the database is in use.
    fn lock_losers(&self, core: &Arc<Core>, rest: Vec<TrxUndo>) -> Result<Vec<Transaction>> {
        if self.purpose == OpenPurpose::Check {
            let mut rest = rest.into_iter();
            rest.try_for_each(|undo| recovery::roll_back(core, undo))?;
            return Ok(Vec::new());
        }
        let locked = |undo| Transaction::recovered_loser(core.clone(), undo);
        rest.into_iter().map(locked).collect()
    }

    /// Ids that a definition, an undo tablespace or a tablespace that redo removes has are not given again:
    /// such redo would take the file of the table that got one. That matters only if the newest copy of the
    /// control file was lost. The table with the highest id has the highest ids of indexes: they are drawn
    /// together.
    fn raise_ids(&self, reader: &mut Transaction, dictionary: &Dictionary) -> Result<()> {
        let old = self.control_file.control();
        let mut new = old;
        let (tables, spaces) = (Prefix::tables(), Prefix::spaces());
        if let Some((key, found)) = dictionary.last(reader, &tables)? {
            let id = tables.number_in(&key).unwrap_or_default();
            new.next_table = new.next_table.max(id.saturating_add(1));
            let stored = dictionary.read(reader, &found.name)?;
            let def = stored.and_then(|stored| stored.def.ok());
            for index in def.iter().flat_map(|def| def.all_indexes()) {
                new.next_index = new.next_index.max(index.id.0.saturating_add(1));
            }
        }
        let last = dictionary.last(reader, &spaces)?;
        let last = last.and_then(|(key, _)| spaces.number_in(&key));
        let undo = self.spaces.all();
        let undo = undo.iter().filter(|s| s.kind() == SpaceKind::Undo);
        let ids = undo.map(|s| s.id()).chain(self.removed.iter().copied());
        for id in ids.chain(last.map(|number| SpaceId(number as u32))) {
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
}
