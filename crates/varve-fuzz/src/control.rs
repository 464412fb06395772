//! The control file.
//!
//! What holds, whatever the bytes are: opening gives an error or what one of the copies says, and then the
//! file can be updated and opened again.
//!
//! Input: a byte that says which copies get the checksum that fits, then the file.

use std::path::Path;

use varve::internals::base::Lsn;
use varve::internals::io::{Disk, OpenMode};
use varve::internals::redo::{CONTROL_FILE, ControlFile};
use varve_sim::SimDisk;
use varve_sim::sample::{DIR, read};

use crate::input::Input;
use crate::sample;

const COPIES: [usize; 2] = [0, 4096];
const CRC: usize = 508;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let sealed = input.u8();
    let mut bytes = input.rest().to_vec();
    for (n, at) in COPIES.into_iter().enumerate() {
        if sealed >> n & 1 != 0
            && let Some(copy) = bytes.get_mut(at..at + 512)
        {
            let crc = crc32c::crc32c(&copy[..CRC]);
            copy[CRC..].copy_from_slice(&crc.to_le_bytes());
        }
    }
    let (disk, dir) = (SimDisk::default(), Path::new(DIR));
    disk.create_dir_all(dir).expect("a disk in memory");
    let file = disk.open(&dir.join(CONTROL_FILE), OpenMode::CreateNew);
    let file = file.expect("a disk in memory");
    file.write_at(&bytes, 0).expect("a disk in memory");
    let Ok(control) = ControlFile::open(&disk, dir, &mut |_| ()) else {
        return;
    };
    let mut want = control.control();
    want.checkpoint = Lsn(want.checkpoint.0 ^ 8);
    if control.update(|c| *c = want).is_ok() {
        let again = ControlFile::open(&disk, dir, &mut |_| ()).expect("just written");
        let again = again.control();
        // CTL-3.
        assert!((want.next_space..=want.next_space.saturating_add(16)).contains(&again.next_space));
        assert!((want.next_table..=want.next_table.saturating_add(16)).contains(&again.next_table));
        assert!((want.next_index..=want.next_index.saturating_add(64)).contains(&again.next_index));
        (want.next_space, want.next_table) = (again.next_space, again.next_table);
        want.next_index = again.next_index;
        assert_eq!(again, want);
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let path = Path::new(DIR).join(CONTROL_FILE);
    let mut seeds = Vec::new();
    for disk in [sample::disk(), sample::closed_disk()] {
        let file = read(&disk, &path);
        for sealed in 0..4 {
            seeds.push([&[sealed], &file[..4096 + 512], &[0; 4]].concat());
        }
    }
    seeds
}
