//! Old read views behind which purge goes on. What could break here: a row that such a view does not find,
//! finds twice or finds as another one has left it, by whichever way it looks (PAST-1, PAST-2, MVCC-2); a
//! version that is kept for nobody; purge that waits although it need not, or goes on although it may not.

#[path = "support/long_views.rs"]
mod long_views;
#[path = "support/reads.rs"]
mod reads;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{
    ColumnType, Cursor, Database, Isolation, KeyMatch, LockMode, Table, TableDef, Transaction,
};

use long_views::{Run, Snapshot, WAIT, counter, options};
use reads::row_of;

/// PAST-1, PAST-2, MVCC-2.
#[test]
fn old_views_see_what_they_saw() {
    let mut copied = 0;
    for seed in 0..12 {
        copied += long_views::at_random(options(), seed);
    }
    println!("{copied} versions copied");
    assert!(copied > 1000, "{copied}");
}

/// A scan backward that is read anew, because its transaction has taken something back, lost the next row if
/// that came from the store.
#[test]
fn a_scan_backward_goes_on_after_a_rollback_to_a_savepoint() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::new(dir.path(), options(), 0, 6);
    let mut trx = run.db.begin(Isolation::RepeatableRead);
    for id in 0..6i64 {
        let id = id.to_le_bytes();
        let row = [Some(&id[..]), Some(&id[..]), Some(&b""[..])];
        trx.insert(&run.table, &row).unwrap();
    }
    trx.commit().unwrap();
    run.open_view();
    let mut trx = run.db.begin(Isolation::RepeatableRead);
    for id in 0..6i64 {
        let mut cursor = run.table.cursor(0).unwrap();
        let (how, lock) = (KeyMatch::Exact, LockMode::Exclusive);
        let key = id.to_le_bytes();
        assert!(cursor.seek(&mut trx, &[Some(&key)], how, lock).unwrap());
        trx.delete(&run.table, &cursor).unwrap();
    }
    trx.commit().unwrap();
    assert!(run.db.wait_for_purge(WAIT));
    let trx = &mut run.snapshots[0].trx;
    let savepoint = trx.savepoint();
    for index in 0..3 {
        let mut cursor = run.table.cursor(index).unwrap();
        let mut ids = Vec::new();
        let mut found = cursor.last(trx, LockMode::None).unwrap();
        while found {
            ids.push(row_of(&cursor).0);
            trx.rollback_to(savepoint).unwrap();
            found = cursor.prev(trx).unwrap();
        }
        assert_eq!(ids, [5, 4, 3, 2, 1, 0], "index {index}");
    }
}

/// What a leaf lacks may be any number of versions: a scan takes them by parts, and none twice.
#[test]
fn a_scan_over_a_table_of_which_nothing_is_left() {
    const ROWS: i64 = 12_000;
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let def = TableDef::new("h/t")
        .column("id", ColumnType::i64())
        .column("v", ColumnType::Bytes(200))
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        let row = [Some(&id.to_le_bytes()[..]), Some(&[7; 200][..])];
        trx.insert(&table, &row).unwrap();
    }
    trx.commit().unwrap();
    let mut view = db.begin(Isolation::RepeatableRead);
    view.take_snapshot();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    let mut found = cursor.first(&mut trx, LockMode::Exclusive).unwrap();
    while found {
        trx.delete(&table, &cursor).unwrap();
        found = cursor.next(&mut trx).unwrap();
    }
    drop(cursor);
    trx.commit().unwrap();
    assert!(db.wait_for_purge(WAIT), "{:?}", db.report());
    let id_of = |cursor: &varve::Cursor| {
        let row = cursor.row().unwrap();
        i64::from_le_bytes(row.get(0).unwrap().try_into().unwrap())
    };
    let mut cursor = table.cursor(0).unwrap();
    let mut ids = Vec::new();
    let mut found = cursor.first(&mut view, LockMode::None).unwrap();
    while found {
        ids.push(id_of(&cursor));
        found = cursor.next(&mut view).unwrap();
    }
    assert!(ids.iter().copied().eq(0..ROWS), "{} rows", ids.len());
    let mut found = cursor.last(&mut view, LockMode::None).unwrap();
    while found {
        assert_eq!(ids.pop(), Some(id_of(&cursor)));
        found = cursor.prev(&mut view).unwrap();
    }
    assert_eq!(ids, []);
}

