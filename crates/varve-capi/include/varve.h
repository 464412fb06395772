// varve.h: the C interface of Varve, a transactional storage engine. Generated from crates/varve-capi; do not edit.
//
// - Every function may be called from any thread, but one handle (transaction, cursor) by one thread at a time.
//   The exceptions are varve_db and varve_table handles, and varve_txn_interrupt: any thread, at any time.
// - A function that can fail returns a varve_code. What happened, in words, is then in varve_last_error() of the
//   calling thread until its next failing call.
// - Pointers to rows, positions and texts that a function hands out are valid until the next call on the same handle.
// - No call unwinds: a panic inside stops the database, and the call returns VARVE_POISONED.


#ifndef VARVE_H
#define VARVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Of so many texts an entry of an index may give the values back, at most: of the first ones among its own
// columns and those of the primary key, which come behind. Parts of columns do not count.
#define VARVE_MOST_FORMS 3

// What a call came to. Each kind of error is something that a caller can do something about.
typedef enum varve_code {
  VARVE_OK = 0,
  // A look-up found nothing, or a scan is at its end. Not an error; there is no text for it.
  VARVE_NO_ROW = 1,
  // Bytes on disk are not what was written.
  VARVE_CORRUPT = 2,
  // The operating system refused an operation.
  VARVE_IO = 3,
  // A change failed halfway or a thread panicked: the database refuses work until it is reopened.
  VARVE_POISONED = 4,
  // Another row has the same key in a unique index: see varve_last_error_index.
  VARVE_DUPLICATE_KEY = 5,
  // Waited longer than the lock wait timeout. The transaction lives; roll the statement back.
  VARVE_LOCK_WAIT_TIMEOUT = 6,
  // Chosen as the victim of a deadlock: roll the transaction back.
  VARVE_DEADLOCK = 7,
  // varve_txn_interrupt was called.
  VARVE_INTERRUPTED = 8,
  VARVE_NOT_FOUND = 9,
  VARVE_ALREADY_EXISTS = 10,
  // A row or key is longer than the format allows.
  VARVE_TOO_LARGE = 11,
  // Disk full, no free undo slot, or a buffer pool too small for the pinned pages.
  VARVE_NO_SPACE = 12,
  VARVE_INVALID = 13,
  // Asked for something that this version does not do.
  VARVE_UNSUPPORTED = 14,
  // Another process has the data directory open.
  VARVE_IN_USE = 15,
  // The table's definition is newer than the transaction's read view.
  VARVE_DEFINITION_CHANGED = 16,
  // Row locks take all the memory that they may: roll the transaction back.
  VARVE_LOCK_TABLE_FULL = 17,
  // The database was opened to be read only.
  VARVE_READ_ONLY = 18,
  // varve_update: the row has these values already. Not an error; there is no text for it.
  VARVE_UNCHANGED = 19,
  // A foreign key of the row's table has no row to refer to.
  VARVE_NO_REFERENCED_ROW = 20,
  // A row can't go, or get another key, because a foreign key refers to it.
  VARVE_ROW_IS_REFERENCED = 21,
  // Changes of children by those of their parents go deeper than they may.
  VARVE_CASCADE_TOO_DEEP = 22,
  // A table can't be dropped or emptied: a foreign key of another table refers to it.
  VARVE_TABLE_IS_REFERENCED = 23,
  // A table can't be the parent by a foreign key: see varve_last_error_parent.
  VARVE_BAD_FOREIGN_KEY = 24,
  // Another table of the schema has a foreign key of this name.
  VARVE_CONSTRAINT_EXISTS = 25,
  // A row of a child would get a key that another one has, if it followed its parent: see
  // varve_last_error_child and varve_last_error_child_index.
  VARVE_FOREIGN_DUPLICATE_KEY = 26,
  // While an index was built, more rows were changed than may be noted.
  VARVE_TOO_MANY_CHANGES = 27,
  // A row has NULL in a column that is to take none: see varve_last_error_null.
  VARVE_NULL_VALUE = 28,
  // The table's rows were discarded: import a file, or drop the table.
  VARVE_DISCARDED = 29,
  // A file that is to be imported has the rows of a table that is defined otherwise.
  VARVE_SCHEMA_MISMATCH = 30,
  // There is no key for what is encrypted, or is to be, or it is another key.
  VARVE_NO_KEY = 31,
} varve_code;

// How far a backup is.
typedef enum varve_backup_state {
  // Pages are being copied.
  VARVE_BACKUP_COPYING = 0,
  // All pages are copied, and redo is as it comes: it may end.
  VARVE_BACKUP_FOLLOWING = 1,
  // The moment has come that it is of. What is left is being copied.
  VARVE_BACKUP_ENDING = 2,
  VARVE_BACKUP_COMPLETE = 3,
  // Nothing of it is left.
  VARVE_BACKUP_FAILED = 4,
} varve_backup_state;

// What kind of values a column holds.
typedef enum varve_type {
  // Signed integer of `size` 1, 2, 3, 4 or 8 bytes.
  VARVE_INT = 1,
  // Unsigned integer of `size` 1, 2, 3, 4 or 8 bytes.
  VARVE_UINT = 2,
  // IEEE 754, 4 bytes; `size` is not looked at.
  VARVE_FLOAT = 3,
  // IEEE 754, 8 bytes; `size` is not looked at.
  VARVE_DOUBLE = 4,
  // Exactly `size` bytes, in memcmp order.
  VARVE_FIXED = 5,
  // At most `size` bytes, in memcmp order.
  VARVE_BYTES = 6,
  // At most `size` bytes of text, in the order of `collation`.
  VARVE_TEXT = 7,
} varve_type;

// What becomes of the children of a row that is deleted, or whose key is changed.
typedef enum varve_referential_action {
  // It stays as it is as long as it has children, which are looked for at once.
  VARVE_NO_ACTION = 0,
  // The same.
  VARVE_RESTRICT = 1,
  // They are deleted too, or get the new key.
  VARVE_CASCADE = 2,
  // Their columns become NULL.
  VARVE_SET_NULL = 3,
} varve_referential_action;

// Whether a change of tables heeds foreign keys.
typedef enum varve_foreign_key_checks {
  // Parents must be there, and a table that others refer to keeps its rows.
  VARVE_CHECK_REFERENCES = 0,
  // Tables come and go in any order. What is there must fit all the same.
  VARVE_IGNORE_REFERENCES = 1,
  // The whole schema is dropped: a table stays only if one of another schema refers to it.
  VARVE_CHECK_OTHER_SCHEMAS = 2,
} varve_foreign_key_checks;

// How the pages of a table's file are stored.
typedef enum varve_compression {
  // As they are.
  VARVE_UNCOMPRESSED = 0,
  // By LZ4: quick.
  VARVE_LZ4 = 1,
  // By Zstandard: smaller.
  VARVE_ZSTD = 2,
  // For varve_rebuild_prepare: as they were before, by Zstandard with another level if one is given. A new
  // table has its pages as they are.
  VARVE_COMPRESSED_AS_BEFORE = 3,
} varve_compression;

// Whether the pages of a table's file are encrypted.
typedef enum varve_encryption {
  // As it is set for all tables.
  VARVE_ENCRYPTED_DEFAULT = 0,
  VARVE_ENCRYPTED = 1,
  VARVE_NOT_ENCRYPTED = 2,
  // For varve_rebuild_prepare: as it was before, with the same key. A new table has it as it is set for
  // all.
  VARVE_ENCRYPTED_AS_BEFORE = 3,
} varve_encryption;

// Which changes of entries wait in change buffers while their leaf is not in the buffer pool. The purge of a
// delete mark goes the way of the mark.
typedef enum varve_change_buffering {
  VARVE_BUFFER_NONE = 0,
  VARVE_BUFFER_INSERTS = 1,
  VARVE_BUFFER_DELETES = 2,
  // Insertions and deletions.
  VARVE_BUFFER_CHANGES = 3,
  // As VARVE_BUFFER_DELETES.
  VARVE_BUFFER_PURGES = 4,
  // As VARVE_BUFFER_CHANGES.
  VARVE_BUFFER_ALL = 5,
} varve_change_buffering;

// Whether a row is wanted, as far as its entry in a secondary index tells.
typedef enum varve_verdict {
  VARVE_WANTED = 0,
  VARVE_UNWANTED = 1,
  // The search is to end with VARVE_INTERRUPTED.
  VARVE_INTERRUPT = 2,
} varve_verdict;

// What a row must be to the key that is sought. A key may be only the first parts of the index's; then it
// stands for all keys that begin with it.
typedef enum varve_match {
  // The first one equal to the key.
  VARVE_EXACT = 0,
  // The first one equal to the key or after it.
  VARVE_AT_LEAST = 1,
  // The first one after all that equal the key.
  VARVE_AFTER = 2,
  // The last one equal to the key or before it.
  VARVE_AT_MOST = 3,
  // The last one before all that equal the key.
  VARVE_BEFORE = 4,
  // The last one equal to the key.
  VARVE_EXACT_LAST = 5,
} varve_match;

// How the rows that a cursor comes to are locked. Without a lock the cursor reads the transaction's read
// view, with one the latest committed rows. In a serializable transaction VARVE_NO_LOCK is VARVE_SHARED.
typedef enum varve_lock {
  VARVE_NO_LOCK = 0,
  VARVE_SHARED = 1,
  VARVE_EXCLUSIVE = 2,
  // As VARVE_SHARED, but passes over rows that would have to be waited for.
  VARVE_SHARED_SKIP_LOCKED = 3,
  // As VARVE_EXCLUSIVE, but passes over rows that would have to be waited for.
  VARVE_EXCLUSIVE_SKIP_LOCKED = 4,
  // As VARVE_EXCLUSIVE, but a scan of the clustered index under READ COMMITTED or READ UNCOMMITTED gives a
  // row that others have locked as it was committed last, unlocked: varve_cursor_was_semi_consistent says
  // so. The next move comes to the same row again and waits for it, unless varve_cursor_unlock_row was
  // called before.
  VARVE_EXCLUSIVE_SEMI_CONSISTENT = 5,
} varve_lock;

// What a commit waits for.
typedef enum varve_flush_log {
  // Nothing: the log is written and synced once a second.
  VARVE_FLUSH_LAZY = 0,
  // Its log is on disk.
  VARVE_FLUSH_SYNC = 1,
  // Its log is with the operating system; synced once a second.
  VARVE_FLUSH_WRITE = 2,
} varve_flush_log;

// How data files are read and written. They are synced either way.
typedef enum varve_flush_method {
  // Through the operating system's cache.
  VARVE_METHOD_FSYNC = 0,
  // Past it, where the file system can do that.
  VARVE_METHOD_O_DIRECT = 1,
} varve_flush_method;

// How a character set stores characters.
typedef enum varve_letters {
  // In any other way.
  VARVE_LETTERS_UNKNOWN = 0,
  // Each in one byte, those of ASCII as there.
  VARVE_LETTERS_BYTES = 1,
  VARVE_LETTERS_UTF8 = 2,
} varve_letters;

// How urgent a message is.
typedef enum varve_log_level {
  VARVE_LOG_NOTE = 0,
  VARVE_LOG_WARNING = 1,
  VARVE_LOG_ERROR = 2,
} varve_log_level;

// Why a table can't be the parent by a foreign key.
typedef enum varve_parent_fault {
  // The last failure was about something else.
  VARVE_PARENT_FITS = 0,
  // There is no such table.
  VARVE_NO_PARENT = 1,
  // It has no such column.
  VARVE_NO_PARENT_COLUMN = 2,
  // A column, and that of the parent, have different types.
  VARVE_PARENT_HAS_OTHER_TYPE = 3,
  // No index of it begins with the columns referred to, whole and in this order.
  VARVE_NO_PARENT_INDEX = 4,
} varve_parent_fault;

// What is done with a file.
typedef enum varve_file_operation {
  VARVE_FILE_CREATE,
  VARVE_FILE_OPEN,
  // It is about to be closed.
  VARVE_FILE_CLOSE,
  VARVE_FILE_READ,
  VARVE_FILE_WRITE,
  VARVE_FILE_SYNC,
  VARVE_FILE_CHANGE_SIZE,
  VARVE_FILE_REMOVE,
  VARVE_FILE_RENAME,
} varve_file_operation;

