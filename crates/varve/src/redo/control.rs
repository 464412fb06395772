//! The control file `varve.ctl`: where recovery begins.
//!
//! Two copies of one 512-byte block, at offsets 0 and 4096, each with a sequence number and a checksum. A
//! write goes to the copy that is not the newest and is synced before it counts.
//!
//! - **CTL-1** At any moment at least one copy is complete, and the newest complete copy is the last one
//!   whose write returned, or the one that was being written.
//! - **CTL-2** The file's name is durable before `create` returns.
//! - **CTL-3** Ids from `next_table`, `next_index` and `next_space` on, as the newest copy has them, were
//!   never given. They are a few ahead of the next ones after every write, so that drawing some, for a
//!   table that is made or emptied or for an undo tablespace that is truncated, mostly writes nothing: the
//!   sync would wait for all that the disk is doing.
//! - **CTL-4** If a copy is not whole it may be the newest one. What was given since the other one was
//!   written is not given again: the ids of one table and its indexes, whose drawing wrote it, and those up
//!   to the next write. Nor is it known that nothing came after a clean shutdown: the redo is read.
//! - **CTL-5** No file is of a newer format version than the newest copy. An older program refuses a file
//!   with a copy that is newer than itself, so the first thing that is written to an older database is this
//!   file ([`ControlFile::upgrade`]).
//!
//! Writers hold the file's mutex. A failed write or sync is returned; the caller poisons the database,
//! because the state on disk is not known any more.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::intro::{FORMAT_VERSION, FileIntro, INTRO_BYTES, NO_SPACE, version};
use crate::base::{Durations, Error, Lsn, Result, SpaceId, TEMP_SPACE};
use crate::io::{Disk, DiskFile, OpenMode};

/// The control file's name in the data directory.
pub const CONTROL_FILE: &str = "varve.ctl";

const MAGIC: &[u8; 8] = b"VARVECTL";
const COPY_BYTES: usize = 512;
const COPY_OFFSETS: [u64; 2] = [0, 4096];
const FILE_BYTES: u64 = 8192;
/// Ids of tables and indexes from here on are refused: 8 bytes on disk.
const LAST_ID: u64 = u64::MAX >> 1;
/// Of a write. A copy with a later one is refused: none can come after it.
const LAST_SEQUENCE: u64 = u64::MAX - 1;
/// Ids that may be given until the next write (CTL-3).
const SPARE_SPACES: u32 = 16;
const SPARE_TABLES: u64 = 16;
const SPARE_INDEXES: u64 = 64;
/// More ids of indexes than one table has (CTL-4).
const INDEXES_PASSED: u64 = 1024;

/// What the control file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    pub page_size: u32,
    pub uuid: [u8; 16],
    /// Replay starts here: every change below is in a synced data page.
    pub checkpoint: Lsn,
    /// Nothing was written after the checkpoint: no page is dirty, no transaction unfinished.
    pub clean_shutdown: bool,
    /// After a clean shutdown: the table files are those that the definitions name.
    pub files_match: bool,
    /// There may be encrypted tables, so that undo is encrypted, too.
    pub encrypted: bool,
    /// How far is known which pages were written (TRACK-2): the number of a file, not 0, and where it ends.
    pub written: Option<(u64, u64)>,
    /// Transaction ids below this may have been used.
    pub id_limit: u64,
    pub next_space: u32,
    pub next_table: u64,
    pub next_index: u64,
}

impl Control {
    /// What is written (CTL-3). The last ids can't be drawn ahead.
    fn with_ids_ahead(&self) -> Control {
        let space = self.next_space.saturating_add(SPARE_SPACES);
        let ahead = |next: u64, spare| next.saturating_add(spare).min(LAST_ID).max(next);
        Control {
            next_space: space.min(TEMP_SPACE.0).max(self.next_space),
            next_table: ahead(self.next_table, SPARE_TABLES),
            next_index: ahead(self.next_index, SPARE_INDEXES),
            ..*self
        }
    }

    /// CTL-3: whether all ids that were given are from before those that `written` would give next.
    fn gives_no_more_than(&self, written: &Control) -> bool {
        self.next_space <= written.next_space
            && self.next_table <= written.next_table
            && self.next_index <= written.next_index
    }
}

/// What a copy says, with its sequence number and its format version.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    pub control: Control,
    pub sequence: u64,
    pub version: u32,
}

/// `None` for one that was never written.
pub type ControlCopy = Option<Copied>;

