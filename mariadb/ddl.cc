// ddl.cc: creating, dropping, renaming and truncating tables.
//
// The server holds a metadata lock that keeps everybody else away from the table, and its .frm file has the
// SQL side of the definition; the engine's has what is needed to store rows and keys. Each operation here is
// one atomic, durable engine call.
//
// A temporary table is known to the engine by the name of the file that the server keeps its definition in:
// one that no other connection's table has, whatever the users call theirs.

#include "ha_varve.h"

#include "definition.h"
#include "engine.h"
#include "error_map.h"
#include "foreign.h"
#include "options.h"
#include "statistics.h"

#include "mysqld.h"

namespace varve_plugin {

std::string table_name(const char *path)
{
  const std::string whole(path);
  return whole.substr(whole.find_last_of('/', whole.find_last_of('/') - 1) + 1);
}

bool is_aside(const std::string &engine_name)
{
  return engine_name.compare(engine_name.find('/') + 1, 4, "#sql") == 0;
}

// Waits until no transaction has a lock in a table: a prepared branch whose connection is gone has no
// metadata lock, nor has one that has looked there for the parent of a row. A table that can't be opened has
// none to wait for.
int wait_for_others(THD *thd, const std::string &name)
{
  varve_table *table;
  if (varve_table_open(db, name.c_str(), &table))
    return 0;
  int error= 0;
  if (!varve_table_is_temporary(table))
  {
    Session *session= Session::of(thd);
    error= session ? session->wait_for_others(thd, table) : HA_ERR_INTERNAL_ERROR;
  }
  varve_table_close(table);
  return error;
}

// Whether the engine will refuse to drop a table because of another one's foreign key.
static bool is_referenced(const std::string &name, varve_foreign_key_checks checks)
{
  varve_table *table;
  if (checks == VARVE_IGNORE_REFERENCES || varve_table_open(db, name.c_str(), &table))
    return false;
  const std::string schema= name.substr(0, name.find('/') + 1);
  bool found= false;
  for (const Told_key &key : foreign_keys_to(table))
  {
    const bool counts= checks == VARVE_CHECK_REFERENCES || key.child.compare(0, schema.size(), schema) != 0;
    found= found || (counts && key.child != name);
  }
  varve_table_close(table);
  return found;
}

static bool ddl_log_is_over;

int note_end_of_ddl_log(handlerton *)
{
  ddl_log_is_over= true;
  make_statistics_tables();
  return 0;
}

int drop_table(handlerton *, const char *path)
{
  THD *thd= current_thd;
  const std::string name= table_name(path);
  Session *session= thd ? Session::known(thd) : nullptr;
  if (session && varve_txn_is_open(session->txn()))
  {
    // Temporary tables come and go within transactions, which may have used them.
    const varve_code code= varve_txn_drop_temporary(session->txn(), name.c_str());
    if (code != VARVE_NOT_FOUND)
      return code ? report(thd, code) : 0;
    // A failed CREATE TABLE ... SELECT drops its table before it rolls back what it inserted; the engine
    // would wait for those locks.
    if (thd_sql_command(thd) == SQLCOM_CREATE_TABLE)
      session->abandon();
  }
  // What the server's DDL log drops at its start was decided before.
  const bool is_decided= !thd || (!ddl_log_is_over && !mysqld_server_started);
  varve_foreign_key_checks checks= is_decided ? VARVE_IGNORE_REFERENCES : foreign_key_checks(thd);
  if (checks == VARVE_CHECK_REFERENCES && thd_sql_command(thd) == SQLCOM_DROP_DB)
    checks= VARVE_CHECK_OTHER_SCHEMAS;
  // Nobody waits for what will be refused.
  if (is_referenced(name, checks))
    return HA_ERR_ROW_IS_REFERENCED;
  if (int error= thd ? wait_for_others(thd, name) : 0)
    return error;
  const varve_code code= varve_table_drop(db, name.c_str(), checks);
  if (code == VARVE_NOT_FOUND)
    return ENOENT;  // The server asks several engines about a table whose .frm is gone.
  if (code == VARVE_TABLE_IS_REFERENCED)
    return handler_code(code);  // In the server's words, as for InnoDB.
  if (code)
    return report(thd, code);
  forget_statistics(name);
  return 0;
}

// The server has dropped the tables that it knows. What is left are those whose .frm files were lost; it has
// removed their data files, too.
void drop_database(handlerton *, char *path)
{
  const std::string schema= table_name((std::string(path) + "t").c_str());
  struct Left
  {
    const std::string prefix;
    std::vector<std::string> names;
  } left{schema.substr(0, schema.size() - 1), {}};
  varve_db_tables(db, [](void *to, const char *name) {
    Left *const left= static_cast<Left *>(to);
    if (!strncmp(name, left->prefix.c_str(), left->prefix.size()))
      left->names.emplace_back(name);
  }, &left);
  for (const std::string &name : left.names)
  {
    const varve_code code= varve_table_drop(db, name.c_str(), VARVE_CHECK_OTHER_SCHEMAS);
    // What a failed statement had left may have gone with the one before.
    if (code == VARVE_NOT_FOUND)
      continue;
    if (code)
      sql_print_error("VARVE: DROP DATABASE leaves table %s, which has no .frm file: %s", name.c_str(),
                      varve_last_error());
    else
      sql_print_information("VARVE: DROP DATABASE has dropped table %s, which had no .frm file", name.c_str());
    forget_statistics(name);
  }
}

}  // namespace varve_plugin

