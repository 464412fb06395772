// statistics.cc: the rows of mysql.varve_table_stats and mysql.varve_index_stats.
//
// A table's rows are replaced together, in one transaction, so a reader's snapshot has those of one time. The
// transaction locks tables as the engine does without a server: whoever drops or alters one of the two tables
// waits for it, and it never waits (its timeout is 0).
//
// - Rows of a table that is gone are removed after it is gone; a crash in between leaves them. So CREATE
//   TABLE removes those of its name, too.

#include "statistics.h"

#include "engine.h"
#include "foreign.h"
#include "sysvars.h"

#include <cstring>
#include <ctime>

namespace varve_plugin {

static const char TABLE_STATS[]= "mysql/varve_table_stats", INDEX_STATS[]= "mysql/varve_index_stats";

bool is_statistics_table(const std::string &name)
{
  return name == TABLE_STATS || name == INDEX_STATS;
}

Statistics_policy statistics_policy(const TABLE_SHARE *share, const std::string &name)
{
  Statistics_policy policy= statistics_variables();
  if (share->db_create_options & HA_OPTION_STATS_PERSISTENT)
    policy.is_persistent= true;
  if (share->db_create_options & HA_OPTION_NO_STATS_PERSISTENT || share->tmp_table != NO_TMP_TABLE ||
      share->sequence || is_aside(name) || is_statistics_table(name))
    policy.is_persistent= false;
  if (share->stats_auto_recalc != HA_STATS_AUTO_RECALC_DEFAULT)
    policy.recalculates= share->stats_auto_recalc == HA_STATS_AUTO_RECALC_ON;
  policy.recalculates= policy.recalculates && policy.is_persistent;
  if (!policy.is_persistent)
    policy.sample_pages= transient_sample_pages();
  else if (share->stats_sample_pages)
    policy.sample_pages= share->stats_sample_pages;
  return policy;
}

namespace {

// As the rows call it: what users call the schema and the table, a partition's with "#P#".
struct Name
{
  std::string schema, table;

  explicit Name(const std::string &engine_name)
  {
    const size_t slash= engine_name.find('/');
    schema= user_name(engine_name.substr(0, slash));
    std::string whole;
    for (const char c : engine_name.substr(slash + 1))
      whole+= c == '#' ? std::string("@0023") : std::string(1, c);
    table= user_name(whole);
  }
};

varve_value text_value(const std::string &text)
{
  return {reinterpret_cast<const uint8_t *>(text.data()), uint32_t(text.size())};
}

// Numbers of a row; those that are written must stay where they are.
struct Number
{
  uchar bytes[8];

  explicit Number(ulonglong value) { int8store(bytes, value); }
  varve_value value() const { return {bytes, sizeof bytes}; }
  static ulonglong of(const varve_value &value)
  {
    return value.ptr && value.len == 8 ? uint8korr(value.ptr) : 0;
  }
};

// A TIMESTAMP without fractions.
struct Moment
{
  uchar bytes[4];

