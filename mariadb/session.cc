// session.cc: transactions as the server conducts them.
//
// The server calls commit and rollback both at a statement's end (all = false, inside a transaction) and at a
// transaction's. Which one a call is depends on whether the connection is in a multi-statement transaction.
// The phases before a commit that has a coordinator are in xa.cc.

#include "session.h"

#include "derived.h"
#include "engine.h"
#include "error_map.h"
#include "progress.h"
#include "sysvars.h"

namespace varve_plugin {

Session *Session::known(THD *thd)
{
  return static_cast<Session *>(thd_get_ha_data(thd, hton));
}

Session *Session::of(THD *thd)
{
  if (Session *session= known(thd))
    return session;
  varve_txn *txn;
  if (varve_code code= varve_txn_open(db, VARVE_TABLES_LOCKED_BY_CALLER, &txn))
  {
    report(thd, code);
    return nullptr;
  }
  give_values(txn);
  varve_txn_set_session(txn, thd->thread_id);
  auto session= new Session(txn);
  varve_txn_set_watch(txn, tell_progress, session);
  thd_set_ha_data(thd, hton, session);
  return session;
}

varve_txn *Session::sequence_txn()
{
  if (!m_sequence_txn)
  {
    if (varve_txn_open(db, VARVE_TABLES_LOCKED_BY_CALLER, &m_sequence_txn))
      return nullptr;
    varve_txn_set_session(m_sequence_txn, current_thd->thread_id);
  }
  return m_sequence_txn;
}

bool in_transaction(THD *thd)
{
  return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN);
}

// The engine's isolation level for a transaction that begins now. A SELECT that is a transaction of its own
// is serializable without locks: it takes effect when its view opens. Whatever else locks does so under
// REPEATABLE READ in the same way.
static varve_isolation isolation_of(THD *thd)
{
  switch (thd_tx_isolation(thd))
  {
  case ISO_READ_UNCOMMITTED:
    return VARVE_READ_UNCOMMITTED;
  case ISO_READ_COMMITTED:
    return VARVE_READ_COMMITTED;
  case ISO_SERIALIZABLE:
    return in_transaction(thd) ? VARVE_SERIALIZABLE : VARVE_REPEATABLE_READ;
  default:
    return VARVE_REPEATABLE_READ;
  }
}

int Session::begin(THD *thd)
{
  if (varve_txn_is_open(m_txn))
    return 0;
  m_is_prepared= m_holds_commit= m_is_ordered= false;
  changed_tables.begin();
  m_begun.store(thd->start_utime, std::memory_order_relaxed);
  if (!m_last_statement.text.empty() || !m_foreign_error.empty())
  {
    mysql_mutex_lock(&thd->LOCK_thd_data);
    m_last_statement.text.clear();
    m_foreign_error.clear();
    mysql_mutex_unlock(&thd->LOCK_thd_data);
  }
  if (varve_code code= varve_txn_begin(m_txn, isolation_of(thd)))
    return report(thd, code);
  return 0;
}

