//! Several sessions: a script is played on one engine, then on the other, and what there was to see is
//! compared step by step.
//!
//! A session that has not answered waits for a lock when the engine counts as many waits as there are
//! sessions without an answer. Then the script goes on with the others; the statements of who waits are put
//! off.
//!
//! InnoDB locks more: gaps up to the next key, and rows that did not match or were refused
//! (docs/isolation.md, docs/foreign_keys.md). So a wait that only InnoDB has is right, and the script ends
//! there, because from then on the sessions are at different places. A wait that only Varve has is a
//! difference, but for one: the duplicate that an insert meets in a secondary index is locked with its row.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use varve_testbed::client::{Answer, Client, SqlError, SqlResult};
use varve_testbed::server::{Engine, Server};
use varve_testbed::session::Session;

use crate::script::Script;
use crate::side::{alike, schema};

/// How often an answer is looked for before the engine is asked who waits.
const GLANCE: Duration = Duration::from_millis(1);
/// A wait for something else than a row shows only by its length.
const PATIENCE: Duration = Duration::from_millis(700);
const TOO_LONG: Duration = Duration::from_secs(100);

/// What one step showed: the answers that came, by session, and who waits afterwards.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Seen {
    pub answers: BTreeMap<usize, String>,
    pub waiting: Vec<usize>,
}

fn shown(answer: SqlResult<Answer>) -> Result<String> {
    match answer {
        Err(SqlError::Server { code, message }) => Ok(format!("error {code}: {}", alike(&message))),
        Err(error @ SqlError::Lost(_)) => Err(error.into()),
        Ok(mut answer) => Ok(match &mut answer.rows {
            None => format!("{} affected; {}", answer.affected, answer.info),
            Some(rows) => {
                rows.sort();
                format!("rows {}", answer.rows_text())
            }
        }),
    }
}

/// The sessions of one script on one engine.
struct Stage<'a> {
    engine: Engine,
    watch: &'a mut Client,
    sessions: Vec<Session>,
}

impl Stage<'_> {
    /// How many wait for a row's lock.
    fn waits(&mut self) -> Result<usize> {
        let variable = format!("{}_row_lock_current_waits", self.engine.option_prefix());
        let rows = self
            .watch
            .query(&format!("SHOW GLOBAL STATUS LIKE '{variable}'"))?;
        let value = rows.first().and_then(|row| row.get(1)?.clone());
        let value = value.with_context(|| format!("the server has no {variable}"))?;
        Ok(value.parse()?)
    }

    /// Takes answers until all that have not answered wait for locks.
    fn settle(&mut self, seen: &mut Seen) -> Result<()> {
        let begin = Instant::now();
        let mut waits = 0;
        loop {
            for (number, session) in self.sessions.iter_mut().enumerate() {
                if session.is_waiting()
                    && let Some(answer) = session.answer(GLANCE)?
                {
                    seen.answers.insert(number, shown(answer)?);
                }
            }
            let unanswered = self
                .sessions
                .iter()
                .filter(|session| session.is_waiting())
                .count();
            // A wait may be about to end in a deadlock: it must be there twice.
            waits = match unanswered > 0 && self.waits()? == unanswered {
                true => waits + 1,
                false => 0,
            };
            if unanswered == 0 || waits == 2 || begin.elapsed() > PATIENCE {
                break;
            }
        }
        let sessions = self.sessions.iter().enumerate();
        seen.waiting = sessions
            .filter(|(_, session)| session.is_waiting())
            .map(|(n, _)| n)
            .collect();
        Ok(())
    }
}

