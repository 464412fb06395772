// transactions.cc: INFORMATION_SCHEMA.VARVE_TRX, VARVE_LOCKS and VARVE_LOCK_WAITS, and what reports say of
// connections.
//
// A connection pays nearly nothing for it: what the server knows is read from it when somebody looks, under
// the mutex under which the server itself lets others look. Only the text of a statement that has ended in an
// open transaction is copied when it ends, because the server keeps none.

#include "transactions.h"

#include "foreign.h"
#include "ha_varve.h"
#include "schema.h"
#include "session.h"
#include "sysvars.h"

#include <set>
#include <vector>

namespace varve_plugin {

namespace {

// The caller holds the connection's LOCK_thd_data.
Told_connection tell(const THD *thd, const Session &session, ulonglong now)
{
  const auto since= [now](ulonglong then) { return now > then ? now - then : 0; };
  Told_connection told{};
  told.active_us= since(session.begun());
  told.is_idle= thd->get_command() == COM_SLEEP;
  if (told.is_idle)
  {
    told.idle_us= since(std::max(thd->utime_after_query, thd->start_utime));
    told.statement= session.last_statement();
  }
  else
  {
    if (thd->query())
      told.statement= {std::string(thd->query(), std::min<size_t>(thd->query_length(), MOST_OF_STATEMENT)),
                       thd->query_charset()};
    if (const char *operation= thd->proc_info)
      told.operation= operation;
  }
  told.tables_in_use= session.tables_in_use();
  told.tables_locked= session.tables_locked();
  told.unique_checks= !thd_test_options(thd, OPTION_RELAXED_UNIQUE_CHECKS);
  told.foreign_key_checks= !thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS);
  told.is_read_only= thd_tx_is_read_only(thd);
  told.in_transaction= thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN);
  told.foreign_error= session.foreign_error();
  return told;
}

// Connections that are told, and which one is to be; 0: all.
struct Telling
{
  Told_connections told;
  ulonglong number;
};

// Null if it is not to be told, or has not used the engine.
Told_connection *add_activity(THD *thd, Telling *to)
{
  if (to->number && to->number != thd->thread_id)
    return nullptr;
  Told_connection *added= nullptr;
  mysql_mutex_lock(&thd->LOCK_thd_data);
  if (const Session *session= Session::known(thd))
    added= &(to->told[thd->thread_id]= tell(thd, *session, microsecond_interval_timer()));
  mysql_mutex_unlock(&thd->LOCK_thd_data);
  return added;
}

my_bool tell_activity_of(THD *thd, Telling *to)
{
  add_activity(thd, to);
  return 0;
}

my_bool add_connection(THD *thd, Telling *to)
{
  if (Told_connection *added= add_activity(thd, to))
  {
    // It takes the mutex itself. The list's own lock keeps the connection from going.
    char text[MOST_OF_STATEMENT * 2];
    added->description= thd_get_error_context_description(thd, text, sizeof text, MOST_OF_STATEMENT);
  }
  return 0;
}

// A client that says its texts are binary may mean anything.
void to_utf8(const Statement_text &from, std::string *to)
{
  if (from.charset == &my_charset_bin)
  {
    *to= from.text;
    return;
  }
  // No character takes more than four bytes.
  to->resize(4 * from.text.size());
  uint errors;
  to->resize(my_convert(&(*to)[0], uint32(to->size()), &my_charset_utf8mb4_bin, from.text.data(),
                        uint32(from.text.size()), from.charset, &errors));
}

// What mysys keeps of a thread that the server has not made.
struct Mysys_thread
{
  Mysys_thread() { my_thread_init(); }
  ~Mysys_thread() { my_thread_end(); }
};

}  // namespace

bool tell_session(void *texts, uint64_t number, varve_session_text *out)
{
  return static_cast<Session_texts *>(texts)->tell(number, out);
}

Told_connections told_connections()
{
  return told_connection(0);
}

Told_connections told_connection(ulonglong number)
{
  Telling telling{{}, number};
  server_threads.iterate(add_connection, &telling);
  return telling.told;
}

bool tell_activity(void *statement, uint64_t number, varve_session_activity *out)
{
  // It goes when the thread ends, and that is before the monitor has stopped.
  static thread_local Mysys_thread thread;
  Telling telling{{}, number};
  server_threads.iterate(tell_activity_of, &telling);
  const auto found= telling.told.find(number);
  if (found == telling.told.end())
    return false;
  const Told_connection &told= found->second;
  std::string *const text= static_cast<std::string *>(statement);
  to_utf8(told.statement, text);
  *out= {text->data(), text->size(), told.active_us, told.is_idle, told.idle_us};
  return true;
}

