// pushdown.cc: index condition pushdown, filters by row ids, and multi-range reads.
//
// Index conditions: the part of a WHERE clause that needs nothing but an index's columns is asked about each
// entry, on a copy and without any latch, before its row is locked or fetched. An entry whose condition is
// false is passed over, and its row stays unlocked: a transaction that gives the row a key that fits has to
// make a new entry.
//
// Where an entry can't give the values (a text in none of the forms that entries tell, a floating-point zero)
// it is asked about the row, after that was locked or fetched.
//
// Filters by row ids: the server has read another index's range and knows the positions of the rows that are
// worth a look. A secondary entry names its row, so it is asked for that, too, behind the condition. Searches
// of the clustered index, where the row is at hand, ask neither.
//
// Multi-range reads are the server's own: it sorts keys or positions and calls the handler. While it collects
// positions it reads keys only, with a second handler on the same table.

#include "ha_varve.h"

#include "rowid_filter.h"

using namespace varve_plugin;

// A second handler of the same statement, for index merge and multi-range reads: it has cursors of its own,
// and locks as this one does.
handler *ha_varve::clone(const char *, MEM_ROOT *mem_root)
{
  // A partition's handler may be asked by the name of the whole table.
  auto copy= static_cast<ha_varve *>(handler::clone(m_name.c_str(), mem_root));
  if (copy)
  {
    copy->m_lock= m_lock;
    copy->m_stored_lock= m_stored_lock;
  }
  return copy;
}

// Returns what of the condition the server has to check itself: all or nothing. The server takes every column
// of the primary key for part of every index, but some can't be had from keys.
Item *ha_varve::idx_cond_push(uint index, Item *condition)
{
  const uint number= engine_index(index);
  Index &pushed= m_indexes[number];
  if (open_index(number))
    return condition;
  List<Item_field> items;
  condition->walk(&Item::collect_item_field_processor, false, &items);
  my_bitmap_map words[bitmap_buffer_size(MAX_FIELDS) / sizeof(my_bitmap_map)];
  MY_BITMAP fields;
  my_bitmap_init(&fields, words, table_share->fields);
  List_iterator_fast<Item_field> it(items);
  while (const Item_field *item= it++)
    if (item->field->table == table)
      bitmap_set_bit(&fields, item->field->field_index);
  if (!bitmap_is_subset(&fields, &pushed.covered))
    return condition;
  pushed.asked.choose(m_row_plan, &fields);
  // The next search tells the cursor what it looks at.
  ask_about_entries(pushed, false);
  pushed_idx_cond= condition;
  pushed_idx_cond_keyno= index;
  return nullptr;
}

// The server fills the filter before the search that it is for, with positions that this handler gave.
bool ha_varve::rowid_filter_push(Rowid_filter *filter)
{
  pushed_rowid_filter= filter;
  return false;
}

// Tells an index's cursor whether entries are asked about, and what is looked at.
void ha_varve::ask_about_entries(Index &index, bool asks)
{
  if (asks == index.has_filter)
    return;
  const std::vector<uint8_t> &asked= index.asked.flags();
  varve_cursor_set_filter(index.cursor, asks ? ask_about_entry : nullptr, this, asked.data(),
                          uint32_t(asked.size()));
  index.has_filter= asks;
}

varve_verdict ha_varve::ask_about_entry(void *handler, const varve_value *row, const uint8_t *position,
                                        uint32_t length)
{
  ha_varve *h= static_cast<ha_varve *>(handler);
  if (thd_kill_level(h->table->in_use) > THD_ABORT_SOFTLY)
    return VARVE_INTERRUPT;
  if (!h->fits_index_condition(row))
    return VARVE_UNWANTED;
  if (!h->pushed_rowid_filter || !h->rowid_filter_is_active)
    return VARVE_WANTED;
  h->set_position(position, length);
  return h->pushed_rowid_filter->check(reinterpret_cast<char *>(h->ref)) ? VARVE_WANTED : VARVE_UNWANTED;
}

bool ha_varve::fits_index_condition(const varve_value *row)
{
  if (!pushed_idx_cond || pushed_idx_cond_keyno != active_index)
    return true;
  THD *thd= table->in_use;
  m_index->asked.to_record(row, table->record[0]);
  status_var_increment(thd->status_var.ha_icp_attempts);
  if (!pushed_idx_cond->val_bool())
    return false;
  status_var_increment(thd->status_var.ha_icp_match);
  return true;
}

int ha_varve::multi_range_read_init(RANGE_SEQ_IF *seq, void *param, uint n_ranges, uint mode,
                                    HANDLER_BUFFER *buffer)
{
  return m_mrr.dsmrr_init(this, seq, param, n_ranges, mode, buffer);
}

int ha_varve::multi_range_read_next(range_id_t *range)
{
  return m_mrr.dsmrr_next(range);
}

ha_rows ha_varve::multi_range_read_info_const(uint index, RANGE_SEQ_IF *seq, void *param, uint n_ranges,
                                              uint *buffer_size, uint *flags, Cost_estimate *cost)
{
  m_mrr.init(this, table);
  return m_mrr.dsmrr_info_const(index, seq, param, n_ranges, buffer_size, flags, cost);
}

ha_rows ha_varve::multi_range_read_info(uint index, uint n_ranges, uint keys, uint key_parts,
                                        uint *buffer_size,
                                        uint *flags, Cost_estimate *cost)
{
  m_mrr.init(this, table);
  return m_mrr.dsmrr_info(index, n_ranges, keys, key_parts, buffer_size, flags, cost);
}

int ha_varve::multi_range_read_explain_info(uint mode, char *text, size_t size)
{
  return m_mrr.dsmrr_explain_info(mode, text, size);
}
