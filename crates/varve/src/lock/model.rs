//! The lock manager against a plain model of it, with requests of several transactions in a random order: who
//! gets what at once, who waits, who is let on when, and who is a deadlock's victim.
//!
//! Each owner has a thread, which asks for one thing at a time; the test tells one of them what to do and
//! goes on when the model says that nothing more will happen. The model has lists instead of queues, and its
//! waits-for graph is made anew each time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use varve_sim::try_cases;

use super::owner::OwnerKey;
use super::{Acquired, LastRow, LockManager, Mode, TableMode, TrxLocks, Wait};
use crate::base::{Error, IndexId, Result as Done, TableId, TrxId};

use TableMode::{AutoInc, Exclusive, IntentionExclusive, IntentionShared, Shared};

const OWNERS: usize = 5;
/// In their order.
const KEYS: [&[u8]; 3] = [b"", b"a key that needs memory of its own", b"key"];
/// Where ranges begin and end: between each two there is a key. None of the keys of inserts is behind the
/// second.
const BOUNDS: [&[u8]; 4] = [b"", b"a", b"b", b"z"];
const INDEX: IndexId = IndexId(7);
/// Indexes with gaps, and tables, of which two share a count.
const INDEXES: [IndexId; 2] = [INDEX, IndexId(7 + 1024)];
const TABLES: [TableId; 2] = [TableId(3), TableId(3 + 1024)];
const MODES: [TableMode; 5] = [
    IntentionShared,
    IntentionExclusive,
    Shared,
    Exclusive,
    AutoInc,
];

/// What an owner does, by the places of things in the lists above.
#[derive(Clone, Debug)]
enum Action {
    Lock {
        key: usize,
        mode: Mode,
        wait: bool,
    },
    Table {
        table: usize,
        mode: TableMode,
        wait: bool,
    },
    /// Up to `high`, or to the end.
    Gap {
        index: usize,
        low: u8,
        high: Option<u8>,
    },
    Insert {
        index: usize,
        key: u8,
        wait: bool,
    },
    /// A scan from one bound to another, which waits for nobody: it stops where it would have to.
    Scan {
        from: usize,
        to: usize,
        mode: Mode,
    },
    Unlock {
        key: usize,
    },
    UnlockTable {
        table: usize,
        mode: TableMode,
    },
    /// Somebody makes the lock explicit that the owner holds implicitly.
    Convert {
        key: usize,
    },
    /// KILL.
    Interrupt,
    Release,
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Shared), Just(Mode::Exclusive)]
}

fn action() -> impl Strategy<Value = Action> {
    let table_mode = || prop::sample::select(&MODES[..]);
    let wait = || prop::bool::weighted(0.8);
    let gap = (0..2usize, 0..12u8, prop::option::weighted(0.8, 1..8u8));
    prop_oneof![
        8 => (0..KEYS.len(), mode(), wait())
            .prop_map(|(key, mode, wait)| Action::Lock { key, mode, wait }),
        5 => (0..TABLES.len(), table_mode(), wait())
            .prop_map(|(table, mode, wait)| Action::Table { table, mode, wait }),
        3 => gap.prop_map(|(index, low, len)| {
            Action::Gap { index, low, high: len.map(|len| low + len) }
        }),
        4 => (0..2usize, 0..14u8, wait())
            .prop_map(|(index, key, wait)| Action::Insert { index, key, wait }),
        3 => (0..KEYS.len(), 1..=KEYS.len(), mode()).prop_map(|(from, len, mode)| {
            Action::Scan { from, to: (from + len).min(KEYS.len()), mode }
        }),
        2 => (0..KEYS.len()).prop_map(|key| Action::Unlock { key }),
        1 => (0..TABLES.len(), table_mode())
            .prop_map(|(table, mode)| Action::UnlockTable { table, mode }),
        1 => (0..KEYS.len()).prop_map(|key| Action::Convert { key }),
        1 => Just(Action::Interrupt),
        2 => Just(Action::Release),
    ]
}

