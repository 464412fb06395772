// schema.cc: INFORMATION_SCHEMA.VARVE_METRICS, VARVE_UNDO_TABLESPACES, VARVE_PURGE and
// VARVE_BUFFER_POOL_STATS.

#include "schema.h"

#include <array>
#include <cmath>
#include <utility>

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

ST_FIELD_INFO purge_fields[]= {
  Show::Column("STATE", Show::Varchar(10), NOT_NULL),
  Show::Column("HISTORY_LENGTH", Show::ULonglong(), NOT_NULL),
  Show::Column("PURGED_BELOW", Show::ULonglong(), NOT_NULL),
  Show::Column("WAITS_FOR_VIEW", Show::ULonglong(), NULLABLE),
  Show::Column("WAITS_FOR_CONNECTION", Show::ULonglong(), NULLABLE),
  Show::Column("LOGS_PER_SECOND", Show::ULonglong(), NOT_NULL),
  Show::Column("JOINING_PER_SECOND", Show::ULonglong(), NOT_NULL),
  Show::Column("SECONDS_LEFT", Show::ULonglong(), NULLABLE),
  Show::CEnd()};

const char *state_name(varve_purge_state state)
{
  switch (state)
  {
  case VARVE_PURGE_RUNNING: return "running";
  case VARVE_PURGE_STOPPED: return "stopped";
  case VARVE_PURGE_IDLE:    break;
  }
  return "idle";
}

void add_purge(Rows *rows, const varve_purge &purge)
{
  rows->set(0, state_name(purge.state));
  rows->set(1, purge.history);
  rows->set(2, purge.purged_below);
  rows->set_if(purge.view, 3, purge.view);
  rows->set_if(purge.session, 4, purge.session);
  rows->set(5, ulonglong(purge.working_off));
  rows->set(6, ulonglong(purge.joining));
  const double left= purge.seconds_left;
  rows->set_if(left >= 0, 7, ulonglong(std::ceil(std::max(left, 0.0))));
  rows->add();
}

int fill_purge(THD *thd, TABLE_LIST *tables, COND *)
{
  Rows rows(thd, tables);
  return fill(&rows, [&] {
    varve_purge purge;
    const varve_code code= varve_db_purge(db, &purge);
    if (!code)
      add_purge(&rows, purge);
    return code;
  });
}

// A column, and the metric that it shows.
struct Pool_column
{
  const char *name, *metric;
};

// InnoDB's names. It has more: of what only its pool has, and rates since somebody looked last.
constexpr Pool_column pool_columns[]= {
  {"POOL_SIZE", "buffer_pool_pages_total"},
  {"FREE_BUFFERS", "buffer_pool_pages_free"},
  {"DATABASE_PAGES", "buffer_pool_pages_data"},
  {"MODIFIED_DATABASE_PAGES", "buffer_pool_pages_dirty"},
  {"NUMBER_PAGES_READ", "buffer_pages_read"},
  {"NUMBER_PAGES_CREATED", "buffer_pages_created"},
  {"NUMBER_PAGES_WRITTEN", "buffer_pages_written"},
  {"NUMBER_PAGES_GET", "buffer_pool_read_requests"},
  {"NUMBER_PAGES_READ_AHEAD", "buffer_pool_read_ahead"},
  {"NUMBER_READ_AHEAD_EVICTED", "buffer_pool_read_ahead_evicted"},
  {"NUMBER_PAGES_EVICTED", "buffer_pool_evictions"},
  {"NUMBER_WAITS_FREE", "buffer_pool_wait_free"}};
constexpr size_t n_pool_columns= std::size(pool_columns);

template<size_t... i> std::array<ST_FIELD_INFO, sizeof...(i) + 2> make_pool_fields(std::index_sequence<i...>)
{
  return {Show::Column("POOL_ID", Show::ULong(), NOT_NULL),
          Show::Column(pool_columns[i].name, Show::ULonglong(), NOT_NULL)..., Show::CEnd()};
}

auto pool_fields= make_pool_fields(std::make_index_sequence<n_pool_columns>());

void set_pool_column(void *to, const varve_metric *metric)
{
  for (size_t i= 0; i < n_pool_columns; i++)
    if (!strcmp(metric->name, pool_columns[i].metric))
      static_cast<Rows *>(to)->set(uint(i + 1), metric->value);
}

int fill_buffer_pool(THD *thd, TABLE_LIST *tables, COND *)
{
  Rows rows(thd, tables);
  return fill(&rows, [&] {
    const varve_code code= varve_db_metrics(db, set_pool_column, &rows);
    rows.set(0, 0ULL);
    if (!code)
      rows.add();
    return code;
  });
}

}  // namespace

int init_metrics(void *schema)
{
  return init_table(schema, metric_fields, fill_metrics);
}

int init_purge(void *schema)
{
  return init_table(schema, purge_fields, fill_purge);
}

int init_buffer_pool(void *schema)
{
  return init_table(schema, pool_fields.data(), fill_buffer_pool);
}

int init_undo_tablespaces(void *schema)
{
  return init_table(schema, undo_tablespace_fields, fill_undo_tablespaces);
}

}  // namespace varve_plugin
