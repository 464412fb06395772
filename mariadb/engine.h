// engine.h: the one open database behind the storage engine VARVE, and its place in the server.

#ifndef VARVE_ENGINE_H
#define VARVE_ENGINE_H

#include "server.h"

#include <shared_mutex>
#include <string>

namespace varve_plugin {

// Set while the engine is initialised; nothing calls it before or after, but for the INFORMATION_SCHEMA
// tables: these are plugins of their own, which the server may have without the engine, and whose use does
// not keep it from removing the engine.
extern handlerton *hton;
extern varve_db *db;
// Shared by users of `db` outside of the engine; exclusive while it is set and closed.
extern std::shared_mutex db_mutex;

// The engine's name of the table behind a server path: "./shop/orders" is "shop/orders", in the server's
// encoding of file names.
std::string table_name(const char *path);

// Whether it is that of a table that ALTER TABLE puts aside, or of the copy that is to take its place.
bool is_aside(const std::string &engine_name);

// ddl.cc
// Waits until no transaction has a lock in the table. Returns a handler code.
int wait_for_others(THD *thd, const std::string &name);
int drop_table(handlerton *hton, const char *path);
void drop_database(handlerton *hton, char *path);
int note_end_of_ddl_log(handlerton *hton);

// alter.cc
int check_version(handlerton *hton, const char *path, const LEX_CUSTRING *version, ulonglong before);

// status.cc
bool show_engine_status(handlerton *hton, THD *thd, stat_print_fn *print, enum ha_stat_type kind);
extern struct st_mysql_show_var status_variables[];
extern struct st_mysql_show_var memcached_status_variables[];

// log.cc
void log_message(void *, varve_log_level level, const char *message);

// schema.cc: initialise the INFORMATION_SCHEMA tables.
int init_metrics(void *schema);
int init_undo_tablespaces(void *schema);
int init_purge(void *schema);
int init_buffer_pool(void *schema);

// catalog.cc: the same.
int init_tables(void *schema);
int init_indexes(void *schema);
int init_columns(void *schema);
int init_fields(void *schema);
int init_foreign(void *schema);
int init_foreign_columns(void *schema);
int init_table_statistics(void *schema);
int init_tablespaces(void *schema);
int init_encryption(void *schema);
int init_pool_pages(void *schema);

// transactions.cc: the same.
int init_trx(void *schema);
int init_locks(void *schema);
int init_lock_waits(void *schema);

}  // namespace varve_plugin

#endif
