//! `ALTER TABLE`.

use super::{Generator, Statement};
use crate::schema::{Index, IndexKind, KeyPart, Table};
use crate::seq;
use crate::sql::{Part, of, text};
use crate::types::{COLLATIONS, Type, any, has_levels, is_odd_char, one_in};

impl Generator {
    pub fn alter(&mut self) -> Statement {
        let before = self.table();
        // InnoDB forgets a partition's counter.
        let counts = before.columns.iter().any(|column| column.auto_increment);
        if before.partitions.is_some() && !counts && self.rng.bool() {
            return self.alter_partitions(&before);
        }
        let mut table = before.clone();
        let mut actions = Vec::new();
        for _ in 0..*any(&mut self.rng, &[1, 1, 1, 2]) {
            let mut altered = table.clone();
            if let Some(action) = self.action(&before, &mut altered) {
                actions.push(action);
                table = altered;
            }
        }
        if actions.is_empty() {
            actions.push(text("FORCE"));
        }
        let mut after = self.tables.clone();
        if let Some(slot) = after.iter_mut().find(|slot| slot.name == table.name) {
            *slot = table.clone();
        }
        // Changing a table in place, InnoDB sets the counter anew; values that were used up count no more.
        // A unique key that it adds in place comes after the others, whichever duplicate is to be told.
        let unique = |table: &Table| {
            let unique = table.indexes.iter();
            unique
                .filter(|index| index.kind != IndexKind::Plain)
                .count()
        };
        let counts = counts || before.primary() != table.primary();
        let copies = !self.copies && (counts || unique(&table) > unique(&before));
        let statement = seq![
            format!("ALTER TABLE {} ", table.name),
            crate::sql::list(actions),
            if copies { ", ALGORITHM=COPY" } else { "" },
        ];
        Statement::new(statement).after(after)
    }

    /// One change; `table` is changed alike.
    fn action(&mut self, before: &Table, table: &mut Table) -> Option<Part> {
        match self.rng.u32(..22) {
            // InnoDB loses an entry of the parent's row when a deletion is refused.
            20 if (self.is_parent(before) || table.refers_to_itself())
                && before.primary().is_none() =>
            {
                None
            }
            20 => {
                table.versioned = !before.versioned;
                let verb = if table.versioned { "ADD" } else { "DROP" };
                Some(text(format!("{verb} SYSTEM VERSIONING")))
            }
            21 => self.other_primary(before, table),
            0..4 => {
                let mut column = match one_in(&mut self.rng, 5) {
                    true => self.generated_column(before)?,
                    false => self.new_column(table),
                };
                // Changing a table in place, InnoDB does not look at the check that JSON brings.
                column.not_null &= self.copies || column.kind != Type::Json;
                let place = match self.rng.u32(..3) {
                    0 => {
                        table.columns.insert(0, column.clone());
                        " FIRST"
                    }
                    _ => {
                        table.columns.push(column.clone());
                        ""
                    }
                };
                let tag = table.tag(&column.name);
                Some(of(&tag, seq!["ADD COLUMN ", column.definition(), place]))
            }
            4 => self.drop_column(before, table),
            5..8 => self.modify_column(before, table),
            8 => self.rename_column(before, table),
            9..12 => {
                let index = self.new_index(before)?;
                table.indexes.push(index.clone());
                Some(seq!["ADD ", index.definition(&table.name)])
            }
            12 => {
                let index = any(
                    &mut self.rng,
                    &before.indexes.get(1..)?.first().map(|_| &before.indexes)?[1..],
                );
                let name = index.name.clone();
                table.indexes.retain(|index| index.name != name);
                Some(text(format!("DROP INDEX {name}")))
            }
            13 => {
                let index = before
                    .indexes
                    .iter()
                    .find(|index| index.kind != IndexKind::Primary)?;
                let new = self.name("k");
                let slot = table
                    .indexes
                    .iter_mut()
                    .find(|slot| slot.name == index.name)?;
                slot.name.clone_from(&new);
                Some(text(format!("RENAME INDEX {} TO {new}", index.name)))
            }
            14 => self.other_collation(before, table),
            15 => Some(text(format!("AUTO_INCREMENT={}", self.rng.u32(1..100)))),
            16 => Some(text(*any(
                &mut self.rng,
                &["COMMENT='y'", "FORCE", "ROW_FORMAT=DYNAMIC"],
            ))),
            17 => self.add_foreign_key(before, table),
            18 => {
                let key = before.foreign.first()?;
                table.foreign.retain(|other| other.name != key.name);
                Some(text(format!("DROP FOREIGN KEY {}", key.name)))
            }
            _ => {
                let name = self.name("x");
                let column = before
                    .columns
                    .iter()
                    .find(|column| column.kind.is_exact())?;
                Some(text(format!(
                    "ADD CONSTRAINT {name} CHECK ({} < 1000)",
                    column.name
                )))
            }
        }
    }

