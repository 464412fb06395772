// foreign.cc: foreign keys in statements that make tables, and in the server's questions about tables.
//
// For an ALTER TABLE that copies the table the copy's create() gets the whole set: what the table keeps,
// marked as old, and what is new. Rows that are copied are checked by the new ones only, as by InnoDB. CREATE
// TABLE ... LIKE hands over old ones, too, but takes none along. What is added in place is checked as InnoDB
// does it, and refused in the words that it has for that.

#include "foreign.h"

#include "columns.h"
#include "engine.h"
#include "error_map.h"
#include "ha_varve.h"

#include "sql_show.h"
#include "sql_table.h"

#include <algorithm>
#include <ctime>
#include <mutex>

namespace varve_plugin {

varve_foreign_key_checks foreign_key_checks(THD *thd)
{
  const bool off= thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS);
  return off ? VARVE_IGNORE_REFERENCES : VARVE_CHECK_REFERENCES;
}

std::string quoted(THD *thd, const std::string &name)
{
  String text;
  append_identifier(thd, &text, name.c_str(), name.size());
  return std::string(text.ptr(), text.length());
}

std::string user_name(const std::string &engine_name)
{
  if (engine_name.compare(0, 4, "#sql") == 0)
    return engine_name;  // One that ALTER TABLE makes.
  char text[NAME_LEN * 5 + 1];
  const uint length= filename_to_tablename(engine_name.c_str(), text, sizeof text, true);
  return std::string(text, length);
}

std::string schema_of(const std::string &name)
{
  return name.substr(0, name.find('/'));
}

std::string table_of(const std::string &name)
{
  return name.substr(name.find('/') + 1);
}

std::string quoted_table(THD *thd, const std::string &name)
{
  return quoted(thd, user_name(schema_of(name))) + '.' + quoted(thd, user_name(table_of(name)));
}

static std::string engine_name(const LEX_CSTRING &name)
{
  char folded[NAME_LEN + 1], text[FN_REFLEN];
  strmake(folded, name.str, std::min<size_t>(name.length, NAME_LEN));
  if (lower_case_table_names)
    my_casedn_str(files_charset_info, folded);
  return std::string(text, tablename_to_filename(folded, text, sizeof text));
}

bool same_name(const char *a, const char *b)
{
  return !my_strcasecmp(system_charset_info, a, b);
}

/* Statements that make tables */

static const Field *find_field(const TABLE *form, const std::string &name)
{
  for (Field **at= form->field; *at; at++)
    if (same_name((*at)->field_name.str, name.c_str()))
      return *at;
  return nullptr;
}

Served is_served_by(const KEY &key, const std::vector<std::string> &columns)
{
  if (key.ext_key_parts < columns.size() || key.algorithm == HA_KEY_ALG_LONG_HASH)
    return Served::NO;
  Served served= Served::YES;
  for (size_t part= 0; part < columns.size() && served != Served::NO; part++)
  {
    const KEY_PART_INFO &at= key.key_part[part];
    if (!same_name(at.field->field_name.str, columns[part].c_str()))
      served= Served::NO;
    else if (at.key_part_flag & (HA_PART_KEY_SEG | HA_BLOB_PART))
      served= Served::BY_PREFIX;
  }
  return served;
}

Served is_served(const TABLE *form, const std::vector<std::string> &columns)
{
  Served best= Served::NO;
  for (uint i= 0; i < form->s->keys; i++)
    best= std::max(best, is_served_by(form->key_info[i], columns));
  return best;
}

static varve_referential_action action(enum_fk_option option)
{
  switch (option)
  {
  case FK_OPTION_CASCADE:   return VARVE_CASCADE;
  case FK_OPTION_SET_NULL:  return VARVE_SET_NULL;
  case FK_OPTION_NO_ACTION: return VARVE_NO_ACTION;
  default:                  return VARVE_RESTRICT;  // SET DEFAULT too, as InnoDB takes it.
  }
}