// What memory is for.
typedef enum varve_memory {
  // The frames of the pages, as many as there may be.
  VARVE_MEMORY_BUFFER_POOL,
  // Redo on its way to the disk.
  VARVE_MEMORY_LOG_BUFFER,
  // Entries that are sorted for new indexes and loads.
  VARVE_MEMORY_SORT_BUFFERS,
} varve_memory;

// Where requests of a kind are done.
typedef enum varve_memcached_policy {
  // In the table.
  VARVE_MEMCACHED_TABLE_ONLY = 0,
  // In the process's memory: no table is opened.
  VARVE_MEMCACHED_CACHE_ONLY = 1,
  // In both: reads look in memory first, and keep there what they find in the table. What is in memory is
  // what clients have changed or read last, and does not know what others change in the table.
  VARVE_MEMCACHED_CACHING = 2,
  // They are refused.
  VARVE_MEMCACHED_DISABLED = 3,
} varve_memcached_policy;

// What a call of a varve_memcached_store came to.
typedef enum varve_memcached_code {
  VARVE_MEMCACHED_OK = 0,
  // There is no row with this key.
  VARVE_MEMCACHED_NO_ROW = 1,
  // A row with this key was made since it was looked for.
  VARVE_MEMCACHED_MADE = 2,
  // It would have to wait, and must not.
  VARVE_MEMCACHED_BUSY = 3,
  // `error` says why.
  VARVE_MEMCACHED_FAILED = 4,
  // The same, and it is not to be tried again: somebody ended the batch.
  VARVE_MEMCACHED_KILLED = 5,
} varve_memcached_code;

// How a row is looked for.
typedef enum varve_memcached_find {
  // To be read, as of the first one since `end_reads`, without waiting for anybody.
  VARVE_MEMCACHED_READ = 0,
  // The same, and it may wait.
  VARVE_MEMCACHED_READ_WAITING = 1,
  // Locked, to be changed in the batch that was begun.
  VARVE_MEMCACHED_CHANGE = 2,
} varve_memcached_find;

// What a batch does about locks of others.
typedef enum varve_memcached_begin {
  // Finds and changes wait for none, whatever `wait_seconds` is: that is VARVE_MEMCACHED_BUSY. If a find
  // says so the batch goes on, and is committed without what that was for; after a change that says so
  // `roll_back` is called.
  VARVE_MEMCACHED_AT_ONCE = 0,
  // It waits for each for `wait_seconds` at most, be they 0, and fails then.
  VARVE_MEMCACHED_WAITING = 1,
} varve_memcached_begin;

// What a call is doing that takes long.
typedef enum varve_phase {
  // Reads the rows that indexes, or another table, are built of. Counts rows.
  VARVE_PHASE_READ = 0,
  // Fills indexes with what was sorted. Counts rows and entries.
  VARVE_PHASE_FILL = 1,
  // Looks at rows that others have changed meanwhile. Counts rows.
  VARVE_PHASE_CATCH_UP = 2,
  // Checks each page of a table's file by itself. Counts pages.
  VARVE_PHASE_CHECK_PAGES = 3,
  // Checks rows and entries. Counts them.
  VARVE_PHASE_CHECK_RECORDS = 4,
  // Looks at leaves for statistics. Counts leaves.
  VARVE_PHASE_SAMPLE = 5,
  // Takes back what was changed, if that is much. Counts undo records.
  VARVE_PHASE_ROLL_BACK = 6,
} varve_phase;

// What keys with a NULL are to estimates.
typedef enum varve_nulls {
  // All NULLs are one value.
  VARVE_NULLS_EQUAL = 0,
  // Each one is a value of its own.
  VARVE_NULLS_UNEQUAL = 1,
  // Rows with one are not looked at.
  VARVE_NULLS_IGNORED = 2,
} varve_nulls;

// How a metric is to be read.
typedef enum varve_metric_kind {
  // How often, or how much, since the database was opened: it never falls.
  VARVE_METRIC_COUNTER = 0,
  // What is now.
  VARVE_METRIC_VALUE = 1,
} varve_metric_kind;

// What purge is doing.
typedef enum varve_purge_state {
  // There is nothing to do, or nothing that may be done yet.
  VARVE_PURGE_IDLE = 0,
  VARVE_PURGE_RUNNING = 1,
  // A view or an error has stopped it.
  VARVE_PURGE_STOPPED = 2,
} varve_purge_state;

// What a transaction is doing.
typedef enum varve_transaction_state {
  VARVE_TRANSACTION_RUNNING = 0,
  VARVE_TRANSACTION_WAITS = 1,
  VARVE_TRANSACTION_ROLLS_BACK = 2,
  VARVE_TRANSACTION_COMMITS = 3,
} varve_transaction_state;

typedef enum varve_isolation {
  VARVE_READ_UNCOMMITTED = 0,
  VARVE_READ_COMMITTED = 1,
  VARVE_REPEATABLE_READ = 2,
  VARVE_SERIALIZABLE = 3,
} varve_isolation;

// Whether a statement keeps others from drawing values of a table's counter between its own.
typedef enum varve_auto_increment_lock {
  // It does not, and draws between those of others.
  VARVE_COUNTER_NOT_LOCKED = 0,
  // It draws all its values at once, but not between those of a statement that locks the counter.
  VARVE_COUNTER_AFTER_OTHERS = 1,
  // It locks the counter until it ends.
  VARVE_COUNTER_LOCKED = 2,
} varve_auto_increment_lock;

// Who sees to it that a table does not change its definition under a transaction that uses it.
typedef enum varve_table_locks {
  // The engine: transactions lock the tables that they use.
  VARVE_TABLES_LOCKED_BY_ENGINE = 0,
  // The caller, who has locks of its own.
  VARVE_TABLES_LOCKED_BY_CALLER = 1,
} varve_table_locks;

// What an insert does with a row that has its key already.
typedef enum varve_on_duplicate {
  // Lock it shared, and fail.
  VARVE_DUPLICATE_SHARE = 0,
  // Lock it exclusively, and fail: the caller is going to replace or update it.
  VARVE_DUPLICATE_LOCK = 1,
} varve_on_duplicate;

// A backup that a thread makes.
typedef struct varve_backup varve_backup;

// A place in an index. It belongs to no transaction: every move names the one it is made in.
typedef struct varve_cursor varve_cursor;

// An open database. Shared by all threads.
typedef struct varve_db varve_db;

// A table's file that can be copied.
typedef struct varve_export varve_export;

// Rows on their way into a table that was empty.
typedef struct varve_load varve_load;

// A server that runs.
typedef struct varve_memcached varve_memcached;

// A monitor that runs.
typedef struct varve_monitor varve_monitor;

// A definition that a table is about to get, or several tables together.
typedef struct varve_redefinition varve_redefinition;

// An open table. Shared by all threads.
typedef struct varve_table varve_table;

// A session: it has at most one transaction at a time, and can be used for many.
typedef struct varve_txn varve_txn;

// How a backup is made. Zeros are the defaults.
typedef struct varve_backup_options {
  // Threads that copy: 1 to 64.
  uint32_t threads;
  // A backup that is behind the log's checkpoint by more bytes of redo than this fails: the disk of the
  // database has to hold them. So does one that follows the log for more than that, and nobody ends it.
  uint64_t max_redo_bytes;
  // Of tablespaces; 0: as fast as it goes.
  uint64_t bytes_per_second;
  // Damaged pages are copied as they are, and tablespaces that were lost left out. Otherwise such a backup
  // fails.
  bool keep_damaged;
  // The directory of an older backup, whole or an increment: makes an increment, which has what was
  // written since that was made. NULL: a whole backup.
  const char *base;
} varve_backup_options;

// What a backup has come to.
typedef struct varve_backup_progress {
  enum varve_backup_state state;
  // Of tablespaces, so far; of a complete one, of all files.
  uint64_t bytes;
  // Of a complete one: its redo, files, damaged pages, and tablespaces that were lost.
  uint64_t from_lsn;
  uint64_t to_lsn;
  uint64_t files;
  uint64_t damaged_pages;
  uint64_t lost_tablespaces;
} varve_backup_progress;

// A column's value. `ptr` is null for SQL NULL. Integers and floats are little-endian, of the column's
// width; fixed columns have exactly their width; an empty byte string has a pointer, which is not looked at.
typedef struct varve_value {
  const uint8_t *ptr;
  uint32_t len;
} varve_value;

typedef struct varve_column_def {
  const char *name;
  enum varve_type kind;
  uint32_t size;
  uint32_t collation;
  bool nullable;
  // The value is computed from other columns of the row (varve_value_source).
  bool computed;
  // In a table with history: its changes make none.
  bool unversioned;
  // For varve_rebuild_prepare, of a new one: what it has is made of each row that is there
  // (varve_value_source), as that of a column of another type is.
  bool converted;
  // For varve_redefinition_prepare: the name of the table's column that this one is. Null: it is the one
  // of this name, or else a new one. Empty: it is a new one, whatever it is called. Columns of the table
  // that none of these is go.
  const char *was;
  // What a new one has in the rows that are there.
  struct varve_value in_old_rows;
} varve_column_def;

typedef struct varve_key_part {
  // Position in the table's list of columns.
  uint32_t column;
  // 0 for the whole value, else only so many characters of a text or bytes of anything else.
  uint32_t prefix;
  bool descending;
} varve_key_part;

typedef struct varve_index_def {
  const char *name;
  bool unique;
  const struct varve_key_part *parts;
  uint32_t n_parts;
  // For varve_redefinition_prepare: the name of the table's index that this one is. Null: it is the one of
  // this name if that has these parts, or else a new one.
  const char *was;
} varve_index_def;

// A foreign key. The last four members are told, and not looked at in a definition.
typedef struct varve_foreign_key {
  // Of the constraint, unique in its schema.
  const char *name;
  // The names of the child's columns, and of those of the parent that they refer to.
  const char *const *columns;
  const char *const *parent_columns;
  uint32_t n_columns;
  // "schema/table"
  const char *parent;
  enum varve_referential_action on_delete;
  enum varve_referential_action on_update;
  // Of a table that is made to take another one's place, whose name begins with '#' until then: that one
  // has this foreign key, too, and the rows that the new one gets meanwhile are not checked by it.
  bool kept;
  // The table that has the foreign key: "schema/table".
  const char *child;
  // The index of the parent in which rows are looked for. Null: there is no parent that fits.
  const char *parent_index;
  // Whether the columns take NULL; of the parent if there is one.
  const bool *nullable;
  const bool *parent_nullable;
} varve_foreign_key;

// How a table keeps its rows' history among its rows.
typedef struct varve_system_time {
  // Positions of the two columns that say since when a row is true, and until when.
  uint32_t start;
  uint32_t end;
  // What the second one is in a row that is true now.
  struct varve_value forever;
} varve_system_time;

typedef struct varve_table_def {
  // "schema/table"
  const char *name;
  const struct varve_column_def *columns;
  uint32_t n_columns;
  // The clustered key. None: rows get a hidden id.
  const struct varve_key_part *primary;
  uint32_t n_primary;
  // The secondary indexes; calls name them 1, 2, … in this order, the clustered index is 0.
  const struct varve_index_def *indexes;
  uint32_t n_indexes;
  // Foreign keys, and whether their parents have to be there (VARVE_CHECK_REFERENCES) or not.
  const struct varve_foreign_key *foreign_keys;
  uint32_t n_foreign_keys;
  enum varve_foreign_key_checks foreign_key_checks;
  // Position of the column that the table's counter numbers, UINT32_MAX for none.
  uint32_t auto_increment;
  // Optional: the table keeps history.
  const struct varve_system_time *system_time;
  // Its rows are in no log, and the table ends when it is dropped or the database is closed. One
  // transaction at a time can use it.
  bool temporary;
  // Optional: the directory for the table's file, an absolute path outside of the data directory. The file
  // is in a directory there that is called as the schema is. Not for a temporary table.
  const char *data_directory;
  // How its pages are stored, where that saves blocks of the disk: pages larger than 4 KiB. Those of a
  // temporary table are stored as they are. varve_redefinition_prepare does not look at it.
  enum varve_compression compression;
  // Of Zstandard, 1 to 22; 0 where nothing depends on it.
  uint32_t compression_level;
  // Whether they are encrypted. varve_redefinition_prepare does not look at it, nor at the key.
  enum varve_encryption encryption;
  // The number of the key; 0: key 1.
  uint32_t encryption_key;
} varve_table_def;

