// alter.cc: ALTER TABLE in place.
//
// The server says what is to change, and asks how that can be done. What is in the engine's definition is
// changed there, by the engine: under the server's exclusive metadata lock in the end, and while others use
// the table before. After a crash the server's DDL log asks whether it was done.
//
// Of a table in partitions the server asks each of them, has each prepare and build, and then the first one
// commit for all. The engine has one redefinition for them, so all have the new definition or none. After a
// crash it is the first partition that says whether it was done.

#include "ha_varve.h"

#include "definition.h"
#include "derived.h"
#include "engine.h"
#include "error_map.h"
#include "foreign.h"
#include "options.h"
#include "progress.h"
#include "statistics.h"
#include "tmpdir.h"

#include "partition_info.h"

#include <algorithm>
#include <memory>

namespace varve_plugin {

// The first of the tables that are partitions of this one; empty: none is.
static std::string first_partition(const std::string &name)
{
  struct Found
  {
    const std::string prefix;
    std::string name;
  } found{name + "#P#", {}};
  varve_db_tables(db, [](void *to, const char *candidate) {
    Found *const found= static_cast<Found *>(to);
    if (found->name.empty() && !strncasecmp(candidate, found->prefix.c_str(), found->prefix.size()))
      found->name= candidate;
  }, &found);
  return found.name;
}

// Whether the engine's table has the definition that the .frm file at this path says.
static bool fits_frm(const varve_table *table, const std::string &name, const char *path)
{
  THD *thd= current_thd;
  const std::string schema= user_name(schema_of(name));
  const std::string own= user_name(table_of(name));
  TABLE_SHARE share;
  TABLE form;
  bool fits= false;
  init_tmp_table_share(thd, &share, schema.c_str(), 0, own.c_str(), path);
  if (open_table_def(thd, &share) ||
      open_table_from_share(thd, &share, &empty_clex_str, 0, READ_ALL, 0, &form, true))
    sql_print_error("VARVE: the .frm file of %s can't be read, which an ALTER TABLE would have replaced; its "
                    "new one takes its place", name.c_str());
  else
  {
    Definition definition;
    fits= !definition.build(&form, name, false) && varve_table_is_defined_as(table, &definition.def);
    closefrm(&form);
  }
  free_table_share(&share);
  return fits;
}

// Whether a statement that was to change the definition has not done so, by what the table was before. The
// .frm file still says that. Of a table in partitions the server knows no version, which is `before`
// otherwise.
int check_version(handlerton *, const char *path, const LEX_CUSTRING *, ulonglong before)
{
  const std::string name= table_name(path);
  varve_table *table;
  if (!varve_table_open(db, name.c_str(), &table))
  {
    const bool is_same= varve_table_hash(table) == before;
    varve_table_close(table);
    return is_same;
  }
  const std::string partition= first_partition(name);
  if (partition.empty() || varve_table_open(db, partition.c_str(), &table))
    return 0;
  const bool fits= fits_frm(table, name, path);
  varve_table_close(table);
  return fits;
}

}  // namespace varve_plugin

using namespace varve_plugin;

static const alter_table_operations ADDS_INDEX= ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX;

static const alter_table_operations CHANGES_INDEXES= ADDS_INDEX | ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX |
                                                     ALTER_DROP_UNIQUE_INDEX | ALTER_INDEX_ORDER;

// Columns come or go, stand elsewhere, or begin to take NULL. Virtual ones that no index has are the server's
// affair.
static const alter_table_operations CHANGES_COLUMNS= ALTER_ADD_STORED_BASE_COLUMN | ALTER_DROP_STORED_COLUMN |
                                                     ALTER_STORED_COLUMN_ORDER | ALTER_COLUMN_ORDER |
                                                     ALTER_COLUMN_NULLABLE;
static const alter_table_operations CHANGES_VIRTUAL= ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN |
                                                     ALTER_VIRTUAL_COLUMN_ORDER;

