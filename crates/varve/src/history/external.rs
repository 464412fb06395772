//! External values in the store: those that purge frees and that members may still come to.
//!
//! A value is known by the table and by who wrote it, and by its sequence there (OVF-1), which versions of
//! rows say that refer to it. So a reader who finds its pages gone asks for it by that. Its pieces are
//! versions of records in a tree of the table's own, with the key (TrxId, sequence, number of the piece). The
//! last number there can be is written when all pieces are there: without it the value is not here.

use std::ops::{Bound, ControlFlow};

use crate::base::{IndexId, Result, TableId, TrxNo};
use crate::row::ExternalRef;

use super::store::{Put, Store};
use super::version::{Kind, Members};

/// The number of what stands behind the pieces of a value.
const COMPLETE: u32 = u32::MAX;

/// No index has such a number: ids are counted from 1.
pub(super) fn tree_of_values(table: TableId) -> IndexId {
    IndexId(table.0 | 1 << 63)
}

fn piece_key(value: &ExternalRef, number: u32) -> Vec<u8> {
    [
        &value.trx.0.to_be_bytes()[..],
        &value.seq.to_be_bytes(),
        &number.to_be_bytes(),
    ]
    .concat()
}

impl Store {
    /// Whether the value is here, which `superseder` has freed.
    pub fn has_external_value(
        &self,
        table: TableId,
        value: &ExternalRef,
        superseder: TrxNo,
    ) -> Result<bool> {
        self.has(
            tree_of_values(table),
            &piece_key(value, COMPLETE),
            superseder,
        )
    }

    /// Keeps a value that `superseder` has freed for `members`.
    ///
    /// # Errors
    ///
    /// As [`Store::put`]: what is there of it does no harm.
    pub fn put_external_value(
        &self,
        table: TableId,
        value: &ExternalRef,
        bytes: &[u8],
        superseder: TrxNo,
        members: Members,
    ) -> Result<Put> {
        let tree = tree_of_values(table);
        let put = |number, piece| {
            let key = piece_key(value, number);
            self.put(tree, &key, superseder, members, Kind::Record, piece)
        };
        for (number, piece) in bytes.chunks(self.piece_bytes()).enumerate() {
            put(number as u32, piece)?;
        }
        put(COMPLETE, &[])
    }

    /// Appends the first `bytes` of the value to `out`; `false`: it is not here, and `out` as it was. Whose
    /// view asks is all the same: it has come to the value by a version that it sees.
    pub fn external_value(
        &self,
        table: TableId,
        value: &ExternalRef,
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let tree = tree_of_values(table);
        let (start, mut is_complete) = (out.len(), false);
        let end = piece_key(value, COMPLETE);
        self.visit(
            tree,
            (Bound::Included(&end), Bound::Included(&end)),
            |_, _| {
                is_complete = true;
                ControlFlow::Break(())
            },
        )?;
        if !is_complete {
            return Ok(false);
        }
        let first = piece_key(value, 0);
        self.visit(
            tree,
            (Bound::Included(&first), Bound::Excluded(&end)),
            |_, piece| {
                let left = bytes - (out.len() - start);
                out.extend_from_slice(&piece.record[..piece.record.len().min(left)]);
                match left > piece.record.len() {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            },
        )?;
        if out.len() - start == bytes {
            return Ok(true);
        }
        out.truncate(start);
        Ok(false)
    }

    /// Of a value in one record: several fit into a page.
    fn piece_bytes(&self) -> usize {
        self.page_size() / 4
    }
}
