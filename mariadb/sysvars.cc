// sysvars.cc: system variables.

#include "sysvars.h"

#include "backup.h"
#include "collation.h"
#include "encryption.h"
#include "engine.h"
#include "options.h"
#include "tmpdir.h"

#include "mysqld.h"
#include "sys_vars_shared.h"
#include "table_cache.h"

#include <algorithm>
#include <atomic>
#include <mutex>

namespace varve_plugin {

static unsigned long long buffer_pool_size;
static my_bool large_pages;
static my_bool adaptive_hash_index;
static unsigned long long redo_capacity;
static unsigned int log_buffer_size;
static unsigned long page_size;
static unsigned long flush_log_at_trx_commit;
static unsigned long undo_tablespaces;
static unsigned long undo_logs;
static unsigned long read_ahead_threshold;
static unsigned long change_buffering;
static unsigned long change_buffer_max_size;
static unsigned long io_capacity;
static unsigned long io_capacity_max;
static double max_dirty_pages_pct;
static double max_dirty_pages_pct_lwm;
static my_bool adaptive_flushing;
static double adaptive_flushing_lwm;
static unsigned long flushing_avg_loops;
static unsigned long lru_scan_depth;
static unsigned long open_files;
static unsigned long force_recovery;
static my_bool read_only_value;
static unsigned long long sort_buffer_size;
static unsigned long fill_factor;
static unsigned long long online_alter_log_max_size;
static unsigned long purge_threads;
static unsigned long purge_batch_size;
static unsigned long purge_rseg_truncate_frequency;
static unsigned long fast_shutdown_mode;
static unsigned long truncate_undo_number;
static unsigned long long max_undo_log_size;
static unsigned long long max_purge_lag;
static unsigned long max_purge_lag_delay;
static my_bool undo_log_truncate;
static my_bool history_store;
static unsigned long history_store_delay;
static unsigned long long history_store_max_size;
static my_bool doublewrite;
static my_bool use_native_aio;
static unsigned long flush_method;
static my_bool log_file_buffering;
static my_bool pool_dump_at_shutdown;
static my_bool pool_load_at_startup;
static unsigned long pool_dump_pct;
static char *pool_filename;
static my_bool pool_dump_now;
static my_bool pool_load_now;
static my_bool pool_load_abort;
static char *data_home_dir;
static char *undo_directory;
static char *monitor_address_value, *monitor_token_value;
static long autoinc_lock_mode_value;

// Changes a size in bytes that the engine may refuse. One change at a time: SHOW VARIABLES has the value that
// was set last. It is made without the server's mutex, which others need meanwhile.
template<varve_code (*set)(const varve_db *, uint64_t)>
static void update_size(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  static std::mutex changes;
  const unsigned long long bytes= *static_cast<const unsigned long long *>(from);
  mysql_mutex_unlock(&LOCK_global_system_variables);
  const std::lock_guard<std::mutex> change(changes);
  const varve_code code= set(db, bytes);
  mysql_mutex_lock(&LOCK_global_system_variables);
  if (code == VARVE_OK)
    *static_cast<unsigned long long *>(to)= bytes;
  else
    my_printf_error(code == VARVE_NO_SPACE ? ER_DISK_FULL : ER_WRONG_VALUE_FOR_VAR, "VARVE: %s", MYF(0), varve_last_error());
}

static MYSQL_SYSVAR_ULONGLONG(buffer_pool_size, buffer_pool_size, PLUGIN_VAR_RQCMDARG,
  "Memory for cached pages of tables and indexes, in bytes.",
  nullptr, update_size<varve_db_set_buffer_pool>, 128ULL << 20, 5ULL << 20, ~0ULL, 1ULL << 20);

static const unsigned long long least_redo_capacity= 4ULL << 20, most_redo_capacity= 512ULL << 30;

// Refuses what the server would replace by the nearest bound, with a warning.
static int check_redo_capacity(THD *, struct st_mysql_sys_var *, void *to, struct st_mysql_value *value)
{
  long long bytes;
  if (value->val_int(value, &bytes))
    return 1;
  const bool is_negative= bytes < 0 && !value->is_unsigned(value);
  const unsigned long long wanted= is_negative ? 0 : static_cast<unsigned long long>(bytes);
  if (wanted < least_redo_capacity || wanted > most_redo_capacity)
  {
    my_printf_error(ER_WRONG_VALUE_FOR_VAR, "VARVE: a redo log capacity is from %llu to %llu bytes, not %llu", MYF(0),
                    least_redo_capacity, most_redo_capacity, wanted);
    return 1;
  }
  *static_cast<unsigned long long *>(to)= wanted & ~4095ULL;
  return 0;
}

// Two names of one setting: MariaDB's and MySQL's.
static MYSQL_SYSVAR_ULONGLONG(log_file_size, redo_capacity, PLUGIN_VAR_RQCMDARG,
  "How much redo log is kept at most, in bytes: a checkpoint is made in time to stay below. The same as varve_redo_log_capacity.",
  check_redo_capacity, update_size<varve_db_set_redo_capacity>, 96ULL << 20, least_redo_capacity,
  most_redo_capacity, 4096);

static MYSQL_SYSVAR_ULONGLONG(redo_log_capacity, redo_capacity, PLUGIN_VAR_RQCMDARG,
  "How much redo log is kept at most, in bytes: a checkpoint is made in time to stay below. The same as varve_log_file_size.",
  check_redo_capacity, update_size<varve_db_set_redo_capacity>, 96ULL << 20, least_redo_capacity,
  most_redo_capacity, 4096);

static MYSQL_SYSVAR_BOOL(log_file_buffering, log_file_buffering, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
  "Write the redo log through the operating system's cache. If the server starts with varve_flush_log_at_trx_commit=2, that "
  "is done anyway.",
  nullptr, nullptr, FALSE);

static MYSQL_SYSVAR_UINT(log_buffer_size, log_buffer_size, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "Memory in which redo log waits to be written, in bytes.",
  nullptr, nullptr, 16U << 20, 2U << 20, 1U << 31, 4096);

static MYSQL_SYSVAR_ULONG(page_size, page_size, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "Page size of a new database: 4096, 8192, 16384, 32768 or 65536. An existing one keeps its own.",
  nullptr, nullptr, 16384, 4096, 65536, 0);

static void update_flush_log(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  flush_log_at_trx_commit= *static_cast<unsigned long *>(to)= *static_cast<const unsigned long *>(from);
  varve_db_set_flush_log(db, varve_flush_log(flush_log_at_trx_commit));
}

static MYSQL_SYSVAR_ULONG(flush_log_at_trx_commit, flush_log_at_trx_commit, PLUGIN_VAR_RQCMDARG,
  "What a commit waits for. 1: its redo log is on disk. 2: it is with the operating system, which is told to write it "
  "to disk once a second. 0: nothing; the log is written to disk once a second.",
  nullptr, update_flush_log, 1, 0, 2, 0);

static MYSQL_SYSVAR_ULONG(undo_tablespaces, undo_tablespaces, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "Number of undo tablespaces of a new database; 0: undo is in the system tablespace. An existing one keeps its own.",
  nullptr, nullptr, 2, 0, 95, 0);

static MYSQL_SYSVAR_ULONG(undo_logs, undo_logs, PLUGIN_VAR_RQCMDARG,
  "Number of rollback segments that new transactions take. There are 95 in the undo tablespaces.",
  nullptr, (update_setting<varve_db_set_undo_logs, unsigned long>), 128, 1, 128, 0);

static MYSQL_SYSVAR_BOOL(adaptive_hash_index, adaptive_hash_index, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
  "There is none, and this is always OFF: searches go by decoded images of inner pages, without latches, and looking into a hash "
  "table takes nearly as long.",
  nullptr, nullptr, FALSE);

static MYSQL_SYSVAR_BOOL(large_pages, large_pages, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
  "Have the system give the buffer pool huge pages where it can.",
  nullptr, nullptr, TRUE);

static MYSQL_SYSVAR_ULONG(read_ahead_threshold, read_ahead_threshold, PLUGIN_VAR_RQCMDARG,
  "After how many pages in a row a scan reads those ahead that come next; 0: it never does.",
  nullptr, (update_setting<varve_db_set_read_ahead_threshold, unsigned long>), 3, 0, 64, 0);

static varve_change_buffer_options change_buffer_options()
{
  return {varve_change_buffering(change_buffering), uint32_t(change_buffer_max_size)};
}

static void update_change_buffer(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  *static_cast<unsigned long *>(to)= *static_cast<const unsigned long *>(from);
  const varve_change_buffer_options options= change_buffer_options();
  varve_db_set_change_buffer(db, &options);
}

// In the order of varve_change_buffering.
static const char *change_buffering_names[]= {"none", "inserts", "deletes", "changes", "purges", "all", NullS};
static TYPELIB change_bufferings= {array_elements(change_buffering_names) - 1, "change_bufferings", change_buffering_names, nullptr};

static MYSQL_SYSVAR_ENUM(change_buffering, change_buffering, PLUGIN_VAR_RQCMDARG,
  "Which changes of index entries wait in change buffers while their page is not in the buffer pool: inserts, deletes with their "
  "purge (purges is the same), both (changes, all), or none.",
  nullptr, update_change_buffer, VARVE_BUFFER_ALL, &change_bufferings);
static MYSQL_SYSVAR_ULONG(change_buffer_max_size, change_buffer_max_size, PLUGIN_VAR_RQCMDARG,
  "How many percent of the buffer pool the change buffers of all indexes may have together.",
  nullptr, update_change_buffer, 25, 0, 50, 0);

static varve_flush_options flush_options()
{
  return {uint32_t(io_capacity), uint32_t(io_capacity_max), max_dirty_pages_pct, max_dirty_pages_pct_lwm,
          bool(adaptive_flushing),
          adaptive_flushing_lwm, uint32_t(flushing_avg_loops), uint32_t(lru_scan_depth)};
}

// The server keeps the values within the bounds, and the caller keeps how two of them relate.
static void set_flush_options()
{
  const varve_flush_options options= flush_options();
  varve_db_set_flush(db, &options);
}

template<typename T> static void update_flush(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  *static_cast<T *>(to)= *static_cast<const T *>(from);
  set_flush_options();
}

// The default of varve_io_capacity_max: it follows from varve_io_capacity.
static constexpr unsigned long FOLLOWS= UINT_MAX32;

static unsigned long usual_io_capacity_max()
{
  return std::clamp(2 * io_capacity, 2000UL, FOLLOWS);
}

static void warn_of(THD *thd, const char *message, const char *adjusted, double value)
{
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_WRONG_ARGUMENTS, "%s; %s is set to %g", message, adjusted, value);
}

