// bulk.cc: the rows of a statement that inserts many.
//
// The server tells when it is about to write many rows and when that was all; the engine inserts rows together at less cost than
// one by one. In between rows are kept as the records that they came in, and go to the engine when there are enough, when the
// counter of the table is asked for values that depend on theirs, and at the end.
//
// - **Nobody sees the difference**, unless the statement fails: of two rows that are at fault the error may be about the later one, and
//   LAST_INSERT_ID(), which is not defined then, may be a value of its first row. Rows are kept only in
//   statements in which nobody can look at the table before the end: no triggers, no keys that the server checks by reading, and
//   the table occurs once. And only where a duplicate fails the whole statement: not for IGNORE, REPLACE, ON DUPLICATE KEY UPDATE.
// - **An error is about its row.** If the engine refuses rows, it has inserted none of them; they are then inserted one by one, up
//   to the one that fails. Its record is put where the server looks for the row that an error is about, and its number, too.
// - Values of BLOBs are not in the record, so tables with such columns don't take part; nor do partitions, because the server asks
//   the one that it wrote last about an error.

#include "ha_varve.h"

#include "error_map.h"

using namespace varve_plugin;

// Rows that go to the engine together: as many as fit in so many bytes of records, but no more than MAX_ROWS.
static constexpr size_t MAX_BYTES= 64 * 1024;
static constexpr size_t MAX_ROWS= 256;
// For fewer it is not worth it.
static constexpr size_t MIN_ROWS= 4;

// Whether the statement uses the table only once.
static bool occurs_once(const LEX *lex, const TABLE_SHARE *share)
{
  uint times= 0;
  for (const TABLE_LIST *at= lex->query_tables; at; at= at->next_global)
    if (at->table && at->table->s == share)
      times++;
  return times == 1;
}

bool ha_varve::can_keep_rows(THD *thd) const
{
  LEX *const lex= thd->lex;
  if (lex->sql_command != SQLCOM_INSERT && lex->sql_command != SQLCOM_INSERT_SELECT)
    return false;
  if (lex->ignore || lex->duplicates != DUP_ERROR || lex->has_returning() || m_own_txn)
    return false;
  if (table->triggers || table_share->long_unique_table || table_share->period.unique_keys)
    return false;
  return !table_share->blob_fields && !table->part_info && occurs_once(lex, table_share);
}

// `rows` is how many there will be at most; 0 if that is not known.
void ha_varve::start_bulk_insert(ha_rows rows, uint)
{
  const size_t fit= std::min(MAX_ROWS, MAX_BYTES / table_share->reclength);
  if (fit < MIN_ROWS || (rows && rows < MIN_ROWS) || !can_keep_rows(ha_thd()))
    return;
  m_rows_to_keep= rows ? std::min<size_t>(rows, fit) : fit;
  // Values point into the records, which must stay where they are.
  m_kept_records.reserve(m_rows_to_keep * table_share->reclength);
  m_kept_values.reserve(m_rows_to_keep * m_row_plan.size());
  m_kept_numbers.reserve(m_rows_to_keep);
}

int ha_varve::keep_row(const uchar *record)
{
  const size_t at= m_kept_records.size(), first_value= m_kept_values.size();
  m_kept_records.insert(m_kept_records.end(), record, record + table_share->reclength);
  m_kept_values.resize(first_value + m_row_plan.size());
  m_row_plan.to_values(&m_kept_records[at], &m_kept_values[first_value]);
  m_kept_numbers.push_back(ha_thd()->get_stmt_da()->current_row_for_warning());
  return m_kept_numbers.size() == m_rows_to_keep ? insert_kept_rows() : 0;
}

int ha_varve::insert_kept_rows()
{
  const size_t rows= m_kept_numbers.size();
  if (!rows)
    return 0;
  const uint32_t width= uint32_t(m_row_plan.size());
  const varve_value *const values= m_kept_values.data();
  varve_code code= varve_insert_many(m_txn, m_table, values, width, uint32_t(rows));
  if (code == VARVE_DUPLICATE_KEY || code == VARVE_TOO_LARGE || code == VARVE_INVALID)
  {
    size_t row= 0;
    while (!(code= varve_insert(m_txn, m_table, values + row * width, width, VARVE_DUPLICATE_SHARE)) && ++row < rows)
      ;
    if (code)
    {
      memcpy(table->record[0], &m_kept_records[row * table_share->reclength], table_share->reclength);
      ha_thd()->get_stmt_da()->set_current_row_for_warning(m_kept_numbers[row]);
    }
  }
  m_kept_records.clear();
  m_kept_values.clear();
  m_kept_numbers.clear();
  return code ? failed(code) : 0;
}

// The rows of a statement that has failed would be taken back at once, and might have to wait for locks before.
int ha_varve::end_bulk_insert()
{
  const bool is_too_late= !m_kept_numbers.empty() && ha_thd()->is_error();
  const int error= is_too_late ? HA_ERR_GENERIC : insert_kept_rows();
  forget_kept_rows();
  if (error)
    my_errno= error;
  return error;
}

// Gives their memory back, too: a handler may wait in the table cache for long.
void ha_varve::forget_kept_rows()
{
  if (!m_rows_to_keep)
    return;
  m_rows_to_keep= 0;
  m_kept_records= {};
  m_kept_values= {};
  m_kept_numbers= {};
}
