//! A disk that crashes. [`SimDisk`] keeps files in memory and writes down every operation; [`CrashPoints`]
//! turns what it wrote down into what a real disk might hold if the machine lost power at any moment in
//! between.
//!
//! The workload runs once. Each crash is computed from the journal afterwards, so trying every moment of a
//! run costs one recovery each, not one run each.
//!
//! # Fault model
//!
//! What is promised (`varve::internals::io`, IO-1 to IO-9), and what is not:
//!
//! - **FAULT-1** A write that its file's `sync` has not followed may be on the disk whole, not at all, or in
//!   any of its 512-byte sectors. Writes are independent of each other: a later one may be there while an
//!   earlier one is not.
//! - **FAULT-2** A change of length that `sync` has not followed may be lost, and what was written behind it
//!   with it or not. Bytes that were never written are zero.
//! - **FAULT-3** A name that was created, removed or given to another file is durable once `sync_dir` of its
//!   directory followed, whether or not the file was synced. Until then a directory may show any state that
//!   it went through since, but never a later change without the earlier ones; a rename between two
//!   directories happens in both or in neither. What lies in a directory whose own name is lost is lost. A
//!   symbolic link is such a name, and its text is there with it (IO-9).
//! - **FAULT-4** `sync` of a file says nothing about its name, `sync_dir` nothing about the data of the files
//!   in it.
//! - **FAULT-5** What is durable stays as it is: there is no bit rot. Sectors are written whole or not at
//!   all.
//! - **FAULT-6** On demand ([`Fault`]) operations fail with an I/O error or for lack of space, or move fewer
//!   bytes than they were asked to. A write that fails may have written some of its sectors.
//! - **FAULT-7** What was written before a `sync` that failed may stay lost whatever later ones say: systems
//!   report the failure once, and then take the pages for clean (Rebello et al., "Can Applications Recover
//!   from fsync Failures?", USENIX ATC 2020). Until the next crash it can be read.
//! - **FAULT-8** On demand ([`SimDisk::promise_atomic_writes`]) writes of a power of two bytes at a multiple
//!   of that, up to some length, can be made atomically: they may be lost like others, but they are not torn
//!   (IO-7). Otherwise none can.
//!
//! Deviations from real disks, all of them harsher or beside the point: `sync` acts at one moment (no crash
//! in its middle, but one before it with everything written is another of the states tried); a file system's
//! journal would order changes in different directories, this one doesn't; there are no links to
//! directories and no permissions. Paths are absolute.
//!
//! The design follows ALICE (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014): a trace of
//! file system operations, and the crash states that an abstract persistence model allows for each prefix of
//! it. It differs in drawing states at random where enumerating them would take too long.
//!
//! A state after which something is wrong is made simpler by delta debugging ([`minimal`]) until each change
//! in which it differs from "everything was written", or from "nothing was", is needed.

pub mod anomalies;
mod contents;
mod crash;
mod disk;
mod fault;
mod image;
mod journal;
mod minimal;
#[cfg(feature = "models")]
mod models;
pub mod panics;
pub mod sample;

pub use crash::{CrashPoints, CrashState};
pub use disk::SimDisk;
pub use fault::{Failure, Fault, Lie, Operation};
pub use image::Image;
pub use journal::Journal;
pub use minimal::minimal;
#[cfg(feature = "models")]
pub use models::try_cases;

/// Bytes that the disk writes as a whole.
pub const SECTOR: usize = 512;
