// kept_results.h: which results the server may keep in its query cache, and answer from there.
//
// The server drops the kept results of a table after a statement that changed it, or, in a transaction of
// several statements, after the commit. It can't know what a view sees. The engine's part is that
//
// - a result is kept only if it is what everybody sees who comes: none of an old view, or with the changes of
//   its own transaction;
// - a transaction is answered from the cache only what its view sees, also between the moment in which a
//   commit is visible and that in which the server has dropped what it made obsolete.
//
// The protocol. One counter numbers the transactions that have changed something, when they end. For each
// table there are `writers`, the open transactions that have changed it, and `last`, the number of the last
// one of them that has committed.
//
// - A writer counts in `writers` before its first change of the table. After it has committed, when all see
//   it, it draws its number, puts it into `last`, and only then counts no longer.
// - A reader notes the counter before its view opens. It sees all that is committed in the table if there is
//   no writer and `last` is not beyond what it has noted: a writer that was still to come is not seen, and
//   one that has ended is either below the noted number, and was visible then, or it is beyond, which is
//   taken for unseen.
// - A kept result has the table's `last` with it. It is answered only if that is still the same. So a result
//   that was made before a commit is not answered after it, whether or not the server has dropped it.
// - A statement that is a transaction of its own needs no more than that: it is as if it had come when the
//   result was still right. Another one opens its view, and then asks as if it were to keep the result.
//
// All of these are sequentially consistent: who reads `writers`, then `last`, relies on the order in which a
// writer changes them, and what it has noted of the counter on that the view opens later.
//
// What changes tables that this connection does not name (rows that a foreign key changes, a prepared
// transaction of another connection, one that began when the cache was off) counts as a change of all tables.

#ifndef VARVE_KEPT_RESULTS_H
#define VARVE_KEPT_RESULTS_H

#include "server.h"

#include <atomic>
#include <string>
#include <vector>

namespace varve_plugin {

class Session;

// What is known of the changes of a table, or of all.
struct Changes
{
  std::atomic<uint64_t> writers{0};
  std::atomic<uint64_t> last{0};
};

// While the server has its query cache switched off, as it is by default, nothing is counted.
bool keeps_results();

// Those of a table, made at the first call. They live as long as the server.
Changes *changes_of(const std::string &engine_name);
Changes *changes_of_all();

// What one transaction has changed.
class Changed_tables
{
public:
  // A transaction, or a statement that has a view of its own, is about to begin.
  void note_what_is_seen();
  void begin();
  // Before the first change.
  void note(Changes *changes);
  // The transaction commits, so that its changes become visible from here on until end().
  void about_to_commit();
  // The transaction has ended, and what it changed is visible or gone.
  void end(bool has_committed);
  // Whether the transaction sees all that is committed in the table, and nothing else.
  bool sees_all_of(const Changes *changes) const;

private:
  std::vector<Changes *> m_tables;
  uint64_t m_seen= 0;
  bool m_is_counted= false;
};

// What goes on here changes any table, as a prepared transaction that is committed.
class Change_of_all
{
public:
  Change_of_all();
  ~Change_of_all();
};

// The server asks whether a result with rows of this table may be kept, at the beginning of the statement.
bool may_keep_result(THD *thd, const std::string &engine_name, ulonglong *engine_data);
// And whether one may be answered.
my_bool may_answer_result(THD *thd, const char *path, uint length, ulonglong *engine_data);

}  // namespace varve_plugin

#endif
