//! `SELECT`.

use super::conditions::{condition, filter, looked_at};
use super::{Generator, Rule, Statement};
use crate::schema::{Column, Table};
use crate::seq;
use crate::sql::{Part, list, may, of, text, whole};
use crate::types::{Family, Type, any, one_in};

impl Generator {
    pub fn select(&mut self) -> Statement {
        let table = self.table();
        self.select_from(&table)
    }

    pub fn select_from(&mut self, table: &Table) -> Statement {
        match self.rng.u32(..12) {
            0..3 => self.ordered_rows(table),
            3..6 => self.rows(table),
            6 => self.extremes(table),
            7 => self.grouped(table),
            8 => self.joined(table),
            9 => self.with_subquery(table),
            10 => self.counted(table),
            _ => self.by_index(table),
        }
    }

    fn items(&mut self, table: &Table) -> Part {
        if self.rng.bool() {
            return text("*");
        }
        let mut columns: Vec<&Column> = table.columns.iter().collect();
        columns.retain(|_| self.rng.bool());
        if columns.is_empty() {
            columns.push(looked_at(&mut self.rng, table));
        }
        list(
            columns
                .iter()
                .map(|column| of(&table.tag(&column.name), column.name.clone()))
                .collect(),
        )
    }

    fn locking(&mut self) -> Part {
        match self.rng.u32(..10) {
            0 => may(" FOR UPDATE"),
            1 => may(" LOCK IN SHARE MODE"),
            _ => text(""),
        }
    }

    fn hint(&mut self, table: &Table) -> Part {
        match table.indexes.is_empty() || self.rng.u32(..3) > 0 {
            true => text(""),
            false => may(format!(
                " FORCE INDEX ({})",
                any(&mut self.rng, &table.indexes).name
            )),
        }
    }

    /// As they come: which rows, not in which order.
    fn rows(&mut self, table: &Table) -> Statement {
        let history = match table.versioned && self.rng.bool() {
            true => " FOR SYSTEM_TIME ALL",
            false => "",
        };
        Statement::new(seq![
            "SELECT ",
            self.items(table),
            format!(" FROM {}{history}", table.name),
            self.hint(table),
            filter(&mut self.rng, table),
            self.locking(),
        ])
    }

    /// In an order that leaves nothing open.
    fn ordered_rows(&mut self, table: &Table) -> Statement {
        let mut order = table.whole_order();
        if self.rng.bool() {
            let column = looked_at(&mut self.rng, table);
            let descending = if self.rng.bool() { " DESC" } else { "" };
            order.insert(
                0,
                of(
                    &table.tag(&column.name),
                    format!("{}{descending}", column.name),
                ),
            );
        }
        let limit = match self.rng.u32(..3) {
            0 => text(""),
            1 => may(format!(" LIMIT {}", self.rng.u32(1..9))),
            _ => may(format!(
                " LIMIT {}, {}",
                self.rng.u32(1..5),
                self.rng.u32(1..9)
            )),
        };
        Statement::new(seq![
            "SELECT ",
            self.items(table),
            format!(" FROM {}", table.name),
            self.hint(table),
            filter(&mut self.rng, table),
            " ORDER BY ",
            whole(order),
            limit,
            self.locking(),
        ])
        .rule(Rule::Ordered)
    }

    fn by_index(&mut self, table: &Table) -> Statement {
        let Some(index) = table
            .indexes
            .first()
            .map(|_| any(&mut self.rng, &table.indexes).clone())
        else {
            return self.rows(table);
        };
        let column = table.column(&index.parts[0].column);
        let Some(column) = column.cloned() else {
            return self.rows(table);
        };
        let condition = super::conditions::comparison(&mut self.rng, &column, "");
        Statement::new(seq![
            format!("SELECT * FROM {}", table.name),
            may(format!(" FORCE INDEX ({})", index.name)),
            " WHERE ",
            condition,
            self.locking(),
        ])
    }