// Only the connection's own thread stores: what it loads is its own.
static void add(std::atomic<uint> &to, int n)
{
  to.store(to.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

void Session::use_table(bool locks)
{
  add(m_tables_in_use, 1);
  add(m_tables_locked, locks);
}

void Session::leave_table(bool locks)
{
  add(m_tables_in_use, -1);
  add(m_tables_locked, -int(locks));
}

// A statement of a transaction that goes on has ended. Its text's memory is used again.
void Session::note_statement(THD *thd)
{
  if (!thd->query())
    return;
  mysql_mutex_lock(&thd->LOCK_thd_data);
  m_last_statement.text.assign(thd->query(), std::min<size_t>(thd->query_length(), MOST_OF_STATEMENT));
  m_last_statement.charset= thd->query_charset();
  mysql_mutex_unlock(&thd->LOCK_thd_data);
}

void Session::note_foreign_error(THD *thd, const std::string &what)
{
  mysql_mutex_lock(&thd->LOCK_thd_data);
  m_foreign_error= what.substr(0, 256);
  mysql_mutex_unlock(&thd->LOCK_thd_data);
}

// The server notes that the connection is killed before it calls kill_query.
void Session::heed_kill(THD *thd)
{
  varve_txn_clear_interrupt(m_txn);
  if (thd_kill_level(thd) != THD_IS_NOT_KILLED)
    varve_txn_interrupt(m_txn);
}

int Session::start_statement(THD *thd)
{
  if (m_in_statement)
    return 0;
  heed_kill(thd);
  if (int error= begin(thd))
    return error;
  if (thd_tx_isolation(thd) < ISO_REPEATABLE_READ)
    changed_tables.note_what_is_seen();
  varve_txn_set_lock_wait_timeout(m_txn, lock_wait_timeout_ms(thd));
  // In a deadlock others give way, as in InnoDB: tables without transactions would keep what it did.
  varve_txn_set_spared(m_txn, thd->transaction->all.modified_non_trans_table);
  varve_txn_set_foreign_key_checks(m_txn, !thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS));
  if (varve_code code= varve_txn_start_statement(m_txn))
    return report(thd, code);
  trans_register_ha(thd, false, hton, 0);
  if (in_transaction(thd))
    trans_register_ha(thd, true, hton, 0);
  m_in_statement= true;
  return 0;
}

int Session::see_the_same_from_here(THD *thd)
{
  if (thd_tx_isolation(thd) != ISO_REPEATABLE_READ)
    return 0;
  const varve_code code= varve_txn_take_snapshot(m_txn);
  return code ? report(thd, code) : 0;
}

int Session::start_snapshot(THD *thd)
{
  heed_kill(thd);
  if (int error= begin(thd))
    return error;
  trans_register_ha(thd, true, hton, 0);
  if (thd_tx_isolation(thd) != ISO_REPEATABLE_READ)
  {
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_UNSUPPORTED,
                        "VARVE: WITH CONSISTENT SNAPSHOT was ignored because this phrase can only be used with "
                        "REPEATABLE READ isolation level.");
    return 0;
  }
  if (varve_code code= varve_txn_take_snapshot(m_txn))
    return report(thd, code);
  return 0;
}

int Session::wait_for_table(THD *thd, const varve_table *table, bool exclusive)
{
  if (!m_waiter)
  {
    if (varve_code code= varve_txn_open(db, VARVE_TABLES_LOCKED_BY_ENGINE, &m_waiter))
      return report(thd, code);
    varve_txn_interrupt_with(m_waiter, m_txn);
    varve_txn_set_session(m_waiter, thd->thread_id);
  }
  heed_kill(thd);
  varve_txn_set_lock_wait_timeout(m_waiter, lock_wait_timeout_ms(thd));
  varve_code code= varve_txn_begin(m_waiter, VARVE_READ_COMMITTED);
  if (!code)
    code= varve_txn_lock_table(m_waiter, table, exclusive);
  const int error= code ? report(thd, code) : 0;
  varve_txn_rollback(m_waiter);
  return error;
}

void Session::abandon()
{
  varve_txn_rollback(m_txn);
}

// The slow log counts it as lock time.
void Session::tell_lock_wait(THD *thd)
{
  if (const uint64_t waited= varve_txn_take_lock_wait_us(m_txn))
    thd_storage_lock_wait(thd, longlong(waited));
}

int Session::commit(THD *thd, bool all)
{
  m_in_statement= false;
  tell_lock_wait(thd);
  if (!all && in_transaction(thd))
  {
    note_statement(thd);
    const varve_code ended= varve_txn_end_statement(m_txn);
    return ended ? report(thd, ended) : 0;
  }
  varve_code code;
  changed_tables.about_to_commit();
  if (m_is_prepared)
    code= commit_prepared(m_prepared_xid);
  else if (m_is_ordered)
    code= varve_txn_commit_decided(m_txn);
  else
    code= commit_alone(thd);
  changed_tables.end(true);
  m_is_prepared= m_holds_commit= m_is_ordered= false;
  return code ? report(thd, code) : 0;
}

// No coordinator has ordered this commit among others: later ones that replicate can go on once its place is
// fixed.
varve_code Session::commit_alone(THD *thd)
{
  if (varve_txn_is_open(m_txn))
  {
    if (varve_code code= varve_txn_commit_start(m_txn))
    {
      // If it is prepared, its coordinator has decided, and will again after a restart.
      bool is_prepared;
      if (varve_txn_detach(m_txn, &is_prepared) || !is_prepared)
        varve_txn_rollback(m_txn);
      return code;
    }
    thd_wakeup_subsequent_commits(thd, 0);
  }
  return varve_txn_commit(m_txn);
}

