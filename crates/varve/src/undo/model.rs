//! Undo logs against lists of their records: what transactions write, read back in both directions, take back
//! to a savepoint, prepare and end; the history that they leave, purge that works it off, and pages that go
//! round meanwhile (RSEG-3). Restarts know nothing but the redo log.
//!
//! Records are made up: no table stands behind them.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use proptest::collection::vec;
use proptest::prelude::*;
use varve_sim::try_cases;

use super::header::room_of_first_page;
use super::record::{FLAG_UNDONE, FLAGS_OFFSET};
use super::*;
use crate::base::{FIRST_TEMPORARY_ID, Lsn, TEMP_SPACE, Xid};
use crate::buffer::PoolSettings;
use crate::io::{Disk, Overlay, RealDisk};
use crate::mtr::replay::apply_frame;
use crate::page::{PageType, SLOT_SIZE, page_lsn, page_type};
use crate::redo::{LogSettings, LogWriter, RedoLog, RedoReader};
use crate::row::EXTERNAL_REF_BYTES;
use crate::space::{DefinitionCopy, MIXED, NewSpace, SpaceKind};

mod base;

use base::{Base, in_memory};

const PAGE: usize = 4096;
const UUID: [u8; 16] = [6; 16];
const START: Lsn = Lsn(4096);
/// Transactions that are open at a time.
const OPEN: usize = 4;
const KINDS: [UndoKind; 10] = [
    UndoKind::RowInsert,
    UndoKind::EntryInsert,
    UndoKind::OverflowAlloc,
    UndoKind::TableLoad,
    UndoKind::RowUpdate,
    UndoKind::RowDeleteMark,
    UndoKind::RowUnmark,
    UndoKind::EntryDeleteMark,
    UndoKind::EntryUnmark,
    UndoKind::EntryMarkUnread,
];

#[derive(Clone, Debug)]
enum Step {
    /// Writes `times` records of these sizes, one after the other.
    Write {
        kind: UndoKind,
        temporary: bool,
        key: u16,
        more: u16,
        times: u8,
    },
    /// Takes back what was written since so many records.
    BackBy(u8),
    Prepare {
        hold: bool,
    },
    Commit,
    Rollback,
    /// Works off the oldest logs of the history, at most so many in each segment.
    Purge(u8),
    Trim,
    /// A crash after everything was made durable.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let size = || prop_oneof![8 => 0..60u16, 2 => 0..1000u16, 1 => 0..5000u16];
    let times = prop_oneof![3 => 1..4u8, 1 => 1..60u8];
    let write = (
        prop::sample::select(&KINDS[..]),
        prop::bool::weighted(0.2),
        size(),
        size(),
        times,
    );
    prop_oneof![
        12 => write.prop_map(|(kind, temporary, key, more, times)| {
            Step::Write { kind, temporary, key, more, times }
        }),
        3 => any::<u8>().prop_map(Step::BackBy),
        2 => any::<bool>().prop_map(|hold| Step::Prepare { hold }),
        5 => Just(Step::Commit),
        2 => Just(Step::Rollback),
        3 => any::<u8>().prop_map(Step::Purge),
        1 => Just(Step::Trim),
        1 => Just(Step::Restart),
    ]
}

/// A record as it was written.
#[derive(Clone)]
struct Written {
    kind: UndoKind,
    table: TableId,
    no: u64,
    undone: bool,
    key: Vec<u8>,
    bytes: Vec<u8>,
    concerns_purge: bool,
    at: RollPtr,
}

impl Written {
    fn is_logged(&self) -> bool {
        !self.table.is_temporary()
    }

    /// As it stands in the log now.
    fn now(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[usize::from(FLAGS_OFFSET)] = if self.undone { FLAG_UNDONE } else { 0 };
        bytes
    }
}

struct Open {
    undo: TrxUndo,
    records: Vec<Written>,
}

/// A log of the history.
struct Past {
    no: TrxNo,
    trx: TrxId,
    is_logged: bool,
    records: Vec<Written>,
    /// Everything was taken back, and pages behind the first may have been given back at once.
    is_cut: bool,
}

