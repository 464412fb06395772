//! How far the log may get from the checkpoint: reservations, and a capacity that changes while the log is in
//! use: it grows at once, shrinks without anybody hanging, and is refused where it can't be.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use parking_lot::Mutex;

use super::*;

const MIB: u64 = 1 << 20;

/// Fills the log until `room` bytes of its capacity are left.
fn fill(log: &RedoLog, room: u64) {
    while log.checkpoint_age_bytes() + room + 60_000 < log.capacity_in_force() {
        put(log, &[3; 50_000]);
    }
    log.sync_to(log.next_lsn()).unwrap();
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn until_somebody_waits(log: &RedoLog) {
    let waits = &log.counters().capacity_waits;
    eventually("a wait", || waits.load(Ordering::Relaxed) > 0);
}

#[test]
fn who_waits_goes_on_when_the_capacity_grows() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    fill(&log, 0);
    let expected = read(dir.path(), log.checkpoint_lsn()).unwrap().0.len();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| put(&log, &[4; 300_000]));
        until_somebody_waits(&log);
        log.set_capacity(3 * MIB).unwrap();
        waiter.join().unwrap();
    });
    assert_eq!(
        (log.capacity(), log.capacity_in_force()),
        (3 * MIB, 3 * MIB)
    );
    // All of it, without any checkpoint.
    fill(&log, 0);
    assert!(log.checkpoint_age_bytes() > 3 * MIB - 200_000);
    let (found, end) = read(dir.path(), log.checkpoint_lsn()).unwrap();
    assert!(end == log.next_lsn() && found.len() > expected + 1);
}

/// LOG-3: the way down is taken in steps, and after each step of the checkpoint there is room for some more
/// redo.
#[test]
fn writers_go_on_while_the_capacity_shrinks() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    log.set_capacity(12 * MIB).unwrap();
    log.prepare_file();
    let files_before = log.file_bytes();
    fill(&log, 0);
    log.set_capacity(2 * MIB).unwrap();
    assert_eq!(log.capacity(), 2 * MIB, "what the page cleaner sees");
    assert!(log.capacity_in_force() > 11 * MIB);
    let mut steps = 0;
    while log.capacity_in_force() > 2 * MIB {
        let age = log.checkpoint_age_bytes();
        checkpoint(&log, Lsn(log.checkpoint_lsn().0 + 100_000 / 8 * 8));
        // What it gained, half of it may be used.
        let claimed = log.reserve(40_000).unwrap();
        drop(claimed);
        put(&log, &[5; 40_000]);
        assert!(log.checkpoint_age_bytes() < age, "it comes nearer");
        log.prepare_file();
        steps += 1;
    }
    assert!((100..300).contains(&steps), "{steps}");
    assert_eq!(log.counters().capacity_waits.load(Ordering::Relaxed), 0);
    for _ in 0..300 {
        checkpoint(&log, log.complete_lsn());
        put(&log, &[6; 40_000]);
        log.write_out();
        log.prepare_file();
    }
    let least = 2 * MIB + 2 * settings().file_bytes;
    let files = log.file_bytes();
    assert!(
        files >= least && files < files_before / 3,
        "{files} of {files_before}"
    );
}

/// An idle log is at its new capacity at once, or as soon as the checkpoint has come up to it.
#[test]
fn an_idle_log_shrinks() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    log.set_capacity(8 * MIB).unwrap();
    put(&log, &[1; 100_000]);
    log.set_capacity(2 * MIB).unwrap();
    assert_eq!(log.capacity_in_force(), 2 * MIB);
    log.set_capacity(8 * MIB).unwrap();
    fill(&log, 0);
    log.set_capacity(2 * MIB).unwrap();
    checkpoint(&log, log.complete_lsn());
    assert_eq!(log.capacity_in_force(), 2 * MIB);
}

#[test]
fn too_little_and_too_much_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    for bytes in [0, 2 * MIB - 1, (512 << 30) + 1, u64::MAX] {
        let refused = log.set_capacity(bytes).unwrap_err().to_string();
        assert!(
            refused.contains(&bytes.to_string()) && refused.contains("2097152"),
            "{refused}"
        );
    }
    assert_eq!(log.capacity_in_force(), settings().capacity_bytes);
}

