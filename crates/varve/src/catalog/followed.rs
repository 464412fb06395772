//! Which rows of a table are changed while somebody follows its changes: indexes are being built.
//!
//! Whoever changes a row notes its clustered key and the transaction before that ends. Who follows takes the
//! notes, and looks at the rows for what became of them (`table/catch_up.rs`); what was rolled back is noted,
//! too.
//!
//! Following begins under an exclusive lock on the table, which every later change comes after by its own
//! lock there: so Relaxed is enough for the look whether anybody follows. One mutex is taken for each change
//! meanwhile, for as long as it takes to copy a key.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::base::TrxId;

/// Notes of changed rows, in the order of the changes.
#[derive(Default)]
pub struct Notes {
    /// For each: the transaction u64, the key's length u16, the key.
    bytes: Vec<u8>,
}

const HEAD_BYTES: usize = 8 + 2;

impl Notes {
    pub fn push(&mut self, writer: TrxId, key: &[u8]) {
        let len = u16::try_from(key.len()).expect("a key is shorter than a page");
        self.bytes.extend_from_slice(&writer.0.to_le_bytes());
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(key);
    }

    pub fn iter(&self) -> impl Iterator<Item = (TrxId, &[u8])> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (head, behind) = rest.split_first_chunk::<HEAD_BYTES>()?;
            let (writer, len) = head.split_first_chunk().expect("8 of 10 bytes");
            let len = u16::from_le_bytes(len.try_into().expect("2 bytes"));
            let (key, behind) = behind.split_at(len.into());
            rest = behind;
            Some((TrxId(u64::from_le_bytes(*writer)), key))
        })
    }

    fn add(&mut self, others: &Notes) {
        self.bytes.extend_from_slice(&others.bytes);
    }
}

/// What is noted while somebody follows.
struct Log {
    notes: Notes,
    /// Bytes that they may take.
    limit: usize,
    /// They took more, and are gone.
    is_full: bool,
}

/// The changes of a table's rows.
#[derive(Default)]
pub struct FollowedChanges {
    is_followed: AtomicBool,
    log: Mutex<Option<Log>>,
}

impl FollowedChanges {
    /// Begins to note changes, in so many bytes at most. The caller has locked the table exclusively.
    pub fn follow(&self, limit: usize) {
        let log = Log {
            notes: Notes::default(),
            limit,
            is_full: false,
        };
        let before = self.log.lock().replace(log);
        debug_assert!(before.is_none(), "one at a time");
        self.is_followed.store(true, Ordering::Relaxed);
    }

    pub fn is_followed(&self) -> bool {
        self.is_followed.load(Ordering::Relaxed)
    }

    pub fn forget(&self) {
        self.is_followed.store(false, Ordering::Relaxed);
        *self.log.lock() = None;
    }

    /// `writer`, which has not ended, changes the row with this key.
    #[inline]
    pub fn note(&self, writer: TrxId, key: &[u8]) {
        if self.is_followed() {
            self.note_followed(writer, key);
        }
    }

    #[cold]
    fn note_followed(&self, writer: TrxId, key: &[u8]) {
        if let Some(log) = &mut *self.log.lock()
            && !log.is_full
        {
            log.notes.push(writer, key);
            log.restrict();
        }
    }

    /// The notes; `None` if they became too many.
    pub fn take(&self) -> Option<Notes> {
        let mut log = self.log.lock();
        let log = log.as_mut().filter(|log| !log.is_full)?;
        Some(std::mem::take(&mut log.notes))
    }

    /// These were taken, and are to be taken again.
    pub fn put_back(&self, notes: &Notes) {
        if let Some(log) = &mut *self.log.lock() {
            log.notes.add(notes);
            log.restrict();
        }
    }

    /// What the notes may take, if they took more.
    pub fn exceeded(&self) -> Option<usize> {
        let log = self.log.lock();
        log.as_ref().filter(|log| log.is_full).map(|log| log.limit)
    }
}

impl Log {
    fn restrict(&mut self) {
        if self.notes.bytes.len() > self.limit {
            self.is_full = true;
            self.notes = Notes::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(notes: &Notes) -> Vec<(u64, &[u8])> {
        notes.iter().map(|(writer, key)| (writer.0, key)).collect()
    }

    #[test]
    fn notes_are_taken_in_their_order() {
        let changes = FollowedChanges::default();
        changes.note(TrxId(1), b"nobody follows");
        changes.follow(1000);
        changes.note(TrxId(7), b"one");
        changes.note(TrxId(8), b"");
        let taken = changes.take().unwrap();
        assert_eq!(keys(&taken), [(7, &b"one"[..]), (8, b"")]);
        assert!(keys(&changes.take().unwrap()).is_empty());
        changes.note(TrxId(9), b"two");
        changes.put_back(&taken);
        assert_eq!(keys(&changes.take().unwrap()).len(), 3);
        changes.forget();
        changes.note(TrxId(9), b"late");
        assert!(changes.take().is_none());
    }

    #[test]
    fn too_many_are_none() {
        let changes = FollowedChanges::default();
        changes.follow(100);
        for n in 0..10 {
            assert_eq!(changes.exceeded(), None);
            changes.note(TrxId(n), b"");
        }
        changes.note(TrxId(11), b"");
        assert_eq!(changes.exceeded(), Some(100));
        assert!(changes.take().is_none());
        changes.forget();
        changes.follow(100);
        assert!(changes.take().is_some());
    }
}
