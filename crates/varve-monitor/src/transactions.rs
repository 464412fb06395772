//! The transactions that run, by what they pin, as JSON for the page.
//!
//! What their sessions are doing the database does not know: who started the monitor says it ([`Sessions`]).
//! Texts of statements have what people look for and store, so they are for those who have the token (MON-7).

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use varve::{Isolation, OldView, TransactionInfo, TransactionState, ViewInfo};

use crate::verdict;

/// Says what a session is doing, by its number as in
/// [`Transaction::set_session`](varve::Transaction::set_session); `None`: nothing is known of it. The
/// monitor's thread asks, and holds no latch or lock of the database meanwhile.
pub type Sessions = Arc<dyn Fn(u64) -> Option<Session> + Send + Sync>;

/// What a session is doing.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// The statement that runs, or of a session that is idle its last one. About 1 KiB of it is shown.
    pub statement: String,
    /// Since its last statement ended; `None` while one runs.
    pub idle: Option<Duration>,
    /// How long its transaction has been running, if that is known.
    pub active: Option<Duration>,
}

/// A page shows no more.
const SHOWN: usize = 50;
/// Bytes of a statement.
const MOST_OF_STATEMENT: usize = 1024;

/// The heaviest ones, with what `sessions` says of them. The oldest view is known to be that old.
pub fn json(
    running: Vec<TransactionInfo>,
    oldest_view: Option<OldView>,
    sessions: Option<&Sessions>,
) -> Value {
    let session = |trx: &TransactionInfo| match (trx.session, sessions) {
        (0, _) | (_, None) => None,
        (number, Some(tell)) => tell(number),
    };
    let shown = heaviest(running).into_iter();
    shown
        .map(|trx| describe(&trx, oldest_view, session(&trx)))
        .collect()
}

/// First those that keep purge from most undo logs, then those for which the history store keeps most, then
/// those that have changed and locked most rows.
fn heaviest(mut running: Vec<TransactionInfo>) -> Vec<TransactionInfo> {
    let weight = |trx: &TransactionInfo| {
        let pinned = |of: fn(&ViewInfo) -> u64| trx.view.as_ref().map_or(0, of);
        (
            pinned(|view| view.pinned_history),
            pinned(|view| view.pinned_bytes),
            trx.changes + trx.rows_locked,
        )
    };
    // The number, so that equals do not change places from second to second.
    running.sort_by_key(|trx| (Reverse(weight(trx)), trx.number));
    running.truncate(SHOWN);
    running
}

fn describe(
    trx: &TransactionInfo,
    oldest_view: Option<OldView>,
    session: Option<Session>,
) -> Value {
    let view_age = oldest_view
        .filter(|oldest| trx.view.is_some_and(|view| view.number == oldest.number))
        .map(|oldest| oldest.open_for);
    let (statement, idle, active) = match session {
        Some(session) => (
            Some(beginning(session.statement)).filter(|text| !text.is_empty()),
            session.idle,
            session.active,
        ),
        None => (None, None, None),
    };
    json!({
        "name": verdict::name(trx.session, trx.number),
        "number": trx.number,
        "connection": trx.session,
        "state": state(trx),
        "isolation": isolation(trx.isolation),
        "seconds": active.max(view_age).map(|time| time.as_secs()),
        "changes": trx.changes,
        "rows_locked": trx.rows_locked,
        "tables_locked": trx.tables_locked,
        "waited": trx.waits.as_ref().map(|(_, waited)| waited.as_secs_f64()),
        "view": trx.view.map(|view| json!({
            "number": view.number.0,
            "in_history_store": view.in_history_store,
            "pinned_history": view.pinned_history,
            "pinned_undo_bytes": view.pinned_undo_bytes,
            "pinned_versions": view.pinned_versions,
            "pinned_bytes": view.pinned_bytes,
        })),
        "idle": idle.map(|time| time.as_secs()),
        "statement": statement,
    })
}

