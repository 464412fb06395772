//! Which pages were written to their files since a backup began, so that an increment reads those alone.
//!
//! Time is divided into **periods**: each begins with a backup, before that reads its first page. Of each
//! there is a file in the data directory, `written-N.pages`, with the numbers of the pages that were written
//! in it. Nothing is noted before the first backup. (Percona's changed page tracking finds these pages in the
//! redo log, which a thread of its own reads once more. Here they are noted as they are written: whatever the
//! reason, and with what the cleaner knows anyway.)
//!
//! - **TRACK-1** A page that was written after a period began is noted in it, or in a later one, before it
//!   counts as clean. So of a page that is in none of them a copy made since then is as good as the file.
//! - **TRACK-2** Before a checkpoint is recorded, all that was noted is durable, and the checkpoint says how
//!   far the notes go: the number of the newest period, and where its file ends. What a crash takes was
//!   written with changes that the redo beyond the checkpoint has: recovery notes all pages that this names,
//!   whether they lack it or not, and pages whose counters it raises.
//! - **TRACK-3** If one of these can't be kept, because a file can't be written or is not what the checkpoint
//!   says, nothing is known any more of any period: who asks is told so. The database goes on.
//!
//! The periods' files stand beside each other with numbers that follow each other. One consists of a header
//! and of records, each with the pages that came since the one before; format.md has the bytes. What stands
//! behind the end that the checkpoint knows may be torn: then it is cut off.
//!
//! Mutexes: that of the files, which is held while they are written; then that of what was noted, which is
//! held for a moment. Who writes pages takes the second one alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use roaring::RoaringBitmap;

use crate::base::{Error, PageId, Result, SpaceId};
use crate::io::{Disk, OpenMode, replace_file};

/// There are no more of them: when another one begins, the oldest goes.
const MOST_PERIODS: usize = if cfg!(test) { 50 } else { 1000 };
const PREFIX: &str = "written-";
const EXTENSION: &str = ".pages";
const NEW: &str = "written.new";
const MAGIC: &[u8; 8] = b"written1";
/// Magic, the period's number and id, their checksum.
const HEADER: usize = 36;
const RECORD_MAGIC: &[u8; 8] = b"written>";
/// Magic, length, checksum.
const RECORD_HEADER: usize = 16;
/// A file is written anew if it has become larger than this, and three times as large as it has to be.
const COMPACTED_FROM: u64 = if cfg!(test) { 32 << 10 } else { 1 << 20 };

/// Names a period, in this database and in all others.
pub type PeriodId = u128;
/// How far the notes go: a period's number, and where its file ends.
pub type WrittenPlace = (u64, u64);

/// Pages of any tablespaces.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct PageSet(BTreeMap<SpaceId, RoaringBitmap>);

