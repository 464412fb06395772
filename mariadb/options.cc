// options.cc: what CREATE TABLE and ALTER TABLE ask for beyond columns and indexes.
//
// An option that the engine does not implement is never ignored in silence. Where the user relies on it (who
// may read a file) the statement is refused, by name: in a replica, too, whose thread stops then, for a table
// without what the source promises can't be mended later.
// An option that only saves space or advises the optimizer gives a warning, and in a replica, which has no
// client, in the error log. The table keeps it in its definition.

#include "options.h"

#include "encryption.h"
#include "engine.h"
#include "error_map.h"
#include "foreign.h"

#include <mysql/service_encryption.h>

#include <algorithm>

namespace varve_plugin {

static unsigned long algorithm;
static unsigned int level;

// In the order of varve_compression, from its second on.
static const char *algorithm_names[]= {"lz4", "zstd", NullS};
static TYPELIB algorithms= {array_elements(algorithm_names) - 1, "compression_algorithms", algorithm_names, nullptr};

static MYSQL_SYSVAR_ENUM(compression_algorithm, algorithm, PLUGIN_VAR_RQCMDARG,
  "How pages are compressed of tables that are made, or get PAGE_COMPRESSED=1, from now on. lz4: quickly. zstd: to fewer bytes, "
  "for more of the processor's time.",
  nullptr, nullptr, 0, &algorithms);

static MYSQL_SYSVAR_UINT(compression_level, level, PLUGIN_VAR_RQCMDARG,
  "How hard zstd tries, from 1 (quickest) to 9, unless the table says otherwise (PAGE_COMPRESSION_LEVEL). lz4 has no levels.",
  nullptr, nullptr, 3, 1, 9, 0);

static MYSQL_THDVAR_BOOL(compression_default, PLUGIN_VAR_OPCMDARG,
  "New tables have PAGE_COMPRESSED=1, unless they say otherwise.",
  nullptr, nullptr, FALSE);

static MYSQL_THDVAR_UINT(default_encryption_key_id, PLUGIN_VAR_RQCMDARG,
  "ENCRYPTION_KEY_ID of new tables that don't say otherwise.", nullptr, nullptr, 1, 1, UINT_MAX32, 0);

st_mysql_sys_var *storage_variable(Storage_variable variable)
{
  switch (variable)
  {
  case COMPRESSION_ALGORITHM:
    return MYSQL_SYSVAR(compression_algorithm);
  case COMPRESSION_DEFAULT:
    return MYSQL_SYSVAR(compression_default);
  case COMPRESSION_LEVEL:
    return MYSQL_SYSVAR(compression_level);
  case DEFAULT_ENCRYPTION_KEY_ID:
    return MYSQL_SYSVAR(default_encryption_key_id);
  }
  return nullptr;
}

// As varve_encryption.
enum { ENCRYPTED_DEFAULT, ENCRYPTED_YES, ENCRYPTED_NO };
static_assert(int(ENCRYPTED_YES) == VARVE_ENCRYPTED && int(ENCRYPTED_NO) == VARVE_NOT_ENCRYPTED);

ha_create_table_option table_options[]= {
  HA_TOPTION_SYSVAR("PAGE_COMPRESSED", page_compressed, compression_default),
  HA_TOPTION_NUMBER("PAGE_COMPRESSION_LEVEL", page_compression_level, 0, 0, 9, 1),
  HA_TOPTION_ENUM("ENCRYPTED", encrypted, "DEFAULT,YES,NO", ENCRYPTED_DEFAULT),
  HA_TOPTION_SYSVAR("ENCRYPTION_KEY_ID", encryption_key_id, default_encryption_key_id),
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

// A page is as large as a block of the file system, whatever is in it.
static bool pages_are_blocks()
{
  return varve_db_page_bytes(db) == 4096;
}

static bool is_compressed(const TABLE_SHARE *share)
{
  const ha_table_option_struct *const options= share->option_struct;
  return share->row_type == ROW_TYPE_COMPRESSED || (options && options->page_compressed);
}

static ulonglong level_of(const TABLE_SHARE *share)
{
  return share->option_struct ? share->option_struct->page_compression_level : 0;
}

static void choose_encryption(const TABLE_SHARE *share, varve_table_def *def)
{
  const ha_table_option_struct *const options= share->option_struct;
  if (!options)
    return;
  def->encryption= varve_encryption(options->encrypted);
  // Which key one would have is of no account.
  if (options->encrypted != ENCRYPTED_NO)
    def->encryption_key= options->encryption_key_id;
}

void choose_storage(const TABLE_SHARE *share, varve_table_def *def)
{
  choose_encryption(share, def);
  if (!is_compressed(share))
    return;
  const ulonglong own= level_of(share);
  def->compression= varve_compression(VARVE_LZ4 + algorithm);
  def->compression_level= uint32_t(own ? own : level);
}

static bool is_encrypted_otherwise(const ha_table_option_struct *before, const ha_table_option_struct *after)
{
  if (!before || !after)
    return false;
  return before->encrypted != after->encrypted ||
         (after->encrypted != ENCRYPTED_NO && before->encryption_key_id != after->encryption_key_id);
}

bool is_stored_otherwise(const TABLE_SHARE *before, const TABLE_SHARE *after)
{
  if (before->tmp_table != NO_TMP_TABLE)
    return false;
  const bool is_compressed_otherwise= is_compressed(before) != is_compressed(after) ||
                                      (is_compressed(after) && level_of(before) != level_of(after));
  return (is_compressed_otherwise && !pages_are_blocks()) ||
         is_encrypted_otherwise(before->option_struct, after->option_struct);
}

void keep_storage(const TABLE_SHARE *before, const TABLE_SHARE *after, varve_table_def *def)
{
  // Partitions may have options of their own.
  if (!is_encrypted_otherwise(before->option_struct, after->option_struct))
    def->encryption= VARVE_ENCRYPTED_AS_BEFORE;
  if (is_compressed(before) != is_compressed(after))
    return;
  if (level_of(before) == level_of(after))
    def->compression_level= 0;
  def->compression= VARVE_COMPRESSED_AS_BEFORE;
}

bool has_storage(const TABLE_SHARE *share, const HA_CREATE_INFO *info)
{
  const ha_table_option_struct *const own= share->option_struct, *const other= info->option_struct;
  return !own || !other ||
         (own->page_compressed == other->page_compressed &&
          own->page_compression_level == other->page_compression_level &&
          !is_encrypted_otherwise(own, other));
}

template<typename... T> static int refuse_option(THD *thd, const char *format, T... arguments)
{
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, HA_WRONG_CREATE_OPTION, format, arguments...);
  return HA_WRONG_CREATE_OPTION;
}

// As InnoDB, with its words.
static int check_encryption(THD *thd, const TABLE_SHARE *share, const char **wrong)
{
  ha_table_option_struct *const options= share->option_struct;
  const uint key= options->encryption_key_id;
  if (options->encrypted == ENCRYPTED_NO)
  {
    if (key != 1)
      push_warning(thd, Sql_condition::WARN_LEVEL_WARN, HA_WRONG_CREATE_OPTION,
                   "VARVE: ENCRYPTED=NO implies ENCRYPTION_KEY_ID=1");
    *wrong= "ENCRYPTED";
    return forces_encryption()
      ? refuse_option(thd, "VARVE: ENCRYPTED=NO cannot be used with varve_encrypt_tables=FORCE") : 0;
  }
  *wrong= "ENCRYPTION_KEY_ID";
  if (options->encrypted == ENCRYPTED_DEFAULT && !encrypts_tables())
    return 0;
  return encryption_key_id_exists(key) ? 0 : refuse_option(thd, "VARVE: ENCRYPTION_KEY_ID %u not available", key);
}

// What users may not expect of pages that are to be compressed.
static int check_compression(THD *thd, const TABLE_SHARE *share, const HA_CREATE_INFO *info)
{
  const char *const option= share->row_type == ROW_TYPE_COMPRESSED ? "ROW_FORMAT=COMPRESSED" : "PAGE_COMPRESSED";
  if (!is_compressed(share))
  {
    if (!level_of(share))
      return 0;
    // As InnoDB.
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION, "VARVE: %s",
                        "PAGE_COMPRESSION_LEVEL requires PAGE_COMPRESSED");
    return HA_WRONG_CREATE_OPTION;
  }
  if (info->tmp_table() || pages_are_blocks())
    tell(thd, option);
  else if (share->row_type == ROW_TYPE_COMPRESSED && !share->option_struct->page_compressed)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, ER_ILLEGAL_HA_CREATE_OPTION,
                        "VARVE: %s means PAGE_COMPRESSED=1", option);
  return 0;
}

int check_options(THD *thd, const TABLE_SHARE *share, const HA_CREATE_INFO *info, const char **wrong)
{
  if (int error= check_system_time(share))
    return error;
  if (int error= check_encryption(thd, share, wrong))
    return error;
  *wrong= "PAGE_COMPRESSION_LEVEL";
  if (int error= check_compression(thd, share, info))
    return error;
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
