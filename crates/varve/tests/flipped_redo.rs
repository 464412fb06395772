//! A bit of the redo log that flips after it was durable.
//!
//! What could break here: the place is taken for the log's end, what lies behind it is zeroed, and
//! acknowledged commits are gone without a word; or a torn write, which every crash may leave, keeps the
//! database from opening.

#[path = "support/versions.rs"]
mod versions;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve::internals::base::Lsn;
use varve::internals::io::{Disk, DiskFile, OpenMode};
use varve::internals::redo::{Control, ControlFile, RedoReader};
use varve::{Database, Error, Isolation, LockMode, Options, Result};
use varve_sim::SimDisk;
use varve_sim::sample::{self, DIR};
use versions::{definition, delete, insert, read, set};

/// So much of the log's end is tried, byte by byte.
const TRIED: u64 = 64 << 10;
const ROWS: i64 = 600;
const HEADER: u64 = 4096;

fn open(disk: &SimDisk, force_recovery: u8) -> Result<Database> {
    let options = Options {
        redo_capacity_bytes: 2 << 20,
        force_recovery,
        ..sample::options()
    };
    Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options)
}

/// A database that died after so many commits. Also where its log was durable before the last one.
fn crashed() -> (SimDisk, u64) {
    let disk = SimDisk::default();
    let db = open(&disk, 0).unwrap();
    db.create_table(&definition("a/t")).unwrap();
    db.close().unwrap();
    let db = open(&disk, 0).unwrap();
    let table = db.table("a/t").unwrap();
    let mut durable = 0;
    for id in 0..ROWS {
        durable = status(&db, "lsn_flushed");
        let mut trx = db.begin(Isolation::RepeatableRead);
        insert(&mut trx, &table, id, 0).unwrap();
        if id % 50 == 0 {
            set(&mut trx, &table, id, 1).unwrap();
            insert(&mut trx, &table, ROWS + id, 0).unwrap();
            delete(&mut trx, &table, ROWS + id).unwrap();
        }
        trx.commit().unwrap();
    }
    drop(table);
    db.crash();
    (SimDisk::new(disk.image()), durable)
}

fn status(db: &Database, name: &str) -> u64 {
    let all = db.status();
    all.iter().find(|(n, _)| *n == name).expect(name).1
}

fn rows(db: &Database) -> i64 {
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let is_there = |id: &i64| {
        let row = read(&mut trx, &table, *id, LockMode::None).unwrap();
        row.is_some()
    };
    (0..ROWS).filter(is_there).count() as i64
}

/// The last part of the log that the database reads when it starts.
struct Log {
    control: Control,
    frames: Vec<(Lsn, Lsn, Vec<u8>)>,
    /// Of each file: where its part of the stream begins, and the file.
    files: Vec<(u64, PathBuf, Arc<dyn DiskFile>)>,
}

/// From `from` on, where a frame begins.
fn read_log(disk: &SimDisk, control: &Control, from: Lsn) -> Result<Vec<(Lsn, Lsn, Vec<u8>)>> {
    let mut reader = RedoReader::open(
        disk,
        Path::new(DIR),
        &control.uuid,
        from,
        &Default::default(),
    )?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next()? {
        frames.push((frame.start, frame.end, frame.body.to_vec()));
    }
    Ok(frames)
}

impl Log {
    fn of(disk: &SimDisk) -> Log {
        let dir = Path::new(DIR);
        let control = ControlFile::open(disk, dir, &mut |_| ()).unwrap().control();
        let redo = dir.join("redo");
        let mut files = Vec::new();
        for entry in disk.list(&redo).unwrap() {
            let path = redo.join(&entry.name);
            let file = disk.open(&path, OpenMode::Existing).unwrap();
            let mut header = [0; 96];
            file.read_at(&mut header, 0).unwrap();
            if header[..8] == *b"VARVELOG" {
                let start = u64::from_le_bytes(header[72..80].try_into().unwrap());
                files.push((start, path, file));
            }
        }
        files.sort_by_key(|file| file.0);
        let all = read_log(disk, &control, control.checkpoint).unwrap();
        let end = all.last().unwrap().1.0;
        let is_before = |frame: &&(Lsn, Lsn, Vec<u8>)| frame.1.0 <= end - TRIED;
        let frames = all.iter().skip_while(is_before).cloned().collect();
        Log {
            control,
            frames,
            files,
        }
    }

    fn end(&self) -> u64 {
        self.frames.last().unwrap().1.0
    }

    /// What the durable marks name (docs/format.md).
    fn durable_marks(&self) -> BTreeSet<u64> {
        let bodies = self.frames.iter().map(|frame| &frame.2);
        let marks = bodies.filter(|body| body.len() == 9 && body[0] == 0x95);
        marks
            .map(|body| u64::from_le_bytes(body[1..].try_into().unwrap()))
            .collect()
    }

