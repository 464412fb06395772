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

// A child whose third column is twice the second one, or one with history.
static varve_code create_derived(const char *name, const varve_foreign_key *key, bool has_history)
{
  varve_column_def columns[]= {
    {.name= "id", .kind= VARVE_INT, .size= 4},
    {.name= "parent", .kind= VARVE_INT, .size= 4, .nullable= true},
    {.name= "double", .kind= VARVE_INT, .size= 4, .nullable= true, .computed= !has_history},
    {.name= "since", .kind= VARVE_FIXED, .size= 2},
    {.name= "until", .kind= VARVE_FIXED, .size= 2},
  };
  varve_key_part primary[]= {{.column= 0}, {.column= 4}}, by_parent= {.column= 1};
  varve_index_def index= {.name= "by_parent", .parts= &by_parent, .n_parts= 1};
  varve_system_time time= {.start= 3, .end= 4, .forever= {(const uint8_t *) "ZZ", 2}};
  varve_table_def def= {.name= name, .columns= columns, .n_columns= 5, .primary= primary, .n_primary= 2,
                        .indexes= &index, .n_indexes= 1, .foreign_keys= key, .n_foreign_keys= 1,
                        .auto_increment= UINT32_MAX, .system_time= has_history ? &time : NULL};
  return varve_table_create(db, &def);
}

static bool the_time(void *context, varve_value *out)
{
  *out= (varve_value){(const uint8_t *) context, 2};
  return true;
}

static bool twice(void *context, const char *table, const varve_value *row, const uint32_t *columns,
                  uint32_t n, varve_value *out)
{
  static int32_t value;
  (void) context;
  CHECK(!strcmp(table, "a/doubles") && n == 1 && columns[0] == 2);
  if (!row[1].ptr)
    return false;
  memcpy(&value, row[1].ptr, sizeof value);
  value*= 2;
  *out= number(&value);
  return true;
}

static bool no_other(void *context, const char *table, const varve_value *row, const uint32_t *columns,
                     uint32_t n, uint64_t row_number, varve_value *out)
{
  (void) context, (void) table, (void) row, (void) columns, (void) n, (void) row_number, (void) out;
  return false;
}

static bool nothing(void *context, const char *table, uint32_t column, uint64_t row, varve_value *out)
{
  (void) context, (void) table, (void) column, (void) row, (void) out;
  return false;
}

static void follow_derived(const varve_txn *txn, const varve_table *parents, const varve_foreign_key *up)
{
  varve_table *doubles, *past;
  varve_cursor *c;
  const varve_value *row;
  int32_t one= 1, two= 2, ten= 10, fourteen= 14, seven= 7;
  varve_value parent[]= {number(&seven), number(&two)};
  varve_value values[]= {number(&ten), number(&one), number(&two), {(const uint8_t *) "aa", 2},
                         {(const uint8_t *) "ZZ", 2}};
  varve_value_source source= {(void *) "bb", the_time, twice, no_other, nothing};
  varve_foreign_key key= *up;
  key.on_update= VARVE_CASCADE;
  key.name= "up_doubles";
  OK(create_derived("a/doubles", &key, false));
  key.name= "up_past";
  OK(create_derived("a/past", &key, true));
  OK(varve_table_open(db, "a/doubles", &doubles));
  OK(varve_table_open(db, "a/past", &past));
  OK(varve_txn_begin(txn, VARVE_REPEATABLE_READ));
  OK(insert(txn, parents, 1, 0));
  OK(varve_insert(txn, doubles, values, 5, VARVE_DUPLICATE_SHARE));
  OK(varve_insert(txn, past, values, 5, VARVE_DUPLICATE_SHARE));
  OK(varve_cursor_open(parents, 0, &c));
  OK(varve_cursor_seek(c, txn, values + 1, 1, VARVE_EXACT, VARVE_EXCLUSIVE, &row));
  EXPECT(VARVE_UNSUPPORTED, varve_update(txn, c, parent, 2));
  varve_txn_set_value_source(txn, &source);
  OK(varve_update(txn, c, parent, 2));
  varve_cursor_close(c);
  OK(varve_cursor_open(doubles, 0, &c));
  OK(varve_cursor_first(c, txn, VARVE_NO_LOCK, &row));
  CHECK(!memcmp(row[1].ptr, &seven, 4) && !memcmp(row[2].ptr, &fourteen, 4));
  varve_cursor_close(c);
  OK(varve_cursor_open(past, 0, &c));
  OK(varve_cursor_first(c, txn, VARVE_NO_LOCK, &row));
  CHECK(!memcmp(row[4].ptr, "ZZ", 2) && !memcmp(row[3].ptr, "bb", 2));
  varve_cursor_close(c);
  OK(delete(txn, parents, 7));
  OK(varve_txn_commit(txn));
  varve_table_close(doubles);
  varve_table_close(past);
  OK(varve_table_drop(db, "a/doubles", VARVE_CHECK_REFERENCES));
  OK(varve_table_drop(db, "a/past", VARVE_CHECK_REFERENCES));
}