struct Run {
    // Before the undo that it is part of.
    open: [Option<Open>; OPEN],
    base: Base,
    /// Of the log.
    disk: Arc<dyn Disk>,
    dir: tempfile::TempDir,
    _writer: LogWriter,
    past: Vec<Past>,
    /// Ids and numbers.
    next_id: u64,
    /// Those from before the last restart.
    found_below: TrxNo,
    written: u64,
    purged: usize,
    /// Pages of the system tablespace that are no undo.
    others: u32,
}

impl Run {
    fn new() -> Run {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let settings = LogSettings::new(64 << 20, PAGE as u32, UUID);
        let disk = in_memory();
        let log = RedoLog::create(disk.clone(), dir.path(), settings, START).expect("a log");
        let log = Arc::new(log);
        let writer = log.spawn_writer().expect("a thread");
        let base = Base::create(&log);
        let mut run = Run {
            open: Default::default(),
            base,
            disk,
            dir,
            _writer: writer,
            past: Vec::new(),
            next_id: 10,
            found_below: TrxNo(0),
            written: 0,
            purged: 0,
            others: 0,
        };
        run.others = run.pages_used() - run.base.sys.check().expect("sound undo");
        run
    }

    fn pages_used(&self) -> u32 {
        let system = self.base.env().space(SYSTEM_SPACE).expect("it is there");
        let group = PAGE as u32 * 3 / 2;
        let used = system.used_pages(&self.base.env().mtr).expect("a count");
        used - system.size_pages().div_ceil(group)
    }

