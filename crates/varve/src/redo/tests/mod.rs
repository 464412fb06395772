//! The log as a whole: what was synced comes back, however many threads write it, and files are used again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::files::FILE_HEADER;
use super::*;
use crate::base::Lsn;
use crate::encryption::{EncryptionKeys, Keyring};
use crate::io::{Disk, IoQueue, OpenMode, RealDisk};
use faulty::{create_faulty, create_faulty_with};

mod capacity;
mod damage;
mod encrypted;
mod failures;
mod faulty;
mod full;
mod marks;

const START: Lsn = Lsn(8192);
const UUID: [u8; 16] = [5; 16];

fn settings() -> LogSettings {
    LogSettings {
        capacity_bytes: 2 << 20,
        buffer_bytes: 2 << 20,
        file_bytes: 65_536,
        page_size: 16_384,
        uuid: UUID,
        buffered: false,
        encrypted: false,
        keyring: Default::default(),
        sabotage: None,
    }
}

/// Key 1, in one version.
struct OneKey(u8);

impl EncryptionKeys for OneKey {
    fn newest_version(&self, key: u32) -> Option<u32> {
        (key == 1).then_some(1)
    }

    fn key(&self, key: u32, version: u32) -> Option<Vec<u8>> {
        ((key, version) == (1, 1)).then(|| vec![self.0; 32])
    }
}

fn keyring() -> Keyring {
    Keyring::new(Some(Arc::new(OneKey(7))))
}

fn create(dir: &Path) -> RedoLog {
    RedoLog::create(Arc::new(RealDisk), dir, settings(), START).unwrap()
}

fn reopen(dir: &Path, checkpoint: Lsn) -> RedoLog {
    let end = read(dir, checkpoint).unwrap().1;
    let queue = Arc::new(IoQueue::start(false).unwrap());
    RedoLog::open_at(Arc::new(RealDisk), queue, dir, settings(), checkpoint, end).unwrap()
}

fn put(log: &RedoLog, body: &[u8]) -> Lsn {
    let reservation = log.reserve(body.len() as u32).unwrap();
    let cut = body.len() / 3;
    let ticket = log.append(&reservation, &[&body[..cut], &body[cut..]]);
    let end = ticket.end;
    log.complete(ticket);
    end
}

type Bodies = Vec<(Lsn, Vec<u8>)>;

fn is_mark(body: &[u8]) -> bool {
    body.len() == 9 && body[0] == MARK_RECORD
}

/// Without the durable marks, which nobody here has put there.
fn read(dir: &Path, from: Lsn) -> Result<(Bodies, Lsn)> {
    let mut reader = RedoReader::open(&RealDisk, dir, &UUID, from, &keyring())?;
    let mut bodies = Vec::new();
    while let Some(frame) = reader.next()? {
        bodies.push((frame.end, frame.body.to_vec()));
    }
    bodies.retain(|(_, body)| !is_mark(body));
    let all = (bodies, reader.position());
    for wanted in [1, 5000, 1 << 20] {
        for through in [Through::Cache, Through::Direct] {
            let in_pieces = read_pieces(dir, from, wanted, through).expect("read frame by frame");
            assert_eq!(in_pieces, all, "in pieces of {wanted} bytes, {through:?}");
        }
    }
    Ok(all)
}

/// The same by pieces, as recovery reads it.
fn read_pieces(dir: &Path, from: Lsn, wanted: usize, through: Through) -> Result<(Bodies, Lsn)> {
    let queue = Arc::new(IoQueue::one_by_one());
    let stream = Stream::open(&RealDisk, dir, &UUID, from, &queue, through, &keyring())?;
    let mut reader = stream.pieces(from, wanted);
    let (mut bodies, mut end) = (Vec::new(), from);
    while let Some(piece) = reader.next_piece()? {
        let mut frames = piece.frames();
        bodies.extend(
            frames
                .by_ref()
                .map(|frame| (frame.end, frame.body.to_vec())),
        );
        end = frames.end();
        if piece.is_last || !frames.is_whole() {
            reader.check_end(piece.generation, end)?;
            reader.check_durable(piece.generation, end)?;
            break;
        }
    }
    bodies.retain(|(_, body)| !is_mark(body));
    Ok((bodies, end))
}

/// Moves the checkpoint as a page cleaner would.
fn checkpoint(log: &RedoLog, lsn: Lsn) {
    log.sync_to(lsn).unwrap();
    log.set_checkpoint(lsn);
}