#[derive(Clone, Debug)]
struct Case {
    weights: [u8; OWNERS],
    steps: Vec<(usize, Action)>,
}

fn case() -> impl Strategy<Value = Case> {
    let weights = prop::array::uniform5(0..4u8);
    (weights, vec((0..OWNERS, action()), 1..60))
        .prop_map(|(weights, steps)| Case { weights, steps })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    WouldWait,
    Deadlock,
    Interrupted,
}

/// `None`: there is nothing to say.
type Answer = Result<Option<Acquired>, Refusal>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Thing {
    Record(usize),
    Table(usize),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Wants {
    Lock(Thing, TableMode),
    Insert(usize, u8),
}

#[derive(Clone, Debug)]
struct Waiting {
    who: usize,
    wants: Wants,
    /// The answer, if it is let on.
    then: Option<Acquired>,
    /// How many waits began before.
    since: usize,
}

#[derive(Clone, Default)]
struct Model {
    held: Vec<(Thing, usize, TableMode)>,
    gaps: Vec<(usize, usize, u8, Option<u8>)>,
    /// Keys that are locked by ranges.
    ranged: Vec<(usize, usize, TableMode)>,
    /// Those for the same thing in the order in which they are served.
    waiting: Vec<Waiting>,
    waits: usize,
}

/// InnoDB's table, written down once more.
fn conflict(a: TableMode, b: TableMode) -> bool {
    let row = match a {
        IntentionShared => "...X.",
        IntentionExclusive => "..XX.",
        Shared => ".X.XX",
        Exclusive => "XXXXX",
        AutoInc => "..XXX",
    };
    let place = MODES.iter().position(|mode| *mode == b);
    row.as_bytes()[place.expect("one of them")] == b'X'
}

/// Modes that make `mode` needless.
fn covering(mode: TableMode) -> &'static [TableMode] {
    match mode {
        IntentionShared => &[IntentionShared, IntentionExclusive, Shared, Exclusive],
        IntentionExclusive => &[IntentionExclusive, Exclusive],
        Shared => &[Shared, Exclusive],
        Exclusive => &[Exclusive],
        AutoInc => &[AutoInc, Exclusive],
    }
}

/// Whether a lock is the owner's first one here is not compared for intents, which may be only noted, and
/// what is asked for beside them.
fn is_told(thing: Thing, mode: TableMode) -> bool {
    matches!(thing, Thing::Record(_)) || matches!(mode, Shared | Exclusive)
}

impl Model {
    /// All locks, whichever way they are had.
    fn all_held(&self) -> impl Iterator<Item = (Thing, usize, TableMode)> {
        let ranged = self.ranged.iter();
        let ranged = ranged.map(|(key, who, mode)| (Thing::Record(*key), *who, *mode));
        self.held.iter().copied().chain(ranged)
    }

    fn modes(&self, thing: Thing, who: usize) -> Vec<TableMode> {
        let own = self.all_held().filter(|(t, w, _)| (*t, *w) == (thing, who));
        own.map(|(_, _, mode)| mode).collect()
    }

    /// Owners that hold something which does not go with it.
    fn holders_against(&self, thing: Thing, who: usize, mode: TableMode) -> Vec<usize> {
        let against =
            |(t, w, m): &(Thing, usize, TableMode)| *t == thing && *w != who && conflict(*m, mode);
        self.all_held().filter(against).map(|(_, w, _)| w).collect()
    }

    /// Whether a request would have to wait.
    fn blocks(&self, thing: Thing, who: usize, mode: TableMode) -> bool {
        let waits_against =
            |w: &Waiting| matches!(w.wants, Wants::Lock(t, m) if t == thing && conflict(m, mode));
        !self.holders_against(thing, who, mode).is_empty()
            || self.modes(thing, who).is_empty() && self.waiting.iter().any(waits_against)
    }

    fn gap_owners(&self, who: usize, index: usize, key: u8) -> Vec<usize> {
        let contains = |(w, i, low, high): &&(usize, usize, u8, Option<u8>)| {
            *w != who && *i == index && *low <= key && high.is_none_or(|high| key < high)
        };
        self.gaps.iter().filter(contains).map(|gap| gap.0).collect()
    }

