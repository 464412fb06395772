//! Indexes against a list of all changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::base::{Error, PageId, PageNo, SpaceId};
use crate::io::{Disk, DiskFile, OpenMode, RealDisk};
use crate::mtr::RawRecord;
use crate::mtr::record::{put_page, put_raw};
use crate::page::{PAGE_HEADER, PageOp};
use crate::recovery::chain::{Change, take_apart};
use crate::recovery::pages::{LogMarks, Marks, unit_of};
use crate::redo::{Frame, frame_bytes};

const UUID: [u8; 16] = [9; 16];
const IDENTITY: DatabaseIdentity = DatabaseIdentity {
    page_size: 16384,
    uuid: UUID,
};
const START: Lsn = Lsn(5 << 32);

fn id(space: u32, no: u32) -> PageId {
    PageId::new(SpaceId(space), PageNo(no))
}

/// A log file's frames, and what they say.
struct Log {
    first: Lsn,
    next: Lsn,
    frames: Vec<(Lsn, Lsn, Vec<u8>)>,
}

impl Log {
    fn new() -> Log {
        Log {
            first: START,
            next: START,
            frames: Vec::new(),
        }
    }

    fn add(&mut self, body: Vec<u8>) {
        let (start, end) = (self.next, Lsn(self.next.0 + frame_bytes(body.len()) as u64));
        self.frames.push((start, end, body));
        self.next = end;
    }

    /// A frame that writes so many bytes to each of these pages.
    fn write(&mut self, pages: impl IntoIterator<Item = (PageId, usize)>) {
        let mut body = Vec::new();
        for (page, len) in pages {
            put_page(&mut body, page, false);
            put_write(&mut body, &vec![page.no.0 as u8; len]);
        }
        self.add(body);
    }

    fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        let all = self.frames.iter();
        all.map(|(start, end, body)| Frame {
            start: *start,
            end: *end,
            body,
        })
    }

    fn id(&self) -> FileId {
        FileId {
            number: 12,
            generation: 3,
            start: self.first,
            end: Lsn(self.next.0 - 8).max(self.first),
        }
    }

    fn image(&self) -> Vec<u8> {
        let mut builder = IndexBuilder::new();
        self.frames().for_each(|frame| builder.add(&frame).unwrap());
        builder.finish(self.id(), self.first, IDENTITY)
    }

    /// All changes of each page, and what the frames say of none.
    fn changes(&self) -> (BTreeMap<PageId, Vec<Change<'_>>>, LogSummary) {
        let (mut all, mut summary) = (
            BTreeMap::<PageId, Vec<Change<'_>>>::new(),
            LogSummary::default(),
        );
        for frame in self.frames() {
            take_apart(&frame, &mut summary, |change| {
                all.entry(change.page).or_default().push(change);
            })
            .unwrap();
        }
        (all, summary)
    }
}

fn put_write(body: &mut Vec<u8>, bytes: &[u8]) {
    let off = PAGE_HEADER as u16;
    PageOp::Write { off, bytes }.encode(body);
}

/// From the last one on that starts the page as zeros.
fn since_restart<'a, 'b>(changes: &'b [Change<'a>]) -> &'b [Change<'a>] {
    let last = changes.iter().rposition(|change| change.fresh);
    &changes[last.unwrap_or(0)..]
}

fn random_frame(rng: &mut SmallRng) -> Vec<u8> {
    let mut body = Vec::new();
    if rng.random_range(0..50) == 0 {
        let limit = rng.random_range(0..1 << 50);
        put_raw(&mut body, &RawRecord::IdLimit { limit });
    }
    let parts = rng.random_range(1..7);
    // Some pages several times in a frame.
    let pages: Vec<PageId> = (0..parts).map(|_| random_page(rng)).collect();
    for _ in 0..parts {
        let page = pages[rng.random_range(0..pages.len())];
        put_page(&mut body, page, rng.random_range(0..40) == 0);
        for _ in 0..rng.random_range(1..3) {
            let most = [3, 10, 80][rng.random_range(0..3)];
            let bytes: Vec<u8> = (0..rng.random_range(1..=most))
                .map(|_| rng.random())
                .collect();
            put_write(&mut body, &bytes);
        }
    }
    if rng.random_range(0..50) == 0 {
        let space = SpaceId(rng.random_range(1..90));
        put_raw(&mut body, &RawRecord::FileDelete { space, path: "t" });
    }
    if rng.random_range(0..20) == 0 {
        let space = SpaceId(rng.random_range(1..20));
        let next = rng.random();
        put_raw(
            &mut body,
            &match rng.random_range(0..3) {
                0 => RawRecord::CounterSet { space, next },
                _ => RawRecord::CounterRaised { space, next },
            },
        );
    }
    body
}

