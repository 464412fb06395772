// options.h: what CREATE TABLE and ALTER TABLE ask for beyond columns and indexes.

#ifndef VARVE_OPTIONS_H
#define VARVE_OPTIONS_H

#include "server.h"

// The options of a table that are InnoDB's alone, with its names and values. The server fills it in.
struct ha_table_option_struct
{
  bool page_compressed;
  ulonglong page_compression_level;  // 0: as varve_compression_level says
  uint encrypted;
  uint encryption_key_id;
};

namespace varve_plugin {

extern ha_create_table_option table_options[];

// Refuses what the engine does not do, and tells of what it leaves undone. Returns a handler code; with
// HA_WRONG_CREATE_OPTION, which option that is.
int check_options(THD *thd, const TABLE_SHARE *share, const HA_CREATE_INFO *info, const char **wrong);

// How the table's pages are to be stored. The variables say by which algorithm.
void choose_storage(const TABLE_SHARE *share, varve_table_def *def);

// Whether they are to be stored in another way than before.
bool is_stored_otherwise(const TABLE_SHARE *before, const TABLE_SHARE *after);

// For a table whose rows are written anew: by what it was compressed before, and with another level, if it
// gets one; encrypted as it was before, if nothing else is said.
void keep_storage(const TABLE_SHARE *before, const TABLE_SHARE *after, varve_table_def *def);

// Whether the table's pages are stored as the statement says.
bool has_storage(const TABLE_SHARE *share, const HA_CREATE_INFO *info);

enum Storage_variable
{
  COMPRESSION_ALGORITHM,
  COMPRESSION_DEFAULT,
  COMPRESSION_LEVEL,
  DEFAULT_ENCRYPTION_KEY_ID
};
st_mysql_sys_var *storage_variable(Storage_variable variable);

// The same for the name that is the hidden index's in statistics.
int check_index_names(THD *thd, const TABLE *table);

// The same for what is not known of a table but only of the statement that makes it.
int check_places(THD *thd, const HA_CREATE_INFO *info);

}  // namespace varve_plugin

#endif