/// At the row with this id, which gets locked.
fn seek(table: &Table, trx: &mut Transaction, id: i64) -> Cursor {
    let mut cursor = table.cursor(0).unwrap();
    let (how, lock) = (KeyMatch::Exact, LockMode::Exclusive);
    let key = id.to_le_bytes();
    assert!(cursor.seek(trx, &[Some(&key)], how, lock).unwrap());
    cursor
}

/// Changes the row with this id.
fn update(table: &Table, trx: &mut Transaction, id: i64, k: i64, text: &[u8]) {
    let (key, k) = (id.to_le_bytes(), k.to_le_bytes());
    let cursor = seek(table, trx, id);
    let row = [Some(&key[..]), Some(&k[..]), Some(text)];
    trx.update(table, &cursor, &row).unwrap();
}

/// The entry is younger than the view, but the row with it is the transaction's own: it was not found by the
/// entry.
#[test]
fn an_own_row_is_found_by_an_entry_of_a_later_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::new(dir.path(), options(), 0, 1);
    let begin = |run: &Run| run.db.begin(Isolation::RepeatableRead);
    let mut trx = begin(&run);
    let zero = 0i64.to_le_bytes();
    let row = [Some(&zero[..]), Some(&zero[..]), Some(&b"old"[..])];
    trx.insert(&run.table, &row).unwrap();
    trx.commit().unwrap();
    run.rows.insert(0, (0, b"old".to_vec()));
    run.open_view();
    let mut trx = begin(&run);
    update(&run.table, &mut trx, 0, 1, b"old");
    trx.commit().unwrap();
    let Snapshot { trx, rows, .. } = &mut run.snapshots[0];
    update(&run.table, trx, 0, 1, b"new");
    rows.insert(0, (1, b"new".to_vec()));
    run.compare(0);
}

/// A search for one key reads no further than that; what it comes to behind it is not in its leaf any more.
#[test]
fn a_scan_goes_on_behind_an_exact_search() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::new(dir.path(), options(), 0, 4);
    let begin = |run: &Run| run.db.begin(Isolation::RepeatableRead);
    let mut trx = begin(&run);
    for id in 0..4i64 {
        let (key, k) = (id.to_le_bytes(), (id / 2).to_le_bytes());
        let row = [Some(&key[..]), Some(&k[..]), Some(&b"text"[..])];
        trx.insert(&run.table, &row).unwrap();
        run.rows.insert(id, (id / 2, b"text".to_vec()));
    }
    trx.commit().unwrap();
    run.open_view();
    let mut trx = begin(&run);
    for id in 2..4 {
        let cursor = seek(&run.table, &mut trx, id);
        trx.delete(&run.table, &cursor).unwrap();
    }
    trx.commit().unwrap();
    assert!(run.db.wait_for_purge(WAIT));
    let trx = &mut run.snapshots[0].trx;
    let mut cursor = run.table.cursor(1).unwrap();
    let zero = 0i64.to_le_bytes();
    let found = cursor.seek(trx, &[Some(&zero)], KeyMatch::Exact, LockMode::None);
    assert!(found.unwrap());
    let mut ids = vec![row_of(&cursor).0];
    while cursor.next(trx).unwrap() {
        ids.push(row_of(&cursor).0);
    }
    assert_eq!(ids, [0, 1, 2, 3]);
}