/// The disk is full: everything is as before, and goes on; with space again it can be done.
#[test]
fn growing_on_a_full_disk_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, log) = create_faulty(dir.path());
    let names = || {
        let entries = RealDisk.list(&dir.path().join(REDO_DIR)).unwrap();
        entries
            .into_iter()
            .map(|e| (e.name, e.len))
            .collect::<Vec<_>>()
    };
    let before = (names(), log.file_bytes(), log.capacity_in_force());
    for made in [0, 3, 7] {
        disk.space_for(made);
        // 24 MiB: also in files of another length.
        for capacity in [4 * MIB, 24 * MIB] {
            let refused = log.set_capacity(capacity).unwrap_err();
            assert!(matches!(refused, Error::NoSpace { .. }), "{refused:?}");
            let words = refused.to_string();
            assert!(
                words.contains(&capacity.to_string()) && words.contains(".vlog"),
                "{words}"
            );
            assert_eq!((names(), log.file_bytes(), log.capacity_in_force()), before);
            disk.space_for(made);
        }
    }
    disk.space_for(0);
    // The log goes round in the files that it has.
    for _ in 0..200 {
        let end = put(&log, &[2; 30_000]);
        log.sync_to(end).unwrap();
        log.prepare_file();
        if log.checkpoint_age_bytes() > 3 * MIB / 2 {
            checkpoint(&log, end);
        }
    }
    disk.space_for(u64::MAX);
    log.set_capacity(4 * MIB).unwrap();
    assert_eq!(log.capacity_in_force(), 4 * MIB);
}

/// Files that could not be made durable count for nothing, and are in nobody's way afterwards.
#[test]
fn files_that_cant_be_synced_are_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, log) = create_faulty(dir.path());
    let names = || RealDisk.list(&dir.path().join(REDO_DIR)).unwrap();
    let before = (names(), log.file_bytes(), log.capacity_in_force());
    disk.fail_sync.store(true, Ordering::Relaxed);
    let refused = log.set_capacity(4 * MIB).unwrap_err().to_string();
    assert!(refused.contains("broken disk"), "{refused}");
    assert_eq!((names(), log.file_bytes(), log.capacity_in_force()), before);
    disk.fail_sync.store(false, Ordering::Relaxed);
    log.set_capacity(4 * MIB).unwrap();
    assert_eq!(log.capacity_in_force(), 4 * MIB);
}

/// LOG-2: a log that was opened again and again on a full disk has files that are used in part. It gets as
/// far as there is room, and no further; when the checkpoint has moved it has all of its capacity again.
#[test]
fn short_files_make_less_room() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, log) = create_faulty(dir.path());
    let mut log = Arc::new(log);
    disk.space_for(0);
    for _ in 0..8 {
        let end = put(&log, &[8; 100]);
        log.sync_to(end).unwrap();
        let log_dir = dir.path();
        drop(log);
        log = Arc::new(disk.reopen(log_dir, START));
    }
    let writer = log.spawn_writer().unwrap();
    let in_force = log.capacity_in_force();
    assert!(
        in_force < settings().capacity_bytes && in_force > MIB,
        "{in_force}"
    );
    assert_eq!(log.capacity(), in_force, "what the page cleaner sees");
    fill(&log, 0);
    assert!(!log.needs_space(), "LF-4");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| put(&log, &[9; 300_000]));
        until_somebody_waits(&log);
        checkpoint(&log, log.complete_lsn());
        waiter.join().unwrap();
    });
    eventually("all of the capacity", || {
        checkpoint(&log, log.complete_lsn());
        log.capacity_in_force() == settings().capacity_bytes
    });
    log.check().unwrap();
    drop(writer);
}

