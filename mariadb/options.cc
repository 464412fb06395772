// options.cc: what CREATE TABLE and ALTER TABLE ask for beyond columns and indexes.
//
// An option that the engine does not implement is never ignored in silence. Where the user relies on it (who
// may read a file) the statement is refused, by name: in a replica, too, whose thread stops then, for a table
// without what the source promises can't be mended later.
// An option that only saves space or advises the optimizer gives a warning, and in a replica, which has no
// client, in the error log. The table keeps it in its definition.

#include "options.h"

#include "engine.h"
#include "error_map.h"
#include "foreign.h"

#include <algorithm>

namespace varve_plugin {

enum { ENCRYPTED_DEFAULT, ENCRYPTED_YES, ENCRYPTED_NO };

ha_create_table_option table_options[]= {
  HA_TOPTION_BOOL("PAGE_COMPRESSED", page_compressed, 0),
  HA_TOPTION_NUMBER("PAGE_COMPRESSION_LEVEL", page_compression_level, 0, 0, 9, 1),
  HA_TOPTION_ENUM("ENCRYPTED", encrypted, "DEFAULT,YES,NO", ENCRYPTED_DEFAULT),
  HA_TOPTION_NUMBER("ENCRYPTION_KEY_ID", encryption_key_id, 0, 1, UINT_MAX32, 1),
  HA_TOPTION_END
};

static void tell(THD *thd, const char *option)
{
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION,
                      ER_THD(thd, ER_ILLEGAL_HA_CREATE_OPTION), "VARVE", option);
  if (thd->slave_thread)
    sql_print_warning("VARVE: a replicated statement has the table option %s, which does nothing: %.*s", option,
                      int(std::min<size_t>(thd->query_length(), 200)), thd->query());
}

// A ROW_FORMAT that rows don't have.
static const char *foreign_format(row_type type)
{
  switch (type)
  {
  case ROW_TYPE_COMPRESSED:
    return "ROW_FORMAT=COMPRESSED";
  case ROW_TYPE_FIXED:
    return "ROW_FORMAT=FIXED";
  case ROW_TYPE_PAGE:
    return "ROW_FORMAT=PAGE";
  default:
    return nullptr;
  }
}

// The server asks whether the engine has numbers of transactions in ROW START and ROW END, but for a table in
// partitions it asks too late: nobody could open that.
static int check_system_time(const TABLE_SHARE *share)
{
  if (share->versioned != VERS_TRX_ID)
    return 0;
  const Field *begin= share->field[share->vers.start_fieldno];
  my_error(ER_VERS_FIELD_WRONG_TYPE, MYF(0), begin->field_name.str, "TIMESTAMP(6)", share->table_name.str);
  return HA_ERR_UNSUPPORTED;
}

int check_options(THD *thd, const TABLE_SHARE *share)
{
  if (int error= check_system_time(share))
    return error;
  const ha_table_option_struct *options= share->option_struct;
  if (options->encrypted == ENCRYPTED_YES)
    return refuse("encrypted tables (ENCRYPTED=YES)");
  if (options->encryption_key_id)
    tell(thd, "ENCRYPTION_KEY_ID");
  if (options->page_compressed)
    tell(thd, "PAGE_COMPRESSED");
  if (options->page_compression_level)
    tell(thd, "PAGE_COMPRESSION_LEVEL");
  if (const char *format= foreign_format(share->row_type))
    tell(thd, format);
  if (share->key_block_size)
    tell(thd, "KEY_BLOCK_SIZE");
  return 0;
}

// As InnoDB, with its words.
int check_index_names(THD *thd, const TABLE *table)
{
  static const char HIDDEN_INDEX[]= "GEN_CLUST_INDEX";
  for (uint i= 0; i < table->s->keys; i++)
    if (same_name(table->key_info[i].name.str, HIDDEN_INDEX))
    {
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_WRONG_NAME_FOR_INDEX,
                          "Cannot Create Index with name '%s'. The name is reserved for the system default "
                          "primary index.", HIDDEN_INDEX);
      my_error(ER_WRONG_NAME_FOR_INDEX, MYF(0), HIDDEN_INDEX);
      return HA_ERR_WRONG_INDEX;
    }
  return 0;
}

// As InnoDB.
int check_places(THD *thd, const HA_CREATE_INFO *info)
{
  int error= 0;
  const auto refuse= [&](const char *why) {
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION, "VARVE: %s", why);
    error= HA_WRONG_CREATE_OPTION;
  };
  if (info->data_file_name && info->tmp_table())
    refuse("DATA DIRECTORY cannot be used for TEMPORARY tables.");
  if (info->index_file_name)
    refuse("INDEX DIRECTORY is not supported");
  return error;
}

}  // namespace varve_plugin
