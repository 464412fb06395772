// temporary.c: a temporary table beside a lasting one, in one transaction; dropped in it; gone
// when the database is closed.

#include "check.h"

static void create(const varve_db *db, const char *name, bool temporary)
{
  varve_column_def columns[]= {
    {.name= "id", .kind= VARVE_INT, .size= 4},
    {.name= "note", .kind= VARVE_BYTES, .size= 100},
  };
  varve_key_part primary= {.column= 0};
  varve_table_def def= {.name= name, .columns= columns, .n_columns= 2, .primary= &primary, .n_primary= 1,
                        .auto_increment= UINT32_MAX, .temporary= temporary};
  OK(varve_table_create(db, &def));
  EXPECT(VARVE_ALREADY_EXISTS, varve_table_create(db, &def));
}

static void insert(const varve_txn *txn, const varve_table *table, int32_t id)
{
  varve_value row[]= {number(&id), bytes("note")};
  OK(varve_insert(txn, table, row, 2, VARVE_DUPLICATE_SHARE));
}

static int count(const varve_txn *txn, const varve_table *table)
{
  varve_cursor *c;
  const varve_value *row;
  int rows= 0;
  OK(varve_cursor_open(table, 0, &c));
  varve_code code= varve_cursor_first(c, txn, VARVE_NO_LOCK, &row);
  for (; code == VARVE_OK; code= varve_cursor_next(c, txn, &row))
    rows++;
  CHECK(code == VARVE_NO_ROW);
  varve_cursor_close(c);
  return rows;
}

static void count_name(void *context, const char *name)
{
  CHECK(!strcmp(name, "shop/lasting"));
  ++*(int *) context;
}

int main(int argc, char **argv)
{
  CHECK(argc == 2);
  varve_db *db;
  varve_options options;
  varve_options_default(&options);
  options.buffer_pool_bytes= 8 << 20;
  options.undo_tablespaces= 0;
  OK(varve_db_open(argv[1], &options, &db));
  create(db, "shop/lasting", false);
  create(db, "tmp/#1", true);
  int names= 0;
  OK(varve_db_tables(db, count_name, &names));
  CHECK(names == 1);

  varve_table *lasting, *temporary;
  OK(varve_table_open(db, "shop/lasting", &lasting));
  OK(varve_table_open(db, "tmp/#1", &temporary));
  varve_txn *txn;
  uint64_t savepoint;
  OK(varve_txn_open(db, VARVE_TABLES_LOCKED_BY_CALLER, &txn));
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  insert(txn, lasting, 1);
  insert(txn, temporary, 1);
  OK(varve_txn_savepoint(txn, &savepoint));
  insert(txn, temporary, 2);
  insert(txn, lasting, 2);
  OK(varve_txn_rollback_to(txn, savepoint));
  CHECK(count(txn, lasting) == 1 && count(txn, temporary) == 1);
  insert(txn, temporary, 3);
  EXPECT(VARVE_NOT_FOUND, varve_txn_drop_temporary(txn, "shop/lasting"));
  EXPECT(VARVE_NOT_FOUND, varve_txn_drop_temporary(txn, "tmp/#2"));
  varve_table_close(temporary);
  OK(varve_txn_drop_temporary(txn, "tmp/#1"));
  EXPECT(VARVE_NOT_FOUND, varve_table_open(db, "tmp/#1", &temporary));
  insert(txn, lasting, 3);
  OK(varve_txn_rollback_to(txn, savepoint));
  OK(varve_txn_commit(txn));

  create(db, "tmp/#1", true);
  OK(varve_table_open(db, "tmp/#1", &temporary));
  OK(varve_txn_begin(txn, VARVE_READ_COMMITTED));
  CHECK(count(txn, temporary) == 0 && count(txn, lasting) == 1);
  insert(txn, temporary, 7);
  OK(varve_txn_commit(txn));
  varve_txn_close(txn);
  varve_table_close(temporary);
  varve_table_close(lasting);
  OK(varve_db_close(db));

  OK(varve_db_open(argv[1], NULL, &db));
  EXPECT(VARVE_NOT_FOUND, varve_table_open(db, "tmp/#1", &temporary));
  names= 0;
  OK(varve_db_tables(db, count_name, &names));
  CHECK(names == 1);
  OK(varve_db_close(db));
  return 0;
}
