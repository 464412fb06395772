//! WAL-9: full files are read as they are while the log goes on.

use std::ops::Range;

use super::*;

/// Bytes of the stream in a file.
const PAYLOAD: u64 = 65_536 - FILE_HEADER;

/// The frames of a part of the stream that are whole.
fn frames(log: &RedoLog, part: Range<Lsn>) -> Result<Bodies> {
    let mut reader = log.stream(part.clone())?.pieces(part.start, 10_000);
    let mut bodies = Bodies::new();
    while let Some(piece) = reader.next_piece()? {
        let frames = piece.frames();
        bodies.extend(frames.map(|frame| (frame.end, frame.body.to_vec())));
    }
    Ok(bodies)
}

/// One of them is longer than two files. The log has room for four times as much.
fn put_some(log: &RedoLog, rng: &mut SmallRng, bodies: &mut Bodies) {
    for n in 0..150 {
        let longest = [200, 3000, 20_000][rng.random_range(0..3) * rng.random_range(0..2)];
        let len = if n == 70 {
            150_000
        } else {
            rng.random_range(1..longest)
        };
        let mut body = vec![0u8; len];
        rng.fill(&mut body[..]);
        bodies.push((put(log, &body), body));
    }
}

/// WAL-9. WAL-8: a stream is read up to an end within what is durable, whatever follows it.
#[test]
fn full_files_are_those_that_are_durable_to_their_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = SmallRng::seed_from_u64(11);
    let log = create(dir.path());
    let ends = |log: &RedoLog| -> Vec<(u64, u64, bool)> {
        let full = log.full_files().into_iter();
        full.map(|f| (f.number, f.end.0, f.is_first)).collect()
    };
    let mut bodies = Bodies::new();
    put_some(&log, &mut rng, &mut bodies);
    let end = log.next_lsn();
    log.write_to(end).unwrap();
    assert_eq!(ends(&log), [], "nothing is durable");
    log.sync_to(end).unwrap();
    let full = (end.0 - START.0) / PAYLOAD;
    let expected = |n: u64| (n + 1, START.0 + (n + 1) * PAYLOAD, false);
    assert_eq!(ends(&log), Vec::from_iter((0..full).map(expected)));
    // What the log holds beyond `end` is of no matter.
    put_some(&log, &mut rng, &mut Bodies::new());
    log.sync_to(log.next_lsn()).unwrap();
    assert!(frames(&log, START..end).unwrap() == bodies);
    for _ in 0..20 {
        let (from, until) = (rng.random_range(0..149), rng.random_range(1..150));
        let (from, until) = (from.min(until - 1), until.max(from + 1));
        let part = bodies[from].0..bodies[until].0;
        assert!(frames(&log, part).unwrap() == bodies[from + 1..=until]);
    }
    // Cut within a frame: without it.
    let part = bodies[20].0..Lsn(bodies[31].0.0 - 8);
    assert!(frames(&log, part).unwrap() == bodies[21..31]);
}

#[test]
fn another_generation_begins_with_a_frame() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = SmallRng::seed_from_u64(12);
    let (mut log, mut bodies) = (create(dir.path()), Bodies::new());
    put_some(&log, &mut rng, &mut bodies);
    log.sync_to(log.next_lsn()).unwrap();
    let before = log.full_files();
    log = reopen(dir.path(), START);
    assert_eq!(log.full_files(), before, "one is used in part only");
    let begin = log.next_lsn();
    put_some(&log, &mut rng, &mut bodies);
    log.sync_to(log.next_lsn()).unwrap();
    let after = log.full_files();
    let first = &after[before.len()];
    assert!(first.is_first && first.start == begin);
    assert_eq!(first.generation, before[0].generation + 1);
    assert_eq!(first.number, before.last().unwrap().number + 2);
    assert_eq!(after.iter().filter(|f| f.is_first).count(), 1);
    assert!(frames(&log, START..log.durable_lsn()).unwrap() == bodies);
}

/// A file that is taken into use again is not full any more; its reader notices.
#[test]
fn files_below_the_checkpoint_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = SmallRng::seed_from_u64(13);
    let (log, mut bodies) = (create(dir.path()), Bodies::new());
    put_some(&log, &mut rng, &mut bodies);
    log.sync_to(log.next_lsn()).unwrap();
    let (oldest, part) = (log.full_files()[0], START..log.durable_lsn());
    let stream = log.stream(part.clone()).unwrap();
    let is_whole = || {
        let piece = stream.pieces(START, 1000).next_piece().unwrap().unwrap();
        let mut frames = piece.frames();
        frames.next().is_some() && frames.is_whole()
    };
    for _ in 0..50 {
        assert!(is_whole() || log.full_files()[0] != oldest);
        checkpoint(&log, log.next_lsn());
        put_some(&log, &mut rng, &mut bodies);
        log.sync_to(log.next_lsn()).unwrap();
    }
    assert!(!is_whole(), "RF-1");
    assert!(matches!(log.stream(part), Err(Error::CorruptFile { .. })));
}