    fn draw(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn step(&mut self, who: usize, step: &Step) {
        match step {
            Step::Write {
                kind,
                temporary,
                key,
                more,
                times,
            } => {
                for _ in 0..*times {
                    self.write(who, *kind, *temporary, *key, *more);
                }
            }
            Step::BackBy(n) => {
                let is_prepared = |open: &Open| open.undo.xid().is_some();
                if let Some(open) = self.open[who].as_ref().filter(|open| !is_prepared(open)) {
                    let to = open.undo.next_no().saturating_sub((*n).into());
                    self.roll_back_to(who, to);
                }
            }
            Step::Prepare { hold } => self.prepare(who, *hold),
            Step::Commit => self.commit(who),
            Step::Rollback => self.roll_back(who),
            Step::Purge(most) => self.purge((*most).into()),
            Step::Trim => {
                let stop = AtomicBool::new(false);
                for rseg in self.base.sys.rsegs() {
                    rseg.trim_cached(self.base.env(), &stop).expect("trimmed");
                    rseg.trim_free_chain(self.base.env(), &stop)
                        .expect("trimmed");
                    assert_eq!(rseg.surplus_pages(), 0);
                }
            }
            Step::Restart => self.restart(),
        }
    }

    fn write(&mut self, who: usize, kind: UndoKind, temporary: bool, key: u16, more: u16) {
        if self.open[who].is_none() {
            let trx = TrxId(self.draw());
            let undo = self.base.sys.assign(trx, AllocPurpose::Normal);
            self.open[who] = Some(Open {
                undo,
                records: Vec::new(),
            });
        }
        let Some(open) = self.open[who]
            .as_mut()
            .filter(|open| open.undo.xid().is_none())
        else {
            return;
        };
        self.written += 1;
        let table = TableId(if temporary { FIRST_TEMPORARY_ID + 5 } else { 5 });
        let mut key_bytes = self.written.to_le_bytes().to_vec();
        key_bytes.resize(8 + usize::from(key), key as u8);
        let more = vec![more as u8; usize::from(more)];
        let frees = vec![7; EXTERNAL_REF_BYTES];
        let pages = &more[..more.len() / PAGE_NO_BYTES * PAGE_NO_BYTES];
        let has_frees =
            matches!(kind, UndoKind::RowUpdate | UndoKind::RowDeleteMark) && key.is_multiple_of(2);
        let record = UndoRecord {
            kind,
            undone: false,
            undo_no: open.undo.next_no(),
            trx: open.undo.trx(),
            table,
            index: IndexId(8),
            key: &key_bytes,
            previous: (!kind.is_insert()).then_some(Previous {
                trx: TrxId(3),
                flags: 1,
                roll_ptr: if kind.is_row() {
                    RollPtr::new(false, 0, PageNo(9), 1)
                } else {
                    RollPtr::default()
                },
                diff: match kind.is_row() {
                    true => RowDiff {
                        prefix: 1,
                        suffix: 2,
                        middle: &more,
                    },
                    false => RowDiff::default(),
                },
            }),
            pages: if kind == UndoKind::OverflowAlloc {
                pages
            } else {
                &[]
            },
            frees: if has_frees { &frees } else { &[] },
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let concerns_purge = record.concerns_purge();
        let fits = bytes.len() + SLOT_SIZE + 2 <= room_of_first_page(PAGE);
        match self
            .base
            .sys
            .prepare(&mut open.undo, table, kind, bytes.len())
        {
            Ok(()) => assert!(fits, "a record of {} bytes", bytes.len()),
            Err(Error::TooLarge { .. }) => {
                assert!(!fits, "no record of {} bytes", bytes.len());
                return;
            }
            Err(e) => panic!("{e}"),
        }
        let at = open.undo.next_roll_ptr(table, kind);
        let space = if temporary { TEMP_SPACE } else { SYSTEM_SPACE };
        let mut mtr = self.base.sys.env.begin(space).expect("capacity");
        let page = open.undo.latch(&mut mtr, table, kind).expect("a page");
        let no = open.undo.next_no();
        let encoded = EncodedUndo {
            bytes: &bytes,
            concerns_purge,
        };
        open.undo.append(&mut mtr, page, table, kind, encoded);
        mtr.commit();
        open.records.push(Written {
            kind,
            table,
            no,
            undone: false,
            key: key_bytes,
            bytes,
            concerns_purge,
            at,
        });
    }

    /// The newest first, as long as their numbers are not below `down_to`.
    fn roll_back_to(&mut self, who: usize, down_to: u64) {
        let env = &self.base.sys.env;
        let open = self.open[who].as_mut().expect("it is open");
        let mut bytes = Vec::new();
        loop {
            let mut records = open.records.iter_mut();
            let expected = records.rfind(|r| !r.undone && r.no >= down_to);
            let found = open
                .undo
                .read_newest(env, down_to, &mut bytes)
                .expect("read");
            assert_eq!(found.is_some(), expected.is_some());
            let Some(expected) = expected else { break };
            assert!(bytes == expected.now(), "not the newest record");
            let space = if expected.is_logged() {
                SYSTEM_SPACE
            } else {
                TEMP_SPACE
            };
            let mut mtr = env.begin(space).expect("capacity");
            let (table, kind) = (expected.table, expected.kind);
            let latch = open
                .undo
                .latch_undone(&mut mtr, table, kind)
                .expect("latched");
            open.undo.mark_undone(&mut mtr, latch);
            mtr.commit();
            open.undo
                .pop_newest(env, table, kind)
                .expect("the one before");
            expected.undone = true;
        }
    }

    fn prepare(&mut self, who: usize, hold: bool) {
        let xid = Xid::new(1, &self.written.to_le_bytes(), b"b").expect("a name");
        let env = &self.base.sys.env;
        let Some(open) = &mut self.open[who] else {
            return;
        };
        if open.undo.has_logged() && open.undo.xid().is_none() {
            open.undo.write_prepared(env, &xid).expect("prepared");
            if hold {
                open.undo.hold_commit(env).expect("held");
            }
        }
    }

    fn commit(&mut self, who: usize) {
        let Some(mut open) = self.open[who].take() else {
            return;
        };
        let no = TrxNo(self.draw());
        let ended = open.undo.commit(self.base.env(), || no).expect("committed");
        assert_eq!(ended.0, no);
        let logged = open.records.iter().any(Written::is_logged);
        assert_eq!(ended.1.is_some(), logged, "what makes it durable");
        for is_logged in [true, false] {
            let records = of(&open.records, is_logged, LogKind::Update);
            if !records.is_empty() {
                let trx = open.undo.trx();
                self.past.push(Past {
                    no,
                    trx,
                    is_logged,
                    records,
                    is_cut: false,
                });
            }
        }
    }

    fn roll_back(&mut self, who: usize) {
        if self.open[who].is_none() {
            return;
        }
        let env = self.base.sys.env.clone();
        if let Some(open) = self.open[who]
            .as_mut()
            .filter(|open| open.undo.xid().is_some())
        {
            open.undo.write_active(&env).expect("active again");
        }
        self.roll_back_to(who, 0);
        let mut open = self.open[who].take().expect("it is open");
        let no = TrxNo(self.draw());
        let before: Vec<_> = self.history_lengths();
        let mut joins = false;
        let number = |joins_history: bool| {
            joins = joins_history;
            no
        };
        open.undo
            .finish_rollback(&env, number)
            .expect("rolled back");
        // Whether a log without an un-delete-marking joins the history depends on the room that it leaves.
        for (is_logged, before, after) in [true, false]
            .into_iter()
            .zip(before)
            .zip(self.history_lengths())
            .map(|((l, b), a)| (l, b, a))
        {
            let records = of(&open.records, is_logged, LogKind::Update);
            let unmarked = records.iter().any(|r| r.kind.is_unmark());
            assert!(after == before || after == before + 1 && joins && !records.is_empty());
            assert!(
                after > before || !unmarked,
                "purge is not told of an un-delete-marking"
            );
            if after > before {
                let trx = open.undo.trx();
                self.past.push(Past {
                    no,
                    trx,
                    is_logged,
                    records,
                    is_cut: !unmarked,
                });
            }
        }
    }

    /// Of the logged segments, and of the others.
    fn history_lengths(&self) -> Vec<u64> {
        let sys = &self.base.sys;
        let len = |rsegs: &[Arc<Rseg>]| rsegs.iter().map(|rseg| rseg.history_len()).sum();
        vec![len(sys.logged()), len(sys.temporary())]
    }

    /// The logs of the history, which are read and found right.
    fn read_history(&self, rseg: &Rseg, is_logged: bool) -> Vec<HistoryEntry> {
        let sys = &self.base.sys;
        let (mut entries, mut pages) = (Vec::new(), 0);
        rseg.logs_below(&sys.env, TrxNo(u64::MAX), &mut entries)
            .expect("a history");
        assert_eq!(rseg.history_len(), entries.len() as u64);
        assert_eq!(rseg.oldest(), entries.first().map(|e| e.no));
        for entry in &entries {
            let is_it = |p: &&Past| (p.no, p.is_logged) == (entry.no, is_logged);
            let past = self
                .past
                .iter()
                .find(is_it)
                .expect("it has not been purged");
            assert_eq!(entry.trx, past.trx);
            let concerns = |r: &Written| r.concerns_purge && !r.undone;
            assert!(!entry.only_space || !past.records.iter().any(concerns));
            let undone_unmark = |r: &Written| r.kind.is_unmark() && r.undone;
            assert_eq!(entry.undone_unmark, past.records.iter().any(undone_unmark));
            let span = sys.history_log(rseg, entry).expect("a log");
            pages += match (entry.closes, entry.no < self.found_below) {
                (false, _) => 0,
                (true, true) => 1,
                (true, false) => u64::from(span.pages),
            };
            let found = self.read(rseg.space(), &span);
            let left = match past.is_cut {
                true => found.len().min(past.records.len()),
                false => past.records.len(),
            };
            assert_same(&found, &past.records[..left]);
        }
        assert_eq!(rseg.closed_pages(), pages, "RSEG-8");
        entries
    }

    fn read(&self, space: SpaceId, span: &LogSpan) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut copies = UndoCopies::default();
        let note = |_, _, record: UndoRecord<'_>| {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            found.push(bytes);
            Ok(())
        };
        let walked = self.base.sys.walk(space, span, &mut copies, |_| true, note);
        walked.expect("a log");
        found
    }

