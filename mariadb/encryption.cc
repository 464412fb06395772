// encryption.cc: system variables about encryption, and the keys that the server has.

#include "encryption.h"

#include "mysqld.h"

#include <mysql/service_encryption.h>

#include <mutex>

namespace varve_plugin {

enum { OFF, ON, FORCE };

static unsigned long tables;
static my_bool redo_log;
static my_bool temporary_tables;
static unsigned int rotate_key_age;
static unsigned int rotation_iops;
static unsigned int threads;

static const char *modes[]= {"OFF", "ON", "FORCE", NullS};
static TYPELIB mode_names= {array_elements(modes) - 1, "encrypt_tables", modes, nullptr};

// One of the modes, or its number; -1: there is no such mode.
static long mode_of(struct st_mysql_value *value)
{
  char buffer[16];
  int length= sizeof buffer;
  longlong number;
  if (value->value_type(value) == MYSQL_VALUE_TYPE_STRING)
  {
    const char *const text= value->val_str(value, buffer, &length);
    return text ? find_type(text, &mode_names, 0) - 1 : -1;
  }
  return value->val_int(value, &number) || number < OFF || number > FORCE ? -1 : long(number);
}

// As InnoDB: with a key 1 only.
static int check_tables(THD *thd, struct st_mysql_sys_var *, void *to, struct st_mysql_value *value)
{
  const long mode= mode_of(value);
  if (mode < 0)
    return 1;
  *static_cast<long *>(to)= mode;
  if (mode == OFF || varve_db_can_encrypt_tables(db) == VARVE_OK)
    return 0;
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_UNSUPPORTED, "VARVE: %s", varve_last_error());
  return 1;
}

static void update_tables(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  const unsigned long mode= *static_cast<const unsigned long *>(from);
  // Keys were there a moment ago. If they are not any more, nothing changes.
  if (varve_db_set_encrypt_tables(db, mode != OFF) == VARVE_OK)
    *static_cast<unsigned long *>(to)= mode;
}

static MYSQL_SYSVAR_ENUM(encrypt_tables, tables, PLUGIN_VAR_OPCMDARG,
  "Whether tables are encrypted that have no ENCRYPTED of their own, with undo and the system tablespace: new ones at "
  "once, others by varve_encryption_threads. FORCE: no table may have ENCRYPTED=NO, either.",
  check_tables, update_tables, OFF, &mode_names);

static MYSQL_SYSVAR_BOOL(encrypt_log, redo_log, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
  "The redo log is encrypted from this start on.", nullptr, nullptr, FALSE);

static MYSQL_SYSVAR_BOOL(encrypt_temporary_tables, temporary_tables,
  PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY, "Temporary tables are encrypted, with a key that is drawn at the start.", nullptr, nullptr, FALSE);

static varve_rotation_options rotation_options()
{
  return {threads, rotate_key_age, rotation_iops};
}

// Without the server's mutex: threads that end may be waiting for the disk. One change at a time.
static void update_rotation(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  static std::mutex changes;
  *static_cast<unsigned int *>(to)= *static_cast<const unsigned int *>(from);
  mysql_mutex_unlock(&LOCK_global_system_variables);
  {
    const std::lock_guard<std::mutex> change(changes);
    const varve_rotation_options options= rotation_options();
    varve_db_set_rotation(db, &options);
  }
  mysql_mutex_lock(&LOCK_global_system_variables);
}

static MYSQL_SYSVAR_UINT(encryption_rotate_key_age, rotate_key_age, PLUGIN_VAR_RQCMDARG,
  "Pages are encrypted again when their key's version is more than so many behind the newest one; 0: never.",
  nullptr, update_rotation, 1, 0, UINT_MAX32, 0);

static MYSQL_SYSVAR_UINT(encryption_rotation_iops, rotation_iops, PLUGIN_VAR_RQCMDARG,
  "How many pages varve_encryption_threads rewrite in a second.", nullptr, update_rotation, 100, 1, UINT_MAX32, 0);

static MYSQL_SYSVAR_UINT(encryption_threads, threads, PLUGIN_VAR_RQCMDARG,
  "So many threads encrypt and decrypt tablespaces that are not as they are to be; 0: they stay as they are.",
  nullptr, update_rotation, 1, 0, 255, 0);

st_mysql_sys_var *encryption_variable(Encryption_variable variable)
{
  switch (variable)
  {
  case ENCRYPT_LOG:               return MYSQL_SYSVAR(encrypt_log);
  case ENCRYPT_TABLES:            return MYSQL_SYSVAR(encrypt_tables);
  case ENCRYPT_TEMPORARY_TABLES:  return MYSQL_SYSVAR(encrypt_temporary_tables);
  case ENCRYPTION_ROTATE_KEY_AGE: return MYSQL_SYSVAR(encryption_rotate_key_age);
  case ENCRYPTION_ROTATION_IOPS:  return MYSQL_SYSVAR(encryption_rotation_iops);
  case ENCRYPTION_THREADS:        return MYSQL_SYSVAR(encryption_threads);
  }
  return nullptr;
}

static uint32_t newest_key_version(void *, uint32_t key)
{
  const unsigned int version= encryption_key_get_latest_version(key);
  // A version of 0 stands for what is not encrypted.
  return version == ENCRYPTION_KEY_VERSION_INVALID ? 0 : version;
}

static uint32_t give_key(void *, uint32_t key, uint32_t version, uint8_t *out)
{
  unsigned int length= 64;
  return encryption_key_get(key, version, out, &length) ? 0 : length;
}

void choose_encryption(varve_options *options)
{
  options->newest_key_version= newest_key_version;
  options->key= give_key;
  options->encrypt_tables= tables != OFF;
  options->encrypt_log= redo_log;
  options->encrypt_temporary_tables= temporary_tables;
  options->rotation= rotation_options();
}

bool encrypts_tables()
{
  return tables != OFF;
}

bool forces_encryption()
{
  return tables == FORCE;
}

}  // namespace varve_plugin