// What is in the engine's definition changes, and no row.
static bool redefines(const Alter_inplace_info *alter)
{
  return alter->handler_flags & (ALTER_COLUMN_NAME | ALTER_RENAME_COLUMN | ALTER_RENAME_INDEX |
                                 ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_COLUMN_INDEX_LENGTH |
                                 CHANGES_INDEXES | CHANGES_COLUMNS | CHANGES_VIRTUAL |
                                 ALTER_ADD_FOREIGN_KEY | ALTER_DROP_FOREIGN_KEY);
}

static bool adds_index(const Alter_inplace_info *alter)
{
  return alter->handler_flags & ADDS_INDEX;
}

// All rows are written anew.
static const alter_table_operations REBUILDS= ALTER_RECREATE_TABLE | ALTER_ADD_PK_INDEX |
                                              ALTER_DROP_PK_INDEX | ALTER_COLUMN_NOT_NULLABLE |
                                              ALTER_STORED_COLUMN_TYPE;

static bool changes_table(const Alter_inplace_info *alter)
{
  return redefines(alter) || (alter->handler_flags & REBUILDS);
}

// Whether rows that are there may not be in a new index: only the server knows which, or what to do then.
static bool may_refuse_rows(const Alter_inplace_info *alter)
{
  for (uint i= 0; i < alter->index_add_count; i++)
  {
    const KEY &key= alter->key_info_buffer[alter->index_add_buffer[i]];
    const bool is_asked= (key.flags & HA_NOSAME) && (alter->ignore || key.without_overlaps);
    if (is_asked || key.algorithm == HA_KEY_ALG_LONG_HASH)
      return true;
  }
  return false;
}

// The columns that take NULL and cease to, or begin to, as they were; but for those that are converted.
static std::vector<const Field *> changing_null(TABLE *altered, const Alter_inplace_info *alter,
                                                bool took_null)
{
  std::vector<const Field *> fields;
  for (Field **at= altered->field; *at; at++)
  {
    const Create_field *const source= source_of(alter, *at);
    if (source && source->field && source->field->real_maybe_null() == took_null &&
        (*at)->real_maybe_null() != took_null && !converted_from(alter, *at))
      fields.push_back(source->field);
  }
  return fields;
}

static std::vector<const Field *> giving_up_null(TABLE *altered, const Alter_inplace_info *alter)
{
  return changing_null(altered, alter, true);
}

// Whether partitions of the table say by themselves how they are stored.
static bool have_partitions_options(const TABLE *form)
{
  if (!form->part_info)
    return false;
  List_iterator_fast<partition_element> parts(form->part_info->partitions);
  while (const partition_element *part= parts++)
    if (part->option_list)
      return true;
  return false;
}

// Of options the server says only that there are others. If they change how pages are stored, all of them are
// written anew; false: by a copy, which knows the options of each partition.
static bool note_storage(const TABLE_SHARE *before, const TABLE *altered, Alter_inplace_info *alter)
{
  if (!is_stored_otherwise(before, altered->s))
    return true;
  alter->handler_flags|= ALTER_RECREATE_TABLE;
  return !have_partitions_options(altered);
}

// In the words of InnoDB.
static bool refuses_options(const TABLE_SHARE *altered, const HA_CREATE_INFO *info)
{
  const char *wrong;
  const int error= check_options(current_thd, altered, info, &wrong);
  if (error == HA_WRONG_CREATE_OPTION)
    my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "VARVE", wrong);
  return error;
}

static bool is_timestamp(const Field *field)
{
  return field->type() == MYSQL_TYPE_TIMESTAMP;
}

// Options that no row depends on. Columns that get another character set are changes of their own.
static const auto IN_SERVER_ALONE= HA_CREATE_USED_CHARSET | HA_CREATE_USED_DEFAULT_CHARSET |
                                   HA_CREATE_USED_PACK_KEYS | HA_CREATE_USED_CHECKSUM |
                                   HA_CREATE_USED_MAX_ROWS;

static bool has_indexed_virtual(const TABLE *form)
{
  for (Field **at= form->field; *at; at++)
    if (!(*at)->stored_in_db() && is_stored(form, *at))
      return true;
  return false;
}

// Whether rows have values that are computed of others.
static bool stores_computed(const TABLE *form)
{
  for (Field **at= form->field; *at; at++)
    if ((*at)->vcol_info && is_stored(form, *at))
      return true;
  return false;
}

