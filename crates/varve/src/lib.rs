//! Varve: a transactional storage engine with clustered B+trees, MVCC through undo logs and a purge that keeps up.

pub mod base;
#[doc(hidden)]
pub mod buffer;
#[doc(hidden)]
pub mod io;
#[doc(hidden)]
pub mod page;
