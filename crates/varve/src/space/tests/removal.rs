//! Files larger than a portion: where they are while they go, who waits for whom, what is left to the next
//! start.

use super::*;

/// Smaller than a new table's file.
const PORTION: u64 = PAGE as u64;

/// Where there is no room for a file called `b.vdt` as long as the other one is there.
#[derive(Default)]
struct Portions {
    full_until_gone: OnceLock<PathBuf>,
}

impl Meddler for Portions {
    fn portion_bytes(&self) -> u64 {
        PORTION
    }
    fn before_allocate(&self, path: &Path, _new_len: u64) -> Result<()> {
        let is_full = path.ends_with("b.vdt-new")
            && self.full_until_gone.get().is_some_and(|path| path.exists());
        match is_full {
            true => {
                let full = std::io::ErrorKind::StorageFull;
                Err(Error::io("extend", path, full.into()))
            }
            false => Ok(()),
        }
    }
}

struct Place {
    dir: tempfile::TempDir,
    disk: Arc<MeddledDisk<Portions>>,
    spaces: Arc<Spaces>,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let disk = MeddledDisk::new(Arc::new(Portions::default()));
        let spaces = spaces_on(disk.clone(), dir.path());
        Place { dir, disk, spaces }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn gone(&self) -> PathBuf {
        self.path("40.vdt-gone")
    }

    /// Somebody who reads or writes a page keeps the file from being cut.
    fn user(&self) -> Arc<dyn crate::io::DiskFile> {
        let space = self.spaces.get(ID).unwrap();
        space.file.to_read().unwrap()
    }

    /// Makes a table, and drops it, or puts another one in its place. Returns its file, in use, and how long
    /// it was.
    fn make_and_drop(
        &self,
        table: NewSpace<'_>,
        replaced: bool,
    ) -> (Arc<dyn crate::io::DiskFile>, u64) {
        self.spaces.create(table).unwrap();
        let id = SpaceId(41);
        if replaced {
            let other = new_table("shop/b.vdt");
            self.spaces.create(NewSpace { id, ..other }).unwrap();
        }
        let user = self.user();
        let len = user.len().unwrap();
        match replaced {
            true => self.spaces.replace(ID, id).unwrap(),
            false => self.spaces.drop_space(ID).unwrap(),
        }
        (user, len)
    }

    fn end(&mut self) {
        self.spaces.end_background();
        self.spaces = spaces_on(self.disk.clone(), self.dir.path());
    }
}

fn wait(until: impl Fn() -> bool) {
    while !until() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// SP-11, SP-12
#[test]
fn a_table_goes_in_the_data_directory() {
    let mut place = Place::new();
    for replaced in [false, true] {
        let (user, len) = place.make_and_drop(new_table("shop/a.vdt"), replaced);
        assert!(place.spaces.get(ID).is_none());
        assert_eq!(place.path("shop/a.vdt").exists(), replaced);
        if !replaced {
            std::fs::remove_dir(place.path("shop")).expect("it is empty");
        }
        // Left to the next start, and to the one after that.
        for _ in 0..2 {
            place.end();
            assert_eq!(place.gone().metadata().unwrap().len(), len);
        }
        place.spaces.go_on_with_removals().unwrap();
        wait(|| !place.gone().exists());
        assert_eq!(user.len().unwrap(), PORTION);
    }
    let there = place.spaces.inspect("shop/a.vdt").unwrap();
    assert_eq!(there.intro.space, SpaceId(41));
}

/// SP-12. One that is in use keeps no other one from going; the thread ends, and starts again.
#[test]
fn a_table_goes_when_nobody_uses_it_any_more() {
    let place = Place::new();
    for _ in 0..2 {
        place.spaces.create(new_table("a.vdt")).unwrap();
        let other = NewSpace {
            id: SpaceId(41),
            ..new_table("b.vdt")
        };
        place.spaces.create(other).unwrap();
        let user = place.user();
        let len = user.len().unwrap();
        place.spaces.drop_space(ID).unwrap();
        place.spaces.drop_space(other.id).unwrap();
        wait(|| !place.path("41.vdt-gone").exists());
        assert_eq!(place.gone().metadata().unwrap().len(), len);
        drop(user);
        wait(|| !place.gone().exists());
    }
}

/// What can't be moved is removed.
#[test]
fn a_table_that_can_not_be_moved_loses_its_name() {
    let place = Place::new();
    std::fs::create_dir(place.gone()).unwrap();
    place.spaces.create(new_table("shop/a.vdt")).unwrap();
    let user = place.user();
    let len = user.len().unwrap();
    place.spaces.drop_space(ID).unwrap();
    std::fs::remove_dir(place.path("shop")).expect("it is empty");
    assert_eq!((user.names().unwrap(), user.len().unwrap()), (0, len));
}

/// So is what is at the end of a link, and its directory is empty, too.
#[test]
fn a_linked_file_loses_its_name() {
    let place = Place::new();
    let target = place.path("elsewhere/a-40.vdt");
    let linked = NewSpace {
        target: Some(&target),
        ..new_table("shop/a.vdt")
    };
    for replaced in [false, true] {
        let (user, len) = place.make_and_drop(linked, replaced);
        assert_eq!((user.names().unwrap(), user.len().unwrap()), (0, len));
        std::fs::remove_dir(place.path("elsewhere")).expect("it is empty");
        assert_eq!(place.path("shop/a.vdt").exists(), replaced);
    }
}

/// The undo file that another one takes the place of.
#[test]
fn a_replaced_undo_file_loses_its_name() {
    let place = Place::new();
    let undo = |id, path| NewSpace {
        id,
        kind: SpaceKind::Undo,
        ..new_table(path)
    };
    place.spaces.create(undo(ID, "undo.vdt")).unwrap();
    let id = SpaceId(41);
    place.spaces.create(undo(id, "undo-41.vdt")).unwrap();
    let user = place.user();
    let len = user.len().unwrap();
    place.spaces.replace_open(ID, id).unwrap();
    assert_eq!((user.names().unwrap(), user.len().unwrap()), (0, len));
    assert!(!place.gone().exists());
}

/// A damaged one that nobody could open as a tablespace.
#[test]
fn an_unopened_file_loses_its_name() {
    let place = Place::new();
    let file = place.disk.open(&place.path("a.vdt"), OpenMode::CreateNew);
    let user = file.unwrap();
    user.set_len(3 * PORTION).unwrap();
    assert!(place.spaces.remove_unopened("a.vdt").unwrap());
    assert_eq!(user.names().unwrap(), 0);
    wait(|| user.len().unwrap() <= PORTION);
}

/// Whoever finds the disk full waits for what is going, and no longer.
#[test]
fn a_full_disk_has_room_when_a_table_has_gone() {
    let place = Place::new();
    place.spaces.create(new_table("a.vdt")).unwrap();
    let full = &place.disk.with.full_until_gone;
    assert!(full.set(place.gone()).is_ok());
    let other = NewSpace {
        id: SpaceId(41),
        ..new_table("b.vdt")
    };
    let user = place.user();
    place.spaces.drop_space(ID).unwrap();
    let created = place.spaces.create(other);
    assert!(
        matches!(created, Err(Error::NoSpace { .. })),
        "nothing comes"
    );
    drop(user);
    place.spaces.create(other).unwrap();
    assert!(!place.gone().exists());
}
