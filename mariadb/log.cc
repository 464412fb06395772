// log.cc: what the engine tells an operator goes to the server's error log.

#include "engine.h"

namespace varve_plugin {

void log_message(void *, varve_log_level level, const char *message)
{
  switch (level)
  {
  case VARVE_LOG_ERROR:   sql_print_error("VARVE: %s", message); break;
  case VARVE_LOG_WARNING: sql_print_warning("VARVE: %s", message); break;
  case VARVE_LOG_NOTE:    sql_print_information("VARVE: %s", message); break;
  }
}

}  // namespace varve_plugin
