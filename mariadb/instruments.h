// instruments.h: threads, files and memory of the engine in the performance schema.

#ifndef VARVE_INSTRUMENTS_H
#define VARVE_INSTRUMENTS_H

namespace varve_plugin {

// Before the database is opened. Nothing is measured if the performance schema is off.
void register_instruments();

// A thread of the plugin's own, whose name begins with `varve-`: what it does first, and last. It may use the
// server's library then.
void begin_thread(const char *name);
void end_thread();

}  // namespace varve_plugin

#endif
