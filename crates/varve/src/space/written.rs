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
//! - **TRACK-2** Before a checkpoint is recorded, all that was noted is durable. What a crash takes was
//!   written with changes that the redo beyond the checkpoint has: recovery notes all pages that this names,
//!   whether they lack it or not, and pages whose counters it raises.
//! - **TRACK-3** If one of these can't be kept, because a file can't be written or is damaged, nothing is
//!   known any more of any period: who asks is told so. The database goes on.
//!
//! The periods' files stand beside each other with numbers that follow each other. One consists of a header
//! and of records, each with the pages that came since the one before; format.md has the bytes. Only the last
//! record of the newest file can be torn by a crash: it is of a checkpoint that was never recorded.
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
const MOST_PERIODS: usize = 64;
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

    fn add(&mut self, other: &PageSet) {
        for (space, pages) in &other.0 {
            *self.0.entry(*space).or_default() |= pages;
        }
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

    /// Finds the periods that there are, before any page is written. What is wrong with them, if nothing is
    /// known any more (TRACK-3).
    pub fn load(&self) -> Result<Option<Error>> {
        let mut files = self.files.lock();
        match self.read_all(&mut files) {
            Err(e @ Error::CorruptFile { .. }) => {
                self.forget(&mut files)?;
                Ok(Some(e))
            }
            read => read.map(|()| None),
        }
    }

    fn read_all(&self, files: &mut Files) -> Result<()> {
        let mut numbers: Vec<u64> = Vec::new();
        for entry in self.disk.list(&self.dir)? {
            let number = entry.name.strip_prefix(PREFIX);
            let number = number.and_then(|name| name.strip_suffix(EXTENSION));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        let periods = numbers.iter().map(|&number| Period { number, id: 0 });
        files.periods = periods.collect();
        if let Some(pair) = numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
            let path = self.path(pair[1]);
            return Err(damaged(path, "the file that comes before it", "none"));
        }
        for period in &mut files.periods {
            period.id = self.read_id(period.number)?;
        }
        let Some(&number) = numbers.last() else {
            return Ok(());
        };
        let bytes = self.read(number)?;
        let mut all = PageSet::default();
        let end = decode_records(&self.path(number), &bytes, &mut all)?;
        if end < bytes.len() {
            // What follows must not be taken for a record behind it.
            let file = self.disk.open(&self.path(number), OpenMode::Existing)?;
            file.set_len(end as u64)?;
            file.sync()?;
        }
        files.end = end as u64;
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

    /// Makes durable what was noted (TRACK-2).
    ///
    /// # Errors
    ///
    /// It is neither durable nor known to be lacking: no checkpoint may be recorded.
    pub fn save(&self) -> Result<()> {
        let mut files = self.files.lock();
        let unsaved = {
            let mut noted = self.noted.lock();
            noted
                .as_mut()
                .map(|noted| std::mem::take(&mut noted.unsaved))
        };
        match unsaved {
            Some(none) if none.is_empty() => Ok(()),
            Some(some) if self.append(&mut files, &some).is_ok() => Ok(()),
            // Also what could not be forgotten last time.
            _ => self.forget(&mut files),
        }
    }

    /// Begins a period, and returns its name. What is noted from now on belongs to it.
    pub fn begin(&self) -> Result<PeriodId> {
        self.save()?;
        let mut files = self.files.lock();
        while files.periods.len() >= MOST_PERIODS {
            self.disk.remove(&self.path(files.periods[0].number))?;
            files.periods.remove(0);
        }
        let last = files.periods.last();
        let number = last.map_or(1, |period| period.number + 1);
        let id = uuid::Uuid::new_v4().as_u128();
        self.replace(number, &header(number, id))?;
        files.periods.push(Period { number, id });
        files.end = HEADER as u64;
        {
            let mut noted = self.noted.lock();
            let before = noted.replace(Noted::default());
            // It is not in the older file, and may as well be in this one.
            if let (Some(before), Some(now)) = (before, &mut *noted) {
                now.all = before.unsaved.clone();
                now.unsaved = before.unsaved;
            }
        }
        Ok(id)
    }

    /// Nothing has come of the backup with which this period began: it becomes a part of the one before, if
    /// it is the newest one.
    pub fn take_back(&self, id: PeriodId) -> Result<()> {
        let mut files = self.files.lock();
        let [.., before, last] = files.periods[..] else {
            let is_it = matches!(files.periods[..], [only] if only.id == id);
            return if is_it {
                self.forget(&mut files)
            } else {
                Ok(())
            };
        };
        if last.id != id {
            return Ok(());
        }
        let bytes = self.read(before.number)?;
        let mut all = PageSet::default();
        let end = decode_records(&self.path(before.number), &bytes, &mut all)?;
        let ends = std::mem::replace(&mut files.end, end as u64);
        files.periods.pop();
        let now = self.noted.lock().as_ref().map(|noted| noted.all.clone());
        let now = now.unwrap_or_default();
        if let Err(e) = self.append(&mut files, &now) {
            files.periods.push(last);
            files.end = ends;
            return Err(e);
        }
        if let Some(noted) = &mut *self.noted.lock() {
            noted.all.add(&all);
        }
        // Until it has gone all is in both.
        self.disk.remove(&self.path(last.number))
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
            if end < bytes.len() {
                let found = format!("{} bytes", bytes.len() - end);
                return Err(damaged(path, "nothing behind its last record", &found));
            }
        }
        Ok(Some(since))
    }

    /// Whether `since` knows.
    pub fn knows(&self, id: PeriodId) -> bool {
        let files = self.files.lock();
        files.periods.iter().any(|period| period.id == id)
    }

    /// Adds a record to the newest file.
    fn append(&self, files: &mut Files, pages: &PageSet) -> Result<()> {
        let Period { number, id } = *files.periods.last().expect("pages are noted in a period");
        let record = record(pages);
        let end = files.end + record.len() as u64;
        if end > COMPACTED_FROM
            && let Some(noted) = &*self.noted.lock()
            && end > 3 * noted.all.bytes()
        {
            let mut whole = header(number, id);
            whole.extend(self::record(&noted.all));
            files.end = whole.len() as u64;
            return self.replace(number, &whole);
        }
        let file = self.disk.open(&self.path(number), OpenMode::Existing)?;
        file.write_at(&record, files.end)?;
        file.sync()?;
        files.end = end;
        Ok(())
    }

    fn replace(&self, number: u64, bytes: &[u8]) -> Result<()> {
        let names = (&*self.dir.join(NEW), &*self.path(number));
        replace_file(&*self.disk, names, OpenMode::CreatePrivate, bytes)
    }

    /// TRACK-3. The newest file's header goes first, and is durably gone: a crash leaves none that can be
    /// taken for all there is.
    fn forget(&self, files: &mut Files) -> Result<()> {
        *self.noted.lock() = None;
        if files.periods.is_empty() {
            return Ok(());
        }
        if let Some(newest) = files.periods.last() {
            let file = self
                .disk
                .open(&self.path(newest.number), OpenMode::Existing)?;
            file.write_at(&[0; HEADER], 0)?;
            file.sync()?;
        }
        while let Some(period) = files.periods.last() {
            self.disk.remove(&self.path(period.number))?;
            files.periods.pop();
        }
        self.disk.sync_dir(&self.dir)
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
    while let Some(body) = body_of(&bytes[at..]) {
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

    fn opened(dir: &Path) -> WrittenPages {
        let written = WrittenPages::new(Arc::new(RealDisk), dir);
        assert!(written.load().unwrap().is_none());
        written
    }

    fn noted(written: &WrittenPages, pages: &[PageId]) {
        written.note(pages.iter().copied());
        written.save().unwrap();
    }

    fn file(dir: &Path, number: u64) -> PathBuf {
        dir.join(format!("written-{number}.pages"))
    }

    /// TRACK-1, TRACK-2
    #[test]
    fn what_was_noted_since_a_period_began_is_known_after_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let written = opened(dir.path());
        noted(&written, &[page(5, 1)]);
        assert_eq!(written.since(1).unwrap(), None);
        let first = written.begin().unwrap();
        noted(&written, &[page(5, 2), page(7, 3)]);
        written.note([page(5, 3)].into_iter());
        let second = written.begin().unwrap();
        noted(&written, &[page(5, 2), page(9, 100_000)]);
        let check = |written: &WrittenPages| {
            let of_second = [page(5, 2), page(9, 100_000)];
            let all = [&of_second[..], &[page(5, 3), page(7, 3)]].concat();
            assert_eq!(written.since(first).unwrap(), Some(set(&all)));
            assert_eq!(written.since(second).unwrap(), Some(set(&of_second)));
        };
        check(&written);
        written.note([page(1, 1)].into_iter());
        // It is gone, and was in no checkpoint.
        let again = opened(dir.path());
        check(&again);
        // A torn record likewise.
        let newest = file(dir.path(), 2);
        let mut bytes = fs::read(&newest).unwrap();
        bytes.extend(&record(&set(&[page(3, 3)]))[..20]);
        fs::write(&newest, bytes).unwrap();
        let again = opened(dir.path());
        check(&again);
        noted(&again, &[page(8, 8)]);
        let last = opened(dir.path()).since(second).unwrap().unwrap();
        assert!(last.of_space(SpaceId(8)).is_some());
    }

    /// TRACK-3
    #[test]
    fn of_damaged_files_nothing_is_known() {
        for (number, at, expected) in [
            (1, 20, "header"),
            (2, 3, "header"),
            (2, HEADER + 20, "record"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let written = opened(dir.path());
            let ids = [1, 2].map(|no| {
                let id = written.begin().unwrap();
                noted(&written, &[page(5, no)]);
                noted(&written, &[page(6, no)]);
                id
            });
            let path = file(dir.path(), number);
            let mut bytes = fs::read(&path).unwrap();
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            let again = WrittenPages::new(Arc::new(RealDisk), dir.path());
            let why = again.load().unwrap().unwrap().to_string();
            assert!(why.contains(expected), "{why}");
            assert!(ids.iter().all(|id| !again.knows(*id)));
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
            assert!(again.begin().is_ok());
        }
        let dir = tempfile::tempdir().unwrap();
        let written = opened(dir.path());
        for _ in 0..3 {
            written.begin().unwrap();
        }
        fs::remove_file(file(dir.path(), 2)).unwrap();
        let again = WrittenPages::new(Arc::new(RealDisk), dir.path());
        assert!(again.load().unwrap().is_some());
    }

    /// TRACK-3: a file that can't be written.
    #[test]
    fn what_can_not_be_saved_is_not_taken_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let written = opened(dir.path());
        let first = written.begin().unwrap();
        noted(&written, &[page(5, 1)]);
        fs::remove_file(file(dir.path(), 1)).unwrap();
        written.note([page(5, 2)].into_iter());
        // It can't even be said that it is lacking.
        assert!(written.save().is_err());
        assert_eq!(written.since(first).unwrap(), None);
        assert!(written.begin().is_err());
    }

    #[test]
    fn a_period_of_nothing_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let written = opened(dir.path());
        let first = written.begin().unwrap();
        noted(&written, &[page(5, 1)]);
        let second = written.begin().unwrap();
        noted(&written, &[page(5, 2)]);
        written.note([page(5, 3)].into_iter());
        written.take_back(first).unwrap();
        written.take_back(second).unwrap();
        let all = Some(set(&[page(5, 1), page(5, 2), page(5, 3)]));
        assert_eq!(written.since(first).unwrap(), all);
        assert!(!written.knows(second));
        written.save().unwrap();
        assert_eq!(opened(dir.path()).since(first).unwrap(), all);
        written.take_back(first).unwrap();
        assert!(!written.knows(first));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// Neither many small records nor many periods fill the disk.
    #[test]
    fn files_stay_small() {
        const PAGES: u32 = 2_000;
        let dir = tempfile::tempdir().unwrap();
        let written = opened(dir.path());
        let first = written.begin().unwrap();
        for no in 0..PAGES {
            noted(&written, &[page(5, no * 7 % PAGES)]);
        }
        let bytes = fs::metadata(file(dir.path(), 1)).unwrap().len();
        assert!(bytes <= COMPACTED_FROM + 100, "{bytes}");
        let again = opened(dir.path());
        let since = again.since(first).unwrap().unwrap();
        assert_eq!(since.of_space(SpaceId(5)).unwrap().len(), u64::from(PAGES));
        for _ in 0..MOST_PERIODS {
            again.begin().unwrap();
        }
        assert!(!again.knows(first));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), MOST_PERIODS);
    }
}
