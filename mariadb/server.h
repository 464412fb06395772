// server.h: the server's headers, in the one way that every file of the plugin includes them.
//
// MYSQL_SERVER gives the handler classes their real layout. The server's headers come first, because they
// define what the standard's must not see redefined.

#ifndef VARVE_SERVER_H
#define VARVE_SERVER_H

#define MYSQL_SERVER 1

#include <my_global.h>
#include "sql_class.h"
#include "sql_lex.h"
#include "table.h"
#include "field.h"
#include "key.h"
#include "handler.h"
#include <mysql/plugin.h>

#include "varve.h"

#endif
