//! Every way of carrying out requests is held to the same tests: by io_uring, by threads, one after the
//! other, and files of another disk among those of the system.

#![allow(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::meddled::{Meddler, meddled};
use super::*;
use crate::base::Error;

/// A read into memory of its own, which comes back with the answer.
struct Own {
    bytes: AlignedBuf,
    pieces: Vec<Piece>,
    number: usize,
    answer: Sender<(usize, Result<()>, Vec<u8>)>,
}

// SAFETY: the memory is this struct's own, on the heap, and nobody looks at it before `done`.
unsafe impl Transfer for Own {
    fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    fn done(self: Box<Self>, result: Result<()>) {
        let _ = self.answer.send((self.number, result, self.bytes.to_vec()));
    }
}

type Answers = Receiver<(usize, Result<()>, Vec<u8>)>;

/// A read of so many pieces of a block each.
fn read(
    file: &Arc<dyn DiskFile>,
    number: usize,
    blocks: usize,
    block: usize,
    answer: &Sender<(usize, Result<()>, Vec<u8>)>,
) -> Request {
    let mut bytes = AlignedBuf::new(blocks * DIRECT_BLOCK);
    let piece = |part: &mut [u8]| Piece::new(part.as_mut_ptr(), part.len());
    let pieces = bytes.chunks_exact_mut(DIRECT_BLOCK).map(piece).collect();
    let own = Own {
        bytes,
        pieces,
        number,
        answer: answer.clone(),
    };
    Request::read(file.clone(), (block * DIRECT_BLOCK) as u64, Box::new(own))
}

fn answer(answers: &Answers) -> (usize, Result<()>, Vec<u8>) {
    let patience = Duration::from_secs(60);
    answers.recv_timeout(patience).expect("IOQ-2: an answer")
}

/// Each way there is, by what it must say of itself. Where the system refuses io_uring that one is left out,
/// and said so.
fn each_way(mut test: impl FnMut(&IoQueue)) {
    test(&IoQueue::one_by_one());
    let threads = IoQueue::start(false).unwrap();
    assert!(threads.describe().starts_with("8 threads"));
    test(&threads);
    let native = IoQueue::start(true).unwrap();
    match native.describe() {
        "io_uring" => test(&native),
        other => eprintln!("io_uring is not tested: {other}"),
    }
}

/// A file of blocks that say which they are.
fn numbered(disk: &dyn Disk, path: &Path, blocks: usize) -> Arc<dyn DiskFile> {
    let file = disk.open(path, OpenMode::CreateNew).unwrap();
    for n in 0..blocks {
        let block = vec![n as u8; DIRECT_BLOCK];
        file.write_at(&block, (n * DIRECT_BLOCK) as u64).unwrap();
    }
    file.sync().unwrap();
    file
}

/// IOQ-1: each has its own bytes in its own memory.
#[test]
fn many_reads_are_under_way_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let plain = numbered(&RealDisk, &dir.path().join("a"), 256);
    let direct = RealDisk.open_direct(plain.path()).unwrap();
    let overlay = Overlay::new(Arc::new(RealDisk));
    let foreign = overlay.open(plain.path(), OpenMode::ReadOnly).unwrap();
    each_way(|queue| {
        let (sender, answers) = channel();
        // More than io_uring takes at a time, from files of all kinds, of several lengths.
        let files = [&plain, &direct, &foreign];
        let place = |n: usize| (n * 37 % 250, n % 5 + 1);
        let request = |n| {
            let (block, blocks) = place(n);
            read(files[n % 3], n, blocks, block, &sender)
        };
        for batch in (0..900).collect::<Vec<_>>().chunks(400) {
            queue.submit(batch.iter().map(|&n| request(n)).collect());
        }
        let mut seen = vec![false; 900];
        for _ in 0..seen.len() {
            let (n, result, bytes) = answer(&answers);
            result.unwrap();
            assert!(!std::mem::replace(&mut seen[n], true), "told twice");
            let (block, blocks) = place(n);
            assert_eq!(bytes.len(), blocks * DIRECT_BLOCK);
            for (i, part) in bytes.chunks_exact(DIRECT_BLOCK).enumerate() {
                assert!(part.iter().all(|&b| b == (block + i) as u8), "{n} at {i}");
            }
        }
    });
}

