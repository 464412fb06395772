// schema.cc: INFORMATION_SCHEMA.VARVE_METRICS and VARVE_UNDO_TABLESPACES.
//
// As InnoDB's tables of this kind, they need the PROCESS privilege.

#include "engine.h"

#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_show.h"

#include <cstring>
#include <mutex>

namespace varve_plugin {

namespace {

// Where rows go.
struct Rows
{
  THD *thd;
  TABLE *table;
  bool failed= false;

  Rows(THD *thd, TABLE_LIST *tables) : thd(thd), table(tables->table) {}

  void set(uint column, const char *text)
  {
    table->field[column]->store(text, strlen(text), system_charset_info);
  }
  void set(uint column, ulonglong number) { table->field[column]->store(longlong(number), true); }

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

ST_FIELD_INFO metric_fields[]= {
  Show::Column("NAME", Show::Varchar(64), NOT_NULL),
  Show::Column("SUBSYSTEM", Show::Varchar(64), NOT_NULL),
  Show::Column("COUNT", Show::ULonglong(), NOT_NULL),
  Show::Column("ENABLED", Show::SLong(1), NOT_NULL),
  Show::Column("TYPE", Show::Varchar(64), NOT_NULL),
  Show::Column("COMMENT", Show::Varchar(193), NOT_NULL),
  Show::CEnd()};

void add_metric(void *context, const varve_metric *metric)
{
  Rows *rows= static_cast<Rows *>(context);
  rows->set(0, metric->name);
  rows->set(1, metric->subsystem);
  rows->set(2, metric->value);
  rows->set(3, 1);
  rows->set(4, metric->kind == VARVE_METRIC_COUNTER ? "counter" : "value");
  rows->set(5, metric->comment);
  rows->add();
}

int fill_metrics(THD *thd, TABLE_LIST *tables, COND *)
{
  Rows rows(thd, tables);
  return fill(&rows, [&] { return varve_db_metrics(db, add_metric, &rows); });
}

ST_FIELD_INFO undo_tablespace_fields[]= {
  Show::Column("NUMBER", Show::ULong(), NOT_NULL),
  Show::Column("SPACE", Show::ULong(), NOT_NULL),
  Show::Column("FILENAME", Show::Varchar(1024), NOT_NULL),
  Show::Column("FILE_SIZE", Show::ULonglong(), NOT_NULL),
  Show::Column("STATE", Show::Varchar(10), NOT_NULL),
  Show::Column("ROLLBACK_SEGMENTS", Show::ULong(), NOT_NULL),
  Show::Column("HISTORY_LENGTH", Show::ULonglong(), NOT_NULL),
  Show::Column("PAGES_USED", Show::ULong(), NOT_NULL),
  Show::Column("TRUNCATIONS", Show::ULonglong(), NOT_NULL),
  Show::CEnd()};

void add_undo_tablespace(void *context, const varve_undo_tablespace *space)
{
  Rows *rows= static_cast<Rows *>(context);
  rows->set(0, space->number);
  rows->set(1, space->space_id);
  rows->set(2, space->path);
  rows->set(3, space->file_bytes);
  rows->set(4, space->state);
  rows->set(5, space->rollback_segments);
  rows->set(6, space->history_length);
  rows->set(7, space->pages_used);
  rows->set(8, space->truncations);
  rows->add();
}

int fill_undo_tablespaces(THD *thd, TABLE_LIST *tables, COND *)
{
  Rows rows(thd, tables);
  return fill(&rows, [&] { return varve_db_undo_tablespaces(db, add_undo_tablespace, &rows); });
}

int init_table(void *p, ST_FIELD_INFO *fields, int (*fill_table)(THD *, TABLE_LIST *, COND *))
{
  auto *schema= static_cast<ST_SCHEMA_TABLE *>(p);
  schema->fields_info= fields;
  schema->fill_table= fill_table;
  return 0;
}

}  // namespace

int init_metrics(void *schema)
{
  return init_table(schema, metric_fields, fill_metrics);
}

int init_undo_tablespaces(void *schema)
{
  return init_table(schema, undo_tablespace_fields, fill_undo_tablespaces);
}

}  // namespace varve_plugin