    /// Whether an intent is only noted: nobody wants a table for itself (all of them share one count). What
    /// was noted before is in the queue by then, where `Run::compare` has moved it; so a noted intent is
    /// covered by none.
    fn is_noted(&self, mode: TableMode) -> bool {
        let is_strong = |thing: Thing, mode: TableMode| {
            matches!(thing, Thing::Table(_)) && matches!(mode, Shared | Exclusive)
        };
        let waits = |w: &Waiting| matches!(w.wants, Wants::Lock(t, m) if is_strong(t, m));
        matches!(mode, IntentionShared | IntentionExclusive)
            && !self.held.iter().any(|(t, _, m)| is_strong(*t, *m))
            && !self.waiting.iter().any(waits)
    }

    /// What becomes of a lock if it is had.
    fn grant(&mut self, thing: Thing, who: usize, mode: TableMode) -> Acquired {
        let before = self.modes(thing, who);
        let is_noted = matches!(thing, Thing::Table(_)) && self.is_noted(mode);
        let is_covered = |held: &TableMode| match is_noted {
            true => *held == mode,
            false => covering(mode).contains(held),
        };
        if before.iter().any(is_covered) {
            return Acquired::Already;
        }
        self.held.push((thing, who, mode));
        match before.is_empty() {
            true => Acquired::New,
            false => Acquired::Upgraded,
        }
    }

    fn request(&mut self, thing: Thing, who: usize, mode: TableMode, wait: bool) -> Option<Answer> {
        if !self.blocks(thing, who, mode) {
            let acquired = self.grant(thing, who, mode);
            return Some(Ok(is_told(thing, mode).then_some(acquired)));
        }
        if !wait {
            return Some(Err(Refusal::WouldWait));
        }
        let holds = |model: &Model, who| !model.modes(thing, who).is_empty();
        let is_here = |w: &Waiting| matches!(w.wants, Wants::Lock(t, _) if t == thing);
        // Holders stand before owners that hold nothing.
        let place = match holds(self, who) {
            true => (self.waiting.iter()).position(|w| is_here(w) && !holds(self, w.who)),
            false => None,
        };
        let then = match holds(self, who) {
            true => Acquired::Upgraded,
            false => Acquired::New,
        };
        let then = is_told(thing, mode).then_some(then);
        self.enqueue(place, who, Wants::Lock(thing, mode), then);
        None
    }

    fn enqueue(&mut self, place: Option<usize>, who: usize, wants: Wants, then: Option<Acquired>) {
        let since = self.waits;
        self.waits += 1;
        let waiting = Waiting {
            who,
            wants,
            then,
            since,
        };
        let place = place.unwrap_or(self.waiting.len());
        self.waiting.insert(place, waiting);
    }

    /// Does it; `None`: the owner waits now.
    fn act(&mut self, who: usize, action: &Action) -> Option<Answer> {
        match *action {
            Action::Lock { key, mode, wait } => {
                return self.request(Thing::Record(key), who, mode.into(), wait);
            }
            Action::Table { table, mode, wait } => {
                return self.request(Thing::Table(table), who, mode, wait);
            }
            Action::Gap { index, low, high } => self.gaps.push((who, index, low, high)),
            Action::Insert { index, key, wait } => {
                if !self.gap_owners(who, index, key).is_empty() {
                    if wait {
                        self.enqueue(None, who, Wants::Insert(index, key), None);
                        return None;
                    }
                    return Some(Err(Refusal::WouldWait));
                }
            }
            Action::Scan { from, to, mode } => return Some(self.scan(who, from, to, mode.into())),
            Action::Unlock { key } => {
                if self.is_ranged(who, key) {
                    return Some(Ok(None));
                }
                self.held
                    .retain(|(t, w, _)| (*t, *w) != (Thing::Record(key), who));
            }
            Action::UnlockTable { table, mode } => {
                let given_up = (Thing::Table(table), who, mode);
                self.held.retain(|held| *held != given_up);
            }
            Action::Convert { key } => {
                self.grant(Thing::Record(key), who, Exclusive);
            }
            Action::Interrupt => {
                self.waiting.retain(|w| w.who != who);
                return Some(Err(Refusal::Interrupted));
            }
            Action::Release => {
                self.held.retain(|held| held.1 != who);
                self.gaps.retain(|gap| gap.0 != who);
                self.ranged.retain(|ranged| ranged.1 != who);
            }
        }
        Some(Ok(None))
    }

