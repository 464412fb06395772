// error_map.cc: engine errors on their way to the server and the client.

#include "error_map.h"

namespace varve_plugin {

int to_handler_code(THD *thd, varve_code code)
{
  if (code == VARVE_DEADLOCK)
    thd->mark_transaction_to_rollback(true);
  else if (code == VARVE_LOCK_WAIT_TIMEOUT)
    thd->mark_transaction_to_rollback(false);
  return handler_code(code);
}

int report(THD *thd, varve_code code)
{
  if (unsigned int number= own_words(code))
    my_printf_error(number, "VARVE: %s", MYF(0), varve_last_error());
  return to_handler_code(thd, code);
}

}  // namespace varve_plugin