    fn purge(&mut self, most: usize) {
        let sys = &self.base.sys;
        for (rsegs, is_logged) in [(sys.logged(), true), (sys.temporary(), false)] {
            for rseg in rsegs {
                let entries = self.read_history(rseg, is_logged);
                let purged = &entries[..most.min(entries.len())];
                sys.free_logs(rseg, purged).expect("freed");
                self.purged += purged.len();
                let is_gone = |p: &Past| {
                    p.is_logged == is_logged && purged.iter().any(|entry| entry.no == p.no)
                };
                self.past.retain(|p| !is_gone(p));
            }
        }
    }

    fn restart(&mut self) {
        let before: Vec<Open> = self.open.iter_mut().filter_map(Option::take).collect();
        let limit = self.next_id + 1;
        self.found_below = TrxNo(limit);
        let (base, unfinished) = self.base.restart(&*self.disk, self.dir.path(), limit);
        let mut unfinished: Vec<Option<TrxUndo>> = unfinished.into_iter().map(Some).collect();
        let mut open = Vec::new();
        for mut was in before {
            was.records.retain(Written::is_logged);
            let is_it = |u: &Option<TrxUndo>| u.as_ref().is_some_and(|u| u.trx() == was.undo.trx());
            let found = unfinished
                .iter_mut()
                .find(|u| is_it(u))
                .and_then(Option::take);
            assert_eq!(
                found.is_some(),
                !was.records.is_empty(),
                "{}",
                was.undo.trx()
            );
            let Some(undo) = found else { continue };
            assert_eq!(undo.xid(), was.undo.xid());
            let newest = was.records.iter().rfind(|r| !r.undone);
            assert_eq!(undo.next_no(), newest.map_or(0, |r| r.no + 1));
            open.push(Open {
                undo,
                records: was.records,
            });
        }
        assert!(unfinished.iter().all(Option::is_none), "of nobody");
        self.past.retain(|past| past.is_logged);
        self.base = base;
        self.open
            .iter_mut()
            .zip(open)
            .for_each(|(place, open)| *place = Some(open));
    }

