//! Differences that are meant, or not Varve's, each with its reason and as narrow a pattern as will do.
//!
//! After one the tables may differ, so the statements end there; one that leaves nothing behind does not end
//! them.

use crate::compare::{Difference, What};

pub struct Known {
    pub name: &'static str,
    pub reason: &'static str,
    /// The rows are the same afterwards.
    pub goes_on: bool,
    matches: fn(&Difference) -> bool,
}

/// A duplicate, children, no parent, a duplicate in a child's history: what a row may be refused for.
const ROW_ERRORS: [u16; 4] = [1062, 1451, 1452, 1761];

/// What the mode refuses a value for that is converted.
const CONVERSION_ERRORS: [u16; 6] = [1264, 1265, 1292, 1366, 1406, 1916];

pub const KNOWN: &[Known] = &[
    Known {
        name: "ALTER TABLE copies",
        reason: "one changes a table in place that the other one copies; rows that are copied are counted",
        goes_on: true,
        matches: |difference| {
            let is_count = matches!(difference.what, What::Affected | What::Info);
            let answers = [&difference.innodb, &difference.varve];
            is_count
                && difference.sql.starts_with("ALTER TABLE")
                && answers
                    .iter()
                    .any(|answer| answer.starts_with("0 affected"))
        },
    },
    Known {
        name: "checks of a new column",
        reason: "InnoDB adds columns in place, and then no row is checked; here the copied rows are",
        goes_on: false,
        matches: |difference| {
            difference.what == What::Error(4025, 0)
                && difference.sql.starts_with("ALTER TABLE")
                && difference.sql.contains("ADD COLUMN")
        },
    },
    Known {
        name: "values that the mode refuses",
        reason: "one changes the table in place and looks at no value; those that the other one copies are looked at",
        goes_on: false,
        matches: |difference| {
            let (code, done) = match difference.what {
                What::Error(code, 0) => (code, &difference.innodb),
                What::Error(0, code) => (code, &difference.varve),
                _ => return false,
            };
            CONVERSION_ERRORS.contains(&code)
                && difference.sql.starts_with("ALTER TABLE")
                && done.starts_with("0 affected")
        },
    },
    Known {
        name: "which duplicate of a new key is told",
        reason: "InnoDB tells of the first by key, or of the last row that it has copied",
        goes_on: true,
        matches: |difference| {
            difference.what == What::ErrorText(1062) && difference.sql.starts_with("ALTER TABLE")
        },
    },
    Known {
        name: "which of several faults of a copy is told",
        reason: "both fill a copy's indexes when all rows are there, but not of the same tables: duplicates come last",
        goes_on: true,
        matches: |difference| {
            let is_told = match difference.what {
                What::Error(1062 | 1834, its) | What::Error(its, 1062 | 1834) => {
                    its == 4025 || CONVERSION_ERRORS.contains(&its)
                }
                _ => false,
            };
            is_told && difference.sql.starts_with("ALTER TABLE")
        },
    },
    Known {
        name: "what is said of the rows behind a duplicate",
        reason: "indexes are filled, or rows out of order sorted, when all are there: those behind are converted, too",
        goes_on: true,
        matches: |difference| {
            // As 1834 the duplicate is told of a table that others refer to.
            let is_told =
                |text: &str| text.starts_with("error 1062") || text.starts_with("error 1834");
            difference.what == What::Warnings
                && difference.sql.starts_with("ALTER TABLE")
                && is_told(&difference.varve)
                && is_told(&difference.innodb)
                && (lines_are_among(&difference.varve, &difference.innodb)
                    || lines_are_among(&difference.innodb, &difference.varve))
        },
    },
    Known {
        name: "how often a conversion warns",
        reason: "InnoDB has virtual columns computed more often",
        goes_on: true,
        matches: |difference| {
            let warnings = |text: &str| {
                let mut lines: Vec<String> = text.lines().skip(1).map(String::from).collect();
                lines.sort();
                let all = lines.len();
                lines.dedup();
                (lines, all)
            };
            // What is said besides how many there are.
            let besides = |text: &str| {
                let line = text.lines().next().unwrap_or_default();
                let info = line.split_once("; ").map_or("", |(_, info)| info);
                let info = info.split("  Warnings: ").next().map(String::from);
                (line.split(',').next().map(String::from), info)
            };
            let (ours, its) = (warnings(&difference.varve), warnings(&difference.innodb));
            matches!(difference.what, What::Warnings | What::Info)
                && besides(&difference.varve) == besides(&difference.innodb)
                && ours.0.iter().all(|line| its.0.contains(line))
                && ours.1 < its.1
                && its
                    .0
                    .iter()
                    .all(|line| line.contains("Warning 1292 Truncated incorrect"))
        },
    },
    Known {
        name: "another collation of a foreign key's column",
        reason: "is refused; InnoDB, in place, loses the foreign key by it, and warns of that",
        goes_on: false,
        matches: |difference| {
            difference.what == What::Error(1832, 0)
                && difference.sql.contains("CONVERT TO CHARACTER SET")
                && (difference.innodb).contains("failed to load FOREIGN KEY constraints")
        },
    },
    Known {
        name: "another word about NULL",
        reason: "InnoDB, in place, warns of the NULL that is an error already",
        goes_on: true,
        matches: |difference| {
            const WARNING: &str = "\n    warning: Error 1138 Invalid use of NULL value";
            difference.what == What::Warnings
                && difference.sql.starts_with("ALTER TABLE")
                && difference.innodb.replacen(WARNING, "", 1) == difference.varve
        },
    },
    Known {
        name: "a foreign key to a column that goes or gets another name, checks off",
        reason: "is refused; InnoDB lets it refer to what is not there (docs/foreign_keys.md)",
        goes_on: false,
        matches: |difference| {
            let has = |words| difference.sql.contains(words);
            difference.what == What::Error(1025, 0)
                && difference.sql.starts_with("ALTER TABLE")
                && has("FOREIGN KEY")
                && (has("RENAME COLUMN") || has("DROP COLUMN"))
        },
    },
    Known {
        name: "a row that refers to itself",
        reason: "can be deleted: nothing is left that refers to it (docs/foreign_keys.md)",
        goes_on: false,
        matches: |difference| {
            let refused = match difference.what {
                What::Error(_, 1451) | What::ErrorText(1451) => true,
                What::Affected => difference.innodb.contains("Warning 1451"),
                // Here it is a later row that is refused.
                What::Warnings => difference.innodb.contains(" 1451 "),
                _ => false,
            };
            refused && refers_to_itself(&difference.innodb)
        },
    },
    Known {
        name: "an UPDATE by which a row comes to refer to what it was until then, and others still are",
        reason: "is refused; InnoDB looks for children before it makes the entries of later indexes",
        goes_on: false,
        matches: |difference| {
            difference.what == What::Error(1451, 0)
                && difference.sql.starts_with("UPDATE ")
                && refers_to_itself(&difference.varve)
        },
    },
    Known {
        name: "an UPDATE that leaves alone what children refer to",
        reason: "works; InnoDB takes an indexed virtual column that changes for the stored column of its number",
        goes_on: false,
        matches: |difference| {
            let refused = match difference.what {
                What::Error(0, 1451) => true,
                What::Affected | What::Info | What::Warnings => {
                    difference.innodb.contains("Warning 1451")
                        && !difference.varve.contains(" 1451 ")
                }
                _ => false,
            };
            refused && leaves_referenced_alone(&difference.sql, &difference.innodb)
        },
    },
    Known {
        name: "dropping an index that a foreign key needs",
        reason: "named, where InnoDB copies and then can't take the copy (docs/foreign_keys.md)",
        goes_on: false,
        matches: |difference| {
            let is_told = match difference.what {
                What::Error(1553, 1005 | 1025 | 1452 | 1822 | 1828 | 1829 | 1832) => true,
                What::Error(1005, 1025 | 1062 | 1834) => true,
                What::Error(1553 | 1005, its) => its == 4025 || CONVERSION_ERRORS.contains(&its),
                _ => false,
            };
            is_told && difference.sql.starts_with("ALTER TABLE")
        },
    },
    Known {
        name: "which of several errors of one row",
        reason: "InnoDB checks keys and foreign keys index by index (docs/foreign_keys.md)",
        goes_on: true,
        matches: |difference| {
            let is_other = match difference.what {
                // A duplicate can be ignored, one in a child's history can't.
                What::Error(0, 1761) => difference.sql.starts_with("UPDATE IGNORE"),
                What::Error(a, b) => [a, b].iter().all(|code| ROW_ERRORS.contains(code)),
                What::ErrorText(1451 | 1452) => true,
                What::Warnings => [&difference.varve, &difference.innodb]
                    .iter()
                    .all(|answer| {
                        let mut codes = ROW_ERRORS.iter();
                        codes.any(|code| answer.contains(&format!("Warning {code} ")))
                    }),
                _ => false,
            };
            let verbs = ["UPDATE ", "INSERT ", "REPLACE ", "DELETE "];
            is_other && verbs.iter().any(|verb| difference.sql.starts_with(verb))
        },
    },
    Known {
        name: "a row of the past that was so for no time",
        reason: "is not kept, as by a statement of the server (docs/foreign_keys.md); InnoDB's cascades keep it",
        goes_on: false,
        matches: |difference| {
            let changes = difference.sql.starts_with("UPDATE ")
                || difference.sql.starts_with("DELETE ")
                || difference.sql.contains("ON DUPLICATE KEY UPDATE");
            difference.what == What::Error(0, 1761) && changes
        },
    },
    Known {
        name: "which duplicate is told of rows that a table gets from itself",
        reason: "the server puts them aside, and then they come in an order of their own",
        goes_on: false,
        matches: |difference| {
            let words = |after: &str| {
                let rest = difference.sql.split_once(after)?.1;
                rest.split(' ').next().map(String::from)
            };
            let target = words(" INTO ");
            difference.what == What::ErrorText(1062)
                && difference.sql.starts_with("INSERT INTO ")
                && target.is_some()
                && target == words(" FROM ")
        },
    },
    Known {
        name: "a counter beyond the end of its type",
        reason: "none of its values can be given; InnoDB keeps it at the first of them",
        goes_on: true,
        matches: |difference| {
            difference.what == What::Rows
                && ["AUTO_INCREMENT", "SHOW CREATE TABLE"]
                    .iter()
                    .any(|words| difference.sql.contains(words))
                && counts_beyond_the_end(&difference.varve, &difference.innodb)
        },
    },
    Known {
        name: "a group by dates that the mode refuses",
        reason: "the server puts them into a table of its own; InnoDB's are read in the order of an index",
        goes_on: true,
        matches: |difference| {
            difference.what == What::Rows
                && difference.sql.contains(" GROUP BY ")
                && difference.varve.contains("0000-00-00")
                && (difference.innodb.contains("-00 | ") || difference.innodb.contains("-00 0"))
        },
    },
    Known {
        name: "an equal text in an indexed virtual column",
        reason: "InnoDB leaves the index alone if a text changes to an equal one, and reads the column there",
        goes_on: false,
        matches: |difference| {
            difference.what == What::Rows
                && difference.sql.starts_with("SELECT ")
                && folded(&difference.varve) == folded(&difference.innodb)
        },
    },
    Known {
        name: "NOT IN a subquery, through an index on the beginning of a text",
        reason: "the server takes texts that begin alike for equal, by either engine, where its plan has that index",
        goes_on: true,
        matches: |difference| {
            let (ours, its) = (&difference.varve, &difference.innodb);
            difference.what == What::Rows
                && difference.sql.starts_with("SELECT ")
                && difference.sql.contains(" NOT IN (SELECT ")
                && (rows_are_among(ours, its) || rows_are_among(its, ours))
        },
    },
    Known {
        name: "an UPDATE of a partitioned table with history, behind a SELECT that can have no row",
        reason: "the server finds none, by either engine, where it reads the whole table",
        goes_on: false,
        matches: |difference| {
            let finds_none = |text: &str| text.contains("; Rows matched: 0 ");
            difference.what == What::Affected
                && difference.sql.starts_with("UPDATE ")
                && difference.innodb.contains("  Inserted: ")
                && (finds_none(&difference.varve) || finds_none(&difference.innodb))
        },
    },
    Known {
        name: "dropping an index in whose place another one serves together with the primary key",
        reason: "works: an index goes on with the primary key (docs/foreign_keys.md); InnoDB, in place, refuses",
        goes_on: false,
        matches: |difference| {
            difference.what == What::Error(0, 1553)
                && difference.sql.starts_with("ALTER TABLE")
                && difference.sql.contains("DROP INDEX")
        },
    },
    Known {
        name: "dropping an index that a foreign key needs, checks off",
        reason: "is refused all the same (docs/foreign_keys.md)",
        goes_on: false,
        matches: |difference| {
            matches!(difference.what, What::Error(1005 | 1025 | 1553, 0))
                && difference.sql.starts_with("ALTER TABLE")
                && ["DROP INDEX", "DROP PRIMARY KEY"]
                    .iter()
                    .any(|drop| difference.sql.contains(drop))
        },
    },
    Known {
        name: "a foreign key that can't be added",
        reason: "is refused as by CREATE TABLE; InnoDB, in place, has errors of its own",
        goes_on: true,
        matches: |difference| {
            matches!(difference.what, What::Error(1005 | 1025, 1822 | 1825))
                && difference.sql.starts_with("ALTER TABLE")
                && difference.sql.contains("FOREIGN KEY")
        },
    },
    Known {
        name: "which of several faults of a foreign key is told",
        reason: "they are looked for in another order",
        goes_on: true,
        matches: |difference| {
            let is_told = |text: &str| text.contains("errno: 150") && text.contains("Warning 150 ");
            let are_warnings = difference.what == What::Warnings
                && is_told(&difference.varve)
                && is_told(&difference.innodb);
            // A column that changes its type, and an index on it that goes.
            are_warnings || difference.what == What::Error(1833, 1553)
        },
    },
    Known {
        name: "REPLACE that changes the row",
        reason: "the server does so at the last unique key; InnoDB names another one if keys were added in place",
        goes_on: true,
        matches: |difference| {
            difference.what == What::BinaryLog
                && difference.varve.starts_with("UPDATE `side`.")
                && difference.innodb.starts_with("DELETE FROM `side`.")
        },
    },
    Known {
        name: "CHECK TABLE of InnoDB's finds its own index damaged",
        reason: "an index of InnoDB's on a virtual column",
        goes_on: false,
        matches: |difference| {
            difference.sql.starts_with("CHECK TABLE")
                && difference.innodb.contains("| Corrupt")
                && difference.varve.contains("| status | OK")
        },
    },
    Known {
        name: "the name of a constraint that is in the way",
        reason: "InnoDB, in place, adds the schema's",
        goes_on: true,
        matches: |difference| {
            let is_told = |code| matches!(code, 1832 | 1833);
            let both = match difference.what {
                What::ErrorText(code) => is_told(code),
                What::Error(ours, its) => is_told(ours) && is_told(its),
                _ => false,
            };
            both && difference.innodb.contains("'side/")
        },
    },
    Known {
        name: "changing a column of a foreign key that the statement drops",
        reason: "InnoDB, in place, still counts a foreign key of the table to itself",
        goes_on: false,
        matches: |difference| {
            let has = |words| difference.sql.contains(words);
            difference.what == What::Error(0, 1833)
                && has("DROP FOREIGN KEY")
                && has("MODIFY COLUMN")
        },
    },
    Known {
        name: "changing a column that is in no foreign key",
        reason: "InnoDB, in place, takes it for another one if a column before it is generated",
        goes_on: false,
        matches: |difference| {
            let has = |words| difference.sql.contains(words);
            matches!(difference.what, What::Error(0, 1832 | 1833))
                && (has("MODIFY COLUMN") || has("CONVERT TO CHARACTER SET"))
                && difference.innodb.contains("'side/")
        },
    },
    Known {
        name: "a column of a foreign key that gets longer, or takes NULL",
        reason: "the server refuses that of a table it copies; InnoDB, in place, does it",
        goes_on: false,
        matches: |difference| {
            matches!(difference.what, What::Error(1832 | 1833, 0))
                && difference.sql.contains("MODIFY COLUMN")
                && difference.innodb.starts_with("0 affected")
        },
    },
    Known {
        name: "a new foreign key that may bring NULL",
        reason: "is refused as by CREATE TABLE; InnoDB, in place with checks off, does not look",
        goes_on: false,
        matches: |difference| {
            let has = |words| difference.sql.contains(words);
            difference.what == What::Error(1005, 0)
                && difference.sql.starts_with("ALTER TABLE")
                && has(" NOT NULL")
                && has(", ADD CONSTRAINT")
                && has("ON UPDATE CASCADE")
        },
    },
    Known {
        name: "a key that is too long as it is stored",
        reason: "0 bytes take two; the limit is 3,500 bytes (docs/mariadb.md)",
        goes_on: false,
        matches: |difference| {
            matches!(difference.what, What::Error(1118, _))
                && difference.varve.contains("index key has ")
        },
    },
    Known {
        name: "a new unique key of a parent",
        reason: "the copy has duplicates, which the server words otherwise for a parent; InnoDB copies nothing",
        goes_on: true,
        matches: |difference| {
            difference.what == What::Error(1834, 1062) && difference.sql.starts_with("ALTER TABLE")
        },
    },
    Known {
        name: "XA PREPARE with temporary tables",
        reason: "refused, with an error that says so",
        goes_on: false,
        matches: |difference| {
            difference.what == What::Error(1235, 0)
                && difference.varve.contains("changed temporary tables")
        },
    },
];

