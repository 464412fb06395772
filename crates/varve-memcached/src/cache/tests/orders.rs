//! MC-10, in each order in which some who read and change one key can do their steps.
//!
//! What `Cache` does is done under one lock, and so is what a table does: an order of steps is all that
//! threads can make of them. The table is a row and the number of its last change, which is the item's cas.

use super::super::*;

const KEY: &[u8] = b"key";
const CONTAINER: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Actor {
    /// Begins, commits, ends.
    Changes(Change),
    /// Begins, deletes the row, ends.
    Flushes,
    /// Changes the row by SQL, which is not told here; looks here; takes away what it has seen, or nothing.
    Forgets,
    /// Changes the row by SQL; takes away all that is here.
    Clears,
    /// Looks here; takes a moment; makes a view and reads; keeps what it has read.
    Reads,
    /// Has a view from before: takes a moment, makes a view, then looks here, looks whether the view is of
    /// use, reads in it or in a new one, and keeps what it has read.
    ReadsInView,
}
use Actor::{Changes, Clears, Flushes, Forgets, Reads, ReadsInView};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Change {
    Puts,
    /// Puts, and nothing is kept here.
    PutsAround,
    Deletes,
    Fails,
}
use Change::{Deletes, Fails, Puts, PutsAround};

impl Actor {
    fn steps(self) -> usize {
        match self {
            Changes(_) | Flushes | Forgets => 3,
            Clears => 2,
            Reads => 4,
            ReadsInView => 6,
        }
    }
}

/// A row as it was after so many changes.
#[derive(Clone, Copy, Default, Debug)]
struct Row {
    change: u64,
    is_there: bool,
}

impl Row {
    fn item(self) -> Option<Item> {
        self.is_there.then(|| Item {
            cas: self.change,
            ..Item::default()
        })
    }
}

/// What an actor has to go on with.
#[derive(Default)]
struct Has<'c> {
    changing: Option<Changing<'c>>,
    flushing: Option<Flushing<'c>>,
    /// What it has put.
    put: Row,
    of: Moment,
    view: Option<Row>,
    seen: Option<Arc<Item>>,
    /// It may get no less.
    least: u64,
    is_done: bool,
}

struct World<'c> {
    cache: &'c Cache,
    row: Row,
    /// Somebody has the lock of the row.
    is_locked: bool,
    under_way: usize,
    /// Changes by SQL that nobody has told here. What is got of them from the table binds nobody.
    untold: usize,
    /// What somebody has got, and what somebody has got here or was told is done.
    got: u64,
    got_here: u64,
}

impl<'c> World<'c> {
    /// `None`: it would have to wait.
    fn step(&mut self, actor: Actor, n: usize, has: &mut Has<'c>) -> Option<()> {
        match (actor, n) {
            (Changes(_), 0) => {
                if std::mem::replace(&mut self.is_locked, true) {
                    return None;
                }
                self.under_way += 1;
                has.changing = Some(self.cache.begin_change(CONTAINER, KEY));
            }
            (Changes(change), 1) => {
                self.is_locked = false;
                if change != Fails {
                    self.change(change != Deletes);
                    has.put = self.row;
                }
            }
            (Changes(change), _) => {
                self.under_way -= 1;
                let changing = has.changing.take().expect("it has begun");
                match change {
                    Puts => changing.end(has.put.item()),
                    _ => drop(changing),
                }
                self.told(has.put.change);
            }
            (Flushes, 0) => {
                self.under_way += 1;
                has.flushing = Some(self.cache.begin_flush(CONTAINER));
            }
            (Flushes, 1) => {
                if self.is_locked {
                    return None;
                }
                self.change(false);
                has.put = self.row;
            }
            (Flushes, _) => {
                self.under_way -= 1;
                has.flushing = None;
                self.told(has.put.change);
            }
            (Forgets | Clears, 0) => {
                if self.is_locked {
                    return None;
                }
                self.under_way += 1;
                self.untold += 1;
                self.change(true);
                has.put = self.row;
            }
            (Forgets, 1) => has.seen = self.cache.get(CONTAINER, KEY),
            (Forgets | Clears, _) => {
                match actor {
                    Clears => drop(self.cache.clear(CONTAINER)),
                    // It looks once more: that is another order.
                    _ => (self.cache.remove(CONTAINER, KEY, has.seen.as_ref())).ok()?,
                }
                self.under_way -= 1;
                self.untold -= 1;
                self.told(has.put.change);
            }
            (Reads, 0) => {
                has.least = self.got;
                self.look(has);
            }
            (Reads, 1) | (ReadsInView, 0) => has.of = self.cache.moment(),
            (Reads, 2) => {
                has.view = Some(self.row);
                self.read(has);
            }
            (ReadsInView, 1) => has.view = Some(self.row),
            (ReadsInView, 2) => {
                has.least = self.got_here;
                self.look(has);
            }
            (ReadsInView, 3) => {
                if !self.cache.is_current(CONTAINER, KEY, has.of) {
                    has.of = self.cache.moment();
                    has.view = None;
                }
            }
            (ReadsInView, 4) => {
                has.view.get_or_insert(self.row);
                self.read(has);
            }
            (Reads | ReadsInView, _) => {
                let item = has.view.and_then(Row::item);
                if let Some(item) = item.filter(|_| !has.is_done) {
                    self.cache.fill(CONTAINER, KEY, item.by_ref(), has.of);
                }
            }
        }
        Some(())
    }

