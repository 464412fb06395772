//! Triggers, sequences, and what `ALTER TABLE` does with partitions.

use super::write::is_kept_apart;
use super::{Generator, Rule, Statement};
use crate::schema::Table;
use crate::types::{any, one_in};

/// Where triggers write what they see: no key, so that the order of rows does not count.
pub const LOG: &str = "log";

impl Generator {
    /// A trigger that changes the row, or tells of it.
    pub fn trigger(&mut self, table: &Table) -> Statement {
        let name = self.name("g");
        let rng = &mut self.rng;
        // With one for INSERT InnoDB takes fewer values of the counter ahead.
        let counts = table.columns.iter().any(|column| column.auto_increment);
        let events = ["UPDATE", "DELETE", "INSERT"];
        let event = *any(rng, if counts { &events[..2] } else { &events });
        let mut free = table.written();
        free.retain(|column| {
            let name = &column.name;
            let by = table.partitions.as_ref();
            !column.auto_increment
                && !is_kept_apart(table, name)
                // InnoDB leaves the old entry in an index of what is computed from it.
                && !table.computes_from(name)
                && !by.is_some_and(|by| by.contains(name))
        });
        let (when, does) = match event != "DELETE" && !free.is_empty() && rng.bool() {
            true => {
                let column = *any(rng, &free);
                let does = format!("SET NEW.{} = {}", column.name, column.kind.value(rng));
                ("BEFORE", does)
            }
            false => {
                let row = if event == "DELETE" {
                    "OLD"
                } else {
                    *any(rng, &["OLD", "NEW"])
                };
                let row = if event == "INSERT" { "NEW" } else { row };
                let column = &any(rng, &table.columns).name;
                let does =
                    format!("INSERT INTO {LOG} VALUES ('{name}', LEFT(HEX({row}.{column}), 200))");
                (*any(rng, &["BEFORE", "AFTER", "AFTER"]), does)
            }
        };
        self.queue.push_back(Statement::new(format!(
            "CREATE TRIGGER {name} {when} {event} ON {} FOR EACH ROW {does}",
            table.name
        )));
        self.logs = true;
        Statement::new(format!(
            "CREATE TABLE IF NOT EXISTS {LOG} (g VARCHAR(20), v VARCHAR(200))"
        ))
    }

    pub fn sequence(&mut self, table: &Table) -> Statement {
        for _ in 0..self.rng.u32(1..5) {
            let rng = &mut self.rng;
            let sql = match rng.u32(..12) {
                0..4 => "SELECT NEXT VALUE FOR s".into(),
                4 => "SELECT NEXTVAL(s), PREVIOUS VALUE FOR s, NEXTVAL(s)".into(),
                5 => format!("SELECT SETVAL(s, {}, {})", rng.u32(..40), rng.u32(..2)),
                6 => format!("ALTER SEQUENCE s RESTART {}", rng.u32(1..30)),
                7 => "SELECT * FROM s".into(),
                8 => "SHOW CREATE SEQUENCE s".into(),
                9 if one_in(rng, 3) => "DROP SEQUENCE s".into(),
                _ => {
                    // For a value below 0 InnoDB's counter moves at autoinc_lock_mode 0.
                    let mut written = table.written();
                    written.retain(|column| !column.auto_increment);
                    match written.is_empty() {
                        true => "SELECT NEXTVAL(s)".into(),
                        false => format!(
                            "INSERT INTO {} ({}) VALUES (NEXTVAL(s))",
                            table.name,
                            any(rng, &written).name
                        ),
                    }
                }
            };
            self.queue.push_back(Statement::new(sql).rule(Rule::Shown));
        }
        let rng = &mut self.rng;
        let (step, cache) = (
            *any(rng, &["1", "2", "-1", "5"]),
            *any(rng, &["", " NOCACHE", " CACHE 3"]),
        );
        let start = if step == "-1" {
            "-1"
        } else {
            *any(rng, &["1", "10"])
        };
        let end = *any(
            rng,
            &[
                "",
                "",
                " MINVALUE -20 MAXVALUE 25 CYCLE",
                " MINVALUE -9 MAXVALUE 12",
            ],
        );
        Statement::new(format!(
            "CREATE SEQUENCE IF NOT EXISTS s START WITH {start} INCREMENT BY {step}{end}{cache}"
        ))
    }

    /// Of a partitioned table.
    pub fn alter_partitions(&mut self, table: &Table) -> Statement {
        let by = table.partitions.clone().unwrap_or_default();
        let rng = &mut self.rng;
        // With autocommit=0 InnoDB waits for itself.
        if one_in(rng, 6) && self.commits {
            return self.exchange_partition(table);
        }
        let name = &table.name;
        let part = *any(rng, &["p0", "p1", "p2", "ALL"]);
        let common = [
            format!("TRUNCATE PARTITION {part}"),
            format!("REBUILD PARTITION {part}"),
            format!("CHECK PARTITION {part}"),
            format!("ANALYZE PARTITION {part}"),
        ];
        let of_range = [
            "DROP PARTITION p1",
            "REORGANIZE PARTITION p0, p1 INTO (PARTITION p0 VALUES LESS THAN (3), \
             PARTITION p1 VALUES LESS THAN (12))",
            "REORGANIZE PARTITION p2 INTO (PARTITION p2 VALUES LESS THAN (20), \
             PARTITION p3 VALUES LESS THAN MAXVALUE)",
        ];
        let of_others = ["ADD PARTITION PARTITIONS 1", "COALESCE PARTITION 1"];
        let does = match (rng.u32(..10), by.contains("RANGE")) {
            (0, _) => "REMOVE PARTITIONING",
            (1..5, true) => *any(rng, &of_range),
            (1..5, false) => *any(rng, &of_others),
            _ => any(rng, &common),
        };
        let statement = Statement::new(format!("ALTER TABLE {name} {does}")).rule(Rule::Checked);
        match does {
            "REMOVE PARTITIONING" => statement.after(self.without_partitions(name)),
            _ => statement,
        }
    }

    fn without_partitions(&self, name: &str) -> Vec<Table> {
        let mut after = self.tables.clone();
        for table in &mut after {
            if table.name == name {
                table.partitions = None;
            }
        }
        after
    }

    fn exchange_partition(&mut self, table: &Table) -> Statement {
        let mut other = table.clone();
        other.name = self.name("t");
        let create = format!("CREATE TABLE {} LIKE {}", other.name, table.name);
        other.partitions = None;
        let mut after = self.tables.clone();
        after.push(other.clone());
        let remove = format!("ALTER TABLE {} REMOVE PARTITIONING", other.name);
        self.queue.push_back(Statement::new(remove).after(after));
        for _ in 0..self.rng.u32(..3) {
            let rows = self.insert_into(&other);
            self.queue.push_back(rows);
        }
        let part = any(&mut self.rng, &["p0", "p1"]);
        let exchange = format!(
            "ALTER TABLE {} EXCHANGE PARTITION {part} WITH TABLE {}",
            table.name, other.name
        );
        self.queue.push_back(Statement::new(exchange));
        Statement::new(create)
    }
}
