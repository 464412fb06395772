// derived.h: what rows need that the engine changes by itself.

#ifndef VARVE_DERIVED_H
#define VARVE_DERIVED_H

#include "columns.h"
#include "numbers.h"

#include <deque>
#include <string>
#include <vector>

namespace varve_plugin {

// The engine asks the thread that uses this transaction.
void give_values(const varve_txn *txn);

// The AUTO_INCREMENT column of the table as it will be, if it is one that comes; null: it is not.
Field *new_counted(const TABLE *altered, const Alter_inplace_info *alter);

// Whether a value takes the place of NULL, with a warning, in a column that ceases to take it.
bool replaces_null(const Alter_inplace_info *alter);

// What an ALTER TABLE is asked for rows of the table as it will be. Columns are computed, and counted, in its
// record buffer.
class Computer
{
public:
  // False if a column has no engine type. `old` is the table that was.
  bool begin(TABLE *old, TABLE *form, const Alter_inplace_info *alter);
  // It has begun, and stays as long as the engine may ask.
  varve_value_source source();
  // Whether there is a new column that is counted, and what its counter becomes.
  bool counts() const { return m_counted; }
  ulonglong next_number() const { return m_numbers.next(); }

private:
  static bool compute(void *computer, const char *, const varve_value *row, const uint32_t *columns,
                      uint32_t n, varve_value *out);
  static bool convert(void *computer, const char *, const varve_value *row, const uint32_t *columns,
                      uint32_t n, uint64_t row_number, varve_value *out);
  static bool replace_null(void *computer, const char *, uint32_t column, uint64_t row, varve_value *out);

  const varve_value *with_place_for_number(const varve_value *row, const uint32_t *columns, uint32_t n);
  bool fill(Field *field);
  uint64_t number_of_row(const char *table, uint64_t row);

  TABLE *m_old= nullptr;
  TABLE *m_form= nullptr;
  bool m_is_strict= false;
  Row_plan m_old_plan;
  // From the old table's record buffer to the new one's: what goes there, and on.
  Wanted_columns m_converted;
  std::deque<Copy_field> m_conversions;
  // Whose rows are converted, and how many of these and of the partitions before were.
  std::string m_rows_of;
  uint64_t m_rows_before= 0, m_last_row= 0;
  Field *m_counted= nullptr;
  Numbers m_numbers;
  bool m_replaces_null= false;
  Row_plan m_plan;
  std::vector<varve_value> m_values;
};

// Where a system-versioned table has its times.
struct System_time : varve_system_time
{
  // False: the table is not versioned. `column_of_field` has the engine's columns.
  bool describe(const TABLE *form, const std::vector<uint32_t> &column_of_field);

private:
  std::string m_forever;
};

}  // namespace varve_plugin

#endif