// What InnoDB calls a foreign key in its warnings.
static std::string key_text(const Foreign_key &key)
{
  static const size_t most= 48;
  if (key.name.str)
    return '`' + std::string(key.name.str, std::min<size_t>(key.name.length, most - 2)) + '`';
  std::string text= "(";
  List_iterator_fast<Key_part_spec> columns(const_cast<Foreign_key &>(key).columns);
  while (const Key_part_spec *column= columns++)
  {
    if (most - text.size() < (columns.peek() ? 6 : 4) + column->field_name.length)
    {
      text+= "...";
      break;
    }
    text.append(column->field_name.str, column->field_name.length);
    if (columns.peek())
      text+= ", ";
  }
  return text + ')';
}

static std::vector<std::string> names_of(List<Key_part_spec> &columns)
{
  std::vector<std::string> names;
  List_iterator_fast<Key_part_spec> all(columns);
  while (const Key_part_spec *column= all++)
    names.emplace_back(column->field_name.str, column->field_name.length);
  return names;
}

static std::vector<const char *> pointers_to(const std::vector<std::string> &names)
{
  std::vector<const char *> pointers;
  for (const std::string &name : names)
    pointers.push_back(name.c_str());
  return pointers;
}

// The number of a constraint whose name was made for this table; 0 if it was not.
static ulonglong made_number(const std::string &table, const char *constraint)
{
  const std::string prefix= table + "_ibfk_";
  if (strncmp(constraint, prefix.c_str(), prefix.size()))
    return 0;
  const char *const digits= constraint + prefix.size();
  char *end;
  const ulonglong number= *digits == '0' ? 0 : strtoull(digits, &end, 10);
  return number && !*end ? number : 0;
}

int Foreign_keys::warn(THD *thd, const char *with, const Parts &parts, const std::string &what) const
{
  const std::string text= m_operation + with + "foreign key " + parts.text + " constraint failed. " + what;
  push_warning(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN, text.c_str());
  note_foreign_error(thd, text);
  return HA_ERR_CANNOT_ADD_FOREIGN;
}

// What the engine can't see: the server's expressions.
int Foreign_keys::check_columns(THD *thd, TABLE *form, const Foreign_key &key, const Parts &parts) const
{
  for (const std::string &name : parts.columns)
  {
    const Field *field= find_field(form, name);
    if (!field)
      return warn(thd, " ", parts, "Column " + name + " was not found.");
    const bool sets_null= key.delete_opt == FK_OPTION_SET_NULL || key.update_opt == FK_OPTION_SET_NULL;
    if (sets_null && !field->real_maybe_null())
      return warn(thd, " with ", parts, "You have defined a SET NULL condition but column '" + name +
                                        "' is defined as NOT NULL.");
  }
  // Whether one that was there keeps its index is seen when the copy takes its place, as InnoDB does.
  if (key.old)
    return 0;
  switch (is_served(form, parts.columns))
  {
  case Served::YES:
    return 0;
  case Served::BY_PREFIX:
    return warn(thd, " with ", parts, "There is only prefix index in the referenced table where the referenced "
                                      "columns appear as the first columns.");
  case Served::NO:
    break;
  }
  return warn(thd, " with ", parts,
              "There is no index in the referenced table where the referenced columns appear as the first columns.");
}

// What the statement says of it.
Foreign_keys::Parts &Foreign_keys::begin(const std::string &name, const Foreign_key &key)
{
  Parts &parts= m_parts.emplace_back();
  Foreign_key &mutable_key= const_cast<Foreign_key &>(key);  // The server's lists have no const iterators.
  parts.text= key_text(key);
  parts.key_name= key.name.str;
  parts.constraint_name= key.constraint_name.str;
  parts.child= name;
  parts.columns= names_of(mutable_key.columns);
  parts.parent_columns= names_of(mutable_key.ref_columns);
  const std::string schema= key.ref_db.str ? engine_name(key.ref_db) : schema_of(name);
  parts.parent= schema + '/' + engine_name(key.ref_table);
  return parts;
}

// Its columns are there: it is one of the foreign keys.
void Foreign_keys::finish(const TABLE *form, Parts *parts, const Foreign_key &key)
{
  // As the columns are called, not as the statement spells them.
  for (std::string &column : parts->columns)
    column= find_field(form, column)->field_name.str;
  parts->column_pointers= pointers_to(parts->columns);
  parts->parent_column_pointers= pointers_to(parts->parent_columns);
  if (key.constraint_name.str)
    parts->name.assign(key.constraint_name.str, key.constraint_name.length);
  else
    parts->name= std::string(form->s->table_name.str) + "_ibfk_" + std::to_string(m_next_number++);
  varve_foreign_key told{};
  told.name= parts->name.c_str();
  told.columns= parts->column_pointers.data();
  told.parent_columns= parts->parent_column_pointers.data();
  told.n_columns= uint32_t(parts->columns.size());
  told.parent= parts->parent.c_str();
  told.child= parts->child.c_str();
  told.on_delete= action(key.delete_opt);
  told.on_update= action(key.update_opt);
  told.kept= key.old;
  m_keys.push_back(told);
}

