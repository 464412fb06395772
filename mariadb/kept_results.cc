// kept_results.cc: the engine's part in the server's query cache. kept_results.h has the protocol.

#include "kept_results.h"

#include "engine.h"
#include "foreign.h"
#include "ha_varve.h"

#include "sql_cache.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace varve_plugin {

static std::atomic<uint64_t> counter{0};
static Changes all;

bool keeps_results()
{
  return !query_cache.is_disabled();
}

Changes *changes_of(const std::string &engine_name)
{
  static std::mutex mutex;
  static std::unordered_map<std::string, std::unique_ptr<Changes>> tables;
  const std::lock_guard<std::mutex> alone(mutex);
  std::unique_ptr<Changes> &changes= tables[engine_name];
  if (!changes)
    changes.reset(new Changes);
  return changes.get();
}

Changes *changes_of_all()
{
  return &all;
}

static void raise_last(Changes *changes, uint64_t number)
{
  uint64_t before= changes->last;
  while (before < number && !changes->last.compare_exchange_weak(before, number))
    ;
}

static uint64_t last_of(const Changes *changes)
{
  return std::max<uint64_t>(changes->last, all.last);
}

void Changed_tables::note_what_is_seen()
{
  m_seen= counter;
}

void Changed_tables::begin()
{
  end(false);
  m_is_counted= keeps_results();
  note_what_is_seen();
}

void Changed_tables::note(Changes *changes)
{
  if (!m_is_counted || std::find(m_tables.begin(), m_tables.end(), changes) != m_tables.end())
    return;
  m_tables.push_back(changes);
  changes->writers++;
}

void Changed_tables::about_to_commit()
{
  if (m_is_counted || !keeps_results())
    return;
  // It began when the cache was off: what it has changed is not known.
  m_is_counted= true;
  note(&all);
}

void Changed_tables::end(bool has_committed)
{
  const uint64_t number= has_committed && !m_tables.empty() ? ++counter : 0;
  for (Changes *changes : m_tables)
  {
    raise_last(changes, number);
    changes->writers--;
  }
  m_tables.clear();
}

// The writers first: one that has ended since has left its number.
bool Changed_tables::sees_all_of(const Changes *changes) const
{
  return m_is_counted && !changes->writers && !all.writers && last_of(changes) <= m_seen;
}

Change_of_all::Change_of_all()
{
  all.writers++;
}

Change_of_all::~Change_of_all()
{
  raise_last(&all, ++counter);
  all.writers--;
}

// SERIALIZABLE locks what it reads, and at READ UNCOMMITTED a result may have what is rolled back later.
static bool has_a_level_for_it(THD *thd)
{
  const int level= thd_tx_isolation(thd);
  return level != ISO_READ_UNCOMMITTED && (level != ISO_SERIALIZABLE || !in_transaction(thd));
}

bool may_keep_result(THD *thd, const std::string &engine_name, ulonglong *engine_data)
{
  if (!has_a_level_for_it(thd))
    return false;
  Session *session= Session::of(thd);
  if (!session || session->start_statement(thd))
    return false;
  const Changes *changes= changes_of(engine_name);
  *engine_data= last_of(changes);
  return session->changed_tables.sees_all_of(changes);
}

// Where it says no, and the number is another one, the server drops the results with this table.
my_bool may_answer_result(THD *thd, const char *path, uint length, ulonglong *engine_data)
{
  if (!has_a_level_for_it(thd))
    return false;
  const Changes *changes= changes_of(table_name(std::string(path, length).c_str()));
  const ulonglong kept= *engine_data;
  if (in_transaction(thd))
  {
    Session *session= Session::of(thd);
    if (!session || session->start_statement(thd) || session->see_the_same_from_here(thd) ||
        !session->changed_tables.sees_all_of(changes))
      return false;
  }
  *engine_data= last_of(changes);
  return *engine_data == kept;
}

}  // namespace varve_plugin

using namespace varve_plugin;

my_bool ha_varve::register_query_cache_table(THD *thd, const char *path, uint length,
                                             qc_engine_callback *callback, ulonglong *engine_data)
{
  *callback= may_answer_result;
  return may_keep_result(thd, table_name(std::string(path, length).c_str()), engine_data);
}

static bool changes_children(const varve_table *table)
{
  const auto is_passive= [](varve_referential_action action) {
    return action == VARVE_NO_ACTION || action == VARVE_RESTRICT;
  };
  for (const Told_key &key : foreign_keys_to(table))
    if (!is_passive(key.on_delete) || !is_passive(key.on_update))
      return true;
  return false;
}

// Before each change of a row. Nobody's results have rows of temporary tables.
void ha_varve::tell_of_change(Told what)
{
  if (m_told >= what)
    return;
  m_told= what;
  if (!keeps_results() || table_share->tmp_table != NO_TMP_TABLE)
    return;
  Session *session= Session::known(ha_thd());
  if (!session)
    return;
  if (!m_table_changes)
    m_table_changes= changes_of(m_name);
  session->changed_tables.note(m_table_changes);
  if (what == Told::CHANGED_ROWS && referenced_by_foreign_key() && changes_children(m_table))
    session->changed_tables.note(changes_of_all());
}