// A table as the catalog has it.
typedef struct varve_stored_table {
  uint64_t id;
  uint32_t space;
  // The table's file, relative to the data directory. It may be a link to where it is.
  const char *path;
  // Counts up with each change of the columns; rows carry it.
  uint32_t version;
  // It has no file: it waits for one to be imported.
  bool discarded;
  // Of the clustered index, then of the others, in their order: the ids, and the root pages.
  const uint64_t *index_ids;
  const uint32_t *roots;
  // Without the data directory. Of foreign keys it has child and parent, but neither the parent's index
  // nor whether columns take NULL.
  struct varve_table_def def;
} varve_stored_table;

// Receives one table.
typedef void (*varve_stored_table_fn)(void *context, const struct varve_stored_table *table);

// Figures about a table. Estimates, but the counter.
typedef struct varve_table_stats {
  uint64_t rows;
  // Bytes of the table's file that are in use, and that are not.
  uint64_t used_bytes;
  uint64_t free_bytes;
  // The next value of the counter.
  uint64_t auto_increment;
  // The parts of `used_bytes` that are the clustered index's, with its long values, and the secondary
  // ones'. Before the first varve_table_rows_per_key all is taken for the clustered index's.
  uint64_t data_bytes;
  uint64_t index_bytes;
  // When a transaction that has changed the table committed last, in seconds since 1970; 0 if that is not
  // known: it is nowhere on disk.
  uint64_t changed_at;
  uint32_t page_bytes;
  // varve_table_rows_per_key would look at the table again.
  bool is_stale;
} varve_table_stats;

// A table that is open.
typedef struct varve_open_table {
  uint64_t id;
  const char *name;
  // Somebody has asked for estimates of its indexes: `stats` goes by them.
  bool has_estimates;
  // Its counter is 0 if no column is numbered from it.
  struct varve_table_stats stats;
  // How many handles there are on it.
  uint64_t handles;
} varve_open_table;

// Receives one open table.
typedef void (*varve_open_table_fn)(void *context, const struct varve_open_table *table);

// A tablespace that is no table's.
typedef struct varve_tablespace {
  uint32_t space;
  // Relative to the data directory, unless it is elsewhere.
  const char *path;
} varve_tablespace;

// Receives one tablespace.
typedef void (*varve_tablespace_fn)(void *context, const struct varve_tablespace *tablespace);

// A page in the buffer pool.
typedef struct varve_pool_page {
  // Its place in the pool.
  uint64_t block;
  uint32_t space;
  uint32_t page;
  // How many want it to stay, those that wait for its latch among them.
  uint32_t pins;
  // How many more rounds of the clock it would stay without being used.
  uint32_t usage;
  // It has changes that are not written yet.
  bool dirty;
  // The LSN of the oldest of these; 0: no redo was written for it, or it is not dirty.
  uint64_t oldest_change;
  // In InnoDB's words where there is one. NULL: somebody was changing it; then all that follows is 0.
  const char *kind;
  uint64_t newest_change;
  // Of a page of an index, else 0; and how far above the leaves.
  uint64_t index_id;
  uint32_t level;
  // Of a page with records: how many, and their bytes with what they need to be found.
  uint64_t records;
  uint64_t record_bytes;
} varve_pool_page;

// Receives one page. False: it wants no more.
typedef bool (*varve_pool_page_fn)(void *context, const struct varve_pool_page *page);

// How changes are buffered.
typedef struct varve_change_buffer_options {
  enum varve_change_buffering buffering;
  // How many percent of the buffer pool the change buffers of all indexes may have together: up to 50.
  uint32_t max_size_pct;
} varve_change_buffer_options;

// One end of a range of keys. `values` are the first `n` parts of the key, as varve_cursor_seek takes them;
// none mean no limit on this side.
typedef struct varve_bound {
  const struct varve_value *values;
  uint32_t n;
  bool inclusive;
} varve_bound;

// Decides on an entry. `row` has one value for each column; those of columns of which varve_cursor_covers
// says no mean nothing. `position` is the row's, as varve_cursor_position gives it. Columns that it looks at
// must be wanted, and named to varve_cursor_set_filter. Where the entry can't give the values as they are in
// the row, it is asked about the row, too, when that was locked or fetched. It must not use the cursor, nor
// the transaction.
typedef enum varve_verdict (*varve_filter_fn)(void *context,
                                              const struct varve_value *row,
                                              const uint8_t *position,
                                              uint32_t position_len);

// How changed pages are written.
typedef struct varve_flush_options {
  // Pages per second that are written while there is nothing else to do: 100 at least.
  uint32_t io_capacity;
  // Pages per second that are written at most unless the redo log gets short: io_capacity at least.
  uint32_t io_capacity_max;
  // Percentage of the buffer pool that is to be dirty at most, below 100.
  double max_dirty_pages_pct;
  // Percentage from which that is worked towards, max_dirty_pages_pct at most; 0: from that.
  double max_dirty_pages_pct_lwm;
  // Write pages ahead of the redo log's need for room.
  bool adaptive_flushing;
  // Percentage of the redo capacity from which that is done: 70 at most.
  double adaptive_flushing_lwm;
  // Over how many tenths of a second speeds are averaged: 1 to 1000.
  uint32_t flushing_avg_loops;
  // Pages of the buffer pool that are kept free ahead of demand, up to a 32nd of it: 100 at least.
  uint32_t lru_scan_depth;
} varve_flush_options;

// Whether the buffer pool is filled after a restart as it was before.
typedef struct varve_pool_dump_options {
  // Write the list of pages when the database is closed.
  bool at_shutdown;
  // Read the pages on the list in, in the background, when it is opened.
  bool at_startup;
  // How many of the pages in the pool are listed, in percent: the most recently used ones. 1 to 100.
  uint32_t pct;
  // The list's name in the data directory. Null: varve_buffer_pool.
  const char *file;
} varve_pool_dump_options;

// How purge works.
typedef struct varve_purge_options {
  // Threads that help the one that is always there: 0 to 32.
  uint32_t threads;
  // Undo pages that are read for a batch: 1 to 5000.
  uint32_t batch_size;
  // After so many batches free undo pages go back to their tablespaces: 1 to 128.
  uint32_t rseg_truncate_frequency;
  // Truncate undo tablespaces that are larger than this, one at a time, when they can be emptied.
  bool undo_log_truncate;
  // Bytes, 10 MiB at least.
  uint64_t max_undo_log_size;
  // While more transactions than this wait to be purged, those that update or delete are delayed; 0: they
  // never are.
  uint64_t max_purge_lag;
  // Microseconds by which a row change is delayed at most, up to 10000000; 0: none is.
  uint64_t max_purge_lag_delay_us;
} varve_purge_options;

// The history store, with which purge need not wait for old read views.
typedef struct varve_history_options {
  // Purge goes on behind old views, and copies what they need to the store. Otherwise it waits for them,
  // but for those that rely on the store already.
  bool store;
  // For how many milliseconds a view holds purge back before purge goes on behind it: up to 3600000.
  uint64_t delay_ms;
  // Bytes that the store may take, 1 MiB at least; 0: a tenth of the file system. While it is full purge
  // waits.
  uint64_t max_size_bytes;
} varve_history_options;

// How tablespaces are encrypted and decrypted in the background.
typedef struct varve_rotation_options {
  // So many tablespaces at a time, 255 at most; 0: none, and what there is stays as it is.
  uint32_t threads;
  // Pages are encrypted again when their key's version is more than so many behind the newest one; 0:
  // never.
  uint32_t key_age;
  // How many pages are rewritten in a second: at least 1.
  uint32_t iops;
} varve_rotation_options;

// A collation: an order of texts, given as a function from a text to weights whose memcmp order it is.
//
// The functions are called from any thread, at the same time too, as long as the database is open.
typedef struct varve_collation {
  // The caller's number for it, below 1 << 31.
  uint32_t id;
  const char *name;
  // Names the data behind the order (a Unicode version, a library's version). An index that was built with
  // another version is closed until it is rebuilt.
  const char *version;
  // The weights of a text are its bytes: `weights` is not called and may be null.
  bool bytewise;
  // PAD SPACE: all weights consist of units of this many bytes (1 to 4), and the first unit of
  // `pad_weight` is that of a space. 0 for NO PAD. `weights` never pads.
  uint8_t pad_unit;
  uint8_t pad_weight[4];
  // How characters are stored. If that is known, entries of indexes may give texts back. Of an id that
  // indexes have been made with it must never become another one.
  enum varve_letters letters;
  // The functions' first argument.
  void *context;
  // Writes the weights of a text. Returns how many bytes they take; more than `capacity` if there is not
  // room for them, and then it is called again with at least that much.
  size_t (*weights)(void *context, const uint8_t *text, size_t len, uint8_t *out, size_t capacity);
  // How many bytes the first `chars` characters of a text take, at most `len`.
  size_t (*prefix_bytes)(void *context, const uint8_t *text, size_t len, size_t chars);
} varve_collation;

// How to open a database; varve_options_default fills in what most callers want.
typedef struct varve_options {
  // Fixed when the database is created: 4096 to 65536, a power of two. An existing database keeps its own.
  uint32_t page_size;
  uint64_t buffer_pool_bytes;
  // Have the system give the pool huge pages where it can.
  bool large_pages;
  uint64_t redo_capacity_bytes;
  uint64_t log_buffer_bytes;
  enum varve_flush_log flush_log_at_trx_commit;
  // Write the redo log through the operating system's cache. With VARVE_FLUSH_WRITE that is done anyway.
  bool log_file_buffering;
  bool doublewrite;
  // How data files are read and written.
  enum varve_flush_method flush_method;
  // Use io_uring for pages where it works; otherwise a few threads read and write them.
  bool use_native_aio;
  // After how many leaves in a row a scan reads those ahead that come next: 1 to 64; 0: it never does.
  uint32_t read_ahead_threshold;
  // Which changes of entries wait in change buffers.
  struct varve_change_buffer_options change_buffer;
  uint64_t sort_buffer_bytes;
  // Optional. Where that is sorted which does not fit, relative to the database's directory, in which it
  // is otherwise.
  const char *sort_directory;
  // How many percent of each leaf are filled by loads, by building indexes and by rebuilding tables: 10 to
  // 100.
  uint32_t fill_factor_pct;
  // Memory that noting the rows which are changed while indexes are built may take: at least 64 KiB.
  uint64_t online_log_bytes;
  // How changed pages are written.
  struct varve_flush_options flush;
  // Whether the buffer pool is filled after a restart as it was before.
  struct varve_pool_dump_options pool_dump;
  // Number of undo tablespaces, fixed when the database is created.
  uint32_t undo_tablespaces;
  // Optional. Where the undo tablespaces of a new database are put, relative to its directory, in which
  // they are otherwise; for an existing one, where somebody has moved them.
  const char *undo_directory;
  // How many rollback segments transactions take: 1 to 128. There are 95; one without undo tablespaces.
  uint32_t undo_logs;
  // How many table files may be open at the same time, 10 at least; the database has about 20 more files
  // open.
  uint32_t open_files;
  // How many tables may be open that nobody uses; others are opened when they are needed.
  uint32_t table_cache;
  // Memory that locks of rows and gaps may take.
  uint64_t lock_memory_bytes;
  // How purge works.
  struct varve_purge_options purge;
  // What becomes of versions that old read views need.
  struct varve_history_options history;
  // How long a transaction waits for a row lock unless it says otherwise.
  uint64_t lock_wait_timeout_ms;
  // 0; 1 to 6 to get at what is left of a damaged database, at the price of what is not. From 4 on nothing
  // can be changed (VARVE_READ_ONLY), and no file is.
  uint8_t force_recovery;
  // Nothing can be changed (VARVE_READ_ONLY), and no file is: what recovery has to do is done in memory,
  // however much that is. What had not ended by a crash is not rolled back: plain reads do not see it, and
  // who wants to lock its rows waits in vain.
  bool read_only;
  // A directory without a database gets one; otherwise that is VARVE_NOT_FOUND.
  bool create_if_missing;
  // Optional: what gives the keys of what is encrypted. All three may be used from any thread, several at
  // a time. The newest version of a key, from 1 on; 0: there is no such key.
  uint32_t (*newest_key_version)(void *context, uint32_t key);
  // Puts the bytes of a version of a key, 16 to 64, into `out`, which has room for 64. Returns how many
  // they are; 0: there is no such version.
  uint32_t (*key)(void *context, uint32_t key, uint32_t version, uint8_t *out);
  void *key_context;
  // Encrypt the pages of tables that don't say anything else, and those of undo and of the system
  // tablespace. Takes a key 1.
  bool encrypt_tables;
  // Encrypt the redo log. Takes a key 1.
  bool encrypt_log;
  // Encrypt temporary tables.
  bool encrypt_temporary_tables;
  // How tablespaces become encrypted, or not, that are not as they are to be.
  struct varve_rotation_options rotation;
  // Optional; without it there are only Varve's own collations.
  bool (*find_collation)(void *context, uint32_t id, struct varve_collation *out);
  void *collation_context;
  // Optional; without it messages go to standard error.
  void (*log)(void *context, enum varve_log_level level, const char *message);
  void *log_context;
} varve_options;

