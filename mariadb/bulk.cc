// bulk.cc: the rows of a statement that inserts many.
//
// The server calls start_bulk_insert before it writes many rows and end_bulk_insert behind the last; the
// engine inserts rows together at less cost than one by one. In between rows are kept as the records that
// they came in, and go to the engine when there are enough, when the counter of the table is asked for values
// that depend on theirs, and at the end.
//
// - **Nobody sees the difference.** Rows are kept only in statements in which nothing looks at the table
//   before the end: no triggers, no keys that the server checks by reading, and the table occurs once. Nor
//   may values that are computed for a later row leave anything behind (`@a:=1`, NEXTVAL): rows before it may
//   yet be refused. And only where a duplicate fails the whole statement: not for IGNORE, REPLACE, ON
//   DUPLICATE KEY UPDATE.
// - **An empty table is loaded.** When so many rows of a statement are there that they go to the engine, and
//   the table is empty and nobody else uses it, they and all that follow go to a load of the engine
//   (load.cc), which has the table for itself until the statement ends.
// - **Or loaded row by row.** Where it has to be known of a row at once whether it is a duplicate, rows are
//   not kept: if the server goes on after duplicates (LOAD DATA LOCAL, or with IGNORE), and if values of the
//   counter are drawn for a number of rows that is not known, for how many are drawn depends on how many rows
//   are there. They go to a load from the first one on, until one comes that is out of order; it and all that
//   follow are inserted. A table with another UNIQUE key than the primary one has its rows inserted.
// - **The first error counts.** If the engine refuses rows, it has inserted none of them; they are then
//   inserted one by one, up to the one that fails. Its record is put where the server looks for the row that
//   an error is about, and its number, too; later rows' warnings and what LAST_INSERT_ID() got from them are
//   taken back. If a later row's values are at fault, the rows before it are inserted all the same, and if
//   one of them is refused, that is the error.
// - **Nobody waits for a statement that can't go on.** One that was killed, or has waited for a lock in vain
//   or been a deadlock's victim while it read its source, inserts nothing more, though an earlier row might
//   be a duplicate.
// - Values of BLOBs are not in the record: the record that is kept points to copies of them, which stay until
//   the statement ends, for an error may be about such a row.
// - Partitions don't take part, because the server asks the one that it wrote last about an error.

#include "ha_varve.h"

#include "error_map.h"
#include "tmpdir.h"

using namespace varve_plugin;

// Rows that go to the engine together: as many as fit in so many bytes of records, but no more than MAX_ROWS.
static constexpr size_t MAX_BYTES= 64 * 1024;
static constexpr size_t MAX_ROWS= 256;
// For fewer it is not worth it.
static constexpr size_t MIN_ROWS= 4;

// Whether the statement uses the table no more than once.
static bool occurs_once(const LEX *lex, const TABLE_SHARE *share)
{
  uint times= 0;
  for (const TABLE_LIST *at= lex->query_tables; at; at= at->next_global)
    if (at->table && at->table->s == share)
      times++;
  return times <= 1;
}

// Whether computing a row's values does something else, too.
static bool values_have_effects(LEX *lex, const TABLE *table)
{
  if (lex->first_select_lex()->uncacheable & UNCACHEABLE_SIDEEFFECT)
    return true;
  for (const TABLE_LIST *at= lex->query_tables; at; at= at->next_global)
    if (at->sequence)
      return true;
  for (Field **at= table->default_field; at && *at; at++)
    if ((*at)->default_value && ((*at)->default_value->flags & VCOL_NEXTVAL))
      return true;
  return false;
}

bool ha_varve::can_keep_rows(THD *thd) const
{
  LEX *const lex= thd->lex;
  switch (lex->sql_command)
  {
  case SQLCOM_INSERT:
  case SQLCOM_INSERT_SELECT:
  case SQLCOM_CREATE_TABLE:
    break;
  case SQLCOM_LOAD:
    break;
  default:
    return false;
  }
  if (values_have_effects(lex, table))
    return false;
  if (lex->duplicates != DUP_ERROR || lex->has_returning() || m_own_txn)
    return false;
  if (table->triggers || table_share->long_unique_table || table_share->period.unique_keys)
    return false;
  return !table->part_info && occurs_once(lex, table_share);
}

// Whether the statement goes on after a duplicate, as it does with a file from the client.
static bool goes_on(const LEX *lex)
{
  return lex->ignore || (lex->sql_command == SQLCOM_LOAD && lex->local_file);
}