pub fn known(difference: &Difference) -> Option<&'static Known> {
    KNOWN.iter().find(|known| (known.matches)(difference))
}

/// Whether the constraint in an error's text is one of a table to itself.
fn refers_to_itself(text: &str) -> bool {
    let name_after = |mark: &str| {
        let (_, rest) = text.split_once(mark)?;
        rest.split('`').next()
    };
    let own = name_after("fails (`side`.`");
    own.is_some() && own == name_after("REFERENCES `")
}

/// Whether an `UPDATE` assigns none of the columns that the constraint in an error's text refers to.
fn leaves_referenced_alone(sql: &str, text: &str) -> bool {
    let Some((_, assigned)) = sql
        .strip_prefix("UPDATE ")
        .and_then(|s| s.split_once(" SET "))
    else {
        return false;
    };
    let referenced = text.split_once(" REFERENCES ").and_then(|(_, rest)| {
        let (_, columns) = rest.split_once('(')?;
        columns.split_once(')').map(|(columns, _)| columns)
    });
    referenced.is_some_and(|columns| {
        let mut names = columns.split(", ").map(|name| name.trim_matches('`'));
        names.all(|name| {
            let starts = format!("{name} = ");
            !assigned.starts_with(&starts)
                && [", ", "."]
                    .iter()
                    .all(|before| !assigned.contains(&format!("{before}{starts}")))
        })
    })
}

