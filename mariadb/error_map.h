// error_map.h: what each engine error is to the server.

#ifndef VARVE_ERROR_MAP_H
#define VARVE_ERROR_MAP_H

#include "server.h"

namespace varve_plugin {

// The handler code of an engine code that is not VARVE_OK. A new engine code does not compile until it has
// its line.
constexpr int handler_code(varve_code code)
{
  switch (code)
  {
  case VARVE_OK:                 return 0;
  case VARVE_NO_ROW:             return HA_ERR_KEY_NOT_FOUND;
  case VARVE_CORRUPT:            return HA_ERR_CRASHED;
  case VARVE_IO:                 return HA_ERR_INTERNAL_ERROR;
  case VARVE_POISONED:           return HA_ERR_INTERNAL_ERROR;
  case VARVE_DUPLICATE_KEY:      return HA_ERR_FOUND_DUPP_KEY;
  case VARVE_LOCK_WAIT_TIMEOUT:  return HA_ERR_LOCK_WAIT_TIMEOUT;
  case VARVE_DEADLOCK:           return HA_ERR_LOCK_DEADLOCK;
  case VARVE_INTERRUPTED:        return HA_ERR_ABORTED_BY_USER;
  case VARVE_NOT_FOUND:          return HA_ERR_NO_SUCH_TABLE;
  case VARVE_ALREADY_EXISTS:     return HA_ERR_TABLE_EXIST;
  case VARVE_TOO_LARGE:          return HA_ERR_TO_BIG_ROW;
  case VARVE_NO_SPACE:           return HA_ERR_RECORD_FILE_FULL;
  case VARVE_INVALID:            return HA_ERR_GENERIC;
  case VARVE_UNSUPPORTED:        return HA_ERR_UNSUPPORTED;
  case VARVE_IN_USE:             return HA_ERR_GENERIC;
  case VARVE_DEFINITION_CHANGED: return HA_ERR_TABLE_DEF_CHANGED;
  case VARVE_LOCK_TABLE_FULL:    return HA_ERR_LOCK_TABLE_FULL;
  case VARVE_READ_ONLY:          return HA_ERR_TABLE_READONLY;
  case VARVE_UNCHANGED:          return HA_ERR_RECORD_IS_THE_SAME;
  case VARVE_NO_REFERENCED_ROW:  return HA_ERR_NO_REFERENCED_ROW;
  case VARVE_ROW_IS_REFERENCED:  return HA_ERR_ROW_IS_REFERENCED;
  case VARVE_CASCADE_TOO_DEEP:   return HA_ERR_FK_DEPTH_EXCEEDED;
  case VARVE_TABLE_IS_REFERENCED: return HA_ERR_ROW_IS_REFERENCED;
  case VARVE_BAD_FOREIGN_KEY:    return HA_ERR_CANNOT_ADD_FOREIGN;
  case VARVE_CONSTRAINT_EXISTS:  return HA_ERR_FOUND_DUPP_KEY;
  case VARVE_FOREIGN_DUPLICATE_KEY: return HA_ERR_FOREIGN_DUPLICATE_KEY;
  case VARVE_TOO_MANY_CHANGES:   return HA_ERR_GENERIC;
  case VARVE_NULL_VALUE:         return HA_ERR_GENERIC;
  case VARVE_DISCARDED:          return HA_ERR_TABLESPACE_MISSING;
  case VARVE_SCHEMA_MISMATCH:    return HA_ERR_GENERIC;
  case VARVE_NO_KEY:             return HA_ERR_DECRYPTION_FAILED;
  }
  return HA_ERR_INTERNAL_ERROR;
}

// The SQL error number under which the engine's own words reach the client, for the codes where they say more
// than the server's message; 0 for the others.
constexpr unsigned int own_words(varve_code code)
{
  switch (code)
  {
  case VARVE_CORRUPT:     return ER_NOT_KEYFILE;
  case VARVE_TOO_LARGE:   return ER_TOO_BIG_ROWSIZE;
  case VARVE_NO_SPACE:    return ER_RECORD_FILE_FULL;
  case VARVE_UNSUPPORTED: return ER_NOT_SUPPORTED_YET;
  case VARVE_READ_ONLY:   return ER_OPEN_AS_READONLY;
  case VARVE_TABLE_IS_REFERENCED: return ER_ROW_IS_REFERENCED_2;
  case VARVE_TOO_MANY_CHANGES: return ER_INNODB_ONLINE_LOG_TOO_BIG;
  case VARVE_CONSTRAINT_EXISTS: return ER_DUP_CONSTRAINT_NAME;
  case VARVE_NULL_VALUE: return WARN_DATA_TRUNCATED;
  case VARVE_SCHEMA_MISMATCH: return ER_TABLE_SCHEMA_MISMATCH;
  case VARVE_IO:
  case VARVE_POISONED:
  case VARVE_INVALID:
  case VARVE_IN_USE:
  case VARVE_NO_KEY:      return ER_GET_ERRMSG;
  default:                return 0;
  }
}

// Translates an engine error of the session `thd`. A deadlock and a full lock table also tell the server to
// roll the whole transaction back, a lock wait timeout to roll back the statement.
int to_handler_code(THD *thd, varve_code code);

// As above, outside a row operation (DDL, commit): the engine's words go to the client at once.
int report(THD *thd, varve_code code);

// Tells the client what the engine does not do, by name.
int refuse(const char *what);

}  // namespace varve_plugin

#endif
