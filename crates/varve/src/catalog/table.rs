//! A table that is open: its definition, trees and codecs, and the few values that live in memory only.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::base::{
    Error, IndexId, PageId, PageNo, ReferenceError, Result, SYSTEM_SPACE, SpaceId, TableId, TrxId,
};
use crate::btree::{Seek, Tree};
use crate::catalog::auto_increment::{AutoIncrement, positive_integer};
use crate::catalog::change_buffer::may_buffer;
use crate::catalog::followed::FollowedChanges;
use crate::catalog::links::Links;
use crate::catalog::row_count::RowCount;
use crate::catalog::{
    ChangeBuffer, ChangeTime, ChildColumns, ClusteredLen, EntryRecord, IndexDef, Payload,
    RowRecord, TableDef, TemporaryPages, longest_plain, longest_whole, split_entry,
};
use crate::mtr::{Mtr, MtrEnv, PageHandle, RawRecord};
use crate::page::{PageOp, PageType, page_type};
use crate::row::{
    Collations, Damage, Datum, Forms, KeyCodec, ROW_ID_BYTES, RowFormat, RowRef, row_id_of,
};
use crate::space::{COUNTER_AT, COUNTER_PAGE, FileCounter, Raise, Spaces};

/// The page of each table's tablespace that holds its counters.
pub const META_PAGE: PageNo = COUNTER_PAGE;
/// Root pages follow, in the order primary, secondary indexes.
pub const FIRST_ROOT_PAGE: PageNo = PageNo(3);
/// Hidden row ids from here on are refused. So many are left that threads which find none can't make the
/// counter start again.
pub const ROW_IDS_END: u64 = u64::MAX - (1 << 32);
/// Offset of the AUTO_INCREMENT counter in the meta page: the next value, 8 bytes.
pub const META_AUTO_INCREMENT: usize = COUNTER_AT;

/// One index of an open table.
pub struct OpenIndex {
    pub id: IndexId,
    pub name: String,
    /// The table's name.
    pub table: Arc<str>,
    pub unique: bool,
    /// As in its definition.
    pub created_by: TrxId,
    pub tree: Tree,
    /// It may have a change buffer.
    pub(super) may_buffer: bool,
    /// Shared by all handles of the table.
    pub buffer: Arc<ChangeBuffer>,
    pub codec: KeyCodec,
    /// That of the table's clustered key, which is at the end of an entry's.
    tail: Arc<KeyCodec>,
    /// How many bytes that has.
    clustered_len: ClusteredLen,
    /// How many parts of it count in the order of entries (TAIL-2).
    ordered: usize,
}

impl OpenIndex {
    /// `def` has the index, in `tree`; `table` is its name, `tail` for its clustered key.
    fn new(
        def: &TableDef,
        index: &IndexDef,
        table: Arc<str>,
        tree: Tree,
        tail: Arc<KeyCodec>,
        collations: &Collations,
    ) -> Result<OpenIndex> {
        let codec = def.key_codec(index, collations)?;
        let clustered_len = match tail.is_empty() {
            true => Some(ROW_ID_BYTES),
            false => tail.constant_len(),
        };
        Ok(OpenIndex {
            id: index.id,
            name: index.name.clone(),
            table,
            unique: index.unique,
            created_by: index.created_by,
            may_buffer: may_buffer(def, index, tree.page_size()),
            tree,
            buffer: Arc::default(),
            codec,
            tail,
            clustered_len: clustered_len.map(|len| len as u16),
            ordered: def.ordered_parts(index),
        })
    }