// Whether this column says to which partition a row belongs.
static bool places_rows(const Field *field)
{
  return field->flags & FIELD_IN_PART_FUNC_FLAG;
}

// Whether a row's partition depends on a value that is computed.
static bool is_placed_by_computed(const TABLE *form)
{
  for (Field **at= form->field; *at; at++)
    if ((*at)->vcol_info && places_rows(*at))
      return true;
  return false;
}

// Whether values of this column are the server's own, and not those of a plugin's type.
static bool has_plain_type(const Field *field)
{
  static const Type_collection *const of_server= type_handler_slong.type_collection();
  return field->type_handler()->type_collection() == of_server && !field->compression_method();
}

// Whether the expression looks at one of these fields.
static bool reads(TABLE *form, const Virtual_column_info *value, const MY_BITMAP *fields)
{
  Field_map read(form);
  MY_BITMAP *const before= form->read_set;
  form->read_set= read.map();
  value->expr->walk(&Item::register_field_in_read_map, true, form);
  form->read_set= before;
  return bitmap_is_overlapping(read.map(), fields);
}

static std::string text_of(const Virtual_column_info *value)
{
  String text;
  value->expr->print_for_table_def(&text);
  return std::string(text.ptr(), text.length());
}

// Whether rows that are there may break a CHECK constraint: it is new, or looks at a column that is
// converted.
static bool checks_anew(const TABLE *form, TABLE *altered, const MY_BITMAP *converted)
{
  std::vector<std::string> before;
  for (Virtual_column_info **at= form->check_constraints; at && *at; at++)
    before.push_back(text_of(*at));
  for (Virtual_column_info **at= altered->check_constraints; at && *at; at++)
    if (reads(altered, *at, converted) ||
        std::find(before.begin(), before.end(), text_of(*at)) == before.end())
      return true;
  return false;
}

// Whether a column begins or ceases to be generated, is another one, or depends on a column that is converted
// and has its values stored, or says where rows belong.
static bool generates_anew(TABLE *altered, const Alter_inplace_info *alter, const MY_BITMAP *converted)
{
  for (Field **at= altered->field; *at; at++)
  {
    const Create_field *const source= source_of(alter, *at);
    const Field *const from= source ? source->field : nullptr;
    if (from && (from->vcol_info || (*at)->vcol_info) &&
        (!from->vcol_info || !(*at)->vcol_info || !from->is_equal(*source)))
      return true;
    const bool lasts= is_stored(altered, *at) || places_rows(*at);
    if ((*at)->vcol_info && lasts && reads(altered, (*at)->vcol_info, converted))
      return true;
  }
  return false;
}

// Whether columns of other types can have what a copy would give them. A copy looks at CHECK constraints, at
// where rows belong, and at who refers to them; it makes numbers of zeros, and other values of NULL, and
// computes anew what is stored.
static bool converts_as_copy(const TABLE *form, const varve_table *table, TABLE *altered,
                             const Alter_inplace_info *alter)
{
  if (alter->ignore || changes_foreign_column(form, table, alter))
    return false;
  Field_map converted(altered);
  for (Field **at= altered->field; *at; at++)
  {
    const Field *const from= converted_from(alter, *at);
    if (!from)
      continue;
    const bool is_counted= *at == altered->found_next_number_field;
    if (is_counted != (from == form->found_next_number_field) || !has_plain_type(from) ||
        !has_plain_type(*at) || places_rows(from) || places_rows(*at))
      return false;
    bitmap_set_bit(converted.map(), (*at)->field_index);
  }
  return !checks_anew(form, altered, converted.map()) && !generates_anew(altered, alter, converted.map());
}

static bool sets_counter(const Alter_inplace_info *alter)
{
  return alter->create_info->used_fields & HA_CREATE_USED_AUTO;
}

