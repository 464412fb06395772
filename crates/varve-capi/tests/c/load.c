// load.c: a table that is being made gets its rows by a load: in any order, with a duplicate that is shown,
// and given up. One that others may use is loaded by a transaction, which may be rolled back.

#include "check.h"

static varve_table *create(const varve_db *db)
{
  varve_column_def columns[]= {
    {.name= "id", .kind= VARVE_INT, .size= 4},
    {.name= "note", .kind= VARVE_BYTES, .size= 20000},
  };
  varve_key_part primary= {.column= 0}, note= {.column= 1, .prefix= 4};
  varve_index_def by_note= {.name= "by_note", .unique= true, .parts= &note, .n_parts= 1};
  varve_table_def def= {.name= "a/#new", .columns= columns, .n_columns= 2, .primary= &primary, .n_primary= 1,
                        .indexes= &by_note, .n_indexes= 1, .auto_increment= UINT32_MAX};
  varve_table *table;
  OK(varve_table_create(db, &def));
  OK(varve_table_open(db, "a/#new", &table));
  return table;
}

static void take(varve_load *load, const varve_txn *txn, int32_t id, const char *note)
{
  varve_value row[]= {number(&id), bytes(note)};
  OK(varve_load_row(load, txn, row, 2));
}

// What is expected of a duplicate.
struct Shown
{
  int32_t id;
  const char *note;
  int times;
};

static void show(void *context, const char *index, const varve_value *row)
{
  struct Shown *shown= context;
  CHECK(!strcmp(index, "by_note"));
  CHECK(as_number(row[0]) == shown->id && equals(row[1], shown->note));
  shown->times++;
}

// What a load leaves that has failed is dropped.
static void give_up(varve_db *db, varve_txn *txn, varve_table *table)
{
  OK(varve_txn_rollback(txn));
  varve_table_close(table);
  OK(varve_table_drop(db, "a/#new", VARVE_CHECK_REFERENCES));
}

int main(int argc, char **argv)
{
  CHECK(argc == 2);
  varve_db *db;
  varve_options options;
  varve_options_default(&options);
  options.buffer_pool_bytes= 8 << 20;
  OK(varve_db_open(argv[1], &options, &db));
  varve_txn *txn;
  OK(varve_txn_open(db, VARVE_TABLES_LOCKED_BY_CALLER, &txn));
  static char longer[15001];
  memset(longer, 'x', sizeof longer - 1);

  // A duplicate, and a long one beside it.
  varve_table *table= create(db);
  varve_load *load;
  EXPECT(VARVE_INVALID, varve_load_begin(txn, table, 1, &load));
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  OK(varve_load_begin(txn, table, 1, &load));
  take(load, txn, 3, "three");
  take(load, txn, 5, longer);
  take(load, txn, 1, "one");
  take(load, txn, 2, longer);
  struct Shown shown= {2, longer, 0};
  EXPECT(VARVE_DUPLICATE_KEY, varve_load_finish(load, txn, show, &shown));
  CHECK(shown.times == 1 && varve_last_error_index(table) == 1);
  give_up(db, txn, table);

  // Given up.
  table= create(db);
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  OK(varve_load_begin(txn, table, 2, &load));
  take(load, txn, 1, "one");
  varve_load_abandon(load, txn);
  give_up(db, txn, table);

  // Whole.
  table= create(db);
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  OK(varve_load_begin(txn, table, 1, &load));
  take(load, txn, 2, "two");
  take(load, txn, 1, "one");
  OK(varve_load_finish(load, txn, show, &shown));
  OK(varve_txn_commit(txn));
  varve_table_close(table);
  OK(varve_table_rename(db, "a/#new", "a/t", NULL, "t_", VARVE_CHECK_REFERENCES));
  OK(varve_table_open(db, "a/t", &table));
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  varve_cursor *c;
  const varve_value *row;
  OK(varve_cursor_open(table, 1, &c));
  OK(varve_cursor_first(c, txn, VARVE_NO_LOCK, &row));
  CHECK(as_number(row[0]) == 1 && equals(row[1], "one"));
  OK(varve_cursor_next(c, txn, &row));
  CHECK(as_number(row[0]) == 2 && equals(row[1], "two"));
  EXPECT(VARVE_NO_ROW, varve_cursor_next(c, txn, &row));
  varve_cursor_close(c);
  EXPECT(VARVE_UNSUPPORTED, varve_load_try(txn, table, 1, &load));
  EXPECT(VARVE_INVALID, varve_load_begin(txn, table, 1, &load));
  OK(varve_txn_commit(txn));

  // By a transaction: rolled back, and given up, which lets others at the table.
  OK(varve_table_truncate(db, "a/t", VARVE_CHECK_REFERENCES));
  varve_table_close(table);
  OK(varve_table_open(db, "a/t", &table));
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  OK(varve_load_try(txn, table, 1, &load));
  take(load, txn, 2, "two");
  OK(varve_load_finish(load, txn, show, &shown));
  OK(varve_txn_rollback(txn));
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  OK(varve_load_begin(txn, table, 1, &load));
  take(load, txn, 1, "one");
  varve_load_abandon(load, txn);
  OK(varve_cursor_open(table, 1, &c));
  varve_txn *other;
  OK(varve_txn_open(db, VARVE_TABLES_LOCKED_BY_CALLER, &other));
  OK(varve_txn_begin(other, VARVE_REPEATABLE_READ));
  EXPECT(VARVE_UNSUPPORTED, varve_load_try(other, table, 1, &load));
  const int32_t three= 3;
  varve_value values[]= {number(&three), bytes("three")};
  OK(varve_insert(other, table, values, 2, VARVE_DUPLICATE_SHARE));
  OK(varve_txn_commit(other));
  OK(varve_txn_rollback(txn));
  OK(varve_txn_begin(other, VARVE_REPEATABLE_READ));
  OK(varve_cursor_first(c, other, VARVE_NO_LOCK, &row));
  CHECK(as_number(row[0]) == 3 && equals(row[1], "three"));
  EXPECT(VARVE_NO_ROW, varve_cursor_next(c, other, &row));
  varve_cursor_close(c);
  OK(varve_txn_commit(other));
  varve_txn_close(other);
  varve_table_close(table);
  varve_txn_close(txn);
  OK(varve_db_close(db));
  return 0;
}
