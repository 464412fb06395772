// transactions.c: lists of transactions and of waits for locks, and what sessions say of themselves.

#define _POSIX_C_SOURCE 199309L  // nanosleep

#include <pthread.h>
#include <time.h>

#include "check.h"

struct seen
{
  int transactions, waiting, waits;
  char waits_for[100];
  uint64_t holder;
};

static void see_transaction(void *context, const varve_transaction *trx)
{
  struct seen *seen= context;
  seen->transactions++;
  CHECK(trx->isolation == VARVE_REPEATABLE_READ && !trx->prepared);
  CHECK(trx->number == trx->id || (!trx->id && trx->number > 72057594037927936));
  if (trx->waits_for)
  {
    seen->waiting++;
    CHECK(trx->session == 12 && trx->state == VARVE_TRANSACTION_WAITS);
    strncpy(seen->waits_for, trx->waits_for, sizeof seen->waits_for - 1);
  }
  else if (trx->session == 12)
    // It will wait in a moment.
    CHECK(trx->state == VARVE_TRANSACTION_RUNNING);
  else
  {
    CHECK(trx->session == 11 && trx->state == VARVE_TRANSACTION_RUNNING && trx->changes == 1);
    CHECK(trx->locks > 0 && trx->tables_locked == 1 && trx->view == 0 && trx->pinned_history == 0);
    seen->holder= trx->number;
  }
}

static void see_wait(void *context, const varve_lock_info *wanted, const varve_lock_info *blocking)
{
  struct seen *seen= context;
  if (!blocking)
    return;
  seen->waits++;
  CHECK(!strcmp(wanted->id, seen->waits_for) && blocking->transaction == seen->holder);
  CHECK(wanted->session == 12 && blocking->session == 11);
  CHECK(wanted->space == blocking->space && wanted->space);
  CHECK(!strcmp(wanted->table, "a/t") && !strcmp(wanted->index, "PRIMARY") && !strcmp(wanted->key, "7"));
  CHECK(!strcmp(wanted->mode, "S") && !strcmp(blocking->mode, "X"));
}

static bool say(void *context, uint64_t session, varve_session_text *out)
{
  static char line[40];
  ++*(int *) context;
  sprintf(line, "session %d\n", (int) session);
  *out= (varve_session_text){.active_seconds= 5, .operation= "thinking", .before= "", .after= line};
  return session == 11;
}

static void collect(void *context, const char *text)
{
  char *report= context;
  CHECK(strlen(report) + strlen(text) < 60000);
  strcat(report, text);
}

struct waiter
{
  const varve_txn *txn;
  const varve_table *table;
};

static void *insert_again(void *context)
{
  const struct waiter *waiter= context;
  const int32_t id= 7;
  varve_value row= number(&id);
  EXPECT(VARVE_DUPLICATE_KEY, varve_insert(waiter->txn, waiter->table, &row, 1, VARVE_DUPLICATE_SHARE));
  return NULL;
}

int main(int argc, char **argv)
{
  CHECK(argc == 2);
  static char report[60000];
  varve_db *db;
  varve_table *table;
  varve_txn *holder, *waiting;
  const int32_t id= 7;
  varve_value row= number(&id);
  OK(varve_db_open(argv[1], NULL, &db));
  varve_column_def column= {.name= "id", .kind= VARVE_INT, .size= 4};
  varve_key_part primary= {.column= 0};
  varve_table_def def= {.name= "a/t", .columns= &column, .n_columns= 1, .primary= &primary, .n_primary= 1,
                        .auto_increment= UINT32_MAX};
  OK(varve_table_create(db, &def));
  OK(varve_table_open(db, "a/t", &table));
  OK(varve_txn_open(db, VARVE_TABLES_LOCKED_BY_ENGINE, &holder));
  OK(varve_txn_open(db, VARVE_TABLES_LOCKED_BY_ENGINE, &waiting));
  varve_txn_set_session(holder, 11);
  varve_txn_set_session(waiting, 12);
  OK(varve_txn_begin(holder, VARVE_REPEATABLE_READ));
  OK(varve_txn_begin(waiting, VARVE_REPEATABLE_READ));
  OK(varve_insert(holder, table, &row, 1, VARVE_DUPLICATE_SHARE));

  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, insert_again, &(struct waiter){waiting, table}));
  struct seen seen;
  do
  {
    nanosleep(&(struct timespec){.tv_nsec= 1000000}, NULL);
    memset(&seen, 0, sizeof seen);
    OK(varve_db_transactions(db, see_transaction, &seen));
    CHECK(seen.transactions == 2);
  } while (!seen.waiting);
  OK(varve_db_lock_waits(db, see_wait, &seen));
  CHECK(seen.waits == 1);

  // Sessions are asked for what they say, and those that say nothing are left out.
  int asked= 0;
  OK(varve_db_report(db, say, &asked, collect, report));
  CHECK(asked == 2 && strstr(report, ", ACTIVE 5 sec thinking\n") && strstr(report, "session 11\n"));
  CHECK(!strstr(report, "session 12\n") && strstr(report, "FOR THIS LOCK TO BE GRANTED"));
  asked= 0;
  report[0]= 0;
  OK(varve_db_describe_deadlocks(db, say, &asked, collect, report));
  CHECK(asked == 0 && !report[0]);
  varve_db_set_deadlock_detection(db, false);
  varve_db_set_deadlock_detection(db, true);

  OK(varve_txn_commit(holder));
  CHECK(!pthread_join(thread, NULL));
  CHECK(varve_txn_take_lock_wait_us(waiting) > 0 && varve_txn_take_lock_wait_us(waiting) == 0);
  varve_txn_close(waiting);
  varve_txn_close(holder);
  varve_table_close(table);
  memset(&seen, 0, sizeof seen);
  OK(varve_db_transactions(db, see_transaction, &seen));
  CHECK(seen.transactions == 0);

  varve_purge purge;
  do
  {
    nanosleep(&(struct timespec){.tv_nsec= 1000000}, NULL);
    OK(varve_db_purge(db, &purge));
  } while (purge.history);
  CHECK(purge.state != VARVE_PURGE_STOPPED && !purge.view && !purge.session);
  CHECK(purge.seconds_left == 0 && purge.working_off >= 0 && purge.joining >= 0);
  OK(varve_db_close(db));
  return 0;
}
