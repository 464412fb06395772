// handler.cc: opening a table, reading and writing its rows.

#include "ha_varve.h"

#include "engine.h"
#include "error_map.h"
#include "foreign.h"
#include "sysvars.h"

#include <algorithm>

using namespace varve_plugin;

// A position (handler::ref) is the engine's, filled up with zeros, and its length in the last two bytes.
// Engine positions are never the start of one another, so memcmp orders these as it does those.
static const uint POSITION_LENGTH_BYTES= 2;

ha_varve::ha_varve(handlerton *hton, TABLE_SHARE *share)
  : handler(hton, share), m_table(nullptr), m_index(nullptr), m_range_begin(nullptr), m_range_end(nullptr),
    m_position_cursor(nullptr), m_current(nullptr), m_row(nullptr), m_reads_ahead(false),
    m_ahead_by(nullptr), m_ahead(0), m_passed(0), m_mrr(),
    m_txn(nullptr), m_own_txn(nullptr), m_lock(VARVE_NO_LOCK), m_stored_lock(VARVE_NO_LOCK),
        m_skip_locked(false),
    m_semi_consistent(false), m_scan_starts(false), m_change_duplicates(false), m_keys_only(false),
        m_failure(0), m_failure_number(0),
    m_counter_failure(0)
{
}

handler::Table_flags ha_varve::table_flags() const
{
  Table_flags flags= HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS |
                     HA_CAN_SQL_HANDLER | HA_TABLE_SCAN_ON_INDEX | HA_PRIMARY_KEY_IN_READ_INDEX |
                     HA_CAN_VIRTUAL_COLUMNS | HA_CAN_GEOMETRY | HA_CAN_SKIP_LOCKED | HA_CAN_EXPORT |
                     HA_CAN_TABLES_WITHOUT_ROLLBACK | HA_CAN_ONLINE_BACKUPS | HA_BINLOG_ROW_CAPABLE;
  // Where gaps are not locked a statement's effect depends on more than its place in the binary log.
  THD *thd= current_thd;
  if (!thd || thd_tx_isolation(thd) > ISO_READ_COMMITTED)
    flags|= HA_BINLOG_STMT_CAPABLE;
  return flags;
}

// The engine's clustered index is number 0; the server's primary key is usually, but not always, its first.
uint ha_varve::engine_index(uint index) const
{
  const uint primary= table_share->primary_key;
  if (index == primary)
    return 0;
  return index < primary ? index + 1 : index;
}

uint ha_varve::server_index(uint engine_index) const
{
  for (uint i= 0; i < table_share->keys; i++)
    if (this->engine_index(i) == engine_index)
      return i;
  return MAX_KEY;
}

int ha_varve::open(const char *name, int, uint)
{
  m_name= table_name(name);
  if (!m_row_plan.build(table))
    return HA_ERR_TABLE_DEF_CHANGED;
  if (int error= open_table())
    return error == HA_ERR_TABLESPACE_MISSING ? open_discarded() : error;
  if (varve_table_n_columns(m_table) != m_row_plan.size() ||
      varve_table_n_indexes(m_table) + (table_share->primary_key != MAX_KEY) != table_share->keys)
  {
    close_table();
    // The server would look for a newer definition elsewhere, and say that there is no such table.
    my_printf_error(ER_GET_ERRMSG, "VARVE: the .frm file of %s is not that of the table in the engine", MYF(0), name);
    return HA_ERR_GENERIC;
  }
  m_values.resize(m_row_plan.size());
  m_key_plans.resize(table_share->keys);
  const KEY *primary= table_share->primary_key == MAX_KEY ? nullptr
                                                                   : &table->key_info[table_share->primary_key];
  for (uint i= 0; i < table_share->keys; i++)
    m_key_plans[i].build(&table->key_info[i], primary);
  ref_length= varve_table_max_position(m_table) + POSITION_LENGTH_BYTES;
  // Or an UPDATE that moves rows of the clustered index would meet them again further on.
  key_used_on_scan= table_share->primary_key;
  stats.mrr_length_per_rec= ref_length + sizeof(range_id_t);
  m_mrr.init(this, table);
  fetch_estimates();
  return info(HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_OPEN);
}

