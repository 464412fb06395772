// foreign.c: foreign keys through the C interface.

#include "check.h"

static varve_db *db;

static varve_code create(const char *name, const varve_foreign_key *key)
{
  varve_column_def columns[]= {
    {.name= "id", .kind= VARVE_INT, .size= 4},
    {.name= "parent", .kind= VARVE_INT, .size= 4, .nullable= true},
  };
  varve_key_part primary= {.column= 0}, by_parent= {.column= 1};
  varve_index_def index= {.name= "by_parent", .parts= &by_parent, .n_parts= 1};
  varve_table_def def= {.name= name, .columns= columns, .n_columns= 2, .primary= &primary, .n_primary= 1,
                        .indexes= &index, .n_indexes= key ? 1 : 0,
                        .foreign_keys= key, .n_foreign_keys= key ? 1 : 0,
                        .auto_increment= UINT32_MAX};
  return varve_table_create(db, &def);
}

static varve_code insert(const varve_txn *txn, const varve_table *table, int32_t id, int32_t parent)
{
  varve_value row[]= {number(&id), number(&parent)};
  return varve_insert(txn, table, row, 2, VARVE_DUPLICATE_SHARE);
}

static varve_code delete(const varve_txn *txn, const varve_table *table, int32_t id)
{
  varve_cursor *c;
  const varve_value *row;
  varve_value key= number(&id);
  OK(varve_cursor_open(table, 0, &c));
  OK(varve_cursor_seek(c, txn, &key, 1, VARVE_EXACT, VARVE_EXCLUSIVE, &row));
  varve_code code= varve_delete(txn, c);
  varve_cursor_close(c);
  return code;
}

static void look(void *context, const varve_foreign_key *key)
{
  CHECK(!strcmp(key->name, "up") && !strcmp(key->child, "a/children") && !strcmp(key->parent, "a/parents"));
  CHECK(key->n_columns == 1 && !strcmp(key->columns[0], "parent") && !strcmp(key->parent_columns[0], "id"));
  CHECK(key->on_delete == VARVE_CASCADE && key->on_update == VARVE_NO_ACTION);
  CHECK(key->nullable[0] && !key->parent_nullable[0] && !strcmp(key->parent_index, "PRIMARY"));
  ++*(int *) context;
}

int main(int argc, char **argv)
{
  varve_table *parents, *children;
  varve_txn *txn;
  const char *column= "parent", *parent_column= "id";
  varve_foreign_key up= {.name= "up", .columns= &column, .parent_columns= &parent_column, .n_columns= 1,
                         .parent= "a/parents", .on_delete= VARVE_CASCADE};
  const char *own, *its;
  int seen= 0;
  CHECK(argc == 2);
  OK(varve_db_open(argv[1], NULL, &db));
  EXPECT(VARVE_BAD_FOREIGN_KEY, create("a/children", &up));
  CHECK(varve_last_error_parent(&own, &its) == VARVE_NO_PARENT);
  OK(create("a/parents", NULL));
  parent_column= "parent";
  EXPECT(VARVE_BAD_FOREIGN_KEY, create("a/children", &up));
  CHECK(varve_last_error_parent(&own, &its) == VARVE_NO_PARENT_INDEX);
  parent_column= "nothing";
  EXPECT(VARVE_BAD_FOREIGN_KEY, create("a/children", &up));
  CHECK(varve_last_error_parent(&own, &its) == VARVE_NO_PARENT_COLUMN && !strcmp(its, "nothing"));
  parent_column= "id";
  OK(create("a/children", &up));
  EXPECT(VARVE_CONSTRAINT_EXISTS, create("a/twins", &up));
  CHECK(varve_last_error_parent(&own, &its) == VARVE_PARENT_FITS);
  OK(varve_table_open(db, "a/parents", &parents));
  OK(varve_table_open(db, "a/children", &children));
  CHECK(varve_table_is_referenced(parents) && !varve_table_is_referenced(children));
  OK(varve_table_foreign_keys(children, look, &seen));
  OK(varve_table_referencing(parents, look, &seen));
  CHECK(seen == 2);
  EXPECT(VARVE_TABLE_IS_REFERENCED, varve_table_drop(db, "a/parents", VARVE_CHECK_REFERENCES));

  OK(varve_txn_open(db, VARVE_TABLES_LOCKED_BY_ENGINE, &txn));
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  OK(insert(txn, parents, 1, 0));
  OK(insert(txn, children, 10, 1));
  EXPECT(VARVE_NO_REFERENCED_ROW, insert(txn, children, 20, 2));
  CHECK(!strcmp(varve_last_error_constraint(), "up") && !strcmp(varve_last_error_child(), "a/children"));
  EXPECT(VARVE_DUPLICATE_KEY, insert(txn, parents, 1, 0));
  CHECK(!*varve_last_error_constraint());
  varve_txn_set_foreign_key_checks(txn, false);
  OK(insert(txn, children, 20, 2));
  varve_txn_set_foreign_key_checks(txn, true);
  OK(delete(txn, parents, 1));
  OK(varve_txn_commit(txn));
  varve_txn_close(txn);
  varve_table_close(parents);
  varve_table_close(children);
  OK(varve_table_rename(db, "a/children", "a/kids", "u", "kids_u"));
  OK(varve_table_truncate(db, "a/parents", VARVE_IGNORE_REFERENCES));
  OK(varve_table_drop(db, "a/parents", VARVE_CHECK_OTHER_SCHEMAS));
  OK(varve_db_close(db));
  return 0;
}