// Whether all texts of a column have the same bytes under the character set and collation of `to`, and
// nothing is kept that depends on either: as in InnoDB, but that no index may have the column.
static bool means_the_same(const TABLE *table, const Field &field, const Column_definition &to)
{
  const CHARSET_INFO *const from= field.charset();
  if ((field.flags & PART_KEY_FLAG) || places_rows(&field) || stores_computed(table) ||
      is_placed_by_computed(table) || !Charset(field.charset()).encoding_allows_reinterpret_as(to.charset))
    return false;
  switch (field.real_type())
  {
  case MYSQL_TYPE_STRING:
    // Without its spaces, or with them.
    return field.char_length() == to.char_length && !((from->state ^ to.charset->state) & MY_CS_NOPAD) &&
           (field.field_length == to.length || from->mbminlen != from->mbmaxlen);
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_BLOB_COMPRESSED:
    return field.pack_length() == to.pack_length;
  default:
    return field.field_length <= to.length && field.char_length() <= to.char_length;
  }
}

// Whether a CHAR that takes more has the same bytes: texts are kept without the spaces that fill them up, but
// in a NO PAD collation with them. So are bytes, and partitions may go by the whole of a text.
static bool takes_more_spaces(const Field &field, const Column_definition &to)
{
  return field.field_length <= to.length && to.charset != &my_charset_bin &&
         !(to.charset->state & MY_CS_NOPAD) && !places_rows(&field);
}

// CHAR, VARCHAR and VARBINARY that take more, and texts under another collation.
bool ha_varve::can_convert_nocopy(const Field &field, const Column_definition &to) const
{
  if (!field.stored_in_db() || field.type_handler() != to.type_handler() ||
      field.compression_method() != to.compression_method())
    return false;
  switch (field.real_type())
  {
  case MYSQL_TYPE_VARCHAR:
    if (field.charset() == to.charset)
      return field.field_length <= to.length && !field.compression_method();
    break;
  case MYSQL_TYPE_STRING:
    if (field.charset() == to.charset)
      return takes_more_spaces(field, to);
    break;
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_VARCHAR_COMPRESSED:
  case MYSQL_TYPE_BLOB_COMPRESSED:
    break;
  default:
    return false;
  }
  return field.charset() != to.charset && means_the_same(table, field, to);
}

// A part of a column that takes more is the same if it holds whole values, or as much of them as before.
Compare_keys ha_varve::compare_key_parts(const Field &from, const Column_definition &to,
                                         const KEY_PART_INFO &old_part, const KEY_PART_INFO &new_part) const
{
  if (from.is_equal(to) || !can_convert_nocopy(from, to))
    return handler::compare_key_parts(from, to, old_part, new_part);
  if (old_part.length >= from.field_length && new_part.length >= to.length)
    return Compare_keys::EqualButKeyPartLength;
  return old_part.length == new_part.length ? Compare_keys::Equal : Compare_keys::NotEqual;
}

