//! The log as a whole: what was synced comes back, what was torn does not, a failure stops everything.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::files::FILE_HEADER;
use super::*;
use crate::base::Lsn;
use crate::io::{DirEntry, DirLock, Disk, DiskFile, OpenMode, RealDisk};

pub(super) const START: Lsn = Lsn(8192);
const UUID: [u8; 16] = [5; 16];

pub(super) fn settings() -> LogSettings {
    LogSettings {
        capacity_bytes: 2 << 20,
        buffer_bytes: 2 << 20,
        file_bytes: 65_536,
        page_size: 16_384,
        uuid: UUID,
        buffered: false,
        sabotage: None,
    }
}

pub(super) fn create(dir: &Path) -> RedoLog {
    RedoLog::create(Arc::new(RealDisk), dir, settings(), START).unwrap()
}

fn reopen(dir: &Path, checkpoint: Lsn) -> RedoLog {
    let end = read(dir, checkpoint).unwrap().1;
    RedoLog::open_at(Arc::new(RealDisk), dir, settings(), checkpoint, end).unwrap()
}

pub(super) fn put(log: &RedoLog, body: &[u8]) -> Lsn {
    let reservation = log.reserve(body.len() as u32).unwrap();
    let cut = body.len() / 3;
    let ticket = log.append(&reservation, &[&body[..cut], &body[cut..]]);
    let end = ticket.end;
    log.complete(ticket);
    end
}

pub(super) type Bodies = Vec<(Lsn, Vec<u8>)>;

pub(super) fn read(dir: &Path, from: Lsn) -> Result<(Bodies, Lsn)> {
    let mut reader = RedoReader::open(&RealDisk, dir, &UUID, from)?;
    let mut bodies = Vec::new();
    while let Some(frame) = reader.next()? {
        bodies.push((frame.end, frame.body.to_vec()));
    }
    let all = (bodies, reader.position());
    for wanted in [1, 5000, 1 << 20] {
        let in_pieces = read_pieces(dir, from, wanted).expect("read frame by frame");
        assert_eq!(in_pieces, all, "in pieces of {wanted} bytes");
    }
    Ok(all)
}

/// The same by pieces, as recovery reads it.
fn read_pieces(dir: &Path, from: Lsn, wanted: usize) -> Result<(Bodies, Lsn)> {
    let mut reader = RedoReader::open(&RealDisk, dir, &UUID, from)?;
    let (mut bodies, mut end) = (Vec::new(), from);
    while let Some(piece) = reader.next_piece(wanted)? {
        let mut frames = piece.frames();
        bodies.extend(
            frames
                .by_ref()
                .map(|frame| (frame.end, frame.body.to_vec())),
        );
        end = frames.end();
        if piece.is_last || !frames.is_whole() {
            reader.check_end(piece.generation, end)?;
            break;
        }
    }
    Ok((bodies, end))
}

