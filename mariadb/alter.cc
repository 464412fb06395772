// alter.cc: ALTER TABLE in place.
//
// The server says what is to change, and asks how that can be done. What is in the engine's definition is
// changed there, by the engine: under the server's exclusive metadata lock in the end, and while others use the
// table before. After a crash the server's DDL log asks whether it was done.

#include "ha_varve.h"

#include "definition.h"
#include "engine.h"
#include "error_map.h"
#include "foreign.h"
#include "options.h"
#include "statistics.h"

#include <algorithm>

namespace varve_plugin {

// Whether the definition is still that of the table's version `before`: then the statement has done nothing
// that its old .frm file does not say.
int check_version(handlerton *, const char *path, const LEX_CUSTRING *, ulonglong before)
{
  varve_table *table;
  if (varve_table_open(db, table_name(path).c_str(), &table))
    return 0;
  const bool is_same= varve_table_hash(table) == before;
  varve_table_close(table);
  return is_same;
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
                                 ALTER_DROP_FOREIGN_KEY);
}

static bool adds_index(const Alter_inplace_info *alter)
{
  return alter->handler_flags & ADDS_INDEX;
}

// All rows are written anew.
static const alter_table_operations REBUILDS= ALTER_RECREATE_TABLE | ALTER_ADD_PK_INDEX |
                                              ALTER_DROP_PK_INDEX | ALTER_COLUMN_NOT_NULLABLE;

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
    if ((key.flags & HA_NOSAME) && (alter->ignore || key.without_overlaps))
      return true;
  }
  return false;
}

static bool sets_counter(const Alter_inplace_info *alter)
{
  return alter->create_info->used_fields & HA_CREATE_USED_AUTO;
}

