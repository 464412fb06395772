// progress.h: how far a statement that takes long has come, in SHOW PROCESSLIST and the performance schema.

#ifndef VARVE_PROGRESS_H
#define VARVE_PROGRESS_H

#include "server.h"

namespace varve_plugin {

// Stages of the performance schema, for a plugin that is being loaded.
void register_stages();

// What the engine calls, with the session.
void tell_progress(void *session, varve_phase phase, uint64_t done, uint64_t estimated);

// While it is there, the connection's statement shows how far the engine has come: in the last stage that the
// server has begun, if the server counts stages itself (a copy, LOAD DATA), else in so many of its own.
class Progress_report
{
public:
  // What the statement does, where the phases of the engine do not say it.
  enum Work { ALTERS, LOADS, OTHER };

  Progress_report(THD *thd, Work work, uint stages);
  ~Progress_report();
  Progress_report(const Progress_report &)= delete;
  Progress_report &operator=(const Progress_report &)= delete;

  void show(varve_phase phase, uint64_t done, uint64_t estimated);

  // A call of the engine has ended: the performance schema's stage ends. SHOW PROCESSLIST goes on saying how
  // far the statement has come.
  void end_call();

private:
  void begin(varve_phase phase);

  THD *const m_thd;
  const Work m_work;
  // Of the statement that this is part of: one that alters a table may roll back.
  Progress_report *m_outer= nullptr;
  const uint m_stages;
  // The server does not count stages.
  const bool m_is_own;
  // How many stages have begun.
  uint m_begun= 0;
  varve_phase m_phase{};
  bool m_is_in_stage= false;
  // Null while the performance schema takes no notice.
  PSI_stage_progress *m_stage= nullptr;
};

}  // namespace varve_plugin

#endif
