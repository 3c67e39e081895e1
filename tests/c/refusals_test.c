// A wrong call of a single rank is refused with a message, changes nothing and never crashes.
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "check.h"

static reigen_comm* alone;

static void test_numbers_are_those_of_the_documentation(void) {
  CHECK(REIGEN_OK == 0 && REIGEN_BAD_DATA == 65 && REIGEN_INPUT_MISSING == 66 && REIGEN_UNAVAILABLE == 69);
  CHECK(REIGEN_BUG == 70 && REIGEN_OS_RESOURCE == 71 && REIGEN_OUTPUT_LOCKED == 73 && REIGEN_IO == 74);
  CHECK(REIGEN_JOB_MISMATCH == 76 && REIGEN_PERMISSION == 77 && REIGEN_CONFIGURATION == 78 && REIGEN_PEER_LOST == 79);
  CHECK(strlen(reigen_version()) >= 5);
}

static void test_no_error_yet(void) {
  CHECK(strcmp(reigen_error_message(), "") == 0);
  CHECK(reigen_error_kind() == REIGEN_ERROR_NONE && reigen_error_rank() == -1);
  reigen_comm_release(NULL);
  reigen_work_release(NULL);
  reigen_memory_release(NULL);
  CHECK(strcmp(reigen_error_message(), "") == 0);
}

static void test_null_handles(void) {
  char data[8] = {0};
  const size_t counts[1] = {1};
  const char* words = "no communicator\n  got: NULL   expected: a handle";
  CHECK_REFUSED(reigen_all_reduce(NULL, data, data, 1, 0, 0, NULL), "[reigen_all_reduce] no communicator");
  CHECK_REFUSED(reigen_broadcast(NULL, data, 1, 0, 0, NULL), words);
  CHECK_REFUSED(reigen_all_gather(NULL, data, data, 1, 0, NULL), words);
  CHECK_REFUSED(reigen_reduce_scatter(NULL, data, data, 1, 0, 0, NULL), words);
  CHECK_REFUSED(reigen_reduce(NULL, data, data, 1, 0, 0, 0, NULL), words);
  CHECK_REFUSED(reigen_gather(NULL, data, data, 1, 0, 0, NULL), words);
  CHECK_REFUSED(reigen_scatter(NULL, data, data, 1, 0, 0, NULL), words);
  CHECK_REFUSED(reigen_all_to_all(NULL, data, data, 1, 0, NULL), words);
  CHECK_REFUSED(reigen_barrier(NULL, NULL), words);
  CHECK_REFUSED(reigen_all_gather_v(NULL, data, data, counts, 0, NULL), words);
  CHECK_REFUSED(reigen_reduce_scatter_v(NULL, data, data, counts, 0, 0, NULL), words);
  CHECK_REFUSED(reigen_gather_v(NULL, data, data, counts, 0, 0, NULL), words);
  CHECK_REFUSED(reigen_scatter_v(NULL, data, data, counts, 0, 0, NULL), words);
  CHECK_REFUSED(reigen_all_to_all_v(NULL, data, counts, data, counts, 0, NULL), words);
  CHECK_REFUSED(reigen_send(NULL, data, 1, 0, 0, NULL), words);
  CHECK_REFUSED(reigen_recv(NULL, data, 1, 0, 0, NULL), words);
  CHECK_REFUSED(reigen_group_begin(NULL), words);
  CHECK_REFUSED(reigen_group_end(NULL, NULL), words);
  CHECK_REFUSED(reigen_poll(NULL), words);
  CHECK_REFUSED(reigen_abort(NULL, "x"), words);
  CHECK(reigen_rank(NULL) == -1 && strstr(reigen_error_message(), "[reigen_rank]") != NULL);
  CHECK(reigen_size(NULL) == -1 && strstr(reigen_error_message(), "[reigen_size]") != NULL);
  CHECK(reigen_name(NULL) == NULL && reigen_backend(NULL) == NULL);
  CHECK_REFUSED(reigen_work_wait(NULL, 0), "no work");
  CHECK(reigen_work_is_completed(NULL) == -1);
  CHECK(reigen_memory_data(NULL) == NULL && strstr(reigen_error_message(), "no memory") != NULL);
}

static void test_null_outputs(void) {
  reigen_comm* comm = alone;
  reigen_memory* memory = (reigen_memory*)alone;
  CHECK_REFUSED(reigen_init(NULL, NULL), "no place for the communicator");
  CHECK_REFUSED(reigen_comm_create(NULL, NULL), "no place for the communicator");
  CHECK_REFUSED(reigen_split(alone, 0, 0, NULL), "no place for the communicator");
  CHECK_REFUSED(reigen_split(NULL, 0, 0, &comm), "no communicator");
  CHECK(comm == NULL);
  CHECK_REFUSED(reigen_allocate(alone, 1, NULL), "no place for the memory");
  CHECK_REFUSED(reigen_allocate(NULL, 1, &memory), "no communicator");
  CHECK(memory == NULL);
}