    fn change(&mut self, is_there: bool) {
        self.row = Row {
            change: self.row.change + 1,
            is_there,
        };
    }

    fn told(&mut self, change: u64) {
        self.got = self.got.max(change);
        self.got_here = self.got_here.max(change);
    }

    fn look(&mut self, has: &mut Has<'_>) {
        if let Some(item) = self.cache.get(CONTAINER, KEY) {
            has.is_done = true;
            assert!(item.cas >= has.least, "it gets less than somebody has got");
            self.told(item.cas);
        }
    }

    fn read(&mut self, has: &mut Has<'_>) {
        if !has.is_done {
            let got = has.view.expect("it has a view").change;
            assert!(got >= has.least, "it gets less than somebody has got");
            self.got_in_table(got);
        }
    }

    fn got_in_table(&mut self, got: u64) {
        if self.untold == 0 {
            self.got = self.got.max(got);
        }
    }

    /// Whoever comes now, gets no less than anybody has got, and what is here is what is in the row.
    fn check(&mut self) {
        let here = self.cache.get(CONTAINER, KEY);
        let got = here.as_ref().map_or(self.row.change, |item| item.cas);
        assert!(
            got >= self.got,
            "who comes now gets less than somebody has got"
        );
        self.got_in_table(got);
        if let Some(here) = here {
            self.got_here = self.got_here.max(here.cas);
            let is_last = self.row.item().is_some_and(|item| item == *here);
            assert!(
                is_last || self.under_way > 0,
                "what is here is not in the row"
            );
        }
    }
}

/// Calls `each` with all orders of these numbers of steps.
fn orders(left: &mut [usize], order: &mut Vec<usize>, each: &mut impl FnMut(&[usize])) {
    if left.iter().all(|&steps| steps == 0) {
        return each(order);
    }
    for actor in 0..left.len() {
        if left[actor] > 0 {
            left[actor] -= 1;
            order.push(actor);
            orders(left, order, each);
            order.pop();
            left[actor] += 1;
        }
    }
}

/// Returns whether the order is possible.
fn run(actors: &[Actor], order: &[usize], is_kept: bool) -> bool {
    let cache = Cache::new(1 << 10, 64);
    let row = Row {
        change: 1,
        is_there: true,
    };
    let mut world = World {
        cache: &cache,
        row,
        is_locked: false,
        under_way: 0,
        untold: 0,
        got: 1,
        got_here: 0,
    };
    if is_kept {
        cache.fill(CONTAINER, KEY, row.item().unwrap().by_ref(), cache.moment());
    }
    let mut have: Vec<(usize, Has<'_>)> = actors.iter().map(|_| Default::default()).collect();
    for &actor in order {
        let (n, has) = &mut have[actor];
        if world.step(actors[actor], *n, has).is_none() {
            return false;
        }
        *n += 1;
        world.check();
    }
    true
}

/// MC-10.
#[test]
fn nobody_gets_less_than_somebody_has_got() {
    for actors in [
        &[Changes(Puts), Changes(Puts), Reads][..],
        &[Changes(Puts), Changes(Deletes), Reads],
        &[Changes(Puts), Changes(PutsAround), Reads],
        &[Changes(Puts), Changes(Fails), Reads],
        &[Changes(Deletes), Reads, Reads],
        &[Changes(Puts), Reads, Reads],
        &[Changes(Puts), Flushes, Reads],
        &[Changes(Puts), Reads, ReadsInView],
        &[Changes(Puts), Flushes, ReadsInView],
        &[Changes(Puts), Changes(Puts), ReadsInView],
        &[Forgets, Changes(Puts), Reads],
        &[Forgets, Flushes, Reads],
        &[Forgets, Reads, ReadsInView],
        &[Clears, Changes(Puts), Reads],
        &[Clears, Reads, Reads],
        &[Clears, Reads, ReadsInView],
    ] {
        let mut steps: Vec<usize> = actors.iter().map(|actor| actor.steps()).collect();
        let mut possible = 0;
        orders(&mut steps, &mut Vec::new(), &mut |order| {
            for is_kept in [false, true] {
                let ran = std::panic::catch_unwind(|| run(actors, order, is_kept));
                let ran = ran.unwrap_or_else(|_| panic!("{actors:?} in the order {order:?}"));
                possible += usize::from(ran);
            }
        });
        assert!(
            possible > 1000,
            "{actors:?}: {possible} orders are possible"
        );
    }
}
