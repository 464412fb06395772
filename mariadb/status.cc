// status.cc: SHOW STATUS LIKE 'Varve%' and SHOW ENGINE VARVE STATUS.
//
// Both show the engine's own metrics under the engine's own names of status variables; only the first letters
// differ.

#include "backup.h"
#include "engine.h"
#include "error_map.h"
#include "foreign.h"
#include "memcached.h"
#include "transactions.h"

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

// What the list of the pages in the buffer pool has come to.
struct Pool_dump_status
{
  char dump[300];
  char load[300];
};

// The metrics of a subsystem, as a section of SHOW ENGINE VARVE STATUS.
struct Section
{
  std::string title;
  std::string lines;
};

// What the engine calls its subsystems, and what InnoDB calls the sections about them.
const char *section_title(const char *subsystem)
{
  static const char *const titles[][2]= {
    {"transaction", "TRANSACTION COUNTERS"}, {"purge", "PURGE"}, {"history", "HISTORY STORE COUNTERS"}, {"change_buffer", "CHANGE BUFFERS"},
    {"undo", "UNDO TABLESPACES"}, {"lock", "LOCKS"}, {"dml", "ROW OPERATIONS"}, {"log", "LOG COUNTERS"},
    {"buffer", "BUFFER POOL COUNTERS"}, {"file_system", "FILES"},
    {"latch", "LATCHES"}, {"recovery", "RECOVERY COUNTERS"}, {"dictionary", "DICTIONARY"}};
  for (const auto &[name, title] : titles)
    if (!strcmp(name, subsystem))
      return title;
  return subsystem;
}

void collect(void *context, const char *name, uint64_t value)
{
  Counter counter{{}, value};
  strmake(counter.name, name, sizeof counter.name - 1);
  static_cast<std::vector<Counter> *>(context)->push_back(counter);
}

// Those of a subsystem come together.
void collect_section(void *context, const varve_metric *metric)
{
  auto *sections= static_cast<std::vector<Section> *>(context);
  const char *title= section_title(metric->subsystem);
  if (sections->empty() || sections->back().title != title)
    sections->push_back({title, {}});
  char line[160];
  snprintf(line, sizeof line, "%-44s %20llu\n", metric->status_name, ulonglong(metric->value));
  sections->back().lines+= line;
}

void collect_text(void *context, const char *text)
{
  static_cast<std::vector<std::string> *>(context)->emplace_back(text);
}

void add_section(std::string *text, const std::string &title, const std::string &lines)
{
  *text+= "------------\n" + title + "\n------------\n" + lines;
}

// When it was, as InnoDB writes it; empty if there was none.
std::string deadlock_time()
{
  uint64_t seconds= 0;
  if (varve_db_last_deadlock(db, &seconds) || !seconds)
    return {};
  char line[32];
  const time_t when= time_t(seconds);
  struct tm local;
  return {line, strftime(line, sizeof line, "%Y-%m-%d %H:%M:%S\n", localtime_r(&when, &local))};
}

// In InnoDB's words, with its time.
void put_status(char (&to)[300], const char *text, uint64_t ended)
{
  char when[32]= "";
  const time_t at= time_t(ended);
  struct tm local;
  if (ended)
    strftime(when, sizeof when, " at %y%m%d %H:%M:%S", localtime_r(&at, &local));
  snprintf(to, sizeof to, "%s%s", text, when);
}

void collect_pool_dump(void *context, const char *dump, uint64_t dump_ended, const char *load,
                       uint64_t load_ended)
{
  auto *to= static_cast<Pool_dump_status *>(context);
  put_status(to->dump, dump, dump_ended);
  put_status(to->load, load, load_ended);
}

// The variable's value is an array of variables, which must outlive the call: it belongs to the statement.
// Behind them there are so many more. Null: there is no room.
st_mysql_show_var *set_array(THD *thd, struct st_mysql_show_var *var, const std::vector<Counter> &found,
                             size_t more)
{
  auto *values= static_cast<Counter *>(thd_memdup(thd, found.data(), uint(found.size() * sizeof(Counter))));
  const uint array_bytes= uint((found.size() + more + 1) * sizeof(st_mysql_show_var));
  auto *array= static_cast<st_mysql_show_var *>(thd_calloc(thd, array_bytes));
  var->type= SHOW_ARRAY;
  var->value= array;
  if (!values || !array)
    return nullptr;
  for (size_t i= 0; i < found.size(); i++)
    array[i]= {values[i].name, &values[i].value, SHOW_ULONGLONG};
  return array;
}

int show_counters(THD *thd, struct st_mysql_show_var *var, char *)
{
  std::vector<Counter> found;
  varve_db_status(db, collect, &found);
  const Backup_status backup= backup_status();
  collect(&found, "backup_bytes", backup.progress.bytes);
  collect(&found, "backup_to_lsn", backup.progress.to_lsn);
  collect(&found, "backup_number", backup.number);
  collect(&found, "backup_server_ends", backup.server_ends);
  st_mysql_show_var *const array= set_array(thd, var, found, 4);
  char *const state= thd_strmake(thd, backup.state.c_str(), backup.state.length());
  char *const message= thd_strmake(thd, backup.message.c_str(), backup.message.length());
  auto *pool_dump= static_cast<Pool_dump_status *>(thd_calloc(thd, sizeof(Pool_dump_status)));
  if (!array || !pool_dump || !state || !message)
    return 1;
  varve_db_pool_dump_status(db, collect_pool_dump, pool_dump);
  array[found.size()]= {"buffer_pool_dump_status", pool_dump->dump, SHOW_CHAR};
  array[found.size() + 1]= {"buffer_pool_load_status", pool_dump->load, SHOW_CHAR};
  array[found.size() + 2]= {"backup_state", state, SHOW_CHAR};
  array[found.size() + 3]= {"backup_message", message, SHOW_CHAR};
  return 0;
}

int show_memcached(THD *thd, struct st_mysql_show_var *var, char *)
{
  std::vector<Counter> found;
  each_memcached_counter(collect, &found);
  return !set_array(thd, var, found, 0);
}

}  // namespace

struct st_mysql_show_var memcached_status_variables[]= {
  {"Varve_memcached", reinterpret_cast<void *>(show_memcached), SHOW_FUNC},
  {nullptr, nullptr, SHOW_UNDEF}};

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
  std::vector<Section> sections;
  if (varve_db_metrics(db, collect_section, &sections))
    text+= std::string("The engine does not answer: ") + varve_last_error() + '\n';
  std::vector<std::string> report;
  Session_texts connections(told_connections());
  varve_db_report(db, tell_session, &connections, collect_text, &report);
  for (size_t i= 0; i + 1 < report.size(); i+= 2)
  {
    // If there was another one meanwhile the time is that one's, and the text says how long ago its own was.
    const bool is_deadlock= report[i] == "LATEST DETECTED DEADLOCK";
    add_section(&text, report[i], (is_deadlock ? deadlock_time() : "") + report[i + 1]);
  }
  const std::string foreign= latest_foreign_error();
  if (!foreign.empty())
    add_section(&text, "LATEST FOREIGN KEY ERROR", foreign);
  for (const Section &section : sections)
    add_section(&text, section.title, section.lines);
  text+= "---------------------------\nEND OF VARVE MONITOR OUTPUT\n===========================\n";
  const LEX_CSTRING *engine= hton_name(hton);
  return print(thd, engine->str, engine->length, "", 0, text.c_str(), text.size());
}

}  // namespace varve_plugin