/// Plays a script; returns what each step showed, with its statement.
fn play(
    server: &Server,
    watch: &mut Client,
    script: &Script,
    engine: Engine,
) -> Result<Vec<(String, Seen)>> {
    let schema = schema(engine);
    let mut first = Session::open(server)?;
    let begin = [
        format!("DROP DATABASE IF EXISTS {schema}"),
        format!("CREATE DATABASE {schema}"),
        format!("USE {schema}"),
        format!("SET default_storage_engine={}", engine.name()),
    ];
    for sql in begin.iter().chain(&script.tables) {
        let answer = shown(first.ask(sql, TOO_LONG)?)?;
        ensure!(!answer.starts_with("error"), "{sql}: {answer}");
    }
    let mut sessions = Vec::new();
    for level in &script.levels {
        let mut session = Session::open(server)?;
        session.ask(&format!("USE {schema}"), TOO_LONG)??;
        let level = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
        session.ask(&level, TOO_LONG)??;
        sessions.push(session);
    }
    let mut stage = Stage {
        engine,
        watch,
        sessions,
    };
    let mut played: Vec<(String, Seen)> = Vec::new();
    let begun = Instant::now();
    let mut rest = script.steps.clone();
    // Transactions end in turn, so that nobody waits for ever.
    for session in 0..script.levels.len() {
        rest.push(crate::script::Step {
            session,
            sql: "COMMIT".into(),
        });
    }
    while !rest.is_empty() {
        let mut seen = Seen::default();
        let Some(next) = (rest.iter()).position(|step| !stage.sessions[step.session].is_waiting())
        else {
            // They can't all wait for each other: one of them is slow.
            ensure!(
                begun.elapsed() < TOO_LONG,
                "all sessions wait for each other"
            );
            stage.settle(&mut seen)?;
            if let Some((_, last)) = played.last_mut() {
                last.answers.append(&mut seen.answers);
                last.waiting = seen.waiting;
            }
            continue;
        };
        let step = rest.remove(next);
        stage.sessions[step.session].say(&step.sql)?;
        stage.settle(&mut seen)?;
        played.push((format!("{}: {}", step.session, step.sql), seen));
    }
    for table in ["p", "c"] {
        let mut seen = Seen::default();
        let rows = first.ask(&format!("SELECT * FROM {table}"), TOO_LONG)?;
        seen.answers.insert(0, shown(rows)?);
        played.push((format!("in the end: {table}"), seen));
    }
    Ok(played)
}

/// Whether the rows of one statement have numbers of the counter that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    Together,
    /// `autoinc_lock_mode` is 2, or a statement has failed: it depends on how many are drawn at a time.
    Mixed,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Step for step.
    Same,
    /// Until InnoDB kept a lock that Varve does not take, or chose another victim.
    SameUntil(&'static str),
    Different(String),
}

/// Compares what the steps showed.
fn judge(
    varve: &[(String, Seen)],
    innodb: &[(String, Seen)],
    levels: &[&str],
    numbers: Numbers,
) -> Verdict {
    let mut waiting = Vec::new();
    let mut duplicates = false;
    let mut numbers = numbers;
    for ((sql, ours), (_, its)) in varve.iter().zip(innodb) {
        let was_waiting = std::mem::replace(&mut waiting, ours.waiting.clone());
        let waited = was_waiting.len();
        duplicates |= its
            .answers
            .values()
            .any(|answer| tells_of_duplicate(answer));
        let has = |seen: &Seen, code| seen.answers.values().any(|answer| is_error(answer, code));
        // Rows that go to the engine together have drawn numbers before the first of them waits in vain.
        if has(ours, "1205") || has(ours, "1213") {
            numbers = Numbers::Mixed;
        }
        if ours == its {
            continue;
        }
        if let Some(reason) = allowed(ours, its) {
            return Verdict::SameUntil(reason);
        }
        // The row that is inserted is there until its duplicate is found, whose row is waited for.
        if sees_more_uncommitted(ours, its, levels) {
            return Verdict::SameUntil("a row that a waiting insert will take back");
        }
        let is_end = sql == "in the end: c";
        if numbers == Numbers::Mixed && is_end && without_numbers(ours) == without_numbers(its) {
            return Verdict::SameUntil("numbers that statements draw in turn");
        }
        if duplicates && has(ours, "1213") {
            return Verdict::SameUntil("a deadlock over a duplicate's row");
        }
        // The row that has the key is locked here, its entry in the index there (docs/isolation.md).
        if duplicates && waits_more(ours, its) {
            return Verdict::SameUntil("the lock of a duplicate's row");
        }
        // A search that has waited looks again from the row before, InnoDB's from the one it waited for.
        let searched = |seen: &Seen, n: &usize| {
            let answer = seen.answers.get(n);
            answer.is_some_and(|answer| answer.starts_with("rows ") || answer.contains("Records: "))
        };
        if was_waiting
            .iter()
            .any(|n| searched(ours, n) && searched(its, n))
        {
            return Verdict::SameUntil("rows put before one that was waited for");
        }
        // Let on at once, they race for the next lock.
        if waited > 1 && ours.waiting.len() < waited {
            return Verdict::SameUntil("a race of two that were let on");
        }
        let say = |seen: &Seen| {
            let answers = seen
                .answers
                .iter()
                .map(|(n, answer)| format!("{n}: {answer}"));
            let waits = seen.waiting.iter().map(|n| format!("{n} waits"));
            answers.chain(waits).collect::<Vec<_>>().join("; ")
        };
        return Verdict::Different(format!(
            "{sql}\n-- VARVE:  {}\n-- InnoDB: {}",
            say(ours),
            say(its)
        ));
    }
    Verdict::Same
}