static void update_io_capacity(THD *thd, struct st_mysql_sys_var *, void *to, const void *from)
{
  io_capacity= *static_cast<unsigned long *>(to)= *static_cast<const unsigned long *>(from);
  if (io_capacity > io_capacity_max)
  {
    io_capacity_max= usual_io_capacity_max();
    warn_of(thd, "varve_io_capacity is higher than varve_io_capacity_max", "varve_io_capacity_max", double(io_capacity_max));
  }
  set_flush_options();
}

static void update_io_capacity_max(THD *thd, struct st_mysql_sys_var *, void *to, const void *from)
{
  unsigned long wanted= *static_cast<const unsigned long *>(from);
  if (wanted == FOLLOWS)
    wanted= usual_io_capacity_max();
  else if (wanted < io_capacity)
  {
    wanted= io_capacity;
    warn_of(thd, "varve_io_capacity_max can't be lower than varve_io_capacity", "varve_io_capacity_max", double(wanted));
  }
  io_capacity_max= *static_cast<unsigned long *>(to)= wanted;
  set_flush_options();
}

static void update_max_dirty(THD *thd, struct st_mysql_sys_var *, void *to, const void *from)
{
  max_dirty_pages_pct= *static_cast<double *>(to)= *static_cast<const double *>(from);
  if (max_dirty_pages_pct_lwm > max_dirty_pages_pct)
  {
    max_dirty_pages_pct_lwm= max_dirty_pages_pct;
    warn_of(thd, "varve_max_dirty_pages_pct is lower than varve_max_dirty_pages_pct_lwm", "varve_max_dirty_pages_pct_lwm",
            max_dirty_pages_pct);
  }
  set_flush_options();
}