int ha_varve::open_table()
{
  follow_table_definition_cache();
  if (varve_code code= varve_table_open(db, m_name.c_str(), &m_table))
  {
    m_table= nullptr;
    // DISCARD TABLESPACE can do without its file.
    m_is_unusable= code == VARVE_CORRUPT && thd_tablespace_op(ha_thd());
    return m_is_unusable ? HA_ERR_TABLESPACE_MISSING : report(ha_thd(), code);
  }
  m_indexes.resize(varve_table_n_indexes(m_table) + 1);
  return 0;
}

void ha_varve::close_table()
{
  abort_copy();
  std::vector<uchar>().swap(m_duplicate);
  for (Index &index : m_indexes)
    if (index.cursor)
    {
      varve_cursor_close(index.cursor);
      my_bitmap_free(&index.covered);
      my_bitmap_free(&index.uncovered);
    }
  m_indexes.clear();
  m_index= nullptr;
  if (m_position_cursor)
    varve_cursor_close(m_position_cursor);
  m_position_cursor= m_current= nullptr;
  m_position_wanted= Wanted_columns();
  m_row= nullptr;
  if (m_table)
    varve_table_close(m_table);
  m_table= nullptr;
}

int ha_varve::close()
{
  end_export();
  close_table();
  close_own();
  return 0;
}

// Remembers what a failed call was about, for print_error and info, and translates its code.
int ha_varve::failed(varve_code code)
{
  m_failure_number= own_words(code);
  m_failure_words.clear();
  if (m_failure_number)
    m_failure_words= varve_last_error();
  else if (code == VARVE_NO_REFERENCED_ROW || code == VARVE_ROW_IS_REFERENCED ||
           code == VARVE_CASCADE_TOO_DEEP)
  {
    const std::string what= varve_last_error();
    const Constraint_words words= last_constraint(ha_thd());
    if (words.table.empty())
      note_foreign_error(ha_thd(), what);
    else
    {
      note_refused_row(ha_thd(), what, words);
      m_failure_words= words.table + ", " + words.constraint;
    }
  }
  else if (code == VARVE_FOREIGN_DUPLICATE_KEY)
    m_failure_words= last_child_index();
  if (code == VARVE_CASCADE_TOO_DEEP)
    push_warning(ha_thd(), Sql_condition::WARN_LEVEL_WARN, HA_ERR_ROW_IS_REFERENCED,
                 "VARVE: Cannot delete/update rows with cascading foreign key constraints that exceed max depth "
                 "of 15. Please drop extra constraints and try again");
  return m_failure= to_handler_code(ha_thd(), code);
}

/* Statements */

// Whether a statement that reads a table to write elsewhere may read it as of its own view: only if it does
// not promise the statement's repeatability from the binary log.
static bool reads_without_lock(THD *thd, enum thr_lock_type type)
{
  if (thd_tx_isolation(thd) > ISO_READ_COMMITTED || (type != TL_READ && type != TL_READ_NO_INSERT))
    return false;
  switch (thd_sql_command(thd))
  {
  case SQLCOM_INSERT_SELECT:
  case SQLCOM_REPLACE_SELECT:
  case SQLCOM_UPDATE:
  case SQLCOM_CREATE_TABLE:
    return true;
  default:
    return false;
  }
}

// Whether a statement copies the whole table while its metadata lock keeps writers out: the view that it
// opens under that lock sees the newest rows, and row locks would cost memory for each of them.
static bool copies_table(int command)
{
  switch (command)
  {
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR:
    return true;
  default:
    return false;
  }
}

