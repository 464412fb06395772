// errors.c: what goes wrong comes back as a code and a text, and leaves the transaction usable.

#include <pthread.h>

#include "check.h"

static varve_db *db;
static varve_table *table;

static void create(void)
{
  varve_column_def columns[]= {
    {.name= "id", .kind= VARVE_INT, .size= 4},
    {.name= "data", .kind= VARVE_BYTES, .size= 100000},
  };
  varve_key_part primary= {.column= 0}, by_data= {.column= 1, .prefix= 4};
  varve_index_def index= {.name= "by_data", .unique= true, .parts= &by_data, .n_parts= 1};
  varve_table_def def= {.name= "a/t", .columns= columns, .n_columns= 2, .primary= &primary, .n_primary= 1,
                        .indexes= &index, .n_indexes= 1, .auto_increment= UINT32_MAX};
  OK(varve_table_create(db, &def));
  EXPECT(VARVE_ALREADY_EXISTS, varve_table_create(db, &def));
  CHECK(strstr(varve_last_error(), "a/t"));
  columns[0].size= 5;
  EXPECT(VARVE_INVALID, varve_table_create(db, &def));
  CHECK(strstr(varve_last_error(), "id"));
  EXPECT(VARVE_NOT_FOUND, varve_table_open(db, "a/u", &table));
  OK(varve_table_open(db, "a/t", &table));
}

static varve_code insert(const varve_txn *txn, int32_t id, const char *data, uint32_t len)
{
  varve_value row[]= {number(&id), {(const uint8_t *) data, len}};
  return varve_insert(txn, table, row, 2, VARVE_DUPLICATE_SHARE);
}

static varve_code lock(const varve_txn *txn, int32_t id)
{
  varve_cursor *c;
  const varve_value *row;
  varve_value key= number(&id);
  OK(varve_cursor_open(table, 0, &c));
  varve_code code= varve_cursor_seek(c, txn, &key, 1, VARVE_EXACT, VARVE_EXCLUSIVE, &row);
  varve_cursor_close(c);
  return code;
}

// Of each value 21 bytes stay in the row, wherever the rest is.
static void a_row_that_does_not_fit(const varve_txn *txn)
{
  enum { COLUMNS= 500 };
  static char names[COLUMNS][8], bytes[100];
  static varve_column_def columns[COLUMNS];
  static varve_value row[COLUMNS];
  for (int i= 0; i < COLUMNS; i++)
  {
    snprintf(names[i], sizeof names[i], "c%d", i);
    columns[i]= (varve_column_def){.name= names[i], .kind= VARVE_BYTES, .size= sizeof bytes};
    row[i]= (varve_value){(const uint8_t *) bytes, sizeof bytes};
  }
  varve_key_part primary= {.column= 0};
  varve_table_def def= {.name= "a/wide", .columns= columns, .n_columns= COLUMNS, .primary= &primary,
                        .n_primary= 1, .auto_increment= UINT32_MAX};
  varve_table *wide;
  OK(varve_table_create(db, &def));
  OK(varve_table_open(db, "a/wide", &wide));
  EXPECT(VARVE_TOO_LARGE, varve_insert(txn, wide, row, COLUMNS, VARVE_DUPLICATE_SHARE));
  CHECK(strstr(varve_last_error(), "row"));
  varve_table_close(wide);
}

// All or none.
static void many_rows(const varve_txn *txn)
{
  int32_t ids[]= {5, 4, 1};
  varve_value rows[6];
  for (int i= 0; i < 3; i++)
  {
    rows[2 * i]= number(&ids[i]);
    rows[2 * i + 1]= (varve_value){(const uint8_t *) &ids[i], sizeof ids[i]};
  }
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  EXPECT(VARVE_DUPLICATE_KEY, varve_insert_many(txn, table, rows, 2, 3));
  CHECK(varve_last_error_index(table) == 0);
  EXPECT(VARVE_NO_ROW, lock(txn, 4));
  EXPECT(VARVE_INVALID, varve_insert_many(txn, table, rows, 1, 2));
  OK(varve_insert_many(txn, table, rows, 2, 2));
  OK(varve_insert_many(txn, table, NULL, 2, 0));
  OK(lock(txn, 4));
  OK(lock(txn, 5));
  OK(varve_txn_rollback(txn));
}

static void rows_that_do_not_fit(const varve_txn *txn)
{
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  EXPECT(VARVE_DUPLICATE_KEY, insert(txn, 1, "else", 4));
  CHECK(varve_last_error_index(table) == 0);
  EXPECT(VARVE_DUPLICATE_KEY, insert(txn, 2, "one, again", 10));
  CHECK(varve_last_error_index(table) == 1);
  a_row_that_does_not_fit(txn);
  varve_value null[]= {{NULL, 0}, {NULL, 0}};
  EXPECT(VARVE_INVALID, varve_insert(txn, table, null, 2, VARVE_DUPLICATE_SHARE));
  EXPECT(VARVE_INVALID, varve_insert(txn, table, null, 1, VARVE_DUPLICATE_SHARE));
  OK(insert(txn, 3, "three", 5));
  OK(varve_txn_commit(txn));
  EXPECT(VARVE_INVALID, insert(txn, 4, "four", 4));
  CHECK(strstr(varve_last_error(), "transaction"));
}

