//! What is now, as JSON for the page.

use serde_json::{Value, json};
use varve::Standing;

use crate::server::Shared;
use crate::transactions;
use crate::verdict::{self, Facts, verdict};

pub fn json(shared: &Shared) -> Value {
    let db = &shared.db;
    let (standing, purge) = (db.standing(), db.purge_standing());
    let undo = db.undo_tablespaces();
    let running = db.transactions();
    let n_running = running.len();
    let transactions = transactions::json(running, standing.oldest_view, shared.sessions());
    let samples = shared.samples();
    let facts = Facts::new(&standing, &purge, &samples);
    let findings = verdict(&facts)
        .into_iter()
        .map(|finding| json!({"level": finding.level.name(), "text": finding.text}));
    let spaces = undo.iter().map(|space| {
        json!({
            "number": space.number,
            "file": space.path,
            "state": space.state.name(),
            "bytes": space.file_bytes,
            "used_pages": space.used_pages,
            "history": space.history_len,
            "truncations": space.truncations,
        })
    });
    json!({
        "database": db.dir().display().to_string(),
        "findings": findings.collect::<Vec<_>>(),
        "undo_tablespaces": spaces.collect::<Vec<_>>(),
        "checkpoint": {
            "age": samples.now("checkpoint_age"),
            "async": samples.now("checkpoint_age_async"),
            "sync": samples.now("checkpoint_age_sync"),
            "max": samples.now("checkpoint_max_age"),
        },
        "oldest_view": oldest_view(&standing),
        "purge_waits_for_view": standing.purge_waits_for.map(|view| view.0),
        "transactions": transactions,
        "transactions_running": n_running,
        "has_statements": shared.sessions().is_some(),
        "lock_waits": lock_waits(&standing),
    })
}

fn oldest_view(standing: &Standing) -> Value {
    standing.oldest_view.map_or(Value::Null, |view| {
        json!({
            "number": view.number.0,
            "connection": view.session,
            "seconds": view.open_for.as_secs(),
            "kept": view.kept.map(|kept| json!({"versions": kept.versions, "bytes": kept.bytes})),
        })
    })
}

/// The first ones: a page shows no more.
fn lock_waits(standing: &Standing) -> Value {
    const SHOWN: usize = 50;
    let waits = standing.lock_waits.iter().take(SHOWN).map(|wait| {
        json!({
            "waiter": verdict::owner(&wait.wanted),
            "seconds": wait.waited.as_secs_f64(),
            "wants": verdict::lock(&wait.wanted),
            "holders": wait.blocking.iter().map(verdict::owner).collect::<Vec<_>>(),
        })
    });
    waits.collect()
}