bool Session_texts::tell(ulonglong number, varve_session_text *out)
{
  const auto found= m_connections.find(number);
  if (found == m_connections.end())
    return false;
  const Told_connection &told= found->second;
  m_before.clear();
  if (told.tables_in_use || told.tables_locked)
    m_before= "mysql tables in use " + std::to_string(told.tables_in_use) + ", locked " +
              std::to_string(told.tables_locked) + '\n';
  m_after= told.description + '\n';
  if (told.is_idle)
  {
    m_after+= "idle for " + std::to_string(told.idle_us / 1000000) + " sec";
    m_after+= told.statement.text.empty() ? "\n" : ", the last statement was\n" + told.statement.text + '\n';
  }
  *out= {told.active_us / 1000000, told.operation.c_str(), m_before.c_str(), m_after.c_str()};
  return true;
}

// Of many connections a deadlock has few: only these are looked at.
static bool tell_member(void *to, uint64_t number, varve_session_text *out)
{
  auto *texts= static_cast<Session_texts *>(to);
  *texts= Session_texts(told_connection(number));
  return texts->tell(number, out);
}

// In pieces, at the ends of lines where there are any: the server cuts a message off at 1024 bytes.
static void log_deadlock(void *, const char *text)
{
  constexpr size_t MOST= 900;
  for (std::string rest= text; !rest.empty();)
  {
    const size_t line= rest.rfind('\n', MOST);
    const bool is_cut= rest.size() > MOST && line != std::string::npos;
    const size_t length= is_cut ? line + 1 : std::min(MOST, rest.size());
    sql_print_information("VARVE: a deadlock (varve_print_all_deadlocks): %s", rest.substr(0, length).c_str());
    rest.erase(0, length);
  }
}

void describe_deadlock()
{
  Session_texts texts({});
  const auto each= prints_all_deadlocks() ? log_deadlock : nullptr;
  varve_db_describe_deadlocks(db, tell_member, &texts, each, nullptr);
}

