// Failures of one rank that affect the others. Each failure ends a group and all groups of the same family. Every rank
// gets an error that names the cause and has the right kind.
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static reigen_comm* world;
static int r, p;

// Sends the text of rank 0 to all ranks.
static void share(char* text, size_t bytes) { CHECK_OK(reigen_broadcast(world, text, bytes, REIGEN_UINT8, 0, NULL)); }

static char folder[150] = "";  // only on rank 0
static reigen_comm* family;    // a first group besides the world, from which group() splits

// A group of all ranks, split off `family`. Each failure needs a new one.
static reigen_comm* group(void) {
  static int number = 0;
  char path[200] = "";
  if (r == 0) snprintf(path, sizeof path, "%s/store_%d", folder, number);
  ++number;
  share(path, sizeof path);
  reigen_comm_options options = comm_options();
  options.rank = r;
  options.size = p;
  options.store = path;
  reigen_comm* comm = NULL;
  CHECK_OK(reigen_comm_create(&options, &family));
  CHECK_OK(reigen_split(family, 0, 0, &comm));
  return comm;
}

static void check_dead(reigen_comm* comm, const char* cause) {
  CHECK_FAILS(reigen_barrier(comm, NULL), REIGEN_PEER_LOST, REIGEN_ERROR_ABORTED, cause);
  CHECK_FAILS(reigen_barrier(comm, NULL), REIGEN_PEER_LOST, REIGEN_ERROR_ABORTED, cause);
  CHECK_OK(reigen_barrier(world, NULL));  // no rank leaves before all have seen the error
  reigen_comm_release(comm);
  if (family == NULL) return;
  // The family also ends, soon.
  const struct timespec moment = {.tv_sec = 0, .tv_nsec = 1000000};
  int tries = 0;
  while (reigen_barrier(family, NULL) == REIGEN_OK && ++tries < 5000) nanosleep(&moment, NULL);
  CHECK(tries < 5000);
  CHECK(strstr(reigen_error_message(), cause) != NULL);
  CHECK_OK(reigen_barrier(world, NULL));
  reigen_comm_release(family);
  family = NULL;
}

static void test_mismatch(void) {
  reigen_comm* comm = group();
  int32_t data[4] = {0};
  const size_t count = r == p - 1 ? 3 : 2;
  CHECK_FAILS(reigen_all_reduce(comm, data, data, count, REIGEN_INT32, REIGEN_SUM, NULL), REIGEN_CONFIGURATION,
              REIGEN_ERROR_MISMATCH, "[all_reduce]");
  CHECK(strstr(reigen_error_message(), "got: ") != NULL && strstr(reigen_error_message(), "expected: ") != NULL);
  CHECK(strstr(reigen_error_message(), "fix: ") != NULL);
  check_dead(comm, "count");
}

static void test_mismatch_of_an_asynchronous_call(void) {
  reigen_comm* comm = group();
  int32_t data[2] = {0};
  reigen_work* work = NULL;
  reigen_call_options options = call_options();
  options.work = &work;
  CHECK_OK(reigen_broadcast(comm, data, 1, REIGEN_INT32, r == 0 ? 0 : 1, &options));
  CHECK_FAILS(reigen_work_wait(work, -1), REIGEN_CONFIGURATION, REIGEN_ERROR_MISMATCH, "root");
  CHECK(reigen_work_is_completed(work) == 1);
  check_dead(comm, "root");
  CHECK_FAILS(reigen_work_wait(work, -1), REIGEN_CONFIGURATION, REIGEN_ERROR_MISMATCH, "root");
  reigen_work_release(work);
}

static void test_abort(void) {
  reigen_comm* comm = group();
  if (r == 0) {
    CHECK_OK(reigen_abort(comm, "the test wants it"));
  } else {
    CHECK_FAILS(reigen_barrier(comm, NULL), REIGEN_PEER_LOST, REIGEN_ERROR_ABORTED, "the test wants it");
  }
  check_dead(comm, "the test wants it");
}

static void test_a_rank_that_leaves(void) {
  reigen_comm* comm = group();
  CHECK_OK(reigen_barrier(comm, NULL));
  if (r == p - 1) {
    reigen_comm_release(comm);
    CHECK_OK(reigen_barrier(world, NULL));
    CHECK_OK(reigen_barrier(world, NULL));
    reigen_comm_release(family);
    family = NULL;
    return;
  }
  CHECK(reigen_barrier(comm, NULL) == REIGEN_PEER_LOST);
  // The first rank that notices the loss ends the group for the others.
  if (reigen_error_kind() == REIGEN_ERROR_PEER_LOST) CHECK(reigen_error_rank() == p - 1);
  CHECK(reigen_error_kind() == REIGEN_ERROR_PEER_LOST || reigen_error_kind() == REIGEN_ERROR_ABORTED);
  check_dead(comm, "");
}

