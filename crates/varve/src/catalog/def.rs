//! Table and index definitions: built by callers, completed by the engine (ids, tablespace, root pages),
//! stored in the catalog and in the table's own file.
//!
//! ```
//! use varve::{ColumnType, TableDef};
//! let def = TableDef::new("shop/orders")
//!     .column("id", ColumnType::u64())
//!     .nullable("customer", ColumnType::text(80))
//!     .column("placed_at", ColumnType::i64())
//!     .primary(&["id"])
//!     .index("by_customer", &["customer", "placed_at"]);
//! def.validate().unwrap();
//! ```
//!
//! - **DEF-1** A definition that passed [`TableDef::validate`] yields a row format and key codecs without
//!   panicking. Definitions from disk are validated like those of callers.

use crate::base::{Error, IndexId, NO_PAGE, PageNo, Result, SpaceId, TableId, TrxId, fnv1a};
use crate::encryption::{Encryption, EncryptionMode};
use crate::page::Compression;
use crate::row::{
    Collations, ColumnDef, ColumnType, DatumBuf, GoneColumn, KeyCodec, KeyPart, RowFormat, Value,
};

use super::derived::SystemTime;
use super::foreign::ForeignKey;

pub const MAX_COLUMNS: usize = 1017;
/// Secondary indexes of one table.
pub const MAX_INDEXES: usize = 64;
/// Foreign keys of one table.
pub const MAX_FOREIGN_KEYS: usize = 1000;
/// Bytes of the schema's name, of the table's, of a column's, of an index's. A file name, of at most 255
/// bytes, is made of a table's name.
pub const MAX_NAME_BYTES: usize = 240;
/// The name of every clustered index.
pub const PRIMARY_NAME: &str = "PRIMARY";

/// One index: a B+tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDef {
    pub id: IndexId,
    pub name: String,
    pub unique: bool,
    pub parts: Vec<KeyPart>,
    /// The tree's root page in the table's tablespace; never changes while the index lives.
    pub root: PageNo,
    /// The transaction that gave a table with rows this index: a view that does not see it must not read the
    /// index. 0 for one as old as the table.
    pub created_by: TrxId,
}

/// A table. `new` and the methods behind it describe one; the engine gives ids and places when it is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDef {
    pub id: TableId,
    /// `schema/table`: also where the file is.
    pub name: String,
    pub space: SpaceId,
    /// Counts up with each change of the columns; rows carry it. Starts at 1.
    pub schema_version: u16,
    pub columns: Vec<ColumnDef>,
    /// Those that it has had, in the order in which they went.
    pub gone: Vec<GoneColumn>,
    /// The clustered index. Without parts the table has no primary key, and a hidden row id stands for it.
    pub primary: IndexDef,
    pub indexes: Vec<IndexDef>,
    /// How many indexes the table had when its file was made, the clustered one included; 0: as many as now.
    pub indexes_at_first: u16,
    /// Whose child the table is.
    pub foreign_keys: Vec<ForeignKey>,
    /// The column that is filled from the table's counter.
    pub auto_increment: Option<usize>,
    /// Columns whose values are computed from others of the row.
    pub computed: Vec<usize>,
    /// Where it is, if the table keeps history.
    pub system_time: Option<SystemTime>,
    /// How the pages of its file are stored.
    pub compression: Option<Compression>,
    pub encryption: Encryption,
    /// Kept for the caller, unread.
    pub comment: Vec<u8>,
    /// The table has no file: it waits for one to be imported (IMPORT-1).
    pub discarded: bool,
    /// The error of a call of the builder; `validate` returns it.
    pub(super) defect: Option<String>,
}

impl IndexDef {
    pub fn new(name: impl Into<String>, parts: Vec<KeyPart>) -> IndexDef {
        IndexDef {
            id: IndexId(0),
            name: name.into(),
            unique: false,
            parts,
            root: NO_PAGE,
            created_by: TrxId(0),
        }
    }

    /// Some of its parts are stored in segments.
    pub(super) fn is_segmented(&self) -> bool {
        self.parts.iter().any(|part| part.segmented)
    }
}

