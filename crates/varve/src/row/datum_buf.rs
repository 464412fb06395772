//! An owned, growable array of datums in one buffer: rows that outlive what they were read from, values
//! typed in by a user, keys taken apart. Clearing keeps the memory, so a scan allocates once.

use super::Datum;

/// Owned datums. See the module text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatumBuf {
    bytes: Vec<u8>,
    /// Where each datum ends in `bytes`, and whether it is NULL.
    ends: Vec<(u32, bool)>,
}

impl DatumBuf {
    pub fn new() -> DatumBuf {
        DatumBuf::default()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Appends a copy of `datum`.
    pub fn push(&mut self, datum: Datum<'_>) {
        match datum {
            Some(bytes) => self.push_with(|out| out.extend_from_slice(bytes)),
            None => self.ends.push((self.bytes.len() as u32, true)),
        }
    }

    /// Appends what `fill` appends to the buffer it gets, as one datum.
    #[inline]
    pub fn push_with<R>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let result = fill(&mut self.bytes);
        let end = u32::try_from(self.bytes.len()).expect("a datum buffer holds less than 4 GiB");
        self.ends.push((end, false));
        result
    }

    /// Appends what `fill` appends as one datum, or NULL if it says that there is no value. Passes on the
    /// count that `fill` returns. Nothing is appended if it fails.
    #[inline]
    pub(super) fn try_push_part<E>(
        &mut self,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(usize, bool), E>,
    ) -> Result<usize, E> {
        let start = self.bytes.len();
        let filled = fill(&mut self.bytes);
        if !matches!(filled, Ok((_, true))) {
            self.bytes.truncate(start);
        }
        let (count, is_value) = filled?;
        let end = u32::try_from(self.bytes.len()).expect("a datum buffer holds less than 4 GiB");
        self.ends.push((end, !is_value));
        Ok(count)
    }

    /// The datum at `i`. Panics if there is none.
    #[inline]
    pub fn get(&self, i: usize) -> Datum<'_> {
        let (end, null) = self.ends[i];
        let start = if i == 0 { 0 } else { self.ends[i - 1].0 };
        (!null).then(|| &self.bytes[start as usize..end as usize])
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = Datum<'_>> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// The datums as the slice that the engine's calls take.
    pub fn datums(&self) -> Vec<Datum<'_>> {
        self.iter().collect()
    }
}

impl<'a> FromIterator<Datum<'a>> for DatumBuf {
    fn from_iter<I: IntoIterator<Item = Datum<'a>>>(iter: I) -> DatumBuf {
        let mut buf = DatumBuf::new();
        for datum in iter {
            buf.push(datum);
        }
        buf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_null_and_empty_apart() {
        let want = [Some(b"ab".as_slice()), None, Some(b""), None, Some(b"c")];
        let mut buf: DatumBuf = want.into_iter().collect();
        assert_eq!(buf.datums(), want);
        buf.try_push_part(|out| {
            out.extend_from_slice(b"half");
            Err(())
        })
        .unwrap_err();
        assert_eq!(buf.datums(), want, "a failed push leaves nothing behind");
        buf.clear();
        assert!(buf.is_empty());
    }
}
