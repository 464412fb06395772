// instruments.h: threads, files and memory of the engine in the performance schema.

#ifndef VARVE_INSTRUMENTS_H
#define VARVE_INSTRUMENTS_H

namespace varve_plugin {

// Before the database is opened. Nothing is measured if the performance schema is off.
void register_instruments();

}  // namespace varve_plugin

#endif