// Receives one text at a time.
typedef void (*varve_text_fn)(void *context, const char *text);

// How far the encryption of a tablespace is.
typedef struct varve_space_encryption {
  uint32_t space;
  // Where its file is, relative to the data directory.
  const char *path;
  // Pages are written encrypted; some may not be, yet.
  bool is_encrypted;
  // The version of the key that all pages have at least; 0 if some are not encrypted.
  uint32_t least_version;
  // The newest version; 0 if the key is not there.
  uint32_t newest_version;
  uint32_t key;
  // Whether pages are being rewritten, and if so the next one, and how many there are.
  bool is_rotating;
  uint32_t page;
  uint32_t pages;
} varve_space_encryption;

typedef void (*varve_space_encryption_fn)(void *context, const struct varve_space_encryption *encryption);

// Receives one foreign key at a time.
typedef void (*varve_foreign_key_fn)(void *context, const struct varve_foreign_key *key);

// What is done with which file.
typedef struct varve_file_event {
  enum varve_file_operation operation;
  // Of a file that is created, opened, removed or renamed; otherwise null.
  const char *path;
  // What it is renamed to; otherwise null.
  const char *to;
  // Of one that is open; otherwise -1. It belongs to no other file until that is closed.
  int descriptor;
  // Those that are read or written.
  size_t bytes;
} varve_file_event;

// Does what is measured. Returns the descriptor of a file that was created or opened, 0 for anything else,
// -1 if it has failed.
typedef int (*varve_file_call)(void *context);

// Told of all that is measured, by the thread that does it. None of them may call this library.
typedef struct varve_instruments {
  // A background thread begins: before all else, and only once.
  void (*thread_begins)(const char *name);
  void (*thread_ends)(void);
  // Measures `call`, which has to be called once. What goes through io_uring is told as it begins, and
  // takes no time.
  void (*file)(const struct varve_file_event *event, varve_file_call call, void *context);
  // So many bytes are taken, or given back if that is negative.
  void (*memory)(enum varve_memory what, int64_t bytes);
} varve_instruments;

// Receives a row, with a value for each column of the table, that has the same values in the unique index of
// this name as another one.
typedef void (*varve_duplicate_fn)(void *context, const char *index, const struct varve_value *row);

// What a row has under its key.
typedef struct varve_memcached_item {
  // Valid until the session's next call.
  const uint8_t *value;
  size_t value_bytes;
  uint64_t cas;
  uint32_t flags;
  // In seconds since 1970; 0: it does not end.
  uint32_t expires;
  uint8_t marks;
} varve_memcached_item;

// Where rows are. Each function is called by any thread; a session by one at a time.
typedef struct varve_memcached_store {
  void *context;
  // Names of the containers, that a key chooses by `@@name`, and of their tables, both ending with a null
  // pointer. The first one is the one that a connection begins with. They, and the delimiter, are copied.
  const char *const *containers;
  const char *const *tables;
  // What stands between a container's name and a key.
  const char *delimiter;
  // Where clients read items, put or change them, delete them, and delete all. If reads are
  // VARVE_MEMCACHED_CACHING, memory forgets what others of them change in the table only.
  enum varve_memcached_policy gets;
  enum varve_memcached_policy sets;
  enum varve_memcached_policy deletes;
  enum varve_memcached_policy flushes;
  // A new session; null: there can't be one.
  void *(*open)(void *context);
  void (*close)(void *session);
  enum varve_memcached_code (*find)(void *session,
                                    size_t container,
                                    const uint8_t *key,
                                    size_t key_bytes,
                                    enum varve_memcached_find how,
                                    struct varve_memcached_item *out);
  void (*end_reads)(void *session);
  enum varve_memcached_code (*begin)(void *session, enum varve_memcached_begin how, uint64_t wait_seconds);
  // Changes the row that was looked for last, or makes it. `cas` may become another one.
  enum varve_memcached_code (*put)(void *session, struct varve_memcached_item *item);
  // What a read finds of the row that was put last, which a column may have as another text.
  void (*read_put)(void *session, struct varve_memcached_item *out);
  // The key of the row that was found last: another one than was looked for, where case does not matter,
  // say. Valid until the session's next call, and so stays what was found.
  void (*found_key)(void *session, const uint8_t **key, size_t *key_bytes);
  // Deletes the row that was found last.
  enum varve_memcached_code (*remove)(void *session);
  enum varve_memcached_code (*commit)(void *session);
  void (*roll_back)(void *session);
  // Why the last call has failed. Valid until the session's next call.
  const char *(*error)(void *session);
  // Deletes rows of a container: all if `before` is 0, otherwise those that end at this time or before, as
  // far as nobody has locked them. Counts them in `deleted`, also if it fails.
  enum varve_memcached_code (*clear)(void *session, size_t container, uint32_t before, uint64_t *deleted);
  // Tells who looks after the server what no client waits for.
  void (*warn)(void *context, const char *text);
  // About how many rows there are in all containers.
  uint64_t (*count)(void *context);
} varve_memcached_store;

// How a varve_memcached listens and works. Zeros and null pointers are what the library takes by itself.
typedef struct varve_memcached_options {
  // An IP address, one of version 6 in brackets; a loopback address, unless there are a certificate, and
  // accounts or authorities.
  const char *host;
  // 0: it does not listen there, unless the letters say so.
  uint16_t port;
  // The path of a Unix socket.
  const char *socket;
  // Threads that read.
  size_t threads;
  // Threads that change.
  size_t change_threads;
  size_t connections;
  size_t value_bytes;
  // Changes in one transaction.
  size_t batch;
  // Reads in one view; 0: as many as come together.
  size_t read_batch;
  // So much memory have items, if a policy needs any.
  size_t cache_bytes;
  // A file with a line `user:password` for each client; null: nobody is asked.
  const char *accounts;
  // PEM files: the server's certificate, its key, and authorities of whom clients need a certificate. With
  // the first two connections by TCP are encrypted.
  const char *certificate;
  const char *key;
  const char *authorities;
  // Letters of memcached's command line, which change all these.
  const char *letters;
  uint64_t idle_seconds;
  // How often what is over is deleted; 0: never.
  uint64_t sweep_seconds;
} varve_memcached_options;

// Receives one counter. `name` is lower case with underscores.
typedef void (*varve_counter_fn)(void *context, const char *name, uint64_t value);

// What a session is doing.
typedef struct varve_session_activity {
  // The statement that runs, or of a session that is idle its last one: `statement_bytes` of UTF-8, of
  // which about 1 KiB is shown. What is no UTF-8 is replaced. It need not outlive the next call.
  const char *statement;
  size_t statement_bytes;
  // For so long its transaction runs.
  uint64_t active_us;
  // No statement runs, for so long.
  bool is_idle;
  uint64_t idle_us;
} varve_session_activity;

// Where a monitor listens, and for whom.
typedef struct varve_monitor_options {
  // A loopback address with a port: `127.0.0.1:3480`, `[::1]:3480`. Port 0: one that is free.
  const char *address;
  // Optional. A file with the token that everybody has to show, 16 to 256 letters, digits, `-`, `.`, `_`
  // and `~`, which not everybody may read. Without it everybody on this machine may look.
  const char *token_file;
  // Optional, with a context of its own: says what a session is doing, by the number that
  // varve_txn_set_session was given. False: nothing is known of it. It is called in the monitor's thread,
  // and only if there is a token.
  bool (*activity)(void *context, uint64_t session, struct varve_session_activity *out);
  void *activity_context;
} varve_monitor_options;

// Receives what writing the list and reading it in have come to, for a person to read, and when each ended,
// in seconds since 1970; 0: it has not.
typedef void (*varve_pool_dump_status_fn)(void *context,
                                          const char *dump,
                                          uint64_t dump_ended,
                                          const char *load,
                                          uint64_t load_ended);

// The name of a prepared transaction, as in X/Open XA. Names are equal if both their parts are.
typedef struct varve_xid {
  int64_t format;
  // 1 to 64 bytes of `parts`.
  uint32_t global_len;
  // At most 64 bytes of `parts`, behind the global part.
  uint32_t branch_len;
  uint8_t parts[128];
} varve_xid;

// Receives one name at a time.
typedef void (*varve_xid_fn)(void *context, const struct varve_xid *xid);

// Is told that something has happened.
typedef void (*varve_notify_fn)(void *context);

// Is told that so much of the estimated work of a phase is done: when a phase begins, which may come again,
// and every so often. It should return at once.
typedef void (*varve_watch_fn)(void *context, enum varve_phase phase, uint64_t done, uint64_t estimated);

// The functions are called by the session's own thread, within the call that changes the parent's row, or
// rebuilds the table. False: there is no such value, and the change is refused. What `out` points to stays
// as it is until the next call of the function, or the end of the call that changes the row.
typedef struct varve_value_source {
  void *context;
  // When the statement began, as the columns of varve_system_time have it.
  bool (*statement_time)(void *context, struct varve_value *out);
  // The values of `n` computed columns of a table ("schema/table"), of which `columns` has the positions,
  // by the others of this row; of the AUTO_INCREMENT column, where that is new, the row's number; it
  // comes first.
  bool (*computed)(void *context,
                   const char *table,
                   const struct varve_value *row,
                   const uint32_t *columns,
                   uint32_t n,
                   struct varve_value *out);
  // The values of `n` columns of a table that is rebuilt, of which `columns` has the positions, by its
  // `row_number`th row as it was; 0 if that was asked before, or the row is gone: then nobody is to be
  // told of what is lost.
  bool (*converted)(void *context,
                    const char *table,
                    const struct varve_value *row,
                    const uint32_t *columns,
                    uint32_t n,
                    uint64_t row_number,
                    struct varve_value *out);
  // What the column at this position, which ceases to take NULL, has where the `row`th row of a table that
  // is rebuilt has NULL; 0 if that was asked before, or the row is gone.
  bool (*instead_of_null)(void *context, const char *table, uint32_t column, uint64_t row, struct varve_value *out);
} varve_value_source;

// What is known of a table as a whole.
typedef struct varve_totals {
  uint64_t rows;
  uint64_t clustered_pages;
  uint64_t secondary_pages;
} varve_totals;

// A value that is known of an index, under InnoDB's names: n_diff_pfx01, …, n_leaf_pages, size.
typedef struct varve_statistic {
  const char *index;
  const char *name;
  uint64_t value;
  // How many leaves were looked at for it, if any were.
  bool has_sample;
  uint64_t sample;
  // For people. Null in what the caller gives.
  const char *about;
} varve_statistic;

// Receives what is known of a table's indexes, one call for each value. The pointers are valid during the
// call.
typedef void (*varve_statistic_fn)(void *context, const struct varve_statistic *statistic);

// Something that the engine counts.
typedef struct varve_metric {
  const char *name;
  // Its name for varve_db_status.
  const char *status_name;
  // The part of the engine that it is about.
  const char *subsystem;
  const char *comment;
  enum varve_metric_kind kind;
  uint64_t value;
} varve_metric;

// Receives one metric.
typedef void (*varve_metric_fn)(void *context, const struct varve_metric *metric);

// An undo tablespace, as it is at the moment.
typedef struct varve_undo_tablespace {
  // From 1 on.
  uint32_t number;
  // Another one after each truncation.
  uint32_t space_id;
  // Relative to the data directory, unless it is elsewhere.
  const char *path;
  // "active"; "inactive" while it is being emptied; "empty" while it is being truncated.
  const char *state;
  uint32_t rollback_segments;
  uint32_t pages_used;
  uint64_t file_bytes;
  // Undo logs of committed transactions that are not purged yet.
  uint64_t history_length;
  // Since the database was opened.
  uint64_t truncations;
} varve_undo_tablespace;

// Receives one undo tablespace.
typedef void (*varve_undo_tablespace_fn)(void *context, const struct varve_undo_tablespace *tablespace);