// Decides how the coming statement reads this table, as InnoDB does: a plain SELECT reads its view, whatever
// reads in order to write locks what it reads. What is written is locked exclusively, as external_lock will
// learn.
THR_LOCK_DATA **ha_varve::store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type type)
{
  if (type == TL_IGNORE)
    return to;
  m_skip_locked= type == TL_READ_SKIP_LOCKED || type == TL_WRITE_SKIP_LOCKED;
  const int command= thd_sql_command(thd);
  const bool plain= command == SQLCOM_SELECT && type != TL_READ_WITH_SHARED_LOCKS &&
                    type != TL_READ_SKIP_LOCKED && type != TL_READ_NO_INSERT &&
                    !(thd_in_lock_tables(thd) && (type == TL_READ || type == TL_READ_HIGH_PRIORITY));
  // CHECK TABLE, with its own view, would keep rows locked while it waits for the next partition's writers.
  const bool looks= command == SQLCOM_CHECKSUM || command == SQLCOM_ANALYZE || command == SQLCOM_CHECK;
  if (plain || looks || reads_without_lock(thd, type) || copies_table(command) ||
      command == SQLCOM_DROP_TABLE)
    m_stored_lock= VARVE_NO_LOCK;
  else
    m_stored_lock= m_skip_locked ? VARVE_SHARED_SKIP_LOCKED : VARVE_SHARED;
  m_lock= m_stored_lock;
  return to;
}

int ha_varve::begin(THD *thd)
{
  m_told= Told::NOTHING;
  if (m_is_discarded)
    return begin_discarded(thd);
  // TRUNCATE could not open it again.
  if (!m_table)
    if (int error= open_table())
      return error;
  if (table_share->sequence)
  {
    m_unannounced= false;
    return begin_own(thd);
  }
  Session *session= Session::of(thd);
  if (!session)
    return HA_ERR_INTERNAL_ERROR;
  m_txn= session->txn();
  if (int error= session->start_statement(thd))
    return error;
  if (m_lock == VARVE_NO_LOCK && copies_table(thd_sql_command(thd)))
    // What others have prepared would not be copied.
    return session->wait_for_writers(thd, m_table);
  return 0;
}

int ha_varve::external_lock(THD *thd, int type)
{
  if (type == F_UNLCK)
  {
    // The statement's end comes with its commit or rollback, but a sequence has none of these.
    leave_own();
    note_changes();
    end_export();
    count_use(thd, Use::NONE);
    return 0;
  }
  if (type == F_WRLCK)
    m_lock= m_stored_lock= m_skip_locked ? VARVE_EXCLUSIVE_SKIP_LOCKED : VARVE_EXCLUSIVE;
  const int error= begin(thd);
  if (!error)
    count_use(thd, m_lock == VARVE_NO_LOCK ? Use::READS : Use::LOCKS);
  // FLUSH TABLES of tables that LOCK TABLES has locked opens them anew, to write.
  const bool exports= thd_sql_command(thd) == SQLCOM_FLUSH && type == F_RDLCK;
  return error || !exports ? error : begin_export(thd);
}

// A statement under LOCK TABLES, or within a stored function or trigger: external_lock was called once for
// all of them. Not so for a temporary table, which none of these locks: what its handler remembers is another
// statement's, if anybody's.
int ha_varve::start_stmt(THD *thd, thr_lock_type type)
{
  if (table_share->tmp_table != NO_TMP_TABLE)
    m_lock= m_stored_lock= type < TL_FIRST_WRITE ? VARVE_NO_LOCK : VARVE_EXCLUSIVE;
  else if (thd_sql_command(thd) == SQLCOM_SELECT && type == TL_READ)
    m_lock= VARVE_NO_LOCK;
  else
    m_lock= m_stored_lock;
  return begin(thd);
}

