// definition.cc: columns, primary key and indexes of a table, for the engine.

#include "definition.h"

#include "collation.h"
#include "error_map.h"
#include "foreign.h"
#include "ha_varve.h"
#include "options.h"

namespace varve_plugin {

// The engine's limit, and InnoDB's.
static const uint MAX_COLUMNS= 1017;

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
                       VARVE_CHECK_REFERENCES, UINT32_MAX, nullptr, temporary, nullptr,
                       VARVE_UNCOMPRESSED, 0, VARVE_ENCRYPTED_DEFAULT, 1};
  choose_storage(form->s, &def);
  if (m_system_time.describe(form, m_column_of_field))
    def.system_time= &m_system_time;
  if (const Field *counted= form->found_next_number_field)
    def.auto_increment= m_column_of_field[counted->field_index];
  return 0;
}

const Create_field *source_of(const Alter_inplace_info *alter, const Field *field)
{
  List_iterator_fast<Create_field> fields(alter->alter_info->create_list);
  while (const Create_field *source= fields++)
    if (same_name(source->field_name.str, field->field_name.str))
      return source;
  return nullptr;
}

const Field *converted_from(const Alter_inplace_info *alter, const Field *field)
{
  const Create_field *const source= source_of(alter, field);
  const Field *const from= source ? source->field : nullptr;
  if (!(alter->handler_flags & ALTER_STORED_COLUMN_TYPE) || !from || from->vcol_info)
    return nullptr;
  // Beside another type a copy decides what becomes of NULL.
  if (from->real_maybe_null() && !field->real_maybe_null())
    return from;
  const bool is_kept= from->is_equal(*source) || from->table->file->can_convert_nocopy(*from, *source);
  return is_kept ? nullptr : from;
}

// Whether a default is the same for all rows that are there. That of CURRENT_TIMESTAMP is, for one statement.
static bool is_constant(const Virtual_column_info *value)
{
  return !(value->flags & ~(VCOL_TIME_FUNC | VCOL_SESSION_FUNC));
}

bool Definition::note_changes(const TABLE_SHARE *before, TABLE *altered, const Alter_inplace_info *alter)
{
  keep_storage(before, altered->s, &def);
  Row_plan plan;
  if (!plan.build(altered))
    return false;
  restore_record(altered, s->default_values);
  // A copy tells of a default that the column can't have, or refuses it.
  const Check_level_instant_set quiet(altered->in_use, CHECK_FIELD_IGNORE);
  for (Field **at= altered->field; *at; at++)
  {
    const Create_field *const source= source_of(alter, *at);
    const bool is_new= !source || !source->field;
    if (is_new && (*at)->stored_in_db() && (*at)->default_value && is_constant((*at)->default_value) &&
        (*at)->set_default())
      return false;
  }
  std::vector<varve_value> defaults(plan.size());
  plan.to_values(altered->record[0], defaults.data());
  for (Field **at= altered->field; *at; at++)
  {
    const uint32_t number= m_column_of_field[(*at)->field_index];
    if (number == UINT32_MAX)
      continue;
    const Create_field *const source= source_of(alter, *at);
    const Field *const old= source ? source->field : nullptr;
    const bool is_converted= converted_from(alter, *at);
    if (is_converted)
    {
      m_columns[number].was= "";
      m_columns[number].converted= true;
      m_columns[number].in_old_rows= defaults[number];
    }
    else if (old && is_stored(old->table, old))
      m_columns[number].was= old->field_name.str;
    else if (!(*at)->stored_in_db())
      m_columns[number].was= "";
    else if ((*at)->default_value && !is_constant((*at)->default_value))
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
