// sysvars_locks.cc: system variables about locks.

#include "sysvars.h"

#include <algorithm>

namespace varve_plugin {

static unsigned long long memory_size;
static my_bool detect;
static my_bool print_all;
static my_bool rollback_on_timeout_value;

static MYSQL_SYSVAR_BOOL(deadlock_detect, detect, PLUGIN_VAR_OPCMDARG,
  "Deadlocks are looked for when a wait for a lock begins, and one member is rolled back. OFF: each waits for "
  "varve_lock_wait_timeout.",
  nullptr, (update_setting<varve_db_set_deadlock_detection, my_bool>), TRUE);

static MYSQL_SYSVAR_ULONGLONG(lock_memory_size, memory_size, PLUGIN_VAR_RQCMDARG,
  "Memory that locks of rows and gaps may take, in bytes. A statement that needs more fails with ER_LOCK_TABLE_FULL, and "
  "its transaction is rolled back.",
  nullptr, (update_setting<varve_db_set_lock_memory, unsigned long long>), 1ULL << 30, 1ULL << 20, ~0ULL, 0);

static MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
  "How many seconds a statement waits for a row lock before it fails with ER_LOCK_WAIT_TIMEOUT.",
  nullptr, nullptr, 50, 0, 100000000, 0);

static MYSQL_SYSVAR_BOOL(print_all_deadlocks, print_all, PLUGIN_VAR_OPCMDARG,
  "The error log has each deadlock, as SHOW ENGINE VARVE STATUS has the last one.", nullptr, nullptr, FALSE);

static MYSQL_SYSVAR_BOOL(rollback_on_timeout, rollback_on_timeout_value,
                         PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
  "A statement that has waited too long for a lock rolls back its transaction. OFF: itself only.",
  nullptr, nullptr, FALSE);

st_mysql_sys_var *lock_variable(Lock_variable variable)
{
  switch (variable) {
  case DEADLOCK_DETECT:     return MYSQL_SYSVAR(deadlock_detect);
  case LOCK_MEMORY_SIZE:    return MYSQL_SYSVAR(lock_memory_size);
  case LOCK_WAIT_TIMEOUT:   return MYSQL_SYSVAR(lock_wait_timeout);
  case PRINT_ALL_DEADLOCKS: return MYSQL_SYSVAR(print_all_deadlocks);
  case ROLLBACK_ON_TIMEOUT: return MYSQL_SYSVAR(rollback_on_timeout);
  }
  return nullptr;
}

unsigned long long lock_memory_size()
{
  return memory_size;
}

uint64_t lock_wait_timeout_ms(THD *thd)
{
  return std::min<uint64_t>(THDVAR(thd, lock_wait_timeout), thd->variables.lock_wait_timeout) * 1000;
}

bool prints_all_deadlocks()
{
  return print_all;
}

bool rolls_back_on_timeout()
{
  return rollback_on_timeout_value;
}

void set_deadlock_options()
{
  varve_db_set_deadlock_detection(db, detect);
}

}  // namespace varve_plugin
