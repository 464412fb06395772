// derived.cc: values of generated columns and of system time, for rows that the engine makes.
//
// The engine changes children by itself, and asks the session of the statement for what it can't know: what
// an indexed virtual column is now (its values lie in the engine's rows), and when the statement began. The
// server has opened the children that its statement may change, for this purpose. A table that gets an index
// of virtual columns gets their values in all rows; ALTER TABLE has the table as it will be.

#include "derived.h"

#include "definition.h"
#include "error_map.h"
#include "foreign.h"
#include "ha_varve.h"

#include <algorithm>
#include <string>

// Not in the server's headers.
TABLE *find_fk_open_table(THD *thd, const char *db, size_t db_len, const char *table, size_t table_len);
void thd_get_query_start_data(THD *thd, char *buf);

namespace varve_plugin {

static const uint TIME_BYTES= 7;  // of TIMESTAMP(6)

static bool statement_time(void *, varve_value *out)
{
  static thread_local char time[TIME_BYTES];
  thd_get_query_start_data(current_thd, time);
  *out= {reinterpret_cast<const uint8_t *>(time), TIME_BYTES};
  return true;
}

static bool compute(void *, const char *name, const varve_value *row, const uint32_t *columns, uint32_t n,
                    varve_value *out)
{
  THD *thd= current_thd;
  const char *slash= strchr(name, '/');
  const std::string schema= user_name(std::string(name, slash)), table= user_name(slash + 1);
  TABLE *open= find_fk_open_table(thd, schema.c_str(), schema.size(), table.c_str(), table.size());
  if (!open)
  {
    my_printf_error(ER_NOT_SUPPORTED_YET,
                    "VARVE: foreign keys change rows of %s.%s by way of another table, and its indexed virtual "
                    "columns can't be computed then",
                    MYF(0), schema.c_str(), table.c_str());
    return false;
  }
  return static_cast<ha_varve *>(open->file)->compute(row, columns, n, out);
}

void give_values(const varve_txn *txn)
{
  const auto keep_null= [](void *, const char *, uint32_t, uint64_t, varve_value *) { return false; };
  const auto convert_none= [](void *, const char *, const varve_value *, const uint32_t *, uint32_t, uint64_t,
                              varve_value *) { return false; };
  const varve_value_source source= {nullptr, statement_time, compute, convert_none, keep_null};
  varve_txn_set_value_source(txn, &source);
}

// Fills columns of a row in the record buffer of `form`, each by `fill`, which says whether it could.
// `values` has room for the whole row.
template <typename Fill>
static bool fill_in(TABLE *form, const Row_plan &plan, std::vector<varve_value> *values,
                    const varve_value *row, const uint32_t *columns, uint32_t n, varve_value *out, Fill fill)
{
  uchar *const record= form->record[0];
  plan.to_record(row, record);
  for (uint32_t i= 0; i < n; i++)
    if (!fill(form->field[plan.field_index(columns[i])]))
      return false;
  plan.to_values(record, values->data());
  for (uint32_t i= 0; i < n; i++)
    out[i]= (*values)[columns[i]];
  return true;
}

Field *new_counted(const TABLE *altered, const Alter_inplace_info *alter)
{
  Field *const counted= altered->found_next_number_field;
  const Create_field *const source= counted ? source_of(alter, counted) : nullptr;
  return source && !source->field ? counted : nullptr;
}

bool replaces_null(const Alter_inplace_info *alter)
{
  return alter->ignore || !current_thd->is_strict_mode();
}

bool Computer::begin(TABLE *old, TABLE *form, const Alter_inplace_info *alter)
{
  m_old= old;
  m_form= form;
  m_is_strict= form->in_use->is_strict_mode();
  m_replaces_null= replaces_null(alter);
  if (!m_plan.build(form) || !m_old_plan.build(old))
    return false;
  Field_map converted(old);
  for (Field **at= form->field; *at; at++)
    if (const Field *from= converted_from(alter, *at))
    {
      m_conversions.emplace_back();
      m_conversions.back().set(*at, old->field[from->field_index], false);
      bitmap_set_bit(converted.map(), from->field_index);
    }
  m_converted.choose(m_old_plan, converted.map());
  if (!m_conversions.empty())
  {
    old->use_all_columns();
    // What the server has for its partitions is not open, and can't be told.
    form->column_bitmaps_set_no_signal(&form->s->all_set, &form->s->all_set);
  }
  m_counted= new_counted(form, alter);
  if (m_counted)
    m_numbers.begin(form->in_use, m_counted, alter->create_info->auto_increment_value);
  m_values.resize(m_plan.size());
  return true;
}

varve_value_source Computer::source()
{
  return {this, statement_time, compute, convert, replace_null};
}

bool Computer::compute(void *computer, const char *, const varve_value *row, const uint32_t *columns,
                       uint32_t n, varve_value *out)
{
  Computer *const self= static_cast<Computer *>(computer);
  const auto fill= [self](Field *field) { return self->fill(field); };
  if (self->m_counted)
    row= self->with_place_for_number(row, columns, n);
  return fill_in(self->m_form, self->m_plan, &self->m_values, row, columns, n, out, fill);
}

// The record buffer can't have NULL where the number comes.
const varve_value *Computer::with_place_for_number(const varve_value *row, const uint32_t *columns,
                                                   uint32_t n)
{
  static const uint8_t zero[sizeof(ulonglong)]= {};
  m_values.assign(row, row + m_plan.size());
  for (uint32_t i= 0; i < n; i++)
    if (m_form->field[m_plan.field_index(columns[i])] == m_counted)
      m_values[columns[i]]= {zero, m_counted->pack_length()};
  return m_values.data();
}

bool Computer::fill(Field *field)
{
  return field == m_counted ? m_numbers.give(field) : !m_form->update_virtual_field(field, false);
}

// As an ALTER TABLE that copies, warnings and errors with the numbers of rows included.
bool Computer::convert(void *computer, const char *table, const varve_value *row, const uint32_t *columns,
                       uint32_t n, uint64_t row_number, varve_value *out)
{
  Computer *const self= static_cast<Computer *>(computer);
  if (row_number)
    row_number= self->number_of_row(table, row_number);
  THD *thd= self->m_form->in_use;
  const Check_level_instant_set level(thd, row_number ? CHECK_FIELD_WARN : CHECK_FIELD_IGNORE);
  const Abort_on_warning_instant_set abort(thd, row_number && self->m_is_strict);
  // The old value has its own ways to warn.
  Dummy_error_handler quiet;
  if (!row_number)
    thd->push_internal_handler(&quiet);
  thd->get_stmt_da()->reset_current_row_for_warning(int(row_number));
  self->m_converted.to_record(row, self->m_old->record[0]);
  for (Copy_field &conversion : self->m_conversions)
    conversion.do_copy(&conversion);
  if (!row_number)
    thd->pop_internal_handler();
  if (thd->is_error())
    return false;
  self->m_plan.to_values(self->m_form->record[0], self->m_values.data());
  for (uint32_t i= 0; i < n; i++)
    out[i]= self->m_values[columns[i]];
  return true;
}

// A copy numbers the rows of one partition after those of the other.
uint64_t Computer::number_of_row(const char *table, uint64_t row)
{
  if (m_rows_of != table)
  {
    m_rows_of= table;
    m_rows_before+= m_last_row;
    m_last_row= 0;
  }
  m_last_row= std::max(m_last_row, row);
  return m_rows_before + row;
}

// As InnoDB, whatever the column's default is.
bool Computer::replace_null(void *computer, const char *, uint32_t column, uint64_t row, varve_value *out)
{
  Computer *const self= static_cast<Computer *>(computer);
  if (!self->m_replaces_null)
    return false;
  Field *const field= self->m_form->field[self->m_plan.field_index(column)];
  if (row)
    field->set_warning(Sql_condition::WARN_LEVEL_WARN, WARN_DATA_TRUNCATED, 1, ulong(row));
  field->reset();
  self->m_plan.to_values(self->m_form->record[0], self->m_values.data());
  *out= self->m_values[column];
  return true;
}

bool System_time::describe(const TABLE *form, const std::vector<uint32_t> &column_of_field)
{
  if (!form->versioned(VERS_TIMESTAMP))
    return false;
  Field *const end= form->vers_end_field();
  start= column_of_field[form->vers_start_field()->field_index];
  this->end= column_of_field[end->field_index];
  end->set_max();
  m_forever.assign(reinterpret_cast<const char *>(end->ptr), end->pack_length());
  forever= {reinterpret_cast<const uint8_t *>(m_forever.data()), uint32_t(m_forever.size())};
  return true;
}

}  // namespace varve_plugin

// Computes columns of a row that is about to be written.
bool ha_varve::compute(const varve_value *row, const uint32_t *columns, uint32_t n, varve_value *out)
{
  const auto fill= [this](Field *field) { return !table->update_virtual_field(field, false); };
  return varve_plugin::fill_in(table, m_row_plan, &m_values, row, columns, n, out, fill);
}
