// autoinc.cc: values of the AUTO_INCREMENT counter, drawn and used up as InnoDB does (docs/isolation.md).

#include "ha_varve.h"

#include "error_map.h"
#include "sysvars.h"

using namespace varve_plugin;

// INSERT ... SELECT and REPLACE move the counter past the value of a row that is a duplicate, as InnoDB does.
// (INSERT doesn't.)
void ha_varve::count_refused()
{
  Field *const counted= table->next_number_field;
  if (!counted)
    return;
  switch (thd_sql_command(ha_thd()))
  {
  case SQLCOM_INSERT_SELECT:
  case SQLCOM_REPLACE:
  case SQLCOM_REPLACE_SELECT:
    break;
  default:
    return;
  }
  const longlong value= counted->val_int();
  if (value > 0 || (counted->flags & UNSIGNED_FLAG))
    varve_table_raise_auto_increment(m_table, ulonglong(value) + 1);
}

// How the statement draws values of the counter: varve_autoinc_lock_mode, as InnoDB reads its own.
static varve_auto_increment_lock counter_lock(THD *thd)
{
  switch (autoinc_lock_mode())
  {
  case 0:
    return VARVE_COUNTER_LOCKED;
  case 2:
    return VARVE_COUNTER_NOT_LOCKED;
  default:
    break;
  }
  switch (thd_sql_command(thd))
  {
  case SQLCOM_INSERT:
  case SQLCOM_REPLACE:
  case SQLCOM_END:  // a row event from a replication source
    return VARVE_COUNTER_AFTER_OTHERS;
  default:
    return VARVE_COUNTER_LOCKED;
  }
}

// The server wants `wanted` values that are `offset` modulo `increment`. Of as many consecutive ones as are
// taken here, just so many are.
void ha_varve::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                                  ulonglong *reserved)
{
  if (increment <= 1)
    increment= offset= 1;
  *first= ~0ULL;
  // Rows with a value of their own have not moved the counter yet.
  if ((m_counter_failure= insert_kept_rows()))
    return;
  // The server knows at its first call how many rows there are, if ever: the first values were for all of
  // them, the next are for those that are left.
  if (!m_rows_to_number)
    m_rows_to_number= wanted;
  wanted= m_rows_to_number;
  // Where every statement locks the counter, it moves when a row is there: one that fails uses none up, as in
  // InnoDB. So it does in the copy that ALTER TABLE makes, which nobody else has; rows of the past get no
  // value.
  const bool is_alone= autoinc_lock_mode() == 0 || thd_sql_command(ha_thd()) == SQLCOM_ALTER_TABLE;
  const ulonglong used_up= is_alone ? 0 : wanted * increment;
  uint64_t at;
  if (varve_code code= varve_auto_increment_reserve(m_txn, m_table, used_up, counter_lock(ha_thd()), &at))
  {
    m_counter_failure= failed(code);
    return;
  }
  const ulonglong beyond= (at + increment - offset % increment) % increment;
  *first= beyond ? at + (increment - beyond) : at;
  *reserved= wanted;
}
