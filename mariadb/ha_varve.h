// ha_varve.h: one open VARVE table of one connection.
//
// handler.cc opens, reads and writes; pushdown.cc does what the optimizer hands down; ddl.cc creates, drops,
// renames and truncates; alter.cc changes definitions in place; bulk.cc inserts many rows, load.cc fills
// copies of tables; import.cc exports and imports files; foreign.cc tells of foreign keys, derived.cc
// computes columns for them; sequence.cc keeps sequences out of transactions; kept_results.cc is about the
// query cache; admin.cc answers about the table.

#ifndef HA_VARVE_H
#define HA_VARVE_H

#include "server.h"

#include "columns.h"
#include "foreign.h"
#include "session.h"
#include "statistics.h"

#include <deque>
#include <string>
#include <vector>

class ha_varve final : public handler
{
public:
  ha_varve(handlerton *hton, TABLE_SHARE *share);

  // What the engine can do.
  Table_flags table_flags() const override;
  ulong index_flags(uint index, uint part, bool all_parts) const override;
  const char *index_type(uint) override { return "BTREE"; }
  // There is only one, and it has room for long values outside of the row.
  enum row_type get_row_type() const override
  {
    return table_share->row_type == ROW_TYPE_COMPRESSED ? ROW_TYPE_COMPRESSED : ROW_TYPE_DYNAMIC;
  }
  uint max_supported_keys() const override { return MAX_KEY; }
  uint max_supported_key_parts() const override { return MAX_REF_PARTS; }
  uint max_supported_key_length() const override { return 3072; }
  uint max_supported_key_part_length() const override { return 3072; }
  uint max_supported_record_length() const override { return HA_MAX_REC_LENGTH; }
  uint8 table_cache_type() override { return HA_CACHE_TBL_ASKTRANSACT; }
  my_bool register_query_cache_table(THD *thd, const char *path, uint length, qc_engine_callback *callback,
                                     ulonglong *engine_data) override;

  // Opening and closing.
  int open(const char *name, int mode, uint test_if_locked) override;
  int close() override;
  handler *clone(const char *name, MEM_ROOT *mem_root) override;