    fn is_ranged(&self, who: usize, key: usize) -> bool {
        self.ranged.iter().any(|(k, w, _)| (*k, *w) == (key, who))
    }

    fn scan(&mut self, who: usize, from: usize, to: usize, mode: TableMode) -> Answer {
        // The keys of inserts are all between the first key and the second.
        let passes_all = (who, 0, 0, Some(BOUNDS[1][0]));
        for key in from..to {
            if self.blocks(Thing::Record(key), who, mode) {
                return Err(Refusal::WouldWait);
            }
            self.ranged.push((key, who, mode));
            if from == 0 && key > 0 {
                self.gaps.push(passes_all);
            }
        }
        if from == 0 {
            self.gaps.push(passes_all);
        }
        Ok(None)
    }

    /// Whom a waiter waits for.
    fn blockers(&self, waiter: &Waiting) -> Vec<usize> {
        match waiter.wants {
            Wants::Insert(index, key) => self.gap_owners(waiter.who, index, key),
            Wants::Lock(thing, mode) => {
                let before = self.waiting.iter().take_while(|w| w.who != waiter.who);
                let in_line = before.filter(
                    |w| matches!(w.wants, Wants::Lock(t, m) if t == thing && conflict(m, mode)),
                );
                let mut all = self.holders_against(thing, waiter.who, mode);
                all.extend(in_line.map(|w| w.who));
                all
            }
        }
    }

    /// Lets those on that nobody is in the way of.
    fn settle(&mut self) -> Vec<Waiting> {
        let mut granted = Vec::new();
        while let Some(at) = (self.waiting.iter()).position(|w| self.blockers(w).is_empty()) {
            let waiting = self.waiting.remove(at);
            if let Wants::Lock(thing, mode) = waiting.wants {
                self.grant(thing, waiting.who, mode);
            }
            granted.push(waiting);
        }
        granted
    }

    /// All ways along the waits from the last of `path` back to its first.
    fn cycles(&self, path: &mut Vec<usize>, found: &mut Vec<Vec<usize>>) {
        let last = path[path.len() - 1];
        let Some(waiting) = self.waiting.iter().find(|w| w.who == last) else {
            return;
        };
        for blocker in BTreeSet::from_iter(self.blockers(waiting)) {
            if blocker == path[0] {
                found.push(path.clone());
            } else if !path.contains(&blocker) {
                path.push(blocker);
                self.cycles(path, found);
                path.pop();
            }
        }
    }

    fn all_cycles(&self) -> Vec<Vec<usize>> {
        let mut found = Vec::new();
        for start in 0..OWNERS {
            self.cycles(&mut vec![start], &mut found);
        }
        found
    }

    /// Of a deadlock's members the lightest gives up, among equals the one that began to wait last.
    fn lightest(&self, cycle: &[usize], weights: &[u8; OWNERS]) -> usize {
        let since = |who| self.waiting.iter().find(|w| w.who == who).map(|w| w.since);
        let weight = |who: &&usize| (weights[**who], std::cmp::Reverse(since(**who)));
        *cycle.iter().min_by_key(weight).expect("it has members")
    }

    fn without(&self, victims: &[usize]) -> Model {
        let mut model = self.clone();
        model.waiting.retain(|w| !victims.contains(&w.who));
        model
    }
}

/// An owner's thread.
struct Owner {
    key: OwnerKey,
    trx: u64,
    commands: Sender<(Action, u64)>,
    interrupt: Arc<AtomicBool>,
}