    /// The entry of this secondary index with this payload, if it is one.
    #[inline]
    pub fn entry<'a>(&self, payload: &'a [u8]) -> Option<EntryRecord<'a>> {
        EntryRecord::decode(payload, self.clustered_len)
    }

    /// The payload of an entry of this secondary index.
    #[inline]
    pub fn entry_payload(&self, entry: &EntryRecord<'_>) -> Payload {
        entry.encode(self.clustered_len)
    }

    /// The same of an entry that everybody sees who comes to it (FREEZE-1).
    pub fn frozen_payload(&self, entry: &EntryRecord<'_>) -> Payload {
        entry.encode_frozen(self.clustered_len)
    }

    /// The forms of the texts of an entry of this secondary index, as they stand in its flags: `own` is its
    /// own key, made of these values, and `clustered` the row's (KEY-6).
    #[inline]
    pub fn forms<'a>(
        &self,
        own: &[u8],
        clustered: &[u8],
        column: impl Fn(usize) -> Datum<'a>,
    ) -> Result<u8> {
        let texts = self.codec.texts() + self.tail.texts();
        if texts == 0 {
            return Ok(0);
        }
        let mut forms = Forms::new(texts, 0);
        let own = self.codec.set_forms(own, &column, &mut forms);
        own.and_then(|()| self.tail.set_forms(clustered, column, &mut forms))
            .map_err(|d| Error::invalid(format!("a key of index {}: {d:?}", self.name)))?;
        Ok(forms.bits())
    }

    /// Whether texts of the clustered key have forms in this index's entries.
    pub fn has_clustered_texts(&self) -> bool {
        self.tail.texts() > 0
    }

    /// Makes what `key` holds from `start` on, an entry's own key, the key of the entry of the row with this
    /// clustered key. Returns how much of that is in it: what `EntryRecord::new` asks for.
    ///
    /// # Errors
    ///
    /// `TooLarge`: even a long entry has no room for both, or not for what is to count in the order (TAIL-2).
    #[inline]
    pub fn end_entry_key(
        &self,
        key: &mut Vec<u8>,
        start: usize,
        clustered: &[u8],
    ) -> Result<usize> {
        if key.len() - start + clustered.len() <= longest_whole(self.tree.page_size()) {
            key.extend_from_slice(clustered);
            return Ok(clustered.len());
        }
        self.end_long_key(key, start, clustered)
    }

    #[cold]
    fn end_long_key(&self, key: &mut Vec<u8>, start: usize, clustered: &[u8]) -> Result<usize> {
        let mut ends = vec![0];
        let damaged = |d: Damage| self.damage_at(clustered, d.expected, d.found);
        self.tail
            .part_ends(clustered, 0, &mut ends)
            .map_err(damaged)?;
        let page_size = self.tree.page_size();
        let ordered = ends.get(self.ordered).copied().unwrap_or(clustered.len());
        split_entry(page_size, key, start, clustered, ordered).map_err(|size| Error::TooLarge {
            what: format!("a key of index {} with the row's clustered key", self.name),
            size,
            limit: longest_whole(page_size),
        })
    }

    /// The error for a damaged record on a page of the index that the caller has latched.
    #[cold]
    pub fn damage_on(&self, page: PageId, expected: &str, found: impl Display) -> Error {
        let expected = format!("{expected} of table {}, index {}", self.table, self.name);
        Error::corrupt(page, expected, found.to_string())
    }

    /// The same for a record that was copied from its page: names the page that holds the key now. The caller
    /// holds no latch.
    #[cold]
    pub fn damage_at(&self, key: &[u8], expected: &str, found: impl Display) -> Error {
        match self.tree.latch_leaf_shared(key, Seek::Ge) {
            Ok(leaf) => self.damage_on(leaf.page_id(), expected, found),
            Err(e) => e,
        }
    }

    pub fn space(&self) -> SpaceId {
        self.tree.space.id()
    }
}

/// What `stats` found out about one index.
#[derive(Clone, PartialEq, Debug)]
pub struct IndexEstimate {
    /// For n = 1, 2, …: how many rows share the first n parts of their key, on average. The parts are the
    /// index's own, then in a secondary index those of the primary key.
    pub rows_per_key: Vec<f64>,
    pub leaf_pages: u64,
    /// Leaves that were looked at; `None`: nobody looked.
    pub sampled_leaves: Option<u64>,
}

/// Leaves of an index that are looked at, unless somebody says otherwise.
const SAMPLE_LEAVES: u32 = 12;

