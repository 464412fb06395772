//! Making an index, frame by frame.
//!
//! What a frame says of pages becomes **places**, in one long list; those of one page are chained backwards,
//! from the last one on, which a hash table knows. So a change takes a look into that table and a push. The
//! places of one page are put in order only when the index is finished. A page that starts as zeros begins a
//! new chain; what it had stays in the list and is never looked at.
//!
//! A place takes 16 bytes, and a page 16 and its share of the table's free slots: for 64 MiB of redo about 40
//! MiB with the image, if each change has a hundred bytes and a page of its own. Changes that stand in the
//! index themselves (IDX-3) are kept with their operations.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use super::block::{BlockWriter, EntryWriter};
use super::sections::{self, UnitWriter};
use super::{DatabaseIdentity, FileId, Head, LogSummary};
use crate::base::{Error, Lsn, PageId, Result, varint};
use crate::encryption::Cipher;
use crate::recovery::chain::{Change, LSN_UNIT, take_apart};
use crate::recovery::pages::UnitHasher;
use crate::redo::Frame;

/// Bytes of a log file's frames, at most. All that is counted here in 32 bits is fewer.
const MOST_BYTES: u64 = 1 << 30;

/// Operations of a frame on a page that are no longer stand in the index in any case: they take hardly more
/// than their place would, and headers of rollback segments have many of them.
pub const SHORT_BYTES: usize = 16;

/// No place: the page's entry begins here.
const NONE: u32 = u32::MAX;
/// No place: the page starts as zeros here, which ends its entry if there was one.
const ZEROS: u32 = NONE - 1;

/// What a frame says of a page.
#[derive(Clone, Copy)]
struct Place {
    /// The page's place before this one, `NONE` or `ZEROS`.
    before: u32,
    /// The frame's start, counted from that of the first frame, and length, in units of 8.
    frame: (u32, u32),
    /// Where in `Places::changes` the change itself is; `NONE`: the frame is to be read.
    change: u32,
}

/// A page's chain.
struct Chain {
    /// Its last place, `NONE` or `ZEROS`.
    last: u32,
    /// Frames in it.
    frames: u32,
}

/// Makes the index of one log file.
#[derive(Default)]
pub struct IndexBuilder {
    /// From where the first frame starts to where the last one ends.
    covered: Option<(Lsn, Lsn)>,
    summary: LogSummary,
    pages: HashMap<u64, Chain, BuildHasherDefault<UnitHasher>>,
    places: Places,
    cipher: Option<Arc<Cipher>>,
}

impl IndexBuilder {
    pub fn new() -> IndexBuilder {
        IndexBuilder::default()
    }

    /// Of frames that are encrypted: so are the index's blocks, which have changes in them (IDX-3).
    pub fn encrypted(cipher: Arc<Cipher>) -> IndexBuilder {
        IndexBuilder {
            cipher: Some(cipher),
            ..IndexBuilder::default()
        }
    }

    /// The next frame of the log.
    ///
    /// # Errors
    ///
    /// `CorruptFile`: the frame can't be read. `Unsupported`: the log file is too long. Then no index can be
    /// made.
    pub fn add(&mut self, frame: &Frame<'_>) -> Result<()> {
        let (first, next) = self.covered.unwrap_or((frame.start, frame.start));
        assert_eq!(next, frame.start, "IDX-1: frames without a gap");
        if frame.end.0 - first.0 > MOST_BYTES {
            let most = MOST_BYTES >> 20;
            return Err(Error::unsupported(format!(
                "an index of more than {most} MiB of redo"
            )));
        }
        let (begin, end) = (frame.start.0 - first.0, frame.end.0 - first.0);
        let units = |bytes: u64| (bytes / LSN_UNIT) as u32;
        self.places.begin(units(begin), units(end - begin));
        let IndexBuilder {
            summary,
            pages,
            places,
            ..
        } = self;
        take_apart(frame, summary, |change| {
            let new = Chain {
                last: NONE,
                frames: 0,
            };
            let page = change.page.to_u64();
            places.add(pages.entry(page).or_insert(new), &change);
        })?;
        self.covered = Some((first, frame.end));
        Ok(())
    }

