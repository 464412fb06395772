// sequence.cc: CREATE SEQUENCE ... ENGINE=VARVE.
//
// A sequence is a table of one row, which the server reads and writes through its own handler on top of ours,
// under a mutex of the sequence. Values that were drawn are never given back: what is written to that row is
// not part of the connection's transaction. So a handler of a sequence has an engine transaction of its own,
// which reads what is committed and commits each change at once, durably if commits are. What kills the
// connection's statement interrupts it.
//
// The server does not say when it begins to use a temporary sequence: a scan or a row written begins by
// itself, and ends so.

#include "ha_varve.h"

#include "engine.h"
#include "error_map.h"
#include "sysvars.h"

using namespace varve_plugin;

// A statement begins to use the sequence.
int ha_varve::begin_own(THD *thd)
{
  Session *session= Session::of(thd);
  if (!session)
    return HA_ERR_INTERNAL_ERROR;
  if (table_share->tmp_table)
    m_own_txn= session->sequence_txn();
  else if (!m_own_txn)
    varve_txn_open(db, VARVE_TABLES_LOCKED_BY_CALLER, &m_own_txn);
  if (!m_own_txn)
    return HA_ERR_OUT_OF_MEM;
  session->heed_kill(thd);
  varve_txn_interrupt_with(m_own_txn, session->txn());
  m_txn= m_own_txn;
  if (!varve_txn_is_open(m_own_txn))
    if (varve_code code= varve_txn_begin(m_own_txn, VARVE_READ_COMMITTED))
      return failed(code);
  varve_txn_set_lock_wait_timeout(m_own_txn, lock_wait_timeout_ms(thd));
  varve_code code= varve_txn_start_statement(m_own_txn);
  return code ? failed(code) : 0;
}

// A row was written, or could not be. The next one begins anew.
int ha_varve::end_own(varve_code written)
{
  if (written)
  {
    const int error= failed(written);
    varve_txn_rollback(m_own_txn);
    return error;
  }
  if (varve_code code= varve_txn_commit(m_own_txn))
    return failed(code);
  if (m_unannounced && inited == NONE)
    return 0;
  return begin_own(ha_thd());
}

int ha_varve::begin_unannounced()
{
  if (m_txn && varve_txn_is_open(m_txn))
    return 0;
  const Session *session= Session::known(ha_thd());
  // Another handler of the sequence may have begun, and ends it.
  m_unannounced= !session || !session->uses_sequences();
  m_lock= VARVE_EXCLUSIVE;
  return begin_own(ha_thd());
}

void ha_varve::leave_unannounced()
{
  if (m_unannounced)
    leave_own();
  m_unannounced= false;
}

// The statement has ended. What it read was committed, and it has written nothing that is not.
void ha_varve::leave_own()
{
  if (m_own_txn)
    varve_txn_rollback(m_own_txn);
}

void ha_varve::close_own()
{
  if (m_own_txn && !table_share->tmp_table)
    varve_txn_close(m_own_txn);
  m_own_txn= nullptr;
  m_txn= nullptr;
}
