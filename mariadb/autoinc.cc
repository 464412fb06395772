// autoinc.cc: values of the AUTO_INCREMENT counter, drawn and used up as InnoDB does (docs/isolation.md), and
// those of a column that is new.

#include "ha_varve.h"

#include "error_map.h"
#include "numbers.h"
#include "sysvars.h"

#include <algorithm>

using namespace varve_plugin;

// Whether the value of a row moves the counter: not below zero, nor where a floating-point type has not all
// integers.
static bool moves_counter(Field *counted, ulonglong *value)
{
  const longlong number= counted->val_int();
  *value= ulonglong(number);
  return (number > 0 || (counted->flags & UNSIGNED_FLAG)) && *value <= counted->get_max_int_value();
}

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
  ulonglong value;
  if (moves_counter(counted, &value))
    varve_table_raise_auto_increment(m_table, value + 1);
}

// The first number beyond `value` that is `offset` modulo `step`; the greatest number if there is none.
static ulonglong next_of(ulonglong value, ulonglong step, ulonglong offset)
{
  const ulonglong beyond= (value % step + step - offset % step) % step;
  return step - beyond < ~0ULL - value ? value + (step - beyond) : ~0ULL;
}

// A row is there: the counter moves on by the step that values were asked for last, as in InnoDB. Where that
// is one, the engine has moved it.
void ha_varve::count_written(const uchar *record)
{
  Field *const counted= table->next_number_field;
  if (m_counter_step <= 1 || !counted)
    return;
  const my_ptrdiff_t place= record - table->record[0];
  counted->move_field_offset(place);
  ulonglong value;
  const bool moves= moves_counter(counted, &value);
  counted->move_field_offset(-place);
  if (moves)
    varve_table_raise_auto_increment(m_table, next_of(value, m_counter_step, m_counter_offset));
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
  case SQLCOM_UPDATE:  // a row that a client of memcached makes
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
  m_counter_step= increment;
  m_counter_offset= offset;
  *first= ~0ULL;
  if (m_rows_to_keep && m_may_load && !m_rows_known && m_kept_states.empty() && only_primary_is_unique())
  {
    forget_kept_rows();
    m_wants_order= true;
  }
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
  const ulonglong beyond= (at % increment + increment - offset % increment) % increment;
  const ulonglong up= beyond ? increment - beyond : 0;
  // The greatest number says that there is none. Where it follows, the server rounds up itself, and tells.
  *first= up < ~0ULL - at ? at + up : at;
  *reserved= wanted;
  // Whoever counts by another step goes on behind all of them.
  if (used_up && increment > 1 && *first < ~0ULL - used_up)
    varve_table_raise_auto_increment(m_table, *first + used_up);
}

void Numbers::begin(const THD *thd, const Field *column, ulonglong least)
{
  m_greatest= column->get_max_int_value();
  m_step= thd->variables.auto_increment_increment;
  m_offset= thd->variables.auto_increment_offset;
  const bool is_plain= m_step <= 1 && m_offset <= 1;
  // An offset beyond the step counts for nothing.
  if (m_offset > m_step)
    m_offset= 0;
  if (is_plain)
    m_next= std::max(least, 1ULL);
  else if (least < m_offset)
    // As InnoDB in an ALTER TABLE: the first number is not the offset itself, but a step or two behind.
    m_next= m_offset + m_step * (1 + (m_offset - least) / m_step);
  else
    m_next= next_of(least, m_step, m_offset);
  // The first row finds none; without one the counter is as it was said.
  m_are_used_up= least > m_greatest;
  m_next= m_are_used_up ? least : std::min(m_greatest, m_next);
}

bool Numbers::give(Field *column)
{
  if (m_are_used_up)
  {
    my_error(ER_AUTOINC_READ_FAILED, MYF(0));
    return false;
  }
  column->store(longlong(m_next), true);
  const ulonglong following= std::min(m_greatest, next_of(m_next, m_step, m_offset));
  m_are_used_up= following == m_next;
  m_next= following;
  return true;
}
