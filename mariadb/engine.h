// engine.h: the one open database behind the storage engine VARVE, and its place in the server.

#ifndef VARVE_ENGINE_H
#define VARVE_ENGINE_H

#include "server.h"

#include <string>

namespace varve_plugin {

// Set while the plugin is initialised; nothing calls the engine before or after.
extern handlerton *hton;
extern varve_db *db;

// The engine's name of the table behind a server path: "./shop/orders" is "shop/orders", in the server's encoding of
// file names.
std::string table_name(const char *path);

// ddl.cc
int drop_table(handlerton *hton, const char *path);

// status.cc
bool show_engine_status(handlerton *hton, THD *thd, stat_print_fn *print, enum ha_stat_type kind);
extern struct st_mysql_show_var status_variables[];

}  // namespace varve_plugin

#endif
