//! What the integration tests share: a random workload, and an oracle that knows what it must see.
#![allow(dead_code, reason = "each test uses its part")]

pub mod crashes;
pub mod history;
pub mod kept;
pub mod oracle;
pub mod purge;
pub mod shrink;
pub mod tables;
pub mod threads;
pub mod workload;