int ha_varve::reset()
{
  m_mrr.dsmrr_close();
  m_change_duplicates= m_keys_only= m_semi_consistent= false;
  forget_kept_rows();
  m_kept_blobs.clear();
  abort_copy();
  m_range_begin= m_range_end= nullptr;
  m_current= nullptr;
  m_row= nullptr;
  m_failure= 0;
  m_failure_number= 0;
  m_rows_to_number= 0;
  forget_ahead();
  release_values();
  return 0;
}

// A handler may wait in the table cache for long: it must not keep a row of many megabytes.
void ha_varve::release_values()
{
  if (m_row_plan.long_columns().empty())
    return;
  for (const Index &index : m_indexes)
    if (index.cursor)
      varve_cursor_release_values(index.cursor);
  if (m_position_cursor)
    varve_cursor_release_values(m_position_cursor);
}

int ha_varve::extra(enum ha_extra_function operation)
{
  switch (operation)
  {
  case HA_EXTRA_WRITE_CAN_REPLACE:
  case HA_EXTRA_INSERT_WITH_UPDATE:
    m_change_duplicates= true;
    break;
  case HA_EXTRA_WRITE_CANNOT_REPLACE:
    m_change_duplicates= false;
    break;
  case HA_EXTRA_KEYREAD:
    m_keys_only= true;
    break;
  case HA_EXTRA_NO_KEYREAD:
    m_keys_only= false;
    break;
  default:
    return heed_copy(operation);
  }
  return 0;
}

/* Reading */

// Opens an index's cursor, unless it is open.
int ha_varve::open_index(uint engine_index)
{
  // OPTIMIZE TABLE that copies rows is let so far.
  if (m_is_discarded)
    return m_failure= HA_ERR_TABLESPACE_MISSING;
  Index &index= m_indexes[engine_index];
  if (index.cursor)
    return 0;
  if (varve_code code= varve_cursor_open(m_table, engine_index, &index.cursor))
    return failed(code);
  my_bitmap_init(&index.covered, nullptr, table_share->fields);
  my_bitmap_init(&index.uncovered, nullptr, table_share->fields);
  for (const Column &column : m_row_plan.columns())
  {
    if (varve_cursor_covers(index.cursor, column.number))
      bitmap_set_bit(&index.covered, column.field_index);
  }
  for (uint number : {server_index(engine_index), table_share->primary_key})
    for (uint part= 0; number != MAX_KEY && part < table->key_info[number].user_defined_key_parts; part++)
      bitmap_set_bit(&index.uncovered, table->key_info[number].key_part[part].fieldnr - 1);
  bitmap_subtract(&index.uncovered, &index.covered);
  index.keys_suffice= index.has_begin= index.has_end= index.has_filter= false;
  return 0;
}

// Makes an index's cursor the current one.
int ha_varve::use_index(uint engine_index)
{
  if (int error= open_index(engine_index))
    return error;
  m_index= &m_indexes[engine_index];
  m_current= m_index->cursor;
  forget_ahead();
  m_range_begin= m_range_end= nullptr;
  return 0;
}

// Whether the server wants nothing but what the index's keys give. While it reads keys only, it looks at no
// columns but those of the index and of the primary key, whatever else the statement reads. A multi-range
// read says so by `extra` alone: the server goes on computing virtual columns then, for which it needs
// others.
bool ha_varve::keys_give_all(const Index &index)
{
  if (bitmap_is_subset(table->read_set, &index.covered))
    return true;
  return (keyread_enabled() || (m_keys_only && !table->vfield)) &&
         !bitmap_is_overlapping(table->read_set, &index.uncovered);
}

// The columns that a read must give; null: all. A row that may be written back is needed whole.
const MY_BITMAP *ha_varve::wanted_columns() const
{
  return m_lock == VARVE_NO_LOCK ? table->read_set : nullptr;
}

