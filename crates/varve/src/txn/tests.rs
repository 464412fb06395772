//! The transaction system against a sequential oracle: what a view may answer follows from the numbers alone,
//! once everything has finished. Rings are tiny, so that every few dozen ids a segment is reused.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::sys::Shape;
use super::{IdLimitLog, IdState, Member, ReadView, TxnSys, Visibility};
use crate::base::{Error, Result, TrxId, TrxNo};

#[derive(Default, Clone)]
struct Log {
    limit: Arc<AtomicU64>,
    raises: Arc<AtomicU64>,
    broken: Arc<AtomicBool>,
}

impl IdLimitLog for Log {
    fn raise(&self, new_limit: u64) -> Result<()> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(Error::Poisoned {
                why: "test".to_string(),
            });
        }
        let before = self.limit.swap(new_limit, Ordering::SeqCst);
        assert!(
            before < new_limit,
            "limit fell from {before} to {new_limit}"
        );
        self.raises.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

const TINY: Shape = Shape {
    ring_bits: 6,
    segment_bits: 3,
    slots: 2,
};

fn tiny(first: u64) -> TxnSys {
    TxnSys::with_shape(first, Box::new(Log::default()), TINY)
}

fn commit(sys: &TxnSys, id: TrxId) -> TrxNo {
    let no = sys.start_commit(id);
    sys.finish_commit(id, no);
    no
}

/// Uses up `n` ids and numbers with transactions that nobody asks about.
fn pass(sys: &TxnSys, n: u64) {
    for _ in 0..n / 2 {
        commit(sys, sys.assign_id().unwrap());
    }
}

#[test]
fn a_view_sees_what_committed_before_it_opened() {
    let sys = tiny(100);
    let (a, b, c, d) = (
        sys.assign_id().unwrap(),
        sys.assign_id().unwrap(),
        sys.assign_id().unwrap(),
        sys.assign_id().unwrap(),
    );
    commit(&sys, a);
    let view = sys.open_view(Some(c));
    sys.abort(b);
    let late = sys.assign_id().unwrap();
    commit(&sys, d);
    commit(&sys, late);
    for (id, want) in [
        (TrxId(0), Visibility::Visible),
        (TrxId(99), Visibility::Visible),
        (a, Visibility::Visible),
        (b, Visibility::Invisible),
        (c, Visibility::Visible),
        (d, Visibility::Invisible),
        (late, Visibility::Invisible),
        (TrxId(1 << 50), Visibility::Invisible),
    ] {
        assert_eq!(view.sees(id), want, "{id:?}");
    }
    drop(view);
    let mut view = sys.open_view(None);
    assert_eq!(
        (view.sees(d), view.sees(late)),
        (Visibility::Visible, Visibility::Visible)
    );
    let before = sys.open_view(None);
    let own = sys.assign_id().unwrap();
    view.set_own(own);
    assert_eq!(
        (view.sees(own), before.sees(own)),
        (Visibility::Visible, Visibility::Invisible)
    );
}

fn numbers(members: &[Member]) -> Vec<TrxNo> {
    members.iter().map(Member::number).collect()
}

/// A view that holds purge back becomes a member if it is named, once; the next view of its place is none.
#[test]
fn the_limit_passes_members_only() {
    let sys = tiny(1);
    let mut members = Vec::new();
    let (old, other) = (sys.open_view(None), sys.open_view(None));
    let commit = || commit(&sys, sys.assign_id().unwrap());
    assert_eq!(
        sys.purge_limit_past(|_| panic!("nobody holds back"), &mut members),
        old.number()
    );
    commit();
    let young = sys.open_view(None);
    let mut asked = Vec::new();
    let limit = sys.purge_limit_past(
        |key| {
            asked.push(key);
            false
        },
        &mut members,
    );
    assert_eq!((limit, asked.len(), members.len()), (old.number(), 2, 0));
    let limit = sys.purge_limit_past(|key| key == asked[0], &mut members);
    assert_eq!(
        (limit, numbers(&members)),
        (other.number(), vec![old.number()])
    );
    assert!(old.is_member() != other.is_member() && !young.is_member());
    let limit = sys.purge_limit_past(|_| true, &mut members);
    assert_eq!(
        (limit, numbers(&members)),
        (young.number(), vec![old.number(), other.number()])
    );
    assert!(old.is_member() && other.is_member() && !young.is_member());
    drop(other);
    let again = old.close().open(None);
    commit();
    assert!(!again.is_member());
    assert_eq!(
        sys.purge_limit_past(|_| false, &mut members),
        young.number()
    );
    assert!(members.is_empty());
    drop((young, again));
    assert_eq!(sys.purge_limit().0, sys.next_id());
}

