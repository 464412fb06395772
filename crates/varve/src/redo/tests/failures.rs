//! WAL-4: a failure stops everything, and nobody hangs.

use super::*;

/// WAL-4: after one failure nothing is acknowledged any more, even if the disk works again; appenders do not
/// hang.
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

/// A log file that can't be opened because too many others are is no failure: it is prepared later.
#[test]
fn too_many_open_files_are_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let (faults, log) = create_faulty(dir.path());
    let bytes = log.file_bytes();
    faults.too_many_open.store(true, Ordering::Relaxed);
    (0..3).for_each(|_| log.prepare_file());
    log.check().unwrap();
    assert_eq!(log.file_bytes(), bytes, "no file is lost");
    faults.too_many_open.store(false, Ordering::Relaxed);
    for n in 0..40 {
        log.prepare_file();
        log.sync_to(put(&log, &[n; 5000])).unwrap();
    }
    assert!(log.counters().file_switches.load(Ordering::Relaxed) > 2);
    let (found, end) = read(dir.path(), START).unwrap();
    assert_eq!((found.len(), end), (40, log.next_lsn()));
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

/// WAL-4: whoever waits for room in the log buffer behind a frame that never becomes complete goes on when
/// the log is poisoned, and is told when it asks for durability.
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