struct Run {
    m: LockManager,
    owners: Vec<Owner>,
    answers: Receiver<(usize, Answer)>,
    /// Those that came before they were asked for.
    early: Vec<(usize, Answer)>,
    /// Holds nothing.
    observer: TrxLocks,
    weights: [u8; OWNERS],
    model: Model,
    next_trx: u64,
    victims: u64,
}

/// How long an answer may take that must come. Once one did not come, the smaller cases are not given so much
/// time.
fn patience() -> Duration {
    Duration::from_millis(if LATE.load(Ordering::Relaxed) {
        300
    } else {
        20_000
    })
}

static LATE: AtomicBool = AtomicBool::new(false);

fn perform(m: &LockManager, l: &TrxLocks, action: &Action, interrupt: &AtomicBool) -> Answer {
    let wait = |wait| match wait {
        true => Wait::For {
            timeout: Duration::from_secs(600),
            interrupt,
        },
        false => Wait::No,
    };
    let done = match *action {
        Action::Lock {
            key,
            mode,
            wait: waits,
        } => m
            .lock_record(l, INDEX, KEYS[key], mode, wait(waits))
            .map(Some),
        Action::Table {
            table,
            mode,
            wait: waits,
        } => {
            let acquired = m.lock_table(l, TABLES[table], mode, wait(waits));
            acquired.map(|acquired| is_told(Thing::Table(table), mode).then_some(acquired))
        }
        Action::Gap { index, low, high } => {
            let high = high.map(|high| [high]);
            let high = high.as_ref().map(|high| &high[..]);
            m.lock_gap(l, INDEXES[index], &[low], high).map(|()| None)
        }
        Action::Insert {
            index,
            key,
            wait: waits,
        } => m
            .wait_to_insert(l, INDEXES[index], &[key], wait(waits))
            .map(|()| None),
        Action::Scan { from, to, mode } => scan(m, l, from, to, mode).map(|()| None),
        Action::Unlock { key } => {
            m.unlock_record(l, INDEX, KEYS[key]);
            Ok(None)
        }
        Action::UnlockTable { table, mode } => {
            m.unlock_table(l, TABLES[table], mode);
            Ok(None)
        }
        Action::Release => {
            m.release_all(l);
            Ok(None)
        }
        Action::Convert { .. } | Action::Interrupt => unreachable!("others do that"),
    };
    done.map_err(|e| match e {
        Error::LockWaitTimeout => Refusal::WouldWait,
        Error::Deadlock => Refusal::Deadlock,
        Error::Interrupted => Refusal::Interrupted,
        e => panic!("{e}"),
    })
}

fn scan(m: &LockManager, l: &TrxLocks, from: usize, to: usize, mode: Mode) -> Done<()> {
    let mut low = BOUNDS[from].to_vec();
    for key in &KEYS[from..to] {
        let got = m.lock_record(l, INDEX, key, mode, Wait::No)?;
        let is_new = got == Acquired::New;
        let behind = [key, &[0][..]].concat();
        let row = Some(LastRow { key, is_new });
        m.lock_range(l, INDEX, (&low, Some(&behind)), mode, row)?;
        low = behind;
    }
    m.lock_range(l, INDEX, (&low, Some(BOUNDS[to])), mode, None)
}

fn owner(m: &LockManager, who: usize, weight: u8, answers: Sender<(usize, Answer)>) -> Owner {
    let (commands, to_do) = channel::<(Action, u64)>();
    let locks = m.owner();
    locks.set_weight(weight.into());
    let trx = who as u64 + 1;
    m.set_trx(&locks, TrxId(trx));
    let key = locks.owner.key;
    let interrupt = Arc::new(AtomicBool::new(false));
    thread::spawn({
        let (m, interrupt) = (m.clone(), interrupt.clone());
        move || {
            for (action, next_trx) in to_do {
                let answer = perform(&m, &locks, &action, &interrupt);
                if matches!(action, Action::Release) {
                    m.set_trx(&locks, TrxId(next_trx));
                }
                if answers.send((who, answer)).is_err() {
                    break;
                }
            }
            m.release_all(&locks);
        }
    });
    Owner {
        key,
        trx,
        commands,
        interrupt,
    }
}