/// Each copy of the control file in `dir`.
pub fn control_copies(disk: &dyn Disk, dir: &Path) -> Result<[Result<ControlCopy>; 2]> {
    let file = disk.open(&dir.join(CONTROL_FILE), OpenMode::ReadOnly)?;
    Ok(COPY_OFFSETS.map(|offset| {
        let mut block = [0u8; COPY_BYTES];
        let len = file.len()?;
        if len < offset + COPY_BYTES as u64 {
            let expected = format!("{FILE_BYTES} bytes");
            return Err(damaged(file.path(), expected, len.to_string()));
        }
        file.read_at(&mut block, offset)?;
        match block.iter().all(|&b| b == 0) {
            true => Ok(None),
            false => decode(&block, file.path()).map(Some),
        }
    }))
}

/// The open control file.
pub struct ControlFile {
    file: Arc<dyn DiskFile>,
    state: Mutex<ControlState>,
}

struct ControlState {
    /// As the newest copy has it, but for the ids that were drawn since.
    control: Control,
    /// As the newest copy has it: ids from here on are not to be given before they are written (CTL-3).
    ends: Control,
    sequence: u64,
    /// Index of the newest copy.
    newest: usize,
    /// The older format version of the two copies' when the file was opened.
    oldest_version: u32,
}

impl ControlFile {
    /// Creates the file in `dir` with `control` in it, durably.
    pub fn create(disk: &dyn Disk, dir: &Path, control: Control) -> Result<ControlFile> {
        ControlFile::create_as(disk, dir, control, OpenMode::CreateNew)
    }

    /// The same by one of the modes that create a file.
    pub fn create_as(
        disk: &dyn Disk,
        dir: &Path,
        control: Control,
        mode: OpenMode,
    ) -> Result<ControlFile> {
        let file = disk.open(&dir.join(CONTROL_FILE), mode)?;
        file.allocate(FILE_BYTES)?;
        file.write_at(&encode(&control, 1), COPY_OFFSETS[0])?;
        file.sync()?;
        disk.sync_dir(dir)?;
        Ok(ControlFile {
            file,
            state: Mutex::new(ControlState {
                control,
                ends: control,
                sequence: 1,
                newest: 0,
                oldest_version: FORMAT_VERSION,
            }),
        })
    }

    /// Opens the file in `dir` and reads its newest complete copy. Tells `damaged` of one that is not whole:
    /// it is written in one sector, so no crash leaves it like that.
    pub fn open(
        disk: &dyn Disk,
        dir: &Path,
        damaged: &mut dyn FnMut(&Error),
    ) -> Result<ControlFile> {
        let mut best: Option<ControlState> = None;
        let (mut refusal, mut oldest_version) = (None, FORMAT_VERSION);
        for (newest, copy) in control_copies(disk, dir)?.into_iter().enumerate() {
            if let Ok(Some(copy)) = &copy {
                oldest_version = oldest_version.min(copy.version);
            }
            match copy {
                Ok(Some(copy)) if best.as_ref().is_none_or(|b| b.sequence < copy.sequence) => {
                    best = Some(ControlState {
                        control: copy.control,
                        ends: copy.control,
                        sequence: copy.sequence,
                        newest,
                        oldest_version,
                    });
                }
                Ok(_) => {}
                // A copy that is whole but from a newer version must not be passed over for the older copy.
                Err(e @ Error::Unsupported { .. }) => return Err(e),
                Err(e) => refusal = Some(e),
            }
        }
        let path = dir.join(CONTROL_FILE);
        let Some(mut state) = best else {
            let empty = || self::damaged(&path, "a copy of it".into(), "zeros".into());
            return Err(refusal.unwrap_or_else(empty));
        };
        state.oldest_version = oldest_version;
        if let Some(e) = &refusal {
            damaged(e);
            pass_over(&mut state.control);
            state.ends = state.control;
        }
        Ok(ControlFile {
            file: disk.open(&path, OpenMode::Existing)?,
            state: Mutex::new(state),
        })
    }

    pub fn control(&self) -> Control {
        self.state.lock().control
    }

    /// Has both copies in this program's format version, durably, if one of them is older (CTL-5). Returns
    /// the older version. Can be interrupted and repeated.
    pub fn upgrade(&self) -> Result<Option<u32>> {
        let mut state = self.state.lock();
        let found = state.oldest_version;
        if found == FORMAT_VERSION {
            return Ok(None);
        }
        for _ in COPY_OFFSETS {
            self.write(&mut state, |_| ())?;
        }
        state.oldest_version = FORMAT_VERSION;
        Ok(Some(found))
    }

