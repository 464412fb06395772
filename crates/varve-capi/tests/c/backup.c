// backup.c: a backup of a database in use, and a database made of it.

#define _POSIX_C_SOURCE 200809L

#include "check.h"

#include <time.h>

static void rest(void)
{
  const struct timespec moment= {.tv_nsec= 1000000};
  nanosleep(&moment, NULL);
}

static varve_db *open_in(const char *dir)
{
  varve_options options;
  varve_options_default(&options);
  varve_db *db= NULL;
  OK(varve_db_open(dir, &options, &db));
  return db;
}

static varve_backup_progress wait_for(varve_backup *backup, varve_backup_state state)
{
  varve_backup_progress progress= {0};
  for (int n= 0; n < 10000; n++)
  {
    OK(varve_backup_progress_of(backup, &progress));
    if (progress.state == state)
      return progress;
    rest();
  }
  CHECK(!"the state did not come");
  return progress;
}

int main(int argc, char **argv)
{
  CHECK(argc == 2);
  char made[1000], to[1000];
  snprintf(made, sizeof made, "%s-made", argv[1]);
  snprintf(to, sizeof to, "%s-to", argv[1]);
  varve_db *db= open_in(argv[1]);
  const varve_backup_options options= {0};
  varve_backup *backup= NULL;
  OK(varve_backup_start(db, made, &options, &backup));
  wait_for(backup, VARVE_BACKUP_FOLLOWING);
  OK(varve_backup_end(backup));
  const varve_backup_progress done= wait_for(backup, VARVE_BACKUP_COMPLETE);
  CHECK(done.files > 3 && done.bytes && done.from_lsn && done.to_lsn >= done.from_lsn);
  CHECK(!done.damaged_pages && !done.lost_tablespaces);
  EXPECT(VARVE_INVALID, varve_backup_end(backup));
  varve_backup_free(backup);

  varve_backup_progress found= {0};
  OK(varve_backup_verify(made, &found));
  CHECK(found.files == done.files && found.to_lsn == done.to_lsn);
  EXPECT(VARVE_NOT_FOUND, varve_backup_verify(argv[1], &found));
  CHECK(strstr(varve_last_error(), "a backup in"));
  const char *dirs[]= {made, NULL};
  OK(varve_backup_restore(dirs, 1, to, &found));
  EXPECT(VARVE_INVALID, varve_backup_restore(dirs, 1, to, &found));
  EXPECT(VARVE_INVALID, varve_backup_restore(NULL, 0, to, &found));
  OK(varve_db_close(open_in(to)));

  // An increment on it, and what both are together.
  char increment[1000], merged[1000];
  snprintf(increment, sizeof increment, "%s-increment", argv[1]);
  snprintf(merged, sizeof merged, "%s-merged", argv[1]);
  const varve_backup_options on_made= {.base= made};
  OK(varve_backup_start(db, increment, &on_made, &backup));
  wait_for(backup, VARVE_BACKUP_FOLLOWING);
  OK(varve_backup_end(backup));
  CHECK(wait_for(backup, VARVE_BACKUP_COMPLETE).bytes < done.bytes);
  varve_backup_free(backup);
  dirs[1]= increment;
  OK(varve_backup_merge(dirs, 2, merged, &found));
  OK(varve_backup_verify(merged, &found));
  EXPECT(VARVE_INVALID, varve_backup_restore(&dirs[1], 1, merged, &found));
  CHECK(strstr(varve_last_error(), "which is an increment"));

  EXPECT(VARVE_INVALID, varve_backup_start(db, made, &options, &backup));
  CHECK(strstr(varve_last_error(), "not empty"));
  // One that is given up.
  snprintf(to, sizeof to, "%s-gone", argv[1]);
  OK(varve_backup_start(db, to, &options, &backup));
  varve_backup_free(backup);
  EXPECT(VARVE_NOT_FOUND, varve_backup_verify(to, &found));
  OK(varve_db_close(db));
  return 0;
}