// Warns of a constraint's name that another one has.
static void warn_of_name(THD *thd, const std::string &child, const std::string &words)
{
  const std::string table= quoted_table(thd, child);
  const std::string text= "CREATE or ALTER TABLE " + table + " failed: duplicate name, " + words;
  push_warning(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_FOUND_DUPP_KEY, text.c_str());
}

// The constraint in SQL, of those that were collected the last one of this name.
static std::string words_of(THD *thd, const std::vector<varve_foreign_key> &keys,
                            const std::string &constraint)
{
  std::string words;
  for (const varve_foreign_key &key : keys)
    if (key.name == constraint)
      words= constraint_text(thd, Told_key(key));
  return words;
}

int Foreign_keys::refused_for_name(THD *thd, const std::string &constraint) const
{
  warn_of_name(thd, m_parts.front().child, words_of(thd, m_keys, constraint));
  return HA_ERR_FOUND_DUPP_KEY;
}

int Foreign_keys::add(THD *thd, TABLE *form, const std::string &name, const Foreign_key &key)
{
  Parts &parts= begin(name, key);
  if (int error= check_columns(thd, form, key, parts))
    return error;
  finish(form, &parts, key);
  for (size_t i= 0; i + 1 < m_keys.size(); i++)
  {
    if (!m_keys[i].kept && parts.name == m_keys[i].name)
      return HA_ERR_CANNOT_ADD_FOREIGN;  // As InnoDB: without a word about it.
    if (same_name(m_keys[i].name, parts.name.c_str()))
      return refused_for_name(thd, parts.name);
  }
  return 0;
}

// Names that were made go on from the highest number, also if that one is dropped by the same statement.
void Foreign_keys::number_from(const std::string &table, Alter_info *info)
{
  List_iterator_fast<Alter_drop> drops(info->drop_list);
  while (const Alter_drop *drop= drops++)
    if (drop->type == Alter_drop::FOREIGN_KEY)
      m_next_number= std::max(m_next_number, made_number(table, drop->name) + 1);
  List_iterator_fast<Key> keys(info->key_list);
  while (const Key *key= keys++)
    if (key->type == Key::FOREIGN_KEY && key->old)
    {
      const char *const constraint= static_cast<const Foreign_key *>(key)->constraint_name.str;
      m_next_number= std::max(m_next_number, made_number(table, constraint) + 1);
    }
}

int Foreign_keys::collect(THD *thd, TABLE *form, const std::string &name, const HA_CREATE_INFO *info)
{
  if (!info->alter_info)
    return 0;
  const bool is_copy= info->options & HA_CREATE_TMP_ALTER;
  const std::string table= form->s->table_name.str;
  m_operation= (is_copy ? "Alter  table " : "Create  table ") + quoted(thd, form->s->db.str) + '.' +
               quoted(thd, table);
  if (is_copy)
    number_from(table, info->alter_info);
  for (const bool old : {true, false})
  {
    List_iterator_fast<Key> keys(info->alter_info->key_list);
    while (const Key *key= keys++)
    {
      if (key->type != Key::FOREIGN_KEY || key->old != old || (old && !is_copy))
        continue;
      if (info->tmp_table())
      {
        const std::string text= m_operation + " with foreign key constraint failed. "
                                              "Temporary tables can't have foreign key constraints.";
        push_warning(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN, text.c_str());
        return HA_ERR_CANNOT_ADD_FOREIGN;
      }
      if (int error= add(thd, form, name, *static_cast<const Foreign_key *>(key)))
        return error;
    }
  }
  return 0;
}