/// Moves the checkpoint as a page cleaner would.
pub(super) fn checkpoint(log: &RedoLog, lsn: Lsn) {
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

/// Many laps through the ring and the files, with several threads, a moving checkpoint and the background writer.
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

/// The log files' contents, so that one tail can be damaged in many ways.
struct Image {
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Image {
    fn of(dir: &Path) -> Image {
        let redo = dir.join(REDO_DIR);
        let names = RealDisk.list(&redo).unwrap();
        let paths = names.iter().map(|e| redo.join(&e.name));
        Image {
            files: paths
                .map(|p| (p.clone(), std::fs::read(&p).unwrap()))
                .collect(),
        }
    }

    /// Where the stream's byte at `lsn` lies; the caller keeps to the first generation, whose files are contiguous.
    fn place(&self, lsn: u64) -> (usize, usize) {
        let payload = settings().file_bytes - FILE_HEADER;
        let at = lsn - START.0;
        (
            (at / payload) as usize,
            (FILE_HEADER + at % payload) as usize,
        )
    }

    fn restore(&self) {
        for (path, bytes) in &self.files {
            std::fs::write(path, bytes).unwrap();
        }
    }

    fn write(&self, file: usize, bytes: &[u8]) {
        std::fs::write(&self.files[file].0, bytes).unwrap();
    }
}

/// WAL-3: whatever byte the tail is cut at, exactly the whole frames before it are read.
#[test]
fn a_tail_cut_at_any_byte_keeps_whole_frames() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    let mut expected = Bodies::new();
    // The tail crosses into the second file.
    put(&log, &vec![1u8; 61_200]);
    for i in 0..6u8 {
        let body = vec![i + 1; 37 + 11 * i as usize];
        expected.push((put(&log, &body), body));
    }
    log.sync_to(log.next_lsn()).unwrap();
    drop(log);
    let image = Image::of(dir.path());
    let (first, last) = (expected[0].0.0, expected.last().unwrap().0.0);
    let mut rng = SmallRng::seed_from_u64(2);
    for cut in first..=last {
        let (file, at) = image.place(cut);
        for before in 0..file {
            image.write(before, &image.files[before].1);
        }
        for garbage in [false, true] {
            for (f, (_, bytes)) in image.files.iter().enumerate().skip(file) {
                let from = if f == file { at } else { FILE_HEADER as usize };
                let mut torn = bytes.clone();
                torn[from..].fill(0);
                if garbage {
                    rng.fill(&mut torn[from..from + 600.min(bytes.len() - from)]);
                    // The byte at the cut must differ, or the frame is not torn there.
                    torn[from] = !bytes[from];
                }
                image.write(f, &torn);
                if f > file {
                    break;
                }
            }
            let (found, _) = read(dir.path(), START).unwrap();
            let whole = expected.iter().filter(|e| e.0.0 <= cut).count();
            let found = &found[1..];
            // A frame that lacks only padding is whole.
            let padding = expected.get(whole).is_some_and(|e| cut + 8 > e.0.0);
            assert!(
                found.len() == whole || padding && found.len() == whole + 1,
                "cut at {cut}: {} frames, {whole} whole",
                found.len()
            );
            assert!(found == &expected[..found.len()]);
        }
    }
    image.restore();
    assert_eq!(read(dir.path(), START).unwrap().0.len(), expected.len() + 1);
}

/// RF-1: a frame from beyond the torn tail must not come back when new frames happen to end where it begins.
#[test]
fn frames_beyond_a_torn_tail_never_replay() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    let a = put(&log, b"first, whole");
    let b = put(&log, b"second, lost");
    put(&log, b"third, survived on disk");
    log.sync_to(log.next_lsn()).unwrap();
    drop(log);
    let image = Image::of(dir.path());
    let (file, at) = image.place(a.0);
    let mut torn = image.files[file].1.clone();
    torn[at] ^= 0x40;
    image.write(file, &torn);
    assert_eq!(read(dir.path(), START).unwrap().1, a);

    let log = reopen(dir.path(), START);
    assert_eq!(
        put(&log, b"second again"),
        b,
        "the same length, so the same end"
    );
    log.sync_to(b).unwrap();
    drop(log);
    let (found, end) = read(dir.path(), START).unwrap();
    assert_eq!(end, b);
    assert_eq!(found[1].1, b"second again");
    assert_eq!(found.len(), 2);
    // And the old file's lost frame itself, had it been restored, lies beyond its file's part.
    image.write(file, &image.files[file].1);
    assert_eq!(read(dir.path(), START).unwrap().0, found);
}

/// RF-1: recycled files are full of old frames; only new ones are read, wherever the log stops.
#[test]
fn leftovers_of_recycled_files_never_replay() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    let mut recent: VecDeque<(Lsn, Vec<u8>)> = VecDeque::new();
    // One length for all frames: old ones lie exactly where new ones will begin.
    for i in 0..60_000u64 {
        let body = i.to_le_bytes().repeat(30);
        let end = put(&log, &body);
        recent.push_back((end, body));
        if recent.len() > 100 {
            recent.pop_front();
        }
        if i % 100 == 0 {
            checkpoint(&log, end);
        }
        if i % 997 == 0 {
            log.sync_to(end).unwrap();
            let (found, found_end) = read(dir.path(), log.checkpoint_lsn()).unwrap();
            assert_eq!(found_end, end);
            let expected = recent.iter().filter(|e| e.0 > log.checkpoint_lsn());
            assert!(found.iter().eq(expected), "after frame {i}");
        }
    }
}

/// A log that was continued can't have a bad frame before that place: it is damage, not the end.
#[test]
fn damage_before_a_later_opening_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    let a = put(&log, b"first");
    log.sync_to(put(&log, b"second")).unwrap();
    drop(log);
    let log = reopen(dir.path(), START);
    log.sync_to(put(&log, b"third")).unwrap();
    drop(log);
    let image = Image::of(dir.path());
    let (file, at) = image.place(a.0);
    let mut bad = image.files[file].1.clone();
    bad[at + 9] ^= 1;
    image.write(file, &bad);
    let error = read(dir.path(), START).unwrap_err();
    assert!(matches!(error, Error::CorruptFile { .. }), "{error}");
}

