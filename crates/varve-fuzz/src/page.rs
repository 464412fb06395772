//! A page from a file: header, slotted body, page operations.
//!
//! What holds, whatever the bytes are (page/mod.rs):
//!
//! - a page that the checks accept can be read in every way, and every operation that applies leaves one that
//!   they accept again (PG-2);
//! - an operation that can't be applied changes nothing (PG-3);
//! - an operation that can be decoded encodes to what decodes to the same.
//!
//! Input: a page, then page operations as the redo log has them.

use std::sync::Arc;

use varve::internals::catalog::OverflowPage;
use varve::internals::encryption::Cipher;
use varve::internals::page::{
    Compression, Compressor, InnerImage, PAGE_HEADER, PageOp, PageType, Sealing, SlottedRef, load,
    load_with, page_id, page_type, seal, seal_with, validate, validate_keys, verify,
};
use varve::internals::undo::LogHeader;
use varve_sim::sample::PAGE;

use crate::input::Input;
use crate::sample;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut page = vec![0; PAGE];
    let head = input.bytes(PAGE);
    page[..head.len()].copy_from_slice(head);
    let id = page_id(&page);
    let _ = verify(&page, id);
    stored(&page);
    seal(&mut page);
    if verify(&page, id).is_err() || validate(&page, id).is_err() {
        return;
    }
    read(&page);
    let mut ops = input.rest();
    while let Ok((op, len)) = PageOp::decode(ops) {
        assert_eq!(PageOp::encoded_len(ops), Ok(len));
        let mut encoded = Vec::new();
        op.encode(&mut encoded);
        assert_eq!(PageOp::decode(&encoded), Ok((op, encoded.len())));
        let before = page.clone();
        match op.apply(&mut page, id) {
            Ok(()) => validate(&page, id).unwrap_or_else(|e| panic!("PG-2: {op:?}: {e}")),
            Err(_) => assert_eq!(page, before, "PG-3: {op:?}"),
        }
        read(&page);
        ops = &ops[len..];
    }
}

/// PG-6, of a page that says that it is compressed or encrypted, with a right checksum, and of one that is
/// here.
fn stored(page: &[u8]) {
    let id = page_id(page);
    // Smaller pages are stored as they are.
    let mut page = [page, page].concat();
    let mut nonsense = page.clone();
    let len = u32::from_le_bytes(nonsense[24..28].try_into().expect("4 bytes")) as usize;
    let crc = crc32c::crc32c(&nonsense[4..len.clamp(PAGE_HEADER, page.len())]);
    nonsense[..4].copy_from_slice(&crc.to_le_bytes());
    let cipher = Arc::new(Cipher::derive(&[1; 16], &[], &[], 1));
    let cipher_of = &mut |_| Ok(cipher.clone());
    let _ = load_with(&mut nonsense, id, cipher_of);
    // What a page in memory has there.
    page[14..16].fill(0);
    page[28..PAGE_HEADER].fill(0);
    let mut compressor = Compressor::default();
    for with in [None, Some(Compression::LZ4), Some(Compression::zstd(1))] {
        for cipher in [None, Some(&*cipher)] {
            let (mut whole, mut stored) = (page.clone(), page.clone());
            seal(&mut whole);
            let compression = with.map(|with| (with, &mut compressor));
            let sealing = Sealing {
                compression,
                cipher,
            };
            seal_with(&mut stored, id, sealing);
            let loaded = load(&mut whole, id).is_ok();
            let is_same = loaded == load_with(&mut stored, id, cipher_of).is_ok();
            assert!(is_same && (!loaded || whole[4..] == stored[4..]), "PG-6");
        }
    }
}

/// Every way to read a page that `validate` accepts.
fn read(page: &[u8]) {
    let id = page_id(page);
    let _ = LogHeader::read(page, id);
    let _ = OverflowPage::decode(page);
    if !page_type(page).is_some_and(|t| t.is_slotted()) {
        return;
    }
    let p = SlottedRef::new(page);
    let (_, heap) = p.heap();
    assert!(heap.len() <= page.len() && p.used_space() <= page.len());
    assert!(p.free_space() <= p.capacity());
    let _ = (p.owner(), p.level(), p.next(), p.user(), p.last_insert());
    let is_tree = matches!(page_type(page), Some(PageType::Leaf | PageType::Inner));
    let in_order = is_tree && validate_keys(page, id).is_ok();
    for slot in 0..p.n_slots() {
        let key = p.key(slot);
        assert_eq!(p.payload(slot), p.entry(slot).1);
        assert!(p.cost(slot) <= page.len());
        let found = p.search(&key);
        assert!(!in_order || found == Ok(slot), "slot {slot}: {found:?}");
    }
    let _ = (p.search(b""), p.search(&[0xff; 64]));
    read_inner(page);
}

fn read_inner(page: &[u8]) {
    let Ok(image) = InnerImage::decode(page, page_id(page)) else {
        return;
    };
    for key in [&b""[..], b"a", &[0xff; 40]] {
        let _ = (image.covers(key), image.covers_below(key));
        let _ = (image.child_for(key).no, image.child_below(key).no);
    }
    for slot in 0..image.n_children() {
        let key = image.separator(slot);
        let _ = (image.child_for(&key).no, image.child(slot).no);
        let _ = image.is_range_of(slot, &key, image.high());
    }
}

/// One page of each type, with one operation of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let ops = crate::redo::sample_ops();
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    let mut types = Vec::new();
    for page in sample::pages() {
        let t = page_type(&page.bytes);
        if !types.contains(&t) {
            types.push(t);
            seeds.push([&page.bytes[..], &ops].concat());
        }
    }
    assert!(types.len() >= 10, "page types in the sample: {types:?}");
    seeds
}