using namespace varve_plugin;

// The server puts the table's name behind what the user says.
static std::string directory_of(const char *data_file_name)
{
  return data_file_name ? std::string(data_file_name, dirname_length(data_file_name)) : std::string();
}

// InnoDB's error, and the engine's words in a warning.
static int no_place(THD *thd, varve_code code)
{
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, "VARVE: %s", varve_last_error());
  return code == VARVE_ALREADY_EXISTS ? HA_ERR_TABLESPACE_EXISTS : HA_ERR_GENERIC;
}

// The engine has a table of which the server does not know, since its .frm file is gone. InnoDB's errors, of
// which the server makes a warning of the second one. A file that is no table's is another thing.
static bool is_there(THD *thd, const TABLE *form, const std::string &name)
{
  varve_table *table;
  if (varve_table_open(db, name.c_str(), &table))
    return false;
  varve_table_close(table);
  const std::string whole= quoted(thd, form->s->db.str) + '.' + quoted(thd, form->s->table_name.str);
  my_error(ER_TABLE_EXISTS_ERROR, MYF(0), whole.c_str());
  return true;
}

int ha_varve::create(const char *path, TABLE *form, HA_CREATE_INFO *info)
{
  THD *thd= ha_thd();
  const std::string name= table_name(path);
  Definition definition;
  Foreign_keys foreign_keys;
  int error;
  const char *wrong;
  if ((error= check_places(thd, info)) || (error= check_options(thd, form->s, info, &wrong)) ||
      (error= check_index_names(thd, form)) || (error= definition.build(form, name, info->tmp_table())) ||
      (error= foreign_keys.collect(thd, form, name, info)))
    return error;
  foreign_keys.put_into(&definition.def);
  definition.def.foreign_key_checks= foreign_key_checks(thd);
  const std::string directory= directory_of(info->data_file_name);
  if (!directory.empty())
    definition.def.data_directory= directory.c_str();
  // As InnoDB: without a word about it.
  if (thd->is_strict_mode() && varve_brings_null(db, &definition.def))
    return HA_ERR_CANNOT_ADD_FOREIGN;
  if (varve_code code= varve_table_create(db, &definition.def))
  {
    if (!directory.empty() && (code == VARVE_IO || code == VARVE_INVALID || code == VARVE_ALREADY_EXISTS))
      return no_place(thd, code);
    if (code == VARVE_ALREADY_EXISTS && is_there(thd, form, name))
      return HA_ERR_FOUND_DUPP_KEY;
    return code == VARVE_BAD_FOREIGN_KEY || code == VARVE_CONSTRAINT_EXISTS ? foreign_keys.refused(thd, code)
                                                                           : report(thd, code);
  }
  if (!info->tmp_table())
    forget_statistics(name);
  if (!form->found_next_number_field || info->auto_increment_value <= 1)
    return 0;
  varve_table *table;
  varve_code code= varve_table_open(db, name.c_str(), &table);
  if (code == VARVE_OK)
  {
    code= varve_table_set_auto_increment(table, info->auto_increment_value);
    varve_table_close(table);
  }
  return code ? report(thd, code) : 0;
}