// What InnoDB says of columns that don't go together.
int Foreign_keys::wrong_option(const Parts &parts) const
{
  const std::string schema= user_name(schema_of(parts.child)), table= user_name(table_of(parts.child));
  const std::string constraint= parts.constraint_name ? schema + '/' + parts.constraint_name : "(null)";
  my_error(ER_FK_INCORRECT_OPTION, MYF(0), table.c_str(), constraint.c_str());
  return HA_ERR_CANNOT_ADD_FOREIGN;
}

int Foreign_keys::add_in_place(THD *thd, TABLE *altered, const TABLE *before, const varve_table *table,
                               const std::string &name, const Foreign_key &key)
{
  Parts &parts= begin(name, key);
  for (const std::string &column : parts.columns)
  {
    const Field *field= find_field(altered, column);
    if (!field)
    {
      my_error(ER_KEY_COLUMN_DOES_NOT_EXIST, MYF(0), column.c_str());
      return HA_ERR_CANNOT_ADD_FOREIGN;
    }
    const bool sets_null= key.delete_opt == FK_OPTION_SET_NULL || key.update_opt == FK_OPTION_SET_NULL;
    if (sets_null && !field->real_maybe_null())
      return wrong_option(parts);
  }
  if (is_served(altered, parts.columns) != Served::YES)
  {
    my_error(ER_FK_NO_INDEX_CHILD, MYF(0), parts.key_name ? parts.key_name : "",
             user_name(table_of(name)).c_str());
    return HA_ERR_CANNOT_ADD_FOREIGN;
  }
  parts.has_index= is_served(before, parts.columns) == Served::YES;
  // Also the name of one that the same statement drops.
  for (const Told_key &own : foreign_keys_of(table))
    if (parts.constraint_name && own.name == parts.constraint_name)
    {
      const std::string constraint= user_name(schema_of(name)) + '/' + own.name;
      my_error(ER_DUP_CONSTRAINT_NAME, MYF(0), "FOREIGN KEY", constraint.c_str());
      return HA_ERR_CANNOT_ADD_FOREIGN;
    }
  finish(altered, &parts, key);
  for (size_t i= 0; i + 1 < m_keys.size(); i++)
    if (same_name(m_keys[i].name, parts.name.c_str()))
      return is_taken(thd, parts.name);
  for (const Told_key &own : foreign_keys_of(table))
    if (same_name(own.name.c_str(), parts.name.c_str()))
      return is_taken(thd, parts.name);
  return 0;
}

int Foreign_keys::collect_added(THD *thd, TABLE *altered, const TABLE *before, const varve_table *table,
                                const std::string &name, const Alter_inplace_info *alter)
{
  const std::string own= user_name(table_of(name));
  m_operation= "Alter  table " + quoted_table(thd, name);
  number_from(own, alter->alter_info);
  List_iterator_fast<Key> keys(alter->alter_info->key_list);
  while (const Key *key= keys++)
    if (key->type == Key::FOREIGN_KEY && !key->old)
      if (int error= add_in_place(thd, altered, before, table, name, *static_cast<const Foreign_key *>(key)))
        return error;
  return 0;
}

void Foreign_keys::put_into(varve_table_def *def) const
{
  def->foreign_keys= m_keys.data();
  def->n_foreign_keys= uint32_t(m_keys.size());
}

int Foreign_keys::is_taken(THD *thd, const std::string &constraint) const
{
  warn_of_name(thd, m_parts.front().child, words_of(thd, m_keys, constraint));
  const std::string name= user_name(schema_of(m_parts.front().child)) + '/' + constraint;
  my_error(ER_FK_FAIL_ADD_SYSTEM, MYF(0), name.c_str());
  return HA_ERR_CANNOT_ADD_FOREIGN;
}

int Foreign_keys::refused_in_place(THD *thd, varve_code code) const
{
  if (code == VARVE_CONSTRAINT_EXISTS)
    return is_taken(thd, varve_last_error_constraint());
  const Parts *const parts= faulty();
  if (!parts)
    return report(thd, code);
  const char *column, *parent_column;
  if (varve_last_error_parent(&column, &parent_column) == VARVE_PARENT_HAS_OTHER_TYPE && !parts->has_index)
    return wrong_option(*parts);
  // With an index InnoDB takes one of another type for none.
  my_error(ER_FK_NO_INDEX_PARENT, MYF(0), parts->key_name ? parts->key_name : "",
           user_name(table_of(parts->parent)).c_str());
  return HA_ERR_CANNOT_ADD_FOREIGN;
}

