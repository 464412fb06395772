// rows.c: tables, rows, transactions and cursors, with a collation of the program's own.

#include <ctype.h>

#include "check.h"

// Letters in any case are equal. Weights are long, to see a buffer grow.
static size_t weights(void *context, const uint8_t *text, size_t len, uint8_t *out, size_t capacity)
{
  ++*(int *) context;
  size_t need= 4 * len;
  if (need > capacity)
    return need;
  for (size_t i= 0; i < len; i++)
    memset(out + 4 * i, toupper(text[i]), 4);
  return need;
}

static size_t prefix_bytes(void *context, const uint8_t *text, size_t len, size_t chars)
{
  (void) context;
  (void) text;
  return chars < len ? chars : len;
}

static int collation_calls;

static bool find_collation(void *context, uint32_t id, varve_collation *out)
{
  if (id != 7)
    return false;
  *out= (varve_collation){.id= id, .name= "test_ci", .version= "1", .context= context, .weights= weights,
                          .prefix_bytes= prefix_bytes};
  return true;
}

static varve_db *open_db(const char *dir)
{
  varve_db *db;
  varve_options options;
  varve_options_default(&options);
  options.buffer_pool_bytes= 8 << 20;
  options.find_collation= find_collation;
  options.collation_context= &collation_calls;
  OK(varve_db_open(dir, &options, &db));
  return db;
}

static void create(const varve_db *db)
{
  varve_column_def columns[]= {
    {.name= "id", .kind= VARVE_INT, .size= 4},
    {.name= "name", .kind= VARVE_TEXT, .size= 100, .collation= 7},
    {.name= "note", .kind= VARVE_BYTES, .size= 1000, .nullable= true},
  };
  varve_key_part primary= {.column= 0}, by_name= {.column= 1};
  varve_index_def index= {.name= "by_name", .unique= true, .parts= &by_name, .n_parts= 1};
  varve_table_def def= {.name= "shop/people", .columns= columns, .n_columns= 3, .primary= &primary, .n_primary= 1,
                        .indexes= &index, .n_indexes= 1, .auto_increment= 0};
  OK(varve_table_create(db, &def));
}

static void insert(const varve_txn *txn, const varve_table *table, int32_t id, const char *name,
                   const char *note)
{
  varve_value row[]= {number(&id), bytes(name), note ? bytes(note) : (varve_value){NULL, 0}};
  OK(varve_insert(txn, table, row, 3, VARVE_DUPLICATE_SHARE));
}

static void read_all(const varve_txn *txn, const varve_table *table)
{
  varve_cursor *c;
  const varve_value *row;
  OK(varve_cursor_open(table, 1, &c));
  OK(varve_cursor_first(c, txn, VARVE_NO_LOCK, &row));
  CHECK(as_number(row[0]) == 2 && equals(row[1], "Ada") && !row[2].ptr);
  OK(varve_cursor_next(c, txn, &row));
  CHECK(as_number(row[0]) == 3 && equals(row[1], "bob") && row[2].ptr && row[2].len == 0);
  const uint8_t *at;
  uint8_t position[64];
  uint32_t len= varve_cursor_position(c, &at);
  CHECK(len <= varve_table_max_position(table) && len <= sizeof position);
  memcpy(position, at, len);
  OK(varve_cursor_next(c, txn, &row));
  CHECK(as_number(row[0]) == 1 && equals(row[1], "Carl") && equals(row[2], "first"));
  EXPECT(VARVE_NO_ROW, varve_cursor_next(c, txn, &row));
  OK(varve_cursor_last(c, txn, VARVE_NO_LOCK, &row));
  CHECK(as_number(row[0]) == 1);
  OK(varve_cursor_prev(c, txn, &row));
  CHECK(as_number(row[0]) == 3);
  varve_value key= bytes("ADA");
  OK(varve_cursor_seek(c, txn, &key, 1, VARVE_EXACT, VARVE_NO_LOCK, &row));
  CHECK(as_number(row[0]) == 2);
  EXPECT(VARVE_NO_ROW, varve_cursor_next_same(c, txn, &row));
  OK(varve_cursor_seek(c, txn, &key, 1, VARVE_AFTER, VARVE_SHARED, &row));
  CHECK(as_number(row[0]) == 3);
  varve_cursor_close(c);

  OK(varve_cursor_open(table, 0, &c));
  OK(varve_cursor_seek_position(c, txn, position, len, VARVE_NO_LOCK, &row));
  CHECK(equals(row[1], "bob"));
  varve_cursor_close(c);
}