/// What `stats` found out about a table.
pub struct Estimates {
    /// By index number; empty until they were made first. Held for a moment only.
    pub indexes: Mutex<Vec<IndexEstimate>>,
    /// Held by the thread that makes them, while pages are read.
    pub making: Mutex<()>,
    /// How many rows the table had then.
    pub made_at_rows: AtomicU64,
    pub secondary_pages: AtomicU64,
    /// Of the clustered index, with its external values, if somebody has said; else 0.
    pub clustered_pages: AtomicU64,
    /// STAT-1: while it is set, no estimate is made again because rows have come or gone.
    pub kept: AtomicBool,
    /// How many leaves of an index are to be looked at.
    pub sample_leaves: AtomicU32,
    /// A `NullsInKeys`.
    pub nulls: AtomicU8,
}

impl Default for Estimates {
    fn default() -> Estimates {
        Estimates {
            indexes: Mutex::default(),
            making: Mutex::default(),
            made_at_rows: AtomicU64::new(0),
            secondary_pages: AtomicU64::new(0),
            clustered_pages: AtomicU64::new(0),
            kept: AtomicBool::new(false),
            sample_leaves: AtomicU32::new(SAMPLE_LEAVES),
            nulls: AtomicU8::default(),
        }
    }
}

/// Keeps purge from changing a table.
pub type PurgeGate<'a> = RwLockWriteGuard<'a, ()>;

/// An open table, shared by everybody who uses it.
pub struct OpenTable {
    pub def: TableDef,
    pub format: RowFormat,
    pub clustered: OpenIndex,
    pub secondary: Vec<OpenIndex>,
    /// By the number of the foreign key.
    pub foreign: Vec<ChildColumns>,
    /// The numbers of the foreign keys in the order of their names, bytes by bytes.
    pub foreign_by_name: Vec<usize>,
    /// Its foreign keys and those that refer to it.
    pub links: Links,
    /// The transaction that created this definition: a view that does not see it must not read the table.
    pub created_by: TrxId,
    mtr: Arc<MtrEnv>,
    /// The table was dropped or replaced by another handle. Stored before the transaction that did it
    /// releases its table lock, read after that lock was waited for.
    dropped: AtomicBool,
    /// A transaction uses the table, which is a temporary one (TEMP-1).
    claimed: Arc<AtomicBool>,
    /// The overflow pages of a temporary table, whichever handle wrote them; `None` for others.
    temporary_overflow: Option<Arc<TemporaryPages>>,
    /// Held for reading by purge while it works on a record; for writing by a thread that needs the table
    /// without purge.
    purge_gate: RwLock<()>,
    /// Rows, as far as known: estimated when the table was opened, counted since.
    rows: RowCount,
    /// Alone in its cache line: inserts into a table without a primary key write it.
    next_row_id: CachePadded<AtomicU64>,
    /// The file's counter has the same or, until the row is written, less.
    auto_increment: AutoIncrement,
    pub estimates: Estimates,
    /// When somebody asked for the table last, by the clock of `Tables`. Relaxed: see there.
    last_use: AtomicU64,
    pub changed: ChangeTime,
    pub followed: FollowedChanges,
}

impl OpenTable {
    /// The definition as it is stored: `def`, in which parents and their columns are called what they are
    /// called now.
    pub fn definition(&self) -> TableDef {
        let mut def = self.def.clone();
        def.foreign_keys = self.links.keys().to_vec();
        def
    }

    /// The numbers of the foreign keys to a table of this name.
    pub fn foreign_keys_to(&self, parent: &str) -> Vec<usize> {
        let keys = self.links.keys();
        (0..keys.len())
            .filter(|&n| keys[n].parent == parent)
            .collect()
    }

    /// Whether a row that the table gets has to have parents.
    pub fn needs_parents(&self) -> bool {
        self.def.foreign_keys.iter().any(|key| !key.kept)
    }

    /// Names the foreign key with this number as what refused a change.
    pub fn reference(&self, number: usize) -> Box<ReferenceError> {
        Box::new(ReferenceError {
            table: self.def.name.clone(),
            constraint: self.def.foreign_keys[number].name.clone(),
            parent: self.links.keys()[number].parent.clone(),
        })
    }

