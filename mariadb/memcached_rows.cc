// memcached_rows.cc: batches of requests on the rows of the server's tables.
//
// A session is a THD that no client has. Threads of the memcached server, which are none of the server's,
// take it for one call at a time: `Attached` makes it the thread's for that. What it does is what a statement
// does: it opens and locks the container's table, under a metadata lock, finds rows by a unique index,
// changes them by the handler, which writes the binary log, and ends with commit and close. So DDL waits for
// a batch and not for a client, and a batch for DDL.
//
// A batch of reads is one statement, which sees one moment. A batch of changes is one transaction, with a
// statement for each run of changes in one container; rows are locked as UPDATE locks them at READ COMMITTED.
//
// A value that a column can't keep as it is, is refused: a client of memcached has no warnings.

#include "memcached_columns.h"

#include "engine.h"
#include "sysvars.h"

#include "lock.h"
#include "my_stack_alloc.h"
#include "mysqld.h"
#include "sql_base.h"
#include "sql_parse.h"
#include "sql_statistics.h"
#include "transaction.h"

// The server exports them for engines' threads, but declares them in no header.
MYSQL_THD create_background_thd();
void destroy_background_thd(MYSQL_THD thd);
void *thd_attach_thd(MYSQL_THD thd);
void thd_detach_thd(void *saved);

namespace varve_plugin {

namespace {

// For somebody who is about to change the table, or has locked a row that is to be deleted.
const ulong WAIT_SECONDS= 5;
// So many rows are deleted in one transaction.
const size_t CLEARED_AT_ONCE= 500;
// After so many rows that were looked at the table is given back, and taken again.
const size_t LOOKED_AT_AT_ONCE= 10000;

// Makes a THD this thread's for as long as it lives: what thd_attach_thd does, but that asks the system about
// the thread's stack and number each time, which takes as long as finding a row.
class Attached
{
public:
  explicit Attached(THD *thd) : m_saved(_my_thread_var())
  {
    static thread_local void *stack_begin, *stack_end;
    if (!stack_end)
      my_get_stack_bounds(&stack_begin, &stack_end, this, my_thread_stack_size);
    set_mysys_var(thd->mysys_var);
    set_current_thd(thd);
    thd->real_id= pthread_self();
    thd->thread_stack= stack_begin;
    thd->mysys_var->stack_ends_here= stack_end;
  }
  Attached(const Attached &)= delete;
  Attached &operator=(const Attached &)= delete;
  ~Attached()
  {
    set_current_thd(nullptr);
    set_mysys_var(m_saved);
  }

private:
  st_my_thread_var *m_saved;
};

// What becomes of a statement, or of a transaction.
enum class End { KEEPS, UNDOES };

class Rows
{
public:
  static Rows *open(const Containers &containers);
  ~Rows();

  varve_memcached_code find(size_t container, const uint8_t *key, size_t key_bytes, varve_memcached_find how,
                            varve_memcached_item *out);
  void end_reads();
  varve_memcached_code begin(varve_memcached_begin how, ulong wait_seconds);
  varve_memcached_code put(varve_memcached_item *item);
  void read_put(varve_memcached_item *out);
  void found_key(const uint8_t **key, size_t *key_bytes);
  varve_memcached_code remove();
  varve_memcached_code commit();
  void roll_back();
  varve_memcached_code clear(size_t container, uint32_t before, uint64_t *deleted);
  const char *error() const { return m_error.c_str(); }

private:
  Rows(const Containers &containers, THD *thd) : m_containers(containers), m_thd(thd) {}

  bool open_table(Container &container, thr_lock_type lock, ulong wait_seconds);
  void begin_statement(thr_lock_type lock, ulong wait_seconds);
  bool prepare_table(thr_lock_type lock);
  bool use_index();
  bool close_table(End end);
  bool end_transaction(End end);
  void forget_kill();

  bool store_key(const char *key, size_t bytes);
  int read_row(const uchar *key);
  bool collect(Container &container, uint32_t before, std::string *from, std::vector<std::string> *keys);
  bool remove_all(Container &container, uint32_t before, const std::vector<std::string> &keys);
  bool is_over(uint32_t before);

  varve_memcached_code failure() const
  {
    return m_thd->killed ? VARVE_MEMCACHED_KILLED : VARVE_MEMCACHED_FAILED;
  }
  varve_memcached_code failed(std::string why);
  varve_memcached_code failed(int handler_error);
  varve_memcached_code not_changed(int handler_error);
  varve_memcached_code failed_statement();
  varve_memcached_code failed_columns();