/// The texts that are drawn (`types`), such as many collations take for equal made the same: without spaces
/// at the end, case and accents.
fn folded(rows: &str) -> Vec<String> {
    let letter = |c: char| match c {
        'ä' | 'á' => 'a',
        'é' => 'e',
        'ñ' => 'n',
        other => other,
    };
    let cells = rows
        .lines()
        .flat_map(|line| line.split(" | ").map(str::trim_end));
    cells
        .map(|cell| {
            cell.to_lowercase()
                .replace('ß', "ss")
                .chars()
                .map(letter)
                .collect()
        })
        .collect()
}

/// Whether lines differ in numbers only, of which InnoDB's are the first beyond an integer type.
fn counts_beyond_the_end(ours: &str, its: &str) -> bool {
    let beyond = |a: &str, b: &str| match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a > b && b >= 128 && b.is_power_of_two(),
        _ => false,
    };
    let alike = |(a, b): (&str, &str)| {
        // In a list of tables, or in the statement that makes one.
        let (mut a, mut b) = (a.split([' ', '=']), b.split([' ', '=']));
        loop {
            match (a.next(), b.next()) {
                (None, None) => return true,
                (Some(a), Some(b)) if a == b || beyond(a, b) => {}
                _ => return false,
            }
        }
    };
    ours.lines().count() == its.lines().count() && ours.lines().zip(its.lines()).all(alike)
}

