//! The engine's modules, for the tests and tools of this repository: with the feature `internals` only, and
//! without any promise to stay.

macro_rules! open {
    ($($module:ident)*) => {
        $(pub mod $module {
            pub use crate::$module::*;
        })*
    };
}

open! {
    base btree buffer catalog ddl encryption flush io lock mtr page purge recovery redo row space stats table
    txn undo
}