// That of the collected ones that the engine's last error is about; null: it is another table's.
const Foreign_keys::Parts *Foreign_keys::faulty() const
{
  for (size_t i= 0; i < m_keys.size(); i++)
    if (m_parts[i].name == varve_last_error_constraint() && m_parts[i].child == varve_last_error_child())
      return &m_parts[i];
  return nullptr;
}

int Foreign_keys::refused(THD *thd, varve_code code) const
{
  if (code == VARVE_CONSTRAINT_EXISTS)
    return refused_for_name(thd, varve_last_error_constraint());
  const Parts *const parts= faulty();
  if (!parts)
  {
    // A foreign key of another table, which has waited for this one.
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN, "VARVE: %s",
                        varve_last_error());
    return HA_ERR_CANNOT_ADD_FOREIGN;
  }
  const std::string parent= quoted_table(thd, parts->parent);
  const char *column, *parent_column;
  switch (varve_last_error_parent(&column, &parent_column))
  {
  case VARVE_NO_PARENT:
    return warn(thd, " with ", *parts, "Referenced table " + parent + " not found in the data dictionary.");
  case VARVE_NO_PARENT_COLUMN:
    return warn(thd, " ", *parts, std::string("Column ") + parent_column + " was not found.");
  case VARVE_PARENT_HAS_OTHER_TYPE:
    return warn(thd, " with ", *parts, std::string("Field type or character set for column '") + column +
                                       "' does not match referenced column '" + parent_column + "'.");
  default:
    return warn(thd, " with ", *parts, "There is no index in the referenced table where the referenced columns "
                                       "appear as the first columns.");
  }
}

/* What the engine has */

static std::vector<std::string> told_names(const char *const *names, uint32_t n)
{
  return std::vector<std::string>(names, names + n);
}

static std::vector<bool> told_flags(const bool *flags, uint32_t n)
{
  return flags ? std::vector<bool>(flags, flags + n) : std::vector<bool>(n);
}

Told_key::Told_key(const varve_foreign_key &key)
  : name(key.name), child(key.child), parent(key.parent), parent_index(key.parent_index ? key.parent_index : ""),
    has_parent(key.parent_index), columns(told_names(key.columns, key.n_columns)),
    parent_columns(told_names(key.parent_columns, key.n_columns)),
    nullable(told_flags(key.nullable, key.n_columns)),
    parent_nullable(told_flags(key.parent_nullable, key.n_columns)), on_delete(key.on_delete),
    on_update(key.on_update)
{
}

std::string Told_key::id() const
{
  return schema_of(child) + '/' + name;
}

// Fills in what the engine tells of. False: it could not tell of all.
static bool told(decltype(varve_table_foreign_keys) *about, const varve_table *table,
                 std::vector<Told_key> *keys)
{
  keys->clear();
  // TRUNCATE may have left its handler without a table.
  if (!table)
    return true;
  const varve_code code= about(table, [](void *to, const varve_foreign_key *key) {
    static_cast<std::vector<Told_key> *>(to)->emplace_back(*key);
  }, keys);
  std::sort(keys->begin(), keys->end(), [](const Told_key &a, const Told_key &b) { return a.id() < b.id(); });
  return !code;
}

std::vector<Told_key> foreign_keys_of(const varve_table *table)
{
  std::vector<Told_key> keys;
  told(varve_table_foreign_keys, table, &keys);
  return keys;
}

std::vector<Told_key> foreign_keys_to(const varve_table *table)
{
  std::vector<Told_key> keys;
  told(varve_table_referencing, table, &keys);
  return keys;
}

Named_key::Named_key(const Told_key &key)
  : key(key), child_schema(user_name(schema_of(key.child))), child(user_name(table_of(key.child))),
    parent_schema(user_name(schema_of(key.parent))), parent(user_name(table_of(key.parent)))
{
}

const std::vector<Named_key> &Kept_keys::of(const varve_table *table,
                                            decltype(varve_table_foreign_keys) *about)
{
  // Before the engine is asked: it may change meanwhile.
  const uint64_t now= varve_db_foreign_keys_changed(db);
  if (table == m_table && now == m_as_of)
    return m_keys;
  std::vector<Told_key> keys;
  m_table= told(about, table, &keys) ? table : nullptr;
  m_as_of= now;
  m_keys= std::vector<Named_key>(keys.begin(), keys.end());
  return m_keys;
}