#[test]
fn a_place_without_a_view_holds_nothing_back() {
    let sys = tiny(1);
    let place = sys.open_view(None).close();
    let id = sys.assign_id().unwrap();
    let no = commit(&sys, id);
    assert_eq!(sys.view_numbers(), []);
    let view = place.open(None);
    assert_eq!(sys.view_numbers(), [view.number()]);
    assert!(view.number() > no);
    assert_eq!(view.sees(id), Visibility::Visible);
}

#[test]
fn a_committing_transaction_is_unsettled_only_for_views_that_could_see_it() {
    let sys = tiny(1);
    let id = sys.assign_id().unwrap();
    let before = sys.open_view(None);
    pass(&sys, 2);
    let no = sys.start_commit(id);
    let after = sys.open_view(None);
    assert_eq!(before.sees(id), Visibility::Invisible);
    assert_eq!(after.sees(id), Visibility::Unsettled);
    assert!(sys.is_unfinished(id));
    sys.finish_commit(id, no);
    sys.wait_settled(id, || Ok(())).unwrap();
    assert_eq!(
        (before.sees(id), after.sees(id)),
        (Visibility::Invisible, Visibility::Visible)
    );
    assert!(!sys.is_unfinished(id));
}

/// STRAG-1 and STRAG-3: a writer and a view that outlive many laps of the ring, and what happens around
/// them.
#[test]
fn stragglers_outlive_the_ring() {
    let sys = tiny(1);
    let writer = sys.assign_id().unwrap();
    let loser = sys.assign_id().unwrap();
    let soon = sys.assign_id().unwrap();
    let old = sys.open_view(None);
    let soon_no = commit(&sys, soon);
    pass(&sys, 1000);
    let middle = sys.open_view(None);
    let ask = |view: &ReadView| (view.sees(writer), view.sees(loser), view.sees(soon));
    assert_eq!(
        ask(&old),
        (
            Visibility::Invisible,
            Visibility::Invisible,
            Visibility::Invisible
        )
    );
    assert_eq!(
        ask(&middle),
        (
            Visibility::Invisible,
            Visibility::Invisible,
            Visibility::Visible
        )
    );
    assert_eq!(
        sys.unfinished(),
        [(writer, IdState::Active), (loser, IdState::Active)]
    );
    sys.prepare(writer);
    assert_eq!(sys.unfinished()[0], (writer, IdState::Prepared));
    let no = sys.start_commit(writer);
    let during = sys.open_view(None);
    assert_eq!(middle.sees(writer), Visibility::Invisible);
    assert_eq!(during.sees(writer), Visibility::Unsettled);
    assert!(sys.purge_limit() <= soon_no, "the old view pins everything");
    sys.finish_commit(writer, no);
    sys.abort(loser);
    let young = sys.open_view(None);
    for _ in 0..5 {
        assert_eq!(
            ask(&old),
            (
                Visibility::Invisible,
                Visibility::Invisible,
                Visibility::Invisible
            )
        );
        assert_eq!(
            ask(&middle),
            (
                Visibility::Invisible,
                Visibility::Invisible,
                Visibility::Visible
            )
        );
        assert_eq!(during.sees(writer), Visibility::Visible);
        assert_eq!(ask(&young).0, Visibility::Visible);
        pass(&sys, 300);
    }
    assert_eq!(
        sys.ids.stragglers.list(),
        [],
        "finished stragglers are forgotten"
    );
    assert_eq!(sys.unfinished(), []);
}

#[test]
fn low_passes_stragglers_and_follows_the_counter_when_all_is_finished() {
    let sys = tiny(1);
    let low = || sys.ids.low.load(Ordering::SeqCst);
    let writer = sys.assign_id().unwrap();
    pass(&sys, 20);
    assert_eq!(low(), writer.0, "an unfinished id in the ring holds it");
    pass(&sys, 200);
    assert_eq!(low(), sys.next_id(), "a straggler does not");
    let view = sys.open_view(None);
    assert_eq!(view.sees(writer), Visibility::Invisible);
    assert_eq!(view.sees(TrxId(writer.0 + 1)), Visibility::Visible);
    commit(&sys, writer);
    assert_eq!(low(), sys.next_id());
}