// VARCHAR and VARBINARY that take more.
bool ha_varve::can_convert_nocopy(const Field &field, const Column_definition &to) const
{
  return field.real_type() == MYSQL_TYPE_VARCHAR && to.real_field_type() == MYSQL_TYPE_VARCHAR &&
         field.stored_in_db() && field.charset() == to.charset && field.field_length <= to.length &&
         !field.compression_method() && !to.compression_method();
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

// Columns of a foreign key keep their types, as in InnoDB: the server refuses that of a table that it copies.
static bool is_in_foreign_keys(const varve_table *table)
{
  return varve_table_is_referenced(table) || !foreign_keys_of(table).empty();
}

// Names, greatest lengths and indexes are in the engine's definition, which explains the table without the
// server, and are changed there; if rows can't stay what they are, the engine writes them anew. The
// AUTO_INCREMENT counter is there, too. An indexed virtual column's values are in its rows.
enum_alter_inplace_result ha_varve::check_if_supported_inplace_alter(TABLE *altered,
                                                                     Alter_inplace_info *alter)
{
  if (check_index_names(ha_thd(), altered) || !keeps_foreign_keys_served(altered, alter))
    return HA_ALTER_ERROR;
  if (alter->handler_flags & ALTER_VIRTUAL_GCOL_EXPR)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // Of several partitions some would have the new names after a crash, and so it is of names and counter.
  const bool is_one= table_share->tmp_table == NO_TMP_TABLE && table_share->db_type() == ht;
  if ((changes_table(alter) || sets_counter(alter)) && !is_one)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (changes_table(alter) && sets_counter(alter))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  const bool has_longer= alter->handler_flags & ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE;
  if (has_longer && is_in_foreign_keys(m_table))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // The server says what is wrong if it copies.
  if (!has_foreign_keys(m_table, foreign_keys_dropped(alter)) || loses_referenced_column(m_table, alter))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if ((alter->handler_flags & (ALTER_ADD_PK_INDEX | ALTER_DROP_PK_INDEX)) == ALTER_DROP_PK_INDEX)
    alter->unsupported_reason= ER_THD(ha_thd(), ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_NOPK);
  if (alter->handler_flags & ALTER_STORED_COLUMN_TYPE)
    alter->unsupported_reason= ER_THD(ha_thd(), ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_COLUMN_TYPE);
  if (may_refuse_rows(alter) || alter->error_if_not_empty)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // The server makes another value of NULL if it copies.
  if ((alter->handler_flags & ALTER_COLUMN_NOT_NULLABLE) && (alter->ignore || !ha_thd()->is_strict_mode()))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // The server takes longer keys for others; that they are not, the engine has said.
  const alter_table_operations flags= alter->handler_flags;
  alter->handler_flags&= ~(ALTER_COLUMN_INDEX_LENGTH | CHANGES_INDEXES | CHANGES_COLUMNS | CHANGES_VIRTUAL |
                           ALTER_DROP_FOREIGN_KEY | REBUILDS);
  const enum_alter_inplace_result how= handler::check_if_supported_inplace_alter(altered, alter);
  alter->handler_flags= flags;
  const bool needs_rebuild= how != HA_ALTER_INPLACE_NOT_SUPPORTED && is_rebuild(altered, alter);
  if (needs_rebuild && !can_become(altered, alter, varve_table_can_be_rebuilt))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // If the table is copied, create() looks at its options.
  if (how != HA_ALTER_INPLACE_NOT_SUPPORTED && (alter->handler_flags & ALTER_CHANGE_CREATE_OPTION) &&
      check_options(ha_thd(), altered->s))
    return HA_ALTER_ERROR;
  if (needs_rebuild)
    return HA_ALTER_INPLACE_COPY_NO_LOCK;
  return how != HA_ALTER_INPLACE_NOT_SUPPORTED && adds_index(alter) ? HA_ALTER_INPLACE_NOCOPY_NO_LOCK : how;
}

// The greatest value in the AUTO_INCREMENT column; 0 if none moves the counter.
int ha_varve::greatest_counted(ulonglong *greatest)
{
  *greatest= 0;
  const uint index= table_share->next_number_index;
  MY_BITMAP *const columns= table->prepare_for_keyread(index);
  int error= ha_index_init(index, true);
  if (!error)
  {
    const bool falls= table->key_info[index].key_part->key_part_flag & HA_REVERSE_SORT;
    error= falls ? ha_index_first(table->record[0]) : ha_index_last(table->record[0]);
    Field *const counted= table->found_next_number_field;
    if (!error && (counted->val_int() > 0 || (counted->flags & UNSIGNED_FLAG)))
      *greatest= ulonglong(counted->val_int());
    ha_index_end();
  }
  table->restore_column_maps_after_keyread(columns);
  return error == HA_ERR_END_OF_FILE ? 0 : error;
}

// The counter becomes `next`, or what follows the rows that are there.
int ha_varve::set_counter(ulonglong next)
{
  if (!table->found_next_number_field)
    return 0;
  ulonglong greatest;
  if (int error= greatest_counted(&greatest))
    return error;
  const ulonglong least= greatest == ~0ULL ? greatest : greatest + 1;
  const varve_code code= varve_table_set_auto_increment(m_table, std::max(next, least));
  return code ? report(ha_thd(), code) : 0;
}

// Whether the engine says that the table can have the definition of `altered`.
bool ha_varve::can_become(TABLE *altered, const Alter_inplace_info *alter,
                          bool (*can)(const varve_table *, const varve_table_def *))
{
  Definition definition;
  if (definition.build(altered, m_name, false))
    return false;
  return definition.note_changes(altered, alter) && can(m_table, &definition.def);
}

// Whether rows have to be written anew: to be so, or because the definition can't have those that are there.
bool ha_varve::is_rebuild(TABLE *altered, const Alter_inplace_info *alter)
{
  return (alter->handler_flags & REBUILDS) ||
         (redefines(alter) && !can_become(altered, alter, varve_table_can_become));
}

namespace {

// A definition that is prepared; the server drops it at the end of the statement.
class Prepared : public inplace_alter_handler_ctx
{
public:
  Prepared(varve_redefinition *redefinition, bool rebuild) :
    is_rebuild(rebuild), m_redefinition(redefinition)
  {
  }
  ~Prepared() override
  {
    if (m_redefinition)
      varve_redefinition_abandon(m_redefinition);
  }
  varve_redefinition *get() const
  {
    return m_redefinition;
  }
  varve_redefinition *take()
  {
    varve_redefinition *const taken= m_redefinition;
    m_redefinition= nullptr;
    return taken;
  }

  const bool is_rebuild;

private:
  varve_redefinition *m_redefinition;
};

}  // namespace

// Two rows have the same values in a unique index that `altered` gets: says so, as the server does of a row
// that is written.
static void tell_duplicate(void *altered, const char *index, const varve_value *row)
{
  TABLE *const form= static_cast<TABLE *>(altered);
  Row_plan plan;
  if (!plan.build(form))
    return;
  plan.to_record(row, form->s->all_set, form->record[0]);
  for (uint i= 0; i < form->s->keys; i++)
    if (same_name(form->key_info[i].name.str, index))
      print_keydup_error(form, &form->key_info[i], MYF(0));
}

// Begins to give the table the definition of `altered`. Returns a handler code.
int ha_varve::prepare_redefinition(TABLE *altered, Alter_inplace_info *alter)
{
  THD *thd= ha_thd();
  Session *const session= Session::of(thd);
  if (!session)
    return HA_ERR_INTERNAL_ERROR;
  Definition definition;
  if (int error= definition.build(altered, m_name, false))
    return error;
  if (!definition.note_changes(altered, alter))
    return HA_ERR_INTERNAL_ERROR;
  varve_redefinition *prepared;
  const bool rebuild= is_rebuild(altered, alter);
  const auto prepare= rebuild ? varve_rebuild_prepare : varve_redefinition_prepare;
  if (varve_code code= prepare(db, session->txn(), &definition.def, &prepared))
    return report(thd, code);
  alter->handler_ctx= new Prepared(prepared, rebuild);
  for (const std::string &key : foreign_keys_dropped(alter))
    if (varve_code code= varve_redefinition_drop_foreign_key(db, prepared, key.c_str()))
      return report(thd, code);
  return 0;
}

// Nobody else is there now. While indexes are built, or rows are written, others go on.
bool ha_varve::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *alter)
{
  if (!changes_table(alter) || !(adds_index(alter) || is_rebuild(altered, alter)))
    return handler::prepare_inplace_alter_table(altered, alter);
  int error= wait_for_others(ha_thd(), m_name);
  if (!error)
    error= prepare_redefinition(altered, alter);
  if (error && !ha_thd()->is_error())
    print_error(error, MYF(0));
  return error;
}

