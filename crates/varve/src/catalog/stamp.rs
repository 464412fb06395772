//! What an index is built with: the collations of its texts, and how the values of its key parts are stored.
//!
//! Most indexes store bytes and texts in the encodings of `row/memcmp.rs`, which zeros and spaces make up to
//! half as long again. Where a key might be too long then, they are stored in segments (`row/segments.rs`).
//! That is decided once, by what the columns take, and stays as long as the index is there.
//!
//! - **KEY-8** An index has room for every row, with its primary key as far as that counts in the order, if
//!   there is a way to store both that has (`row/key_len.rs` says what is taken for the longest key). An
//!   index that had room has it when columns take more; one that an older program has made, or that is added
//!   to a table whose primary key is stored as it is, may have none.

use crate::base::{Error, Result};
use crate::row::{Collations, ColumnType, ROW_ID_BYTES};

use super::def::{IndexDef, TableDef};
use super::record::{has_room, longest_plain};

/// What an index is built with.
#[derive(Clone, Copy)]
pub struct BuiltWith<'a> {
    pub collations: &'a Collations,
    pub page_size: usize,
}

impl TableDef {
    /// Says in each key part what its index is built with from now on: the fingerprint of its collation, and
    /// whether it is stored in segments.
    pub(crate) fn stamp_indexes(&mut self, with: BuiltWith<'_>) -> Result<()> {
        (0..=self.indexes.len()).try_for_each(|number| self.stamp_index(number, with))?;
        let roomy = self.count_roomy(with)?;
        if roomy > self.indexes.len() {
            return Ok(());
        }
        // Entries have the primary key, too.
        let mut other = self.clone();
        other.put_in_segments(0, with)?;
        (1..=self.indexes.len()).try_for_each(|number| other.stamp_index(number, with))?;
        if other.count_roomy(with)? > roomy {
            *self = other;
        }
        Ok(())
    }

    /// How many indexes have room for every row.
    fn count_roomy(&self, with: BuiltWith<'_>) -> Result<usize> {
        let mut count = 0;
        for number in 0..=self.indexes.len() {
            count += usize::from(self.has_room(number, with)?);
        }
        Ok(count)
    }

    /// The same for one index: 0 is the clustered one.
    pub(crate) fn stamp_index(&mut self, number: usize, with: BuiltWith<'_>) -> Result<()> {
        let index = match number {
            0 => &mut self.primary,
            n => &mut self.indexes[n - 1],
        };
        for part in &mut index.parts {
            part.segmented = false;
            if let Some(ColumnType::Text { collation, .. }) =
                self.columns.get(part.column).map(|c| c.ty)
            {
                part.fingerprint = with.collations.get(collation)?.fingerprint();
            }
        }
        if self.has_room(number, with)? {
            return Ok(());
        }
        let mut other = self.clone();
        other.put_in_segments(number, with)?;
        // If not even that helps most rows have more room without.
        if other.has_room(number, with)? {
            *self = other;
        }
        Ok(())
    }

    /// Those parts of the index whose longest value takes less so.
    fn put_in_segments(&mut self, number: usize, with: BuiltWith<'_>) -> Result<()> {
        let codec = self.key_codec(self.index_at(number), with.collations)?;
        let index = match number {
            0 => &mut self.primary,
            n => &mut self.indexes[n - 1],
        };
        for (part, is_shorter) in index.parts.iter_mut().zip(codec.is_shorter_in_segments()) {
            part.segmented = is_shorter;
        }
        Ok(())
    }

    /// Whether the index has room for every row, as its parts and those of the primary key are stored
    /// (KEY-8).
    fn has_room(&self, number: usize, with: BuiltWith<'_>) -> Result<bool> {
        let primary = self.key_codec(&self.primary, with.collations)?;
        let clustered = match self.has_row_id() {
            true => ROW_ID_BYTES,
            false => primary.longest(primary.len()),
        };
        if number == 0 {
            return Ok(clustered <= longest_plain(with.page_size));
        }
        let index = self.index_at(number);
        let own = self.key_codec(index, with.collations)?;
        let own = own.longest(own.len());
        let ordered = primary.longest(self.ordered_parts(index));
        Ok(has_room(with.page_size, own, clustered, ordered))
    }

    /// Refuses columns that take more than those of `old`, of which this is a redefinition, if an index that
    /// stays had room for every row, has not any more, and would have if it was built anew (KEY-8).
    pub(crate) fn check_room(&self, old: &TableDef, with: BuiltWith<'_>) -> Result<()> {
        for (number, index) in self.all_indexes().enumerate() {
            let is_it = |own: &&IndexDef| own.id == index.id;
            let Some(was) = old.all_indexes().position(|own| is_it(&own)) else {
                continue;
            };
            if !old.has_room(was, with)? || self.has_room(number, with)? {
                continue;
            }
            let mut anew = self.clone();
            anew.stamp_indexes(with)?;
            if anew.has_room(number, with)? {
                return Err(Error::Unsupported {
                    what: format!(
                        "columns as long in index {} of table {}, without copying its rows",
                        index.name, self.name
                    ),
                });
            }
        }
        Ok(())
    }

