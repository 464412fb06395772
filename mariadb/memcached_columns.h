// memcached_columns.h: the columns of a container's table, and what clients' texts are in them.

#ifndef VARVE_MEMCACHED_COLUMNS_H
#define VARVE_MEMCACHED_COLUMNS_H

#include "memcached.h"

#include <utility>

namespace varve_plugin {

// How a row is written.
enum class Put { INSERT, UPDATE };

// The columns of an open table that a container names. What fails says why: in `why`, or, where that is
// empty, as the server has told it in the THD.
class Memcached_columns
{
public:
  // Finds them in a table that was opened, of which it takes the columns until the next call.
  bool find(const Container &container, TABLE *table);
  const std::string &why() const { return m_why; }

  const KEY &index() const { return m_table->key_info[m_index]; }
  uint index_number() const { return m_index; }
  bool have_times() const { return m_expires; }

  // Whether rows can be changed. False: `why` says why not.
  bool check_changes();
  // The table reads these columns only.
  void read_no_others();
  // It reads fewer still.
  void read_keys_and_times();
  // Whether a new row's AUTO_INCREMENT number is what the client says.
  bool say_number() const;
  // The batch is over.
  void forget();
  // The key columns get what the client says. False: they can't have it as it is (MC-7), which is not told.
  bool store_key(const char *key, size_t bytes);
  // The same for a new row, which is told.
  bool fill_key(const char *key, size_t bytes);
  // What the row has that was read. The value is kept here.
  void read(varve_memcached_item *out);
  // The key of the row that was read, as text, which is kept here.
  const std::string &read_key();
  // The row that was read has no NULL in its key: one that has is no item.
  bool have_key() const;
  // When the row ends; 0: it does not.
  ulonglong end() const;
  // The columns get what the item has, and refuse what they can't keep.
  bool fill(const varve_memcached_item &item, Put put);
  // What the row gets beside what the client says: defaults, generated columns; and what it has to satisfy.
  bool complete(Put put);
  // What a row that was filled and written has as its cas.
  ulonglong cas_of_written(ulonglong given);

private:
  Field *column(const std::string &name);
  bool columns(const std::vector<std::string> &names, std::vector<Field *> *out);
  bool find_index();
  void note_places();
  bool fill_value(const char *value, size_t bytes);
  bool fill_number(Field *field, const char *what, ulonglong number);
  bool is_said(const Field *field) const;
  bool differ() const;
  bool failed(std::string why);

  const Container *m_container= nullptr;
  TABLE *m_table= nullptr;
  ulonglong m_definition= 0;  // TABLE_SHARE::table_map_id
  uint m_index= 0;
  std::vector<Field *> m_keys, m_values;
  Field *m_flags= nullptr, *m_cas= nullptr, *m_expires= nullptr, *m_marks= nullptr;
  std::vector<std::pair<Field **, uint>> m_places;  // of all of them, and their numbers
  varve_memcached_item m_read= {};  // what `read` gave last, without the value
  std::string m_value, m_key, m_why;
};

}  // namespace varve_plugin

#endif