/// While others wait, one at READ UNCOMMITTED reads all that InnoDB's reads, and more.
fn sees_more_uncommitted(ours: &Seen, its: &Seen, levels: &[&str]) -> bool {
    let more = |(n, answer): (&usize, &String)| {
        let (Some(answer), Some(other)) = (
            answer.strip_prefix("rows "),
            its.answers.get(n).and_then(|its| its.strip_prefix("rows ")),
        ) else {
            return false;
        };
        let rows: Vec<&str> = answer.split(' ').collect();
        let mut others = other.split(' ').filter(|row| !row.is_empty());
        levels[*n] == "READ UNCOMMITTED" && others.all(|row| rows.contains(&row))
    };
    !ours.waiting.is_empty() && ours.waiting == its.waiting && ours.answers.iter().all(more)
}

/// The rows without their first column.
fn without_numbers(seen: &Seen) -> Vec<&str> {
    let rows = seen
        .answers
        .values()
        .flat_map(|answer| answer.split(' ').skip(1));
    let mut rows: Vec<&str> = rows
        .filter_map(|row| Some(row.split_once(',')?.1))
        .collect();
    rows.sort();
    rows
}

fn is_error(answer: &str, code: &str) -> bool {
    answer
        .strip_prefix("error ")
        .is_some_and(|rest| rest.starts_with(code))
}

/// Whoever answers on both sides says the same; some of the first wait more, or would have to.
fn waits_more(more: &Seen, less: &Seen) -> bool {
    let same = more
        .answers
        .iter()
        .all(|(n, answer)| match less.answers.get(n) {
            Some(other) => other == answer || answer.starts_with("error 1205"),
            None => false,
        });
    same && less.waiting.iter().all(|n| more.waiting.contains(n))
}

/// An error, or what `INSERT IGNORE`, `REPLACE` and `ON DUPLICATE KEY UPDATE` say.
fn tells_of_duplicate(answer: &str) -> bool {
    answer.starts_with("error 1062") || ["0 affected; ", "2 affected; "].contains(&answer)
}

fn allowed(ours: &Seen, its: &Seen) -> Option<&'static str> {
    let has = |seen: &Seen, code| seen.answers.values().any(|answer| is_error(answer, code));
    if has(its, "1213") {
        // Who is chosen depends on how many locks each has; InnoDB's count gaps and rows that Varve's do not.
        return Some(if has(ours, "1213") {
            "another victim"
        } else {
            "a deadlock of InnoDB's"
        });
    }
    if has(its, "1451") && (has(ours, "1062") || has(ours, "1452")) {
        return Some("a row with several errors");
    }
    let victim = ours
        .answers
        .iter()
        .find(|(_, answer)| is_error(answer, "1213"));
    if victim.is_some_and(|(n, _)| its.waiting.contains(n)) {
        return Some("a deadlock at a row, where InnoDB still waits at an index's entry");
    }
    if has(its, "1467") && has(ours, "1213") {
        return Some("a deadlock at the counter, which InnoDB words otherwise");
    }
    // Whoever answers on both sides says the same; on InnoDB's side some wait more.
    let same = its
        .answers
        .iter()
        .all(|(n, answer)| match ours.answers.get(n) {
            Some(own) => own == answer || is_error(answer, "1205"),
            None => false,
        });
    let waits_more = ours.waiting.iter().all(|n| its.waiting.contains(n));
    (same && waits_more && !has(ours, "1213")).then_some("a wait of InnoDB's")
}

