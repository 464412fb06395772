// memcached_columns.cc: the columns of a container's table, and what clients' texts are in them.

#include "memcached_columns.h"

#include <algorithm>

namespace varve_plugin {

namespace {

// A longer value is not kept beyond its batch.
const size_t KEPT_BYTES= 64 << 10;

bool is_text(const Field *field)
{
  return field->cmp_type() == STRING_RESULT && field->real_type() != MYSQL_TYPE_ENUM &&
         field->real_type() != MYSQL_TYPE_SET;
}

bool is_whole_number(const Field *field)
{
  switch (field->type()) {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
    return true;
  default:
    return false;
  }
}

// Texts are stored as they are, in the column's character set; what is no text is converted.
bool store_text(Field *field, const char *text, size_t bytes)
{
  field->set_notnull();
  const enum_field_types type= field->real_type();
  const bool has_letters= is_text(field) || type == MYSQL_TYPE_ENUM || type == MYSQL_TYPE_SET;
  return !field->store(text, bytes, has_letters ? field->charset() : &my_charset_utf8mb3_general_ci);
}

// Clients have none below zero.
ulonglong number_in(Field *field)
{
  if (!field || field->is_null())
    return 0;
  const longlong number= field->val_int();
  return number < 0 && !field->is_unsigned() ? 0 : ulonglong(number);
}

// Where the first separator stands in a text; its end: there is none. In some character sets (sjis, gbk,
// big5) the later bytes of a character are those of letters and signs, which are no separator.
const char *find_separator(const char *text, const char *end, const std::string &separator,
                           CHARSET_INFO *letters)
{
  if (letters->mbmaxlen == 1)
    return std::search(text, end, separator.begin(), separator.end());
  for (int length; text < end; text+= length > 0 ? length : 1)
  {
    if (size_t(end - text) >= separator.size() && !memcmp(text, separator.data(), separator.size()))
      return text;
    length= letters->charlen(text, end);
  }
  return end;
}

// Calls `part` for each part of a text between separators, at most `most`; the last one has the rest. They
// are those of these columns.
template<typename Part>
void split(const char *text, size_t bytes, const std::string &separator, const std::vector<Field *> &columns,
           size_t most, const Part &part)
{
  const char *const end= text + bytes;
  for (size_t n= 1; n < most && !separator.empty(); n++)
  {
    const Field *const field= columns[n - 1];
    CHARSET_INFO *const letters= is_text(field) ? field->charset() : &my_charset_bin;
    const char *const at= find_separator(text, end, separator, letters);
    if (at == end)
      break;
    part(text, size_t(at - text));
    text= at + separator.size();
  }
  part(text, size_t(end - text));
}

// NULL is empty, and nothing at the end.
void read_text(const std::vector<Field *> &fields, const std::string &separator, std::string *all)
{
  all->clear();
  char room[MAX_FIELD_WIDTH];
  String part(room, sizeof room, &my_charset_bin);
  size_t end= fields.size();
  while (end > 1 && fields[end - 1]->is_null())
    end--;
  for (size_t n= 0; n < end; n++)
  {
    if (n)
      *all+= separator;
    if (fields[n]->is_null())
      continue;
    const String *const got= fields[n]->val_str(&part);
    all->append(got->ptr(), got->length());
  }
}

}  // namespace

bool Memcached_columns::failed(std::string why)
{
  m_why= std::move(why);
  return false;
}

Field *Memcached_columns::column(const std::string &name)
{
  for (Field **at= m_table->field; *at; at++)
    if (!my_strcasecmp(system_charset_info, (*at)->field_name.str, name.c_str()))
      return *at;
  failed("the container '" + m_container->name + "' names a column `" + name + "`, which " +
         m_container->full_name() + " does not have");
  return nullptr;
}

bool Memcached_columns::columns(const std::vector<std::string> &names, std::vector<Field *> *out)
{
  out->clear();
  for (const std::string &name : names)
  {
    Field *const field= column(name);
    if (!field)
      return false;
    // No byte of these is a letter by itself.
    if (names.size() > 1 && is_text(field) && field->charset()->mbminlen > 1)
      return failed("the container '" + m_container->name + "' has several columns, and `" + name + "` is in " +
                    field->charset()->cs_name.str + ", where a separator can't be told from parts of letters");
    out->push_back(field);
  }
  return true;
}

bool Memcached_columns::find_index()
{
  for (uint at= 0; at < m_table->s->keys; at++)
  {
    const KEY &key= m_table->key_info[at];
    if (my_strcasecmp(system_charset_info, key.name.str, m_container->index.c_str()))
      continue;
    bool fits= (key.flags & HA_NOSAME) && key.user_defined_key_parts == m_keys.size();
    for (uint part= 0; fits && part < key.user_defined_key_parts; part++)
      // A part that is a beginning of a column has mostly a field of its own, and always the flag.
      fits= key.key_part[part].field == m_keys[part] && !(key.key_part[part].key_part_flag & HA_PART_KEY_SEG);
    if (fits)
    {
      m_index= at;
      return true;
    }
  }
  return failed("the container '" + m_container->name + "' needs a unique index `" + m_container->index +
                "` on its key columns, which " + m_container->full_name() + " does not have");
}

void Memcached_columns::note_places()
{
  m_places.clear();
  const auto add= [this](Field *&field) {
    if (field)
      m_places.emplace_back(&field, field->field_index);
  };
  for (std::vector<Field *> *list : {&m_keys, &m_values})
    for (Field *&field : *list)
      add(field);
  add(m_flags);
  add(m_cas);
  add(m_expires);
  add(m_marks);
}

bool Memcached_columns::find(const Container &container, TABLE *table)
{
  m_why.clear();
  m_table= table;
  // Mostly it is a table of the same definition again, whose fields are its own.
  if (m_container == &container && m_definition == table->s->table_map_id)
  {
    for (const auto &[to, number] : m_places)
      *to= table->field[number];
    return true;
  }
  m_definition= 0;
  m_container= &container;
  if (!columns(container.keys, &m_keys) || !columns(container.values, &m_values))
    return false;
  for (const auto &[name, to] : {std::pair(&container.flags, &m_flags), {&container.cas, &m_cas},
                                 {&container.expires, &m_expires}, {&container.marks, &m_marks}})
  {
    *to= name->empty() ? nullptr : column(*name);
    if (!name->empty() && !*to)
      return false;
    if (*to && !is_whole_number(*to))
      return failed("the container '" + container.name + "' names `" + *name +
                    "` for numbers, which is no column of whole numbers");
  }
  // Clients' numbers of changes are microseconds since 1970.
  if (m_cas && m_cas->type() != MYSQL_TYPE_LONGLONG)
    return failed("the container '" + container.name + "' names `" + container.cas +
                  "` for the number of changes, which is no BIGINT");
  if (!find_index())
    return false;
  note_places();
  m_definition= table->s->table_map_id;
  return true;
}

bool Memcached_columns::check_changes()
{
  for (const auto &place : m_places)
    if ((*place.first)->vcol_info)
      return failed("the container '" + m_container->name + "' names the generated column `" +
                    (*place.first)->field_name.str + "`: it can be read");
  return true;
}

void Memcached_columns::read_no_others()
{
  bitmap_clear_all(&m_table->tmp_set);
  m_table->column_bitmaps_set(&m_table->tmp_set, &m_table->tmp_set);
  for (const auto &place : m_places)
    (*place.first)->register_field_in_read_map();
}

void Memcached_columns::read_keys_and_times()
{
  bitmap_clear_all(&m_table->tmp_set);
  for (Field *field : m_keys)
    field->register_field_in_read_map();
  if (m_expires)
    m_expires->register_field_in_read_map();
}

bool Memcached_columns::say_number() const
{
  return m_table->found_next_number_field && is_said(m_table->found_next_number_field);
}

void Memcached_columns::forget()
{
  if (m_value.capacity() > KEPT_BYTES)
    std::string().swap(m_value);
}

bool Memcached_columns::store_key(const char *key, size_t bytes)
{
  size_t n= 0;
  bool fits= true;
  split(key, bytes, m_container->separator, m_keys, m_keys.size(), [&](const char *part, size_t part_bytes) {
    fits= fits && store_text(m_keys[n++], part, part_bytes);
  });
  if (!fits || n < m_keys.size())
    return false;
  // MC-7.
  read_text(m_keys, m_container->separator, &m_key);
  return !m_key.compare(0, m_key.npos, key, bytes);
}

bool Memcached_columns::fill_key(const char *key, size_t bytes)
{
  m_why.clear();
  if (store_key(key, bytes))
    return true;
  if (!m_table->in_use->is_error())
    failed("the key is none that the container '" + m_container->name + "' can have");
  return false;
}

void Memcached_columns::read(varve_memcached_item *out)
{
  read_text(m_values, m_container->separator, &m_value);
  out->value= reinterpret_cast<const uint8_t *>(m_value.data());
  out->value_bytes= m_value.size();
  out->flags= uint32_t(number_in(m_flags));
  out->expires= uint32_t(end());
  out->marks= uint8_t(number_in(m_marks));
  out->cas= m_cas ? number_in(m_cas) : varve_memcached_fingerprint(out);
  m_read= *out;
}

const std::string &Memcached_columns::read_key()
{
  read_text(m_keys, m_container->separator, &m_key);
  return m_key;
}

bool Memcached_columns::have_key() const
{
  return std::none_of(m_keys.begin(), m_keys.end(), [](const Field *field) { return field->is_null(); });
}

ulonglong Memcached_columns::end() const
{
  // A later one than clients can say is never.
  const ulonglong at= number_in(m_expires);
  return at > UINT_MAX32 ? 0 : at;
}

bool Memcached_columns::fill_number(Field *field, const char *what, ulonglong number)
{
  if (!field)
    return !number || failed(std::string("the container '") + m_container->name + "' has no column for " + what +
                             ", so they can't be kept");
  field->set_notnull();
  return !field->store(longlong(number), true);
}

// What is no text can't be empty: that is NULL then.
bool Memcached_columns::fill_value(const char *value, size_t bytes)
{
  size_t n= 0;
  bool fits= true;
  const size_t most= m_values.size();
  const size_t parts= most > 1 ? most + 1 : most;
  split(value, bytes, m_container->separator, m_values, parts, [&](const char *part, size_t part_bytes) {
    Field *const field= n++ < most ? m_values[n - 1] : nullptr;
    if (field && !part_bytes && field->maybe_null() && !is_text(field))
      field->set_null();
    else if (field)
      fits= fits && store_text(field, part, part_bytes);
  });
  if (!fits)
    return false;
  if (n > most)
    return failed("the value has more parts than the container '" + m_container->name + "' has columns for them");
  for (; n < most; n++)
  {
    m_values[n]->set_null();
    if (!m_values[n]->maybe_null())
      return failed("the value has fewer parts than the container '" + m_container->name + "' needs: `" +
                    m_values[n]->field_name.str + "` can't be null");
  }
  return true;
}

bool Memcached_columns::fill(const varve_memcached_item &item, Put put)
{
  m_why.clear();
  const bool is_new= put == Put::INSERT;
  const char *const value= reinterpret_cast<const char *>(item.value);
  // What stays the same is not stored again: a text says less than the row, where that could be NULL, and a
  // number, where it is larger than clients' are.
  if (is_new || m_value.compare(0, m_value.npos, value, item.value_bytes))
    if (!fill_value(value, item.value_bytes))
      return false;
  const auto fill_changed= [=](Field *field, const char *what, uint32_t number, uint32_t old) {
    return (!is_new && number == old) || fill_number(field, what, number);
  };
  return fill_changed(m_flags, "flags", item.flags, m_read.flags) &&
         fill_changed(m_expires, "times", item.expires, m_read.expires) &&
         fill_changed(m_marks, "marks of stale items", item.marks, m_read.marks) &&
         (!m_cas || fill_number(m_cas, "numbers of changes", item.cas));
}

bool Memcached_columns::is_said(const Field *field) const
{
  const auto is_it= [=](const auto &place) { return *place.first == field; };
  return std::any_of(m_places.begin(), m_places.end(), is_it);
}

// Whether the columns that clients change have other values than in record[1].
bool Memcached_columns::differ() const
{
  const uchar *const before= m_table->record[1];
  const uint offset= uint(before - m_table->record[0]);
  for (const auto &place : m_places)
  {
    Field *const field= *place.first;
    if (field->is_null() != field->is_null_in_record(before) ||
        (!field->is_null() && field->cmp_binary_offset(offset)))
      return true;
  }
  return false;
}

bool Memcached_columns::complete(Put put)
{
  m_why.clear();
  const bool is_new= put == Put::INSERT;
  for (Field **at= m_table->field; is_new && *at; at++)
    if (((*at)->flags & NO_DEFAULT_VALUE_FLAG) && (*at)->real_type() != MYSQL_TYPE_ENUM && !is_said(*at) &&
        *at != m_table->found_next_number_field)
    {
      my_error(ER_NO_DEFAULT_FOR_FIELD, MYF(0), (*at)->field_name.str);
      return false;
    }
  if (m_table->default_field)
  {
    m_table->reset_default_fields();
    for (const auto &place : m_places)
      (*place.first)->set_has_explicit_value();
    if (is_new)
    {
      if (m_table->update_default_fields(false))
        return false;
    }
    // As UPDATE does it: who sets what is there changes nothing, and no column notes when.
    else if (differ())
      m_table->evaluate_update_default_function();
  }
  if (m_table->vfield && m_table->update_virtual_fields(m_table->file, VCOL_UPDATE_FOR_WRITE))
    return false;
  return m_table->verify_constraints(false) == VIEW_CHECK_OK && !m_table->in_use->is_error();
}

ulonglong Memcached_columns::cas_of_written(ulonglong given)
{
  if (m_cas)
    return given;
  varve_memcached_item written;
  read(&written);
  return written.cas;
}

}  // namespace varve_plugin
