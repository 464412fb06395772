// collation.h: the server's collations, for the engine to find under the server's numbers.

#ifndef VARVE_COLLATION_H
#define VARVE_COLLATION_H

#include "server.h"

namespace varve_plugin {

// Whether the engine can order texts as the server compares them in this collation. If not, no index can have
// it.
bool collation_usable(CHARSET_INFO *charset);

// Whether texts weigh what their bytes are, so that the engine can read them back from keys.
bool collation_is_bytewise(CHARSET_INFO *charset);

// Whether indexes give texts back, if not all of them.
bool collation_reads_texts(CHARSET_INFO *charset);

// varve_options::find_collation
bool find_collation(void *, uint32_t id, varve_collation *out);

// The database is closed: nothing refers to a collation any more.
void forget_collations();

}  // namespace varve_plugin

#endif
