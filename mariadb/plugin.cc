// plugin.cc: the storage engine VARVE as the server loads it.
//
// The database is opened when the plugin is initialised and closed when it is removed; the server has then
// closed all tables and connections' sessions. The library itself is never unloaded (-z nodelete): threads
// may still run its thread-local destructors.

#include "ha_varve.h"

#include "backup.h"
#include "collation.h"
#include "engine.h"
#include "instruments.h"
#include "memcached.h"
#include "options.h"
#include "progress.h"
#include "statistics.h"
#include "sysvars.h"
#include "transactions.h"

#include "sql_show.h"

// The server exports it, but declares it in no header.
void ignore_db_dirs_append(const char *directory);

namespace varve_plugin {

handlerton *hton;
varve_db *db;
std::shared_mutex db_mutex;
static varve_monitor *monitor;

static const char *table_file_extensions[]= {".vdt", nullptr};

static handler *create_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *root)
{
  return new (root) ha_varve(hton, share);
}

static bool flush_logs(handlerton *)
{
  return varve_db_flush_log(db) != VARVE_OK;
}

static void hide_directory(const std::string &name)
{
  if (data_directory() == mysql_real_data_home && !db_name_is_in_ignore_db_dirs_list(name.c_str()))
    ignore_db_dirs_append(name.c_str());
}

// The engine's own directories are no databases: redo, and that of the undo tablespaces, if it is another
// one.
static void hide_own_directories()
{
  hide_directory("redo");
  varve_db_undo_tablespaces(db, [](void *, const varve_undo_tablespace *space) {
    const std::string path= space->path;
    const size_t slash= path.find('/');
    if (slash != path.npos && slash > 0 && slash == path.rfind('/'))
      hide_directory(path.substr(0, slash));
  }, nullptr);
}

// A server without its monitor is better than none.
static void start_monitor()
{
  // Of the monitor's thread.
  static std::string statement;
  varve_monitor_options options= monitor_options();
  if (!options.address)
    return;
  options.activity= tell_activity;
  options.activity_context= &statement;
  if (varve_monitor_start(db, &options, &monitor))
  {
    sql_print_error("VARVE: there is no monitor: varve_monitor_address=%s, varve_monitor_token_file=%s: %s", options.address,
                    options.token_file ? options.token_file : "", varve_last_error());
    monitor= nullptr;
    return;
  }
  sql_print_information("VARVE: the monitor is at %s, %s", varve_monitor_url(monitor),
                        options.token_file ? "for those who have the token" : "for everybody on this machine");
}

static void stop_monitor()
{
  if (monitor)
    varve_monitor_stop(monitor);
  monitor= nullptr;
}

static int init(void *p)
{
  hton= static_cast<handlerton *>(p);
  hton->db_type= DB_TYPE_AUTOASSIGN;
  hton->create= create_handler;
  hton->drop_table= drop_table;
  hton->drop_database= drop_database;
  hton->check_version= check_version;
  hton->signal_ddl_recovery_done= note_end_of_ddl_log;
  hton->flush_logs= flush_logs;
  hton->show_status= show_engine_status;
  hton->pre_shutdown= stop_memcached;
  hton->tablefile_extensions= table_file_extensions;
  hton->table_options= table_options;
  hton->flags= HTON_REQUIRES_CLOSE_AFTER_TRUNCATE | HTON_TRUNCATE_REQUIRES_EXCLUSIVE_USE |
               HTON_SUPPORTS_EXTENDED_KEYS;
  install_transaction_calls(hton);
  install_backup_calls(hton);
  register_stages();
  register_instruments();

  const varve_options options= options_from_variables();
  const std::unique_lock<std::shared_mutex> alone(db_mutex);
  if (varve_db_open(data_directory().c_str(), &options, &db))
  {
    sql_print_error("VARVE: cannot open the database in %s: %s", data_directory().c_str(), varve_last_error());
    db= nullptr;
    return 1;
  }
  hide_own_directories();
  set_deadlock_options();
  start_keeper();
  start_monitor();
  return 0;
}

struct Purge_progress
{
  unsigned long long left= 0;     // transactions
  unsigned long long removed= 0;  // rows, entries, pages of external values
};

static Purge_progress purge_progress()
{
  Purge_progress progress;
  varve_db_status(db, [](void *to, const char *name, uint64_t value) {
    Purge_progress *const told= static_cast<Purge_progress *>(to);
    if (!strcmp(name, "history_list_length"))
      told->left= value;
    else if (!strcmp(name, "purged_records") || !strcmp(name, "overflow_pages_freed"))
      told->removed+= value;
  }, &progress);
  return progress;
}

// What varve_fast_shutdown=0 asks for. A damaged page keeps purge from its end: then it is not waited for. A
// large transaction may take long, but something of it is removed all the time.
static void purge_everything()
{
  Purge_progress before= purge_progress();
  while (!varve_db_wait_for_purge(db, 30000))
  {
    const Purge_progress now= purge_progress();
    if (now.left >= before.left && now.removed == before.removed)
    {
      sql_print_warning("VARVE: purge does not come to its end, %llu transactions are left for the next start", now.left);
      return;
    }
    sql_print_information("VARVE: waiting for purge, %llu transactions to go", now.left);
    before= now;
  }
}

