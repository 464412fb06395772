// ddl.cc: creating, dropping, renaming and truncating tables.
//
// The server holds a metadata lock that keeps everybody else away from the table, and its .frm file has the
// SQL side of the definition; the engine's has what is needed to store rows and keys. Each operation here is
// one atomic, durable engine call.
//
// A temporary table is known to the engine by the name of the file that the server keeps its definition in:
// one that no other connection's table has, whatever the users call theirs.

#include "ha_varve.h"

#include "collation.h"
#include "derived.h"
#include "engine.h"
#include "error_map.h"
#include "foreign.h"
#include "options.h"
#include "statistics.h"

#include "mysqld.h"

#include <algorithm>

namespace varve_plugin {

// The engine's limit, and InnoDB's.
static const uint MAX_COLUMNS= 1017;

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
static int wait_for_others(THD *thd, const std::string &name)
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
    if (varve_table_drop(db, name.c_str(), VARVE_CHECK_OTHER_SCHEMAS))
      sql_print_error("VARVE: DROP DATABASE leaves table %s, which has no .frm file: %s", name.c_str(),
                      varve_last_error());
    else
      sql_print_information("VARVE: DROP DATABASE has dropped table %s, which had no .frm file", name.c_str());
    forget_statistics(name);
  }
}

// Whether the definition is still that of the table's version `before`: then the statement has done nothing
// that its old .frm file does not say.
int check_version(handlerton *, const char *path, const LEX_CUSTRING *, ulonglong before)
{
  varve_table *table;
  if (varve_table_open(db, table_name(path).c_str(), &table))
    return 0;
  const bool is_same= varve_table_hash(table) == before;
  varve_table_close(table);
  return is_same;
}

namespace {

// An engine definition, and what it points to.
class Definition
{
public:
  // Returns a handler code; an error has been reported to the client.
  int build(const TABLE *form, const std::string &name, bool temporary);
  // Of a table that gets this definition: what its columns and indexes were called, and what new columns have
  // in its rows. False if that is not the same for all.
  bool note_changes(TABLE *altered, const Alter_inplace_info *alter);

  varve_table_def def;

private:
  int add_columns(const TABLE *form);
  int add_key_parts(const KEY &key, std::vector<varve_key_part> *parts);

  std::vector<varve_column_def> m_columns;
  // Engine column of each field.
  std::vector<uint32_t> m_column_of_field;
  std::vector<varve_key_part> m_primary;
  std::vector<std::vector<varve_key_part>> m_parts;
  std::vector<varve_index_def> m_indexes;
  System_time m_system_time;
};

}  // namespace

int Definition::add_columns(const TABLE *form)
{
  m_column_of_field.assign(form->s->fields, UINT32_MAX);
  for (Field **at= form->field; *at; at++)
  {
    const Field *field= *at;
    if (!is_stored(form, field))
      continue;
    varve_column_def column{};
    Column plan;
    if (!describe(field, &column, &plan))
      return refuse("the type of a column");
    column.computed= !field->stored_in_db();
    column.unversioned= field->vers_update_unversioned();
    m_column_of_field[field->field_index]= uint32_t(m_columns.size());
    m_columns.push_back(column);
  }
  return 0;
}

static bool is_text(const Field *field)
{
  varve_column_def column;
  Column plan;
  describe(field, &column, &plan);
  return plan.layout != Column::PLAIN && plan.charset != &my_charset_bin;
}

int Definition::add_key_parts(const KEY &key, std::vector<varve_key_part> *parts)
{
  for (uint i= 0; i < key.user_defined_key_parts; i++)
  {
    const KEY_PART_INFO &part= key.key_part[i];
    const Field *field= part.field;
    const varve_column_def &column= m_columns[m_column_of_field[field->field_index]];
    const bool text= is_text(field);
    if (text && column.kind != VARVE_TEXT)
    {
      std::string what= std::string("indexes in collation ") + field->charset()->coll_name.str;
      return refuse(what.c_str());
    }
    varve_key_part p{m_column_of_field[field->field_index], 0, bool(part.key_part_flag & HA_REVERSE_SORT)};
    if (part.key_part_flag & (HA_PART_KEY_SEG | HA_BLOB_PART))
      p.prefix= text ? part.length / field->charset()->mbmaxlen : part.length;
    parts->push_back(p);
  }
  return 0;
}