    /// Everything is read and found right, and each page is where it should be.
    fn check(&self) {
        let sys = &self.base.sys;
        let mut bytes = Vec::new();
        for open in self.open.iter().flatten() {
            for (pair, is_logged) in [
                (Some(&open.undo.logged), true),
                (open.undo.temporary.as_ref(), false),
            ] {
                for kind in [LogKind::Insert, LogKind::Update] {
                    let records = of(&open.records, is_logged, kind);
                    let mut logs = pair
                        .into_iter()
                        .flat_map(|pair| pair.logs().map(move |log| (pair, log)));
                    let log = logs.find(|(_, log)| log.header().kind == kind && log.has_started());
                    let found = log.map(|(pair, log)| self.read(pair.rseg.space(), &log.span()));
                    assert_same(&found.unwrap_or_default(), &records);
                }
            }
            let newest = open.records.iter().rfind(|r| !r.undone);
            let found = open
                .undo
                .read_newest(&sys.env, 0, &mut bytes)
                .expect("read");
            assert_eq!(found.is_some(), newest.is_some());
            assert!(
                newest.is_none_or(|newest| bytes == newest.now()),
                "not the newest record"
            );
            for record in &open.records {
                self.check_target(record, open.undo.trx());
            }
        }
        for past in self.past.iter().filter(|past| !past.is_cut) {
            past.records
                .iter()
                .for_each(|record| self.check_target(record, past.trx));
        }
        let mut logs = 0;
        for (rsegs, is_logged) in [(sys.logged(), true), (sys.temporary(), false)] {
            for rseg in rsegs {
                logs += self.read_history(rseg, is_logged).len();
            }
        }
        assert_eq!(logs, self.past.len(), "logs of the history are lost");
        let found = sys.check().expect("sound undo");
        assert_eq!(self.pages_used(), self.others + found, "pages are lost");
    }

