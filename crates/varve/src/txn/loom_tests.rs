//! Every interleaving (up to a bound on preemptions) of small pieces of the protocol of txn/mod.rs. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p varve --lib --target-dir target/loom txn::loom_tests`.
//!
//! The ring has eight words in four segments. Its first id is 8, so ids 8 to 15 are the first lap, and the
//! thread that draws 15 retires 8 and 9.

use std::sync::Arc;

use loom::thread;

use super::sys::Shape;
use super::{IdLimitLog, IdState, Member, ReadView, TxnSys, Visibility};
use crate::base::sync::{AtomicU64, Ordering};
use crate::base::{Result, TrxId, TrxNo, model};

struct NoLog;

impl IdLimitLog for NoLog {
    fn raise(&self, _: u64) -> Result<()> {
        Ok(())
    }
}

const FIRST: u64 = 8;

fn small() -> Arc<TxnSys> {
    let shape = Shape {
        ring_bits: 3,
        segment_bits: 1,
        slots: 2,
    };
    let sys = TxnSys::with_shape(FIRST, Box::new(NoLog), shape);
    // No test is about the first raise of the id limit.
    commit(&sys, sys.assign_id().unwrap());
    Arc::new(sys)
}

fn commit(sys: &TxnSys, id: TrxId) -> TrxNo {
    let no = sys.start_commit(id);
    sys.finish_commit(id, no);
    no
}

fn spawn<T: 'static>(
    sys: &Arc<TxnSys>,
    f: impl FnOnce(&TxnSys) -> T + 'static,
) -> thread::JoinHandle<T> {
    let sys = sys.clone();
    thread::spawn(move || f(&sys))
}

/// What the view must say in the end.
fn verdict(view: &ReadView, no: TrxNo) -> Visibility {
    if no < view.number() {
        Visibility::Visible
    } else {
        Visibility::Invisible
    }
}

/// An answer that was given while the transaction committed must be the final one.
fn check_answer(view: &ReadView, answer: Visibility, no: TrxNo) {
    if answer != Visibility::Unsettled {
        assert_eq!(answer, verdict(view, no), "VIEW-1: {view:?} number {no}");
    }
}

#[test]
fn a_view_never_flips() {
    model::check(3, || {
        let sys = small();
        let id = sys.assign_id().unwrap();
        let writer = spawn(&sys, move |sys| commit(sys, id));
        let view = sys.open_view(None);
        let first = view.sees(id);
        let second = view.sees(id);
        let no = writer.join().unwrap();
        check_answer(&view, first, no);
        check_answer(&view, second, no);
        assert_eq!(view.sees(id), verdict(&view, no));
    });
}

/// TXN-2: a transaction that starts to commit after it found another finished has the larger number, and no
/// view sees only the later.
#[test]
fn dependents_have_larger_numbers() {
    model::check(2, || {
        let sys = small();
        let a = sys.assign_id().unwrap();
        let b = sys.assign_id().unwrap();
        let first = spawn(&sys, move |sys| commit(sys, a));
        let second = spawn(&sys, move |sys| {
            let depends = !sys.is_unfinished(a);
            (depends, commit(sys, b))
        });
        let view = sys.open_view(None);
        let (sees_b, sees_a) = (view.sees(b), view.sees(a));
        let no_a = first.join().unwrap();
        let (depends, no_b) = second.join().unwrap();
        if depends {
            assert!(no_a < no_b, "{no_a} {no_b}");
            assert!(sees_b != Visibility::Visible || sees_a == Visibility::Visible);
        }
        check_answer(&view, sees_a, no_a);
        check_answer(&view, sees_b, no_b);
    });
}