    fn index_at(&self, number: usize) -> &IndexDef {
        match number {
            0 => &self.primary,
            n => &self.indexes[n - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::IndexId;
    use crate::row::{CollationId, KeyPart};

    fn stamped(def: &TableDef, page_size: usize) -> TableDef {
        let mut def = def.clone();
        let collations = Collations::new();
        let with = BuiltWith {
            collations: &collations,
            page_size,
        };
        def.stamp_indexes(with).unwrap();
        def
    }

    /// A letter for each part of each index: `s` for one in segments.
    fn forms(def: &TableDef) -> Vec<String> {
        let form = |part: &KeyPart| if part.segmented { 's' } else { '-' };
        let indexes = def.all_indexes();
        indexes
            .map(|i| i.parts.iter().map(form).collect())
            .collect()
    }

    fn with_key(ty: ColumnType) -> TableDef {
        let def = TableDef::new("a/t").column("id", ColumnType::i64());
        def.column("k", ty).primary(&["id"]).index("k", &["k"])
    }

    /// KEY-8: what usual indexes have stays as it is; others have segments where these make room.
    #[test]
    fn keys_are_in_segments_where_they_might_be_too_long() {
        let bytes = |key: u32, more: u32| {
            TableDef::new("a/t")
                .column("p", ColumnType::Bytes(key))
                .column("k", ColumnType::Bytes(more))
                .primary(&["p"])
                .index("k", &["k"])
        };
        let pad = CollationId::UTF8_BIN_PAD;
        let no_key = TableDef::new("a/t")
            .column("n", ColumnType::i32())
            .column("a", ColumnType::Bytes(4))
            .nullable("b", ColumnType::Bytes(u32::MAX))
            .column("c", ColumnType::text(600))
            .add_index(IndexDef::new(
                "k",
                vec![
                    KeyPart::new(0),
                    KeyPart::new(1),
                    KeyPart::new(2).prefix(2400).descending(),
                    KeyPart::new(3),
                ],
            ));
        for (def, page_size, want) in [
            (with_key(ColumnType::Bytes(3072)), 16, ["-", "s"]),
            (with_key(ColumnType::Bytes(3072)), 64, ["-", "s"]),
            (with_key(ColumnType::Bytes(2600)), 16, ["-", "-"]),
            (with_key(ColumnType::Bytes(2676)), 16, ["-", "-"]),
            (with_key(ColumnType::Bytes(2677)), 16, ["-", "s"]),
            (with_key(ColumnType::Fixed(3072)), 16, ["-", "-"]),
            (with_key(ColumnType::text_in(pad, 1020)), 16, ["-", "-"]),
            (with_key(ColumnType::text_in(pad, 3072)), 16, ["-", "s"]),
            // As long as InnoDB's keys in pages of these sizes.
            (with_key(ColumnType::Bytes(1536)), 8, ["-", "s"]),
            (with_key(ColumnType::Bytes(768)), 4, ["-", "s"]),
            // Nothing makes room for all, so most have more as they are.
            (with_key(ColumnType::Bytes(3072)), 8, ["-", "-"]),
            (bytes(3072, 10), 16, ["s", "-"]),
            (bytes(255, 255), 16, ["-", "-"]),
            // Only the own parts count in the order, but for the sum.
            (bytes(2600, 2600), 16, ["-", "-"]),
            (bytes(2676, 2676), 16, ["-", "s"]),
            (bytes(3072, 3072), 16, ["s", "s"]),
            // The primary key counts.
            (bytes(1500, 1572), 16, ["-", "s"]),
            (bytes(2072, 1000), 16, ["s", "-"]),
            (no_key, 16, ["", "--ss"]),
        ] {
            let got = stamped(&def, page_size << 10);
            let columns: Vec<_> = def.columns.iter().map(|c| c.ty.to_string()).collect();
            assert_eq!(forms(&got), want, "{columns:?}");
            // Whoever takes a definition of another table for a new one.
            assert_eq!(forms(&stamped(&got, page_size << 10)), want);
            assert_eq!(
                forms(&stamped(&got, 64 << 10)),
                forms(&stamped(&def, 64 << 10))
            );
        }
    }

    /// KEY-8: longer columns are refused if the index that is there has no room for them any more.
    #[test]
    fn longer_columns_need_room_in_indexes_that_stay() {
        let collations = Collations::new();
        let with = BuiltWith {
            collations: &collations,
            page_size: 16 << 10,
        };
        let change = |from: u32, to: u32, page_size: usize, segmented: bool| {
            let mut def = stamped(&with_key(ColumnType::Bytes(from)), 16 << 10);
            def.indexes[0].id = IndexId(7);
            def.indexes[0].parts[0].segmented |= segmented;
            let mut other = def.clone();
            other.columns[1].ty = ColumnType::Bytes(to);
            let to = def.redefined(&other).unwrap();
            to.check_room(&def, BuiltWith { page_size, ..with })
        };
        for (from, to, page_size, segmented, is_taken) in [
            (100, 2600, 16, false, true),
            (100, 3072, 16, false, false),
            (100, 3072, 16, true, true),
            // There was none before, or there is none anyway.
            (2800, 3072, 8, false, true),
            (100, 2600, 8, false, true),
            (100, 1500, 8, false, false),
        ] {
            let got = change(from, to, page_size << 10, segmented);
            assert_eq!(got.is_ok(), is_taken, "{from} {to} {page_size}: {got:?}");
            if let Err(e) = got {
                let text = e.to_string();
                assert!(
                    text.contains("columns as long in index k of table a/t"),
                    "{text}"
                );
            }
        }
        // An index made before there were segments.
        let mut old = with_key(ColumnType::Bytes(3000));
        old.indexes[0].id = IndexId(7);
        let mut longer = old.clone();
        longer.columns[1].ty = ColumnType::Bytes(3072);
        let to = old.redefined(&longer).unwrap();
        to.check_room(&old, with).unwrap();
        assert_eq!(forms(&to), ["-", "-"]);
    }
}
