// foreign.h: foreign keys between the server and the engine.
//
// The server gives them to an engine with the statement that makes a table, asks for them when it opens and
// shows tables, and leaves the rest to the engine. It has names as users write them; the engine has those of
// schemas and tables in the encoding of file names, like the files.

#ifndef VARVE_FOREIGN_H
#define VARVE_FOREIGN_H

#include "server.h"

#include <deque>
#include <string>
#include <vector>

namespace varve_plugin {

// Whether two names of columns, indexes or constraints are the same.
bool same_name(const char *a, const char *b);

// What foreign_key_checks says.
varve_foreign_key_checks foreign_key_checks(THD *thd);

// The foreign keys of a table that is created, or of the copy that ALTER TABLE fills; or those that it adds
// in place.
class Foreign_keys
{
public:
  // Collects them. Returns a handler code; the client has been told what is wrong. `name` is the engine's.
  int collect(THD *thd, TABLE *form, const std::string &name, const HA_CREATE_INFO *info);

  // The same of those that are added in place to the table that `before` is.
  int collect_added(THD *thd, TABLE *altered, const TABLE *before, const varve_table *table,
                    const std::string &name, const Alter_inplace_info *alter);

  // Gives them to a definition, which must not outlive them.
  void put_into(varve_table_def *def) const;

  // Tells the client, in InnoDB's words, what the engine had against one of them. Returns a handler code.
  int refused(THD *thd, varve_code code) const;
  // The same of one that was to be added in place, for which InnoDB has other words.
  int refused_in_place(THD *thd, varve_code code) const;

  const std::vector<varve_foreign_key> &all() const { return m_keys; }

private:
  // What a varve_foreign_key points to.
  struct Parts
  {
    std::string name, text, child, parent;
    // What the statement calls the foreign key and the constraint; null if it does not.
    const char *key_name, *constraint_name;
    // An index that is not new has the columns.
    bool has_index= false;
    std::vector<std::string> columns, parent_columns;
    std::vector<const char *> column_pointers, parent_column_pointers;
  };

  Parts &begin(const std::string &name, const Foreign_key &key);
  void finish(const TABLE *form, Parts *parts, const Foreign_key &key);
  int add(THD *thd, TABLE *form, const std::string &name, const Foreign_key &key);
  int add_in_place(THD *thd, TABLE *altered, const TABLE *before, const varve_table *table,
                   const std::string &name, const Foreign_key &key);
  void number_from(const std::string &table, Alter_info *info);
  const Parts *faulty() const;
  int refused_for_name(THD *thd, const std::string &constraint) const;
  int is_taken(THD *thd, const std::string &constraint) const;
  int wrong_option(const Parts &parts) const;
  int check_columns(THD *thd, TABLE *form, const Foreign_key &key, const Parts &parts) const;
  int warn(THD *thd, const char *with, const Parts &parts, const std::string &what) const;

  // How a warning begins: what is done to which table.
  std::string m_operation;
  // The number in the next name that is made.
  ulonglong m_next_number= 1;
  std::deque<Parts> m_parts;  // which stay where they are
  std::vector<varve_foreign_key> m_keys;
};

// A foreign key as the engine has told of it.
struct Told_key
{
  explicit Told_key(const varve_foreign_key &key);

  // Its name among all: "schema/name".
  std::string id() const;

  std::string name, child, parent, parent_index;
  bool has_parent;
  std::vector<std::string> columns, parent_columns;
  std::vector<bool> nullable, parent_nullable;
  varve_referential_action on_delete, on_update;
};

// A table's foreign keys, in InnoDB's order: that of the constraints' names.
std::vector<Told_key> foreign_keys_of(const varve_table *table);

// A foreign key with the names of its tables that users know.
struct Named_key
{
  explicit Named_key(const Told_key &key);

  Told_key key;
  std::string child_schema, child, parent_schema, parent;
};

// What the engine tells of a table's foreign keys, which the server asks for with each of its statements. The
// engine is asked again only if it may say something else.
class Kept_keys
{
public:
  // `about` is the same one each time, and so is the table, which may have been closed and opened again.
  const std::vector<Named_key> &of(const varve_table *table, decltype(varve_table_foreign_keys) *about);

private:
  // Null: nothing is known.
  const varve_table *m_table= nullptr;
  // What the engine's count of changes was.
  uint64_t m_as_of= 0;
  std::vector<Named_key> m_keys;
};

// Names of those that a statement drops.
std::vector<std::string> foreign_keys_dropped(const Alter_inplace_info *alter);
// Whether these are all the table's.
bool has_foreign_keys(const varve_table *table, const std::vector<std::string> &names);
// Whether a statement drops a column that others refer to. The server refuses that if it copies.
bool loses_referenced_column(const varve_table *table, const Alter_inplace_info *alter);
// Whether a column of a foreign key, at either end, gets another type.
bool changes_foreign_column(const TABLE *form, const varve_table *table, const Alter_inplace_info *alter);
// With checks off a foreign key keeps its columns, though not their indexes. Tells of one that goes.
bool loses_foreign_column(THD *thd, const varve_table *table, const Alter_inplace_info *alter);
// Tells of a foreign key that brings NULL into a column which ceases to take it: by SET NULL, or in strict
// mode by ON UPDATE CASCADE from a parent's column that takes it. In InnoDB's words.
bool would_get_null(const varve_table *table, const std::vector<const Field *> &fields,
                    const Alter_inplace_info *alter, bool is_strict);
// The same of a parent's column that begins to take NULL, which a child's does not.
bool would_give_null(const varve_table *table, const std::vector<const Field *> &fields);

// Those that refer to it.
std::vector<Told_key> foreign_keys_to(const varve_table *table);

// The foreign key in SQL, as SHOW CREATE TABLE has it.
std::string constraint_text(THD *thd, const Told_key &key);

// A constraint and its table, as InnoDB words them.
struct Constraint_words
{
  std::string table, constraint;
};

// Those that this thread's last engine error was about; empty if the table can't be opened.
Constraint_words last_constraint(THD *thd);

// The child and its index that it was about: "table/index".
std::string last_child_index();

// The last error about a foreign key of all connections, for SHOW ENGINE VARVE STATUS; empty: none yet.
void note_foreign_error(THD *thd, const std::string &what);
// The same of a row that was refused.
void note_refused_row(THD *thd, const std::string &what, const Constraint_words &words);
std::string latest_foreign_error();

// Whether an index begins with these columns, or with beginnings of them.
enum class Served { NO, BY_PREFIX, YES };
Served is_served_by(const KEY &key, const std::vector<std::string> &columns);
// The same of any index of `form`.
Served is_served(const TABLE *form, const std::vector<std::string> &columns);

// A schema or table as users write it.
std::string user_name(const std::string &engine_name);
// The two parts of an engine's name, "schema/table".
std::string schema_of(const std::string &name);
std::string table_of(const std::string &name);
// Both as users write them, between backticks.
std::string quoted_table(THD *thd, const std::string &name);
// A user's name between backticks, if this session wants them.
std::string quoted(THD *thd, const std::string &name);

}  // namespace varve_plugin

#endif
