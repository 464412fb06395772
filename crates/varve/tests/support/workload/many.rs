//! Rows that come together.

use varve::Datum;

use super::*;

impl Runner {
    /// Rows that come together are loaded if the table is empty and nobody uses it, otherwise inserted as a
    /// batch. They are all there or not at all. Which of several faults is reported is the engine's choice:
    /// a row that the oracle refuses may have the key of a later one, for instance.
    pub(super) fn insert_many(&mut self, slot: &mut Slot, table: usize) -> String {
        let def = self.oracle.def(table).clone();
        let rows: Vec<Row> = (0..self.rng.random_range(1..40))
            .map(|_| tables::row(&def, &mut self.rng, self.config.spread))
            .collect();
        let encoded: Vec<DatumBuf> = rows.iter().map(|row| def.row(row).unwrap()).collect();
        let datums: Vec<_> = encoded.iter().map(DatumBuf::datums).collect();
        self.trace.doing = format!(
            "insert {} rows, the first {:?}",
            rows.len(),
            Brief(&rows[0])
        );
        let before = slot.tx.mark();
        let others: Vec<&Tx> = self.slots.iter().flatten().map(|s| &s.tx).collect();
        let wants: Vec<Outcome> = rows
            .iter()
            .map(|row| {
                self.oracle
                    .insert(&mut slot.tx, &others, table, row.clone())
            })
            .collect();
        slot.tx.touched[table] = true;
        let got = match self.load(slot, table, &datums) {
            Some(got) => {
                self.report.loads += 1;
                self.trace.doing.push_str(", loaded");
                got
            }
            None => slot.trx.insert_many(&self.tables[table], &datums),
        };
        let all_done = wants.iter().all(|want| *want == Outcome::Done);
        match got {
            Ok(()) if all_done => {
                self.report.written += rows.len();
                return self.trace.doing.clone();
            }
            Err(Error::DuplicateKey { .. }) if !all_done => self.report.duplicates += 1,
            Err(Error::LockWaitTimeout) if self.may_wait(table) => self.report.waits += 1,
            got => panic!("expected {wants:?}, got {got:?}"),
        }
        slot.tx.rollback_to(&before);
        format!("did not {}", self.trace.doing)
    }

    /// `None`: the table can't be loaded now.
    fn load(
        &self,
        slot: &mut Slot,
        table: usize,
        rows: &[Vec<Datum<'_>>],
    ) -> Option<varve::Result<()>> {
        let before = slot.trx.savepoint();
        let trx = &mut slot.trx;
        let load = self.db().load_table(trx, &self.tables[table], 1);
        let mut load = match load {
            Ok(load) => load,
            Err(Error::Invalid { .. } | Error::Unsupported { .. } | Error::LockWaitTimeout) => {
                return None;
            }
            Err(e) => return Some(Err(e)),
        };
        let done = match rows.iter().try_for_each(|row| load.push(trx, row)) {
            Ok(()) => load.finish(trx, &mut |_, _| {}),
            Err(e) => {
                load.abandon(trx);
                Err(e)
            }
        };
        if done.is_err() {
            trx.rollback_to(before).unwrap();
        }
        Some(done)
    }
}
