// schema.h: what INFORMATION_SCHEMA tables of the engine are made with.
//
// As InnoDB's tables of this kind, they need the PROCESS privilege.

#ifndef VARVE_SCHEMA_H
#define VARVE_SCHEMA_H

#include "engine.h"

#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_show.h"
#include "tztime.h"

#include <cstring>
#include <mutex>
#include <string>

namespace varve_plugin {

// Where rows go.
struct Rows
{
  THD *thd;
  TABLE *table;
  bool failed= false;

  Rows(THD *thd, TABLE_LIST *tables) : thd(thd), table(tables->table) {}

  void set(uint column, const char *text) { set(column, text, strlen(text), system_charset_info); }
  void set(uint column, const std::string &text)
  {
    set(column, text.data(), text.size(), system_charset_info);
  }
  void set(uint column, const char *text, size_t length, CHARSET_INFO *charset)
  {
    table->field[column]->set_notnull();
    table->field[column]->store(text, uint(length), charset);
  }
  void set(uint column, ulonglong number)
  {
    table->field[column]->set_notnull();
    table->field[column]->store(longlong(number), true);
  }
  // Of a column that may be NULL.
  void set_null(uint column) { table->field[column]->set_null(); }
  template<typename Value> void set_if(bool there_is_one, uint column, const Value &value)
  {
    if (there_is_one)
      set(column, value);
    else
      set_null(column);
  }
  void set_time(uint column, my_time_t at)
  {
    MYSQL_TIME time;
    thd->variables.time_zone->gmt_sec_to_TIME(&time, at);
    table->field[column]->set_notnull();
    table->field[column]->store_time(&time);
  }

  void add() { failed= failed || schema_table_store_record(thd, table); }
};

// Has `tell` hand the engine's answer to `rows`. Without the engine the table is empty.
template<typename Tell> int fill(Rows *rows, Tell tell)
{
  if (check_global_access(rows->thd, PROCESS_ACL))
    return 1;
  const std::shared_lock<std::shared_mutex> stays(db_mutex);
  if (!db)
  {
    push_warning_printf(rows->thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_STORAGE_ENGINE,
                        ER_THD(rows->thd, ER_UNKNOWN_STORAGE_ENGINE), "VARVE");
    return 0;
  }
  if (tell())
  {
    my_printf_error(ER_GET_ERRMSG, "VARVE: %s", MYF(0), varve_last_error());
    return 1;
  }
  return rows->failed;
}

inline int init_table(void *p, ST_FIELD_INFO *fields, int (*fill_table)(THD *, TABLE_LIST *, COND *))
{
  auto *schema= static_cast<ST_SCHEMA_TABLE *>(p);
  schema->fields_info= fields;
  schema->fill_table= fill_table;
  return 0;
}

}  // namespace varve_plugin

#endif
