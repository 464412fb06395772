// collation.cc: weights of texts that sort as the server compares the texts.
//
// The engine wants, for each collation, a function whose results memcmp compares as the server's strnncollsp
// compares the texts. There are three recipes. BY_LEVEL serves nearly all collations: within one level of a
// collation the server's strnxfrm is that function.
//
// - Binary collations of charsets with one-byte units order by the bytes themselves.
// - Other collations with one level give the engine their weights and the weight of a space; the engine sees
//   to PAD SPACE. Weights are units of as many bytes as that of a space has. (Asian multi-byte charsets weigh
//   letters in one byte and others in two; read bytewise their order is still right, because a space's byte
//   is handled the same way wherever it stands.)
// - Collations with several levels are one text after the other: each level's weights, made self-delimiting
//   here.
//
// ALL_LEVELS is for latin2_czech_cs and cp1250_czech_cs. They compare by several passes over the text, the
// first two of which may take turns word by word, without padding, but after cutting off spaces at the end.
// What the passes yield, one value behind the other, is what strnxfrm returns if it is asked for all levels
// at once; their end is less than any value.
//
// BY_CODE is for big5_chinese_ci and big5_chinese_nopad_ci. Their strnxfrm counts strokes, which gives many
// letters the same weight; strnncollsp compares a letter of one byte by the charset's sort_order, one of two
// bytes by its code, and a byte that is part of no letter above both.
//
// Self-delimiting, PAD SPACE: a space's unit is followed by a byte that says whether what comes behind the
// run of spaces is less (1) or more (3) than spaces for ever; the end is a space's unit and 2. NO PAD: the
// end is a zero unit, which no weight is.
//
// None of this is taken on trust. Before a collation is used, a few hundred texts made of letters that are
// treacherous somewhere are compared pairwise with the server's own function; one difference, and the next
// recipe is tried. For the last two recipes every text of up to two bytes, which is every letter and
// contraction, is compared with the next one, too. If no recipe is right, the collation is not usable in
// indexes. A hash of the weights of all these texts is the collation's version.

#include "collation.h"

#include "engine.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace varve_plugin {

bool collation_is_bytewise(CHARSET_INFO *charset)
{
  return (charset->state & MY_CS_BINSORT) && charset->mbminlen == 1;
}

