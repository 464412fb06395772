//! Moving all bytes by system calls that may move fewer, as `pread` and `pwrite` do: at a signal, at the end
//! of a file, where a device fails in the middle.

use std::io;
use std::ops::Range;

/// Fills `buf` from `offset` by calls of `read`, which says how many bytes it moved; 0: the end of the file.
pub fn read_whole(
    buf: &mut [u8],
    offset: u64,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let whole = 0..buf.len();
    let call = |done: usize| read(&mut buf[done..], offset + done as u64);
    move_whole(whole, io::ErrorKind::UnexpectedEof, call)
}

/// Writes all of `buf` at `offset` by calls of `write`, which says how many bytes it moved.
pub fn write_whole(
    buf: &[u8],
    offset: u64,
    mut write: impl FnMut(&[u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let call = |done: usize| write(&buf[done..], offset + done as u64);
    move_whole(0..buf.len(), io::ErrorKind::WriteZero, call)
}

/// Moves the bytes of this range of a whole by `call`, which is told how many of the whole are moved and says
/// how many more it moved. `if_none`: what it means if there were none.
pub(super) fn move_whole(
    Range { mut start, end }: Range<usize>,
    if_none: io::ErrorKind,
    mut call: impl FnMut(usize) -> io::Result<usize>,
) -> io::Result<()> {
    while start < end {
        match call(start) {
            Ok(0) => return Err(if_none.into()),
            Ok(n) => start += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one call does: so many bytes, or an error.
    type Call = Result<usize, io::ErrorKind>;

    #[test]
    fn calls_are_repeated_until_all_is_moved() {
        use io::ErrorKind::{Interrupted, Other, UnexpectedEof, WriteZero};
        let cases: [(&[Call], Call, Call); 6] = [
            (&[Ok(8)], Ok(8), Ok(8)),
            (&[Ok(3), Ok(1), Ok(4)], Ok(8), Ok(8)),
            (
                &[Err(Interrupted), Ok(5), Err(Interrupted), Ok(3)],
                Ok(8),
                Ok(8),
            ),
            (&[Ok(5), Ok(0)], Err(UnexpectedEof), Err(WriteZero)),
            (&[Ok(0)], Err(UnexpectedEof), Err(WriteZero)),
            (&[Ok(5), Err(Other)], Err(Other), Err(Other)),
        ];
        for (calls, reads, writes) in cases {
            let source = *b"abcdefgh";
            let mut next = calls.iter();
            let mut one = || (*next.next().expect("a call too many")).map_err(io::Error::from);
            let mut buf = [0; 8];
            let read = read_whole(&mut buf, 100, |part, at| {
                let n = one()?;
                let at = (at - 100) as usize;
                part[..n].copy_from_slice(&source[at..at + n]);
                Ok(n)
            });
            assert_eq!(read.map(|()| 8).map_err(|e| e.kind()), reads, "{calls:?}");
            assert!(reads.is_err() || buf == source);

            let mut next = calls.iter();
            let mut one = || (*next.next().expect("a call too many")).map_err(io::Error::from);
            let mut written = Vec::new();
            let write = write_whole(&source, 100, |part, at| {
                assert_eq!(at, 100 + written.len() as u64);
                let n = one()?;
                written.extend_from_slice(&part[..n]);
                Ok(n)
            });
            assert_eq!(write.map(|()| 8).map_err(|e| e.kind()), writes, "{calls:?}");
            assert!(writes.is_err() || written == source);
        }
    }
}
