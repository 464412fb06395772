// import.cc: tables' files on their way to other servers: FLUSH TABLES ... FOR EXPORT, DISCARD and IMPORT
// TABLESPACE.
//
// A table whose tablespace was discarded can be opened, as the server does for ALTER TABLE ... IMPORT
// TABLESPACE and to show what it is, but its handler has no engine table. A statement that wants rows is
// refused when it locks the table. Handlers that were opened so are of no use later: the import has the
// server forget them.

#include "ha_varve.h"

#include "engine.h"
#include "error_map.h"
#include "foreign.h"
#include "progress.h"
#include "tmpdir.h"

#include "table_cache.h"

using namespace varve_plugin;

static void warn(THD *thd, uint number, const char *name)
{
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, number, ER_THD(thd, number), name);
}

// What open does if the tablespace was discarded, or is to be though it can't be used.
int ha_varve::open_discarded()
{
  if (m_is_unusable)
    warn(ha_thd(), ER_TABLESPACE_MISSING, m_name.c_str());
  m_is_discarded= true;
  // Nobody gets positions of it; the server wants room for some.
  ref_length= 8;
  stats= ha_statistics();
  return 0;
}

// Whether a statement may have the table though there are no rows: it wants none, or is refused later, in
// InnoDB's words.
int ha_varve::begin_discarded(THD *thd)
{
  if (thd_tablespace_op(thd))
    return 0;
  switch (thd_sql_command(thd)) {
  case SQLCOM_TRUNCATE:
  case SQLCOM_LOCK_TABLES:
  case SQLCOM_CREATE_TRIGGER:
  case SQLCOM_DROP_TRIGGER:
  case SQLCOM_CREATE_VIEW:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR:
    return 0;
  default:
    return m_failure= HA_ERR_TABLESPACE_MISSING;
  }
}

// FLUSH TABLES ... FOR EXPORT and ... WITH READ LOCK lock the table as LOCK TABLES does. Until UNLOCK TABLES
// its file can be copied.
int ha_varve::begin_export(THD *thd)
{
  end_export();
  Session *session= Session::of(thd);
  if (!session)
    return HA_ERR_INTERNAL_ERROR;
  session->heed_kill(thd);
  const varve_code code= varve_export_begin(db, session->txn(), m_name.c_str(), &m_export);
  return code ? failed(code) : 0;
}

void ha_varve::end_export()
{
  if (m_export)
    varve_export_end(m_export);
  m_export= nullptr;
}

int ha_varve::discard_or_import_tablespace(my_bool discard)
{
  if (table_share->tmp_table != NO_TMP_TABLE)
  {
    my_error(ER_CANNOT_DISCARD_TEMPORARY_TABLE, MYF(0));
    return HA_ERR_TABLE_NEEDS_UPGRADE;
  }
  return discard ? discard_tablespace() : import_tablespace();
}

int ha_varve::discard_tablespace()
{
  THD *thd= ha_thd();
  if (m_is_discarded)
    warn(thd, ER_TABLESPACE_MISSING, m_name.c_str());
  if (m_is_discarded && !m_is_unusable)
    return 0;
  Session *session= Session::of(thd);
  if (!session)
    return HA_ERR_INTERNAL_ERROR;
  if (m_table)
    if (int error= session->wait_for_others(thd, m_table))
      return error;
  close_table();
  const varve_code code= varve_table_discard(db, m_name.c_str(), foreign_key_checks(thd));
  if (code)
  {
    // In the server's words, as for InnoDB.
    const int error= code == VARVE_TABLE_IS_REFERENCED ? handler_code(code) : report(thd, code);
    if (m_is_unusable || open_table())
      table->mark_table_for_reopen();
    return error;
  }
  forget_statistics(m_name);
  m_is_discarded= true;
  m_is_unusable= false;
  return 0;
}

int ha_varve::import_tablespace()
{
  THD *thd= ha_thd();
  Session *session= Session::of(thd);
  if (!session)
    return HA_ERR_INTERNAL_ERROR;
  session->heed_kill(thd);
  if (m_is_unusable)
    table->mark_table_for_reopen();
  // Its pages are checked, its rows read, and entries sorted and loaded.
  Progress_report progress(thd, Progress_report::ALTERS, 3);
  varve_code code= m_is_discarded ? sort_in_tmpdir(thd, session->txn()) : VARVE_ALREADY_EXISTS;
  if (!code)
    code= varve_table_import(db, session->txn(), m_name.c_str());
  if (code == VARVE_ALREADY_EXISTS)
  {
    my_error(ER_TABLESPACE_EXISTS, MYF(0), m_name.c_str());
    return HA_ERR_TABLE_EXIST;
  }
  if (code == VARVE_SCHEMA_MISMATCH)
  {
    my_error(ER_TABLE_SCHEMA_MISMATCH, MYF(0), varve_last_error());
    return HA_ERR_GENERIC;
  }
  if (code)
    return report(thd, code);
  forget_discarded();
  return 0;
}

// The table has rows again: this handler, and others that were opened before, are not used for another
// statement.
void ha_varve::forget_discarded()
{
  table_share->tdc->flush(ha_thd(), true);
  table->mark_table_for_reopen();
}

// An empty table needs no file to be imported.
int ha_varve::truncate_discarded()
{
  THD *thd= ha_thd();
  if (varve_code code= varve_table_truncate(db, m_name.c_str(), foreign_key_checks(thd)))
    return report(thd, code);
  warn(thd, ER_TABLESPACE_DISCARDED, table_share->table_name.str);
  forget_discarded();
  return 0;
}

// ALTER TABLE waits for the file.
bool ha_varve::refuses_alter()
{
  if (m_is_discarded)
  {
    // OPTIMIZE TABLE shows both.
    warn(ha_thd(), ER_TABLESPACE_DISCARDED, table_share->table_name.str);
    print_error(HA_ERR_TABLESPACE_MISSING, MYF(0));
  }
  return m_is_discarded;
}
