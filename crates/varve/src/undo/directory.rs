//! The directory page of the system tablespace: which undo tablespaces there are, and where the catalog
//! begins.

use crate::base::{Error, PageId, PageNo, Result, SYSTEM_SPACE, SpaceId};
use crate::buffer::BufferPool;
use crate::mtr::{Mtr, PageHandle};
use crate::page::{PageOp, PageType, page_type};
use crate::space::{SpaceKind, Spaces};

use super::MAX_UNDO_SPACES;
use super::truncate::undo_path;

/// The file of the system tablespace.
pub const SYSTEM_FILE: &str = "system.vdt";
/// The page.
pub const DIRECTORY_PAGE: PageNo = PageNo(2);

/// Offsets in the directory page of the system tablespace.
const DIR_UNDO_COUNT: usize = 48;
const DIR_CATALOG_ROOT: usize = 52;
const DIR_UNDO_SPACES: usize = 56;

/// The directory page of the system tablespace.
pub struct Directory {
    pub undo_spaces: Vec<SpaceId>,
    /// Root of the tree of table definitions.
    pub catalog_root: PageNo,
}

impl Directory {
    pub const PAGE: PageId = PageId::new(SYSTEM_SPACE, DIRECTORY_PAGE);

    /// # Errors
    ///
    /// Also if one of the undo tablespaces is missing.
    pub fn read(pool: &BufferPool, spaces: &Spaces) -> Result<Directory> {
        let directory = Directory::read_alone(pool)?;
        directory.check_spaces(spaces)?;
        Ok(directory)
    }

    /// The same, whatever undo tablespaces there are.
    pub fn read_alone(pool: &BufferPool) -> Result<Directory> {
        let page = pool.shared(Directory::PAGE)?;
        let at = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"));
        let count = at(DIR_UNDO_COUNT) as usize;
        if page_type(&page) != Some(PageType::UndoDir) || count > MAX_UNDO_SPACES {
            let found = format!("type {:?}, {count} undo tablespaces", page_type(&page));
            return Err(Error::corrupt(
                Directory::PAGE,
                "the system directory",
                found,
            ));
        }
        let undo_spaces: Vec<_> = (0..count)
            .map(|n| SpaceId(at(DIR_UNDO_SPACES + 4 * n)))
            .collect();
        Ok(Directory {
            undo_spaces,
            catalog_root: PageNo(at(DIR_CATALOG_ROOT)),
        })
    }

    fn check_spaces(&self, spaces: &Spaces) -> Result<()> {
        for (n, id) in self.undo_spaces.iter().enumerate() {
            let kind = spaces.get(*id).map(|space| space.kind());
            let path = undo_path(spaces, n);
            let has_file = spaces.all().iter().any(|space| space.path() == path);
            if kind.is_none() && !has_file {
                return Err(missing_undo_file(spaces, n, *id));
            }
            if kind != Some(SpaceKind::Undo) || self.undo_spaces[..n].contains(id) {
                let found = format!("tablespace {id} as number {}, kind {kind:?}", n + 1);
                let expected = "different undo tablespaces, each with its file";
                return Err(Error::corrupt(Directory::PAGE, expected, found));
            }
        }
        Ok(())
    }

    pub fn write(&self, mtr: &mut Mtr<'_>) -> Result<()> {
        let h = mtr.exclusive_new(Directory::PAGE)?;
        mtr.op(
            h,
            PageOp::FormatRaw {
                ptype: PageType::UndoDir,
            },
        );
        let mut body = Vec::new();
        body.extend_from_slice(&(self.undo_spaces.len() as u32).to_le_bytes());
        body.extend_from_slice(&self.catalog_root.0.to_le_bytes());
        for space in &self.undo_spaces {
            body.extend_from_slice(&space.0.to_le_bytes());
        }
        mtr.op(
            h,
            PageOp::Write {
                off: DIR_UNDO_COUNT as u16,
                bytes: &body,
            },
        );
        Ok(())
    }

    pub fn latch(mtr: &mut Mtr<'_>) -> Result<PageHandle> {
        mtr.exclusive(Directory::PAGE)
    }

    /// Puts another tablespace in the place of the `n`th undo tablespace.
    pub fn replace_undo_space(mtr: &mut Mtr<'_>, directory: PageHandle, n: usize, space: SpaceId) {
        mtr.op(
            directory,
            PageOp::Write {
                off: (DIR_UNDO_SPACES + 4 * n) as u16,
                bytes: &space.0.to_le_bytes(),
            },
        );
    }
}

/// What is wrong with the file of an undo tablespace that was not found.
fn missing_undo_file(spaces: &Spaces, n: usize, id: SpaceId) -> Error {
    let path = undo_path(spaces, n);
    let found = match spaces.open(&path) {
        Err(e @ Error::CorruptFile { .. }) => return e,
        Ok(_) | Err(_) => {
            "no file that is it; set undo_directory to where it was moved, or restore the database from a backup"
        }
    };
    Error::CorruptFile {
        path: spaces.dir().join(path),
        expected: format!("undo tablespace {id}"),
        found: found.into(),
    }
}

/// Nothing can be done without the system tablespace. Says what is wrong with its file.
pub fn require_system_file(spaces: &Spaces) -> Result<()> {
    if spaces.get(SYSTEM_SPACE).is_some() {
        return Ok(());
    }
    let found = match spaces.open(SYSTEM_FILE) {
        Ok(other) => format!("tablespace {}", other.id()),
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            "no such file".into()
        }
        Err(e) => return Err(e),
    };
    Err(Error::CorruptFile {
        path: spaces.dir().join(SYSTEM_FILE),
        expected: "the system tablespace".into(),
        found: format!("{found}; restore the database from a backup"),
    })
}
