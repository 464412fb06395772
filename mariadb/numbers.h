// numbers.h: values of an AUTO_INCREMENT column that a table gets.

#ifndef VARVE_NUMBERS_H
#define VARVE_NUMBERS_H

#include "server.h"

namespace varve_plugin {

// Gives each row of a table a value of a column that is new, by auto_increment_increment and
// auto_increment_offset, as InnoDB's ALTER TABLE in place does.
class Numbers
{
public:
  // The column is this one. `least` is what AUTO_INCREMENT = n says; 0 if nothing does.
  void begin(const THD *thd, const Field *column, ulonglong least);
  // The column gets the next row's value in the record buffer. False: there is none, and the client was told.
  bool give(Field *column);
  // What follows the last one.
  ulonglong next() const { return m_next; }

private:
  ulonglong m_next= 1, m_greatest= 0, m_step= 1, m_offset= 1;
  bool m_are_used_up= false;
};

}  // namespace varve_plugin

#endif
