//! Items as rows of a table.
//!
//! A change reads its row under an exclusive lock, decides, and writes, in one transaction with the other
//! changes of its batch. Reads take the version that was committed last, and no lock.
//!
//! - **MC-3** The cas of an item only grows, unless a client sets it: it comes from a clock that never gives
//!   a number twice, and is more than the one before. So who has seen a cas is told of each change since. An
//!   item that was deleted and made again begins with the clock's number.
//! - **MC-6** A batch in which one request can't be done is done again one by one: none fails for another's
//!   sake.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use varve::{
    ColumnType, Cursor, Database, Datum, Error, Isolation, KeyMatch, LockMode, Result, RowRef,
    Table, TableDef, Transaction,
};

use crate::connection::MOST_ANSWER_BYTES;
use crate::counters::Counts;
use crate::decide::{Change, Decision, decide, next_cas};
use crate::item::{Item, ItemRef, now};
use crate::protocol::{MOST_KEY_BYTES, Reply};
use crate::request::Request;

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

/// How long a change waits for somebody who has locked its row: the clients' own changes are done in a
/// moment, so that is a program which reads and changes rows beside them.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// So many rows are deleted in one transaction.
const DELETED_AT_ONCE: usize = 500;

/// The items of one table.
pub struct Store {
    pub db: Database,
    table: Table,
    pub most_value_bytes: usize,
    /// The last number that the clock gave. Relaxed: a read-modify-write gives no number twice, and the row's
    /// lock orders those of one key.
    last_tick: AtomicU64,
}

/// What a connection keeps to work with the store.
pub struct Session {
    cursor: Cursor,
    /// Reads of one batch see the same.
    view: Option<Transaction>,
}

/// A batch that others see, but that may not be durable yet.
pub struct Committed(Option<Transaction>);

impl Committed {
    pub fn needs_to_wait(&self) -> bool {
        let trx = self.0.as_ref();
        trx.is_some_and(|trx| trx.commit_lsn().is_some())
    }

    /// Waits until it is as durable as the database's setting asks.
    pub fn wait(self) -> Result<()> {
        self.0.map_or(Ok(()), |mut trx| trx.commit_wait())
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
            last_tick: AtomicU64::new(0),
        })
    }

    pub fn session(&self) -> Result<Session> {
        Ok(Session {
            cursor: self.table.cursor(0)?,
            view: None,
        })
    }

    /// About how many items there are.
    pub fn items(&self) -> u64 {
        self.table.row_count_estimate()
    }

    /// A number of microseconds, greater than all before.
    fn tick(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let clock = since.map_or(0, |since| since.as_micros() as u64);
        let next = |last: u64| clock.max(last + 1);
        let last = self
            .last_tick
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
                Some(next(last))
            });
        next(last.unwrap_or_else(|last| last))
    }

    /// Finds an item, as of the first read since `end_reads`.
    pub fn read<R>(
        &self,
        session: &mut Session,
        key: &[u8],
        see: impl FnOnce(Option<ItemRef<'_>>) -> R,
    ) -> Result<R> {
        let view = &mut session.view;
        let trx = view.get_or_insert_with(|| self.db.begin(Isolation::RepeatableRead));
        let cursor = &mut session.cursor;
        let is_there = cursor.seek(trx, &[Some(key)], KeyMatch::Exact, LockMode::None)?;
        let row = if is_there { Some(cursor.row()?) } else { None };
        let item = row.as_ref().map(item_of);
        Ok(see(item.filter(|item| !item.is_over(now()))))
    }

    /// Does the first of these requests, all if their answers are no longer than `MOST_ANSWER_BYTES`, and
    /// writes the answers, which are true once the batch is durable (MC-1). Returns how many it has done.
    pub fn change(
        &self,
        session: &mut Session,
        batch: &[(Request, Reply)],
        counts: &mut Counts,
        out: &mut BytesMut,
    ) -> (Committed, usize) {
        let begin = out.len();
        let before = *counts;
        if let Ok(done) = self.change_all(session, batch, counts, out) {
            return done;
        }
        // MC-6.
        out.truncate(begin);
        *counts = before;
        let mut last = Committed(None);
        for (n, one) in batch.iter().enumerate() {
            let begin = out.len();
            match self.change_all(session, std::slice::from_ref(one), counts, out) {
                // What changed nothing has nothing to wait for.
                Ok((committed, _)) if committed.needs_to_wait() => last = committed,
                Ok(_) => {}
                Err(e) => {
                    out.truncate(begin);
                    one.1.fail(&e.to_string(), out);
                }
            }
            if out.len() > MOST_ANSWER_BYTES {
                return (last, n + 1);
            }
        }
        // What came before the last commit is durable when that is.
        (last, batch.len())
    }

    fn change_all(
        &self,
        session: &mut Session,
        batch: &[(Request, Reply)],
        counts: &mut Counts,
        out: &mut BytesMut,
    ) -> Result<(Committed, usize)> {
        // Nobody looks for a range here: locks of gaps would only be in each other's way.
        let mut trx = self.db.begin(Isolation::ReadCommitted);
        trx.set_lock_wait_timeout(LOCK_WAIT);
        let mut done = 0;
        for (request, reply) in batch {
            let decision = loop {
                match self.change_one(&mut trx, &mut session.cursor, request) {
                    // Somebody else has made it since: now it is there, and locked.
                    Err(Error::DuplicateKey { .. }) => continue,
                    decision => break decision?,
                }
            };
            counts.change(request, &decision);
            reply.write(request, &decision, now(), out);
            done += 1;
            if out.len() > MOST_ANSWER_BYTES {
                break;
            }
        }
        trx.commit_start()?;
        Ok((Committed(Some(trx)), done))
    }

    fn change_one(
        &self,
        trx: &mut Transaction,
        cursor: &mut Cursor,
        request: &Request,
    ) -> Result<Decision> {
        trx.start_statement();
        let key = [Some(&request.key[..])];
        let is_there = cursor.seek(trx, &key, KeyMatch::Exact, LockMode::Exclusive)?;
        let decision = {
            let row = if is_there { Some(cursor.row()?) } else { None };
            let item = row.as_ref().map(item_of);
            let cas = next_cas(self.tick(), item.map_or(0, |item| item.cas));
            let item = item.filter(|item| !item.is_over(now()));
            decide(request, item, cas, self.most_value_bytes)
        };
        match &decision.change {
            Change::Put(item) => put(
                trx,
                &self.table,
                is_there.then_some(&*cursor),
                request,
                item,
            )?,
            Change::Delete => trx.delete(&self.table, cursor)?,
            Change::Keep => {}
        }
        Ok(decision)
    }

    /// Deletes the items that are now, and that `wanted` names; those that come or change meanwhile stay.
    /// Returns how many it were.
    pub fn delete(&self, wanted: impl Fn(&ItemRef<'_>) -> bool, locked: Locked) -> Result<u64> {
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

/// What is done about items that somebody has locked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Locked {
    /// They stay.
    Pass,
    /// Whoever has them is waited for.
    Wait,
}

impl Session {
    /// Later reads see what was committed meanwhile. Nothing is kept of what was read (MC-4).
    pub fn end_reads(&mut self) {
        self.view = None;
        self.cursor.release_values();
    }
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
    request: &Request,
    item: &Item,
) -> Result<()> {
    let (flags, expires) = (item.flags.to_le_bytes(), item.expires.to_le_bytes());
    let (cas, marks) = (item.cas.to_le_bytes(), [item.marks]);
    let row: [Datum<'_>; 6] = [
        Some(&request.key),
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
