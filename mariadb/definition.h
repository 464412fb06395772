// definition.h: a table's definition as the engine has it, made of the server's.

#ifndef VARVE_DEFINITION_H
#define VARVE_DEFINITION_H

#include "derived.h"

#include <string>
#include <vector>

namespace varve_plugin {

// What becomes this field of the altered table; null: something else than a column.
const Create_field *source_of(const Alter_inplace_info *alter, const Field *field);

// The column of the table that was, if this field's values have to be made of that one's by the server's
// rules: it has another type, or ceases to take NULL when another one gets another type.
const Field *converted_from(const Alter_inplace_info *alter, const Field *field);

// An engine definition, and what it points to.
class Definition
{
public:
  // Returns a handler code; an error has been reported to the client.
  int build(const TABLE *form, const std::string &name, bool temporary);
  // Of a table that gets this definition: what its columns and indexes were called, and what new columns have
  // in its rows. False if that is not the same for all.
  bool note_changes(const TABLE_SHARE *before, TABLE *altered, const Alter_inplace_info *alter);

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

}  // namespace varve_plugin

#endif
