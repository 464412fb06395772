//! `INSERT`, `REPLACE`, `UPDATE`, `DELETE`.

use fastrand::Rng;

use super::conditions::{condition, filter};
use super::{Generator, Rule, Statement, sometimes};
use crate::schema::{Column, Table};
use crate::seq;
use crate::sql::{Part, list, may, of, or, text, whole};
use crate::types::{any, one_in};

impl Generator {
    pub fn insert(&mut self) -> Statement {
        let table = self.table();
        self.insert_into(&table)
    }

    pub fn insert_into(&mut self, table: &Table) -> Statement {
        let rng = &mut self.rng;
        // InnoDB loses rows when it takes back a REPLACE into a temporary table.
        let replace = one_in(rng, 6) && !table.temporary;
        let ignore = !replace && one_in(rng, 6);
        let columns = inserted(rng, table);
        let names = columns
            .iter()
            .map(|column| of(&table.tag(&column.name), column.name.clone()));
        let verb = match (replace, ignore) {
            (true, _) => text("REPLACE"),
            (_, true) => seq!["INSERT", may(" IGNORE")],
            _ => text("INSERT"),
        };
        let head = seq![
            verb,
            format!(" INTO {} (", table.name),
            list(names.collect()),
            ")"
        ];
        let source = one_in(rng, 8).then(|| self.table());
        // The server puts rows aside that a table gets from itself, and then they come, and get their
        // numbers, in an order that depends on the plan.
        let is_counted = table.columns.iter().any(|column| column.auto_increment);
        let source = source.filter(|source| !is_counted || source.name != table.name);
        let rows = match &source {
            Some(source) => self.selected_rows(table, &columns, source),
            None => value_rows(&mut self.rng, table, &columns),
        };
        let rng = &mut self.rng;
        let update = match !replace && one_in(rng, 6) {
            true => on_duplicate(rng, table),
            false => text(""),
        };
        let returning = match source.is_none() && one_in(rng, 10) {
            true => may(" RETURNING *"),
            false => text(""),
        };
        Statement::new(seq![head, rows, update, returning]).rule(Rule::Ordered)
    }

    /// ` SELECT …` with as many columns.
    fn selected_rows(&mut self, table: &Table, columns: &[&Column], from: &Table) -> Part {
        let rng = &mut self.rng;
        let item = |column: &&Column| {
            let kind = column.kind.family();
            let mut like: Vec<&Column> = from.columns.iter().collect();
            like.retain(|other| other.kind.family() == kind);
            let sql = match !like.is_empty() && !column.auto_increment && rng.u32(..3) > 0 {
                true => any(rng, &like).name.clone(),
                false => value(rng, column),
            };
            of(&table.tag(&column.name), or(sql, "1"))
        };
        let items: Vec<Part> = columns.iter().map(item).collect();
        seq![
            " SELECT ",
            list(items),
            format!(" FROM {}", from.name),
            // InnoDB reads NULL from an index of a virtual column, if it sorts what it locks.
            text(if from.has_virtual_index() {
                " USE INDEX ()"
            } else {
                ""
            }),
            filter(&mut self.rng, from),
            " ORDER BY ",
            whole(from.whole_order()),
            format!(" LIMIT {}", self.rng.u32(1..12)),
        ]
    }

    pub fn update(&mut self) -> Statement {
        let table = self.table();
        if one_in(&mut self.rng, 12) && self.tables.len() > 1 {
            return self.update_two();
        }
        self.update_table(&table)
    }

