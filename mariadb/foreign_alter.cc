// foreign_alter.cc: what ALTER TABLE may do to columns and indexes that foreign keys have.

#include "foreign.h"

#include "ha_varve.h"

#include "sql_table.h"

#include <algorithm>

namespace varve_plugin {

// What becomes of a column; null if it goes.
static const Create_field *kept(const Alter_inplace_info *alter, const std::string &column)
{
  List_iterator_fast<Create_field> fields(alter->alter_info->create_list);
  while (const Create_field *field= fields++)
    if (field->field && same_name(field->field->field_name.str, column.c_str()))
      return field;
  return nullptr;
}

// What these columns are called when the statement is done.
static std::vector<std::string> names_after(const Alter_inplace_info *alter, std::vector<std::string> columns)
{
  std::vector<std::string> names;
  for (const std::string &column : columns)
  {
    names.push_back(column);
    if (const Create_field *field= kept(alter, column))
      names.back().assign(field->field_name.str, field->field_name.length);
  }
  return names;
}

// Whether one of these columns gets another type, ceases to take NULL when another one does, or goes with the
// primary key. InnoDB copies for that, too, and before a copy the server refuses it in its own words.
static bool is_copied_for(const TABLE *table, const Alter_inplace_info *alter,
                          const std::vector<std::string> &columns)
{
  const uint number= table->s->primary_key;
  const KEY *const primary= number == MAX_KEY ? nullptr : &table->key_info[number];
  KEY **const end= alter->index_drop_buffer + alter->index_drop_count;
  const bool drops_primary= std::find(alter->index_drop_buffer, end, primary) != end;
  const bool converts= alter->handler_flags & ALTER_STORED_COLUMN_TYPE;
  for (const std::string &column : columns)
  {
    const Create_field *const to= kept(alter, column);
    const Field *const from= to ? to->field : nullptr;
    const bool gives_up_null= from && from->real_maybe_null() && (to->flags & NOT_NULL_FLAG);
    if (from ? !from->is_equal(*to) || (converts && gives_up_null) : drops_primary)
      return true;
  }
  return false;
}

std::vector<std::string> foreign_keys_dropped(const Alter_inplace_info *alter)
{
  std::vector<std::string> names;
  List_iterator_fast<Alter_drop> drops(alter->alter_info->drop_list);
  while (const Alter_drop *drop= drops++)
    if (drop->type == Alter_drop::FOREIGN_KEY)
      names.push_back(drop->name);
  return names;
}

static bool has_name(const std::vector<std::string> &names, const std::string &name)
{
  for (const std::string &one : names)
    if (same_name(one.c_str(), name.c_str()))
      return true;
  return false;
}

bool has_foreign_keys(const varve_table *table, const std::vector<std::string> &names)
{
  std::vector<std::string> own;
  for (const Told_key &key : foreign_keys_of(table))
    own.push_back(key.name);
  for (const std::string &name : names)
    if (!has_name(own, name))
      return false;
  return true;
}

// The field of one of these columns; null if none is.
static const Field *field_among(const std::vector<const Field *> &fields, const std::string &column)
{
  for (const Field *field : fields)
    if (same_name(column.c_str(), field->field_name.str))
      return field;
  return nullptr;
}

bool would_get_null(const varve_table *table, const std::vector<const Field *> &fields,
                    const Alter_inplace_info *alter, bool is_strict)
{
  const std::vector<std::string> dropped= foreign_keys_dropped(alter);
  for (const Told_key &key : foreign_keys_of(table))
  {
    if (has_name(dropped, key.name))
      continue;
    const bool sets_null= key.on_delete == VARVE_SET_NULL || key.on_update == VARVE_SET_NULL;
    const bool follows= is_strict && key.on_update == VARVE_CASCADE && key.has_parent;
    for (size_t i= 0; i < key.columns.size(); i++)
      if (const Field *field= field_among(fields, key.columns[i]))
        if (sets_null || (follows && key.parent_nullable[i]))
        {
          my_error(ER_FK_COLUMN_NOT_NULL, MYF(0), field->field_name.str, key.name.c_str());
          return true;
        }
  }
  return false;
}

bool would_give_null(const varve_table *table, const std::vector<const Field *> &fields)
{
  for (const Told_key &key : foreign_keys_to(table))
    for (size_t i= 0; key.on_update == VARVE_CASCADE && i < key.columns.size(); i++)
      if (const Field *field= key.nullable[i] ? nullptr : field_among(fields, key.parent_columns[i]))
      {
        const std::string child= user_name(schema_of(key.child)) + '.' + user_name(table_of(key.child));
        my_error(ER_FK_COLUMN_CANNOT_CHANGE_CHILD, MYF(0), field->field_name.str, key.name.c_str(),
                 child.c_str());
        return true;
      }
  return false;
}

// The first of these columns that goes; null if all are kept.
static const std::string *lost(const Alter_inplace_info *alter, const std::vector<std::string> &columns)
{
  for (const std::string &column : columns)
    if (!kept(alter, column))
      return &column;
  return nullptr;
}

bool loses_referenced_column(const varve_table *table, const Alter_inplace_info *alter)
{
  for (const Told_key &key : foreign_keys_to(table))
    if (lost(alter, key.parent_columns))
      return true;
  return false;
}

bool changes_foreign_column(const TABLE *form, const varve_table *table, const Alter_inplace_info *alter)
{
  for (const Told_key &key : foreign_keys_of(table))
    if (is_copied_for(form, alter, key.columns))
      return true;
  for (const Told_key &key : foreign_keys_to(table))
    if (is_copied_for(form, alter, key.parent_columns))
      return true;
  return false;
}

bool loses_foreign_column(THD *thd, const varve_table *table, const Alter_inplace_info *alter)
{
  const std::vector<std::string> dropped= foreign_keys_dropped(alter);
  for (const Told_key &key : foreign_keys_of(table))
    if (const std::string *column= has_name(dropped, key.name) ? nullptr : lost(alter, key.columns))
    {
      my_error(ER_FK_COLUMN_CANNOT_DROP, MYF(0), column->c_str(), key.id().c_str());
      return true;
    }
  for (const Told_key &key : foreign_keys_to(table))
    if (const std::string *column= lost(alter, key.parent_columns))
    {
      my_error(ER_FK_COLUMN_CANNOT_DROP_CHILD, MYF(0), column->c_str(), key.id().c_str(),
               quoted_table(thd, key.child).c_str());
      return true;
    }
  return false;
}

}  // namespace varve_plugin

using namespace varve_plugin;

// An index that a foreign key needs stays, on either side.
bool ha_varve::keeps_foreign_keys_served(const TABLE *altered, const Alter_inplace_info *alter)
{
  std::vector<std::vector<std::string>> needed;
  const std::vector<std::string> dropped= foreign_keys_dropped(alter);
  for (const Told_key &key : foreign_keys_of(m_table))
    if (!has_name(dropped, key.name))
      needed.push_back(key.columns);
  for (const Told_key &key : foreign_keys_to(m_table))
    needed.push_back(key.parent_columns);
  for (const std::vector<std::string> &columns : needed)
  {
    if (is_copied_for(table, alter, columns) ||
        is_served(altered, names_after(alter, columns)) == Served::YES)
      continue;
    for (uint i= 0; i < alter->index_drop_count; i++)
    {
      const KEY *const dropped= alter->index_drop_buffer[i];
      if (is_served_by(*dropped, columns) == Served::YES)
      {
        my_error(ER_DROP_INDEX_FK, MYF(0), dropped->name.str);
        return false;
      }
    }
  }
  return true;
}