bool ha_varve::inplace_alter_table(TABLE *altered, Alter_inplace_info *alter)
{
  if (!alter->handler_ctx)
    return false;
  varve_redefinition *const prepared= static_cast<Prepared *>(alter->handler_ctx)->get();
  const varve_code code= varve_redefinition_build(db, prepared, tell_duplicate, altered);
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

int ha_varve::redefine(TABLE *altered, Alter_inplace_info *alter)
{
  if (!alter->handler_ctx)
    if (int error= prepare_redefinition(altered, alter))
      return error;
  Prepared *const prepared= static_cast<Prepared *>(alter->handler_ctx);
  close_table();
  const varve_code code= varve_redefinition_commit(db, prepared->take(), tell_duplicate, altered);
  const int error= code ? report(ha_thd(), code) : 0;
  if (!error)
    alter_statistics(altered, alter, prepared->is_rebuild);
  const int reopened= open_table();
  return error ? error : reopened;
}

// What is in the engine's definition becomes what the .frm file will say, which takes its place next.
bool ha_varve::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *alter, bool commit)
{
  if (!commit)
  {
    delete alter->handler_ctx;
    alter->handler_ctx= nullptr;
  }
  if (!commit || !(changes_table(alter) || sets_counter(alter)))
    return handler::commit_inplace_alter_table(altered, alter, commit);
  THD *thd= ha_thd();
  // Who builds indexes has waited before.
  int error= alter->handler_ctx ? 0 : wait_for_others(thd, m_name);
  if (!error)
    error= changes_table(alter) ? redefine(altered, alter)
                                : set_counter(alter->create_info->auto_increment_value);
  if (error && !thd->is_error())
    print_error(error, MYF(0));
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
  // As IS_EQUAL_PACK_LENGTH what `can_convert_nocopy` takes.
  if (table_changes != IS_EQUAL_YES && table_changes != IS_EQUAL_PACK_LENGTH)
    return COMPATIBLE_DATA_NO;
  if (info->used_fields & (HA_CREATE_USED_ROW_FORMAT | HA_CREATE_USED_KEY_BLOCK_SIZE))
    return COMPATIBLE_DATA_NO;
  return COMPATIBLE_DATA_YES;
}