static void use_and_leave(reigen_comm* comm, int number) {
  int32_t sum = r + number;
  CHECK_OK(reigen_all_reduce(comm, &sum, &sum, 1, REIGEN_INT32, REIGEN_SUM, NULL));
  CHECK(sum == p * (p - 1) / 2 + number * p);
  reigen_comm_release(comm);
  CHECK_OK(reigen_barrier(world, NULL));  // all ranks have left the group
}

// Forms groups without a launcher through the same store: two names give two groups. With a file as store they may live
// at the same time. A port belongs to one group until all ranks have left it.
static void meet(const char* store, int together) {
  reigen_comm* comms[2] = {NULL, NULL};
  const char* names[2] = {"one", "another"};
  reigen_comm_options options = comm_options();
  options.rank = r;
  options.size = p;
  options.store = store;
  for (int i = 0; i < 2; ++i) {
    options.name = names[i];
    CHECK_OK(reigen_comm_create(&options, &comms[i]));
    CHECK(reigen_rank(comms[i]) == r && reigen_size(comms[i]) == p && strcmp(reigen_name(comms[i]), names[i]) == 0);
    if (!together) use_and_leave(comms[i], i);
  }
  for (int i = 0; together && i < 2; ++i) use_and_leave(comms[i], i);
}

static void test_file_store(void) {
  char path[200] = "";
  if (r == 0) snprintf(path, sizeof path, "%s/store", folder);
  share(path, sizeof path);
  meet(path, 1);

  // Only rank 0 tries to form this group.
  if (r == 0) {
    reigen_comm* comm = NULL;
    reigen_comm_options options = comm_options();
    options.size = p;
    options.store = path;
    options.name = "empty";
    options.join_timeout_ms = 100;
    CHECK_FAILS(reigen_comm_create(&options, &comm), REIGEN_PEER_LOST, REIGEN_ERROR_TIMEOUT, "1");
    CHECK(comm == NULL);
  }
  CHECK_OK(reigen_barrier(world, NULL));
  if (r == 0) CHECK(unlink(path) == 0);
}

// Returns a port that was free a moment ago.
static int free_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(fd >= 0 && bind(fd, (struct sockaddr*)&address, length) == 0);
  CHECK(getsockname(fd, (struct sockaddr*)&address, &length) == 0);
  close(fd);
  return ntohs(address.sin_port);
}

static void test_tcp_store(void) {
  char store[100] = "";
  if (r == 0) snprintf(store, sizeof store, "tcp://127.0.0.1:%d", free_port());
  share(store, sizeof store);
  meet(store, 0);
}

// All ranks are alive, but one does not make the call.
static void test_timeout_of_a_group(void) {
  char store[100] = "";
  if (r == 0) snprintf(store, sizeof store, "tcp://127.0.0.1:%d", free_port());
  share(store, sizeof store);
  reigen_comm* comm = NULL;
  reigen_comm_options options = comm_options();
  options.rank = r;
  options.size = p;
  options.store = store;
  options.timeout_ms = 3000;
  CHECK_OK(reigen_comm_create(&options, &comm));
  if (r == 0) CHECK_OK(reigen_barrier(world, NULL));
  CHECK_FAILS(reigen_barrier(comm, NULL), REIGEN_PEER_LOST, REIGEN_ERROR_TIMEOUT, "got: rank 0");
  if (r != 0) CHECK_OK(reigen_barrier(world, NULL));
  check_dead(comm, "got: rank 0");
}

int main(void) {
  CHECK_OK(reigen_init(NULL, &world));
  r = reigen_rank(world);
  p = reigen_size(world);
  CHECK(p >= 2);
  if (r == 0) {
    const char* place = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.100s/reigen_c_XXXXXX", place != NULL ? place : "/tmp");
    CHECK(mkdtemp(folder) != NULL);
  }
  test_mismatch();
  test_mismatch_of_an_asynchronous_call();
  test_abort();
  test_a_rank_that_leaves();
  test_file_store();
  test_tcp_store();
  test_timeout_of_a_group();
  CHECK_OK(reigen_barrier(world, NULL));
  for (int i = 0; r == 0 && i < 4; ++i) {
    char path[200];
    snprintf(path, sizeof path, "%s/store_%d", folder, i);
    CHECK(unlink(path) == 0);
  }
  if (r == 0) CHECK(rmdir(folder) == 0);
  reigen_comm_release(world);
  if (r == 0) printf("passed on %d ranks\n", p);
  return 0;
}