/// VIEW-2 and TXN-3: a limit never passes a view that is open, nor a commit that is not complete.
#[test]
fn the_purge_limit_passes_neither_views_nor_commits() {
    model::check(2, || {
        let sys = small();
        let id = sys.assign_id().unwrap();
        let writer = spawn(&sys, move |sys| commit(sys, id));
        let purge = spawn(&sys, move |sys| {
            let limit = sys.purge_limit();
            (limit, sys.is_unfinished(id))
        });
        let view = sys.open_view(None);
        let (limit, unfinished) = purge.join().unwrap();
        assert!(limit <= view.number(), "VIEW-2: limit {limit} {view:?}");
        let no = writer.join().unwrap();
        if unfinished {
            assert!(limit <= no, "TXN-3: limit {limit} number {no}");
        }
        assert!(sys.purge_limit() <= view.number());
    });
}

/// A walk that makes a member of each view that holds purge back.
fn purge_past_all(sys: &TxnSys) -> (TrxNo, Vec<TrxNo>) {
    let mut members = Vec::new();
    let limit = sys.purge_limit_past(|_| true, &mut members);
    (limit, members.iter().map(Member::number).collect())
}

/// VIEW-2: what is below the limit is seen by the view, or copied for it.
fn check_kept(view: &ReadView, (limit, members): &(TrxNo, Vec<TrxNo>)) {
    let is_copied_for = view.is_member() && members.contains(&view.number());
    assert!(
        *limit <= view.number() || is_copied_for,
        "VIEW-2: limit {limit} {view:?} {members:?}"
    );
}

/// A view that opens either becomes a member that purge knows, or sees all that purge removes. Whoever meets
/// something removed that it does not see finds itself a member.
#[test]
fn a_view_that_opens_is_a_member_or_sees_the_limit() {
    model::check(3, || {
        let sys = small();
        let id = sys.assign_id().unwrap();
        let removed_below = Arc::new(AtomicU64::new(0));
        let purge = spawn(&sys, {
            let removed_below = removed_below.clone();
            move |sys| {
                commit(sys, id);
                let first = purge_past_all(sys);
                // As the latch of what is removed does.
                removed_below.store(first.0.0, Ordering::Release);
                (first, purge_past_all(sys))
            }
        });
        let view = sys.open_view(None);
        let removed_below = removed_below.load(Ordering::Acquire);
        assert!(removed_below <= view.number().0 || view.is_member());
        let (first, second) = purge.join().unwrap();
        check_kept(&view, &first);
        check_kept(&view, &second);
        check_kept(&view, &purge_past_all(&sys));
    });
}

/// A view takes the place of a member while purge walks.
#[test]
fn a_view_that_takes_a_members_place_is_none_or_known() {
    model::check(3, || {
        let sys = small();
        let first = sys.open_view(None);
        commit(&sys, sys.assign_id().unwrap());
        check_kept(&first, &purge_past_all(&sys));
        assert!(first.is_member());
        let id = sys.assign_id().unwrap();
        let purge = spawn(&sys, move |sys| {
            commit(sys, id);
            (purge_past_all(sys), purge_past_all(sys))
        });
        let second = first.close().open(None);
        let (one, two) = purge.join().unwrap();
        check_kept(&second, &one);
        check_kept(&second, &two);
        commit(&sys, sys.assign_id().unwrap());
        check_kept(&second, &purge_past_all(&sys));
    });
}

/// TXN-1, with numbers and ids drawn on both sides of `low`.
#[test]
fn low_passes_only_what_is_finished() {
    model::check(3, || {
        let sys = small();
        let a = sys.assign_id().unwrap();
        let b = sys.assign_id().unwrap();
        let first = spawn(&sys, move |sys| commit(sys, a));
        let second = spawn(&sys, move |sys| sys.abort(b));
        let low = sys.ids.low.load(Ordering::Acquire);
        for id in [a, b] {
            let state = sys.ids.ring.get(id.0);
            let unfinished = matches!(state, super::ring::Word::State(s) if s.is_unfinished());
            assert!(low <= id.0 || !unfinished, "low {low} {id:?} {state:?}");
        }
        first.join().unwrap();
        second.join().unwrap();
        commit(&sys, sys.assign_id().unwrap());
        assert!(sys.ids.low.load(Ordering::Acquire) > b.0);
    });
}