static void test_arguments(void) {
  int32_t data[2] = {1, 2};
  const size_t one[1] = {1};
  CHECK_REFUSED(reigen_all_reduce(alone, data, data, 1, 10, REIGEN_SUM, NULL),
                "unknown data type\n  got: 10   expected: 0 (REIGEN_INT8) to 9 (REIGEN_BOOL)");
  CHECK_REFUSED(reigen_all_reduce(alone, data, data, 1, -1, REIGEN_SUM, NULL), "got: -1");
  CHECK_REFUSED(reigen_all_reduce(alone, data, data, 1, 1 << 30, REIGEN_SUM, NULL), "unknown data type");
  CHECK_REFUSED(reigen_all_reduce(alone, data, data, 1, REIGEN_INT32, 8, NULL),
                "unknown reduction\n  got: 8   expected: 0 (REIGEN_SUM) to 7 (REIGEN_BXOR)");
  CHECK_REFUSED(reigen_all_reduce(alone, data, data, 1, REIGEN_FLOAT32, REIGEN_BXOR, NULL), "there is no");
  CHECK_REFUSED(reigen_all_reduce(alone, NULL, data, 1, REIGEN_INT32, REIGEN_SUM, NULL), "null input");
  CHECK_REFUSED(reigen_all_reduce(alone, data, NULL, 1, REIGEN_INT32, REIGEN_SUM, NULL), "null output");
  CHECK_REFUSED(reigen_all_reduce(alone, data, data, SIZE_MAX, REIGEN_INT32, REIGEN_SUM, NULL), "too large");
  CHECK_REFUSED(reigen_broadcast(alone, data, 1, REIGEN_INT32, 1, NULL), "root out of range");
  CHECK_REFUSED(reigen_broadcast(alone, data, 1, REIGEN_INT32, -1, NULL), "root out of range");
  CHECK_REFUSED(reigen_send(alone, data, 1, REIGEN_INT32, 0, NULL), "the other rank is this one");
  CHECK_REFUSED(reigen_all_gather_v(alone, data, data, NULL, REIGEN_INT32, NULL), "no counts");
  CHECK_REFUSED(reigen_all_to_all_v(alone, data, NULL, data, one, REIGEN_INT32, NULL), "no counts that leave");
  CHECK_REFUSED(reigen_all_to_all_v(alone, data, one, data, NULL, REIGEN_INT32, NULL), "no counts that arrive");
  CHECK_OK(reigen_all_reduce(alone, NULL, NULL, 0, REIGEN_INT32, REIGEN_SUM, NULL));
  CHECK(data[0] == 1 && data[1] == 2);
}

static void test_call_options(void) {
  float x = 1;
  reigen_work* work = (reigen_work*)&x;
  reigen_call_options options = call_options();
  options.work = &work;
  options.tag = "a tag that is longer than the forty-seven characters that it may have";
  CHECK_REFUSED(reigen_all_reduce(alone, &x, &x, 1, REIGEN_FLOAT32, REIGEN_SUM, &options), "tag is too long");
  CHECK(work == NULL);
  options.tag = "short";
  options.factor = 2;
  CHECK_REFUSED(reigen_all_reduce(alone, &x, &x, 1, REIGEN_FLOAT32, REIGEN_MAX, &options), "factor");
  CHECK_OK(reigen_all_reduce(alone, &x, &x, 1, REIGEN_FLOAT32, REIGEN_SUM, &options));
  CHECK(x == 2 && work != NULL && reigen_work_is_completed(work) == 1);
  CHECK_OK(reigen_work_wait(work, 0));
  reigen_work_release(work);
  memset(&options, 0, sizeof options);
  CHECK_REFUSED(reigen_barrier(alone, &options), "fix: fill them with reigen_call_options_default first");
  memset(&options, 0xff, sizeof options);
  CHECK_REFUSED(reigen_barrier(alone, &options), "the options have no size");
}

// A program that was built with a newer header runs as long as it uses no new option.
static void test_options_of_another_version(void) {
  struct {
    reigen_call_options known;
    double added;
  } newer;
  newer.added = 5;
  CHECK_OK(reigen_call_options_default(&newer.known, sizeof newer));
  CHECK(newer.known.struct_size == sizeof newer && newer.known.factor == 1 && newer.added == 0);
  CHECK_OK(reigen_barrier(alone, &newer.known));
  newer.added = 5;
  CHECK_REFUSED(reigen_barrier(alone, &newer.known), "an option that this library does not have");
  CHECK_REFUSED(reigen_call_options_default(&newer.known, 3), "too few bytes");
  CHECK_REFUSED(reigen_comm_options_default(NULL, 100), "no options");
  CHECK_REFUSED(reigen_init_options_default(NULL, 100), "no options");
}

