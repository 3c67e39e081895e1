// Ranks are threads of one program, and their store is a file.
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <unistd.h>

#include "check.h"

enum { RANKS = 3, COUNT = 5000, STEPS = 20 };

static char folder[150], path[200];

static void* run_rank(void* number) {
  const int rank = *(const int*)number;
  reigen_comm* comm = NULL;
  reigen_comm_options options = comm_options();
  options.rank = rank;
  options.size = RANKS;
  options.store = path;
  options.name = "threads";
  CHECK_OK(reigen_comm_create(&options, &comm));
  reigen_memory* memory = NULL;
  CHECK_OK(reigen_allocate(comm, COUNT * sizeof(int64_t), &memory));
  int64_t* data = reigen_memory_data(memory);
  for (int step = 0; step < STEPS; ++step) {
    for (int i = 0; i < COUNT; ++i) data[i] = i + step * rank;
    CHECK_OK(reigen_all_reduce(comm, data, data, COUNT, REIGEN_INT64, REIGEN_SUM, NULL));
    for (int i = 0; i < COUNT; ++i) CHECK(data[i] == (int64_t)RANKS * i + step * (RANKS * (RANKS - 1) / 2));
  }
  CHECK_OK(reigen_barrier(comm, NULL));
  reigen_memory_release(memory);
  reigen_comm_release(comm);
  return NULL;
}

int main(void) {
  const char* place = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%.100s/reigen_c_XXXXXX", place != NULL ? place : "/tmp");
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/store", folder);
  pthread_t threads[RANKS];
  int numbers[RANKS];
  for (int rank = 0; rank < RANKS; ++rank) {
    numbers[rank] = rank;
    CHECK(pthread_create(&threads[rank], NULL, run_rank, &numbers[rank]) == 0);
  }
  for (int rank = 0; rank < RANKS; ++rank) CHECK(pthread_join(threads[rank], NULL) == 0);
  CHECK(unlink(path) == 0 && rmdir(folder) == 0);
  printf("passed\n");
  return 0;
}
