//! What the database knows about its tables: definitions of tables and indexes.

mod def;
mod def_codec;
mod validate;

#[cfg(test)]
mod tests;

pub use def::{IndexDef, MAX_COLUMNS, MAX_INDEXES, MAX_NAME_BYTES, PRIMARY_NAME, TableDef};