namespace {

const LEX_CSTRING isolation_names[]= {
  {STRING_WITH_LEN("READ UNCOMMITTED")}, {STRING_WITH_LEN("READ COMMITTED")},
  {STRING_WITH_LEN("REPEATABLE READ")}, {STRING_WITH_LEN("SERIALIZABLE")}};
const LEX_CSTRING lock_modes[]= {
  {STRING_WITH_LEN("S")}, {STRING_WITH_LEN("S,GAP")}, {STRING_WITH_LEN("X")}, {STRING_WITH_LEN("X,GAP")},
  {STRING_WITH_LEN("IS")}, {STRING_WITH_LEN("IS,GAP")}, {STRING_WITH_LEN("IX")}, {STRING_WITH_LEN("IX,GAP")},
  {STRING_WITH_LEN("AUTO_INC")}};
const LEX_CSTRING lock_types[]= {{STRING_WITH_LEN("RECORD")}, {STRING_WITH_LEN("TABLE")}};
const TypelibBuffer<4> isolation_levels(isolation_names);
const TypelibBuffer<9> modes(lock_modes);
const TypelibBuffer<2> types(lock_types);

// InnoDB's columns, then those that InnoDB does not have.
ST_FIELD_INFO trx_fields[]= {
  Show::Column("trx_id", Show::ULonglong(), NOT_NULL),
  Show::Column("trx_state", Show::Varchar(13), NOT_NULL),
  Show::Column("trx_started", Show::Datetime(0), NOT_NULL),
  Show::Column("trx_requested_lock_id", Show::Varchar(81), NULLABLE),
  Show::Column("trx_wait_started", Show::Datetime(0), NULLABLE),
  Show::Column("trx_weight", Show::ULonglong(), NOT_NULL),
  Show::Column("trx_mysql_thread_id", Show::ULonglong(), NOT_NULL),
  Show::Column("trx_query", Show::Varchar(1024), NULLABLE),
  Show::Column("trx_operation_state", Show::Varchar(64), NULLABLE),
  Show::Column("trx_tables_in_use", Show::ULonglong(), NOT_NULL),
  Show::Column("trx_tables_locked", Show::ULonglong(), NOT_NULL),
  Show::Column("trx_lock_structs", Show::ULonglong(), NOT_NULL),
  Show::Column("trx_lock_memory_bytes", Show::ULonglong(), NOT_NULL),
  Show::Column("trx_rows_locked", Show::ULonglong(), NOT_NULL),
  Show::Column("trx_rows_modified", Show::ULonglong(), NOT_NULL),
  Show::Column("trx_concurrency_tickets", Show::ULonglong(), NOT_NULL),
  Show::Column("trx_isolation_level", Show::Enum(&isolation_levels), NOT_NULL),
  Show::Column("trx_unique_checks", Show::SLong(1), NOT_NULL),
  Show::Column("trx_foreign_key_checks", Show::SLong(1), NOT_NULL),
  Show::Column("trx_last_foreign_key_error", Show::Varchar(256), NULLABLE),
  Show::Column("trx_is_read_only", Show::SLong(1), NOT_NULL),
  Show::Column("trx_autocommit_non_locking", Show::SLong(1), NOT_NULL),
  Show::Column("trx_idle_seconds", Show::ULonglong(), NULLABLE),
  Show::Column("trx_last_query", Show::Varchar(1024), NULLABLE),
  Show::Column("trx_view_limit", Show::ULonglong(), NULLABLE),
  Show::Column("trx_pinned_history", Show::ULonglong(), NOT_NULL),
  Show::Column("trx_pinned_undo_bytes", Show::ULonglong(), NOT_NULL),
  Show::Column("trx_pinned_versions", Show::ULonglong(), NOT_NULL),
  Show::Column("trx_pinned_bytes", Show::ULonglong(), NOT_NULL),
  Show::Column("trx_pinned_seconds", Show::ULonglong(), NULLABLE),
  Show::CEnd()};

struct Told_transaction
{
  varve_transaction of;
  std::string waits_for;
};

const char *state_name(const varve_transaction &trx)
{
  switch (trx.state)
  {
  case VARVE_TRANSACTION_RUNNING:    break;
  case VARVE_TRANSACTION_WAITS:      return "LOCK WAIT";
  case VARVE_TRANSACTION_ROLLS_BACK: return "ROLLING BACK";
  case VARVE_TRANSACTION_COMMITS:    return "COMMITTING";
  }
  return "RUNNING";
}

void set_statement(Rows *rows, uint column, const Statement_text &statement)
{
  if (statement.text.empty())
    rows->set_null(column);
  else
    rows->set(column, statement.text.data(), statement.text.size(), statement.charset);
}

// What only the engine knows.
void set_of_engine(Rows *rows, const Told_transaction &trx, my_time_t now)
{
  rows->set(0, trx.of.number);
  rows->set(1, state_name(trx.of));
  if (trx.of.waits_for)
  {
    rows->set(3, trx.waits_for);
    rows->set_time(4, now - my_time_t(trx.of.waited_us / 1000000));
  }
  else
  {
    rows->set_null(3);
    rows->set_null(4);
  }
  rows->set(5, trx.of.changes + trx.of.locks);
  rows->set(6, trx.of.session);
  rows->set(10, trx.of.tables_locked);
  rows->set(11, trx.of.locks);
  rows->set(12, trx.of.lock_bytes);
  rows->set(13, trx.of.rows_locked);
  rows->set(14, trx.of.changes);
  rows->set(15, 0ULL);
  rows->set(16, ulonglong(trx.of.isolation) + 1);
  rows->set_if(trx.of.view, 24, trx.of.view);
  rows->set(25, trx.of.pinned_history);
  rows->set(26, trx.of.pinned_undo_bytes);
  rows->set(27, trx.of.pinned_versions);
  rows->set(28, trx.of.pinned_bytes);
}

void set_of_connection(Rows *rows, const varve_transaction &trx, const Told_connection &told, my_time_t now)
{
  const ulonglong active= told.active_us / 1000000;
  rows->set_time(2, now - my_time_t(active));
  set_statement(rows, 7, told.is_idle ? Statement_text() : told.statement);
  rows->set(8, told.operation);
  rows->set(9, told.tables_in_use);
  rows->set(17, told.unique_checks);
  rows->set(18, told.foreign_key_checks);
  rows->set_if(!told.foreign_error.empty(), 19, told.foreign_error);
  rows->set(20, told.is_read_only);
  rows->set(21, !told.in_transaction && !trx.id && !trx.locks);
  rows->set_if(told.is_idle, 22, told.idle_us / 1000000);
  set_statement(rows, 23, told.is_idle ? told.statement : Statement_text());
  // A view is as old as its transaction, or under READ COMMITTED as the statement.
  rows->set_if(trx.view, 29, active);
}

// The engine's own, and those that their connection has let go.
void set_of_nobody(Rows *rows)
{
  rows->table->field[2]->reset();
  for (uint column : {7, 8, 19, 22, 23, 29})
    rows->set_null(column);
  for (uint column : {9, 20, 21})
    rows->set(column, 0ULL);
  for (uint column : {17, 18})
    rows->set(column, 1ULL);
}

void add_transaction(Rows *rows, const Told_transaction &trx, const Told_connections &connections,
                     my_time_t now)
{
  set_of_engine(rows, trx, now);
  const auto found= connections.find(trx.of.session);
  if (found == connections.end())
    set_of_nobody(rows);
  else
    set_of_connection(rows, trx.of, found->second, now);
  rows->add();
}

int fill_trx(THD *thd, TABLE_LIST *tables, COND *)
{
  Rows rows(thd, tables);
  return fill(&rows, [&] {
    std::vector<Told_transaction> all;
    const varve_code code= varve_db_transactions(db, [](void *to, const varve_transaction *trx) {
      const char *waits_for= trx->waits_for ? trx->waits_for : "";
      static_cast<std::vector<Told_transaction> *>(to)->push_back({*trx, waits_for});
    }, &all);
    const Told_connections connections= told_connections();
    const my_time_t now= my_time_t(my_time(0));
    for (const Told_transaction &trx : all)
      add_transaction(&rows, trx, connections, now);
    return code;
  });
}

ST_FIELD_INFO lock_fields[]= {
  Show::Column("lock_id", Show::Varchar(81), NOT_NULL),
  Show::Column("lock_trx_id", Show::ULonglong(), NOT_NULL),
  Show::Column("lock_mode", Show::Enum(&modes), NOT_NULL),
  Show::Column("lock_type", Show::Enum(&types), NOT_NULL),
  Show::Column("lock_table", Show::Varchar(1024), NOT_NULL),
  Show::Column("lock_index", Show::Varchar(1024), NULLABLE),
  Show::Column("lock_space", Show::ULong(), NULLABLE),
  Show::Column("lock_page", Show::ULong(), NULLABLE),
  Show::Column("lock_rec", Show::ULong(), NULLABLE),
  Show::Column("lock_data", Show::Varchar(8192), NULLABLE),
  Show::CEnd()};

ST_FIELD_INFO lock_wait_fields[]= {
  Show::Column("requesting_trx_id", Show::ULonglong(), NOT_NULL),
  Show::Column("requested_lock_id", Show::Varchar(81), NOT_NULL),
  Show::Column("blocking_trx_id", Show::ULonglong(), NOT_NULL),
  Show::Column("blocking_lock_id", Show::Varchar(81), NOT_NULL),
  Show::CEnd()};

// Rows of locks, each of which comes once.
struct Lock_rows
{
  Rows rows;
  std::set<std::string> added;

