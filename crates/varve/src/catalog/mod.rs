//! What the database knows about its tables: definitions of tables and indexes.

mod auto_increment;
mod change_buffer;
mod changed;
mod def;
mod def_codec;
mod def_copy;
mod derived;
mod followed;
mod foreign;
mod import;
mod links;
mod loose;
mod overflow;
mod record;
mod redefine;
mod row_count;
mod stamp;
mod table;
mod tables;
mod validate;

#[cfg(test)]
mod tests;

pub use change_buffer::{ChangeBuffer, Destination, IndexLeaf, is_tombstone};
pub use changed::{ChangeTime, ChangedTables};
pub use def::{IndexDef, MAX_COLUMNS, MAX_INDEXES, MAX_NAME_BYTES, PRIMARY_NAME, TableDef};
pub use def_copy::{COPY_AT, CopyReader, copy_page, first_copy, second_copy};
pub use derived::SystemTime;
pub use followed::Notes;
pub use foreign::{ChildColumns, ColumnNames, ForeignKey, ReferentialAction};
pub use links::{ChildKey, ChildLink};
pub use loose::LooseTree;
pub use overflow::{
    ChainWalk, OVERFLOW_HEADER_AT, OverflowPage, TemporaryPages, overflow_capacity,
};
pub use record::{
    ClusteredKey, DELETED, ENTRY_LEN, EXTERNAL, EntryRecord, FROZEN_AT, FROZEN_CUT, Payload,
    REVIVED, ROW_AT, RowRecord, entry_state, is_frozen, longest_plain, longest_whole, may_freeze,
    state_bytes,
};
use record::{ClusteredLen, split_entry};
pub use stamp::BuiltWith;
pub use table::{
    Claim, Estimates, FIRST_ROOT_PAGE, IndexEstimate, META_AUTO_INCREMENT, META_PAGE, OpenIndex,
    OpenTable, PurgeGate, ROW_IDS_END, RaisedCounter,
};
pub use tables::{BrokenTable, End, Opened, Reserved, Source, Tables, is_aside, schema_of};