    /// Takes an id for a table, so many for indexes, and one for a tablespace.
    pub fn draw_ids(&self, indexes: u64) -> Result<(u64, u64, u32)> {
        let mut state = self.state.lock();
        let mut control = state.control;
        let drawn = draw_ids(&mut control, indexes)?;
        match control.gives_no_more_than(&state.ends) {
            true => state.control = control,
            false => self.write(&mut state, |written| *written = control)?,
        }
        Ok(drawn)
    }

    /// Takes an id for a tablespace that is no table's. Notes how long others were kept from the file.
    pub fn draw_space_id(&self, held: &Durations) -> Result<SpaceId> {
        let mut state = self.state.lock();
        let _held = held.begin();
        let id = state.control.next_space;
        if id < state.ends.next_space {
            state.control.next_space += 1;
            return Ok(SpaceId(id));
        }
        let mut drawn = Err(Error::invalid("not drawn"));
        self.write(&mut state, |control| drawn = draw_ids(control, 0))?;
        drawn.map(|(_, _, space)| SpaceId(space))
    }

    /// Lets `change` edit the contents, then writes and syncs the result. On an error the contents in memory
    /// stay as they were.
    pub fn update(&self, change: impl FnOnce(&mut Control)) -> Result<()> {
        self.write(&mut self.state.lock(), change)
    }

    fn write(&self, state: &mut ControlState, change: impl FnOnce(&mut Control)) -> Result<()> {
        let mut control = state.control;
        change(&mut control);
        let ends = control.with_ids_ahead();
        let (sequence, target) = (state.sequence + 1, 1 - state.newest);
        if sequence > LAST_SEQUENCE {
            let what = "numbers of writes of the control file: dump the data and load it into a new database";
            return Err(Error::NoSpace { what: what.into() });
        }
        self.file
            .write_at(&encode(&ends, sequence), COPY_OFFSETS[target])?;
        self.file.sync()?;
        *state = ControlState {
            control,
            ends,
            sequence,
            newest: target,
            ..*state
        };
        Ok(())
    }
}

const CRC_AT: usize = COPY_BYTES - 4;