// Names, greatest lengths and indexes are in the engine's definition, which explains the table without the
// server, and are changed there; if rows can't stay what they are, the engine writes them anew. The
// AUTO_INCREMENT counter is there, too. An indexed virtual column's values are in its rows, so these are
// written anew when it gets its first index.
enum_alter_inplace_result ha_varve::check_if_supported_inplace_alter(TABLE *altered,
                                                                     Alter_inplace_info *alter)
{
  const bool checks= foreign_key_checks(ha_thd()) == VARVE_CHECK_REFERENCES;
  if (refuses_alter() || check_index_names(ha_thd(), altered) ||
      (!checks && loses_foreign_column(ha_thd(), m_table, alter)) ||
      (checks && !keeps_foreign_keys_served(altered, alter)))
    return HA_ALTER_ERROR;
  if (!note_storage(table_share, altered, alter))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  const bool counts= new_counted(altered, alter);
  if (counts)
    alter->unsupported_reason= ER_THD(ha_thd(), ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_AUTOINC);
  // Nothing is stored of other virtual columns; but a row's partition may depend on one.
  if ((alter->handler_flags & ALTER_VIRTUAL_GCOL_EXPR) &&
      (has_indexed_virtual(table) || has_indexed_virtual(altered) || altered->s->partition_info_str_len))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  const bool is_temporary= table_share->tmp_table != NO_TMP_TABLE;
  if ((changes_table(alter) || sets_counter(alter)) && is_temporary)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  const bool has_longer= alter->handler_flags & ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE;
  // The server says what is wrong if it copies.
  if (!has_foreign_keys(m_table, foreign_keys_dropped(alter)) || loses_referenced_column(m_table, alter) ||
      (has_longer && changes_foreign_column(table, m_table, alter)))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if ((alter->handler_flags & (ALTER_ADD_PK_INDEX | ALTER_DROP_PK_INDEX)) == ALTER_DROP_PK_INDEX)
    alter->unsupported_reason= ER_THD(ha_thd(), ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_NOPK);
  const bool has_other_type= alter->handler_flags & ALTER_STORED_COLUMN_TYPE;
  const bool is_copied= has_other_type && !converts_as_copy(table, m_table, altered, alter);
  if (has_other_type)
    alter->unsupported_reason= ER_THD(ha_thd(), ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_COLUMN_TYPE);
  if (alter->ignore && (alter->handler_flags & (ALTER_ADD_PK_INDEX | ALTER_ADD_UNIQUE_INDEX)))
    alter->unsupported_reason= ER_THD(ha_thd(), ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_IGNORE);
  if (is_copied || may_refuse_rows(alter) || alter->error_if_not_empty)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // Rows are checked as they are copied.
  const bool adds_foreign_key= alter->handler_flags & ALTER_ADD_FOREIGN_KEY;
  if (adds_foreign_key && checks)
  {
    alter->unsupported_reason= ER_THD(ha_thd(), ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_FK_CHECK);
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  // The server makes the time of the statement of it if it copies.
  const std::vector<const Field *> without_null= giving_up_null(altered, alter);
  if (std::any_of(without_null.begin(), without_null.end(), is_timestamp))
  {
    alter->unsupported_reason= ER_THD(ha_thd(), ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_NOT_NULL);
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  // What is computed of a value that was NULL has to be computed anew, and may be a duplicate then; and its
  // row may belong to another partition. (If that is by a generated column the server copies.)
  const bool places= std::any_of(without_null.begin(), without_null.end(), places_rows);
  if (!without_null.empty() && replaces_null(alter) && (stores_computed(table) || places))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // The server takes longer keys for others; that they are not, the engine has said. It takes some options
  // for changes of rows.
  const alter_table_operations flags= alter->handler_flags;
  HA_CREATE_INFO *const info= alter->create_info;
  const auto used= info->used_fields;
  const auto row_type= info->row_type;
  const auto options= info->option_struct;
  info->used_fields&= ~IN_SERVER_ALONE;
  info->row_type= table_share->row_type;
  info->option_struct= table_share->option_struct;
  alter->handler_flags&= ~(ALTER_COLUMN_INDEX_LENGTH | CHANGES_INDEXES | CHANGES_COLUMNS | CHANGES_VIRTUAL |
                           ALTER_ADD_FOREIGN_KEY | ALTER_DROP_FOREIGN_KEY | ALTER_CONVERT_TO | REBUILDS);
  // The server takes each change of a type for one of what is computed.
  if (has_other_type)
    alter->handler_flags&= ~ALTER_COLUMN_VCOL;
  const enum_alter_inplace_result how= handler::check_if_supported_inplace_alter(altered, alter);
  alter->handler_flags= flags;
  info->used_fields= used;
  info->row_type= row_type;
  info->option_struct= options;
  const bool needs_rebuild= how != HA_ALTER_INPLACE_NOT_SUPPORTED && is_rebuild(altered, alter);
  if (needs_rebuild && !can_become(altered, alter, varve_table_can_be_rebuilt))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // If the table is copied, create() looks at its options.
  if (how != HA_ALTER_INPLACE_NOT_SUPPORTED && (alter->handler_flags & ALTER_CHANGE_CREATE_OPTION) &&
      refuses_options(altered->s, alter->create_info))
    return HA_ALTER_ERROR;
  // Rows are counted once, in their order: nobody may change them.
  if (needs_rebuild)
    return counts ? HA_ALTER_INPLACE_COPY_LOCK : HA_ALTER_INPLACE_COPY_NO_LOCK;
  if (how == HA_ALTER_INPLACE_NOT_SUPPORTED)
    return how;
  // The server waits for others before the first of them would have to be waited for by the engine's locks.
  if (!adds_index(alter))
    return HA_ALTER_INPLACE_INSTANT;
  // InnoDB's word for why that is not done at once.
  if (!(alter->handler_flags & ALTER_ADD_UNIQUE_INDEX))
    alter->unsupported_reason= "ADD INDEX";
  return HA_ALTER_INPLACE_NOCOPY_NO_LOCK;
}

// Whether the engine says that the table can have the definition of `altered`.
bool ha_varve::can_become(TABLE *altered, const Alter_inplace_info *alter,
                          bool (*can)(const varve_table *, const varve_table_def *))
{
  Definition definition;
  if (definition.build(altered, m_name, false))
    return false;
  return definition.note_changes(table_share, altered, alter) && can(m_table, &definition.def);
}

// Whether rows have to be written anew: to be so, or because the definition can't have those that are there.
bool ha_varve::is_rebuild(TABLE *altered, const Alter_inplace_info *alter)
{
  return (alter->handler_flags & REBUILDS) ||
         (redefines(alter) && !can_become(altered, alter, varve_table_can_become));
}

// What the statement does to a table, or to one partition of it. The server drops it at the end.
class ha_varve::Alteration : public inplace_alter_handler_ctx
{
public:
  explicit Alteration(ha_varve *of) : table(of) {}
  ~Alteration() override { abandon(); }

  static Alteration *of(const Alter_inplace_info *alter)
  {
    return static_cast<Alteration *>(alter->handler_ctx);
  }
  // Those of all partitions, or the only one.
  static std::vector<Alteration *> all(const Alter_inplace_info *alter)
  {
    std::vector<Alteration *> found;
    for (inplace_alter_handler_ctx **at= alter->group_commit_ctx; at && *at; at++)
      found.push_back(static_cast<Alteration *>(*at));
    // The server notes that of the first one when it is prepared.
    if (found.empty())
      found.push_back(of(alter));
    return found;
  }

  // The table or partition is going to have this definition, that of `altered`, together with those that were
  // prepared.
  varve_code prepare(Alteration *first, const varve_txn *txn, const varve_table_def *def, TABLE *altered,
                     const Alter_inplace_info *alter, bool rebuild)
  {
    is_rebuild= rebuild;
    is_prepared= true;
    if (first->redefinition)
      return (rebuild ? varve_rebuild_add : varve_redefinition_add)(db, first->redefinition, def);
    varve_redefinition **const to= &first->redefinition;
    if (varve_code code= (rebuild ? varve_rebuild_prepare : varve_redefinition_prepare)(db, txn, def, to))
      return code;
    if (!first->computer.begin(table->table, altered, alter))
      return VARVE_UNSUPPORTED;
    const varve_value_source source= first->computer.source();
    return varve_redefinition_set_value_source(db, first->redefinition, &source);
  }

  // The counter of a new column goes on behind the last number. That of a column of another type goes on,
  // which is a new one for the engine. All partitions get the greatest one, as from a copy.
  varve_code count_on(const TABLE *altered, const Alter_inplace_info *alter) const
  {
    const Field *const counted= altered->found_next_number_field;
    if (computer.counts())
      return varve_redefinition_set_auto_increment(db, redefinition, computer.next_number());
    if (sets_counter(alter) || !counted || !converted_from(alter, counted))
      return VARVE_OK;
    uint64_t next= 0;
    for (const Alteration *one : all(alter))
    {
      varve_table_stats before;
      if (varve_code code= varve_table_get_stats(one->table->m_table, &before))
        return code;
      next= std::max(next, before.auto_increment);
    }
    return varve_redefinition_set_auto_increment(db, redefinition, next);
  }

  varve_redefinition *take()
  {
    varve_redefinition *const taken= redefinition;
    redefinition= nullptr;
    return taken;
  }

  void abandon()
  {
    if (redefinition)
      varve_redefinition_abandon(take());
  }

  ha_varve *const table;
  bool is_prepared= false;
  bool is_rebuild= false;
  // Of all partitions, with the first one.
  varve_redefinition *redefinition= nullptr;
  // With the first one, from the time when it is built on.
  std::unique_ptr<Progress_report> progress;
  // Of all partitions, with the first one.
  Computer computer;
  // Those that are added; a table in partitions has none.
  std::unique_ptr<Foreign_keys> foreign_keys;
};

// Two rows have the same values in a unique index that `altered` gets: says so, as the server does of a row
// that is written.
static void tell_duplicate(void *altered, const char *index, const varve_value *row)
{
  TABLE *const form= static_cast<TABLE *>(altered);
  Row_plan plan;
  if (!plan.build(form))
    return;
  plan.to_record(row, form->record[0]);
  // A unique index without NULL may be the primary key, under its own name for the server.
  const uint primary= same_name(index, "PRIMARY") ? form->s->primary_key : MAX_KEY;
  for (uint i= 0; i < form->s->keys; i++)
    if (i == primary || same_name(form->key_info[i].name.str, index))
      print_keydup_error(form, &form->key_info[i], MYF(0));
}

// Begins to give the table the definition of `altered`, once nobody uses it. Returns a handler code.
int ha_varve::prepare_redefinition(TABLE *altered, Alter_inplace_info *alter, Alteration *own)
{
  THD *thd= ha_thd();
  Session *const session= Session::of(thd);
  if (!session)
    return HA_ERR_INTERNAL_ERROR;
  if (int error= wait_for_others(thd, m_name))
    return error;
  Definition definition;
  if (int error= definition.build(altered, m_name, false))
    return error;
  if (!definition.note_changes(table_share, altered, alter))
    return HA_ERR_INTERNAL_ERROR;
  definition.def.foreign_key_checks= foreign_key_checks(thd);
  Alteration *const first= Alteration::all(alter).front();
  const bool rebuild= is_rebuild(altered, alter);
  varve_code code= sort_in_tmpdir(thd, session->txn());
  if (!code)
    code= own->prepare(first, session->txn(), &definition.def, altered, alter, rebuild);
  if (code)
    return report(thd, code);
  const ulonglong next= alter->create_info->auto_increment_value;
  if (sets_counter(alter) && (code= varve_redefinition_set_auto_increment(db, first->redefinition, next)))
    return report(thd, code);
  for (const std::string &key : foreign_keys_dropped(alter))
    if ((code= varve_redefinition_drop_foreign_key(db, first->redefinition, key.c_str())))
      return report(thd, code);
  return alter->handler_flags & ALTER_ADD_FOREIGN_KEY ? add_foreign_keys(altered, alter, own) : 0;
}

// The definition that is prepared gets the foreign keys that the statement adds. Returns a handler code.
int ha_varve::add_foreign_keys(TABLE *altered, Alter_inplace_info *alter, Alteration *own)
{
  THD *thd= ha_thd();
  own->foreign_keys.reset(new Foreign_keys);
  if (int error= own->foreign_keys->collect_added(thd, altered, table, m_table, m_name, alter))
    return error;
  for (const varve_foreign_key &key : own->foreign_keys->all())
    if (varve_code code= varve_redefinition_add_foreign_key(db, own->redefinition, &key))
      return not_redefined(thd, own, code);
  return 0;
}

// Tells the client why. Returns a handler code.
int ha_varve::not_redefined(THD *thd, const Alteration *own, varve_code code)
{
  const bool is_of_keys= code == VARVE_BAD_FOREIGN_KEY || code == VARVE_CONSTRAINT_EXISTS;
  return is_of_keys && own->foreign_keys ? own->foreign_keys->refused_in_place(thd, code) : report(thd, code);
}

// Nobody else is there now. While indexes are built, or rows are written, others go on; what needs neither is
// prepared at the end.
bool ha_varve::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *alter)
{
  if (!changes_table(alter) && !sets_counter(alter))
    return handler::prepare_inplace_alter_table(altered, alter);
  const bool is_strict= ha_thd()->is_strict_mode();
  if (would_get_null(m_table, giving_up_null(altered, alter), alter, is_strict) ||
      (is_strict && would_give_null(m_table, changing_null(altered, alter, false))))
    return true;
  Alteration *const own= new Alteration(this);
  alter->handler_ctx= own;
  if (!changes_table(alter) || !(adds_index(alter) || is_rebuild(altered, alter)))
    return false;
  const int error= prepare_redefinition(altered, alter, own);
  if (error && !ha_thd()->is_error())
    print_error(error, MYF(0));
  return error;
}

// Rows are read, trees filled, and what others have changed follows.
static const uint STAGES_OF_BUILD= 3;

// The first partition builds for all.
bool ha_varve::inplace_alter_table(TABLE *altered, Alter_inplace_info *alter)
{
  Alteration *const own= Alteration::of(alter);
  if (!own || !own->redefinition)
    return false;
  const uint stages= uint(Alteration::all(alter).size()) * STAGES_OF_BUILD;
  own->progress.reset(new Progress_report(ha_thd(), Progress_report::ALTERS, stages));
  const varve_code code= varve_redefinition_build(db, own->redefinition, tell_duplicate, altered);
  own->progress->end_call();
  const int error= code ? report(ha_thd(), code) : 0;
  if (error && !ha_thd()->is_error())
    print_error(error, MYF(0));
  return error;
}

// What is stored of indexes goes with them; of one that is gone and comes again with the same name nothing is
// known. Of a table that is rebuilt all is made anew.
void ha_varve::alter_statistics(const TABLE *altered, const Alter_inplace_info *alter, bool is_rebuilt)
{
  if (is_rebuilt)
  {
    forget_statistics(m_name);
    const Statistics_policy policy= statistics_policy(altered->s, m_name);
    if (policy.is_persistent)
      leave_to_keeper(m_name, Task::RECALCULATE, policy.sample_pages);
    return;
  }
  Index_renames renames;
  for (uint i= 0; i < alter->index_drop_count; i++)
    renames.emplace_back(alter->index_drop_buffer[i]->name.str, "");
  for (const Alter_inplace_info::Rename_key_pair &pair : alter->rename_keys)
    renames.emplace_back(pair.old_key->name.str, pair.new_key->name.str);
  rename_index_statistics(m_name, renames);
}

// The table, or all partitions, get the definition of `altered`. Returns a handler code.
int ha_varve::redefine(TABLE *altered, Alter_inplace_info *alter)
{
  const std::vector<Alteration *> all= Alteration::all(alter);
  for (Alteration *one : all)
    if (int error= one->is_prepared ? 0 : one->table->prepare_redefinition(altered, alter, one))
      return error;
  varve_code code= all.front()->count_on(altered, alter);
  for (Alteration *one : all)
    one->table->close_table();
  if (!code)
    code= varve_redefinition_commit(db, all.front()->take(), tell_duplicate, altered);
  all.front()->progress.reset();
  int error= code ? not_redefined(ha_thd(), all.front(), code) : 0;
  for (Alteration *one : all)
  {
    if (!code)
      one->table->alter_statistics(altered, alter, one->is_rebuild);
    const int reopened= one->table->open_table();
    error= error ? error : reopened;
  }
  return error;
}

// What is in the engine's definition becomes what the .frm file will say, which takes its place next.
bool ha_varve::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *alter, bool commit)
{
  Alteration *const own= Alteration::of(alter);
  if (!commit && own)
    own->abandon();
  if (!commit || !own)
    return handler::commit_inplace_alter_table(altered, alter, commit);
  const int error= redefine(altered, alter);
  if (error && !ha_thd()->is_error())
    print_error(error, MYF(0));
  if (!error)
    alter->group_commit_ctx= nullptr;  // the other partitions are done, too
  return error;
}

// For the server's DDL log, which asks after a crash in an ALTER TABLE in place whether it was done.
ulonglong ha_varve::table_version() const
{
  return m_table ? varve_table_hash(m_table) : 0;
}

// Whether an ALTER TABLE changes only what is in the .frm file.
bool ha_varve::check_if_incompatible_data(HA_CREATE_INFO *info, uint table_changes)
{
  // As InnoDB: a partition is not exchanged with a table that is stored in another way.
  if (!has_storage(table_share, info))
    return COMPATIBLE_DATA_NO;
  // As IS_EQUAL_PACK_LENGTH what `can_convert_nocopy` takes.
  const bool are_kept= table_changes == IS_EQUAL_YES || table_changes == IS_EQUAL_PACK_LENGTH;
  return are_kept ? COMPATIBLE_DATA_YES : COMPATIBLE_DATA_NO;
}
