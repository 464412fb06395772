//! Each rule of the fault model, by all states that it allows.

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

/// FAULT-3, IO-9: a link is durable with its directory, whatever becomes of what it leads to.
#[test]
fn a_link_is_a_name_of_its_own() {
    let disk = root();
    let (file, link) = (Path::new("/d/a"), Path::new("/d/l"));
    disk.link(file, link).unwrap();
    assert!(
        disk.open(link, OpenMode::Existing).is_err(),
        "it leads nowhere"
    );
    let look = |i: &Image| SimDisk::new(i.clone()).read_link(link).unwrap();
    let led = || Some(file.to_path_buf());
    states(&disk, look, &[None, led()]);
    disk.sync_dir(Path::new("/d")).unwrap();
    disk.open(file, OpenMode::CreateNew).unwrap();
    let through = disk.open(link, OpenMode::Existing).unwrap();
    through.write_at(b"x", 0).unwrap();
    assert_eq!(
        disk.open(file, OpenMode::ReadOnly).unwrap().len().unwrap(),
        1
    );
    states(
        &disk,
        |i: &Image| (look(i), read(i, "/d/a").is_some()),
        &[(led(), false), (led(), true)],
    );
    through.sync().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    disk.rename(link, Path::new("/d/m")).unwrap();
    disk.remove(Path::new("/d/m")).unwrap();
    states(
        &disk,
        |i: &Image| (look(i).is_some(), read(i, "/d/a")),
        &[(false, Some(b"x".to_vec())), (true, Some(b"x".to_vec()))],
    );
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
