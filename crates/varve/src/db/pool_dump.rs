//! The file with the list of the pages that were in the buffer pool: text, one page a line, most recently
//! used first.
//!
//! ```text
//! VARVE BUFFER POOL 1 <uuid of the database, 32 hexadecimal digits>
//! <tablespace>,<page>
//! ...
//! END <number of pages> <crc32c of everything before this line, 8 hexadecimal digits>
//! ```
//!
//! It is only advice. One that is damaged, or another database's, is told and left alone; so is a file by
//! that name that is something else. It is written under another name first, so that there is always a whole
//! one.

use std::fmt::Write;
use std::path::Path;

use crate::base::{Error, PageId, PageNo, Result, SpaceId};
use crate::io::{Disk, OpenMode, replace_file};

const TITLE: &str = "VARVE BUFFER POOL ";
const VERSION: u32 = 1;
/// As InnoDB calls one that is being written.
const UNFINISHED: &str = "incomplete";
/// No pool is so large: some 50 million pages.
const LONGEST: u64 = 1 << 30;
/// What the database's own files end in, what else they begin with, and those that are called otherwise.
const OWN_EXTENSIONS: [&str; 7] = ["vdt", "vdt-new", "vdt-gone", "vdw", "vlog", "vidx", "spare"];
const OWN_PREFIX: &str = "varve.";
const OWN_NAMES: [&str; 2] = ["undo_directory", "redo"];

/// The file's name is one in the data directory, and not that of another file of the database.
pub fn validate_name(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let extension = name.rsplit_once('.').map_or("", |parts| parts.1);
    let is_fit = !name.is_empty()
        && name.len() <= 200
        && !name.starts_with('.')
        && name.chars().all(is_plain)
        && !OWN_EXTENSIONS.contains(&extension)
        && !OWN_NAMES.contains(&name)
        && !name.starts_with(OWN_PREFIX)
        && extension != UNFINISHED;
    match is_fit {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "pool_dump.file {name:?}: it must be a name of letters, digits and . _ - in the data directory, and none that the database uses"
        ))),
    }
}

/// Writes the list.
pub fn write(disk: &dyn Disk, path: &Path, uuid: &[u8; 16], pages: &[PageId]) -> Result<()> {
    if disk.exists(path)? {
        refuse_other_file(disk, path)?;
    }
    let mut text = title(uuid);
    for page in pages {
        writeln!(text, "{},{}", page.space.0, page.no.0).expect("a string takes everything");
    }
    let crc = crc32c::crc32c(text.as_bytes());
    writeln!(text, "END {} {crc:08x}", pages.len()).expect("a string takes everything");
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{UNFINISHED}"));
    let names = (Path::new(&name), path);
    replace_file(disk, names, OpenMode::CreateNew, text.as_bytes())
}

fn title(uuid: &[u8; 16]) -> String {
    let uuid: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    format!("{TITLE}{VERSION} {uuid}\n")
}

/// A file that is no list is not overwritten.
fn refuse_other_file(disk: &dyn Disk, path: &Path) -> Result<()> {
    let file = disk.open(path, OpenMode::ReadOnly)?;
    let mut begin = [0; TITLE.len()];
    let is_short = file.len()? < begin.len() as u64;
    if !is_short {
        file.read_at(&mut begin, 0)?;
    }
    match is_short || begin != TITLE.as_bytes() {
        true => Err(Error::AlreadyExists {
            what: format!("file {} (no list of pages)", path.display()),
        }),
        false => Ok(()),
    }
}

