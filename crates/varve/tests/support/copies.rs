//! What a server does to alter a table by copying it: it makes the copy, fills it, has the table step aside,
//! and gives the copy its name; and what its log of DDL statements does after a crash.

#![allow(dead_code, reason = "each test uses its part")]

use varve::{Database, Isolation, LockMode, Result, TableDef};

const COPY: &str = "/#copy-";
const BACKUP: &str = "/#backup-";

/// What a copy that is to take a table's place is called until then.
pub fn copy_of(name: &str) -> String {
    name.replacen('/', COPY, 1)
}

/// What a table is called that has stepped aside for its copy.
pub fn backup_of(name: &str) -> String {
    name.replacen('/', BACKUP, 1)
}

/// The table is a copy that is being made, or has stepped aside for one.
pub fn is_aside(name: &str) -> bool {
    name.contains("/#")
}

/// Of the copy: what the table's foreign keys say of its rows is not checked again.
pub fn copied_definition(db: &Database, name: &str) -> Result<TableDef> {
    let table = db.table(name)?;
    let mut def = table.def().clone();
    def.name = copy_of(name);
    // What the parents are called now; the handle's definition says what they were called before.
    let references = db.foreign_keys(&table)?.into_iter();
    def.foreign_keys = references.map(|reference| reference.key).collect();
    def.foreign_keys.iter_mut().for_each(|key| key.kept = true);
    Ok(def)
}

/// The copy gets the table's rows, in one transaction.
pub fn fill_copy(db: &Database, name: &str) -> Result<()> {
    let (from, to) = (db.table(name)?, db.table(&copy_of(name))?);
    let mut reader = db.begin(Isolation::RepeatableRead);
    let mut writer = db.begin(Isolation::RepeatableRead);
    let mut cursor = from.cursor(0)?;
    let mut on_row = cursor.first(&mut reader, LockMode::None)?;
    while on_row {
        let row = cursor.row()?;
        let values = (0..from.def().columns.len()).map(|column| row.value(column));
        to.insert(&mut writer, &values.collect::<Result<Vec<_>>>()?)?;
        on_row = cursor.next(&mut reader)?;
    }
    writer.commit()
}

/// Gives the table this definition, whose name is its copy's. If a row is refused the table stays as it was.
pub fn alter_by_copy(db: &Database, name: &str, def: &TableDef) -> Result<()> {
    db.create_table(def)?;
    if let Err(why) = fill_copy(db, name) {
        db.drop_table(&copy_of(name))?;
        return Err(why);
    }
    db.rename_table(name, &backup_of(name))?;
    db.rename_table(&copy_of(name), name)?;
    db.drop_table(&backup_of(name))
}

/// Goes on with what a crash has cut off, or back: a copy that was not to take the table's place yet goes.
pub fn finish_copies(db: &Database) -> Result<()> {
    let names = db.tables()?;
    for copy in names.iter().filter(|name| name.contains(COPY)) {
        let table = copy.replacen(COPY, "/", 1);
        match names.contains(&table) {
            true => db.drop_table(copy)?,
            false => db.rename_table(copy, &table)?,
        }
    }
    let mut backups = names.iter().filter(|name| name.contains(BACKUP));
    backups.try_for_each(|name| db.drop_table(name))
}
