// progress.cc: how far a statement that takes long has come.
//
// The engine tells of phases, one after the other, and of the work done in each. A phase is a stage of the
// performance schema, with its work, under names as InnoDB's are; and a stage of SHOW PROCESSLIST.
//
// - **A rollback is no stage of the performance schema**: that has room for 160 of the server and all
//   engines, by default, which are in use. One more here costs InnoDB one of its own.
// - **Stages are counted once.** Where the server counts them (a copy's rows, LOAD DATA) it is in the last
//   one when the engine gets to work, whose progress is then the engine's.
// - The engine tells in the connection's own thread, as the server demands: it may write to the client.

#include "progress.h"

#include "session.h"

#include <algorithm>

namespace varve_plugin {

static PSI_stage_info alter_read= {0, "alter table (read PK and internal sort)", PSI_FLAG_STAGE_PROGRESS};
static PSI_stage_info alter_insert= {0, "alter table (insert)", PSI_FLAG_STAGE_PROGRESS};
static PSI_stage_info alter_log_apply= {0, "alter table (log apply)", PSI_FLAG_STAGE_PROGRESS};
static PSI_stage_info load_insert= {0, "load table (insert)", PSI_FLAG_STAGE_PROGRESS};
static PSI_stage_info check_pages= {0, "check table (pages)", PSI_FLAG_STAGE_PROGRESS};
static PSI_stage_info check_records= {0, "check table (records)", PSI_FLAG_STAGE_PROGRESS};
static PSI_stage_info analyze_sample= {0, "analyze table (sample)", PSI_FLAG_STAGE_PROGRESS};

void register_stages()
{
  static PSI_stage_info *all[]= {&alter_read,  &alter_insert,  &alter_log_apply, &load_insert,
                                 &check_pages, &check_records, &analyze_sample};
  mysql_stage_register("varve", all, int(std::size(all)));
}

static const PSI_stage_info *stage_of(varve_phase phase, Progress_report::Work work)
{
  switch (phase)
  {
  case VARVE_PHASE_READ:
    return &alter_read;
  case VARVE_PHASE_FILL:
    return work == Progress_report::LOADS ? &load_insert : &alter_insert;
  case VARVE_PHASE_CATCH_UP:
    return &alter_log_apply;
  case VARVE_PHASE_CHECK_PAGES:
    return &check_pages;
  case VARVE_PHASE_CHECK_RECORDS:
    return &check_records;
  case VARVE_PHASE_SAMPLE:
    return &analyze_sample;
  case VARVE_PHASE_ROLL_BACK:
    break;
  }
  return nullptr;
}

void tell_progress(void *session, varve_phase phase, uint64_t done, uint64_t estimated)
{
  if (Progress_report *report= static_cast<Session *>(session)->progress)
    report->show(phase, done, estimated);
}

Progress_report::Progress_report(THD *thd, Work work, uint stages)
  : m_thd(thd), m_work(work), m_stages(stages), m_is_own(!thd->progress.arena)
{
  if (Session *session= Session::known(thd))
  {
    m_outer= session->progress;
    session->progress= this;
  }
  if (m_is_own)
    thd_progress_init(thd, stages);
}

Progress_report::~Progress_report()
{
  if (Session *session= Session::known(m_thd))
    session->progress= m_outer;
  end_call();
  if (m_is_own)
    thd_progress_end(m_thd);
}

void Progress_report::end_call()
{
  if (m_is_in_stage)
    mysql_end_stage();
  m_is_in_stage= false;
}

// What others have changed is looked at in several rounds, which are one stage for who looks at the list.
void Progress_report::begin(varve_phase phase)
{
  const bool is_other= !m_begun || phase != m_phase;
  if (is_other && m_is_own && m_begun && m_begun < m_stages)
    thd_progress_next_stage(m_thd);
  m_begun+= is_other;
  m_phase= phase;
  const PSI_stage_info *stage= stage_of(phase, m_work);
  m_is_in_stage= stage;
  m_stage= stage ? mysql_set_stage(stage->m_key) : nullptr;
}

void Progress_report::show(varve_phase phase, uint64_t done, uint64_t estimated)
{
  if (!done)
    begin(phase);
  mysql_stage_set_work_estimated(m_stage, estimated);
  mysql_stage_set_work_completed(m_stage, done);
  // There is no stage without work for the server.
  const bool is_idle= !estimated;
  thd_progress_report(m_thd, is_idle ? 1 : done, is_idle ? 1 : estimated);
}

}  // namespace varve_plugin