/// A disk whose writes and syncs can be made to fail, and that counts syncs and remembers writes.
#[derive(Default)]
pub(super) struct Faulty {
    fail_sync: AtomicBool,
    fail_write: AtomicBool,
    /// How many more files can be made; `None`: as many as one likes.
    space: Mutex<Option<u64>>,
    syncs: AtomicU64,
    /// File, offset, length.
    writes: Mutex<Vec<(PathBuf, u64, usize)>>,
}

impl Faulty {
    pub(super) fn space_for(&self, files: u64) {
        *self.space.lock().unwrap() = Some(files);
    }

    /// Opens a log again on this disk.
    pub(super) fn reopen(self: &Arc<Self>, dir: &Path, checkpoint: Lsn) -> RedoLog {
        let disk = Arc::new(FaultyDisk(self.clone()));
        let end = read(dir, checkpoint).unwrap().1;
        RedoLog::open_at(disk, dir, settings(), checkpoint, end).unwrap()
    }
}

struct FaultyDisk(Arc<Faulty>);

struct FaultyFile(Arc<Faulty>, Arc<dyn DiskFile>);

fn broken(flag: &AtomicBool, op: &'static str, path: &Path) -> Result<()> {
    if flag.load(Ordering::Relaxed) {
        return Err(Error::io(op, path, std::io::Error::other("broken disk")));
    }
    Ok(())
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(FaultyFile(
            self.0.clone(),
            RealDisk.open(path, mode)?,
        )))
    }
    fn open_direct(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(FaultyFile(
            self.0.clone(),
            RealDisk.open_direct(path)?,
        )))
    }
    fn remove(&self, path: &Path) -> Result<()> {
        RealDisk.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        RealDisk.rename(from, to)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        RealDisk.create_dir_all(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        RealDisk.remove_dir(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        RealDisk.list(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        RealDisk.sync_dir(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        RealDisk.exists(path)
    }
    fn lock_dir(&self, path: &Path) -> Result<DirLock> {
        RealDisk.lock_dir(path)
    }
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.1.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        broken(&self.0.fail_write, "write", self.path())?;
        let written = (self.path().to_path_buf(), offset, buf.len());
        self.0.writes.lock().unwrap().push(written);
        self.1.write_at(buf, offset)
    }
    fn sync(&self) -> Result<()> {
        broken(&self.0.fail_sync, "sync", self.path())?;
        self.0.syncs.fetch_add(1, Ordering::Relaxed);
        self.1.sync()
    }
    fn len(&self) -> Result<u64> {
        self.1.len()
    }
    fn allocate(&self, new_len: u64) -> Result<()> {
        if let Some(left) = &mut *self.0.space.lock().unwrap() {
            if *left == 0 {
                let full = std::io::ErrorKind::StorageFull;
                return Err(Error::io("extend", self.path(), full.into()));
            }
            *left -= 1;
        }
        self.1.allocate(new_len)
    }
    fn fill(&self, from: u64) -> Result<()> {
        self.1.fill(from)
    }
    fn set_len(&self, new_len: u64) -> Result<()> {
        self.1.set_len(new_len)
    }
    fn path(&self) -> &Path {
        self.1.path()
    }
    fn is_direct(&self) -> bool {
        self.1.is_direct()
    }
}

pub(super) fn create_faulty(dir: &Path) -> (Arc<Faulty>, RedoLog) {
    create_faulty_with(dir, false)
}

fn create_faulty_with(dir: &Path, buffered: bool) -> (Arc<Faulty>, RedoLog) {
    let faults = Arc::new(Faulty::default());
    let disk = Arc::new(FaultyDisk(faults.clone()));
    let settings = LogSettings {
        buffered,
        ..settings()
    };
    let log = RedoLog::create(disk, dir, settings, START).unwrap();
    (faults, log)
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

/// WAL-4: after one failure nothing is acknowledged any more, even if the disk works again; appenders do not hang.
#[test]
fn a_failed_write_or_sync_poisons() {
    for which in ["write", "sync"] {
        let dir = tempfile::tempdir().unwrap();
        let (faults, log) = create_faulty(dir.path());
        let told = Arc::new(Mutex::new(Vec::new()));
        let told_too = told.clone();
        log.set_on_poison(move |why| told_too.lock().unwrap().push(why));
        log.sync_to(put(&log, b"fine")).unwrap();
        let durable = log.durable_lsn();
        let flag = match which {
            "write" => &faults.fail_write,
            _ => &faults.fail_sync,
        };
        flag.store(true, Ordering::Relaxed);
        let lost = put(&log, b"lost");
        let error = log.sync_to(lost).unwrap_err().to_string();
        assert!(error.contains("broken disk"), "{error}");
        flag.store(false, Ordering::Relaxed);
        assert!(matches!(log.sync_to(lost), Err(Error::Poisoned { .. })));
        assert!(matches!(log.sync_to(START), Err(Error::Poisoned { .. })));
        assert!(matches!(log.write_to(lost), Err(Error::Poisoned { .. })));
        assert_eq!(log.durable_lsn(), durable);
        assert!(log.reserve(10).is_err());
        assert_eq!(told.lock().unwrap().len(), 1);
        assert!(told.lock().unwrap()[0].contains("broken disk"));
    }
}

/// WAL-4: an mtr that reserved before the failure can still append, though nothing is written any more.
#[test]
fn appends_do_not_hang_on_a_poisoned_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    let (a, b) = (log.reserve(900_000).unwrap(), log.reserve(900_000).unwrap());
    log.poison("test");
    let body = vec![1u8; 300_000];
    for r in [&a, &b, &a, &b] {
        let ticket = log.append(r, &[&body]);
        log.complete(ticket);
    }
    log.write_out();
    assert_eq!(log.complete_lsn(), log.next_lsn());
    assert_eq!(log.written_lsn(), START);
}

/// WAL-4: whoever waits for room in the log buffer behind a frame that never becomes complete goes on when the log is poisoned, and
/// is told when it asks for durability.
#[test]
fn waiting_for_room_ends_when_the_log_is_poisoned() {
    let dir = tempfile::tempdir().unwrap();
    let settings = LogSettings {
        capacity_bytes: 4 << 20,
        ..settings()
    };
    let log = RedoLog::create(Arc::new(RealDisk), dir.path(), settings, START).unwrap();
    let first = log.reserve(8).unwrap();
    let _abandoned = log.append(&first, &[b"x"]);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            // There is room for four of them.
            let ends = [(); 5].map(|()| put(&log, &vec![7; 500_000]));
            log.sync_to(ends[4])
        });
        while log.counters().buffer_waits.load(Ordering::Relaxed) == 0 {
            assert!(!waiter.is_finished());
            std::thread::yield_now();
        }
        log.poison("test");
        assert!(matches!(
            waiter.join().unwrap(),
            Err(Error::Poisoned { .. })
        ));
    });
}

