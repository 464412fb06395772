//! The system tablespace's directory page, which names the undo tablespaces and the catalog's root, and the files that the
//! database can't do without. What is wrong with one of these is told with its name.

use crate::base::{Error, PageId, PageNo, Result, SYSTEM_SPACE, SpaceId};
use crate::buffer::BufferPool;
use crate::ddl::FILE_EXTENSION;
use crate::mtr::Mtr;
use crate::page::{PageOp, PageType, page_type};
use crate::space::{SpaceKind, Spaces};
use crate::undo::MAX_UNDO_SPACES;

pub const SYSTEM_FILE: &str = "system.vdt";
pub const DIRECTORY_PAGE: PageNo = PageNo(2);

/// Offsets in the directory page of the system tablespace.
const DIR_UNDO_COUNT: usize = 48;
const DIR_CATALOG_ROOT: usize = 52;
const DIR_UNDO_SPACES: usize = 56;

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

/// The file of undo tablespace number `n`, from 0.
pub fn undo_file(n: usize) -> String {
    format!("undo_{:03}.{FILE_EXTENSION}", n + 1)
}

/// What is wrong with the file of an undo tablespace that was not found.
fn missing_undo_file(spaces: &Spaces, n: usize, id: SpaceId) -> Error {
    let found = match spaces.open(&undo_file(n)) {
        Err(e @ Error::CorruptFile { .. }) => return e,
        Ok(_) | Err(_) => "no file that is it; restore the database from a backup",
    };
    Error::CorruptFile {
        path: spaces.dir().join(undo_file(n)),
        expected: format!("undo tablespace {id}"),
        found: found.into(),
    }
}

/// The directory page of the system tablespace.
pub struct Directory {
    pub undo_spaces: Vec<SpaceId>,
    pub catalog_root: PageNo,
}

impl Directory {
    const PAGE: PageId = PageId::new(SYSTEM_SPACE, DIRECTORY_PAGE);

    pub fn read(pool: &BufferPool, spaces: &Spaces) -> Result<Directory> {
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
        for (n, id) in undo_spaces.iter().enumerate() {
            let kind = spaces.get(*id).map(|space| space.kind());
            if kind.is_none() {
                return Err(missing_undo_file(spaces, n, *id));
            }
            if kind != Some(SpaceKind::Undo) || undo_spaces[..n].contains(id) {
                let found = format!("tablespace {id} as number {}, kind {kind:?}", n + 1);
                let expected = "different undo tablespaces, each with its file";
                return Err(Error::corrupt(Directory::PAGE, expected, found));
            }
        }
        Ok(Directory {
            undo_spaces,
            catalog_root: PageNo(at(DIR_CATALOG_ROOT)),
        })
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
}
