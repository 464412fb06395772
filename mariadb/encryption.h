// encryption.h: system variables about encryption, and the keys that the server has.

#ifndef VARVE_ENCRYPTION_H
#define VARVE_ENCRYPTION_H

#include "server.h"

#include "engine.h"

namespace varve_plugin {

enum Encryption_variable
{
  ENCRYPT_LOG,
  ENCRYPT_TABLES,
  ENCRYPT_TEMPORARY_TABLES,
  ENCRYPTION_ROTATE_KEY_AGE,
  ENCRYPTION_ROTATION_IOPS,
  ENCRYPTION_THREADS
};
st_mysql_sys_var *encryption_variable(Encryption_variable variable);

// What the variables say, and where keys come from: the server's plugin for key management.
void choose_encryption(varve_options *options);

bool encrypts_tables();
// Tables must not say that they are not encrypted.
bool forces_encryption();

}  // namespace varve_plugin

#endif
