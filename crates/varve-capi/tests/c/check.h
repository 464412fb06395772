// check.h: assertions for the test programs.
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "varve.h"

#define CHECK(condition)                                                        \
  do                                                                            \
    if (!(condition))                                                           \
    {                                                                           \
      fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition);  \
      exit(1);                                                                  \
    }                                                                           \
  while (0)

#define EXPECT(want, call)                                                      \
  do                                                                            \
  {                                                                             \
    varve_code got= (call);                                                     \
    if (got != (want))                                                          \
    {                                                                           \
      fprintf(stderr, "%s:%d: %s gives %d, not %s: %s\n", __FILE__, __LINE__,   \
              #call, (int) got, #want, varve_last_error());                     \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

#define OK(call) EXPECT(VARVE_OK, call)

static inline varve_value bytes(const char *text)
{
  return (varve_value){(const uint8_t *) text, (uint32_t) strlen(text)};
}

static inline varve_value number(const int32_t *n)
{
  return (varve_value){(const uint8_t *) n, sizeof *n};
}

static inline int equals(varve_value v, const char *text)
{
  return v.ptr && v.len == strlen(text) && !memcmp(v.ptr, text, v.len);
}

static inline int32_t as_number(varve_value v)
{
  int32_t n;
  CHECK(v.ptr && v.len == sizeof n);
  memcpy(&n, v.ptr, sizeof n);
  return n;
}

#endif
