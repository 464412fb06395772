// admin.cc: what the optimizer and the administrator ask about a table.

#include "ha_varve.h"

#include "collation.h"
#include "engine.h"
#include "error_map.h"
#include "progress.h"
#include "statistics.h"
#include "sysvars.h"

#include "mysqld.h"

#include <algorithm>

using namespace varve_plugin;

// Whether the value of a part can be had from entries, if not from all of them: not the beginning of one, nor
// a text whose weights say too little. `has_form`: the entry says in which form the text is.
static bool readable_in_entry(const KEY_PART_INFO &part, bool *has_form)
{
  const Field *field= part.field;
  *has_form= false;
  if (!field || (part.key_part_flag & (HA_PART_KEY_SEG | HA_BLOB_PART)))
    return false;
  const enum_field_types type= field->real_type();
  if ((type != MYSQL_TYPE_STRING && type != MYSQL_TYPE_VARCHAR) || field->sort_charset() == &my_charset_bin)
    return true;
  CHARSET_INFO *charset= field->charset();
  if (collation_is_bytewise(charset) && charset->state & MY_CS_NOPAD)
    return true;
  return *has_form= collation_reads_texts(charset);
}

// How many of a key's first parts have a form.
static uint forms(const KEY &key, uint parts)
{
  uint n= 0;
  bool has_form;
  for (uint i= 0; i < parts; i++)
    n+= readable_in_entry(key.key_part[i], &has_form) && has_form;
  return n;
}

// Whether the value of part `i`, which may be one of the primary key's, can be had from entries.
static bool readable_in_key(const TABLE_SHARE &share, const KEY &key, uint i)
{
  bool has_form;
  if (!readable_in_entry(key.key_part[i], &has_form))
    return false;
  if (!has_form)
    return true;
  const uint own= key.user_defined_key_parts;
  if (i < own)
    return forms(key, i) < VARVE_MOST_FORMS;
  const KEY &primary= share.key_info[share.primary_key];
  uint place= 0;
  while (primary.key_part[place].fieldnr != key.key_part[i].fieldnr)
    place++;
  return forms(key, own) + forms(primary, place) < VARVE_MOST_FORMS;
}

// Whether keys of this part lie in the order of the columns' values. Beginnings of texts don't if the
// collation has several levels, such as accents after letters: 'áb' is less than 'ac', 'á' is more than 'a'.
static bool sorts_as_column(const KEY_PART_INFO &part)
{
  const bool beginning= part.key_part_flag & (HA_PART_KEY_SEG | HA_BLOB_PART);
  return !beginning || !part.field || part.field->charset()->levels_for_order <= 1;
}

// Whether the entries of rows with the same key come in the order of their primary keys. If both may have
// more bytes than a key of the engine is ordered by, only as many parts do as the server asks for.
static bool sorts_by_place(const TABLE_SHARE &share, const KEY &key)
{
  if (share.primary_key == MAX_KEY)
    return true;
  uint bytes= key.key_length;
  const KEY &primary= share.key_info[share.primary_key];
  if (bytes + primary.key_length <= MAX_DATA_LENGTH_FOR_KEY)
    return true;
  for (uint i= 0; i < primary.user_defined_key_parts; i++)
  {
    const KEY_PART_INFO &part= primary.key_part[i];
    const KEY_PART_INFO *const begin= key.key_part;
    const bool has_it= std::any_of(begin, begin + key.user_defined_key_parts, [&](const KEY_PART_INFO &own)
    {
      return own.fieldnr == part.fieldnr && own.length >= part.length;
    });
    bytes+= has_it ? 0 : part.length;
  }
  return bytes <= MAX_DATA_LENGTH_FOR_KEY;
}

ulong ha_varve::index_flags(uint index, uint part, bool all_parts) const
{
  const KEY &key= table_share->key_info[index];
  ulong flags= HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE;
  if (part < key.user_defined_key_parts && !sorts_as_column(key.key_part[part]))
    flags&= ~HA_READ_RANGE;
  if (index == table_share->primary_key)
    return flags | HA_CLUSTERED_INDEX | HA_KEYREAD_ONLY;
  if (!sorts_by_place(*table_share, key))
    flags|= HA_KEY_SCAN_NOT_ROR;
  if (key.algorithm == HA_KEY_ALG_LONG_HASH)
    return flags;
  const uint last= std::min(part, key.ext_key_parts - 1);
  for (uint i= all_parts ? 0 : last; i <= last; i++)
    if (!readable_in_key(*table_share, key, i))
      return flags | HA_DO_INDEX_COND_PUSHDOWN | HA_DO_RANGE_FILTER_PUSHDOWN;
  return flags | HA_DO_INDEX_COND_PUSHDOWN | HA_DO_RANGE_FILTER_PUSHDOWN | HA_KEYREAD_ONLY;
}

