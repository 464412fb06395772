//! Files of new tables: counters, empty trees, and the second copy of the definition.

use std::path::Path;
use std::sync::Arc;

use crate::base::{PageId, PageNo, Result};
use crate::btree::Tree;
use crate::catalog::{COPY_AT, META_PAGE, TableDef, copy_page, first_copy, second_copy};
use crate::mtr::Mtr;
use crate::page::{PageOp, PageType};
use crate::space::{MIXED, NewSpace, Space, SpaceKind, Spaces};

use super::Ddl;

impl Ddl {
    /// Creates the tablespace with its counters and empty trees.
    pub(super) fn build_file(
        &self,
        def: &TableDef,
        path: &str,
        target: Option<&Path>,
        create: impl FnOnce(&Spaces, NewSpace<'_>) -> Result<Arc<Space>>,
    ) -> Result<()> {
        let page_size = self.core.pool.page_size();
        let mut encoded = Vec::new();
        def.encode(&mut encoded);
        let copy = second_copy(&encoded, page_size);
        let new = NewSpace {
            id: def.space,
            path,
            kind: SpaceKind::Table,
            table: def.id,
            definition: first_copy(&encoded, page_size),
            // What `build_pages` takes, the file's own first two, and the one that is kept (SP-9).
            pages: 2 + (1 + def.indexes.len() + copy.len()) as u32 + 1,
            target,
            compression: def.compression,
            encryption: def.encryption,
        };
        create(&self.spaces, new)?;
        self.build_pages(def, &copy)
            .inspect_err(|_| self.remove_file(def.space))
    }

    /// The counters, empty trees, and the second copy of the definition (DEF-2).
    fn build_pages(&self, def: &TableDef, copy: &[Vec<u8>]) -> Result<()> {
        let space = self.spaces.require(def.space)?;
        let indexes = 1 + def.indexes.len();
        let _reserved = space.reserve(&self.core.mtr, (indexes + copy.len()) as u32)?;
        let (first, rest) = copy.split_first().expect("a definition has bytes");
        self.build_raw_page(&space, META_PAGE, first)?;
        for index in def.all_indexes() {
            let mut mtr = Mtr::begin(&self.core.mtr, 64 * 1024)?;
            let root = Tree::create(&mut mtr, &space, index.id)?;
            assert_eq!(
                root, index.root,
                "a new tablespace gives out its pages in order"
            );
            mtr.commit();
        }
        for (n, piece) in rest.iter().enumerate() {
            self.build_raw_page(&space, copy_page(1 + n, indexes), piece)?;
        }
        Ok(())
    }

    /// The next page of a new table's file, with a counter and its piece of the definition.
    fn build_raw_page(&self, space: &Space, expected: PageNo, piece: &[u8]) -> Result<()> {
        let redo = self.core.pool.page_size() as u32 + 1024;
        let mut mtr = Mtr::begin(&self.core.mtr, redo)?;
        let no = space.alloc(&mut mtr, PageNo(0), MIXED)?;
        assert_eq!(
            no, expected,
            "a new tablespace gives out its pages in order"
        );
        let h = mtr.exclusive_new(PageId::new(space.id(), no))?;
        let ptype = PageType::Raw;
        mtr.op(h, PageOp::FormatRaw { ptype });
        if no == META_PAGE {
            let bytes = &1u64.to_le_bytes();
            mtr.op(h, PageOp::Write { off: 48, bytes });
        }
        let off = COPY_AT as u16;
        mtr.op(h, PageOp::Write { off, bytes: piece });
        mtr.commit();
        Ok(())
    }
}
