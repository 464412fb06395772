//! What a crash or a damaged disk makes of the log's end: what was torn does not come back, and damage is
//! told from an end.

use super::*;
use std::collections::VecDeque;

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

    /// Where the stream's byte at `lsn` lies; the caller keeps to the first generation, whose files are
    /// contiguous.
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
            assert_eq!(found_end, log.durable_lsn());
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