// Tells the optimizer how many rows share a key's first columns. It can do without: a statement that reads a
// damaged page reports it.
void ha_varve::refresh_estimates()
{
  double rows[MAX_SEARCH_VALUES];
  for (uint i= 0; i < table_share->keys; i++)
  {
    KEY &key= table->key_info[i];
    const uint parts= m_key_plans[i].engine_parts(key.ext_key_parts);
    if (varve_table_rows_per_key(m_table, engine_index(i), rows, parts))
      return;
    for (uint part= 0; part < key.ext_key_parts; part++)
    {
      // Halved: the server takes searches by key for dearer than they are, as InnoDB found out.
      const double shared= rows[m_key_plans[i].engine_parts(part + 1) - 1] / 2;
      key.rec_per_key[part]= shared < 1 ? 1 : ulong(shared + 0.5);
    }
  }
}

// A handler has been opened: if it is the table's first since FLUSH TABLE, what is stored becomes the
// engine's estimates. Where nothing is, the engine's own serve until the keeper has looked at the table: it
// is not for the statement that needs it first to wait for more. An empty table is looked at when it has
// rows.
void ha_varve::fetch_estimates()
{
  const Statistics_policy policy= statistics_policy(table_share, m_name);
  varve_table_set_sampling(m_table, policy.sample_pages, nulls_in_keys());
  if (table_share->tmp_table != NO_TMP_TABLE)
    return;
  lock_shared_ha_data();
  m_statistics= static_cast<Statistics_share *>(get_ha_share_ptr());
  if (!m_statistics)
    set_ha_share_ptr(m_statistics= new Statistics_share);
  unlock_shared_ha_data();
  const bool is_first= !m_statistics->is_fetched.exchange(true);
  uint64_t rows;
  const bool is_kept= varve_table_keeps_statistics(m_table, &rows);
  if (is_kept && policy.is_persistent && !is_first)
    return;
  const Stored stored= policy.is_persistent ? fetch_statistics(m_table, m_name) : Stored::NONE;
  // What was kept is somebody's no longer.
  if (is_kept && (stored == Stored::NONE || stored == Stored::UNAVAILABLE))
    varve_table_analyze(m_table, nullptr);
  varve_table_stats s;
  // An index is new.
  if (stored == Stored::SOME)
    leave_to_keeper(m_name, Task::COMPLETE, 0);
  else if (stored == Stored::NONE && policy.recalculates && !varve_table_get_stats(m_table, &s) && s.rows)
    leave_to_keeper(m_name, Task::RECALCULATE, policy.sample_pages);
}

// The statement is done with the table. The keeper looks at it if a tenth of its rows have changed since
// statistics were made, as InnoDB counts, or if it has none that are kept. Rows that foreign keys change are
// counted where they come or go. What is much less than a tenth is told to the others with what comes next:
// the count is a cache line that all connections write.
void ha_varve::note_changes()
{
  if (!m_changes || !m_statistics || !m_table)
    return;
  uint64_t rows;
  const bool is_kept= varve_table_keeps_statistics(m_table, &rows);
  const ulonglong changes= m_changes;
  if (is_kept && changes <= rows / 10 / 256)
    return;
  m_changes= 0;
  const ulonglong changed= m_statistics->changed_rows.fetch_add(changes) + changes;
  if (is_kept && changed <= rows / 10)
    return;
  const Statistics_policy policy= statistics_policy(table_share, m_name);
  if (!policy.recalculates)
    return;
  m_statistics->changed_rows= 0;
  leave_to_keeper(m_name, Task::RECALCULATE, policy.sample_pages);
}

int ha_varve::info(uint flags)
{
  if (m_is_discarded)
    return 0;
  if (flags & (HA_STATUS_VARIABLE | HA_STATUS_AUTO | HA_STATUS_CONST))
  {
    varve_table_stats s;
    if (varve_code code= varve_table_get_stats(m_table, &s))
      return failed(code);
    if (flags & HA_STATUS_CONST || (flags & HA_STATUS_VARIABLE && s.is_stale))
    {
      refresh_estimates();
      if (varve_code code= varve_table_get_stats(m_table, &s))
        return failed(code);
    }
    // A counter whose column is gone is none: the server would go on with it in the next column's.
    stats.auto_increment_value= table->found_next_number_field ? s.auto_increment : 0;
    // The optimizer takes 0 rows for the truth, but this is an estimate. SHOW TABLE STATUS may see it, and
    // who looks at all partitions when they are opened.
    stats.records= s.rows || (flags & (HA_STATUS_TIME | HA_STATUS_OPEN)) ? s.rows : 1;
    stats.deleted= 0;
    stats.block_size= s.page_bytes;
    stats.data_file_length= s.data_bytes;
    stats.index_file_length= s.index_bytes;
    // As InnoDB: single pages are not worth to be told.
    const ulonglong extent= 64 * ulonglong(s.page_bytes);
    stats.delete_length= s.free_bytes / extent * extent;
    stats.mean_rec_length= s.rows ? ulong(stats.data_file_length / s.rows) : 0;
  }
  // With the time alone nobody asks for it of partitions.
  if (flags & HA_STATUS_CONST)
  {
    // A rebuilt table is a new one, and so is its definition's file.
    MY_STAT file;
    const std::string path= std::string(table_share->normalized_path.str) + reg_ext;
    if (my_stat(path.c_str(), &file, MYF(0)))
      stats.create_time= ulong(file.st_ctime);
  }
  if (flags & HA_STATUS_TIME)
  {
    varve_table_stats s;
    if (varve_code code= varve_table_get_stats(m_table, &s))
      return failed(code);
    stats.update_time= ulong(s.changed_at);
  }
  // A partitioned table may ask another of its handlers than the one that found the duplicate.
  if (flags & HA_STATUS_ERRKEY)
    errkey= server_index(varve_last_error_index(m_table));
  return 0;
}