static void update_max_dirty_lwm(THD *thd, struct st_mysql_sys_var *, void *to, const void *from)
{
  double wanted= *static_cast<const double *>(from);
  if (wanted > max_dirty_pages_pct)
  {
    wanted= max_dirty_pages_pct;
    warn_of(thd, "varve_max_dirty_pages_pct_lwm can't be higher than varve_max_dirty_pages_pct", "varve_max_dirty_pages_pct_lwm", wanted);
  }
  max_dirty_pages_pct_lwm= *static_cast<double *>(to)= wanted;
  set_flush_options();
}

static MYSQL_SYSVAR_ULONG(io_capacity, io_capacity, PLUGIN_VAR_RQCMDARG,
  "Pages per second that are written while there is nothing else to do, and when varve_max_dirty_pages_pct is reached.",
  nullptr, update_io_capacity, 200, 100, UINT_MAX32, 0);

static MYSQL_SYSVAR_ULONG(io_capacity_max, io_capacity_max, PLUGIN_VAR_RQCMDARG,
  "Pages per second that are written at most unless the redo log gets short. The default is twice varve_io_capacity, 2000 at least.",
  nullptr, update_io_capacity_max, FOLLOWS, 100, FOLLOWS, 0);

static MYSQL_SYSVAR_DOUBLE(max_dirty_pages_pct, max_dirty_pages_pct, PLUGIN_VAR_RQCMDARG,
  "Percentage of the buffer pool above which changed pages are written for that alone.",
  nullptr, update_max_dirty, 90.0, 0, 99.999, 0);

static MYSQL_SYSVAR_DOUBLE(max_dirty_pages_pct_lwm, max_dirty_pages_pct_lwm, PLUGIN_VAR_RQCMDARG,
  "Percentage of the buffer pool above which changed pages are written, the more the nearer varve_max_dirty_pages_pct. 0: only above that.",
  nullptr, update_max_dirty_lwm, 0, 0, 99.999, 0);

static MYSQL_SYSVAR_BOOL(adaptive_flushing, adaptive_flushing, PLUGIN_VAR_OPCMDARG,
  "Write pages ahead at the speed that the redo log demands, so that it never gets short.",
  nullptr, update_flush<my_bool>, TRUE);

static MYSQL_SYSVAR_DOUBLE(adaptive_flushing_lwm, adaptive_flushing_lwm, PLUGIN_VAR_RQCMDARG,
  "Percentage of the redo log's capacity below which a checkpoint age causes no adaptive flushing.",
  nullptr, update_flush<double>, 10.0, 0, 70.0, 0);

static MYSQL_SYSVAR_ULONG(flushing_avg_loops, flushing_avg_loops, PLUGIN_VAR_RQCMDARG,
  "Over how many rounds of the page cleaner, each a tenth of a second, the speed of the redo log is averaged.",
  nullptr, update_flush<unsigned long>, 30, 1, 1000, 0);