    fn other_collation(&mut self, before: &Table, table: &mut Table) -> Option<Part> {
        let collation = *any(&mut self.rng, &COLLATIONS);
        // Indexes may have beginnings of texts.
        let mut kinds = before.columns.iter().map(|column| &column.kind);
        let is_odd = kinds.any(|kind| is_odd_char(kind, Some(collation)));
        if has_levels(Some(collation)) || is_odd {
            return None;
        }
        table.collation = Some(collation);
        if self.rng.bool() {
            return Some(text(format!("COLLATE {collation}")));
        }
        for column in &mut table.columns {
            if column.kind.has_collation() {
                column.collation = None;
            }
        }
        let charset = collation.split('_').next()?;
        Some(text(format!(
            "CONVERT TO CHARACTER SET {charset} COLLATE {collation}"
        )))
    }

    /// Another primary key, or none.
    fn other_primary(&mut self, before: &Table, table: &mut Table) -> Option<Part> {
        let old = before.primary();
        // With checks off InnoDB lets children refer to what has no index.
        if table.primary().is_some() != old.is_some() || self.is_parent(before) {
            return None;
        }
        let column = any(&mut self.rng, &before.columns);
        let name = &column.name;
        let parts = match old {
            Some(_) if self.rng.bool() => text("DROP PRIMARY KEY"),
            Some(_) => text(format!("DROP PRIMARY KEY, ADD PRIMARY KEY ({name})")),
            None => text(format!("ADD PRIMARY KEY ({name})")),
        };
        let sql = parts.render();
        table
            .indexes
            .retain(|index| index.kind != IndexKind::Primary);
        if sql.contains("ADD") {
            let part = KeyPart {
                column: name.clone(),
                prefix: None,
                descending: false,
            };
            table.indexes.insert(
                0,
                Index {
                    name: "PRIMARY".into(),
                    kind: IndexKind::Primary,
                    parts: vec![part],
                },
            );
            table
                .columns
                .iter_mut()
                .filter(|column| column.name == *name)
                .for_each(|column| column.not_null = true);
        }
        Some(parts)
    }

    fn add_foreign_key(&mut self, before: &Table, table: &mut Table) -> Option<Part> {
        let mut one = before.clone();
        self.draw_foreign_key(&mut one);
        let mut key = one.foreign.last()?.clone();
        if !self.copies {
            // In place InnoDB takes RESTRICT for NO ACTION, and shows that.
            for action in [&mut key.on_delete, &mut key.on_update] {
                *action = action.filter(|action| ["CASCADE", "SET NULL"].contains(action));
            }
        }
        if one.columns.len() == before.columns.len() {
            return None;
        }
        let mut parts = Vec::new();
        for column in one.columns.drain(before.columns.len()..) {
            parts.push(seq!["ADD COLUMN ", column.definition()]);
            table.columns.push(column);
        }
        parts.push(seq!["ADD ", key.definition()]);
        table.foreign.push(key);
        Some(crate::sql::list(parts))
    }

