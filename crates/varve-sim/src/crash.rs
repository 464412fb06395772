//! What a disk may hold after a crash: one walk over a journal, from which images branch off.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::Rng;
use rand::rngs::SmallRng;

use crate::SECTOR;
use crate::contents::Contents;
use crate::image::{Image, Node};
use crate::journal::{FileId, Journal, Op};
use crate::minimal::minimal;

/// Goes through a journal from its start to its end and gives images of crashes on the way.
///
/// - **SIM-1** What `SimDisk` showed as durable at a moment is in every image of a crash at that moment or
///   later, unless it was changed again.
pub struct CrashPoints {
    journal: Journal,
    at: usize,
    durable: Names,
    files: BTreeMap<FileId, File>,
    /// Changes of names that no `sync_dir` has made durable, in order.
    pending_names: Vec<Op>,
}

type Names = BTreeMap<PathBuf, DurableName>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum DurableName {
    Dir,
    File(FileId),
}

#[derive(Default)]
struct File {
    durable: Contents,
    /// Writes and changes of length that are not part of `durable`, in order.
    pending: Vec<Pending>,
}

struct Pending {
    change: Change,
    sync: Synced,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Synced {
    NotYet,
    /// FAULT-7: no later sync will do.
    Never,
    /// Durable, behind something that is not.
    Done,
}

#[derive(Clone)]
pub(crate) enum Change {
    Write(u64, Arc<[u8]>),
    /// FAULT-8.
    WriteWhole(u64, Arc<[u8]>),
    SetLen(u64),
}

/// What happens to unsynced writes. Each image draws one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// All are lost.
    Lost,
    /// All are there.
    Kept,
    /// Each is there or not.
    Each,
    /// Each sector of each is there or not.
    Torn,
}

const FATES: [Fate; 4] = [Fate::Lost, Fate::Kept, Fate::Each, Fate::Torn];

/// What became of everything that was not durable, piece by piece: each change of a name, each sector of a
/// write, each change of a length. A name whose directory lost an earlier change is lost whatever is said
/// here (FAULT-3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CrashState {
    kept: Vec<bool>,
}

impl CrashPoints {
    pub fn new(journal: Journal) -> CrashPoints {
        let (mut durable, mut files) = (Names::new(), BTreeMap::new());
        // `SimDisk::new` numbers the files in the same order.
        for (path, node) in &journal.start.nodes {
            let name = match node {
                Node::Dir => DurableName::Dir,
                Node::File(contents) => {
                    let id = FileId(files.len());
                    let file = File {
                        durable: contents.clone(),
                        pending: Vec::new(),
                    };
                    files.insert(id, file);
                    DurableName::File(id)
                }
            };
            durable.insert(path.clone(), name);
        }
        CrashPoints {
            journal,
            at: 0,
            durable,
            files,
            pending_names: Vec::new(),
        }
    }

    /// How many operations come before the crash.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Lets operations happen until `to` of them have.
    pub fn advance(&mut self, to: usize) {
        assert!(to >= self.at && to <= self.journal.len(), "forward only");
        let ops = self.journal.ops.clone();
        for op in &ops[self.at..to] {
            self.happen(op);
        }
        self.at = to;
    }

    fn happen(&mut self, op: &Op) {
        match op {
            Op::CreateDir(_) | Op::Create(..) | Op::Remove(_) | Op::Rename(..) => {
                self.pending_names.push(op.clone());
            }
            Op::SyncDir(dir) => self.sync_dir(dir.clone()),
            Op::Write(id, ..) | Op::WriteWhole(id, ..) | Op::SetLen(id, _) => {
                let change = Change::of(op).expect("it changes a file");
                self.file(*id).push(change);
            }
            Op::Sync(id) => self.file(*id).sync(Synced::Done),
            Op::SyncFailed(id) => self.file(*id).sync(Synced::Never),
        }
    }

    fn file(&mut self, id: FileId) -> &mut File {
        self.files.entry(id).or_default()
    }

