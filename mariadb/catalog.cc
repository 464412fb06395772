// catalog.cc: INFORMATION_SCHEMA.VARVE_SYS_…: the engine's catalog, as it is stored, with InnoDB's columns
// where the thing is the same; VARVE_BUFFER_PAGE, by the names that it has. Reading them opens no table.

#include "foreign.h"
#include "schema.h"
#include "sysvars.h"

#include <sys/stat.h>
#include <unordered_map>

namespace varve_plugin {

namespace {

// As InnoDB's.
constexpr uint MAX_FULL_NAME= NAME_CHAR_LEN * 5 * 2 + 14;

const LEX_CSTRING row_formats[]= {
  {STRING_WITH_LEN("Redundant")}, {STRING_WITH_LEN("Compact")}, {STRING_WITH_LEN("Compressed")},
  {STRING_WITH_LEN("Dynamic")}};
const LEX_CSTRING space_types[]= {{STRING_WITH_LEN("Single")}, {STRING_WITH_LEN("System")}};
const TypelibBuffer<4> row_format(row_formats);
const TypelibBuffer<2> space_type(space_types);

const char *row_format_of(const varve_stored_table *table)
{
  return table->def.compression == VARVE_UNCOMPRESSED ? "Dynamic" : "Compressed";
}

ST_FIELD_INFO table_fields[]= {
  Show::Column("TABLE_ID", Show::ULonglong(), NOT_NULL),
  Show::Column("NAME", Show::Varchar(MAX_FULL_NAME + 1), NOT_NULL),
  Show::Column("N_COLS", Show::ULong(), NOT_NULL),
  Show::Column("SPACE", Show::ULong(), NOT_NULL),
  Show::Column("ROW_FORMAT", Show::Enum(&row_format), NULLABLE),
  Show::Column("ZIP_PAGE_SIZE", Show::ULong(), NOT_NULL),
  Show::Column("SPACE_TYPE", Show::Enum(&space_type), NULLABLE),
  Show::Column("VERSION", Show::ULong(), NOT_NULL),
  Show::Column("DISCARDED", Show::SLong(1), NOT_NULL),
  Show::CEnd()};

void add_table(void *to, const varve_stored_table *table)
{
  Rows *rows= static_cast<Rows *>(to);
  rows->set(0, table->id);
  rows->set(1, table->def.name);
  rows->set(2, table->def.n_columns);
  rows->set(3, table->space);
  rows->set(4, row_format_of(table));
  rows->set(5, 0ULL);
  rows->set(6, "Single");
  rows->set(7, table->version);
  rows->set(8, table->discarded);
  rows->add();
}

ST_FIELD_INFO index_fields[]= {
  Show::Column("INDEX_ID", Show::ULonglong(), NOT_NULL),
  Show::Column("NAME", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
  Show::Column("TABLE_ID", Show::ULonglong(), NOT_NULL),
  Show::Column("TYPE", Show::SLong(), NOT_NULL),
  Show::Column("N_FIELDS", Show::SLong(), NOT_NULL),
  Show::Column("PAGE_NO", Show::ULong(), NULLABLE),
  Show::Column("SPACE", Show::ULong(), NULLABLE),
  Show::CEnd()};

// InnoDB's numbers for kinds of indexes.
constexpr uint CLUSTERED= 1, UNIQUE_INDEX= 2;

// Index number `number` of a table, the clustered one first.
struct Stored_index
{
  const char *name;
  uint type, n_parts;
  const varve_key_part *parts;

  Stored_index(const varve_stored_table *table, uint number)
  {
    const varve_table_def &def= table->def;
    if (!number)
    {
      name= def.n_primary ? "PRIMARY" : "GEN_CLUST_INDEX";
      type= CLUSTERED | (def.n_primary ? UNIQUE_INDEX : 0);
      n_parts= def.n_primary;
      parts= def.primary;
      return;
    }
    const varve_index_def &index= def.indexes[number - 1];
    name= index.name;
    type= index.unique ? UNIQUE_INDEX : 0;
    n_parts= index.n_parts;
    parts= index.parts;
  }
};

void add_indexes(void *to, const varve_stored_table *table)
{
  Rows *rows= static_cast<Rows *>(to);
  for (uint number= 0; number <= table->def.n_indexes; number++)
  {
    const Stored_index index(table, number);
    rows->set(0, table->index_ids[number]);
    rows->set(1, index.name);
    rows->set(2, table->id);
    rows->set(3, index.type);
    rows->set(4, index.n_parts);
    rows->set_if(!table->discarded, 5, table->roots[number]);
    rows->set_if(!table->discarded, 6, table->space);
    rows->add();
  }
}

ST_FIELD_INFO column_fields[]= {
  Show::Column("TABLE_ID", Show::ULonglong(), NOT_NULL),
  Show::Column("NAME", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
  Show::Column("POS", Show::ULonglong(), NOT_NULL),
  Show::Column("MTYPE", Show::SLong(), NOT_NULL),
  Show::Column("LEN", Show::SLong(), NOT_NULL),
  Show::Column("TYPE", Show::Varchar(8), NOT_NULL),
  Show::Column("NULLABLE", Show::SLong(1), NOT_NULL),
  Show::Column("COMPUTED", Show::SLong(1), NOT_NULL),
  Show::Column("COLLATION_ID", Show::ULong(), NULLABLE),
  Show::CEnd()};

// What the engine calls a type, and InnoDB's number for it (dtype_t's mtype).
struct Type_name
{
  const char *name;
  uint mtype;
};

Type_name type_name(const varve_column_def &column)
{
  switch (column.kind)
  {
  case VARVE_INT:    return {"INT", 6};
  case VARVE_UINT:   return {"UINT", 6};
  case VARVE_FLOAT:  return {"FLOAT", 9};
  case VARVE_DOUBLE: return {"DOUBLE", 10};
  case VARVE_FIXED:  return {"FIXED", 3};
  case VARVE_BYTES:  return {"BYTES", 4};
  case VARVE_TEXT:   break;
  }
  return {"TEXT", column.collation == my_charset_latin1.number ? 1U : 12U};
}

void add_columns(void *to, const varve_stored_table *table)
{
  Rows *rows= static_cast<Rows *>(to);
  for (uint i= 0; i < table->def.n_columns; i++)
  {
    const varve_column_def &column= table->def.columns[i];
    const Type_name type= type_name(column);
    rows->set(0, table->id);
    rows->set(1, column.name);
    rows->set(2, i);
    rows->set(3, type.mtype);
    rows->set(4, column.size);
    rows->set(5, type.name);
    rows->set(6, column.nullable);
    rows->set(7, column.computed);
    rows->set_if(column.kind == VARVE_TEXT, 8, column.collation);
    rows->add();
  }
}

ST_FIELD_INFO field_fields[]= {
  Show::Column("INDEX_ID", Show::ULonglong(), NOT_NULL),
  Show::Column("NAME", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
  Show::Column("POS", Show::ULong(), NOT_NULL),
  Show::Column("PREFIX_LEN", Show::ULong(), NULLABLE),
  Show::Column("DESCENDING", Show::SLong(1), NOT_NULL),
  Show::CEnd()};

void add_fields(void *to, const varve_stored_table *table)
{
  Rows *rows= static_cast<Rows *>(to);
  for (uint number= 0; number <= table->def.n_indexes; number++)
  {
    const Stored_index index(table, number);
    for (uint i= 0; i < index.n_parts; i++)
    {
      const varve_key_part &part= index.parts[i];
      rows->set(0, table->index_ids[number]);
      rows->set(1, table->def.columns[part.column].name);
      rows->set(2, i);
      rows->set_if(part.prefix, 3, part.prefix);
      rows->set(4, part.descending);
      rows->add();
    }
  }
}

ST_FIELD_INFO foreign_fields[]= {
  Show::Column("ID", Show::Varchar(NAME_LEN * 2 + 1), NOT_NULL),
  Show::Column("FOR_NAME", Show::Varchar(NAME_LEN * 2 + 1), NOT_NULL),
  Show::Column("REF_NAME", Show::Varchar(NAME_LEN * 2 + 1), NOT_NULL),
  Show::Column("N_COLS", Show::ULong(), NOT_NULL),
  Show::Column("TYPE", Show::ULong(), NOT_NULL),
  Show::CEnd()};

ST_FIELD_INFO foreign_column_fields[]= {
  Show::Column("ID", Show::Varchar(NAME_LEN * 2 + 1), NOT_NULL),
  Show::Column("FOR_COL_NAME", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
  Show::Column("REF_COL_NAME", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
  Show::Column("POS", Show::ULong(), NOT_NULL),
  Show::CEnd()};

// InnoDB's number for what a foreign key does.
ulonglong foreign_type(const varve_foreign_key &key)
{
  const auto bit= [](varve_referential_action action, uint cascade, uint set_null, uint no_action) -> uint {
    switch (action)
    {
    case VARVE_CASCADE:   return cascade;
    case VARVE_SET_NULL:  return set_null;
    case VARVE_NO_ACTION: return no_action;
    case VARVE_RESTRICT:  break;
    }
    return 0;
  };
  return bit(key.on_delete, 1, 2, 16) | bit(key.on_update, 4, 8, 32);
}

std::string constraint_id(const varve_stored_table *table, const varve_foreign_key &key)
{
  return schema_of(table->def.name) + '/' + key.name;
}

void add_foreign(void *to, const varve_stored_table *table)
{
  Rows *rows= static_cast<Rows *>(to);
  for (uint i= 0; i < table->def.n_foreign_keys; i++)
  {
    const varve_foreign_key &key= table->def.foreign_keys[i];
    rows->set(0, constraint_id(table, key));
    rows->set(1, key.child);
    rows->set(2, key.parent);
    rows->set(3, key.n_columns);
    rows->set(4, foreign_type(key));
    rows->add();
  }
}

void add_foreign_columns(void *to, const varve_stored_table *table)
{
  Rows *rows= static_cast<Rows *>(to);
  for (uint i= 0; i < table->def.n_foreign_keys; i++)
  {
    const varve_foreign_key &key= table->def.foreign_keys[i];
    for (uint j= 0; j < key.n_columns; j++)
    {
      rows->set(0, constraint_id(table, key));
      rows->set(1, key.columns[j]);
      rows->set(2, key.parent_columns[j]);
      rows->set(3, j);
      rows->add();
    }
  }
}

ST_FIELD_INFO statistics_fields[]= {
  Show::Column("TABLE_ID", Show::ULonglong(), NOT_NULL),
  Show::Column("NAME", Show::Varchar(MAX_FULL_NAME + 1), NOT_NULL),
  Show::Column("STATS_INITIALIZED", Show::SLong(1), NOT_NULL),
  Show::Column("NUM_ROWS", Show::ULonglong(), NOT_NULL),
  Show::Column("CLUST_INDEX_SIZE", Show::ULonglong(), NOT_NULL),
  Show::Column("OTHER_INDEX_SIZE", Show::ULonglong(), NOT_NULL),
  Show::Column("AUTOINC", Show::ULonglong(), NOT_NULL),
  Show::Column("REF_COUNT", Show::SLong(), NOT_NULL),
  Show::CEnd()};

void add_statistics(void *to, const varve_open_table *table)
{
  Rows *rows= static_cast<Rows *>(to);
  rows->set(0, table->id);
  rows->set(1, table->name);
  rows->set(2, table->has_estimates);
  rows->set(3, table->stats.rows);
  rows->set(4, table->stats.data_bytes / table->stats.page_bytes);
  rows->set(5, table->stats.index_bytes / table->stats.page_bytes);
  rows->set(6, table->stats.auto_increment);
  rows->set(7, table->handles);
  rows->add();
}

ST_FIELD_INFO tablespace_fields[]= {
  Show::Column("SPACE", Show::ULong(), NOT_NULL),
  Show::Column("NAME", Show::Varchar(MAX_FULL_NAME + 1), NOT_NULL),
  Show::Column("ROW_FORMAT", Show::Varchar(22), NULLABLE),
  Show::Column("PAGE_SIZE", Show::ULong(), NOT_NULL),
  Show::Column("FILENAME", Show::Varchar(FN_REFLEN), NOT_NULL),
  Show::Column("FS_BLOCK_SIZE", Show::ULong(), NULLABLE),
  Show::Column("FILE_SIZE", Show::ULonglong(), NULLABLE),
  Show::Column("ALLOCATED_SIZE", Show::ULonglong(), NULLABLE),
  Show::CEnd()};

void add_tablespace(Rows *rows, uint32_t space, const std::string &name, const char *row_format,
                    const char *path)
{
  const std::string file= *path == '/' ? path : data_directory() + '/' + path;
  rows->set(0, space);
  rows->set(1, name);
  rows->set_if(row_format, 2, row_format);
  rows->set(3, varve_db_page_bytes(db));
  rows->set(4, path);
  struct stat about{};
  const bool is_there= !stat(file.c_str(), &about);
  rows->set_if(is_there, 5, ulonglong(about.st_blksize));
  rows->set_if(is_there, 6, ulonglong(about.st_size));
  // POSIX leaves the unit of `st_blocks` open; Linux's is this.
  rows->set_if(is_there, 7, ulonglong(about.st_blocks) * 512);
  rows->add();
}

void add_tablespace_of_table(void *to, const varve_stored_table *table)
{
  if (!table->discarded)
    add_tablespace(static_cast<Rows *>(to), table->space, table->def.name, row_format_of(table),
                   table->path);
}

void add_own_tablespace(void *to, const varve_tablespace *tablespace)
{
  std::string name= tablespace->path;
  name.erase(0, name.rfind('/') + 1);
  name.erase(std::min(name.rfind('.'), name.size()));
  add_tablespace(static_cast<Rows *>(to), tablespace->space, "varve_" + name, nullptr, tablespace->path);
}

ST_FIELD_INFO encryption_fields[]= {
  Show::Column("SPACE", Show::ULong(), NOT_NULL),
  Show::Column("NAME", Show::Varchar(MAX_FULL_NAME + 1), NULLABLE),
  Show::Column("ENCRYPTION_SCHEME", Show::ULong(), NOT_NULL),
  Show::Column("MIN_KEY_VERSION", Show::ULong(), NOT_NULL),
  Show::Column("CURRENT_KEY_VERSION", Show::ULong(), NOT_NULL),
  Show::Column("KEY_ROTATION_PAGE_NUMBER", Show::ULonglong(), NULLABLE),
  Show::Column("KEY_ROTATION_MAX_PAGE_NUMBER", Show::ULonglong(), NULLABLE),
  Show::Column("CURRENT_KEY_ID", Show::ULong(), NOT_NULL),
  Show::Column("ROTATING_OR_FLUSHING", Show::SLong(1), NOT_NULL),
  Show::CEnd()};

void add_encryption(void *to, const varve_space_encryption *encryption)
{
  Rows *rows= static_cast<Rows *>(to);
  std::string name= encryption->path;
  name.erase(std::min(name.rfind('.'), name.size()));
  rows->set(0, encryption->space);
  rows->set(1, name.find('/') == name.npos ? "varve_" + name : name);
  rows->set(2, encryption->is_encrypted);
  rows->set(3, encryption->least_version);
  rows->set(4, encryption->newest_version);
  rows->set_if(encryption->is_rotating, 5, ulonglong(encryption->page));
  rows->set_if(encryption->is_rotating, 6, ulonglong(encryption->pages));
  rows->set(7, encryption->key);
  rows->set(8, encryption->is_rotating);
  rows->add();
}

ST_FIELD_INFO page_fields[]= {
  Show::Column("BLOCK_ID", Show::ULonglong(), NOT_NULL),
  Show::Column("SPACE", Show::ULong(), NOT_NULL),
  Show::Column("PAGE_NUMBER", Show::ULong(), NOT_NULL),
  Show::Column("PAGE_TYPE", Show::Varchar(64), NULLABLE),
  Show::Column("FIX_COUNT", Show::ULong(), NOT_NULL),
  Show::Column("NEWEST_MODIFICATION", Show::ULonglong(), NULLABLE),
  Show::Column("OLDEST_MODIFICATION", Show::ULonglong(), NOT_NULL),
  Show::Column("TABLE_NAME", Show::Varchar(MAX_FULL_NAME + 1), NULLABLE),
  Show::Column("INDEX_NAME", Show::Varchar(NAME_CHAR_LEN), NULLABLE),
  Show::Column("NUMBER_RECORDS", Show::ULonglong(), NULLABLE),
  Show::Column("DATA_SIZE", Show::ULonglong(), NULLABLE),
  Show::Column("MODIFIED", Show::SLong(1), NOT_NULL),
  Show::Column("USAGE_COUNT", Show::ULong(), NOT_NULL),
  Show::Column("INDEX_ID", Show::ULonglong(), NULLABLE),
  Show::Column("LEVEL", Show::ULong(), NULLABLE),
  Show::CEnd()};

struct Index_name
{
  std::string table, index;
  uint space;
};

struct Page_rows
{
  Rows rows;
  std::unordered_map<ulonglong, Index_name> names;
};

void note_names(void *to, const varve_stored_table *table)
{
  auto *pages= static_cast<Page_rows *>(to);
  for (uint number= 0; number <= table->def.n_indexes; number++)
    pages->names[table->index_ids[number]]= {table->def.name, Stored_index(table, number).name, table->space};
}

bool add_page(void *to, const varve_pool_page *page)
{
  auto *pages= static_cast<Page_rows *>(to);
  Rows *rows= &pages->rows;
  const bool is_known= page->kind, is_of_index= page->index_id;
  const auto name= pages->names.find(page->index_id);
  // The history store has trees of the same numbers, in a space of its own.
  const bool is_named= name != pages->names.end() && name->second.space == page->space;
  rows->set(0, page->block);
  rows->set(1, page->space);
  rows->set(2, page->page);
  rows->set_if(is_known, 3, is_known ? page->kind : "");
  rows->set(4, page->pins);
  rows->set_if(is_known, 5, page->newest_change);
  rows->set(6, page->oldest_change);
  rows->set_if(is_named, 7, is_named ? name->second.table : "");
  rows->set_if(is_named, 8, is_named ? name->second.index : "");
  rows->set_if(is_known, 9, page->records);
  rows->set_if(is_known, 10, page->record_bytes);
  rows->set(11, page->dirty);
  rows->set(12, page->usage);
  rows->set_if(is_of_index, 13, page->index_id);
  rows->set_if(is_of_index, 14, page->level);
  rows->add();
  return !rows->failed && !thd_killed(rows->thd);
}

int fill_pages(THD *thd, TABLE_LIST *tables, COND *)
{
  Page_rows pages{{thd, tables}, {}};
  return fill(&pages.rows, [&] {
    const varve_code code= varve_db_stored_tables(db, note_names, &pages);
    return code ? code : varve_db_pool_pages(db, add_page, &pages);
  });
}

// Has `add` make the rows of each table.
template<varve_stored_table_fn add> int fill_stored(THD *thd, TABLE_LIST *tables, COND *)
{
  Rows rows(thd, tables);
  return fill(&rows, [&] { return varve_db_stored_tables(db, add, &rows); });
}

int fill_statistics(THD *thd, TABLE_LIST *tables, COND *)
{
  Rows rows(thd, tables);
  return fill(&rows, [&] { return varve_db_open_tables(db, add_statistics, &rows); });
}

int fill_tablespaces(THD *thd, TABLE_LIST *tables, COND *)
{
  Rows rows(thd, tables);
  return fill(&rows, [&] {
    const varve_code code= varve_db_own_tablespaces(db, add_own_tablespace, &rows);
    return code ? code : varve_db_stored_tables(db, add_tablespace_of_table, &rows);
  });
}

int fill_encryption(THD *thd, TABLE_LIST *tables, COND *)
{
  Rows rows(thd, tables);
  return fill(&rows, [&] { return varve_db_encryption(db, add_encryption, &rows); });
}

}  // namespace

int init_tables(void *schema)
{
  return init_table(schema, table_fields, fill_stored<add_table>);
}

int init_indexes(void *schema)
{
  return init_table(schema, index_fields, fill_stored<add_indexes>);
}

int init_columns(void *schema)
{
  return init_table(schema, column_fields, fill_stored<add_columns>);
}

int init_fields(void *schema)
{
  return init_table(schema, field_fields, fill_stored<add_fields>);
}

int init_foreign(void *schema)
{
  return init_table(schema, foreign_fields, fill_stored<add_foreign>);
}

int init_foreign_columns(void *schema)
{
  return init_table(schema, foreign_column_fields, fill_stored<add_foreign_columns>);
}

int init_table_statistics(void *schema)
{
  return init_table(schema, statistics_fields, fill_statistics);
}

int init_pool_pages(void *schema)
{
  return init_table(schema, page_fields, fill_pages);
}

int init_tablespaces(void *schema)
{
  return init_table(schema, tablespace_fields, fill_tablespaces);
}

int init_encryption(void *schema)
{
  return init_table(schema, encryption_fields, fill_encryption);
}

}  // namespace varve_plugin
