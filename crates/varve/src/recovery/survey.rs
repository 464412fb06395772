//! What a start learns from the indexes of the log's files, without reading the log: where it ends, and which
//! pages it changes.
//!
//! Some files have no index: the one that the checkpoint is in, from there on; the last ones, which the log's
//! end is in; and those whose index is missing or damaged. These parts of the log are read, and indexed in
//! memory. So what comes of it is a list of indexes without a gap (IDX-5), whatever there was. If most of the
//! log would have to be read, all of it is, and divided at once (`scan`).

use std::path::Path;

use super::index::{DatabaseIdentity, FileId, Index, IndexBuilder, index_path};
use super::pages::{LogMarks, Units};
use super::scan::{LogSummary, Scan, check_end};
use super::scatter::Restarts;
use crate::base::{DISK_THREADS, Lsn, Result, map_together};
use crate::io::{Disk, OpenMode};
use crate::redo::{Control, Piece, REDO_DIR, Stream};

/// Bytes of the log that are read together, and get an index in memory.
const PIECE_BYTES: usize = 2 << 20;
const PIECES_TOGETHER: usize = 4;

/// A part of the log.
enum LogPart {
    Indexed(Box<Index>),
    /// Up to the next part, or the log's end.
    Log {
        from: Lsn,
        until: Option<Lsn>,
    },
}

/// What the whole log says.
pub struct Survey {
    pub scan: Scan,
    pub units: Units,
    pub restarts: Restarts,
    pub indexes: Vec<Index>,
}

/// `None`: there are not enough indexes for it to be worth it.
pub fn survey(
    disk: &dyn Disk,
    dir: &Path,
    control: &Control,
    stream: &Stream,
    threads: usize,
) -> Result<Option<Survey>> {
    let parts = parts(find(disk, dir, control, stream), control.checkpoint);
    let indexed = |part: &LogPart| match part {
        LogPart::Indexed(index) => index.head().next.0 - index.head().first.0,
        LogPart::Log { .. } => 0,
    };
    let indexed: u64 = parts.iter().map(indexed).sum();
    if indexed == 0 || indexed < (stream.end().0 - control.checkpoint.0) / 2 {
        return Ok(None);
    }
    let mut indexes = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            LogPart::Indexed(index) => indexes.push(*index),
            LogPart::Log { from, until } => {
                indexes.extend(read_part(stream, control, from, until, threads)?);
            }
        }
    }
    put_together(indexes, control)
}

/// The indexes of the log's files, of those that have one.
fn find(disk: &dyn Disk, dir: &Path, control: &Control, stream: &Stream) -> Vec<Option<Index>> {
    let files: Vec<_> = stream.files().collect();
    map_together(&files, DISK_THREADS, |(header, end)| {
        let id = FileId {
            number: header.number,
            generation: header.generation,
            start: header.start,
            end: *end,
        };
        let path = index_path(&dir.join(REDO_DIR), header.number);
        if *end != header.end() || !disk.exists(&path).ok()? {
            return None;
        }
        // One that can't be read is as good as none.
        let file = disk.open(&path, OpenMode::ReadOnly).ok()?;
        Index::open(file, &control.uuid, &id).ok()?
    })
}

/// The log in parts, from the checkpoint on. Of each file, its index if there is one.
fn parts(of_files: Vec<Option<Index>>, checkpoint: Lsn) -> Vec<LogPart> {
    let mut parts = Vec::new();
    // Where the next part begins, unless it is somewhere in a part that has to be read.
    let mut at = Some(checkpoint);
    for (n, index) in of_files.into_iter().enumerate() {
        let fits = |index: &Index| match at {
            Some(at) => index.head().first == at,
            None => n > 0,
        };
        if let Some(index) = index.filter(fits) {
            if let (None, Some(LogPart::Log { until, .. })) = (at, parts.last_mut()) {
                *until = Some(index.head().first);
            }
            at = Some(index.head().next);
            parts.push(LogPart::Indexed(Box::new(index)));
        } else if let Some(from) = at.take() {
            parts.push(LogPart::Log { from, until: None });
        }
    }
    if let Some(from) = at {
        parts.push(LogPart::Log { from, until: None });
    }
    parts
}

/// Reads a part of the log, and indexes it piece by piece, several at the same time. `until`: where it ends;
/// unknown of the last part.
fn read_part(
    stream: &Stream,
    control: &Control,
    from: Lsn,
    until: Option<Lsn>,
    threads: usize,
) -> Result<Vec<Index>> {
    let part = until.map_or_else(|| stream.clone(), |until| stream.cut(until));
    let mut reader = part.pieces(from, PIECE_BYTES);
    let (mut indexes, mut end, mut broken_off) = (Vec::new(), from, None);
    while broken_off.is_none() {
        let next = || reader.next_piece().transpose();
        let batch: Vec<Piece> = std::iter::from_fn(next)
            .take(PIECES_TOGETHER)
            .collect::<Result<_>>()?;
        if batch.is_empty() {
            break;
        }
        for made in map_together(&batch, threads, |piece| index_piece(piece, control)) {
            let made = made?;
            indexes.extend(made.index);
            end = made.end;
            broken_off = made.broken_off;
            if broken_off.is_some() {
                // What is behind it is not part of the log.
                break;
            }
        }
    }
    match (until, broken_off) {
        // The log goes on behind it.
        (Some(until), _) if end != until => return Err(stream.damaged(end)),
        (None, Some(generation)) => check_end(&reader, control, generation, end)?,
        _ => {}
    }
    Ok(indexes)
}

/// A piece of the log.
struct Indexed {
    /// `None`: it has no frame.
    index: Option<Index>,
    end: Lsn,
    /// The generation of what is not whole at its end.
    broken_off: Option<u64>,
}

fn index_piece(piece: &Piece, control: &Control) -> Result<Indexed> {
    let mut builder = IndexBuilder::new();
    let mut frames = piece.frames();
    for frame in frames.by_ref() {
        builder.add(&frame)?;
    }
    let (first, end) = (piece.start, frames.end());
    // Of no file.
    let id = FileId {
        number: 0,
        generation: 0,
        start: first,
        end,
    };
    let identity = DatabaseIdentity {
        page_size: control.page_size,
        uuid: control.uuid,
    };
    let image = || builder.finish(id, first, identity);
    let goes_on = frames.is_whole() && !piece.is_last;
    Ok(Indexed {
        index: (end > first).then(|| Index::in_memory(image())),
        end,
        broken_off: (!goes_on).then_some(piece.generation),
    })
}

/// What all of them say. `None`: one is damaged.
fn put_together(indexes: Vec<Index>, control: &Control) -> Result<Option<Survey>> {
    let (mut summary, mut marks) = (LogSummary::default(), LogMarks::default());
    let mut restarts = Restarts::default();
    let read = |index: &Index| Ok((index.units()?, index.restarts()?));
    let read: Vec<Result<_>> = map_together(&indexes, DISK_THREADS, read);
    for (index, read) in indexes.iter().zip(read) {
        let Ok((units, of_index)) = read else {
            return Ok(None);
        };
        marks.add(units);
        restarts.extend(of_index);
        summary.add(index.head().summary.clone());
    }
    let end = indexes.last().map(|last| last.head().next);
    let scan = Scan {
        end: end.unwrap_or(control.checkpoint),
        id_limit: summary.id_limit.max(control.id_limit),
        frames: summary.frames,
        removed: summary.removed,
        counters: summary.counters,
    };
    Ok(Some(Survey {
        scan,
        units: marks.finish(),
        restarts,
        indexes,
    }))
}
