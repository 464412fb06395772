// status.cc: SHOW STATUS LIKE 'Varve%' and SHOW ENGINE VARVE STATUS.
//
// Both show the engine's own counters under the engine's own names; only the first letters differ.

#include "engine.h"
#include "error_map.h"

#include <cstring>
#include <ctime>
#include <vector>

namespace varve_plugin {

namespace {

struct Counter
{
  char name[64];
  ulonglong value;
};

// A section of SHOW ENGINE VARVE STATUS: the counters whose names begin with one of these words.
struct Section
{
  const char *title;
  std::vector<const char *> prefixes;

  bool has(const char *name) const
  {
    for (const char *prefix : prefixes)
      if (!strncmp(name, prefix, strlen(prefix)))
        return true;
    return false;
  }
};

const Section sections[]= {
  {"TRANSACTIONS", {"max_trx", "active", "prepared", "read_views", "commits", "rollbacks", "history", "undo"}},
  {"PURGE", {"purge"}},
  {"LOCKS", {"row_lock", "lock", "deadlocks"}},
  {"ROW OPERATIONS", {"rows", "long_values", "overflow"}},
  {"LOG", {"lsn", "checkpoint", "log", "os_log"}},
  {"BUFFER POOL AND FLUSHING", {"page_size", "buffer", "dblwr", "data"}},
  {"OTHER", {""}}};

void collect(void *context, const char *name, uint64_t value)
{
  Counter counter{{}, value};
  strmake(counter.name, name, sizeof counter.name - 1);
  static_cast<std::vector<Counter> *>(context)->push_back(counter);
}

void collect_text(void *context, const char *text)
{
  static_cast<std::vector<std::string> *>(context)->emplace_back(text);
}

void add_section(std::string *text, const std::string &title, const std::string &lines)
{
  *text+= "------------\n" + title + "\n------------\n" + lines;
}

bool counters(std::vector<Counter> *out)
{
  return varve_db_status(db, collect, out) == VARVE_OK;
}

// The variable's value is an array of variables, which must outlive the call: it belongs to the statement.
int show_counters(THD *thd, struct st_mysql_show_var *var, char *)
{
  std::vector<Counter> found;
  counters(&found);
  auto *values= static_cast<Counter *>(thd_memdup(thd, found.data(), uint(found.size() * sizeof(Counter))));
  auto *array= static_cast<st_mysql_show_var *>(thd_calloc(thd, uint((found.size() + 1) * sizeof(st_mysql_show_var))));
  var->type= SHOW_ARRAY;
  var->value= array;
  if (!values || !array)
    return 1;
  for (size_t i= 0; i < found.size(); i++)
    array[i]= {values[i].name, &values[i].value, SHOW_ULONGLONG};
  return 0;
}

}  // namespace

struct st_mysql_show_var status_variables[]= {
  {"Varve", reinterpret_cast<void *>(show_counters), SHOW_FUNC},
  {nullptr, nullptr, SHOW_UNDEF}};

bool show_engine_status(handlerton *hton, THD *thd, stat_print_fn *print, enum ha_stat_type kind)
{
  if (kind != HA_ENGINE_STATUS)
    return false;
  char line[160];
  const time_t now= time(nullptr);
  struct tm local;
  localtime_r(&now, &local);
  std::string text= "=====================================\n";
  text.append(line, strftime(line, sizeof line, "%Y-%m-%d %H:%M:%S VARVE MONITOR OUTPUT\n", &local));
  text+= "=====================================\n";
  std::vector<Counter> found;
  if (!counters(&found))
    text+= std::string("The engine does not answer: ") + varve_last_error() + '\n';
  std::vector<std::string> report;
  varve_db_report(db, collect_text, &report);
  for (size_t i= 0; i + 1 < report.size(); i+= 2)
    add_section(&text, report[i], report[i + 1]);
  std::vector<bool> shown(found.size());
  for (const Section &section : sections)
  {
    std::string lines;
    for (size_t i= 0; i < found.size(); i++)
    {
      if (shown[i] || !section.has(found[i].name))
        continue;
      shown[i]= true;
      snprintf(line, sizeof line, "%-44s %20llu\n", found[i].name, found[i].value);
      lines+= line;
    }
    if (!lines.empty())
      add_section(&text, section.title, lines);
  }
  const LEX_CSTRING *engine= hton_name(hton);
  return print(thd, engine->str, engine->length, "", 0, text.c_str(), text.size());
}

}  // namespace varve_plugin