int Definition::build(const TABLE *form, const std::string &name, bool temporary)
{
  if (int error= add_columns(form))
    return error;
  if (m_columns.size() > MAX_COLUMNS)
    return HA_ERR_TOO_MANY_FIELDS;
  m_parts.resize(form->s->keys);
  for (uint i= 0; i < form->s->keys; i++)
  {
    const KEY &key= form->key_info[i];
    const bool primary= i == form->s->primary_key;
    if (int error= add_key_parts(key, primary ? &m_primary : &m_parts[i]))
      return error;
    if (!primary)
      m_indexes.push_back({key.name.str, bool(key.flags & HA_NOSAME), m_parts[i].data(),
                           uint32_t(m_parts[i].size()), nullptr});
  }
  def= varve_table_def{name.c_str(),     m_columns.data(), uint32_t(m_columns.size()), m_primary.data(),
                       uint32_t(m_primary.size()), m_indexes.data(), uint32_t(m_indexes.size()), nullptr, 0,
                       VARVE_CHECK_REFERENCES, UINT32_MAX, nullptr, temporary, nullptr};
  if (m_system_time.describe(form, m_column_of_field))
    def.system_time= &m_system_time;
  if (const Field *counted= form->found_next_number_field)
  {
    if (counted->real_type() == MYSQL_TYPE_FLOAT || counted->real_type() == MYSQL_TYPE_DOUBLE)
      return refuse("AUTO_INCREMENT on FLOAT and DOUBLE");
    def.auto_increment= m_column_of_field[counted->field_index];
  }
  return 0;
}

// What becomes this field of the altered table.
static const Create_field *source_of(const Alter_inplace_info *alter, const Field *field)
{
  List_iterator_fast<Create_field> fields(alter->alter_info->create_list);
  while (const Create_field *source= fields++)
    if (same_name(source->field_name.str, field->field_name.str))
      return source;
  return nullptr;
}

// Whether a default is the same for all rows that are there. That of CURRENT_TIMESTAMP is, for one statement.
static bool is_constant(const Virtual_column_info *value)
{
  return !(value->flags & ~(VCOL_TIME_FUNC | VCOL_SESSION_FUNC));
}

bool Definition::note_changes(TABLE *altered, const Alter_inplace_info *alter)
{
  Row_plan plan;
  if (!plan.build(altered))
    return false;
  restore_record(altered, s->default_values);
  for (Field **at= altered->field; *at; at++)
    if ((*at)->stored_in_db() && (*at)->default_value && is_constant((*at)->default_value))
      (*at)->set_default();
  std::vector<varve_value> defaults(plan.size());
  plan.to_values(altered->record[0], defaults.data());
  for (Field **at= altered->field; *at; at++)
  {
    const uint32_t number= m_column_of_field[(*at)->field_index];
    if (number == UINT32_MAX)
      continue;
    const Create_field *const source= source_of(alter, *at);
    if (source && source->field)
      m_columns[number].was= source->field->field_name.str;
    else if (!(*at)->stored_in_db() || ((*at)->default_value && !is_constant((*at)->default_value)))
      return false;
    else
    {
      m_columns[number].was= "";
      m_columns[number].in_old_rows= defaults[number];
    }
  }
  for (const Alter_inplace_info::Rename_key_pair &pair : alter->rename_keys)
    for (varve_index_def &index : m_indexes)
      if (same_name(index.name, pair.new_key->name.str))
        index.was= pair.old_key->name.str;
  return true;
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

int ha_varve::create(const char *path, TABLE *form, HA_CREATE_INFO *info)
{
  THD *thd= ha_thd();
  const std::string name= table_name(path);
  Definition definition;
  Foreign_keys foreign_keys;
  int error;
  if ((error= check_places(thd, info)) || (error= check_options(thd, form->s)) ||
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
  return user_name(engine_name.substr(engine_name.find('/') + 1)) + "_ibfk_";
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
                                          make.c_str()))
    return not_renamed(report(ha_thd(), code));
  move_statistics(from, to);
  return 0;
}