#[test]
fn recovered_transactions_are_stragglers_from_the_start() {
    let log = Log::default();
    let sys = TxnSys::with_shape(1 << 30, Box::new(log.clone()), TINY);
    let (prepared, active) = (TrxId(77), TrxId(1 << 29));
    sys.adopt(prepared, IdState::Prepared).unwrap();
    sys.adopt(active, IdState::Active).unwrap();
    let view = sys.open_view(None);
    let settled = [TrxId(76), TrxId(78), TrxId((1 << 29) + 1)];
    assert!(
        settled
            .iter()
            .all(|id| view.sees(*id) == Visibility::Visible)
    );
    assert!(settled.iter().all(|id| !sys.is_unfinished(*id)));
    assert_eq!(
        sys.unfinished(),
        [(prepared, IdState::Prepared), (active, IdState::Active)]
    );
    let no = commit(&sys, prepared);
    assert!(no.0 < log.limit.load(Ordering::SeqCst), "LIMIT-1");
    sys.abort(active);
    assert_eq!(
        (view.sees(prepared), view.sees(active)),
        (Visibility::Invisible, Visibility::Invisible)
    );
    assert_eq!(sys.open_view(None).sees(prepared), Visibility::Visible);
    assert_eq!(sys.unfinished(), []);
}

#[test]
fn the_purge_limit_stops_at_views_and_at_commits_under_way() {
    let sys = tiny(1);
    pass(&sys, 10);
    assert_eq!(sys.purge_limit().0, sys.next_id());
    let view = sys.open_view(None);
    pass(&sys, 10);
    assert_eq!(sys.purge_limit(), view.number());
    drop(view);
    let id = sys.assign_id().unwrap();
    let no = sys.start_commit(id);
    pass(&sys, 500);
    let limit = sys.purge_limit();
    assert!(limit <= no, "{limit} passed a commit under way with {no}");
    sys.finish_commit(id, no);
    assert_eq!(sys.purge_limit().0, sys.next_id());
    assert_eq!(sys.view_numbers(), []);
}

/// TXN-6: the freeze limit stops at views, members too, and at transactions that go on.
#[test]
fn nothing_is_frozen_that_somebody_may_ask_about() {
    let sys = tiny(100);
    // One call notes how far things are, the next one says so.
    let limit = || {
        sys.freeze_limit();
        sys.freeze_limit()
    };
    assert_eq!(limit(), TrxId(100));
    let first = sys.assign_id().unwrap();
    assert_eq!(limit(), first, "it is not finished");
    let view = sys.open_view(None);
    commit(&sys, first);
    pass(&sys, 30);
    assert_eq!((limit(), view.sees(first)), (first, Visibility::Invisible));
    sys.purge_limit_past(|_| true, &mut Vec::new());
    assert!(view.is_member());
    assert_eq!(limit(), first, "a member asks as well");
    drop(view);
    assert_eq!(limit().0, sys.next_id());
    // It leaves the ring while it goes on, and a view that does not see it stays.
    let straggler = sys.assign_id().unwrap();
    pass(&sys, 1000);
    assert_eq!(limit(), straggler);
    let view = sys.open_view(None);
    commit(&sys, straggler);
    pass(&sys, 1000);
    assert_eq!(limit(), straggler);
    assert_eq!(view.sees(straggler), Visibility::Invisible);
    drop(view);
    assert_eq!(limit().0, sys.next_id());
    let sys = tiny(1 << 20);
    sys.adopt(TrxId(77), IdState::Prepared).unwrap();
    assert_eq!(
        (sys.freeze_limit(), sys.freeze_limit()),
        (TrxId(0), TrxId(77))
    );
}