// Tells the cursor before a search where it ends, and whether it must fetch rows for the index's entries, and
// which of their external values.
int ha_varve::start_search()
{
  Index &index= *m_index;
  forget_ahead();
  m_place= AT_ROW;
  // HANDLER goes on in later statements and transactions: what is read then is theirs.
  m_reads_ahead= m_lock == VARVE_NO_LOCK && thd_sql_command(table->in_use) != SQLCOM_HA_READ;
  const bool suffice= &index != &m_indexes[0] && m_lock == VARVE_NO_LOCK && keys_give_all(index);
  // What is wanted may change while keys are read, as long as keys give it.
  index.gives_covered= suffice && !bitmap_is_subset(table->read_set, &index.covered);
  index.wanted.tell(index.cursor, m_row_plan, index.gives_covered ? &index.covered : wanted_columns());
  if (suffice != index.keys_suffice)
    varve_cursor_set_keys_suffice(index.cursor, index.keys_suffice= suffice);
  const bool filter= (pushed_idx_cond && pushed_idx_cond_keyno == active_index) ||
                     (pushed_rowid_filter && rowid_filter_is_active);
  ask_about_entries(index, filter);
  const key_range *begin= m_range_begin, *end= m_range_end;
  m_range_begin= m_range_end= nullptr;
  if (begin || index.has_begin)
    if (int error= set_limit(varve_cursor_set_begin, begin, begin && begin->flag != HA_READ_AFTER_KEY))
      return error;
  if (end || index.has_end)
    if (int error= set_limit(varve_cursor_set_end, end, end && end->flag != HA_READ_BEFORE_KEY))
      return error;
  index.has_begin= begin;
  index.has_end= end;
  return 0;
}

// Sets one of the two limits of the current cursor's searches; null lifts it.
int ha_varve::set_limit(decltype(varve_cursor_set_end) *set, const key_range *limit, bool inclusive)
{
  varve_value values[MAX_SEARCH_VALUES];
  varve_bound bound{values, 0, inclusive};
  if (limit)
    bound.n= m_key_plans[active_index].to_values(limit->key, limit->keypart_map, values);
  const varve_code code= set(m_current, m_txn, limit ? &bound : nullptr);
  return code ? failed(code) : 0;
}

// Ends a read: puts the row into `buf`, or gives `none` if there was none.
inline int ha_varve::fetched(varve_code code, uchar *buf, int none)
{
  if (code == VARVE_NO_ROW)
    return none;
  if (code != VARVE_OK)
    return failed(code);
  return give(buf);
}

// Puts m_row into `buf`.
inline int ha_varve::give(uchar *buf)
{
  if (!m_index)
    m_position_wanted.to_record(m_row, buf);
  else if (m_index->wanted.suffice(m_row_plan, table->read_set) ||
           (m_index->gives_covered && keys_give_all(*m_index)))
    m_index->wanted.to_record(m_row, buf);
  else
    return fetch_whole(buf);
  return 0;
}

// The server has come to want more columns in the middle of a search that was to need only some.
int ha_varve::fetch_whole(uchar *buf)
{
  varve_cursor *const searching= m_current;
  Index *const index= m_index;
  position(nullptr);
  const int error= rnd_pos(buf, ref);
  m_current= searching;
  m_index= index;
  return error;
}

int ha_varve::index_init(uint index, bool)
{
  active_index= index;
  return use_index(engine_index(index));
}

int ha_varve::index_end()
{
  active_index= MAX_KEY;
  m_mrr.dsmrr_close();
  return 0;
}

static bool engine_match(enum ha_rkey_function find, varve_match *match)
{
  switch (find)
  {
  case HA_READ_KEY_EXACT:          *match= VARVE_EXACT; return true;
  case HA_READ_KEY_OR_NEXT:        *match= VARVE_AT_LEAST; return true;
  case HA_READ_AFTER_KEY:          *match= VARVE_AFTER; return true;
  case HA_READ_KEY_OR_PREV:
  case HA_READ_PREFIX_LAST_OR_PREV: *match= VARVE_AT_MOST; return true;
  case HA_READ_BEFORE_KEY:         *match= VARVE_BEFORE; return true;
  case HA_READ_PREFIX:             *match= VARVE_EXACT; return true;
  case HA_READ_PREFIX_LAST:        *match= VARVE_EXACT_LAST; return true;
  default:                         return false;  // The spatial ones.
  }
}