namespace {

constexpr size_t MAX_UNIT= 4;
constexpr uchar BAD_BYTE= 0xff;

enum class Recipe
{
  BY_LEVEL,
  ALL_LEVELS,
  BY_CODE
};

struct Level
{
  uint flags;
  size_t unit;
  uchar space[MAX_UNIT];
};

struct Collation
{
  CHARSET_INFO *charset;
  Recipe recipe;
  // Texts compare as if they were filled up with spaces.
  bool pad;
  std::vector<Level> levels;
  std::string version;
};

std::mutex collations_mutex;
// By number. Null: not usable.
std::map<uint, Collation *> collations;

// A text's weights for some levels, without padding, from the server.
void server_weights(CHARSET_INFO *charset, uint flags, const uchar *text, size_t length, std::string *out)
{
  // strnxfrm stops silently when the room is used up, so there must be some left.
  for (size_t room= 2 * length + 16;; room*= 2)
  {
    out->resize(room);
    uchar *to= reinterpret_cast<uchar *>(&(*out)[0]);
    size_t used= charset->coll->strnxfrm(charset, to, room, uint(room), text, length, flags);
    if (used + MAX_UNIT <= room)
    {
      out->resize(used);
      return;
    }
  }
}

// Weights by code: as long as the text, and a byte for each one that is part of no letter. What there is no
// room for is only counted.
size_t code_weights(CHARSET_INFO *charset, const uchar *text, size_t length, uchar *out, size_t capacity)
{
  const uchar *end= text + length;
  size_t used= 0;
  const auto put= [&](uchar byte) {
    if (used < capacity)
      out[used]= byte;
    used++;
  };
  while (text < end)
  {
    const int bytes= charset->cset->charlen(charset, text, end);
    if (bytes == 1)
      put(charset->sort_order[*text++]);
    else
    {
      // Letters of two bytes begin below BAD_BYTE.
      put(bytes == 2 ? *text++ : BAD_BYTE);
      put(*text++);
    }
  }
  return used;
}

// The weights of a text on one level, without padding.
void level_weights(const Collation &c, const Level &level, const uchar *text, size_t length, std::string *out)
{
  if (collation_is_bytewise(c.charset))
    out->assign(reinterpret_cast<const char *>(text), length);
  else if (c.recipe == Recipe::BY_CODE)
  {
    out->resize(2 * length);
    out->resize(code_weights(c.charset, text, length, reinterpret_cast<uchar *>(&(*out)[0]), out->size()));
  }
  else
    server_weights(c.charset, level.flags, text, length, out);
}

// Appends the weights, made self-delimiting.
void append_padded(const Level &level, const std::string &weights, std::string *out)
{
  const size_t unit= level.unit;
  const char *space= reinterpret_cast<const char *>(level.space);
  const char *at= weights.data();
  const char *end= at + weights.size() / unit * unit;
  while (end != at && !memcmp(end - unit, space, unit))
    end-= unit;
  char behind= 0;
  for (; at != end; at+= unit)
  {
    out->append(at, unit);
    if (memcmp(at, space, unit))
    {
      behind= 0;
      continue;
    }
    if (!behind)
    {
      const char *next= at;
      while (!memcmp(next, space, unit))
        next+= unit;
      behind= memcmp(next, space, unit) < 0 ? 1 : 3;
    }
    out->push_back(behind);
  }
  out->append(space, unit);
  out->push_back(2);
}

// The whole key of a text: what the engine will compare.
void complete_weights(const Collation &c, const uchar *text, size_t length, std::string *out)
{
  if (c.recipe == Recipe::ALL_LEVELS)
  {
    while (c.pad && length && text[length - 1] == ' ')
      length--;
    server_weights(c.charset, 0, text, length, out);
    return;
  }
  std::string weights;
  out->clear();
  for (const Level &level : c.levels)
  {
    level_weights(c, level, text, length, &weights);
    if (c.pad)
      append_padded(level, weights, out);
    else
    {
      out->append(weights);
      out->append(level.unit, '\0');
    }
  }
}

size_t weights_callback(void *context, const uint8_t *text, size_t length, uint8_t *out, size_t capacity)
{
  const Collation &c= *static_cast<const Collation *>(context);
  if (c.recipe == Recipe::BY_CODE)
    return code_weights(c.charset, text, length, out, capacity);
  if (c.levels.size() == 1)
  {
    size_t used= c.charset->coll->strnxfrm(c.charset, out, capacity, uint(capacity), text, length,
                                           c.levels[0].flags);
    return used + MAX_UNIT <= capacity ? used : 2 * capacity + MAX_UNIT;
  }
  std::string weights;
  complete_weights(c, text, length, &weights);
  if (weights.size() <= capacity)
    memcpy(out, weights.data(), weights.size());
  return weights.size();
}

size_t prefix_callback(void *context, const uint8_t *text, size_t length, size_t chars)
{
  const Collation &c= *static_cast<const Collation *>(context);
  return std::min(length, c.charset->charpos(text, text + length, chars));
}

// Text in the collation's charset; false if it has no such characters.
bool encode(CHARSET_INFO *charset, const std::u32string &text, std::string *out)
{
  out->clear();
  for (char32_t ch : text)
  {
    uchar buffer[MY_CS_MBMAXLEN];
    int length= charset->cset->wc_mb(charset, my_wc_t(ch), buffer, buffer + sizeof buffer);
    if (length <= 0)
      return false;
    out->append(reinterpret_cast<char *>(buffer), size_t(length));
  }
  return true;
}

// Whether the collation's recipe fits its charset.
bool find_levels(Collation *c)
{
  CHARSET_INFO *charset= c->charset;
  if (c->recipe == Recipe::BY_CODE)
  {
    if (charset->mbmaxlen != 2 || charset->mbminlen != 1 || !charset->sort_order)
      return false;
    c->levels.push_back(Level{0, 1, {charset->sort_order[' ']}});
    return true;
  }
  if (c->recipe == Recipe::ALL_LEVELS)
    return charset->mbmaxlen == 1 && charset->levels_for_order > 1;
  std::string space;
  if (!encode(charset, U" ", &space))
    return false;
  const uint levels= charset->levels_for_order > 1 ? charset->levels_for_order : 0;
  for (uint i= 0; i < MY_STRXFRM_NLEVELS; i++)
  {
    if (levels ? !(levels & (1U << i)) : i)
      continue;
    Level level{levels ? uint(MY_STRXFRM_LEVEL1) << i : 0U, 1, {' '}};
    if (!collation_is_bytewise(charset))
    {
      std::string weight;
      server_weights(charset, level.flags, reinterpret_cast<const uchar *>(space.data()), space.size(),
                     &weight);
      if (weight.empty() || weight.size() > MAX_UNIT)
        return false;
      level.unit= weight.size();
      memcpy(level.space, weight.data(), weight.size());
    }
    c->levels.push_back(level);
  }
  return true;
}

std::vector<std::string> sample(CHARSET_INFO *charset)
{
  // Case, accents, expansions (ß, æ), contractions (ch, ll, dž), dotted and dotless i, final sigma, kana of
  // both sizes and widths, a letter beyond the BMP, controls and punctuation below and above the space.
  static const char32_t *const letters[]= {
    U"a", U"A", U"b", U"z", U"0", U"9", U"\t", U"\x01", U"!", U"-", U"_", U"~", U"ä", U"Ä", U"à", U"å", U"ae", U"æ",
    U"ß", U"s", U"ss", U"c", U"ch", U"CH", U"h", U"l", U"ll", U"ł", U"dž", U"ñ", U"n", U"i", U"I", U"ı", U"İ", U"ö",
    U"o", U"ø", U"œ", U"ü", U"y", U"þ", U"σ", U"ς", U"Σ", U"ё", U"Ж", U"ж", U"か", U"が", U"カ", U"ｶ", U"っ", U"つ",
    U"一", U"中", U"ก", U"เก", U"א", U"ا", U"한", U"\u0301", U"\u00a0", U"\u3000", U"\U0001F600"};
  static const char32_t *const frames[][2]= {{U"", U""},   {U"", U" "},   {U"", U"  a"}, {U"a", U""},
                                             {U" ", U"b"}, {U"a ", U""}, {U"a ", U" "}};
  std::vector<std::string> texts{""};
  std::string text;
  for (auto frame : frames)
    for (auto letter : letters)
      if (encode(charset, std::u32string(frame[0]) + letter + frame[1], &text))
        texts.push_back(text);
  return texts;
}

int sign(int n)
{
  return (n > 0) - (n < 0);
}

// Every text of up to two bytes.
std::vector<std::string> short_texts()
{
  std::vector<std::string> texts{""};
  for (uint first= 0; first < 256; first++)
  {
    texts.push_back(std::string(1, char(first)));
    for (uint second= 0; second < 256; second++)
      texts.push_back({char(first), char(second)});
  }
  return texts;
}

struct Keyed
{
  std::string key, text;
};

std::vector<Keyed> with_keys(const Collation &c, const std::vector<std::string> &texts, ulonglong *hash)
{
  std::vector<Keyed> out;
  for (const std::string &text : texts)
  {
    out.push_back({"", text});
    std::string &key= out.back().key;
    complete_weights(c, reinterpret_cast<const uchar *>(text.data()), text.size(), &key);
    for (char byte : key)
      *hash= (*hash ^ uchar(byte)) * 0x100000001b3ULL;
  }
  return out;
}

bool same_order(CHARSET_INFO *charset, const Keyed &a, const Keyed &b)
{
  return sign(charset->strnncollsp(a.text.data(), a.text.size(), b.text.data(), b.text.size())) ==
         sign(a.key.compare(b.key));
}

// Compares the sample pairwise, and short texts with their neighbours; a hash of their weights is the
// version.
bool agrees_with_server(Collation *c)
{
  ulonglong hash= 0xcbf29ce484222325ULL;
  const std::vector<Keyed> texts= with_keys(*c, sample(c->charset), &hash);
  for (size_t i= 0; i < texts.size(); i++)
    for (size_t j= 0; j < i; j++)
      if (!same_order(c->charset, texts[i], texts[j]))
        return false;
  if (c->recipe != Recipe::BY_LEVEL)
  {
    std::vector<Keyed> all= with_keys(*c, short_texts(), &hash);
    std::sort(all.begin(), all.end(), [](const Keyed &a, const Keyed &b) { return a.key < b.key; });
    for (size_t i= 1; i < all.size(); i++)
      if (!same_order(c->charset, all[i - 1], all[i]))
        return false;
  }
  char digits[20];
  snprintf(digits, sizeof digits, "%016llx", hash);
  c->version= digits;
  return true;
}

// Null if the engine can't order texts as the server does.
Collation *examine(CHARSET_INFO *charset)
{
  for (Recipe recipe : {Recipe::BY_LEVEL, Recipe::ALL_LEVELS, Recipe::BY_CODE})
  {
    auto c= new Collation{charset, recipe, !(charset->state & MY_CS_NOPAD), {}, {}};
    if (find_levels(c) && agrees_with_server(c))
      return c;
    delete c;
  }
  return nullptr;
}

// The engine keeps pointers to what this returns until the database is closed.
Collation *known_collation(CHARSET_INFO *charset)
{
  std::lock_guard<std::mutex> guard(collations_mutex);
  auto known= collations.find(charset->number);
  if (known == collations.end())
    known= collations.emplace(charset->number, examine(charset)).first;
  return known->second;
}

}  // namespace