    /// A reader that follows a roll pointer finds it; one that looks for another record does not (UNDO-2).
    fn check_target(&self, record: &Written, writer: TrxId) {
        let want = UndoTarget {
            writer,
            table: record.table,
            index: IndexId(8),
            key: &record.key,
        };
        let mut bytes = Vec::new();
        assert!(
            self.base
                .sys
                .read(record.at, &want, &mut bytes)
                .expect("read")
        );
        assert!(bytes == record.now(), "another record");
        let (writer, table) = (TrxId(writer.0 + 1), TableId(want.table.0 + 1));
        for other in [
            UndoTarget { writer, ..want },
            UndoTarget { table, ..want },
            UndoTarget {
                key: b"other",
                ..want
            },
        ] {
            let found = self.base.sys.read(record.at, &other, &mut bytes);
            assert!(!found.expect("read"), "taken for a record of another");
        }
    }

    /// All end, and all is purged.
    fn end(&mut self) {
        for who in 0..OPEN {
            match who % 2 {
                0 => self.commit(who),
                _ => self.roll_back(who),
            }
        }
        self.check();
        self.purge(usize::MAX);
        self.check();
        assert!(self.past.is_empty());
    }
}

/// The records of one log, oldest first.
fn of(records: &[Written], is_logged: bool, kind: LogKind) -> Vec<Written> {
    let here = |r: &&Written| (r.is_logged(), r.kind.log_kind()) == (is_logged, kind);
    records.iter().filter(here).cloned().collect()
}

fn assert_same(found: &[Vec<u8>], expected: &[Written]) {
    let expected: Vec<_> = expected.iter().map(Written::now).collect();
    let number = |bytes: &Vec<u8>| UndoRecord::decode(bytes).map(|r| (r.undo_no, r.undone));
    let numbers = |all: &[Vec<u8>]| all.iter().map(number).collect::<Vec<_>>();
    assert_eq!(numbers(found), numbers(&expected));
    assert!(found == expected, "other records with the same numbers");
}

/// RSEG-1, RSEG-2, RSEG-3, RSEG-4, RSEG-5: after each step every page has one use, and the history its
/// order. UNDO-2, UNDO-3, UNDO-4, UNDO-6: each record is found where its log and its roll pointer say, and
/// taken for no other.
#[test]
fn undo_logs_behave_like_lists_of_records() {
    let (records, purged) = (Cell::new(0), Cell::new(0));
    try_cases(120, vec((0..OPEN, step()), 1..60), |steps| {
        let mut run = Run::new();
        for (who, step) in &steps {
            run.step(*who, step);
            run.check();
        }
        run.end();
        purged.update(|n| n + run.purged);
        records.update(|n| n + run.written);
    });
    println!("{} records, {} logs purged", records.get(), purged.get());
    assert!(records.get() > 5000 && purged.get() > 150);
}

/// RSEG-7: purge neither reads nor changes the pages of small logs when it gives them back; a few of them
/// list the others.
#[test]
fn pages_of_small_logs_are_given_back_untouched() {
    let mut run = Run::new();
    for _ in 0..200 {
        run.write(0, UndoKind::RowUpdate, false, 1, 1500);
        run.commit(0);
    }
    let closed: Vec<PageId> = {
        let (sys, rseg) = (&run.base.sys, &run.base.sys.logged()[0]);
        let mut entries = Vec::new();
        rseg.logs_below(&sys.env, TrxNo(u64::MAX), &mut entries)
            .expect("a history");
        let closing = entries.iter().filter(|e| e.closes && e.one_page);
        closing
            .map(|e| PageId::new(rseg.space(), e.first))
            .collect()
    };
    assert!(closed.len() >= 90, "{} pages", closed.len());
    let lsns = |run: &Run| -> Vec<Lsn> {
        let lsn = |id: &PageId| page_lsn(&run.base.env().pool.shared(*id).expect("a page"));
        closed.iter().map(lsn).collect()
    };
    let before = lsns(&run);
    run.purge(usize::MAX);
    run.check();
    let changed = before.iter().zip(lsns(&run)).filter(|(a, b)| **a != *b);
    let changed = changed.count();
    assert!((1..=2).contains(&changed), "{changed} pages changed");
    // They are used again.
    let used = run.pages_used();
    for _ in 0..100 {
        run.write(0, UndoKind::RowUpdate, false, 1, 1500);
        run.commit(0);
    }
    run.check();
    assert_eq!(run.pages_used(), used);
    run.step(0, &Step::Restart);
    run.check();
}