    fn extremes(&mut self, table: &Table) -> Statement {
        let column = looked_at(&mut self.rng, table);
        let name = &column.name;
        let items = match column.kind.family() {
            // Of several texts that are equal any is the least.
            Family::Text | Family::Other => {
                format!("MIN({name}) <=> MAX({name}), COUNT(DISTINCT {name})")
            }
            _ => format!("MIN({name}), MAX({name})"),
        };
        let filter = filter(&mut self.rng, table);
        Statement::new(seq![
            format!("SELECT {items}, COUNT(*) FROM {}", table.name),
            filter
        ])
    }

    fn grouped(&mut self, table: &Table) -> Statement {
        let column = looked_at(&mut self.rng, table).clone();
        let name = &column.name;
        let shown = column.kind.is_shown_whole();
        let (hint, filter) = (self.hint(table), filter(&mut self.rng, table));
        let from = format!(" FROM {}", table.name);
        match (shown, self.rng.bool()) {
            (true, true) => {
                Statement::new(seq![format!("SELECT DISTINCT {name}"), from, hint, filter])
            }
            (true, false) => Statement::new(seq![
                format!("SELECT {name}, COUNT(*)"),
                from,
                hint,
                filter,
                format!(" GROUP BY {name}"),
                may(" HAVING COUNT(*) > 1"),
            ]),
            _ => Statement::new(seq![
                "SELECT COUNT(*)",
                from,
                hint,
                filter,
                format!(" GROUP BY {name}")
            ]),
        }
    }

    fn counted(&mut self, table: &Table) -> Statement {
        let filter = filter(&mut self.rng, table);
        let sum = table
            .columns
            .iter()
            .find(|column| matches!(column.kind, Type::Int(..)));
        let sum = sum.map_or("".into(), |column| format!(", SUM({})", column.name));
        Statement::new(seq![
            format!("SELECT COUNT(*){sum} FROM {}", table.name),
            filter
        ])
    }

    /// A condition between columns that can be compared.
    pub fn join_on(
        &mut self,
        a: &Table,
        a_prefix: &str,
        b: &Table,
        b_prefix: &str,
    ) -> Option<Part> {
        for _ in 0..6 {
            let left = looked_at(&mut self.rng, a);
            let right = looked_at(&mut self.rng, b);
            let same_text = left.collation == right.collation && a.collation == b.collation;
            let fits = match (left.kind.family(), right.kind.family()) {
                (Family::Text, Family::Text) => {
                    same_text && left.kind != Type::Json && right.kind != Type::Json
                }
                (Family::Other, _) => false,
                // Conversions may warn, as often as the plan has it.
                (Family::Number, Family::Number) => {
                    let int = |kind: &Type| matches!(kind, Type::Int(..));
                    int(&left.kind) && int(&right.kind) || left.kind == right.kind
                }
                (left, right) => left == right,
            };
            if fits {
                let on = format!("{a_prefix}{} = {b_prefix}{}", left.name, right.name);
                return Some(of(&a.tag(&left.name), of(&b.tag(&right.name), on)));
            }
        }
        None
    }

    fn joined(&mut self, first: &Table) -> Statement {
        let second = self.table();
        let Some(on) = self.join_on(first, "a.", &second, "b.") else {
            return self.rows(first);
        };
        let join = *any(&mut self.rng, &["JOIN", "LEFT JOIN", "STRAIGHT_JOIN"]);
        let items = *any(&mut self.rng, &["COUNT(*)", "a.*", "a.*, b.*"]);
        Statement::new(seq![
            format!(
                "SELECT {items} FROM {} a {join} {} b ON ",
                first.name, second.name
            ),
            on,
            may(seq![" WHERE ", condition(&mut self.rng, first, "a.")]),
        ])
    }

    fn with_subquery(&mut self, outer: &Table) -> Statement {
        let inner = self.table();
        let Some(on) = self.join_on(outer, "a.", &inner, "b.") else {
            return self.rows(outer);
        };
        let not = if one_in(&mut self.rng, 3) { "NOT " } else { "" };
        Statement::new(seq![
            format!(
                "SELECT a.* FROM {} a WHERE {not}EXISTS (SELECT 1 FROM {} b WHERE ",
                outer.name, inner.name
            ),
            on,
            may(seq![" AND ", condition(&mut self.rng, &inner, "b.")]),
            ")",
        ])
    }
}
