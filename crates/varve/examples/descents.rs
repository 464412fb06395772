//! How much of a point read an adaptive hash index could save: `descents [ROWS]`, 10,000,000 unless it is
//! said, all of them in memory. Prints nanoseconds of a point read, of the search for its record, of the same
//! in a leaf that is known, and of a look-up in a hash table with an entry for each row, which is the least
//! that an index from keys to leaves would cost.

use std::hint::black_box;
use std::time::Instant;

use varve::{
    ColumnType, Database, FlushLog, Isolation, KeyMatch, LockMode, Options, TableDef, Value,
};

const READS: u64 = 2_000_000;
const ROUNDS: usize = 5;

/// A generator with a long period; the low bits are not used.
fn next(random: &mut u64) -> u64 {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    *random >> 33
}

/// The median of several rounds, in nanoseconds for each of `READS`.
fn time(mut of: impl FnMut(u64)) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            let mut random = round as u64 + 1;
            let begun = Instant::now();
            (0..READS).for_each(|_| of(next(&mut random)));
            begun.elapsed().as_nanos() as f64 / READS as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// An open hash table from keys to numbers, half full.
struct Hash {
    slots: Vec<(u64, u32)>,
}

impl Hash {
    fn new(keys: u64) -> Hash {
        let mut hash = Hash {
            slots: vec![(u64::MAX, 0); (2 * keys as usize).next_power_of_two()],
        };
        for key in 0..keys {
            let at = hash.find(key);
            hash.slots[at] = (key, (key / 100) as u32);
        }
        hash
    }

    fn find(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 20 & mask;
        while ![key, u64::MAX].contains(&self.slots[at].0) {
            at = (at + 1) & mask;
        }
        at
    }
}

fn main() -> varve::Result<()> {
    let rows = std::env::args().nth(1);
    let rows: u64 = rows.map_or(10_000_000, |n| n.parse().expect("a number"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = Options {
        buffer_pool_bytes: (rows * 200).max(64 << 20),
        redo_capacity_bytes: 256 << 20,
        flush_log_at_trx_commit: FlushLog::Lazy,
        logger: Some(std::sync::Arc::new(|_, _| {})),
        ..Options::default()
    };
    let db = Database::open(dir.path(), options)?;
    let def = TableDef::new("bench/t")
        .column("id", ColumnType::u64())
        .column("value", ColumnType::Bytes(100))
        .primary(&["id"]);
    let table = db.create_table(&def)?;
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut load = db.load_table(&mut trx, &table, 1)?;
    for id in 0..rows {
        let row = [Value::from(id), Value::Bytes(vec![7; 100])];
        load.push(&mut trx, &def.row(&row)?.datums())?;
    }
    load.finish(&mut trx, &mut |_, _| {})?;
    trx.commit()?;

    let mut cursor = table.cursor(0)?;
    let read = time(|n| {
        let key = (n % rows).to_le_bytes();
        let mut trx = db.begin(Isolation::RepeatableRead);
        let found = cursor.seek(&mut trx, &[Some(&key)], KeyMatch::Exact, LockMode::None);
        assert!(found.expect("a row") && cursor.row().expect("a row").get(1).is_some());
    });
    let opened = db.core().tables.get("bench/t")?;
    let tree = &opened.clustered.tree;
    let search = time(|n| {
        let key = (n % rows).to_be_bytes();
        let leaf = tree.latch_leaf_ahead(&key, tree.look_ahead(&key));
        assert!(black_box(leaf).is_ok_and(|leaf| leaf.exact));
    });
    // What a perfect index would say, for nothing: it is read in order.
    let mut random = 1;
    let keys: Vec<[u8; 8]> = (0..READS)
        .map(|_| (next(&mut random) % rows).to_be_bytes())
        .collect();
    let leaves: Vec<_> = keys.iter().map(|key| tree.look_ahead(key)).collect();
    let mut at = 0;
    let known = time(|_| {
        let leaf = tree.latch_leaf_ahead(&keys[at], leaves[at]);
        assert!(black_box(leaf).is_ok_and(|leaf| leaf.exact));
        at = (at + 1) % keys.len();
    });
    let hash = Hash::new(rows);
    let mut found = 0;
    let hashed = time(|n| {
        // Each look-up waits for the one before, as everything in a read does.
        found = hash.slots[hash.find(n.wrapping_add(found.into()) % rows)].1 & 1;
    });
    println!(
        "{rows} rows: a point read {read:.0} ns, its search {search:.0} ns; in a leaf that is known {known:.0} \
         ns, and what a hash table takes to know it {hashed:.0} ns"
    );
    println!(
        "a point read that knew its leaf would be {:.2} times as fast, with that hash table {:.2}",
        read / (read - search + known),
        read / (read - search + known + hashed)
    );
    Ok(())
}
