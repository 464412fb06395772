// transactions.h: what connections have to say of themselves where the engine tells of their transactions.

#ifndef VARVE_TRANSACTIONS_H
#define VARVE_TRANSACTIONS_H

#include "server.h"

#include <map>
#include <string>

namespace varve_plugin {

// What is copied of a statement's text, as InnoDB does.
constexpr size_t MOST_OF_STATEMENT= 1024;

// A statement's text, the beginning of it.
struct Statement_text
{
  std::string text;
  CHARSET_INFO *charset= system_charset_info;
};

// A connection, as it is at the moment.
struct Told_connection
{
  // Since the transaction's first statement began.
  ulonglong active_us;
  // Since the last statement ended; 0 while there is one.
  ulonglong idle_us;
  // What runs, or if nothing does, the transaction's last statement.
  Statement_text statement;
  bool is_idle;
  std::string operation;
  uint tables_in_use;
  uint tables_locked;
  bool unique_checks;
  bool foreign_key_checks;
  bool is_read_only;
  bool in_transaction;
  std::string foreign_error;
  // "MariaDB thread id ...", with the statement that runs.
  std::string description;
};

// By the numbers of connections.
using Told_connections= std::map<ulonglong, Told_connection>;

// All connections that have used the engine, or only the one with this number. The caller holds no
// connection's mutex.
Told_connections told_connections();
Told_connections told_connection(ulonglong number);

// For varve_db_report and its like: what there is to say of a connection.
class Session_texts
{
public:
  explicit Session_texts(Told_connections connections) : m_connections(std::move(connections)) {}
  bool tell(ulonglong number, varve_session_text *out);

private:
  Told_connections m_connections;
  std::string m_before, m_after;
};

// A varve_session_fn over Session_texts.
bool tell_session(void *texts, uint64_t number, varve_session_text *out);

// For varve_monitor_options: what a connection is doing. Keeps the text, in UTF-8, in the std::string that
// `statement` is. The monitor's thread calls it, which is no connection's.
bool tell_activity(void *statement, uint64_t number, varve_session_activity *out);

// Has the reports of deadlocks say what their members' connections were doing, and the error log have them if
// it is to.
void describe_deadlock();

}  // namespace varve_plugin

#endif
