//! Entry points for bytes that nobody vouches for: everything that Varve reads from a disk, calls of its
//! C interface, and what clients of memcached send.
//!
//! A [`Target`] is a function of bytes. It fails by a panic: if the code under test panics, or if one of the
//! properties that the target's file names does not hold. Nothing else may happen, whatever the bytes are: no
//! endless loop, no recursion and no allocation that the bytes' number does not bound.
//!
//! Two drivers run the targets:
//!
//! - `tests/mutations.rs`, a plain test: every seed, and some thousands of changes of seeds ([`mutate`]);
//! - `fuzz/`, a workspace of its own: libFuzzer, which looks for new paths, with the address sanitizer
//!   (`cargo xtask fuzz`).
//!
//! Seeds are made anew each time by a small database, so that they follow the formats. Checksums are no
//! obstacle: a target that changes a page, a log file or a control file gives it the checksum that fits
//! (docs/testing.md).

mod capi;
mod codec;
mod control;
mod database;
mod definition;
mod index;
mod input;
mod memcached;
mod mutate;
mod page;
mod redo;
mod sample;
mod undo;

pub use mutate::mutate;

/// Something that is fed with bytes.
pub struct Target {
    pub name: &'static str,
    /// Panics if something is wrong with the code under test.
    pub run: fn(&[u8]),
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Changes of seeds that the plain test tries: fewer where one takes long.
    pub mutations: u64,
}

pub const TARGETS: [Target; 10] = [
    Target {
        name: "page",
        run: page::run,
        seeds: page::seeds,
        mutations: 3000,
    },
    Target {
        name: "redo",
        run: redo::run,
        seeds: redo::seeds,
        mutations: 2000,
    },
    Target {
        name: "control",
        run: control::run,
        seeds: control::seeds,
        mutations: 2000,
    },
    Target {
        name: "index",
        run: index::run,
        seeds: index::seeds,
        mutations: 2000,
    },
    Target {
        name: "undo",
        run: undo::run,
        seeds: undo::seeds,
        mutations: 4000,
    },
    Target {
        name: "codec",
        run: codec::run,
        seeds: codec::seeds,
        mutations: 4000,
    },
    Target {
        name: "definition",
        run: definition::run,
        seeds: definition::seeds,
        mutations: 4000,
    },
    Target {
        name: "database",
        run: database::run,
        seeds: database::seeds,
        mutations: 100,
    },
    Target {
        name: "capi",
        run: capi::run,
        seeds: capi::seeds,
        mutations: 300,
    },
    Target {
        name: "memcached",
        run: memcached::run,
        seeds: memcached::seeds,
        mutations: 1500,
    },
];

/// The target called `name`.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs the target called `name`.
pub fn run(name: &str, input: &[u8]) {
    let target = target(name).unwrap_or_else(|| panic!("no target is called {name}"));
    (target.run)(input);
}
