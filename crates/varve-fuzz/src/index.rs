//! The index of a redo log file.
//!
//! What holds, whatever the bytes are: what is opened is the index that was asked for; its sections are
//! refused or ascending; a block says nothing, or frames of which each begins before it ends.
//!
//! Input: a byte that says whether header and sections get the checksums that fit, then changes of an index
//! of the sample's log. Blocks are decoded whether they are whole or not.

use std::path::Path;
use std::sync::OnceLock;

use varve::internals::base::PageId;
use varve::internals::io::{Disk, DiskFile, OpenMode};
use varve::internals::recovery::index::{
    Block, DatabaseIdentity, FileId, Index, IndexBuilder, IndexedFrame, decode_block, index_path,
};
use varve::internals::redo::{ControlFile, RedoReader};
use varve_sim::SimDisk;
use varve_sim::sample::DIR;

use crate::input::Input;
use crate::sample;

/// Offsets of docs/format.md in the header.
const BLOCKS_BYTES: usize = 128;
const SECTIONS: [usize; 4] = [136, 152, 168, 184];
const CRC: usize = 4092;
const HEADER_BYTES: usize = 4096;

struct Made {
    image: Vec<u8>,
    id: FileId,
    uuid: [u8; 16],
}

/// An index of all of the sample's log, as if that were one file.
fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let (disk, dir) = (sample::disk(), Path::new(DIR));
        let control = ControlFile::open(&disk, dir, &mut |_| ()).expect("whole");
        let control = control.control();
        let (uuid, first) = (control.uuid, control.checkpoint);
        let mut reader =
            RedoReader::open(&disk, dir, &uuid, first, &Default::default()).expect("whole");
        let mut builder = IndexBuilder::new();
        while let Some(frame) = reader.next().expect("whole") {
            builder.add(&frame).expect("whole");
        }
        let id = FileId {
            number: 1,
            generation: 1,
            start: first,
            end: reader.position(),
        };
        let identity = DatabaseIdentity {
            page_size: control.page_size,
            uuid,
        };
        let image = builder.finish(id, first, identity);
        Made { image, id, uuid }
    })
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Gives sections and header the checksums that fit.
fn seal(image: &mut [u8]) {
    let mut from = (HEADER_BYTES as u64).wrapping_add(u64_at(image, BLOCKS_BYTES));
    for at in SECTIONS {
        let end = from.wrapping_add(u64_at(image, at));
        if let Some(section) = image.get(from as usize..end as usize) {
            let crc = u64::from(crc32c::crc32c(section));
            image[at + 8..at + 16].copy_from_slice(&crc.to_le_bytes());
        }
        from = end;
    }
    let crc = crc32c::crc32c(&image[..CRC]);
    image[CRC..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let Made { image, id, uuid } = made();
    let (mut image, is_sealed) = (image.clone(), input.bool());
    while !input.is_empty() {
        // The header and the sections behind the blocks are what is told apart most.
        let at = match input.below(3) {
            0 => input.below(256),
            1 => image.len() - 1 - input.below(256),
            _ => input.u32() as usize % image.len(),
        };
        let len = input.below(9);
        let bytes = input.bytes(len);
        let n = bytes.len().min(image.len() - at);
        image[at..at + n].copy_from_slice(&bytes[..n]);
    }
    if is_sealed {
        seal(&mut image);
    }
    let (disk, dir) = (SimDisk::default(), Path::new(DIR));
    disk.create_dir_all(dir).expect("a disk in memory");
    let file = disk.open(&index_path(dir, 1), OpenMode::CreateNew);
    let file = file.expect("a disk in memory");
    file.write_at(&image, 0).expect("a disk in memory");
    let index = Index::open(file.clone(), uuid, id).expect("it can be read");
    if let Some(index) = index {
        read(&index, &*file, id);
    }
}

fn read(index: &Index, file: &dyn DiskFile, id: &FileId) {
    let head = index.head();
    assert_eq!(head.file, *id, "IDX-4");
    assert!(head.file.start <= head.first && head.first <= head.next);
    if let Ok(restarts) = index.restarts() {
        assert!(restarts.is_sorted_by(|a, b| a.0 < b.0));
    }
    let Ok(units) = index.units() else {
        return;
    };
    assert!(units.is_sorted_by(|a, b| a.0 < b.0));
    for (unit, marks) in units {
        assert_eq!(marks.fresh & !marks.lacks, 0);
        let pages = (0..16).filter(|no| marks.lacks >> no & 1 != 0);
        pages.for_each(|no| look_up(index, file, PageId::from_u64(unit * 16 + no)));
    }
}

fn look_up(index: &Index, file: &dyn DiskFile, page: PageId) {
    let Some(Block::File { place, .. }) = index.block_of(page) else {
        return;
    };
    let mut block = vec![0; place.len as usize];
    file.read_at(&mut block, place.offset)
        .expect("within the file");
    for found in decode_block(&block, page).unwrap_or_default() {
        match found {
            IndexedFrame::At { start, end } => assert!(start < end),
            IndexedFrame::Change(change) => {
                assert!(change.page == page && change.start < change.end && !change.fresh);
            }
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0], vec![1]];
    for at in [96, 104, 112, 128, 136, 144, 152, 168, 184] {
        seeds.push(vec![1, 0, at, 2, 1, 1]);
    }
    for at in 0..8 {
        seeds.push(vec![1, 1, 16 * at, at, 3, 0xff, 0x81, 0x80]);
        seeds.push(vec![1, 2, 16 * at, 16 + at, 0, 0, 3, 0xff, 0x81, 0x80]);
    }
    seeds
}