static void look(void *context, const varve_foreign_key *key)
{
  CHECK(!strcmp(key->name, "up") && !strcmp(key->child, "a/children") && !strcmp(key->parent, "a/parents"));
  CHECK(key->n_columns == 1 && !strcmp(key->columns[0], "parent") && !strcmp(key->parent_columns[0], "id"));
  CHECK(key->on_delete == VARVE_CASCADE && key->on_update == VARVE_NO_ACTION);
  CHECK(key->nullable[0] && !key->parent_nullable[0] && !strcmp(key->parent_index, "PRIMARY"));
  ++*(int *) context;
}

static void no_duplicate(void *context, const char *index, const varve_value *row)
{
  (void) context, (void) index, (void) row;
  CHECK(!"there is no unique index");
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
  follow_derived(txn, parents, &up);
  varve_txn_close(txn);
  varve_column_def renamed[]= {
    {.name= "number", .kind= VARVE_INT, .size= 4, .was= "id"},
    {.name= "up", .kind= VARVE_INT, .size= 4, .nullable= true, .was= "parent"},
  };
  varve_key_part primary= {.column= 0};
  varve_table_def redefined= {.name= "a/parents", .columns= renamed + 1, .n_columns= 1, .primary= &primary,
                              .n_primary= 1, .auto_increment= UINT32_MAX};
  CHECK(!varve_table_can_become(parents, &redefined));
  varve_redefinition *prepared;
  EXPECT(VARVE_UNSUPPORTED, varve_redefinition_prepare(db, NULL, &redefined, &prepared));
  redefined.columns= renamed;
  redefined.n_columns= 2;
  CHECK(varve_table_can_become(parents, &redefined));
  const uint64_t hash= varve_table_hash(parents);
  varve_table_close(parents);
  varve_table_close(children);
  OK(varve_redefinition_prepare(db, NULL, &redefined, &prepared));
  EXPECT(VARVE_INVALID, varve_redefinition_add(db, prepared, &redefined));
  EXPECT(VARVE_INVALID, varve_redefinition_commit(db, prepared, no_duplicate, NULL));
  OK(varve_redefinition_prepare(db, NULL, &redefined, &prepared));
  varve_redefinition_abandon(prepared);
  OK(varve_redefinition_prepare(db, NULL, &redefined, &prepared));
  EXPECT(VARVE_NOT_FOUND, varve_redefinition_drop_foreign_key(db, prepared, "nobody"));
  OK(varve_redefinition_build(db, prepared, no_duplicate, NULL));
  OK(varve_redefinition_commit(db, prepared, no_duplicate, NULL));
  OK(varve_table_open(db, "a/parents", &parents));
  CHECK(varve_table_hash(parents) != hash);
  varve_table_close(parents);
  OK(varve_table_rename(db, "a/children", "a/kids", "u", "kids_u", VARVE_CHECK_REFERENCES));
  OK(varve_table_truncate(db, "a/parents", VARVE_IGNORE_REFERENCES));
  OK(varve_table_drop(db, "a/parents", VARVE_CHECK_OTHER_SCHEMAS));
  OK(varve_db_close(db));
  return 0;
}
