//! Undo records.
//!
//! What holds, whatever the bytes are: what can be decoded encodes to what decodes to the same; its pages,
//! external values and its difference to a row are read without a panic, and nothing is allocated that the
//! record and the row do not pay for.
//!
//! Input: the length of the record (2 bytes), the record, then a row that its difference is applied to.

use varve::internals::page::{SlottedRef, page_type};
use varve::internals::undo::{RowDiff, UndoRecord};

use crate::input::Input;
use crate::sample;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let len = input.u16() as usize;
    let (bytes, row) = (input.bytes(len), input.rest());
    differences(bytes, row);
    let Some(record) = UndoRecord::decode(bytes) else {
        return;
    };
    let mut encoded = Vec::new();
    record.encode(&mut encoded);
    assert_eq!(UndoRecord::decode(&encoded), Some(record));
    assert!(
        encoded.len() <= bytes.len(),
        "numbers are stored as shortly as can be"
    );
    assert!(record.pages().len() + record.frees().len() <= bytes.len());
    let _ = (record.pages().last(), record.frees().last());
    let _ = record.concerns_purge();
    if let Some(previous) = record.previous {
        let mut old = Vec::new();
        let fits = previous.diff.apply(row, &mut old).is_some();
        assert!(old.len() <= row.len() + bytes.len());
        assert!(fits || old.is_empty());
    }
}

/// The difference between two rows leads from either one to the other.
fn differences(a: &[u8], b: &[u8]) {
    for (old, new) in [(a, b), (b, a)] {
        let mut again = Vec::new();
        let diff = RowDiff::between(old, new);
        diff.apply(new, &mut again).expect("it was made for them");
        assert_eq!(again, old);
    }
}

/// Records of each kind from the sample's undo pages.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let mut kinds = Vec::new();
    for page in sample::pages() {
        let is_undo = page_type(&page.bytes).is_some_and(|t| t.is_slotted() && t as u8 > 4);
        if !is_undo {
            continue;
        }
        let slotted = SlottedRef::new(&page.bytes);
        for slot in 0..slotted.n_slots() {
            let payload = slotted.payload(slot);
            let Some(record) = UndoRecord::decode(payload) else {
                continue;
            };
            if !kinds.contains(&record.kind) {
                kinds.push(record.kind);
                let len = (payload.len() as u16).to_le_bytes();
                seeds.push([&len, payload, &[7; 60]].concat());
            }
        }
    }
    assert!(kinds.len() >= 5, "kinds of undo records: {kinds:?}");
    seeds
}
