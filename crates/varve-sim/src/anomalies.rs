//! Whether what concurrent transactions read fits their isolation level.
//!
//! Transactions append values, each used once, to lists under keys, and read lists. What a list holds in the
//! end shows in which order its writers came, and each read shows between which of them the reader stood.
//! From that follow the dependencies of the transactions, and the anomalies as Adya defines them ("Weak
//! Consistency: A Generalized Theory and Optimistic Implementations for Distributed Transactions", MIT 1999):
//!
//! - ww: one appended to a list next after the other;
//! - wr: one read a list that ended with what the other had appended;
//! - rw: one read a list to which the other appended next.
//!
//! A cycle of ww is G0, one of ww and wr is G1c, one with a single rw is G-single (read skew), any other is
//! G2. The idea to have lists tell the order is Elle's (Kingsbury and Alvaro, VLDB 2020). Elle infers the
//! order from the reads; here the final lists are known.
//!
//! What is forbidden at which level is docs/isolation.md. REPEATABLE READ allows more than its name says: a
//! transaction whose plain reads and writes are mixed may lose updates. But transactions that only read, by
//! their view, and transactions that lock whatever they read must fit into one order with all writers. So
//! only the rw of these count there.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use varve::Isolation;

/// What a transaction did to a list, in the order of the statements.
#[derive(Clone, Debug)]
pub enum Step {
    Append {
        key: u32,
        value: u32,
    },
    /// An append that was rolled back to a savepoint.
    Undone {
        value: u32,
    },
    Read {
        key: u32,
        list: Vec<u32>,
        locking: bool,
    },
}

#[derive(Clone, Debug, Default)]
pub struct Txn {
    pub steps: Vec<Step>,
    pub committed: bool,
}

/// What happened, and what the lists were in the end.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub txns: Vec<Txn>,
    pub lists: BTreeMap<u32, Vec<u32>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A committed append is missing, or there twice.
    LostWrite,
    /// What was rolled back is there.
    AbortedWrite,
    /// A read returned what no list ever held.
    Impossible,
    DirtyWrite,
    AbortedRead,
    IntermediateRead,
    CircularRead,
    /// Of a transaction whose write was seen another write was not seen later.
    ObservedTransactionVanishes,
    FuzzyRead,
    ReadSkew,
    /// A cycle with two or more rw: write skew, phantoms.
    AntiDependencyCycle,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Anomaly {
    pub kind: Kind,
    /// The transactions, by their number in the history.
    pub txns: Vec<usize>,
    pub what: String,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Edge {
    Ww,
    Wr,
    Rw,
}

/// Where a value came from.
#[derive(Clone, Copy)]
struct Origin {
    txn: usize,
    key: Option<u32>,
}

struct Checker<'a> {
    history: &'a History,
    origins: HashMap<u32, Origin>,
    found: Vec<Anomaly>,
}

/// The anomalies that the level forbids.
pub fn anomalies(history: &History, level: Isolation) -> Vec<Anomaly> {
    let mut checker = Checker {
        history,
        origins: HashMap::new(),
        found: Vec::new(),
    };
    checker.collect();
    checker.check_writes();
    if level != Isolation::ReadUncommitted {
        checker.check_reads(level);
    }
    if checker.found.is_empty() {
        // Otherwise the order of the writers is not known.
        checker.check_cycles(level);
    }
    checker.found
}

