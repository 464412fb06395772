/* What the benchmark wants of an engine that is written in C or C++. All functions but `message` return 0
 * or an error, of which `message` then says what it was (for the calling thread). A worker belongs to one
 * thread. */
#ifndef VARVE_BENCH_PEER_H
#define VARVE_BENCH_PEER_H

#include <stddef.h>
#include <stdint.h>

typedef void (*peer_visit)(void *context, uint64_t key, const uint8_t *value, size_t len);
typedef void (*peer_change)(void *context, uint8_t *value, size_t len);

typedef struct {
  int (*open)(const char *dir, uint64_t cache_bytes, void **engine);
  int (*close)(void *engine);
  int (*worker_open)(void *engine, int sync, void **worker);
  void (*worker_close)(void *worker);
  /* One transaction: puts `n` rows whose values of `len` bytes lie one behind the other. */
  int (*load)(void *worker, const uint64_t *keys, size_t n, const uint8_t *values, size_t len);
  /* One transaction with a snapshot of its own: reads a row. */
  int (*get)(void *worker, uint64_t key, peer_visit visit, void *context);
  /* One transaction: locks a row, reads it, lets it be changed, writes it. */
  int (*update)(void *worker, uint64_t key, peer_change change, void *context);
  /* Opens a snapshot. The worker does nothing else until `release`. */
  int (*hold)(void *worker);
  /* All rows of the snapshot in the order of the keys, as often as wanted. */
  int (*scan)(void *worker, peer_visit visit, void *context);
  int (*release)(void *worker);
  const char *(*message)(void);
} peer_engine;

extern const peer_engine peer_rocksdb;
extern const peer_engine peer_wiredtiger;

#endif