/// LIMIT-1 and LIMIT-2, and that a statement fails, not the commit, when the limit can't be logged.
#[test]
fn ids_stay_below_the_logged_limit() {
    let log = Log::default();
    let sys = TxnSys::new(5, Box::new(log.clone()));
    let mut last = TrxId(0);
    for _ in 0..200_000 {
        last = sys.assign_id().unwrap();
        assert!(commit(&sys, last).0 < log.limit.load(Ordering::SeqCst));
    }
    assert!(log.raises.load(Ordering::SeqCst) < 20);
    assert!(sys.id_limit() >= log.limit.load(Ordering::SeqCst));
    let open = sys.assign_id().unwrap();
    log.broken.store(true, Ordering::SeqCst);
    let refused = (0..1_000_000).find_map(|_| match sys.assign_id() {
        Ok(id) => {
            sys.abort(id);
            None
        }
        Err(e) => Some(e),
    });
    assert!(
        matches!(refused, Some(Error::Poisoned { .. })),
        "{refused:?}"
    );
    let logged = log.limit.load(Ordering::SeqCst);
    assert!(sys.id_limit() > logged, "LIMIT-2: it was announced before");
    assert!(commit(&sys, open).0 < logged);
    assert!(!sys.is_unfinished(last));
    assert_eq!(sys.unfinished(), [], "a refused id is finished");
}

#[test]
fn ids_are_refused_before_they_run_out() {
    let sys = tiny((1 << 56) - (1 << 40) - 10);
    let id = sys.assign_id().unwrap();
    let refused = (0..20).find_map(|_| sys.assign_id().err());
    let message = refused.expect("refused").to_string();
    assert!(message.contains("transaction ids"), "{message}");
    commit(&sys, id);
}

#[test]
fn many_views_get_slots_and_give_them_back() {
    let sys = tiny(1);
    for _ in 0..3 {
        let views: Vec<_> = (0..500).map(|_| sys.open_view(None)).collect();
        assert_eq!(sys.view_numbers().len(), 500);
        drop(views);
        assert_eq!(sys.view_numbers(), []);
    }
}

/// What the threads of the stress test share.
struct Stress {
    sys: TxnSys,
    log: Log,
    /// Ids that were assigned, newest last; readers ask about any of them.
    ids: Mutex<Vec<TrxId>>,
    /// How each id ended: its number, or the counter before its rollback was reported.
    ends: Mutex<HashMap<u64, End>>,
    purge_limit: AtomicU64,
    freeze_limit: AtomicU64,
    /// How many ids views have been asked about first.
    asked: AtomicU64,
    /// In the stead of members.
    asked_for: AtomicU64,
    stop: AtomicBool,
}

/// Writers go on until readers have got so many answers, however seldom these run.
const LEAST_ASKED: u64 = 400;

#[derive(Clone, Copy, Debug)]
enum End {
    Committed(TrxNo),
    Aborted { at_least: u64 },
}

/// Answers of one view.
struct Answers {
    c: u64,
    said: HashMap<u64, Visibility>,
}

fn write(s: &Stress, rng: &mut SmallRng, transactions: usize) {
    let mut open: Vec<(TrxId, u32)> = Vec::new();
    let mut begun = 0;
    let give_up = Instant::now() + Duration::from_secs(120);
    let is_enough = |asked: &AtomicU64| asked.load(Ordering::Relaxed) >= LEAST_ASKED;
    let is_asked = || is_enough(&s.asked) && is_enough(&s.asked_for);
    while begun < transactions || !is_asked() {
        assert!(
            Instant::now() < give_up,
            "nobody asks: the readers have failed"
        );
        begun += 1;
        let id = s.sys.assign_id().unwrap();
        s.ids.lock().push(id);
        // Most end at once, some after many laps of the ring.
        let life = if rng.random_ratio(1, 20) { 150 } else { 3 };
        open.push((id, rng.random_range(0..life)));
        for (_, rest) in &mut open {
            *rest = rest.saturating_sub(1);
        }
        while let Some(at) = open.iter().position(|(_, rest)| *rest == 0) {
            end(s, rng, open.swap_remove(at).0);
        }
        if rng.random_ratio(1, 10) {
            thread::yield_now();
        }
    }
    for (id, _) in open {
        end(s, rng, id);
    }
}

