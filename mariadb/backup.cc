// backup.cc: backups of the database beside those of the server.
//
// SET GLOBAL varve_backup_directory begins one: a thread copies all pages, and then the redo log as it is
// written. It goes on until a session that has come to BACKUP STAGE BLOCK_COMMIT ends its stages: while all
// commits wait, the binary log's position is that of the server's backup, and the moment that of this one.
// mariadb-backup goes through all stages in one session of its own, and anybody may do so by hand.
//
// The server's calls can't fail. What goes wrong is in the error log and in Varve_backup_message.
//
// The mutex is not held while the engine ends a backup or gives one up, which may take a while: a backup
// goes when the last one who uses it lets it go.

#include "backup.h"

#include "sysvars.h"

#include "mdl.h"
#include "sql_class.h"

#include <memory>
#include <mutex>

namespace varve_plugin {

namespace {

char *directory_value;
unsigned int threads_value;
unsigned long long max_redo_value, rate_value;

struct Free_backup
{
  void operator()(varve_backup *backup) const { varve_backup_free(backup); }
};

// One that was begun.
struct Begun
{
  std::shared_ptr<varve_backup> backup;
  std::string directory;
  ulonglong number= 0;      // of those since the start of the server, from 1 on
  ulonglong server_ends= 0;  // ends of the server's stages that have come to BLOCK_COMMIT, since it could end
};

std::mutex mutex;
Begun begun;

varve_backup_progress progress_of(const varve_backup *backup)
{
  varve_backup_progress progress= {};
  varve_backup_progress_of(backup, &progress);
  return progress;
}

// The thread that makes it has something to do.
bool is_under_way(const Begun &one)
{
  return one.backup && progress_of(one.backup.get()).state < VARVE_BACKUP_COMPLETE;
}

// Takes it away, for the caller to let it go without the mutex.
std::shared_ptr<varve_backup> take()
{
  const std::lock_guard<std::mutex> alone(mutex);
  begun.directory.clear();
  return std::move(begun.backup);
}

// BACKUP STAGE START.
void note_begin()
{
  const std::lock_guard<std::mutex> alone(mutex);
  if (!begun.backup || progress_of(begun.backup.get()).state > VARVE_BACKUP_FOLLOWING)
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
  const bool is_moment= are_commits_blocked();
  std::shared_ptr<varve_backup> backup;
  std::string directory;
  {
    const std::lock_guard<std::mutex> alone(mutex);
    backup= begun.backup;
    directory= begun.directory;
    // One that still copies pages can't end with the server's, and may with a later one.
    if (is_moment && backup && progress_of(backup.get()).state >= VARVE_BACKUP_FOLLOWING)
      begun.server_ends++;
  }
  if (!backup || progress_of(backup.get()).state > VARVE_BACKUP_FOLLOWING)
    return;
  if (!is_moment)
  {
    sql_print_warning("VARVE: the backup in %s goes on: the stages of the server's backup have ended before BLOCK_COMMIT", directory.c_str());
    return;
  }
  if (varve_backup_end(backup.get()))
    sql_print_error("VARVE: the backup in %s is not of the moment of the server's backup: %s", directory.c_str(), varve_last_error());
}

// Of a session: who begins a backup says what it goes with, and nobody else gets an increment.
MYSQL_THDVAR_STR(backup_base, PLUGIN_VAR_NOCMDOPT | PLUGIN_VAR_MEMALLOC,
  "The directory of an older backup: one that this session begins is an increment on it. '': it is a whole one.",
  nullptr, nullptr, nullptr);

// A value begins a backup; what can't be is refused before the server stores it.
int check_directory(THD *thd, struct st_mysql_sys_var *, void *to, struct st_mysql_value *value)
{
  char buffer[FN_REFLEN];
  int length= sizeof buffer;
  const char *const name= value->val_str(value, buffer, &length);
  std::shared_ptr<varve_backup> before;  // goes without the mutex
  if (name && *name)
  {
    const std::lock_guard<std::mutex> alone(mutex);
    if (is_under_way(begun))
    {
      my_printf_error(ER_WRONG_VALUE_FOR_VAR,
                      "varve_backup_directory: a backup is being made in %s; wait for it, or set the variable to '' to give it up", MYF(0),
                      begun.directory.c_str());
      return 1;
    }
    const char *const base= THDVAR(thd, backup_base);
    const char *const on= base && *base ? base : nullptr;
    const varve_backup_options options= {threads_value, max_redo_value, rate_value, false, on};
    varve_backup *backup= nullptr;
    if (varve_backup_start(db, name, &options, &backup))
    {
      my_printf_error(ER_WRONG_VALUE_FOR_VAR, "varve_backup_directory: %s", MYF(0), varve_last_error());
      return 1;
    }
    before= std::move(begun.backup);
    begun= {std::shared_ptr<varve_backup>(backup, Free_backup()), name, begun.number + 1, 0};
  }
  *static_cast<const char **>(to)= name == buffer ? thd_strmake(thd, name, size_t(length)) : name;
  return 0;
}

// No value gives a backup up; nor has the default one.
void update_directory(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  const char *const name= *static_cast<const char *const *>(from);
  char **const stored= static_cast<char **>(to);
  my_free(*stored);
  *stored= name ? my_strdup(PSI_NOT_INSTRUMENTED, name, MYF(0)) : nullptr;
  if (!name || !*name)
    take();
}

MYSQL_SYSVAR_STR(backup_directory, directory_value, PLUGIN_VAR_NOCMDOPT | PLUGIN_VAR_MEMALLOC,
  "SET GLOBAL varve_backup_directory = '/a/new/directory' begins a backup there, which ends with BACKUP STAGE END. '' gives it up.",
  check_directory, update_directory, nullptr);
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
  take();
}

st_mysql_sys_var *backup_variable(Backup_variable variable)
{
  st_mysql_sys_var *const variables[]= {MYSQL_SYSVAR(backup_base), MYSQL_SYSVAR(backup_directory),
                                        MYSQL_SYSVAR(backup_max_redo), MYSQL_SYSVAR(backup_rate),
                                        MYSQL_SYSVAR(backup_threads)};
  return variables[variable];
}

Backup_status backup_status()
{
  static const char *const names[]= {"copying", "following", "ending", "complete", "failed"};
  Begun now;
  {
    const std::lock_guard<std::mutex> alone(mutex);
    now= begun;
  }
  if (!now.backup)
    return {"none", "", now.number, now.server_ends, {}};
  varve_backup_progress progress= {};
  const bool has_failed= varve_backup_progress_of(now.backup.get(), &progress);
  const std::string message= has_failed ? varve_last_error() : now.directory;
  return {names[progress.state], message, now.number, now.server_ends, progress};
}

}  // namespace varve_plugin