#[test]
fn synced_frames_come_back_across_files_and_openings() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    let mut expected = Bodies::new();
    let mut log = create(dir.path());
    for _ in 0..5 {
        for _ in 0..100 {
            let mut body = vec![0u8; rng.random_range(1..3000)];
            rng.fill(&mut body[..]);
            expected.push((put(&log, &body), body));
        }
        log.sync_to(log.next_lsn()).unwrap();
        assert_eq!(log.durable_lsn(), log.next_lsn());
        let (found, end) = read(dir.path(), START).unwrap();
        assert_eq!(end, log.next_lsn());
        assert!(found == expected);
        log = reopen(dir.path(), START);
    }
    let (middle, _) = expected[250];
    assert!(read(dir.path(), middle).unwrap().0 == expected[251..]);
}

#[test]
fn the_longest_frame_fits_and_a_longer_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    let body = vec![7u8; MAX_FRAME_BYTES as usize - 8];
    let end = put(&log, &body);
    log.sync_to(end).unwrap();
    assert!(read(dir.path(), START).unwrap().0 == [(end, body)]);
    assert!(matches!(
        log.reserve(MAX_FRAME_BYTES).err(),
        Some(Error::TooLarge { .. })
    ));
}

/// Many laps through the ring and the files, with several threads, a moving checkpoint and the background
/// writer.
#[test]
fn threads_append_while_files_are_recycled() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(create(dir.path()));
    let writer = log.spawn_writer().unwrap();
    let appended = Mutex::new(Bodies::new());
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (log, appended) = (&log, &appended);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(thread);
                for i in 0..2000u64 {
                    let mut body = vec![thread as u8; rng.random_range(8..2000)];
                    body[..8].copy_from_slice(&i.to_le_bytes());
                    let end = put(log, &body);
                    appended.lock().unwrap().push((end, body));
                    match i % 64 {
                        0 => log.sync_to(end).unwrap(),
                        32 => log.write_to(end).unwrap(),
                        _ => {}
                    }
                    if thread == 0 && i % 16 == 0 {
                        let durable = log.durable_lsn();
                        checkpoint(log, durable.max(log.checkpoint_lsn()));
                    }
                }
                // The others go on needing room.
                while thread == 0 && appended.lock().unwrap().len() < 8000 {
                    checkpoint(log, log.complete_lsn());
                    std::thread::yield_now();
                }
            });
        }
    });
    log.sync_to(log.next_lsn()).unwrap();
    drop(writer);
    let mut expected = appended.into_inner().unwrap();
    expected.sort_by_key(|e| e.0);
    expected.retain(|e| e.0 > log.checkpoint_lsn());
    let (found, end) = read(dir.path(), log.checkpoint_lsn()).unwrap();
    assert_eq!(end, log.next_lsn());
    assert!(found == expected);
    let files = RealDisk.list(&dir.path().join(REDO_DIR)).unwrap().len();
    let payload = settings().file_bytes - FILE_HEADER;
    let most = settings().capacity_bytes.div_ceil(payload) as usize + 3;
    assert!(files <= most, "{files} files");
}

/// LW-1, IO-6: whole blocks, no hole, also in recycled files and whatever the lengths.
#[test]
fn files_are_written_in_whole_blocks() {
    for buffered in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (disk, log) = create_faulty_with(dir.path(), buffered);
        let mut rng = SmallRng::seed_from_u64(5);
        for round in 0..430 {
            for _ in 0..rng.random_range(1..6) {
                put(&log, &vec![round as u8; rng.random_range(1..6000)]);
            }
            let end = log.next_lsn();
            log.sync_to(end).unwrap();
            if round % 50 == 49 {
                checkpoint(&log, end);
            }
        }
        let mut writes = disk.writes.lock().unwrap().clone();
        writes.retain(|w| w.1 >= FILE_HEADER && w.0.starts_with(dir.path().join(REDO_DIR)));
        let mut filled = (PathBuf::new(), 0);
        for (path, offset, len) in writes {
            if path != filled.0 {
                assert_eq!(offset, FILE_HEADER, "a file is written from its start");
                filled = (path, FILE_HEADER);
            }
            let end = offset + len as u64;
            assert!(offset <= filled.1, "nothing is left out");
            for at in [offset, end] {
                assert!(at.is_multiple_of(4096), "{offset} + {len}");
            }
            assert!(end <= settings().file_bytes, "{offset} + {len}");
            filled.1 = filled.1.max(end);
        }
        let (found, end) = read(dir.path(), log.checkpoint_lsn()).unwrap();
        assert!(end == log.next_lsn() && !found.is_empty());
    }
}

