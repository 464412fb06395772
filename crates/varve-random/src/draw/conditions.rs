//! Conditions over the columns of a table, mostly over those that have an index.

use fastrand::Rng;

use crate::schema::{Column, Table};
use crate::seq;
use crate::sql::{Part, of, or, text};
use crate::types::{Family, Type, any, one_in};

/// A column to look at: an index's first more often than not.
pub fn looked_at<'a>(rng: &mut Rng, table: &'a Table) -> &'a Column {
    if !table.indexes.is_empty() && rng.u32(..4) > 0 {
        let index = any(rng, &table.indexes);
        let part = any(rng, &index.parts);
        if let Some(column) = table.column(&part.column) {
            return column;
        }
    }
    any(rng, &table.columns)
}

/// ` WHERE …`, or nothing.
pub fn filter(rng: &mut Rng, table: &Table) -> Part {
    match one_in(rng, 6) {
        true => text(""),
        false => crate::sql::may(seq![" WHERE ", condition(rng, table, "")]),
    }
}

/// Its columns are named with `prefix` before them.
pub fn condition(rng: &mut Rng, table: &Table, prefix: &str) -> Part {
    let first = looked_at(rng, table);
    let first = of(
        &table.tag(&first.name),
        comparison(rng, table, first, prefix),
    );
    if !one_in(rng, 3) {
        return first;
    }
    let second = looked_at(rng, table);
    let second = of(
        &table.tag(&second.name),
        comparison(rng, table, second, prefix),
    );
    let operator = *any(rng, &[" AND ", " AND ", " OR "]);
    Part::List(operator, vec![first, second])
}

/// One that holds for some values of the column.
pub fn comparison(rng: &mut Rng, table: &Table, column: &Column, prefix: &str) -> Part {
    let name = format!("{prefix}{}", column.name);
    // The server's range for a beginning leaves out what goes on with less than a space.
    let collation = column.collation.or(table.collation);
    let is_binary = collation.is_some_and(|name| name.ends_with("_bin"));
    let mut value = || or(compared(rng, &column.kind), "1");
    let (low, high) = (value(), value());
    let third = value();
    match rng.u32(..14) {
        0..4 => seq![name, " = ", low],
        4 => seq![name, " <=> ", low],
        5 => seq![name, " > ", low],
        6 => seq![name, " >= ", low],
        7 => seq![name, " < ", low],
        8 => seq![name, " <> ", low],
        9 => seq![name, " BETWEEN ", low, " AND ", high],
        10 => seq![name, " IN (", crate::sql::list(vec![low, high, third]), ")"],
        11 => seq![name, " IS NULL"],
        12 => seq![name, " IS NOT NULL"],
        _ if column.kind.family() == Family::Text && column.kind != Type::Json && !is_binary => {
            seq![
                name,
                *any(
                    rng,
                    &[
                        " LIKE 'a%'",
                        " LIKE 'A%'",
                        " LIKE '%b'",
                        " LIKE 'ab_'",
                        " LIKE 'ss%'"
                    ]
                )
            ]
        }
        _ => seq![name, " <= ", low],
    }
}

/// A literal that the column is compared with without a warning.
fn compared(rng: &mut Rng, kind: &Type) -> String {
    match kind {
        // Not '': as a member it is found by an index, as a value that was refused it is not.
        Type::Enum => any(rng, &["'a'", "'b'", "'zz'"]).to_string(),
        Type::Set => any(rng, &["'a'", "'b'", "'zz'", "'a,b'", "''"]).to_string(),
        // With more digits than the column has the server finds rows by an index that are not equal.
        Type::Time(_) => any(rng, &["'12:30:15'", "'00:00:00'", "'23:59:59'"]).to_string(),
        Type::Date | Type::Datetime(_) | Type::Timestamp(_) => any(
            rng,
            &[
                "'2024-02-11'",
                "'2024-01-12'",
                "'2024-03-01 12:30:15'",
                "'2000-01-01'",
            ],
        )
        .to_string(),
        kind => kind.value(rng),
    }
}
