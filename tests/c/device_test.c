// Calls on the memory of a GPU through the C interface. The ranks are threads. The library path leads to a stand-in for
// CUDA and NCCL, in which only streams may touch the GPU's memory.
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "check.h"

enum { COUNT = 1000, RANKS = 2, HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2 };

static int (*set_device)(int);
static int (*create_stream)(void**, unsigned);
static int (*copy)(void*, const void*, size_t, int, void*);
static int (*finish_stream)(void*);
static int (*destroy_stream)(void*);
static int (*allocate_pinned)(void**, size_t);
static int (*free_pinned)(void*);
static char store[200];

static void* function(const char* name) {
  static void* runtime = NULL;
  if (runtime == NULL) runtime = dlopen("libcudart.so.12", RTLD_NOW);
  CHECK(runtime != NULL);
  void* found = dlsym(runtime, name);
  CHECK(found != NULL);
  return found;
}

// all_reduce on a stream: the host waits only at the end.
static void sum_on_stream(reigen_comm* world, int rank) {
  void* stream = NULL;
  CHECK(create_stream(&stream, 1) == 0);
  reigen_memory* memory = NULL;
  CHECK_OK(reigen_allocate_on_device(world, COUNT * sizeof(int32_t), &memory));
  int32_t* numbers = reigen_memory_data(memory);
  int32_t* host = NULL;
  CHECK(allocate_pinned((void**)&host, COUNT * sizeof *host) == 0);
  for (int i = 0; i < COUNT; ++i) host[i] = 1000 * rank + i;
  CHECK(copy(numbers, host, COUNT * sizeof *host, HOST_TO_DEVICE, stream) == 0);
  reigen_work* work = NULL;
  reigen_call_options options = call_options();
  options.work = &work;
  options.stream = stream;
  CHECK_OK(reigen_all_reduce(world, numbers, numbers, COUNT, REIGEN_INT32, REIGEN_SUM, &options));
  CHECK_OK(reigen_work_wait_on(work, stream));
  CHECK(copy(host, numbers, COUNT * sizeof *host, DEVICE_TO_HOST, stream) == 0);
  CHECK(finish_stream(stream) == 0);
  for (int i = 0; i < COUNT; ++i) CHECK(host[i] == 1000 + 2 * i);
  reigen_work_release(work);

  options.work = NULL;  // a blocking call
  CHECK_OK(reigen_all_reduce(world, numbers, numbers, COUNT, REIGEN_INT32, REIGEN_MAX, &options));
  CHECK(copy(host, numbers, COUNT * sizeof *host, DEVICE_TO_HOST, stream) == 0);
  CHECK(finish_stream(stream) == 0);
  for (int i = 0; i < COUNT; ++i) CHECK(host[i] == 1000 + 2 * i);
  reigen_memory_release(memory);
  CHECK(free_pinned(host) == 0);
  CHECK(destroy_stream(stream) == 0);
}

static void sum_on_host(reigen_comm* world, int rank) {
  int32_t number = rank + 1;
  CHECK_OK(reigen_all_reduce(world, &number, &number, 1, REIGEN_INT32, REIGEN_SUM, NULL));
  CHECK(number == 3);
}

static void* rank_of(void* argument) {
  const int rank = *(int*)argument;
  CHECK(set_device(rank) == 0);
  reigen_comm_options options = comm_options();
  options.rank = rank;
  options.size = RANKS;
  options.store = store;
  options.device = "cuda";
  options.device_backend = "nccl";
  reigen_comm* world = NULL;
  CHECK_OK(reigen_comm_create(&options, &world));
  CHECK(strcmp(reigen_device(world), rank == 0 ? "cuda:0" : "cuda:1") == 0);
  CHECK(strcmp(reigen_device_backend(world), "nccl") == 0);
  sum_on_host(world, rank);
  sum_on_stream(world, rank);
  reigen_comm* part = NULL;
  CHECK_OK(reigen_split(world, 0, 0, &part));
  CHECK(strcmp(reigen_device(part), reigen_device(world)) == 0);
  sum_on_stream(part, rank);
  reigen_comm_release(part);
  reigen_comm_release(world);
  return NULL;
}

// What is wrong is refused before anything has begun.
static void refuse(void) {
  reigen_comm* world = NULL;
  CHECK_OK(reigen_comm_create(NULL, &world));
  CHECK(strcmp(reigen_device(world), "cpu") == 0 && strcmp(reigen_device_backend(world), "") == 0);
  reigen_memory* memory = NULL;
  CHECK_REFUSED(reigen_allocate_on_device(world, 8, &memory), "has no GPU");
  int32_t number = 1;
  reigen_work* work = NULL;
  reigen_call_options options = call_options();
  options.stream = &number;
  CHECK_REFUSED(reigen_all_reduce(world, &number, &number, 1, REIGEN_INT32, REIGEN_SUM, &options), "has no GPU");
  options = call_options();
  options.work = &work;
  CHECK_OK(reigen_all_reduce(world, &number, &number, 1, REIGEN_INT32, REIGEN_SUM, &options));
  CHECK_REFUSED(reigen_work_wait_on(work, NULL), "has no GPU");
  CHECK_OK(reigen_work_wait(work, -1));
  reigen_work_release(work);
  reigen_comm_release(world);
  CHECK_REFUSED(reigen_work_wait_on(NULL, NULL), "work");
  reigen_comm_options wrong = comm_options();
  wrong.device = "tpu";
  CHECK_REFUSED(reigen_comm_create(&wrong, &world), "tpu");
}

// reigen_init without a launcher makes a group of one rank.
static void init_alone(void) {
  reigen_init_options options;
  CHECK_OK(reigen_init_options_default(&options, sizeof options));
  options.device = "cuda:3";
  options.device_backend = "nccl";
  reigen_comm* world = NULL;
  CHECK_OK(reigen_init(&options, &world));
  CHECK(strcmp(reigen_device(world), "cuda:3") == 0);
  CHECK(strcmp(reigen_device_backend(world), "nccl") == 0);
  reigen_memory* memory = NULL;
  CHECK_OK(reigen_allocate_on_device(world, 64, &memory));
  void* data = reigen_memory_data(memory);
  CHECK_OK(reigen_all_reduce(world, data, data, 16, REIGEN_FLOAT32, REIGEN_SUM, NULL));
  reigen_memory_release(memory);
  reigen_comm_release(world);
}

int main(void) {
  *(void**)&set_device = function("cudaSetDevice");
  *(void**)&create_stream = function("cudaStreamCreateWithFlags");
  *(void**)&copy = function("cudaMemcpyAsync");
  *(void**)&finish_stream = function("cudaStreamSynchronize");
  *(void**)&destroy_stream = function("cudaStreamDestroy");
  *(void**)&allocate_pinned = function("cudaMallocHost");
  *(void**)&free_pinned = function("cudaFreeHost");
  refuse();
  init_alone();
  const char* place = getenv("TMPDIR");
  char folder[128];
  snprintf(folder, sizeof folder, "%.100s/reigen_c_XXXXXX", place != NULL ? place : "/tmp");
  CHECK(mkdtemp(folder) != NULL);
  snprintf(store, sizeof store, "%s/store", folder);
  pthread_t threads[RANKS];
  int ranks[RANKS] = {0, 1};
  for (int i = 0; i < RANKS; ++i) CHECK(pthread_create(&threads[i], NULL, rank_of, &ranks[i]) == 0);
  for (int i = 0; i < RANKS; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  unlink(store);
  rmdir(folder);
  return 0;
}
