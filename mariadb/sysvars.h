// sysvars.h: the system variables, which are InnoDB's under Varve's name.

#ifndef VARVE_SYSVARS_H
#define VARVE_SYSVARS_H

#include "server.h"

#include "engine.h"
#include "statistics.h"

#include <string>

namespace varve_plugin {

extern struct st_mysql_sys_var *system_variables[];

// A setting that goes to the engine as it is. The server keeps it within the bounds.
template<auto set, typename T>
void update_setting(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  const T value= *static_cast<const T *>(from);
  *static_cast<T *>(to)= value;
  set(db, value);
}

// Those of sysvars_locks.cc.
enum Lock_variable
{
  DEADLOCK_DETECT,
  LOCK_MEMORY_SIZE,
  LOCK_WAIT_TIMEOUT,
  PRINT_ALL_DEADLOCKS,
  ROLLBACK_ON_TIMEOUT
};
st_mysql_sys_var *lock_variable(Lock_variable variable);

// Those of sysvars_statistics.cc.
enum Statistics_variable
{
  STATS_AUTO_RECALC,
  STATS_METHOD,
  STATS_PERSISTENT,
  STATS_PERSISTENT_SAMPLE_PAGES,
  STATS_TRANSIENT_SAMPLE_PAGES
};
st_mysql_sys_var *statistics_variable(Statistics_variable variable);

// What the variables say about opening the database.
varve_options options_from_variables();

// Tells the engine what the variables say about the list of the pages in the buffer pool. Before anything is
// done with that.
varve_code set_pool_dump_options();

// Has the engine keep as many tables open as table_definition_cache says, which the server changes without
// telling anybody. Called when a table is opened.
void follow_table_definition_cache();

// Where the database is: varve_data_home_dir, or the server's data directory.
std::string data_directory();

// The value of a variable; null if it is not given.
inline const char *unless_empty(const char *text) { return text && *text ? text : nullptr; }

// varve_monitor_address and varve_monitor_token_file; null where one is not given.
varve_monitor_options monitor_options();

// Nothing can be changed: varve_read_only, or varve_force_recovery from 4 on.
bool is_read_only();

// varve_fast_shutdown: whether to leave what is not purged to the next start.
bool is_shutdown_fast();

// varve_autoinc_lock_mode: 0, 1 or 2.
long autoinc_lock_mode();

// The variables about statistics that are stored, and about others.
Statistics_policy statistics_variables();
uint transient_sample_pages();
// What keys with a NULL are to statistics.
varve_nulls nulls_in_keys();

// How long this connection waits for a row lock. NOWAIT and WAIT n of a statement shorten it, as they do the
// wait for a metadata lock.
uint64_t lock_wait_timeout_ms(THD *thd);

unsigned long long lock_memory_size();
// varve_print_all_deadlocks: the error log has each.
bool prints_all_deadlocks();
// varve_rollback_on_timeout: who has waited too long for a lock loses the whole transaction.
bool rolls_back_on_timeout();
// Tells the engine what the command line says about deadlocks.
void set_deadlock_options();

// varve_tmpdir of the session; null or empty: the server's.
const char *tmpdir_variable(THD *thd);

}  // namespace varve_plugin

#endif
