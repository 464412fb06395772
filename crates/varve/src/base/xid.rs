//! The name of a transaction that a coordinator decides on (X/Open XA), and its encoding in an undo log's
//! header.
//!
//! - **XID-1** A name that exists is valid: its parts have lengths in bounds. Damaged bytes decode to `None`.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::{Error, Result};

/// The most bytes of either part of an [`Xid`].
const MAX_PART: usize = 64;
/// Where the parts begin in the encoding: behind the format and their lengths.
const PARTS_AT: usize = 10;
/// Bytes of the longest encoding.
pub const XID_MAX_ENCODED: usize = PARTS_AT + 2 * MAX_PART;

/// A global transaction's name and that of this branch of it, both chosen by the coordinator.
///
/// Two names are equal if their parts are: the format says how a coordinator reads them, and MariaDB's
/// coordinator does not repeat it when it decides.
#[derive(Clone, Copy)]
pub struct Xid {
    format: i64,
    global_len: u8,
    branch_len: u8,
    /// The global part, then the branch part, then zeros.
    parts: [u8; 2 * MAX_PART],
}

impl Xid {
    /// # Errors
    ///
    /// `Invalid` unless `global` has 1 to 64 bytes and `branch` at most 64.
    pub fn new(format: i64, global: &[u8], branch: &[u8]) -> Result<Xid> {
        if !lengths_are_valid(global.len(), branch.len()) {
            return Err(Error::invalid(format!(
                "an XA name of {} and {} bytes: the first part has 1 to {MAX_PART} bytes, the second at most {MAX_PART}",
                global.len(),
                branch.len()
            )));
        }
        let mut parts = [0; 2 * MAX_PART];
        parts[..global.len()].copy_from_slice(global);
        parts[global.len()..global.len() + branch.len()].copy_from_slice(branch);
        Ok(Xid {
            format,
            global_len: global.len() as u8,
            branch_len: branch.len() as u8,
            parts,
        })
    }

    pub fn format(&self) -> i64 {
        self.format
    }

    /// The global transaction's name.
    pub fn global(&self) -> &[u8] {
        &self.parts[..self.global_len as usize]
    }

    /// The name of the branch; may be empty.
    pub fn branch(&self) -> &[u8] {
        let from = self.global_len as usize;
        &self.parts[from..from + self.branch_len as usize]
    }

    /// Format, lengths, parts.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.format.to_le_bytes());
        out.extend_from_slice(&[self.global_len, self.branch_len]);
        out.extend_from_slice(self.global());
        out.extend_from_slice(self.branch());
    }

    /// Reads an encoding at the start of `bytes` (XID-1).
    pub(crate) fn decode(bytes: &[u8]) -> Option<Xid> {
        let (head, parts) = bytes.split_at_checked(PARTS_AT)?;
        let (format, lengths) = head.split_at(8);
        let (global, branch) = (lengths[0] as usize, lengths[1] as usize);
        let parts = parts.get(..global + branch)?;
        let format = i64::from_le_bytes(format.try_into().expect("8 bytes"));
        Xid::new(format, &parts[..global], &parts[global..]).ok()
    }
}

fn lengths_are_valid(global: usize, branch: usize) -> bool {
    (1..=MAX_PART).contains(&global) && branch <= MAX_PART
}

impl PartialEq for Xid {
    fn eq(&self, other: &Xid) -> bool {
        (self.global(), self.branch()) == (other.global(), other.branch())
    }
}

impl Eq for Xid {}

impl Hash for Xid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.global().hash(state);
        self.branch().hash(state);
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (global, branch) = (self.global().escape_ascii(), self.branch().escape_ascii());
        write!(f, "'{global}','{branch}',{}", self.format)
    }
}

impl fmt::Debug for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Xid({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// XID-1.
    #[test]
    fn names_survive_the_round_trip_and_every_cut_is_noticed() {
        let long = [7; MAX_PART];
        for (format, global, branch) in [
            (1, &b"g"[..], &b""[..]),
            (-5, b"global", b"branch"),
            (i64::MAX, &long, &long),
        ] {
            let xid = Xid::new(format, global, branch).unwrap();
            let mut bytes = Vec::new();
            xid.encode(&mut bytes);
            assert!(bytes.len() <= XID_MAX_ENCODED);
            let back = Xid::decode(&bytes).unwrap();
            assert_eq!(
                (back.format(), back.global(), back.branch()),
                (format, global, branch)
            );
            for cut in 0..bytes.len() {
                assert_eq!(Xid::decode(&bytes[..cut]), None, "cut at {cut}");
            }
        }
    }

    /// XID-1.
    #[test]
    fn lengths_out_of_bounds_are_refused() {
        let long = [7; MAX_PART + 1];
        for (global, branch) in [(&b""[..], &b"b"[..]), (&long, b""), (b"g", &long)] {
            assert!(Xid::new(1, global, branch).is_err());
        }
        let mut bytes = vec![0; XID_MAX_ENCODED];
        assert_eq!(Xid::decode(&bytes), None, "an empty global part");
        bytes[8] = 65;
        assert_eq!(Xid::decode(&bytes), None, "a long global part");
    }

    #[test]
    fn the_format_is_not_compared_and_the_border_of_the_parts_is() {
        let xid = |format, global, branch| Xid::new(format, global, branch).unwrap();
        assert_eq!(xid(1, b"ab", b"c"), xid(2, b"ab", b"c"));
        assert_ne!(xid(1, b"ab", b"c"), xid(1, b"a", b"bc"));
    }
}
