//! Taking all records out of a tree, from the left to the right. Each step is a mini-transaction that leaves
//! a good tree (BT-4): a leaf loses its records, then it is merged with a neighbour. In the end the root is
//! an empty leaf.
//!
//! Nobody else changes the tree meanwhile. If it fails, what was handed out is gone.

use smallvec::SmallVec;

use crate::base::Result;
use crate::page::{PageOp, SlottedRef};

use super::Tree;

impl Tree {
    /// Removes all records and hands them to `each`, in the order of their keys and without a latch.
    pub fn drain(&self, mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let (mut page, mut low, mut key) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let mut mtr = self.begin_structure_change()?;
            let h = self.leaf_exclusive(&mut mtr, &low, None)?;
            page.clear();
            page.extend_from_slice(mtr.bytes(h));
            let p = SlottedRef::new(&page);
            let slots: SmallVec<[[u8; 2]; 256]> =
                (0..p.n_slots() as u16).map(u16::to_le_bytes).collect();
            if !slots.is_empty() {
                mtr.op(h, PageOp::RemoveMany { slots: &slots });
            }
            mtr.commit();
            for slot in 0..p.n_slots() {
                key.clear();
                p.push_key(slot, &mut key);
                each(&key, p.payload(slot))?;
            }
            self.maybe_merge(&low)?;
            // The leaf that has this key now may begin before it, with nothing there.
            let Some(high) = p.high() else {
                return Ok(());
            };
            low.clear();
            low.extend_from_slice(high);
        }
    }
}