/// A few that are hot, some neighbours, and the first and the last ones that there are.
fn random_page(rng: &mut SmallRng) -> PageId {
    match rng.random_range(0..8) {
        0..3 => id(7, rng.random_range(0..3)),
        3..6 => id(rng.random_range(2..5), rng.random_range(0..600)),
        6 => id(0x7fff_ffff, u32::MAX - rng.random_range(0..3)),
        _ => id(0, rng.random()),
    }
}

fn random_log(rng: &mut SmallRng, frames: usize) -> Log {
    let mut log = Log::new();
    (0..frames).for_each(|_| log.add(random_frame(rng)));
    log
}

/// A file of these bytes.
struct Written {
    _dir: tempfile::TempDir,
    file: Arc<dyn DiskFile>,
}

fn written(image: &[u8]) -> Written {
    let dir = tempfile::tempdir().unwrap();
    let path = index_path(dir.path(), 12);
    let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
    file.write_at(image, 0).unwrap();
    Written { _dir: dir, file }
}

fn open(file: &Arc<dyn DiskFile>, id: &FileId) -> Option<Index> {
    Index::open(file.clone(), &UUID, id).unwrap()
}

/// The bytes of the block that may have the page's entry; `None`: there is no such block, or it is damaged.
pub(super) fn block(index: &Index, file: Option<&dyn DiskFile>, page: PageId) -> Option<Vec<u8>> {
    match index.block_of(page)? {
        Block::Memory(bytes) => Some(bytes.to_vec()),
        Block::File { place, .. } => {
            let mut bytes = vec![0; place.len as usize];
            file.unwrap().read_at(&mut bytes, place.offset).unwrap();
            place.is_whole(&bytes).then_some(bytes)
        }
    }
}

/// IDX-2: with the frames that an entry names, it says what the log says.
pub(super) fn check_entry(found: &[IndexedFrame<'_>], all: &[Change<'_>]) {
    let (mut said, mut named) = (Vec::new(), BTreeSet::new());
    for found in found {
        match found {
            IndexedFrame::At { start, end } => {
                let of_frame = all.iter().filter(|c| (c.start, c.end) == (*start, *end));
                said.extend(of_frame.copied());
                assert!(named.insert(*start), "IDX-2: a frame is named once");
            }
            IndexedFrame::Change(change) => said.push(*change),
        }
    }
    let kept = found.iter().filter_map(|found| match found {
        IndexedFrame::Change(change) => Some(change.start),
        IndexedFrame::At { .. } => None,
    });
    for start in kept {
        assert!(!named.contains(&start), "IDX-2: a place or its changes");
    }
    assert_eq!(since_restart(&said), since_restart(all));
    let since = since_restart(all);
    assert!(
        said.iter().all(|c| c.start >= since[0].start),
        "nothing before it"
    );
}

/// IDX-3: a frame is to be read if it has more bytes for the page than 16 and there are frames before it, or
/// starts the page as zeros.
fn check_reads(found: &[IndexedFrame<'_>], all: &[Change<'_>]) {
    let (mut bytes, mut fresh) = (BTreeMap::<Lsn, usize>::new(), BTreeSet::new());
    for change in all {
        *bytes.entry(change.start).or_default() += change.ops.len();
        fresh.extend(change.fresh.then_some(change.start));
    }
    let mut before = BTreeSet::new();
    for found in found {
        let (start, is_place) = match found {
            IndexedFrame::At { start, .. } => (*start, true),
            IndexedFrame::Change(change) => (change.start, false),
        };
        before.insert(start);
        let frames = before.len() - 1;
        let is_long = bytes[&start] > build::SHORT_BYTES + frames;
        let wanted = is_long || fresh.contains(&start);
        assert_eq!(is_place, wanted, "behind {frames} frames");
    }
    let reads = found
        .iter()
        .filter(|found| matches!(found, IndexedFrame::At { .. }));
    let most = bytes.into_values().max();
    assert!(Some(reads.count()) <= most);
}

