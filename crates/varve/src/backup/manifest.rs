//! The manifest: what a backup consists of. It is written last, when all of that is durable, so a directory
//! without one holds no backup.
//!
//! Lines of text, each a word and what follows it:
//!
//! ```text
//! varve-backup 2
//! database 4f1c…              the database's uuid, 32 hexadecimal digits
//! page-size 16384
//! begun 1796032821            seconds since 1970
//! ended 1796032833
//! redo 8192 1234567           LSNs: the copied redo begins and ends there
//! damaged 17 90               a page that was copied as it is: tablespace, page
//! lost a/t.vdt                a tablespace that was not there
//! period 91d0…                the period of written pages that began with it, 32 hexadecimal digits
//! base 57aa…                  of an increment: the period of the backup that it goes with
//! space 17 640 clear changed a/t.vdt
//!                             a tablespace, its pages, how they are written (clear, encrypted, or unknown),
//!                             whole or changed, its path
//! file 8192 0b3df1e2 varve.ctl    bytes, CRC-32C, path in the backup
//! end 5d0c11f7                CRC-32C of everything before this line
//! ```
//!
//! `damaged`, `lost`, `space` and `file` may come any number of times, in this order. The last word of
//! `lost`, `space` and `file` goes to the end of the line; a backslash and a line end in it have a backslash
//! before them, as `\\` and `\n`. A manifest that begins with `varve-backup 1` has no `period`, `base` and
//! `space`.

use std::fmt::Write;
use std::path::{Component, Path};
use std::str::FromStr;

use super::BackupSummary;
use crate::base::{Error, Lsn, PageId, PageNo, Result, SpaceId};
use crate::io::{Disk, OpenMode, replace_file};
use crate::space::PeriodId;

/// The manifest's name in the backup.
pub const MANIFEST: &str = "varve-backup.manifest";

const FIRST_LINE: &str = "varve-backup 2";
/// Of older backups, which have no increments.
const OLD_FIRST_LINE: &str = "varve-backup 1";
/// A manifest is shorter than this: it has a line for each table.
const MOST_BYTES: u64 = 1 << 30;

/// A file of a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackupFile {
    /// In the backup, and in the data directory that is made of it, with forward slashes.
    pub path: String,
    pub bytes: u64,
    /// CRC-32C of all of it.
    pub crc: u32,
}

/// A tablespace of a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackupSpace {
    pub space: SpaceId,
    /// Of all of it, whatever the backup has.
    pub pages: u32,
    /// Whether its pages are written encrypted; `None`: its page 0 is damaged.
    pub encrypted: Option<bool>,
    /// The backup has its file. Otherwise it is an increment, and has the pages that were written since its
    /// base, in a file of their own ([`changed_path`]); none, if there is no such file.
    pub is_whole: bool,
    /// As that of a file.
    pub path: String,
}

/// Where an increment has the pages of a tablespace.
pub fn changed_path(space: SpaceId) -> String {
    format!("changed/{space}.pages")
}

/// What a backup is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// Of the database.
    pub uuid: [u8; 16],
    pub page_size: u32,
    /// Seconds since 1970.
    pub begun: u64,
    pub ended: u64,
    /// The copied redo. What had committed before it ends is in the backup, and nothing else.
    pub from: Lsn,
    pub to: Lsn,
    /// Pages that were damaged in the database, and are so here.
    pub damaged: Vec<PageId>,
    /// Where tablespaces should have been that the database had lost.
    pub lost: Vec<String>,
    /// The period of written pages that began with it. `None`: nothing can be made that goes with it.
    pub period: Option<PeriodId>,
    /// Of an increment: that of its base.
    pub base: Option<PeriodId>,
    /// Sorted by their numbers; none in an old one.
    pub spaces: Vec<BackupSpace>,
    /// Sorted by path.
    pub files: Vec<BackupFile>,
}

