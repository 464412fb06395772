// local.h: SQL of the plugin's own.

#ifndef VARVE_LOCAL_H
#define VARVE_LOCAL_H

#include "server.h"

#include <mysql/service_sql.h>

#include <functional>

namespace varve_plugin {

// A connection without a client, which may do anything, also in a read-only server, and writes to the binary
// log only if it has set sql_log_bin.
class Local_connection
{
public:
  Local_connection() : m_connection(mysql_init(nullptr))
  {
    m_is_well= m_connection && mysql_real_connect_local(m_connection);
  }
  Local_connection(const Local_connection &)= delete;
  Local_connection &operator=(const Local_connection &)= delete;
  ~Local_connection()
  {
    if (m_connection)
      mysql_close(m_connection);
    // The performance schema would show the last statement as long as the thread lives.
    PSI_CALL_set_thread_info(nullptr, 0);
  }

  bool execute(const char *statement)
  {
    return m_is_well && !mysql_real_query(m_connection, statement, ulong(strlen(statement)));
  }

  // Hands out each row of what the query gives; null is NULL.
  bool query(const char *statement, const std::function<void(char **)> &see)
  {
    if (!execute(statement))
      return false;
    MYSQL_RES *const rows= mysql_store_result(m_connection);
    if (!rows)
      return false;
    while (char **row= mysql_fetch_row(rows))
      see(row);
    mysql_free_result(rows);
    return true;
  }

  uint error() const { return m_is_well ? mysql_errno(m_connection) : 0; }
  const char *words() const { return m_connection ? mysql_error(m_connection) : "no memory"; }

private:
  MYSQL *m_connection;
  bool m_is_well;
};

}  // namespace varve_plugin

#endif
