//! Tables whose files are in other directories than the data directory (`space::link`).
//!
//! The table `schema/table` has its file in the directory `schema` of the one that was asked for, which is
//! made if it is not there. Neither is removed again.

use std::path::{Component, Path, PathBuf};

use super::{Ddl, FILE_EXTENSION};
use crate::base::{Error, Result};
use crate::catalog::{TableDef, is_aside, schema_of};
use crate::space::target_name;

/// What the file of a new table is called: as the table is. A table that is made to take another one's place
/// has no name yet that would mean anything to people; a partition that is, has, with a mark behind it.
pub(super) fn file_name(def: &TableDef) -> String {
    let table = def
        .name
        .split_once('/')
        .map_or(&*def.name, |(_, table)| table);
    let stem = match is_aside(&def.name) {
        true => "altered",
        false => table.split("#TMP#").next().unwrap_or_default(),
    };
    target_name(stem, def.space, FILE_EXTENSION)
}

/// The directory for the files of a schema's tables below one that a user wants.
pub(super) fn directory_of(ddl: &Ddl, name: &str, wanted: &Path) -> Result<PathBuf> {
    let refuse = |why: &str| {
        let wanted = wanted.display();
        Err(Error::invalid(format!(
            "data directory {wanted} of table {name}: {why}"
        )))
    };
    if !wanted.is_absolute() || wanted.to_str().is_none() {
        return refuse("it must be an absolute path, in UTF-8");
    }
    let own = std::path::absolute(ddl.spaces.dir());
    let own = own.map_err(|e| Error::io("look for", ddl.spaces.dir(), e))?;
    if plain(wanted).starts_with(plain(&own)) {
        return refuse("it is the database's own, or in it");
    }
    Ok(wanted.join(schema_of(name)))
}

/// Without what does not lead anywhere, and the way back.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(out.pop()),
            part => out.push(part),
        }
    }
    out
}
