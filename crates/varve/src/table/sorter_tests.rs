//! Sorting against a sorted `Vec`, with and without a file; a file that is damaged at any of its bytes; and
//! what becomes of the file when the disk is full.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use proptest::collection::vec;
use proptest::prelude::*;

use super::sorter::*;
use crate::base::{Error, Result};
use crate::encryption::Scratch;
use crate::io::RealDisk;
use crate::io::meddled::{MeddledDisk, Meddler};

type Record = (Vec<u8>, Vec<u8>);

fn sorter_in(dir: &Path, memory_bytes: usize) -> Sorter {
    Sorter::new(Arc::new(RealDisk), dir.into(), memory_bytes)
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

/// How many files of this process are in the directory, or were as long as they had a name.
fn open_files(dir: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let files = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    files.filter(|file| file.starts_with(dir)).count()
}

fn push_all(sorter: &mut Sorter, records: &[Record]) -> Result<()> {
    (records.iter()).try_for_each(|(key, payload)| sorter.push(key, payload))
}

fn take_all(mut sorted: Sorted) -> Result<Vec<Record>> {
    let mut all = Vec::new();
    while let Some((key, payload)) = sorted.next_record()? {
        all.push((key.to_vec(), payload.to_vec()));
    }
    assert!(sorted.next_record()?.is_none(), "the end stays the end");
    Ok(all)
}

/// Those of equal keys by their payloads: their order is not promised.
fn by_payload_too(mut records: Vec<Record>) -> Vec<Record> {
    records.sort();
    records
}

/// Sorts in so much memory. Says how much went to the file before the end.
fn check(records: &[Record], memory_bytes: usize) -> u64 {
    check_by(records, |dir| sorter_in(dir, memory_bytes))
}

fn check_by(records: &[Record], sorter: impl FnOnce(&Path) -> Sorter) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let mut sorter = sorter(dir.path());
    push_all(&mut sorter, records).unwrap();
    let spilled_bytes = sorter.spilled().unwrap().map_or(0, |(_, bytes)| bytes);
    assert_eq!(open_files(dir.path()), usize::from(spilled_bytes > 0));
    assert!(is_empty(dir.path()), "SORT-3");
    let found = take_all(sorter.finish(&|| Ok(())).unwrap()).unwrap();
    assert!(found.is_sorted_by_key(|(key, _)| key), "SORT-1");
    assert_eq!(by_payload_too(found), by_payload_too(records.to_vec()));
    assert_eq!(open_files(dir.path()), 0, "SORT-3");
    spilled_bytes
}

/// Keys that are often equal, begin with each other, or differ in zeros at the end only.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(255)];
    let tail = vec(byte, 0..6);
    let start = prop_oneof![
        Just(Vec::new()),
        Just(b"seven77".to_vec()),
        Just(b"eight888".to_vec()),
        Just(b"a prefix of many".to_vec()),
        Just(vec![0; 7]),
        vec(any::<u8>(), 0..20),
    ];
    (start, tail).prop_map(|(start, tail)| [start, tail].concat())
}

fn record() -> impl Strategy<Value = Record> {
    (key(), vec(any::<u8>(), 0..10))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn sorts_as_a_vec_does(
        mut records in vec(record(), 0..300),
        shared in vec(any::<u8>(), 0..12),
        memory_bytes in 0usize..20_000,
    ) {
        for (key, _) in &mut records {
            key.splice(..0, shared.iter().copied());
        }
        check(&records, memory_bytes);
        check(&records, 1 << 20);
    }
}

/// `n` records with keys of so many bytes, in no order.
fn records(n: u32, key_len: usize) -> Vec<Record> {
    let record = |i: u32| {
        let mut key = i.wrapping_mul(2_654_435_761).to_be_bytes().to_vec();
        key.resize(key_len, 0);
        (key, i.to_le_bytes().to_vec())
    };
    (0..n).map(record).collect()
}

