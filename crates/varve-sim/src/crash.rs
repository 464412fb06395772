//! What a disk may hold after a crash: one walk over a journal, from which images branch off.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use rand::Rng;
use rand::rngs::SmallRng;

use crate::SECTOR;
use crate::contents::Contents;
use crate::image::{Image, Node};
use crate::journal::{FileId, Journal, Op};

/// Goes through a journal from its start to its end and gives images of crashes on the way.
///
/// - **SIM-1** What `SimDisk` showed as durable at a moment is in every image of a crash at that moment or later, unless
///   it was changed again.
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
    /// Writes and changes of length since the last sync, in order.
    pending: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write(u64, Arc<[u8]>),
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
            Op::Write(id, offset, bytes) => {
                self.file(*id)
                    .pending
                    .push(Change::Write(*offset, bytes.clone()));
            }
            Op::SetLen(id, len) => self.file(*id).pending.push(Change::SetLen(*len)),
            Op::Sync(id) => {
                let file = self.file(*id);
                for change in std::mem::take(&mut file.pending) {
                    change.apply(&mut file.durable);
                }
            }
        }
    }

    fn file(&mut self, id: FileId) -> &mut File {
        self.files.entry(id).or_default()
    }

    /// The directory's changes become durable, and what they depend on: earlier changes of the directories that they
    /// touch (FAULT-3).
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
        let fate = FATES[rng.random_range(0..FATES.len())];
        let mut image = Image::new();
        for (path, name) in self.names_after(fate, rng) {
            let node = match name {
                DurableName::Dir => Node::Dir,
                DurableName::File(id) => Node::File(match self.files.get(&id) {
                    Some(file) => file.after(fate, rng),
                    None => Contents::default(),
                }),
            };
            image.nodes.insert(path, node);
        }
        image
    }

    /// The names that are there: in each directory a part of its pending changes from the first on.
    fn names_after(&self, fate: Fate, rng: &mut SmallRng) -> Names {
        let mut names = self.durable.clone();
        let mut stopped: BTreeSet<PathBuf> = BTreeSet::new();
        for op in &self.pending_names {
            let dirs = op.dirs();
            let happens = !dirs.iter().any(|d| stopped.contains(*d))
                && match fate {
                    Fate::Lost => false,
                    Fate::Kept => true,
                    Fate::Each | Fate::Torn => rng.random_bool(0.7),
                };
            match happens {
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
        Op::SyncDir(_) | Op::Write(..) | Op::SetLen(..) | Op::Sync(_) => {}
    }
}

impl Change {
    fn apply(&self, contents: &mut Contents) {
        match self {
            Change::Write(offset, bytes) => contents.write(bytes, *offset),
            Change::SetLen(len) => contents.set_len(*len),
        }
    }
}

impl File {
    /// The file's bytes if its pending changes have this fate.
    fn after(&self, fate: Fate, rng: &mut SmallRng) -> Contents {
        let mut contents = self.durable.clone();
        for change in &self.pending {
            match (fate, change) {
                (Fate::Lost, _) => {}
                (Fate::Kept, _) => change.apply(&mut contents),
                (Fate::Torn, Change::Write(offset, bytes)) => {
                    for (at, sector) in sectors(*offset, bytes) {
                        if rng.random_bool(0.5) {
                            contents.write(sector, at);
                        }
                    }
                }
                (Fate::Each | Fate::Torn, _) => {
                    if rng.random_bool(0.5) {
                        change.apply(&mut contents);
                    }
                }
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
    use std::path::Path;
    use varve::io::{Disk, OpenMode};

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