// Whether the keys of the rows before are all that a row could be a duplicate of.
bool ha_varve::only_primary_is_unique() const
{
  for (uint i= 0; i < table_share->keys; i++)
    if (i != table_share->primary_key && (table->key_info[i].flags & HA_NOSAME))
      return false;
  return true;
}

// `rows` is how many there will be at most; 0 if that is not known.
void ha_varve::start_bulk_insert(ha_rows rows, uint)
{
  m_gets_many= true;
  const size_t fit= std::min(MAX_ROWS, MAX_BYTES / table_share->reclength);
  if (fit < MIN_ROWS || (rows && rows < MIN_ROWS) || !can_keep_rows(ha_thd()))
    return;
  if (goes_on(ha_thd()->lex))
  {
    m_wants_order= thd_sql_command(ha_thd()) == SQLCOM_LOAD && only_primary_is_unique();
    return;
  }
  m_rows_known= rows;
  m_rows_to_keep= rows ? std::min<size_t>(rows, fit) : fit;
  // For fewer it is not worth it.
  m_may_load= !rows || rows >= fit;
  // Values point into the records, which must stay where they are.
  m_kept_records.reserve(m_rows_to_keep * table_share->reclength);
  m_kept_values.reserve(m_rows_to_keep * m_row_plan.size());
  m_kept_states.reserve(m_rows_to_keep);
}

int ha_varve::keep_row(const uchar *record)
{
  const size_t at= m_kept_records.size(), first_value= m_kept_values.size();
  m_kept_records.insert(m_kept_records.end(), record, record + table_share->reclength);
  keep_blobs(&m_kept_records[at]);
  m_kept_values.resize(first_value + m_row_plan.size());
  m_row_plan.to_values(&m_kept_records[at], m_kept_values.data() + first_value);
  m_kept_states.emplace_back(ha_thd());
  if (m_kept_states.size() < m_rows_to_keep && m_kept_blob_bytes < MAX_BYTES)
    return 0;
  return m_may_load && begin_statements_load() ? load_kept_rows() : insert_kept_rows();
}

// Has a kept record point to copies of its BLOBs.
void ha_varve::keep_blobs(uchar *record)
{
  const my_ptrdiff_t place= record - table->record[0];
  for (uint i= 0; i < table_share->blob_fields; i++)
  {
    Field_blob *const blob= static_cast<Field_blob *>(table->field[table_share->blob_field[i]]);
    const uint32 length= blob->is_null(place) ? 0 : blob->get_length(place);
    if (!length)
      continue;
    const uchar *const value= blob->get_ptr(blob->ptr + place);
    m_kept_blobs.emplace_back(value, value + length);
    blob->set_ptr_offset(place, length, m_kept_blobs.back().data());
    m_kept_blob_bytes+= length;
  }
}

// All rows of the statement so far are kept.
bool ha_varve::begin_statements_load()
{
  m_may_load= false;
  varve_code code= sort_in_tmpdir(ha_thd(), m_txn);
  if (!code)
    code= varve_load_try(m_txn, m_table, 1, &m_load);
  if (code)
    m_load= nullptr;
  return !code;
}

// The statement's first row is there. If the table can't be loaded, it is inserted, and so are all.
void ha_varve::load_in_order()
{
  m_wants_order= false;
  m_is_in_order= begin_statements_load();
}

// False: the load is over, and the row is to be inserted.
bool ha_varve::load_next(const uchar *record, int *error)
{
  m_row_plan.to_values(record, m_values.data());
  const varve_code code= varve_load_next(m_load, m_txn, m_values.data(), uint32_t(m_row_plan.size()));
  if (code == VARVE_UNSUPPORTED)
    return (*error= finish_load());
  *error= code ? failed(code) : 0;
  if (code)
    abandon_statements_load();
  else
    count_written(record);
  return true;
}

int ha_varve::load_kept_rows()
{
  const uint32_t width= uint32_t(m_row_plan.size());
  int error= 0;
  for (size_t row= 0; !error && row < m_kept_states.size(); row++)
  {
    const uchar *const record= &m_kept_records[row * table_share->reclength];
    error= load_values(&m_kept_values[row * width]);
    if (!error)
      count_written(record);
    else
    {
      memcpy(table->record[0], record, table_share->reclength);
      m_kept_states[row].restore(ha_thd());
      if (error == HA_ERR_FOUND_DUPP_KEY)
        count_refused();
    }
  }
  forget_kept_rows();
  if (!error)
    m_kept_blobs.clear();
  return error;
}

