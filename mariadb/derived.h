// derived.h: what rows need that the engine changes by itself.

#ifndef VARVE_DERIVED_H
#define VARVE_DERIVED_H

#include "server.h"

#include <string>
#include <vector>

namespace varve_plugin {

// The engine asks the thread that uses this transaction.
void give_values(const varve_txn *txn);

// Where a system-versioned table has its times.
struct System_time : varve_system_time
{
  // False: the table is not versioned. `column_of_field` has the engine's columns.
  bool describe(const TABLE *form, const std::vector<uint32_t> &column_of_field);

private:
  std::string m_forever;
};

}  // namespace varve_plugin

#endif
