// Checks for tests in C. The first check that fails prints its place and the last error, and ends the rank.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reigen/c/comm.h"

#define CHECK(condition)                                                                                        \
  do {                                                                                                          \
    if (!(condition)) {                                                                                         \
      fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition, reigen_error_message()); \
      exit(1);                                                                                                  \
    }                                                                                                           \
  } while (0)

#define CHECK_OK(call) CHECK((call) == REIGEN_OK)

// Checks that the call fails with this status, kind of error and words in its message.
#define CHECK_FAILS(call, status, kind, words)              \
  do {                                                      \
    CHECK((call) == (status));                              \
    CHECK(reigen_error_kind() == (kind));                   \
    CHECK(strstr(reigen_error_message(), (words)) != NULL); \
  } while (0)

#define CHECK_REFUSED(call, words) CHECK_FAILS(call, REIGEN_CONFIGURATION, REIGEN_ERROR_INVALID_ARGUMENT, words)

static inline reigen_call_options call_options(void) {
  reigen_call_options options;
  CHECK_OK(reigen_call_options_default(&options, sizeof options));
  return options;
}

static inline reigen_comm_options comm_options(void) {
  reigen_comm_options options;
  CHECK_OK(reigen_comm_options_default(&options, sizeof options));
  return options;
}
