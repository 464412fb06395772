//! The cases. They follow Martin Kleppmann's Hermitage for MySQL in what they provoke; each is a few
//! statements of up to three sessions on the rows (1, 10) and (2, 20).

/// Statements that play one anomaly: who says what. Session 3, where there is one, only looks on.
pub struct Case {
    pub name: &'static str,
    pub statements: &'static [(usize, &'static str)],
}

const COMMIT: &str = "COMMIT";
const READ_1: &str = "SELECT value FROM t WHERE id = 1";
const READ_2: &str = "SELECT value FROM t WHERE id = 2";
const READ_ALL: &str = "SELECT * FROM t ORDER BY id";
const READ_THIRDS: &str = "SELECT * FROM t WHERE value % 3 = 0 ORDER BY id";

pub const CASES: &[Case] = &[
    Case {
        name: "G0 dirty write",
        statements: &[
            (1, "UPDATE t SET value = 11 WHERE id = 1"),
            (2, "UPDATE t SET value = 12 WHERE id = 1"),
            (1, "UPDATE t SET value = 21 WHERE id = 2"),
            (1, COMMIT),
            (2, "UPDATE t SET value = 22 WHERE id = 2"),
            (2, COMMIT),
        ],
    },
    Case {
        name: "G1a aborted read",
        statements: &[
            (1, "UPDATE t SET value = 101 WHERE id = 1"),
            (2, READ_1),
            (1, "ROLLBACK"),
            (2, READ_1),
            (2, COMMIT),
        ],
    },
    Case {
        name: "G1b intermediate read",
        statements: &[
            (1, "UPDATE t SET value = 101 WHERE id = 1"),
            (2, READ_1),
            (1, "UPDATE t SET value = 11 WHERE id = 1"),
            (1, COMMIT),
            (2, READ_1),
            (2, COMMIT),
        ],
    },
    Case {
        name: "G1c circular information flow",
        statements: &[
            (1, "UPDATE t SET value = 11 WHERE id = 1"),
            (2, "UPDATE t SET value = 22 WHERE id = 2"),
            (1, READ_2),
            (2, READ_1),
            (1, COMMIT),
            (2, COMMIT),
        ],
    },
    Case {
        name: "OTV observed transaction vanishes",
        statements: &[
            (1, "UPDATE t SET value = 11 WHERE id = 1"),
            (1, "UPDATE t SET value = 19 WHERE id = 2"),
            (2, "UPDATE t SET value = 12 WHERE id = 1"),
            (1, COMMIT),
            (3, READ_1),
            (2, "UPDATE t SET value = 18 WHERE id = 2"),
            (3, READ_2),
            (2, COMMIT),
            (3, READ_2),
            (3, READ_1),
            (3, COMMIT),
        ],
    },
    Case {
        name: "PMP predicate read, then a phantom",
        statements: &[
            (1, "SELECT * FROM t WHERE value = 30"),
            (2, "INSERT INTO t VALUES (3, 30)"),
            (2, COMMIT),
            (1, READ_THIRDS),
            (1, COMMIT),
        ],
    },
    Case {
        name: "PMP predicate write",
        statements: &[
            (1, "UPDATE t SET value = value + 10"),
            (2, "SELECT * FROM t WHERE value = 20"),
            (2, "DELETE FROM t WHERE value = 20"),
            (1, COMMIT),
            (2, READ_ALL),
            (2, COMMIT),
        ],
    },
    Case {
        name: "P4 lost update",
        statements: &[
            (1, READ_1),
            (2, READ_1),
            (1, "UPDATE t SET value = 11 WHERE id = 1"),
            (2, "UPDATE t SET value = 12 WHERE id = 1"),
            (1, COMMIT),
            (2, COMMIT),
        ],
    },
    Case {
        name: "P4 lost update, read for update",
        statements: &[
            (1, "SELECT value FROM t WHERE id = 1 FOR UPDATE"),
            (2, "SELECT value FROM t WHERE id = 1 FOR UPDATE"),
            (1, "UPDATE t SET value = 11 WHERE id = 1"),
            (1, COMMIT),
            (2, COMMIT),
        ],
    },
    Case {
        name: "G-single read skew",
        statements: &[
            (1, READ_1),
            (2, READ_ALL),
            (2, "UPDATE t SET value = 12 WHERE id = 1"),
            (2, "UPDATE t SET value = 18 WHERE id = 2"),
            (2, COMMIT),
            (1, READ_2),
            (1, COMMIT),
        ],
    },
    Case {
        name: "G-single by a predicate",
        statements: &[
            (1, "SELECT * FROM t WHERE value % 5 = 0 ORDER BY id"),
            (2, "UPDATE t SET value = 12 WHERE value = 10"),
            (2, COMMIT),
            (1, READ_THIRDS),
            (1, COMMIT),
        ],
    },
    Case {
        name: "G-single by a predicate write",
        statements: &[
            (1, READ_1),
            (2, READ_ALL),
            (2, "UPDATE t SET value = 12 WHERE id = 1"),
            (2, "UPDATE t SET value = 18 WHERE id = 2"),
            (2, COMMIT),
            (1, "DELETE FROM t WHERE value = 20"),
            (1, READ_2),
            (1, COMMIT),
        ],
    },
    Case {
        name: "G-single, the writer comes second",
        statements: &[
            (1, READ_1),
            (2, READ_ALL),
            (2, "UPDATE t SET value = 12 WHERE id = 1"),
            (1, "DELETE FROM t WHERE value = 20"),
            (2, "UPDATE t SET value = 18 WHERE id = 2"),
            (2, COMMIT),
            (1, "ROLLBACK"),
        ],
    },
    Case {
        name: "G2-item write skew",
        statements: &[
            (1, "SELECT * FROM t WHERE id IN (1, 2) ORDER BY id"),
            (2, "SELECT * FROM t WHERE id IN (1, 2) ORDER BY id"),
            (1, "UPDATE t SET value = 11 WHERE id = 1"),
            (2, "UPDATE t SET value = 21 WHERE id = 2"),
            (1, COMMIT),
            (2, COMMIT),
        ],
    },
    Case {
        name: "G2 write skew by predicates",
        statements: &[
            (1, READ_THIRDS),
            (2, READ_THIRDS),
            (1, "INSERT INTO t VALUES (3, 30)"),
            (2, "INSERT INTO t VALUES (4, 42)"),
            (1, COMMIT),
            (2, COMMIT),
        ],
    },
    Case {
        name: "G2 with two rw of a reader",
        statements: &[
            (1, READ_ALL),
            (2, "UPDATE t SET value = value + 5 WHERE id = 2"),
            (2, COMMIT),
            (3, READ_ALL),
            (3, COMMIT),
            (1, "UPDATE t SET value = 0 WHERE id = 1"),
            (1, COMMIT),
        ],
    },
    Case {
        name: "two inserts of one key",
        statements: &[
            (1, "INSERT INTO t VALUES (3, 30)"),
            (2, "INSERT INTO t VALUES (3, 31)"),
            (1, "ROLLBACK"),
            (2, COMMIT),
        ],
    },
    Case {
        name: "an insert of a key that another one deletes",
        statements: &[
            (1, "DELETE FROM t WHERE id = 2"),
            (2, "INSERT INTO t VALUES (2, 21)"),
            (1, COMMIT),
            (2, READ_ALL),
            (2, COMMIT),
        ],
    },
    Case {
        name: "a locking read of what another one adds",
        statements: &[
            (1, READ_ALL),
            (2, "INSERT INTO t VALUES (3, 30)"),
            (2, COMMIT),
            (
                1,
                "SELECT * FROM t WHERE id > 1 ORDER BY id LOCK IN SHARE MODE",
            ),
            (1, READ_ALL),
            (1, "UPDATE t SET value = value + 1 WHERE id = 3"),
            (1, READ_ALL),
            (1, COMMIT),
        ],
    },
];