int ha_varve::truncate()
{
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

static const alter_table_operations ADDS_INDEX= ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX;

static const alter_table_operations CHANGES_INDEXES= ADDS_INDEX | ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX |
                                                     ALTER_DROP_UNIQUE_INDEX | ALTER_INDEX_ORDER;

// Columns come or go, stand elsewhere, or begin to take NULL. Virtual ones that no index has are the server's
// affair.
static const alter_table_operations CHANGES_COLUMNS= ALTER_ADD_STORED_BASE_COLUMN | ALTER_DROP_STORED_COLUMN |
                                                     ALTER_STORED_COLUMN_ORDER | ALTER_COLUMN_ORDER |
                                                     ALTER_COLUMN_NULLABLE;
static const alter_table_operations CHANGES_VIRTUAL= ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN |
                                                     ALTER_VIRTUAL_COLUMN_ORDER;

// What is in the engine's definition changes, and no row.
static bool redefines(const Alter_inplace_info *alter)
{
  return alter->handler_flags & (ALTER_COLUMN_NAME | ALTER_RENAME_COLUMN | ALTER_RENAME_INDEX |
                                 ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_COLUMN_INDEX_LENGTH |
                                 CHANGES_INDEXES | CHANGES_COLUMNS | CHANGES_VIRTUAL |
                                 ALTER_DROP_FOREIGN_KEY);
}

static bool adds_index(const Alter_inplace_info *alter)
{
  return alter->handler_flags & ADDS_INDEX;
}

// All rows are written anew.
static const alter_table_operations REBUILDS= ALTER_RECREATE_TABLE | ALTER_ADD_PK_INDEX |
                                              ALTER_DROP_PK_INDEX | ALTER_COLUMN_NOT_NULLABLE;

static bool changes_table(const Alter_inplace_info *alter)
{
  return redefines(alter) || (alter->handler_flags & REBUILDS);
}

// Whether rows that are there may not be in a new index: only the server knows which, or what to do then.
static bool may_refuse_rows(const Alter_inplace_info *alter)
{
  for (uint i= 0; i < alter->index_add_count; i++)
  {
    const KEY &key= alter->key_info_buffer[alter->index_add_buffer[i]];
    if ((key.flags & HA_NOSAME) && (alter->ignore || key.without_overlaps))
      return true;
  }
  return false;
}

static bool sets_counter(const Alter_inplace_info *alter)
{
  return alter->create_info->used_fields & HA_CREATE_USED_AUTO;
}

// VARCHAR and VARBINARY that take more.
bool ha_varve::can_convert_nocopy(const Field &field, const Column_definition &to) const
{
  return field.real_type() == MYSQL_TYPE_VARCHAR && to.real_field_type() == MYSQL_TYPE_VARCHAR &&
         field.stored_in_db() && field.charset() == to.charset && field.field_length <= to.length &&
         !field.compression_method() && !to.compression_method();
}

// A part of a column that takes more is the same if it holds whole values, or as much of them as before.
Compare_keys ha_varve::compare_key_parts(const Field &from, const Column_definition &to,
                                         const KEY_PART_INFO &old_part, const KEY_PART_INFO &new_part) const
{
  if (from.is_equal(to) || !can_convert_nocopy(from, to))
    return handler::compare_key_parts(from, to, old_part, new_part);
  if (old_part.length >= from.field_length && new_part.length >= to.length)
    return Compare_keys::EqualButKeyPartLength;
  return old_part.length == new_part.length ? Compare_keys::Equal : Compare_keys::NotEqual;
}

// Columns of a foreign key keep their types, as in InnoDB: the server refuses that of a table that it copies.
static bool is_in_foreign_keys(const varve_table *table)
{
  return varve_table_is_referenced(table) || !foreign_keys_of(table).empty();
}

// Names, greatest lengths and indexes are in the engine's definition, which explains the table without the
// server, and are changed there; if rows can't stay what they are, the engine writes them anew. The
// AUTO_INCREMENT counter is there, too. An indexed virtual column's values are in its rows.
enum_alter_inplace_result ha_varve::check_if_supported_inplace_alter(TABLE *altered,
                                                                     Alter_inplace_info *alter)
{
  if (check_index_names(ha_thd(), altered) || !keeps_foreign_keys_served(altered, alter))
    return HA_ALTER_ERROR;
  if (alter->handler_flags & ALTER_VIRTUAL_GCOL_EXPR)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // Of several partitions some would have the new names after a crash, and so it is of names and counter.
  const bool is_one= table_share->tmp_table == NO_TMP_TABLE && table_share->db_type() == ht;
  if ((changes_table(alter) || sets_counter(alter)) && !is_one)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (changes_table(alter) && sets_counter(alter))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  const bool has_longer= alter->handler_flags & ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE;
  if (has_longer && is_in_foreign_keys(m_table))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // The server says what is wrong if it copies.
  if (!has_foreign_keys(m_table, foreign_keys_dropped(alter)) || loses_referenced_column(m_table, alter))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if ((alter->handler_flags & (ALTER_ADD_PK_INDEX | ALTER_DROP_PK_INDEX)) == ALTER_DROP_PK_INDEX)
    alter->unsupported_reason= ER_THD(ha_thd(), ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_NOPK);
  if (alter->handler_flags & ALTER_STORED_COLUMN_TYPE)
    alter->unsupported_reason= ER_THD(ha_thd(), ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_COLUMN_TYPE);
  if (may_refuse_rows(alter) || alter->error_if_not_empty)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // The server makes another value of NULL if it copies.
  if ((alter->handler_flags & ALTER_COLUMN_NOT_NULLABLE) && (alter->ignore || !ha_thd()->is_strict_mode()))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // The server takes longer keys for others; that they are not, the engine has said.
  const alter_table_operations flags= alter->handler_flags;
  alter->handler_flags&= ~(ALTER_COLUMN_INDEX_LENGTH | CHANGES_INDEXES | CHANGES_COLUMNS | CHANGES_VIRTUAL |
                           ALTER_DROP_FOREIGN_KEY | REBUILDS);
  const enum_alter_inplace_result how= handler::check_if_supported_inplace_alter(altered, alter);
  alter->handler_flags= flags;
  const bool needs_rebuild= how != HA_ALTER_INPLACE_NOT_SUPPORTED && is_rebuild(altered, alter);
  if (needs_rebuild && !can_become(altered, alter, varve_table_can_be_rebuilt))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // If the table is copied, create() looks at its options.
  if (how != HA_ALTER_INPLACE_NOT_SUPPORTED && (alter->handler_flags & ALTER_CHANGE_CREATE_OPTION) &&
      check_options(ha_thd(), altered->s))
    return HA_ALTER_ERROR;
  if (needs_rebuild)
    return HA_ALTER_INPLACE_COPY_NO_LOCK;
  return how != HA_ALTER_INPLACE_NOT_SUPPORTED && adds_index(alter) ? HA_ALTER_INPLACE_NOCOPY_NO_LOCK : how;
}

// The greatest value in the AUTO_INCREMENT column; 0 if none moves the counter.
int ha_varve::greatest_counted(ulonglong *greatest)
{
  *greatest= 0;
  const uint index= table_share->next_number_index;
  MY_BITMAP *const columns= table->prepare_for_keyread(index);
  int error= ha_index_init(index, true);
  if (!error)
  {
    const bool falls= table->key_info[index].key_part->key_part_flag & HA_REVERSE_SORT;
    error= falls ? ha_index_first(table->record[0]) : ha_index_last(table->record[0]);
    Field *const counted= table->found_next_number_field;
    if (!error && (counted->val_int() > 0 || (counted->flags & UNSIGNED_FLAG)))
      *greatest= ulonglong(counted->val_int());
    ha_index_end();
  }
  table->restore_column_maps_after_keyread(columns);
  return error == HA_ERR_END_OF_FILE ? 0 : error;
}

// The counter becomes `next`, or what follows the rows that are there.
int ha_varve::set_counter(ulonglong next)
{
  if (!table->found_next_number_field)
    return 0;
  ulonglong greatest;
  if (int error= greatest_counted(&greatest))
    return error;
  const ulonglong least= greatest == ~0ULL ? greatest : greatest + 1;
  const varve_code code= varve_table_set_auto_increment(m_table, std::max(next, least));
  return code ? report(ha_thd(), code) : 0;
}

// Whether the engine says that the table can have the definition of `altered`.
bool ha_varve::can_become(TABLE *altered, const Alter_inplace_info *alter,
                          bool (*can)(const varve_table *, const varve_table_def *))
{
  Definition definition;
  if (definition.build(altered, m_name, false))
    return false;
  return definition.note_changes(altered, alter) && can(m_table, &definition.def);
}

// Whether rows have to be written anew: to be so, or because the definition can't have those that are there.
bool ha_varve::is_rebuild(TABLE *altered, const Alter_inplace_info *alter)
{
  return (alter->handler_flags & REBUILDS) ||
         (redefines(alter) && !can_become(altered, alter, varve_table_can_become));
}

namespace {

// A definition that is prepared; the server drops it at the end of the statement.
class Prepared : public inplace_alter_handler_ctx
{
public:
  Prepared(varve_redefinition *redefinition, bool rebuild) :
    is_rebuild(rebuild), m_redefinition(redefinition)
  {
  }
  ~Prepared() override
  {
    if (m_redefinition)
      varve_redefinition_abandon(m_redefinition);
  }
  varve_redefinition *get() const
  {
    return m_redefinition;
  }
  varve_redefinition *take()
  {
    varve_redefinition *const taken= m_redefinition;
    m_redefinition= nullptr;
    return taken;
  }

  const bool is_rebuild;

private:
  varve_redefinition *m_redefinition;
};

}  // namespace

// Two rows have the same values in a unique index that `altered` gets: says so, as the server does of a row
// that is written.
static void tell_duplicate(void *altered, const char *index, const varve_value *row)
{
  TABLE *const form= static_cast<TABLE *>(altered);
  Row_plan plan;
  if (!plan.build(form))
    return;
  plan.to_record(row, form->s->all_set, form->record[0]);
  for (uint i= 0; i < form->s->keys; i++)
    if (same_name(form->key_info[i].name.str, index))
      print_keydup_error(form, &form->key_info[i], MYF(0));
}

// Begins to give the table the definition of `altered`. Returns a handler code.
int ha_varve::prepare_redefinition(TABLE *altered, Alter_inplace_info *alter)
{
  THD *thd= ha_thd();
  Session *const session= Session::of(thd);
  if (!session)
    return HA_ERR_INTERNAL_ERROR;
  Definition definition;
  if (int error= definition.build(altered, m_name, false))
    return error;
  if (!definition.note_changes(altered, alter))
    return HA_ERR_INTERNAL_ERROR;
  varve_redefinition *prepared;
  const bool rebuild= is_rebuild(altered, alter);
  const auto prepare= rebuild ? varve_rebuild_prepare : varve_redefinition_prepare;
  if (varve_code code= prepare(db, session->txn(), &definition.def, &prepared))
    return report(thd, code);
  alter->handler_ctx= new Prepared(prepared, rebuild);
  for (const std::string &key : foreign_keys_dropped(alter))
    if (varve_code code= varve_redefinition_drop_foreign_key(db, prepared, key.c_str()))
      return report(thd, code);
  return 0;
}

// Nobody else is there now. While indexes are built, or rows are written, others go on.
bool ha_varve::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *alter)
{
  if (!changes_table(alter) || !(adds_index(alter) || is_rebuild(altered, alter)))
    return handler::prepare_inplace_alter_table(altered, alter);
  int error= wait_for_others(ha_thd(), m_name);
  if (!error)
    error= prepare_redefinition(altered, alter);
  if (error && !ha_thd()->is_error())
    print_error(error, MYF(0));
  return error;
}

