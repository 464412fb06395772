//! The copies of a table's definition in its own file, by which `varve dump` reads the file alone.
//!
//! Page 0 has the definition as it is now if that fits there, else its beginning up to the table's name:
//! nothing but columns, names, secondary indexes and foreign keys changes while the file lives, and the table
//! is known by this name. The counter page has the definition as it was when the file was made; what is
//! longer goes on behind the root pages. So any of these pages may be lost if the definition fits in page 0,
//! and page 0 in any case.
//!
//! - **DEF-2** The second copy is the table's definition but for what `redefined` allows. It is written in
//!   mini-transactions before the definition commits, and never changes: a crash leaves no half of a change.
//!   All that changes is page 0, and a page is whole or restored.
//!
//! A page of the second copy, in front of which there is a page header, and the counter on the first one:
//!
//! | offset | field |
//! |---|---|
//! | 64 | length of the definition u32; 0: there is no copy |
//! | 68 | crc32c u32 of it |
//! | 72 | place of the page in the copy u32, from 0; 4 zero bytes |
//! | 80 | the bytes: as many as fit, or are left |

use crate::base::{PageNo, Result};
use crate::page::{PageType, page_type};
use crate::space::{DefinitionCopy, definition_room};

use super::{FIRST_ROOT_PAGE, META_PAGE, TableDef};

/// Where the copy's part of a page begins.
pub const COPY_AT: usize = 64;
const HEAD: usize = 16;
const DATA_AT: usize = COPY_AT + HEAD;

/// What page 0 has of an encoded definition.
pub fn first_copy(encoded: &[u8], page_size: usize) -> DefinitionCopy<'_> {
    match encoded.len() <= definition_room(page_size) {
        true => DefinitionCopy::whole(encoded),
        false => DefinitionCopy::beginning(encoded, TableDef::name_end(encoded)),
    }
}

/// What the pages of the second copy have from `COPY_AT` on, in order.
pub fn second_copy(encoded: &[u8], page_size: usize) -> Vec<Vec<u8>> {
    let crc = crc32c::crc32c(encoded);
    let pieces = encoded.chunks(page_size - DATA_AT).enumerate();
    pieces
        .map(|(place, piece)| {
            let words = [encoded.len() as u32, crc, place as u32, 0];
            let head = words.into_iter().flat_map(u32::to_le_bytes);
            head.chain(piece.iter().copied()).collect()
        })
        .collect()
}

/// The page of the second copy in this place, in a table that had so many indexes at first, the clustered one
/// included.
pub fn copy_page(place: usize, indexes: usize) -> PageNo {
    match place {
        0 => META_PAGE,
        _ => PageNo(FIRST_ROOT_PAGE.0 + (indexes + place - 1) as u32),
    }
}

/// The second copy, put together of its pages.
#[derive(Debug, Default)]
pub struct CopyReader {
    len: usize,
    crc: u32,
    pages: usize,
    bytes: Vec<u8>,
}

impl CopyReader {
    /// Takes the next page of the copy; says whether it was that.
    pub fn add(&mut self, page: &[u8]) -> bool {
        let word = |n: usize| {
            let at = COPY_AT + 4 * n;
            u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"))
        };
        let (len, crc, place) = (word(0) as usize, word(1), word(2) as usize);
        let is_first = self.pages == 0;
        let is_next = page_type(page) == Some(PageType::Raw)
            && place == self.pages
            && (is_first || (len, crc) == (self.len, self.crc));
        if !is_next || !is_first && self.is_complete() {
            return false;
        }
        (self.len, self.crc) = (len, crc);
        self.pages += 1;
        let data = &page[DATA_AT..];
        let left = len - self.bytes.len();
        self.bytes.extend_from_slice(&data[..left.min(data.len())]);
        true
    }

    /// Pages that were taken.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// No page is left to be taken.
    pub fn is_complete(&self) -> bool {
        self.pages > 0 && self.bytes.len() == self.len
    }