  // Statements. Rows are locked by the engine, tables by metadata locks: there are no table locks to hand
  // out.
  uint lock_count() const override { return 0; }
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type type) override;
  int external_lock(THD *thd, int type) override;
  int start_stmt(THD *thd, thr_lock_type type) override;
  // HANDLER reads as a plain SELECT does. Its store_lock was that of HANDLER ... OPEN.
  void init_table_handle_for_HANDLER() override { m_lock= VARVE_NO_LOCK; }
  int reset() override;
  int extra(enum ha_extra_function operation) override;

  // Reading.
  int index_init(uint index, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *buf, const uchar *key, key_part_map parts, enum ha_rkey_function find) override;
  int index_read_last_map(uchar *buf, const uchar *key, key_part_map parts) override;
  int index_next(uchar *buf) override;
  int index_next_same(uchar *buf, const uchar *key, uint key_length) override;
  int index_prev(uchar *buf) override;
  int index_first(uchar *buf) override;
  int index_last(uchar *buf) override;
  int read_range_first(const key_range *start, const key_range *end, bool is_equal, bool sorted) override;
  int read_range_next() override;
  int prepare_range_scan(const key_range *begin, const key_range *end) override;
  int rnd_init(bool scan) override;
  int rnd_end() override;
  int rnd_next(uchar *buf) override;
  int rnd_pos(uchar *buf, uchar *position) override;
  void position(const uchar *record) override;
  void unlock_row() override;
  void try_semi_consistent_read(bool yes) override;
  bool was_semi_consistent_read() override;

  // What the optimizer hands down: conditions on an index's columns, sets of positions, and many ranges at
  // once.
  Item *idx_cond_push(uint index, Item *condition) override;
  bool rowid_filter_push(Rowid_filter *filter) override;
  int multi_range_read_init(RANGE_SEQ_IF *seq, void *param, uint n_ranges, uint mode,
                            HANDLER_BUFFER *buffer) override;
  int multi_range_read_next(range_id_t *range) override;
  ha_rows multi_range_read_info_const(uint index, RANGE_SEQ_IF *seq, void *param, uint n_ranges,
                                      uint *buffer_size,
                                      uint *flags, Cost_estimate *cost) override;
  ha_rows multi_range_read_info(uint index, uint n_ranges, uint keys, uint key_parts, uint *buffer_size,
                                uint *flags,
                                Cost_estimate *cost) override;
  int multi_range_read_explain_info(uint mode, char *text, size_t size) override;

  // Writing.
  void start_bulk_insert(ha_rows rows, uint flags) override;
  int end_bulk_insert() override;
  int write_row(const uchar *record) override;
  int update_row(const uchar *old_record, const uchar *new_record) override;
  int delete_row(const uchar *record) override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                          ulonglong *reserved) override;

  // DDL.
  int create(const char *name, TABLE *form, HA_CREATE_INFO *info) override;
  int delete_table(const char *name) override;
  int rename_table(const char *from, const char *to) override;
  int truncate() override;
  int discard_or_import_tablespace(my_bool discard) override;
  void update_create_info(HA_CREATE_INFO *info) override;
  Compare_keys compare_key_parts(const Field &from, const Column_definition &to,
                                 const KEY_PART_INFO &old_part,
                                 const KEY_PART_INFO &new_part) const override;
  bool can_convert_nocopy(const Field &field, const Column_definition &to) const override;
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered,
                                                             Alter_inplace_info *alter) override;
  bool prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *alter) override;
  bool inplace_alter_table(TABLE *altered, Alter_inplace_info *alter) override;
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *alter, bool commit) override;
  ulonglong table_version() const override;
  bool check_if_incompatible_data(HA_CREATE_INFO *info, uint table_changes) override;

  // Answers about the table.
  int info(uint flags) override;
  ha_rows records_in_range(uint index, const key_range *low, const key_range *high,
                           page_range *pages) override;
  double scan_time() override;
  double read_time(uint index, uint ranges, ha_rows rows) override;
  int check(THD *thd, HA_CHECK_OPT *options) override;
  int analyze(THD *thd, HA_CHECK_OPT *options) override;
  int optimize(THD *thd, HA_CHECK_OPT *options) override;
  void print_error(int error, myf flags) override;
  bool get_error_message(int error, String *text) override;

  // Foreign keys.
  int get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *keys) override;
  int get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *keys) override;
  bool referenced_by_foreign_key() const noexcept override;
  bool can_switch_engines() override;
  char *get_foreign_key_create_info() override;
  void free_foreign_key_create_info(char *text) override;
  bool get_foreign_dup_key(char *child, uint child_size, char *index, uint index_size) override;
  bool compute(const varve_value *row, const uint32_t *columns, uint32_t n, varve_value *out);

