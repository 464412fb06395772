//! Items as rows of a table.
//!
//! A change reads its row under an exclusive lock, decides, and writes, in one transaction with the other
//! changes of its batch. Reads take the version that was committed last, and no lock.

use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use tokio::sync::oneshot;
use varve::{
    ColumnType, Cursor, Database, Datum, Error, FlushLog, Isolation, KeyMatch, LockMode, Result,
    RowRef, Table, TableDef, Transaction,
};

use crate::item::{Item, ItemRef};
use crate::items::{Durable, Effect, Goes, Items, Place, Refusal, Wait};
use crate::protocol::MOST_KEY_BYTES;

/// Columns of the table, in this order.
const COLUMNS: [(&str, ColumnType); 6] = [
    ("key", ColumnType::Bytes(MOST_KEY_BYTES as u32)),
    ("flags", ColumnType::u32()),
    ("expires", ColumnType::u32()),
    ("cas", ColumnType::u64()),
    ("marks", ColumnType::u8()),
    ("value", ColumnType::Bytes(LONGEST_VALUE_BYTES as u32)),
];

/// What no setting exceeds.
pub const LONGEST_VALUE_BYTES: usize = 128 << 20;

/// So many rows are deleted in one transaction.
const DELETED_AT_ONCE: usize = 500;

/// So many cursors are kept that nobody uses, more than there are mostly threads.
const MOST_SPARE_CURSORS: usize = 64;

/// The items of one table.
pub struct Store {
    db: Database,
    table: Table,
    most_value_bytes: usize,
    /// Each has the memory that it once needed, a copy of a page or two.
    spare_cursors: ArrayQueue<Cursor>,
}

/// What a connection keeps to work with the store.
pub struct Session {
    /// None between batches (MC-4): cursors take some ten KiB, and most clients wait.
    cursor: Option<Cursor>,
    /// Reads of one batch see the same.
    view: Option<Transaction>,
    /// Of the batch of changes that is being done.
    trx: Option<Transaction>,
    /// That waits for no lock.
    is_at_once: bool,
    /// The cursor is at the row that was looked for.
    is_there: bool,
}

impl Session {
    fn changes(&mut self) -> (&mut Transaction, &mut Cursor) {
        let trx = self.trx.as_mut().expect("a batch was begun");
        let cursor = self.cursor.as_mut().expect("a batch was begun");
        (trx, cursor)
    }

    fn refusal(&self, e: Error) -> Refusal {
        match e {
            Error::LockWaitTimeout if self.is_at_once => Refusal::Busy,
            e => e.into(),
        }
    }
}

impl Store {
    /// The items in this table, which is made if it is missing.
    ///
    /// # Errors
    ///
    /// `Invalid` if a table of this name has other columns.
    pub fn open(db: &Database, name: &str, most_value_bytes: usize) -> Result<Store> {
        let table = match db.table(name) {
            Err(Error::NotFound { .. }) => db.create_table(&definition(name))?,
            table => table?,
        };
        let columns = table.def().columns.iter();
        let is_ours = columns
            .map(|column| (column.name.as_str(), column.ty))
            .eq(COLUMNS);
        let key: Vec<_> = table.def().primary.parts.iter().collect();
        let is_key = matches!(key[..], [part] if part.column == 0 && part.prefix_len.is_none());
        if !is_ours || !is_key {
            return Err(Error::invalid(format!(
                "the table `{name}` has not the columns of items: name another one"
            )));
        }
        Ok(Store {
            db: db.clone(),
            table,
            most_value_bytes,
            spare_cursors: ArrayQueue::new(MOST_SPARE_CURSORS),
        })
    }