// Whether this search looks for duplicates of a row that is about to be written in a UNIQUE key too long for
// an index. The server keeps such keys itself, by an index on a hash of their columns. The hash is locked, or
// two connections could write duplicates at once; a table that no other connection sees yet needs no locks.
inline bool ha_varve::checks_hash(enum ha_rkey_function find) const
{
  return table->key_info[active_index].algorithm == HA_KEY_ALG_LONG_HASH && m_lock == VARVE_EXCLUSIVE &&
         find == HA_READ_KEY_EXACT && !copies_table(thd_sql_command(table->in_use));
}

int ha_varve::index_read_map(uchar *buf, const uchar *key, key_part_map parts, enum ha_rkey_function find)
{
  if (!key)
    return index_first(buf);
  varve_match match;
  if (!engine_match(find, &match))
    return HA_ERR_WRONG_COMMAND;
  varve_value values[MAX_SEARCH_VALUES];
  const uint n= m_key_plans[active_index].to_values(key, parts, values);
  if (checks_hash(find))
    if (varve_code code= varve_lock_key(m_txn, m_table, engine_index(active_index), values, n))
      return failed(code);
  if (int error= start_search())
    return error;
  const int error= fetched(varve_cursor_seek(m_current, m_txn, values, n, match, scan_lock(), &m_row), buf,
                           HA_ERR_KEY_NOT_FOUND);
  return error ? missed(key, parts, find, error) : 0;
}

int ha_varve::index_read_last_map(uchar *buf, const uchar *key, key_part_map parts)
{
  return index_read_map(buf, key, parts, HA_READ_PREFIX_LAST);
}

// The next row: one that the cursor has given already, if there is any, else as many as it has at hand.
inline int ha_varve::next(decltype(varve_cursor_next_rows) *rows, decltype(varve_cursor_next) *row,
                          uchar *buf)
{
  if (!m_reads_ahead)
    return fetched(row(m_current, m_txn, &m_row), buf, HA_ERR_END_OF_FILE);
  if (m_ahead && m_ahead_by == rows)
  {
    m_ahead--;
    m_passed++;
    m_row+= m_row_plan.size();
    return give(buf);
  }
  uint32_t n= 1;
  const varve_code code= rows(m_current, m_txn, m_passed, &m_row, &n);
  forget_ahead();
  m_ahead= n - 1;
  m_ahead_by= rows;
  return fetched(code, buf, HA_ERR_END_OF_FILE);
}

// Moves the cursor to the row that the server was given last. A statement that does so once does it again:
// the search goes on row by row.
int ha_varve::settle()
{
  m_reads_ahead= false;
  const uint32_t passed= m_passed;
  forget_ahead();
  if (!passed)
    return 0;
  const varve_code code= varve_cursor_pass(m_current, m_txn, passed);
  return code ? failed(code) : 0;
}

int ha_varve::index_next(uchar *buf)
{
  if (m_place != AT_ROW)
    return next_from_place(buf);
  const int error= next(varve_cursor_next_rows, varve_cursor_next, buf);
  return error ? moved_beyond(AFTER_LAST, error) : 0;
}

// `key` is the one of the index_read_map before, which the cursor remembers.
int ha_varve::index_next_same(uchar *buf, const uchar *key, uint length)
{
  const int error= next(varve_cursor_next_same_rows, varve_cursor_next_same, buf);
  return error ? no_more(key, length, error) : 0;
}