bool ha_varve::inplace_alter_table(TABLE *altered, Alter_inplace_info *alter)
{
  if (!alter->handler_ctx)
    return false;
  varve_redefinition *const prepared= static_cast<Prepared *>(alter->handler_ctx)->get();
  const varve_code code= varve_redefinition_build(db, prepared, tell_duplicate, altered);
  const int error= code ? report(ha_thd(), code) : 0;
  if (error && !ha_thd()->is_error())
    print_error(error, MYF(0));
  return error;
}

// What is stored of indexes goes with them; of one that is gone and comes again with the same name nothing is
// known. Of a table that is rebuilt all is made anew.
void ha_varve::alter_statistics(const TABLE *altered, const Alter_inplace_info *alter, bool is_rebuilt)
{
  if (is_rebuilt)
  {
    forget_statistics(m_name);
    const Statistics_policy policy= statistics_policy(altered->s, m_name);
    if (policy.is_persistent)
      leave_to_keeper(m_name, Task::RECALCULATE, policy.sample_pages);
    return;
  }
  Index_renames renames;
  for (uint i= 0; i < alter->index_drop_count; i++)
    renames.emplace_back(alter->index_drop_buffer[i]->name.str, "");
  for (const Alter_inplace_info::Rename_key_pair &pair : alter->rename_keys)
    renames.emplace_back(pair.old_key->name.str, pair.new_key->name.str);
  rename_index_statistics(m_name, renames);
}

