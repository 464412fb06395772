// tmpdir.h: where the engine sorts what does not fit into memory: varve_tmpdir, or the server's tmpdir.

#ifndef VARVE_TMPDIR_H
#define VARVE_TMPDIR_H

#include "server.h"

namespace varve_plugin {

// Refuses a value of varve_tmpdir as InnoDB refuses one of innodb_tmpdir, with its words.
int check_tmpdir(THD *thd, struct st_mysql_sys_var *variable, void *to, struct st_mysql_value *value);

// What this session is going to load or build is sorted there. Of several directories of the server's it is
// the next one's turn.
varve_code sort_in_tmpdir(THD *thd, const varve_txn *txn);

}  // namespace varve_plugin

#endif