int ha_varve::index_prev(uchar *buf)
{
  if (m_place != AT_ROW)
    return prev_from_place(buf);
  if (int error= settle())
    return error;
  const int error= fetched(varve_cursor_prev(m_current, m_txn, &m_row), buf, HA_ERR_END_OF_FILE);
  return error ? moved_beyond(BEFORE_FIRST, error) : 0;
}

int ha_varve::index_first(uchar *buf)
{
  if (int error= start_search())
    return error;
  return fetched(varve_cursor_first(m_current, m_txn, scan_lock(), &m_row), buf, HA_ERR_END_OF_FILE);
}

int ha_varve::index_last(uchar *buf)
{
  const bool is_limited= m_range_begin;
  if (int error= start_search())
    return error;
  const int error= fetched(varve_cursor_last(m_current, m_txn, scan_lock(), &m_row), buf, HA_ERR_END_OF_FILE);
  if (error != HA_ERR_END_OF_FILE || !is_limited)
    return error;
  // QUICK_SELECT_DESC takes that for an empty table and looks into no other range: it gets the last row, and
  // sees itself that this is before the range.
  if (int other= start_search())
    return other;
  return fetched(varve_cursor_last(m_current, m_txn, scan_lock(), &m_row), buf, HA_ERR_END_OF_FILE);
}

// A range: the cursor gets its end, so that it neither locks nor gives a row beyond, and nobody else need
// look. Equal keys end by themselves.
int ha_varve::read_range_first(const key_range *start, const key_range *end, bool is_equal, bool sorted)
{
  if (is_equal)
    return handler::read_range_first(start, end, is_equal, sorted);
  eq_range= false;
  set_end_range(end);
  range_key_part= table->key_info[active_index].key_part;
  m_range_end= end;
  uchar *const record= table->record[0];
  const int error= start ? ha_index_read_map(record, start->key, start->keypart_map, start->flag)
      : ha_index_first(record);
  return error == HA_ERR_KEY_NOT_FOUND ? HA_ERR_END_OF_FILE : error;
}

int ha_varve::read_range_next()
{
  return eq_range ? handler::read_range_next() : ha_index_next(table->record[0]);
}

// A range that is about to be searched backward.
int ha_varve::prepare_range_scan(const key_range *begin, const key_range *end)
{
  m_range_begin= begin;
  m_range_end= end;
  return 0;
}

// The index that has the rows is the active one: performance_schema counts for it what changes a row that was
// found in this way.
int ha_varve::rnd_init(bool scan)
{
  active_index= table_share->primary_key;
  m_scan_starts= scan;
  if (table_share->sequence)
    if (int error= begin_unannounced())
      return error;
  return scan ? use_index(0) : 0;
}

int ha_varve::rnd_end()
{
  active_index= MAX_KEY;
  m_mrr.dsmrr_close();
  leave_unannounced();
  return 0;
}

int ha_varve::rnd_next(uchar *buf)
{
  if (!m_scan_starts)
    return index_next(buf);
  m_scan_starts= false;
  return index_first(buf);
}

// The server does not ask whether this has failed: a position of no length is none, and rnd_pos refuses it.
void ha_varve::position(const uchar *)
{
  if (!m_current)
    sql_print_error("VARVE: position() on table %s, where no row was read since reset()", m_name.c_str());
  const uint room= ref_length - POSITION_LENGTH_BYTES;
  const uint8_t *at= ref;
  const uint length= !m_current || settle() ? 0 : std::min(varve_cursor_position(m_current, &at), room);
  set_position(at, length);
}

// `length` is that of an engine's position, at most.
void ha_varve::set_position(const uint8_t *at, uint length)
{
  const uint room= ref_length - POSITION_LENGTH_BYTES;
  memmove(ref, at, length);
  memset(ref + length, 0, room - length);
  mi_int2store(ref + room, length);
}

