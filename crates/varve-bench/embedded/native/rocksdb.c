/* RocksDB: TransactionDB (pessimistic row locks), log on. */
#include "peer.h"

#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  rocksdb_transactiondb_t *db;
} engine_t;

typedef struct {
  rocksdb_transactiondb_t *db;
  rocksdb_writeoptions_t *write;
  rocksdb_readoptions_t *read;
  rocksdb_transaction_options_t *options;
  const rocksdb_snapshot_t *held;
  rocksdb_transaction_t *again; /* used again by the next transaction */
  uint8_t *value;
  size_t room;
} worker_t;

static _Thread_local char said[256];

static const char *message(void) { return said; }

static int failed(char *error) {
  if (!error) return 0;
  snprintf(said, sizeof said, "%s", error);
  rocksdb_free(error);
  return 1;
}

static void to_key(uint64_t key, char out[8]) {
  key = __builtin_bswap64(key);
  memcpy(out, &key, 8);
}

static uint64_t from_key(const char *bytes) {
  uint64_t key;
  memcpy(&key, bytes, 8);
  return __builtin_bswap64(key);
}

static int open_engine(const char *dir, uint64_t cache_bytes, void **out) {
  rocksdb_options_t *options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_compression(options, rocksdb_no_compression);
  rocksdb_options_increase_parallelism(options, 2);
  rocksdb_options_set_max_total_wal_size(options, (uint64_t)1 << 30);
  rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
  rocksdb_block_based_options_set_block_cache(table, rocksdb_cache_create_lru(cache_bytes));
  rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10));
  rocksdb_options_set_block_based_table_factory(options, table);
  rocksdb_transactiondb_options_t *transactions = rocksdb_transactiondb_options_create();
  char *error = NULL;
  engine_t *engine = calloc(1, sizeof *engine);
  engine->db = rocksdb_transactiondb_open(options, transactions, dir, &error);
  *out = engine;
  return failed(error);
}

static int close_engine(void *engine) {
  rocksdb_transactiondb_close(((engine_t *)engine)->db);
  free(engine);
  return 0;
}

static int worker_open(void *engine, int sync, void **out) {
  worker_t *w = calloc(1, sizeof *w);
  w->db = ((engine_t *)engine)->db;
  w->write = rocksdb_writeoptions_create();
  rocksdb_writeoptions_set_sync(w->write, (unsigned char)sync);
  w->read = rocksdb_readoptions_create();
  w->options = rocksdb_transaction_options_create();
  *out = w;
  return 0;
}

static void worker_close(void *worker) {
  worker_t *w = worker;
  if (w->again) rocksdb_transaction_destroy(w->again);
  rocksdb_transaction_options_destroy(w->options);
  rocksdb_readoptions_destroy(w->read);
  rocksdb_writeoptions_destroy(w->write);
  free(w->value);
  free(w);
}

static int load(void *worker, const uint64_t *keys, size_t n, const uint8_t *values, size_t len) {
  worker_t *w = worker;
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  char key[8], *error = NULL;
  for (size_t i = 0; i < n; i++) {
    to_key(keys[i], key);
    rocksdb_writebatch_put(batch, key, 8, (const char *)values + i * len, len);
  }
  rocksdb_transactiondb_write(w->db, w->write, batch, &error);
  rocksdb_writebatch_destroy(batch);
  return failed(error);
}

static int get(void *worker, uint64_t key, peer_visit visit, void *context) {
  worker_t *w = worker;
  char bytes[8], *error = NULL;
  size_t len = 0;
  to_key(key, bytes);
  const rocksdb_snapshot_t *snapshot = rocksdb_transactiondb_create_snapshot(w->db);
  rocksdb_readoptions_set_snapshot(w->read, snapshot);
  char *value = rocksdb_transactiondb_get(w->db, w->read, bytes, 8, &len, &error);
  rocksdb_readoptions_set_snapshot(w->read, NULL);
  rocksdb_transactiondb_release_snapshot(w->db, snapshot);
  if (failed(error)) return 1;
  if (value) visit(context, key, (const uint8_t *)value, len);
  rocksdb_free(value);
  return 0;
}

static int update(void *worker, uint64_t key, peer_change change, void *context) {
  worker_t *w = worker;
  char bytes[8], *error = NULL;
  size_t len = 0;
  to_key(key, bytes);
  rocksdb_transaction_t *trx = rocksdb_transaction_begin(w->db, w->write, w->options, w->again);
  w->again = trx;
  char *value = rocksdb_transaction_get_for_update(trx, w->read, bytes, 8, &len, 1, &error);
  if (failed(error)) return 1;
  if (!value) {
    snprintf(said, sizeof said, "key %llu is missing", (unsigned long long)key);
    return 1;
  }
  change(context, (uint8_t *)value, len);
  rocksdb_transaction_put(trx, bytes, 8, value, len, &error);
  rocksdb_free(value);
  if (failed(error)) return 1;
  rocksdb_transaction_commit(trx, &error);
  return failed(error);
}

static int hold(void *worker) {
  worker_t *w = worker;
  w->held = rocksdb_transactiondb_create_snapshot(w->db);
  rocksdb_readoptions_set_snapshot(w->read, w->held);
  return 0;
}

static int release(void *worker) {
  worker_t *w = worker;
  rocksdb_readoptions_set_snapshot(w->read, NULL);
  rocksdb_transactiondb_release_snapshot(w->db, w->held);
  return 0;
}

static int scan(void *worker, peer_visit visit, void *context) {
  worker_t *w = worker;
  rocksdb_iterator_t *at = rocksdb_transactiondb_create_iterator(w->db, w->read);
  size_t key_len, len;
  for (rocksdb_iter_seek_to_first(at); rocksdb_iter_valid(at); rocksdb_iter_next(at)) {
    uint64_t key = from_key(rocksdb_iter_key(at, &key_len));
    const char *value = rocksdb_iter_value(at, &len);
    visit(context, key, (const uint8_t *)value, len);
  }
  char *error = NULL;
  rocksdb_iter_get_error(at, &error);
  rocksdb_iter_destroy(at);
  return failed(error);
}

const peer_engine peer_rocksdb = {open_engine, close_engine, worker_open, worker_close, load,
                                  get, update, hold, scan, release, message};