  const Containers &m_containers;
  THD *m_thd;
  Container *m_container= nullptr;  // whose table is open
  TABLE_LIST m_list;
  TABLE *m_table= nullptr;
  Memcached_columns m_columns;
  bool m_is_changing= false;  // a transaction was begun
  bool m_is_at_once= false;   // it waits for no lock
  ulong m_wait_seconds= WAIT_SECONDS;  // or for so long
  bool m_is_there= false;     // the row that was looked for last is in record[0]
  bool m_has_key= false;      // the key could be stored, and is in m_key
  ulong m_changed= 0;
  uchar m_key[MAX_KEY_LENGTH];
  std::string m_client_key, m_error;
};

Rows *Rows::open(const Containers &containers)
{
  THD *const thd= create_background_thd();
  if (!thd)
    return nullptr;
  // SHOW PROCESSLIST has it, and KILL finds it, which looks past daemons.
  thd->set_command(COM_SLEEP);
  thd->thread_id= next_thread_id();
  thd->variables.pseudo_thread_id= thd->thread_id;
  thd->security_ctx->skip_grants();
  // What waits for read_only to be set is refused by the server then.
  thd->security_ctx->master_access= thd->security_ctx->master_access & ~PRIV_IGNORE_READ_ONLY;
  thd->variables.tx_isolation= ISO_READ_COMMITTED;
  thd->tx_isolation= ISO_READ_COMMITTED;
  // Whatever is the server's default.
  thd->variables.tx_read_only= thd->tx_read_only= false;
  thd->variables.option_bits= (thd->variables.option_bits & ~OPTION_NOT_AUTOCOMMIT) | OPTION_AUTOCOMMIT;
  thd->server_status|= SERVER_STATUS_AUTOCOMMIT;
  thd->variables.sql_mode= MODE_STRICT_TRANS_TABLES | MODE_STRICT_ALL_TABLES | MODE_NO_AUTO_VALUE_ON_ZERO |
                           MODE_ERROR_FOR_DIVISION_BY_ZERO;
  // The log has what became of rows: there is no statement that it could have.
  thd->variables.binlog_format= BINLOG_FORMAT_ROW;
  thd->variables.sql_log_bin= memcached_is_logged();
  thd->set_binlog_bit();
  thd->query_cache_is_applicable= false;
  // Rows are found by a key: there is nothing to plan.
  thd->variables.use_stat_tables= NEVER;
  thd->proc_info= "memcached: idle";
  // Once as the server does it: some of what it sets stays.
  char here;
  thd->thread_stack= &here;
  thd_detach_thd(thd_attach_thd(thd));
  server_threads.insert(thd);
  return new Rows(containers, thd);
}

Rows::~Rows()
{
  {
    const Attached attached(m_thd);
    close_table(End::UNDOES);
    if (m_is_changing)
      end_transaction(End::UNDOES);
  }
  server_threads.erase(m_thd);
  destroy_background_thd(m_thd);
}

varve_memcached_code Rows::failed(std::string why)
{
  m_error= std::move(why);
  return failure();
}

// A KILL is about the batch that is being done.
void Rows::forget_kill()
{
  if (m_thd->killed)
    m_thd->reset_killed();
}

// What the server has said.
varve_memcached_code Rows::failed_statement()
{
  const Diagnostics_area *const da= m_thd->get_stmt_da();
  return failed(da->is_error() ? da->message() : "the server could not do it");
}

// What the columns have said, or the server about them.
varve_memcached_code Rows::failed_columns()
{
  return m_columns.why().empty() ? failed_statement() : failed(m_columns.why());
}

varve_memcached_code Rows::failed(int handler_error)
{
  m_table->file->print_error(handler_error, MYF(0));
  return failed_statement();
}

// A statement about the container's table begins. False: it has ended, and `error` says why.
bool Rows::open_table(Container &container, thr_lock_type lock, ulong wait_seconds)
{
  if (memcached_ends())
  {
    m_thd->get_stmt_da()->reset_diagnostics_area();
    failed("the server ends");
    return false;
  }
  m_container= &container;
  m_changed= 0;
  begin_statement(lock, wait_seconds);
  if (open_and_lock_tables(m_thd, &m_list, false, 0))
    failed_statement();
  else if (prepare_table(lock))
    return true;
  close_table(End::UNDOES);
  return false;
}

void Rows::begin_statement(thr_lock_type lock, ulong wait_seconds)
{
  m_thd->set_command(COM_QUERY);
  m_thd->proc_info= "memcached: opening the table";
  m_thd->set_time();
  m_thd->variables.time_zone= global_system_variables.time_zone;
  m_thd->variables.lock_wait_timeout= wait_seconds;
  lex_start(m_thd);
  m_thd->reset_for_next_command();
  m_thd->set_query_id(next_query_id());
  const LEX_CSTRING schema= {m_container->schema.data(), m_container->schema.size()};
  const LEX_CSTRING table= {m_container->table.data(), m_container->table.size()};
  m_list.init_one_table(&schema, &table, nullptr, lock);
  LEX *const lex= m_thd->lex;
  lex->sql_command= lock == TL_READ ? SQLCOM_SELECT : SQLCOM_UPDATE;
  if (lock != TL_READ)
  {
    // So tables that foreign keys change are locked, too.
    m_list.updating= true;
    // And so are sequences that defaults take numbers from.
    m_list.for_insert_data= true;
    m_list.trg_event_map= trg2bit(TRG_EVENT_INSERT) | trg2bit(TRG_EVENT_UPDATE) | trg2bit(TRG_EVENT_DELETE);
  }
  lex->query_tables= &m_list;
  lex->query_tables_last= &m_list.next_global;
}

// The table that was opened is what the container needs. False: `error` says why not.
bool Rows::prepare_table(thr_lock_type lock)
{
  const bool changes= lock != TL_READ;
  m_table= m_list.table;
  const char *why= nullptr;
  if (!m_table || m_list.view)
    why= "is no table";
  else if (m_table->versioned())
    why= "has a history of its rows";
  else if (!m_table->file->has_transactions())
    why= "has no transactions";
  else if (changes && m_table->triggers)
    why= "has triggers, which only statements fire: it can be read";
  if (why)
  {
    failed("the container '" + m_container->name + "' is " + m_container->full_name() + ", which " + why);
    return false;
  }
  if (!m_columns.find(*m_container, m_table) || (changes && !m_columns.check_changes()))
  {
    failed_columns();
    return false;
  }
  if (!changes)
    m_columns.read_no_others();
  else
  {
    m_table->use_all_columns();
    m_table->mark_columns_per_binlog_row_image();
    if (const int error= m_table->file->prepare_for_insert(1))
    {
      failed(error);
      return false;
    }
  }
  m_thd->proc_info= changes ? "memcached: changing" : "memcached: reading";
  return use_index();
}

// Reads by the container's index, of the columns that are to be read by then.
bool Rows::use_index()
{
  const int error= m_table->file->ha_index_init(m_columns.index_number(), true);
  if (error)
    failed(error);
  return !error;
}

// The statement ends. A transaction goes on. False: what it did can't be kept.
bool Rows::close_table(End end)
{
  if (!m_container)
    return true;
  if (m_table)
  {
    m_table->file->ha_index_or_rnd_end();
    m_table->file->ha_release_auto_increment();
    m_table->next_number_field= nullptr;
    m_table->auto_increment_field_not_null= false;
    if (m_changed)
    {
      m_table->file->info(HA_STATUS_VARIABLE | HA_STATUS_NO_LOCK);
      m_container->rows.store(m_table->file->stats.records, std::memory_order_relaxed);
    }
  }
  // Its last rows have to get to the binary log before they can be kept.
  const bool is_logged= !m_changed || !m_thd->binlog_flush_pending_rows_event(true);
  const bool is_kept= end == End::KEEPS && is_logged && !trans_commit_stmt(m_thd);
  const bool is_well= is_kept || end == End::UNDOES;
  if (!is_well)
    failed_statement();
  if (!is_kept)
    trans_rollback_stmt(m_thd);
  close_thread_tables(m_thd);
  if (!m_is_changing)
    m_thd->release_transactional_locks();
  m_thd->end_statement();
  m_thd->cleanup_after_query();
  free_root(m_thd->mem_root, MYF(MY_KEEP_PREALLOC));
  m_thd->set_command(COM_SLEEP);
  m_thd->proc_info= "memcached: idle";
  m_table= nullptr;
  m_container= nullptr;
  m_is_there= m_has_key= false;
  m_columns.forget();
  return is_well;
}

bool Rows::end_transaction(End end)
{
  const bool is_well= !(end == End::KEEPS ? trans_commit(m_thd) : trans_rollback(m_thd));
  if (!is_well)
    failed_statement();
  if (!is_well && end == End::KEEPS)
    trans_rollback(m_thd);
  m_thd->release_transactional_locks();
  m_is_changing= false;
  return is_well;
}

// m_key gets what is to be looked for. False: no row can have it.
bool Rows::store_key(const char *key, size_t bytes)
{
  const Check_level_instant_set checks(m_thd, CHECK_FIELD_IGNORE);
  if (!m_columns.store_key(key, bytes))
    return false;
  const KEY &index= m_columns.index();
  key_copy(m_key, m_table->record[0], &index, index.key_length);
  return true;
}

int Rows::read_row(const uchar *key)
{
  const KEY &index= m_columns.index();
  const key_part_map all= make_prev_keypart_map(index.user_defined_key_parts);
  return m_table->file->ha_index_read_map(m_table->record[0], key, all, HA_READ_KEY_EXACT);
}

// What a batch of changes was to find or change is neither.
varve_memcached_code Rows::not_changed(int handler_error)
{
  if (!m_is_at_once || handler_error != HA_ERR_LOCK_WAIT_TIMEOUT)
    return failed(handler_error);
  // varve_rollback_on_timeout is about those who have waited.
  m_thd->transaction_rollback_request= false;
  return VARVE_MEMCACHED_BUSY;
}

varve_memcached_code Rows::find(size_t number, const uint8_t *key, size_t key_bytes, varve_memcached_find how,
                                varve_memcached_item *out)
{
  const Attached attached(m_thd);
  Container &container= *m_containers[number];
  const bool changes= how == VARVE_MEMCACHED_CHANGE;
  if (m_container && m_container != &container && !close_table(End::KEEPS))
    return failure();
  if (!m_container)
  {
    if (!changes)
      forget_kill();
    const bool waits= changes ? !m_is_at_once : how != VARVE_MEMCACHED_READ;
    const ulong wait_seconds= !waits ? 0 : changes ? m_wait_seconds : WAIT_SECONDS;
    if (!open_table(container, changes ? TL_WRITE : TL_READ, wait_seconds))
    {
      const Diagnostics_area *const da= m_thd->get_stmt_da();
      const bool is_locked= da->is_error() && da->sql_errno() == ER_LOCK_WAIT_TIMEOUT;
      return is_locked && !waits ? VARVE_MEMCACHED_BUSY : failure();
    }
  }
  // Another engine would wait for its locks.
  if (changes && m_is_at_once && m_table->file->partition_ht() != hton)
    return VARVE_MEMCACHED_BUSY;
  m_is_there= false;
  const char *const said= reinterpret_cast<const char *>(key);
  if (changes)
    m_client_key.assign(said, key_bytes);
  m_has_key= store_key(said, key_bytes);
  if (!m_has_key)
    return VARVE_MEMCACHED_NO_ROW;
  const int error= read_row(m_key);
  if (error == HA_ERR_KEY_NOT_FOUND || error == HA_ERR_END_OF_FILE)
    return VARVE_MEMCACHED_NO_ROW;
  if (error)
  {
    if (changes)
      return not_changed(error);
    const varve_memcached_code code= failed(error);
    // What follows is not told of this.
    close_table(End::UNDOES);
    return code;
  }
  m_is_there= true;
  m_columns.read(out);
  return VARVE_MEMCACHED_OK;
}

void Rows::end_reads()
{
  const Attached attached(m_thd);
  if (!m_is_changing)
    close_table(End::KEEPS);
}

varve_memcached_code Rows::begin(varve_memcached_begin how, ulong wait_seconds)
{
  const Attached attached(m_thd);
  forget_kill();
  m_thd->reset_for_next_command();
  if (memcached_ends())
    return failed("the server ends");
  if (opt_readonly)
    return failed("the server is read-only");
  if (trans_begin(m_thd))
    return failed_statement();
  m_is_changing= true;
  m_is_at_once= how == VARVE_MEMCACHED_AT_ONCE;
  m_wait_seconds= wait_seconds;
  return VARVE_MEMCACHED_OK;
}

varve_memcached_code Rows::put(varve_memcached_item *item)
{
  const Attached attached(m_thd);
  const Check_level_instant_set checks(m_thd, CHECK_FIELD_WARN);
  const Abort_on_warning_instant_set strictly(m_thd, true);
  m_thd->get_stmt_da()->reset_current_row_for_warning(1);
  TABLE *const table= m_table;
  const Put put= m_is_there ? Put::UPDATE : Put::INSERT;
  if (put == Put::INSERT)
  {
    restore_record(table, s->default_values);
    table->next_number_field= table->found_next_number_field;
    table->auto_increment_field_not_null= m_columns.say_number();
    if (!m_columns.fill_key(m_client_key.data(), m_client_key.size()))
      return failed_columns();
    if (!m_has_key)
      return failed("the key is none that the container '" + m_container->name + "' can have");
  }
  else
    store_record(table, record[1]);
  if (!m_columns.fill(*item, put) || !m_columns.complete(put))
    return failed_columns();
  const int error= put == Put::INSERT ? table->file->ha_write_row(table->record[0])
                                      : table->file->ha_update_row(table->record[1], table->record[0]);
  if (put == Put::INSERT && (error == HA_ERR_FOUND_DUPP_KEY || error == HA_ERR_FOUND_DUPP_UNIQUE))
  {
    table->file->info(HA_STATUS_ERRKEY);
    if (table->file->get_dup_key(error) == m_columns.index_number())
      return VARVE_MEMCACHED_MADE;
  }
  if (error && error != HA_ERR_RECORD_IS_THE_SAME)
    return not_changed(error);
  m_changed++;
  item->cas= m_columns.cas_of_written(item->cas);
  return VARVE_MEMCACHED_OK;
}

void Rows::read_put(varve_memcached_item *out)
{
  const Attached attached(m_thd);
  m_columns.read(out);
}

void Rows::found_key(const uint8_t **key, size_t *key_bytes)
{
  const Attached attached(m_thd);
  const std::string &text= m_columns.read_key();
  *key= reinterpret_cast<const uint8_t *>(text.data());
  *key_bytes= text.size();
}

varve_memcached_code Rows::remove()
{
  const Attached attached(m_thd);
  if (const int error= m_table->file->ha_delete_row(m_table->record[0]))
    return not_changed(error);
  m_changed++;
  return VARVE_MEMCACHED_OK;
}

varve_memcached_code Rows::commit()
{
  const Attached attached(m_thd);
  // For a backup, say: nobody waits for this thread to go on.
  m_thd->variables.lock_wait_timeout= WAIT_SECONDS;
  const bool is_done= close_table(End::KEEPS) && end_transaction(End::KEEPS);
  return is_done ? VARVE_MEMCACHED_OK : failure();
}

void Rows::roll_back()
{
  const Attached attached(m_thd);
  close_table(End::UNDOES);
  if (m_is_changing)
    end_transaction(End::UNDOES);
}

bool Rows::is_over(uint32_t before)
{
  const ulonglong end= before ? m_columns.end() : 0;
  return !before || (end && end <= before);
}

// Collects keys of rows that are to go, from this key on, which is changed to the last one that was looked
// at. False: it has failed. An empty `from`: from the first row, or, afterwards, there are no more.
bool Rows::collect(Container &container, uint32_t before, std::string *from, std::vector<std::string> *keys)
{
  const Attached attached(m_thd);
  if (!open_table(container, TL_READ, WAIT_SECONDS))
    return false;
  if (before && !m_columns.have_times())
  {
    from->clear();
    return close_table(End::KEEPS);
  }
  m_columns.read_keys_and_times();
  m_table->file->ha_index_end();
  if (!use_index())
  {
    close_table(End::UNDOES);
    return false;
  }
  size_t looked_at= 0;
  const KEY &index= m_columns.index();
  handler *const file= m_table->file;
  uchar *const row= m_table->record[0];
  const uchar *const last= reinterpret_cast<const uchar *>(from->data());
  const key_part_map all= make_prev_keypart_map(index.user_defined_key_parts);
  int error= from->empty() ? file->ha_index_first(row)
                           : file->ha_index_read_map(row, last, all, HA_READ_AFTER_KEY);
  from->clear();
  while (!error)
  {
    key_copy(m_key, row, &index, index.key_length);
    const std::string key(reinterpret_cast<const char *>(m_key), index.key_length);
    if (m_columns.have_key() && is_over(before))
      keys->push_back(key);
    if (keys->size() == CLEARED_AT_ONCE || ++looked_at == LOOKED_AT_AT_ONCE)
    {
      *from= key;
      break;
    }
    error= m_thd->killed ? HA_ERR_ABORTED_BY_USER : file->ha_index_next(row);
  }
  const bool is_well= !error || error == HA_ERR_END_OF_FILE || error == HA_ERR_KEY_NOT_FOUND;
  if (!is_well)
    failed(error);
  return close_table(is_well ? End::KEEPS : End::UNDOES) && is_well;
}

// Deletes the rows with these keys that are still to go. False: it has failed.
bool Rows::remove_all(Container &container, uint32_t before, const std::vector<std::string> &keys)
{
  const Attached attached(m_thd);
  if (!open_table(container, before ? TL_WRITE_SKIP_LOCKED : TL_WRITE, WAIT_SECONDS))
    return false;
  for (const std::string &key : keys)
  {
    int error= read_row(reinterpret_cast<const uchar *>(key.data()));
    if (error == HA_ERR_KEY_NOT_FOUND || error == HA_ERR_END_OF_FILE || (!error && !is_over(before)))
      continue;
    if (!error)
      error= m_table->file->ha_delete_row(m_table->record[0]);
    if (error)
    {
      failed(error);
      return false;
    }
    m_changed++;
  }
  return true;
}

varve_memcached_code Rows::clear(size_t number, uint32_t before, uint64_t *deleted)
{
  Container &container= *m_containers[number];
  std::string from;
  forget_kill();
  // What is over goes with the primary's changes then.
  if (before && opt_readonly)
    return VARVE_MEMCACHED_OK;
  do
  {
    std::vector<std::string> keys;
    if (!collect(container, before, &from, &keys))
      return failure();
    if (m_thd->killed)
      return failed("somebody ended it");
    if (keys.empty())
      continue;
    if (const varve_memcached_code code= begin(VARVE_MEMCACHED_WAITING, WAIT_SECONDS))
      return code;
    const bool are_removed= remove_all(container, before, keys);
    const uint64_t gone= m_changed;
    if (!are_removed || commit())
    {
      const std::string why= m_error;
      roll_back();
      return failed(why);
    }
    *deleted+= gone;
  } while (!from.empty());
  return VARVE_MEMCACHED_OK;
}

Rows *rows(void *session)
{
  return static_cast<Rows *>(session);
}

}  // namespace

varve_memcached_store memcached_rows(Containers *containers)
{
  varve_memcached_store store= {};
  store.context= containers;
  store.open= [](void *context) -> void * { return Rows::open(*static_cast<Containers *>(context)); };
  store.close= [](void *session) { delete rows(session); };
  store.find= [](void *session, size_t container, const uint8_t *key, size_t key_bytes,
                 varve_memcached_find how, varve_memcached_item *out) {
    return rows(session)->find(container, key, key_bytes, how, out);
  };
  store.end_reads= [](void *session) { rows(session)->end_reads(); };
  store.begin= [](void *session, varve_memcached_begin how, uint64_t wait_seconds) {
    return rows(session)->begin(how, ulong(wait_seconds));
  };
  store.put= [](void *session, varve_memcached_item *item) { return rows(session)->put(item); };
  store.read_put= [](void *session, varve_memcached_item *out) { rows(session)->read_put(out); };
  store.found_key= [](void *session, const uint8_t **key, size_t *key_bytes) {
    rows(session)->found_key(key, key_bytes);
  };
  store.remove= [](void *session) { return rows(session)->remove(); };
  store.commit= [](void *session) { return rows(session)->commit(); };
  store.roll_back= [](void *session) { rows(session)->roll_back(); };
  store.error= [](void *session) { return rows(session)->error(); };
  store.clear= [](void *session, size_t container, uint32_t before, uint64_t *deleted) {
    return rows(session)->clear(container, before, deleted);
  };
  store.warn= [](void *, const char *text) { sql_print_warning("VARVE: memcached: %s", text); };
  store.count= [](void *context) {
    uint64_t rows= 0;
    for (const auto &container : *static_cast<Containers *>(context))
      rows+= container->rows.load(std::memory_order_relaxed);
    return rows;
  };
  return store;
}

}  // namespace varve_plugin
