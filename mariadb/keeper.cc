// keeper.cc: the thread that looks at tables again which have changed, and stores what others could not.
//
// It has a list of tasks, at most one for each table: the last thing that was asked for. A task is on the
// list until it is done: meanwhile what is stored of the table counts for nothing, unless it is only to be
// made again. The thread uses no server connection and no metadata lock: a transaction of the engine's keeps
// a table from being dropped or redefined while it is looked at and its rows are stored, which takes a few
// pages' time. Whoever wants to drop it waits for that. No reader and no writer does.
//
// - A task that somebody's lock is in the way of is tried again after RETRY.
// - A table that has changed is looked at a second later, when the statements that follow have changed it,
//   too; and then, like InnoDB's, at most every ten seconds.
//
// It also makes the two tables if the engine came while the server was running; at the server's start that is
// done before anybody can connect, so all see the same tables.

#include "statistics.h"

#include "engine.h"

#include "mysqld.h"
#include "sql_plugin.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace varve_plugin {

namespace {

using Clock= std::chrono::steady_clock;

const std::chrono::seconds RETRY(1), FIRST(1), INTERVAL(10);

struct Pending
{
  Task task;
  uint sample_pages;
  Clock::time_point not_before;
  ulonglong number;  // of the request
};

std::mutex mutex;  // guards all that follows but the thread
std::condition_variable changed;
std::map<std::string, Pending> pending;
std::map<std::string, Clock::time_point> looked_at;  // within the last INTERVAL
ulonglong requests;
bool is_to_stop, is_to_make_tables;
varve_txn *txn;  // the thread's; others interrupt it

std::thread thread;

const char *const statements[]= {
  "SET SESSION sql_mode=''",
  "CREATE TABLE IF NOT EXISTS mysql.varve_table_stats ("
  "database_name VARCHAR(64) NOT NULL, table_name VARCHAR(199) NOT NULL,"
  "last_update TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,"
  "n_rows BIGINT UNSIGNED NOT NULL, clustered_index_size BIGINT UNSIGNED NOT NULL,"
  "sum_of_other_index_sizes BIGINT UNSIGNED NOT NULL,"
  "PRIMARY KEY (database_name, table_name)"
  ") ENGINE=VARVE DEFAULT CHARSET=utf8mb3 COLLATE=utf8mb3_bin STATS_PERSISTENT=0",
  "CREATE TABLE IF NOT EXISTS mysql.varve_index_stats ("
  "database_name VARCHAR(64) NOT NULL, table_name VARCHAR(199) NOT NULL, index_name VARCHAR(64) NOT NULL,"
  "last_update TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,"
  "stat_name VARCHAR(64) NOT NULL, stat_value BIGINT UNSIGNED NOT NULL, sample_size BIGINT UNSIGNED,"
  "stat_description VARCHAR(1024) NOT NULL,"
  "PRIMARY KEY (database_name, table_name, index_name, stat_name)"
  ") ENGINE=VARVE DEFAULT CHARSET=utf8mb3 COLLATE=utf8mb3_bin STATS_PERSISTENT=0"};

// By a connection without a client, which may do anything, also in a read-only server, and logs nothing.
void execute_statements()
{
  MYSQL *const connection= mysql_init(nullptr);
  if (!connection)
    return;
  bool is_well= mysql_real_connect_local(connection) != nullptr;
  for (const char *statement : statements)
    is_well= is_well && !mysql_real_query(connection, statement, ulong(strlen(statement)));
  if (!is_well)
    sql_print_warning("VARVE: the tables for persistent statistics can't be made: %s", mysql_error(connection));
  mysql_close(connection);
}

bool is_engine_ready()
{
  static const LEX_CSTRING name= {STRING_WITH_LEN("VARVE")};
  return plugin_is_ready(&name, MYSQL_STORAGE_ENGINE_PLUGIN);
}

// All but FORGET.
Stored store(const std::string &name, const Pending &task)
{
  varve_table *table;
  if (varve_table_open(db, name.c_str(), &table))
    return Stored::NONE;  // gone
  varve_code code= varve_txn_begin(txn, VARVE_READ_COMMITTED);
  if (!code)
    code= varve_txn_start_statement(txn);
  if (!code && task.task == Task::RECALCULATE)
  {
    varve_table_set_sample_leaves(table, task.sample_pages);
    code= varve_table_analyze(table, txn);
  }
  Stored stored= code == VARVE_LOCK_WAIT_TIMEOUT ? Stored::LATER : code ? Stored::UNAVAILABLE : Stored::ALL;
  if (stored == Stored::ALL)
    stored= task.task == Task::COMPLETE ? complete_statistics(table, name, txn)
                                        : store_statistics(table, name, txn);
  if (stored == Stored::ALL && varve_txn_commit(txn))
    stored= Stored::UNAVAILABLE;
  varve_txn_rollback(txn);
  varve_table_close(table);
  return stored;
}

Stored carry_out(const std::string &name, const Pending &task)
{
  return task.task == Task::FORGET ? try_to_forget(name) : store(name, task);
}

// The task that is due, or when the next one is.
std::map<std::string, Pending>::iterator next_task(Clock::time_point *due)
{
  const Clock::time_point now= Clock::now();
  for (auto at= looked_at.begin(); at != looked_at.end();)
    at= now - at->second >= INTERVAL ? looked_at.erase(at) : std::next(at);
  *due= Clock::time_point::max();
  auto first= pending.end();
  for (auto at= pending.begin(); at != pending.end(); ++at)
  {
    Clock::time_point when= at->second.not_before;
    const auto last= looked_at.find(at->first);
    if (at->second.task == Task::RECALCULATE && last != looked_at.end())
      when= std::max(when, last->second + INTERVAL);
    if (when < *due)
    {
      *due= when;
      first= at;
    }
  }
  return *due <= now ? first : pending.end();
}

void make_tables_when_ready(std::unique_lock<std::mutex> &lock)
{
  if (!is_engine_ready())
  {
    changed.wait_for(lock, std::chrono::milliseconds(20));
    return;
  }
  is_to_make_tables= false;
  lock.unlock();
  execute_statements();
  lock.lock();
}

void run()
{
  my_thread_init();
  {
    std::unique_lock<std::mutex> lock(mutex);
    while (!is_to_stop)
    {
      if (is_to_make_tables)
      {
        make_tables_when_ready(lock);
        continue;
      }
      Clock::time_point due;
      const auto at= next_task(&due);
      if (at == pending.end())
      {
        if (due == Clock::time_point::max())
          changed.wait(lock);
        else
          changed.wait_until(lock, due);
        continue;
      }
      const std::string name= at->first;
      const Pending task= at->second;
      if (task.task == Task::RECALCULATE)
        looked_at[name]= Clock::now();
      lock.unlock();
      const Stored stored= carry_out(name, task);
      lock.lock();
      const auto now= pending.find(name);
      if (now == pending.end() || now->second.number != task.number)
        continue;  // something else was asked for meanwhile
      if (stored == Stored::LATER)
        now->second.not_before= Clock::now() + RETRY;
      else
        pending.erase(now);
    }
  }
  my_thread_end();
}

}  // namespace

