// catalog.c: what is stored of tables, what is known of open ones, and tablespaces.

#include "check.h"

static varve_db *db;

static void see_stored(void *context, const varve_stored_table *table)
{
  const varve_table_def *def= &table->def;
  ++*(int *) context;
  CHECK(table->id && table->space && table->version == 1 && !table->discarded && table->index_ids[0]);
  if (!strcmp(def->name, "a/parent"))
  {
    CHECK(!strcmp(table->path, "a/parent.vdt"));
    CHECK(def->n_columns == 1 && def->n_primary == 1 && !def->n_indexes && !def->n_foreign_keys);
    CHECK(def->auto_increment == 0 && !def->system_time);
    return;
  }
  CHECK(!strcmp(def->name, "a/child") && !strcmp(table->path, "a/child.vdt"));
  CHECK(def->n_columns == 3 && !def->n_primary && def->n_indexes == 2 && def->n_foreign_keys == 1);
  CHECK(def->auto_increment == UINT32_MAX);
  const varve_column_def *columns= def->columns;
  CHECK(!strcmp(columns[0].name, "parent") && columns[0].kind == VARVE_INT && columns[0].size == 4);
  CHECK(columns[0].nullable && !columns[1].nullable && !columns[1].computed);
  CHECK(!strcmp(columns[1].name, "text") && columns[1].kind == VARVE_BYTES && columns[1].size == 50);
  CHECK(columns[2].kind == VARVE_DOUBLE);
  const varve_index_def *by_text= &def->indexes[1];
  CHECK(!strcmp(def->indexes[0].name, "by_parent") && !def->indexes[0].unique);
  CHECK(!strcmp(by_text->name, "by_text") && by_text->unique && by_text->n_parts == 2);
  CHECK(by_text->parts[0].column == 1 && by_text->parts[0].prefix == 9 && !by_text->parts[0].descending);
  CHECK(by_text->parts[1].column == 2 && !by_text->parts[1].prefix && by_text->parts[1].descending);
  CHECK(table->index_ids[1] != table->index_ids[2] && table->roots[1] != table->roots[2] && table->roots[0]);
  const varve_foreign_key *key= def->foreign_keys;
  CHECK(!strcmp(key->name, "to_parent") && !strcmp(key->child, "a/child") && !strcmp(key->parent, "a/parent"));
  CHECK(key->n_columns == 1 && !strcmp(key->columns[0], "parent") && !strcmp(key->parent_columns[0], "id"));
  CHECK(key->on_delete == VARVE_CASCADE && key->on_update == VARVE_NO_ACTION && !key->parent_index);
}

struct seen
{
  int tables;
  varve_open_table last;
};

static void see_open(void *context, const varve_open_table *table)
{
  struct seen *seen= context;
  // A table's children are opened with it.
  if (strcmp(table->name, "a/parent"))
    return;
  seen->tables++;
  seen->last= *table;
}

static void see_tablespace(void *context, const varve_tablespace *tablespace)
{
  ++*(int *) context;
  CHECK(*tablespace->path && !strstr(tablespace->path, "parent"));
}

static bool see_page(void *context, const varve_pool_page *page)
{
  CHECK(page->kind ? *page->kind : !page->newest_change && !page->records);
  CHECK(!page->oldest_change || page->dirty);
  if (page->kind && page->index_id)
    ++*(int *) context;
  return true;
}

static void create(void)
{
  varve_column_def id= {.name= "id", .kind= VARVE_INT, .size= 4};
  varve_key_part first= {.column= 0};
  varve_table_def parent= {.name= "a/parent", .columns= &id, .n_columns= 1, .primary= &first, .n_primary= 1};
  OK(varve_table_create(db, &parent));

  varve_column_def columns[]= {
    {.name= "parent", .kind= VARVE_INT, .size= 4, .nullable= true},
    {.name= "text", .kind= VARVE_BYTES, .size= 50},
    {.name= "weight", .kind= VARVE_DOUBLE},
  };
  varve_key_part by_text[]= {{.column= 1, .prefix= 9}, {.column= 2, .descending= true}};
  varve_index_def indexes[]= {
    {.name= "by_parent", .parts= &first, .n_parts= 1},
    {.name= "by_text", .unique= true, .parts= by_text, .n_parts= 2},
  };
  const char *column= "parent", *parent_column= "id";
  varve_foreign_key key= {.name= "to_parent", .columns= &column, .parent_columns= &parent_column, .n_columns= 1,
                          .parent= "a/parent", .on_delete= VARVE_CASCADE};
  varve_table_def child= {.name= "a/child", .columns= columns, .n_columns= 3, .indexes= indexes, .n_indexes= 2,
                          .foreign_keys= &key, .n_foreign_keys= 1, .auto_increment= UINT32_MAX};
  OK(varve_table_create(db, &child));
}

int main(int argc, char **argv)
{
  CHECK(argc == 2);
  OK(varve_db_open(argv[1], NULL, &db));
  create();
  int tables= 0;
  OK(varve_db_stored_tables(db, see_stored, &tables));
  CHECK(tables == 2);
  OK(varve_db_close(db));

  // What is stored is told without opening a table.
  OK(varve_db_open(argv[1], NULL, &db));
  tables= 0;
  OK(varve_db_stored_tables(db, see_stored, &tables));
  CHECK(tables == 2);
  struct seen seen= {0};
  OK(varve_db_open_tables(db, see_open, &seen));
  CHECK(!seen.tables);

  varve_table *table, *again;
  OK(varve_table_open(db, "a/parent", &table));
  OK(varve_table_open(db, "a/parent", &again));
  OK(varve_db_open_tables(db, see_open, &seen));
  CHECK(seen.tables == 1 && seen.last.handles == 2 && seen.last.id && !seen.last.has_estimates);
  CHECK(seen.last.stats.rows == 0 && seen.last.stats.auto_increment == 1);
  CHECK(seen.last.stats.page_bytes == varve_db_page_bytes(db) && varve_db_page_bytes(db) == 16384);
  double rows_per_key;
  OK(varve_table_rows_per_key(table, 0, &rows_per_key, 1));
  varve_table_close(again);
  OK(varve_db_open_tables(db, see_open, &seen));
  CHECK(seen.tables == 2 && seen.last.handles == 1 && seen.last.has_estimates);
  varve_table_close(table);

  int tablespaces= 0;
  int pages= 0;
  OK(varve_db_pool_pages(db, see_page, &pages));
  CHECK(pages > 0);
  OK(varve_db_own_tablespaces(db, see_tablespace, &tablespaces));
  CHECK(tablespaces >= 2);
  OK(varve_db_close(db));
  return 0;
}