    pub fn update_table(&mut self, table: &Table) -> Statement {
        let is_parent = self.is_parent(table);
        let rng = &mut self.rng;
        let mut written = table.written();
        // InnoDB loses rows of a temporary table when it takes back that one came by the key of another.
        written.retain(|column| !table.temporary || !is_kept_apart(table, &column.name));
        // InnoDB forgets a number that has come to another partition when it opens the table anew.
        written.retain(|column| table.partitions.is_none() || !column.auto_increment);
        if written.is_empty() {
            return self.select_from(table);
        }
        let mut set: Vec<&Column> = Vec::new();
        for _ in 0..*any(rng, &[1, 1, 2, 3]) {
            let column = *any(rng, &written);
            if !set.contains(&column) {
                set.push(column);
            }
        }
        let order_counts = is_parent || set.iter().any(|column| is_kept_apart(table, &column.name));
        // InnoDB refuses, without a word, that a row's key and its reference to itself change together.
        let ignore = one_in(rng, 8) && !table.refers_to_itself();
        let (hint, rest) = match rng.u32(..3) {
            0 => (text(""), ordered(rng, table)),
            // Both go through the table as it lies.
            1 => (may(" USE INDEX ()"), filter(rng, table)),
            _ if order_counts || ignore => (text(""), ordered(rng, table)),
            _ => (text(""), filter(rng, table)),
        };
        let order_is_given = hint != text("") || rest.render().contains("ORDER BY");
        let assign = |column: &&Column| {
            let value = match order_is_given {
                true => assigned(rng, column),
                false => column.kind.value(rng),
            };
            of(
                &table.tag(&column.name),
                seq![format!("{} = ", column.name), or(value, "1")],
            )
        };
        let assignments = set.iter().map(assign).collect();
        let verb = seq!["UPDATE", if ignore { may(" IGNORE") } else { text("") }];
        Statement::new(seq![
            verb,
            format!(" {}", table.name),
            hint,
            " SET ",
            list(assignments),
            rest
        ])
    }

    /// Columns on which nothing depends: the order of rows is the optimizer's.
    fn update_two(&mut self) -> Statement {
        let (first, second) = (self.table(), self.table());
        let parents = self.is_parent(&first) || first.versioned || second.versioned;
        let mut free = first.written();
        free.retain(|column| !is_kept_apart(&first, &column.name) && column.check.is_none());
        let on = self.join_on(&first, "a.", &second, "b.");
        let (Some(on), false, false) = (on, free.is_empty(), parents) else {
            return self.update_table(&first);
        };
        let rng = &mut self.rng;
        let column = any(rng, &free);
        Statement::new(seq![
            format!("UPDATE {} a JOIN {} b ON ", first.name, second.name),
            on,
            format!(" SET a.{} = ", column.name),
            or(column.kind.value(rng), "1"),
            may(seq![" WHERE ", condition(rng, &second, "b.")]),
        ])
    }

    pub fn delete(&mut self) -> Statement {
        let table = self.table();
        let is_parent = self.is_parent(&table);
        let rng = &mut self.rng;
        if !is_parent && !table.temporary && one_in(rng, 8) && self.tables.len() > 1 {
            let other = self.table();
            if let Some(on) = self.join_on(&table, "a.", &other, "b.") {
                let rest = may(seq![" WHERE ", condition(&mut self.rng, &other, "b.")]);
                let both = !self.is_parent(&other) && !other.temporary && table.name != other.name;
                let from = if both && self.rng.bool() { "a, b" } else { "a" };
                let head = format!(
                    "DELETE {from} FROM {} a JOIN {} b ON ",
                    table.name, other.name
                );
                return Statement::new(seq![head, on, rest]);
            }
        }
        self.delete_from(&table)
    }

    pub fn delete_from(&mut self, table: &Table) -> Statement {
        if table.temporary && self.in_transaction {
            return self.select_from(table);
        }
        let is_parent = self.is_parent(table);
        let rng = &mut self.rng;
        // Of a row that refers to itself InnoDB warns, and deletes another one instead.
        let ignore = match table.refers_to_itself() {
            true => text(""),
            false => sometimes(rng, 8, " IGNORE"),
        };
        // Mostly few rows: something should be left.
        let rest = match is_parent || rng.u32(..3) > 0 {
            true => ordered(rng, table),
            false => seq![" WHERE ", condition(rng, table, "")],
        };
        let returning = sometimes(rng, 12, " RETURNING *");
        Statement::new(seq![
            "DELETE",
            ignore,
            format!(" FROM {}", table.name),
            rest,
            returning
        ])
    }
}