impl Run {
    fn new(weights: [u8; OWNERS]) -> Run {
        let m = LockManager::new();
        let (sender, answers) = channel();
        let owners = weights.iter().enumerate();
        let owners = owners.map(|(who, weight)| owner(&m, who, *weight, sender.clone()));
        Run {
            owners: owners.collect(),
            answers,
            early: Vec::new(),
            observer: m.owner(),
            m,
            weights,
            model: Model::default(),
            next_trx: OWNERS as u64 + 1,
            victims: 0,
        }
    }

    fn is_waiting(&self, who: usize) -> bool {
        self.model.waiting.iter().any(|w| w.who == who)
    }

    fn step(&mut self, who: usize, action: &Action) {
        let possible = match action {
            Action::Convert { .. } => true,
            Action::Interrupt => self.is_waiting(who),
            _ => !self.is_waiting(who),
        };
        if !possible {
            return;
        }
        let expected = self.model.act(who, action);
        match action {
            Action::Convert { key } => {
                let trx = TrxId(self.owners[who].trx);
                assert!(self.m.convert_implicit(trx, INDEX, KEYS[*key]));
            }
            Action::Interrupt => {
                self.owners[who].interrupt.store(true, Ordering::Release);
                self.m.wake_interrupted();
                self.expect(who, &Err(Refusal::Interrupted));
                self.owners[who].interrupt.store(false, Ordering::Release);
            }
            _ => {
                let command = (action.clone(), self.next_trx);
                self.owners[who]
                    .commands
                    .send(command)
                    .expect("its thread lives");
                if let Some(expected) = expected {
                    self.expect(who, &expected);
                }
                if matches!(action, Action::Release) {
                    self.owners[who].trx = self.next_trx;
                    self.next_trx += 1;
                }
            }
        }
        self.let_happen();
        self.compare();
    }

    fn receive(&self, wanted: &str) -> (usize, Answer) {
        let answer = self.answers.recv_timeout(patience());
        answer.unwrap_or_else(|_| {
            LATE.store(true, Ordering::Relaxed);
            panic!("{wanted} did not come; waiting: {:?}", self.model.waiting)
        })
    }

    /// The answer of `who`, behind which those of others may come that it lets on.
    fn expect(&mut self, who: usize, expected: &Answer) {
        loop {
            let (answered, answer) = self.receive("an answer at once");
            if answered == who {
                assert_eq!(&answer, expected, "owner {who}");
                return;
            }
            self.early.push((answered, answer));
        }
    }

    /// Takes the answers of victims and of owners that are let on, until all others wait as the model says.
    fn let_happen(&mut self) {
        let (mut victims, mut let_on) = (Vec::new(), Vec::new());
        let cycles = self.model.all_cycles();
        let may_be_victim = |who: usize| {
            let mut cycles = cycles.iter();
            cycles.any(|cycle| self.model.lightest(cycle, &self.weights) == who)
        };
        let end = Instant::now() + patience();
        let next = loop {
            let mut next = self.model.without(&victims);
            let granted = next.settle();
            let expected: Vec<_> = granted.iter().map(|w| (w.who, Ok(w.then))).collect();
            match self.early.pop().or_else(|| self.answers.try_recv().ok()) {
                Some((who, Err(Refusal::Deadlock))) => {
                    assert!(may_be_victim(who), "{who} is a victim of {cycles:?}");
                    victims.push(who);
                    continue;
                }
                Some(answer) => let_on.push(answer),
                None => {}
            }
            // A victim that has not answered yet may be why somebody is let on.
            let all_came = expected.iter().all(|answer| let_on.contains(answer));
            let cycle = next.all_cycles().pop();
            if all_came && cycle.is_none() && self.all_wait(&next) {
                assert_eq!(let_on.len(), expected.len(), "{let_on:?} for {expected:?}");
                break next;
            }
            if Instant::now() > end {
                LATE.store(true, Ordering::Relaxed);
                let waiting = &next.waiting;
                panic!("{let_on:?} for {expected:?}; cycle {cycle:?}, waiting: {waiting:?}");
            }
            thread::yield_now();
        };
        self.victims += victims.len() as u64;
        self.model = next;
    }