    /// What mini-transactions on the table's pages work on.
    pub fn mtr_env(&self) -> &MtrEnv {
        &self.mtr
    }

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
        let name: Arc<str> = def.name.as_str().into();
        let tail = Arc::new(def.key_codec(&def.primary, collations)?);
        let open_index = |index: &IndexDef| -> Result<OpenIndex> {
            let tree = Tree::open(mtr.clone(), space.clone(), index.root, index.id);
            OpenIndex::new(&def, index, name.clone(), tree, tail.clone(), collations)
        };
        let clustered = open_index(&def.primary)?;
        let secondary = def
            .indexes
            .iter()
            .map(open_index)
            .collect::<Result<Vec<_>>>()?;
        let foreign: Vec<_> = def
            .foreign_keys
            .iter()
            .map_while(|k| def.child_columns(k))
            .collect();
        debug_assert_eq!(
            foreign.len(),
            def.foreign_keys.len(),
            "their columns are there"
        );
        let mut foreign_by_name: Vec<usize> = (0..foreign.len()).collect();
        foreign_by_name.sort_by_key(|&number| &def.foreign_keys[number].name);
        let table = OpenTable {
            format,
            clustered,
            secondary,
            foreign,
            foreign_by_name,
            links: Links::new(&def.foreign_keys),
            created_by,
            mtr: mtr.clone(),
            dropped: AtomicBool::new(false),
            claimed: Arc::default(),
            temporary_overflow: def.id.is_temporary().then(Arc::default),
            purge_gate: RwLock::new(()),
            rows: RowCount::default(),
            next_row_id: CachePadded::new(AtomicU64::new(1)),
            auto_increment: AutoIncrement::default(),
            estimates: Estimates::default(),
            last_use: AtomicU64::new(0),
            changed: ChangeTime::default(),
            followed: FollowedChanges::default(),
            def,
        };
        table.load_counters()?;
        table.open_change_buffers()?;
        Ok(table)
    }

    pub(super) fn last_use(&self) -> u64 {
        self.last_use.load(Ordering::Relaxed)
    }

    pub(super) fn used_at(&self, now: u64) {
        // Most leave the shared cache line alone.
        if self.last_use() != now {
            self.last_use.store(now, Ordering::Relaxed);
        }
    }

    fn load_counters(&self) -> Result<()> {
        let rows = self.clustered.tree.estimate_between(&[], None)?;
        self.rows.set(rows);
        if self.def.has_row_id()
            && let Some(key) = self.last_key()?
        {
            let index = &self.clustered;
            let last = row_id_of(&key)
                .map_err(|d| index.damage_at(&key, d.expected, format!("{} bytes", d.found)))?;
            self.raise_row_id(last.saturating_add(1));
        }
        if self.def.auto_increment.is_some() && !self.is_temporary() {
            let page = self.mtr.pool.shared(self.meta_page())?;
            let on_page = self.read_auto_increment(&page)?;
            let noted = self.clustered.tree.space.noted_counter();
            self.auto_increment.set(on_page.max(noted));
        }
        Ok(())
    }

    /// An index in the table's file that `def` has and the table itself, perhaps, not yet.
    pub fn open_index(
        &self,
        def: &TableDef,
        index: &IndexDef,
        collations: &Collations,
    ) -> Result<OpenIndex> {
        let tree = self.open_tree(index.id, index.root);
        let (table, tail) = (self.clustered.table.clone(), self.clustered.tail.clone());
        OpenIndex::new(def, index, table, tree, tail, collations)
    }

    /// A tree in the table's file.
    pub(super) fn open_tree(&self, index: IndexId, root: PageNo) -> Tree {
        let space = self.clustered.tree.space.clone();
        Tree::open(self.mtr.clone(), space, root, index)
    }

    fn meta_page(&self) -> PageId {
        PageId::new(self.def.space, META_PAGE)
    }

    /// The page is one that a meta page can be.
    pub(super) fn check_meta_page(&self, page: &[u8]) -> Result<()> {
        if page_type(page) == Some(PageType::Raw) {
            return Ok(());
        }
        let expected = format!("the counters of table {}", self.def.name);
        let found = format!("type {:?}", page_type(page));
        Err(Error::corrupt(self.meta_page(), expected, found))
    }

    /// The counter on the meta page.
    fn read_auto_increment(&self, page: &[u8]) -> Result<u64> {
        self.check_meta_page(page)?;
        let at = META_AUTO_INCREMENT;
        Ok(u64::from_le_bytes(
            page[at..at + 8].try_into().expect("8 bytes"),
        ))
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

    pub fn id(&self) -> TableId {
        self.def.id
    }

    pub fn space(&self) -> SpaceId {
        self.def.space
    }

    /// The table has a file of its own.
    pub fn has_own_file(&self) -> bool {
        !self.is_temporary() && self.space() != SYSTEM_SPACE
    }

    /// The table lies in the temporary tablespace (see `ddl::temporary`).
    pub fn is_temporary(&self) -> bool {
        self.id().is_temporary()
    }

    /// The overflow pages of a temporary table; `None` for others, whose tablespace is all theirs.
    pub fn temporary_overflow(&self) -> Option<&TemporaryPages> {
        self.temporary_overflow.as_deref()
    }

    /// This handle is about to replace another one of the same table. Its counter goes on: the one on the
    /// meta page counts rows that were refused by a secondary index, too.
    pub fn take_over_from(&mut self, old: &OpenTable) {
        self.auto_increment.set(old.auto_increment());
        self.temporary_overflow = old.temporary_overflow.clone();
        for index in &mut self.secondary {
            if let Some(same) = old.secondary.iter().find(|i| i.id == index.id) {
                index.buffer = same.buffer.clone();
            }
        }
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
        let index = match n {
            0 => Some(&self.clustered),
            n => self.secondary.get(n - 1),
        };
        index
            .ok_or_else(|| Error::not_found(format!("index number {n} of table {}", self.def.name)))
    }

    /// Appends the encoding of a search key of index number `n`: values of its first parts, and in a
    /// secondary index, if they are all given, of the first parts of the primary key.
    ///
    /// # Errors
    ///
    /// `TooLarge` for a key that reaches further into long entries than these are in order (TAIL-2).
    pub fn encode_search(&self, n: usize, values: &[Datum<'_>], out: &mut Vec<u8>) -> Result<()> {
        let index = self.index_at(n)?;
        let codec = &index.codec;
        if n == 0 || values.len() <= codec.len() {
            return codec.encode_values(values, out);
        }
        let (own, clustered) = values.split_at(codec.len());
        let start = out.len();
        codec.encode_values(own, out)?;
        self.clustered.codec.encode_values(clustered, out)?;
        let (size, limit) = (out.len() - start, longest_plain(index.tree.page_size()));
        if size > limit && clustered.len() > index.ordered {
            let what = format!("a search by index {} and the primary key", index.name);
            return Err(Error::TooLarge { what, size, limit });
        }
        Ok(())
    }

    /// The row in a clustered record, which was copied from its page, with this key.
    #[inline(always)]
    pub fn row<'a>(&'a self, key: &[u8], bytes: &'a [u8]) -> Result<RowRef<'a>> {
        RowRef::new(&self.format, bytes)
            .map_err(|d| self.clustered.damage_at(key, d.expected, d.found))
    }

    /// The row of a clustered record, under clustered key `key`. Flags that deny its external values are
    /// damage: a reader that believed them would not fetch these.
    #[inline(always)]
    pub fn row_of<'a>(&'a self, key: &[u8], record: &RowRecord<'a>) -> Result<RowRef<'a>> {
        let row = self.row(key, record.row)?;
        match row.has_external_values() && !record.has_external_values() {
            false => Ok(row),
            true => {
                let expected = "a row whose flags say that it has external values";
                Err(self.clustered.damage_at(key, expected, "flags without it"))
            }
        }
    }

    /// Takes a temporary table for one transaction. `None`: another one has it.
    pub fn claim(&self) -> Option<Claim> {
        debug_assert!(self.is_temporary());
        // Acquire pairs with the Release of the last claim's end: that transaction has ended for the thread
        // that looks from now on.
        let is_ours = !self.claimed.swap(true, Ordering::Acquire);
        is_ours.then(|| Claim(self.claimed.clone()))
    }

    /// Lets purge work on the table while the guard lives. Waits for a thread that keeps it away;
    /// `is_dropped` is asked afterwards.
    pub fn let_purge_in(&self) -> RwLockReadGuard<'_, ()> {
        self.purge_gate.read()
    }

    /// Keeps purge from changing the table while the guard lives. Waits for the record that it is at.
    pub fn keep_purge_away(&self) -> PurgeGate<'_> {
        self.purge_gate.write()
    }

    /// Holders of a handle leave the table alone from now on, or no longer.
    pub fn set_dropped(&self, dropped: bool) {
        // Release pairs with the Acquire below: a thread that sees it sees what replaced the table.
        self.dropped.store(dropped, Ordering::Release);
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    pub fn row_count(&self) -> u64 {
        self.rows.get()
    }

    pub fn count_rows(&self, change: i64) {
        if change != 0 {
            self.rows.add(change);
        }
    }

    /// The number of rows has changed so much since the estimates were made that they should be made again.
    pub fn estimates_are_stale(&self) -> bool {
        if self.estimates.kept.load(Ordering::Relaxed) {
            return false;
        }
        let then = self.estimates.made_at_rows.load(Ordering::Relaxed);
        // A few rows more or less make no difference in a small table.
        self.row_count().abs_diff(then) > 16 + then / 10
    }

    /// Somebody knows better how many rows there are.
    pub fn set_row_count(&self, rows: u64) {
        self.rows.set(rows);
    }

    /// All rows are gone: row ids and the AUTO_INCREMENT counter start again.
    pub fn restart_counters(&self) {
        self.rows.set(0);
        self.next_row_id.store(1, Ordering::Relaxed);
        self.auto_increment.set(1);
    }

    /// The pages of the tablespace that are in use, but for those that say which are.
    pub fn pages_in_use(&self) -> Result<Vec<PageNo>> {
        self.clustered.tree.space.pages_in_use(&self.mtr)
    }

    pub fn page_type(&self, no: PageNo) -> Result<Option<PageType>> {
        let page = self.mtr.pool.shared(PageId::new(self.def.space, no))?;
        Ok(page_type(&page))
    }

    /// Bytes of the tablespace that are in use, and that it has free. Of the temporary one, which it shares
    /// with others, a temporary table has its overflow pages, and its trees' as far as known.
    pub fn used_and_free_bytes(&self) -> Result<(u64, u64)> {
        let (space, page) = (
            &self.clustered.tree.space,
            self.clustered.tree.page_size() as u64,
        );
        if let Some(overflow) = self.temporary_overflow() {
            let pages: u64 = self.indexes().map(|i| i.tree.pages_since_opened()).sum();
            return Ok(((pages + overflow.count()) * page, 0));
        }
        let (used, size) = (
            u64::from(space.used_pages(&self.mtr)?),
            u64::from(space.size_pages()),
        );
        Ok((used * page, size.saturating_sub(used) * page))
    }

    /// A new hidden row id. Relaxed: only uniqueness counts.
    pub fn draw_row_id(&self) -> Result<u64> {
        let id = self.next_row_id.fetch_add(1, Ordering::Relaxed);
        if id < ROW_IDS_END {
            return Ok(id);
        }
        self.next_row_id.store(ROW_IDS_END, Ordering::Relaxed);
        Err(Error::NoSpace {
            what: format!(
                "table {} has used up its hidden row ids: give it a primary key",
                self.def.name
            ),
        })
    }

    /// Makes the next hidden row id at least `next`.
    pub fn raise_row_id(&self, next: u64) {
        self.next_row_id.fetch_max(next, Ordering::Relaxed);
    }

    /// The next AUTO_INCREMENT value, without taking it.
    pub fn auto_increment(&self) -> u64 {
        self.auto_increment.get()
    }

    /// Takes `n` consecutive values; returns the first. At its end the counter stays at `u64::MAX`, which is
    /// returned to everybody who comes then.
    pub fn reserve_auto_increment(&self, n: u64) -> u64 {
        self.auto_increment.draw(n)
    }

    /// As above, unless a statement holds or awaits the AUTO-INC lock.
    pub fn reserve_auto_increment_unlocked(&self, n: u64) -> Option<u64> {
        self.auto_increment.draw_unlocked(n)
    }

    /// A statement is about to ask for the AUTO-INC lock. When this returns, nobody draws without it.
    pub fn announce_auto_inc_lock(&self) {
        self.auto_increment.announce_lock();
    }

    /// It has given the lock up, or not got it.
    pub fn withdraw_auto_inc_lock(&self) {
        self.auto_increment.withdraw_lock();
    }

    /// Makes the counter at least `next`.
    pub fn raise_auto_increment(&self, next: u64) {
        self.auto_increment.raise(next);
    }

    /// The AUTO_INCREMENT column's value in a row, if it is one that moves the counter.
    pub fn auto_increment_value(&self, row: &[Datum<'_>]) -> Option<u64> {
        let at = self.def.auto_increment?;
        positive_integer(self.def.columns[at].ty, row.get(at).copied()??)
    }

    /// Raises the counter in the file, in the mini-transaction that inserts a row with `value`, or the one
    /// that ends a batch of rows; it has to be committed with [`RaisedCounter::commit`]. The page, if it is
    /// latched, comes after tree and undo pages, like allocation pages. A temporary table's counter is in
    /// memory only.
    pub fn log_auto_increment(&self, mtr: &mut Mtr<'_>, value: u64) -> Result<RaisedCounter<'_>> {
        if self.is_temporary() {
            return Ok(RaisedCounter::default());
        }
        let next = value.saturating_add(1);
        let counter = self.clustered.tree.space.counter();
        match counter.raise(next) {
            Raise::Nothing => {}
            Raise::Record => {
                let space = self.space();
                mtr.log_raw(&RawRecord::CounterRaised { space, next });
            }
            Raise::Page => {
                let h = mtr.exclusive(self.meta_page())?;
                let now = self.read_auto_increment(mtr.bytes(h))?;
                // COUNTER-2
                let next = counter.noted();
                if next > now {
                    write_auto_increment(mtr, h, next);
                    return Ok(RaisedCounter(Some((counter, next))));
                }
                counter.page_has(now);
            }
        }
        Ok(RaisedCounter::default())
    }

    /// Sets the persistent counter (ALTER TABLE … AUTO_INCREMENT, TRUNCATE). Nobody inserts meanwhile.
    pub fn set_auto_increment(&self, next: u64) -> Result<()> {
        if self.is_temporary() {
            self.auto_increment.set(next);
            return Ok(());
        }
        let (space, counter) = (self.space(), self.clustered.tree.space.counter());
        let mut mtr = Mtr::begin(&self.mtr, 4096)?;
        let h = mtr.exclusive(self.meta_page())?;
        self.read_auto_increment(mtr.bytes(h))?;
        write_auto_increment(&mut mtr, h, next);
        mtr.log_raw(&RawRecord::CounterSet { space, next });
        mtr.commit_with(|_, _| {
            counter.set(next);
            counter.page_changed(next);
        });
        self.auto_increment.set(next);
        Ok(())
    }
}

fn write_auto_increment(mtr: &mut Mtr<'_>, page: PageHandle, next: u64) {
    let (off, bytes) = (META_AUTO_INCREMENT as u16, &next.to_le_bytes());
    mtr.op(page, PageOp::Write { off, bytes });
}

/// The counter of a file whose page a mini-transaction has changed, if it has, and what it is there.
#[derive(Default)]
#[must_use = "the mini-transaction is to be committed with it"]
pub struct RaisedCounter<'a>(Option<(&'a FileCounter, u64)>);

impl RaisedCounter<'_> {
    /// Commits the mini-transaction (COUNTER-1).
    pub fn commit(self, mtr: Mtr<'_>) {
        mtr.commit_with(|_, _| {
            if let Some((counter, next)) = self.0 {
                counter.page_changed(next);
            }
        });
    }
}

/// A transaction's right to a temporary table, until dropped.
pub struct Claim(Arc<AtomicBool>);

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