    /// The directory's changes become durable, and what they depend on: earlier changes of the directories
    /// that they touch (FAULT-3).
    fn sync_dir(&mut self, dir: PathBuf) {
        let mut dirs = BTreeSet::from([dir]);
        let pending = std::mem::take(&mut self.pending_names);
        let mut is_durable = vec![false; pending.len()];
        for (op, durable) in pending.iter().zip(&mut is_durable).rev() {
            if op.dirs().iter().any(|d| dirs.contains(*d)) {
                *durable = true;
                dirs.extend(op.dirs().into_iter().map(PathBuf::from));
            }
        }
        for (op, durable) in pending.into_iter().zip(is_durable) {
            match durable {
                true => rename(&mut self.durable, &op),
                false => self.pending_names.push(op),
            }
        }
    }

    /// What the disk may hold if the power goes now.
    pub fn crash(&self, rng: &mut SmallRng) -> Image {
        self.image(&self.draw(rng))
    }

    /// Draws what becomes of everything that is not durable now.
    pub fn draw(&self, rng: &mut SmallRng) -> CrashState {
        let fate = FATES[rng.random_range(0..FATES.len())];
        let mut kept = Vec::new();
        kept.extend(self.pending_names.iter().map(|_| match fate {
            Fate::Lost => false,
            Fate::Kept => true,
            Fate::Each | Fate::Torn => rng.random_bool(0.7),
        }));
        for (_, change) in self.unsynced() {
            let whole = match fate {
                Fate::Lost => false,
                Fate::Kept => true,
                Fate::Each | Fate::Torn => rng.random_bool(0.5),
            };
            let pieces = change.pieces();
            kept.extend((0..pieces).map(|_| match fate {
                Fate::Torn if pieces > 1 => rng.random_bool(0.5),
                _ => whole,
            }));
        }
        CrashState { kept }
    }

    /// The state in which everything was written but some parts of the last operation, a write: those for
    /// which `is_kept` says no. They are numbered from 0 on, sector by sector.
    pub fn torn(&self, is_kept: impl Fn(usize) -> bool) -> CrashState {
        let last = self.journal.ops[..self.at].last();
        let Some(Op::Write(torn, ..) | Op::WriteWhole(torn, ..)) = last else {
            panic!("operation {} is no write", self.at);
        };
        let mut kept = vec![true; self.pending_names.len()];
        for (id, file) in &self.files {
            let mut open = file
                .pending
                .iter()
                .filter(|p| p.sync != Synced::Done)
                .peekable();
            while let Some(pending) = open.next() {
                let is_last = id == torn && open.peek().is_none();
                let pieces = 0..pending.change.pieces();
                kept.extend(pieces.map(|piece| !is_last || is_kept(piece)));
            }
        }
        CrashState { kept }
    }

    /// What the disk holds after a crash now with this outcome, which was drawn at this moment of this
    /// journal.
    pub fn image(&self, state: &CrashState) -> Image {
        let mut kept = state.kept.iter().copied();
        let names = self.names_after(&mut kept);
        let files: BTreeMap<FileId, Contents> = (self.files.iter())
            .map(|(id, file)| (*id, file.after(&mut kept)))
            .collect();
        assert_eq!(kept.next(), None, "a state of another moment");
        let node = |name: DurableName| match name {
            DurableName::Dir => Node::Dir,
            DurableName::File(id) => Node::File(files.get(&id).cloned().unwrap_or_default()),
        };
        let nodes = names.into_iter().map(|(path, name)| (path, node(name)));
        Image {
            nodes: nodes.collect(),
        }
    }

    /// A state in which `fails` still holds and from which nothing can be taken: one that differs in as
    /// little as it finds from the state in which everything was written, or from the one in which nothing
    /// was.
    pub fn shrink(
        &self,
        state: &CrashState,
        mut fails: impl FnMut(&CrashState) -> bool,
    ) -> CrashState {
        let shrunk = [true, false].map(|rest| {
            let with = |different: &[usize]| {
                let mut kept = vec![rest; state.kept.len()];
                different.iter().for_each(|at| kept[*at] = !rest);
                CrashState { kept }
            };
            let different = (0..state.kept.len()).filter(|at| state.kept[*at] != rest);
            let left = minimal(different.collect(), |some| fails(&with(some)));
            (left.len(), with(&left))
        });
        let [all_but, none_but] = shrunk;
        match all_but.0 <= none_but.0 {
            true => all_but.1,
            false => none_but.1,
        }
    }

