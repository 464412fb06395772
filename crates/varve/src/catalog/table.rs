//! A table that is open: its definition, trees and codecs, and the few values that live in memory only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::base::{Error, IndexId, PageId, PageNo, Result, SpaceId, TableId, TrxId};
use crate::btree::{Seek, Tree};
use crate::catalog::{IndexDef, TableDef};
use crate::mtr::{Mtr, MtrEnv};
use crate::page::PageOp;
use crate::row::{Collations, ColumnType, Datum, KeyCodec, RowFormat, RowRef, row_id_of};
use crate::space::Spaces;

/// The page of each table's tablespace that holds its counters (docs/format.md).
pub const META_PAGE: PageNo = PageNo(2);
/// Root pages follow, in the order primary, secondary indexes.
pub const FIRST_ROOT_PAGE: PageNo = PageNo(3);
/// Offset of the AUTO_INCREMENT counter in the meta page: the next value, 8 bytes.
const META_AUTO_INCREMENT: usize = 48;

/// One index of an open table.
pub struct OpenIndex {
    pub id: IndexId,
    pub name: String,
    pub unique: bool,
    pub tree: Tree,
    pub codec: KeyCodec,
}

/// An open table, shared by everybody who uses it.
pub struct OpenTable {
    pub def: TableDef,
    pub format: RowFormat,
    pub clustered: OpenIndex,
    pub secondary: Vec<OpenIndex>,
    /// The transaction that created this definition: a view that does not see it must not read the table.
    pub created_by: TrxId,
    mtr: Arc<MtrEnv>,
    /// The table was dropped or replaced by another handle. Stored before the transaction that did it releases its table
    /// lock, read after that lock was waited for.
    dropped: AtomicBool,
    /// Held for reading by purge while it works on a record; for writing by who needs the table without purge.
    purge_gate: RwLock<()>,
    /// Rows, as far as known: estimated when the table was opened, counted since.
    rows: AtomicI64,
    next_row_id: AtomicU64,
    /// Next value for AUTO_INCREMENT. The meta page holds the same or, until the row is written, less.
    auto_increment: AtomicU64,
}

impl OpenTable {
    /// Opens the table's trees. Reads its counters from the tablespace.
    pub fn open(
        def: TableDef,
        created_by: TrxId,
        mtr: &Arc<MtrEnv>,
        spaces: &Spaces,
        collations: &Collations,
    ) -> Result<OpenTable> {
        let space = spaces.require(def.space)?;
        let format = def.row_format()?;
        let open_index = |index: &IndexDef| -> Result<OpenIndex> {
            Ok(OpenIndex {
                id: index.id,
                name: index.name.clone(),
                unique: index.unique,
                tree: Tree::open(mtr.clone(), space.clone(), index.root, index.id),
                codec: def.key_codec(index, collations)?,
            })
        };
        let clustered = open_index(&def.primary)?;
        let secondary = def
            .indexes
            .iter()
            .map(open_index)
            .collect::<Result<Vec<_>>>()?;
        let table = OpenTable {
            format,
            clustered,
            secondary,
            created_by,
            mtr: mtr.clone(),
            dropped: AtomicBool::new(false),
            purge_gate: RwLock::new(()),
            rows: AtomicI64::new(0),
            next_row_id: AtomicU64::new(1),
            auto_increment: AtomicU64::new(1),
            def,
        };
        table.load_counters()?;
        Ok(table)
    }

    fn load_counters(&self) -> Result<()> {
        let rows = self.clustered.tree.estimate_between(&[], None)?;
        self.rows.store(rows as i64, Ordering::Relaxed);
        if self.def.has_row_id()
            && let Some(key) = self.last_key()?
        {
            let last = row_id_of(&key).map_err(|d| d.at(self.root_page()))?;
            self.next_row_id.store(last + 1, Ordering::Relaxed);
        }
        if self.def.auto_increment.is_some() {
            let page = self
                .mtr
                .pool
                .shared(PageId::new(self.def.space, META_PAGE))?;
            let at = META_AUTO_INCREMENT;
            let next = u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
            self.auto_increment.store(next.max(1), Ordering::Relaxed);
        }
        Ok(())
    }

    /// The largest key of the clustered index, deleted rows included.
    fn last_key(&self) -> Result<Option<Vec<u8>>> {
        let mut leaf = self.clustered.tree.latch_last_leaf()?;
        loop {
            let page = leaf.slotted();
            if leaf.at > 0 {
                return Ok(Some(page.key(leaf.at - 1)));
            }
            let low = page.low().to_vec();
            if low.is_empty() {
                return Ok(None);
            }
            drop(leaf);
            leaf = self.clustered.tree.latch_leaf_shared(&low, Seek::Lt)?;
        }
    }

    fn root_page(&self) -> PageId {
        PageId::new(self.def.space, self.def.primary.root)
    }

    pub fn id(&self) -> TableId {
        self.def.id
    }

    pub fn space(&self) -> SpaceId {
        self.def.space
    }

    /// The index with this id, whichever kind it is.
    pub fn index(&self, id: IndexId) -> Option<&OpenIndex> {
        self.indexes().find(|i| i.id == id)
    }

    pub fn indexes(&self) -> impl Iterator<Item = &OpenIndex> {
        std::iter::once(&self.clustered).chain(&self.secondary)
    }