static std::string list(THD *thd, const std::vector<std::string> &columns)
{
  std::string text;
  for (const std::string &column : columns)
    text+= (text.empty() ? "" : ", ") + quoted(thd, column);
  return '(' + text + ')';
}

static const char *action_text(varve_referential_action action)
{
  switch (action)
  {
  case VARVE_CASCADE:   return "CASCADE";
  case VARVE_SET_NULL:  return "SET NULL";
  case VARVE_NO_ACTION: return "NO ACTION";
  case VARVE_RESTRICT:  break;
  }
  return nullptr;
}

std::string constraint_text(THD *thd, const Told_key &key)
{
  std::string text= "CONSTRAINT " + quoted(thd, key.name) + " FOREIGN KEY " + list(thd, key.columns) + " REFERENCES ";
  if (schema_of(key.child) != schema_of(key.parent))
    text+= quoted(thd, user_name(schema_of(key.parent))) + '.';
  text+= quoted(thd, user_name(table_of(key.parent))) + ' ' + list(thd, key.parent_columns);
  if (const char *words= action_text(key.on_delete))
    text+= std::string(" ON DELETE ") + words;
  if (const char *words= action_text(key.on_update))
    text+= std::string(" ON UPDATE ") + words;
  return text;
}

Constraint_words last_constraint(THD *thd)
{
  const std::string name= varve_last_error_constraint(), child= varve_last_error_child();
  varve_table *table;
  if (varve_table_open(db, child.c_str(), &table))
    return {};
  Constraint_words words;
  for (const Told_key &key : foreign_keys_of(table))
    if (key.name == name)
      words= {quoted_table(thd, child), constraint_text(thd, key)};
  varve_table_close(table);
  return words;
}

static std::mutex latest_error_mutex;
static std::string latest_error;

static void note_latest(THD *thd, const std::string &what, const std::string &text)
{
  char when[32];
  const time_t now= time(nullptr);
  struct tm local;
  strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &local));
  if (Session *session= Session::known(thd))
    session->note_foreign_error(thd, what);
  const std::lock_guard<std::mutex> alone(latest_error_mutex);
  latest_error= when + text + what + '\n';
}

static constexpr size_t MOST_OF_FAILED= 300;  // bytes of the statement

void note_foreign_error(THD *thd, const std::string &what)
{
  const std::string statement(thd->query(), std::min<size_t>(thd->query_length(), MOST_OF_FAILED));
  note_latest(thd, what, " thread " + std::to_string(thd->thread_id) + ": " + statement + '\n');
}

// Programs that read InnoDB's lines look for these.
void note_refused_row(THD *thd, const std::string &what, const Constraint_words &words)
{
  char connection[2 * MOST_OF_FAILED];
  thd_get_error_context_description(thd, connection, sizeof connection, MOST_OF_FAILED);
  note_latest(thd, what, std::string(" Transaction:\n") + connection + "\nForeign key constraint fails for table " +
                         words.table + ":\n,\n  " + words.constraint + '\n');
}

std::string latest_foreign_error()
{
  const std::lock_guard<std::mutex> alone(latest_error_mutex);
  return latest_error;
}

std::string last_child_index()
{
  return user_name(table_of(varve_last_error_child())) + '/' + varve_last_error_child_index();
}

}  // namespace varve_plugin

using namespace varve_plugin;

/* The server's questions about an open table */

static LEX_CSTRING *for_statement(THD *thd, const std::string &text)
{
  return thd_make_lex_string(thd, nullptr, text.c_str(), text.size(), true);
}

static enum_fk_option server_option(varve_referential_action action)
{
  switch (action)
  {
  case VARVE_CASCADE:   return FK_OPTION_CASCADE;
  case VARVE_SET_NULL:  return FK_OPTION_SET_NULL;
  case VARVE_NO_ACTION: return FK_OPTION_NO_ACTION;
  case VARVE_RESTRICT:  break;
  }
  return FK_OPTION_RESTRICT;
}

