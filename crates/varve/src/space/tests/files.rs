//! Which files are open, when they are closed, and what is synced.

use std::ops::Range;

use super::*;

/// So many tables' files on a disk, all open.
fn tables(spaces: &Spaces, ids: Range<u32>) -> Vec<SpaceId> {
    let ids: Vec<SpaceId> = ids.map(SpaceId).collect();
    for &id in &ids {
        let path = format!("s/{id}.vdt");
        let new = NewSpace {
            id,
            path: &path,
            ..new_table("")
        };
        spaces.create(new).unwrap();
    }
    ids
}

fn third_page(id: SpaceId) -> PageId {
    PageId::new(id, PageNo(3))
}

/// Table files by the dozen: those that are idle are closed, those that owe a sync are not, and each is found
/// again under the name that it has by then.
#[test]
fn idle_files_are_closed_and_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let spaces = spaces_on(Arc::new(RealDisk), dir.path());
    let limit = 10;
    let content = |id: SpaceId| vec![id.0 as u8; PAGE];
    let ids = tables(&spaces, 50..80);
    assert!(spaces.files().count() <= limit);
    for &id in &ids {
        spaces.write(third_page(id), &content(id)).unwrap();
    }
    assert_eq!(spaces.files().count(), ids.len(), "FILE-1: all owe a sync");
    for &id in &ids {
        spaces.sync(id).unwrap();
    }
    let reopened = spaces.files().reopened();
    let read = |id: SpaceId| {
        let mut buf = vec![0; PAGE];
        spaces.read(third_page(id), &mut buf).map(|()| buf)
    };
    // The files are closed with the next open of any.
    tables(&spaces, 49..50);
    assert!(spaces.files().count() <= limit, "FILE-3");
    assert_eq!(spaces.files().reopened(), reopened);
    // All but the newest are closed. FILE-2: renamed, replaced and removed meanwhile.
    spaces.rename(ids[0], "s/renamed.vdt").unwrap();
    spaces.rename(ids[1], &format!("s/{}.vdt", ids[0])).unwrap();
    spaces.replace(ids[2], ids[3]).unwrap();
    let late = spaces.get(ids[4]).unwrap();
    spaces.drop_space(ids[4]).unwrap();
    late.file.write_at(&content(ids[4]), 0).unwrap();
    late.file.sync().unwrap();
    let refused = late.file.to_read();
    assert!(matches!(refused, Err(Error::NotFound { .. })));
    assert!(!dir.path().join(format!("s/{}.vdt", ids[4])).exists());
    let gone = [ids[2], ids[4]];
    for &id in ids.iter().filter(|id| !gone.contains(id)) {
        assert_eq!(read(id).unwrap(), content(id), "{id}");
        assert!(spaces.files().count() <= limit);
    }
    assert!(spaces.files().reopened() >= reopened + 15);
    for id in gone {
        assert!(matches!(read(id), Err(Error::NotFound { .. })));
    }
    drop((late, spaces));
}

/// FILE-3: those that were used longest ago are closed first.
#[test]
fn the_least_recently_used_files_are_closed_first() {
    let dir = tempfile::tempdir().unwrap();
    let spaces = spaces_on(Arc::new(RealDisk), dir.path());
    let ids = tables(&spaces, 50..60);
    let read = |id| spaces.read(third_page(id), &mut [0; PAGE]).unwrap();
    ids.iter().rev().for_each(|&id| read(id));
    let reopened = spaces.files().reopened();
    tables(&spaces, 60..63);
    assert_eq!(spaces.files().count(), 10);
    ids[..7].iter().for_each(|&id| read(id));
    assert_eq!(spaces.files().reopened(), reopened);
    ids[7..].iter().for_each(|&id| read(id));
    assert_eq!(spaces.files().reopened(), reopened + 3);
}