  Moment() { mi_int4store(bytes, uint32(time(nullptr))); }
  varve_value value() const { return {bytes, sizeof bytes}; }
};

std::string text_of(const varve_value &value)
{
  return value.ptr ? std::string(reinterpret_cast<const char *>(value.ptr), value.len) : std::string();
}

struct Index_row
{
  std::string index, statistic, about;
  ulonglong value;
  bool has_sample;
  ulonglong sample;
};

// All that is stored of a table.
struct Contents
{
  bool is_there= false;  // the row in table_stats
  varve_totals totals{};
  std::vector<Index_row> indexes;
};

varve_column_def column(const char *name, varve_type kind, uint32_t size, bool nullable= false)
{
  const uint32_t collation= kind == VARVE_TEXT ? my_charset_utf8mb3_bin.number : 0;
  return {name, kind, size, collation, nullable, false, false, false, nullptr, {nullptr, 0}};
}

const uint MAX_DESCRIPTION= 1024;

// What the two tables are made of. The longest texts are of 64, 199 and 1024 characters.
bool is_as_it_should_be(const varve_table *table, const char *name)
{
  std::vector<varve_column_def> columns{column("database_name", VARVE_TEXT, 64 * 3),
                                        column("table_name", VARVE_TEXT, 199 * 3)};
  uint32_t key_parts= 2;
  if (name == TABLE_STATS)
  {
    columns.push_back(column("last_update", VARVE_FIXED, 4));
    for (const char *number : {"n_rows", "clustered_index_size", "sum_of_other_index_sizes"})
      columns.push_back(column(number, VARVE_UINT, 8));
  }
  else
  {
    columns.push_back(column("index_name", VARVE_TEXT, 64 * 3));
    columns.push_back(column("last_update", VARVE_FIXED, 4));
    columns.push_back(column("stat_name", VARVE_TEXT, 64 * 3));
    columns.push_back(column("stat_value", VARVE_UINT, 8));
    columns.push_back(column("sample_size", VARVE_UINT, 8, true));
    columns.push_back(column("stat_description", VARVE_TEXT, MAX_DESCRIPTION * 3));
    key_parts= 4;
  }
  const varve_key_part parts[]= {{0, 0, false}, {1, 0, false}, {2, 0, false}, {4, 0, false}};
  varve_table_def def{};
  def.name= name;
  def.columns= columns.data();
  def.n_columns= uint32_t(columns.size());
  def.primary= parts;
  def.n_primary= key_parts;
  def.auto_increment= UINT32_MAX;
  return varve_table_is_made_of(table, &def);
}

// Says why statistics are not stored, until they are again.
std::atomic<bool> has_complained{false};

void complain(const char *why)
{
  if (!has_complained.exchange(true))
    sql_print_warning("VARVE: persistent statistics can't be used, and those in memory are: %s", why);
}

}  // namespace

Stored stored_after(varve_code code)
{
  switch (code)
  {
  case VARVE_OK:
    return Stored::ALL;
  case VARVE_NO_ROW:  // There are no estimates yet.
    return Stored::NONE;
  case VARVE_LOCK_WAIT_TIMEOUT:
  case VARVE_DEADLOCK:
  case VARVE_DUPLICATE_KEY:  // Somebody else is about to store them.
  case VARVE_NOT_FOUND:      // The table has just been dropped or redefined.
  case VARVE_DEFINITION_CHANGED:
    return Stored::LATER;
  case VARVE_READ_ONLY:
  case VARVE_INTERRUPTED:
    return Stored::UNAVAILABLE;
  default:
    complain(varve_last_error());
    return Stored::UNAVAILABLE;
  }
}

namespace {

// One of the two tables, with a cursor on its rows.
class Stats_table
{
public:
  ~Stats_table()
  {
    if (m_cursor)
      varve_cursor_close(m_cursor);
    if (m_table)
      varve_table_close(m_table);
  }

  Stored open(const char *name, bool quietly)
  {
    const varve_code code= varve_table_open(db, name, &m_table);
    if (code)
      m_table= nullptr;
    if (!code && is_as_it_should_be(m_table, name) && !varve_cursor_open(m_table, 0, &m_cursor))
      return Stored::ALL;
    if (!quietly && code)
      complain(varve_last_error());
    else if (!quietly)
      complain((std::string(name) + " has other columns; drop it and restart the server").c_str());
    return Stored::UNAVAILABLE;
  }

  varve_cursor *cursor() const { return m_cursor; }

  // Calls `each` with the rows of a table.
  template<typename Each>
  varve_code for_each(const varve_txn *txn, const Name &name, varve_lock lock, Each each)
  {
    const varve_value key[]= {text_value(name.schema), text_value(name.table)};
    const varve_value *row;
    varve_code code= varve_cursor_seek(m_cursor, txn, key, 2, VARVE_EXACT, lock, &row);
    while (!code)
    {
      if (varve_code failed= each(row))
        return failed;
      code= varve_cursor_next_same(m_cursor, txn, &row);
    }
    return code == VARVE_NO_ROW ? VARVE_OK : code;
  }

  varve_code insert(const varve_txn *txn, const std::vector<varve_value> &row)
  {
    return varve_insert(txn, m_table, row.data(), uint32_t(row.size()), VARVE_DUPLICATE_SHARE);
  }

private:
  varve_table *m_table= nullptr;
  varve_cursor *m_cursor= nullptr;
};

// Both tables, in a transaction that never waits.
class Stats_tables
{
public:
  ~Stats_tables()
  {
    if (m_own)
      varve_txn_close(m_own);
  }

  // `txn`: somebody else's, who commits; null: one of its own. A missing table is no news if `quietly`.
  Stored open(const varve_txn *txn, bool quietly);
  Stored read(const Name &name, Contents *to);
  Stored remove(const Name &name);
  Stored write(const Name &name, const Contents &contents);

