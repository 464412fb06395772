// What is plotted, and how numbers are written. No plot knows where its values come from.
"use strict";

// Steps of an axis of bytes, so that its numbers are round.
const POWERS_OF_TWO = Array.from({ length: 50 }, (_, n) => 2 ** n);

// Nothing is counted by halves.
const WHOLE = [1, 2, 5].flatMap((n) => Array.from({ length: 15 }, (_, zeros) => n * 10 ** zeros)).sort((a, b) => a - b);

const UNITS = {
  count: { text: countText, axis: countText, steps: WHOLE },
  rate: { text: (v) => countText(v) + "/s", axis: countText },
  bytes: { text: bytesText, axis: bytesText, steps: POWERS_OF_TWO },
  byteRate: { text: (v) => bytesText(v) + "/s", axis: bytesText, steps: POWERS_OF_TWO },
  percent: { text: (v) => (v > 99.9 && v < 100 ? v.toFixed(3) : v.toFixed(1)) + " %", axis: (v) => trimmed(v, 3) + " %" },
  usec: { text: (v) => countText(v) + " µs", axis: countText, steps: WHOLE },
  seconds: { text: secondsText, axis: secondsText },
};

function trimmed(value, digits) {
  return String(Number(value.toFixed(digits)));
}

function countText(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return trimmed(value / 1e9, size >= 1e10 ? 1 : 2) + " G";
  if (size >= 1e6) return trimmed(value / 1e6, size >= 1e7 ? 1 : 2) + " M";
  if (size >= 1e4) return trimmed(value / 1e3, size >= 1e5 ? 0 : 1) + " k";
  if (size >= 1e3) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  return trimmed(value, size >= 10 ? 0 : size >= 1 ? 1 : 2);
}

function bytesText(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let n = 0;
  while (Math.abs(value) >= 1024 && n < units.length - 1) {
    value /= 1024;
    n++;
  }
  return trimmed(value, value >= 10 || n === 0 ? 0 : 1) + " " + units[n];
}

function secondsText(value) {
  const s = Math.round(value);
  if (s < 120) return s + " s";
  if (s < 7200) return Math.floor(s / 60) + " min";
  return trimmed(s / 3600, 1) + " h";
}

// A series: its label, its color, and its value from a sample (`at`) and the one before (`was`, `seconds`
// earlier); null where there is none.
const now = (name) => (at) => at[name];
const perSecond = (name) => (at, was, seconds) => (was ? Math.max(0, at[name] - was[name]) / seconds : null);

function hitRate(at, was) {
  const requests = was ? at.buffer_pool_read_requests - was.buffer_pool_read_requests : 0;
  return requests > 0 ? 100 * (1 - (at.buffer_pool_reads - was.buffer_pool_reads) / requests) : null;
}

const PLOTS = [
  { title: "Transactions", unit: "rate", area: true, series: [
    ["commits", "--s1", perSecond("commits")],
    ["rollbacks", "--s5", perSecond("rollbacks")]] },
  { title: "History: transactions that wait for purge", unit: "count", area: true, series: [
    ["history length", "--s4", now("history_list_length")]] },
  { title: "Old versions: what is kept", unit: "bytes", area: true, series: [
    ["undo in use", "--s1", (at) => at.undo_pages_used * at.page_size],
    ["history store", "--s2", now("history_store_bytes")]] },
  { title: "Purge", unit: "rate", series: [
    ["transactions purged", "--s2", perSecond("purged_logs")],
    ["delay of each change", "--s5", now("purge_dml_delay_usec"), "usec"]] },
  { title: "Checkpoint age and its watermarks", unit: "bytes", area: true, series: [
    ["age", "--s1", now("checkpoint_age")],
    ["faster from", "--s3", now("checkpoint_age_async"), null, "dashed"],
    ["full speed from", "--s5", now("checkpoint_age_sync"), null, "dashed"]] },
  { title: "Redo log written", unit: "byteRate", area: true, series: [
    ["redo", "--s1", perSecond("os_log_written")]] },
  { title: "Changed pages not written yet", unit: "count", area: true, series: [
    ["dirty pages", "--s3", now("buffer_pool_pages_dirty")]] },
  { title: "Pages written, by cause", unit: "rate", series: [
    ["age", "--s1", perSecond("buffer_flush_adaptive_total_pages")],
    ["late", "--s3", perSecond("buffer_flush_async_total_pages")],
    ["log full", "--s5", perSecond("buffer_flush_sync_total_pages")],
    ["dirty", "--s4", perSecond("buffer_flush_max_dirty_total_pages")],
    ["idle", "--s2", perSecond("buffer_flush_background_total_pages")],
    ["room", "--s7", perSecond("buffer_pool_pages_lru_flushed")],
    ["asked for", "--s6", perSecond("buffer_flush_requested_total_pages")]] },
  { title: "Buffer pool: found in memory", unit: "percent", top: 100, series: [
    ["hit rate", "--s2", hitRate]] },
  { title: "Undo tablespaces", unit: "bytes", area: true, events: "undo_truncations", eventName: "truncations", series: [
    ["size of files", "--s4", now("undo_size_bytes")]] },
  { title: "Waits for row locks", unit: "rate", series: [
    ["begun", "--s1", perSecond("row_lock_waits")],
    ["waiting now", "--s5", now("row_lock_current_waits"), "count"]] },
  { title: "Rows", unit: "rate", series: [
    ["read", "--s2", perSecond("rows_read")],
    ["inserted", "--s1", perSecond("rows_inserted")],
    ["updated", "--s3", perSecond("rows_updated")],
    ["deleted", "--s5", perSecond("rows_deleted")]] },
];

// Everything that these and the tiles read of a sample.
const COLUMNS = [
  "commits", "rollbacks", "history_list_length", "undo_pages_used", "page_size", "history_store_bytes",
  "purged_logs", "purge_dml_delay_usec", "checkpoint_age", "checkpoint_age_async", "checkpoint_age_sync",
  "checkpoint_max_age", "os_log_written", "buffer_pool_pages_dirty", "buffer_pool_pages_total",
  "buffer_flush_adaptive_total_pages", "buffer_flush_async_total_pages", "buffer_flush_sync_total_pages",
  "buffer_flush_max_dirty_total_pages", "buffer_flush_background_total_pages", "buffer_pool_pages_lru_flushed",
  "buffer_flush_requested_total_pages", "buffer_pool_read_requests", "buffer_pool_reads", "undo_size_bytes",
  "undo_truncations", "row_lock_waits", "row_lock_current_waits", "rows_read", "rows_inserted", "rows_updated",
  "rows_deleted", "oldest_view_seconds",
];

const TILES = [
  ["Commits", "rate", perSecond("commits")],
  ["History length", "count", now("history_list_length")],
  ["Oldest snapshot", "seconds", now("oldest_view_seconds")],
  ["Kept for old snapshots", "bytes", now("history_store_bytes")],
  ["Redo log in use", "percent", (at) => (100 * at.checkpoint_age) / at.checkpoint_max_age],
  ["Changed pages", "percent", (at) => (100 * at.buffer_pool_pages_dirty) / at.buffer_pool_pages_total],
];