/// All that an index says is what its log says.
fn check(index: &Index, file: Option<&dyn DiskFile>, log: &Log) {
    let (all, summary) = log.changes();
    let (file_id, first, next) = (log.id(), log.first, log.next);
    let head = Head {
        file: file_id,
        first,
        next,
        summary,
    };
    assert_eq!(*index.head(), head, "IDX-1");
    let (mut marks, mut restarts) = (LogMarks::default(), Vec::new());
    for (page, changes) in &all {
        let (unit, bit) = unit_of(*page);
        let is_fresh = changes.iter().any(|change| change.fresh);
        let fresh = if is_fresh { bit } else { 0 };
        marks.add(vec![(unit, Marks { lacks: bit, fresh })]);
        if is_fresh {
            restarts.push((*page, since_restart(changes)[0].start));
        }
        let bytes = block(index, file, *page).expect("it has an entry");
        let found = decode_block(&bytes, *page).expect("the block is whole");
        check_entry(&found, changes);
        check_reads(&found, changes);
    }
    let units = marks.finish();
    let units = units.all().iter().map(|unit| (unit.no, unit.marks));
    assert!(index.units().unwrap().into_iter().eq(units));
    assert_eq!(index.restarts().unwrap(), restarts);
    for page in [id(0, 0), id(2, 600), id(6, 1), id(7, 3), id(0x7fff_ffff, 5)] {
        if !all.contains_key(&page)
            && let Some(bytes) = block(index, file, page)
        {
            assert_eq!(decode_block(&bytes, page), Some(Vec::new()), "{page}");
        }
    }
}

#[test]
fn an_index_says_what_its_log_says() {
    for (seed, frames) in [(1, 0), (2, 1), (3, 40), (4, 2000), (5, 6000)] {
        let log = random_log(&mut SmallRng::seed_from_u64(seed), frames);
        let image = log.image();
        let written = written(&image);
        let opened = open(&written.file, &log.id()).expect("it is whole");
        check(&opened, Some(&*written.file), &log);
        check(&Index::in_memory(image), None, &log);
    }
}

/// The changes of one frame may be anywhere in it, and it may be the one that starts the page as zeros.
#[test]
fn a_frame_is_in_an_entry_in_one_way() {
    let (hot, cold) = (id(7, 1), id(7, 2));
    let mut log = Log::new();
    (0..40).for_each(|_| log.write([(hot, 1)]));
    let places = |log: &Log| {
        let index = Index::in_memory(log.image());
        check(&index, None, log);
        let bytes = block(&index, None, hot).unwrap();
        let found = decode_block(&bytes, hot).unwrap();
        let is_place = |found: &IndexedFrame<'_>| matches!(found, IndexedFrame::At { .. });
        (
            found.iter().filter(|found| is_place(found)).count(),
            found.len(),
        )
    };
    let (reads, all) = places(&log);
    assert!(reads < 8 && all == 40, "{reads} of {all}");
    log.write([(hot, 1), (cold, 9), (hot, 1)]);
    assert_eq!(places(&log), (reads, all + 2), "both stand in it");
    log.write([(hot, 1), (cold, 9), (hot, 60), (hot, 1)]);
    assert_eq!(places(&log), (reads + 1, all + 3), "neither does");
    let mut body = Vec::new();
    for (page, fresh) in [
        (hot, false),
        (cold, true),
        (hot, true),
        (cold, false),
        (hot, false),
    ] {
        put_page(&mut body, page, fresh);
        put_write(&mut body, b"x");
    }
    log.add(body);
    assert_eq!(places(&log), (1, 1), "what was before does not matter");
}

