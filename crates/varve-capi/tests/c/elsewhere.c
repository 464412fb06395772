// elsewhere.c: a table whose file is in another directory than the data directory.

#include "check.h"

#include <stdio.h>

static varve_code create(const varve_db *db, const char *name, const char *directory, bool temporary)
{
  varve_column_def columns[]= {{.name= "id", .kind= VARVE_INT, .size= 4}};
  varve_key_part primary= {.column= 0};
  varve_table_def def= {.name= name, .columns= columns, .n_columns= 1, .primary= &primary, .n_primary= 1,
                        .auto_increment= UINT32_MAX, .temporary= temporary, .data_directory= directory};
  return varve_table_create(db, &def);
}

// The directory, as the table says; null if it says none.
static void is_in(const varve_db *db, const char *name, const char *directory)
{
  varve_table *table;
  OK(varve_table_open(db, name, &table));
  const char *said= varve_table_data_directory(table);
  CHECK(directory ? said && !strcmp(said, directory) : !said);
  varve_table_close(table);
}

int main(int argc, char **argv)
{
  CHECK(argc == 2);
  varve_db *db;
  varve_options options;
  varve_options_default(&options);
  options.buffer_pool_bytes= 8 << 20;
  options.undo_tablespaces= 0;
  OK(varve_db_open(argv[1], &options, &db));
  char directory[4096];
  snprintf(directory, sizeof directory, "%s-elsewhere", argv[1]);
  OK(create(db, "shop/here", NULL, false));
  OK(create(db, "shop/there", directory, false));
  EXPECT(VARVE_ALREADY_EXISTS, create(db, "shop/there", directory, false));
  EXPECT(VARVE_INVALID, create(db, "shop/other", "elsewhere", false));
  EXPECT(VARVE_INVALID, create(db, "shop/other", argv[1], false));
  EXPECT(VARVE_INVALID, create(db, "tmp/#1", directory, true));
  EXPECT(VARVE_IO, create(db, "shop/other", "/dev/null/elsewhere", false));
  is_in(db, "shop/here", NULL);
  is_in(db, "shop/there", directory);
  OK(varve_table_truncate(db, "shop/there", VARVE_CHECK_REFERENCES));
  is_in(db, "shop/there", directory);
  OK(varve_db_close(db));
  OK(varve_db_open(argv[1], &options, &db));
  is_in(db, "shop/there", directory);
  OK(varve_table_drop(db, "shop/there", VARVE_CHECK_REFERENCES));
  OK(varve_db_close(db));
  return 0;
}