    /// Index by number: 0 is the clustered one.
    pub fn index_at(&self, n: usize) -> Result<&OpenIndex> {
        self.indexes()
            .nth(n)
            .ok_or_else(|| Error::not_found(format!("index number {n} of table {}", self.def.name)))
    }

    /// The row behind a clustered record.
    pub fn row<'a>(&'a self, bytes: &'a [u8]) -> Result<RowRef<'a>> {
        RowRef::new(&self.format, bytes).map_err(|d| d.at(self.root_page()))
    }

    /// Lets purge work on the table while the guard lives. Waits for who keeps it away; `is_dropped` is asked afterwards.
    pub fn let_purge_in(&self) -> RwLockReadGuard<'_, ()> {
        self.purge_gate.read()
    }

    /// Keeps purge from changing the table while the guard lives. Waits for the record that it is at.
    pub fn keep_purge_away(&self) -> RwLockWriteGuard<'_, ()> {
        self.purge_gate.write()
    }

    /// Whoever has a handle leaves the table alone from now on, or no longer.
    pub fn set_dropped(&self, dropped: bool) {
        // Release pairs with the Acquire below: who sees it sees what replaced the table.
        self.dropped.store(dropped, Ordering::Release);
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    // Relaxed: an estimate.
    pub fn row_count(&self) -> u64 {
        self.rows.load(Ordering::Relaxed).max(0) as u64
    }

    pub fn count_rows(&self, change: i64) {
        // Updates leave the shared cache line alone.
        if change != 0 {
            self.rows.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Bytes of the tablespace that are in use, and that it has free.
    pub fn used_and_free_bytes(&self) -> Result<(u64, u64)> {
        let (space, page) = (
            &self.clustered.tree.space,
            self.clustered.tree.page_size() as u64,
        );
        let (used, size) = (
            u64::from(space.used_pages(&self.mtr)?),
            u64::from(space.size_pages()),
        );
        Ok((used * page, size.saturating_sub(used) * page))
    }

    /// A new hidden row id. Relaxed: only uniqueness counts.
    pub fn draw_row_id(&self) -> u64 {
        self.next_row_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The next AUTO_INCREMENT value, without taking it.
    pub fn auto_increment(&self) -> u64 {
        self.auto_increment.load(Ordering::Relaxed)
    }

    /// Takes `n` consecutive values; returns the first.
    pub fn reserve_auto_increment(&self, n: u64) -> u64 {
        // Relaxed: only uniqueness counts; the rows that use the values are ordered by their own latches.
        self.auto_increment.fetch_add(n, Ordering::Relaxed)
    }

    /// Makes the counter at least `next`.
    pub fn raise_auto_increment(&self, next: u64) {
        self.auto_increment.fetch_max(next, Ordering::Relaxed);
    }

    /// The AUTO_INCREMENT column's value in a row, if it is one that moves the counter.
    pub fn auto_increment_value(&self, row: &[Datum<'_>]) -> Option<u64> {
        let at = self.def.auto_increment?;
        positive_integer(self.def.columns[at].ty, row.get(at).copied()??)
    }

    /// Writes the counter into the meta page, in the mini-transaction that inserts a row with `value`. The page is
    /// latched after tree and undo pages, like allocation pages.
    pub fn log_auto_increment(&self, mtr: &mut Mtr<'_>, value: u64) -> Result<()> {
        let h = mtr.exclusive(PageId::new(self.def.space, META_PAGE))?;
        let at = META_AUTO_INCREMENT;
        let now = u64::from_le_bytes(mtr.bytes(h)[at..at + 8].try_into().expect("8 bytes"));
        let next = value.saturating_add(1);
        if next > now {
            mtr.op(
                h,
                PageOp::Write {
                    off: at as u16,
                    bytes: &next.to_le_bytes(),
                },
            );
        }
        Ok(())
    }

    /// Sets the persistent counter (ALTER TABLE … AUTO_INCREMENT, TRUNCATE).
    pub fn set_auto_increment(&self, next: u64) -> Result<()> {
        let mut mtr = Mtr::begin(&self.mtr, 4096)?;
        let h = mtr.exclusive(PageId::new(self.def.space, META_PAGE))?;
        mtr.op(
            h,
            PageOp::Write {
                off: META_AUTO_INCREMENT as u16,
                bytes: &next.to_le_bytes(),
            },
        );
        mtr.commit();
        self.auto_increment.store(next, Ordering::Relaxed);
        Ok(())
    }

    /// Rows between two clustered or secondary keys, estimated from the tree.
    pub fn estimate_between(
        &self,
        index: &OpenIndex,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Result<u64> {
        index.tree.estimate_between(low, high)
    }
}

/// The value of an integer (or, as MariaDB allows it, a floating-point) AUTO_INCREMENT column, if it is above zero.
fn positive_integer(ty: ColumnType, datum: &[u8]) -> Option<u64> {
    let value = match ty {
        ColumnType::Int { bytes, signed } => {
            let mut wide = [0; 8];
            wide[..bytes as usize].copy_from_slice(datum.get(..bytes as usize)?);
            let value = u64::from_le_bytes(wide);
            let negative = signed && value >> (8 * u32::from(bytes) - 1) & 1 == 1;
            if negative { 0 } else { value }
        }
        ColumnType::Float => f32::from_le_bytes(datum.try_into().ok()?) as u64,
        ColumnType::Double => f64::from_le_bytes(datum.try_into().ok()?) as u64,
        _ => 0,
    };
    (value > 0).then_some(value)
}