fn encode(control: &Control, sequence: u64) -> [u8; COPY_BYTES] {
    let mut block = [0u8; COPY_BYTES];
    FileIntro::new(MAGIC, control.page_size, control.uuid, NO_SPACE).encode(&mut block);
    let mut at = INTRO_BYTES;
    let mut put = |bytes: &[u8]| {
        block[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&sequence.to_le_bytes());
    put(&control.checkpoint.0.to_le_bytes());
    put(&control.id_limit.to_le_bytes());
    put(&control.next_table.to_le_bytes());
    put(&control.next_index.to_le_bytes());
    put(&control.next_space.to_le_bytes());
    put(&[u8::from(control.clean_shutdown)]);
    put(&[u8::from(control.files_match)]);
    put(&[u8::from(control.encrypted)]);
    let (number, end) = control.written.unwrap_or_default();
    put(&number.to_le_bytes());
    put(&end.to_le_bytes());
    let crc = crc32c::crc32c(&block[..CRC_AT]);
    block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    block
}

fn decode(block: &[u8; COPY_BYTES], path: &Path) -> Result<Copied> {
    let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    let (stored, computed) = (u32_at(CRC_AT), crc32c::crc32c(&block[..CRC_AT]));
    if stored != computed {
        return Err(damaged(
            path,
            format!("checksum {computed:08x}"),
            format!("{stored:08x}"),
        ));
    }
    let intro = FileIntro::decode(MAGIC, block, path)?;
    let clean = match block[108] {
        0 => false,
        1 => true,
        other => {
            return Err(damaged(
                path,
                "clean shutdown 0 or 1".into(),
                other.to_string(),
            ));
        }
    };
    let control = Control {
        page_size: intro.page_size,
        uuid: intro.uuid,
        checkpoint: Lsn(u64_at(72)),
        id_limit: u64_at(80),
        next_table: u64_at(88),
        next_index: u64_at(96),
        next_space: u32_at(104),
        clean_shutdown: clean,
        files_match: block[109] != 0,
        encrypted: block[110] != 0,
        written: Some((u64_at(111), u64_at(119))).filter(|(number, _)| *number != 0),
    };
    let sequence = u64_at(64);
    if sequence > LAST_SEQUENCE {
        let found = format!("{sequence}, after which none can come");
        return Err(damaged(path, "a sequence number".into(), found));
    }
    Ok(Copied {
        control,
        sequence,
        version: version(block),
    })
}

/// CTL-4.
fn pass_over(control: &mut Control) {
    let Control {
        clean_shutdown,
        next_table,
        next_index,
        next_space,
        ..
    } = control;
    // The other copy may be from when the database was opened again.
    *clean_shutdown = false;
    // The end of the ids is where it was: drawing one is refused there.
    let tables = 1 + SPARE_TABLES;
    let indexes = INDEXES_PASSED + SPARE_INDEXES;
    *next_table = next_table.saturating_add(tables).min(LAST_ID);
    *next_index = next_index.saturating_add(indexes).min(LAST_ID);
    let space = next_space.saturating_add(1 + SPARE_SPACES);
    *next_space = space.min(TEMP_SPACE.0).max(*next_space);
}

/// Takes an id for a table, so many for indexes, and one for a tablespace. Changes nothing if one has run
/// out.
fn draw_ids(control: &mut Control, indexes: u64) -> Result<(u64, u64, u32)> {
    assert!(indexes <= INDEXES_PASSED, "CTL-4");
    let drawn = (control.next_table, control.next_index, control.next_space);
    let (table, index, space) = drawn;
    let ran_out = match () {
        _ if table >= LAST_ID => "table ids",
        _ if index.saturating_add(indexes) > LAST_ID => "index ids",
        _ if !SpaceId(space).is_logged() => "tablespace ids",
        _ => {
            control.next_table += 1;
            control.next_index += indexes;
            control.next_space += 1;
            return Ok(drawn);
        }
    };
    let what = format!("{ran_out}: dump the data and load it into a new database");
    Err(Error::NoSpace { what })
}

fn damaged(path: &Path, expected: String, found: String) -> Error {
    Error::CorruptFile {
        path: PathBuf::from(path),
        expected,
        found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::TEMP_SPACE;
    use crate::io::RealDisk;

    fn sample() -> Control {
        Control {
            page_size: 16384,
            uuid: [3; 16],
            checkpoint: Lsn(8192),
            clean_shutdown: true,
            files_match: false,
            encrypted: false,
            written: Some((3, 1 << 40)),
            id_limit: 1 << 40,
            next_space: 12,
            next_table: 13,
            next_index: 14,
        }
    }

    #[test]
    fn the_newest_update_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let control = ControlFile::create(&RealDisk, dir.path(), sample()).unwrap();
        for checkpoint in [9000u64, 9008, 9016] {
            control
                .update(|c| {
                    c.checkpoint = Lsn(checkpoint);
                    c.clean_shutdown = false;
                })
                .unwrap();
            let read = ControlFile::open(&RealDisk, dir.path(), &mut |_| {})
                .unwrap()
                .control();
            let expected = Control {
                checkpoint: Lsn(checkpoint),
                clean_shutdown: false,
                files_match: false,
                encrypted: false,
                ..sample()
            };
            assert_eq!(read, expected.with_ids_ahead());
        }
    }

    /// CTL-3: at any moment a crash would leave a file that gives none of the ids again, and few of them cost
    /// a write.
    #[test]
    fn an_id_is_drawn_once() {
        let dir = tempfile::tempdir().unwrap();
        let (mut last, mut last_table, mut last_index) = (0, 0, 0);
        for _ in 0..3 {
            let control = match last {
                0 => ControlFile::create(&RealDisk, dir.path(), sample()).unwrap(),
                _ => ControlFile::open(&RealDisk, dir.path(), &mut |_| {}).unwrap(),
            };
            let written = control.state.lock().sequence;
            for n in 0..2 * SPARE_SPACES {
                let id = match n % 5 {
                    4 => {
                        let (table, index, space) = control.draw_ids(40).unwrap();
                        assert!(table > last_table && index > last_index);
                        (last_table, last_index) = (table, index + 39);
                        space
                    }
                    _ => control.draw_space_id(&Durations::default()).unwrap().0,
                };
                assert!(id > last && (n == 0 || id == last + 1), "{id} after {last}");
                last = id;
                let read = ControlFile::open(&RealDisk, dir.path(), &mut |_| {}).unwrap();
                let read = read.control();
                assert!(read.next_space > id, "CTL-3");
                assert!(
                    read.next_table > last_table && read.next_index > last_index,
                    "CTL-3"
                );
            }
            // The first one; then more indexes than are spare are drawn by each other table.
            let writes = control.state.lock().sequence - written;
            assert!((3..=5).contains(&writes), "{writes}");
        }
    }

    /// CTL-1: damage any byte of the newest copy, which is said, and the one before it is read; damage both
    /// and it is refused.
    #[test]
    fn a_damaged_copy_leaves_the_previous_one() {
        let dir = tempfile::tempdir().unwrap();
        let control = ControlFile::create(&RealDisk, dir.path(), sample()).unwrap();
        control.update(|c| c.checkpoint = Lsn(10_000)).unwrap();
        let file = RealDisk
            .open(&dir.path().join(CONTROL_FILE), OpenMode::Existing)
            .unwrap();
        for at in 0..COPY_BYTES as u64 {
            let mut byte = [0u8];
            file.read_at(&mut byte, 4096 + at).unwrap();
            file.write_at(&[byte[0] ^ 0x10], 4096 + at).unwrap();
            let mut said = 0;
            let tell = &mut |_: &Error| said += 1;
            let read = ControlFile::open(&RealDisk, dir.path(), tell).unwrap();
            let mut expected = sample();
            pass_over(&mut expected);
            assert_eq!(read.control(), expected, "byte {at} damaged");
            assert_eq!(said, 1, "byte {at} damaged");
            file.write_at(&byte, 4096 + at).unwrap();
        }
        file.write_at(&[0xff], 4096 + 80).unwrap();
        file.write_at(&[0xff], 80).unwrap();
        let error = ControlFile::open(&RealDisk, dir.path(), &mut |_| {})
            .err()
            .unwrap();
        assert!(matches!(error, Error::CorruptFile { .. }), "{error}");
    }

    /// The next update's number could not be told.
    #[test]
    fn a_last_sequence_number_is_refused() {
        let path = Path::new(CONTROL_FILE);
        assert!(decode(&encode(&sample(), LAST_SEQUENCE), path).is_ok());
        let error = decode(&encode(&sample(), LAST_SEQUENCE + 1), path).unwrap_err();
        assert!(error.to_string().contains("sequence number"), "{error}");
        // Nor is such a copy written.
        let dir = tempfile::tempdir().unwrap();
        let control = ControlFile::create(&RealDisk, dir.path(), sample()).unwrap();
        control.state.lock().sequence = LAST_SEQUENCE - 1;
        control.update(|c| c.checkpoint = Lsn(10_000)).unwrap();
        let error = control.update(|c| c.checkpoint = Lsn(20_000)).unwrap_err();
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        let read = ControlFile::open(&RealDisk, dir.path(), &mut |_| panic!("damaged")).unwrap();
        assert_eq!(read.control().checkpoint, Lsn(10_000));
    }

    /// After opening, the next write must not go over the newest copy.
    #[test]
    fn an_opened_file_keeps_alternating() {
        let dir = tempfile::tempdir().unwrap();
        let control = ControlFile::create(&RealDisk, dir.path(), sample()).unwrap();
        control.update(|c| c.checkpoint = Lsn(10_000)).unwrap();
        let control = ControlFile::open(&RealDisk, dir.path(), &mut |_| {}).unwrap();
        control.update(|c| c.checkpoint = Lsn(20_000)).unwrap();
        let file = RealDisk
            .open(&dir.path().join(CONTROL_FILE), OpenMode::Existing)
            .unwrap();
        file.write_at(&[0xff], 80).unwrap();
        let read = ControlFile::open(&RealDisk, dir.path(), &mut |_| {})
            .unwrap()
            .control();
        assert_eq!(read.checkpoint, Lsn(10_000));
    }

    #[test]
    fn ids_that_run_out_are_refused_by_name() {
        let fresh = Control {
            page_size: 4096,
            uuid: [1; 16],
            checkpoint: Lsn(0),
            clean_shutdown: false,
            files_match: false,
            encrypted: false,
            written: None,
            id_limit: 0,
            next_space: 7,
            next_table: 20,
            next_index: 30,
        };
        let last_space = TEMP_SPACE.0 - 1;
        for (table, index, space, refused) in [
            (20, 30, 7, None),
            (LAST_ID - 1, LAST_ID - 3, last_space, None),
            (LAST_ID, 30, 7, Some("table ids")),
            (20, LAST_ID - 2, 7, Some("index ids")),
            (20, u64::MAX, 7, Some("index ids")),
            (20, 30, last_space + 1, Some("tablespace ids")),
        ] {
            let mut control = fresh;
            control.next_table = table;
            control.next_index = index;
            control.next_space = space;
            let before = control;
            match (draw_ids(&mut control, 3), refused) {
                (Ok(drawn), None) => {
                    assert_eq!(drawn, (table, index, space));
                    assert_eq!(control.next_index, index + 3);
                }
                (Err(Error::NoSpace { what }), Some(refused)) => {
                    assert!(what.starts_with(refused), "{what}");
                    assert_eq!(control, before);
                }
                (got, want) => panic!("{got:?}, expected {want:?}"),
            }
        }
    }
}