static void tell(THD *thd, const Named_key &named, varve_referential_action on_delete,
                 List<FOREIGN_KEY_INFO> *to)
{
  const Told_key &key= named.key;
  FOREIGN_KEY_INFO info;
  info.foreign_id= for_statement(thd, key.name);
  info.foreign_db= for_statement(thd, named.child_schema);
  info.foreign_table= for_statement(thd, named.child);
  info.referenced_db= for_statement(thd, named.parent_schema);
  info.referenced_table= for_statement(thd, named.parent);
  info.referenced_key_name= key.has_parent ? for_statement(thd, key.parent_index) : nullptr;
  info.delete_method= server_option(on_delete);
  info.update_method= server_option(key.on_update);
  const uint n= uint(key.columns.size());
  for (uint i= 0; i < n; i++)
  {
    info.foreign_fields.push_back(for_statement(thd, key.columns[i]));
    info.referenced_fields.push_back(for_statement(thd, key.parent_columns[i]));
    if (key.nullable[i])
      info.set_nullable(thd, false, i, n);
    if (key.parent_nullable[i])
      info.set_nullable(thd, true, i, n);
  }
  to->push_back(static_cast<FOREIGN_KEY_INFO *>(thd_memdup(thd, &info, sizeof info)));
}

int ha_varve::get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *keys)
{
  if (!m_table)
    return 0;
  for (const Named_key &own : m_own_keys.of(m_table, varve_table_foreign_keys))
    tell(thd, own, own.key.on_delete, keys);
  return 0;
}

static bool changes_rows(varve_referential_action action)
{
  return action == VARVE_CASCADE || action == VARVE_SET_NULL;
}

// Whether the deletion of rows elsewhere may update rows of the table that has these foreign keys: by SET
// NULL, or because its parent is updated by such a deletion.
static bool is_updated_by_deletions(const std::vector<Named_key> &keys)
{
  return std::any_of(keys.begin(), keys.end(), [](const Named_key &named) {
    return named.key.on_delete == VARVE_SET_NULL || changes_rows(named.key.on_update);
  });
}

// The server opens the children whose rows its statement changes, and then asks these for their children as
// if they were changed by the same operation: under DELETE, by what ON DELETE says. But rows that SET NULL
// has updated have children that do what ON UPDATE says, and only an open table computes their virtual
// columns.
int ha_varve::get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *keys)
{
  if (!m_table)
    return 0;
  const TABLE_LIST *const use= table->pos_in_table_list;
  const bool may_be_updated= use && use->prelocking_placeholder == TABLE_LIST::PRELOCK_FK &&
                             is_updated_by_deletions(m_own_keys.of(m_table, varve_table_foreign_keys));
  for (const Named_key &child : m_child_keys.of(m_table, varve_table_referencing))
  {
    const varve_referential_action on_delete= child.key.on_delete;
    tell(thd, child, may_be_updated && !changes_rows(on_delete) ? child.key.on_update : on_delete, keys);
  }
  return 0;
}

bool ha_varve::referenced_by_foreign_key() const noexcept
{
  return m_table && varve_table_is_referenced(m_table);
}

// An engine that does not know the constraints can't keep what they promise.
bool ha_varve::can_switch_engines()
{
  return !referenced_by_foreign_key() && (!m_table || foreign_keys_of(m_table).empty());
}

char *ha_varve::get_foreign_key_create_info()
{
  std::string text;
  if (!m_table)
    return nullptr;
  for (const Told_key &key : foreign_keys_of(m_table))
    text+= ",\n  " + constraint_text(ha_thd(), key);
  return my_strdup(PSI_NOT_INSTRUMENTED, text.c_str(), MYF(MY_WME));
}

void ha_varve::free_foreign_key_create_info(char *text)
{
  my_free(text);
}

// What print_error says of 151, 152 and 193 beyond the number.
bool ha_varve::get_error_message(int error, String *text)
{
  if (error == m_failure && !m_failure_number)
    text->append(m_failure_words.c_str(), m_failure_words.size());
  return false;
}

bool ha_varve::get_foreign_dup_key(char *child, uint child_size, char *index, uint index_size)
{
  if (m_failure != HA_ERR_FOREIGN_DUPLICATE_KEY)
    return false;
  const size_t slash= m_failure_words.find('/');
  strmake(child, m_failure_words.substr(0, slash).c_str(), child_size - 1);
  strmake(index, m_failure_words.substr(slash + 1).c_str(), index_size - 1);
  return true;
}
