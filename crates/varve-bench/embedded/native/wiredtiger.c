/* WiredTiger: snapshot isolation, log on; a commit syncs if its worker was told to. */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wiredtiger.h>

typedef struct {
  WT_SESSION *session;
  WT_CURSOR *cursor;
  const char *commit;
  uint8_t *value;
  size_t room;
} worker_t;

static _Thread_local char said[256];

static const char *message(void) { return said; }

static int failed(const char *what, int code) {
  if (code == 0) return 0;
  snprintf(said, sizeof said, "%s: %s", what, wiredtiger_strerror(code));
  return 1;
}

static const char TABLE[] = "table:rows";

static int open_engine(const char *dir, uint64_t cache_bytes, void **out) {
  char config[256];
  snprintf(config, sizeof config,
           "create,cache_size=%llu,session_max=64,log=(enabled=true,file_max=256MB),"
           "transaction_sync=(enabled=false,method=fsync),checkpoint=(wait=30,log_size=1GB)",
           (unsigned long long)cache_bytes);
  WT_CONNECTION *connection;
  WT_SESSION *session;
  if (failed("open", wiredtiger_open(dir, NULL, config, &connection))) return 1;
  if (failed("open_session", connection->open_session(connection, NULL, NULL, &session))) return 1;
  int code = session->create(session, TABLE, "key_format=Q,value_format=u");
  session->close(session, NULL);
  *out = connection;
  return failed("create", code);
}

static int close_engine(void *engine) {
  WT_CONNECTION *connection = engine;
  return failed("close", connection->close(connection, NULL));
}

static int worker_open(void *engine, int sync, void **out) {
  WT_CONNECTION *connection = engine;
  worker_t *w = calloc(1, sizeof *w);
  w->commit = sync ? "sync=on" : "sync=off";
  *out = w;
  int code = connection->open_session(connection, NULL, "isolation=snapshot", &w->session);
  if (failed("open_session", code)) return 1;
  return failed("open_cursor", w->session->open_cursor(w->session, TABLE, NULL, NULL, &w->cursor));
}

static void worker_close(void *worker) {
  worker_t *w = worker;
  if (w->session) w->session->close(w->session, NULL);
  free(w->value);
  free(w);
}

static int load(void *worker, const uint64_t *keys, size_t n, const uint8_t *values, size_t len) {
  worker_t *w = worker;
  int code = w->session->begin_transaction(w->session, NULL);
  for (size_t i = 0; i < n && code == 0; i++) {
    WT_ITEM item = {.data = values + i * len, .size = len};
    w->cursor->set_key(w->cursor, keys[i]);
    w->cursor->set_value(w->cursor, &item);
    code = w->cursor->insert(w->cursor);
  }
  if (failed("insert", code)) return 1;
  return failed("commit", w->session->commit_transaction(w->session, w->commit));
}

static int get(void *worker, uint64_t key, peer_visit visit, void *context) {
  worker_t *w = worker;
  WT_ITEM item;
  int code = w->session->begin_transaction(w->session, NULL);
  if (failed("begin", code)) return 1;
  w->cursor->set_key(w->cursor, key);
  code = w->cursor->search(w->cursor);
  if (code == 0) code = w->cursor->get_value(w->cursor, &item);
  if (code == 0) visit(context, key, item.data, item.size);
  w->cursor->reset(w->cursor);
  if (failed("search", code)) return 1;
  return failed("end", w->session->rollback_transaction(w->session, NULL));
}

static int try_update(worker_t *w, uint64_t key, peer_change change, void *context) {
  WT_ITEM item;
  w->cursor->set_key(w->cursor, key);
  int code = w->cursor->search(w->cursor);
  if (code == 0) code = w->cursor->get_value(w->cursor, &item);
  if (code != 0) return code;
  if (w->room < item.size) {
    w->room = item.size;
    w->value = realloc(w->value, w->room);
  }
  memcpy(w->value, item.data, item.size);
  change(context, w->value, item.size);
  WT_ITEM changed = {.data = w->value, .size = item.size};
  w->cursor->set_key(w->cursor, key);
  w->cursor->set_value(w->cursor, &changed);
  return w->cursor->update(w->cursor);
}

static int update(void *worker, uint64_t key, peer_change change, void *context) {
  worker_t *w = worker;
  for (;;) {
    int code = w->session->begin_transaction(w->session, NULL);
    if (failed("begin", code)) return 1;
    code = try_update(w, key, change, context);
    w->cursor->reset(w->cursor);
    if (code == 0) return failed("commit", w->session->commit_transaction(w->session, w->commit));
    w->session->rollback_transaction(w->session, NULL);
    /* Somebody else changed the row first: WiredTiger wants the transaction to be tried again. */
    if (code != WT_ROLLBACK) return failed("update", code);
  }
}

/* The session's snapshot is that of the transaction's begin. */
static int hold(void *worker) {
  worker_t *w = worker;
  return failed("begin", w->session->begin_transaction(w->session, NULL));
}

static int release(void *worker) {
  worker_t *w = worker;
  return failed("end", w->session->rollback_transaction(w->session, NULL));
}

static int scan(void *worker, peer_visit visit, void *context) {
  worker_t *w = worker;
  WT_ITEM item;
  uint64_t key;
  int code = 0;
  w->cursor->reset(w->cursor);
  while ((code = w->cursor->next(w->cursor)) == 0) {
    w->cursor->get_key(w->cursor, &key);
    w->cursor->get_value(w->cursor, &item);
    visit(context, key, item.data, item.size);
  }
  w->cursor->reset(w->cursor);
  return code == WT_NOTFOUND ? 0 : failed("next", code);
}

const peer_engine peer_wiredtiger = {open_engine, close_engine, worker_open, worker_close, load,
                                     get, update, hold, scan, release, message};