void leave_to_keeper(const std::string &name, Task task, uint sample_pages)
{
  const std::lock_guard<std::mutex> lock(mutex);
  const auto at= pending.find(name);
  const bool is_included= task == Task::COMPLETE || (task == Task::STORE && at != pending.end() &&
                                                     at->second.task == Task::RECALCULATE);
  if (at != pending.end() && is_included)
    return;
  const std::chrono::seconds wait= task == Task::RECALCULATE ? FIRST : RETRY;
  pending[name]= {task, sample_pages, Clock::now() + wait, ++requests};
  changed.notify_one();
}

bool is_stored_outdated(const std::string &name)
{
  const std::lock_guard<std::mutex> lock(mutex);
  const auto at= pending.find(name);
  return at != pending.end() && (at->second.task == Task::FORGET || at->second.task == Task::STORE);
}

void start_keeper()
{
  is_to_stop= is_to_make_tables= false;
  pending.clear();
  looked_at.clear();
  if (varve_txn_open(db, VARVE_TABLES_LOCKED_BY_ENGINE, &txn))
  {
    txn= nullptr;
    sql_print_warning("VARVE: statistics are not made in the background: %s", varve_last_error());
    return;
  }
  varve_txn_set_lock_wait_timeout(txn, 0);
  thread= std::thread(run);
}

void stop_keeper()
{
  if (!txn)
    return;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    is_to_stop= true;
    varve_txn_interrupt(txn);
    changed.notify_one();
  }
  thread.join();
  varve_txn_close(txn);
  txn= nullptr;
}

void make_statistics_tables()
{
  if (opt_bootstrap)
    return;
  if (!mysqld_server_started && is_engine_ready())
  {
    execute_statements();
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex);
  is_to_make_tables= true;
  changed.notify_one();
}

}  // namespace varve_plugin
