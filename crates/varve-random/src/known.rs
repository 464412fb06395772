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

/// A duplicate, children, no parent: what a row may be refused for.
const ROW_ERRORS: [u16; 3] = [1062, 1451, 1452];

pub const KNOWN: &[Known] = &[
    Known {
        name: "ALTER TABLE copies",
        reason: "InnoDB changes many tables in place and copies no row; rows that are copied are counted",
        goes_on: true,
        matches: |difference| {
            let is_count = matches!(difference.what, What::Affected | What::Info);
            is_count
                && difference.sql.starts_with("ALTER TABLE")
                && difference.innodb.starts_with("0 affected")
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
        reason: "InnoDB changes the table in place and looks at no value; the copied ones are looked at",
        goes_on: false,
        matches: |difference| {
            matches!(difference.what, What::Error(1292 | 1265 | 1366, 0))
                && difference.sql.starts_with("ALTER TABLE")
                && difference.innodb.starts_with("0 affected")
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
        name: "a row that refers to itself",
        reason: "can be deleted: nothing is left that refers to it (docs/foreign_keys.md)",
        goes_on: false,
        matches: |difference| {
            let refused = match difference.what {
                What::Error(_, 1451) | What::ErrorText(1451) => true,
                What::Affected | What::Warnings => difference.innodb.contains("Warning 1451"),
                _ => false,
            };
            refused && refers_to_itself(&difference.innodb)
        },
    },
    Known {
        name: "dropping an index that a foreign key needs",
        reason: "named, where InnoDB copies and then can't take the copy (docs/foreign_keys.md)",
        goes_on: false,
        matches: |difference| {
            matches!(
                difference.what,
                What::Error(1553, 1025 | 1832) | What::Error(1005, 1025 | 4025)
            ) && difference.sql.starts_with("ALTER TABLE")
        },
    },
    Known {
        name: "which of several errors of one row",
        reason: "InnoDB checks keys and foreign keys index by index (docs/foreign_keys.md)",
        goes_on: true,
        matches: |difference| {
            let is_other = match difference.what {
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
            let verbs = ["UPDATE ", "INSERT ", "REPLACE "];
            is_other && verbs.iter().any(|verb| difference.sql.starts_with(verb))
        },
    },
    Known {
        name: "dropping an index that a foreign key needs, checks off",
        reason: "is refused all the same (docs/foreign_keys.md)",
        goes_on: false,
        matches: |difference| {
            matches!(difference.what, What::Error(1005 | 1025 | 1553, 0))
                && difference.sql.starts_with("ALTER TABLE")
                && difference.sql.contains("DROP INDEX")
        },
    },
    Known {
        name: "a foreign key that can't be added",
        reason: "is refused as by CREATE TABLE; InnoDB, in place, has errors of its own",
        goes_on: true,
        matches: |difference| {
            difference.what == What::Error(1005, 1825) && difference.sql.starts_with("ALTER TABLE")
        },
    },
    Known {
        name: "a child that takes no NULL of a parent that does",
        reason: "the NULL is refused when it comes (docs/foreign_keys.md)",
        goes_on: false,
        matches: |difference| {
            matches!(difference.what, What::Error(0 | 1452, 1005 | 1825))
                && difference.sql.contains("ON UPDATE CASCADE")
        },
    },
    Known {
        name: "which of several faults of a foreign key is told",
        reason: "they are looked for in another order",
        goes_on: true,
        matches: |difference| {
            let is_told = |text: &str| text.contains("errno: 150") && text.contains("Warning 150 ");
            difference.what == What::Warnings
                && is_told(&difference.varve)
                && is_told(&difference.innodb)
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
            matches!(difference.what, What::ErrorText(1832 | 1833))
                && difference.innodb.contains("'side/")
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
