// tmpdir.cc: where the engine sorts what does not fit into memory.

#include "tmpdir.h"

#include "sysvars.h"

#include "mysqld.h"
#include "sql_acl.h"
#include "sql_parse.h"

namespace varve_plugin {

int check_tmpdir(THD *thd, struct st_mysql_sys_var *, void *to, struct st_mysql_value *value)
{
  const char **const checked= static_cast<const char **>(to);
  const auto refuse= [&](const char *why) {
    push_warning(thd, Sql_condition::WARN_LEVEL_WARN, ER_WRONG_ARGUMENTS, why);
    *checked= nullptr;
    return 1;
  };
  if (check_global_access(thd, FILE_ACL))
    return refuse("VARVE: FILE Permissions required");
  char buffer[FN_REFLEN + 1], path[FN_REFLEN + 2];
  int length= sizeof(buffer);
  const char *const given= value->val_str(value, buffer, &length);
  if (!given)
  {
    *checked= nullptr;
    return 0;
  }
  if (strlen(given) > FN_REFLEN)
  {
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_WRONG_ARGUMENTS,
                        "Path length should not exceed %d bytes", FN_REFLEN);
    *checked= nullptr;
    return 1;
  }
  my_realpath(path, given, 0);
  MY_STAT found;
  if (my_access(path, F_OK))
    return refuse("VARVE: Path doesn't exist.");
  if (my_access(path, R_OK | W_OK))
    return refuse("VARVE: Server doesn't have permission in the given location.");
  if (my_stat(path, &found, MYF(0)) && !S_ISDIR(found.st_mode))
    return refuse("Given path is not a directory. ");
  if (test_if_data_home_dir(path))
    return refuse("VARVE: Path Location should not be same as mysql data directory location.");
  *checked= static_cast<const char *>(thd_memdup(thd, path, strlen(path) + 1));
  return 0;
}

varve_code sort_in_tmpdir(THD *thd, const varve_txn *txn)
{
  const char *const own= tmpdir_variable(thd);
  return varve_txn_set_sort_directory(txn, own && *own ? own : my_tmpdir(&mysql_tmpdir_list));
}

}  // namespace varve_plugin