impl Manifest {
    pub fn encode(&self) -> String {
        let mut out = String::new();
        let mut line = |text: std::fmt::Arguments<'_>| {
            out.write_fmt(text).expect("memory takes it");
            out.push('\n');
        };
        line(format_args!("{FIRST_LINE}"));
        let uuid = u128::from_be_bytes(self.uuid);
        line(format_args!("database {uuid:032x}"));
        line(format_args!("page-size {}", self.page_size));
        line(format_args!("begun {}", self.begun));
        line(format_args!("ended {}", self.ended));
        line(format_args!("redo {} {}", self.from.0, self.to.0));
        for page in &self.damaged {
            line(format_args!("damaged {} {}", page.space.0, page.no.0));
        }
        for path in &self.lost {
            line(format_args!("lost {}", escaped(path)));
        }
        for (word, period) in [("period", self.period), ("base", self.base)] {
            if let Some(period) = period {
                line(format_args!("{word} {period:032x}"));
            }
        }
        for space in &self.spaces {
            let encrypted = match space.encrypted {
                Some(true) => "encrypted",
                Some(false) => "clear",
                None => "unknown",
            };
            let whole = if space.is_whole { "whole" } else { "changed" };
            let (no, pages, path) = (space.space.0, space.pages, escaped(&space.path));
            line(format_args!(
                "space {no} {pages} {encrypted} {whole} {path}"
            ));
        }
        self.files.iter().for_each(|file| file_line(&mut out, file));
        end_line(&mut out);
        out
    }

    /// What the text of a manifest says; an error says what is wrong with it.
    pub fn decode(text: &str) -> std::result::Result<Manifest, String> {
        let mut lines = match text.starts_with(OLD_FIRST_LINE) {
            true => Lines::of(text, OLD_FIRST_LINE)?,
            false => Lines::of(text, FIRST_LINE)?,
        };
        let uuid = id(lines.only("database")?)?;
        let page_size = number(lines.only("page-size")?)?;
        let (begun, ended) = (number(lines.only("begun")?)?, number(lines.only("ended")?)?);
        let (from, to) = pair(lines.only("redo")?)?;
        let (from, to) = (Lsn(number(from)?), Lsn(number(to)?));
        let mut damaged = Vec::new();
        while let Some(rest) = lines.next("damaged") {
            let (space, no) = pair(rest)?;
            damaged.push(PageId::new(SpaceId(number(space)?), PageNo(number(no)?)));
        }
        let mut lost = Vec::new();
        while let Some(rest) = lines.next("lost") {
            lost.push(unescaped(rest)?);
        }
        let period = lines.next("period").map(id).transpose()?;
        let base = lines.next("base").map(id).transpose()?;
        let mut spaces = Vec::new();
        while let Some(rest) = lines.next("space") {
            spaces.push(space_of(rest)?);
        }
        let mut files = Vec::new();
        while let Some(rest) = lines.next("file") {
            files.push(file_of(rest)?);
        }
        lines.finish()?;
        Ok(Manifest {
            uuid: uuid.to_be_bytes(),
            page_size,
            begun,
            ended,
            from,
            to,
            damaged,
            lost,
            period,
            base,
            spaces,
            files,
        })
    }

    /// The file of this path.
    pub fn file(&self, path: &str) -> Option<&BackupFile> {
        let at = self
            .files
            .binary_search_by(|file| file.path.as_str().cmp(path));
        at.ok().map(|at| &self.files[at])
    }

    pub fn space(&self, space: SpaceId) -> Option<&BackupSpace> {
        let at = self.spaces.binary_search_by_key(&space, |s| s.space);
        at.ok().map(|at| &self.spaces[at])
    }

    /// Reads that of the backup in `dir`.
    ///
    /// # Errors
    ///
    /// `NotFound`: there is none. `CorruptFile`: it is not as it was written.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Manifest> {
        let path = dir.join(MANIFEST);
        if !disk.exists(&path)? {
            return Err(Error::not_found(format!(
                "a backup in {}, with its {MANIFEST}, which is there when a backup is complete,",
                dir.display()
            )));
        }
        let damaged = |found: String| Error::CorruptFile {
            path: path.clone(),
            expected: "a backup's manifest".into(),
            found,
        };
        let text = read_text(disk, &path)?;
        Manifest::decode(&text).map_err(damaged)
    }

    /// Makes the backup in `dir` one: all of it is durable.
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<()> {
        write_text(disk, dir, MANIFEST, &self.encode())
    }

    pub fn into_summary(self) -> BackupSummary {
        BackupSummary {
            from: self.from,
            to: self.to,
            files: self.files.len(),
            bytes: self.files.iter().map(|file| file.bytes).sum(),
            damaged: self.damaged,
            lost: self.lost,
            is_increment: self.base.is_some(),
        }
    }
}

