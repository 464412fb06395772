//! Screens, from answers as a monitor gives them.

use serde_json::json;

use super::*;

fn view() -> View {
    let state = json!({
        "database": "/data/varve",
        "findings": [{"level": "warning", "text": "A snapshot of connection 10 has been open for 28 min"}],
        "transactions": [],
        "lock_waits": [{"waiter": "connection 12", "seconds": 12.5, "wants": "a key of table shop/item",
                        "holders": ["connection 10", "transaction 77"]}],
        "undo_tablespaces": [{"number": 1, "file": "undo_001.vdt", "state": "active", "bytes": 10 << 20,
                              "used_pages": 1234, "history": 5, "truncations": 2}],
    });
    let mut view = View {
        state,
        ..View::default()
    };
    view.series.take(&json!({
        "begun": 1, "next": 3,
        "columns": ["commits", "history_list_length", "checkpoint_age", "checkpoint_max_age"],
        "rows": [[100.0, 5, 1, 25, 100], [101.0, 1005, 2, 25, 100], [103.0, 5005, 123456, 50, 100]],
    }));
    view
}

#[test]
fn numbers_are_those_of_the_newest_sample() {
    let text = text(&view(), (120, 40));
    for wanted in [
        "Varve /data/varve",
        "live",
        "Costs  A snapshot of connection 10 has been open for 28 min",
        // 4000 commits in two seconds.
        "2,000/s",
        "123,456",
        "50.0 %",
        "No transaction is open",
    ] {
        assert!(text.contains(wanted), "{wanted} in\n{text}");
    }
}

#[test]
fn each_table_has_its_turn() {
    let mut view = view();
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(text(&view, (120, 30)));
        view.table = view.table.next();
    }
    assert!(view.table == tables::Shown::default());
    assert!(
        seen[1].contains("connection 10, transaction 77"),
        "{}",
        seen[1]
    );
    assert!(seen[1].contains("12 s"), "{}", seen[1]);
    assert!(seen[2].contains("undo_001.vdt"), "{}", seen[2]);
    assert!(seen[2].contains("10 MiB"), "{}", seen[2]);
}

/// A small one has fewer plots, and no panic.
#[test]
fn any_size_is_drawn() {
    for columns in [20, 40, 79, 200] {
        for lines in [20, 24, 60] {
            let text = text(&view(), (columns, lines));
            assert_eq!(text.lines().count(), usize::from(lines));
            assert!(text.contains("Commits"), "{text}");
        }
    }
}

#[test]
fn what_went_wrong_stands_first() {
    let mut view = view();
    view.error = Some("no monitor answers at 127.0.0.1:1".into());
    let text = text(&view, (100, 30));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("no answer"), "{text}");
    assert!(
        lines[1].starts_with("No answer  no monitor answers"),
        "{text}"
    );
}

/// After a restart the monitor counts from the beginning.
#[test]
fn samples_of_another_start_replace_those_before() {
    let mut view = view();
    let columns = ["commits", "history_list_length"];
    view.series
        .take(&json!({"begun": 2, "next": 1, "columns": columns, "rows": [[200.0, 3, 4]]}));
    assert!(text(&view, (120, 40)).contains("Commits             History"));
    assert_eq!(
        view.series.points(series::Reading::Now("commits")),
        [(0.0, 3.0)]
    );
    assert_eq!(view.series.now(series::Reading::Rate("commits")), None);
}

/// A statement's characters don't steer the terminal.
#[test]
fn control_characters_are_blanks() {
    let mut view = view();
    view.state["transactions"] = json!([{"statement": "SELECT \u{1b}[2J\n1"}]);
    let text = text(&view, (140, 30));
    assert!(text.contains("SELECT  [2J 1"), "{text}");
}
