// memcached.h: rows of tables as items of memcached.

#ifndef VARVE_MEMCACHED_H
#define VARVE_MEMCACHED_H

#include "server.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace varve_plugin {

// A table whose rows are items: a row of varve_memcache.containers. Columns are named; an empty name: there
// is none.
struct Container
{
  std::string name, schema, table;
  std::vector<std::string> keys, values;
  std::string flags, cas, expires, marks;
  std::string index;      // the unique one on the keys
  std::string separator;  // between several columns of a key or a value
  std::atomic<ulonglong> rows{0};  // as of the last batch that changed some

  std::string full_name() const { return "`" + schema + "`.`" + table + "`"; }

  Container()= default;
  Container(const Container &)= delete;
  Container &operator=(const Container &)= delete;
};

using Containers= std::vector<std::unique_ptr<Container>>;

// memcached.cc
extern struct st_mysql_sys_var *memcached_variables[];
int init_memcached(void *plugin);
int deinit_memcached(void *plugin);
// The server is about to end: no batch is done any more when this returns.
void stop_memcached();
// Whether that has begun: what has not begun by then is refused.
bool memcached_ends();
// Whether the binary log is to have what clients change.
bool memcached_is_logged();
// Hands out what it has counted since it began to listen.
void each_memcached_counter(varve_counter_fn each, void *context);

// memcached_rows.cc: batches of requests on rows of these tables, which stay for as long as the store is
// used. The caller adds the containers' names.
varve_memcached_store memcached_rows(Containers *containers);

}  // namespace varve_plugin

#endif