bool collation_usable(CHARSET_INFO *charset)
{
  return known_collation(charset);
}

// Never to be changed for a character set: entries of indexes are read by it.
static varve_letters letters_of(CHARSET_INFO *charset)
{
  if (charset->mbmaxlen == 1)
    return VARVE_LETTERS_BYTES;
  const char *name= charset->cs_name.str;
  return !strcmp(name, "utf8mb4") || !strcmp(name, "utf8mb3") ? VARVE_LETTERS_UTF8 : VARVE_LETTERS_UNKNOWN;
}

bool find_collation(void *, uint32_t id, varve_collation *out)
{
  CHARSET_INFO *charset= get_charset(id, MYF(0));
  Collation *c= charset ? known_collation(charset) : nullptr;
  if (!c)
    return false;
  out->name= charset->coll_name.str;
  out->version= c->version.c_str();
  out->bytewise= collation_is_bytewise(charset);
  out->letters= letters_of(charset);
  if (c->pad && c->levels.size() == 1)
  {
    out->pad_unit= uint8_t(c->levels[0].unit);
    memcpy(out->pad_weight, c->levels[0].space, sizeof out->pad_weight);
  }
  out->context= c;
  out->weights= weights_callback;
  out->prefix_bytes= prefix_callback;
  return true;
}

bool collation_reads_texts(CHARSET_INFO *charset)
{
  // The optimizer asks often. Relaxed: the answer is always the same.
  enum : uint8_t { NOT_ASKED, NO, YES };
  static std::atomic<uint8_t> known[MY_ALL_CHARSETS_SIZE];
  std::atomic<uint8_t> &answer= known[charset->number];
  uint8_t is= answer.load(std::memory_order_relaxed);
  if (is == NOT_ASKED)
  {
    if (!db)
      return false;
    is= varve_db_reads_texts(db, charset->number) ? YES : NO;
    answer.store(is, std::memory_order_relaxed);
  }
  return is == YES;
}

void forget_collations()
{
  std::lock_guard<std::mutex> guard(collations_mutex);
  for (auto &c : collations)
    delete c.second;
  collations.clear();
}

}  // namespace varve_plugin
