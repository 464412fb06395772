//! What the model stands on: a database below undo, on empty files, which a crash leaves behind and the redo
//! log makes again. Whenever undo is loaded, what it looks at must have been asked for before (`ahead`).

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::*;

/// A disk in memory, over directories that are empty.
pub(super) fn in_memory() -> Arc<dyn Disk> {
    Arc::new(Overlay::new(Arc::new(RealDisk)))
}

/// The database below undo, and undo.
pub(super) struct Base {
    pub sys: UndoSys,
    _files: tempfile::TempDir,
    pub log: Arc<RedoLog>,
}

impl Base {
    /// Empty files and an empty pool.
    fn files(log: &Arc<RedoLog>) -> (UndoEnv, tempfile::TempDir) {
        let files = tempfile::tempdir().expect("a temporary directory");
        let spaces = Spaces::new(in_memory(), files.path(), PAGE, UUID, 10);
        let spaces = Arc::new(spaces);
        let kinds = [
            (SYSTEM_SPACE, "system.vdt", SpaceKind::System),
            (TEMP_SPACE, "temp.vdt", SpaceKind::Temp),
        ];
        for (id, path, kind) in kinds {
            let (table, definition, pages) = (TableId(0), DefinitionCopy::default(), 64);
            let new = NewSpace {
                id,
                path,
                kind,
                table,
                definition,
                pages,
                target: None,
                compression: None,
                encryption: Default::default(),
            };
            spaces.create(new).expect("a tablespace");
        }
        let settings = PoolSettings {
            bytes: (4096 * PAGE) as u64,
            page_size: PAGE,
        };
        let pool = BufferPool::new(settings, spaces.clone()).expect("a pool");
        let pool = Arc::new(pool);
        let mtr = Arc::new(MtrEnv::new(pool.clone(), log.clone()));
        (
            UndoEnv {
                mtr,
                pool,
                spaces,
                page_size: PAGE,
            },
            files,
        )
    }

    fn open(
        env: UndoEnv,
        files: tempfile::TempDir,
        log: &Arc<RedoLog>,
        limit: u64,
    ) -> (Base, Vec<TrxUndo>) {
        format_temporary_segments(&env).expect("headers");
        let asked = RefCell::new(BTreeSet::new());
        let ahead = |pages: &[PageId]| asked.borrow_mut().extend(pages.iter().copied());
        let loaded = UndoSys::load(env, &[], limit, Some(&ahead));
        let (sys, unfinished) = loaded.expect("sound undo");
        check_asked(&asked.into_inner(), &sys, &unfinished);
        (
            Base {
                sys,
                _files: files,
                log: log.clone(),
            },
            unfinished,
        )
    }

    pub fn create(log: &Arc<RedoLog>) -> Base {
        let (env, files) = Base::files(log);
        let system = env.space(SYSTEM_SPACE).expect("it is there");
        let reserved = system.reserve(&env.mtr, 1).expect("a page");
        let mut mtr = env.begin(SYSTEM_SPACE).expect("capacity");
        let directory = system.alloc(&mut mtr, PageNo(0), MIXED).expect("a page");
        assert_eq!(directory, DIRECTORY_PAGE);
        mtr.commit();
        drop(reserved);
        format_rollback_segments(&env, &[]).expect("a header");
        // Models draw greater ids than that.
        Base::open(env, files, log, 1).0
    }

    /// What a crash leaves.
    pub fn restart(&self, disk: &dyn Disk, dir: &Path, limit: u64) -> (Base, Vec<TrxUndo>) {
        self.log
            .sync_to(self.log.next_lsn())
            .expect("the log syncs");
        let (env, files) = Base::files(&self.log);
        let mut frames =
            RedoReader::open(disk, dir, &UUID, START, &Default::default()).expect("a log");
        while let Some(f) = frames.next().expect("a frame") {
            apply_frame(&env.pool, f.start, f.end, f.body, |_| Ok(())).expect("replay");
        }
        Base::open(env, files, &self.log, limit)
    }

    pub fn env(&self) -> &UndoEnv {
        &self.sys.env
    }
}

/// Whatever is looked at when undo is loaded was asked for before.
fn check_asked(asked: &BTreeSet<PageId>, sys: &UndoSys, unfinished: &[TrxUndo]) {
    let logs = unfinished.iter().flat_map(TrxUndo::pairs);
    let logs = logs.flat_map(LogPair::logs);
    let ends = logs.flat_map(|log| [log.first_page().no, log.header().last]);
    let mut wanted: BTreeSet<_> = ends.map(|no| PageId::new(SYSTEM_SPACE, no)).collect();
    for rseg in sys.logged() {
        wanted.insert(rseg.header());
        let pages = rseg.check(&sys.env).expect("a sound segment").into_iter();
        let pages = pages.map(|no| PageId::new(rseg.space(), no));
        let is_history = |id: &PageId| {
            let page = sys.env.pool.shared(*id).expect("it was checked");
            page_type(&page) == Some(PageType::History)
        };
        wanted.extend(pages.filter(is_history));
    }
    let forgotten: Vec<_> = wanted.difference(asked).collect();
    assert!(forgotten.is_empty(), "{forgotten:?} of {wanted:?}");
}
