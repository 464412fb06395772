//! The files of the pool: which are used again, made, and kept.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::io::RealDisk;
use crate::redo::files::number_of;

const PAYLOAD: u64 = 61_440;

fn settings() -> LogSettings {
    LogSettings {
        capacity_bytes: 3 * PAYLOAD,
        buffer_bytes: 1 << 16,
        file_bytes: 65_536,
        page_size: 16_384,
        uuid: [5; 16],
        buffered: false,
        encrypted: false,
        keyring: Default::default(),
        sabotage: None,
    }
}

fn create(dir: &Path) -> (FilePool, LogFile) {
    FilePool::create(Arc::new(RealDisk), dir, settings(), Lsn(8)).unwrap()
}

fn open_at(dir: &Path, settings: LogSettings, checkpoint: Lsn, end: Lsn) -> (FilePool, LogFile) {
    let queue = Arc::new(IoQueue::start(false).unwrap());
    FilePool::open_at(Arc::new(RealDisk), queue, dir, settings, checkpoint, end).unwrap()
}

/// Numbers and lengths.
fn files(dir: &Path) -> Vec<(u64, u64)> {
    let entries = RealDisk.list(&dir.join(REDO_DIR)).unwrap();
    let file = |e: &crate::io::DirEntry| Some((number_of(&e.name)?, e.len));
    entries.iter().filter_map(file).collect()
}

fn fit(pool: &mut FilePool) {
    while let Some(step) = pool.next_step() {
        match step {
            Step::Make => pool.make().unwrap(),
            Step::Remove(spare) => {
                let without = pool.room_without(spare);
                pool.remove(spare).unwrap();
                assert_eq!(pool.room(), without);
            }
        }
    }
}

#[test]
fn files_below_the_checkpoint_are_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let (mut pool, mut file) = create(dir.path());
    let numbers = || files(dir.path()).iter().map(|f| f.0).collect::<Vec<_>>();
    assert_eq!(numbers(), [1, 2, 3, 4, 5]);
    for i in 1..20 {
        pool.release(Lsn(file.header.start.0.saturating_sub(PAYLOAD)));
        let next = pool.next().unwrap();
        assert_eq!(next.header.number, i + 1);
        assert_eq!(next.header.start, file.header.end(), "no byte is skipped");
        file = next;
    }
    assert_eq!(numbers().len(), 5, "no file was added");
    // LF-3: with a checkpoint that stands still every file is kept, and new ones are created.
    let checkpoint = file.header.start;
    pool.release(checkpoint);
    for _ in 0..10 {
        pool.next().unwrap();
        pool.release(checkpoint);
    }
    let redo = dir.path().join(REDO_DIR);
    let chain = Chain::open(
        &RealDisk,
        &redo,
        &settings().uuid,
        checkpoint,
        2,
        &Default::default(),
    );
    assert_eq!(chain.unwrap().files.len(), 11);
}

/// Files that were made for another capacity are used, too, and replaced as they come free.
#[test]
fn files_of_another_length_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (_, first) = create(dir.path());
    let larger = LogSettings {
        capacity_bytes: 8 << 20,
        file_bytes: 1 << 20,
        ..settings()
    };
    let end = Lsn(first.header.start.0 + 800);
    let (mut pool, mut file) = open_at(dir.path(), larger.clone(), Lsn(8), end);
    assert!(file.header.file_bytes == 65_536 && pool.room().0 >= end.0 + larger.capacity_bytes);
    for _ in 0..25 {
        pool.release(file.header.start);
        fit(&mut pool);
        file = pool.next().unwrap();
    }
    assert_eq!(file.header.file_bytes, larger.file_bytes);
    let lens: Vec<u64> = files(dir.path()).iter().map(|f| f.1).collect();
    assert_eq!(lens, vec![larger.file_bytes; lens.len()]);
    let (pool, _) = open_at(dir.path(), settings(), file.header.start, file.header.start);
    assert_eq!(
        pool.sizing().file_bytes,
        65_536,
        "they are much too long now"
    );
}

#[test]
fn a_length_that_suits_is_kept() {
    let (kib, mib) = (1 << 10, 1 << 20);
    for (capacity, present, want) in [
        (96 * mib, None, 12 * mib),
        (96 * mib, Some(12 * mib), 12 * mib),
        (768 * mib, Some(12 * mib), 12 * mib),
        (1024 * mib, Some(12 * mib), 12 * mib),
        (48 * mib, Some(12 * mib), 12 * mib),
        (40 * mib, Some(12 * mib), 5 * mib),
        (96 * mib, Some(mib), 12 * mib),
        (96 * mib, Some(12 * mib + 1), 12 * mib),
        (2 * mib, Some(64 * kib), 64 * kib),
        (64 * 1024 * mib, None, 64 * mib),
    ] {
        assert_eq!(
            file_bytes_for(capacity, present),
            want,
            "{capacity} {present:?}"
        );
    }
}

