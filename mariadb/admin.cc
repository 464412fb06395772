// admin.cc: what the optimizer and the administrator ask about a table.

#include "ha_varve.h"

#include "engine.h"
#include "error_map.h"

using namespace varve_plugin;

int ha_varve::info(uint flags)
{
  if (flags & (HA_STATUS_VARIABLE | HA_STATUS_AUTO))
  {
    varve_table_stats s;
    if (varve_code code= varve_table_get_stats(m_table, &s))
      return failed(code);
    stats.auto_increment_value= s.auto_increment;
    // The optimizer takes 0 rows for the truth, but this is an estimate. SHOW TABLE STATUS may see it.
    stats.records= s.rows || (flags & HA_STATUS_TIME) ? s.rows : 1;
    stats.deleted= 0;
    // One file holds all indexes; the clustered one is by far the largest in most.
    stats.data_file_length= s.used_bytes;
    stats.index_file_length= 0;
    stats.delete_length= s.free_bytes;
    stats.mean_rec_length= s.rows ? ulong(s.used_bytes / s.rows) : 0;
  }
  if (flags & HA_STATUS_CONST)
    for (uint i= 0; i < table_share->keys; i++)
    {
      // Only what is certain: the optimizer has its own guess for the rest.
      KEY &key= table->key_info[i];
      if (key.flags & HA_NOSAME)
        key.rec_per_key[key.user_defined_key_parts - 1]= 1;
    }
  if (flags & HA_STATUS_ERRKEY)
    errkey= m_duplicate_index;
  return 0;
}

ha_rows ha_varve::records_in_range(uint index, const key_range *low, const key_range *high, page_range *)
{
  varve_value low_values[MAX_REF_PARTS], high_values[MAX_REF_PARTS];
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
  return ulonglong2double(stats.data_file_length) / stats.block_size + 1;
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

// Warnings become lines of CHECK TABLE's result.
static void tell_check_error(void *thd, const char *text)
{
  push_warning_printf(static_cast<THD *>(thd), Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "VARVE: %s", text);
}

int ha_varve::check(THD *thd, HA_CHECK_OPT *)
{
  uint64_t rows;
  const varve_code code= varve_table_check(m_table, tell_check_error, thd, &rows);
  if (code == VARVE_OK)
    return HA_ADMIN_OK;
  if (code == VARVE_CORRUPT)
    return HA_ADMIN_CORRUPT;
  tell_check_error(thd, varve_last_error());
  return HA_ADMIN_FAILED;
}

// There are no statistics to collect yet but those that are always up to date.
int ha_varve::analyze(THD *, HA_CHECK_OPT *)
{
  return info(HA_STATUS_VARIABLE | HA_STATUS_CONST) ? HA_ADMIN_FAILED : HA_ADMIN_OK;
}

int ha_varve::optimize(THD *, HA_CHECK_OPT *)
{
  return HA_ADMIN_TRY_ALTER;
}
