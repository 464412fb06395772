// backup.cc: backups of the database beside those of the server.
//
// SET GLOBAL varve_backup_directory begins one: a thread copies all pages, and then the redo log as it is
// written. It goes on until a session that has come to BACKUP STAGE BLOCK_COMMIT ends its stages: while all
// commits wait, the binary log's position is that of the server's backup, and the moment that of this one.
// mariadb-backup goes through all stages in one session of its own, and anybody may do so by hand.
//
// The server's calls can't fail. What goes wrong is in the error log and in Varve_backup_message.

#include "backup.h"

#include "sysvars.h"

#include "mdl.h"
#include "sql_class.h"

#include <mutex>

namespace varve_plugin {

namespace {

char *directory_value;
unsigned int threads_value;
unsigned long long max_redo_value, rate_value;

// All that follows. The engine's calls return at once, but for the end of a backup, which waits for a sync
// of the log.
std::mutex mutex;
varve_backup *running;
std::string directory;

varve_backup_progress progress_of(const varve_backup *backup)
{
  varve_backup_progress progress= {};
  varve_backup_progress_of(backup, &progress);
  return progress;
}

// The thread that makes it has something to do.
bool is_under_way()
{
  return running && progress_of(running).state < VARVE_BACKUP_COMPLETE;
}

void forget()
{
  if (running)
    varve_backup_free(running);
  running= nullptr;
  directory.clear();
}

// BACKUP STAGE START.
void note_begin()
{
  const std::lock_guard<std::mutex> alone(mutex);
  if (!is_under_way())
    sql_print_warning("VARVE: a backup of the server begins that has no rows of VARVE tables: SET GLOBAL varve_backup_directory first");
}

// The session has come to BACKUP STAGE BLOCK_COMMIT: it keeps all commits away.
bool are_commits_blocked()
{
  THD *const thd= current_thd;
  return thd && thd->mdl_context.is_lock_owner(MDL_key::BACKUP, "", "", MDL_BACKUP_WAIT_COMMIT);
}

// BACKUP STAGE END, or the session is ending, at whatever stage it is. Its lock is still there.
void note_end()
{
  const std::lock_guard<std::mutex> alone(mutex);
  if (!is_under_way() || progress_of(running).state > VARVE_BACKUP_FOLLOWING)
    return;
  if (!are_commits_blocked())
  {
    sql_print_warning("VARVE: the backup in %s goes on: the stages of the server's backup have ended before BLOCK_COMMIT", directory.c_str());
    return;
  }
  if (varve_backup_end(running))
    sql_print_error("VARVE: the backup in %s is not of the moment of the server's backup: %s", directory.c_str(), varve_last_error());
}

// The value begins a backup, or gives one up; what can't be is refused before the server stores it.
int check_directory(THD *thd, struct st_mysql_sys_var *, void *to, struct st_mysql_value *value)
{
  char buffer[FN_REFLEN];
  int length= sizeof buffer;
  const char *const name= value->val_str(value, buffer, &length);
  const std::lock_guard<std::mutex> alone(mutex);
  if (name && *name)
  {
    if (is_under_way())
    {
      my_printf_error(ER_WRONG_VALUE_FOR_VAR,
                      "varve_backup_directory: a backup is being made in %s; wait for it, or set the variable to '' to give it up", MYF(0),
                      directory.c_str());
      return 1;
    }
    forget();
    const varve_backup_options options= {threads_value, max_redo_value, rate_value, false};
    if (varve_backup_start(db, name, &options, &running))
    {
      my_printf_error(ER_WRONG_VALUE_FOR_VAR, "varve_backup_directory: %s", MYF(0), varve_last_error());
      return 1;
    }
    directory= name;
  }
  else
    forget();
  *static_cast<const char **>(to)= name == buffer ? thd_strmake(thd, name, size_t(length)) : name;
  return 0;
}

MYSQL_SYSVAR_STR(backup_directory, directory_value, PLUGIN_VAR_NOCMDOPT | PLUGIN_VAR_MEMALLOC,
  "SET GLOBAL varve_backup_directory = '/a/new/directory' begins a backup there, which ends with BACKUP STAGE END. '' gives it up.",
  check_directory, nullptr, nullptr);
MYSQL_SYSVAR_ULONGLONG(backup_max_redo, max_redo_value, PLUGIN_VAR_RQCMDARG,
  "A backup that keeps more bytes of redo than this in the database's log fails.",
  nullptr, nullptr, 8ULL << 30, 64ULL << 20, 1ULL << 50, 0);
MYSQL_SYSVAR_ULONGLONG(backup_rate, rate_value, PLUGIN_VAR_RQCMDARG,
  "A backup copies no more bytes of tablespaces a second. 0: as many as it can.",
  nullptr, nullptr, 0, 0, 1ULL << 50, 0);
MYSQL_SYSVAR_UINT(backup_threads, threads_value, PLUGIN_VAR_RQCMDARG,
  "Threads that make a backup.", nullptr, nullptr, 2, 1, 64, 0);

}  // namespace

void install_backup_calls(handlerton *hton)
{
  hton->prepare_for_backup= note_begin;
  hton->end_backup= note_end;
}

void stop_backup()
{
  const std::lock_guard<std::mutex> alone(mutex);
  forget();
}

st_mysql_sys_var *backup_variable(Backup_variable variable)
{
  st_mysql_sys_var *const variables[]= {MYSQL_SYSVAR(backup_directory), MYSQL_SYSVAR(backup_max_redo),
                                        MYSQL_SYSVAR(backup_rate), MYSQL_SYSVAR(backup_threads)};
  return variables[variable];
}

Backup_status backup_status()
{
  static const char *const names[]= {"copying", "following", "ending", "complete", "failed"};
  const std::lock_guard<std::mutex> alone(mutex);
  if (!running)
    return {"none", "", {}};
  varve_backup_progress progress= {};
  const bool has_failed= varve_backup_progress_of(running, &progress);
  return {names[progress.state], has_failed ? varve_last_error() : directory, progress};
}

}  // namespace varve_plugin
