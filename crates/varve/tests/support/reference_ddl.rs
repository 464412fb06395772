//! The model's tables in a database, and its statements that concern whole tables.

use varve::{
    ColumnType, Database, Error, ForeignKey, ForeignKeyChecks, RedefinitionWaits, Result, TableDef,
};

use super::copies::{alter_by_copy, copied_definition};
use super::references::{COLUMNS, Ddl, Key, Rules};

const COLUMN_NAMES: [&str; COLUMNS] = ["c0", "c1", "c2", "c3", "c4"];

fn column_names(columns: &[usize]) -> Vec<&'static str> {
    columns.iter().map(|&column| COLUMN_NAMES[column]).collect()
}

/// What a table may be called: the names of its foreign keys stay, their schemas change.
pub fn table_names(table: usize) -> [String; 3] {
    ["a/t", "a/u", "b/t"].map(|name| format!("{name}{table}"))
}

/// Of the table as the rules have it.
pub fn definition(table: usize, rules: &Rules) -> TableDef {
    let first = COLUMN_NAMES[0];
    let mut def = TableDef::new(&rules.names[table]).column(first, ColumnType::i64());
    for name in &COLUMN_NAMES[1..] {
        def = def.nullable(name, ColumnType::i64());
    }
    def = def.primary(&[first]);
    for (number, index) in rules.indexes[table].iter().enumerate() {
        let (name, columns) = (format!("i{number}"), column_names(&index.columns));
        def = match index.is_unique {
            true => def.unique(&name, &columns),
            false => def.index(&name, &columns),
        };
    }
    let keys = rules.of_child(table);
    let keys = keys.iter().map(|key| foreign_key(key, rules));
    def.foreign_keys.extend(keys);
    def
}

fn key_name(child: usize, number: usize) -> String {
    format!("t{child}_{number}")
}

fn foreign_key(key: &Key, rules: &Rules) -> ForeignKey {
    let (own, its) = (
        column_names(&key.columns),
        column_names(&key.parent_columns),
    );
    let name = key_name(key.child, key.number);
    ForeignKey::new(name, &own, &rules.names[key.parent], &its)
        .on_delete(key.on_delete)
        .on_update(key.on_update)
}

/// `rules`: before the statement.
pub fn run(db: &Database, rules: &Rules, statement: &Ddl) -> Result<()> {
    let checks = match rules.checks {
        true => ForeignKeyChecks::On,
        false => ForeignKeyChecks::Off,
    };
    let waits = RedefinitionWaits::default;
    let name = |table: usize| &rules.names[table];
    let stored = |table| Ok::<_, Error>(db.table(name(table))?.def().clone());
    match *statement {
        Ddl::Create(table, ref key) => {
            let key = key.as_ref().map(|key| foreign_key(key, rules));
            let mut def = definition(table, rules);
            def.foreign_keys.extend(key);
            db.create_table_with(&def, checks).map(drop)
        }
        Ddl::Drop(table) => db.drop_table_with(name(table), checks),
        Ddl::Truncate(table) => db.truncate_table_with(name(table), checks),
        Ddl::Rename(table, ref to) => db.rename_table(name(table), to),
        // Only a copy has its rows looked at.
        Ddl::AddKey(ref key) if rules.checks => {
            let name = name(key.child);
            let def = copied_definition(db, name)?.foreign_key(foreign_key(key, rules));
            alter_by_copy(db, name, &def)
        }
        Ddl::AddKey(ref key) => {
            let mut prepared = db.prepare_redefinition(&stored(key.child)?, waits())?;
            prepared.add_foreign_key(foreign_key(key, rules))?;
            prepared.commit(&mut |_, _| {})
        }
        Ddl::DropKey(child, number) => {
            let mut prepared = db.prepare_redefinition(&stored(child)?, waits())?;
            prepared.drop_foreign_key(&key_name(child, number))?;
            prepared.commit(&mut |_, _| {})
        }
        Ddl::Rebuild(table) => db.rebuild_table(&stored(table)?),
        Ddl::Copy(table) => alter_by_copy(db, name(table), &copied_definition(db, name(table))?),
    }
}

/// Whether the statement is refused for what the model refuses it for.
pub fn is_refusal(statement: &Ddl, e: &Error) -> bool {
    match statement {
        Ddl::Drop(_) | Ddl::Truncate(_) => matches!(e, Error::TableIsReferenced(_)),
        Ddl::Create(..) => matches!(e, Error::BadForeignKey(_)),
        Ddl::AddKey(_) => matches!(e, Error::BadForeignKey(_) | Error::NoReferencedRow(_)),
        Ddl::Rename(..) | Ddl::DropKey(..) | Ddl::Rebuild(_) | Ddl::Copy(_) => false,
    }
}

/// The tables have the names and the foreign keys that the rules say, and each knows its children.
pub fn compare(db: &Database, rules: &Rules) -> std::result::Result<(), String> {
    let there = || (0..rules.names.len()).filter(|&table| rules.is_there[table]);
    let mut names: Vec<_> = there().map(|table| rules.names[table].clone()).collect();
    names.sort();
    let found = db.tables().map_err(|e| e.to_string())?;
    if found != names {
        return Err(format!("there are {found:?}, not {names:?}"));
    }
    for at in there() {
        let table = db.table(&rules.names[at]).map_err(|e| e.to_string())?;
        let by_name = |key: &ForeignKey| key.name.clone();
        let mut found = db.foreign_keys(&table).map_err(|e| e.to_string())?;
        found.sort_by_key(|reference| by_name(&reference.key));
        let found: Vec<_> = found.into_iter().map(|reference| reference.key).collect();
        let wanted = definition(at, rules).foreign_keys;
        if found != wanted {
            return Err(format!("{}: {found:?}, not {wanted:?}", rules.names[at]));
        }
        let mut found = db.referencing(&table).map_err(|e| e.to_string())?;
        found.sort_by_key(|reference| by_name(&reference.key));
        let found: Vec<_> = found
            .iter()
            .map(|reference| by_name(&reference.key))
            .collect();
        let to_it = rules.keys.iter().filter(|key| key.parent == at);
        let wanted: Vec<_> = to_it.map(|key| key_name(key.child, key.number)).collect();
        if found != wanted || table.is_referenced() == wanted.is_empty() {
            return Err(format!(
                "{}'s children: {found:?}, not {wanted:?}; is it referred to: {}",
                rules.names[at],
                table.is_referenced()
            ));
        }
    }
    Ok(())
}
