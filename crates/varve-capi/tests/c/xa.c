// xa.c: two-phase commit, its coordinator's names and decisions.

#define _POSIX_C_SOURCE 199309L  // nanosleep

#include <stdatomic.h>
#include <time.h>

#include "check.h"

static varve_xid name(const char *global)
{
  varve_xid xid= {.format= 7, .global_len= (uint32_t) strlen(global), .branch_len= 1};
  memcpy(xid.parts, global, strlen(global));
  xid.parts[strlen(global)]= 'b';
  return xid;
}

static void insert(const varve_txn *txn, const varve_table *table, int32_t id)
{
  varve_value row= number(&id);
  OK(varve_insert(txn, table, &row, 1, VARVE_DUPLICATE_SHARE));
}

static void ignore(void *context, const char *text)
{
  (void) context;
  (void) text;
}

static uint64_t count(const varve_table *table)
{
  uint64_t rows;
  OK(varve_table_check(table, NULL, ignore, NULL, &rows));
  return rows;
}

static void collect(void *context, const varve_xid *xid)
{
  char *names= context;
  CHECK(xid->format == 7 && xid->branch_len == 1 && xid->parts[xid->global_len] == 'b');
  strncat(names, (const char *) xid->parts, xid->global_len);
  strcat(names, " ");
}

static void is_prepared(const varve_db *db, const char *expected)
{
  char names[100]= "";
  OK(varve_db_prepared(db, collect, names));
  if (strcmp(names, expected))
  {
    fprintf(stderr, "prepared: %s, expected: %s\n", names, expected);
    exit(1);
  }
}

static void set_flag(void *flag)
{
  atomic_store((atomic_int *) flag, 1);
}

int main(int argc, char **argv)
{
  CHECK(argc == 2);
  varve_db *db;
  varve_table *table;
  varve_txn *txn;
  bool detached;
  const varve_xid a= name("a"), bb= name("bb"), c= name("c");
  OK(varve_db_open(argv[1], NULL, &db));
  varve_column_def column= {.name= "id", .kind= VARVE_INT, .size= 4};
  varve_key_part primary= {.column= 0};
  varve_table_def def= {.name= "a/t", .columns= &column, .n_columns= 1, .primary= &primary, .n_primary= 1,
                        .auto_increment= UINT32_MAX};
  OK(varve_table_create(db, &def));
  OK(varve_table_open(db, "a/t", &table));
  OK(varve_txn_open(db, VARVE_TABLES_LOCKED_BY_ENGINE, &txn));

  // Two are let go, one ends in its session.
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  insert(txn, table, 1);
  OK(varve_txn_detach(txn, &detached));
  CHECK(!detached);
  OK(varve_txn_prepare(txn, &bb));
  OK(varve_txn_release_searches(txn));
  OK(varve_txn_detach(txn, &detached));
  CHECK(detached && !varve_txn_is_open(txn));
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  insert(txn, table, 2);
  EXPECT(VARVE_ALREADY_EXISTS, varve_txn_prepare(txn, &bb));
  OK(varve_txn_prepare(txn, &a));
  EXPECT(VARVE_INVALID, varve_db_commit_prepared(db, &a));
  OK(varve_txn_detach(txn, &detached));
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  insert(txn, table, 3);
  OK(varve_txn_prepare(txn, &c));
  OK(varve_txn_hold_commit(txn));
  is_prepared(db, "a bb c ");
  OK(varve_txn_commit_start(txn));
  is_prepared(db, "a bb ");
  CHECK(varve_txn_is_open(txn));
  OK(varve_txn_commit_decided(txn));
  CHECK(!varve_txn_is_open(txn));

  atomic_int durable= 0;
  OK(varve_db_notify_durable(db, set_flag, &durable));
  while (!atomic_load(&durable))
    nanosleep(&(struct timespec){.tv_nsec= 1000000}, NULL);

  // The others wait, whatever happens to the database.
  varve_txn_close(txn);
  varve_table_close(table);
  OK(varve_db_close(db));
  OK(varve_db_open(argv[1], NULL, &db));
  is_prepared(db, "a bb ");
  OK(varve_table_open(db, "a/t", &table));
  OK(varve_txn_open(db, VARVE_TABLES_LOCKED_BY_CALLER, &txn));
  varve_txn_set_lock_wait_timeout(txn, 10);
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  EXPECT(VARVE_LOCK_WAIT_TIMEOUT, varve_txn_lock_table(txn, table, false));
  OK(varve_db_commit_prepared(db, &a));
  OK(varve_db_rollback_prepared(db, &bb));
  EXPECT(VARVE_NOT_FOUND, varve_db_commit_prepared(db, &c));
  OK(varve_txn_lock_table(txn, table, false));
  OK(varve_txn_commit(txn));
  is_prepared(db, "");
  CHECK(count(table) == 2);

  varve_xid bad= a;
  bad.global_len= 1000;
  EXPECT(VARVE_INVALID, varve_db_commit_prepared(db, &bad));
  bad.global_len= 0;
  EXPECT(VARVE_INVALID, varve_db_rollback_prepared(db, &bad));
  EXPECT(VARVE_INVALID, varve_txn_prepare(txn, &a));
  EXPECT(VARVE_INVALID, varve_txn_commit_start(txn));
  varve_txn_close(txn);
  varve_table_close(table);
  OK(varve_db_close(db));
  return 0;
}