/// Everything at once: appenders, a checkpoint that follows, and a capacity that changes all the time. Nobody
/// hangs, and what lies above the checkpoint can be read again.
#[test]
fn the_capacity_changes_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(create(dir.path()));
    let writer = log.spawn_writer().unwrap();
    let appended = Mutex::new(Bodies::new());
    let done = AtomicBool::new(false);
    let seed: u64 = rand::random();
    println!("seed {seed}");
    std::thread::scope(|scope| {
        let appenders: Vec<_> = (0..3u64)
            .map(|thread| {
                let (log, appended) = (&log, &appended);
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(seed ^ thread);
                    for i in 0..700u64 {
                        let mut body = vec![thread as u8; rng.random_range(8..60_000)];
                        body[..8].copy_from_slice(&i.to_le_bytes());
                        let end = put(log, &body);
                        appended.lock().push((end, body));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut rng = SmallRng::seed_from_u64(!seed);
            while !done.load(Ordering::Relaxed) {
                log.set_capacity(MIB * rng.random_range(2..12)).unwrap();
                std::thread::sleep(Duration::from_millis(rng.random_range(0..20)));
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let age = log.checkpoint_age_bytes();
                let step = ((age / 4) & !7).max(8);
                let next = Lsn(log.checkpoint_lsn().0 + step).min(log.complete_lsn());
                checkpoint(&log, next);
                let most = log.checkpoint_lsn().0 + 13 * MIB + MIB;
                assert!(log.next_lsn().0 <= most, "LOG-1");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        appenders
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    log.sync_to(log.next_lsn()).unwrap();
    drop(writer);
    // A checkpoint in the middle of a frame is no place to begin: from the next frame on.
    let mut expected = appended.into_inner();
    expected.sort_by_key(|e| e.0);
    let from = expected.iter().position(|e| e.0 >= log.checkpoint_lsn());
    let from = from.unwrap();
    let (found, end) = read(dir.path(), expected[from].0).unwrap();
    assert_eq!(end, log.next_lsn());
    assert!(found == expected[from + 1..]);
}

/// LOG-1: the log never gets further than its capacity from the checkpoint; a waiter goes on when it moves.
#[test]
fn reservations_wait_for_the_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(create(dir.path()));
    let pressure = Arc::new(AtomicU64::new(0));
    let counted = pressure.clone();
    log.set_on_pressure(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let first = put(&log, &vec![0u8; 1_000_000]);
    assert_eq!(pressure.load(Ordering::Relaxed), 0);
    let held = log.reserve(1_000_000).unwrap();
    assert_eq!(pressure.load(Ordering::Relaxed), 1, "above 7/8");
    let waiter = {
        let log = log.clone();
        std::thread::spawn(move || put(&log, &vec![0u8; 200_000]))
    };
    until_somebody_waits(&log);
    assert_eq!(log.next_lsn(), first);
    checkpoint(&log, first);
    waiter.join().unwrap();
    drop(held);
    // What a dropped reservation did not use is free again.
    for _ in 0..100 {
        log.reserve(1_000_000).unwrap();
    }
    assert!(log.checkpoint_age_bytes() < log.capacity());
}

/// Nobody waits for a checkpoint that can't come; what there is room for is taken.
#[test]
fn a_checkpoint_at_a_standstill_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    fill(&log, 0);
    log.begin_standstill("a test holds it");
    let refused = log.reserve(300_000).map(drop).unwrap_err();
    assert!(
        matches!(&refused, Error::NoSpace { what } if what.contains("a test holds it")),
        "{refused}"
    );
    drop(log.reserve(1000).unwrap());
    log.end_standstill();
    checkpoint(&log, log.complete_lsn());
    drop(log.reserve(300_000).unwrap());
}

/// Nobody waits because of bytes that another one claims in vain.
#[test]
fn claims_in_vain_are_in_nobodys_way() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    fill(&log, 300_000);
    let claims_in_vain = || assert!(!log.try_claim(MIB));
    claims_in_vain();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| (0..300_000).for_each(|_| claims_in_vain()));
        while !other.is_finished() {
            drop(log.reserve(100_000).unwrap());
        }
    });
    assert_eq!(log.counters().capacity_waits.load(Ordering::Relaxed), 0);
}

#[test]
fn waiting_for_capacity_ends_when_the_log_is_poisoned() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    let _held = (
        log.reserve(1_000_000).unwrap(),
        log.reserve(1_000_000).unwrap(),
    );
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| log.reserve(500_000).err());
        until_somebody_waits(&log);
        log.poison("test");
        assert!(matches!(
            waiter.join().unwrap(),
            Some(Error::Poisoned { .. })
        ));
    });
}

/// Held capacity is there when its mini-transaction comes, and comes back if that never does.
#[test]
fn held_capacity_is_nobody_elses() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(create(dir.path()));
    // Together a little less than the capacity.
    let (held, free) = (1_000_000, 1_090_000);
    let first = log.hold(held).unwrap();
    let rest = log.reserve(free / 2).unwrap();
    let rest = (rest, log.reserve(free / 2).unwrap());
    // Nothing is left, so a reservation would wait; what is held is used all the same.
    let reservation = first.reservation(&log);
    let ticket = log.append(&reservation, &[&[1; 1000]]);
    let end = ticket.end;
    log.complete(ticket);
    drop((reservation, first, rest));
    checkpoint(&log, end);
    for _ in 0..3 {
        drop(log.hold(held).unwrap());
        let second = log.hold(held).unwrap();
        drop(log.reserve(free / 2).unwrap());
        drop(second);
    }
    assert!(log.counters().capacity_waits.load(Ordering::Relaxed) == 0);
}