impl Checker<'_> {
    fn tell(&mut self, kind: Kind, txns: &[usize], what: String) {
        self.found.push(Anomaly {
            kind,
            txns: txns.to_vec(),
            what,
        });
    }

    fn list(&self, key: u32) -> &[u32] {
        self.history.lists.get(&key).map_or(&[], Vec::as_slice)
    }

    fn collect(&mut self) {
        for (txn, t) in self.history.txns.iter().enumerate() {
            for step in &t.steps {
                let (value, key) = match *step {
                    Step::Append { key, value } => (value, t.committed.then_some(key)),
                    Step::Undone { value } => (value, None),
                    Step::Read { .. } => continue,
                };
                let before = self.origins.insert(value, Origin { txn, key });
                assert!(before.is_none(), "value {value} was used twice");
            }
        }
    }

    /// Each committed append is there once, no other is, and no two writers of a list took turns.
    fn check_writes(&mut self) {
        let mut missing: BTreeSet<u32> = BTreeSet::new();
        missing.extend(
            self.origins
                .iter()
                .filter(|(_, o)| o.key.is_some())
                .map(|(v, _)| v),
        );
        for (&key, list) in &self.history.lists {
            let mut writers = Vec::new();
            for &value in list {
                let Some(&origin) = self.origins.get(&value) else {
                    self.tell(Kind::Impossible, &[], format!("list {key} has {value}"));
                    continue;
                };
                let what = format!("list {key} has {value}");
                if origin.key.is_none() {
                    self.tell(Kind::AbortedWrite, &[origin.txn], what);
                } else if origin.key != Some(key) {
                    self.tell(Kind::Impossible, &[origin.txn], what);
                } else if !missing.remove(&value) {
                    self.tell(Kind::LostWrite, &[origin.txn], format!("{what} twice"));
                }
                if writers.last() != Some(&origin.txn) {
                    if writers.contains(&origin.txn) {
                        let others = [origin.txn, writers[writers.len() - 1]];
                        let what = format!("they took turns in list {key}");
                        self.tell(Kind::DirtyWrite, &others, what);
                    }
                    writers.push(origin.txn);
                }
            }
        }
        for value in missing {
            let txn = self.origins[&value].txn;
            self.tell(Kind::LostWrite, &[txn], format!("{value} is nowhere"));
        }
    }

    fn check_reads(&mut self, level: Isolation) {
        let history = self.history;
        for (reader, txn) in history.txns.iter().enumerate() {
            if !txn.committed {
                continue;
            }
            let mut seen = BTreeSet::new();
            let mut appended = BTreeSet::new();
            let mut plain: HashMap<u32, &[u32]> = HashMap::new();
            for step in &txn.steps {
                let (key, list, locking) = match step {
                    Step::Append { key, .. } => {
                        appended.insert(*key);
                        plain.remove(key);
                        continue;
                    }
                    Step::Undone { .. } => continue,
                    Step::Read { key, list, locking } => (*key, list, *locking),
                };
                self.check_values(reader, key, list);
                let by_view = !locking && level == Isolation::RepeatableRead;
                if (by_view || level == Isolation::Serializable)
                    && let Some(before) = plain.insert(key, list)
                    && before != list
                {
                    let what = format!("of list {key}, first {before:?}, then {list:?}");
                    self.tell(Kind::FuzzyRead, &[reader], what);
                }
                // At REPEATABLE READ its own rows and those that it locks are newer than its view.
                let newest = locking || appended.contains(&key);
                if newest && level == Isolation::RepeatableRead {
                    continue;
                }
                let vanished = self.list(key).iter().skip(list.len());
                let origins = vanished.map(|value| self.origins[value].txn);
                if let Some(writer) = { origins }.find(|writer| seen.contains(writer)) {
                    let what = format!("its append to list {key} was not seen: {list:?}");
                    self.tell(Kind::ObservedTransactionVanishes, &[reader, writer], what);
                }
                seen.extend(list.iter().filter_map(|value| {
                    let writer = self.origins.get(value)?.txn;
                    (writer != reader).then_some(writer)
                }));
            }
        }
    }

    /// What was read is a list as it was between two transactions, or within the reader.
    fn check_values(&mut self, reader: usize, key: u32, list: &[u32]) {
        let what = || format!("of list {key}: {list:?}");
        for value in list {
            match self.origins.get(value).copied() {
                None => return self.tell(Kind::Impossible, &[reader], what()),
                Some(Origin { txn, key: None }) => {
                    return self.tell(Kind::AbortedRead, &[reader, txn], what());
                }
                Some(_) => {}
            }
        }
        let all = self.list(key);
        if !all.starts_with(list) {
            return self.tell(Kind::Impossible, &[reader], what());
        }
        let writer = |at: usize| all.get(at).map(|value| self.origins[value].txn);
        if let Some(last) = list.len().checked_sub(1).and_then(writer)
            && last != reader
            && writer(list.len()) == Some(last)
        {
            self.tell(Kind::IntermediateRead, &[reader, last], what());
        }
    }

    fn check_cycles(&mut self, level: Isolation) {
        let counts = |txn: &Txn, edge: Edge| match (edge, level) {
            (Edge::Ww, _) => true,
            (Edge::Wr, _) => level != Isolation::ReadUncommitted,
            (Edge::Rw, Isolation::Serializable) => true,
            (Edge::Rw, Isolation::RepeatableRead) => fits_one_order(txn),
            (Edge::Rw, _) => false,
        };
        let mut graph: Vec<BTreeMap<usize, Edge>> = vec![BTreeMap::new(); self.history.txns.len()];
        for (from, to, edge) in self.edges() {
            // Who reads decides.
            let reader = if edge == Edge::Wr { to } else { from };
            if from != to && counts(&self.history.txns[reader], edge) {
                let least = graph[from].entry(to).or_insert(edge);
                *least = edge.min(*least);
            }
        }
        if let Some(cycle) = shortest_cycle(&graph) {
            let edges: Vec<Edge> = (cycle.iter().zip(cycle.iter().cycle().skip(1)))
                .map(|(from, to)| graph[*from][to])
                .collect();
            let kind = match edges.iter().filter(|edge| **edge == Edge::Rw).count() {
                0 if edges.contains(&Edge::Wr) => Kind::CircularRead,
                0 => Kind::DirtyWrite,
                1 => Kind::ReadSkew,
                _ => Kind::AntiDependencyCycle,
            };
            let steps: Vec<_> = cycle.iter().map(|&n| &self.history.txns[n].steps).collect();
            let what = format!("{edges:?} between {steps:?}");
            self.tell(kind, &cycle, what);
        }
    }

    fn edges(&self) -> Vec<(usize, usize, Edge)> {
        let mut edges = Vec::new();
        for list in self.history.lists.values() {
            let writers = list.iter().map(|value| self.origins[value].txn);
            let pairs = writers.clone().zip(writers.skip(1));
            edges.extend(pairs.map(|(first, second)| (first, second, Edge::Ww)));
        }
        for (reader, txn) in self.history.txns.iter().enumerate() {
            for step in &txn.steps {
                let Step::Read { key, list, .. } = step else {
                    continue;
                };
                if !txn.committed {
                    continue;
                }
                let writer = |value: &u32| self.origins[value].txn;
                edges.extend(list.last().map(|v| (writer(v), reader, Edge::Wr)));
                let next = self.list(*key).get(list.len());
                edges.extend(next.map(|v| (reader, writer(v), Edge::Rw)));
            }
        }
        edges
    }
}

