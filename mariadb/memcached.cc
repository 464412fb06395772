// memcached.cc: the daemon plugin VARVE_MEMCACHED: clients of memcached on rows of tables.
//
// The server initialises it before the engines, so a thread of its own waits until connections are accepted,
// makes the tables of the schema varve_memcache if they are missing, reads from them which tables are
// containers, and begins to listen. A server without it is better than none: what keeps it from that is in
// the error log. Before the engine and the server end it is stopped (`stop_memcached`).

#include "memcached.h"

#include "engine.h"
#include "instruments.h"
#include "local.h"
#include "sysvars.h"

#include "mysqld.h"

#include <atomic>
#include <mutex>
#include <thread>

namespace varve_plugin {

namespace {

char *address_value, *socket_value, *option_value, *auth_file_value, *cert_value, *key_value, *ca_value;
unsigned int port_value, threads_value, change_threads_value, connections_value, value_bytes_value;
my_bool binlog_value;
unsigned long long cache_bytes_value;
unsigned int batch_value, read_batch_value, idle_timeout_value, sweep_interval_value;

const unsigned int ONLY_AT_START= PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY;

MYSQL_SYSVAR_STR(address, address_value, ONLY_AT_START,
  "The address on which clients of memcached are listened to, if there is a port: one of this machine only, unless"
  " there are ssl_cert, and auth_file or ssl_ca.",
  nullptr, nullptr, "127.0.0.1");
MYSQL_SYSVAR_UINT(port, port_value, ONLY_AT_START,
  "The port on which clients of memcached are listened to. 0: none.", nullptr, nullptr, 0, 0, 65535, 0);
MYSQL_SYSVAR_STR(socket, socket_value, ONLY_AT_START,
  "The Unix socket on which clients of memcached are listened to. Empty: none.", nullptr, nullptr, "");
MYSQL_SYSVAR_UINT(threads, threads_value, ONLY_AT_START,
  "Threads that read what clients of memcached ask for.", nullptr, nullptr, 4, 1, 256, 0);
MYSQL_SYSVAR_UINT(change_threads, change_threads_value, ONLY_AT_START,
  "Threads that change what clients of memcached set: one that waits for a lock, a page or a commit keeps one.",
  nullptr, nullptr, 16, 1, 256, 0);
MYSQL_SYSVAR_UINT(max_connections, connections_value, ONLY_AT_START,
  "So many clients of memcached may be connected.", nullptr, nullptr, 1024, 1, 1 << 20, 0);
MYSQL_SYSVAR_UINT(max_value_size, value_bytes_value, ONLY_AT_START,
  "Longer values of clients of memcached are refused, in bytes.", nullptr, nullptr, 1 << 20, 1024, 128 << 20, 0);
MYSQL_SYSVAR_UINT(w_batch_size, batch_value, ONLY_AT_START,
  "Changes of clients of memcached that come together are one transaction, up to so many.",
  nullptr, nullptr, 32, 1, 1000, 0);
MYSQL_SYSVAR_UINT(r_batch_size, read_batch_value, ONLY_AT_START,
  "Reads that a client of memcached sends together see one moment, up to so many. 0: all.",
  nullptr, nullptr, 0, 0, 1000000, 0);
MYSQL_SYSVAR_ULONGLONG(cache_size, cache_bytes_value, ONLY_AT_START,
  "So many bytes of memory have the items that varve_memcache.cache_policies has in memory, if any.",
  nullptr, nullptr, 64ULL << 20, 1ULL << 20, 1ULL << 40, 0);
MYSQL_SYSVAR_BOOL(binlog, binlog_value, ONLY_AT_START,
  "The binary log has what clients of memcached change, where there is one.", nullptr, nullptr, true);
MYSQL_SYSVAR_STR(auth_file, auth_file_value, ONLY_AT_START,
  "A file with a line user:password for each client of memcached. Empty: nobody is asked who he is.",
  nullptr, nullptr, "");
MYSQL_SYSVAR_STR(ssl_cert, cert_value, ONLY_AT_START,
  "The certificate with which connections of clients of memcached by TCP are encrypted, a PEM file.",
  nullptr, nullptr, "");
MYSQL_SYSVAR_STR(ssl_key, key_value, ONLY_AT_START,
  "The private key of that certificate, a PEM file.", nullptr, nullptr, "");
MYSQL_SYSVAR_STR(ssl_ca, ca_value, ONLY_AT_START,
  "Clients of memcached need a certificate of one of these authorities, a PEM file. Empty: they need none.",
  nullptr, nullptr, "");
MYSQL_SYSVAR_STR(option, option_value, ONLY_AT_START,
  "Letters of memcached's command line, such as -p 11222 -t 8, which count more than the other variables.",
  nullptr, nullptr, "");
MYSQL_SYSVAR_UINT(idle_timeout, idle_timeout_value, ONLY_AT_START,
  "A client of memcached that says nothing for so many seconds is sent away. 0: none is.",
  nullptr, nullptr, 0, 0, 31536000, 0);
MYSQL_SYSVAR_UINT(sweep_interval, sweep_interval_value, ONLY_AT_START,
  "Rows whose time is over are deleted every so many seconds. 0: they stay. No client of memcached gets them.",
  nullptr, nullptr, 300, 0, 31536000, 0);

#define POLICIES "ENUM('varve_only', 'innodb_only', 'cache_only', 'caching', 'disabled') NOT NULL"

// Replicas get them, too, as they get what happens to the items, and may have made their own before. The
// columns are those of innodb_memcache.containers, and one more.
const char *const NEW_TABLES[]= {
  "SET SESSION sql_mode='NO_ENGINE_SUBSTITUTION', enforce_storage_engine=NULL, autocommit=1,"
  "sql_log_bin=NOT @@GLOBAL.read_only",
  "SET SESSION TRANSACTION READ WRITE",
  "CREATE DATABASE IF NOT EXISTS varve_memcache",
  "CREATE TABLE IF NOT EXISTS varve_memcache.items ("
  "`key` VARBINARY(250) PRIMARY KEY, flags INT UNSIGNED NOT NULL, expires INT UNSIGNED NOT NULL,"
  "cas BIGINT UNSIGNED NOT NULL, marks TINYINT UNSIGNED NOT NULL, value LONGBLOB NOT NULL"
  ") ENGINE=VARVE",
  "CREATE TABLE IF NOT EXISTS varve_memcache.config_options ("
  "name VARCHAR(50) PRIMARY KEY, value VARCHAR(50) NOT NULL) ENGINE=VARVE DEFAULT CHARSET=utf8mb3",
  "INSERT IGNORE INTO varve_memcache.config_options VALUES ('separator', '|'), ('table_map_delimiter', '.')",
  "CREATE TABLE IF NOT EXISTS varve_memcache.cache_policies ("
  "policy_name VARCHAR(40) PRIMARY KEY, get_policy " POLICIES ", set_policy " POLICIES ", delete_policy " POLICIES ","
  "flush_policy " POLICIES ") ENGINE=VARVE DEFAULT CHARSET=utf8mb3",
  "INSERT IGNORE INTO varve_memcache.cache_policies VALUES"
  "('cache_policy', 'varve_only', 'varve_only', 'varve_only', 'varve_only')",
  "CREATE TABLE IF NOT EXISTS varve_memcache.containers ("
  "name VARCHAR(50) PRIMARY KEY, db_schema VARCHAR(64) NOT NULL, db_table VARCHAR(64) NOT NULL,"
  "key_columns VARCHAR(1000) NOT NULL, value_columns VARCHAR(4000) NOT NULL, flags VARCHAR(64) NOT NULL DEFAULT '0',"
  "cas_column VARCHAR(64), expire_time_column VARCHAR(64), unique_idx_name_on_key VARCHAR(64) NOT NULL,"
  "marks_column VARCHAR(64)) ENGINE=VARVE DEFAULT CHARSET=utf8mb3",
  "INSERT IGNORE INTO varve_memcache.containers VALUES"
  "('default', 'varve_memcache', 'items', 'key', 'value', 'flags', 'cas', 'expires', 'PRIMARY', 'marks')"};

#undef POLICIES

// What runs, and the thread that starts it. `is_to_stop` is set under the mutex, under which the starter
// looks at it before it sets `running`: whoever stops either finds that, or keeps it from being. Batches look
// at it without: one that sees it late is waited for. Sequentially consistent, as a batch looks at it twice.
std::mutex mutex;
varve_memcached *running;
Containers containers;
std::thread starter;
std::atomic<bool> is_to_stop;

bool are_tables_there(Local_connection &sql)
{
  bool are_all= false;
  const char *const query=
    "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'varve_memcache'"
    " AND table_name IN ('config_options', 'cache_policies', 'containers')";
  return sql.query(query, [&](char **row) { are_all= !strcmp(row[0], "3"); }) && are_all;
}

bool refused(const std::string &why)
{
  sql_print_error("VARVE: there is no memcached: %s", why.c_str());
  return false;
}

// Names of columns, between commas, semicolons, bars or spaces. InnoDB's '0' is none.
std::vector<std::string> names(const char *text)
{
  std::vector<std::string> all;
  const char *const between= " ;,|\n";
  for (const char *at= text ? text : ""; *at;)
  {
    const size_t length= strcspn(at, between);
    if (length && strncmp(at, "0", std::max<size_t>(length, 1)))
      all.emplace_back(at, length);
    at+= length;
    at+= strspn(at, between);
  }
  return all;
}

std::string one_name(const char *text)
{
  const std::vector<std::string> all= names(text);
  return all.empty() ? std::string() : all[0];
}

bool make_tables(Local_connection &sql)
{
  if (are_tables_there(sql))
    return true;
  for (const char *statement : NEW_TABLES)
    if (!sql.execute(statement))
      return false;
  return true;
}

// The list of containers, of which the one named 'default' or the first one is the first. Fills in what
// stands between a container's name and a key.
bool read_containers(Local_connection &sql, std::string *delimiter)
{
  std::string separator= "|";
  if (!sql.execute("SET NAMES utf8mb3"))
    return refused(sql.words());
  const bool has_options= sql.query("SELECT name, value FROM varve_memcache.config_options", [&](char **row) {
    if (!strcmp(row[0], "separator"))
      separator= row[1];
    else if (!strcmp(row[0], "table_map_delimiter"))
      *delimiter= row[1];
  });
  if (!has_options)
    return refused(std::string("varve_memcache.config_options can't be read: ") + sql.words());
  const bool has_list= sql.query(
    "SELECT name, db_schema, db_table, key_columns, value_columns, flags, cas_column, expire_time_column,"
    "marks_column, unique_idx_name_on_key FROM varve_memcache.containers ORDER BY name <> 'default', name",
    [&](char **row) {
      auto container= std::make_unique<Container>();
      container->name= row[0];
      container->schema= row[1];
      container->table= row[2];
      container->keys= names(row[3]);
      container->values= names(row[4]);
      container->flags= one_name(row[5]);
      container->cas= one_name(row[6]);
      container->expires= one_name(row[7]);
      container->marks= one_name(row[8]);
      container->index= row[9];
      container->separator= separator;
      // As the parser does it with statements' names.
      if (lower_case_table_names)
        for (std::string *name : {&container->schema, &container->table})
          name->resize(my_casedn_str(system_charset_info, &(*name)[0]));
      containers.push_back(std::move(container));
    });
  if (!has_list)
    return refused(std::string("varve_memcache.containers can't be read: ") + sql.words());
  if (containers.empty())
    return refused("varve_memcache.containers has no row: insert one, or drop the table to have it made anew");
  for (const auto &container : containers)
    if (container->keys.empty() || container->values.empty())
      return refused("the container '" + container->name + "' names no columns of keys or of values");
  return true;
}

varve_memcached_policy policy(const char *name)
{
  if (!strcmp(name, "cache_only"))
    return VARVE_MEMCACHED_CACHE_ONLY;
  if (!strcmp(name, "caching"))
    return VARVE_MEMCACHED_CACHING;
  return strcmp(name, "disabled") ? VARVE_MEMCACHED_TABLE_ONLY : VARVE_MEMCACHED_DISABLED;
}

// What clients may do, and where.
bool read_policies(Local_connection &sql, varve_memcached_store *store)
{
  const bool has_list= sql.query(
    "SELECT get_policy, set_policy, delete_policy, flush_policy FROM varve_memcache.cache_policies"
    " WHERE policy_name = 'cache_policy'",
    [&](char **row) {
      size_t n= 0;
      for (varve_memcached_policy *of : {&store->gets, &store->sets, &store->deletes, &store->flushes})
        *of= policy(row[n++]);
    });
  return has_list || refused(std::string("varve_memcache.cache_policies can't be read: ") + sql.words());
}

bool listen(const std::string &delimiter, varve_memcached_store store)
{
  // Its end would end this, too.
  if (!db)
    return refused("the storage engine VARVE is not there");
  std::vector<const char *> names, tables;
  std::vector<std::string> texts;
  for (const auto &container : containers)
    texts.push_back(container->schema + "/" + container->table);
  for (const auto &container : containers)
    names.push_back(container->name.c_str());
  for (const std::string &text : texts)
    tables.push_back(text.c_str());
  names.push_back(nullptr);
  tables.push_back(nullptr);
  store.containers= names.data();
  store.tables= tables.data();
  store.delimiter= delimiter.c_str();
  varve_memcached_options options= {};
  options.host= unless_empty(address_value);
  options.port= uint16_t(port_value);
  options.socket= unless_empty(socket_value);
  options.threads= threads_value;
  options.change_threads= change_threads_value;
  options.connections= connections_value;
  options.value_bytes= value_bytes_value;
  options.batch= batch_value;
  options.read_batch= read_batch_value;
  options.cache_bytes= size_t(cache_bytes_value);
  options.accounts= unless_empty(auth_file_value);
  options.certificate= unless_empty(cert_value);
  options.key= unless_empty(key_value);
  options.authorities= unless_empty(ca_value);
  options.letters= unless_empty(option_value);
  options.idle_seconds= idle_timeout_value;
  options.sweep_seconds= sweep_interval_value;
  // Without the mutex: files are read.
  varve_memcached *started= nullptr;
  if (varve_memcached_start(&store, &options, &started))
    return refused(varve_last_error());
  sql_print_information("VARVE: memcached is spoken on %s, in %zu containers", varve_memcached_place(started),
                        containers.size());
  {
    const std::lock_guard<std::mutex> alone(mutex);
    if (!is_to_stop)
      running= std::exchange(started, nullptr);
  }
  if (started)
    varve_memcached_stop(started);
  return !started;
}

// Waits until the server accepts connections. False: it ends before.
bool wait_for_server()
{
  mysql_mutex_lock(&LOCK_server_started);
  while (!mysqld_server_started && !is_to_stop)
    mysql_cond_wait(&COND_server_started, &LOCK_server_started);
  mysql_mutex_unlock(&LOCK_server_started);
  return !is_to_stop;
}

void start()
{
  begin_thread("varve-memcached-start");
  if (wait_for_server())
  {
    Local_connection sql;
    std::string delimiter= ".";
    varve_memcached_store store= memcached_rows(&containers);
    if (!make_tables(sql))
      refused(std::string("the tables of varve_memcache can't be made: ") + sql.words());
    else if (read_containers(sql, &delimiter) && read_policies(sql, &store))
      listen(delimiter, store);
  }
  end_thread();
}

}  // namespace

struct st_mysql_sys_var *memcached_variables[]= {
  MYSQL_SYSVAR(address),
  MYSQL_SYSVAR(port),
  MYSQL_SYSVAR(socket),
  MYSQL_SYSVAR(threads),
  MYSQL_SYSVAR(change_threads),
  MYSQL_SYSVAR(max_connections),
  MYSQL_SYSVAR(max_value_size),
  MYSQL_SYSVAR(w_batch_size),
  MYSQL_SYSVAR(r_batch_size),
  MYSQL_SYSVAR(cache_size),
  MYSQL_SYSVAR(binlog),
  MYSQL_SYSVAR(auth_file),
  MYSQL_SYSVAR(ssl_cert),
  MYSQL_SYSVAR(ssl_key),
  MYSQL_SYSVAR(ssl_ca),
  MYSQL_SYSVAR(option),
  MYSQL_SYSVAR(idle_timeout),
  MYSQL_SYSVAR(sweep_interval),
  nullptr
};

int init_memcached(void *)
{
  if (!port_value && !unless_empty(socket_value) && !unless_empty(option_value))
    return 0;
  is_to_stop= false;
  try
  {
    starter= std::thread(start);
  }
  catch (const std::system_error &e)
  {
    refused(e.what());
  }
  return 0;
}

void each_memcached_counter(varve_counter_fn each, void *context)
{
  const std::lock_guard<std::mutex> alone(mutex);
  varve_memcached_status(running, each, context);
}

bool memcached_ends()
{
  return is_to_stop;
}

bool memcached_is_logged()
{
  return binlog_value;
}

void stop_memcached()
{
  varve_memcached *server;
  {
    const std::lock_guard<std::mutex> alone(mutex);
    is_to_stop= true;
    server= std::exchange(running, nullptr);
  }
  // The starter may wait for the server, and has looked before.
  mysql_mutex_lock(&LOCK_server_started);
  mysql_cond_broadcast(&COND_server_started);
  mysql_mutex_unlock(&LOCK_server_started);
  if (starter.joinable())
    starter.join();
  if (server)
    varve_memcached_stop(server);
  containers.clear();
}

int deinit_memcached(void *)
{
  stop_memcached();
  return 0;
}

}  // namespace varve_plugin