int Session::rollback(THD *thd, bool all)
{
  m_in_statement= false;
  tell_lock_wait(thd);
  const bool whole= all || !in_transaction(thd);
  Progress_report progress(thd, Progress_report::OTHER, 1);
  varve_code code;
  if (!whole)
  {
    note_statement(thd);
    code= varve_txn_rollback_statement(m_txn);
  }
  else if (m_is_prepared)
    code= varve_db_rollback_prepared(db, &m_prepared_xid);
  else
    code= varve_txn_rollback(m_txn);
  if (whole)
  {
    changed_tables.end(false);
    m_is_prepared= m_holds_commit= m_is_ordered= false;
  }
  return code ? report(thd, code) : 0;
}

static int commit(handlerton *, THD *thd, bool all)
{
  Session *session= Session::of(thd);
  return session ? session->commit(thd, all) : HA_ERR_INTERNAL_ERROR;
}

static int rollback(handlerton *, THD *thd, bool all)
{
  Session *session= Session::of(thd);
  return session ? session->rollback(thd, all) : HA_ERR_INTERNAL_ERROR;
}

// `at` is the memory that the server keeps for this savepoint.
static int savepoint_set(handlerton *, THD *thd, void *at)
{
  Session *session= Session::of(thd);
  if (!session)
    return HA_ERR_INTERNAL_ERROR;
  uint64_t savepoint;
  if (varve_code code= varve_txn_savepoint(session->txn(), &savepoint))
    return report(thd, code);
  memcpy(at, &savepoint, sizeof savepoint);
  return 0;
}

static int savepoint_rollback(handlerton *, THD *thd, void *at)
{
  Session *session= Session::of(thd);
  if (!session)
    return HA_ERR_INTERNAL_ERROR;
  uint64_t savepoint;
  memcpy(&savepoint, at, sizeof savepoint);
  Progress_report progress(thd, Progress_report::OTHER, 1);
  if (varve_code code= varve_txn_rollback_to(session->txn(), savepoint))
    return report(thd, code);
  return 0;
}

// As InnoDB: what the transaction has used since the savepoint is free for DDL if it holds no lock at all. So
// `mysqldump --single-transaction` keeps DDL from one table at a time.
static bool savepoint_rollback_can_release_mdl(handlerton *, THD *thd)
{
  Session *session= Session::known(thd);
  return session && !varve_txn_holds_locks(session->txn());
}

// A savepoint is a number: there is nothing to free.
static int savepoint_release(handlerton *, THD *, void *)
{
  return 0;
}

static int start_consistent_snapshot(handlerton *, THD *thd)
{
  Session *session= Session::of(thd);
  return session ? session->start_snapshot(thd) : HA_ERR_INTERNAL_ERROR;
}

// Runs in the killer's thread, which holds the victim's LOCK_thd_data: close_connection waits for that.
void kill_query(handlerton *, THD *thd, enum thd_kill_levels)
{
  if (Session *session= Session::known(thd))
    varve_txn_interrupt(session->m_txn);
}

int close_connection(handlerton *, THD *thd)
{
  Session *session= Session::known(thd);
  thd_set_ha_data(thd, hton, nullptr);
  if (session)
  {
    varve_txn_close(session->m_txn);
    session->changed_tables.end(false);
    for (varve_txn *txn : {session->m_waiter, session->m_sequence_txn})
      if (txn)
        varve_txn_close(txn);
    delete session;
  }
  return 0;
}

void install_transaction_calls(handlerton *hton)
{
  hton->commit= commit;
  hton->rollback= rollback;
  hton->savepoint_offset= sizeof(uint64_t);
  hton->savepoint_set= savepoint_set;
  hton->savepoint_rollback= savepoint_rollback;
  hton->savepoint_rollback_can_release_mdl= savepoint_rollback_can_release_mdl;
  hton->savepoint_release= savepoint_release;
  hton->start_consistent_snapshot= start_consistent_snapshot;
  hton->kill_query= kill_query;
  hton->close_connection= close_connection;
  install_two_phase_calls(hton);
}

}  // namespace varve_plugin