// Rows in portions: as many as the cursor has at hand, one behind the other.
static void read_portions(const varve_txn *txn, const varve_table *table)
{
  varve_cursor *c;
  const varve_value *row;
  uint32_t n;
  const uint8_t wanted[]= {1, 1, 0};
  OK(varve_cursor_open(table, 0, &c));
  varve_cursor_set_wanted_columns(c, wanted, 3);
  OK(varve_cursor_first(c, txn, VARVE_NO_LOCK, &row));
  CHECK(as_number(row[0]) == 1 && equals(row[1], "Carl") && !row[2].ptr);
  OK(varve_cursor_next_rows(c, txn, 0, &row, &n));
  CHECK(n == 2 && as_number(row[0]) == 2 && as_number(row[3]) == 3 && equals(row[4], "bob") && !row[5].ptr);
  // The cursor stands on the first of them until it is told otherwise.
  OK(varve_cursor_next_rows(c, txn, 0, &row, &n));
  CHECK(n == 1 && as_number(row[0]) == 3);
  EXPECT(VARVE_INVALID, varve_cursor_next_rows(c, txn, 1, &row, &n));
  EXPECT(VARVE_NO_ROW, varve_cursor_next_rows(c, txn, 0, &row, &n));

  OK(varve_cursor_first(c, txn, VARVE_NO_LOCK, &row));
  OK(varve_cursor_next_rows(c, txn, 0, &row, &n));
  EXPECT(VARVE_INVALID, varve_cursor_pass(c, txn, 2));
  OK(varve_cursor_first(c, txn, VARVE_NO_LOCK, &row));
  OK(varve_cursor_next_rows(c, txn, 0, &row, &n));
  OK(varve_cursor_pass(c, txn, 1));
  OK(varve_cursor_prev(c, txn, &row));
  CHECK(as_number(row[0]) == 2);
  varve_cursor_set_wanted_columns(c, NULL, 0);
  OK(varve_cursor_last(c, txn, VARVE_NO_LOCK, &row));
  CHECK(as_number(row[0]) == 3 && row[2].ptr);
  varve_cursor_close(c);

  // The name is text, which the index's keys don't give back: only the number is had from them.
  OK(varve_cursor_open(table, 1, &c));
  varve_cursor_set_keys_suffice(c, true);
  OK(varve_cursor_first(c, txn, VARVE_NO_LOCK, &row));
  CHECK(as_number(row[0]) == 2 && !row[1].ptr);
  OK(varve_cursor_next_rows(c, txn, 0, &row, &n));
  CHECK(as_number(row[0]) == 3);
  varve_value key= bytes("ada");
  OK(varve_cursor_seek(c, txn, &key, 1, VARVE_EXACT, VARVE_NO_LOCK, &row));
  EXPECT(VARVE_NO_ROW, varve_cursor_next_same_rows(c, txn, 0, &row, &n));
  varve_cursor_close(c);
}

// Wants odd numbers; the name is text, which keys don't give back.
static varve_verdict odd_only(void *asked, const varve_value *row, const uint8_t *position, uint32_t length)
{
  CHECK(position && length);
  ++*(int *) asked;
  return as_number(row[0]) % 2 ? VARVE_WANTED : VARVE_UNWANTED;
}

static varve_verdict stop(void *context, const varve_value *row, const uint8_t *position, uint32_t length)
{
  (void) position;
  (void) length;
  (void) context;
  (void) row;
  return VARVE_INTERRUPT;
}