    /// The session's cursor: the one that it has, one that nobody uses, or a new one.
    fn cursor<'s>(&self, of: &'s mut Option<Cursor>) -> Result<&'s mut Cursor> {
        let has = of.take().or_else(|| self.spare_cursors.pop());
        Ok(of.insert(has.map_or_else(|| self.table.cursor(0), Ok)?))
    }

    /// Deletes the items that are now, and that `wanted` names; those that come or change meanwhile stay.
    /// Returns how many it were.
    fn delete_all(&self, wanted: impl Fn(&ItemRef<'_>) -> bool, locked: Locked) -> Result<u64> {
        let mut view = self.db.begin(Isolation::RepeatableRead);
        let (mut scan, mut cursor) = (self.table.cursor(0)?, self.table.cursor(0)?);
        // The values don't matter here, and may be long.
        let heads = [true, true, true, true, true, false];
        scan.set_wanted_columns(Some(&heads));
        cursor.set_wanted_columns(Some(&heads));
        let mut is_there = scan.first(&mut view, LockMode::None)?;
        let mut deleted = 0;
        while is_there {
            let mut found = Vec::new();
            while is_there && found.len() < DELETED_AT_ONCE {
                let row = scan.row()?;
                let item = head_of(&row);
                if wanted(&item) {
                    found.push((row.get(0).unwrap_or_default().to_vec(), item.cas));
                }
                is_there = scan.next(&mut view)?;
            }
            let mut trx = self.db.begin(Isolation::ReadCommitted);
            let mut left = Vec::new();
            for key in found {
                let lock = LockMode::ExclusiveSkipLocked;
                match self.delete_one(&mut trx, &mut cursor, &key, &wanted, lock)? {
                    true => deleted += 1,
                    false => left.push(key),
                }
            }
            trx.commit()?;
            if locked == Locked::Pass {
                continue;
            }
            // One at a time, who waits for it has nothing that others want.
            for key in left {
                let mut trx = self.db.begin(Isolation::ReadCommitted);
                let lock = LockMode::Exclusive;
                let gone = self.delete_one(&mut trx, &mut cursor, &key, &wanted, lock)?;
                deleted += u64::from(gone);
                trx.commit()?;
            }
        }
        Ok(deleted)
    }

    /// Deletes an item, if it is there, has this cas, and is still wanted.
    fn delete_one(
        &self,
        trx: &mut Transaction,
        cursor: &mut Cursor,
        (key, cas): &(Vec<u8>, u64),
        wanted: impl Fn(&ItemRef<'_>) -> bool,
        lock: LockMode,
    ) -> Result<bool> {
        trx.start_statement();
        let is_there = cursor.seek(trx, &[Some(key)], KeyMatch::Exact, lock)?;
        let is_meant = is_there && {
            let item = head_of(&cursor.row()?);
            item.cas == *cas && wanted(&item)
        };
        if is_meant {
            trx.delete(&self.table, cursor)?;
        }
        Ok(is_meant)
    }
}

impl Items for Store {
    type Session = Session;
    type Committed = Transaction;

    fn session(&self) -> Result<Session, Refusal> {
        Ok(Session {
            cursor: None,
            view: None,
            trx: None,
            is_at_once: false,
            is_there: false,
        })
    }

    fn read<R>(
        &self,
        session: &mut Session,
        key: &[u8],
        _wait: Wait,
        see: impl FnOnce(Option<ItemRef<'_>>) -> R,
    ) -> Result<R, Refusal> {
        let view = &mut session.view;
        let trx = view.get_or_insert_with(|| self.db.begin(Isolation::RepeatableRead));
        let cursor = self.cursor(&mut session.cursor)?;
        let is_there = cursor.seek(trx, &[Some(key)], KeyMatch::Exact, LockMode::None)?;
        let row = if is_there { Some(cursor.row()?) } else { None };
        Ok(see(row.as_ref().map(item_of)))
    }

    fn end_reads(&self, session: &mut Session) {
        session.view = None;
        let Some(mut cursor) = session.cursor.take() else {
            return;
        };
        cursor.release_values();
        // One too many is dropped.
        let _ = self.spare_cursors.push(cursor);
    }

    fn begin(
        &self,
        session: &mut Session,
        _place: Place,
        patience: Option<Duration>,
    ) -> Result<(), Refusal> {
        // Nobody looks for a range here: locks of gaps would only be in each other's way.
        let mut trx = self.db.begin(Isolation::ReadCommitted);
        trx.set_lock_wait_timeout(patience.unwrap_or_default());
        self.cursor(&mut session.cursor)?;
        (session.trx, session.is_at_once) = (Some(trx), patience.is_none());
        Ok(())
    }

    fn hand_over(&self, from: &mut Session, to: &mut Session) {
        (to.trx, to.cursor) = (from.trx.take(), from.cursor.take());
        to.is_at_once = from.is_at_once;
    }

    fn find<'s>(
        &self,
        session: &'s mut Session,
        key: &[u8],
        _effect: Effect,
    ) -> Result<Option<ItemRef<'s>>, Refusal> {
        let (trx, cursor) = session.changes();
        trx.start_statement();
        let found = cursor.seek(trx, &[Some(key)], KeyMatch::Exact, LockMode::Exclusive);
        let is_there = found.map_err(|e| session.refusal(e))?;
        session.is_there = is_there;
        if !is_there {
            return Ok(None);
        }
        let (_, cursor) = session.changes();
        Ok(Some(item_of(&cursor.row()?)))
    }

    fn put(&self, session: &mut Session, key: &[u8], item: &mut Item) -> Result<(), Refusal> {
        let is_there = session.is_there;
        let (trx, cursor) = session.changes();
        let old = is_there.then_some(&*cursor);
        put(trx, &self.table, old, key, item).map_err(|e| session.refusal(e))
    }

    fn remove(&self, session: &mut Session) -> Result<(), Refusal> {
        let (trx, cursor) = session.changes();
        let deleted = trx.delete(&self.table, cursor);
        deleted.map_err(|e| session.refusal(e))?;
        Ok(())
    }

    fn commit(&self, session: &mut Session) -> Result<Transaction, Refusal> {
        let mut trx = session.trx.take().expect("a batch was begun");
        trx.commit_start()?;
        Ok(trx)
    }

    fn roll_back(&self, session: &mut Session) {
        session.trx = None;
    }

    /// Without a thread, if there is a disk to be waited for.
    fn durable(&self, mut committed: Transaction) -> Option<Durable> {
        // What changed nothing has nothing to wait for.
        committed.commit_lsn()?;
        let db = self.db.clone();
        Some(Box::pin(async move {
            if db.flush_log_at_trx_commit() == FlushLog::Sync {
                let (tell, told) = oneshot::channel();
                db.when_durable(move || {
                    // Whoever waits for it may have gone.
                    let _ = tell.send(());
                });
                if told.await.is_ok() {
                    return Ok(());
                }
                // The database is unusable, and says why.
            }
            Ok(committed.commit_wait()?)
        }))
    }

    fn container(&self, _session: &Session) -> usize {
        0
    }

    fn delete(&self, which: Goes) -> Result<u64, Refusal> {
        Ok(match which {
            Goes::All(_) => self.delete_all(|_| true, Locked::Wait)?,
            Goes::Over(now) => self.delete_all(|item| item.is_over(now), Locked::Pass)?,
        })
    }

    fn warn(&self, what: &str) {
        self.db.warn(&format!("memcached: {what}"));
    }

    fn count(&self) -> u64 {
        self.table.row_count_estimate()
    }

    fn most_value_bytes(&self) -> usize {
        self.most_value_bytes
    }
}

