// schema.cc: INFORMATION_SCHEMA.VARVE_METRICS, VARVE_UNDO_TABLESPACES, VARVE_SYS_FOREIGN and
// VARVE_SYS_FOREIGN_COLS.

#include "schema.h"
#include "foreign.h"

#include <vector>

namespace varve_plugin {

namespace {

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

ST_FIELD_INFO foreign_fields[]= {
  Show::Column("ID", Show::Varchar(NAME_LEN * 2 + 1), NOT_NULL),
  Show::Column("FOR_NAME", Show::Varchar(NAME_LEN * 2 + 1), NOT_NULL),
  Show::Column("REF_NAME", Show::Varchar(NAME_LEN * 2 + 1), NOT_NULL),
  Show::Column("N_COLS", Show::ULong(), NOT_NULL),
  Show::Column("TYPE", Show::ULong(), NOT_NULL),
  Show::CEnd()};

ST_FIELD_INFO foreign_column_fields[]= {
  Show::Column("ID", Show::Varchar(NAME_LEN * 2 + 1), NOT_NULL),
  Show::Column("FOR_COL_NAME", Show::Varchar(NAME_LEN), NOT_NULL),
  Show::Column("REF_COL_NAME", Show::Varchar(NAME_LEN), NOT_NULL),
  Show::Column("POS", Show::ULong(), NOT_NULL),
  Show::CEnd()};

// InnoDB's number for what a foreign key does.
ulonglong foreign_type(const Told_key &key)
{
  const auto bit= [](varve_referential_action action, uint cascade, uint set_null, uint no_action) -> uint {
    switch (action)
    {
    case VARVE_CASCADE:   return cascade;
    case VARVE_SET_NULL:  return set_null;
    case VARVE_NO_ACTION: return no_action;
    case VARVE_RESTRICT:  break;
    }
    return 0;
  };
  return bit(key.on_delete, 1, 2, 16) | bit(key.on_update, 4, 8, 32);
}

void add_foreign(Rows *rows, const Told_key &key, const std::string &id)
{
  rows->set(0, id.c_str());
  rows->set(1, key.child.c_str());
  rows->set(2, key.parent.c_str());
  rows->set(3, key.columns.size());
  rows->set(4, foreign_type(key));
  rows->add();
}

void add_foreign_columns(Rows *rows, const Told_key &key, const std::string &id)
{
  for (size_t i= 0; i < key.columns.size(); i++)
  {
    rows->set(0, id.c_str());
    rows->set(1, key.columns[i].c_str());
    rows->set(2, key.parent_columns[i].c_str());
    rows->set(3, i);
    rows->add();
  }
}

// Has `add` make the rows of each foreign key.
varve_code each_foreign_key(Rows *rows, void (*add)(Rows *, const Told_key &, const std::string &))
{
  std::vector<std::string> tables;
  const varve_code code= varve_db_tables(db, [](void *to, const char *name) {
    static_cast<std::vector<std::string> *>(to)->emplace_back(name);
  }, &tables);
  for (const std::string &name : tables)
  {
    varve_table *table;
    if (varve_table_open(db, name.c_str(), &table))
      continue;  // It has been dropped meanwhile, or can't be used.
    for (const Told_key &key : foreign_keys_of(table))
      add(rows, key, key.id());
    varve_table_close(table);
  }
  return code;
}

int fill_foreign(THD *thd, TABLE_LIST *tables, COND *)
{
  Rows rows(thd, tables);
  return fill(&rows, [&] { return each_foreign_key(&rows, add_foreign); });
}

int fill_foreign_columns(THD *thd, TABLE_LIST *tables, COND *)
{
  Rows rows(thd, tables);
  return fill(&rows, [&] { return each_foreign_key(&rows, add_foreign_columns); });
}

}  // namespace

int init_metrics(void *schema)
{
  return init_table(schema, metric_fields, fill_metrics);
}

int init_foreign(void *schema)
{
  return init_table(schema, foreign_fields, fill_foreign);
}

int init_foreign_columns(void *schema)
{
  return init_table(schema, foreign_column_fields, fill_foreign_columns);
}

int init_undo_tablespaces(void *schema)
{
  return init_table(schema, undo_tablespace_fields, fill_undo_tablespaces);
}

}  // namespace varve_plugin
