// error_map.cc: engine errors on their way to the server and the client.

#include "error_map.h"

#include "sysvars.h"
#include "transactions.h"

namespace varve_plugin {

// Whether a client can tell each error from the others: it comes with the engine's own words, or its handler
// code is no other's.
static constexpr bool all_errors_differ()
{
  for (int a= VARVE_CORRUPT; a <= VARVE_NO_KEY; a++)
    for (int b= VARVE_NO_ROW; b < a; b++)
      if (!own_words(varve_code(a)) && handler_code(varve_code(a)) == handler_code(varve_code(b)))
        return false;
  return true;
}

static_assert(all_errors_differ(), "two engine errors look the same to the client");
static_assert(handler_code(VARVE_OK) == 0, "0 is success everywhere in the server");

int to_handler_code(THD *thd, varve_code code)
{
  if (code == VARVE_DEADLOCK)
    describe_deadlock();
  if (code == VARVE_DEADLOCK || code == VARVE_LOCK_TABLE_FULL)
    thd->mark_transaction_to_rollback(true);
  else if (code == VARVE_LOCK_WAIT_TIMEOUT)
    thd->mark_transaction_to_rollback(rolls_back_on_timeout());
  return handler_code(code);
}

int report(THD *thd, varve_code code)
{
  if (code == VARVE_NULL_VALUE)
  {
    // InnoDB's two errors, of which the first counts.
    const char *column;
    const ulonglong row= varve_last_error_null(&column);
    my_error(WARN_DATA_TRUNCATED, MYF(0), column, ulong(row));
    my_error(ER_INVALID_USE_OF_NULL, MYF(0));
  }
  // Who was asked for a value has told the client why there is none.
  else if (unsigned int number= thd->is_error() ? 0 : own_words(code))
    my_printf_error(number, "VARVE: %s", MYF(0), varve_last_error());
  return to_handler_code(thd, code);
}

int refuse(const char *what)
{
  my_printf_error(ER_NOT_SUPPORTED_YET, "VARVE does not support %s yet", MYF(0), what);
  return HA_ERR_UNSUPPORTED;
}

}  // namespace varve_plugin
