//! Statements that go together, and those that are rare.

use super::{Generator, Rule, Statement, checks_of};
use crate::schema::Table;
use crate::seq;
use crate::sql::{SIDE, text, whole};
use crate::types::{any, one_in};

impl Generator {
    pub fn phrase(&mut self) -> Statement {
        let table = self.table();
        match self.rng.u32(..19) {
            0 => {
                if self.rng.bool() {
                    return Statement::new(format!("TRUNCATE TABLE {}", table.name));
                }
                self.drop_table(&table)
            }
            1 => self.rename(&table),
            2 => self.create_like(&table),
            // Of a partitioned table InnoDB gives the rows by a descending key part in another order.
            3..6 if table.partitions.is_none() => self.handler(&table),
            3..8 => self.locked(&table),
            8..10 if self.prepares => self.xa(),
            10 => {
                let analyze = format!("ANALYZE TABLE {}", table.name);
                Statement::new(analyze).rule(Rule::Shown)
            }
            11 => self.create_select(&table),
            12 if !table.temporary => self.trigger(&table),
            13..15 => self.sequence(&table),
            _ => {
                self.queue.extend(checks_of(&table));
                self.queue
                    .pop_front()
                    .expect("there are checks of every table")
            }
        }
    }

    fn drop_table(&mut self, table: &Table) -> Statement {
        let mut after = self.tables.clone();
        after.retain(|other| other.name != table.name);
        Statement::new(format!("DROP TABLE {}", table.name)).after(after)
    }

    fn rename(&mut self, table: &Table) -> Statement {
        let name = self.name("t");
        let mut after = self.tables.clone();
        for other in &mut after {
            if other.name == table.name {
                other.name.clone_from(&name);
            }
            for key in &mut other.foreign {
                if key.parent == table.name {
                    key.parent.clone_from(&name);
                }
            }
        }
        let is_tied = !table.foreign.is_empty() || self.is_parent(table);
        // InnoDB forgets values of the counter that only failed statements had, because it opens the table
        // anew; of a partitioned table those of updates, too.
        let is_opened = is_tied || table.partitions.is_some();
        if is_opened && table.columns.iter().any(|column| column.auto_increment) {
            return self.create_like(table);
        }
        // When it copies as well, InnoDB loses the constraints (docs/foreign_keys.md).
        let sql = match (self.rng.bool() || self.copies && is_tied) && !table.temporary {
            true => format!("RENAME TABLE {} TO {name}", table.name),
            false => format!("ALTER TABLE {} RENAME TO {name}", table.name),
        };
        Statement::new(sql).after(after)
    }

    fn create_like(&mut self, table: &Table) -> Statement {
        let mut copy = table.clone();
        copy.name = self.name("t");
        copy.foreign.clear();
        let statement = Statement::new(format!("CREATE TABLE {} LIKE {}", copy.name, table.name));
        copy.temporary = false;
        let mut after = self.tables.clone();
        after.push(copy);
        statement.after(after)
    }

    fn create_select(&mut self, table: &Table) -> Statement {
        let mut copy = table.clone();
        copy.name = self.name("t");
        copy.foreign.clear();
        copy.indexes.clear();
        copy.partitions = None;
        copy.versioned = false;
        // A rollback takes its rows away; with InnoDB they stay (docs/mariadb.md).
        copy.temporary = !self.in_transaction && one_in(&mut self.rng, 3);
        copy.columns.retain(|column| !column.invisible);
        for column in &mut copy.columns {
            column.auto_increment = false;
            column.generated = None;
            column.check = None;
        }
        let temporary = if copy.temporary { "TEMPORARY " } else { "" };
        let statement = seq![
            format!("CREATE {temporary}TABLE {} ", copy.name),
            format!("SELECT * FROM {} ORDER BY ", table.name),
            whole(table.whole_order()),
        ];
        let mut after = self.tables.clone();
        after.push(copy);
        Statement::new(statement).after(after)
    }

    fn handler(&mut self, table: &Table) -> Statement {
        let name = &table.name;
        for _ in 0..self.rng.u32(1..5) {
            let limit = self.rng.u32(1..6);
            let indexes = table.searched();
            let index = (indexes.first()).map(|_| (*any(&mut self.rng, &indexes)).clone());
            let sql = match (index, self.rng.u32(..3)) {
                (Some(index), 1..) => {
                    let step = *any(&mut self.rng, &["FIRST", "NEXT", "NEXT", "PREV", "LAST"]);
                    let step = match (self.rng.u32(..3), table.column(&index.parts[0].column)) {
                        (0, Some(column)) => {
                            let operator = *any(&mut self.rng, &["=", ">=", ">", "<=", "<"]);
                            format!("{operator} ({})", column.kind.value(&mut self.rng))
                        }
                        _ => step.into(),
                    };
                    format!("HANDLER {name} READ `{}` {step} LIMIT {limit}", index.name)
                }
                _ => {
                    let step = *any(&mut self.rng, &["FIRST", "NEXT"]);
                    format!("HANDLER {name} READ {step} LIMIT {limit}")
                }
            };
            self.queue
                .push_back(Statement::new(sql).rule(Rule::Ordered));
        }
        self.queue
            .push_back(Statement::new(format!("HANDLER {name} CLOSE")));
        Statement::new(format!("HANDLER {name} OPEN"))
    }

    fn locked(&mut self, table: &Table) -> Statement {
        let kind = *any(&mut self.rng, &["WRITE", "READ", "WRITE"]);
        for _ in 0..self.rng.u32(1..4) {
            let statement = self.change_of(table);
            self.queue.push_back(statement);
        }
        self.queue.push_back(Statement::new("UNLOCK TABLES"));
        self.in_transaction = !self.commits;
        Statement::new(format!("LOCK TABLES {} {kind}", table.name))
    }

    fn change_of(&mut self, table: &Table) -> Statement {
        match self.rng.u32(..3) {
            0 => self.update_table(table),
            1 => self.delete_from(table),
            _ => self.insert_into(table),
        }
    }

    fn xa(&mut self) -> Statement {
        let mut say = |sql: String| self.queue.push_back(Statement::new(sql));
        say(format!("XA START '{SIDE}'"));
        for _ in 0..self.rng.u32(1..4) {
            let table = self.table();
            // A branch that has changed temporary tables can't be prepared.
            if table.temporary && !one_in(&mut self.rng, 20) {
                continue;
            }
            let statement = self.change_of(&table);
            self.queue.push_back(statement);
        }
        let end = match self.rng.u32(..4) {
            0 => vec!["XA END", "XA ROLLBACK"],
            1 => vec!["XA END", "XA PREPARE", "XA ROLLBACK"],
            2 => vec!["XA END", "XA COMMIT 1"],
            _ => vec!["XA END", "XA PREPARE", "XA COMMIT"],
        };
        for sql in end {
            let sql = match sql.strip_suffix(" 1") {
                Some(sql) => format!("{sql} '{SIDE}' ONE PHASE"),
                None => format!("{sql} '{SIDE}'"),
            };
            self.queue.push_back(Statement::new(sql));
        }
        self.in_transaction = !self.commits;
        Statement::new(text("COMMIT"))
    }
}
