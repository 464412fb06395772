// statistics.h: statistics of tables that outlive the server, in mysql.varve_table_stats and
// mysql.varve_index_stats.
//
// They are ordinary tables, which anybody with the right may read and change. The engine is asked for their
// rows directly, by transactions of its own: without the server's locks, and without waiting for anybody's.
// Reads are snapshots. A write that would have to wait is left to a thread in the background, the keeper,
// which tries again. So a user's transaction on these tables delays nobody.
//
//   statistics.cc  the two tables' rows: read, written, moved and removed
//   keeper.cc      the thread; it looks at tables again that have changed, and makes the two tables
//   admin.cc       when a handler asks for statistics, and says that its table has changed

#ifndef VARVE_STATISTICS_H
#define VARVE_STATISTICS_H

#include "server.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

namespace varve_plugin {

// What a table's options say, and where they don't the variables.
struct Statistics_policy
{
  bool is_persistent;
  bool recalculates;
  uint sample_pages;
};

// Of the table with this engine name.
Statistics_policy statistics_policy(const TABLE_SHARE *share, const std::string &name);

// What all handlers of a table, or of one of its partitions, have in common. FLUSH TABLE ends it.
class Statistics_share final : public Handler_share
{
public:
  // Stored statistics have been looked for.
  std::atomic<bool> is_fetched{false};
  // Rows that were written since they were fetched or last made.
  std::atomic<ulonglong> changed_rows{0};
};

enum class Stored
{
  ALL,
  SOME,         // nothing is known of an index
  NONE,
  UNAVAILABLE,  // the two tables can't be used: the error log says why, once
  LATER         // somebody keeps them locked, or the keeper has to replace them
};

// What a call of the engine that returned this means for what is stored: ALL if it succeeded.
Stored stored_after(varve_code code);

// Gives a table what is stored for it.
Stored fetch_statistics(varve_table *table, const std::string &name);

// Keeps what the engine has estimated, and stores it. In a transaction `txn` that locks the table, too, and
// is to be committed; or, if that is null, in one of its own for somebody who has locked the table.
Stored store_statistics(varve_table *table, const std::string &name, const varve_txn *txn= nullptr);

// Stores what is kept of those indexes of which nothing is stored.
Stored complete_statistics(varve_table *table, const std::string &name, const varve_txn *txn);

// DDL: the table of this name is gone, or another one; it has another name.
void forget_statistics(const std::string &name);
void move_statistics(const std::string &from, const std::string &to);

// DDL: indexes are gone (an empty new name), or have other names.
using Index_renames= std::vector<std::pair<std::string, std::string>>;
void rename_index_statistics(const std::string &table, const Index_renames &renames);

// For the keeper: tries what `forget_statistics` does.
Stored try_to_forget(const std::string &name);

// Whether it is the name of one of the two tables, in the engine.
bool is_statistics_table(const std::string &name);

/* The keeper */

enum class Task
{
  FORGET,      // remove the rows
  STORE,       // store what is known in memory
  COMPLETE,    // the same of those indexes of which nothing is stored
  RECALCULATE  // look at the table, and store that
};

// The keeper is to do this, and forget what else it was to do with the table.
void leave_to_keeper(const std::string &name, Task task, uint sample_pages);

// Whether it still has to remove or replace what is stored, which means nothing then.
bool is_stored_outdated(const std::string &name);

void start_keeper();
// Waits for it. What it has not done is left undone.
void stop_keeper();

// The server can create tables: it is about to start, or has an engine more.
void make_statistics_tables();

}  // namespace varve_plugin

#endif