/// An error is that of its own operation, names it and its file, and does no harm to others.
#[test]
fn errors_belong_to_their_operation() {
    let dir = tempfile::tempdir().unwrap();
    let file = numbered(&RealDisk, &dir.path().join("a"), 8);
    let read_only = RealDisk.open(file.path(), OpenMode::ReadOnly).unwrap();
    let full = RealDisk
        .open(Path::new("/dev/full"), OpenMode::Existing)
        .unwrap();
    each_way(|queue| {
        let (sender, answers) = channel();
        let places = [(0, 8), (6, 2), (6, 3), (8, 1), (1 << 20, 1), (7, 1)];
        let requests = places.iter().enumerate();
        let requests = requests.map(|(n, &(at, blocks))| read(&file, n, blocks, at, &sender));
        queue.submit(requests.collect());
        for _ in places {
            let (n, result, bytes) = answer(&answers);
            let (at, blocks) = places[n];
            match result {
                Ok(()) => assert!(at + blocks <= 8 && bytes[0] == at as u8, "{n}"),
                Err(Error::Io { op, path, source }) => {
                    assert!(at + blocks > 8, "{n}: {source}");
                    assert_eq!((op, &*path), ("read", file.path()));
                    assert_eq!(source.kind(), std::io::ErrorKind::UnexpectedEof);
                }
                Err(e) => panic!("{n}: {e}"),
            }
        }
        let bytes = [7; DIRECT_BLOCK];
        let write = |file: &Arc<dyn DiskFile>, block: u64| {
            Write::new(file.clone(), block * DIRECT_BLOCK as u64, &bytes)
        };
        let refused = queue.write_all(vec![write(&file, 3), write(&read_only, 4)]);
        assert!(matches!(refused, Err(Error::Io { op: "write", .. })));
        let no_space = queue.write_all(vec![write(&full, 0), write(&full, 1)]);
        assert!(matches!(no_space, Err(Error::NoSpace { .. })));
        queue.write_all(Vec::new()).unwrap();
    });
}

#[test]
fn writes_are_over_when_it_returns() {
    let dir = tempfile::tempdir().unwrap();
    let file = numbered(&RealDisk, &dir.path().join("a"), 64);
    let direct = RealDisk.open_direct(file.path()).unwrap();
    let mut round = 0u8;
    each_way(|queue| {
        for file in [&file, &direct] {
            round += 1;
            let mut bytes = AlignedBuf::new(64 * DIRECT_BLOCK);
            for (n, block) in bytes.chunks_exact_mut(DIRECT_BLOCK).enumerate() {
                block.fill(n as u8 ^ round << 5);
            }
            // Of one to four blocks, the last ones beyond the end of the file.
            let mut writes = Vec::new();
            let mut at = 0;
            while at < 64 {
                let n = (at % 4 + 1).min(64 - at);
                let part = at * DIRECT_BLOCK..(at + n) * DIRECT_BLOCK;
                let offset = (part.start + 4 * DIRECT_BLOCK) as u64;
                writes.push(Write::new(file.clone(), offset, &bytes[part]));
                at += n;
            }
            queue.write_all(writes).unwrap();
            let mut found = AlignedBuf::new(64 * DIRECT_BLOCK);
            file.read_at(&mut found, 4 * DIRECT_BLOCK as u64).unwrap();
            assert!(*found == *bytes, "round {round}");
        }
    });
}