  void add(const varve_lock_info *lock);
};

void Lock_rows::add(const varve_lock_info *lock)
{
  if (!added.insert(lock->id).second)
    return;
  rows.set(0, lock->id);
  rows.set(1, lock->transaction);
  rows.set(2, lock->mode);
  rows.set(3, lock->index ? "RECORD" : "TABLE");
  rows.set(4, quoted_table(rows.thd, lock->table));
  rows.set_if(lock->index, 5, lock->index);
  rows.set_if(lock->index, 6, lock->space);
  // Keys are locked, not places on pages.
  rows.set_null(7);
  rows.set_null(8);
  rows.set_if(lock->key, 9, lock->key);
  rows.add();
}

void add_locks(void *to, const varve_lock_info *wanted, const varve_lock_info *blocking)
{
  static_cast<Lock_rows *>(to)->add(wanted);
  if (blocking)
    static_cast<Lock_rows *>(to)->add(blocking);
}

int fill_locks(THD *thd, TABLE_LIST *tables, COND *)
{
  Lock_rows locks{Rows(thd, tables), {}};
  return fill(&locks.rows, [&] {
    return varve_db_lock_waits(db, add_locks, &locks);
  });
}

void add_lock_wait(void *to, const varve_lock_info *wanted, const varve_lock_info *blocking)
{
  if (!blocking)
    return;
  Rows *rows= static_cast<Rows *>(to);
  rows->set(0, wanted->transaction);
  rows->set(1, wanted->id);
  rows->set(2, blocking->transaction);
  rows->set(3, blocking->id);
  rows->add();
}

int fill_lock_waits(THD *thd, TABLE_LIST *tables, COND *)
{
  Rows rows(thd, tables);
  return fill(&rows, [&] { return varve_db_lock_waits(db, add_lock_wait, &rows); });
}

}  // namespace

int init_trx(void *schema)
{
  return init_table(schema, trx_fields, fill_trx);
}

int init_locks(void *schema)
{
  return init_table(schema, lock_fields, fill_locks);
}

int init_lock_waits(void *schema)
{
  return init_table(schema, lock_wait_fields, fill_lock_waits);
}

}  // namespace varve_plugin

// What its connection says of the tables that it uses.
void ha_varve::count_use(THD *thd, Use use)
{
  varve_plugin::Session *session= varve_plugin::Session::known(thd);
  if (session && m_use != Use::NONE)
    session->leave_table(m_use == Use::LOCKS);
  if (session && use != Use::NONE)
    session->use_table(use == Use::LOCKS);
  m_use= session ? use : Use::NONE;
}
