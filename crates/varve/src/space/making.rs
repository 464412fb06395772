//! Files of new tablespaces.

use std::path::Path;
use std::sync::Arc;

use super::file::SpaceFile;
use super::header::FileHeader;
use super::registry::{NewSpace, UNFINISHED_EXTENSION};
use super::{Space, SpaceKind, Spaces};
use crate::base::{Error, PageNo, Result};
use crate::io::{DiskFile, OpenMode};
use crate::page;

impl Spaces {
    /// Makes the file, durable, and opens it (SP-4). It gets its name when it is complete; until then it has
    /// another one, by which start-up knows what a crash left (`UNFINISHED_EXTENSION`). Nothing remains of it
    /// if this fails. A temporary tablespace takes over the file that an earlier process left, and is not
    /// made durable: no later process reads it.
    pub fn create(&self, new: NewSpace<'_>) -> Result<Arc<Space>> {
        self.create_in(new, |path| match new.kind {
            SpaceKind::Temp => self.take_over(path, new.pages),
            _ => (self.files()).with_means(|| self.disk.open(path, OpenMode::CreateNew)),
        })
    }

    /// The file of an earlier process with at most so many pages, so that there is one on a full disk, too;
    /// or a new one. What is in it means nothing (SP-6).
    fn take_over(&self, path: &Path, pages: u32) -> Result<Arc<dyn DiskFile>> {
        let open = |mode| self.files().with_means(|| self.disk.open(path, mode));
        if !self.disk.exists(path)? {
            return open(OpenMode::CreateNew);
        }
        let file = open(OpenMode::Existing)?;
        let most = u64::from(pages) * self.page_size as u64;
        if file.len()? > most {
            file.set_len(most)?;
        }
        Ok(file)
    }

    /// The same in a file that `make` makes, of zeros.
    pub(super) fn create_in(
        &self,
        new: NewSpace<'_>,
        make: impl FnOnce(&Path) -> Result<Arc<dyn DiskFile>>,
    ) -> Result<Arc<Space>> {
        assert_eq!(new.kind == SpaceKind::Temp, !new.id.is_logged(), "SP-6");
        let path = self.dir.join(new.path);
        if self.get(new.id).is_some() {
            let what = format!("tablespace {}", new.id);
            return Err(Error::AlreadyExists { what });
        }
        if new.kind != SpaceKind::Temp && self.disk.exists(&path)? {
            let what = format!("file {}", path.display());
            return Err(Error::AlreadyExists { what });
        }
        self.make_parent(&path)?;
        let unfinished = match new.kind {
            // Under its own name it is as good as made: it means nothing to another process.
            SpaceKind::Temp => path.clone(),
            _ => path.with_extension(UNFINISHED_EXTENSION),
        };
        let remove_if_there = |path: &Path| match self.disk.exists(path)? {
            true => self.remove_unfinished(path),
            false => Ok(()),
        };
        if unfinished != path {
            remove_if_there(&unfinished)?;
        }
        let fill = |file| self.fill(&new, file);
        let made = match new.target {
            None => make(&unfinished).and_then(fill),
            Some(target) => self.make_linked(&unfinished, target, make, fill),
        };
        let done = made.and_then(|(header, size)| {
            if unfinished != path {
                self.stop_awaiting(new.path)?;
                self.disk.rename(&unfinished, &path)?;
                self.sync_parent(&path)?;
            }
            self.open_made(&new, header, size)
        });
        done.inspect_err(|_| {
            // The first error is the one to report; what is left behind is removed at the next attempt or
            // start.
            if unfinished != path {
                let _ = remove_if_there(&unfinished);
                let _ = remove_if_there(&path);
            }
        })
    }

    /// Its header and its size.
    fn fill(&self, new: &NewSpace<'_>, file: Arc<dyn DiskFile>) -> Result<(FileHeader, u32)> {
        let mut header = FileHeader::new(self.page_size, self.uuid, new.id, new.kind, new.table)
            .compressed(new.compression)
            .encrypted(new.encryption);
        if let Some(version) = self.first_version(&header)? {
            header = header.encrypted_with(version);
        }
        let file = SpaceFile::kept_open(self.files(), new.path, file);
        let space = self.space(new.id, header, file, 0);
        space.grow_file(new.pages.max(2))?;
        let mut page = vec![0; self.page_size];
        header.format(&mut page, space.page(PageNo(0)), new.definition);
        page::seal(&mut page);
        space.file.write_at(&page, 0)?;
        page.fill(0);
        space.format_first_alloc_page(&mut page);
        page::seal(&mut page);
        space.file.write_at(&page, space.offset(PageNo(1)))?;
        if new.kind != SpaceKind::Temp {
            space.file.sync()?;
        }
        Ok((header, space.size_pages()))
    }

    /// Opens the file that has just been made, of which everything is known.
    fn open_made(&self, new: &NewSpace<'_>, header: FileHeader, size: u32) -> Result<Arc<Space>> {
        let full = self.dir.join(new.path);
        let file = match new.kind {
            // It need not become durable, and is small or does not last: let the system keep what it has room
            // for.
            SpaceKind::Temp => {
                let open = || self.disk.open(&full, OpenMode::Existing);
                self.files().with_means(open)?
            }
            _ => self.files().open_for_pages(&full)?,
        };
        let file = self.space_file(new.path, new.kind, file);
        let mut space = self.space(new.id, header, file, size);
        space.target = new.target.map(Path::to_path_buf);
        self.prepare_encryption(&space)?;
        self.register_filled(space)
    }
}
