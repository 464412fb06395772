//! Loading an empty table.

use std::time::Duration;

use crate::base::{Error, Result};
use crate::table::TableLoad;
use crate::txn::Transaction;

use super::{Database, Table};

impl Database {
    /// Begins to load all rows of an empty table, which takes a fraction of what inserts take. Otherwise it
    /// is as if the transaction had inserted them: nobody sees them before it commits, and a rollback takes
    /// them out. The table is locked exclusively until the load has ended ([`TableLoad::finish`] or
    /// [`TableLoad::abandon`]). Until then the transaction should not use it.
    ///
    /// If the table's name begins with `#`, which says that nobody uses it before
    /// [`rename_table`](Database::rename_table) gives it its own name, there is no undo at all, and no way
    /// back: if the load does not come to its end, the table is to be dropped. It is locked until the
    /// transaction ends, whose commit has nothing to wait for: when the load has come to its end, its rows
    /// are durable.
    ///
    /// Rows may come in any order; in that of the primary key it is fastest. What has to be sorted takes the
    /// memory that building indexes may take (`Options::sort_buffer_bytes`), divided by `at_once`: how many
    /// loads go on at the same time.
    ///
    /// ```
    /// use varve::{ColumnType, Database, Isolation, Options, TableDef, values};
    ///
    /// # fn main() -> varve::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(dir.path(), Options::default())?;
    /// let def = TableDef::new("shop/item")
    ///     .column("name", ColumnType::text(100))
    ///     .column("stock", ColumnType::i64())
    ///     .primary(&["name"])
    ///     .index("by_stock", &["stock"]);
    /// let table = db.create_table(&def)?;
    /// let mut trx = db.begin(Isolation::RepeatableRead);
    /// let mut load = db.load_table(&mut trx, &table, 1)?;
    /// for (name, stock) in [("table", 3), ("chair", 12), ("lamp", 5)] {
    ///     let row = def.row(&[name.into(), stock.into()])?;
    ///     load.push(&mut trx, &row.datums())?;
    /// }
    /// load.finish(&mut trx, &mut |index, _| eprintln!("a duplicate in {index}"))?;
    /// trx.commit()?;
    /// let mut trx = db.begin(Isolation::RepeatableRead);
    /// let lamp = table.get(&mut trx, values!["lamp"])?;
    /// assert_eq!(lamp.expect("it is there").get::<i64>("stock")?, 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid`: the table is not empty. `LockWaitTimeout`, `Deadlock`: others use it. `Unsupported`: a
    /// temporary table, or one that has foreign keys, unless the transaction does not check them.
    pub fn load_table(
        &self,
        trx: &mut Transaction,
        table: &Table,
        at_once: usize,
    ) -> Result<TableLoad> {
        let mut room = self.inner.ddl.build_room(trx);
        room.memory /= at_once.max(1);
        TableLoad::begin(trx, &table.table, room)
    }

    /// The same if that can be at once. `None`: rows are to be inserted, because the table is not empty, or
    /// others use it, or it can't be loaded at all.
    pub fn try_load_table(
        &self,
        trx: &mut Transaction,
        table: &Table,
        at_once: usize,
    ) -> Result<Option<TableLoad>> {
        let patience = trx.lock_wait_timeout();
        trx.set_lock_wait_timeout(Duration::ZERO);
        let begun = self.load_table(trx, table, at_once);
        trx.set_lock_wait_timeout(patience);
        match begun {
            Ok(load) => Ok(Some(load)),
            Err(Error::Invalid { .. } | Error::Unsupported { .. } | Error::LockWaitTimeout) => {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}
