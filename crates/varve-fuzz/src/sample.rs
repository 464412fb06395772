//! What the seeds come from: the sample of `varve_sim` with a history that an old view kept purge from, a
//! prepared transaction and one that had not ended; as a crash left it, and closed.

use std::sync::OnceLock;

use varve::internals::page::is_zero;
use varve::{Isolation, Result, Xid};
use varve_sim::SimDisk;
use varve_sim::sample::{self, Place, change, definitions, insert, open};

const ROWS: i64 = 150;

fn build() -> Result<SimDisk> {
    let disk = SimDisk::default();
    let db = open(&disk)?;
    let tables = definitions().map(|def| db.create_table(&def));
    let tables = tables.into_iter().collect::<Result<Vec<_>>>()?;
    let mut old = db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    for round in 0..3 {
        for table in &tables {
            let mut trx = db.begin(Isolation::RepeatableRead);
            (0..ROWS / 3).try_for_each(|n| insert(&mut trx, table, n * 3 + round, "first"))?;
            change(&mut trx, table, 7 + round, "changed")?;
            match round {
                1 => trx.rollback()?,
                _ => trx.commit()?,
            }
        }
    }
    let mut prepared = db.begin(Isolation::RepeatableRead);
    insert(&mut prepared, &tables[0], 3 * ROWS, "prepared")?;
    prepared.prepare(&Xid::new(1, b"global", b"branch")?)?;
    let mut loser = db.begin(Isolation::RepeatableRead);
    (0..20).try_for_each(|n| insert(&mut loser, &tables[0], 2 * ROWS + n, "lost"))?;
    change(&mut loser, &tables[1], 4, "lost")?;
    // What has not ended is on the disk as after a crash.
    db.flush_log()?;
    let crashed = disk.copy();
    drop((prepared, loser, old));
    db.crash();
    Ok(crashed)
}

/// The database as a crash left it: its redo log has much of it.
pub fn disk() -> SimDisk {
    static DISK: OnceLock<SimDisk> = OnceLock::new();
    DISK.get_or_init(|| build().expect("the sample is made of what works"))
        .copy()
}

/// The same after a recovery and a shutdown: its tablespaces have all of it.
pub fn closed_disk() -> SimDisk {
    static DISK: OnceLock<SimDisk> = OnceLock::new();
    let close = || {
        let disk = disk();
        open(&disk).and_then(|db| db.close()).expect("it was whole");
        disk
    };
    DISK.get_or_init(close).copy()
}

/// A page of a tablespace.
#[derive(Clone)]
pub struct StoredPage {
    pub place: Place,
    pub bytes: Vec<u8>,
}

/// The pages of the closed database that have content.
pub fn pages() -> &'static [StoredPage] {
    static PAGES: OnceLock<Vec<StoredPage>> = OnceLock::new();
    PAGES.get_or_init(|| {
        let disk = closed_disk();
        let places = sample::pages(&disk, |_, page| !is_zero(page));
        let stored = |place: Place| StoredPage {
            bytes: place.read(&disk),
            place,
        };
        places.into_iter().map(stored).collect()
    })
}
