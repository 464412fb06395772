//! New tables.

use fastrand::Rng;

use super::{Generator, Statement};
use crate::schema::{Column, ForeignKey, Index, IndexKind, KeyPart, Table};
use crate::types::{COLLATIONS, Family, Sign, Type, any, has_levels, is_odd_char, one_in};

/// The last three change nothing else.
const ACTIONS: [Option<&str>; 6] = [
    Some("CASCADE"),
    Some("CASCADE"),
    Some("SET NULL"),
    None,
    Some("RESTRICT"),
    Some("NO ACTION"),
];

impl Generator {
    pub fn create_table(&mut self) -> Statement {
        let table = self.new_table();
        let statement = Statement::new(table.create());
        let mut after = self.tables.clone();
        after.push(table);
        statement.after(after)
    }

    fn new_table(&mut self) -> Table {
        let mut table = Table {
            name: self.name("t"),
            columns: Vec::new(),
            indexes: Vec::new(),
            foreign: Vec::new(),
            collation: one_in(&mut self.rng, 3).then(|| *any(&mut self.rng, &COLLATIONS)),
            temporary: one_in(&mut self.rng, 12),
            versioned: one_in(&mut self.rng, 12),
            partitions: None,
            options: Vec::new(),
        };
        if table.temporary {
            table.versioned = false;
        }
        self.draw_primary(&mut table);
        for _ in 0..self.rng.u32(1..6) {
            let column = self.new_column(&table);
            table.columns.push(column);
        }
        if one_in(&mut self.rng, 4)
            && let Some(column) = self.generated_column(&table)
        {
            table.columns.push(column);
        }
        for _ in 0..self.rng.u32(..4) {
            if let Some(index) = self.new_index(&table) {
                table.indexes.push(index);
            }
        }
        let single = table
            .indexes
            .first()
            .is_some_and(|index| index.kind == IndexKind::Primary && index.parts.len() == 1);
        let alone = table
            .indexes
            .iter()
            .filter(|index| index.kind != IndexKind::Plain)
            .count()
            == 1;
        // InnoDB's partitions are not merged in the order of a descending key, and lose rows in ranges of it.
        let mut parts = table.indexes.iter().flat_map(|index| &index.parts);
        let descends = parts.any(|part| part.descending);
        if single
            && alone
            && !descends
            && !table.temporary
            && !table.versioned
            && one_in(&mut self.rng, 8)
        {
            table.partitions = self.partitions(&table);
        }
        if !table.temporary && table.partitions.is_none() && one_in(&mut self.rng, 2) {
            self.draw_foreign_key(&mut table);
        }
        if one_in(&mut self.rng, 8) {
            table.options.push("COMMENT='x'".into());
        }
        if one_in(&mut self.rng, 10) {
            table
                .options
                .push(format!("AUTO_INCREMENT={}", self.rng.u32(1..100)));
        }
        table
    }

    /// A key to begin with, in most cases.
    fn draw_primary(&mut self, table: &mut Table) {
        let rng = &mut self.rng;
        let mut column = match rng.u32(..10) {
            0 => return,
            1..6 => {
                let sign = *any(rng, &[Sign::Signed, Sign::Unsigned]);
                let mut column = Column::plain("", Type::Int(*any(rng, &[1, 2, 4, 4, 8]), sign));
                // At the end of the type InnoDB shows another counter.
                column.auto_increment = rng.bool() && !matches!(column.kind, Type::Int(1, _));
                column
            }
            _ => loop {
                let column = Column::plain("", Type::draw(rng));
                if !column.kind.needs_prefix() && !is_odd_char(&column.kind, table.collation) {
                    break column;
                }
            },
        };
        column.not_null = true;
        self.names += 1;
        column.name = format!("c{}", self.names);
        let part = KeyPart {
            column: column.name.clone(),
            prefix: None,
            descending: one_in(&mut self.rng, 6) && !column.auto_increment,
        };
        let mut parts = vec![part];
        table.columns.push(column);
        if one_in(&mut self.rng, 5) {
            let mut second = Column::plain(&self.name("c"), Type::Int(4, Sign::Signed));
            second.not_null = true;
            parts.push(KeyPart {
                column: second.name.clone(),
                prefix: None,
                descending: one_in(&mut self.rng, 4),
            });
            table.columns.push(second);
        }
        table.indexes.push(Index {
            name: "PRIMARY".into(),
            kind: IndexKind::Primary,
            parts,
        });
    }

