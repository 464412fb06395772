//! What the generator knows of the tables, and how they are made.

use crate::seq;
use crate::sql::{Part, list, may, of, text};
use crate::types::{Type, has_levels};

#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: String,
    pub kind: Type,
    pub collation: Option<&'static str>,
    pub not_null: bool,
    pub default: Option<String>,
    pub auto_increment: bool,
    /// The expression and whether it is stored.
    pub generated: Option<(String, bool)>,
    pub check: Option<String>,
    pub unversioned: bool,
    /// Not shown by `*`.
    pub invisible: bool,
    pub compressed: bool,
}

impl Column {
    pub fn plain(name: &str, kind: Type) -> Column {
        Column {
            name: name.into(),
            kind,
            collation: None,
            not_null: false,
            default: None,
            auto_increment: false,
            generated: None,
            check: None,
            unversioned: false,
            invisible: false,
            compressed: false,
        }
    }

    pub fn is_virtual(&self) -> bool {
        matches!(self.generated, Some((_, false)))
    }

    pub fn definition(&self) -> Part {
        let mut parts = vec![text(format!("{} {}", self.name, self.kind.sql()))];
        if self.compressed {
            parts.push(may(" COMPRESSED"));
        }
        if let Some(collation) = self.collation {
            parts.push(may(format!(" COLLATE {collation}")));
        }
        match &self.generated {
            Some((expression, stored)) => {
                let kind = if *stored { "PERSISTENT" } else { "VIRTUAL" };
                parts.push(text(format!(" AS ({expression}) {kind}")));
            }
            // Else the first TIMESTAMP would change by itself.
            None if !self.not_null => parts.push(text(" NULL")),
            None => parts.push(may(" NOT NULL")),
        }
        if let Some(default) = &self.default {
            parts.push(may(format!(" DEFAULT {default}")));
        }
        if self.auto_increment {
            parts.push(may(" AUTO_INCREMENT"));
        }
        if self.invisible {
            parts.push(may(" INVISIBLE"));
        }
        if let Some(check) = &self.check {
            parts.push(may(format!(" CHECK ({check})")));
        }
        if self.unversioned {
            parts.push(may(" WITHOUT SYSTEM VERSIONING"));
        }
        Part::Seq(parts)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    Primary,
    Unique,
    Plain,
}

#[derive(Clone, Debug, PartialEq)]
pub struct KeyPart {
    pub column: String,
    pub prefix: Option<u16>,
    pub descending: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    pub name: String,
    pub kind: IndexKind,
    pub parts: Vec<KeyPart>,
}

impl Index {
    pub fn definition(&self, table: &str) -> Part {
        let head = match self.kind {
            IndexKind::Primary => "PRIMARY KEY (".to_string(),
            IndexKind::Unique => format!("UNIQUE KEY {} (", self.name),
            IndexKind::Plain => format!("KEY {} (", self.name),
        };
        let part = |part: &KeyPart| {
            let mut sql = vec![text(part.column.clone())];
            if let Some(prefix) = part.prefix {
                sql.push(text(format!("({prefix})")));
            }
            if part.descending {
                sql.push(may(" DESC"));
            }
            of(&format!("{table}.{}", part.column), Part::Seq(sql))
        };
        seq![head, list(self.parts.iter().map(part).collect()), ")"]
    }