static void read_some(const varve_txn *txn, const varve_table *table)
{
  varve_cursor *c;
  const varve_value *row;
  int asked= 0;
  OK(varve_cursor_open(table, 1, &c));
  CHECK(varve_cursor_covers(c, 0));
  CHECK(!varve_cursor_covers(c, 1));
  varve_cursor_set_filter(c, odd_only, &asked, (const uint8_t[]){1, 0}, 2);
  OK(varve_cursor_first(c, txn, VARVE_SHARED, &row));
  CHECK(as_number(row[0]) == 3 && equals(row[1], "bob"));
  OK(varve_cursor_next(c, txn, &row));
  CHECK(as_number(row[0]) == 1);
  EXPECT(VARVE_NO_ROW, varve_cursor_next(c, txn, &row));
  CHECK(asked == 3);
  varve_cursor_set_filter(c, stop, NULL, NULL, 0);
  EXPECT(VARVE_INTERRUPTED, varve_cursor_first(c, txn, VARVE_NO_LOCK, &row));
  varve_cursor_set_filter(c, NULL, NULL, NULL, 0);

  varve_value name= bytes("BOB");
  varve_bound begin= {&name, 1, true};
  OK(varve_cursor_set_begin(c, txn, &begin));
  OK(varve_cursor_last(c, txn, VARVE_NO_LOCK, &row));
  OK(varve_cursor_prev(c, txn, &row));
  CHECK(as_number(row[0]) == 3);
  EXPECT(VARVE_NO_ROW, varve_cursor_prev(c, txn, &row));
  varve_cursor_close(c);
  OK(varve_lock_key(txn, table, 1, &name, 1));
}

// Changes row 3 twice and deletes row 1, then goes back to the savepoint between.
static void change(const varve_txn *txn, const varve_table *table)
{
  varve_cursor *c;
  const varve_value *row;
  int32_t id= 3;
  varve_value key= number(&id);
  uint64_t savepoint;
  OK(varve_cursor_open(table, 0, &c));
  OK(varve_cursor_seek(c, txn, &key, 1, VARVE_EXACT, VARVE_EXCLUSIVE, &row));
  EXPECT(VARVE_UNCHANGED, varve_update(txn, c, row, 3));
  varve_value changed[]= {row[0], bytes("Bobby"), row[2]};
  OK(varve_update(txn, c, changed, 3));
  OK(varve_txn_savepoint(txn, &savepoint));
  id= 1;
  OK(varve_cursor_seek(c, txn, &key, 1, VARVE_EXACT, VARVE_EXCLUSIVE, &row));
  OK(varve_delete(txn, c));
  EXPECT(VARVE_NO_ROW, varve_cursor_seek(c, txn, &key, 1, VARVE_EXACT, VARVE_NO_LOCK, &row));
  // In the middle of a row's change, or behind everything.
  EXPECT(VARVE_INVALID, varve_txn_rollback_to(txn, savepoint + 1));
  EXPECT(VARVE_INVALID, varve_txn_rollback_to(txn, UINT64_MAX));
  OK(varve_txn_rollback_to(txn, savepoint));
  OK(varve_cursor_seek(c, txn, &key, 1, VARVE_EXACT, VARVE_NO_LOCK, &row));
  id= 3;
  OK(varve_cursor_seek(c, txn, &key, 1, VARVE_EXACT, VARVE_NO_LOCK, &row));
  CHECK(equals(row[1], "Bobby"));
  varve_cursor_close(c);
}

static void count_name(void *context, const char *name)
{
  *(int *) context+= !strcmp(name, "shop/people");
}

static void count_counter(void *context, const char *name, uint64_t value)
{
  (void) value;
  CHECK(name[0]);
  ++*(int *) context;
}

static void count_metric(void *context, const varve_metric *metric)
{
  CHECK(metric->name[0] && metric->status_name[0] && metric->subsystem[0] && metric->comment[0]);
  CHECK(metric->kind == VARVE_METRIC_COUNTER || metric->kind == VARVE_METRIC_VALUE);
  ++*(int *) context;
}

static void count_undo_tablespace(void *context, const varve_undo_tablespace *space)
{
  CHECK(space->number == (uint32_t) ++*(int *) context);
  CHECK(strstr(space->path, "undo_00") && !strcmp(space->state, "active") && space->rollback_segments > 40);
  CHECK(space->file_bytes > 0 && space->pages_used > 0 && space->truncations == 0);
}