#[test]
fn group_commit_makes_every_acknowledged_frame_durable() {
    let dir = tempfile::tempdir().unwrap();
    let (faults, log) = create_faulty(dir.path());
    let before = faults.syncs.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for thread in 0..16u8 {
            let log = &log;
            scope.spawn(move || {
                for _ in 0..50 {
                    let end = put(log, &[thread; 100]);
                    log.sync_to(end).unwrap();
                    assert!(log.durable_lsn() >= end);
                }
            });
        }
    });
    let syncs = faults.syncs.load(Ordering::Relaxed) - before;
    assert!(syncs < 800, "{syncs} syncs for 800 commits of 16 threads");
    assert_eq!(read(dir.path(), START).unwrap().0.len(), 800);
}

/// Whoever asked is told once the log is durable far enough, by the writer, and never if that will not come.
#[test]
fn watchers_are_told_when_the_log_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(create(dir.path()));
    let told = Arc::new(AtomicU64::new(0));
    let ask = |lsn| {
        let (watched, told) = (log.clone(), told.clone());
        log.when_durable(lsn, move || {
            assert!(watched.durable_lsn() >= lsn);
            told.fetch_add(1, Ordering::SeqCst);
        });
    };
    let first = put(&log, b"first");
    ask(first);
    assert_eq!(told.load(Ordering::SeqCst), 0);
    let writer = log.spawn_writer().unwrap();
    while told.load(Ordering::SeqCst) < 1 {
        std::thread::yield_now();
    }
    ask(first);
    assert_eq!(told.load(Ordering::SeqCst), 2, "durable already");
    drop(writer);
    // Those who wait when the log is poisoned, and who come afterwards, are let go.
    let last = put(&log, b"last");
    let waiting = Arc::strong_count(&told);
    ask(last);
    assert_eq!(Arc::strong_count(&told), waiting + 1);
    log.poison("test");
    assert_eq!(Arc::strong_count(&told), waiting);
    ask(last);
    assert_eq!(Arc::strong_count(&told), waiting);
    assert_eq!(told.load(Ordering::SeqCst), 2);
}

/// Modes 0 and 2: without anybody asking, the log becomes durable within about a second.
#[test]
fn the_background_writer_syncs_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(create(dir.path()));
    let writer = log.spawn_writer().unwrap();
    let end = put(&log, b"nobody waits for this");
    while log.durable_lsn() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(writer);
    assert_eq!(read(dir.path(), START).unwrap().1, end);
}

/// Figures for the record, not a check: `cargo test --release -p varve --lib redo -- --ignored --nocapture
/// measure`.
#[test]
#[ignore = "a measurement"]
fn measure() {
    let dir = tempfile::tempdir().unwrap();
    let large = LogSettings::new(1 << 30, 16_384, UUID);
    let log = Arc::new(RedoLog::create(Arc::new(RealDisk), dir.path(), large, START).unwrap());
    let _writer = log.spawn_writer().unwrap();
    let body = [7u8; 200];
    let rate = |threads: u64, each: u64, f: &(dyn Fn() + Sync)| {
        let began = std::time::Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..each).for_each(|_| f()));
            }
        });
        (threads * each) as f64 / began.elapsed().as_secs_f64()
    };
    // 35,000 fit in half the log buffer; a million go through the files.
    for (appends, threads) in [(35_000, 1), (35_000, 2), (1_000_000, 1), (1_000_000, 2)] {
        let r = rate(threads, appends / threads, &|| {
            put(&log, &body);
        });
        println!("{appends} appends, {threads} threads: {r:.0}/s");
        checkpoint(&log, log.complete_lsn());
    }
    for threads in [1, 8, 32] {
        let syncs = log.counters().syncs.load(Ordering::Relaxed);
        let r = rate(threads, 8000 / threads, &|| {
            log.sync_to(put(&log, &body)).unwrap();
        });
        let syncs = log.counters().syncs.load(Ordering::Relaxed) - syncs;
        println!("commits, {threads} threads: {r:.0}/s, {syncs} syncs for 8000");
    }
    let end = log.durable_lsn();
    let mut reader =
        RedoReader::open(&RealDisk, dir.path(), &UUID, end, &Default::default()).unwrap();
    let begun = std::time::Instant::now();
    assert!(reader.next().unwrap().is_none());
    let took = begun.elapsed();
    println!("up to two files searched for marks in {took:.1?}");
    let plain = RealDisk
        .open(&dir.path().join("plain"), OpenMode::CreateNew)
        .unwrap();
    plain.allocate(16 << 20).unwrap();
    plain.sync().unwrap();
    let at = AtomicU64::new(0);
    for threads in [1, 8, 32] {
        let r = rate(threads, 4000 / threads, &|| {
            plain
                .write_at(&body, at.fetch_add(208, Ordering::Relaxed))
                .unwrap();
            plain.sync().unwrap();
        });
        println!("plain write + fdatasync, {threads} threads: {r:.0}/s");
    }
}