/// IO-7: what a file promises is done by each way there is, and what it does not promise is refused and
/// changes nothing.
#[test]
fn atomic_writes_are_made_or_refused() {
    struct Promises;
    impl Meddler for Promises {
        fn atomic_bytes(&self) -> usize {
            DIRECT_BLOCK
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let plain = numbered(&RealDisk, &dir.path().join("a"), 8);
    let direct = RealDisk.open_direct(plain.path()).unwrap();
    let foreign = meddled(plain.clone(), &Arc::new(Promises));
    let mut bytes = AlignedBuf::new(DIRECT_BLOCK);
    bytes.fill(9);
    let byte_of = |block: u64| {
        let mut byte = [0];
        plain
            .read_at(&mut byte, block * DIRECT_BLOCK as u64)
            .unwrap();
        byte[0]
    };
    let write = |file: &Arc<dyn DiskFile>, block: u64| {
        Write::atomic(file.clone(), block * DIRECT_BLOCK as u64, &bytes)
    };
    each_way(|queue| {
        queue
            .write_all((0..4).map(|n| write(&foreign, n)).collect())
            .unwrap();
        assert_eq!([0, 1, 2, 3].map(byte_of), [9; 4]);
        for file in [&plain, &direct] {
            let is_promised = file.writes_atomically(DIRECT_BLOCK);
            match queue.write_all(vec![write(file, 4), write(file, 5)]) {
                Ok(()) => assert_eq!([4, 5].map(byte_of), [9; 2]),
                Err(Error::Io { op, .. }) => {
                    assert!(!is_promised && op == "write atomically");
                    assert_eq!([4, 5].map(byte_of), [4, 5]);
                }
                Err(e) => panic!("{e}"),
            }
        }
    });
    // What the system has written in part is not completed.
    let in_part = transfer::write_all(vec![write(&foreign, 6)], |requests| {
        for request in requests {
            let result = request.finish(512);
            request.complete(result);
        }
    });
    assert!(matches!(in_part, Err(Error::Io { .. })));
    assert_eq!(byte_of(6), 6);
}

/// Counts syncs, and lets them fail.
struct Synced {
    fails: bool,
    syncs: AtomicU32,
}

impl Meddler for Synced {
    fn before_sync(&self, path: &Path) -> Result<()> {
        self.syncs.fetch_add(1, Relaxed);
        let broken = || Error::io("sync", path, std::io::Error::other("broken"));
        (!self.fails).then_some(()).ok_or_else(broken)
    }
}

/// Each file is synced once, before the call returns; what one of them says is told, and the system's files
/// tell by themselves.
#[test]
fn syncs_are_over_when_it_returns() {
    let dir = tempfile::tempdir().unwrap();
    let plain = numbered(&RealDisk, &dir.path().join("a"), 8);
    let direct = RealDisk.open_direct(plain.path()).unwrap();
    // It can't be synced.
    let full = RealDisk
        .open(Path::new("/dev/full"), OpenMode::Existing)
        .unwrap();
    each_way(|queue| {
        let own = |fails| {
            let syncs = AtomicU32::new(0);
            let with = Arc::new(Synced { fails, syncs });
            (meddled(plain.clone(), &with), with)
        };
        let ((good, good_syncs), (bad, bad_syncs)) = (own(false), own(true));
        queue.sync_all(&[]).unwrap();
        queue.sync_all(std::slice::from_ref(&good)).unwrap();
        queue
            .sync_all(&[plain.clone(), good.clone(), direct.clone()])
            .unwrap();
        assert_eq!(good_syncs.syncs.load(Relaxed), 2);
        let broken = queue.sync_all(&[bad.clone(), plain.clone()]);
        assert!(matches!(broken, Err(Error::Io { op: "sync", .. })));
        assert_eq!(bad_syncs.syncs.load(Relaxed), 1, "IO-4: not tried again");
        match queue.sync_all(&[plain.clone(), full.clone()]) {
            Err(Error::Io {
                op: "sync", path, ..
            }) => assert_eq!(path, full.path()),
            other => panic!("{other:?}"),
        }
    });
}

/// IOQ-2: the thread that closes the queue waits for what is under way. What comes later is dropped, and a
/// write or sync says so.
#[test]
fn a_closed_queue_takes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = numbered(&RealDisk, &dir.path().join("a"), 8);
    for native in [false, true] {
        let (sender, answers) = channel();
        let queue = IoQueue::start(native).unwrap();
        let batch = |n: usize| (0..n).map(|n| read(&file, n, 1, n % 8, &sender)).collect();
        queue.submit(batch(700));
        queue.close();
        assert_eq!(answers.try_iter().count(), 700);
        queue.submit(batch(9));
        assert_eq!(answers.try_iter().count(), 0);
        let two = [file.clone(), file.clone()];
        assert!(matches!(queue.sync_all(&two), Err(Error::Poisoned { .. })));
        queue.close();
    }
}

/// IOQ-2: the thread that drops the queue waits for what is under way, and every one is told. Also if a
/// thread of the queue drops it.
#[test]
fn dropping_the_queue_ends_what_is_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let file = numbered(&RealDisk, &dir.path().join("a"), 8);
    for native in [false, true] {
        let (sender, answers) = channel();
        let queue = IoQueue::start(native).unwrap();
        queue.submit(
            (0..700)
                .map(|n| read(&file, n, 1, n % 8, &sender))
                .collect(),
        );
        drop((queue, sender));
        let told: Vec<_> = answers.try_iter().collect();
        assert_eq!(told.len(), 700);
        assert!(told.iter().all(|(_, result, _)| result.is_ok()));

        let (sender, answers) = channel();
        let queue = Arc::new(IoQueue::start(native).unwrap());
        let last = DropsQueue(queue.clone(), sender);
        queue.submit(vec![Request::read(file.clone(), 0, Box::new(last))]);
        drop(queue);
        answers.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}

/// Moves nothing, and has what may be the last hold of the queue.
struct DropsQueue(Arc<IoQueue>, Sender<()>);

// SAFETY: it names no memory.
unsafe impl Transfer for DropsQueue {
    fn pieces(&self) -> &[Piece] {
        &[]
    }

    fn done(self: Box<Self>, _: Result<()>) {
        let DropsQueue(queue, told) = *self;
        drop(queue);
        told.send(()).unwrap();
    }
}

/// A panic of a callback does not end the thread that others need.
#[test]
fn a_panic_is_its_own() {
    struct Panics;
    // SAFETY: it names no memory.
    unsafe impl Transfer for Panics {
        fn pieces(&self) -> &[Piece] {
            &[]
        }

        fn done(self: Box<Self>, _: Result<()>) {
            panic!("on purpose");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let file = numbered(&RealDisk, &dir.path().join("a"), 8);
    each_way(|queue| {
        let (sender, answers) = channel();
        for _ in 0..10 {
            queue.submit(vec![Request::read(file.clone(), 0, Box::new(Panics))]);
        }
        queue.submit(vec![read(&file, 0, 1, 5, &sender)]);
        answer(&answers).1.unwrap();
    });
}

/// Reads into a part of memory that comes back, and whose other parts stay as they are.
#[test]
fn reads_fill_their_range_and_give_the_memory_back() {
    let dir = tempfile::tempdir().unwrap();
    let plain = numbered(&RealDisk, &dir.path().join("a"), 8);
    let direct = RealDisk.open_direct(plain.path()).unwrap();
    each_way(|queue| {
        let read = |file: &Arc<dyn DiskFile>, block: usize| {
            let mut into = AlignedBuf::new(4 * DIRECT_BLOCK);
            into.fill(0xee);
            Read {
                file: file.clone(),
                offset: (block * DIRECT_BLOCK) as u64,
                into,
                range: DIRECT_BLOCK..3 * DIRECT_BLOCK,
            }
        };
        let reads = vec![read(&plain, 1), read(&direct, 5), read(&plain, 7)];
        let mut readings = queue.read_all(reads).into_iter();
        for block in [1, 5] {
            let bytes = readings.next().unwrap().wait().unwrap();
            let found: Vec<u8> = bytes.chunks(DIRECT_BLOCK).map(|part| part[7]).collect();
            assert_eq!(found, [0xee, block, block + 1, 0xee]);
        }
        let beyond = readings.next().unwrap().wait();
        assert!(beyond.is_err(), "it ends in the middle");
    });
}

/// What the system moved only in part is finished from there on, in the middle of a piece, too, on its files
/// and on others.
#[test]
fn a_part_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let plain = numbered(&RealDisk, &dir.path().join("a"), 8);
    let overlay = Overlay::new(Arc::new(RealDisk));
    let foreign = overlay.open(plain.path(), OpenMode::Existing).unwrap();
    for file in [&plain, &foreign] {
        for moved in [0, 1, DIRECT_BLOCK, DIRECT_BLOCK + 7, 3 * DIRECT_BLOCK] {
            let (sender, answers) = channel();
            let request = read(file, 0, 3, 4, &sender);
            let result = request.finish(moved);
            request.complete(result);
            let (_, result, bytes) = answer(&answers);
            result.unwrap();
            let expected = |at: usize| if at < moved { 0 } else { 4 + at / DIRECT_BLOCK };
            let is_right = |(at, &byte): (usize, &u8)| usize::from(byte) == expected(at);
            assert!(bytes.iter().enumerate().all(is_right), "{moved}");
        }
    }
}