int ha_varve::delete_table(const char *path)
{
  return varve_plugin::drop_table(ht, path);
}

// The names that are made for constraints have the table's in them.
static std::string made_constraints(const std::string &engine_name)
{
  return user_name(table_of(engine_name)) + "_ibfk_";
}

// Of what others have kept it from the server would say that a file can't be renamed.
static int not_renamed(int error)
{
  if (error == HA_ERR_LOCK_DEADLOCK)
    my_error(ER_LOCK_DEADLOCK, MYF(0));
  else if (error == HA_ERR_LOCK_WAIT_TIMEOUT)
    my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0));
  return error;
}

// Whether the database of this table is there. Of the table that RENAME makes the server does not know.
static bool has_database(const char *path)
{
  const std::string whole(path);
  return my_access(whole.substr(0, whole.find_last_of('/')).c_str(), F_OK) == 0;
}

int ha_varve::rename_table(const char *from_path, const char *to_path)
{
  if (!has_database(to_path))
    return HA_ERR_GENERIC;  // as InnoDB says; the engine would make the directory
  const std::string from= table_name(from_path), to= table_name(to_path);
  if (int error= wait_for_others(ha_thd(), from))
    return not_renamed(error);
  const std::string made= made_constraints(from), make= made_constraints(to);
  // The copy's constraints have their names already.
  const bool keeps_names= is_aside(from) || is_aside(to);
  if (varve_code code= varve_table_rename(db, from.c_str(), to.c_str(), keeps_names ? nullptr : made.c_str(),
                                          make.c_str(), foreign_key_checks(ha_thd())))
    // All that a copy can be wrong in is an index that a foreign key has lost.
    return code == VARVE_INVALID && is_aside(from) ? HA_ERR_CANNOT_ADD_FOREIGN
                                                   : not_renamed(report(ha_thd(), code));
  move_statistics(from, to);
  return 0;
}

int ha_varve::truncate()
{
  if (m_is_discarded)
    return truncate_discarded();
  if (int error= wait_for_others(ha_thd(), m_name))
    return error;
  close_table();
  const varve_code code= varve_table_truncate(db, m_name.c_str(), foreign_key_checks(ha_thd()));
  if (!code && table_share->tmp_table == NO_TMP_TABLE)
    forget_statistics(m_name);
  const int reopened= open_table();
  if (reopened)
    // No other statement gets this handler; under LOCK TABLES the next statement tries again.
    table->mark_table_for_reopen();
  return code ? report(ha_thd(), code) : reopened;
}

void ha_varve::update_create_info(HA_CREATE_INFO *info)
{
  const char *directory= m_table ? varve_table_data_directory(m_table) : nullptr;
  if (directory)
  {
    // The server takes off the table's name, a partition's in place. A partitioned table keeps the pointer,
    // and hands it on: the text is written where it was.
    m_data_file.reserve(strlen(directory) + m_name.size());
    m_data_file= directory;
    m_data_file.append(m_name, m_name.find('/'));
    info->data_file_name= &m_data_file[0];
  }
  if (info->used_fields & HA_CREATE_USED_AUTO)
    return;
  this->info(HA_STATUS_AUTO);
  info->auto_increment_value= stats.auto_increment_value;
}