/// FILE-4: where the process may have no more files open, idle ones give way. If none is idle, that is told,
/// and an error that may pass.
#[test]
fn files_are_opened_in_the_place_of_idle_ones() {
    let dir = tempfile::tempdir().unwrap();
    let disk = large_disk();
    let spaces = spaces_on(disk.clone(), dir.path());
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let tell = move |words: &str| tell.lock().push(words.to_string());
    spaces.files().tell_of_refusals(tell);
    tables(&spaces, 50..58);
    disk.with
        .most_open
        .store(disk.with.open.load(SeqCst), SeqCst);
    tables(&spaces, 58..60);
    let ids: Vec<SpaceId> = (50..60).map(SpaceId).collect();
    let read = |id| spaces.read(third_page(id), &mut [0; PAGE]);
    ids.iter().for_each(|&id| read(id).unwrap());
    assert!(spaces.files().reopened() >= 2 && told.lock().is_empty());
    // Those that owe a sync are not idle.
    let write = |id| spaces.write(third_page(id), &[7; PAGE]);
    let refused: Vec<_> = ids.iter().filter(|id| write(**id).is_err()).collect();
    assert_eq!(refused, [&ids[8], &ids[9]]);
    let errors = [
        read(ids[8]),
        write(ids[9]),
        spaces.keep_open(ids[9]).map(drop),
    ];
    for e in errors {
        let e = e.unwrap_err();
        assert!(e.is_out_of_means(), "{e}");
    }
    spaces.sync(ids[0]).unwrap();
    write(ids[9]).unwrap();
    let told = told.lock();
    assert!(told[0].contains("58.vdt") && told[0].contains("files of tables are open"));
    assert_eq!(told[1..], ["files can be opened again"]);
}

/// FILE-1: a file is not closed between somebody's write and the sync that follows it, though others sync it
/// in between.
#[test]
fn a_file_stays_open_until_its_writer_has_synced_it() {
    let dir = tempfile::tempdir().unwrap();
    let spaces = spaces_on(Arc::new(RealDisk), dir.path());
    let id = tables(&spaces, 50..51)[0];
    let file = spaces.get(id).unwrap().file.clone();
    let kept = spaces.keep_open(id).unwrap();
    spaces.write(third_page(id), &[7; PAGE]).unwrap();
    spaces.sync(id).unwrap();
    tables(&spaces, 60..90);
    assert!(file.to_sync().unwrap().is_some());
    drop(kept);
    tables(&spaces, 90..110);
    assert!(file.to_sync().unwrap().is_none());
}

/// FILE-1: an earlier process may have died between a write and its sync. Files that are closed were passed
/// over when all were synced.
#[test]
fn files_of_an_earlier_process_are_synced_once() {
    let dir = tempfile::tempdir().unwrap();
    let ids = tables(&spaces_on(Arc::new(RealDisk), dir.path()), 50..80);
    let disk = large_disk();
    let spaces = spaces_on(disk.clone(), dir.path());
    for id in &ids {
        spaces.open(&format!("s/{id}.vdt")).unwrap();
    }
    assert!(spaces.files().count() <= 10, "others are closed");
    let synced = || std::mem::take(&mut *disk.with.synced.lock());
    synced();
    spaces.sync_all(&ids).unwrap();
    let names: BTreeSet<PathBuf> = synced().into_iter().collect();
    assert_eq!(names.len(), ids.len());
    assert!(spaces.files().count() >= ids.len(), "FILE-3");
    tables(&spaces, 80..81);
    synced();
    spaces.sync_all(&ids).unwrap();
    assert!(synced().len() <= 10, "what is closed owes nothing now");
}

/// Closing a file may take long: it keeps nobody from opening another one.
#[test]
fn files_are_closed_without_the_mutex_of_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let disk = large_disk();
    let spaces = spaces_on(disk.clone(), dir.path());
    let late = Arc::downgrade(&spaces);
    let hook = move || {
        let Some(spaces) = late.upgrade() else {
            return;
        };
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || tell.send(spaces.files().count()));
        let free = told.recv_timeout(Duration::from_secs(60));
        assert!(free.is_ok(), "the list is locked");
    };
    assert!(disk.with.before_close.set(Box::new(hook)).is_ok());
    tables(&spaces, 50..65);
    assert!(spaces.files().count() <= 10);
}
