//! What the integration tests share: a random workload, and an oracle that knows what it must see.

pub mod oracle;
pub mod tables;
pub mod workload;