    /// Exactly those that should wait do, and none of them has been told to give up.
    fn all_wait(&self, model: &Model) -> bool {
        let key = |waiting: &Waiting| self.owners[waiting.who].key;
        let expected: BTreeSet<_> = model.waiting.iter().map(key).collect();
        let graph = self.m.inner.graph.lock();
        let found: BTreeSet<_> = graph.waits.keys().copied().collect();
        found == expected && graph.waits.values().all(|wait| !wait.victim)
    }

    /// Nobody else can have what is held.
    fn compare(&self) {
        for (key, bytes) in KEYS.iter().enumerate() {
            for mode in [Mode::Shared, Mode::Exclusive] {
                let expected = self.model.blocks(Thing::Record(key), OWNERS, mode.into());
                // An insert asks for gaps besides, which ranges are.
                if self.model.ranged.iter().all(|ranged| ranged.0 != key) {
                    let found = self.m.conflicts(&self.observer, INDEX, bytes, mode);
                    assert_eq!(found, expected, "{mode:?} of key {key}");
                }
                let got = (self.m).lock_record(&self.observer, INDEX, bytes, mode, Wait::No);
                self.m.release_all(&self.observer);
                assert_eq!(got.is_err(), expected, "{mode:?} of key {key}");
            }
        }
        for (index, id) in INDEXES.iter().enumerate() {
            for key in 0..20 {
                let found = self.m.keeps_out(&self.observer, *id, &[key]);
                let expected = !self.model.gap_owners(OWNERS, index, key).is_empty();
                assert_eq!(found, expected, "key {key} of index {index}");
            }
        }
        for (table, id) in TABLES.iter().enumerate() {
            for mode in MODES {
                let got = self.m.lock_table(&self.observer, *id, mode, Wait::No);
                self.m.release_all(&self.observer);
                let expected = self.model.blocks(Thing::Table(table), OWNERS, mode);
                assert_eq!(got.is_err(), expected, "{mode:?} of table {table}");
            }
        }
    }

    /// One after the other ends.
    fn end(&mut self) {
        for _ in 0..OWNERS {
            for who in 0..OWNERS {
                self.step(who, &Action::Release);
            }
        }
        assert!(self.model.held.is_empty() && self.model.waiting.is_empty());
        // With no request for a table as a whole left, an intent is only noted.
        for table in TABLES {
            let got = self
                .m
                .lock_table(&self.observer, table, IntentionShared, Wait::No);
            assert_eq!(got.expect("it is free"), Acquired::New);
        }
        let status = self.m.status();
        assert_eq!(
            (status.locked, status.gaps, self.m.memory_bytes()),
            (0, 0, 0)
        );
        assert_eq!(self.m.stats().deadlocks, self.victims);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        for owner in &self.owners {
            owner.interrupt.store(true, Ordering::Release);
        }
        self.m.wake_interrupted();
    }
}

/// QUEUE-1, LOCK-4, RANGE-1, RANGE-3: who would have to wait for whom, as the model says. OWNER-1: whichever
/// way a wait ended, the owner can wait again. OWNER-2: what an owner releases is all that it had.
#[test]
fn locks_are_had_and_awaited_as_in_a_plain_model() {
    let deadlocks = std::cell::Cell::new(0);
    let waits = std::cell::Cell::new(0);
    try_cases(1000, case(), |case| {
        let mut run = Run::new(case.weights);
        for (who, action) in &case.steps {
            run.step(*who, action);
        }
        run.end();
        deadlocks.set(deadlocks.get() + run.victims);
        waits.set(waits.get() + run.model.waits);
    });
    println!("{} waits, {} deadlocks", waits.get(), deadlocks.get());
    assert!(waits.get() > 1500 && deadlocks.get() > 100);
}