  // Writes rows of indexes.
  Stored add(const Name &name, const std::vector<Index_row> &indexes);
  Stored commit();

private:
  Stats_table m_tables, m_indexes;
  varve_txn *m_own= nullptr;
  const varve_txn *m_txn= nullptr;
};

Stored Stats_tables::open(const varve_txn *txn, bool quietly)
{
  if (m_tables.open(TABLE_STATS, quietly) != Stored::ALL ||
      m_indexes.open(INDEX_STATS, quietly) != Stored::ALL)
    return Stored::UNAVAILABLE;
  m_txn= txn;
  if (txn)
    return Stored::ALL;
  varve_code code= varve_txn_open(db, VARVE_TABLES_LOCKED_BY_ENGINE, &m_own);
  if (code)
  {
    m_own= nullptr;
    return stored_after(code);
  }
  varve_txn_set_lock_wait_timeout(m_own, 0);
  m_txn= m_own;
  // One statement: one view for both tables. No gap is locked.
  code= varve_txn_begin(m_own, VARVE_READ_COMMITTED);
  if (!code)
    code= varve_txn_start_statement(m_own);
  return stored_after(code);
}

Stored Stats_tables::read(const Name &name, Contents *to)
{
  varve_code code= m_tables.for_each(m_txn, name, VARVE_NO_LOCK, [&](const varve_value *row) {
    to->is_there= true;
    to->totals= {Number::of(row[3]), Number::of(row[4]), Number::of(row[5])};
    return VARVE_OK;
  });
  if (!code)
    code= m_indexes.for_each(m_txn, name, VARVE_NO_LOCK, [&](const varve_value *row) {
      to->indexes.push_back({text_of(row[2]), text_of(row[4]), text_of(row[7]), Number::of(row[5]),
                             row[6].ptr != nullptr, Number::of(row[6])});
      return VARVE_OK;
    });
  return code ? stored_after(code) : to->is_there ? Stored::ALL : Stored::NONE;
}

Stored Stats_tables::remove(const Name &name)
{
  varve_code code= VARVE_OK;
  for (Stats_table *table : {&m_tables, &m_indexes})
    if (!code)
      code= table->for_each(m_txn, name, VARVE_EXCLUSIVE,
                            [&](const varve_value *) { return varve_delete(m_txn, table->cursor()); });
  return stored_after(code);
}

Stored Stats_tables::write(const Name &name, const Contents &contents)
{
  const Moment now;
  const Number rows(contents.totals.rows), clustered(contents.totals.clustered_pages),
               secondary(contents.totals.secondary_pages);
  const varve_value schema= text_value(name.schema), table= text_value(name.table);
  const varve_code code= m_tables.insert(m_txn, {schema, table, now.value(), rows.value(), clustered.value(),
                                                 secondary.value()});
  return code ? stored_after(code) : add(name, contents.indexes);
}

Stored Stats_tables::add(const Name &name, const std::vector<Index_row> &indexes)
{
  const Moment now;
  const varve_value schema= text_value(name.schema), table= text_value(name.table);
  varve_code code= VARVE_OK;
  for (const Index_row &row : indexes)
  {
    const Number value(row.value), sample(row.sample);
    if (!code)
      code= m_indexes.insert(m_txn, {schema, table, text_value(row.index), now.value(),
                                     text_value(row.statistic), value.value(),
                                     row.has_sample ? sample.value() : varve_value{nullptr, 0},
                                     text_value(row.about)});
  }
  return stored_after(code);
}

Stored Stats_tables::commit()
{
  const varve_code code= m_own ? varve_txn_commit(m_own) : VARVE_OK;
  if (code)
    return stored_after(code);
  has_complained= false;
  return Stored::ALL;
}

// Removes what is stored of a table and stores something else.
Stored replace(Stats_tables *tables, const Name &name, const Contents &contents)
{
  const Stored removed= tables->remove(name);
  return removed == Stored::ALL ? tables->write(name, contents) : removed;
}

// As much of a text as its column takes, which is in characters.
std::string cut(const char *text)
{
  const Well_formed_prefix whole(&my_charset_utf8mb3_bin, text, strlen(text), MAX_DESCRIPTION);
  return std::string(text, whole.length());
}

void collect(void *to, const varve_statistic *s)
{
  auto &indexes= static_cast<Contents *>(to)->indexes;
  indexes.push_back({s->index, s->name, cut(s->about), s->value, s->has_sample, s->sample});
}

}  // namespace

Stored fetch_statistics(varve_table *table, const std::string &name)
{
  Contents contents;
  Stats_tables tables;
  Stored stored= tables.open(nullptr, false);
  if (stored == Stored::ALL)
    stored= is_stored_outdated(name) ? Stored::LATER : tables.read(Name(name), &contents);
  if (stored != Stored::ALL)
    return stored;
  std::vector<varve_statistic> given;
  for (const Index_row &row : contents.indexes)
    given.push_back({row.index.c_str(), row.statistic.c_str(), row.value, row.has_sample, row.sample,
                     nullptr});
  bool is_complete;
  if (varve_table_set_statistics(table, &contents.totals, given.data(), uint32_t(given.size()),
                                 &is_complete))
    return Stored::NONE;  // A page that is damaged; who needs it says so.
  return is_complete ? Stored::ALL : Stored::SOME;
}

Stored store_statistics(varve_table *table, const std::string &name, const varve_txn *txn)
{
  Stats_tables tables;
  Stored stored= tables.open(txn, false);
  Contents contents;
  if (stored == Stored::ALL)
    stored= stored_after(varve_table_keep_statistics(table, txn, &contents.totals, collect, &contents));
  if (stored == Stored::ALL)
    stored= replace(&tables, Name(name), contents);
  return stored == Stored::ALL ? tables.commit() : stored;
}

Stored complete_statistics(varve_table *table, const std::string &name, const varve_txn *txn)
{
  uint64_t rows;
  if (!varve_table_keeps_statistics(table, &rows))
    return Stored::NONE;  // Another handle of the table: what is stored will be fetched again.
  Stats_tables tables;
  Stored stored= tables.open(txn, false);
  Contents before, now;
  if (stored == Stored::ALL)
    stored= tables.read(Name(name), &before);
  if (stored == Stored::ALL)
    stored= stored_after(varve_table_keep_statistics(table, txn, &now.totals, collect, &now));
  std::vector<Index_row> missing;
  for (const Index_row &row : now.indexes)
  {
    bool is_there= false;
    for (const Index_row &old : before.indexes)
      is_there= is_there || old.index == row.index;
    if (!is_there)
      missing.push_back(row);
  }
  if (stored == Stored::ALL)
    stored= tables.add(Name(name), missing);
  return stored == Stored::ALL ? tables.commit() : stored;
}

Stored try_to_forget(const std::string &name)
{
  Contents contents;
  Stats_tables tables;
  Stored stored= tables.open(nullptr, true);
  if (stored == Stored::ALL)
    stored= tables.remove(Name(name));
  return stored == Stored::ALL ? tables.commit() : stored;
}

void forget_statistics(const std::string &name)
{
  if (is_aside(name) || is_statistics_table(name))
    return;
  if (try_to_forget(name) == Stored::LATER)
    leave_to_keeper(name, Task::FORGET, 0);
}

void move_statistics(const std::string &from, const std::string &to)
{
  if (is_statistics_table(from) || is_statistics_table(to))
    return;
  // What ALTER TABLE makes aside has none, and what it puts aside is dropped.
  if (is_aside(from) || is_aside(to))
  {
    forget_statistics(from);
    forget_statistics(to);
    return;
  }
  Contents contents;
  Stats_tables tables;
  const bool is_none= is_stored_outdated(from);
  Stored stored= tables.open(nullptr, true);
  if (stored == Stored::ALL)
    stored= tables.read(Name(from), &contents);
  if (stored == Stored::ALL)
    stored= tables.remove(Name(from));
  if (stored == Stored::ALL && !is_none)
    stored= replace(&tables, Name(to), contents);
  if (stored == Stored::ALL)
    stored= tables.commit();
  // Rather none than another table's.
  if (stored == Stored::LATER)
    for (const std::string &name : {from, to})
      leave_to_keeper(name, Task::FORGET, 0);
}

void rename_index_statistics(const std::string &table, const Index_renames &renames)
{
  if (renames.empty() || is_statistics_table(table))
    return;
  Contents contents, renamed;
  Stats_tables tables;
  Stored stored= tables.open(nullptr, true);
  if (stored == Stored::ALL)
    stored= tables.read(Name(table), &contents);
  renamed= contents;
  renamed.indexes.clear();
  for (Index_row row : contents.indexes)
  {
    for (const auto &[from, to] : renames)
      if (row.index == from)
      {
        row.index= to;
        break;
      }
    if (!row.index.empty())
      renamed.indexes.push_back(row);
  }
  if (stored == Stored::ALL)
    stored= replace(&tables, Name(table), renamed);
  if (stored == Stored::ALL)
    stored= tables.commit();
  if (stored == Stored::LATER)
    leave_to_keeper(table, Task::FORGET, 0);
}

}  // namespace varve_plugin