/// Whether the order of changes to a column can decide how a statement ends.
pub fn is_kept_apart(table: &Table, column: &str) -> bool {
    let computed = table.columns.iter().filter(|other| {
        let expression = other.generated.as_ref().map(|(expression, _)| expression);
        expression.is_some_and(|expression| expression.contains(column))
    });
    table.is_in_unique(column)
        || computed
            .map(|other| &other.name)
            .any(|other| table.is_in_unique(other))
}

fn inserted<'a>(rng: &mut Rng, table: &'a Table) -> Vec<&'a Column> {
    let mut columns = table.written();
    let primary = table.primary();
    columns.retain(|column| {
        let needed = column.not_null && column.default.is_none() && !column.auto_increment;
        let is_key = primary.is_some_and(|index| index.has(&column.name));
        match (
            needed || is_key && !column.auto_increment,
            column.auto_increment,
        ) {
            (true, _) => !one_in(rng, 60),
            (_, true) => rng.bool(),
            _ => rng.u32(..6) > 0,
        }
    });
    if columns.is_empty() {
        columns = table.written();
    }
    columns
}

pub fn value(rng: &mut Rng, column: &Column) -> String {
    if column.auto_increment && one_in(rng, 3) {
        return any(rng, &["NULL", "DEFAULT", "0"]).to_string();
    }
    if !column.auto_increment && one_in(rng, 60) {
        return column.kind.odd_value(rng);
    }
    let value = column.kind.value(rng);
    if column.auto_increment && (value.starts_with('-') || value.len() > 2) {
        // At autoinc_lock_mode 0 InnoDB's counter goes on by one for a negative value, and at the end of the
        // type it shows another one than Varve.
        return "NULL".into();
    }
    let may_be_default = column.default.is_some() || !column.not_null;
    match rng.u32(..12) {
        0 if may_be_default => "DEFAULT".into(),
        1 if !column.not_null => "NULL".into(),
        _ => value,
    }
}

/// What a column is set to where the order of rows is given.
fn assigned(rng: &mut Rng, column: &Column) -> String {
    let name = &column.name;
    match rng.u32(..6) {
        0 if column.kind.is_exact() => format!("{name} + {}", rng.u32(1..3)),
        1 if column.kind.is_exact() => format!("{name} - 1"),
        2 if matches!(column.kind, crate::types::Type::Varchar(_)) => {
            format!("concat({name}, 'a')")
        }
        _ => value(rng, column),
    }
}

fn value_rows(rng: &mut Rng, table: &Table, columns: &[&Column]) -> Part {
    let rows = *any(rng, &[1, 1, 1, 2, 3, 5, 20]);
    let mut row = || {
        let values = columns.iter().map(|column| {
            let value = value(rng, column);
            // A SELECT has no DEFAULT, and a row does.
            of(&table.tag(&column.name), or(value, "1"))
        });
        seq!["(", list(values.collect()), ")"]
    };
    let rows: Vec<Part> = (0..rows).map(|_| row()).collect();
    seq![" VALUES ", list(rows)]
}

fn on_duplicate(rng: &mut Rng, table: &Table) -> Part {
    let written = table.written();
    let column = *any(rng, &written);
    if column.auto_increment || (table.temporary && is_kept_apart(table, &column.name)) {
        return text("");
    }
    let value = match rng.u32(..3) {
        0 => format!("VALUES({})", column.name),
        1 if column.kind.is_exact() => format!("{} + 1", column.name),
        _ => column.kind.value(rng),
    };
    let assignment = seq![format!("{} = ", column.name), or(value, "1")];
    may(seq![
        " ON DUPLICATE KEY UPDATE ",
        of(&table.tag(&column.name), assignment)
    ])
}

/// ` WHERE … ORDER BY … LIMIT …`, so that it is certain which rows are meant, and in which order.
fn ordered(rng: &mut Rng, table: &Table) -> Part {
    let limit = match rng.u32(..4) {
        // Of a partitioned table whose estimate is 0 InnoDB changes no row then.
        _ if table.partitions.is_some() => text(""),
        0 => text(""),
        _ => may(format!(" LIMIT {}", rng.u32(1..6))),
    };
    seq![
        filter(rng, table),
        " ORDER BY ",
        whole(table.whole_order()),
        limit
    ]
}