int main(int argc, char **argv)
{
  CHECK(argc == 2);
  varve_db *db= open_db(argv[1]);
  varve_table *table;
  varve_txn *txn;
  create(db);
  OK(varve_table_open(db, "shop/people", &table));
  CHECK(varve_table_n_columns(table) == 3 && varve_table_n_indexes(table) == 1);
  OK(varve_txn_open(db, VARVE_TABLES_LOCKED_BY_ENGINE, &txn));

  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  insert(txn, table, 1, "Carl", "first");
  insert(txn, table, 2, "Ada", NULL);
  insert(txn, table, 3, "bob", "");
  CHECK(varve_txn_is_open(txn) && varve_txn_id(txn) != 0);
  OK(varve_txn_commit(txn));
  CHECK(!varve_txn_is_open(txn));
  CHECK(collation_calls > 0);

  OK(varve_txn_begin(txn, VARVE_READ_COMMITTED));
  OK(varve_txn_start_statement(txn));
  read_all(txn, table);
  read_portions(txn, table);
  read_some(txn, table);
  change(txn, table);
  OK(varve_txn_rollback(txn));

  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  OK(varve_txn_take_snapshot(txn));
  read_all(txn, table);
  OK(varve_txn_commit(txn));

  uint64_t first, rows, n;
  OK(varve_txn_begin(txn, VARVE_SERIALIZABLE));
  OK(varve_auto_increment_reserve(txn, table, 2, VARVE_COUNTER_LOCKED, &first));
  CHECK(first == 4);
  OK(varve_txn_end_statement(txn));
  OK(varve_table_set_auto_increment(table, 90));
  varve_table_raise_auto_increment(table, 100);
  varve_table_raise_auto_increment(table, 95);
  OK(varve_auto_increment_reserve(txn, table, 1, VARVE_COUNTER_AFTER_OTHERS, &first));
  CHECK(first == 100);
  OK(varve_txn_commit(txn));
  varve_table_stats stats;
  OK(varve_table_get_stats(table, &stats));
  CHECK(stats.rows == 3 && stats.used_bytes > 0 && stats.auto_increment == 101);
  double per_key[2];
  OK(varve_table_analyze(table, NULL));
  OK(varve_table_rows_per_key(table, 1, per_key, 2));
  CHECK(per_key[0] == 1 && per_key[1] == 1);
  varve_value from= bytes("b");
  varve_bound low= {&from, 1, true}, high= {NULL, 0, true};
  OK(varve_table_records_in_range(table, 1, &low, &high, &n));
  CHECK(n <= 3);
  int names= 0, counters= 0;
  OK(varve_db_tables(db, count_name, &names));
  CHECK(names == 1);
  OK(varve_db_status(db, count_counter, &counters));
  CHECK(counters > 0);
  int metrics= 0, spaces= 0;
  OK(varve_db_metrics(db, count_metric, &metrics));
  CHECK(metrics == counters);
  OK(varve_db_undo_tablespaces(db, count_undo_tablespace, &spaces));
  CHECK(spaces == 2);
  OK(varve_table_check(table, NULL, count_name, &names, &rows));
  CHECK(rows == 3);
  OK(varve_db_flush_log(db));
  varve_table_close(table);

  // Everything is there when the database is opened again, and not after a truncate.
  varve_txn_close(txn);
  OK(varve_db_close(db));
  db= open_db(argv[1]);
  OK(varve_table_rename(db, "shop/people", "shop/folk", NULL, NULL, VARVE_CHECK_REFERENCES));
  OK(varve_table_open(db, "shop/folk", &table));
  OK(varve_txn_open(db, VARVE_TABLES_LOCKED_BY_ENGINE, &txn));
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  read_all(txn, table);
  OK(varve_txn_commit(txn));
  varve_table_close(table);
  OK(varve_table_truncate(db, "shop/folk", VARVE_CHECK_REFERENCES));
  OK(varve_table_open(db, "shop/folk", &table));
  OK(varve_table_check(table, NULL, count_name, &names, &rows));
  CHECK(rows == 0);
  varve_table_close(table);
  OK(varve_table_drop(db, "shop/folk", VARVE_CHECK_REFERENCES));
  varve_txn_close(txn);
  OK(varve_db_close(db));
  return 0;
}