fn end(s: &Stress, rng: &mut SmallRng, id: TrxId) {
    if rng.random_ratio(1, 5) {
        let at_least = s.sys.next_id();
        s.ends.lock().insert(id.0, End::Aborted { at_least });
        s.sys.abort(id);
        return;
    }
    let dependency = s.ids.lock().last().copied();
    let settled = dependency.filter(|d| *d != id && !s.sys.is_unfinished(*d));
    let no = s.sys.start_commit(id);
    if rng.random_ratio(1, 10) {
        thread::yield_now();
    }
    assert!(no.0 < s.log.limit.load(Ordering::SeqCst), "LIMIT-1");
    s.ends.lock().insert(id.0, End::Committed(no));
    s.sys.finish_commit(id, no);
    // TXN-2: what was finished before this commit started has a smaller number.
    if let Some(End::Committed(before)) = settled.and_then(|d| s.ends.lock().get(&d.0).copied()) {
        assert!(before < no, "{before} after {no}");
    }
}

fn read(s: &Stress, rng: &mut SmallRng) -> Vec<Answers> {
    let mut all = Vec::new();
    let mut views: Vec<(ReadView, Answers, u32)> = Vec::new();
    let mut places = Vec::new();
    while !s.stop.load(Ordering::SeqCst) {
        if views.len() < 4 {
            let life = if rng.random_ratio(1, 4) { 2000 } else { 20 };
            let place = places.pop();
            let view = place.unwrap_or_else(|| s.sys.view_place()).open(None);
            let c = view.number().0;
            let said = HashMap::new();
            views.push((view, Answers { c, said }, rng.random_range(1..life)));
        }
        let at = rng.random_range(0..views.len());
        let (view, answers, rest) = &mut views[at];
        ask(s, rng, view, answers);
        *rest -= 1;
        if *rest == 0 {
            let (view, answers, _) = views.swap_remove(at);
            let limit = s.purge_limit.load(Ordering::SeqCst);
            assert!(
                limit <= answers.c || view.is_member(),
                "VIEW-2: limit {limit}, view {}",
                answers.c
            );
            if rng.random() {
                places.push(view.close());
            }
            all.push(answers);
        }
    }
    all.extend(views.into_iter().map(|(_, answers, _)| answers));
    all
}

fn ask(s: &Stress, rng: &mut SmallRng, view: &ReadView, answers: &mut Answers) {
    let id = {
        let ids = s.ids.lock();
        if ids.is_empty() {
            return;
        }
        let reach = if rng.random() { 20 } else { 2000 };
        let near = rng.random_range(0..ids.len().min(reach));
        ids[ids.len() - 1 - near]
    };
    let mut answer = view.sees(id);
    while answer == Visibility::Unsettled {
        s.sys.wait_settled(id, || Ok(())).unwrap();
        answer = view.sees(id);
    }
    let end = || s.ends.lock().get(&id.0).copied();
    if id.0 < s.freeze_limit.load(Ordering::SeqCst) {
        assert!(!s.sys.is_unfinished(id), "TXN-6: {id:?} goes on");
        // Whoever has ended it is about to say so.
        while end().is_none() {
            thread::yield_now();
        }
        let is_seen = answer == Visibility::Visible || matches!(end(), Some(End::Aborted { .. }));
        assert!(is_seen, "TXN-6: {view:?} does not see {id:?}");
    }
    // VIEW-1; an id rolled back before the view opened is never met, and may be answered either way.
    let aborted_before = matches!(end(), Some(End::Aborted { at_least }) if at_least <= answers.c);
    if let Some(before) = answers.said.insert(id.0, answer) {
        assert!(
            before == answer || aborted_before,
            "{view:?} flipped on {id:?} from {before:?}"
        );
    } else {
        s.asked.fetch_add(1, Ordering::Relaxed);
    }
}

fn purge(s: &Stress, rng: &mut SmallRng) {
    let mut members = Vec::new();
    while !s.stop.load(Ordering::SeqCst) {
        let limit = s
            .sys
            .purge_limit_past(|_| rng.random_ratio(1, 50), &mut members);
        members.iter().for_each(|member| ask_for(s, rng, member));
        let before = s.purge_limit.fetch_max(limit.0, Ordering::SeqCst);
        assert!(before <= limit.0, "the purge limit fell");
        s.freeze_limit
            .fetch_max(s.sys.freeze_limit().0, Ordering::SeqCst);
        // TXN-3: what is unfinished now will get, or has, a number that is not below the limit.
        for (id, state) in s.sys.unfinished() {
            if let IdState::Committing { floor } = state
                && let Some(End::Committed(no)) = s.ends.lock().get(&id.0).copied()
            {
                assert!(
                    floor <= no.0 && limit <= no,
                    "limit {limit} passed {no} of {id}"
                );
            }
        }
        thread::yield_now();
    }
}