static MYSQL_SYSVAR_ULONG(lru_scan_depth, lru_scan_depth, PLUGIN_VAR_RQCMDARG,
  "Pages of the buffer pool that the page cleaner keeps free ahead of demand, up to a 32nd of the pool.",
  nullptr, update_flush<unsigned long>, 1536, 100, UINT_MAX32, 0);

static MYSQL_SYSVAR_ULONG(force_recovery, force_recovery, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "To get at what is left of a damaged database: 1 passes over damage that recovery meets, 2 also purges nothing, 3 also "
  "rolls back nothing. From 4 on nothing can be changed, and no file is; 5 also does not look at undo, 6 not at the redo log.",
  nullptr, nullptr, 0, 0, 6, 0);

static MYSQL_SYSVAR_ULONG(open_files, open_files, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "How many table files are open at the same time at most; those used longest ago are closed. 0: as many as half of "
  "open_files_limit, but not more than 2000.",
  nullptr, nullptr, 0, 0, UINT_MAX32, 0);

static MYSQL_SYSVAR_BOOL(read_only, read_only_value, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
  "Nothing can be changed, and no file is: what recovery has to do is done in memory.", nullptr, nullptr, FALSE);

static MYSQL_SYSVAR_ULONGLONG(sort_buffer_size, sort_buffer_size, PLUGIN_VAR_RQCMDARG,
  "Memory for building the indexes of one ALTER TABLE, in bytes; what does not fit goes into a file in the "
  "data directory.",
  nullptr, (update_setting<varve_db_set_sort_buffer, unsigned long long>), 32ULL << 20, 64ULL << 10,
  64ULL << 30, 0);

static MYSQL_SYSVAR_ULONG(fill_factor, fill_factor, PLUGIN_VAR_RQCMDARG,
  "How many percent of each leaf page are filled by building indexes, by rebuilding and copying tables and by "
  "statements that load an empty one.",
  nullptr, (update_setting<varve_db_set_fill_factor, unsigned long>), 100, 10, 100, 0);

static MYSQL_SYSVAR_ULONGLONG(online_alter_log_max_size, online_alter_log_max_size, PLUGIN_VAR_RQCMDARG,
  "Memory for noting which rows are changed while an ALTER TABLE builds indexes, in bytes. If it is not enough, the "
  "ALTER TABLE fails.",
  nullptr, (update_setting<varve_db_set_online_log, unsigned long long>), 128ULL << 20, 64ULL << 10,
  ~0ULL, 0);

static varve_purge_options purge_options()
{
  return {uint32_t(purge_threads), uint32_t(purge_batch_size), uint32_t(purge_rseg_truncate_frequency),
          bool(undo_log_truncate), max_undo_log_size, max_purge_lag, max_purge_lag_delay};
}

// The server keeps the values within the bounds.
template<typename T> static void update_purge(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  *static_cast<T *>(to)= *static_cast<const T *>(from);
  const varve_purge_options options= purge_options();
  varve_db_set_purge(db, &options);
}

static MYSQL_SYSVAR_ULONG(purge_threads, purge_threads, PLUGIN_VAR_RQCMDARG,
  "Threads that help the purge coordinator when there is much to purge.",
  nullptr, update_purge<unsigned long>, 4, 0, 32, 0);

static MYSQL_SYSVAR_ULONG(purge_batch_size, purge_batch_size, PLUGIN_VAR_RQCMDARG,
  "Undo pages that purge reads for a batch. A larger batch visits each page of a table less often and takes more memory.",
  nullptr, update_purge<unsigned long>, 300, 1, 5000, 0);

static MYSQL_SYSVAR_ULONG(purge_rseg_truncate_frequency, purge_rseg_truncate_frequency, PLUGIN_VAR_RQCMDARG,
  "After how many batches of purge free undo pages go back to their tablespaces.",
  nullptr, update_purge<unsigned long>, 128, 1, 128, 0);

static MYSQL_SYSVAR_BOOL(undo_log_truncate, undo_log_truncate, PLUGIN_VAR_OPCMDARG,
  "Truncate undo tablespaces that are larger than varve_max_undo_log_size, one at a time, when they can be emptied. There have "
  "to be two or more.",
  nullptr, update_purge<my_bool>, TRUE);

static MYSQL_SYSVAR_ULONGLONG(max_undo_log_size, max_undo_log_size, PLUGIN_VAR_RQCMDARG,
  "How large an undo tablespace may become before it is truncated, in bytes.",
  nullptr, update_purge<unsigned long long>, 128ULL << 20, 10ULL << 20, ~0ULL, 0);

static MYSQL_SYSVAR_ULONGLONG(max_purge_lag, max_purge_lag, PLUGIN_VAR_RQCMDARG,
  "While more transactions than this wait to be purged, row changes are delayed so that no more come than purge takes off; 0: they "
  "never are.",
  nullptr, update_purge<unsigned long long>, 0, 0, ~0ULL, 0);