// How far purge has come.
typedef struct varve_purge {
  enum varve_purge_state state;
  // Undo logs of committed transactions that are not purged yet.
  uint64_t history;
  // Everything that was committed with a lower number is purged.
  uint64_t purged_below;
  // The view that purge can't go beyond, 0 if there is none, and whose it is (varve_txn_set_session).
  uint64_t view;
  uint64_t session;
  // Logs a second, as of purge's last batches: those that it works off at the pace that it has, and those
  // that joined the history meanwhile.
  double working_off;
  double joining;
  // Seconds until the history will have been worked off at these speeds; negative if that is not to be
  // seen: a view or an error has stopped purge, it is not faster than the history grows, or it has not
  // worked off anything yet.
  double seconds_left;
} varve_purge;

// A running transaction, as it is at the moment.
typedef struct varve_transaction {
  // Tells it from all others: its id, or if it has written nothing a number from 2^56 on.
  uint64_t number;
  // 0: it has written nothing.
  uint64_t id;
  // As varve_txn_set_session says; 0: nobody's.
  uint64_t session;
  enum varve_transaction_state state;
  // Its coordinator decides.
  bool prepared;
  enum varve_isolation isolation;
  // Undo records that it has written.
  uint64_t changes;
  // Locks on rows, on tables, and indexes in which it has locked gaps. Those on rows that it wrote are
  // among them only if somebody has waited for them.
  uint64_t locks;
  uint64_t rows_locked;
  uint64_t tables_locked;
  // Memory of its locks, about.
  uint64_t lock_bytes;
  // varve_lock_info.id of what it waits for, and for how long it has; null: it does not wait.
  const char *waits_for;
  uint64_t waited_us;
  // Its open read view, which sees no commit with a number from this one on; 0: it has none.
  uint64_t view;
  // Undo logs of committed transactions that purge can't remove before the view is closed, about.
  uint64_t pinned_history;
  // The pages of undo that they fill, about.
  uint64_t pinned_undo_bytes;
  // Versions in the history store that the view needs, and their bytes.
  uint64_t pinned_versions;
  uint64_t pinned_bytes;
} varve_transaction;

// Receives one transaction.
typedef void (*varve_transaction_fn)(void *context, const struct varve_transaction *transaction);

// A lock that somebody waits for, or is in the way with.
typedef struct varve_lock_info {
  // Tells it from all others.
  const char *id;
  // varve_transaction.number and session of whose it is.
  uint64_t transaction;
  uint64_t session;
  // "S", "X", "S,GAP", "X,GAP", "IS", "IX" or "AUTO_INC".
  const char *mode;
  // The table's name.
  const char *table;
  // The table's tablespace; 0 if that is not known.
  uint32_t space;
  // The index, and the values of the key that is locked in it; null: it is the table that is locked.
  const char *index;
  const char *key;
} varve_lock_info;

// Receives a lock that is waited for, and one that is in its way; null: it is granted at this moment.
typedef void (*varve_lock_wait_fn)(void *context,
                                   const struct varve_lock_info *wanted,
                                   const struct varve_lock_info *blocking);

// What a session has to say of itself among the lines about its transaction. The texts need not outlive the
// next call, nor that of the engine.
typedef struct varve_session_text {
  // For so long its transaction runs.
  uint64_t active_seconds;
  // What it is doing, in a word or two; may be empty.
  const char *operation;
  // Whole lines, which come before and after that about its locks.
  const char *before;
  const char *after;
} varve_session_text;

// Says what there is to say of a session. False: nothing.
typedef bool (*varve_session_fn)(void *context, uint64_t session, struct varve_session_text *out);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Has a thread make a backup of the database in `dir`, which is made, or is empty. It goes on until
// varve_backup_end.
enum varve_code varve_backup_start(const struct varve_db *db,
                                   const char *dir,
                                   const struct varve_backup_options *options,
                                   struct varve_backup **out);

// How far it is. The code of what has made it fail: its state is VARVE_BACKUP_FAILED then.
enum varve_code varve_backup_progress_of(const struct varve_backup *backup, struct varve_backup_progress *out);

// The backup is of this moment: it has all that has committed before the call, and what commits later is not
// in it. VARVE_INVALID: pages are still being copied, or it has ended before. What is left is done by its
// thread.
enum varve_code varve_backup_end(const struct varve_backup *backup);

// Nobody asks any more. One that is not complete ends, and nothing of it is left; before the database is
// closed.
void varve_backup_free(struct varve_backup *backup);

// Reads all of the backup in `dir`, and finds out whether it is as it was made. VARVE_NOT_FOUND: there is
// none, or it is not complete. VARVE_CORRUPT: it was changed.
enum varve_code varve_backup_verify(const char *dir, struct varve_backup_progress *out);

// Makes a database of a backup and the increments that go with it, in their order, once all are verified.
// The directory `target` is made, or is empty.
enum varve_code varve_backup_restore(const char *const *dirs,
                                     size_t count,
                                     const char *target,
                                     struct varve_backup_progress *out);

// Makes a whole backup in `target`, which is made, or is empty, of one and the increments that go with it,
// in their order.
enum varve_code varve_backup_merge(const char *const *dirs,
                                   size_t count,
                                   const char *target,
                                   struct varve_backup_progress *out);

// Hands the stored definition of every table to `each`, but for temporary ones and those whose definitions
// can't be read. No table is opened for it.
enum varve_code varve_db_stored_tables(const struct varve_db *db, varve_stored_table_fn each, void *context);

// Hands the tables that are open to `each`, but for temporary ones, sorted by name.
enum varve_code varve_db_open_tables(const struct varve_db *db, varve_open_table_fn each, void *context);

// The size of the database's pages.
uint32_t varve_db_page_bytes(const struct varve_db *db);

// Hands the tablespaces that are no table's to `each`: those of the system, of undo, of temporary tables and
// of the history store.
enum varve_code varve_db_own_tablespaces(const struct varve_db *db, varve_tablespace_fn each, void *context);

// Hands every page that is in the buffer pool to `each`, until that says false. Each is looked at for a
// moment, and nobody waited for.
enum varve_code varve_db_pool_pages(const struct varve_db *db, varve_pool_page_fn each, void *context);

// Changes what waits in change buffers, and how large these may become. What is in them is merged in any
// case. VARVE_INVALID: a value is out of bounds, nothing was changed.
enum varve_code varve_db_set_change_buffer(const struct varve_db *db,
                                           const struct varve_change_buffer_options *options);

// Opens a cursor on an index: 0 the clustered one, 1, 2, … the secondary ones.
enum varve_code varve_cursor_open(const struct varve_table *table, uint32_t index, struct varve_cursor **out);

void varve_cursor_close(struct varve_cursor *cursor);

// Whether the values of a column can be had from the index's entries alone, if not from all of them: rows of
// others are fetched.
bool varve_cursor_covers(const struct varve_cursor *cursor, uint32_t column);

// Says whether the caller will look at no other columns of the rows that it searches for from now on than at
// those that the index covers. Values of others then mean nothing, and rows need not be fetched for them.
void varve_cursor_set_keys_suffice(struct varve_cursor *cursor, bool keys_suffice);

// Says which columns the caller will look at in the rows that it searches for from now on: `n` flags, one
// for each column of the table, 0 for those it will not. A null pointer: all of them. Values of others come
// as null, and long ones are not fetched from where they lie.
void varve_cursor_set_wanted_columns(struct varve_cursor *cursor, const uint8_t *wanted, uint32_t n);

// Gives back memory that external values took. The current row's values are gone then; the cursor keeps its
// place.
void varve_cursor_release_values(struct varve_cursor *cursor);

// Where the searches forward that follow end: behind the rows that equal the key `end`, or before them if it
// is not inclusive. Rows from there on are not even locked. Null lifts the end.
enum varve_code varve_cursor_set_end(struct varve_cursor *cursor,
                                     const struct varve_txn *txn,
                                     const struct varve_bound *end);

// Where the searches backward that follow end: before the rows that equal the key `begin`, or behind them if
// it is not inclusive. Rows from there on are not even locked. Null lifts the end.
enum varve_code varve_cursor_set_begin(struct varve_cursor *cursor,
                                       const struct varve_txn *txn,
                                       const struct varve_bound *begin);

// Has `filter` asked about each entry of the secondary index before its row is locked or fetched, from the
// next search on. It looks at some columns: `n` flags, one for each column of the table; a null pointer: at
// all. A null filter asks nobody.
void varve_cursor_set_filter(struct varve_cursor *cursor,
                             varve_filter_fn filter,
                             void *context,
                             const uint8_t *columns,
                             uint32_t n);

// Goes to a key: its first `n` parts, which may be fewer than the index has. In a secondary index values of
// the primary key's columns, all in its order, may follow those of the index's own. `row` gets the row found
// there, one value for each column.
enum varve_code varve_cursor_seek(struct varve_cursor *cursor,
                                  const struct varve_txn *txn,
                                  const struct varve_value *key,
                                  uint32_t n,
                                  enum varve_match how,
                                  enum varve_lock lock,
                                  const struct varve_value **row);

// Goes to the index's first row.
enum varve_code varve_cursor_first(struct varve_cursor *cursor,
                                   const struct varve_txn *txn,
                                   enum varve_lock lock,
                                   const struct varve_value **row);

// Goes to the index's last row.
enum varve_code varve_cursor_last(struct varve_cursor *cursor,
                                  const struct varve_txn *txn,
                                  enum varve_lock lock,
                                  const struct varve_value **row);

// Goes to the next row in the index's order, locking as the cursor did before.
enum varve_code varve_cursor_next(struct varve_cursor *cursor,
                                  const struct varve_txn *txn,
                                  const struct varve_value **row);

// Goes to the previous row in the index's order.
enum varve_code varve_cursor_prev(struct varve_cursor *cursor,
                                  const struct varve_txn *txn,
                                  const struct varve_value **row);

// Goes to the next row, if it equals the key that the last varve_cursor_seek was given. Locks no other.
enum varve_code varve_cursor_next_same(struct varve_cursor *cursor,
                                       const struct varve_txn *txn,
                                       const struct varve_value **row);

// Goes to the next row, as varve_cursor_next does, and gives it together with rows behind it that the cursor
// has at hand: `rows` gets `n` rows, one behind the other. The cursor itself stands on the first of them.
// `passed` says how many of the last call's rows behind the first the caller went past: the cursor goes
// there first. 0 if there was another call in between.
enum varve_code varve_cursor_next_rows(struct varve_cursor *cursor,
                                       const struct varve_txn *txn,
                                       uint32_t passed,
                                       const struct varve_value **rows,
                                       uint32_t *n);

// The same for rows that equal the key that the last varve_cursor_seek was given, as varve_cursor_next_same.
enum varve_code varve_cursor_next_same_rows(struct varve_cursor *cursor,
                                            const struct varve_txn *txn,
                                            uint32_t passed,
                                            const struct varve_value **rows,
                                            uint32_t *n);

// Moves the cursor on over `passed` of the rows behind the first that varve_cursor_next_rows gave, so that
// it stands on the one that the caller is at.
enum varve_code varve_cursor_pass(struct varve_cursor *cursor, const struct varve_txn *txn, uint32_t passed);

// The current row's position: bytes that find the row again, in any cursor on the same table. Positions of
// two rows compare with memcmp, and a shorter one that starts another is the smaller, in the clustered
// index's order.
uint32_t varve_cursor_position(const struct varve_cursor *cursor, const uint8_t **position);

// Goes to the row at a position that varve_cursor_position gave. The cursor must be on the clustered index.
enum varve_code varve_cursor_seek_position(struct varve_cursor *cursor,
                                           const struct varve_txn *txn,
                                           const uint8_t *position,
                                           uint32_t len,
                                           enum varve_lock lock,
                                           const struct varve_value **row);

// Whether the current row is locked by another transaction and was read as it was committed last
// (VARVE_EXCLUSIVE_SEMI_CONSISTENT).
bool varve_cursor_was_semi_consistent(const struct varve_cursor *cursor);

// The caller has no use for the current row: under READ COMMITTED its lock is given back, if the cursor's
// last move took it.
enum varve_code varve_cursor_unlock_row(struct varve_cursor *cursor, const struct varve_txn *txn);

// Fills `options` with the defaults.
void varve_options_default(struct varve_options *options);

// Opens the database in directory `dir`, recovering it if it was not closed. `options` may be null.
enum varve_code varve_db_open(const char *dir, const struct varve_options *options, struct varve_db **out);

