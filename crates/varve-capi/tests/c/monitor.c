// monitor.c: a monitor comes and goes; addresses, ports and tokens that can't be used are refused.

#include "check.h"

#include <stdio.h>

int main(int argc, char **argv)
{
  CHECK(argc == 2);
  varve_db *db;
  varve_options options;
  varve_options_default(&options);
  options.buffer_pool_bytes= 8 << 20;
  OK(varve_db_open(argv[1], &options, &db));
  varve_monitor *monitor, *second;
  varve_monitor_options where= {.address= "127.0.0.1:0", .token_file= NULL};
  OK(varve_monitor_start(db, &where, &monitor));
  int port;
  CHECK(sscanf(varve_monitor_url(monitor), "http://127.0.0.1:%d/", &port) == 1 && port > 0);
  char taken[32];
  snprintf(taken, sizeof taken, "127.0.0.1:%d", port);
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
  OK(varve_db_close(db));
  return 0;
}