static MYSQL_SYSVAR_ULONG(max_purge_lag_delay, max_purge_lag_delay, PLUGIN_VAR_RQCMDARG,
  "By how many microseconds varve_max_purge_lag delays a row change at most; 0: by none.",
  nullptr, update_purge<unsigned long>, 50000, 0, 10000000, 0);

static varve_history_options history_options()
{
  return {bool(history_store), history_store_delay, history_store_max_size};
}

// The server keeps the values within the bounds, and check_history_size what it does not know of.
template<typename T> static void update_history(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  *static_cast<T *>(to)= *static_cast<const T *>(from);
  const varve_history_options options= history_options();
  varve_db_set_history(db, &options);
}

static const unsigned long long least_history_size= 1ULL << 20;

// 0 is a value of its own, far below the least one.
static bool is_too_small_history(unsigned long long bytes)
{
  return bytes > 0 && bytes < least_history_size;
}

static int check_history_size(THD *thd, struct st_mysql_sys_var *, void *to, struct st_mysql_value *value)
{
  long long bytes;
  if (value->val_int(value, &bytes))
    return 1;
  const bool is_negative= bytes < 0 && !value->is_unsigned(value);
  const auto wanted= static_cast<unsigned long long>(bytes);
  const bool is_adjusted= is_negative || is_too_small_history(wanted);
  const unsigned long long nearest= is_negative ? 0 : least_history_size;
  *static_cast<unsigned long long *>(to)= is_adjusted ? nearest : wanted;
  return throw_bounds_warning(thd, "varve_history_store_max_size", is_adjusted, value->is_unsigned(value), bytes);
}

static MYSQL_SYSVAR_BOOL(history_store, history_store, PLUGIN_VAR_OPCMDARG,
  "Purge goes on behind old read views, and copies what they need to the history store. OFF: it waits for them, but for those that "
  "rely on the store already.",
  nullptr, update_history<my_bool>, TRUE);

static MYSQL_SYSVAR_ULONG(history_store_delay, history_store_delay, PLUGIN_VAR_RQCMDARG,
  "For how many milliseconds a read view holds purge back before purge goes on behind it.",
  nullptr, update_history<unsigned long>, 1000, 0, 3600000, 0);

static MYSQL_SYSVAR_ULONGLONG(history_store_max_size, history_store_max_size, PLUGIN_VAR_RQCMDARG,
  "How large the history store may become, in bytes: 1 MiB at least; 0: a tenth of the file system. While it is full purge waits.",
  check_history_size, update_history<unsigned long long>, 0, 0, ~0ULL, 0);

// The number of an undo tablespace; 0 means nothing. At most a minute: the statement can't be killed
// meanwhile.
static int truncate_undo(THD *, struct st_mysql_sys_var *, void *to, struct st_mysql_value *value)
{
  long long number;
  if (value->val_int(value, &number))
    return 1;
  *static_cast<unsigned long *>(to)= 0;
  if (number == 0)
    return 0;
  bool done= false;
  const varve_code code= varve_db_truncate_undo(db, uint32_t(std::clamp(number, 0LL, 1000LL)), 60000, &done);
  if (code)
    my_printf_error(ER_WRONG_VALUE_FOR_VAR, "varve_truncate_undo: %s", MYF(0), varve_last_error());
  else if (!done)
    my_printf_error(ER_LOCK_WAIT_TIMEOUT, "Undo tablespace %lld could not be emptied within a minute: a transaction or a read view "
                    "needs its undo (SHOW ENGINE VARVE STATUS names the oldest view)", MYF(0), number);
  return code || !done;
}

static MYSQL_SYSVAR_ULONG(truncate_undo, truncate_undo_number, PLUGIN_VAR_NOCMDOPT,
  "SET GLOBAL varve_truncate_undo = n empties the nth undo tablespace and truncates it. Always 0.",
  truncate_undo, nullptr, 0, 0, 95, 0);

static MYSQL_SYSVAR_ULONG(fast_shutdown, fast_shutdown_mode, PLUGIN_VAR_RQCMDARG,
  "What a shutdown does before it closes the database. 0: it purges all that was deleted or replaced. 1: it leaves that to the next start.",
  nullptr, nullptr, 1, 0, 1, 0);

static MYSQL_SYSVAR_BOOL(doublewrite, doublewrite, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
  "Write pages twice, so that one that was half written when the machine failed can be repaired, unless the disk promises atomic "
  "writes of a page.",
  nullptr, nullptr, TRUE);

// In the order of varve_flush_method.
static const char *flush_method_names[]= {"fsync", "O_DIRECT", NullS};
static TYPELIB flush_methods= {array_elements(flush_method_names) - 1, "flush_methods", flush_method_names, nullptr};

static MYSQL_SYSVAR_ENUM(flush_method, flush_method, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "How data files are read and written. fsync: through the operating system's cache. O_DIRECT: past it, where the file system can do "
  "that. They are synced either way.",
  nullptr, nullptr, VARVE_METHOD_O_DIRECT, &flush_methods);