    pub fn new_column(&mut self, table: &Table) -> Column {
        let mut column = Column::plain(&self.name("c"), Type::draw(&mut self.rng));
        let rng = &mut self.rng;
        if column.kind.has_collation() && rng.bool() {
            column.collation = Some(*any(rng, &COLLATIONS));
        }
        if is_odd_char(&column.kind, column.collation.or(table.collation)) {
            column.kind = Type::Varchar(20);
        }
        column.not_null = one_in(rng, 4) && column.kind != Type::Geometry;
        if rng.bool() && !matches!(column.kind, Type::Uuid) {
            column.default = default(rng, &column);
        }
        if column.kind.is_exact() && one_in(rng, 12) {
            let other = table.columns.last().filter(|other| {
                other.kind.is_exact() && !other.auto_increment && other.generated.is_none()
            });
            let limit = other.map_or("100".into(), |other| {
                format!("coalesce({}, 50) + 50", other.name)
            });
            column.check = Some(format!("{} < {limit}", column.name));
        }
        column.invisible = one_in(rng, 20) && (!column.not_null || column.default.is_some());
        column.compressed = column.kind.can_be_compressed() && one_in(rng, 6);
        column.unversioned = table.versioned && one_in(rng, 4);
        column
    }

    pub fn generated_column(&mut self, table: &Table) -> Option<Column> {
        let rng = &mut self.rng;
        let of = any(rng, &table.columns);
        if of.auto_increment || of.generated.is_some() {
            return None;
        }
        let name = &of.name;
        let (kind, expression) = match of.kind.family() {
            Family::Number if of.kind.is_exact() => match rng.u32(..3) {
                0 => (Type::Int(8, Sign::Signed), format!("{name} % 5")),
                1 => (
                    Type::Int(8, Sign::Signed),
                    format!("coalesce({name} % 100, 0) * 2"),
                ),
                // InnoDB leaves wrong entries in the index of such a text of a number with zeros before it.
                _ => (Type::Varchar(60), format!("concat('n', {name} + 0)")),
            },
            Family::Text if of.kind != Type::Json => match rng.u32(..3) {
                0 => (Type::Int(4, Sign::Signed), format!("char_length({name})")),
                1 => (Type::Varchar(20), format!("left({name}, 2)")),
                _ => (Type::Varchar(20), format!("upper(left({name}, 5))")),
            },
            Family::Moment => (Type::Int(4, Sign::Signed), format!("year({name})")),
            Family::Bytes => (Type::Int(4, Sign::Signed), format!("length({name})")),
            _ => return None,
        };
        let mut column = Column::plain("", kind);
        column.collation =
            (of.collation.or(table.collation)).filter(|_| column.kind.has_collation());
        column.generated = Some((expression, rng.bool()));
        column.name = self.name("c");
        Some(column)
    }

    pub fn new_index(&mut self, table: &Table) -> Option<Index> {
        let name = self.name("k");
        let rng = &mut self.rng;
        let kind = match one_in(rng, 4) {
            true => IndexKind::Unique,
            false => IndexKind::Plain,
        };
        // Of long values the server keeps a hash.
        let hashed = self.hashes && kind == IndexKind::Unique && one_in(rng, 2);
        let mut parts: Vec<KeyPart> = Vec::new();
        for _ in 0..*any(rng, &[1, 1, 1, 2, 2, 3]) {
            let column = any(rng, &table.columns);
            let is_there = parts.iter().any(|part| part.column == column.name);
            if is_there || column.compressed || (!self.virtual_keys && column.is_virtual()) {
                continue;
            }
            let prefix = column.kind.prefix_max().and_then(|max| {
                let wanted = column.kind.needs_prefix() || one_in(rng, 3);
                let shorter = *any(rng, &[1, 2, 3, 5, 10, 50]);
                (wanted || max > 250).then_some(shorter.min(max))
            });
            let prefix = prefix.filter(|_| !hashed);
            // InnoDB misses rows in a range of the beginnings of such texts.
            if prefix.is_some() && has_levels(column.collation.or(table.collation)) {
                continue;
            }
            parts.push(KeyPart {
                column: column.name.clone(),
                prefix,
                descending: one_in(rng, 5) && table.partitions.is_none(),
            });
        }
        (!parts.is_empty()).then_some(Index { name, kind, parts })
    }

