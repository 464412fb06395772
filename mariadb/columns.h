// columns.h: the server's columns and the engine's, and values on their way between a record and an engine
// row.
//
// A Column says, once for each open table, where a column stands in a record buffer and how its bytes become
// a varve_value. Converting a row allocates nothing and copies only towards the record: values handed to the
// engine point into the record, and a record's BLOB columns point into the cursor's row.

#ifndef VARVE_COLUMNS_H
#define VARVE_COLUMNS_H

#include "server.h"

#include <vector>

namespace varve_plugin {

// Whether the engine has a column for this field of `table`: it is one of the stored columns, or an index
// needs its values. Those of other virtual columns are the server's affair.
bool is_stored(const TABLE *table, const Field *field);

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
  uint number;         // of the engine's column
  uint field_index;
  uint null_offset;
  uint offset;
  uint length;         // PLAIN and CHAR: bytes in the record. VARCHAR: its longest data
  CHARSET_INFO *charset;
  const uchar *if_null;  // what stands in the record for NULL: the server compares records byte by byte
};

// Some of a table's fields.
class Field_map
{
public:
  explicit Field_map(const TABLE *table)
    : m_words(bitmap_buffer_size(table->s->fields) / sizeof(my_bitmap_map))
  {
    my_bitmap_init(&m_map, m_words.data(), table->s->fields);
  }
  Field_map(const Field_map &)= delete;
  Field_map &operator=(const Field_map &)= delete;

  MY_BITMAP *map() { return &m_map; }

private:
  std::vector<my_bitmap_map> m_words;
  MY_BITMAP m_map;
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
  const std::vector<Column> &columns() const { return m_columns; }

  // Fills `out` with one value for each column. They point into the record.
  void to_values(const uchar *record, varve_value *out) const;

  // Writes a row into a record.
  void to_record(const varve_value *row, uchar *record) const;

  // Columns whose values may lie outside of their rows, as engine columns.
  const std::vector<uint> &long_columns() const { return m_long_columns; }

private:
  std::vector<Column> m_columns;
  std::vector<uint> m_long_columns;
};

// Which columns a cursor was asked for, and their way into a record.
class Wanted_columns
{
public:
  // Before a search: no columns will be looked at but those in `wanted`; null means all.
  void tell(varve_cursor *cursor, const Row_plan &plan, const MY_BITMAP *wanted);

  // The same for who has another way to tell: these are asked for.
  void choose(const Row_plan &plan, const MY_BITMAP *wanted);

  // A flag for each engine column.
  const std::vector<uint8_t> &flags() const { return m_flags; }

  // Whether all of `read_set` was asked for.
  bool suffice(const Row_plan &plan, const MY_BITMAP *read_set) const
  {
    return m_all || equals(read_set) || have(plan, read_set);
  }

  // Writes a row into a record. What was not asked for keeps whatever the record had there.
  void to_record(const varve_value *row, uchar *record) const;

private:
  bool equals(const MY_BITMAP *set) const
  {
    if (m_wanted.size() == 1)
      return m_wanted[0] == set->bitmap[0];
    return !m_wanted.empty() && !memcmp(m_wanted.data(), set->bitmap, m_wanted.size() * sizeof m_wanted[0]);
  }
  bool have(const Row_plan &plan, const MY_BITMAP *read_set) const;

  bool m_all= false;
  // The words of what `tell` was given; empty before it was called, and if everything was asked for.
  std::vector<my_bitmap_map> m_wanted;
  std::vector<Column> m_columns;
  std::vector<uint8_t> m_flags;
};

// The most values that a search key can have for the engine.
static const uint MAX_SEARCH_VALUES= 2 * MAX_REF_PARTS;

// The parts of one index, for translating the server's search keys.
//
// A secondary index that is not unique is extended with the primary key. The server's extended key has those
// of the primary key's columns that the index lacks; the engine's has them all, in the primary key's order.
class Key_plan
{
public:
  // `primary` is null if there is none.
  void build(const KEY *key, const KEY *primary);

  // Fills `out`, which has room for MAX_SEARCH_VALUES, with the engine's values of the parts in `parts`, and
  // returns how many there are. They point into `key`.
  uint to_values(const uchar *key, key_part_map parts, varve_value *out) const;

  // How many parts the engine's key has that has the values of the server's first `n` parts.
  uint engine_parts(uint n) const;

private:
  struct Part
  {
    enum Layout : uint8 { PLAIN, CHAR, VARIABLE } layout;
    bool nullable;
    uint length;        // bytes of data
    uint store_length;  // all bytes that the part takes in a key
    CHARSET_INFO *charset;
  };
  // The server's parts; the first m_own are the index's own.
  std::vector<Part> m_parts;
  uint m_own;
  // For the primary key's columns, in its order and as far as they are known: which of the parts has the
  // value.
  std::vector<uint> m_primary;
};

}  // namespace varve_plugin

#endif