/// What a list is called until it is whole.
pub(super) fn unfinished(name: &str) -> String {
    format!("{name}-new")
}

/// Has the file of this name say that: all of it, or it is not there.
pub(super) fn write_text(disk: &dyn Disk, dir: &Path, name: &str, text: &str) -> Result<()> {
    let names = (&*dir.join(unfinished(name)), &*dir.join(name));
    replace_file(disk, names, OpenMode::CreatePrivate, text.as_bytes())
}

/// Reads a file of text.
pub(super) fn read_text(disk: &dyn Disk, path: &Path) -> Result<String> {
    let file = disk.open(path, OpenMode::ReadOnly)?;
    let bytes = file.len()?;
    let damaged = |found: String| Error::CorruptFile {
        path: path.to_path_buf(),
        expected: "a list in text".into(),
        found,
    };
    if bytes > MOST_BYTES {
        return Err(damaged(format!("{bytes} bytes")));
    }
    let mut text = vec![0; bytes as usize];
    file.read_at(&mut text, 0)?;
    String::from_utf8(text).map_err(|e| damaged(e.to_string()))
}

pub(super) fn file_line(out: &mut String, file: &BackupFile) {
    let path = escaped(&file.path);
    out.push_str(&format!("file {} {:08x} {path}\n", file.bytes, file.crc));
}

/// What such a line says behind its first word.
pub(super) fn file_of(rest: &str) -> std::result::Result<BackupFile, String> {
    let (bytes, rest) = pair(rest)?;
    let (crc, path) = pair(rest)?;
    let path = unescaped(path)?;
    check_path(&path)?;
    Ok(BackupFile {
        path,
        bytes: number(bytes)?,
        crc: u32::from_str_radix(crc, 16).map_err(|e| format!("{crc}: {e}"))?,
    })
}

/// The last line, which has the checksum of all the others.
pub(super) fn end_line(out: &mut String) {
    let crc = crc32c::crc32c(out.as_bytes());
    out.push_str(&format!("end {crc:08x}\n"));
}

/// A file of a backup lies in it.
fn check_path(path: &str) -> std::result::Result<(), String> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let is_inside = !path.is_empty() && Path::new(path).components().all(is_plain);
    match is_inside && !path.contains('\0') && path != MANIFEST {
        true => Ok(()),
        false => Err(format!("{path:?} is no path of a file in a backup")),
    }
}

pub(super) fn escaped(path: &str) -> String {
    path.replace('\\', "\\\\").replace('\n', "\\n")
}

pub(super) fn unescaped(text: &str) -> std::result::Result<String, String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next() {
                Some('\\') => '\\',
                Some('n') => '\n',
                _ => return Err(format!("{text:?} ends in the middle of a character")),
            },
            c => c,
        });
    }
    Ok(out)
}

/// What the line of a tablespace says behind its first word.
fn space_of(rest: &str) -> std::result::Result<BackupSpace, String> {
    let (space, rest) = pair(rest)?;
    let (pages, rest) = pair(rest)?;
    let (encrypted, rest) = pair(rest)?;
    let (whole, path) = pair(rest)?;
    let path = unescaped(path)?;
    check_path(&path)?;
    Ok(BackupSpace {
        space: SpaceId(number(space)?),
        pages: number(pages)?,
        encrypted: match encrypted {
            "encrypted" => Some(true),
            "clear" => Some(false),
            "unknown" => None,
            other => return Err(format!("{other:?} is no way to write pages")),
        },
        is_whole: match whole {
            "whole" => true,
            "changed" => false,
            other => return Err(format!("{other:?} is neither whole nor changed")),
        },
        path,
    })
}

/// 32 hexadecimal digits.
fn id(word: &str) -> std::result::Result<u128, String> {
    u128::from_str_radix(word, 16).map_err(|e| format!("{word}: {e}"))
}

fn number<N: FromStr>(word: &str) -> std::result::Result<N, String> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

fn pair(words: &str) -> std::result::Result<(&str, &str), String> {
    let pair = words.split_once(' ');
    pair.ok_or_else(|| format!("{words:?} is one word"))
}

