//! What a disk holds: names, and the bytes behind them.

use std::collections::BTreeMap;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::contents::Contents;

/// What a name stands for.
#[derive(Clone)]
pub(crate) enum Node {
    Dir,
    File(Contents),
    /// A symbolic link, and where it leads.
    Link(PathBuf),
}

/// The state of a disk: what is found on it after a crash, and what a new [`SimDisk`](crate::SimDisk) starts
/// with.
#[derive(Clone, Default)]
pub struct Image {
    pub(crate) nodes: BTreeMap<PathBuf, Node>,
}

impl Image {
    /// An empty disk.
    pub fn new() -> Image {
        Image::default()
    }

    /// What `export` wrote to `from`, as it was below `root`.
    pub fn import(from: &Path, root: &Path) -> io::Result<Image> {
        let mut image = Image::new();
        for dir in root.ancestors().filter(|dir| dir.parent().is_some()) {
            image.nodes.insert(dir.to_path_buf(), Node::Dir);
        }
        let mut dirs = vec![(from.to_path_buf(), root.to_path_buf())];
        while let Some((from, to)) = dirs.pop() {
            for entry in std::fs::read_dir(from)? {
                let entry = entry?;
                let to = to.join(entry.file_name());
                let kind = entry.file_type()?;
                let node = match (kind.is_dir(), kind.is_symlink()) {
                    (true, _) => {
                        dirs.push((entry.path(), to.clone()));
                        Node::Dir
                    }
                    (_, true) => Node::Link(std::fs::read_link(entry.path())?),
                    (_, false) => {
                        let mut contents = Contents::default();
                        contents.write(&std::fs::read(entry.path())?, 0);
                        Node::File(contents)
                    }
                };
                image.nodes.insert(to, node);
            }
        }
        Ok(image)
    }

    /// Writes everything below `root` into a directory of the real disk, where it can be opened and looked
    /// at.
    pub fn export(&self, root: &Path, to: &Path) -> io::Result<()> {
        std::fs::create_dir_all(to)?;
        for (path, node) in &self.nodes {
            let Ok(relative) = path.strip_prefix(root) else {
                continue;
            };
            let target = to.join(relative);
            match node {
                Node::Dir => std::fs::create_dir_all(&target)?,
                Node::Link(leads_to) => {
                    // As a file of an earlier export is written over.
                    if target.symlink_metadata().is_ok() {
                        std::fs::remove_file(&target)?;
                    }
                    std::os::unix::fs::symlink(leads_to, &target)?;
                }
                Node::File(contents) => {
                    let mut file = std::fs::File::create(&target)?;
                    for (offset, bytes) in contents.chunks() {
                        file.seek(SeekFrom::Start(offset))?;
                        file.write_all(bytes)?;
                    }
                    file.set_len(contents.len())?;
                }
            }
        }
        Ok(())
    }
}
