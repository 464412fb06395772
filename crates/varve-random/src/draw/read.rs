//! `SELECT`.

use super::conditions::{condition, filter, looked_at};
use super::{Generator, Rule, Statement};
use crate::schema::{Column, KeyPart, Table};
use crate::seq;
use crate::sql::{Part, list, may, of, text, whole};
use crate::types::{Family, Sign, Type, any, one_in};

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
        let indexes = table.searched();
        match indexes.is_empty() || self.rng.u32(..3) > 0 {
            true => text(""),
            false => may(format!(
                " FORCE INDEX ({})",
                any(&mut self.rng, &indexes).name
            )),
        }
    }

    /// In a transaction InnoDB finds none of its rows if it sorts what it comes to by an index of a virtual
    /// column.
    fn hint_to_sort(&mut self, table: &Table) -> Part {
        match self.in_transaction && table.has_virtual_index() {
            true => text(" USE INDEX ()"),
            false => self.hint(table),
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
            let by = format!("{}{descending}", column.name);
            if table.is_sorted(column) {
                order.insert(0, of(&table.tag(&column.name), by));
            }
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
            self.hint_to_sort(table),
            filter(&mut self.rng, table),
            " ORDER BY ",
            whole(order),
            limit,
            self.locking(),
        ])
        .rule(Rule::Ordered)
    }

    fn by_index(&mut self, table: &Table) -> Statement {
        let indexes = table.searched();
        let Some(index) = indexes
            .first()
            .map(|_| (*any(&mut self.rng, &indexes)).clone())
        else {
            return self.rows(table);
        };
        let column = table.column(&index.parts[0].column);
        let Some(column) = column.cloned() else {
            return self.rows(table);
        };
        let condition = super::conditions::comparison(&mut self.rng, table, &column, "");
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
        if self.rng.bool()
            && let Some(statement) = self.extremes_of_groups(table)
        {
            return statement;
        }
        let column = looked_at(&mut self.rng, table).clone();
        // Where the server puts groups aside it tells texts apart that are equal but for a tab or such.
        if (column.collation.or(table.collation)).is_some_and(|name| name.ends_with("_czech_cs")) {
            return self.extremes(table);
        }
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
        let (left, right) = self.joined_columns(a, b)?;
        let on = format!("{a_prefix}{left} = {b_prefix}{right}");
        Some(of(&a.tag(&left), of(&b.tag(&right), on)))
    }

    fn joined_columns(&mut self, a: &Table, b: &Table) -> Option<(String, String)> {
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
                return Some((left.name.clone(), right.name.clone()));
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
        if self.rng.bool() {
            return self.with_members(outer, &inner);
        }
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

    fn with_members(&mut self, outer: &Table, inner: &Table) -> Statement {
        let Some((left, right)) = self.joined_columns(outer, inner) else {
            return self.rows(outer);
        };
        let not = if one_in(&mut self.rng, 3) { " NOT" } else { "" };
        let head = format!(
            "SELECT a.* FROM {} a WHERE a.{left}{not} IN (SELECT b.{right} FROM {} b",
            outer.name, inner.name
        );
        Statement::new(seq![
            of(&outer.tag(&left), of(&inner.tag(&right), head)),
            may(seq![" WHERE ", condition(&mut self.rng, inner, "b.")]),
            ")",
        ])
    }

    /// The least and the greatest of each group, by an index that has both columns.
    fn extremes_of_groups(&mut self, table: &Table) -> Option<Statement> {
        let mut indexes = table.searched();
        indexes.retain(|index| {
            let whole = |part: &KeyPart| {
                let column = table.column(&part.column);
                // Zeros before a number are shown by one plan, and not by another.
                let shows = |column: &Column| {
                    let is_filled = matches!(
                        column.kind,
                        Type::Year
                            | Type::Int(_, Sign::Zerofill)
                            | Type::Decimal(_, _, Sign::Zerofill)
                    );
                    column.kind.is_shown_whole() && !is_filled
                };
                part.prefix.is_none() && column.is_some_and(shows)
            };
            index.parts.len() > 1 && index.parts[..2].iter().all(whole)
        });
        indexes.first()?;
        let parts = &any(&mut self.rng, &indexes).parts;
        let (group, value) = (&parts[0].column, &parts[1].column);
        let items = *any(
            &mut self.rng,
            &[
                "MIN({})",
                "MAX({})",
                "MIN({}), MAX({})",
                "COUNT(DISTINCT {})",
            ],
        );
        // Of several ranges of the value the server gives the group once for each, whatever the engine.
        let mut filter = filter(&mut self.rng, table);
        if filter.render().contains(value.as_str()) {
            filter = text("");
        }
        Some(Statement::new(seq![
            format!(
                "SELECT {group}, {} FROM {}",
                items.replace("{}", value),
                table.name
            ),
            filter,
            format!(" GROUP BY {group}"),
        ]))
    }
}