    pub fn has(&self, column: &str) -> bool {
        self.parts.iter().any(|part| part.column == column)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ForeignKey {
    pub name: String,
    pub columns: Vec<String>,
    pub parent: String,
    pub parent_columns: Vec<String>,
    pub on_delete: Option<&'static str>,
    pub on_update: Option<&'static str>,
}

impl ForeignKey {
    pub fn definition(&self) -> Part {
        let action = |when: &str, action: &Option<&str>| match action {
            Some(action) => may(format!(" ON {when} {action}")),
            None => text(""),
        };
        seq![
            format!(
                "CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {} ({})",
                self.name,
                self.columns.join(", "),
                self.parent,
                self.parent_columns.join(", ")
            ),
            action("DELETE", &self.on_delete),
            action("UPDATE", &self.on_update),
        ]
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    pub name: String,
    pub columns: Vec<Column>,
    pub indexes: Vec<Index>,
    pub foreign: Vec<ForeignKey>,
    pub collation: Option<&'static str>,
    pub temporary: bool,
    pub versioned: bool,
    pub partitions: Option<String>,
    pub options: Vec<String>,
}

impl Table {
    pub fn tag(&self, column: &str) -> String {
        format!("{}.{column}", self.name)
    }

    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    pub fn primary(&self) -> Option<&Index> {
        let mut indexes = self.indexes.iter();
        indexes.find(|index| index.kind == IndexKind::Primary)
    }

    pub fn has_virtual_index(&self) -> bool {
        let mut parts = self.indexes.iter().flat_map(|index| &index.parts);
        let is_virtual = |part: &KeyPart| self.column(&part.column).is_some_and(Column::is_virtual);
        parts.any(is_virtual)
    }

    /// Indexes that can be searched: of long values there are only hashes.
    pub fn searched(&self) -> Vec<&Index> {
        let is_long = |part: &KeyPart| {
            let column = self.column(&part.column);
            part.prefix.is_none() && column.is_some_and(|column| column.kind.needs_prefix())
        };
        let mut indexes: Vec<&Index> = self.indexes.iter().collect();
        indexes.retain(|index| !index.parts.iter().any(is_long));
        indexes
    }

    pub fn computes_from(&self, column: &str) -> bool {
        let generated = self
            .columns
            .iter()
            .filter_map(|other| other.generated.as_ref());
        generated
            .into_iter()
            .any(|(expression, _)| expression.contains(column))
    }

    pub fn refers_to_itself(&self) -> bool {
        self.foreign.iter().any(|key| key.parent == self.name)
    }

    pub fn create(&self) -> Part {
        let columns = self.columns.iter();
        let mut items: Vec<Part> = columns
            .map(|column| of(&self.tag(&column.name), column.definition()))
            .collect();
        items.extend(
            self.indexes
                .iter()
                .map(|index| index.definition(&self.name)),
        );
        items.extend(
            self.foreign
                .iter()
                .map(|key| of(&self.tag(&key.columns[0]), key.definition())),
        );
        let temporary = if self.temporary { "TEMPORARY " } else { "" };
        let mut parts = vec![
            text(format!("CREATE {temporary}TABLE {} (", self.name)),
            list(items),
            text(")"),
        ];
        if let Some(collation) = self.collation {
            parts.push(may(format!(" COLLATE {collation}")));
        }
        parts.extend(self.options.iter().map(|option| may(format!(" {option}"))));
        if self.versioned {
            parts.push(may(" WITH SYSTEM VERSIONING"));
        }
        if let Some(partitions) = &self.partitions {
            parts.push(may(format!(" {partitions}")));
        }
        Part::Seq(parts)
    }

    /// Columns that take values.
    pub fn written(&self) -> Vec<&Column> {
        let written = self.columns.iter();
        written
            .filter(|column| column.generated.is_none())
            .collect()
    }

    /// Whether a statement's order of rows can change how it ends: some key keeps values apart.
    pub fn is_in_unique(&self, column: &str) -> bool {
        let unique = |index: &&Index| index.kind != IndexKind::Plain;
        self.indexes
            .iter()
            .filter(unique)
            .any(|index| index.has(column))
            || (self.foreign.iter()).any(|key| key.columns.iter().any(|own| own == column))
    }

    /// Whether the server sorts by the column as the collation has it: it looks at the beginning of what is
    /// long, where there is no room for all levels, either.
    pub fn is_sorted(&self, column: &Column) -> bool {
        !column.kind.needs_prefix() && !has_levels(column.collation.or(self.collation))
    }

    /// What to order by so that no two rows that differ are equal.
    pub fn whole_order(&self) -> Vec<Part> {
        let whole = |index: &&Index| {
            let plain = |part: &KeyPart| {
                let column = self.column(&part.column);
                let sorts = |column: &Column| column.not_null && self.is_sorted(column);
                part.prefix.is_none() && column.is_some_and(sorts)
            };
            index.kind != IndexKind::Plain && index.parts.iter().all(plain)
        };
        // The history of a row has its keys again.
        if let Some(index) = self.indexes.iter().find(whole).filter(|_| !self.versioned) {
            let part = |part: &KeyPart| of(&self.tag(&part.column), part.column.clone());
            return index.parts.iter().map(part).collect();
        }
        let by = |column: &Column| {
            let sql =
                match column.kind.is_exact() || matches!(column.kind, Type::Float | Type::Double) {
                    true => column.name.clone(),
                    // Only the beginning of what is long is looked at.
                    false if column.kind.needs_prefix() => {
                        format!("LENGTH({0}), HEX({0})", column.name)
                    }
                    false => format!("HEX({})", column.name),
                };
            of(&self.tag(&column.name), sql)
        };
        self.columns.iter().map(by).collect()
    }
}
