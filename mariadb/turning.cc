// turning.cc: HANDLER turns round where there is no row.
//
// A move beyond the last row or the first, and a search that finds nothing, leave HANDLER between two rows,
// and NEXT and PREV go on from there, as with InnoDB. No other statement moves on from where there is no row,
// so the place is noted for HANDLER alone.

#include "ha_varve.h"

static bool is_handler_statement(const TABLE *table)
{
  return thd_sql_command(table->in_use) == SQLCOM_HA_READ;
}

// A move has found no row: the handler is beyond the last row or before the first.
int ha_varve::moved_beyond(Place place, int error)
{
  if (error == HA_ERR_END_OF_FILE && is_handler_statement(table))
    m_place= place;
  return error;
}

// A search by this key has found no row.
int ha_varve::missed(const uchar *key, key_part_map parts, ha_rkey_function find, int error)
{
  if (error != HA_ERR_KEY_NOT_FOUND || !is_handler_statement(table))
    return error;
  switch (find)
  {
  case HA_READ_KEY_OR_NEXT:
  case HA_READ_AFTER_KEY:
    m_place= AFTER_LAST;
    break;
  case HA_READ_KEY_OR_PREV:
  case HA_READ_PREFIX_LAST_OR_PREV:
  case HA_READ_BEFORE_KEY:
    m_place= BEFORE_FIRST;
    break;
  default:
    stand_behind(key, calculate_key_len(table, active_index, key, parts));
  }
  return error;
}

// No more rows have this key.
int ha_varve::no_more(const uchar *key, uint length, int error)
{
  if (error == HA_ERR_END_OF_FILE && is_handler_statement(table))
    stand_behind(key, length);
  return error;
}

void ha_varve::stand_behind(const uchar *key, uint length)
{
  m_place= BEHIND_KEY;
  m_missed_key.assign(key, key + length);
}

// NEXT from where there is no row.
int ha_varve::next_from_place(uchar *buf)
{
  switch (m_place)
  {
  case BEFORE_FIRST:
    return index_first(buf);
  case BEHIND_KEY:
    return from_missed_key(buf, HA_READ_AFTER_KEY);
  default:
    return HA_ERR_END_OF_FILE;
  }
}

int ha_varve::prev_from_place(uchar *buf)
{
  switch (m_place)
  {
  case AFTER_LAST:
    return index_last(buf);
  case BEHIND_KEY:
    return from_missed_key(buf, HA_READ_KEY_OR_PREV);
  default:
    return HA_ERR_END_OF_FILE;
  }
}

int ha_varve::from_missed_key(uchar *buf, ha_rkey_function find)
{
  const KEY &index= table->key_info[active_index];
  key_part_map parts= 0;
  size_t length= 0;
  for (uint i= 0; length < m_missed_key.size(); i++)
  {
    length+= index.key_part[i].store_length;
    parts= parts << 1 | 1;
  }
  const int error= index_read_map(buf, m_missed_key.data(), parts, find);
  return error == HA_ERR_KEY_NOT_FOUND ? HA_ERR_END_OF_FILE : error;
}
