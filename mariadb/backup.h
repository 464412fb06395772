// backup.h: backups of the database beside those of the server.

#ifndef VARVE_BACKUP_H
#define VARVE_BACKUP_H

#include "engine.h"

#include <string>

namespace varve_plugin {

// What BACKUP STAGE START and BACKUP STAGE END call.
void install_backup_calls(handlerton *hton);

// A backup that is being made ends, and nothing of it is left; before the database is closed.
void stop_backup();

enum Backup_variable
{
  BACKUP_BASE, BACKUP_DIRECTORY,
  BACKUP_MAX_REDO,
  BACKUP_RATE,
  BACKUP_THREADS
};
st_mysql_sys_var *backup_variable(Backup_variable variable);

// For the status variables Varve_backup_*.
struct Backup_status
{
  std::string state;
  std::string message;  // why it has failed, or where it is
  ulonglong number;       // of those since the start of the server
  ulonglong server_ends;  // of backups of the server since it was begun
  varve_backup_progress progress;
};
Backup_status backup_status();

}  // namespace varve_plugin

#endif