#[test]
fn one_run_or_many_in_one_block_or_many() {
    let longest = vec![
        (vec![7; 65535], vec![8; 65535]),
        (vec![7; 65534], Vec::new()),
    ];
    let in_order = by_payload_too(records(20_000, 12));
    let reversed = in_order.iter().rev().cloned().collect();
    for (records, memory_bytes, spills) in [
        (Vec::new(), 0, false),
        (records(1, 4), 0, false),
        (records(2, 4), 0, true),
        (records(1000, 4), 0, true),
        (records(20_000, 12), 1 << 20, false),
        // Runs of 8192 records in blocks of 16 KiB; what is left stays in memory, or has no room there.
        (records(20_000, 12), 256 << 10, true),
        (records(32_700, 12), 256 << 10, true),
        (in_order, 64 << 10, true),
        (reversed, 64 << 10, true),
        (longest.clone(), 1 << 20, false),
        (longest, 1000, true),
        (records(300, 40_000), 1 << 20, true),
    ] {
        assert_eq!(check(&records, memory_bytes) > 0, spills, "{memory_bytes}");
    }
}

/// Several sorters share fewer helpers than they are, or more.
#[test]
fn helpers_sort_and_write_runs() {
    let all = records(60_000, 20);
    for most in [0, 1, 2, 8] {
        let helpers = SortHelpers::at_most(most);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let sorter = |dir: &Path| sorter_in(dir, 512 << 10).with_helpers(&helpers);
                    let spilled = check_by(&all, sorter);
                    assert!(spilled > 1 << 20, "{spilled}");
                });
            }
        });
    }
}

/// SPILL-1, SORT-3: also when a helper is at work.
#[test]
fn a_sorter_that_is_given_up_leaves_no_file() {
    let helpers = SortHelpers::at_most(1);
    let all = records(40_000, 20);
    for _ in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let mut sorter = sorter_in(dir.path(), 512 << 10).with_helpers(&helpers);
        push_all(&mut sorter, &all).unwrap();
        drop(sorter);
        assert!(is_empty(dir.path()), "SORT-3");
        assert_eq!(open_files(dir.path()), 0, "SORT-3");
    }
}

/// Memory has no room for a block of each run: runs become fewer before the last merge.
#[test]
fn many_runs_are_merged_in_several_passes() {
    let all = records(60_000, 20);
    let spilled = check(&all, 16 << 10);
    assert!(spilled > 100 * (16 << 10), "{spilled}");
    let dir = tempfile::tempdir().unwrap();
    let mut sorter = sorter_in(dir.path(), 16 << 10);
    push_all(&mut sorter, &all).unwrap();
    let refused = sorter.finish(&|| Err(Error::Interrupted)).map(drop);
    assert!(matches!(refused, Err(Error::Interrupted)));
}

/// What is written is encrypted for who wants that, and comes back.
#[test]
fn what_is_written_can_be_encrypted() {
    let records: Vec<Record> = (0..3000u32)
        .map(|n| {
            (
                n.wrapping_mul(2_654_435_761).to_be_bytes().into(),
                b"secret".to_vec(),
            )
        })
        .collect();
    for scratch in [None, Some(Arc::new(Scratch::drawn()))] {
        let dir = tempfile::tempdir().unwrap();
        let is_encrypted = scratch.is_some();
        let mut sorter = sorter_in(dir.path(), 8 << 10).with_scratch(scratch);
        push_all(&mut sorter, &records).unwrap();
        let (file, len) = sorter.spilled().unwrap().unwrap();
        let mut bytes = vec![0; len as usize];
        file.read_at(&mut bytes, 0).unwrap();
        assert_ne!(bytes.windows(6).any(|w| w == b"secret"), is_encrypted);
        let found = take_all(sorter.finish(&|| Ok(())).unwrap()).unwrap();
        assert_eq!(found, by_payload_too(records.clone()));
    }
}

