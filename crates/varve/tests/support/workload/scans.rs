//! Searches from any place in any index, and walks from there in both directions, compared row by row.

use super::*;

impl Runner {
    /// A search by a random key, from a random match, and a walk from there.
    pub(super) fn scan(&mut self, slot: &mut Slot, table: usize) -> String {
        let def = self.oracle.def(table).clone();
        let index = self.rng.random_range(0..=def.indexes.len());
        let lock = match self.rng.random_range(0..10) {
            0 => LockMode::Shared,
            1 => LockMode::Exclusive,
            _ => LockMode::None,
        };
        let read = match (lock, slot.isolation) {
            (LockMode::None, Isolation::RepeatableRead) => Read::Snapshot,
            _ => Read::Latest,
        };
        if read == Read::Snapshot {
            self.oracle.open_snapshot(&mut slot.tx);
        }
        slot.tx.touched[table] |= lock != LockMode::None;
        let entries = self.oracle.entries(&slot.tx, table, index, read);
        let row = match entries.len() {
            n if n > 0 && self.rng.random_bool(0.7) => {
                entries[self.rng.random_range(0..n)].row.clone()
            }
            _ => tables::row(&def, &mut self.rng, self.config.spread),
        };
        let mut values = key_values(&def, index, &row);
        values.truncate(self.rng.random_range(0..=values.len()));
        let how = [
            KeyMatch::Exact,
            KeyMatch::ExactLast,
            KeyMatch::AtLeast,
            KeyMatch::After,
            KeyMatch::AtMost,
            KeyMatch::Before,
        ][self.rng.random_range(0..6)];
        let key = self.oracle.search_key(table, index, &values);
        let datums = def.key(index, &values).unwrap();
        self.trace.doing = format!(
            "{lock:?} scan of index {index} {how:?} {:?}",
            Brief(&values)
        );
        let walk = Walk {
            table,
            index,
            lock,
            entries: &entries,
        };
        let at = find(&entries, &key, how);
        let steps = self.rng.random_range(0..40);
        let read = self.walk(slot, &walk, (&datums, how), at, steps);
        format!(
            "{lock:?} scan of index {index} {how:?} {:?}: {read} rows",
            Brief(&values)
        )
    }

    fn walk(
        &mut self,
        slot: &mut Slot,
        walk: &Walk<'_>,
        (key, how): (&DatumBuf, KeyMatch),
        mut at: Option<usize>,
        steps: usize,
    ) -> usize {
        let mut cursor = self.tables[walk.table].cursor(walk.index).unwrap();
        let mut found = cursor.seek(&mut slot.trx, &key.datums(), how, walk.lock);
        let mut forward = !matches!(
            how,
            KeyMatch::ExactLast | KeyMatch::AtMost | KeyMatch::Before
        );
        for read in 0.. {
            if walk.lock != LockMode::None
                && matches!(found, Err(Error::LockWaitTimeout))
                && self.may_wait(walk.table)
            {
                self.report.waits += 1;
                return read;
            }
            let Some(now) = at else {
                if found.unwrap() {
                    let row = cursor.row().unwrap().values().unwrap();
                    panic!("row {read}: found {:?}, expected nothing", Brief(&row));
                }
                return read;
            };
            let want = &walk.entries[now];
            assert!(
                found.unwrap(),
                "row {read}: found nothing, expected {:?}",
                Brief(&want.row)
            );
            same(&cursor, &want.row);
            if walk.lock != LockMode::None {
                let others: Vec<&Tx> = self.slots.iter().flatten().map(|s| &s.tx).collect();
                assert!(
                    !Oracle::changed_by(&others, walk.table, &want.row_key),
                    "read through the lock on {:?}",
                    Brief(&want.row)
                );
            }
            self.report.rows_read += 1;
            if read == steps {
                return read;
            }
            if self.rng.random_bool(0.05) {
                forward = !forward;
            }
            (at, found) = if forward {
                (
                    (now + 1 < walk.entries.len()).then_some(now + 1),
                    cursor.next(&mut slot.trx),
                )
            } else {
                (now.checked_sub(1), cursor.prev(&mut slot.trx))
            };
        }
        unreachable!("the loop ends by returning")
    }
}

struct Walk<'a> {
    table: usize,
    index: usize,
    lock: LockMode,
    entries: &'a [Entry],
}

/// Which entry a search must find.
fn find(entries: &[Entry], key: &Key, how: KeyMatch) -> Option<usize> {
    let start = |e: &Entry| e.key[..key.len()].cmp(key);
    let first = entries.partition_point(|e| start(e).is_lt());
    let past = entries.partition_point(|e| start(e).is_le());
    match how {
        KeyMatch::Exact => (first < past).then_some(first),
        KeyMatch::ExactLast => (first < past).then(|| past - 1),
        KeyMatch::AtLeast => (first < entries.len()).then_some(first),
        KeyMatch::After => (past < entries.len()).then_some(past),
        KeyMatch::AtMost => past.checked_sub(1),
        KeyMatch::Before => first.checked_sub(1),
    }
}