/// COPY-1, COPY-2: what views see is copied, once, and nothing else.
#[test]
fn nothing_is_copied_that_nobody_needs() {
    for seed in 0..6 {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), options()).unwrap();
        let def = TableDef::new("h/t")
            .column("id", ColumnType::i64())
            .column("v", ColumnType::i64())
            .primary(&["id"]);
        let table = db.create_table(&def).unwrap();
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut views, mut live) = (Vec::new(), BTreeMap::new());
        // When each row was changed last, and when a view was opened last.
        let (mut changed, mut opened) = (BTreeMap::new(), 0);
        let mut needed = 0;
        for now in 1..300 {
            if rng.random_ratio(1, 12) {
                let mut trx = db.begin(Isolation::RepeatableRead);
                trx.take_snapshot();
                views.push(trx);
                opened = now;
            }
            let mut trx = db.begin(Isolation::RepeatableRead);
            let is_taken_back = rng.random_ratio(1, 6);
            let ids: BTreeSet<i64> = (0..4).map(|_| rng.random_range(0..20)).collect();
            for id in ids {
                // The second change replaces what nobody else has seen.
                for v in 0..2i64 {
                    let (id, v) = (id.to_le_bytes(), v.to_le_bytes());
                    let mut cursor = table.cursor(0).unwrap();
                    let how = (KeyMatch::Exact, LockMode::Exclusive);
                    let row = [Some(&id[..]), Some(&v[..])];
                    match cursor.seek(&mut trx, &[Some(&id)], how.0, how.1).unwrap() {
                        false => trx.insert(&table, &row).unwrap(),
                        true if rng.random_ratio(1, 3) => trx.delete(&table, &cursor).unwrap(),
                        true => drop(trx.update(&table, &cursor, &row).unwrap()),
                    }
                }
                let mut cursor = table.cursor(0).unwrap();
                let key = id.to_le_bytes();
                let how = (KeyMatch::Exact, LockMode::Shared);
                let is_there = cursor.seek(&mut trx, &[Some(&key)], how.0, how.1).unwrap();
                if is_taken_back {
                    continue;
                }
                let was_there = live.insert(id, is_there) == Some(true);
                let before = changed.insert(id, now).unwrap_or(0);
                needed += u64::from(was_there && opened > before);
            }
            match is_taken_back {
                true => trx.rollback().unwrap(),
                false => trx.commit().unwrap(),
            }
        }
        assert!(db.wait_for_purge(WAIT), "{:?}", db.report());
        assert!(needed > 50);
        let versions = counter(&db, "history_store_versions");
        assert_eq!(versions, needed, "{} views", views.len());
    }
}

/// COPY-3: a store that is full stops purge before what it can't keep; nothing fails, and once the view has
/// ended purge goes on. STORE-5.
#[test]
fn a_full_store_holds_purge_back_and_nothing_else() {
    long_views::full_store(options());
    long_views::full_store_of_rows(options());
}

/// STORE-2, STORE-4: what was kept for views that have gone goes, although there is one that stays for ever.
#[test]
fn a_view_that_stays_keeps_nothing_for_others() {
    long_views::come_and_go(options());
}

/// PAST-1, PAST-2, MVCC-2, with everybody at it at once: purge, writers who take back, and readers.
#[test]
fn old_views_see_what_they_saw_while_others_write() {
    long_views::side_by_side(options(), Duration::from_secs(3));
}

/// MVCC-2.
#[test]
fn a_row_whose_change_was_taken_back_is_found() {
    long_views::taken_back(options());
}

/// Nothing grows under views that stay: `VARVE_VIEW_SECONDS=3600` for an hour of it.
#[test]
fn views_of_any_age_cost_no_more_than_what_they_see() {
    let seconds = std::env::var("VARVE_VIEW_SECONDS").map_or(6, |n| n.parse().unwrap());
    let most = long_views::of_any_age(options(), 2000, Duration::from_secs(seconds));
    // Rows and their entries take some 1.5 KiB each. Half of the versions may be garbage, and pages be half
    // full.
    let rows = 2000 * 1536;
    assert!(most.store_bytes < 2 * 2 * 8 * rows, "{most:?}");
    assert!(most.undo_pages < 10_000, "{most:?}");
    // The process is that of other tests, too.
    assert!(most.resident_bytes < 300 << 20, "{most:?}");
}
