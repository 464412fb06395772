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
//   too; and then, like InnoDB's, at most every ten seconds. That it changes on does not put that off.
//
// It also makes the two tables if the engine came while the server was running; at the server's start that is
// done before anybody can connect, so all see the same tables. Its statements refer to the plugin, and who
// gives up the last reference to one that is uninstalled ends it: that would be this thread, which is waited
// for then. So it keeps mysql.plugin locked meanwhile, which INSTALL and UNINSTALL write.

#include "statistics.h"
#include "sysvars.h"

#include "engine.h"
#include "instruments.h"
#include "local.h"

#include "mysqld.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <system_error>
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
  bool is_outdated;  // what is stored is no longer this table's, until it is removed or replaced
  bool is_begun;     // what is asked for now comes after it
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
  "SET SESSION sql_mode='NO_ENGINE_SUBSTITUTION', enforce_storage_engine=NULL",
  "SET SESSION TRANSACTION READ WRITE",
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

void execute_statements()
{
  Local_connection connection;
  for (const char *statement : statements)
    if (!connection.execute(statement))
    {
      sql_print_warning("VARVE: the tables for persistent statistics can't be made: %s", connection.words());
      return;
    }
}

// Makes the tables while nobody installs or uninstalls a plugin. False: somebody does, try again.
bool make_tables()
{
  Local_connection guard;
  if (!guard.execute("SET SESSION lock_wait_timeout=1") || !guard.execute("LOCK TABLES mysql.plugin READ"))
  {
    if (guard.error() == ER_LOCK_WAIT_TIMEOUT)
      return false;
    sql_print_warning("VARVE: the tables for persistent statistics can't be made: %s", guard.words());
    return true;
  }
  execute_statements();
  return true;
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
    varve_table_set_sampling(table, task.sample_pages, nulls_in_keys());
    code= varve_table_analyze(table, txn);
  }
  Stored stored= stored_after(code);
  if (stored == Stored::ALL)
    stored= task.task == Task::COMPLETE ? complete_statistics(table, name, txn)
                                        : store_statistics(table, name, txn);
  if (stored == Stored::ALL)
    stored= stored_after(varve_txn_commit(txn));
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

void run()
{
  begin_thread("varve-statistics");
  {
    std::unique_lock<std::mutex> lock(mutex);
    while (!is_to_stop)
    {
      if (is_to_make_tables)
      {
        lock.unlock();
        const bool are_made= make_tables();
        lock.lock();
        is_to_make_tables= !are_made;
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
      at->second.is_begun= true;
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
      now->second.is_begun= false;
      if (stored == Stored::LATER)
        now->second.not_before= Clock::now() + RETRY;
      else if (stored == Stored::NONE && task.is_outdated)
        now->second.task= Task::FORGET;  // nothing takes its place
      else
        pending.erase(now);
    }
  }
  end_thread();
}

}  // namespace

// Whether what is on the list does what is asked for, too.
static bool includes(Task listed, Task asked)
{
  return asked == Task::COMPLETE || listed == asked || (listed == Task::RECALCULATE && asked == Task::STORE);
}

void leave_to_keeper(const std::string &name, Task task, uint sample_pages)
{
  const std::lock_guard<std::mutex> lock(mutex);
  const auto at= pending.find(name);
  bool is_outdated= task == Task::FORGET || task == Task::STORE;
  if (at != pending.end())
  {
    is_outdated= at->second.is_outdated= at->second.is_outdated || is_outdated;
    if (!at->second.is_begun && includes(at->second.task, task))
      return;
  }
  const std::chrono::seconds wait= task == Task::RECALCULATE ? FIRST : RETRY;
  pending[name]= {task, sample_pages, Clock::now() + wait, ++requests, is_outdated, false};
  changed.notify_one();
}

bool is_stored_outdated(const std::string &name)
{
  const std::lock_guard<std::mutex> lock(mutex);
  const auto at= pending.find(name);
  return at != pending.end() && at->second.is_outdated;
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
  try
  {
    thread= std::thread(run);
  }
  catch (const std::system_error &error)
  {
    varve_txn_close(txn);
    txn= nullptr;
    sql_print_warning("VARVE: statistics are not made in the background: %s", error.what());
  }
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
  if (!mysqld_server_started)
  {
    execute_statements();
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex);
  is_to_make_tables= true;
  changed.notify_one();
}

}  // namespace varve_plugin