// Called after a failed init, too.
static int deinit(void *)
{
  if (!db)
    return 0;
  stop_monitor();
  stop_keeper();
  stop_backup();
  if (!is_shutdown_fast() && !is_read_only())
    purge_everything();
  if (set_pool_dump_options())
    sql_print_warning("VARVE: %s", varve_last_error());
  const std::unique_lock<std::shared_mutex> alone(db_mutex);
  const varve_code code= varve_db_close(db);
  if (code)
    sql_print_error("VARVE: the database was not closed cleanly, and will be recovered when it is opened: %s",
                    varve_last_error());
  db= nullptr;
  forget_collations();
  return code != VARVE_OK;
}

}  // namespace varve_plugin

static struct st_mysql_storage_engine varve_storage_engine= {MYSQL_HANDLERTON_INTERFACE_VERSION};
static struct st_mysql_daemon varve_daemon= {MYSQL_DAEMON_INTERFACE_VERSION};
static struct st_mysql_information_schema varve_schema_table= {MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

#define SCHEMA_TABLE(name, init, description)                                                                \
  {                                                                                                          \
    MYSQL_INFORMATION_SCHEMA_PLUGIN, &varve_schema_table, name, "The Varve authors", description,            \
      PLUGIN_LICENSE_GPL, varve_plugin::init, nullptr, 0x0001, nullptr, nullptr, "0.1",                      \
      MariaDB_PLUGIN_MATURITY_STABLE                                                                         \
  }

maria_declare_plugin(varve)
{
  MYSQL_STORAGE_ENGINE_PLUGIN,
  &varve_storage_engine,
  "VARVE",
  "The Varve authors",
  "Transactions, row locks, consistent reads, crash recovery; purge that keeps up",
  PLUGIN_LICENSE_GPL,
  varve_plugin::init,
  varve_plugin::deinit,
  0x0001,
  varve_plugin::status_variables,
  varve_plugin::system_variables,
  "0.1",
  MariaDB_PLUGIN_MATURITY_STABLE
},
SCHEMA_TABLE("VARVE_METRICS", init_metrics, "What the storage engine VARVE counts"),
SCHEMA_TABLE("VARVE_UNDO_TABLESPACES", init_undo_tablespaces, "The undo tablespaces of the storage engine VARVE"),
SCHEMA_TABLE("VARVE_SYS_TABLES", init_tables, "The tables of the storage engine VARVE"),
SCHEMA_TABLE("VARVE_SYS_INDEXES", init_indexes, "The indexes of the storage engine VARVE"),
SCHEMA_TABLE("VARVE_SYS_COLUMNS", init_columns, "The columns of the storage engine VARVE"),
SCHEMA_TABLE("VARVE_SYS_FIELDS", init_fields, "The columns of indexes of the storage engine VARVE"),
SCHEMA_TABLE("VARVE_SYS_FOREIGN", init_foreign, "The foreign keys of the storage engine VARVE"),
SCHEMA_TABLE("VARVE_SYS_FOREIGN_COLS", init_foreign_columns, "The columns of foreign keys of the storage engine VARVE"),
SCHEMA_TABLE("VARVE_SYS_TABLESTATS", init_table_statistics, "The open tables of the storage engine VARVE"),
SCHEMA_TABLE("VARVE_SYS_TABLESPACES", init_tablespaces, "The tablespaces of the storage engine VARVE"),
SCHEMA_TABLE("VARVE_TABLESPACES_ENCRYPTION", init_encryption, "How far the encryption of tablespaces of the storage engine VARVE is"),
SCHEMA_TABLE("VARVE_PURGE", init_purge, "How far purge of the storage engine VARVE has come, and when it will be through"),
SCHEMA_TABLE("VARVE_BUFFER_POOL_STATS", init_buffer_pool, "The buffer pool of the storage engine VARVE"),
SCHEMA_TABLE("VARVE_BUFFER_PAGE", init_pool_pages, "The pages in the buffer pool of the storage engine VARVE"),
SCHEMA_TABLE("VARVE_TRX", init_trx, "The transactions of the storage engine VARVE"),
SCHEMA_TABLE("VARVE_LOCKS", init_locks, "The locks of the storage engine VARVE that are waited for, and those in their way"),
SCHEMA_TABLE("VARVE_LOCK_WAITS", init_lock_waits, "Who waits for whom in the storage engine VARVE"),
{
  MYSQL_DAEMON_PLUGIN,
  &varve_daemon,
  "VARVE_MEMCACHED",
  "The Varve authors",
  "Clients of memcached read and change rows of tables",
  PLUGIN_LICENSE_GPL,
  varve_plugin::init_memcached,
  varve_plugin::deinit_memcached,
  0x0001,
  varve_plugin::memcached_status_variables,
  varve_plugin::memcached_variables,
  "0.1",
  MariaDB_PLUGIN_MATURITY_STABLE
}
maria_declare_plugin_end;
