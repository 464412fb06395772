//! The engines that are compared.

mod fjall;
mod lmdb;
#[cfg(feature = "native")]
mod native;
mod redb;
mod sqlite;
mod varve;

use std::path::Path;

use anyhow::{Error, Result};

use crate::engine::Engine;

/// An engine by name, and how a new one is opened in an empty directory.
#[derive(Clone, Copy)]
pub struct Peer {
    pub name: &'static str,
    pub open: fn(&Path) -> Result<Box<dyn Engine>>,
}

/// Whether the engine had no room left under a snapshot.
pub fn is_full(error: &Error) -> bool {
    lmdb::is_full(error)
}

pub fn all() -> Vec<Peer> {
    vec![
        Peer {
            name: "varve",
            open: varve::open,
        },
        #[cfg(feature = "native")]
        Peer {
            name: "rocksdb",
            open: native::open_rocksdb,
        },
        #[cfg(feature = "native")]
        Peer {
            name: "wiredtiger",
            open: native::open_wiredtiger,
        },
        Peer {
            name: "lmdb",
            open: lmdb::open,
        },
        Peer {
            name: "redb",
            open: redb::open,
        },
        Peer {
            name: "sqlite",
            open: sqlite::open,
        },
        Peer {
            name: "fjall",
            open: fjall::open,
        },
    ]
}