/// At REPEATABLE READ: it only reads, by its view, or locks all that it reads.
fn fits_one_order(txn: &Txn) -> bool {
    let reads = |with: bool| {
        (txn.steps.iter())
            .any(|step| matches!(step, Step::Read { locking, .. } if *locking == with))
    };
    let writes = (txn.steps.iter()).any(|step| !matches!(step, Step::Read { .. }));
    !reads(false) || !(writes || reads(true))
}

fn shortest_cycle(graph: &[BTreeMap<usize, Edge>]) -> Option<Vec<usize>> {
    // What no cycle can go through falls off first.
    let mut into = vec![0; graph.len()];
    (graph.iter().flat_map(BTreeMap::keys)).for_each(|&to| into[to] += 1);
    let mut free: Vec<usize> = (0..graph.len()).filter(|&n| into[n] == 0).collect();
    let mut left: BTreeSet<usize> = (0..graph.len()).collect();
    while let Some(n) = free.pop() {
        left.remove(&n);
        for &to in graph[n].keys() {
            into[to] -= 1;
            if into[to] == 0 {
                free.push(to);
            }
        }
    }
    let cycles = left.iter().filter_map(|&start| cycle_through(graph, start));
    cycles.min_by_key(Vec::len)
}

fn cycle_through(graph: &[BTreeMap<usize, Edge>], start: usize) -> Option<Vec<usize>> {
    let mut from: HashMap<usize, usize> = HashMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(n) = queue.pop_front() {
        for &to in graph[n].keys() {
            if to == start {
                let mut cycle = vec![n];
                while cycle[cycle.len() - 1] != start {
                    cycle.push(from[&cycle[cycle.len() - 1]]);
                }
                cycle.reverse();
                return Some(cycle);
            }
            from.entry(to).or_insert_with(|| {
                queue.push_back(to);
                n
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use Isolation::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable};

    use super::*;

    fn append(key: u32, value: u32) -> Step {
        Step::Append { key, value }
    }

    fn read(key: u32, list: &[u32]) -> Step {
        let list = list.to_vec();
        let locking = false;
        Step::Read { key, list, locking }
    }

    fn lock(key: u32, list: &[u32]) -> Step {
        let list = list.to_vec();
        let locking = true;
        Step::Read { key, list, locking }
    }

    fn history(txns: &[(&[Step], bool)], lists: &[(u32, &[u32])]) -> History {
        let txn = |&(steps, committed): &(&[Step], bool)| Txn {
            steps: steps.to_vec(),
            committed,
        };
        History {
            txns: txns.iter().map(txn).collect(),
            lists: lists
                .iter()
                .map(|(key, list)| (*key, list.to_vec()))
                .collect(),
        }
    }

    /// What each level from READ UNCOMMITTED on finds first.
    #[track_caller]
    fn expect(history: &History, kinds: [Option<Kind>; 4]) {
        for (level, expected) in [ReadUncommitted, ReadCommitted, RepeatableRead, Serializable]
            .into_iter()
            .zip(kinds)
        {
            let found = anomalies(history, level);
            assert_eq!(
                found.first().map(|a| a.kind),
                expected,
                "{level:?}: {found:?}"
            );
        }
    }

    #[test]
    fn a_serial_history_has_none() {
        let txns: [(&[Step], bool); 4] = [
            (&[append(1, 10), append(1, 11), append(2, 20)], true),
            (&[append(1, 12), Step::Undone { value: 21 }], true),
            (&[append(2, 22)], false),
            (
                &[read(1, &[10, 11, 12]), lock(2, &[20]), read(3, &[])],
                true,
            ),
        ];
        let all = history(&txns, &[(1, &[10, 11, 12]), (2, &[20])]);
        expect(&all, [None; 4]);
    }

    #[test]
    fn writes_that_are_lost_doubled_or_left() {
        let txns: [(&[Step], bool); 2] = [(&[append(1, 10)], true), (&[append(1, 11)], false)];
        expect(&history(&txns, &[]), [Some(Kind::LostWrite); 4]);
        let twice = history(&txns, &[(1, &[10, 10])]);
        expect(&twice, [Some(Kind::LostWrite); 4]);
        let left = history(&txns, &[(1, &[11, 10])]);
        expect(&left, [Some(Kind::AbortedWrite); 4]);
    }

    #[test]
    fn g0() {
        let one: &[Step] = &[append(1, 10), append(2, 20)];
        let two: &[Step] = &[append(1, 11), append(2, 21)];
        let crossed = history(
            &[(one, true), (two, true)],
            &[(1, &[10, 11]), (2, &[21, 20])],
        );
        expect(&crossed, [Some(Kind::DirtyWrite); 4]);
        let one: &[Step] = &[append(1, 10), append(1, 12)];
        let two: &[Step] = &[append(1, 11)];
        let turns = history(&[(one, true), (two, true)], &[(1, &[10, 11, 12])]);
        expect(&turns, [Some(Kind::DirtyWrite); 4]);
    }

    #[test]
    fn g1() {
        let writer: &[Step] = &[append(1, 10), append(1, 11)];
        let reader: &[Step] = &[read(1, &[10])];
        let dirty = history(&[(writer, false), (reader, true)], &[]);
        let g1 = |kind| [None, Some(kind), Some(kind), Some(kind)];
        expect(&dirty, g1(Kind::AbortedRead));
        let between = history(&[(writer, true), (reader, true)], &[(1, &[10, 11])]);
        expect(&between, g1(Kind::IntermediateRead));
        let one: &[Step] = &[append(1, 10), read(2, &[20])];
        let two: &[Step] = &[append(2, 20), read(1, &[10])];
        let circle = history(&[(one, true), (two, true)], &[(1, &[10]), (2, &[20])]);
        expect(&circle, g1(Kind::CircularRead));
        let own: &[Step] = &[append(1, 10), read(1, &[10]), append(1, 11)];
        expect(&history(&[(own, true)], &[(1, &[10, 11])]), [None; 4]);
    }

    #[test]
    fn a_transaction_that_was_seen_does_not_vanish() {
        let writer: &[Step] = &[append(1, 10), append(2, 20)];
        let reader: &[Step] = &[read(1, &[10]), read(2, &[])];
        let vanished = history(&[(writer, true), (reader, true)], &[(1, &[10]), (2, &[20])]);
        let kind = Some(Kind::ObservedTransactionVanishes);
        expect(&vanished, [None, kind, kind, kind]);
    }

    #[test]
    fn views_do_not_move() {
        let writer: &[Step] = &[append(1, 10), append(2, 20)];
        let lists: &[(u32, &[u32])] = &[(1, &[10]), (2, &[20])];
        let skew: &[Step] = &[read(1, &[]), read(2, &[20])];
        let skewed = history(&[(writer, true), (skew, true)], lists);
        let kind = Some(Kind::ReadSkew);
        expect(&skewed, [None, None, kind, kind]);
        let fuzzy: &[Step] = &[read(1, &[]), read(1, &[10])];
        let fuzzy = history(&[(writer, true), (fuzzy, true)], lists);
        let kind = Some(Kind::FuzzyRead);
        expect(&fuzzy, [None, None, kind, kind]);
        // What it locks is newer than the view.
        let mixed: &[Step] = &[read(1, &[]), lock(2, &[20]), read(1, &[])];
        let mixed = history(&[(writer, true), (mixed, true)], lists);
        let vanished = Some(Kind::ObservedTransactionVanishes);
        expect(&mixed, [None, vanished, None, vanished]);
    }

    #[test]
    fn write_skew_and_lost_updates_are_for_serializable() {
        let lists: &[(u32, &[u32])] = &[(1, &[10]), (2, &[20])];
        let one: &[Step] = &[read(1, &[]), append(2, 20)];
        let two: &[Step] = &[read(2, &[]), append(1, 10)];
        let skew = history(&[(one, true), (two, true)], lists);
        let kind = Some(Kind::AntiDependencyCycle);
        expect(&skew, [None, None, None, kind]);
        let one: &[Step] = &[lock(1, &[]), append(2, 20)];
        let two: &[Step] = &[lock(2, &[]), append(1, 10)];
        let locked = history(&[(one, true), (two, true)], lists);
        expect(&locked, [None, None, kind, kind]);
        // Two readers that see two writers in different orders.
        let writers: [&[Step]; 2] = [&[append(1, 10)], &[append(2, 20)]];
        let readers: [&[Step]; 2] = [
            &[read(1, &[10]), read(2, &[])],
            &[read(2, &[20]), read(1, &[])],
        ];
        let all = [writers[0], writers[1], readers[0], readers[1]].map(|steps| (steps, true));
        expect(&history(&all, lists), [None, None, kind, kind]);
        let update: &[Step] = &[read(1, &[]), append(1, 11)];
        let other: &[Step] = &[append(1, 10)];
        let lost = history(&[(update, true), (other, true)], &[(1, &[10, 11])]);
        expect(&lost, [None, None, None, Some(Kind::ReadSkew)]);
    }
}
