// memcached_rows.cc: batches of requests on the rows of the server's tables.
//
// A session is a THD that no client has. Threads of the memcached server, which are none of the server's, take
// it for one call at a time: `Attached` makes it the thread's for that. What it does is what a statement does:
// it opens and locks the container's table, under a metadata lock, finds rows by a unique index, changes them
// by the handler, which writes the binary log, and ends with commit and close. So DDL waits for a batch and not
// for a client, and a batch for DDL.
//
// A batch of reads is one statement, which sees one moment. A batch of changes is one transaction, with a
// statement for each run of changes in one container; rows are locked as UPDATE locks them at READ COMMITTED.
//
// A value that a column can't keep as it is, is refused: a client of memcached has no warnings.

#include "memcached.h"

#include "sysvars.h"

#include "lock.h"
#include "mysqld.h"
#include "sql_base.h"
#include "sql_parse.h"
#include "transaction.h"

#include <functional>
#include <memory>

// The server exports them for engines' threads, but declares them in no header.
MYSQL_THD create_background_thd();
void destroy_background_thd(MYSQL_THD thd);
void *thd_attach_thd(MYSQL_THD thd);
void thd_detach_thd(void *saved);

namespace varve_plugin {

namespace {

using Containers= std::vector<std::unique_ptr<Container>>;

// For somebody who has locked a row, or is about to change the table.
const ulong WAIT_SECONDS= 5;
// So many rows are deleted in one transaction.
const size_t CLEARED_AT_ONCE= 500;

// The columns of an open table that a container names.
struct Columns
{
  uint index;
  std::vector<Field *> keys, values;
  Field *flags= nullptr, *cas= nullptr, *expires= nullptr, *marks= nullptr;
};

class Attached
{
public:
  explicit Attached(THD *thd)
  {
    // Stack overruns are counted from here.
    thd->thread_stack= reinterpret_cast<char *>(this);
    m_saved= thd_attach_thd(thd);
  }
  Attached(const Attached &)= delete;
  Attached &operator=(const Attached &)= delete;
  ~Attached() { thd_detach_thd(m_saved); }

private:
  void *m_saved;
};

class Rows
{
public:
  static Rows *open(const Containers &containers);
  ~Rows();

  varve_memcached_code find(size_t container, const uint8_t *key, size_t key_bytes, varve_memcached_find how,
                            varve_memcached_item *out);
  void end_reads();
  varve_memcached_code begin();
  varve_memcached_code put(varve_memcached_item *item);
  varve_memcached_code remove();
  varve_memcached_code commit();
  void roll_back();
  varve_memcached_code clear(size_t container, uint32_t before, uint64_t *deleted);
  const char *error() const { return m_error.c_str(); }

private:
  Rows(const Containers &containers, THD *thd) : m_containers(containers), m_thd(thd) {}

  bool open_table(Container &container, thr_lock_type lock, bool waits);
  bool resolve();
  bool resolve_index();
  Field *column(const std::string &name);
  bool columns(const std::vector<std::string> &names, std::vector<Field *> *out);
  void use_columns();
  void close_table(bool keeps);
  bool end_transaction(bool keeps);

  bool store_key(const char *key, size_t bytes);
  int read_row(const uchar *key);
  void item(varve_memcached_item *out);
  std::string text(const std::vector<Field *> &fields);
  bool fill(const varve_memcached_item &item);
  bool fill_value(const char *value, size_t value_bytes);
  bool fill_number(Field *field, const char *what, ulonglong number);
  bool complete(bool is_new);
  bool collect(Container &container, uint32_t before, std::string *from, std::vector<std::string> *keys);
  bool is_over(uint32_t before);

  varve_memcached_code failed(std::string why);
  varve_memcached_code failed(int handler_error);
  varve_memcached_code failed_statement();

