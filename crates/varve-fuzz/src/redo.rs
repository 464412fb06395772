//! The redo log: its files, frames and records, and what replay makes of them.
//!
//! What holds, whatever the bytes are: reading ends, at the latest at the end of the files; a body is walked
//! without a panic (mtr/record.rs); replay of it leaves every page as one that `validate` accepts, or says
//! what is damaged.
//!
//! Input, first byte even: a frame's body, replayed over a few pages. Odd: changes of the files of a real
//! log, whose headers and frames get the checksums that fit, and the LSN that reading starts from.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use varve::internals::base::{Lsn, PageId, SpaceId};
use varve::internals::buffer::{BufferPool, PageStore, PoolSettings};
use varve::internals::io::{Disk, FlushMethod, IoQueue};
use varve::internals::mtr::record::{Record, records};
use varve::internals::mtr::replay::apply_frame;
use varve::internals::page::validate;
use varve::internals::recovery::{ScanSettings, scan};
use varve::internals::redo::{Control, ControlFile, MARK_RECORD, RedoReader, Through};
use varve::{Error, Result};
use varve_sim::sample::{DIR, PAGE, files, read, write};

use crate::input::Input;
use crate::sample;

/// Pages that replay may touch: fewer than the smallest pool has frames.
const PAGES: usize = 40;

/// Tablespaces of which a few pages are there, however they are named.
#[derive(Default)]
struct FewPages {
    pages: Mutex<HashMap<PageId, Vec<u8>>>,
}

impl PageStore for FewPages {
    fn read(&self, page: PageId, buf: &mut [u8]) -> Result<()> {
        match self.pages.lock().get(&page) {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => return Err(Error::corrupt(page, "a page of the file", "its end")),
        }
        Ok(())
    }

    fn write(&self, page: PageId, buf: &[u8]) -> Result<()> {
        self.pages.lock().insert(page, buf.to_vec());
        Ok(())
    }

    fn sync(&self, _: SpaceId) -> Result<()> {
        Ok(())
    }

    fn ensure(&self, page: PageId) -> Result<bool> {
        let mut pages = self.pages.lock();
        let is_there = pages.contains_key(&page);
        if !is_there && pages.len() < PAGES {
            pages.insert(page, vec![0; PAGE]);
            return Ok(true);
        }
        Ok(is_there)
    }
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.bool() {
        false => replay(input.rest()),
        true => read_files(&mut input),
    }
}

fn replay(body: &[u8]) {
    let store = Arc::new(FewPages::default());
    let settings = PoolSettings {
        bytes: (64 * PAGE) as u64,
        page_size: PAGE,
    };
    let pool = BufferPool::new(settings, store.clone()).expect("a small pool");
    // The second time nothing is to be done (RPL-1), unless the first one stopped in the middle.
    for _ in 0..2 {
        let _ = apply_frame(&pool, Lsn(4096), Lsn(8192), body, |_| Ok(()));
        let touched: Vec<PageId> = store.pages.lock().keys().copied().collect();
        for id in touched {
            let Ok(page) = pool.shared(id) else { continue };
            validate(&page, id).unwrap_or_else(|e| panic!("replay left {e}"));
        }
    }
}

// ---- Files.

/// One frame of the sample's log.
struct Place {
    file: usize,
    /// Of its header word.
    offset: u64,
    start: Lsn,
    len: usize,
}

struct Log {
    files: Vec<(PathBuf, Vec<u8>)>,
    frames: Vec<Place>,
    bodies: Vec<Vec<u8>>,
    control: Control,
}

/// Offsets of docs/format.md in a log file's header.
const START: usize = 72;
const GENERATION: usize = 80;
const CRC: usize = 508;
const HEADER_BYTES: u64 = 4096;

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn log() -> &'static Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let disk = sample::disk();
        let paths = files(&disk, "vlog");
        let files: Vec<_> = (paths.into_iter().map(|p| (p.clone(), read(&disk, &p)))).collect();
        let control = ControlFile::open(&disk, Path::new(DIR), &mut |_| ())
            .expect("whole")
            .control();
        let (dir, uuid, from) = (Path::new(DIR), &control.uuid, control.checkpoint);
        let mut reader =
            RedoReader::open(&disk, dir, uuid, from, &Default::default()).expect("whole");
        let (mut frames, mut bodies) = (Vec::new(), Vec::new());
        while let Some(frame) = reader.next().expect("whole") {
            let (start, end) = (frame.start.0, frame.end.0);
            let file = files.iter().position(|(_, bytes)| {
                let first = u64_at(bytes, START);
                let is_used = bytes[..8] != [0; 8];
                is_used && first <= start && end <= first + bytes.len() as u64 - HEADER_BYTES
            });
            bodies.push(frame.body.to_vec());
            // One that goes over the end of a file is left as it is.
            if let Some(file) = file {
                frames.push(Place {
                    file,
                    offset: HEADER_BYTES + start - u64_at(&files[file].1, START),
                    start: frame.start,
                    len: (end - start) as usize,
                });
            }
        }
        assert!(
            frames.len() > 100,
            "the sample's log has {} frames",
            frames.len()
        );
        Log {
            files,
            frames,
            bodies,
            control,
        }
    })
}