/// Whether each line of the first is one of the second.
fn lines_are_among(some: &str, all: &str) -> bool {
    some.lines()
        .all(|line| all.lines().any(|other| other == line))
}

/// The same of the rows of answers to a query.
fn rows_are_among(some: &str, all: &str) -> bool {
    let rows = |text: &str| {
        let lines = text.lines().skip(1).map(str::trim_start);
        let rows = lines.filter(|line| !line.starts_with("warning: "));
        rows.collect::<Vec<_>>().join("\n")
    };
    lines_are_among(&rows(some), &rows(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_without_what_is_said_about_them() {
        let none = "0 rows, 1 warnings\n    warning: Warning 1292 Truncated";
        let some = "2 rows, 0 warnings\n    a\n    b";
        assert!(rows_are_among(none, some) && !rows_are_among(some, none));
        assert!(rows_are_among("1 rows, 0 warnings\n    b", some));
    }

    #[test]
    fn a_constraint_to_the_table_itself_is_known() {
        let text = |parent: &str| {
            format!(
                "a foreign key constraint fails (`side`.`t1`, CONSTRAINT `f` FOREIGN KEY (`r`) \
                     REFERENCES `{parent}` (`id`))"
            )
        };
        assert!(refers_to_itself(&text("t1")));
        assert!(!refers_to_itself(&text("t2")));
    }

    #[test]
    fn an_update_of_another_column_is_told_from_one_of_the_referenced_ones() {
        let text = "error 1451: … (`side`.`t2`, CONSTRAINT `f` FOREIGN KEY (`r`) REFERENCES `t1` (`c2`, `c3`))";
        for (sql, alone) in [
            ("UPDATE t1 SET c4 = 1 ORDER BY c2", true),
            ("UPDATE IGNORE t1 SET c4 = c2, c22 = 1", true),
            ("UPDATE t1 SET c3 = 1", false),
            ("UPDATE t1 SET c4 = 1, c2 = 2", false),
            ("UPDATE t1 a JOIN t5 b SET a.c2 = 2", false),
            ("DELETE FROM t1", false),
        ] {
            assert_eq!(leaves_referenced_alone(sql, text), alone, "{sql}");
        }
    }

    #[test]
    fn equal_texts_are_told_from_others() {
        assert_eq!(folded("12 | Á | a \n1"), folded("12 | Á | A\n1"));
        assert_ne!(folded("12 | b | a"), folded("12 | c | a"));
        assert_ne!(folded("12 | a"), folded("12"));
    }

    #[test]
    fn a_counter_beyond_its_type_is_told_from_another_one() {
        let shown = |n: u64| format!("1 rows, 0 warnings\n    t1 | BASE TABLE | {n} | utf8mb4_bin");
        assert!(counts_beyond_the_end(&shown(32769), &shown(32768)));
        assert!(!counts_beyond_the_end(&shown(32768), &shown(32769)));
        let made = |n: u64| format!(") ENGINE=ENGINE AUTO_INCREMENT={n} DEFAULT CHARSET=utf8mb4");
        assert!(counts_beyond_the_end(&made((1 << 63) + 1), &made(1 << 63)));
        assert!(!counts_beyond_the_end(&shown(18), &shown(17)));
    }
}