/// The lines of a manifest, one after the other.
pub(super) struct Lines<'a> {
    left: std::vec::IntoIter<&'a str>,
    /// One that was looked at and not taken.
    word: Option<&'a str>,
}

impl<'a> Lines<'a> {
    /// Those between the first line, which is this one, and the last, whose checksum is right.
    pub fn of(text: &'a str, first: &str) -> std::result::Result<Lines<'a>, String> {
        let sum_at = text.rfind("end ").ok_or("it has no end")?;
        let (body, sum) = text.split_at(sum_at);
        if body.lines().next() != Some(first) {
            return Err(format!("it does not begin with \"{first}\""));
        }
        if sum != format!("end {:08x}\n", crc32c::crc32c(body.as_bytes())) {
            return Err("its checksum is wrong".into());
        }
        Ok(Lines {
            left: body.lines().skip(1).collect::<Vec<_>>().into_iter(),
            word: None,
        })
    }

    /// What follows the word, if the next line begins with it.
    pub fn next(&mut self, word: &str) -> Option<&'a str> {
        let line = self.word.take().or_else(|| self.left.next())?;
        let rest = line.strip_prefix(word).and_then(|l| l.strip_prefix(' '));
        if rest.is_none() {
            self.word = Some(line);
        }
        rest
    }

    pub fn only(&mut self, word: &str) -> std::result::Result<&'a str, String> {
        self.next(word)
            .ok_or_else(|| format!("it lacks \"{word}\""))
    }

    pub fn finish(mut self) -> std::result::Result<(), String> {
        match self.word.take().or_else(|| self.left.next()) {
            None => Ok(()),
            Some(line) => Err(format!("it says {line:?}")),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        let file = |path: &str, bytes| BackupFile {
            path: path.into(),
            bytes,
            crc: bytes as u32 * 77,
        };
        Manifest {
            uuid: [0xab; 16],
            page_size: 4096,
            begun: 5,
            ended: 7,
            from: Lsn(8192),
            to: Lsn(9000),
            damaged: vec![PageId::new(SpaceId(3), PageNo(9))],
            lost: vec!["a/gone.vdt".into()],
            period: Some(7 << 100),
            base: Some(8),
            spaces: vec![
                BackupSpace {
                    space: SpaceId(3),
                    pages: 2,
                    encrypted: Some(true),
                    is_whole: true,
                    path: "a/b c\\d\ne.vdt".into(),
                },
                BackupSpace {
                    space: SpaceId(5),
                    pages: 7,
                    encrypted: None,
                    is_whole: false,
                    path: "a/t.vdt".into(),
                },
            ],
            files: vec![
                file("a/b c\\d\ne.vdt", 8192),
                file("end 1", 0),
                file("varve.ctl", 512),
            ],
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let manifest = sample();
        assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
    }

    /// As an older version wrote it.
    #[test]
    fn old_ones_are_read() {
        let mut old = String::from(
            "varve-backup 1\ndatabase 000000000000000000000000000000ab\npage-size 4096\nbegun 5\nended 7\nredo 1 2\n\
             file 512 00000007 varve.ctl\n",
        );
        end_line(&mut old);
        let old = Manifest::decode(&old).unwrap();
        assert_eq!((old.period, old.base, old.spaces.len()), (None, None, 0));
        assert_eq!(old.files.len(), 1);
    }

    /// BACKUP-5
    #[test]
    fn a_byte_that_changed_is_told() {
        let text = sample().encode();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let told = String::from_utf8(bytes).map(|text| Manifest::decode(&text).is_err());
            assert!(told.unwrap_or(true), "byte {at}");
            assert!(Manifest::decode(&text[..at]).is_err(), "{at} bytes");
        }
    }

    /// BACKUP-5
    #[test]
    fn no_path_leads_out_of_a_backup() {
        for path in [
            "/etc/passwd",
            "../a",
            "a/../../b",
            "",
            "./a",
            "a/./../b",
            MANIFEST,
            "a\0b",
        ] {
            let mut manifest = sample();
            manifest.files[0].path = path.into();
            assert!(Manifest::decode(&manifest.encode()).is_err(), "{path:?}");
            let mut manifest = sample();
            manifest.spaces[1].path = path.into();
            assert!(Manifest::decode(&manifest.encode()).is_err(), "{path:?}");
        }
    }
}