fn read_files(input: &mut Input<'_>) {
    let log = log();
    let disk = sample::disk();
    let mut files: Vec<Vec<u8>> = log.files.iter().map(|(_, bytes)| bytes.clone()).collect();
    let from = match input.below(4) {
        0 => log.control.checkpoint.0 ^ u64::from(input.u16()),
        1 => input.u64(),
        _ => log.control.checkpoint.0,
    };
    while !input.is_empty() {
        change(input, log, &mut files);
    }
    for ((path, old), new) in log.files.iter().zip(&files) {
        if old != new {
            write(&disk, path, new, 0);
        }
    }
    let control = Control {
        checkpoint: Lsn(from),
        // Behind a clean shutdown one reading looks for no marks.
        clean_shutdown: false,
        files_match: false,
        encrypted: false,
        ..log.control
    };
    // Hardly any memory, so that what the log says goes to a file.
    let settings = ScanSettings {
        memory_bytes: 4096,
        threads: 2,
        through: Through::Cache,
        spill: FlushMethod::Direct,
        goes_by_indexes: false,
        forgets_a_block: false,
    };
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let queue = Arc::new(IoQueue::one_by_one());
    let found = scan(
        &shared,
        Path::new(DIR),
        &control,
        settings,
        &queue,
        &Default::default(),
    );
    let Ok((found, _)) = found else {
        return;
    };
    let uuid = &control.uuid;
    let mut reader = RedoReader::open(&disk, Path::new(DIR), uuid, Lsn(from), &Default::default())
        .expect("scanned");
    let mut frames = 0;
    while let Some(frame) = reader.next().expect("scanned") {
        assert!(frame.start < frame.end && frame.end <= found.end);
        records(frame.body).for_each(drop);
        frames += u64::from(frame.body[0] != MARK_RECORD);
    }
    assert_eq!((frames, reader.position()), (found.frames, found.end));
}

/// One change of one file, with the checksum that fits.
fn change(input: &mut Input<'_>, log: &Log, files: &mut [Vec<u8>]) {
    match input.below(3) {
        // A file's header.
        0 => {
            let file = input.below(files.len());
            let (at, len) = (input.below(CRC), input.below(9));
            let bytes = input.bytes(len);
            let n = bytes.len().min(CRC - at);
            files[file][at..at + n].copy_from_slice(&bytes[..n]);
            let crc = crc32c::crc32c(&files[file][..CRC]);
            files[file][CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
        }
        // A frame's body.
        1 => {
            let frame = &log.frames[input.below(log.frames.len().min(65536))];
            let (at, len) = (input.u16() as usize, input.below(9));
            let bytes = input.bytes(len);
            let file = &mut files[frame.file];
            let generation = u64_at(file, GENERATION);
            let whole = &mut file[frame.offset as usize..][..frame.len];
            let (head, body) = whole.split_at_mut(8);
            let length: [u8; 4] = head[..4].try_into().expect("4 bytes");
            let pad = (length[0] & 7) as usize;
            let used = body.len() - pad;
            for (i, byte) in bytes.iter().enumerate() {
                body[(at + i) % used] = *byte;
            }
            let parts: [&[u8]; 4] = [
                &body[..used],
                &length,
                &frame.start.0.to_le_bytes(),
                &generation.to_le_bytes(),
            ];
            let crc = parts
                .iter()
                .fold(0, |crc, part| crc32c::crc32c_append(crc, part));
            head[4..].copy_from_slice(&crc.to_le_bytes());
        }
        // Anything, without a checksum.
        _ => {
            let file = input.below(files.len());
            let (at, len) = (input.u32() as usize % files[file].len(), input.below(9));
            let bytes = input.bytes(len);
            let n = bytes.len().min(files[file].len() - at);
            files[file][at..at + n].copy_from_slice(&bytes[..n]);
        }
    }
}

// ---- Seeds.

/// One operation of each kind that the sample's log has, encoded.
pub fn sample_ops() -> Vec<u8> {
    let mut kinds = Vec::new();
    let mut out = Vec::new();
    for body in &log().bodies {
        for record in records(body).map_while(|r| r.ok()) {
            let Record::Op { op, .. } = record else {
                continue;
            };
            let kind = std::mem::discriminant(&op);
            let mut encoded = Vec::new();
            op.encode(&mut encoded);
            if !kinds.contains(&kind) && encoded.len() < 500 {
                kinds.push(kind);
                out.extend(encoded);
            }
        }
    }
    assert!(kinds.len() >= 8, "{} kinds of operations", kinds.len());
    out
}

pub fn seeds() -> Vec<Vec<u8>> {
    let log = log();
    let mut seeds = Vec::new();
    // Bodies of many kinds: the first of each length class.
    let mut classes = Vec::new();
    for body in log.bodies.iter().filter(|b| b.len() < 6000) {
        let class = body.len().ilog2() * 256 + u32::from(body[0]);
        if !classes.contains(&class) {
            classes.push(class);
            seeds.push([&[0], &body[..]].concat());
        }
    }
    // The first transaction in one frame: page after page is made and filled.
    let start: Vec<u8> = log.bodies.iter().take(60).flatten().copied().collect();
    seeds.push([&[0], &start[..]].concat());
    for kind in 0..3 {
        seeds.push(vec![1, 2, kind, 1, 72, 0, 8, 0, 16, 0, 0, 0, 0, 0, 0]);
        seeds.push(vec![1, 0, 8, 0, kind, 2, 3, 0, 4, 9, 9, 9, 9]);
    }
    seeds
}