static MYSQL_SYSVAR_BOOL(use_native_aio, use_native_aio, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
  "Read and write pages through io_uring. OFF, or where it does not work: by a few threads.",
  nullptr, nullptr, TRUE);

static varve_pool_dump_options pool_dump_options()
{
  const char *const filename= pool_filename && *pool_filename ? pool_filename : nullptr;
  return {bool(pool_dump_at_shutdown), bool(pool_load_at_startup), uint32_t(pool_dump_pct), filename};
}

varve_code set_pool_dump_options()
{
  const varve_pool_dump_options options= pool_dump_options();
  return varve_db_set_pool_dump(db, &options);
}

static int refused(const char *variable)
{
  my_printf_error(ER_WRONG_VALUE_FOR_VAR, "%s: %s", MYF(0), variable, varve_last_error());
  return 1;
}

// A name that can't be used is refused before the server stores it.
static int check_filename(THD *thd, struct st_mysql_sys_var *, void *to, struct st_mysql_value *value)
{
  char buffer[FN_REFLEN];
  int length= sizeof buffer;
  const char *name= value->val_str(value, buffer, &length);
  varve_pool_dump_options options= pool_dump_options();
  options.file= name ? name : "";
  if (varve_db_set_pool_dump(db, &options))
    return refused("varve_buffer_pool_filename");
  *static_cast<const char **>(to)= name == buffer ? thd_strmake(thd, name, size_t(length)) : name;
  return 0;
}

// The three that do something when they are set, and are OFF always.
static int act(struct st_mysql_value *value, void *to, const char *variable,
               varve_code (*action)(const varve_db *))
{
  long long on= 0;
  char buffer[8];
  int length= sizeof buffer;
  if (value->value_type(value) == MYSQL_VALUE_TYPE_STRING)
  {
    const char *word= value->val_str(value, buffer, &length);
    on= word && !strcasecmp(word, "ON");
    if (!on && (!word || strcasecmp(word, "OFF")))
      return 1;
  }
  else if (value->val_int(value, &on) || on < 0 || on > 1)
    return 1;
  *static_cast<my_bool *>(to)= FALSE;
  return on && (set_pool_dump_options() || action(db)) ? refused(variable) : 0;
}

static int check_dump_now(THD *, struct st_mysql_sys_var *, void *to, struct st_mysql_value *value)
{
  return act(value, to, "varve_buffer_pool_dump_now", varve_db_pool_dump);
}

static int check_load_now(THD *, struct st_mysql_sys_var *, void *to, struct st_mysql_value *value)
{
  return act(value, to, "varve_buffer_pool_load_now", varve_db_pool_load);
}

static int check_load_abort(THD *, struct st_mysql_sys_var *, void *to, struct st_mysql_value *value)
{
  return act(value, to, "varve_buffer_pool_load_abort", [](const varve_db *of) { varve_db_pool_load_abort(of); return VARVE_OK; });
}

static MYSQL_SYSVAR_BOOL(buffer_pool_dump_at_shutdown, pool_dump_at_shutdown, PLUGIN_VAR_OPCMDARG,
  "Write the list of the pages in the buffer pool when the server is shut down.",
  nullptr, nullptr, TRUE);

static MYSQL_SYSVAR_BOOL(buffer_pool_load_at_startup, pool_load_at_startup,
                         PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
  "Read the pages on that list in, in the background, when the server starts.",
  nullptr, nullptr, TRUE);

static MYSQL_SYSVAR_ULONG(buffer_pool_dump_pct, pool_dump_pct, PLUGIN_VAR_RQCMDARG,
  "How many of the pages in the buffer pool are listed, in percent: the most recently used ones.",
  nullptr, nullptr, 25, 1, 100, 0);

static MYSQL_SYSVAR_STR(buffer_pool_filename, pool_filename, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_MEMALLOC,
  "The list's name in the data directory.",
  check_filename, nullptr, "varve_buffer_pool");

static MYSQL_SYSVAR_BOOL(buffer_pool_dump_now, pool_dump_now, PLUGIN_VAR_NOCMDOPT,
  "SET GLOBAL varve_buffer_pool_dump_now = ON writes the list now. Always OFF.",
  check_dump_now, nullptr, FALSE);

static MYSQL_SYSVAR_BOOL(buffer_pool_load_now, pool_load_now, PLUGIN_VAR_NOCMDOPT,
  "SET GLOBAL varve_buffer_pool_load_now = ON begins to read the pages on the list in. Always OFF.",
  check_load_now, nullptr, FALSE);

static MYSQL_SYSVAR_BOOL(buffer_pool_load_abort, pool_load_abort, PLUGIN_VAR_NOCMDOPT,
  "SET GLOBAL varve_buffer_pool_load_abort = ON ends that. Always OFF.",
  check_load_abort, nullptr, FALSE);

static MYSQL_SYSVAR_STR(data_home_dir, data_home_dir, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "Where the database is. Empty: the server's data directory.",
  nullptr, nullptr, nullptr);

static MYSQL_SYSVAR_STR(undo_directory, undo_directory, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "Where the undo tablespaces of a new database are put. Empty: where the database is. An existing one knows where they are, unless they "
  "were moved: then this says where.",
  nullptr, nullptr, nullptr);