/// A member answers as its view does, whoever asks.
fn ask_for(s: &Stress, rng: &mut SmallRng, member: &Member) {
    let some = {
        let ids = s.ids.lock();
        let reach = ids.len().min(if rng.random() { 20 } else { 2000 });
        let near = rng.random_range(0..reach.max(1));
        ids.len().checked_sub(1 + near).map(|at| ids[at])
    };
    let committed = some.and_then(|id| match s.ends.lock().get(&id.0) {
        Some(End::Committed(no)) if !s.sys.is_unfinished(id) => Some((id, *no)),
        _ => None,
    });
    if let Some((id, no)) = committed {
        let number = member.number();
        if let Some(sees) = member.sees(id) {
            assert_eq!(sees, no < number, "{id:?} {no} {number}");
            s.asked_for.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn stress(seed: u64, shape: Shape, writers: usize, transactions: usize) {
    println!("seed {seed} shape {shape:?} writers {writers}");
    let log = Log::default();
    let s = Stress {
        sys: TxnSys::with_shape(1 + seed % 500, Box::new(log.clone()), shape),
        log,
        ids: Mutex::new(Vec::new()),
        ends: Mutex::new(HashMap::new()),
        purge_limit: AtomicU64::new(0),
        freeze_limit: AtomicU64::new(0),
        asked: AtomicU64::new(0),
        asked_for: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    let answers: Vec<Answers> = thread::scope(|scope| {
        let s = &s;
        let rng = |n: u64| SmallRng::seed_from_u64(seed * 1000 + n);
        let readers: Vec<_> = (0..2)
            .map(|n| scope.spawn(move || read(s, &mut rng(100 + n))))
            .collect();
        let purger = scope.spawn(move || purge(s, &mut rng(200)));
        let writers: Vec<_> = (0..writers as u64)
            .map(|n| scope.spawn(move || write(s, &mut rng(n), transactions)))
            .collect();
        let writers: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        s.stop.store(true, Ordering::SeqCst);
        purger.join().unwrap();
        let answers = readers
            .into_iter()
            .flat_map(|r| r.join().unwrap())
            .collect();
        writers.into_iter().for_each(|w| w.unwrap());
        answers
    });
    judge(&s, &answers);
}

/// The oracle: every answer follows from the view's number and the writer's.
fn judge(s: &Stress, answers: &[Answers]) {
    let ends = s.ends.lock();
    let mut checked = 0;
    for Answers { c, said } in answers {
        for (id, answer) in said {
            let want = match ends[id] {
                End::Committed(no) if no.0 < *c => Visibility::Visible,
                End::Committed(_) => Visibility::Invisible,
                End::Aborted { at_least } if at_least > *c => Visibility::Invisible,
                End::Aborted { .. } => continue,
            };
            assert_eq!(
                *answer, want,
                "view {c} of id {id}, which ended {:?}",
                ends[id]
            );
            checked += 1;
        }
    }
    assert!(checked > 100, "only {checked} answers");
    assert_eq!(s.sys.unfinished(), []);
    assert_eq!(s.sys.purge_limit().0, s.sys.next_id());
    assert_eq!(
        s.sys.ids.low.load(Ordering::SeqCst),
        s.sys.next_id(),
        "low was left behind although everything is finished"
    );
}

/// RING-1: the words of small rings are used again all the time, and every answer is right.
#[test]
fn threads_agree_with_the_oracle() {
    let rounds: u64 = std::env::var("VARVE_STRESS_ROUNDS").map_or(6, |n| n.parse().unwrap());
    let seed = std::env::var("VARVE_SEED")
        .map_or_else(|_| rand::random_range(0..1 << 40), |n| n.parse().unwrap());
    for round in 0..rounds {
        let shape = Shape {
            ring_bits: [6, 7, 10][round as usize % 3],
            segment_bits: [3, 5, 8][round as usize % 3],
            slots: 2,
        };
        stress(seed + round, shape, 3 + round as usize % 3, 3000);
    }
}