impl TableDef {
    /// A table without columns, called `schema/table`.
    pub fn new(name: impl Into<String>) -> TableDef {
        let mut primary = IndexDef::new(PRIMARY_NAME, Vec::new());
        primary.unique = true;
        TableDef {
            id: TableId(0),
            name: name.into(),
            space: SpaceId(0),
            schema_version: 1,
            columns: Vec::new(),
            gone: Vec::new(),
            primary,
            indexes: Vec::new(),
            indexes_at_first: 0,
            foreign_keys: Vec::new(),
            auto_increment: None,
            computed: Vec::new(),
            system_time: None,
            compression: None,
            encryption: Encryption::default(),
            comment: Vec::new(),
            discarded: false,
            defect: None,
        }
    }

    /// Adds a column that does not take NULL.
    pub fn column(self, name: &str, ty: ColumnType) -> TableDef {
        self.add_column(ColumnDef::new(name, ty))
    }

    /// Adds a column that takes NULL.
    pub fn nullable(self, name: &str, ty: ColumnType) -> TableDef {
        self.add_column(ColumnDef::new(name, ty).nullable())
    }

    /// Adds a column, and gives it the next id unless it has one.
    pub fn add_column(mut self, mut column: ColumnDef) -> TableDef {
        if column.id == 0 {
            column.id = self.last_column_id() + 1;
        }
        self.columns.push(column);
        self
    }

    /// The table has no rows, so none of an older version.
    pub(crate) fn forget_older_rows(&mut self) {
        self.schema_version = 1;
        self.gone.clear();
        for column in &mut self.columns {
            (column.added_in, column.nullable_since, column.default) = (1, 1, None);
        }
    }

    /// The greatest id that a column has or had.
    pub fn last_column_id(&self) -> u32 {
        let ids = self.columns_and_gone().map(|column| column.id);
        ids.max().unwrap_or(0)
    }

    /// The columns that it has, then those that it had.
    pub(super) fn columns_and_gone(&self) -> impl Iterator<Item = &ColumnDef> {
        let gone = self.gone.iter().map(|gone| &gone.column);
        self.columns.iter().chain(gone)
    }

    /// The column with a number of `RowRef::external_columns`.
    pub(crate) fn column_or_gone(&self, number: usize) -> &ColumnDef {
        match number.checked_sub(self.columns.len()) {
            None => &self.columns[number],
            Some(gone) => &self.gone[gone].column,
        }
    }

    /// Has the pages of its file stored compressed, where that saves blocks of the disk: pages larger than 4
    /// KiB. A temporary table's are not.
    pub fn compressed(mut self, compression: Compression) -> TableDef {
        self.compression = Some(compression);
        self
    }

    /// Has the pages of its file encrypted with this key, whatever is set for all tables. Needs
    /// [`Options::encryption_keys`](crate::Options::encryption_keys).
    pub fn encrypted(mut self, key: u32) -> TableDef {
        let mode = EncryptionMode::On;
        self.encryption = Encryption { mode, key };
        self
    }

    /// Makes these columns, which must be there already, the primary key.
    pub fn primary(mut self, columns: &[&str]) -> TableDef {
        self.primary.parts = self.parts_of(PRIMARY_NAME, columns);
        self
    }

    /// Adds a secondary index on these columns.
    pub fn index(mut self, name: &str, columns: &[&str]) -> TableDef {
        let parts = self.parts_of(name, columns);
        self.indexes.push(IndexDef::new(name, parts));
        self
    }

    /// Adds a secondary index that holds no key twice, but for keys with a NULL.
    pub fn unique(mut self, name: &str, columns: &[&str]) -> TableDef {
        let parts = self.parts_of(name, columns);
        let mut index = IndexDef::new(name, parts);
        index.unique = true;
        self.indexes.push(index);
        self
    }

    /// Adds an index with descending or prefix parts.
    pub fn add_index(mut self, index: IndexDef) -> TableDef {
        self.indexes.push(index);
        self
    }

    /// Fills this column from the table's counter.
    pub fn auto_increment(mut self, column: &str) -> TableDef {
        let found = self.named("AUTO_INCREMENT names", &[column]);
        self.auto_increment = found.first().copied();
        self
    }

    fn parts_of(&mut self, index: &str, columns: &[&str]) -> Vec<KeyPart> {
        let columns = self.named(&format!("index {index} names"), columns);
        columns.into_iter().map(KeyPart::new).collect()
    }