static void test_groups_that_cannot_be(void) {
  reigen_comm* comm = NULL;
  reigen_comm_options options = comm_options();
  CHECK(options.rank == 0 && options.size == 1 && options.join_timeout_ms == 60000 && options.timeout_ms == 600000);
  CHECK(options.report_after_ms == 30000 && options.heartbeat_timeout_ms == 10000);
  options.size = 0;
  CHECK_REFUSED(reigen_comm_create(&options, &comm), "at least one rank");
  options.size = 2;
  options.rank = 2;
  CHECK_REFUSED(reigen_comm_create(&options, &comm), "rank out of range");
  options.rank = 1;
  CHECK_REFUSED(reigen_comm_create(&options, &comm), "needs a store");
  const char* stores[] = {"tcp://",       "tcp://host",   "tcp://host:",      "tcp://:80",
                          "tcp://host:x", "tcp://host:0", "tcp://host:65536", "tcp://host:80x"};
  for (size_t i = 0; i < sizeof stores / sizeof *stores; ++i) {
    options.store = stores[i];
    CHECK_REFUSED(reigen_comm_create(&options, &comm), "expected: tcp://host:port");
  }
  options.store = "/no/such/folder/file";
  CHECK(reigen_comm_create(&options, &comm) != REIGEN_OK && reigen_error_kind() == REIGEN_ERROR_IO);
  options.store = NULL;
  options.backend = "pigeons";
  CHECK(reigen_comm_create(&options, &comm) != REIGEN_OK && strstr(reigen_error_message(), "pigeons") != NULL);
  options.backend = NULL;
  CHECK(options.network == NULL && options.segments == 0 && options.connections == 1);
  options.connections = 0;
  CHECK_REFUSED(reigen_comm_create(&options, &comm), "connections\n  got: 0   expected: a whole number of at least 1");
  options.connections = 1;
  options.network = "smoke";
  CHECK_REFUSED(reigen_comm_create(&options, &comm), "network\n  got: smoke   expected: tcp, mpi");
  options.network = NULL;
  options.timeout_ms = 0;
  CHECK_REFUSED(reigen_comm_create(&options, &comm), "timeout_ms\n  got: 0   expected: more than 0");
  CHECK(comm == NULL);
  reigen_init_options init;
  CHECK_OK(reigen_init_options_default(&init, sizeof init));
  CHECK(init.keep_memory == 1 && init.timeout_ms == 0 && init.name == NULL && init.backend == NULL);
  init.timeout_ms = -1;
  CHECK_REFUSED(reigen_init(&init, &comm), "timeout_ms");
}

static void test_use_after_abort(void) {
  reigen_comm* comm = NULL;
  int32_t x = 1;
  CHECK_OK(reigen_comm_create(NULL, &comm));
  CHECK_OK(reigen_all_reduce(comm, &x, &x, 1, REIGEN_INT32, REIGEN_SUM, NULL));
  CHECK_OK(reigen_abort(comm, NULL));
  CHECK_FAILS(reigen_all_reduce(comm, &x, &x, 1, REIGEN_INT32, REIGEN_SUM, NULL), REIGEN_PEER_LOST,
              REIGEN_ERROR_ABORTED, "without a cause");
  reigen_comm_release(comm);
}

static void* other_thread(void* unused) {
  (void)unused;
  CHECK(strcmp(reigen_error_message(), "") == 0 && reigen_error_kind() == REIGEN_ERROR_NONE);
  CHECK_REFUSED(reigen_poll(NULL), "[reigen_poll]");
  return NULL;
}

static void test_errors_belong_to_their_thread(void) {
  CHECK_REFUSED(reigen_barrier(NULL, NULL), "[reigen_barrier]");
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(strstr(reigen_error_message(), "[reigen_barrier]") != NULL);
  CHECK_OK(reigen_barrier(alone, NULL));  // a success keeps the last error
  CHECK(strstr(reigen_error_message(), "[reigen_barrier]") != NULL);
}

int main(void) {
  test_no_error_yet();
  CHECK_OK(reigen_comm_create(NULL, &alone));
  CHECK(reigen_rank(alone) == 0 && reigen_size(alone) == 1 && strcmp(reigen_backend(alone), "self") == 0);
  test_numbers_are_those_of_the_documentation();
  test_null_handles();
  test_null_outputs();
  test_arguments();
  test_call_options();
  test_options_of_another_version();
  test_groups_that_cannot_be();
  test_use_after_abort();
  test_errors_belong_to_their_thread();
  reigen_comm_release(alone);
  printf("passed\n");
  return 0;
}