ha_rows ha_varve::records_in_range(uint index, const key_range *low, const key_range *high, page_range *)
{
  varve_value low_values[MAX_SEARCH_VALUES], high_values[MAX_SEARCH_VALUES];
  varve_bound low_bound{low_values, 0, true}, high_bound{high_values, 0, true};
  if (low)
  {
    low_bound.n= m_key_plans[index].to_values(low->key, low->keypart_map, low_values);
    low_bound.inclusive= low->flag != HA_READ_AFTER_KEY;
  }
  if (high)
  {
    high_bound.n= m_key_plans[index].to_values(high->key, high->keypart_map, high_values);
    high_bound.inclusive= high->flag != HA_READ_BEFORE_KEY;
  }
  uint64_t rows;
  if (varve_table_records_in_range(m_table, engine_index(index), &low_bound, &high_bound, &rows))
    return HA_POS_ERROR;
  // 0 would be taken for the truth.
  return rows ? rows : 1;
}

double ha_varve::scan_time()
{
  return ulonglong2double(stats.data_file_length) / stats.block_size;
}

// Ranges of the clustered index cost their part of a scan; of others, a look-up for each row.
double ha_varve::read_time(uint index, uint ranges, ha_rows rows)
{
  if (index != table_share->primary_key)
    return handler::read_time(index, ranges, rows);
  if (rows <= 2)
    return rows2double(rows);
  const double scan= scan_time();
  if (stats.records < rows)
    return scan;
  return ranges + rows2double(rows) / rows2double(stats.records) * scan;
}

void ha_varve::print_error(int error, myf flags)
{
  if (error == HA_ERR_TABLESPACE_MISSING)
    my_error(ER_TABLESPACE_DISCARDED, flags, table_share->table_name.str);
  else
  if (error == m_failure && m_failure_number)
    my_printf_error(m_failure_number, "VARVE: %s", flags, m_failure_words.c_str());
  else
    handler::print_error(error, flags);
}

// Warnings become lines of CHECK TABLE's result.
static void tell_check_error(void *thd, const char *text)
{
  push_warning_printf(static_cast<THD *>(thd), Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "VARVE: %s", text);
}

int ha_varve::check(THD *thd, HA_CHECK_OPT *)
{
  uint64_t rows;
  // A temporary table has no file of its own, whose pages would be looked at first.
  Progress_report progress(thd, Progress_report::OTHER, table_share->tmp_table == NO_TMP_TABLE ? 2 : 1);
  const varve_code code= varve_table_check(m_table, m_txn, tell_check_error, thd, &rows);
  if (code == VARVE_OK)
    return HA_ADMIN_OK;
  if (code == VARVE_CORRUPT)
    return HA_ADMIN_CORRUPT;
  // An error becomes a line of the result as well.
  if (code == VARVE_INTERRUPTED)
    print_error(failed(code), MYF(0));
  else
    tell_check_error(thd, varve_last_error());
  return HA_ADMIN_FAILED;
}

int ha_varve::analyze(THD *thd, HA_CHECK_OPT *)
{
  Progress_report progress(thd, Progress_report::OTHER, 1);
  const Statistics_policy policy= statistics_policy(table_share, m_name);
  varve_table_set_sampling(m_table, policy.sample_pages, nulls_in_keys());
  // OPTIMIZE of a temporary table calls for it between two transactions.
  const varve_txn *txn= m_txn && varve_txn_is_open(m_txn) ? m_txn : nullptr;
  if (varve_code code= varve_table_analyze(m_table, txn))
  {
    print_error(failed(code), MYF(0));
    return HA_ADMIN_FAILED;
  }
  if (policy.is_persistent && store_statistics(m_table, m_name) == Stored::LATER)
    leave_to_keeper(m_name, Task::STORE, 0);
  if (m_statistics)
    m_statistics->changed_rows= 0;
  return info(HA_STATUS_VARIABLE | HA_STATUS_CONST) ? HA_ADMIN_FAILED : HA_ADMIN_OK;
}

int ha_varve::optimize(THD *, HA_CHECK_OPT *)
{
  return HA_ADMIN_TRY_ALTER;
}