/// WAL-4: committers that queue behind a leader whose sync fails are all told.
#[test]
fn followers_of_a_failed_leader_fail() {
    let dir = tempfile::tempdir().unwrap();
    let (faults, log) = create_faulty(dir.path());
    faults.fail_sync.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let commits: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| log.sync_to(put_unchecked(&log)).is_err()))
            .collect();
        for commit in commits {
            assert!(commit.join().unwrap());
        }
    });
}

/// Appends if the log still takes it; else any LSN will do.
fn put_unchecked(log: &RedoLog) -> Lsn {
    match log.reserve(8) {
        Ok(reservation) => {
            let ticket = log.append(&reservation, &[b"x"]);
            let end = ticket.end;
            log.complete(ticket);
            end
        }
        Err(_) => START,
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

/// LOG-1: the log never gets further than its capacity from the checkpoint; who waits goes on when it moves.
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
    while log.counters().capacity_waits.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
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
        while log.counters().capacity_waits.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
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
    let last = put(&log, b"last");
    log.poison("test");
    ask(last);
    assert!(log.serve_watchers().is_err());
    assert_eq!(told.load(Ordering::SeqCst), 2);
}

/// Modes 0 and 2: without anybody asking, the log becomes durable within about a second.
#[test]
fn the_background_writer_syncs_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(create(dir.path()));
    let writer = log.spawn_writer().unwrap();
    let end = put(&log, b"nobody waits for this");
    for _ in 0..1000 {
        if log.durable_lsn() >= end {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(writer);
    assert_eq!(read(dir.path(), START).unwrap().1, end);
}

/// Figures for the record, not a check: `cargo test --release -p varve --lib redo -- --ignored --nocapture measure`.
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