// What is refused leaves the options as they are.
static void options_out_of_bounds(void)
{
  varve_history_options history= {.store= true, .delay_ms= 0, .max_size_bytes= 1 << 20};
  OK(varve_db_set_history(db, &history));
  history.delay_ms= 3600001;
  EXPECT(VARVE_INVALID, varve_db_set_history(db, &history));
  CHECK(strstr(varve_last_error(), "history.delay"));
  history.delay_ms= 3600000;
  history.max_size_bytes= (1 << 20) - 1;
  EXPECT(VARVE_INVALID, varve_db_set_history(db, &history));
  CHECK(strstr(varve_last_error(), "history.max_size 1048575"));
  history.max_size_bytes= 0;
  OK(varve_db_set_history(db, &history));
}

// An enum may hold any number in C: what is none of its constants is refused, by the argument's name.
static void ignore(void *context, const char *what)
{
  (void) context;
  (void) what;
}

// Of a session that does something on behalf of another: `a` for `b`.
static void interrupts(const varve_txn *a, const varve_txn *b)
{
  uint64_t rows;
  varve_txn_interrupt_with(a, b);
  OK(varve_txn_begin(a, VARVE_REPEATABLE_READ));
  OK(varve_table_check(table, a, ignore, NULL, &rows));
  OK(varve_table_analyze(table, a));
  varve_txn_interrupt(b);
  EXPECT(VARVE_INTERRUPTED, varve_table_check(table, a, ignore, NULL, &rows));
  EXPECT(VARVE_INTERRUPTED, varve_table_analyze(table, a));
  OK(varve_txn_rollback(a));
  // It is there until it is cleared, also for a transaction that begins.
  OK(varve_txn_begin(a, VARVE_REPEATABLE_READ));
  EXPECT(VARVE_INTERRUPTED, varve_table_analyze(table, a));
  varve_txn_clear_interrupt(a);
  EXPECT(VARVE_INTERRUPTED, varve_table_analyze(table, a));
  varve_txn_clear_interrupt(b);
  OK(varve_table_analyze(table, a));
  varve_txn_interrupt(a);
  OK(varve_table_analyze(table, a));
  OK(varve_txn_commit(a));
  varve_txn_clear_interrupt(a);
  varve_txn_interrupt_with(a, a);
  EXPECT(VARVE_INVALID, varve_table_check(table, a, ignore, NULL, &rows));
}

static void numbers_that_mean_nothing(void)
{
  varve_txn *txn;
  EXPECT(VARVE_INVALID, varve_txn_open(db, (varve_table_locks) 2, &txn));
  CHECK(strstr(varve_last_error(), "locking is 2, which is no varve_table_locks"));
  OK(varve_txn_open(db, VARVE_TABLES_LOCKED_BY_ENGINE, &txn));
  EXPECT(VARVE_INVALID, varve_txn_begin(txn, (varve_isolation) 77));
  CHECK(strstr(varve_last_error(), "isolation is 77"));
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  int32_t id= 50;
  varve_value row[]= {number(&id), {(const uint8_t *) "fifty", 5}};
  EXPECT(VARVE_INVALID, varve_insert(txn, table, row, 2, (varve_on_duplicate) 9));
  CHECK(strstr(varve_last_error(), "on_duplicate is 9"));
  OK(varve_insert(txn, table, row, 2, VARVE_DUPLICATE_LOCK));
  varve_cursor *c;
  const varve_value *found;
  OK(varve_cursor_open(table, 0, &c));
  EXPECT(VARVE_INVALID, varve_cursor_seek(c, txn, row, 1, VARVE_EXACT, (varve_lock) 6, &found));
  CHECK(strstr(varve_last_error(), "lock is 6, which is no varve_lock"));
  EXPECT(VARVE_INVALID, varve_cursor_seek(c, txn, row, 1, (varve_match) -1, VARVE_SHARED, &found));
  CHECK(strstr(varve_last_error(), "how is -1"));
  OK(varve_cursor_seek(c, txn, row, 1, VARVE_EXACT, VARVE_SHARED, &found));
  varve_cursor_close(c);
  OK(varve_txn_rollback(txn));
  varve_txn_close(txn);
  EXPECT(VARVE_INVALID, varve_db_set_flush_log(db, (varve_flush_log) 3));
  CHECK(strstr(varve_last_error(), "mode is 3"));
  varve_column_def column= {.name= "id", .kind= (varve_type) 0, .size= 4};
  varve_table_def def= {.name= "a/odd", .columns= &column, .n_columns= 1, .auto_increment= UINT32_MAX};
  EXPECT(VARVE_INVALID, varve_table_create(db, &def));
  CHECK(strstr(varve_last_error(), "the kind of column id is 0"));
}