/// LF-4: wherever the checkpoint is, however often the log was opened and whatever its capacity was,
/// there are files for all of the capacity and for the next opening, and not many more.
#[test]
fn there_is_room_for_the_capacity() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let (mut pool, mut file) = create(dir.path());
    let mut checkpoint = Lsn(8);
    for _ in 0..300 {
        match rng.random_range(0..10) {
            0 => {
                let room = file.header.end().0 - file.header.start.0;
                let used = [0, 8, (room / 2) & !7, room][rng.random_range(0..4)];
                let end = Lsn(file.header.start.0 + used);
                checkpoint = checkpoint.min(end);
                (pool, file) = open_at(dir.path(), settings(), checkpoint, end);
            }
            1 => {
                let capacity = PAYLOAD * rng.random_range(2..40);
                pool.suit(capacity);
                pool.keep_for(capacity);
            }
            2..5 => {
                let up_to = file.header.start.0;
                checkpoint = Lsn(rng.random_range(checkpoint.0..=up_to.max(checkpoint.0)) & !7);
                pool.release(checkpoint);
            }
            5 => pool.prepare().unwrap(),
            _ if file.header.end() < pool.room() => file = pool.next().unwrap(),
            _ => {}
        }
        pool.release(checkpoint);
        // What is there is never more than the capacity (LOG-1).
        let age = file.header.end().0 - checkpoint.0;
        pool.keep_for(pool.sizing().capacity_bytes.max(age));
        fit(&mut pool);
        let capacity = pool.sizing().capacity_bytes;
        assert!(pool.room().0 >= checkpoint.0 + capacity, "LF-4");
        assert!(!pool.needs_space(), "LF-4");
        let most = pool.wanted(0) + payload(pool.sizing().file_bytes);
        let longest = pool
            .in_use
            .iter()
            .map(|f| f.header.file_bytes)
            .max()
            .unwrap();
        assert!(
            pool.total() <= most.max(capacity + 3 * longest),
            "{} files",
            files(dir.path()).len()
        );
        assert_eq!(
            files(dir.path()).iter().map(|f| f.1).sum::<u64>(),
            pool.bytes()
        );
    }
}

/// LF-1.
#[test]
fn reopening_cuts_the_log_at_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let (mut pool, _) = create(dir.path());
    let second = pool.next().unwrap();
    pool.prepare().unwrap();
    let end = Lsn(second.header.start.0 + 800);
    for generation in 2..6 {
        let (_, file) = open_at(dir.path(), settings(), Lsn(8), end);
        assert_eq!(
            (file.header.generation, file.header.start),
            (generation, end)
        );
        let redo = dir.path().join(REDO_DIR);
        let chain =
            Chain::open(&RealDisk, &redo, &[5; 16], Lsn(8), 1, &Default::default()).unwrap();
        assert_eq!(
            chain.files[1].end, end,
            "the older file ends where the new one begins"
        );
        assert_eq!(
            chain.files.len(),
            3,
            "files beyond the end are spares again"
        );
    }
}

/// LF-1: a file with a zero header is none of the log, one with a damaged header is damage.
#[test]
fn damage_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (mut pool, _) = create(dir.path());
    let second = pool.next().unwrap();
    let third = pool.next().unwrap();
    let redo = dir.path().join(REDO_DIR);
    let open = |from: u64| {
        Chain::open(
            &RealDisk,
            &redo,
            &[5; 16],
            Lsn(from),
            1,
            &Default::default(),
        )
        .map(|c| c.files.len())
    };
    assert_eq!(open(8).unwrap(), 3);
    assert!(open(0).is_err(), "an LSN before the first file");
    assert!(
        open(third.header.end().0 + 8).is_err(),
        "an LSN after the last file"
    );
    let other = Chain::open(&RealDisk, &redo, &[6; 16], Lsn(8), 1, &Default::default())
        .err()
        .unwrap();
    assert!(other.to_string().contains("database"), "{other}");
    let broken = RealDisk
        .open(second.file.path(), OpenMode::Existing)
        .unwrap();
    broken.write_at(&[0; 512], 0).unwrap();
    assert!(open(8).is_err(), "a gap in the numbers");
    assert_eq!(open(third.header.start.0).unwrap(), 1, "the gap is below");
    broken.write_at(&[1], 100).unwrap();
    assert!(open(8).is_err(), "a damaged header");
}