    /// The state in words: what differs from most of it.
    pub fn describe(&self, state: &CrashState) -> String {
        let kept = state.kept.iter().filter(|kept| **kept).count();
        let rest = 2 * kept >= state.kept.len();
        let mut different: Vec<String> = Vec::new();
        let mut pieces = state.kept.iter();
        for op in &self.pending_names {
            if pieces.next() == Some(&!rest) {
                different.push(format!("{op:?}"));
            }
        }
        for (id, change) in self.unsynced() {
            let of_change: Vec<bool> = pieces.by_ref().take(change.pieces()).copied().collect();
            let n = of_change.iter().filter(|kept| **kept != rest).count();
            if n > 0 {
                let path = self.path_of(id);
                different.push(change.describe(&path, n));
            }
        }
        let most = match (state.kept.is_empty(), rest) {
            (true, _) => return "everything was durable".into(),
            (_, true) => "everything was written",
            (_, false) => "nothing that was not durable was written",
        };
        match different.len() {
            0 => most.into(),
            n if n > 8 => format!("{most} but {n} changes, the first {}", different[0]),
            _ => format!("{most} but {}", different.join("; ")),
        }
    }

    /// Changes of files that are not durable, in the order of their pieces.
    fn unsynced(&self) -> impl Iterator<Item = (FileId, &Change)> {
        self.files.iter().flat_map(|(id, file)| {
            let open = file.pending.iter().filter(|p| p.sync != Synced::Done);
            open.map(|p| (*id, &p.change))
        })
    }

    /// A name that the file has, or had last.
    fn path_of(&self, id: FileId) -> PathBuf {
        let mut names = self.durable.clone();
        let mut path = PathBuf::from(format!("file {}", id.0));
        let mut look = |names: &Names| {
            let found = names
                .iter()
                .find(|(_, name)| **name == DurableName::File(id));
            if let Some((found, _)) = found {
                path.clone_from(found);
            }
        };
        look(&names);
        for op in &self.pending_names {
            rename(&mut names, op);
            look(&names);
        }
        path
    }

    /// The names that are there: in each directory a part of its pending changes from the first on.
    fn names_after(&self, kept: &mut impl Iterator<Item = bool>) -> Names {
        let mut names = self.durable.clone();
        let mut stopped: BTreeSet<PathBuf> = BTreeSet::new();
        for op in &self.pending_names {
            let dirs = op.dirs();
            let is_kept = kept.next().expect("a state of this moment");
            match is_kept && !dirs.iter().any(|d| stopped.contains(*d)) {
                true => rename(&mut names, op),
                false => stopped.extend(dirs.into_iter().map(PathBuf::from)),
            }
        }
        let has_dir = |path: &PathBuf| {
            let mut parents = path.ancestors().skip(1);
            // Up to the file system's root, which has no entry.
            parents
                .all(|p| p.parent().is_none() || p.as_os_str().is_empty() || names.contains_key(p))
        };
        let orphans: Vec<PathBuf> = names.keys().filter(|p| !has_dir(p)).cloned().collect();
        for path in orphans {
            names.remove(&path);
        }
        names
    }
}

fn rename(names: &mut Names, op: &Op) {
    match op {
        Op::CreateDir(path) => {
            names.insert(path.clone(), DurableName::Dir);
        }
        Op::Create(path, id) => {
            names.insert(path.clone(), DurableName::File(*id));
        }
        Op::Remove(path) => {
            names.remove(path);
        }
        Op::Rename(from, to) => {
            if let Some(name) = names.remove(from) {
                names.insert(to.clone(), name);
            }
        }
        Op::SyncDir(_)
        | Op::Write(..)
        | Op::WriteWhole(..)
        | Op::SetLen(..)
        | Op::Sync(_)
        | Op::SyncFailed(_) => {}
    }
}

