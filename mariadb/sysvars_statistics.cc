// sysvars_statistics.cc: system variables about statistics of tables.

#include "sysvars.h"

namespace varve_plugin {

static my_bool stats_persistent;
static my_bool stats_auto_recalc;
static unsigned long stats_method;
static unsigned long long stats_persistent_sample_pages;
static unsigned long long stats_transient_sample_pages;

// More would be read ahead together.
static const unsigned long long MAX_SAMPLE_PAGES= 100000;

static MYSQL_SYSVAR_BOOL(stats_persistent, stats_persistent, PLUGIN_VAR_OPCMDARG,
  "Statistics of tables are stored in mysql.varve_table_stats and mysql.varve_index_stats, unless the table says otherwise "
  "(STATS_PERSISTENT).",
  nullptr, nullptr, TRUE);

static MYSQL_SYSVAR_BOOL(stats_auto_recalc, stats_auto_recalc, PLUGIN_VAR_OPCMDARG,
  "Stored statistics are made again in the background when a tenth of the table has changed, unless the table says otherwise "
  "(STATS_AUTO_RECALC).",
  nullptr, nullptr, TRUE);

static MYSQL_SYSVAR_ULONGLONG(stats_persistent_sample_pages, stats_persistent_sample_pages,
                              PLUGIN_VAR_RQCMDARG,
  "How many leaf pages of an index are looked at for statistics that are stored, unless the table says otherwise (STATS_SAMPLE_PAGES).",
  nullptr, nullptr, 20, 1, MAX_SAMPLE_PAGES, 0);

static MYSQL_SYSVAR_ULONGLONG(stats_transient_sample_pages, stats_transient_sample_pages,
                              PLUGIN_VAR_RQCMDARG,
  "How many leaf pages of an index are looked at for statistics that are in memory only.",
  nullptr, nullptr, 8, 1, MAX_SAMPLE_PAGES, 0);

// In the order of varve_nulls.
static const char *stats_method_names[]= {"nulls_equal", "nulls_unequal", "nulls_ignored", NullS};
static TYPELIB stats_methods= {array_elements(stats_method_names) - 1, "stats_methods", stats_method_names, nullptr};

static MYSQL_SYSVAR_ENUM(stats_method, stats_method, PLUGIN_VAR_RQCMDARG,
  "What NULLs are to statistics that are made from now on. nulls_equal: one value. nulls_unequal: a value each. nulls_ignored: "
  "rows with one do not count.",
  nullptr, nullptr, VARVE_NULLS_EQUAL, &stats_methods);

st_mysql_sys_var *statistics_variable(Statistics_variable variable)
{
  switch (variable) {
  case STATS_AUTO_RECALC:             return MYSQL_SYSVAR(stats_auto_recalc);
  case STATS_METHOD:                  return MYSQL_SYSVAR(stats_method);
  case STATS_PERSISTENT:              return MYSQL_SYSVAR(stats_persistent);
  case STATS_PERSISTENT_SAMPLE_PAGES: return MYSQL_SYSVAR(stats_persistent_sample_pages);
  case STATS_TRANSIENT_SAMPLE_PAGES:  return MYSQL_SYSVAR(stats_transient_sample_pages);
  }
  return nullptr;
}

Statistics_policy statistics_variables()
{
  return {bool(stats_persistent), bool(stats_auto_recalc),
          uint(stats_persistent_sample_pages)};
}

uint transient_sample_pages()
{
  return uint(stats_transient_sample_pages);
}

varve_nulls nulls_in_keys()
{
  return varve_nulls(stats_method);
}

}  // namespace varve_plugin