static MYSQL_SYSVAR_STR(monitor_address, monitor_address_value, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "Where the monitor listens, a page with live plots and metrics for Prometheus: a loopback address with a port, as in "
  "127.0.0.1:3480. Empty: there is none.",
  nullptr, nullptr, nullptr);

static MYSQL_SYSVAR_STR(monitor_token_file, monitor_token_value, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "A file with the token that everybody has to show to the monitor. Empty: everybody on this machine may look.",
  nullptr, nullptr, nullptr);

static MYSQL_SYSVAR_LONG(autoinc_lock_mode, autoinc_lock_mode_value,
                         PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "How INSERT draws AUTO_INCREMENT values. 0: it locks the table's counter until it ends. 1: only if it does not know "
  "how many rows it inserts. 2: never; the values of such a statement may not be consecutive.",
  nullptr, nullptr, 1, 0, 2, 0);

static MYSQL_THDVAR_STR(tmpdir, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_MEMALLOC,
  "Directory for files in which loads and new indexes are sorted; NULL: the server's tmpdir.",
  check_tmpdir, nullptr, nullptr);

struct st_mysql_sys_var *system_variables[]= {
  MYSQL_SYSVAR(adaptive_flushing),
  MYSQL_SYSVAR(adaptive_flushing_lwm),
  MYSQL_SYSVAR(autoinc_lock_mode),
  backup_variable(BACKUP_BASE), backup_variable(BACKUP_DIRECTORY), backup_variable(BACKUP_MAX_REDO),
  backup_variable(BACKUP_RATE), backup_variable(BACKUP_THREADS),
  MYSQL_SYSVAR(buffer_pool_dump_at_shutdown),
  MYSQL_SYSVAR(buffer_pool_dump_now),
  MYSQL_SYSVAR(buffer_pool_dump_pct),
  MYSQL_SYSVAR(buffer_pool_filename),
  MYSQL_SYSVAR(buffer_pool_load_abort),
  MYSQL_SYSVAR(buffer_pool_load_at_startup),
  MYSQL_SYSVAR(buffer_pool_load_now),
  MYSQL_SYSVAR(buffer_pool_size),
  storage_variable(COMPRESSION_ALGORITHM),
  storage_variable(COMPRESSION_DEFAULT),
  storage_variable(COMPRESSION_LEVEL),
  MYSQL_SYSVAR(data_home_dir),
  storage_variable(DEFAULT_ENCRYPTION_KEY_ID),
  lock_variable(DEADLOCK_DETECT),
  MYSQL_SYSVAR(doublewrite),
  encryption_variable(ENCRYPT_LOG),
  encryption_variable(ENCRYPT_TABLES),
  encryption_variable(ENCRYPT_TEMPORARY_TABLES),
  encryption_variable(ENCRYPTION_ROTATE_KEY_AGE),
  encryption_variable(ENCRYPTION_ROTATION_IOPS),
  encryption_variable(ENCRYPTION_THREADS),
  MYSQL_SYSVAR(fast_shutdown),
  MYSQL_SYSVAR(flush_log_at_trx_commit),
  MYSQL_SYSVAR(flush_method),
  MYSQL_SYSVAR(flushing_avg_loops),
  MYSQL_SYSVAR(force_recovery),
  MYSQL_SYSVAR(history_store),
  MYSQL_SYSVAR(history_store_delay),
  MYSQL_SYSVAR(history_store_max_size),
  MYSQL_SYSVAR(io_capacity),
  MYSQL_SYSVAR(io_capacity_max),
  lock_variable(LOCK_MEMORY_SIZE),
  lock_variable(LOCK_WAIT_TIMEOUT),
  MYSQL_SYSVAR(log_buffer_size),
  MYSQL_SYSVAR(log_file_buffering),
  MYSQL_SYSVAR(log_file_size),
  MYSQL_SYSVAR(lru_scan_depth),
  MYSQL_SYSVAR(max_dirty_pages_pct),
  MYSQL_SYSVAR(max_dirty_pages_pct_lwm),
  MYSQL_SYSVAR(max_purge_lag),
  MYSQL_SYSVAR(max_purge_lag_delay),
  MYSQL_SYSVAR(max_undo_log_size),
  MYSQL_SYSVAR(monitor_address),
  MYSQL_SYSVAR(monitor_token_file),
  MYSQL_SYSVAR(open_files),
  MYSQL_SYSVAR(page_size),
  lock_variable(PRINT_ALL_DEADLOCKS),
  MYSQL_SYSVAR(purge_batch_size),
  MYSQL_SYSVAR(purge_rseg_truncate_frequency),
  MYSQL_SYSVAR(purge_threads),
  MYSQL_SYSVAR(adaptive_hash_index),
  MYSQL_SYSVAR(large_pages),
  MYSQL_SYSVAR(read_ahead_threshold),
  MYSQL_SYSVAR(change_buffering),
  MYSQL_SYSVAR(change_buffer_max_size),
  MYSQL_SYSVAR(read_only),
  MYSQL_SYSVAR(redo_log_capacity),
  lock_variable(ROLLBACK_ON_TIMEOUT),
  MYSQL_SYSVAR(sort_buffer_size),
  MYSQL_SYSVAR(fill_factor),
  MYSQL_SYSVAR(online_alter_log_max_size),
  statistics_variable(STATS_AUTO_RECALC),
  statistics_variable(STATS_METHOD),
  statistics_variable(STATS_PERSISTENT),
  statistics_variable(STATS_PERSISTENT_SAMPLE_PAGES),
  statistics_variable(STATS_TRANSIENT_SAMPLE_PAGES),
  MYSQL_SYSVAR(tmpdir),
  MYSQL_SYSVAR(truncate_undo),
  MYSQL_SYSVAR(undo_directory),
  MYSQL_SYSVAR(undo_log_truncate),
  MYSQL_SYSVAR(undo_logs),
  MYSQL_SYSVAR(undo_tablespaces),
  MYSQL_SYSVAR(use_native_aio),
  nullptr
};