struct waiter
{
  const varve_txn *txn;
  int32_t id;
  varve_code code;
};

static void *wait_for_lock(void *arg)
{
  struct waiter *w= arg;
  w->code= lock(w->txn, w->id);
  if (w->code == VARVE_DEADLOCK)
    OK(varve_txn_rollback(w->txn));
  return NULL;
}

static void waits(const varve_txn *a, const varve_txn *b)
{
  pthread_t thread;
  OK(varve_txn_begin(a, VARVE_REPEATABLE_READ));
  OK(varve_txn_begin(b, VARVE_REPEATABLE_READ));
  OK(lock(a, 1));
  OK(lock(b, 3));
  varve_txn_set_lock_wait_timeout(b, 0);
  EXPECT(VARVE_LOCK_WAIT_TIMEOUT, lock(b, 1));
  varve_txn_set_lock_wait_timeout(b, 60000);

  // An interrupt ends the wait, whether it comes before it or during it.
  struct waiter w= {b, 1, VARVE_OK};
  CHECK(!pthread_create(&thread, NULL, wait_for_lock, &w));
  varve_txn_interrupt(b);
  CHECK(!pthread_join(thread, NULL));
  CHECK(w.code == VARVE_INTERRUPTED);
  varve_txn_clear_interrupt(b);

  // Each wants what the other has: one of them gives way, and only by that the other gets on.
  w.code= VARVE_OK;
  CHECK(!pthread_create(&thread, NULL, wait_for_lock, &w));
  varve_code mine= lock(a, 3);
  CHECK(mine == VARVE_OK || mine == VARVE_DEADLOCK);
  if (mine == VARVE_DEADLOCK)
    OK(varve_txn_rollback(a));
  CHECK(!pthread_join(thread, NULL));
  CHECK(w.code == (mine == VARVE_OK ? VARVE_DEADLOCK : VARVE_OK));
  OK(varve_txn_rollback(a));
  OK(varve_txn_rollback(b));
}

int main(int argc, char **argv)
{
  CHECK(argc == 2);
  varve_options options;
  varve_options_default(&options);
  options.create_if_missing= false;
  EXPECT(VARVE_NOT_FOUND, varve_db_open(argv[1], &options, &db));
  options.create_if_missing= true;
  options.page_size= 5000;
  EXPECT(VARVE_INVALID, varve_db_open(argv[1], &options, &db));
  options.page_size= 16384;
  options.flush_log_at_trx_commit= (varve_flush_log) 8;
  EXPECT(VARVE_INVALID, varve_db_open(argv[1], &options, &db));
  CHECK(strstr(varve_last_error(), "flush_log_at_trx_commit is 8"));
  options.flush_log_at_trx_commit= VARVE_FLUSH_SYNC;
  CHECK(options.history.store && options.history.delay_ms == 1000 && !options.history.max_size_bytes);
  options.history.max_size_bytes= 1;
  EXPECT(VARVE_INVALID, varve_db_open(argv[1], &options, &db));
  CHECK(strstr(varve_last_error(), "history.max_size 1 is below"));
  options.history.max_size_bytes= 0;
  OK(varve_db_open(argv[1], &options, &db));
  varve_db *second;
  EXPECT(VARVE_IN_USE, varve_db_open(argv[1], &options, &second));
  create();
  varve_txn *a, *b;
  OK(varve_txn_open(db, VARVE_TABLES_LOCKED_BY_ENGINE, &a));
  OK(varve_txn_open(db, VARVE_TABLES_LOCKED_BY_ENGINE, &b));
  OK(varve_txn_begin(a, VARVE_REPEATABLE_READ));
  EXPECT(VARVE_INVALID, varve_txn_begin(a, VARVE_REPEATABLE_READ));
  OK(insert(a, 1, "one", 3));
  OK(insert(a, 2, "one,", 4));
  OK(varve_txn_rollback(a));
  OK(varve_txn_begin(a, VARVE_REPEATABLE_READ));
  OK(insert(a, 1, "one, and more", 13));
  OK(varve_txn_commit(a));
  many_rows(a);
  rows_that_do_not_fit(a);
  waits(a, b);
  interrupts(a, b);
  numbers_that_mean_nothing();
  options_out_of_bounds();
  varve_txn_close(a);
  varve_txn_close(b);
  varve_table_close(table);
  OK(varve_db_close(db));
  return 0;
}