// Closes the database: everything is flushed, so that opening needs no recovery. All other handles must be
// closed before. The handle is gone even if this fails; the next open then recovers.
enum varve_code varve_db_close(struct varve_db *db);

// Whether entries of indexes give texts of this collation back, if not all of them. False if there is none.
bool varve_db_reads_texts(const struct varve_db *db, uint32_t collation);

// Creates a table, durably (it is there after a crash) unless it is a temporary one. VARVE_ALREADY_EXISTS if
// there is one of that name, or a file is in the way; VARVE_INVALID for a data directory that can't be one,
// VARVE_IO if the system refuses it.
enum varve_code varve_table_create(const struct varve_db *db, const struct varve_table_def *def);

// Whether one of the new foreign keys of a table to be created has its rows follow a parent, which is there,
// to NULL, where they can't have NULL: such changes of the parent will be refused. False, too, if the table
// can't be created because of an earlier foreign key. With checks off the table itself is not there.
bool varve_brings_null(const struct varve_db *db, const struct varve_table_def *def);

// Drops a table, durably. The caller sees to it that nobody uses it.
enum varve_code varve_table_drop(const struct varve_db *db, const char *name, enum varve_foreign_key_checks checks);

// Renames a table, durably. The caller sees to it that nobody uses it. If `constraints_from` is not null,
// the table's constraints whose names begin with it begin with `constraints_to` then. `checks` counts for a
// copy, whose name begins with # behind the schema, and which takes the place of a table that has stepped
// aside: unless it is VARVE_IGNORE_REFERENCES the copy has the indexes that foreign keys have had there.
enum varve_code varve_table_rename(const struct varve_db *db,
                                   const char *from,
                                   const char *to,
                                   const char *constraints_from,
                                   const char *constraints_to,
                                   enum varve_foreign_key_checks checks);

// Empties a table, durably and at once, and starts its counter anew. The caller sees to it that nobody uses
// it; handles of the table must be opened again.
enum varve_code varve_table_truncate(const struct varve_db *db, const char *name, enum varve_foreign_key_checks checks);

// Hands the names of all tables but temporary ones to `each`.
enum varve_code varve_db_tables(const struct varve_db *db, varve_text_fn each, void *context);

// Changes what commits wait for, from now on.
enum varve_code varve_db_set_flush_log(const struct varve_db *db, enum varve_flush_log mode);

// Changes how many tables may be open that nobody uses (`table_cache`).
void varve_db_set_table_cache(const struct varve_db *db, uint32_t tables);

// Whether deadlocks are looked for when a wait for a lock begins; they are unless this says otherwise.
// Without it each of their members waits for as long as its timeout says. When it is turned on, those that
// have come about meanwhile are broken.
void varve_db_set_deadlock_detection(const struct varve_db *db, bool on);

// Changes how much memory locks of rows and gaps may take. Those that are held stay.
void varve_db_set_lock_memory(const struct varve_db *db, uint64_t bytes);

// Changes after how many leaves in a row a scan reads ahead. VARVE_INVALID: above 64, nothing was changed.
enum varve_code varve_db_set_read_ahead_threshold(const struct varve_db *db, uint32_t leaves);

// Changes how much memory building indexes may take. VARVE_INVALID: less than 64 KiB, nothing was changed.
enum varve_code varve_db_set_sort_buffer(const struct varve_db *db, uint64_t bytes);

// Changes how many percent of each leaf are filled, by what is built from now on. VARVE_INVALID: less than
// 10 or more than 100, nothing was changed.
enum varve_code varve_db_set_fill_factor(const struct varve_db *db, uint32_t pct);

// Changes how much memory noting changed rows may take, for indexes that will be built. VARVE_INVALID: less
// than 64 KiB, nothing was changed.
enum varve_code varve_db_set_online_log(const struct varve_db *db, uint64_t bytes);

// Changes how much memory there is for cached pages. More is there at once; less takes a while, and nobody
// waits for it. VARVE_INVALID: less than 256 pages, or more than the machine's memory; VARVE_NO_SPACE: the
// system has no more. Then nothing was changed.
enum varve_code varve_db_set_buffer_pool(const struct varve_db *db, uint64_t bytes);

// Changes how much redo there may be between the checkpoint and the newest change. More is there at once; to
// less the way is taken while the checkpoint moves. VARVE_INVALID: less than 2 MiB; VARVE_NO_SPACE: no room
// for the files. Then nothing was changed.
enum varve_code varve_db_set_redo_capacity(const struct varve_db *db, uint64_t bytes);

// Changes how many rollback segments new transactions take. VARVE_INVALID: not from 1 to 128, nothing was
// changed.
enum varve_code varve_db_set_undo_logs(const struct varve_db *db, uint32_t count);

// Changes how purge works, from its next batch on. VARVE_INVALID: a value is out of bounds, nothing was
// changed.
enum varve_code varve_db_set_purge(const struct varve_db *db, const struct varve_purge_options *options);

// Empties an undo tablespace, by its number from 1 on, and truncates its file; at most so long. `done` is
// false if something has kept its undo from being purged until then: it is in use again as it is.
enum varve_code varve_db_truncate_undo(const struct varve_db *db, uint32_t number, uint64_t at_most_ms, bool *done);

// Waits until purge has removed all that was deleted or replaced and no open view needs, at most so long.
// False: it is not done yet.
bool varve_db_wait_for_purge(const struct varve_db *db, uint64_t at_most_ms);

// Makes everything that is committed durable, whatever commits wait for.
enum varve_code varve_db_flush_log(const struct varve_db *db);

// Changes whether tables are encrypted that don't say anything else: new ones at once, others in the
// background. VARVE_NO_KEY: there is no key 1, nothing was changed.
enum varve_code varve_db_set_encrypt_tables(const struct varve_db *db, bool are_encrypted);

// Whether varve_db_set_encrypt_tables finds the key that it takes. VARVE_NO_KEY: it does not.
enum varve_code varve_db_can_encrypt_tables(const struct varve_db *db);

// Changes how tablespaces are encrypted and decrypted in the background. VARVE_INVALID: values that can't
// be, nothing was changed.
enum varve_code varve_db_set_rotation(const struct varve_db *db, const struct varve_rotation_options *options);

// Hands each tablespace to `each`, but for temporary ones. What it points to is gone when `each` returns.
enum varve_code varve_db_encryption(const struct varve_db *db, varve_space_encryption_fn each, void *context);

// What the calling thread's last failing call was about, in words. Valid until its next failing call.
const char *varve_last_error(void);

// The name of the foreign key that it was about, and "schema/table" that has it; empty if about none.
// Valid as above.
const char *varve_last_error_constraint(void);

// See varve_last_error_constraint.
const char *varve_last_error_child(void);

// The index of the child that VARVE_FOREIGN_DUPLICATE_KEY was about. Valid as above.
const char *varve_last_error_child_index(void);

// Which row, of those that were looked at, VARVE_NULL_VALUE was about: 1 is the first. `column` is set to
// the column's name, valid as above.
uint64_t varve_last_error_null(const char **column);

// What is wrong with the parent. Where columns are, `column` and `parent_column` are set to their names,
// valid as above.
enum varve_parent_fault varve_last_error_parent(const char **column, const char **parent_column);

// Makes a table's file, "schema/table.vdt" in the data directory, one that can be copied, until
// varve_export_end: it has all that is in the table, and does not change. Others may read the table
// meanwhile. It begins once no transaction changes the table; waits for locks as long as `txn` does, unless
// it is null, and an interrupt of `txn` ends the wait with VARVE_INTERRUPTED. Purge stands still for all
// tables. VARVE_UNSUPPORTED: a temporary table.
enum varve_code varve_export_begin(const struct varve_db *db,
                                   const struct varve_txn *txn,
                                   const char *name,
                                   struct varve_export **out);

// The table may be changed again.
void varve_export_end(struct varve_export *export_);

// Takes a table's rows and its file away, durably, and keeps its definition; also if it can't be used. The
// caller sees to it that nobody uses it. It can't be opened then (VARVE_DISCARDED), but have a file
// imported, or be emptied, renamed or dropped. The file that waits to be imported is left alone until then,
// is renamed and dropped with the table, and keeps it from being emptied. VARVE_DISCARDED: it has no rows.
// VARVE_UNSUPPORTED: a temporary table.
enum varve_code varve_table_discard(const struct varve_db *db, const char *name, enum varve_foreign_key_checks checks);

// Gives a table whose rows were discarded, or whose file is lost, those of the file that lies in its place,
// "schema/table.vdt" in the data directory, durably: a copy of one that was exported, or of one of a
// database that was closed cleanly. The file is removed. An interrupt of `txn`, unless it is null, ends it
// with VARVE_INTERRUPTED. Views that are older than that don't read the table (VARVE_DEFINITION_CHANGED).
// VARVE_ALREADY_EXISTS: the table has its rows; VARVE_SCHEMA_MISMATCH: the file is another table's;
// VARVE_CORRUPT: it is damaged; VARVE_IO: it is not there. Table and file are as they were then.
enum varve_code varve_table_import(const struct varve_db *db, const struct varve_txn *txn, const char *name);

// Changes how pages are written, from now on. VARVE_INVALID: a value is out of bounds, nothing was changed.
enum varve_code varve_db_set_flush(const struct varve_db *db, const struct varve_flush_options *options);

// Hands the table's foreign keys to `each`, for as long as the call takes.
enum varve_code varve_table_foreign_keys(const struct varve_table *table, varve_foreign_key_fn each, void *context);

// The same with those that refer to the table, its own among them.
enum varve_code varve_table_referencing(const struct varve_table *table, varve_foreign_key_fn each, void *context);

// A number that is another one as soon as varve_table_foreign_keys or varve_table_referencing may say
// something else of any table, and now and then without that. Costs next to nothing.
uint64_t varve_db_foreign_keys_changed(const struct varve_db *db);

// Whether a foreign key refers to the table. Costs next to nothing.
bool varve_table_is_referenced(const struct varve_table *table);

// Changes what becomes of versions that old read views need, from purge's next batch on. Views that rely on
// the store already keep doing so. VARVE_INVALID: a value is out of bounds, nothing was changed.
enum varve_code varve_db_set_history(const struct varve_db *db, const struct varve_history_options *options);

// Has these measure what all databases of this process do from now on, for as long as it runs. Call it
// before the first one is opened: files that are open already would be told without their names.
//
// # Errors
//
// `VARVE_ALREADY_EXISTS`: there are some.
//
// # Safety
//
// `instruments` points to such a structure. Its functions may be called by any thread until the process
// ends, or no database is open any more.
enum varve_code varve_set_instruments(const struct varve_instruments *instruments);

// Begins to load all rows of an empty table, which takes a fraction of what inserts take. Otherwise it is
// as if the transaction had inserted them. It has the table locked exclusively until varve_load_finish or
// varve_load_abandon, and should not use it otherwise until then.
//
// If the table's name begins with # behind the schema nobody uses it before varve_table_rename gives it
// another one. It is locked until the transaction ends, and if the load does not come to its end the table
// is to be dropped: there is no way back.
//
// Sorting takes the memory of varve_options.sort_buffer_bytes, divided by `at_once`: how many loads go on at
// the same time. VARVE_UNSUPPORTED: the table is a temporary one, or has foreign keys to be checked: not
// varve_foreign_key.kept, and not a transaction that does not check them.
enum varve_code varve_load_begin(const struct varve_txn *txn,
                                 const struct varve_table *table,
                                 uint32_t at_once,
                                 struct varve_load **out);

// The same if that can be at once. VARVE_UNSUPPORTED, without an error's words: rows are to be inserted,
// because the table is not empty, or others use it, or it can't be loaded at all.
enum varve_code varve_load_try(const struct varve_txn *txn,
                               const struct varve_table *table,
                               uint32_t at_once,
                               struct varve_load **out);

// Takes a row: `n` values, one for each column, in the table's order. It may come in any place of the order
// of its primary key. After an error no other row is taken.
enum varve_code varve_load_row(struct varve_load *load,
                               const struct varve_txn *txn,
                               const struct varve_value *row,
                               uint32_t n);

// The same for who has to know at once whether the row is a duplicate, of a table that has no unique index
// but the primary key. VARVE_UNSUPPORTED, without an error's words: it does not come behind the others in
// the order of the primary key, and was not taken. When the load has been finished it may be inserted.
enum varve_code varve_load_next(struct varve_load *load,
                                const struct varve_txn *txn,
                                const struct varve_value *row,
                                uint32_t n);

