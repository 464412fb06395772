// session.h: a connection's side of the engine, and the server's calls about transactions.
//
// A Session is made when a connection first touches a VARVE table and lives until it ends. Its engine
// transaction begins with the first statement that uses one and ends with the server's commit or rollback.

#ifndef VARVE_SESSION_H
#define VARVE_SESSION_H

#include "server.h"

#include "kept_results.h"
#include "transactions.h"

#include <algorithm>
#include <atomic>

namespace varve_plugin {

class Progress_report;

class Session
{
public:
  // The session of a connection, made at the first call. Null if the engine could not make one; then the
  // client has been told.
  static Session *of(THD *thd);

  // The session of a connection that has one, else null.
  static Session *known(THD *thd);

  const varve_txn *txn() const { return m_txn; }

  // A statement begins to use a table, or ends it.
  void use_table(bool locks);
  void leave_table(bool locks);

  // For lists of transactions, which other threads make: they hold the connection's LOCK_thd_data.
  ulonglong begun() const { return m_begun.load(std::memory_order_relaxed); }
  uint tables_in_use() const { return m_tables_in_use.load(std::memory_order_relaxed); }
  uint tables_locked() const { return m_tables_locked.load(std::memory_order_relaxed); }
  const Statement_text &last_statement() const { return m_last_statement; }
  const std::string &foreign_error() const { return m_foreign_error; }

  // The transaction's last error of a foreign key.
  void note_foreign_error(THD *thd, const std::string &what);

  // The transaction of the connection's temporary sequences: a temporary table is one transaction's at a
  // time, and several handlers of a statement may use it. Null if it could not be made: varve_last_error says
  // why.
  varve_txn *sequence_txn();
  // Whether it is open.
  bool uses_sequences() const { return m_sequence_txn && varve_txn_is_open(m_sequence_txn); }

  // A statement begins, or something in it: a KILL of an earlier one is over, but not one of this, whenever
  // it came. From here on a KILL, soft or hard, ends whatever may take long in this session, and in those
  // that are interrupted with it.
  void heed_kill(THD *thd);

  // A statement begins to use a table: begins a transaction if there is none, and tells the server about it.
  // Called for each table; all but the first call of a statement do nothing. Returns a handler code.
  int start_statement(THD *thd);

  // A result is taken from the query cache: what the transaction reads later has to be of the same moment.
  // Returns a handler code.
  int see_the_same_from_here(THD *thd);

  // The server's START TRANSACTION WITH CONSISTENT SNAPSHOT.
  int start_snapshot(THD *thd);

  // A statement has a table's metadata lock to itself: waits until no transaction has uncommitted changes in
  // the table. A prepared one whose connection is gone has no metadata lock. Keeps no lock: new writers can't
  // come, and it would be in the way of the statement itself, which may drop the table.
  int wait_for_writers(THD *thd, const varve_table *table)
  {
    return wait_for_table(thd, table, false);
  }

  // The same, until none has looked there for the parent of a row either: for that there is no metadata lock.
  int wait_for_others(THD *thd, const varve_table *table)
  {
    return wait_for_table(thd, table, true);
  }

  // Rolls the engine's transaction back ahead of the server, which will do so too.
  void abandon();

  // xa.cc: the two phases that come before a commit if it has a coordinator.
  int prepare(THD *thd, bool all);
  void commit_ordered(THD *thd, bool all);

  int commit(THD *thd, bool all);
  int rollback(THD *thd, bool all);

  // For the query cache.
  Changed_tables changed_tables;

  // Who shows how far the engine has come in a call that takes long; null: nobody.
  Progress_report *progress= nullptr;

private:
  int wait_for_table(THD *thd, const varve_table *table, bool exclusive);

  explicit Session(varve_txn *txn)
    : m_txn(txn), m_waiter(nullptr), m_prepared_xid{}, m_in_statement(false), m_is_prepared(false),
        m_holds_commit(false),
      m_is_ordered(false)
  {
  }
  int begin(THD *thd);
  void note_statement(THD *thd);
  varve_code commit_alone(THD *thd);
  void tell_lock_wait(THD *thd);

  friend int close_connection(handlerton *, THD *thd);
  friend void kill_query(handlerton *, THD *thd, enum thd_kill_levels);

  varve_txn *const m_txn;
  // For wait_for_table, from its first use on.
  varve_txn *m_waiter;
  // For temporary sequences, the same.
  varve_txn *m_sequence_txn= nullptr;
  // What XA PREPARE of this connection has let go, for its own XA COMMIT or XA ROLLBACK.
  varve_xid m_prepared_xid;
  // Between the first start_statement and the statement's commit or rollback.
  bool m_in_statement;
  // m_prepared_xid is valid. What the connection does next ends it, or means that the server has let it go,
  // too.
  bool m_is_prepared;
  // The server has prepared the transaction, and can call commit_ordered.
  bool m_holds_commit;
  // commit_ordered was called: the changes are visible, and the server's log has decided.
  bool m_is_ordered;
  // When the transaction's first statement began, by the server's clock for durations; relaxed, as the two
  // numbers: they are shown, nothing else.
  std::atomic<ulonglong> m_begun{0};
  // Those of the running statement, and those of them that it locks rows in.
  std::atomic<uint> m_tables_in_use{0};
  std::atomic<uint> m_tables_locked{0};
  // Written by the connection itself, with its LOCK_thd_data.
  Statement_text m_last_statement;
  std::string m_foreign_error;
};

// Whether the connection is in a transaction of several statements.
bool in_transaction(THD *thd);

// Commits a prepared transaction that no session has.
varve_code commit_prepared(const varve_xid &xid);

int close_connection(handlerton *hton, THD *thd);
void kill_query(handlerton *hton, THD *thd, enum thd_kill_levels level);

// Fills in the handlerton's calls about transactions.
void install_transaction_calls(handlerton *hton);
void install_two_phase_calls(handlerton *hton);

}  // namespace varve_plugin

#endif