/// The bytes that are read before the first answer, and for one page.
#[test]
fn an_index_is_short() {
    const FRAMES: u32 = 40_000;
    let mut rng = SmallRng::seed_from_u64(6);
    let mut log = Log::new();
    let mut places = 0;
    for _ in 0..FRAMES {
        let pages: BTreeSet<u32> = (0..3).map(|_| rng.random_range(0..2000)).collect();
        places += pages.len();
        log.write(pages.into_iter().map(|no| (id(5, no), 130)));
    }
    let index = log.image().len() - 4096;
    assert!(index < 4 * places, "{index} bytes for {places} places");
    let index = Index::in_memory(log.image());
    for no in 0..2000 {
        let bytes = block(&index, None, id(5, no)).unwrap();
        assert!(bytes.len() <= 8 << 10, "{} bytes", bytes.len());
    }
}

#[test]
fn a_hot_page_takes_few_reads() {
    let hot = id(0, 3);
    let mut log = Log::new();
    for no in 0..20_000 {
        log.write([(hot, 8), (id(5, no), 100)]);
    }
    let index = Index::in_memory(log.image());
    let bytes = block(&index, None, hot).unwrap();
    assert!(bytes.len() < 20 * 20_000, "{} bytes", bytes.len());
    let beside = block(&index, None, id(5, 0)).unwrap();
    assert!(
        beside.len() <= 8 << 10,
        "a long entry has a block of its own"
    );
    assert!(index.block_of(id(0, 2)).is_none());
    let found = decode_block(&bytes, hot).unwrap();
    let all = &log.changes().0[&hot];
    check_entry(&found, all);
    check_reads(&found, all);
}

/// IDX-4: a part of a file is no index, and changed bytes are noticed.
#[test]
fn no_damaged_index_is_believed() {
    let mut rng = SmallRng::seed_from_u64(7);
    let log = random_log(&mut rng, 300);
    let image = log.image();
    let written = written(&image);
    let file = &written.file;
    for (at, byte) in image.iter().enumerate() {
        // The end of the header, of which all but a few bytes are zeros, is as good as its middle.
        if (300..4000).contains(&at) && at % 64 != 0 {
            continue;
        }
        let bit = 1 << rng.random_range(0..8);
        file.write_at(&[byte ^ bit], at as u64).unwrap();
        assert!(is_noticed(file, &log), "byte {at}");
        file.write_at(&[*byte], at as u64).unwrap();
    }
    check(&open(file, &log.id()).unwrap(), Some(&**file), &log);
    for len in (0..image.len() as u64).rev() {
        file.set_len(len).unwrap();
        assert!(open(file, &log.id()).is_none(), "{len} bytes");
        // Its length is there, and zeros.
        file.set_len(image.len() as u64).unwrap();
        let tail_is_zero = image[len as usize..].iter().all(|byte| *byte == 0);
        assert!(
            tail_is_zero || is_noticed(file, &log),
            "{len} bytes and zeros"
        );
    }
    file.write_at(&image, 0).unwrap();
    file.write_at(b"more", image.len() as u64).unwrap();
    assert!(open(file, &log.id()).is_none(), "bytes behind it");
}

/// Something of the index is refused, and everything else is right.
fn is_noticed(file: &Arc<dyn DiskFile>, log: &Log) -> bool {
    let Some(index) = open(file, &log.id()) else {
        return true;
    };
    let (all, _) = log.changes();
    let parts = [index.units().map(drop), index.restarts().map(drop)];
    for part in &parts {
        assert!(matches!(part, Ok(()) | Err(Error::CorruptFile { .. })));
    }
    let mut bad_blocks = BTreeSet::new();
    for place in all.keys().filter_map(|page| index.block_of(*page)) {
        let Block::File { place, .. } = place else {
            panic!("the index is in a file");
        };
        let mut bytes = vec![0; place.len as usize];
        file.read_at(&mut bytes, place.offset).unwrap();
        if !place.is_whole(&bytes) {
            bad_blocks.insert(place.offset);
        }
    }
    parts.iter().any(Result::is_err) || !bad_blocks.is_empty()
}

#[test]
fn an_index_is_of_one_log_file() {
    let log = random_log(&mut SmallRng::seed_from_u64(8), 20);
    let image = log.image();
    let written = written(&image);
    let ours = log.id();
    assert!(open(&written.file, &ours).is_some());
    for other in [
        FileId { number: 13, ..ours },
        FileId {
            generation: 4,
            ..ours
        },
        FileId {
            start: Lsn(ours.start.0 - 8),
            ..ours
        },
        FileId {
            end: Lsn(ours.end.0 - 8),
            ..ours
        },
    ] {
        assert!(open(&written.file, &other).is_none(), "{other:?}");
    }
    let of_other = Index::open(written.file.clone(), &[8; 16], &ours).unwrap();
    assert!(of_other.is_none());
}