/// Reads the list. `None`: there is no file.
pub fn read(disk: &dyn Disk, path: &Path, uuid: &[u8; 16]) -> Result<Option<Vec<PageId>>> {
    if !disk.exists(path)? {
        return Ok(None);
    }
    let damaged = |expected: &str, found: &str| Error::CorruptFile {
        path: path.to_path_buf(),
        expected: expected.into(),
        found: format!("{found}; it is not used, and the next one takes its place"),
    };
    let file = disk.open(path, OpenMode::ReadOnly)?;
    let len = file.len()?;
    if len > LONGEST {
        return Err(damaged("a list of pages", "a file that is too long"));
    }
    let mut bytes = vec![0; len as usize];
    file.read_at(&mut bytes, 0)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| damaged("a list of pages", "no text"))?;
    let title = title(uuid);
    let Some(listed) = text.strip_prefix(&title) else {
        let found = match text.starts_with(TITLE) {
            true => "that of another database or version",
            false => "something else",
        };
        return Err(damaged("a list of this database's pages", found));
    };
    let whole = || damaged("a whole list of pages", "one that was cut or changed");
    let (lines, end) = split_end(listed).ok_or_else(whole)?;
    let crc = crc32c::crc32c(&bytes[..title.len() + lines.len()]);
    let pages: Option<Vec<PageId>> = lines.lines().map(parse_page).collect();
    let pages = pages.ok_or_else(whole)?;
    match end == format!("END {} {crc:08x}\n", pages.len()) {
        true => Ok(Some(pages)),
        false => Err(whole()),
    }
}

/// The lines of pages, and the last line.
fn split_end(listed: &str) -> Option<(&str, &str)> {
    let before_end = listed.strip_suffix('\n')?;
    let at = before_end.rfind('\n').map_or(0, |at| at + 1);
    Some(listed.split_at(at))
}

fn parse_page(line: &str) -> Option<PageId> {
    let (space, no) = line.split_once(',')?;
    let (space, no) = (space.parse().ok()?, no.parse().ok()?);
    Some(PageId::new(SpaceId(space), PageNo(no)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::RealDisk;

    fn pages() -> Vec<PageId> {
        let of = |(space, no)| PageId::new(SpaceId(space), PageNo(no));
        [(5, 17), (0, 0), (4_000_000_000, 4_000_000_000)]
            .map(of)
            .into()
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        assert!(read(&RealDisk, &path, &[1; 16]).unwrap().is_none());
        for list in [pages(), Vec::new(), pages()] {
            write(&RealDisk, &path, &[1; 16], &list).unwrap();
            assert_eq!(read(&RealDisk, &path, &[1; 16]).unwrap(), Some(list));
        }
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "nothing else is left");
        let why = read(&RealDisk, &path, &[2; 16]).unwrap_err().to_string();
        assert!(why.contains("another database"), "{why}");
    }

    /// Cut anywhere, or with any byte changed, it is refused.
    #[test]
    fn damage_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        write(&RealDisk, &path, &[1; 16], &pages()).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let refused = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let result = read(&RealDisk, &path, &[1; 16]);
            assert!(
                matches!(result, Err(Error::CorruptFile { .. })),
                "{result:?}"
            );
        };
        for at in 0..whole.len() {
            refused(&whole[..at]);
            for bit in [1, 16, 128] {
                let mut changed = whole.clone();
                changed[at] ^= bit;
                refused(&changed);
            }
        }
        refused(&[&whole[..], b"\n"].concat());
    }

    #[test]
    fn nothing_else_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other");
        for other in ["", "short", "something else that is long enough"] {
            std::fs::write(&path, other).unwrap();
            let why = write(&RealDisk, &path, &[1; 16], &pages()).unwrap_err();
            assert!(matches!(why, Error::AlreadyExists { .. }), "{why}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
        }
    }

    #[test]
    fn names_are_plain() {
        for name in ["varve_buffer_pool", "a.b-c_1"] {
            validate_name(name).unwrap();
        }
        for name in [
            "",
            "../x",
            "a/b",
            ".x",
            "system.vdt",
            "varve.ctl",
            "varve.recovery",
            "undo_directory",
            "x.incomplete",
            "ä",
            "a b",
        ] {
            assert!(validate_name(name).is_err(), "{name}");
        }
    }
}
