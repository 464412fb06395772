//! Loading a table that is being made.

use crate::base::Result;
use crate::table::TableLoad;
use crate::txn::Transaction;

use super::{Database, Table};

impl Database {
    /// Begins to load all rows of a table that is being made: its name begins with `#`, which says that
    /// nobody uses it before [`rename_table`](Database::rename_table) gives it its own name, and it is empty.
    /// That takes a fraction of what inserts take, and there is no way back: if the load does not come to its
    /// end, the table is to be dropped. It is locked until the transaction ends, whose commit has nothing to
    /// wait for: when the load has come to its end, its rows are durable.
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
    /// let def = TableDef::new("shop/#item")
    ///     .column("name", ColumnType::text(100))
    ///     .column("stock", ColumnType::i64())
    ///     .primary(&["name"])
    ///     .index("by_stock", &["stock"]);
    /// let table = db.create_table(&def)?;
    /// let mut trx = db.begin(Isolation::RepeatableRead);
    /// let mut load = db.load_table(&mut trx, &table, 1)?;
    /// for (name, stock) in [("table", 3), ("chair", 12), ("lamp", 5)] {
    ///     let row = def.row(&[name.into(), stock.into()])?;
    ///     load.push(&trx, &row.datums())?;
    /// }
    /// load.finish(&trx, &mut |index, _| eprintln!("a duplicate in {index}"))?;
    /// trx.commit()?;
    /// drop(table);
    /// db.rename_table("shop/#item", "shop/item")?;
    /// let mut trx = db.begin(Isolation::RepeatableRead);
    /// let lamp = db.table("shop/item")?.get(&mut trx, values!["lamp"])?;
    /// assert_eq!(lamp.expect("it is there").get::<i64>("stock")?, 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid`: the table has another name, or is not empty. `Unsupported`: a temporary table, or one that
    /// has foreign keys, unless the transaction does not check them.
    pub fn load_table(
        &self,
        trx: &mut Transaction,
        table: &Table,
        at_once: usize,
    ) -> Result<TableLoad> {
        let mut room = self.inner.ddl.sort_room();
        room.memory /= at_once.max(1);
        TableLoad::begin(trx, &table.table, room)
    }
}
