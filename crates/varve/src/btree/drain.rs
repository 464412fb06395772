//! Taking many records out of a tree, from the left to the right. Each step is a mini-transaction that leaves
//! a good tree (BT-4): a leaf loses its records, then it is merged with a neighbour. If none is left the root
//! is an empty leaf in the end.
//!
//! If it fails, what was handed out is gone. Others may read and change the tree meanwhile: what they put
//! behind the place at hand is met, what they put before it is not.

use smallvec::SmallVec;

use crate::base::Result;
use crate::page::{PageOp, SlottedRef};

use super::Tree;

impl Tree {
    /// Removes all records and hands them to `each`, in the order of their keys and without a latch.
    pub fn drain(&self, each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        self.drain_some(|_| true, each).map(drop)
    }

    /// The same with those whose payload is `wanted`. Returns whether it has met others.
    pub fn drain_some(
        &self,
        wanted: impl Fn(&[u8]) -> bool,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<bool> {
        let (mut page, mut low, mut key) = (Vec::new(), Vec::new(), Vec::new());
        let mut has_others = false;
        loop {
            let mut mtr = self.begin_structure_change()?;
            let h = self.leaf_exclusive(&mut mtr, &low, None)?;
            page.clear();
            page.extend_from_slice(mtr.bytes(h));
            let p = SlottedRef::new(&page);
            let going = (0..p.n_slots()).filter(|slot| wanted(p.payload(*slot)));
            let slots: SmallVec<[[u8; 2]; 256]> =
                going.map(|slot| (slot as u16).to_le_bytes()).collect();
            if !slots.is_empty() {
                mtr.op(h, PageOp::RemoveMany { slots: &slots });
            }
            mtr.commit();
            for slot in slots.iter().map(|slot| u16::from_le_bytes(*slot)) {
                key.clear();
                p.push_key(slot.into(), &mut key);
                each(&key, p.payload(slot.into()))?;
            }
            has_others |= slots.len() < p.n_slots();
            if !slots.is_empty() {
                self.maybe_merge(&low)?;
            }
            // The leaf that has this key now may begin before it, with what was met already.
            let Some(high) = p.high() else {
                return Ok(has_others);
            };
            low.clear();
            low.extend_from_slice(high);
        }
    }
}
