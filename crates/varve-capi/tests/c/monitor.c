// monitor.c: a monitor comes and goes; addresses, ports and tokens that can't be used are refused; what
// sessions are doing is told to those who have the token.

#define _POSIX_C_SOURCE 200809L  // dprintf

#include "check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

static atomic_int asked;

// In the monitor's thread.
static bool tell_activity(void *context, uint64_t session, varve_session_activity *out)
{
  // Not terminated, and with a byte that is no UTF-8.
  static const char statement[]= {'S', 'E', 'T', ' ', '<', 'a', '>', (char) 0xe4};
  CHECK(context == &asked);
  asked++;
  *out= (varve_session_activity) {.statement= statement, .statement_bytes= sizeof statement,
                                  .active_us= 90500000, .is_idle= true, .idle_us= 70500000};
  return session == 10;
}

static int port_of(const varve_monitor *monitor)
{
  int port;
  CHECK(sscanf(varve_monitor_url(monitor), "http://127.0.0.1:%d/", &port) == 1 && port > 0);
  return port;
}

// What /api/state answers.
static const char *state_of(const varve_monitor *monitor)
{
  static char answer[60000];
  const struct sockaddr_in address= {.sin_family= AF_INET, .sin_port= htons((uint16_t) port_of(monitor)),
                                     .sin_addr.s_addr= htonl(INADDR_LOOPBACK)};
  const int stream= socket(AF_INET, SOCK_STREAM, 0);
  CHECK(!connect(stream, (const struct sockaddr *) &address, sizeof address));
  dprintf(stream, "GET /api/state HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                  "Authorization: Bearer 0123456789abcdef\r\n\r\n");
  size_t length= 0;
  ssize_t more;
  while ((more= read(stream, answer + length, sizeof answer - 1 - length)) > 0)
    length+= (size_t) more;
  close(stream);
  answer[length]= 0;
  CHECK(strstr(answer, "\"transactions_running\":2"));
  return answer;
}

static void check_activity(varve_db *db, const char *token_file)
{
  const int file= open(token_file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  CHECK(dprintf(file, "0123456789abcdef\n") == 17 && !close(file));
  varve_txn *idle, *unknown;
  OK(varve_txn_open(db, VARVE_TABLES_LOCKED_BY_ENGINE, &idle));
  OK(varve_txn_open(db, VARVE_TABLES_LOCKED_BY_ENGINE, &unknown));
  varve_txn_set_session(idle, 10);
  varve_txn_set_session(unknown, 11);
  OK(varve_txn_begin(idle, VARVE_REPEATABLE_READ));
  OK(varve_txn_begin(unknown, VARVE_REPEATABLE_READ));

  varve_monitor *monitor;
  varve_monitor_options where= {.address= "127.0.0.1:0", .activity= tell_activity, .activity_context= &asked};
  OK(varve_monitor_start(db, &where, &monitor));
  CHECK(!strstr(state_of(monitor), "SET") && asked == 0);
  varve_monitor_stop(monitor);
  where.token_file= token_file;
  OK(varve_monitor_start(db, &where, &monitor));
  const char *state= state_of(monitor);
  CHECK(strstr(state, "\"statement\":\"SET <a>\xef\xbf\xbd\"") && asked == 2);
  CHECK(strstr(state, "\"seconds\":90") && strstr(state, "\"idle\":70"));
  varve_monitor_stop(monitor);

  OK(varve_txn_rollback(idle));
  OK(varve_txn_rollback(unknown));
  varve_txn_close(idle);
  varve_txn_close(unknown);
  CHECK(!unlink(token_file));
}

int main(int argc, char **argv)
{
  CHECK(argc == 2);
  varve_db *db;
  varve_options options;
  varve_options_default(&options);
  options.buffer_pool_bytes= 8 << 20;
  OK(varve_db_open(argv[1], &options, &db));
  varve_monitor *monitor, *second;
  varve_monitor_options where= {.address= "127.0.0.1:0"};
  OK(varve_monitor_start(db, &where, &monitor));
  char taken[32];
  snprintf(taken, sizeof taken, "127.0.0.1:%d", port_of(monitor));
  where.address= taken;
  EXPECT(VARVE_IO, varve_monitor_start(db, &where, &second));
  CHECK(strstr(varve_last_error(), taken));
  varve_monitor_stop(monitor);
  OK(varve_monitor_start(db, &where, &monitor));
  varve_monitor_stop(monitor);
  where.address= "0.0.0.0:3480";
  EXPECT(VARVE_INVALID, varve_monitor_start(db, &where, &monitor));
  where.address= "here";
  EXPECT(VARVE_INVALID, varve_monitor_start(db, &where, &monitor));
  where= (varve_monitor_options) {.address= "127.0.0.1:0", .token_file= "/dev/null/token"};
  EXPECT(VARVE_IO, varve_monitor_start(db, &where, &monitor));
  CHECK(strstr(varve_last_error(), "/dev/null/token"));
  char token_file[4096];
  snprintf(token_file, sizeof token_file, "%s.token", argv[1]);
  check_activity(db, token_file);
  OK(varve_db_close(db));
  return 0;
}