// Loads what is left; the table has all rows then, and its indexes all entries, a table whose name begins
// with # durably. If rows have the
// same values in a unique index, `duplicate` is called before the answer is VARVE_DUPLICATE_KEY: with the
// first row that has those of one that came before it. `load` is gone then, whatever the answer.
enum varve_code varve_load_finish(struct varve_load *load,
                                  const struct varve_txn *txn,
                                  varve_duplicate_fn duplicate,
                                  void *context);

// Ends a load before its end. What it has done of a table whose name does not begin with #, a rollback takes
// back.
void varve_load_abandon(struct varve_load *load, const struct varve_txn *txn);

// Starts a server for clients of memcached, whose items are the rows of `store`. VARVE_INVALID for options
// that can't be used, VARVE_IO if the port or the socket is taken.
enum varve_code varve_memcached_start(const struct varve_memcached_store *store,
                                      const struct varve_memcached_options *options,
                                      struct varve_memcached **out);

// A cas for a row that has no column for one: another one when the row's values are others.
uint64_t varve_memcached_fingerprint(const struct varve_memcached_item *item);

// Hands what it has counted to `each`, by memcached's names. Zeros if it is null.
void varve_memcached_status(const struct varve_memcached *server, varve_counter_fn each, void *context);

// Where it listens, for people. Valid until it is stopped.
const char *varve_memcached_place(const struct varve_memcached *server);

// The port that it listens on; 0: on none.
uint16_t varve_memcached_port(const struct varve_memcached *server);

// Stops it, once the batches that are being done are done. Nothing of it is left when this returns: all
// sessions are closed.
void varve_memcached_stop(struct varve_memcached *server);

// Starts a monitor of the database, in a thread of its own. VARVE_INVALID for an address that can't be used
// or a file without a usable token, VARVE_IO if the port is taken or the file can't be read.
enum varve_code varve_monitor_start(const struct varve_db *db,
                                    const struct varve_monitor_options *options,
                                    struct varve_monitor **out);

// Where the page is. Valid until the monitor is stopped.
const char *varve_monitor_url(const struct varve_monitor *monitor);

// Stops it: before the database is closed. Nothing of it is left when this returns.
void varve_monitor_stop(struct varve_monitor *monitor);

// Changes what is done when the database is closed, and by the next two. VARVE_INVALID: a value is out of
// bounds, nothing was changed.
enum varve_code varve_db_set_pool_dump(const struct varve_db *db, const struct varve_pool_dump_options *options);

// Writes the list now.
enum varve_code varve_db_pool_dump(const struct varve_db *db);

// Begins to read the pages on the list in, in the background.
enum varve_code varve_db_pool_load(const struct varve_db *db);

// Ends that, if it is under way.
void varve_db_pool_load_abort(const struct varve_db *db);

// Hands that to `tell`.
void varve_db_pool_dump_status(const struct varve_db *db, varve_pool_dump_status_fn tell, void *context);

// Promises, as durably as commits are, that the running transaction's commit will not fail. After it only
// varve_txn_commit and its kin, varve_txn_rollback or varve_txn_detach may be called. Does nothing if the
// transaction wrote nothing. VARVE_ALREADY_EXISTS if another one is prepared under the name.
enum varve_code varve_txn_prepare(const struct varve_txn *txn, const struct varve_xid *xid);

// Has the running transaction changed temporary tables? Nobody else can use them until it has ended, even if
// its session lets it go.
bool varve_txn_has_temporary_changes(const struct varve_txn *txn);

// The prepared transaction gives up what a restart would not bring back either: its locks on rows that it
// has not changed, and on gaps. At VARVE_SERIALIZABLE it keeps them. Does nothing if it is not prepared.
enum varve_code varve_txn_release_searches(const struct varve_txn *txn);

// Gets hold of what the running transaction's commit needs, so that varve_txn_commit_start neither fails nor
// waits for a disk. May wait itself.
enum varve_code varve_txn_hold_commit(const struct varve_txn *txn);

// Commits as far as others see: the changes are visible and the locks are released, but a crash may still
// undo it. varve_txn_commit or varve_txn_commit_decided ends it. Another thread than the session's own may
// call this, while that one waits for it.
enum varve_code varve_txn_commit_start(const struct varve_txn *txn);

// Ends what varve_txn_commit_start began, without waiting: the transaction was prepared, and its coordinator
// has logged the decision, which it will repeat if there is a crash before the commit is durable.
enum varve_code varve_txn_commit_decided(const struct varve_txn *txn);

// Lets a prepared transaction go: the session has no transaction any more, and anybody can decide by
// varve_db_commit_prepared or varve_db_rollback_prepared. `*out` says whether there was one; a transaction
// that is not prepared stays.
enum varve_code varve_txn_detach(const struct varve_txn *txn, bool *out);

// Commits a prepared transaction that its session has let go, or that a crash left. VARVE_NOT_FOUND if none
// is prepared under the name.
enum varve_code varve_db_commit_prepared(const struct varve_db *db, const struct varve_xid *xid);

// Rolls it back.
enum varve_code varve_db_rollback_prepared(const struct varve_db *db, const struct varve_xid *xid);

// Hands the names of all prepared transactions to `each`, in order.
enum varve_code varve_db_prepared(const struct varve_db *db, varve_xid_fn each, void *context);

// Has `notify` called once everything that is committed now is durable: at once if it is, otherwise soon,
// from another thread. Does not wait. It is not called if the database is poisoned or closed before.
enum varve_code varve_db_notify_durable(const struct varve_db *db, varve_notify_fn notify, void *context);

// Locks a whole table for reading, until the transaction ends: waits for those who changed it, prepared
// transactions without a session among them. If `exclusive`, it waits also for those who have looked for
// parents there.
enum varve_code varve_txn_lock_table(const struct varve_txn *txn, const struct varve_table *table, bool exclusive);

// From now on `told` is called by the session's own thread, within calls that take long: those about
// redefinitions, which were prepared with this session, varve_load_finish, varve_table_check,
// varve_table_analyze, and those that roll back.
// `context` stays until the session is closed.
void varve_txn_set_watch(const struct varve_txn *txn, varve_watch_fn told, void *context);

// Prepares to give the table of this definition's name other names of columns and indexes, columns of bytes
// or text greater lengths, more columns or fewer, another order, and other indexes, once nobody uses it;
// no row is changed. All else has to be as it is, or VARVE_UNSUPPORTED says what is not; foreign keys are
// not looked at. An index that foreign keys need stays, or varve_redefinition_commit says VARVE_INVALID or
// VARVE_BAD_FOREIGN_KEY, unless the first definition's `foreign_key_checks` is VARVE_IGNORE_REFERENCES. If
// there are indexes to be built, others may use the table again then, until that commit. A consistent view
// that is older than an index does not read it (VARVE_DEFINITION_CHANGED). Waits for locks as long as `txn`
// does, unless it is null, here and later; an interrupt of `txn` ends all with VARVE_INTERRUPTED.
enum varve_code varve_redefinition_prepare(const struct varve_db *db,
                                           const struct varve_txn *txn,
                                           const struct varve_table_def *def,
                                           struct varve_redefinition **out);

// Prepares to write all rows of the table of this definition's name anew and to give it this definition,
// once nobody uses it; others use it then, until varve_redefinition_commit. Beside what
// varve_redefinition_prepare takes it may have another primary key, or one where there was none, columns
// that cease to take NULL, new indexes together with other columns, and new columns that are computed,
// converted, or the AUTO_INCREMENT column (varve_redefinition_set_value_source); while that is counted
// others may only read. A consistent view that is older than the end does not read the table
// (VARVE_DEFINITION_CHANGED). VARVE_NULL_VALUE comes of varve_redefinition_build or
// varve_redefinition_commit if a row has NULL where there is to be none and the value source has nothing
// instead. All else is as there.
enum varve_code varve_rebuild_prepare(const struct varve_db *db,
                                      const struct varve_txn *txn,
                                      const struct varve_table_def *def,
                                      struct varve_redefinition **out);

// Another table, with as many columns as the first one, too, gets what varve_redefinition_prepare takes:
// all get their definitions, or none, whatever happens. After an error there is nothing to do but to abandon
// all. VARVE_UNSUPPORTED comes of varve_redefinition_commit if one of several tables has foreign keys, or is
// referred to.
enum varve_code varve_redefinition_add(const struct varve_db *db,
                                       struct varve_redefinition *redefinition,
                                       const struct varve_table_def *def);

// Another table is rebuilt, too, as varve_rebuild_prepare does it. All else is as for
// varve_redefinition_add.
enum varve_code varve_rebuild_add(const struct varve_db *db,
                                  struct varve_redefinition *redefinition,
                                  const struct varve_table_def *def);

// Sets whom to ask for values of columns that are new in a table that is rebuilt, and computed or counted,
// and for what columns have that are converted, or cease to take NULL. Columns are converted by the row as
// it was; all else is asked for by the row of the table as it will be, with NULL in what is asked for. The
// AUTO_INCREMENT column is asked for once for each row, in their order, one table after the other as they
// were prepared. `source` is copied; what it points to stays until the redefinition is gone.
enum varve_code varve_redefinition_set_value_source(const struct varve_db *db,
                                                    struct varve_redefinition *redefinition,
                                                    const struct varve_value_source *source);

// The AUTO_INCREMENT counter of each table that is prepared will be `next`, or what follows the greatest
// value in its rows, which may be less than it is now. Without this it stays, or is what follows the values
// of a column that is new.
enum varve_code varve_redefinition_set_auto_increment(const struct varve_db *db,
                                                      struct varve_redefinition *redefinition,
                                                      uint64_t next);

// The table that was prepared last will have this foreign key, whose columns are called as they will be. Its
// rows are not looked at, and the parent need not be there. VARVE_BAD_FOREIGN_KEY if it is there and does
// not fit; VARVE_CONSTRAINT_EXISTS; either may come of varve_redefinition_commit, too.
enum varve_code varve_redefinition_add_foreign_key(const struct varve_db *db,
                                                   struct varve_redefinition *redefinition,
                                                   const struct varve_foreign_key *key);

// The table that was prepared last will not have this foreign key any more. VARVE_NOT_FOUND: it has none of
// this name.
enum varve_code varve_redefinition_drop_foreign_key(const struct varve_db *db,
                                                    struct varve_redefinition *redefinition,
                                                    const char *name);

// Builds the new indexes, or tables, while others use those that are there. VARVE_DUPLICATE_KEY comes after
// `duplicate` was called; VARVE_TOO_MANY_CHANGES if more was changed meanwhile than there is room to note.
// After an error it can only be abandoned.
enum varve_code varve_redefinition_build(const struct varve_db *db,
                                         struct varve_redefinition *redefinition,
                                         varve_duplicate_fn duplicate,
                                         void *context);

// Gives the tables their new definitions, durably, once nobody uses them; handles must be opened again.
// Fails as varve_redefinition_build does. `redefinition` is gone then, whatever the answer.
enum varve_code varve_redefinition_commit(const struct varve_db *db,
                                          struct varve_redefinition *redefinition,
                                          varve_duplicate_fn duplicate,
                                          void *context);

// Leaves the tables as they are.
void varve_redefinition_abandon(struct varve_redefinition *redefinition);

// How many leaves of each index are looked at for estimates from now on, and what keys with a NULL are to
// them, whoever asks for them. What is no varve_nulls is VARVE_NULLS_EQUAL.
void varve_table_set_sampling(const struct varve_table *table, uint32_t leaves, enum varve_nulls nulls);

// Whether estimates are kept (varve_table_keep_statistics, varve_table_set_statistics); how many rows the
// table had when they were made goes to `rows`.
bool varve_table_keeps_statistics(const struct varve_table *table, uint64_t *rows);

// Tells the estimates that there are. From now on they stay as they are, until varve_table_analyze or
// varve_table_set_statistics. `txn` may be null; if not, and it locks tables itself, nobody drops or
// redefines this one until its running transaction ends. VARVE_NO_ROW: there are none yet.
enum varve_code varve_table_keep_statistics(const struct varve_table *table,
                                            const struct varve_txn *txn,
                                            struct varve_totals *totals,
                                            varve_statistic_fn each,
                                            void *context);