/// SORT-2, of headers and data.
#[test]
fn a_damaged_byte_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let records = records(600, 20);
    let mut file_len = 1;
    let mut at = 0;
    while at < file_len {
        let mut sorter = sorter_in(dir.path(), 8 << 10);
        push_all(&mut sorter, &records).unwrap();
        let file;
        (file, file_len) = sorter.spilled().unwrap().unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ (1 << (at % 8))], at).unwrap();
        let refused = sorter
            .finish(&|| Ok(()))
            .and_then(take_all)
            .map(drop)
            .unwrap_err();
        assert!(matches!(refused, Error::CorruptFile { .. }), "{refused}");
        let dir = dir.path().to_str().unwrap();
        assert!(refused.to_string().contains(dir), "{refused}");
        // The first blocks' headers whole, and then here and there.
        at += if at < 20 { 1 } else { 97 };
    }
    assert!(file_len > 10_000);
}

/// Who goes on after an error gets it again, and not the next records.
#[test]
fn damage_stays_damage() {
    let dir = tempfile::tempdir().unwrap();
    let mut sorter = sorter_in(dir.path(), 64 << 10);
    push_all(&mut sorter, &records(20_000, 20)).unwrap();
    let (file, len) = sorter.spilled().unwrap().unwrap();
    let last = len - 1;
    let mut sorted = sorter.finish(&|| Ok(())).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, last).unwrap();
    file.write_at(&[!byte[0]], last).unwrap();
    while sorted.next_record().is_ok_and(|record| record.is_some()) {}
    for _ in 0..3 {
        let refused = sorted.next_record().map(drop).unwrap_err();
        assert!(matches!(refused, Error::CorruptFile { .. }), "{refused}");
    }
}

#[derive(Default)]
struct Full {
    is_full: AtomicBool,
}

impl Meddler for Full {
    fn before_write(&self, path: &Path, offset: u64, _len: usize) -> Result<()> {
        match self.is_full.load(Relaxed) && offset > 10_000 {
            true => Err(Error::io("write", path, rustix::io::Errno::NOSPC.into())),
            false => Ok(()),
        }
    }
}

/// SORT-3, and SORT-4: it may also be tried again, and nothing is lost or there twice. A helper's error is
/// heard of later.
#[test]
fn a_full_disk_is_an_error_and_the_file_goes() {
    for (n, memory_bytes, most) in [(2000, 16 << 10, 0), (60_000, 512 << 10, 1)] {
        let records = records(n, 20);
        for tries_again in [false, true] {
            let helpers = SortHelpers::at_most(most);
            check_full_disk(&records, memory_bytes, &helpers, tries_again);
        }
    }
}

fn check_full_disk(
    records: &[Record],
    memory_bytes: usize,
    helpers: &Arc<SortHelpers>,
    tries_again: bool,
) {
    let dir = tempfile::tempdir().unwrap();
    let full = Arc::new(Full::default());
    full.is_full.store(true, Relaxed);
    let disk = MeddledDisk::new(full.clone());
    let mut sorter = Sorter::new(disk, dir.path().into(), memory_bytes).with_helpers(helpers);
    let mut refused = 0;
    for (key, payload) in records {
        while let Err(e) = sorter.push(key, payload) {
            assert!(matches!(e, Error::NoSpace { .. }), "{e}");
            let name = dir.path().to_str().unwrap();
            assert!(e.to_string().contains(name), "{e}");
            refused += 1;
            full.is_full.store(false, Relaxed);
        }
        if refused > 0 && !tries_again {
            break;
        }
    }
    assert_eq!(refused, 1);
    if tries_again {
        let found = take_all(sorter.finish(&|| Ok(())).unwrap()).unwrap();
        assert_eq!(found, by_payload_too(records.to_vec()));
    } else {
        drop(sorter);
    }
    assert!(is_empty(dir.path()), "SORT-3");
    assert_eq!(open_files(dir.path()), 0, "SORT-3");
}
