// columns.h: the server's columns and the engine's, and values on their way between a record and an engine row.
//
// A Column says, once for each open table, where a column stands in a record buffer and how its bytes become a
// varve_value. Converting a row allocates nothing and copies only towards the record: values handed to the engine
// point into the record, and a record's BLOB columns point into the cursor's row.

#ifndef VARVE_COLUMNS_H
#define VARVE_COLUMNS_H

#include "server.h"

#include <vector>

namespace varve_plugin {

// One stored column of a table.
struct Column
{
  enum Layout : uint8
  {
    PLAIN,    // `length` bytes at `offset`, as the engine has them
    CHAR,     // as PLAIN, filled up with spaces that the engine need not store
    VARCHAR,  // `length_bytes` bytes of length, then the data
    BLOB      // `length_bytes` bytes of length, then a pointer to the data
  };
  Layout layout;
  uint8 length_bytes;
  uchar null_bit;      // 0 for NOT NULL
  uint field_index;
  uint null_offset;
  uint offset;
  uint length;         // PLAIN and CHAR: bytes in the record. VARCHAR: its longest data
  CHARSET_INFO *charset;
};

// How a field is stored. False if the engine has no type for it; `def->name` is the field's own.
bool describe(const Field *field, varve_column_def *def, Column *column);

class Row_plan
{
public:
  // False if a column has no engine type.
  bool build(const TABLE *table);

  size_t size() const { return m_columns.size(); }
  uint field_index(size_t column) const { return m_columns[column].field_index; }

  // Fills `out` with one value for each column. They point into the record.
  void to_values(const uchar *record, varve_value *out) const;

  // Writes a row into a record. A column that is not in `wanted` may keep whatever the record had there; null
  // means all are wanted.
  void to_record(const varve_value *row, const MY_BITMAP *wanted, uchar *record) const;

private:
  std::vector<Column> m_columns;
};

// The parts of one index, for translating the server's search keys.
class Key_plan
{
public:
  void build(const KEY *key);

  // Fills `out`, which has room for MAX_REF_PARTS values, with those of the parts in `parts`, and returns how many
  // there are. They point into `key`.
  uint to_values(const uchar *key, key_part_map parts, varve_value *out) const;

private:
  struct Part
  {
    enum Layout : uint8 { PLAIN, CHAR, VARIABLE } layout;
    bool nullable;
    uint length;        // bytes of data
    uint store_length;  // all bytes that the part takes in a key
    CHARSET_INFO *charset;
  };
  std::vector<Part> m_parts;
};

}  // namespace varve_plugin

#endif
