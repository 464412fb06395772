//! What the two sides have left in the binary log: statements, and the row events of each.

use anyhow::Result;

use varve_testbed::command;

use crate::side::{ENGINES, Pair, alike, schema};

/// Events of each side, as `mariadb-binlog` shows them, names made alike.
pub fn events(pair: &Pair) -> Result<[Vec<String>; 2]> {
    let shown = command::output(
        pair.prefix
            .program("mariadb-binlog")
            .args(["--no-defaults", "-vv", "--base64-output=decode-rows"])
            .arg(pair.binary_log()),
    )?;
    Ok(sorted_out(&shown, [&pair.sides[0].id, &pair.sides[1].id]))
}

/// Row events name their schema; statements have the number of their connection.
fn sorted_out(shown: &str, connections: [&str; 2]) -> [Vec<String>; 2] {
    let mut events = [Vec::new(), Vec::new()];
    let mut sorted = [0, 0];
    let mut side = None;
    let mut ends = false;
    for line in shown.lines() {
        if let Some(row) = line.strip_prefix("### ") {
            if !row.starts_with(' ') && !["SET", "WHERE"].contains(&row) {
                side = ENGINES
                    .iter()
                    .position(|engine| row.contains(schema(*engine)));
                if let Some(side) = side {
                    events[side].push(String::new());
                }
            }
            append(&mut events, side, row);
        } else if line.starts_with('#') {
            // A statement that takes values of a sequence is not annotated.
            if ends || line.contains("\tAnnotate_rows:") || line.contains("\tQuery\t") {
                sort_rows(&mut events, &mut sorted);
            }
            // Nor are rows of such a statement to come before the statement that was before it.
            ends = line.ends_with(" STMT_END_F") || line.contains("\tQuery\t");
            side = (line.split_once("\tthread_id=")).and_then(|(_, rest)| {
                let id = rest.split_whitespace().next();
                connections
                    .iter()
                    .position(|connection| id == Some(connection))
            });
            if let Some(side) = side {
                events[side].push(String::new());
            }
        } else if !is_setting(line) {
            append(&mut events, side, line);
        }
    }
    sort_rows(&mut events, &mut sorted);
    for side in &mut events {
        side.retain(|event| !event.is_empty());
    }
    events
}

/// In which order a statement came to its rows is the optimizer's affair.
fn sort_rows(events: &mut [Vec<String>; 2], sorted: &mut [usize; 2]) {
    for (events, sorted) in events.iter_mut().zip(sorted) {
        events[*sorted..].sort();
        *sorted = events.len();
    }
}

fn append(events: &mut [Vec<String>; 2], side: Option<usize>, line: &str) {
    if let Some(event) = side.and_then(|side| events[side].last_mut()) {
        event.push_str(&alike(line));
        event.push('\n');
    }
}

fn is_setting(line: &str) -> bool {
    // A savepoint is written down once there is something before it, be it rows that were refused later on.
    [
        "SET ",
        "/*!",
        "use ",
        "BEGIN",
        "COMMIT",
        "START TRANSACTION",
        "DELIMITER",
        "SAVEPOINT",
    ]
    .iter()
    .any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows without an annotation stay behind a statement, though other sides have nothing in between.
    #[test]
    fn rows_stay_behind_a_statement() {
        let shown = "#2 server id 1  end_log_pos 9 \tQuery\tthread_id=5\texec_time=0\nRENAME TABLE t TO u\n\
                     #2 server id 1  end_log_pos 9 \tWrite_rows: table id 3 flags: STMT_END_F\n\
                     ### INSERT INTO `side_v`.`u`\n### SET\n###   @1=8\n";
        let [varve, _] = sorted_out(shown, ["5", "6"]);
        assert_eq!(
            varve,
            [
                "RENAME TABLE t TO u\n",
                "INSERT INTO `side`.`u`\nSET\n  @1=8\n"
            ]
        );
    }

    #[test]
    fn events_go_to_their_sides() {
        let shown = "#2 server id 1  end_log_pos 9 \tQuery\tthread_id=5\texec_time=0\n\
                     use `side_v`/*!*/;\nSET TIMESTAMP=1/*!*/;\nCREATE TABLE t (a INT)\n/*!*/;\n# at 9\n\
                     ### INSERT INTO `side_i`.`t`\n### SET\n###   @1=7\n\
                     ### INSERT INTO `side_v`.`t`\n### SET\n###   @1=8\n";
        let [varve, innodb] = sorted_out(shown, ["5", "6"]);
        assert_eq!(innodb, ["INSERT INTO `side`.`t`\nSET\n  @1=7\n"]);
        assert_eq!(
            varve,
            [
                "CREATE TABLE t (a INT)\n",
                "INSERT INTO `side`.`t`\nSET\n  @1=8\n"
            ]
        );
    }
}
