// xa.cc: two-phase commit with the server's binary log, and with coordinators outside (XA).
//
// With the binary log on, the server is the coordinator of each transaction: prepare makes it durable here,
// the binary log's sync decides, commit_ordered makes it visible in the log's order, and commit has nothing
// to wait for. After a crash recover() lists the prepared transactions, and the server decides by its log.
//
// XA PREPARE lets the engine's transaction go at once: it belongs to its XID alone, whether or not the
// connection lives on, so that XA COMMIT and XA ROLLBACK of any connection find it.

#include "session.h"

#include "engine.h"
#include "error_map.h"
#include "sysvars.h"

#include <algorithm>
#include <vector>

namespace varve_plugin {

namespace {

// The return values of the *_by_xid calls, by X/Open.
const int XA_NO_SUCH_TRANSACTION= -4;
const int XA_RESOURCE_MANAGER_FAILED= -3;

varve_xid to_engine(const XID &xid)
{
  varve_xid out{};
  out.format= xid.formatID;
  out.global_len= uint32_t(xid.gtrid_length);
  out.branch_len= uint32_t(xid.bqual_length);
  memcpy(out.parts, xid.data, std::min(sizeof out.parts, size_t(xid.gtrid_length + xid.bqual_length)));
  return out;
}

void to_server(const varve_xid &xid, XID *out)
{
  const char *parts= reinterpret_cast<const char *>(xid.parts);
  out->set(long(xid.format), parts, long(xid.global_len), parts + xid.global_len, long(xid.branch_len));
}

// A transaction of the server's, which its log decides about.
bool is_servers_own(const varve_xid &xid)
{
  XID own;
  to_server(xid, &own);
  return own.get_my_xid() != 0;
}

int prepare(handlerton *, THD *thd, bool all)
{
  Session *session= Session::of(thd);
  return session ? session->prepare(thd, all) : HA_ERR_INTERNAL_ERROR;
}

// Serialised by the server, possibly in the thread of another connection while this one's waits: nothing here
// may use the thread's own data, or fail.
void commit_ordered(handlerton *, THD *thd, bool all)
{
  if (void *session= thd_get_ha_data(thd, hton))
    static_cast<Session *>(session)->commit_ordered(thd, all);
}

// At start-up there is no connection to tell.
int by_xid_result(varve_code code)
{
  if (code == VARVE_OK)
    return 0;
  if (code == VARVE_NOT_FOUND)
    return XA_NO_SUCH_TRANSACTION;
  if (THD *thd= current_thd)
    report(thd, code);
  sql_print_error("VARVE: a prepared transaction could not be ended: %s", varve_last_error());
  return XA_RESOURCE_MANAGER_FAILED;
}

int commit_by_xid(handlerton *, XID *xid)
{
  const varve_xid id= to_engine(*xid);
  return by_xid_result(commit_prepared(id));
}

int rollback_by_xid(handlerton *, XID *xid)
{
  const varve_xid id= to_engine(*xid);
  return by_xid_result(varve_db_rollback_prepared(db, &id));
}

void collect(void *context, const varve_xid *xid)
{
  static_cast<std::vector<varve_xid> *>(context)->push_back(*xid);
}

// The server asks again as long as its list was filled. Only start-up asks, with one thread.
int recover(handlerton *, XID *list, uint length)
{
  static std::vector<varve_xid> left;
  static bool asked;
  if (!asked)
  {
    left.clear();
    if (varve_db_prepared(db, collect, &left))
    {
      sql_print_error("VARVE: cannot list prepared transactions: %s", varve_last_error());
      return 0;
    }
    // Nothing can be decided then, and the server would not start without having decided.
    if (is_read_only())
      left.erase(std::remove_if(left.begin(), left.end(), is_servers_own), left.end());
  }
  uint n= 0;
  for (; n < length && !left.empty(); n++, left.pop_back())
    to_server(left.back(), list + n);
  asked= n == length;
  return int(n);
}

// The binary log wants to forget the transactions that it would repeat after a crash. If the engine has
// failed, it is never told that it may: a restart needs them.
//
// Waits for the log, though it may not have to: the server keeps those who have been told of in a list, and
// loses or repeats some if a second engine tells of a file again, from another thread, while the list is
// worked through. RESET MASTER then names a file that is gone as the checkpoint of the new one, and the next
// start after a crash fails.
void commit_checkpoint_request(void *cookie)
{
  if (varve_db_flush_log(db))
    sql_print_error("VARVE: cannot make commits durable: %s", varve_last_error());
  else
    commit_checkpoint_notify_ha(cookie);
}

}  // namespace

varve_code commit_prepared(const varve_xid &xid)
{
  const Change_of_all change;
  return varve_db_commit_prepared(db, &xid);
}

int Session::prepare(THD *thd, bool all)
{
  if ((!all && in_transaction(thd)) || !varve_txn_is_open(m_txn))
    return 0;  // The end of a statement; or nothing to promise.
  const bool lets_go= thd_sql_command(thd) == SQLCOM_XA_PREPARE;
  if (lets_go && varve_txn_has_temporary_changes(m_txn))
    // They belong to the connection, and end with it; the branch does not.
    return refuse("XA PREPARE of a branch that has changed temporary tables");
  XID xid;
  thd_get_xid(thd, reinterpret_cast<MYSQL_XID *>(&xid));
  const varve_xid id= to_engine(xid);
  if (varve_code code= varve_txn_prepare(m_txn, &id))
    return report(thd, code);
  if (lets_go)
  {
    m_prepared_xid= id;
    if (varve_code code= varve_txn_release_searches(m_txn))
      return report(thd, code);
    if (varve_code code= varve_txn_detach(m_txn, &m_is_prepared))
      return report(thd, code);
    changed_tables.end(true);
    return 0;
  }
  if (varve_code code= varve_txn_hold_commit(m_txn))
    return report(thd, code);
  changed_tables.about_to_commit();
  m_holds_commit= true;
  return 0;
}

void Session::commit_ordered(THD *thd, bool all)
{
  if (!all && in_transaction(thd))
    return;
  // If it was not prepared, it only read. A failure means that the engine has stopped: commit will say so.
  if (m_holds_commit)
    m_is_ordered= varve_txn_commit_start(m_txn) == VARVE_OK;
  m_holds_commit= false;
}

void install_two_phase_calls(handlerton *hton)
{
  hton->prepare= prepare;
  hton->commit_ordered= commit_ordered;
  hton->recover= recover;
  hton->commit_by_xid= commit_by_xid;
  hton->rollback_by_xid= rollback_by_xid;
  hton->commit_checkpoint_request= commit_checkpoint_request;
}

}  // namespace varve_plugin