impl Change {
    /// What an operation changes in a file.
    pub(crate) fn of(op: &Op) -> Option<Change> {
        match op {
            Op::Write(_, offset, bytes) => Some(Change::Write(*offset, bytes.clone())),
            Op::WriteWhole(_, offset, bytes) => Some(Change::WriteWhole(*offset, bytes.clone())),
            Op::SetLen(_, len) => Some(Change::SetLen(*len)),
            _ => None,
        }
    }

    fn apply(&self, contents: &mut Contents) {
        match self {
            Change::Write(offset, bytes) | Change::WriteWhole(offset, bytes) => {
                contents.write(bytes, *offset)
            }
            Change::SetLen(len) => contents.set_len(*len),
        }
    }

    /// How many parts of it may be there or not.
    pub(crate) fn pieces(&self) -> usize {
        match self {
            Change::Write(offset, bytes) => sectors(*offset, bytes).count(),
            Change::WriteWhole(..) | Change::SetLen(_) => 1,
        }
    }

    /// In words; `different` of its pieces are meant.
    fn describe(&self, path: &Path, different: usize) -> String {
        let path = path.display();
        match self {
            Change::Write(offset, bytes) => format!(
                "{different} of {} sectors of the write of {} bytes at {offset} of {path}",
                self.pieces(),
                bytes.len()
            ),
            Change::WriteWhole(offset, bytes) => {
                format!("the write of {} bytes at {offset} of {path}", bytes.len())
            }
            Change::SetLen(len) => format!("the length {len} of {path}"),
        }
    }
}

impl File {
    fn push(&mut self, change: Change) {
        let sync = Synced::NotYet;
        self.pending.push(Pending { change, sync });
    }

    /// A sync ended like this.
    fn sync(&mut self, outcome: Synced) {
        for pending in &mut self.pending {
            if pending.sync == Synced::NotYet {
                pending.sync = outcome;
            }
        }
        let open = |p: &Pending| p.sync != Synced::Done;
        let durable = self.pending.iter().position(open);
        for done in self.pending.drain(..durable.unwrap_or(self.pending.len())) {
            done.change.apply(&mut self.durable);
        }
    }

    /// The file's bytes if these pieces of what is not durable were written.
    fn after(&self, kept: &mut impl Iterator<Item = bool>) -> Contents {
        let mut contents = self.durable.clone();
        for pending in &self.pending {
            let change = &pending.change;
            if pending.sync == Synced::Done {
                change.apply(&mut contents);
                continue;
            }
            let of_change: Vec<bool> = kept.by_ref().take(change.pieces()).collect();
            match change {
                _ if of_change.iter().all(|kept| *kept) => change.apply(&mut contents),
                Change::Write(offset, bytes) => {
                    let written = sectors(*offset, bytes).zip(of_change);
                    for ((at, sector), _) in written.filter(|(_, kept)| *kept) {
                        contents.write(sector, at);
                    }
                }
                Change::WriteWhole(..) | Change::SetLen(_) => {}
            }
        }
        contents
    }
}