private:
  struct Index;

  // What a session that is about to write a row would show if the row were refused.
  struct Kept_state
  {
    explicit Kept_state(const THD *thd);
    void restore(THD *thd) const;

    ulong row;            // its number in the statement
    uint conditions;      // in the diagnostics area, at most max_error_count
    ulong warnings;       // all that have been counted
    ulonglong insert_id;  // of the first row that got a value of the counter; 0 if none did
  };

  int begin(THD *thd);
  int begin_own(THD *thd);
  int end_own(varve_code written);
  void leave_own();
  int begin_unannounced();
  void leave_unannounced();
  void close_own();
  int written(varve_code code);
  int heed_copy(enum ha_extra_function operation);
  void begin_copy();
  int begin_load();
  int load_row(const uchar *record);
  int load_values(const varve_value *values);
  int finish_load();
  void abandon_statements_load();
  static void keep_duplicate(void *handler, const char *index, const varve_value *row);
  int end_copy();
  void abort_copy();
  bool can_keep_rows(THD *thd) const;
  int keep_row(const uchar *record);
  void keep_blobs(uchar *record);
  bool begin_statements_load();
  bool only_primary_is_unique() const;
  void load_in_order();
  bool load_next(const uchar *record, int *error);
  int load_kept_rows();
  int insert_kept_rows();
  void forget_kept_rows();
  void count_refused();
  void count_written(const uchar *record);
  bool keeps_foreign_keys_served(const TABLE *altered, const Alter_inplace_info *alter);
  bool can_become(TABLE *altered, const Alter_inplace_info *alter,
                  bool (*can)(const varve_table *, const varve_table_def *));
  bool is_rebuild(TABLE *altered, const Alter_inplace_info *alter);
  class Alteration;
  int prepare_redefinition(TABLE *altered, Alter_inplace_info *alter, Alteration *own);
  int add_foreign_keys(TABLE *altered, Alter_inplace_info *alter, Alteration *own);
  static int not_redefined(THD *thd, const Alteration *own, varve_code code);
  int redefine(TABLE *altered, Alter_inplace_info *alter);
  int open_table();
  int open_discarded();
  int begin_discarded(THD *thd);
  int begin_export(THD *thd);
  void end_export();
  int discard_tablespace();
  int import_tablespace();
  void forget_discarded();
  int truncate_discarded();
  bool refuses_alter();
  void close_table();
  uint engine_index(uint index) const;
  uint server_index(uint engine_index) const;
  int open_index(uint engine_index);
  int use_index(uint engine_index);
  bool keys_give_all(const Index &index);
  bool checks_hash(enum ha_rkey_function find) const;
  int start_search();
  int set_limit(decltype(varve_cursor_set_end) *set, const key_range *limit, bool inclusive);
  void ask_about_entries(Index &index, bool asks);
  static varve_verdict ask_about_entry(void *handler, const varve_value *row, const uint8_t *position,
                                       uint32_t length);
  bool fits_index_condition(const varve_value *row);
  void set_position(const uint8_t *at, uint length);
  int fetch_whole(uchar *buf);
  const MY_BITMAP *wanted_columns() const;
  void release_values();
  int fetched(varve_code code, uchar *buf, int none);
  int give(uchar *buf);
  int next(decltype(varve_cursor_next_rows) *rows, decltype(varve_cursor_next) *row, uchar *buf);
  int settle();
  // Where a search or a move that found no row has left HANDLER (turning.cc).
  enum Place { AT_ROW, BEFORE_FIRST, BEHIND_KEY, AFTER_LAST };
  int moved_beyond(Place place, int error);
  int missed(const uchar *key, key_part_map parts, ha_rkey_function find, int error);
  int no_more(const uchar *key, uint length, int error);
  void stand_behind(const uchar *key, uint length);
  int next_from_place(uchar *buf);
  int prev_from_place(uchar *buf);
  int from_missed_key(uchar *buf, ha_rkey_function find);
  varve_lock scan_lock() const;
  void forget_ahead() { m_ahead= m_passed= 0; }
  int failed(varve_code code);
  void refresh_estimates();
  void fetch_estimates();
  void note_changes();
  // What the query cache is told of a statement: it writes rows, or also changes or deletes some, which may
  // have children.
  enum class Told { NOTHING, NEW_ROWS, CHANGED_ROWS };
  void tell_of_change(Told what);
  void alter_statistics(const TABLE *altered, const Alter_inplace_info *alter, bool is_rebuilt);

  // Engine name of the table, and the table; null while it is closed, or if TRUNCATE could not open it again.
  std::string m_name;
  varve_table *m_table;
  varve_plugin::Kept_keys m_own_keys, m_child_keys;
  // It was opened while it had no rows (import.cc); or, to be discarded or imported, while it could not be
  // used.
  bool m_is_discarded= false, m_is_unusable= false;
  // Keeps its file as it is until UNLOCK TABLES.
  varve_export *m_export= nullptr;
  // What all handlers of the table know of its statistics; null for a temporary table. Rows that this one has
  // written in the statement.
  varve_plugin::Statistics_share *m_statistics= nullptr;
  ulonglong m_changes= 0;
  // For the query cache (kept_results.h): the table's changes, from the first use on, and what they were told
  // of in the statement.
  varve_plugin::Changes *m_table_changes= nullptr;
  Told m_told= Told::NOTHING;
  // What the server was told of a data directory.
  std::string m_data_file;

  varve_plugin::Row_plan m_row_plan;
  std::vector<varve_plugin::Key_plan> m_key_plans;  // by the server's index numbers
  std::vector<varve_value> m_values;                // of a row on its way to the engine

  // An index with its cursor, which is opened when first used and kept until the table is closed.
  struct Index
  {
    varve_cursor *cursor= nullptr;
    // The fields whose values the index's keys have, and the others that are in the index or the primary key.
    MY_BITMAP covered;
    MY_BITMAP uncovered;
    // What the cursor was told: nothing but the covered fields is wanted; where searches end; whom to ask
    // about entries.
    bool keys_suffice= false;
    bool has_begin= false;
    bool has_end= false;
    bool has_filter= false;
    // It gives all covered fields, though the server's read_set has others.
    bool gives_covered= false;
    varve_plugin::Wanted_columns wanted;
    // What a condition on the index looks at.
    varve_plugin::Wanted_columns asked;
  };
  std::vector<Index> m_indexes;  // by the engine's index numbers
  // The one that is being searched; null for rnd_pos.
  Index *m_index;
  // Where the range that is about to be searched begins, if it is searched backward, and ends; null if
  // nowhere. The server's, gone when the search has started.
  const key_range *m_range_begin;
  const key_range *m_range_end;
  // For rnd_pos, so that it can't disturb a scan.
  varve_cursor *m_position_cursor;
  varve_plugin::Wanted_columns m_position_wanted;
  // The one that read last: update_row, delete_row, position and unlock_row are about its row.
  varve_cursor *m_current;
  // The row that the server was given last.
  const varve_value *m_row;
  // The cursor gives several rows at once, by one of two calls. So many more of them stand behind m_row, and
  // so many between the cursor's own place and it.
  bool m_reads_ahead;
  decltype(varve_cursor_next_rows) *m_ahead_by;
  uint32_t m_ahead;
  uint32_t m_passed;

  Place m_place= AT_ROW;
  std::vector<uchar> m_missed_key;  // if that is BEHIND_KEY

  // The server's way of reading many ranges, on top of the calls above.
  DsMrr_impl m_mrr;

  // The connection's transaction, or the handler's own, which that of a sequence has.
  const varve_txn *m_txn;
  varve_txn *m_own_txn;
  // The handler's own has begun without a word from the server.
  bool m_unannounced= false;
  // How this statement's reads lock, and what store_lock decided on for all statements of a LOCK TABLES.
  varve_lock m_lock;
  varve_lock m_stored_lock;
  // The statement says SKIP LOCKED of this table.
  bool m_skip_locked;
  // How the running statement uses the table, as its connection has been told.
  enum class Use { NONE, READS, LOCKS };
  Use m_use= Use::NONE;
  void count_use(THD *thd, Use use);
  // An UPDATE wants rows that others have locked as they were committed last, to see whether it wants them at
  // all.
  bool m_semi_consistent;
  // The next rnd_next is the scan's first.
  bool m_scan_starts;
  // REPLACE or ON DUPLICATE KEY UPDATE: a duplicate will be changed, so it is locked for that.
  bool m_change_duplicates;
  // The server reads keys only (HA_EXTRA_KEYREAD).
  bool m_keys_only;

  // Rows that a statement has written and the engine has not got yet (bulk.cc): the server's records, the
  // engine's values, which point there, and how the session was when each was written. How many rows are kept
  // at most; 0 if none are. Whether all rows of the statement so far are kept, so that they may be loaded;
  // whether it is known how many there are.
  size_t m_rows_to_keep= 0;
  std::vector<uchar> m_kept_records;
  std::vector<varve_value> m_kept_values;
  std::vector<Kept_state> m_kept_states;
  // What BLOBs of these records point to, and of one that an error is about; the bytes of the former.
  std::deque<std::vector<uchar>> m_kept_blobs;
  size_t m_kept_blob_bytes= 0;
  bool m_may_load= false;
  bool m_rows_known= false;
  // Rows are to be loaded one by one, from the first one on, as long as they come in order; the load is one
  // of those.
  bool m_wants_order= false;
  bool m_is_in_order= false;

  // The table is a copy that ALTER TABLE fills, and many rows are coming (load.cc); the load of a copy, or
  // of a statement that inserts many rows, from the first row on; what the record of a row points to that
  // has the same key as another one.
  bool m_is_copy= false;
  bool m_gets_many= false;
  varve_load *m_load= nullptr;
  std::vector<uchar> m_duplicate;

  // What the last failure was about: its handler code; the SQL error number if the engine's words go to the
  // client; these, or the constraint, or the child and its index as "table/index".
  int m_failure;
  uint m_failure_number;
  std::string m_failure_words;
  // Why get_auto_increment failed, which the server reports as a failure to read the counter; 0 if it did
  // not.
  int m_counter_failure;
  // For how many rows of the statement, this one included, values of the counter were asked for; 0: for none
  // yet, or they are over.
  ulonglong m_rows_to_number= 0;
  // How values of the counter were asked for last.
  ulonglong m_counter_step= 1;
  ulonglong m_counter_offset= 1;
};

#endif