    /// The positions of these columns. One that is not there is noted.
    pub(super) fn named(&mut self, what: &str, columns: &[&str]) -> Vec<usize> {
        let mut positions = Vec::new();
        for column in columns {
            match self.column_index(column) {
                Some(at) => positions.push(at),
                None => self.note(format!("{what} column {column}, which does not exist")),
            }
        }
        positions
    }

    /// Keeps the first defect.
    pub(super) fn note(&mut self, defect: String) {
        self.defect.get_or_insert(defect);
    }

    /// The position of the column called `name`, in any case of ASCII letters.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        (self.columns.iter()).position(|c| c.name.eq_ignore_ascii_case(name))
    }

    /// A number that becomes another one when the table is redefined, and is the same after a restart.
    pub fn hash(&self) -> u64 {
        let is_young = !self.gone.is_empty() || self.columns.iter().any(|c| c.nullable_since > 1);
        // No name has a NUL.
        let columns = self.columns.iter().flat_map(|column| {
            let length = (column.ty.max_len() as u64).to_le_bytes();
            // Older programs did not look at these, and there was nothing in them that changed.
            let young = column.id.to_le_bytes();
            let young = young.into_iter().chain([column.nullable.into()]);
            let young = is_young.then_some(young).into_iter().flatten();
            (column.name.bytes().chain([0]).chain(length)).chain(young)
        });
        let indexes = self.all_indexes().flat_map(|index| {
            let id = index.id.0.to_le_bytes();
            index.name.bytes().chain([0]).chain(id)
        });
        let foreign = self.foreign_keys.iter();
        let foreign = foreign.flat_map(|key| key.name.bytes().chain([0]));
        fnv1a(columns.chain(indexes).chain(foreign))
    }

    /// 0 for the clustered index, n for the n-th secondary one.
    pub fn index_number(&self, name: &str) -> Option<usize> {
        (self.all_indexes()).position(|i| i.name.eq_ignore_ascii_case(name))
    }

    /// The clustered index, then the secondary ones.
    pub fn all_indexes(&self) -> impl Iterator<Item = &IndexDef> {
        std::iter::once(&self.primary).chain(&self.indexes)
    }

    /// How many indexes the table had when its file was made, the clustered one included.
    pub(crate) fn trees_at_first(&self) -> usize {
        match self.indexes_at_first {
            0 => 1 + self.indexes.len(),
            n => n.into(),
        }
    }

    /// Is the clustered key a hidden row id?
    pub fn has_row_id(&self) -> bool {
        self.primary.parts.is_empty()
    }

    /// The codec of this table's rows.
    pub(crate) fn row_format(&self) -> Result<RowFormat> {
        RowFormat::new(&self.columns, &self.gone, self.schema_version)
    }

    /// The codec of the keys of `index`, one of this table's. Without parts for a hidden row id.
    pub(crate) fn key_codec(&self, index: &IndexDef, collations: &Collations) -> Result<KeyCodec> {
        KeyCodec::new(&self.columns, &index.parts, collations).map_err(|e| match e {
            Error::Unsupported { what } => Error::Unsupported {
                what: format!("index {} of table {}: {what}", index.name, self.name),
            },
            other => other,
        })
    }

    /// A row of typed values, one per column.
    pub fn row(&self, values: &[Value]) -> Result<DatumBuf> {
        if values.len() != self.columns.len() {
            return Err(Error::invalid(format!(
                "table {} has {} columns, got {} values",
                self.name,
                self.columns.len(),
                values.len()
            )));
        }
        let mut row = DatumBuf::new();
        for (column, value) in self.columns.iter().zip(values) {
            value.encode(column, &mut row)?;
        }
        Ok(row)
    }

    /// A search key of typed values for the first parts of an index (0 is the clustered one).
    pub fn key(&self, index: usize, values: &[Value]) -> Result<DatumBuf> {
        let Some(index) = self.all_indexes().nth(index) else {
            return Err(Error::not_found(format!(
                "index number {index} of table {}",
                self.name
            )));
        };
        if values.len() > index.parts.len() {
            return Err(Error::invalid(format!(
                "index {} of table {} has {} columns, got {} values",
                index.name,
                self.name,
                index.parts.len(),
                values.len()
            )));
        }
        let mut key = DatumBuf::new();
        for (part, value) in index.parts.iter().zip(values) {
            value.encode(&self.columns[part.column], &mut key)?;
        }
        Ok(key)
    }
}