static uint32_t table_files()
{
  const unsigned long usual= std::min(open_files_limit / 2, 2000UL);
  return uint32_t(std::max(open_files ? open_files : usual, 10UL));
}

// What contradicts itself on the command line.
static void reconcile_flush_variables()
{
  if (io_capacity_max == FOLLOWS)
    io_capacity_max= usual_io_capacity_max();
  if (io_capacity > io_capacity_max)
  {
    sql_print_warning("VARVE: varve_io_capacity can't be higher than varve_io_capacity_max; it is set to %lu", io_capacity_max);
    io_capacity= io_capacity_max;
  }
  if (max_dirty_pages_pct_lwm > max_dirty_pages_pct)
  {
    sql_print_warning("VARVE: varve_max_dirty_pages_pct_lwm can't be higher than varve_max_dirty_pages_pct; it is set to %g",
                      max_dirty_pages_pct);
    max_dirty_pages_pct_lwm= max_dirty_pages_pct;
  }
}

static void reconcile_history_variables()
{
  if (!is_too_small_history(history_store_max_size))
    return;
  sql_print_warning("VARVE: varve_history_store_max_size %llu is too small; it is set to %llu", history_store_max_size,
                    least_history_size);
  history_store_max_size= least_history_size;
}

varve_options options_from_variables()
{
  reconcile_flush_variables();
  reconcile_history_variables();
  if (adaptive_hash_index)
    sql_print_warning("VARVE: there is no adaptive hash index; varve_adaptive_hash_index stays OFF");
  adaptive_hash_index= FALSE;
  varve_options options;
  varve_options_default(&options);
  options.page_size= uint32_t(page_size);
  options.buffer_pool_bytes= buffer_pool_size;
  options.redo_capacity_bytes= redo_capacity;
  options.log_buffer_bytes= log_buffer_size;
  options.flush_log_at_trx_commit= varve_flush_log(flush_log_at_trx_commit);
  options.log_file_buffering= log_file_buffering;
  options.doublewrite= doublewrite;
  options.flush_method= varve_flush_method(flush_method);
  options.use_native_aio= use_native_aio;
  options.large_pages= large_pages;
  options.read_ahead_threshold= uint32_t(read_ahead_threshold);
  options.undo_tablespaces= uint32_t(undo_tablespaces);
  options.undo_directory= unless_empty(undo_directory);
  options.undo_logs= uint32_t(undo_logs);
  options.flush= flush_options();
  options.pool_dump= pool_dump_options();
  options.open_files= table_files();
  options.table_cache= uint32_t(tdc_size);
  options.force_recovery= uint8_t(force_recovery);
  options.read_only= read_only_value;
  options.lock_memory_bytes= lock_memory_size();
  options.sort_buffer_bytes= sort_buffer_size;
  options.fill_factor_pct= uint32_t(fill_factor);
  options.online_log_bytes= online_alter_log_max_size;
  options.purge= purge_options();
  options.history= history_options();
  options.change_buffer= change_buffer_options();
  choose_encryption(&options);
  options.create_if_missing= true;
  options.find_collation= find_collation;
  options.log= log_message;
  return options;
}

void follow_table_definition_cache()
{
  static std::atomic<unsigned long> followed{0};
  const unsigned long now= tdc_size;
  if (followed.load(std::memory_order_relaxed) != now && followed.exchange(now) != now)
    varve_db_set_table_cache(db, uint32_t(now));
}

varve_monitor_options monitor_options()
{
  return {unless_empty(monitor_address_value), unless_empty(monitor_token_value), nullptr, nullptr};
}

std::string data_directory()
{
  return data_home_dir && *data_home_dir ? data_home_dir : mysql_real_data_home;
}

bool is_read_only()
{
  return read_only_value || force_recovery >= 4;
}

bool is_shutdown_fast()
{
  return fast_shutdown_mode != 0;
}

long autoinc_lock_mode()
{
  return autoinc_lock_mode_value;
}

const char *tmpdir_variable(THD *thd)
{
  return THDVAR(thd, tmpdir);
}

}  // namespace varve_plugin
