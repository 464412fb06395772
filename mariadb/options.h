// options.h: what CREATE TABLE and ALTER TABLE ask for beyond columns and indexes.

#ifndef VARVE_OPTIONS_H
#define VARVE_OPTIONS_H

#include "server.h"

// The options of a table that are InnoDB's alone, with its names and values. The server fills it in.
struct ha_table_option_struct
{
  bool page_compressed;
  ulonglong page_compression_level;  // 0: not given
  uint encrypted;
  ulonglong encryption_key_id;  // 0: not given
};

namespace varve_plugin {

extern ha_create_table_option table_options[];

// Refuses what the engine does not do, and tells of what it leaves undone. Returns a handler code.
int check_options(THD *thd, const TABLE_SHARE *share);

// The same for the name that is the hidden index's in statistics.
int check_index_names(THD *thd, const TABLE *table);

// The same for what is not known of a table but only of the statement that makes it.
int check_places(THD *thd, const HA_CREATE_INFO *info);

}  // namespace varve_plugin

#endif