ha_varve::Kept_state::Kept_state(const THD *thd)
  : row(thd->get_stmt_da()->current_row_for_warning()), conditions(thd->get_stmt_da()->cond_count()),
    warnings(thd->get_stmt_da()->warn_count()), insert_id(thd->first_successful_insert_id_in_cur_stmt)
{
}

// Takes back what rows after this one have left in the session.
void ha_varve::Kept_state::restore(THD *thd) const
{
  thd->first_successful_insert_id_in_cur_stmt= insert_id;
  Diagnostics_area *const area= thd->get_stmt_da();
  if (area->warn_count() > warnings)
  {
    // Conditions can't be taken away one by one.
    Diagnostics_area first(area->warning_info_id(), true, true);
    Diagnostics_area::Sql_condition_iterator all= area->sql_conditions();
    for (uint i= 0; i < conditions; i++)
      first.push_warning(thd, all++);
    area->clear_warning_info(area->warning_info_id());
    Diagnostics_area::Sql_condition_iterator kept= first.sql_conditions();
    while (const Sql_condition *condition= kept++)
      area->push_warning(thd, condition);
    // Those beyond max_error_count are only counted.
    while (area->warn_count() < warnings)
      area->push_warning(thd, WARN_DATA_TRUNCATED, "01000", Sql_condition::WARN_LEVEL_WARN, "");
  }
  area->set_current_row_for_warning(row);
}

int ha_varve::insert_kept_rows()
{
  const size_t rows= m_kept_states.size();
  if (!rows)
    return 0;
  m_may_load= false;
  const uint32_t width= uint32_t(m_row_plan.size());
  const varve_value *const values= m_kept_values.data();
  const auto record= [&](size_t row) { return &m_kept_records[row * table_share->reclength]; };
  varve_code code= varve_insert_many(m_txn, m_table, values, width, uint32_t(rows));
  for (size_t row= 0; !code && row < rows; row++)
    count_written(record(row));
  if (code == VARVE_DUPLICATE_KEY || code == VARVE_NO_REFERENCED_ROW || code == VARVE_TOO_LARGE ||
      code == VARVE_INVALID)
  {
    size_t row= 0;
    while (!(code= varve_insert(m_txn, m_table, values + row * width, width, VARVE_DUPLICATE_SHARE)))
    {
      count_written(record(row));
      if (++row == rows)
        break;
    }
    if (code)
    {
      memcpy(table->record[0], record(row), table_share->reclength);
      m_kept_states[row].restore(ha_thd());
      if (code == VARVE_DUPLICATE_KEY)
        count_refused();
    }
  }
  m_kept_records.clear();
  m_kept_values.clear();
  m_kept_states.clear();
  m_kept_blob_bytes= 0;
  if (code)
    return failed(code);
  m_kept_blobs.clear();
  return 0;
}

// Whether a statement that has failed would have gone on to insert the rows before.
static bool could_insert(const THD *thd)
{
  if ((thd->killed && thd->killed != KILL_BAD_DATA) || thd->transaction_rollback_request ||
      thd->is_fatal_error)
    return false;
  return thd->get_stmt_da()->sql_errno() != ER_LOCK_WAIT_TIMEOUT;
}

int ha_varve::end_bulk_insert()
{
  THD *const thd= ha_thd();
  m_gets_many= m_wants_order= false;
  const bool has_failed= thd->is_error();
  int error= 0;
  if (has_failed && !could_insert(thd))
    abandon_statements_load();
  else if (m_load && !m_is_copy)
    error= finish_load();
  else
    error= insert_kept_rows();
  forget_kept_rows();
  if (error && has_failed)
  {
    // The server takes no notice of this error, having one.
    thd->clear_error();
    print_error(error, MYF(0));
    error= 0;
  }
  // CREATE OR REPLACE ... SELECT writes itself to the binary log although it has failed, with the error that
  // is known by then: replicas expect that one, and stop at any other.
  else if (error && thd_sql_command(thd) == SQLCOM_CREATE_TABLE)
    print_error(error, MYF(0));
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
  m_kept_blob_bytes= 0;
  m_kept_records= {};
  m_kept_values= {};
  m_kept_states= {};
}