    fn drop_column(&mut self, before: &Table, table: &mut Table) -> Option<Part> {
        if table.columns.len() < 3 {
            return None;
        }
        let name = any(&mut self.rng, &before.columns).name.clone();
        let in_primary = before
            .indexes
            .iter()
            .any(|i| i.kind == IndexKind::Primary && i.has(&name));
        // Now and then what can't be done.
        if is_mentioned(before, &name) || (in_primary && self.rng.u32(..6) > 0) {
            return None;
        }
        table.columns.retain(|column| column.name != name);
        for index in &mut table.indexes {
            index.parts.retain(|part| part.column != name);
        }
        table.indexes.retain(|index| !index.parts.is_empty());
        Some(of(&table.tag(&name), format!("DROP COLUMN {name}")))
    }

    fn modify_column(&mut self, before: &Table, table: &mut Table) -> Option<Part> {
        let i = self.rng.usize(..before.columns.len());
        let mut column = before.columns[i].clone();
        if column.generated.is_some() || table.columns.get(i)?.name != column.name {
            return None;
        }
        match self.rng.u32(..4) {
            // Changing a table in place, without strict mode, InnoDB gives NULLs the column's old default.
            0 => column.not_null = !column.not_null && self.copies,
            1 => column.default = None,
            2 => column.kind = Type::draw(&mut self.rng),
            _ => {
                column.kind = match column.kind {
                    Type::Int(bytes, sign) => Type::Int(if bytes == 8 { 2 } else { 8 }, sign),
                    Type::Char(n) => Type::Varchar((n / 2 + 2).into()),
                    Type::Varchar(n) => Type::Varchar(n * 2 % 300 + 1),
                    Type::Text(n) => Type::Text((n + 1) % 4),
                    Type::Blob(n) => Type::Blob((n + 1) % 4),
                    kind => kind,
                }
            }
        }
        if !column.kind.has_collation() {
            column.collation = None;
        }
        column.not_null &= column.kind != Type::Geometry;
        let is_hashed = column.kind.needs_prefix() && before.is_in_unique(&column.name);
        let is_odd = is_odd_char(&column.kind, column.collation.or(before.collation));
        if is_odd || is_hashed && !self.hashes {
            return None;
        }
        column.compressed &= column.kind.can_be_compressed();
        // Each engine has what it computes computed as often as it likes: it must not warn.
        let is_other = column.kind.family() != before.columns[i].kind.family();
        if is_other && before.computes_from(&column.name) {
            return None;
        }
        if column.kind != before.columns[i].kind {
            column.default = None;
            column.auto_increment &= matches!(column.kind, Type::Int(..));
        }
        let part = of(
            &table.tag(&column.name),
            seq!["MODIFY COLUMN ", column.definition()],
        );
        table.columns[i] = column;
        Some(part)
    }

    fn rename_column(&mut self, before: &Table, table: &mut Table) -> Option<Part> {
        let name = any(&mut self.rng, &before.columns).name.clone();
        let referred = self.tables.iter().flat_map(|table| &table.foreign);
        let is_referred = referred
            .clone()
            .any(|key| key.parent == before.name && key.parent_columns.contains(&name));
        // InnoDB forgets values of the counter that only failed statements had, as by RENAME TABLE.
        let counts = before.columns.iter().any(|column| column.auto_increment);
        if is_mentioned(before, &name) || is_referred || counts {
            return None;
        }
        let new = self.name("c");
        table
            .columns
            .iter_mut()
            .find(|column| column.name == name)?
            .name
            .clone_from(&new);
        for part in table.indexes.iter_mut().flat_map(|index| &mut index.parts) {
            if part.column == name {
                part.column.clone_from(&new);
            }
        }
        Some(text(format!("RENAME COLUMN {name} TO {new}")))
    }
}

/// Whether an expression or a foreign key of the table names a column.
fn is_mentioned(table: &Table, name: &str) -> bool {
    let in_expression = table.columns.iter().any(|column| {
        let generated = column.generated.as_ref().map(|(expression, _)| expression);
        generated
            .into_iter()
            .chain(&column.check)
            .any(|expression| expression.contains(name))
    });
    let in_key = table.foreign.iter().any(|key| {
        let mut columns = key.columns.iter().chain(&key.parent_columns);
        columns.any(|column| column == name)
    });
    in_expression
        || in_key
        || table
            .partitions
            .as_ref()
            .is_some_and(|by| by.contains(name))
}