#[test]
fn no_bytes_panic() {
    let mut rng = SmallRng::seed_from_u64(9);
    let log = random_log(&mut rng, 600);
    let index = Index::in_memory(log.image());
    let pages: Vec<PageId> = log.changes().0.into_keys().collect();
    for n in 0..20_000 {
        let page = pages[rng.random_range(0..pages.len())];
        let mut bytes = match n % 4 {
            0 => (0..rng.random_range(0..60))
                .map(|_| rng.random::<u8>() >> rng.random_range(0..8))
                .collect(),
            _ => block(&index, None, page).unwrap(),
        };
        for _ in 0..rng.random_range(1..4) {
            if let Some(at) = bytes
                .len()
                .checked_sub(1)
                .map(|last| rng.random_range(0..=last))
            {
                bytes[at] = rng.random();
            }
        }
        decode_block(&bytes, page);
        sections::decode_directory(&bytes, rng.random());
        sections::decode_units(&bytes);
        sections::decode_restarts(&bytes, Lsn(rng.random()));
        let whole = block(&index, None, page).unwrap();
        decode_block(&whole[..rng.random_range(0..whole.len())], page);
    }
}

/// Numbers that can't stand there are refused.
#[test]
fn what_can_not_be_is_refused() {
    let base = 7;
    for (entry, what) in [
        (&[][..], "no frame"),
        (&[0, 0], "a frame without length"),
        (&[0, 0x82, 0x80, 0x10], "a frame that is too long"),
        (&[0, 5, 0], "a change without operations"),
        (&[0, 5, 2, 0x10], "operations that are not there"),
        (
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 4],
            "an LSN beyond the last one",
        ),
    ] {
        let mut block = vec![base, 1, entry.len() as u8];
        block.extend(entry);
        assert_eq!(decode_block(&block, id(0, 1)), None, "{what}");
        assert_eq!(decode_block(&block, id(0, 0)), Some(Vec::new()), "{what}");
    }
    for (bytes, what) in [
        (&[2, 0][..], "a unit without pages"),
        (&[2, 0x80, 0x80, 4], "a page beyond the unit"),
        (&[3, 1, 2], "a page that starts as zeros without an entry"),
        (&[2, 1, 0, 1], "a unit twice"),
        (&[2], "half a unit"),
    ] {
        assert_eq!(sections::decode_units(bytes), None, "{what}");
    }
    assert_eq!(sections::decode_restarts(&[1, 1, 0, 1], START), None);
    assert_eq!(sections::decode_restarts(&[1, 1], Lsn(u64::MAX)), None);
    assert_eq!(sections::decode_directory(&[1, 9, 0, 0, 0, 0], 8), None);
}

#[test]
fn what_can_not_be_indexed_is_an_error() {
    let mut builder = IndexBuilder::new();
    let mut body = Vec::new();
    put_page(&mut body, id(1, 1), false);
    let bad = Frame {
        start: START,
        end: Lsn(START.0 + 16),
        body: &body,
    };
    let error = builder.add(&bad).unwrap_err();
    assert!(matches!(error, Error::CorruptFile { .. }), "{error}");
    put_write(&mut body, b"x");
    let far = Lsn(START.0 + (2 << 30));
    let long = Frame {
        start: START,
        end: far,
        body: &body,
    };
    let error = IndexBuilder::new().add(&long).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[test]
#[should_panic(expected = "IDX-1")]
fn frames_have_no_gap() {
    let mut log = Log::new();
    (0..3).for_each(|_| log.write([(id(1, 1), 5)]));
    log.frames.remove(1);
    log.image();
}

#[test]
fn indexes_have_names() {
    let path = index_path(Path::new("redo"), 12);
    assert_eq!(path, Path::new("redo/000012.vidx"));
    for (name, number) in [
        ("000012.vidx", Some(12)),
        ("1234567.vidx", Some(1_234_567)),
        ("000012.vlog", None),
        ("x.vidx", None),
        (".vidx", None),
    ] {
        assert_eq!(index_number_of(name), number, "{name}");
    }
}