  const Containers &m_containers;
  THD *m_thd;
  Container *m_container= nullptr;  // whose table is open
  TABLE_LIST m_list;
  TABLE *m_table= nullptr;
  Columns m_columns;
  bool m_is_changing= false;  // a transaction was begun
  bool m_is_there= false;     // the row that was looked for last is in record[0]
  bool m_has_key= false;      // the key could be stored, and is in m_key
  ulong m_changed= 0;
  uchar m_key[MAX_KEY_LENGTH];
  std::string m_client_key, m_value, m_error;
};

Rows *Rows::open(const Containers &containers)
{
  THD *const thd= create_background_thd();
  if (!thd)
    return nullptr;
  // SHOW PROCESSLIST has it, and KILL finds it.
  thd->thread_id= next_thread_id();
  thd->variables.pseudo_thread_id= thd->thread_id;
  thd->security_ctx->skip_grants();
  thd->variables.tx_isolation= ISO_READ_COMMITTED;
  thd->tx_isolation= ISO_READ_COMMITTED;
  // The log has what became of rows: there is no statement that it could have.
  thd->variables.binlog_format= BINLOG_FORMAT_ROW;
  thd->query_cache_is_applicable= false;
  thd->proc_info= "memcached: idle";
  server_threads.insert(thd);
  return new Rows(containers, thd);
}

Rows::~Rows()
{
  {
    const Attached attached(m_thd);
    close_table(false);
    if (m_is_changing)
      end_transaction(false);
  }
  server_threads.erase(m_thd);
  destroy_background_thd(m_thd);
}

varve_memcached_code Rows::failed(std::string why)
{
  m_error= std::move(why);
  return VARVE_MEMCACHED_FAILED;
}

// What the server has said.
varve_memcached_code Rows::failed_statement()
{
  const Diagnostics_area *const da= m_thd->get_stmt_da();
  return failed(da->is_error() ? da->message() : "the server could not do it");
}

varve_memcached_code Rows::failed(int handler_error)
{
  m_table->file->print_error(handler_error, MYF(0));
  return failed_statement();
}

// A statement about the container's table begins.
bool Rows::open_table(Container &container, thr_lock_type lock, bool waits)
{
  m_thd->proc_info= "memcached: opening the table";
  m_thd->set_time();
  lex_start(m_thd);
  m_thd->reset_for_next_command();
  m_thd->set_query_id(next_query_id());
  LEX *const lex= m_thd->lex;
  const bool changes= lock != TL_READ;
  lex->sql_command= changes ? SQLCOM_UPDATE : SQLCOM_SELECT;
  m_thd->variables.lock_wait_timeout= waits ? WAIT_SECONDS : 0;
  const LEX_CSTRING schema= {container.schema.data(), container.schema.size()};
  const LEX_CSTRING table= {container.table.data(), container.table.size()};
  m_list.init_one_table(&schema, &table, nullptr, lock);
  if (changes)
  {
    // So tables that foreign keys change are locked, too.
    m_list.updating= true;
    m_list.trg_event_map= trg2bit(TRG_EVENT_INSERT) | trg2bit(TRG_EVENT_UPDATE) | trg2bit(TRG_EVENT_DELETE);
  }
  lex->query_tables= &m_list;
  lex->query_tables_last= &m_list.next_global;
  m_container= &container;
  m_changed= 0;
  if (open_and_lock_tables(m_thd, &m_list, false, 0))
  {
    failed_statement();
    close_table(false);
    return false;
  }
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
    failed("the container '" + container.name + "' is `" + container.schema + "`.`" + container.table + "`, which " + why);
  if (why || !resolve())
  {
    close_table(false);
    return false;
  }
  if (changes)
  {
    m_table->use_all_columns();
    m_table->mark_columns_per_binlog_row_image();
    if (const int error= m_table->file->prepare_for_insert(1))
    {
      failed(error);
      close_table(false);
      return false;
    }
  }
  else
    use_columns();
  if (const int error= m_table->file->ha_index_init(m_columns.index, true))
  {
    failed(error);
    close_table(false);
    return false;
  }
  m_thd->proc_info= changes ? "memcached: changing" : "memcached: reading";
  return true;
}

// The statement ends. A transaction goes on.
void Rows::close_table(bool keeps)
{
  if (!m_container)
    return;
  if (m_table)
  {
    m_table->file->ha_index_or_rnd_end();
    m_table->file->ha_release_auto_increment();
    m_table->next_number_field= nullptr;
    if (m_changed)
    {
      m_table->file->info(HA_STATUS_VARIABLE | HA_STATUS_NO_LOCK);
      m_container->rows.store(m_table->file->stats.records, std::memory_order_relaxed);
    }
  }
  // A failed statement that has changed nothing leaves nothing behind; one that has is its transaction's end.
  if (keeps)
    trans_commit_stmt(m_thd);
  else
    trans_rollback_stmt(m_thd);
  close_thread_tables(m_thd);
  if (!m_is_changing)
    m_thd->release_transactional_locks();
  m_thd->end_statement();
  m_thd->cleanup_after_query();
  free_root(m_thd->mem_root, MYF(MY_KEEP_PREALLOC));
  m_thd->proc_info= "memcached: idle";
  m_table= nullptr;
  m_container= nullptr;
  m_is_there= m_has_key= false;
}

bool Rows::end_transaction(bool keeps)
{
  const bool is_done= !(keeps ? trans_commit(m_thd) : trans_rollback(m_thd));
  if (!is_done)
    failed_statement();
  if (keeps && !is_done)
    trans_rollback(m_thd);
  m_thd->release_transactional_locks();
  m_is_changing= false;
  return is_done;
}

Field *Rows::column(const std::string &name)
{
  for (Field **at= m_table->field; *at; at++)
    if (!my_strcasecmp(system_charset_info, (*at)->field_name.str, name.c_str()))
      return *at;
  failed("the container '" + m_container->name + "' names a column `" + name + "`, which `" + m_container->schema +
         "`.`" + m_container->table + "` does not have");
  return nullptr;
}

bool Rows::columns(const std::vector<std::string> &names, std::vector<Field *> *out)
{
  out->clear();
  for (const std::string &name : names)
  {
    Field *const field= column(name);
    if (!field)
      return false;
    out->push_back(field);
  }
  return true;
}

bool Rows::resolve_index()
{
  for (uint at= 0; at < m_table->s->keys; at++)
  {
    const KEY &key= m_table->key_info[at];
    if (my_strcasecmp(system_charset_info, key.name.str, m_container->index.c_str()))
      continue;
    bool fits= (key.flags & HA_NOSAME) && key.user_defined_key_parts == m_columns.keys.size();
    for (uint part= 0; fits && part < key.user_defined_key_parts; part++)
      fits= key.key_part[part].field == m_columns.keys[part] &&
            !(key.key_part[part].key_part_flag & HA_PART_KEY_SEG);
    if (fits)
    {
      m_columns.index= at;
      return true;
    }
  }
  failed("the container '" + m_container->name + "' needs a unique index `" + m_container->index + "` on its key columns, which `" +
         m_container->schema + "`.`" + m_container->table + "` does not have");
  return false;
}

// Finds the container's columns in the table that was opened.
bool Rows::resolve()
{
  const Container &container= *m_container;
  if (!columns(container.keys, &m_columns.keys) || !columns(container.values, &m_columns.values))
    return false;
  for (const auto &[name, to] : {std::pair(&container.flags, &m_columns.flags), {&container.cas, &m_columns.cas},
                                 {&container.expires, &m_columns.expires}, {&container.marks, &m_columns.marks}})
  {
    *to= name->empty() ? nullptr : column(*name);
    if (!name->empty() && !*to)
      return false;
  }
  return resolve_index();
}

// What a read reads.
void Rows::use_columns()
{
  bitmap_clear_all(&m_table->tmp_set);
  m_table->column_bitmaps_set(&m_table->tmp_set, &m_table->tmp_set);
  const auto use= [](Field *field) {
    if (field)
      field->register_field_in_read_map();
  };
  for (Field *field : m_columns.keys)
    use(field);
  for (Field *field : m_columns.values)
    use(field);
  for (Field *field : {m_columns.flags, m_columns.cas, m_columns.expires, m_columns.marks})
    use(field);
}

bool is_text(const Field *field)
{
  return field->cmp_type() == STRING_RESULT && field->real_type() != MYSQL_TYPE_ENUM && field->real_type() != MYSQL_TYPE_SET;
}

// Texts are stored as they are, in the column's character set; what is no text is converted.
bool store_text(Field *field, const char *text, size_t bytes)
{
  field->set_notnull();
  return !field->store(text, bytes, is_text(field) ? field->charset() : &my_charset_utf8mb3_general_ci);
}

// Calls `part` for each part of a text between separators, at most `most`; the last one has the rest.
void split(const char *text, size_t bytes, const std::string &separator, size_t most,
           const std::function<void(const char *, size_t)> &part)
{
  const char *const end= text + bytes;
  for (size_t n= 1; n < most && !separator.empty(); n++)
  {
    const char *const at= std::search(text, end, separator.begin(), separator.end());
    if (at == end)
      break;
    part(text, size_t(at - text));
    text= at + separator.size();
  }
  part(text, size_t(end - text));
}

// The key columns get what the client says, and m_key what is to be looked for. False: no row can have it.
bool Rows::store_key(const char *key, size_t bytes)
{
  const Check_level_instant_set checks(m_thd, CHECK_FIELD_EXPRESSION);
  size_t n= 0;
  bool fits= true;
  split(key, bytes, m_container->separator, m_columns.keys.size(), [&](const char *part, size_t part_bytes) {
    fits= fits && store_text(m_columns.keys[n++], part, part_bytes);
  });
  if (!fits || n < m_columns.keys.size())
    return false;
  const KEY &index= m_table->key_info[m_columns.index];
  key_copy(m_key, m_table->record[0], &index, index.key_length);
  return true;
}

int Rows::read_row(const uchar *key)
{
  const KEY &index= m_table->key_info[m_columns.index];
  return m_table->file->ha_index_read_map(m_table->record[0], key, make_prev_keypart_map(index.user_defined_key_parts),
                                          HA_READ_KEY_EXACT);
}

// NULL is empty, and nothing at the end.
std::string Rows::text(const std::vector<Field *> &fields)
{
  std::string all;
  char room[MAX_FIELD_WIDTH];
  String part(room, sizeof room, &my_charset_bin);
  size_t end= fields.size();
  while (end > 1 && fields[end - 1]->is_null())
    end--;
  for (size_t n= 0; n < end; n++)
  {
    if (n)
      all+= m_container->separator;
    if (fields[n]->is_null())
      continue;
    const String *const got= fields[n]->val_str(&part);
    all.append(got->ptr(), got->length());
  }
  return all;
}

// The row in record[0].
void Rows::item(varve_memcached_item *out)
{
  m_value= text(m_columns.values);
  const auto number= [](Field *field) { return field && !field->is_null() ? ulonglong(field->val_int()) : 0; };
  out->value= reinterpret_cast<const uint8_t *>(m_value.data());
  out->value_bytes= m_value.size();
  out->flags= uint32_t(number(m_columns.flags));
  out->expires= uint32_t(number(m_columns.expires));
  out->marks= uint8_t(number(m_columns.marks));
  out->cas= number(m_columns.cas);
  if (!m_columns.cas)
    out->cas= varve_memcached_fingerprint(out);
}

varve_memcached_code Rows::find(size_t number, const uint8_t *key, size_t key_bytes, varve_memcached_find how,
                                varve_memcached_item *out)
{
  const Attached attached(m_thd);
  Container &container= *m_containers[number];
  const bool changes= how == VARVE_MEMCACHED_CHANGE;
  if (m_container && m_container != &container)
    close_table(true);
  if (!m_container && !changes && m_thd->killed)
    m_thd->reset_killed();
  if (!m_container && !open_table(container, changes ? TL_WRITE : TL_READ, how != VARVE_MEMCACHED_READ))
    return how == VARVE_MEMCACHED_READ && m_thd->get_stmt_da()->is_error() &&
                   m_thd->get_stmt_da()->sql_errno() == ER_LOCK_WAIT_TIMEOUT
               ? VARVE_MEMCACHED_BUSY
               : VARVE_MEMCACHED_FAILED;
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
    return failed(error);
  m_is_there= true;
  item(out);
  return VARVE_MEMCACHED_OK;
}

void Rows::end_reads()
{
  const Attached attached(m_thd);
  if (!m_is_changing)
    close_table(true);
}

varve_memcached_code Rows::begin()
{
  const Attached attached(m_thd);
  if (m_thd->killed)
    m_thd->reset_killed();
  m_thd->reset_for_next_command();
  if (opt_readonly)
    return failed("the server is read-only");
  if (trans_begin(m_thd))
    return failed_statement();
  m_is_changing= true;
  return VARVE_MEMCACHED_OK;
}

bool Rows::fill_number(Field *field, const char *what, ulonglong number)
{
  if (!field && number)
  {
    failed(std::string("the container '") + m_container->name + "' has no column for " + what + ", so they can't be kept");
    return false;
  }
  if (field)
  {
    field->set_notnull();
    if (field->store(longlong(number), true))
    {
      failed_statement();
      return false;
    }
  }
  return true;
}

// The columns of the value get its parts. What is no text can't be empty: that is NULL then.
bool Rows::fill_value(const char *value, size_t value_bytes)
{
  size_t n= 0;
  bool fits= true;
  const size_t most= m_columns.values.size();
  split(value, value_bytes, m_container->separator, most > 1 ? most + 1 : most, [&](const char *part, size_t bytes) {
    Field *const field= n++ < most ? m_columns.values[n - 1] : nullptr;
    if (field && !bytes && field->maybe_null() && !is_text(field))
      field->set_null();
    else if (field)
      fits= fits && store_text(field, part, bytes);
  });
  if (!fits)
  {
    failed_statement();
    return false;
  }
  if (n > most)
  {
    failed("the value has more parts than the container '" + m_container->name + "' has columns for them");
    return false;
  }
  for (; n < most; n++)
  {
    m_columns.values[n]->set_null();
    if (!m_columns.values[n]->maybe_null())
    {
      failed("the value has fewer parts than the container '" + m_container->name + "' needs: `" +
             m_columns.values[n]->field_name.str + "` can't be null");
      return false;
    }
  }
  return true;
}

// The columns get what the item has, and refuse what they can't keep. A value that stays the same is not
// stored again: its text says less than the row, where it could be NULL.
bool Rows::fill(const varve_memcached_item &item)
{
  const char *const value= reinterpret_cast<const char *>(item.value);
  if (!m_is_there || m_value.compare(0, m_value.npos, value, item.value_bytes))
    if (!fill_value(value, item.value_bytes))
      return false;
  return fill_number(m_columns.flags, "flags", item.flags) && fill_number(m_columns.expires, "times", item.expires) &&
         fill_number(m_columns.marks, "marks of stale items", item.marks) &&
         (!m_columns.cas || fill_number(m_columns.cas, "numbers of changes", item.cas));
}

// What the row gets beside what the client says: defaults, generated columns; and what it has to satisfy.
bool Rows::complete(bool is_new)
{
  TABLE *const table= m_table;
  const auto is_said= [this](const Field *field) {
    const auto among= [field](const std::vector<Field *> &fields) {
      return std::find(fields.begin(), fields.end(), field) != fields.end();
    };
    return among(m_columns.keys) || among(m_columns.values) || field == m_columns.flags || field == m_columns.cas ||
           field == m_columns.expires || field == m_columns.marks;
  };
  for (Field **at= table->field; is_new && *at; at++)
    if (((*at)->flags & NO_DEFAULT_VALUE_FLAG) && (*at)->real_type() != MYSQL_TYPE_ENUM && !is_said(*at) &&
        *at != table->found_next_number_field)
    {
      my_error(ER_NO_DEFAULT_FOR_FIELD, MYF(0), (*at)->field_name.str);
      failed_statement();
      return false;
    }
  if (table->default_field)
  {
    table->reset_default_fields();
    for (Field **at= table->field; *at; at++)
      if (is_said(*at))
        (*at)->set_has_explicit_value();
    if (!is_new)
      table->evaluate_update_default_function();
    else if (table->update_default_fields(false))
    {
      failed_statement();
      return false;
    }
  }
  if ((table->vfield && table->update_virtual_fields(table->file, VCOL_UPDATE_FOR_WRITE)) ||
      table->verify_constraints(false) != VIEW_CHECK_OK || m_thd->is_error())
  {
    failed_statement();
    return false;
  }
  return true;
}

varve_memcached_code Rows::put(varve_memcached_item *item)
{
  const Attached attached(m_thd);
  const Check_level_instant_set checks(m_thd, CHECK_FIELD_WARN);
  const bool was_strict= m_thd->abort_on_warning;
  m_thd->abort_on_warning= true;
  m_thd->get_stmt_da()->reset_current_row_for_warning(1);
  const auto write= [&]() {
    TABLE *const table= m_table;
    const bool is_new= !m_is_there;
    if (is_new)
    {
      restore_record(table, s->default_values);
      table->next_number_field= table->found_next_number_field;
      size_t n= 0;
      bool fits= true;
      split(m_client_key.data(), m_client_key.size(), m_container->separator, m_columns.keys.size(),
            [&](const char *part, size_t bytes) { fits= fits && store_text(m_columns.keys[n++], part, bytes); });
      if (fits && n < m_columns.keys.size())
        return failed("the key has fewer parts than the container '" + m_container->name + "' has columns for them");
      if (!fits)
        return failed_statement();
      if (!m_has_key)
        return failed("the key is none that the container '" + m_container->name + "' can have");
    }
    else
      store_record(table, record[1]);
    if (!fill(*item) || !complete(is_new))
      return VARVE_MEMCACHED_FAILED;
    const int error= is_new ? table->file->ha_write_row(table->record[0])
                            : table->file->ha_update_row(table->record[1], table->record[0]);
    if (is_new && (error == HA_ERR_FOUND_DUPP_KEY || error == HA_ERR_FOUND_DUPP_UNIQUE))
    {
      table->file->info(HA_STATUS_ERRKEY);
      if (table->file->get_dup_key(error) == m_columns.index)
        return VARVE_MEMCACHED_MADE;
    }
    if (error && error != HA_ERR_RECORD_IS_THE_SAME)
      return failed(error);
    m_changed++;
    if (!m_columns.cas)
    {
      varve_memcached_item kept;
      this->item(&kept);
      item->cas= kept.cas;
    }
    return VARVE_MEMCACHED_OK;
  };
  const varve_memcached_code code= write();
  m_thd->abort_on_warning= was_strict;
  return code;
}

varve_memcached_code Rows::remove()
{
  const Attached attached(m_thd);
  if (const int error= m_table->file->ha_delete_row(m_table->record[0]))
    return failed(error);
  m_changed++;
  return VARVE_MEMCACHED_OK;
}

varve_memcached_code Rows::commit()
{
  const Attached attached(m_thd);
  close_table(true);
  return end_transaction(true) ? VARVE_MEMCACHED_OK : VARVE_MEMCACHED_FAILED;
}

void Rows::roll_back()
{
  const Attached attached(m_thd);
  close_table(false);
  if (m_is_changing)
    end_transaction(false);
}

bool Rows::is_over(uint32_t before)
{
  if (!before)
    return true;
  const Field *const expires= m_columns.expires;
  const ulonglong at= expires->is_null() ? 0 : ulonglong(m_columns.expires->val_int());
  return at && at <= before;
}

// Collects keys of rows that are to go, from this key on, which is changed to the last one that was looked at.
// False: it has failed. An empty `from`: from the first row, or, afterwards, there are no more.
bool Rows::collect(Container &container, uint32_t before, std::string *from, std::vector<std::string> *keys)
{
  const Attached attached(m_thd);
  if (!open_table(container, TL_READ, true))
    return false;
  if (before && !m_columns.expires)
  {
    from->clear();
    close_table(true);
    return true;
  }
  const KEY &index= m_table->key_info[m_columns.index];
  handler *const file= m_table->file;
  int error= from->empty() ? file->ha_index_first(m_table->record[0])
                           : file->ha_index_read_map(m_table->record[0], reinterpret_cast<const uchar *>(from->data()),
                                                     make_prev_keypart_map(index.user_defined_key_parts), HA_READ_AFTER_KEY);
  from->clear();
  while (!error)
  {
    if (is_over(before))
    {
      key_copy(m_key, m_table->record[0], &index, index.key_length);
      keys->emplace_back(reinterpret_cast<const char *>(m_key), index.key_length);
      if (keys->size() == CLEARED_AT_ONCE)
      {
        *from= keys->back();
        break;
      }
    }
    error= m_thd->killed ? HA_ERR_ABORTED_BY_USER : file->ha_index_next(m_table->record[0]);
  }
  const bool is_well= !error || error == HA_ERR_END_OF_FILE || error == HA_ERR_KEY_NOT_FOUND;
  if (!is_well)
    failed(error);
  close_table(is_well);
  return is_well;
}

varve_memcached_code Rows::clear(size_t number, uint32_t before, uint64_t *deleted)
{
  Container &container= *m_containers[number];
  std::string from;
  do
  {
    std::vector<std::string> keys;
    if (!collect(container, before, &from, &keys))
      return VARVE_MEMCACHED_FAILED;
    if (keys.empty())
      break;
    if (const varve_memcached_code code= begin())
      return code;
    uint64_t gone= 0;
    const auto remove_all= [&]() {
      const Attached attached(m_thd);
      if (!open_table(container, before ? TL_WRITE_SKIP_LOCKED : TL_WRITE, true))
        return false;
      for (const std::string &key : keys)
      {
        int error= read_row(reinterpret_cast<const uchar *>(key.data()));
        if (error == HA_ERR_KEY_NOT_FOUND || error == HA_ERR_END_OF_FILE)
          continue;
        if (!error && !is_over(before))
          continue;
        if (!error)
          error= m_table->file->ha_delete_row(m_table->record[0]);
        if (error)
        {
          failed(error);
          return false;
        }
        gone++;
        m_changed++;
      }
      return true;
    };
    if (!remove_all() || commit())
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

varve_memcached_store memcached_rows(void *containers)
{
  varve_memcached_store store= {};
  store.context= containers;
  store.open= [](void *context) -> void * { return Rows::open(*static_cast<Containers *>(context)); };
  store.close= [](void *session) { delete rows(session); };
  store.find= [](void *session, size_t container, const uint8_t *key, size_t key_bytes, varve_memcached_find how,
                 varve_memcached_item *out) { return rows(session)->find(container, key, key_bytes, how, out); };
  store.end_reads= [](void *session) { rows(session)->end_reads(); };
  store.begin= [](void *session) { return rows(session)->begin(); };
  store.put= [](void *session, varve_memcached_item *item) { return rows(session)->put(item); };
  store.remove= [](void *session) { return rows(session)->remove(); };
  store.commit= [](void *session) { return rows(session)->commit(); };
  store.roll_back= [](void *session) { rows(session)->roll_back(); };
  store.error= [](void *session) { return rows(session)->error(); };
  store.clear= [](void *session, size_t container, uint32_t before, uint64_t *deleted) {
    return rows(session)->clear(container, before, deleted);
  };
  store.count= [](void *context) {
    uint64_t rows= 0;
    for (const auto &container : *static_cast<Containers *>(context))
      rows+= container->rows.load(std::memory_order_relaxed);
    return rows;
  };
  return store;
}

}  // namespace varve_plugin