    /// The file that holds the byte, and where in it.
    fn place(&self, at: u64) -> (&Path, &Arc<dyn DiskFile>, u64) {
        let n = self.files.partition_point(|file| file.0 <= at) - 1;
        let (start, path, file) = &self.files[n];
        (path, file, HEADER + at - start)
    }

    fn flip(&self, at: u64) {
        let (_, file, offset) = self.place(at);
        flip(&**file, offset, at);
    }

    /// On a copy.
    fn flip_on(&self, disk: &SimDisk, at: u64) {
        let (path, _, offset) = self.place(at);
        flip(&*disk.open(path, OpenMode::Existing).unwrap(), offset, at);
    }
}

fn flip(file: &dyn DiskFile, offset: u64, at: u64) {
    let mut byte = [0];
    file.read_at(&mut byte, offset).unwrap();
    file.write_at(&[byte[0] ^ 1 << (at % 8)], offset).unwrap();
}

/// What a start makes of it: it refuses, or all rows are there but for those of the last commit.
#[test]
fn commits_do_not_vanish_when_a_bit_flips() {
    let (crashed, _) = crashed();
    let end = Log::of(&crashed).end();
    let (mut refused, mut opened) = (0, 0);
    for at in (end - TRIED..end).rev().step_by(487) {
        let disk = crashed.copy();
        Log::of(&disk).flip(at);
        match open(&disk, 0) {
            Err(Error::CorruptFile { .. }) => refused += 1,
            Err(e) => panic!("LSN {at} of {end}: {e}"),
            Ok(db) => {
                let found = rows(&db);
                assert!(found >= ROWS - 1, "LSN {at} of {end}: {found} rows");
                opened += 1;
            }
        }
    }
    assert!(refused > 0 && opened > 0, "{refused} refused, {opened} not");
}

/// Each byte by itself: below the last mark the log is refused, with the file and the place; in the last
/// group, and nowhere else, it ends before the frame that was hit, as after a torn write.
#[test]
fn each_byte_below_the_last_mark_is_missed() {
    let (disk, before_last) = crashed();
    let log = Log::of(&disk);
    let (end, last_mark) = (log.end(), *log.durable_marks().last().expect("marks"));
    assert!(last_mark >= before_last, "the range has one group commit");
    let (mut refused, mut torn, mut padding) = (0, 0, 0);
    for at in end - TRIED..end {
        let hit = log.frames.partition_point(|frame| frame.1.0 <= at);
        let (start, _, body) = &log.frames[hit];
        log.flip(at);
        match read_log(&disk, &log.control, log.frames[0].0) {
            Ok(frames) if at >= start.0 + 8 + body.len() as u64 => {
                assert!(frames == log.frames, "LSN {at}: padding");
                padding += 1;
            }
            Ok(frames) => {
                assert!(at >= last_mark, "LSN {at} of {end} is taken for the end");
                assert!(frames == log.frames[..hit], "LSN {at}");
                torn += 1;
            }
            Err(Error::CorruptFile {
                path,
                expected,
                found,
            }) => {
                assert!(at < last_mark, "LSN {at} of {end}: {found}");
                let (_, _, offset) = log.place(start.0);
                assert_eq!(path, log.place(start.0).0);
                assert_eq!(
                    expected,
                    format!("whole redo up to LSN {last_mark}, which was durable")
                );
                let lost = last_mark - start.0;
                let wanted = format!("at offset {offset}, LSN {start}: at least {lost} bytes");
                assert!(found.contains(&wanted), "{found}");
                refused += 1;
            }
            Err(e) => panic!("LSN {at}: {e}"),
        }
        log.flip(at);
    }
    assert!(
        torn > 0 && refused > TRIED * 3 / 4,
        "{torn} torn, {refused} refused, {padding} padding"
    );
    assert!(read_log(&disk, &log.control, log.frames[0].0).unwrap() == log.frames);
}

/// What is refused is left as it was, and can be looked at without its redo.
#[test]
fn only_level_6_opens_a_damaged_log() {
    let (disk, _) = crashed();
    let log = Log::of(&disk);
    log.flip(log.end() - TRIED / 2);
    let disk = SimDisk::new(disk.image());
    for level in 1..=5 {
        let refused = open(&disk, level).map(drop).unwrap_err().to_string();
        assert!(refused.contains("varve_force_recovery 6"), "{refused}");
    }
    let db = open(&disk, 6).unwrap();
    let found = rows(&db);
    assert!(found < ROWS, "{found} rows without redo");
    db.close().unwrap();
    // Nothing was cut off: with the bit as it was, all is there.
    log.flip_on(&disk, log.end() - TRIED / 2);
    let db = open(&disk, 0).unwrap();
    assert_eq!(rows(&db), ROWS);
    db.close().unwrap();
}