/// What is done about items that somebody has locked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Locked {
    /// They stay.
    Pass,
    /// Whoever has them is waited for.
    Wait,
}

fn definition(name: &str) -> TableDef {
    let def = COLUMNS
        .iter()
        .fold(TableDef::new(name), |def, (name, ty)| def.column(name, *ty));
    def.primary(&["key"])
}

fn put(
    trx: &mut Transaction,
    table: &Table,
    old: Option<&Cursor>,
    key: &[u8],
    item: &Item,
) -> Result<()> {
    let (flags, expires) = (item.flags.to_le_bytes(), item.expires.to_le_bytes());
    let (cas, marks) = (item.cas.to_le_bytes(), [item.marks]);
    let row: [Datum<'_>; 6] = [
        Some(key),
        Some(&flags),
        Some(&expires),
        Some(&cas),
        Some(&marks),
        Some(&item.value),
    ];
    match old {
        Some(cursor) => trx.update(table, cursor, &row).map(drop),
        None => trx.insert_or(table, &row, varve::OnDuplicate::LockExclusive),
    }
}

fn item_of<'r>(row: &RowRef<'r>) -> ItemRef<'r> {
    ItemRef {
        value: row.get(5).unwrap_or_default(),
        ..head_of(row)
    }
}

/// Without its value.
fn head_of<'r>(row: &RowRef<'_>) -> ItemRef<'r> {
    let number = |column: usize| {
        let mut bytes = [0; 8];
        let stored = row.get(column).unwrap_or_default();
        bytes[..stored.len()].copy_from_slice(stored);
        u64::from_le_bytes(bytes)
    };
    ItemRef {
        flags: number(1) as u32,
        expires: number(2) as u32,
        cas: number(3),
        marks: number(4) as u8,
        value: &[],
    }
}