    /// The first page says that there is no copy.
    pub fn is_absent(&self) -> bool {
        self.is_complete() && self.len == 0
    }

    /// The definition, encoded; `None` without a copy, or if it is not what was written.
    pub fn finish(self) -> Option<Vec<u8>> {
        let is_whole = self.is_complete() && crc32c::crc32c(&self.bytes) == self.crc;
        (is_whole && self.len > 0).then_some(self.bytes)
    }
}

impl TableDef {
    /// Reads a second copy, with the name that the table has now, if that is known.
    pub(crate) fn decode_copy(encoded: &[u8], name: Option<String>) -> Result<TableDef> {
        let mut def = TableDef::decode(encoded)?;
        if let Some(name) = name {
            def.name = name;
            def.validate()?;
        }
        Ok(def)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{PageId, SpaceId};
    use crate::page::PageOp;

    const PAGE: usize = 4096;

    fn pages(encoded: &[u8]) -> Vec<Vec<u8>> {
        let page = |bytes: Vec<u8>| {
            let mut page = vec![0; PAGE];
            let id = PageId::new(SpaceId(5), META_PAGE);
            let ptype = PageType::Raw;
            PageOp::FormatRaw { ptype }.apply(&mut page, id).unwrap();
            page[COPY_AT..COPY_AT + bytes.len()].copy_from_slice(&bytes);
            page
        };
        second_copy(encoded, PAGE).into_iter().map(page).collect()
    }

    fn read<'a>(pages: impl IntoIterator<Item = &'a Vec<u8>>) -> Option<Vec<u8>> {
        let mut reader = CopyReader::default();
        pages.into_iter().all(|page| reader.add(page));
        reader.finish()
    }

    #[test]
    fn the_second_copy_comes_back_whole_or_not_at_all() {
        let room = PAGE - DATA_AT;
        for (len, n) in [
            (1, 1),
            (room, 1),
            (room + 1, 2),
            (3 * room, 3),
            (3 * room + 7, 4),
        ] {
            let encoded: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            let pages = pages(&encoded);
            assert_eq!(pages.len(), n);
            assert_eq!(read(&pages), Some(encoded), "{len} bytes");
            for without in 0..n {
                let others = (pages.iter().enumerate()).filter(|(place, _)| *place != without);
                assert_eq!(read(others.map(|(_, page)| page)), None);
            }
            let mut changed = pages.clone();
            changed[n - 1][DATA_AT] ^= 1;
            assert_eq!(read(&changed), None);
            let mut endless = pages.clone();
            endless[0][COPY_AT..COPY_AT + 4].fill(0xff);
            assert_eq!(read(&endless), None);
            let more = [pages.clone(), pages].concat();
            assert!(read(&more).is_some(), "what follows is not the copy's");
        }
        assert_eq!(read(&[vec![0; PAGE]]), None);
        let none = pages(&[1]);
        let mut none = none[0].clone();
        none[COPY_AT..].fill(0);
        assert_eq!(read(&[none]), None);
    }

    #[test]
    fn a_long_definition_leaves_its_name_on_page_0() {
        let mut def = TableDef::new("shop/wide");
        for n in 0..400 {
            def = def.column(&format!("c{n}"), crate::row::ColumnType::i32());
        }
        let mut encoded = Vec::new();
        def.encode(&mut encoded);
        let copy = first_copy(&encoded, PAGE);
        assert!(!copy.is_whole());
        assert_eq!(TableDef::name_in(copy.stored).as_deref(), Some("shop/wide"));
        assert_eq!(TableDef::name_in(&copy.stored[..20]), None);
        assert!(first_copy(&encoded, 16384).is_whole());
        let renamed = TableDef::decode_copy(&encoded, Some("a/b".into())).unwrap();
        assert_eq!(
            (renamed.name.as_str(), renamed.columns),
            ("a/b", def.columns)
        );
    }
}