int ha_varve::redefine(TABLE *altered, Alter_inplace_info *alter)
{
  if (!alter->handler_ctx)
    if (int error= prepare_redefinition(altered, alter))
      return error;
  Prepared *const prepared= static_cast<Prepared *>(alter->handler_ctx);
  close_table();
  const varve_code code= varve_redefinition_commit(db, prepared->take(), tell_duplicate, altered);
  const int error= code ? report(ha_thd(), code) : 0;
  if (!error)
    alter_statistics(altered, alter, prepared->is_rebuild);
  const int reopened= open_table();
  return error ? error : reopened;
}

// What is in the engine's definition becomes what the .frm file will say, which takes its place next.
bool ha_varve::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *alter, bool commit)
{
  if (!commit)
  {
    delete alter->handler_ctx;
    alter->handler_ctx= nullptr;
  }
  if (!commit || !(changes_table(alter) || sets_counter(alter)))
    return handler::commit_inplace_alter_table(altered, alter, commit);
  THD *thd= ha_thd();
  // Who builds indexes has waited before.
  int error= alter->handler_ctx ? 0 : wait_for_others(thd, m_name);
  if (!error)
    error= changes_table(alter) ? redefine(altered, alter)
                                : set_counter(alter->create_info->auto_increment_value);
  if (error && !thd->is_error())
    print_error(error, MYF(0));
  return error;
}

// For the server's DDL log, which asks after a crash in an ALTER TABLE in place whether it was done.
ulonglong ha_varve::table_version() const
{
  return m_table ? varve_table_hash(m_table) : 0;
}

// Whether an ALTER TABLE changes only what is in the .frm file.
bool ha_varve::check_if_incompatible_data(HA_CREATE_INFO *info, uint table_changes)
{
  // As IS_EQUAL_PACK_LENGTH what `can_convert_nocopy` takes.
  if (table_changes != IS_EQUAL_YES && table_changes != IS_EQUAL_PACK_LENGTH)
    return COMPATIBLE_DATA_NO;
  if (info->used_fields & (HA_CREATE_USED_ROW_FORMAT | HA_CREATE_USED_KEY_BLOCK_SIZE))
    return COMPATIBLE_DATA_NO;
  return COMPATIBLE_DATA_YES;
}
