// load.cc: rows that go to a load of the engine, which is a fraction of the work of inserts.
//
// A statement that inserts many rows into an empty table loads them (bulk.cc). The engine has the table for
// itself until the statement ends; a duplicate is heard of then, unless rows come in order. The rest is
// about a table that ALTER TABLE makes to take another one's place.
//
// The server says when it begins to copy (HA_EXTRA_BEGIN_COPY), that many rows come (start_bulk_insert), and
// when the copy has ended (HA_EXTRA_END_COPY, whose error it reports, or HA_EXTRA_ABORT_COPY). Between the
// first row and the end nobody looks at the table. A partition is told of the copy before it is told of many
// rows, at its first row; several may be loaded at the same time. If some have duplicates, the server hears
// of the last of these partitions.
//
// - **The engine refuses duplicates.** Where the server looks for them by reading the table (hashes of long
//   values, periods that must not overlap) or goes on after one (ALTER IGNORE, of which the server speaks in
//   another way), rows are inserted. So they are into a table that gets a foreign key, whose parents they
//   must have.
// - **Only a table of its own.** A copy's name begins with #sql until the statement ends. CREATE TABLE ...
//   SELECT is a copy, too, in the server's words, but others know that table.
// - **The end's error is heard.** REORGANIZE PARTITION and the like copy rows to single partitions, take no
//   notice of the answer to HA_EXTRA_END_COPY, and do not say that many rows come: these are inserted.

#include "ha_varve.h"

#include "engine.h"
#include "error_map.h"
#include "progress.h"
#include "tmpdir.h"

#include "partition_info.h"

#include <optional>

using namespace varve_plugin;

// What the server says of a copy; of all else it says nothing here.
int ha_varve::heed_copy(enum ha_extra_function operation)
{
  switch (operation)
  {
  case HA_EXTRA_BEGIN_COPY:
    begin_copy();
    return 0;
  case HA_EXTRA_END_COPY:
    return end_copy();
  case HA_EXTRA_ABORT_COPY:
    abort_copy();
    return 0;
  default:
    return 0;
  }
}

void ha_varve::begin_copy()
{
  m_is_copy= is_aside(m_name) && !varve_table_is_temporary(m_table) && !table_share->sequence &&
             !table_share->long_unique_table && !table_share->period.unique_keys;
}

// The copy's first row is there. Without m_load the rows are to be inserted.
int ha_varve::begin_load()
{
  const uint at_once= table->part_info ? table->part_info->get_tot_partitions() : 1;
  varve_code code= sort_in_tmpdir(ha_thd(), m_txn);
  if (!code)
    code= varve_load_begin(m_txn, m_table, at_once, &m_load);
  if (!code)
    return 0;
  m_load= nullptr;
  if (code != VARVE_UNSUPPORTED)
    return failed(code);
  m_is_copy= false;
  return 0;
}

int ha_varve::load_row(const uchar *record)
{
  m_row_plan.to_values(record, m_values.data());
  const int error= load_values(m_values.data());
  if (error == HA_ERR_FOUND_DUPP_KEY)
    count_refused();
  else if (!error && record == table->record[0])
    count_written(record);
  return error;
}

// The load of a statement that inserts rows is over with the first that is refused.
int ha_varve::load_values(const varve_value *values)
{
  const varve_code code= varve_load_row(m_load, m_txn, values, uint32_t(m_row_plan.size()));
  if (!code)
    return 0;
  const int error= failed(code);
  abandon_statements_load();
  return error;
}

void ha_varve::abandon_statements_load()
{
  if (m_load && !m_is_copy)
    abort_copy();
}

// Puts a row that has the same key as another one where the server looks for it. It reads the key's columns,
// long values, too, when the engine's copy of the row is gone.
void ha_varve::keep_duplicate(void *handler, const char *, const varve_value *row)
{
  ha_varve *const self= static_cast<ha_varve *>(handler);
  std::vector<varve_value> values(row, row + self->m_row_plan.size());
  size_t bytes= 0;
  for (const varve_value &value : values)
    bytes+= value.len;
  self->m_duplicate.resize(bytes);
  uchar *to= self->m_duplicate.data();
  for (varve_value &value : values)
    if (value.ptr && value.len)
    {
      memcpy(to, value.ptr, value.len);
      value.ptr= to;
      to+= value.len;
    }
  self->m_row_plan.to_record(values.data(), self->table->record[0]);
}

int ha_varve::end_copy()
{
  m_is_copy= false;
  return m_load ? finish_load() : 0;
}

int ha_varve::finish_load()
{
  varve_load *const load= m_load;
  m_load= nullptr;
  m_is_in_order= false;
  // A client that is sending its file takes no reports.
  const LEX *const lex= ha_thd()->lex;
  std::optional<Progress_report> progress;
  if (lex->sql_command != SQLCOM_LOAD || !lex->local_file)
    progress.emplace(ha_thd(), Progress_report::LOADS, 1);
  const varve_code code= varve_load_finish(load, m_txn, keep_duplicate, this);
  if (code == VARVE_DUPLICATE_KEY)
    count_refused();
  return code ? failed(code) : 0;
}

void ha_varve::abort_copy()
{
  if (m_load)
    varve_load_abandon(m_load, m_txn);
  m_load= nullptr;
  m_is_copy= m_gets_many= m_wants_order= m_is_in_order= false;
}