impl PageSet {
    /// Whether it was not in it.
    pub fn insert(&mut self, page: PageId) -> bool {
        self.0.entry(page.space).or_default().insert(page.no.0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of a tablespace.
    pub fn of_space(&self, space: SpaceId) -> Option<&RoaringBitmap> {
        self.0.get(&space)
    }

    fn bytes(&self) -> u64 {
        let bytes = self.0.values().map(|pages| 4 + pages.serialized_size());
        bytes.sum::<usize>() as u64
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes() as usize);
        for (space, pages) in &self.0 {
            out.extend(space.0.to_le_bytes());
            pages.serialize_into(&mut out).expect("memory takes it");
        }
        out
    }

    /// Adds what `encode` has made.
    fn add_encoded(&mut self, mut bytes: &[u8]) -> std::io::Result<()> {
        while let Some((space, rest)) = bytes.split_first_chunk() {
            bytes = rest;
            let pages = RoaringBitmap::deserialize_from(&mut bytes)?;
            *self
                .0
                .entry(SpaceId(u32::from_le_bytes(*space)))
                .or_default() |= pages;
        }
        match bytes {
            [] => Ok(()),
            _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// See the introduction.
pub struct WrittenPages {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    files: Mutex<Files>,
    /// In the newest period. `None`: there is none.
    noted: Mutex<Option<Noted>>,
}

#[derive(Default)]
struct Files {
    /// The oldest one first.
    periods: Vec<Period>,
    /// Where the next record of the newest one begins.
    end: u64,
    /// Why nothing is known of earlier ones.
    lost: Option<Error>,
}

impl Files {
    fn place(&self) -> Option<WrittenPlace> {
        self.periods.last().map(|newest| (newest.number, self.end))
    }
}

#[derive(Clone, Copy)]
struct Period {
    number: u64,
    id: PeriodId,
}

#[derive(Default)]
struct Noted {
    all: PageSet,
    /// Of these.
    unsaved: PageSet,
}

impl WrittenPages {
    /// Notes nothing until `load`, or until a period begins.
    pub fn new(disk: Arc<dyn Disk>, dir: &Path) -> WrittenPages {
        WrittenPages {
            disk,
            dir: dir.to_path_buf(),
            files: Mutex::default(),
            noted: Mutex::default(),
        }
    }

    /// Finds the periods that there are, before any page is written. `recorded`: what the checkpoint says of
    /// them; of what it does not know nothing is taken.
    ///
    /// # Errors
    ///
    /// Why nothing is known any more (TRACK-3). The database can be used.
    pub fn load(&self, recorded: Option<WrittenPlace>) -> Result<()> {
        let mut files = self.files.lock();
        let read = recorded.map_or(Ok(()), |recorded| self.read_all(&mut files, recorded));
        read.inspect_err(|e| self.forget(&mut files, e.clone()))
    }

    /// Of all files that there are, ascending.
    fn numbers(&self) -> Result<Vec<u64>> {
        let mut numbers: Vec<u64> = Vec::new();
        for entry in self.disk.list(&self.dir)? {
            let number = entry.name.strip_prefix(PREFIX);
            let number = number.and_then(|name| name.strip_suffix(EXTENSION));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn read_all(&self, files: &mut Files, (recorded, least): WrittenPlace) -> Result<()> {
        let numbers = self.numbers()?;
        let follow = numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        if !follow || !numbers.contains(&recorded) {
            let path = self.path(recorded);
            return Err(damaged(
                path,
                "it and those around it",
                "that one is not there",
            ));
        }
        let periods = numbers.iter().map(|&number| {
            let id = self.read_id(number)?;
            Ok(Period { number, id })
        });
        files.periods = periods.collect::<Result<_>>()?;
        let mut all = PageSet::default();
        // Others may have begun since the checkpoint.
        for number in numbers.iter().filter(|number| **number >= recorded) {
            let (path, bytes) = (self.path(*number), self.read(*number)?);
            all = PageSet::default();
            let end = decode_records(&path, &bytes, &mut all)?;
            if *number == recorded && (end as u64) < least {
                let expected = format!("records up to byte {least}");
                return Err(damaged(path, &expected, &format!("up to {end}")));
            }
            if end < bytes.len() {
                // What follows must not be taken for a record behind it.
                let file = self.disk.open(&path, OpenMode::Existing)?;
                file.set_len(end as u64)?;
                file.sync()?;
            }
            files.end = end as u64;
        }
        *self.noted.lock() = Some(Noted {
            all,
            unsaved: PageSet::default(),
        });
        Ok(())
    }

    /// These pages were written to their files, and do not count as clean yet.
    pub fn note(&self, pages: impl Iterator<Item = PageId>) {
        let mut noted = self.noted.lock();
        let Some(Noted { all, unsaved }) = &mut *noted else {
            return;
        };
        for page in pages {
            if page.space.is_logged() && all.insert(page) {
                unsaved.insert(page);
            }
        }
    }

    /// Makes durable what was noted, and says how far that goes, for the checkpoint (TRACK-2).
    pub fn save(&self) -> Option<WrittenPlace> {
        let mut files = self.files.lock();
        let unsaved = {
            let mut noted = self.noted.lock();
            std::mem::take(&mut noted.as_mut()?.unsaved)
        };
        if !unsaved.is_empty()
            && let Err(e) = self.append(&mut files, &unsaved)
        {
            self.forget(&mut files, e);
        }
        files.place()
    }

    /// Begins a period. What is noted from now on belongs to it. Before the next checkpoint the control file
    /// has to say how far the notes go now, or the period is lost with a crash.
    pub fn begin(&self) -> Result<(PeriodId, WrittenPlace)> {
        self.save();
        let mut files = self.files.lock();
        if files.periods.is_empty() {
            // What is left of others must not be taken for files of this one's time.
            let left = self.numbers()?.into_iter();
            left.map(|number| self.path(number))
                .try_for_each(|path| self.disk.remove(&path))?;
        }
        while files.periods.len() >= MOST_PERIODS {
            self.remove(&[files.periods.remove(0).number]);
        }
        let last = files.periods.last();
        let number = last.map_or(1, |period| period.number + 1);
        let id = uuid::Uuid::new_v4().as_u128();
        self.replace(number, &header(number, id))?;
        files.periods.push(Period { number, id });
        files.end = HEADER as u64;
        let mut noted = self.noted.lock();
        let before = noted.replace(Noted::default());
        // It is not in the older file, and may as well be in this one.
        if let (Some(before), Some(now)) = (before, &mut *noted) {
            now.all = before.unsaved.clone();
            now.unsaved = before.unsaved;
        }
        Ok((id, (number, files.end)))
    }

    /// The pages that were written since this period began. `None`: it is not known.
    ///
    /// # Errors
    ///
    /// `CorruptFile`, `Io`: a file can't be read.
    pub fn since(&self, id: PeriodId) -> Result<Option<PageSet>> {
        let files = self.files.lock();
        let periods = files.periods.iter();
        let known: Vec<_> = periods.skip_while(|period| period.id != id).collect();
        let Some((_, older)) = known.split_last() else {
            return Ok(None);
        };
        let Some(mut since) = self.noted.lock().as_ref().map(|noted| noted.all.clone()) else {
            return Ok(None);
        };
        for period in older {
            let (path, bytes) = (self.path(period.number), self.read(period.number)?);
            let end = decode_records(&path, &bytes, &mut since)?;
            if end != bytes.len() {
                let found = format!("{} bytes", bytes.len());
                return Err(damaged(path, &format!("records up to byte {end}"), &found));
            }
        }
        Ok(Some(since))
    }

    /// Whether `since` knows.
    pub fn knows(&self, id: PeriodId) -> bool {
        let files = self.files.lock();
        files.periods.iter().any(|period| period.id == id)
    }

    /// Why nothing is known of earlier periods, if something has happened since the start.
    pub fn lost(&self) -> Option<Error> {
        self.files.lock().lost.clone()
    }

    /// Adds a record to the newest file.
    fn append(&self, files: &mut Files, pages: &PageSet) -> Result<()> {
        let Period { number, id } = *files.periods.last().expect("pages are noted in a period");
        let record = record(pages);
        let end = files.end + record.len() as u64;
        if let Some(all) = self.all_if_compact(end) {
            let whole = [header(number, id), all].concat();
            files.end = whole.len() as u64;
            return self.replace(number, &whole);
        }
        let file = self.disk.open(&self.path(number), OpenMode::Existing)?;
        file.write_at(&record, files.end)?;
        file.sync()?;
        files.end = end;
        Ok(())
    }

    /// One record of all that was noted, if that is much less than `end` bytes.
    fn all_if_compact(&self, end: u64) -> Option<Vec<u8>> {
        let noted = self.noted.lock();
        let all = &noted.as_ref()?.all;
        (end > COMPACTED_FROM && end > 3 * all.bytes()).then(|| record(all))
    }

    fn replace(&self, number: u64, bytes: &[u8]) -> Result<()> {
        let names = (&*self.dir.join(NEW), &*self.path(number));
        replace_file(&*self.disk, names, OpenMode::CreatePrivate, bytes)
    }

    /// TRACK-3. The next checkpoint says so, too; until that is recorded a crash has recovery note again what
    /// is lacking now.
    fn forget(&self, files: &mut Files, why: Error) {
        *self.noted.lock() = None;
        let numbers = files.periods.drain(..).map(|period| period.number);
        self.remove(&numbers.collect::<Vec<_>>());
        files.lost = Some(why);
    }

    /// Files that nobody goes by any more.
    fn remove(&self, numbers: &[u64]) {
        for number in numbers {
            // One that stays is removed when the next period begins.
            let _ = self.disk.remove(&self.path(*number));
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{PREFIX}{number}{EXTENSION}"))
    }

    fn read(&self, number: u64) -> Result<Vec<u8>> {
        let file = self.disk.open(&self.path(number), OpenMode::ReadOnly)?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// What the header of a file says.
    fn read_id(&self, number: u64) -> Result<PeriodId> {
        let path = self.path(number);
        let file = self.disk.open(&path, OpenMode::ReadOnly)?;
        let mut head = [0; HEADER];
        if file.len()? >= HEADER as u64 {
            file.read_at(&mut head, 0)?;
        }
        let id = PeriodId::from_le_bytes(head[16..32].try_into().expect("16 bytes"));
        match header(number, id) == head {
            true => Ok(id),
            false => Err(damaged(path, "a period's header", "another one")),
        }
    }
}

fn header(number: u64, id: PeriodId) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend(number.to_le_bytes());
    header.extend(id.to_le_bytes());
    header.extend(crc32c::crc32c(&header).to_le_bytes());
    header
}

fn record(pages: &PageSet) -> Vec<u8> {
    let body = pages.encode();
    let mut record = RECORD_MAGIC.to_vec();
    record.extend((body.len() as u32).to_le_bytes());
    record.extend(crc32c::crc32c(&body).to_le_bytes());
    record.extend(body);
    record
}

/// The body of the record at the beginning, if it is whole.
fn body_of(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(RECORD_MAGIC)?;
    let (len, rest) = rest.split_first_chunk()?;
    let (crc, rest) = rest.split_first_chunk()?;
    let body = rest.get(..u32::from_le_bytes(*len) as usize)?;
    (crc32c::crc32c(body) == u32::from_le_bytes(*crc)).then_some(body)
}

/// Adds the pages of all records, and returns where these end. One that is not whole is the last one, or the
/// file is damaged.
fn decode_records(path: &Path, bytes: &[u8], pages: &mut PageSet) -> Result<usize> {
    let mut at = HEADER;
    while let Some(body) = bytes.get(at..).and_then(body_of) {
        let added = pages.add_encoded(body);
        added.map_err(|e| damaged(path.into(), "numbers of pages", &e.to_string()))?;
        at += RECORD_HEADER + body.len();
    }
    let mut rest = at + 1..bytes.len();
    match rest.find(|at| body_of(&bytes[*at..]).is_some()) {
        None => Ok(at),
        Some(next) => Err(damaged(
            path.into(),
            &format!("a record at {at}"),
            &format!("the next one at {next}"),
        )),
    }
}

fn damaged(path: PathBuf, expected: &str, found: &str) -> Error {
    Error::CorruptFile {
        path,
        expected: expected.into(),
        found: found.into(),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::fs;

    use super::*;
    use crate::base::PageNo;
    use crate::io::RealDisk;

    fn page(space: u32, no: u32) -> PageId {
        PageId::new(SpaceId(space), PageNo(no))
    }

    fn set(pages: &[PageId]) -> PageSet {
        let mut set = PageSet::default();
        for page in pages {
            set.insert(*page);
        }
        set
    }

    fn new(dir: &Path) -> WrittenPages {
        WrittenPages::new(Arc::new(RealDisk), dir)
    }

    fn opened(dir: &Path, recorded: Option<WrittenPlace>) -> WrittenPages {
        let written = new(dir);
        written.load(recorded).unwrap();
        written
    }

    fn noted(written: &WrittenPages, pages: &[PageId]) -> Option<WrittenPlace> {
        written.note(pages.iter().copied());
        written.save()
    }

    fn file(dir: &Path, number: u64) -> PathBuf {
        dir.join(format!("written-{number}.pages"))
    }

    fn files(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().count()
    }

    /// TRACK-1, TRACK-2
    #[test]
    fn what_was_noted_since_a_period_began_is_known_after_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let written = opened(dir.path(), None);
        assert_eq!(noted(&written, &[page(5, 1)]), None);
        assert_eq!(written.since(1).unwrap(), None);
        let (first, _) = written.begin().unwrap();
        noted(&written, &[page(5, 2), page(7, 3)]);
        written.note([page(5, 3)].into_iter());
        let before = written.save();
        let (second, _) = written.begin().unwrap();
        let place = noted(&written, &[page(5, 2), page(9, 100_000)]);
        let check = |written: &WrittenPages| {
            let of_second = [page(5, 2), page(9, 100_000)];
            let all = [&of_second[..], &[page(5, 3), page(7, 3)]].concat();
            assert_eq!(written.since(first).unwrap(), Some(set(&all)));
            assert_eq!(written.since(second).unwrap(), Some(set(&of_second)));
        };
        check(&written);
        written.note([page(1, 1)].into_iter());
        // It is gone, and was in no checkpoint. A checkpoint may be from before the period.
        check(&opened(dir.path(), place));
        check(&opened(dir.path(), before));
        // A torn record likewise.
        let newest = file(dir.path(), 2);
        let mut bytes = fs::read(&newest).unwrap();
        bytes.extend(&record(&set(&[page(3, 3)]))[..20]);
        fs::write(&newest, bytes).unwrap();
        let again = opened(dir.path(), place);
        check(&again);
        let place = noted(&again, &[page(8, 8)]);
        let last = opened(dir.path(), place).since(second).unwrap().unwrap();
        assert!(last.of_space(SpaceId(8)).is_some());
        // A checkpoint that knows of none: an older program's, or what was lost.
        let none = opened(dir.path(), None);
        assert!(!none.knows(first) && !none.knows(second));
        none.begin().unwrap();
        assert_eq!(files(dir.path()), 1);
    }

    /// TRACK-3
    #[test]
    fn of_damaged_files_nothing_is_known() {
        let change = |path: &Path, at: usize| {
            let mut bytes = fs::read(path).unwrap();
            let at = at.min(bytes.len() - 1);
            bytes[at] ^= 1;
            fs::write(path, bytes).unwrap();
        };
        let remove = |path: &Path, _| fs::remove_file(path).unwrap();
        let cut = |path: &Path, at: usize| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() - at]).unwrap();
        };
        type Damage<'a> = &'a dyn Fn(&Path, usize);
        let cases: [(u64, usize, Damage<'_>, &str); 7] = [
            (1, 20, &change, "header"),
            (3, 3, &change, "header"),
            (3, HEADER + 20, &change, "record"),
            (3, usize::MAX, &change, "records up to"),
            (3, 1, &cut, "records up to"),
            (3, 0, &remove, "not there"),
            (2, 0, &remove, "not there"),
        ];
        for (number, at, damage, expected) in cases {
            let dir = tempfile::tempdir().unwrap();
            let written = opened(dir.path(), None);
            let mut place = None;
            let ids = [1, 2, 3].map(|no| {
                let (id, _) = written.begin().unwrap();
                noted(&written, &[page(5, no)]);
                place = noted(&written, &[page(6, no)]);
                id
            });
            damage(&file(dir.path(), number), at);
            let again = new(dir.path());
            let why = again.load(place).unwrap_err().to_string();
            assert!(why.contains(expected), "{why}");
            assert!(ids.iter().all(|id| !again.knows(*id)));
            assert_eq!(again.save(), None);
            assert!(again.begin().is_ok());
        }
    }

    /// TRACK-3: a file that can't be written.
    #[test]
    fn what_can_not_be_saved_is_not_taken_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let written = opened(dir.path(), None);
        let (first, _) = written.begin().unwrap();
        let place = noted(&written, &[page(5, 1)]);
        fs::remove_file(file(dir.path(), 1)).unwrap();
        assert_eq!(noted(&written, &[page(5, 2)]), None);
        assert_eq!(written.since(first).unwrap(), None);
        assert!(written.lost().is_some());
        // The checkpoint could not be recorded that says so.
        assert!(new(dir.path()).load(place).is_err());
        let (second, _) = written.begin().unwrap();
        noted(&written, &[page(5, 3)]);
        assert_eq!(written.since(second).unwrap(), Some(set(&[page(5, 3)])));
    }

    /// A file that is cut off while the database is used.
    #[test]
    fn what_was_cut_off_meanwhile_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let written = opened(dir.path(), None);
        let (first, _) = written.begin().unwrap();
        noted(&written, &[page(5, 1)]);
        let (second, _) = written.begin().unwrap();
        let whole = fs::read(file(dir.path(), 1)).unwrap();
        for len in [0, HEADER - 1, HEADER + 3, whole.len() - 1] {
            fs::write(file(dir.path(), 1), &whole[..len]).unwrap();
            assert!(written.since(first).is_err(), "{len}");
        }
        assert!(written.since(second).unwrap().is_some());
    }

    /// Neither many small records nor many periods fill the disk.
    #[test]
    fn files_stay_small() {
        const PAGES: u32 = 2_000;
        let dir = tempfile::tempdir().unwrap();
        let written = opened(dir.path(), None);
        let (first, _) = written.begin().unwrap();
        let mut place = None;
        for no in 0..PAGES {
            place = noted(&written, &[page(5, no * 7 % PAGES)]);
        }
        let bytes = fs::metadata(file(dir.path(), 1)).unwrap().len();
        assert!(bytes <= COMPACTED_FROM + 100, "{bytes}");
        let again = opened(dir.path(), place);
        let since = again.since(first).unwrap().unwrap();
        let of_space = since.of_space(SpaceId(5)).unwrap();
        assert_eq!(of_space.len(), u64::from(PAGES));
        for _ in 0..MOST_PERIODS {
            again.begin().unwrap();
        }
        assert!(!again.knows(first));
        assert_eq!(files(dir.path()), MOST_PERIODS);
    }
}
