// columns.cc: column types and their conversion. The table of types is in docs/mariadb.md.

#include "columns.h"

#include "collation.h"

#include <algorithm>

namespace varve_plugin {

// Whether the server compares the stored bytes with memcmp. (UUID and its like say so only here: their
// charset() is that of numbers.)
static bool is_binary(const Field *field)
{
  return field->sort_charset() == &my_charset_bin;
}

static bool is_unsigned(const Field *field)
{
  return field->flags & UNSIGNED_FLAG;
}

// Old temporal formats are little-endian integers, newer ones are made so that memcmp compares them.
static varve_type temporal_type(const Field *field)
{
  switch (field->key_type())
  {
  case HA_KEYTYPE_INT24:
  case HA_KEYTYPE_LONG_INT:
  case HA_KEYTYPE_LONGLONG:
    return VARVE_INT;
  case HA_KEYTYPE_UINT24:
  case HA_KEYTYPE_ULONG_INT:
  case HA_KEYTYPE_ULONGLONG:
    return VARVE_UINT;
  default:
    return VARVE_FIXED;
  }
}

static void describe_text(const Field *field, varve_column_def *def)
{
  // Text that the engine can't order is bytes to it; no index may have such a column.
  const bool ordered= !is_binary(field) && collation_usable(field->charset());
  def->kind= ordered ? VARVE_TEXT : VARVE_BYTES;
  def->collation= ordered ? field->charset()->number : 0;
}

bool describe(const Field *field, varve_column_def *def, Column *column)
{
  *def= varve_column_def{field->field_name.str, VARVE_FIXED, field->pack_length(), 0,
                         field->real_maybe_null(), false, false, false, nullptr, {nullptr, 0}};
  column->layout= Column::PLAIN;
  column->length_bytes= 0;
  column->length= field->pack_length();
  column->charset= field->charset();
  column->if_null= nullptr;

  switch (field->real_type())
  {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
    def->kind= is_unsigned(field) ? VARVE_UINT : VARVE_INT;
    return true;
  case MYSQL_TYPE_YEAR:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_NEWDATE:
    def->kind= VARVE_UINT;
    return true;
  case MYSQL_TYPE_SET:
    // Sets of 33 to 40 members take 5 bytes and more, but the server rounds those up to 8.
    def->kind= VARVE_UINT;
    return true;
  case MYSQL_TYPE_FLOAT:
    def->kind= VARVE_FLOAT;
    return true;
  case MYSQL_TYPE_DOUBLE:
    def->kind= VARVE_DOUBLE;
    return true;
  case MYSQL_TYPE_DATE:
  case MYSQL_TYPE_TIME:
  case MYSQL_TYPE_DATETIME:
  case MYSQL_TYPE_TIMESTAMP:
    def->kind= temporal_type(field);
    return true;
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_TIMESTAMP2:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIME2:
  case MYSQL_TYPE_BIT:  // as bytes, most significant first, because of the missing HA_CAN_BIT_FIELD
    return true;
  case MYSQL_TYPE_STRING:  // also UUID, INET4 and INET6, whose stored form memcmp compares
    if (!is_binary(field))
    {
      describe_text(field, def);
      column->layout= Column::CHAR;
    }
    else if (!def->size)  // BINARY(0), the type of NULL: fixed widths begin at one byte
      def->kind= VARVE_BYTES;
    return true;
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_VARCHAR_COMPRESSED:
    describe_text(field, def);
    if (field->real_type() == MYSQL_TYPE_VARCHAR_COMPRESSED)
      def->kind= VARVE_BYTES;
    column->layout= Column::VARCHAR;
    column->length_bytes= static_cast<const Field_varstring *>(field)->length_bytes;
    column->length= def->size= field->field_length;
    return true;
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_BLOB_COMPRESSED:
  case MYSQL_TYPE_GEOMETRY:
    describe_text(field, def);
    if (field->real_type() == MYSQL_TYPE_BLOB_COMPRESSED)
      def->kind= VARVE_BYTES;
    column->layout= Column::BLOB;
    column->length_bytes= static_cast<const Field_blob *>(field)->pack_length_no_ptr();
    def->size= static_cast<const Field_blob *>(field)->max_data_length();
    return true;
  default:
    return false;
  }
}

bool is_stored(const TABLE *table, const Field *field)
{
  if (field->stored_in_db())
    return true;
  for (uint i= 0; i < table->s->keys; i++)
  {
    const KEY &key= table->key_info[i];
    for (uint part= 0; part < key.user_defined_key_parts; part++)
      if (key.key_part[part].fieldnr == field->field_index + 1)
        return true;
  }
  return false;
}

bool Row_plan::build(const TABLE *table)
{
  // No page is so small that rows like these would not fit.
  static const uint ALWAYS_SHORT= 1024;
  const bool may_be_long= table->s->blob_fields || table->s->reclength > ALWAYS_SHORT;
  m_columns.clear();
  m_columns.reserve(table->s->fields);
  m_long_columns.clear();
  for (Field **at= table->field; *at; at++)
  {
    const Field *field= *at;
    if (!is_stored(table, field))
      continue;
    varve_column_def def;
    Column column;
    if (!describe(field, &def, &column))
      return false;
    column.number= uint(m_columns.size());
    column.field_index= field->field_index;
    column.offset= uint(field->ptr - table->record[0]);
    column.null_bit= field->real_maybe_null() ? field->null_bit : 0;
    column.null_offset= column.null_bit ? uint(field->null_ptr - table->record[0]) : 0;
    column.if_null= table->s->default_values + column.offset;
    if (may_be_long && (def.kind == VARVE_TEXT || def.kind == VARVE_BYTES))
      m_long_columns.push_back(uint(m_columns.size()));
    m_columns.push_back(column);
  }
  return true;
}

static inline uint read_length(const uchar *at, uint bytes)
{
  switch (bytes)
  {
  case 1:  return at[0];
  case 2:  return uint2korr(at);
  case 3:  return uint3korr(at);
  default: return uint4korr(at);
  }
}

static inline void write_length(uchar *at, uint bytes, uint length)
{
  switch (bytes)
  {
  case 1:  at[0]= uchar(length); break;
  case 2:  int2store(at, length); break;
  case 3:  int3store(at, length); break;
  default: int4store(at, length); break;
  }
}

// How much of a CHAR the engine stores. A record has as many bytes as the longest value could take, filled up
// with spaces. PAD SPACE: none of them count. NO PAD: the server compares the value with as many spaces as
// fill it up to its number of characters, so those are part of it.
static inline uint stored_length(CHARSET_INFO *charset, const uchar *at, uint length)
{
  if (charset->state & MY_CS_NOPAD)
    return uint(std::min<size_t>(length, charset->charpos(at, at + length, length / charset->mbmaxlen)));
  return uint(charset->lengthsp(reinterpret_cast<const char *>(at), length));
}

void Row_plan::to_values(const uchar *record, varve_value *out) const
{
  for (const Column &c : m_columns)
  {
    const uchar *at= record + c.offset;
    if (c.null_bit && (record[c.null_offset] & c.null_bit))
      *out= {nullptr, 0};
    else if (c.layout == Column::PLAIN)
      *out= {at, c.length};
    else if (c.layout == Column::VARCHAR)
      *out= {at + c.length_bytes, read_length(at, c.length_bytes)};
    else if (c.layout == Column::CHAR)
      *out= {at, stored_length(c.charset, at, c.length)};
    else
    {
      const uchar *data;
      memcpy(&data, at + c.length_bytes, sizeof data);
      // The pointer of an empty value may be null, which would be NULL to the engine.
      *out= {data ? data : at, read_length(at, c.length_bytes)};
    }
    out++;
  }
}

// Values of a constant width are the bulk of most rows; the widths of integers copy in one move.
static inline void copy_plain(uchar *to, const uint8_t *from, uint length)
{
  switch (length)
  {
  case 1:  *to= *from; break;
  case 2:  memcpy(to, from, 2); break;
  case 4:  memcpy(to, from, 4); break;
  case 8:  memcpy(to, from, 8); break;
  default: memcpy(to, from, length); break;
  }
}

// NULL, with the bytes of the column's default behind it, as InnoDB has it.
static void null_to_record(const Column &c, uchar *record)
{
  record[c.null_offset]|= c.null_bit;
  uint length= c.length;
  if (c.layout == Column::VARCHAR)
    length= c.length_bytes + read_length(c.if_null, c.length_bytes);
  else if (c.layout == Column::BLOB)
    length= c.length_bytes + sizeof(uchar *);
  memcpy(record + c.offset, c.if_null, length);
}

// The value of one column.
static inline void to_record(const Column &c, varve_value value, uchar *record)
{
  if (c.null_bit)
  {
    if (!value.ptr)
    {
      null_to_record(c, record);
      return;
    }
    record[c.null_offset]&= uchar(~c.null_bit);
  }
  uchar *at= record + c.offset;
  switch (c.layout)
  {
  case Column::PLAIN:
    copy_plain(at, value.ptr, c.length);
    break;
  case Column::CHAR:
    memcpy(at, value.ptr, value.len);
    if (value.len < c.length)
      c.charset->fill(reinterpret_cast<char *>(at + value.len), c.length - value.len, c.charset->pad_char);
    break;
  case Column::VARCHAR:
    write_length(at, c.length_bytes, value.len);
    memcpy(at + c.length_bytes, value.ptr, value.len);
    break;
  case Column::BLOB:
    write_length(at, c.length_bytes, value.len);
    memcpy(at + c.length_bytes, &value.ptr, sizeof value.ptr);
    break;
  }
}

void Row_plan::to_record(const varve_value *row, uchar *record) const
{
  for (const Column &c : m_columns)
    varve_plugin::to_record(c, row[c.number], record);
}

void Wanted_columns::tell(varve_cursor *cursor, const Row_plan &plan, const MY_BITMAP *wanted)
{
  if (wanted ? equals(wanted) : m_all)
    return;
  choose(plan, wanted);
  varve_cursor_set_wanted_columns(cursor, m_all ? nullptr : m_flags.data(), uint32_t(m_flags.size()));
}

void Wanted_columns::choose(const Row_plan &plan, const MY_BITMAP *wanted)
{
  m_all= !wanted;
  m_wanted.clear();
  if (wanted)
    m_wanted.assign(wanted->bitmap, wanted->last_word_ptr + 1);
  m_columns.clear();
  m_flags.assign(plan.size(), 0);
  for (const Column &c : plan.columns())
    if (m_all || bitmap_is_set(wanted, c.field_index))
    {
      m_flags[c.number]= 1;
      m_columns.push_back(c);
    }
}

bool Wanted_columns::have(const Row_plan &plan, const MY_BITMAP *read_set) const
{
  for (const Column &c : plan.columns())
    if (bitmap_is_set(read_set, c.field_index) && !m_flags[c.number])
      return false;
  return true;
}

void Wanted_columns::to_record(const varve_value *row, uchar *record) const
{
  for (const Column &c : m_columns)
    varve_plugin::to_record(c, row[c.number], record);
}

void Key_plan::build(const KEY *key, const KEY *primary)
{
  m_parts.clear();
  m_primary.clear();
  m_own= key->user_defined_key_parts;
  for (uint i= 0; i < key->ext_key_parts; i++)
  {
    const KEY_PART_INFO &part= key->key_part[i];
    Part p;
    varve_column_def def;
    Column column;
    describe(part.field, &def, &column);
    p.layout= part.key_part_flag & (HA_VAR_LENGTH_PART | HA_BLOB_PART) ? Part::VARIABLE
              : column.layout == Column::CHAR ? Part::CHAR : Part::PLAIN;
    p.nullable= part.null_bit;
    p.length= part.length;
    p.store_length= part.store_length;
    p.charset= column.charset;
    m_parts.push_back(p);
  }
  if (!primary || primary == key || key->ext_key_parts == m_own)
    return;
  for (uint i= 0; i < primary->user_defined_key_parts; i++)
  {
    uint at= 0;
    while (at < key->ext_key_parts && key->key_part[at].fieldnr != primary->key_part[i].fieldnr)
      at++;
    if (at == key->ext_key_parts)
      break;
    m_primary.push_back(at);
  }
}

uint Key_plan::to_values(const uchar *key, key_part_map parts, varve_value *out) const
{
  uint n= 0;
  for (const Part &p : m_parts)
  {
    if (!(parts & (key_part_map(1) << n)))
      break;
    const uchar *at= key + p.nullable;
    if (p.nullable && key[0])
      out[n]= {nullptr, 0};
    else if (p.layout == Part::PLAIN)
      out[n]= {at, p.length};
    else if (p.layout == Part::CHAR)
      out[n]= {at, stored_length(p.charset, at, p.length)};
    else
      out[n]= {at + HA_KEY_BLOB_LENGTH, uint2korr(at)};
    key+= p.store_length;
    n++;
  }
  if (n <= m_own)
    return n;
  // Those of the primary key's columns that the index has itself come again.
  varve_value given[MAX_REF_PARTS];
  std::copy(out, out + n, given);
  const uint all= engine_parts(n);
  for (uint i= m_own; i < all; i++)
    out[i]= given[m_primary[i - m_own]];
  return all;
}

uint Key_plan::engine_parts(uint n) const
{
  if (n <= m_own)
    return n;
  // The extended parts stand in the primary key's order: the last of them ends the engine's key.
  uint i= 0;
  while (m_primary[i] != n - 1)
    i++;
  return m_own + i + 1;
}

}  // namespace varve_plugin