    /// The image of the index file, for the database with this page size and uuid. The frames of the log file
    /// begin at `first`.
    pub fn finish(self, file: FileId, first: Lsn, identity: DatabaseIdentity) -> Vec<u8> {
        let (begin, next) = self.covered.unwrap_or((first, first));
        assert_eq!(begin, first, "IDX-1: from the first frame on");
        let mut pages = Vec::from_iter(self.pages);
        pages.sort_unstable_by_key(|(page, _)| *page);
        let out = vec![0; sections::HEADER_BYTES];
        let mut blocks = BlockWriter::new(first, out, self.cipher.clone());
        let (mut units, mut restarts) = (UnitWriter::default(), Vec::new());
        let (mut chain, mut entry) = (Vec::new(), EntryWriter::default());
        for (page, Chain { last, .. }) in pages {
            let begins = self.places.collect(last, &mut chain);
            for place in chain.iter().rev() {
                let (start, len) = place.frame;
                let ops = self.places.ops(place);
                entry.put(start.into(), len.into(), ops);
            }
            blocks.add(page, &mut entry);
            let page = PageId::from_u64(page);
            units.add(page, begins == ZEROS);
            if begins == ZEROS {
                restarts.push((page, chain[chain.len() - 1].frame.0.into()));
            }
        }
        let summary = self.summary;
        let head = Head {
            file,
            first,
            next,
            summary,
        };
        let (image, directory) = blocks.finish();
        sections::finish(
            image,
            &head,
            identity,
            [
                directory,
                units.finish(),
                sections::encode_restarts(&restarts),
            ],
        )
    }
}

/// The places of all pages.
#[derive(Default)]
struct Places {
    all: Vec<Place>,
    /// For each change that is kept: how many bytes of operations its frame has had for the page so far, with
    /// it; its own bytes, and the operations.
    changes: Vec<u8>,
    /// Start and length of the frame whose changes are being added.
    frame: (u32, u32),
    /// Where its places begin.
    begin: usize,
}

/// What the frame that is being added has said of a page so far.
enum SoFar {
    Nothing,
    /// It is to be read.
    Place,
    /// Changes that are kept, with so many bytes of operations.
    Changes(usize),
}

impl Places {
    fn begin(&mut self, start: u32, len: u32) {
        self.frame = (start, len);
        self.begin = self.all.len();
    }

    fn add(&mut self, chain: &mut Chain, change: &Change<'_>) {
        if change.fresh {
            *chain = Chain {
                last: ZEROS,
                frames: 0,
            };
        }
        let bytes = match self.so_far(chain.last) {
            SoFar::Place => return,
            SoFar::Nothing => {
                chain.frames += 1;
                change.ops.len()
            }
            SoFar::Changes(bytes) => bytes + change.ops.len(),
        };
        // IDX-3
        let most = SHORT_BYTES + chain.frames as usize - 1;
        let stands_here = !change.fresh && (1..=most).contains(&bytes);
        let change = match stands_here {
            true => self.keep(bytes, change.ops),
            false => {
                // IDX-2: of this frame either all changes or its place.
                chain.last = self.before_frame(chain.last);
                NONE
            }
        };
        self.all.push(Place {
            before: chain.last,
            frame: self.frame,
            change,
        });
        chain.last = self.all.len() as u32 - 1;
    }

    fn is_of_frame(&self, place: u32) -> bool {
        place < ZEROS && place as usize >= self.begin
    }

    fn so_far(&self, last: u32) -> SoFar {
        if !self.is_of_frame(last) {
            return SoFar::Nothing;
        }
        match self.kept(&self.all[last as usize]) {
            None => SoFar::Place,
            Some((bytes, _)) => SoFar::Changes(bytes),
        }
    }

    /// The page's last place that is of an earlier frame.
    fn before_frame(&self, mut last: u32) -> u32 {
        while self.is_of_frame(last) {
            last = self.all[last as usize].before;
        }
        last
    }

    /// Where the change is kept.
    fn keep(&mut self, bytes: usize, ops: &[u8]) -> u32 {
        let at = self.changes.len() as u32;
        varint::put(&mut self.changes, bytes as u64);
        varint::put(&mut self.changes, ops.len() as u64);
        self.changes.extend_from_slice(ops);
        at
    }

    /// What `keep` was given.
    fn kept(&self, place: &Place) -> Option<(usize, &[u8])> {
        if place.change == NONE {
            return None;
        }
        let mut rest = &self.changes[place.change as usize..];
        let mut number = || varint::take(&mut rest).expect("keep put it there") as usize;
        let (bytes, len) = (number(), number());
        Some((bytes, &rest[..len]))
    }

    fn ops(&self, place: &Place) -> Option<&[u8]> {
        self.kept(place).map(|(_, ops)| ops)
    }

    /// Replaces `chain` by the places of a page, from the last one on. Returns how they begin: `NONE` or
    /// `ZEROS`.
    fn collect(&self, last: u32, chain: &mut Vec<Place>) -> u32 {
        chain.clear();
        let mut at = last;
        while at < ZEROS {
            let place = self.all[at as usize];
            chain.push(place);
            at = place.before;
        }
        at
    }
}