/// Plays a script on both and compares. What differs must do so again: purge runs when it likes.
pub fn compare(
    server: &Server,
    watch: &mut Client,
    script: &Script,
    numbers: Numbers,
) -> Result<Verdict> {
    let mut verdict = Verdict::Same;
    for _ in 0..2 {
        let varve = play(server, watch, script, Engine::Varve)?;
        let innodb = play(server, watch, script, Engine::Innodb)?;
        verdict = judge(&varve, &innodb, &script.levels, numbers);
        if !matches!(verdict, Verdict::Different(_)) {
            break;
        }
    }
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(answers: &[(usize, &str)], waiting: &[usize]) -> Seen {
        Seen {
            answers: answers
                .iter()
                .map(|(n, answer)| (*n, answer.to_string()))
                .collect(),
            waiting: waiting.to_vec(),
        }
    }

    #[test]
    fn only_innodb_may_wait_alone() {
        let done = seen(&[(0, "1 affected; ")], &[]);
        let other = seen(&[(0, "2 affected; ")], &[]);
        let waits = seen(&[], &[0]);
        let refused = seen(&[(0, "error 1205: Lock wait timeout exceeded")], &[]);
        let victim = seen(&[(0, "error 1213: Deadlock found")], &[]);
        assert_eq!(allowed(&done, &waits), Some("a wait of InnoDB's"));
        assert_eq!(allowed(&done, &refused), Some("a wait of InnoDB's"));
        assert_eq!(allowed(&done, &victim), Some("a deadlock of InnoDB's"));
        for (ours, its) in [
            (&waits, &done),
            (&refused, &done),
            (&victim, &done),
            (&other, &done),
        ] {
            assert_eq!(allowed(ours, its), None, "{ours:?} {its:?}");
        }
    }

    #[test]
    fn varve_waits_alone_only_after_a_duplicate() {
        let step = |seen: Seen| (String::new(), seen);
        let waits = step(seen(&[], &[1]));
        let done = step(seen(&[(1, "rows 1,1")], &[]));
        let duplicate = step(seen(
            &[(0, "error 1062: Duplicate entry '4' for key 'u'")],
            &[],
        ));
        let verdict = judge(
            &[duplicate.clone(), waits.clone()],
            &[duplicate, done.clone()],
            &[],
            Numbers::Together,
        );
        assert_eq!(verdict, Verdict::SameUntil("the lock of a duplicate's row"));
        assert!(matches!(
            judge(&[waits], &[done], &[], Numbers::Together),
            Verdict::Different(_)
        ));
    }

    #[test]
    fn numbers_may_be_others_only_where_statements_draw_in_turn() {
        let end = |rows| [("in the end: c".to_string(), seen(&[(0, rows)], &[]))];
        let (ours, its) = (end("rows 1,NULL,0 23,14,3"), end("rows 25,14,3 26,NULL,0"));
        let verdict = |numbers| judge(&ours, &its, &["SERIALIZABLE"], numbers);
        assert!(matches!(verdict(Numbers::Mixed), Verdict::SameUntil(_)));
        assert!(matches!(verdict(Numbers::Together), Verdict::Different(_)));
        let other = judge(
            &ours,
            &end("rows 1,NULL,1 23,14,3"),
            &["SERIALIZABLE"],
            Numbers::Mixed,
        );
        assert!(matches!(other, Verdict::Different(_)));
    }

    #[test]
    fn more_rows_are_right_where_others_wait_and_nothing_need_be_committed() {
        let rows = |text| seen(&[(0, text)], &[1]);
        let (more, less, other) = (rows("rows 1,1 22,4"), rows("rows 1,1"), rows("rows 1,2"));
        let dirty = ["READ UNCOMMITTED"; 2];
        assert!(sees_more_uncommitted(&more, &less, &dirty));
        assert!(sees_more_uncommitted(&more, &rows("rows "), &dirty));
        for (ours, its, levels) in [
            (&less, &more, dirty),
            (&more, &other, dirty),
            (&more, &less, ["READ COMMITTED"; 2]),
        ] {
            assert!(!sees_more_uncommitted(ours, its, &levels));
        }
    }
}