/// The parts of a write that lie in one sector each, with their offsets.
fn sectors(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let first = (SECTOR - (offset % SECTOR as u64) as usize).min(bytes.len());
    let (head, tail) = bytes.split_at(first);
    let rest = tail.chunks(SECTOR).enumerate();
    std::iter::once((offset, head))
        .chain(rest.map(move |(n, sector)| (offset + (first + n * SECTOR) as u64, sector)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimDisk;
    use rand::SeedableRng;
    use varve::internals::io::{Disk, OpenMode};

    fn read(image: &Image, path: &str) -> Option<Vec<u8>> {
        let Some(Node::File(contents)) = image.nodes.get(Path::new(path)) else {
            return None;
        };
        let mut bytes = vec![0; contents.len() as usize];
        assert!(contents.read(&mut bytes, 0));
        Some(bytes)
    }

    /// Images of many crashes after everything that `work` did.
    fn crashes(disk: &SimDisk) -> Vec<Image> {
        let mut rng = SmallRng::seed_from_u64(1);
        let journal = disk.journal();
        let mut points = CrashPoints::new(journal.clone());
        points.advance(journal.len());
        (0..300).map(|_| points.crash(&mut rng)).collect()
    }

    /// Every state in `want` turns up, and no other.
    #[track_caller]
    fn states<T: Ord + std::fmt::Debug>(disk: &SimDisk, look: impl Fn(&Image) -> T, want: &[T]) {
        let found: BTreeSet<T> = crashes(disk).iter().map(look).collect();
        assert_eq!(
            found.iter().collect::<Vec<_>>(),
            want.iter().collect::<Vec<_>>()
        );
    }

    /// SIM-1, IO-2: what was synced is there, the bytes and the name each for itself.
    #[test]
    fn a_file_needs_its_name_and_its_bytes() {
        let disk = root();
        let file = disk.open(Path::new("/d/a"), OpenMode::CreateNew).unwrap();
        file.write_at(b"x", 0).unwrap();
        let look = |i: &Image| read(i, "/d/a");
        let all = [None, Some(b"".to_vec()), Some(b"x".to_vec())];
        states(&disk, look, &all);
        file.sync().unwrap();
        // FAULT-4: the name is not durable yet, but where there is one, the bytes are.
        states(&disk, look, &[None, Some(b"x".to_vec())]);
        disk.sync_dir(Path::new("/d")).unwrap();
        states(&disk, look, &[Some(b"x".to_vec())]);
    }

    /// A disk with a durable directory.
    fn root() -> SimDisk {
        let mut image = Image::new();
        image.nodes.insert("/d".into(), Node::Dir);
        SimDisk::new(image)
    }

    /// FAULT-1, IO-1, and FAULT-5: sectors are whole, and have what was durable if they have nothing new.
    #[test]
    fn unsynced_writes_are_independent_and_torn_between_sectors() {
        let disk = root();
        let file = disk.open(Path::new("/d/a"), OpenMode::CreateNew).unwrap();
        file.write_at(&[0; 1024], 0).unwrap();
        file.sync().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_at(&[1; 1024], 0).unwrap();
        file.write_at(&[2; 512], 512).unwrap();
        let look = |i: &Image| {
            let bytes = read(i, "/d/a").unwrap();
            assert!(
                bytes[..512].iter().all(|b| *b == bytes[0]),
                "a sector is whole"
            );
            assert!(bytes[512..].iter().all(|b| *b == bytes[512]));
            (bytes[0], bytes[512])
        };
        states(
            &disk,
            look,
            &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
        );
    }

    /// FAULT-2: a file that became shorter or longer may have either length, and zeros where nothing was
    /// written.
    #[test]
    fn a_change_of_length_takes_place_or_not() {
        for (len, last_byte) in [(512, 1), (1536, 0)] {
            let disk = root();
            let file = disk.open(Path::new("/d/a"), OpenMode::CreateNew).unwrap();
            file.write_at(&[1; 1024], 0).unwrap();
            file.sync().unwrap();
            disk.sync_dir(Path::new("/d")).unwrap();
            file.set_len(len).unwrap();
            let look = |i: &Image| {
                let bytes = read(i, "/d/a").unwrap();
                (bytes.len() as u64, bytes[bytes.len() - 1])
            };
            let mut either = [(1024, 1), (len, last_byte)];
            either.sort();
            states(&disk, look, &either);
            file.sync().unwrap();
            states(&disk, look, &[(len, last_byte)]);
        }
    }

    #[test]
    fn a_write_is_torn_where_one_likes() {
        let disk = root();
        let file = disk.open(Path::new("/d/a.x"), OpenMode::CreateNew).unwrap();
        file.write_at(&[1; 2048], 0).unwrap();
        file.write_at(&[2; 1536], 512).unwrap();
        let journal = disk.journal();
        assert_eq!(journal.writes_to("x"), [(1, 4), (2, 3)]);
        assert_eq!(journal.writes_to("y"), []);
        let mut points = CrashPoints::new(journal);
        points.advance(3);
        for torn in 0..8 {
            let image = points.image(&points.torn(|sector| torn & 1 << sector != 0));
            let bytes = read(&image, "/d/a.x").unwrap();
            let expected = [0, 1, 2].map(|sector| 1 + u8::from(torn & 1 << sector != 0));
            assert_eq!([bytes[512], bytes[1024], bytes[1536]], expected);
            assert_eq!(bytes[0], 1, "what came before is there");
        }
    }

    /// FAULT-8: there or not, and nothing in between.
    #[test]
    fn a_write_that_is_promised_to_be_atomic_is_not_torn() {
        let disk = root();
        let file = disk.open(Path::new("/d/a"), OpenMode::CreateNew).unwrap();
        file.write_at(&[1; 2048], 0).unwrap();
        file.sync().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        assert!(!file.writes_atomically(1024) && file.write_atomic_at(&[2; 1024], 0).is_err());
        disk.promise_atomic_writes(1024);
        assert!(file.writes_atomically(1024) && !file.writes_atomically(2048));
        for (bytes, offset) in [(&[2; 2048][..], 0), (&[2; 1024], 512), (&[2; 600], 0)] {
            file.write_atomic_at(bytes, offset).unwrap_err();
        }
        file.write_atomic_at(&[2; 1024], 1024).unwrap();
        let look = |i: &Image| read(i, "/d/a").unwrap()[1024..].to_vec();
        states(&disk, look, &[vec![1; 1024], vec![2; 1024]]);
        file.sync().unwrap();
        states(&disk, look, &[vec![2; 1024]]);
    }

    /// FAULT-3, IO-3.
    #[test]
    fn a_rename_takes_place_or_not() {
        let disk = root();
        for (name, bytes) in [("/d/a", b"a"), ("/d/b", b"b")] {
            let file = disk.open(Path::new(name), OpenMode::CreateNew).unwrap();
            file.write_at(bytes, 0).unwrap();
            file.sync().unwrap();
        }
        disk.sync_dir(Path::new("/d")).unwrap();
        disk.rename(Path::new("/d/b"), Path::new("/d/a")).unwrap();
        let look = |i: &Image| (read(i, "/d/a"), read(i, "/d/b"));
        let (a, b) = (|| Some(b"a".to_vec()), || Some(b"b".to_vec()));
        states(&disk, look, &[(a(), b()), (b(), None)]);
        disk.sync_dir(Path::new("/d")).unwrap();
        states(&disk, look, &[(b(), None)]);
    }

    /// FAULT-3.
    #[test]
    fn names_in_a_lost_directory_are_lost() {
        let disk = root();
        disk.create_dir_all(Path::new("/d/e")).unwrap();
        disk.open(Path::new("/d/e/f"), OpenMode::CreateNew).unwrap();
        disk.sync_dir(Path::new("/d/e")).unwrap();
        let look = |i: &Image| {
            let has = |p: &str| i.nodes.contains_key(Path::new(p));
            (has("/d/e"), has("/d/e/f"))
        };
        states(&disk, look, &[(false, false), (true, true)]);
    }

    /// FAULT-3.
    #[test]
    fn a_rename_across_directories_is_one_change() {
        let disk = root();
        disk.create_dir_all(Path::new("/d/e")).unwrap();
        disk.open(Path::new("/d/a"), OpenMode::CreateNew).unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        disk.rename(Path::new("/d/a"), Path::new("/d/e/a")).unwrap();
        let look = |i: &Image| {
            let has = |p: &str| i.nodes.contains_key(Path::new(p));
            (has("/d/a"), has("/d/e/a"))
        };
        states(&disk, look, &[(false, true), (true, false)]);
    }

    /// FAULT-7: what a failed sync left behind is not saved by the next one, but what is written then is.
    #[test]
    fn a_failed_sync_is_not_made_good_by_another() {
        use crate::{Failure, Fault, Operation};
        let disk = root();
        let file = disk.open(Path::new("/d/a"), OpenMode::CreateNew).unwrap();
        file.write_at(b"0000", 0).unwrap();
        file.sync().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_at(b"11", 0).unwrap();
        disk.inject(Fault::always(Operation::Sync, Failure::Io).limited(0, 1));
        file.sync().unwrap_err();
        file.write_at(b"2", 3).unwrap();
        file.sync().unwrap();
        let mut bytes = [0; 4];
        file.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"1102", "before a crash it can be read");
        let look = |i: &Image| String::from_utf8(read(i, "/d/a").unwrap()).unwrap();
        states(&disk, look, &["0002".into(), "1102".into()]);
        file.write_at(b"3333", 0).unwrap();
        file.sync().unwrap();
        states(&disk, look, &["3333".into()]);
    }

    #[test]
    fn a_state_is_shrunk_to_what_matters_and_described() {
        let disk = root();
        let file = disk.open(Path::new("/d/a"), OpenMode::CreateNew).unwrap();
        file.set_len(8192).unwrap();
        file.sync().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        for at in 0..8 {
            file.write_at(&[1 + at as u8; 1024], at * 1024).unwrap();
        }
        let journal = disk.journal();
        let mut points = CrashPoints::new(journal.clone());
        points.advance(journal.len());
        let mut rng = SmallRng::seed_from_u64(4);
        let described = |fails: &dyn Fn(&[u8]) -> bool, rng: &mut SmallRng| {
            let fails = |state: &CrashState| fails(&read(&points.image(state), "/d/a").unwrap());
            let state = loop {
                let state = points.draw(rng);
                if fails(&state) {
                    break state;
                }
            };
            points.describe(&points.shrink(&state, fails))
        };
        assert_eq!(
            described(&|bytes| bytes[3 * 1024] == 4, &mut rng),
            "everything was written"
        );
        assert_eq!(
            described(&|bytes| bytes[3 * 1024] == 4 && bytes[0] == 0, &mut rng),
            "everything was written but 1 of 2 sectors of the write of 1024 bytes at 0 of /d/a"
        );
        let lonely = |bytes: &[u8]| bytes[700] == 1 && bytes[5 * 1024] == 0 && bytes[7000] == 0;
        assert_eq!(
            described(&lonely, &mut rng),
            "nothing that was not durable was written but 1 of 2 sectors of the write of 1024 bytes at 0 of /d/a"
        );
    }

    #[test]
    fn reads_and_writes_that_are_short_are_finished() {
        use crate::{Failure, Fault, Operation};
        let disk = root();
        let file = disk.open(Path::new("/d/a"), OpenMode::CreateNew).unwrap();
        disk.inject(Fault::always(Operation::Any, Failure::Short));
        let before = disk.operations();
        file.write_at(b"abcdefg", 5).unwrap();
        assert_eq!(disk.operations(), before + 2, "a crash may come in between");
        let mut bytes = [1; 12];
        file.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"\0\0\0\0\0abcdefg");
        file.read_at(&mut bytes, 1).unwrap_err();
        file.sync().unwrap();
    }

    #[test]
    fn the_disk_fails_as_it_is_told() {
        use crate::{Failure, Fault, Operation};
        let disk = root();
        let file = disk.open(Path::new("/d/a"), OpenMode::CreateNew).unwrap();
        file.write_at(&[1; 2048], 0).unwrap();
        disk.inject(
            Fault::always(Operation::Write, Failure::Io)
                .on("/a")
                .limited(1, 1),
        );
        file.write_at(&[2; 512], 0).unwrap();
        file.write_at(&[3; 2048], 0).unwrap_err();
        let mut bytes = [0; 2048];
        file.read_at(&mut bytes, 0).unwrap();
        assert_eq!((bytes[1023], bytes[1024]), (3, 1), "FAULT-6: half of it");
        file.write_at(&[4; 512], 0).unwrap();
        disk.set_capacity(4096);
        file.allocate(4096).unwrap();
        assert!(file.allocate(4097).is_err() && file.write_at(&[0], 4096).is_err());
        disk.heal();
        file.allocate(1 << 20).unwrap();
    }
}