/// A ring that is one id short of retiring its first segment: `writer` (10) is unfinished, `done` (11)
/// committed after `old` opened.
fn about_to_retire() -> (Arc<TxnSys>, TrxId, TrxId, ReadView) {
    let sys = small();
    let writer = sys.assign_id().unwrap();
    let done = sys.assign_id().unwrap();
    let old = sys.open_view(None);
    commit(&sys, done);
    while sys.next_id() < 17 {
        commit(&sys, sys.assign_id().unwrap());
    }
    assert_eq!((writer, done), (TrxId(10), TrxId(11)));
    (sys, writer, done, old)
}

/// The words of 10 and 11 are written again: the thread that draws 17 retires them.
fn reuse_words(sys: &TxnSys) {
    for _ in 0..3 {
        sys.assign_id().unwrap();
    }
}

#[test]
fn a_straggler_commits_while_its_segment_is_retired() {
    model::check(2, || {
        let (sys, writer, done, old) = about_to_retire();
        let before = sys.open_view(None);
        let drawer = spawn(&sys, reuse_words);
        let no = commit(&sys, writer);
        let after = sys.open_view(None);
        assert_eq!(after.sees(writer), Visibility::Visible);
        drawer.join().unwrap();
        assert!(no >= before.number());
        assert_eq!(
            (old.sees(writer), old.sees(done)),
            (Visibility::Invisible, Visibility::Invisible)
        );
        assert_eq!(before.sees(writer), Visibility::Invisible);
        assert_eq!(
            (before.sees(done), after.sees(done)),
            (Visibility::Visible, Visibility::Visible)
        );
        assert_eq!(after.sees(writer), Visibility::Visible);
        assert!(!sys.is_unfinished(writer));
    });
}

#[test]
fn views_open_and_ask_while_a_segment_is_retired() {
    model::check(2, || {
        let (sys, writer, done, old) = about_to_retire();
        let drawer = spawn(&sys, reuse_words);
        assert_eq!(
            (old.sees(writer), old.sees(done)),
            (Visibility::Invisible, Visibility::Invisible)
        );
        let young = sys.open_view(None);
        assert_eq!(
            (young.sees(writer), young.sees(done)),
            (Visibility::Invisible, Visibility::Visible)
        );
        drawer.join().unwrap();
        let no = commit(&sys, writer);
        assert!(no >= young.number());
        assert_eq!(
            (old.sees(writer), old.sees(done)),
            (Visibility::Invisible, Visibility::Invisible)
        );
        assert_eq!(
            (young.sees(writer), young.sees(done)),
            (Visibility::Invisible, Visibility::Visible)
        );
    });
}

/// A view has drawn its number and is not published yet, while a transaction commits, and its segment is
/// retired.
#[test]
fn a_view_opens_while_a_commit_is_retired() {
    model::check(2, || {
        let sys = small();
        let last = sys.assign_id().unwrap();
        while sys.next_id() < 15 {
            commit(&sys, sys.assign_id().unwrap());
        }
        let drawer = spawn(&sys, move |sys| {
            let no = commit(sys, last);
            reuse_words(sys);
            no
        });
        let view = sys.open_view(None);
        let answer = view.sees(last);
        let no = drawer.join().unwrap();
        check_answer(&view, answer, no);
        assert_eq!(view.sees(last), verdict(&view, no));
    });
}

/// A straggler leaves the map while a view opens.
#[test]
fn a_straggler_settles_while_a_view_opens() {
    model::check(2, || {
        let (sys, writer, _, old) = about_to_retire();
        sys.abort(sys.assign_id().unwrap());
        sys.abort(sys.assign_id().unwrap());
        assert_eq!(sys.ids.stragglers.get(writer.0), Some(IdState::Active));
        let committer = spawn(&sys, move |sys| commit(sys, writer));
        let young = sys.open_view(None);
        let answer = young.sees(writer);
        let no = committer.join().unwrap();
        check_answer(&young, answer, no);
        assert_eq!(young.sees(writer), verdict(&young, no));
        assert_eq!(old.sees(writer), Visibility::Invisible);
    });
}
