//! Frames that are encrypted, in files beside others.

use super::*;

fn encrypted() -> LogSettings {
    LogSettings {
        encrypted: true,
        keyring: keyring(),
        ..settings()
    }
}

fn clear() -> LogSettings {
    LogSettings {
        keyring: keyring(),
        ..settings()
    }
}

fn reopen_as(dir: &Path, settings: LogSettings) -> RedoLog {
    let end = read(dir, START).unwrap().1;
    let queue = Arc::new(IoQueue::start(false).unwrap());
    RedoLog::open_at(Arc::new(RealDisk), queue, dir, settings, START, end).unwrap()
}

fn files_say(dir: &Path, words: &[u8]) -> bool {
    let files = std::fs::read_dir(dir.join(REDO_DIR)).unwrap();
    let mut files = files.map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    files.any(|bytes| bytes.windows(words.len()).any(|w| w == words))
}

/// ENC-2: across files, openings, and whether each of these encrypts; also by places, as recovery reads it.
#[test]
fn frames_come_back_and_are_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    let mut expected = Bodies::new();
    let mut places = Vec::new();
    let mut log = RedoLog::create(Arc::new(RealDisk), dir.path(), encrypted(), START).unwrap();
    for round in 0..4 {
        let is_encrypted = round % 2 == 0;
        for n in 0..150 {
            let words = format!(
                "{} {round} {n} ",
                if is_encrypted { "secret" } else { "open" }
            );
            let body = words.repeat(rng.random_range(1..150)).into_bytes();
            let start = log.next_lsn();
            let end = put(&log, &body);
            places.push((start, end));
            expected.push((end, body));
        }
        log.sync_to(log.next_lsn()).unwrap();
        let (found, end) = read(dir.path(), START).unwrap();
        assert_eq!(end, log.next_lsn());
        assert!(found == expected);
        let settings = if is_encrypted { clear() } else { encrypted() };
        log = reopen_as(dir.path(), settings);
    }
    assert!(files_say(dir.path(), b"open 3") && !files_say(dir.path(), b"secret"));
    let queue = Arc::new(IoQueue::one_by_one());
    let through = Through::Cache;
    let stream = Stream::open(
        &RealDisk,
        dir.path(),
        &UUID,
        START,
        &queue,
        through,
        &keyring(),
    )
    .unwrap();
    let some: Vec<_> = (0..places.len()).step_by(7).collect();
    let wanted: Vec<_> = some.iter().map(|n| places[*n]).collect();
    let fetched = stream.frames(&wanted).unwrap();
    for (at, n) in some.into_iter().enumerate() {
        assert_eq!(fetched.frame(at).unwrap().body, expected[n].1, "frame {n}");
    }
}

/// A torn frame ends the stream, which takes no key; with another key nothing is read, and it is no end.
#[test]
fn another_key_is_no_end_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = RedoLog::create(Arc::new(RealDisk), dir.path(), encrypted(), START).unwrap();
    let first = put(&log, b"the first one");
    let second = put(&log, b"the second one");
    log.sync_to(second).unwrap();
    for other in [Keyring::default(), Keyring::new(Some(Arc::new(OneKey(8))))] {
        let opened = RedoReader::open(&RealDisk, dir.path(), &UUID, START, &other);
        let refused = opened.and_then(|mut reader| reader.next().map(|frame| frame.is_some()));
        assert!(matches!(refused, Err(Error::NoKey { .. })), "{refused:?}");
    }
    let file = RealDisk
        .open(&dir.path().join("redo/000001.vlog"), OpenMode::Existing)
        .unwrap();
    let at = 4096 + (first.0 - START.0) + 12;
    let mut byte = [0];
    file.read_at(&mut byte, at).unwrap();
    file.write_at(&[byte[0] ^ 1], at).unwrap();
    let (found, end) = read(dir.path(), START).unwrap();
    assert_eq!((found.len(), end), (1, first));
}

/// ENC-1: the log of each opening has a key of its own, so that what is at an LSN looks different each time.
#[test]
fn no_opening_encrypts_as_another() {
    let stored = [(); 2].map(|()| {
        let dir = tempfile::tempdir().unwrap();
        let log = RedoLog::create(Arc::new(RealDisk), dir.path(), encrypted(), START).unwrap();
        let end = put(&log, &[5; 200]);
        log.sync_to(end).unwrap();
        let bytes = std::fs::read(dir.path().join("redo/000001.vlog")).unwrap();
        bytes[4096 + 8..4096 + 208].to_vec()
    });
    let same = stored[0].iter().zip(&stored[1]).filter(|(a, b)| a == b);
    assert!(same.count() < 20);
}
