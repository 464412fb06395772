//! WAL-10: the log says of itself how far it was durable.

use super::*;

/// What the marks name, in the order of the log.
fn marks(dir: &Path) -> Vec<Lsn> {
    let mut reader = RedoReader::open(&RealDisk, dir, &UUID, START, &Default::default()).unwrap();
    let mut named = Vec::new();
    while let Some(frame) = reader.next().unwrap() {
        if is_mark(frame.body) {
            let lsn = u64::from_le_bytes(frame.body[1..].try_into().unwrap());
            assert!(Lsn(lsn) <= frame.start);
            named.push(Lsn(lsn));
        }
    }
    named
}

#[test]
fn each_group_names_the_end_of_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = create(dir.path());
    let mut ends = Vec::new();
    for _ in 0..2 {
        for n in 0..3 {
            log.sync_to(put(&log, &[n; 3000])).unwrap();
            ends.push(log.durable_lsn());
            let end = log.next_lsn();
            // Nothing is to be synced, so there is no group.
            log.sync_to(end).unwrap();
            assert_eq!(log.next_lsn(), end);
        }
        assert_eq!(marks(dir.path()), ends[..ends.len() - 1]);
        log = reopen(dir.path(), START);
        // The generation says it.
        ends.pop();
    }
}

/// A leader never waits for capacity.
#[test]
fn without_capacity_a_group_has_no_mark() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    let first = put(&log, b"first");
    log.sync_to(first).unwrap();
    let own = log.reserve(100).unwrap();
    let all = std::iter::from_fn(|| log.try_reserve(1));
    let all: Vec<_> = all.collect();
    let ticket = log.append(&own, &[&[1; 100]]);
    let second = ticket.end;
    log.complete(ticket);
    log.sync_to(second).unwrap();
    assert_eq!(marks(dir.path()), []);
    drop((own, all));
    log.sync_to(put(&log, b"third")).unwrap();
    assert_eq!(marks(dir.path()), [second], "of both");
}

/// WAL-10: a bit that flips below what a mark names is damage; in the last group, whatever it hits, it is
/// like a torn write.
#[test]
fn the_log_does_not_end_below_a_mark() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    let mut starts = Vec::new();
    // Over the end of the first file.
    for n in 0..5 {
        starts.push(log.next_lsn());
        log.sync_to(put(&log, &[n; 14_000])).unwrap();
    }
    let ends: Vec<_> = starts[1..]
        .iter()
        .copied()
        .chain([log.next_lsn()])
        .collect();
    drop(log);
    let redo = dir.path().join(REDO_DIR);
    let payload = settings().file_bytes - FILE_HEADER;
    for (n, (start, end)) in starts.iter().zip(ends).enumerate() {
        for lsn in [start.0, start.0 + 5000, end.0 - 40, end.0 - 9] {
            let number = (lsn - START.0) / payload + 1;
            let path = redo.join(format!("{number:06}.vlog"));
            let file = RealDisk.open(&path, OpenMode::Existing).unwrap();
            let at = FILE_HEADER + (lsn - START.0) % payload;
            let mut byte = [0];
            file.read_at(&mut byte, at).unwrap();
            file.write_at(&[byte[0] ^ 16], at).unwrap();
            match read(dir.path(), START) {
                Ok((found, end)) => assert!(n == 4 && end <= Lsn(lsn) && found.len() >= 4),
                Err(Error::CorruptFile {
                    path: told, found, ..
                }) => {
                    assert!(n < 4, "the last group: {found}");
                    assert_eq!(told, path);
                    assert!(found.contains("at least"), "{found}");
                }
                Err(e) => panic!("{e}"),
            }
            file.write_at(&byte, at).unwrap();
        }
    }
    assert_eq!(read(dir.path(), START).unwrap().0.len(), 5);
}