// The table's estimates become these, whatever it contains, and stay like that. Nothing is too absurd; what
// is said of indexes or columns that the table has not got is passed over. `complete` is whether something
// was said of each index; the others are looked at.
enum varve_code varve_table_set_statistics(const struct varve_table *table,
                                           const struct varve_totals *totals,
                                           const struct varve_statistic *statistics,
                                           uint32_t n,
                                           bool *complete);

// Hands every counter to `each`.
enum varve_code varve_db_status(const struct varve_db *db, varve_counter_fn each, void *context);

// Hands every metric to `each`, those of a subsystem together.
enum varve_code varve_db_metrics(const struct varve_db *db, varve_metric_fn each, void *context);

// Hands every undo tablespace to `each`, by number.
enum varve_code varve_db_undo_tablespaces(const struct varve_db *db, varve_undo_tablespace_fn each, void *context);

// Says how far purge has come, and when it will be through.
enum varve_code varve_db_purge(const struct varve_db *db, struct varve_purge *out);

// Opens a table.
enum varve_code varve_table_open(const struct varve_db *db, const char *name, struct varve_table **out);

// Closes a table's handle; cursors on it may stay open.
void varve_table_close(struct varve_table *table);

uint32_t varve_table_n_columns(const struct varve_table *table);

// A number that becomes another one when the table is redefined, and is the same after a restart.
uint64_t varve_table_hash(const struct varve_table *table);

// Whether the table has exactly these columns and this primary key.
bool varve_table_is_made_of(const struct varve_table *table, const struct varve_table_def *def);

// Whether varve_redefinition_prepare takes this definition for the table.
bool varve_table_can_become(const struct varve_table *table, const struct varve_table_def *def);

// Whether the table has just this definition: varve_redefinition_prepare would take it, and change nothing.
bool varve_table_is_defined_as(const struct varve_table *table, const struct varve_table_def *def);

// Whether varve_rebuild_prepare takes this definition for the table.
bool varve_table_can_be_rebuilt(const struct varve_table *table, const struct varve_table_def *def);

// Is it a temporary table? Nobody else can use it, so there is nobody to wait for.
bool varve_table_is_temporary(const struct varve_table *table);

// The directory that the table's file was given when it was created (varve_table_def), until the handle is
// closed; null if it is in the data directory.
const char *varve_table_data_directory(const struct varve_table *table);

// Number of secondary indexes.
uint32_t varve_table_n_indexes(const struct varve_table *table);

// The longest position that varve_cursor_position can give for this table, in bytes.
uint32_t varve_table_max_position(const struct varve_table *table);

// The index of `table` that this thread's last VARVE_DUPLICATE_KEY was about: 0 the clustered one, 1, 2, …
// the secondary ones, UINT32_MAX if it was about none of this table's.
uint32_t varve_last_error_index(const struct varve_table *table);

// Looks up a table's statistics.
enum varve_code varve_table_get_stats(const struct varve_table *table, struct varve_table_stats *out);

// Estimates for each n = 1, 2, … how many rows share the first n parts of their key, on average: the index's
// own parts, then in a secondary index those of the primary key. `out` gets at most `n` of them. Estimates
// are kept, and made again when a tenth of the rows has come or gone.
enum varve_code varve_table_rows_per_key(const struct varve_table *table, uint32_t index, double *out, uint32_t n);

// Makes the estimates about all indexes anew. `txn` may be null; if not, what interrupts its running
// transaction ends this, too, and if it locks tables itself nobody drops or redefines this one until it
// ends.
enum varve_code varve_table_analyze(const struct varve_table *table, const struct varve_txn *txn);

// Estimates the number of rows between two keys of an index.
enum varve_code varve_table_records_in_range(const struct varve_table *table,
                                             uint32_t index,
                                             const struct varve_bound *low,
                                             const struct varve_bound *high,
                                             uint64_t *out);

// Makes `next` the counter's next value, durably.
enum varve_code varve_table_set_auto_increment(const struct varve_table *table, uint64_t next);

// Makes the counter's next value at least `next`, in memory only: rows with values of the counter make it
// durable.
void varve_table_raise_auto_increment(const struct varve_table *table, uint64_t next);

// Checks a table's structure: order, links, counts, and that clustered and secondary entries pair up. Each
// thing wrong goes to `each`, and makes the call return VARVE_CORRUPT; rows without a parent go there, too,
// and do not. `rows` gets the number of rows. `txn`
// may be null; if not, the check waits for others as long as its running transaction would, which has not
// changed the table, and is interrupted with it.
enum varve_code varve_table_check(const struct varve_table *table,
                                  const struct varve_txn *txn,
                                  varve_text_fn each,
                                  void *context,
                                  uint64_t *rows);

// Whose this session's transactions are, for lists of transactions: a number other than 0 that the caller
// chooses. From its next transaction on.
void varve_txn_set_session(const struct varve_txn *txn, uint64_t session);

// How many microseconds this session's transaction has waited for locks since this was asked for last, or
// since it began.
uint64_t varve_txn_take_lock_wait_us(const struct varve_txn *txn);

// Hands every running transaction to `each`, those of the engine itself included.
enum varve_code varve_db_transactions(const struct varve_db *db, varve_transaction_fn each, void *context);

// Hands each lock that is waited for to `each`, once for every other one that is in its way: those that are
// held, and if none is held, those that were asked for before it.
enum varve_code varve_db_lock_waits(const struct varve_db *db, varve_lock_wait_fn each, void *context);

// Hands what `SHOW ENGINE STATUS` says beside counters to `each`, by turns a title and its lines: the last
// deadlock, lock waits, what holds purge back, each transaction. `session` is asked about the sessions of
// transactions, with a context of its own.
enum varve_code varve_db_report(const struct varve_db *db,
                                varve_session_fn session,
                                void *sessions,
                                varve_text_fn each,
                                void *context);

// When the last deadlock was found that the report tells, in seconds since 1970; 0: there was none.
enum varve_code varve_db_last_deadlock(const struct varve_db *db, uint64_t *out);

// Has the reports of deadlocks say what the sessions of their members were doing. To be called by who got
// VARVE_DEADLOCK, before it rolls back: until then the others wait for it. `each` gets those reports, of the
// newest 64 deadlocks if nobody has asked for long; NULL: nobody wants them.
enum varve_code varve_db_describe_deadlocks(const struct varve_db *db,
                                            varve_session_fn session,
                                            void *sessions,
                                            void (*each)(void *context, const char *text),
                                            void *context);

// Takes `n` consecutive values from a table's counter for the running statement; `first` gets the first of
// them. Values are not given back by a rollback, and never given twice, also after a crash.
enum varve_code varve_auto_increment_reserve(const struct varve_txn *txn,
                                             const struct varve_table *table,
                                             uint64_t n,
                                             enum varve_auto_increment_lock lock,
                                             uint64_t *first);

// Opens a session.
enum varve_code varve_txn_open(const struct varve_db *db, enum varve_table_locks locking, struct varve_txn **out);

// Closes a session; a transaction that has not ended is rolled back.
void varve_txn_close(struct varve_txn *txn);

// Begins a transaction. It costs next to nothing until it reads or writes.
enum varve_code varve_txn_begin(const struct varve_txn *txn, enum varve_isolation isolation);

// Has a transaction begun and not ended?
bool varve_txn_is_open(const struct varve_txn *txn);

// The transaction's id, 0 as long as it has written nothing.
uint64_t varve_txn_id(const struct varve_txn *txn);

// Opens the transaction's read view now, instead of at its first read.
enum varve_code varve_txn_take_snapshot(const struct varve_txn *txn);

// A statement begins: what follows can be undone by varve_txn_rollback_statement, and under READ COMMITTED
// it gets a read view of its own.
enum varve_code varve_txn_start_statement(const struct varve_txn *txn);

// A statement has ended well: it gives up the locks on tables' counters that it took.
enum varve_code varve_txn_end_statement(const struct varve_txn *txn);

// Undoes what the statement did; nothing if no transaction is running. Its locks on rows and gaps stay.
enum varve_code varve_txn_rollback_statement(const struct varve_txn *txn);

// Marks a point that varve_txn_rollback_to can go back to, as often as wanted.
enum varve_code varve_txn_savepoint(const struct varve_txn *txn, uint64_t *out);

// Undoes everything since the savepoint. Locks stay. One that the transaction has not got, or that it has
// gone back behind, is VARVE_INVALID.
enum varve_code varve_txn_rollback_to(const struct varve_txn *txn, uint64_t savepoint);

// Whether others may have to wait for the transaction: it has written, or holds a lock. False if none is
// running.
bool varve_txn_holds_locks(const struct varve_txn *txn);

// Commits, or ends what varve_txn_commit_start began. Returns when the commit is as durable as the database
// is set to make it. On an error the transaction has ended too: the database is poisoned, and recovery
// decides.
enum varve_code varve_txn_commit(const struct varve_txn *txn);

// Rolls back; nothing if no transaction is running.
enum varve_code varve_txn_rollback(const struct varve_txn *txn);

// Drops a temporary table that the running transaction may have used; it goes on. VARVE_NOT_FOUND if there
// is no temporary table of that name. Handles and cursors of the table must be closed, not used any more.
enum varve_code varve_txn_drop_temporary(const struct varve_txn *txn, const char *name);

// The running transaction did something elsewhere that can't be taken back, or did not: if it runs into a
// deadlock, others are rolled back rather than one that did. Nothing if none is running.
void varve_txn_set_spared(const struct varve_txn *txn, bool spared);

// How long this session waits for a lock; 0 does not wait at all.
void varve_txn_set_lock_wait_timeout(const struct varve_txn *txn, uint64_t ms);

// Where what this session loads, and what it prepares to redefine, is sorted if memory is not enough: a
// directory, in which there is a file without a name as long as that takes. Null: where
// varve_options.sort_directory says.
enum varve_code varve_txn_set_sort_directory(const struct varve_txn *txn, const char *directory);

// Whether this session's changes are checked by foreign keys, and followed by children. They are unless this
// was called. What is changed while they are not is not looked at later.
void varve_txn_set_foreign_key_checks(const struct varve_txn *txn, bool on);

// Sets whom to ask for values when a foreign key changes a row of a table that has computed columns or
// history. Without one such a change is VARVE_UNSUPPORTED. `source` is copied; what it points to stays until
// the session is closed.
void varve_txn_set_value_source(const struct varve_txn *txn, const struct varve_value_source *source);

// Makes this session's waits, searches and whatever else may take long, those of now and later ones, end
// with VARVE_INTERRUPTED, until varve_txn_clear_interrupt. Rollback and commit go on. From any thread.
void varve_txn_interrupt(const struct varve_txn *txn);

// Lets this session's transactions go on again. Whoever looks after this call sees what the interrupter had
// done before an interrupt that is cleared.
void varve_txn_clear_interrupt(const struct varve_txn *txn);

// From its next transaction on `txn` is interrupted when `by` is, and no more by calls about `txn` itself:
// for a session that does something on behalf of another. Either may be closed before the other.
void varve_txn_interrupt_with(const struct varve_txn *txn, const struct varve_txn *by);

// Locks a search key exclusively, whether or not any row has it, against those who do the same: so a caller
// can keep keys unique that the engine does not.
enum varve_code varve_lock_key(const struct varve_txn *txn,
                               const struct varve_table *table,
                               uint32_t index,
                               const struct varve_value *key,
                               uint32_t n);

// Inserts a row: `n` values, one for each column, in the table's order.
enum varve_code varve_insert(const struct varve_txn *txn,
                             const struct varve_table *table,
                             const struct varve_value *row,
                             uint32_t n,
                             enum varve_on_duplicate on_duplicate);

// Inserts `n_rows` rows of `n` values each, one row's behind the other's, which costs less than one call for
// each. If one can't be inserted, none is. A row with the same key is locked as VARVE_DUPLICATE_SHARE says.
enum varve_code varve_insert_many(const struct varve_txn *txn,
                                  const struct varve_table *table,
                                  const struct varve_value *rows,
                                  uint32_t n,
                                  uint32_t n_rows);

// Gives the row that the cursor stands on new values: `n`, one for each column. They may be the cursor's
// own. VARVE_UNCHANGED: it has these values already, byte by byte, and nothing was written.
enum varve_code varve_update(const struct varve_txn *txn,
                             const struct varve_cursor *cursor,
                             const struct varve_value *row,
                             uint32_t n);

// Deletes the row that the cursor stands on. The cursor stays there and can go on.
enum varve_code varve_delete(const struct varve_txn *txn, const struct varve_cursor *cursor);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* VARVE_H */