int ha_varve::rnd_pos(uchar *buf, uchar *position)
{
  if (!m_position_cursor)
    if (varve_code code= varve_cursor_open(m_table, 0, &m_position_cursor))
      return failed(code);
  if (int error= settle())
    return error;
  const uint length= mi_uint2korr(position + ref_length - POSITION_LENGTH_BYTES);
  if (!length)
    return m_failure ? m_failure : HA_ERR_INTERNAL_ERROR;
  m_current= m_position_cursor;
  m_index= nullptr;
  m_position_wanted.tell(m_position_cursor, m_row_plan, wanted_columns());
  return fetched(varve_cursor_seek_position(m_current, m_txn, position, length, m_lock, &m_row), buf,
                 HA_ERR_KEY_NOT_FOUND);
}

// A row that the statement has no use for. REPEATABLE READ keeps its lock, as InnoDB does.
void ha_varve::unlock_row()
{
  if (m_lock != VARVE_NO_LOCK && m_current && thd_tx_isolation(ha_thd()) <= ISO_READ_COMMITTED)
    varve_cursor_unlock_row(m_current, m_txn);
}

// How a search locks. The engine knows at which levels and in which searches a semi-consistent read is one.
varve_lock ha_varve::scan_lock() const
{
  return m_semi_consistent && m_lock == VARVE_EXCLUSIVE ? VARVE_EXCLUSIVE_SEMI_CONSISTENT : m_lock;
}

void ha_varve::try_semi_consistent_read(bool yes)
{
  m_semi_consistent= yes;
}

// If so, the server reads the same row again, and that waits.
bool ha_varve::was_semi_consistent_read()
{
  return m_semi_consistent && m_current && varve_cursor_was_semi_consistent(m_current);
}

/* Writing */

inline int ha_varve::written(varve_code code)
{
  if (m_own_txn)
    return end_own(code);
  return code ? failed(code) : 0;
}

int ha_varve::write_row(const uchar *record)
{
  m_changes++;
  tell_of_change(Told::NEW_ROWS);
  if (table->next_number_field && record == table->record[0])
  {
    m_counter_failure= 0;
    if (int error= update_auto_increment())
      return m_counter_failure ? m_counter_failure : error;
    if (m_rows_to_number)
      m_rows_to_number--;
  }
  if (m_rows_to_keep)
    return keep_row(record);
  if (m_is_copy && m_gets_many && !m_load)
    if (int error= begin_load())
      return error;
  if (m_wants_order)
    load_in_order();
  if (m_is_in_order)
  {
    int error;
    if (load_next(record, &error))
      return error;
  }
  else if (m_load)
    return load_row(record);
  if (table_share->sequence)
    if (int error= begin_unannounced())
      return error;
  m_row_plan.to_values(record, m_values.data());
  const varve_on_duplicate on_duplicate= m_change_duplicates ? VARVE_DUPLICATE_LOCK : VARVE_DUPLICATE_SHARE;
  const varve_code code= varve_insert(m_txn, m_table, m_values.data(), uint32_t(m_values.size()),
                                      on_duplicate);
  if (code == VARVE_DUPLICATE_KEY)
    count_refused();
  else if (!code && record == table->record[0])
    count_written(record);
  return written(code);
}

int ha_varve::update_row(const uchar *, const uchar *new_record)
{
  m_changes++;
  tell_of_change(Told::CHANGED_ROWS);
  m_row_plan.to_values(new_record, m_values.data());
  const varve_code code= varve_update(m_txn, m_current, m_values.data(), uint32_t(m_values.size()));
  const bool is_the_same= code == VARVE_UNCHANGED;
  const int error= written(is_the_same ? VARVE_OK : code);
  return is_the_same && !error ? HA_ERR_RECORD_IS_THE_SAME : error;
}

int ha_varve::delete_row(const uchar *)
{
  m_changes++;
  tell_of_change(Told::CHANGED_ROWS);
  return written(varve_delete(m_txn, m_current));
}
