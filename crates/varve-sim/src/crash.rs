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

#[derive(Clone, PartialEq, Eq)]
enum DurableName {
    Dir,
    File(FileId),
    Link(PathBuf),
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
                Node::Link(target) => DurableName::Link(target.clone()),
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
            Op::CreateDir(_) | Op::Create(..) | Op::Remove(_) | Op::Rename(..) | Op::Link(..) => {
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
            DurableName::Link(target) => Node::Link(target),
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
        Op::Link(target, path) => {
            names.insert(path.clone(), DurableName::Link(target.clone()));
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
mod tests;