    /// A column that refers to another table's key, or to its own.
    pub fn draw_foreign_key(&mut self, table: &mut Table) {
        // What failed statements have done to the counter InnoDB forgets, or remembers, when it opens the
        // table anew.
        if table.columns.iter().any(|column| column.auto_increment) {
            return;
        }
        let mut parents = self.tables.clone();
        parents.retain(|parent| {
            !parent.temporary && parent.partitions.is_none() && parent.name != table.name
        });
        parents.push(table.clone());
        let parent = any(&mut self.rng, &parents);
        if parent.indexes.is_empty() {
            return;
        }
        // InnoDB loses an entry of the parent's row when a deletion is refused.
        if parent.versioned && parent.primary().is_none() {
            return;
        }
        let index = any(&mut self.rng, &parent.indexes);
        let most = if one_in(&mut self.rng, 3) { 2 } else { 1 };
        let (mut columns, mut parent_columns) = (Vec::new(), Vec::new());
        for part in index.parts.iter().take(most) {
            // Of a virtual column InnoDB does not see that it changes (docs/foreign_keys.md).
            let referred = parent.column(&part.column);
            let Some(referred) = referred.filter(|column| !column.is_virtual()) else {
                break;
            };
            if part.prefix.is_some() || referred.kind.needs_prefix() {
                break;
            }
            // InnoDB can't fill up such a text with spaces, and says that there are children.
            let collation = referred.collation.or(parent.collation).unwrap_or_default();
            let is_wide = ["utf16", "utf32", "ucs2"]
                .iter()
                .any(|start| collation.starts_with(start));
            if is_wide && matches!(referred.kind, Type::Char(_)) {
                break;
            }
            let mut column = Column::plain(&self.name("c"), referred.kind.clone());
            if column.kind.has_collation() {
                column.collation = referred.collation.or(parent.collation);
            }
            column.not_null = one_in(&mut self.rng, 8);
            parent_columns.push(part.column.clone());
            columns.push(column);
        }
        if columns.is_empty() {
            return;
        }
        // What follows in the same table makes the order of rows count.
        let actions = match parent.name == table.name {
            true => &ACTIONS[3..],
            false => &ACTIONS[..],
        };
        table.foreign.push(ForeignKey {
            name: self.name("f"),
            columns: columns.iter().map(|column| column.name.clone()).collect(),
            parent: parent.name.clone(),
            parent_columns,
            on_delete: *any(&mut self.rng, actions),
            on_update: *any(&mut self.rng, actions),
        });
        table.columns.extend(columns);
    }

    fn partitions(&mut self, table: &Table) -> Option<String> {
        let column = table.column(&table.indexes[0].parts[0].column)?;
        let name = &column.name;
        match (&column.kind, self.rng.u32(..3)) {
            (Type::Int(..), 0) => Some(format!("PARTITION BY HASH ({name}) PARTITIONS 3")),
            (Type::Int(..), 1) => Some(format!(
                "PARTITION BY RANGE ({name}) (PARTITION p0 VALUES LESS THAN (5), \
                 PARTITION p1 VALUES LESS THAN (12), PARTITION p2 VALUES LESS THAN MAXVALUE)"
            )),
            _ => Some(format!("PARTITION BY KEY ({name}) PARTITIONS 2")),
        }
    }
}

fn default(rng: &mut Rng, column: &Column) -> Option<String> {
    if !column.not_null && one_in(rng, 3) {
        return Some("NULL".into());
    }
    match &column.kind {
        Type::Text(_) | Type::Blob(_) | Type::Json | Type::Geometry => None,
        Type::Datetime(digits) | Type::Timestamp(digits) if one_in(rng, 2) => {
            Some(format!("CURRENT_TIMESTAMP({digits})"))
        }
        Type::Date | Type::Datetime(_) | Type::Timestamp(_) => Some("'2024-01-10'".into()),
        Type::Int(..) if one_in(rng, 4) => Some("(1 + 2)".into()),
        Type::Char(_) | Type::Varchar(_) => Some("'a'".into()),
        Type::Int(..) => Some("7".into()),
        kind => Some(kind.value(rng)),
    }
}