fn state(trx: &TransactionInfo) -> &'static str {
    match trx.state {
        TransactionState::LockWait => "lock wait",
        TransactionState::RollingBack => "rolling back",
        TransactionState::Committing => "committing",
        TransactionState::Running if trx.prepared => "prepared",
        TransactionState::Running => "running",
    }
}

fn isolation(level: Isolation) -> &'static str {
    match level {
        Isolation::ReadUncommitted => "read uncommitted",
        Isolation::ReadCommitted => "read committed",
        Isolation::RepeatableRead => "repeatable read",
        Isolation::Serializable => "serializable",
    }
}

/// Up to the end of a character.
fn beginning(text: String) -> String {
    if text.len() <= MOST_OF_STATEMENT {
        return text;
    }
    let mut places = (0..=MOST_OF_STATEMENT).rev();
    let end = places.find(|at| text.is_char_boundary(*at));
    format!("{}…", &text[..end.unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use varve::TrxNo;

    use super::*;

    /// With a view that pins undo logs, or bytes of the history store; changes that it made.
    fn transaction(number: u64, pinned: Option<(u64, u64)>, changes: u64) -> TransactionInfo {
        TransactionInfo {
            number,
            id: None,
            session: 0,
            state: TransactionState::Running,
            prepared: false,
            isolation: Isolation::ReadCommitted,
            changes,
            locks: 0,
            rows_locked: 0,
            tables_locked: 0,
            lock_bytes: 0,
            waits: None,
            view: pinned.map(|(pinned_history, pinned_bytes)| ViewInfo {
                pinned_undo_bytes: 0,
                number: TrxNo(number),
                sees_below: varve::TrxId(number),
                in_history_store: pinned_bytes > 0,
                pinned_history,
                pinned_versions: 0,
                pinned_bytes,
            }),
        }
    }

    #[test]
    fn the_heaviest_come_first() {
        let running = vec![
            transaction(7, None, 3),
            transaction(6, None, 3),
            transaction(5, None, 2000),
            transaction(4, Some((0, 0)), 1),
            transaction(3, Some((0, 10)), 0),
            transaction(2, Some((0, 9000)), 0),
            transaction(1, Some((8, 0)), 0),
        ];
        let order: Vec<u64> = heaviest(running).iter().map(|trx| trx.number).collect();
        assert_eq!(order, [1, 2, 3, 5, 6, 7, 4]);
        let many = (0..1000).map(|n| transaction(n, None, n)).collect();
        let shown = heaviest(many);
        assert_eq!((shown.len(), shown[0].number), (SHOWN, 999));
    }

    #[test]
    fn ages_are_those_of_the_session_or_of_the_oldest_view() {
        let oldest = Some(OldView {
            number: TrxNo(9),
            session: 0,
            open_for: Duration::from_secs(60),
            kept: None,
        });
        let seconds = |number, active: Option<u64>| {
            let session = active.map(|seconds| Session {
                active: Some(Duration::from_secs(seconds)),
                ..Session::default()
            });
            describe(&transaction(number, Some((0, 0)), 0), oldest, session)["seconds"].clone()
        };
        assert_eq!(seconds(9, None), json!(60));
        assert_eq!(seconds(9, Some(90)), json!(90));
        assert_eq!(seconds(8, Some(7)), json!(7));
        assert_eq!(seconds(8, None), Value::Null);
    }

    #[test]
    fn the_beginning_of_a_statement_ends_with_a_character() {
        let check = |text: String, chars: usize| {
            let shown = beginning(text.clone());
            let start = shown.strip_suffix('…').unwrap();
            assert_eq!(start.chars().count(), chars);
            assert!(text.starts_with(start));
        };
        assert_eq!(beginning("ä".repeat(512)), "ä".repeat(512));
        check("x".repeat(1025), 1024);
        check("ä".repeat(513), 512);
        check(format!("x{}", "ä".repeat(600)), 512);
        check("🦀".repeat(300), 256);
    }
}
