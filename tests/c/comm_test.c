// Every operation of the C interface gives the result of its equation. Inputs encode rank and index.
#include "check.h"

enum { COUNT = 1000, RANKS_MAX = 8 };

static reigen_comm* world;
static int r, p;

// The value of element i on rank q.
static int32_t value(int q, size_t i) { return 10000 * q + (int32_t)i; }

static int32_t sum_of(size_t i) {
  int32_t sum = 0;
  for (int q = 0; q < p; ++q) sum += value(q, i);
  return sum;
}

static int32_t* filled(size_t count) {
  int32_t* data = malloc((count + 1) * sizeof *data);
  CHECK(data != NULL);
  for (size_t i = 0; i < count; ++i) data[i] = value(r, i);
  return data;
}

// The number of elements of block q.
static size_t count_of(int q) { return (size_t)q + 1; }
static size_t begin_of(int q) { return (size_t)(q * (q + 1) / 2); }

static void test_reductions(void) {
  int32_t* input = filled((size_t)p * COUNT);
  int32_t* output = filled((size_t)p * COUNT);
  CHECK_OK(reigen_all_reduce(world, input, output, COUNT, REIGEN_INT32, REIGEN_SUM, NULL));
  for (size_t i = 0; i < COUNT; ++i) CHECK(output[i] == sum_of(i));
  CHECK_OK(reigen_all_reduce(world, input, output, COUNT, REIGEN_INT32, REIGEN_MAX, NULL));
  for (size_t i = 0; i < COUNT; ++i) CHECK(output[i] == value(p - 1, i));
  CHECK_OK(reigen_all_reduce(world, input, output, COUNT, REIGEN_INT32, REIGEN_MIN, NULL));
  for (size_t i = 0; i < COUNT; ++i) CHECK(output[i] == value(0, i));
  CHECK_OK(reigen_reduce_scatter(world, input, output, COUNT, REIGEN_INT32, REIGEN_SUM, NULL));
  for (size_t i = 0; i < COUNT; ++i) CHECK(output[i] == sum_of((size_t)r * COUNT + i));
  const int root = p - 1;
  CHECK_OK(reigen_reduce(world, input, r == root ? output : NULL, COUNT, REIGEN_INT32, REIGEN_SUM, root, NULL));
  for (size_t i = 0; r == root && i < COUNT; ++i) CHECK(output[i] == sum_of(i));
  CHECK_OK(reigen_all_reduce(world, input, input, COUNT, REIGEN_INT32, REIGEN_SUM, NULL));
  for (size_t i = 0; i < COUNT; ++i) CHECK(input[i] == sum_of(i));
  free(input);
  free(output);
}

static void test_types_and_factor(void) {
  double x = 0.5 + r, sum = 0;
  for (int q = 0; q < p; ++q) sum += 0.5 + q;
  CHECK_OK(reigen_all_reduce(world, &x, &x, 1, REIGEN_FLOAT64, REIGEN_SUM, NULL));
  CHECK(x == sum);
  reigen_call_options options = call_options();
  options.factor = r == 0 ? 3 : 0;
  options.tag = "only rank 0 counts";
  float y = 2;
  CHECK_OK(reigen_all_reduce(world, &y, &y, 1, REIGEN_FLOAT32, REIGEN_SUM, &options));
  CHECK(y == 6);
  uint8_t bits = (uint8_t)(1 << r);
  CHECK_OK(reigen_all_reduce(world, &bits, &bits, 1, REIGEN_UINT8, REIGEN_BOR, NULL));
  CHECK(bits == (1 << p) - 1);
  const size_t sizes[] = {1, 1, 2, 4, 8, 2, 2, 4, 8, 1};
  for (int type = REIGEN_INT8; type <= REIGEN_BOOL; ++type) CHECK(reigen_type_size(type) == sizes[type]);
  CHECK(reigen_type_size(-1) == 0 && reigen_type_size(10) == 0);
}

static void test_copies(void) {
  int32_t* input = filled((size_t)p * COUNT);
  int32_t* output = filled((size_t)p * COUNT);
  CHECK_OK(reigen_all_gather(world, input, output, COUNT, REIGEN_INT32, NULL));
  for (int q = 0; q < p; ++q) {
    for (size_t i = 0; i < COUNT; ++i) CHECK(output[(size_t)q * COUNT + i] == value(q, i));
  }
  CHECK_OK(reigen_all_to_all(world, input, output, COUNT, REIGEN_INT32, NULL));
  for (int q = 0; q < p; ++q) {
    for (size_t i = 0; i < COUNT; ++i) {
      CHECK(output[(size_t)q * COUNT + i] == value(q, (size_t)r * COUNT + i));
    }
  }
  const int root = p - 1;
  CHECK_OK(reigen_gather(world, input, r == root ? output : NULL, COUNT, REIGEN_INT32, root, NULL));
  for (int q = 0; r == root && q < p; ++q) CHECK(output[(size_t)q * COUNT + 1] == value(q, 1));
  CHECK_OK(reigen_scatter(world, r == root ? input : NULL, output, COUNT, REIGEN_INT32, root, NULL));
  for (size_t i = 0; i < COUNT; ++i) CHECK(output[i] == value(root, (size_t)r * COUNT + i));
  CHECK_OK(reigen_broadcast(world, input, COUNT, REIGEN_INT32, root, NULL));
  for (size_t i = 0; i < COUNT; ++i) CHECK(input[i] == value(root, i));
  CHECK_OK(reigen_barrier(world, NULL));
  free(input);
  free(output);
}

static void test_uneven(void) {
  size_t counts[RANKS_MAX], leaves[RANKS_MAX], arrives[RANKS_MAX];
  for (int q = 0; q < p; ++q) counts[q] = leaves[q] = count_of(q);
  for (int q = 0; q < p; ++q) arrives[q] = count_of(r);
  const size_t all = begin_of(p);
  int32_t* input = filled(all);
  int32_t* output = filled(all + (size_t)p * count_of(r));
  CHECK_OK(reigen_all_gather_v(world, input, output, counts, REIGEN_INT32, NULL));
  for (int q = 0; q < p; ++q) {
    for (size_t i = 0; i < count_of(q); ++i) CHECK(output[begin_of(q) + i] == value(q, i));
  }
  CHECK_OK(reigen_reduce_scatter_v(world, input, output, counts, REIGEN_INT32, REIGEN_SUM, NULL));
  for (size_t i = 0; i < count_of(r); ++i) CHECK(output[i] == sum_of(begin_of(r) + i));
  CHECK_OK(reigen_gather_v(world, input, r == 0 ? output : NULL, counts, REIGEN_INT32, 0, NULL));
  for (int q = 0; r == 0 && q < p; ++q) CHECK(output[begin_of(q) + count_of(q) - 1] == value(q, count_of(q) - 1));
  CHECK_OK(reigen_scatter_v(world, r == 0 ? input : NULL, output, counts, REIGEN_INT32, 0, NULL));
  for (size_t i = 0; i < count_of(r); ++i) CHECK(output[i] == value(0, begin_of(r) + i));
  CHECK_OK(reigen_all_to_all_v(world, input, leaves, output, arrives, REIGEN_INT32, NULL));
  for (int q = 0; q < p; ++q) {
    for (size_t i = 0; i < count_of(r); ++i) CHECK(output[(size_t)q * count_of(r) + i] == value(q, begin_of(r) + i));
  }
  free(input);
  free(output);
}

static void test_messages(void) {
  if (p == 1) return;
  int32_t* data = filled(COUNT);
  if (r == 0) CHECK_OK(reigen_send(world, data, COUNT, REIGEN_INT32, p - 1, NULL));
  if (r == p - 1) {
    CHECK_OK(reigen_recv(world, data, COUNT, REIGEN_INT32, 0, NULL));
    for (size_t i = 0; i < COUNT; ++i) CHECK(data[i] == value(0, i));
  }
  free(data);
}

// A ring in which every rank sends and receives at the same time, and a sum in the same list of calls.
static void test_calls_together(void) {
  int32_t* sent = filled(COUNT);
  int32_t* received = filled(COUNT);
  int32_t one = 1;
  reigen_work* sum = NULL;
  reigen_call_options options = call_options();
  options.work = &sum;
  CHECK_OK(reigen_group_begin(world));
  if (p > 1) CHECK_OK(reigen_send(world, sent, COUNT, REIGEN_INT32, (r + 1) % p, NULL));
  if (p > 1) CHECK_OK(reigen_recv(world, received, COUNT, REIGEN_INT32, (r + p - 1) % p, NULL));
  CHECK_OK(reigen_all_reduce(world, &one, &one, 1, REIGEN_INT32, REIGEN_SUM, &options));
  CHECK(sum != NULL && reigen_work_is_completed(sum) == 0);
  CHECK_REFUSED(reigen_work_wait(sum, -1), "run");
  CHECK_REFUSED(reigen_group_begin(world), "reigen_group_end first");
  CHECK_OK(reigen_group_end(world, NULL));
  CHECK_OK(reigen_work_wait(sum, -1));
  CHECK(one == p);
  for (size_t i = 0; i < COUNT; ++i) CHECK(received[i] == value((r + p - 1) % p, i));
  CHECK_REFUSED(reigen_group_end(world, NULL), "reigen_group_begin first");
  reigen_work_release(sum);

  reigen_work* all = NULL;
  options.work = &all;
  CHECK_OK(reigen_group_begin(world));
  for (int i = 0; i < 5; ++i) {
    CHECK_OK(reigen_all_reduce(world, sent + i, sent + i, 1, REIGEN_INT32, REIGEN_SUM, NULL));
  }
  CHECK_OK(reigen_group_end(world, &options));
  CHECK_OK(reigen_work_wait(all, -1));
  for (size_t i = 0; i < 5; ++i) CHECK(sent[i] == sum_of(i));
  reigen_work_release(all);
  free(sent);
  free(received);
}

// If a list has a call that no rank can make, none of its calls runs. A wait for any of its calls gets the error.
static void test_a_bad_call_among_others(void) {
  int32_t one = 1;
  reigen_work* sum = NULL;
  reigen_call_options options = call_options();
  options.work = &sum;
  CHECK_OK(reigen_group_begin(world));
  CHECK_OK(reigen_all_reduce(world, &one, &one, 1, REIGEN_INT32, REIGEN_SUM, &options));
  CHECK_OK(reigen_broadcast(world, &one, 1, REIGEN_INT32, p, NULL));
  CHECK_REFUSED(reigen_group_end(world, NULL), "out of range");
  CHECK(one == 1);
  CHECK(reigen_work_is_completed(sum) == 1);
  CHECK_REFUSED(reigen_work_wait(sum, -1), "out of range");
  reigen_work_release(sum);
  CHECK_OK(reigen_barrier(world, NULL));
}

static void test_asynchronous(int only_caller) {
  enum { WORKS = 20 };
  reigen_memory* memory = NULL;
  CHECK_OK(reigen_allocate(world, WORKS * COUNT * sizeof(int32_t), &memory));
  int32_t* data = reigen_memory_data(memory);
  CHECK(data != NULL && (uintptr_t)data % 64 == 0 && data[0] == 0);
  reigen_work* works[WORKS];
  reigen_call_options options = call_options();
  options.only_caller = only_caller;
  for (int k = 0; k < WORKS; ++k) {
    for (size_t i = 0; i < COUNT; ++i) data[(size_t)k * COUNT + i] = value(r, i) + k;
    options.work = &works[k];
    CHECK_OK(reigen_all_reduce(world, data + k * COUNT, data + k * COUNT, COUNT, REIGEN_INT32, REIGEN_SUM, &options));
    CHECK_OK(reigen_poll(world));
  }
  for (int k = WORKS - 1; k >= 0; --k) {
    CHECK_OK(reigen_work_wait(works[k], k % 2 ? -1 : 60000));
    CHECK(reigen_work_is_completed(works[k]) == 1);
    for (size_t i = 0; i < COUNT; ++i) CHECK(data[(size_t)k * COUNT + i] == sum_of(i) + k * p);
    reigen_work_release(works[k]);
  }
  reigen_memory_release(memory);
}

// Rank 0 waits until its wait times out. Then the others begin the operation, and rank 0 can wait for it again.
static void test_a_wait_ends_and_is_repeated(void) {
  if (p == 1) return;
  int32_t sum = r, sign = 0;
  reigen_work* work = NULL;
  reigen_call_options options = call_options();
  options.tag = "late";
  if (r == 0) {
    options.work = &work;
    CHECK_OK(reigen_all_reduce(world, &sum, &sum, 1, REIGEN_INT32, REIGEN_SUM, &options));
    CHECK_FAILS(reigen_work_wait(work, 30), REIGEN_PEER_LOST, REIGEN_ERROR_TIMEOUT, "it goes on");
    CHECK(reigen_error_rank() == -1 && reigen_work_is_completed(work) == 0);
    for (int q = 1; q < p; ++q) CHECK_OK(reigen_send(world, &sign, 1, REIGEN_INT32, q, NULL));
    CHECK_OK(reigen_work_wait(work, 60000));
    reigen_work_release(work);
  } else {
    CHECK_OK(reigen_recv(world, &sign, 1, REIGEN_INT32, 0, NULL));
    CHECK_OK(reigen_all_reduce(world, &sum, &sum, 1, REIGEN_INT32, REIGEN_SUM, &options));
  }
  CHECK(sum == p * (p - 1) / 2);
}

static void test_split(void) {
  reigen_comm* reversed = NULL;
  CHECK_OK(reigen_split(world, 7, -r, &reversed));
  CHECK(reigen_rank(reversed) == p - 1 - r && reigen_size(reversed) == p);
  CHECK(strcmp(reigen_name(reversed), "world") != 0 && strcmp(reigen_backend(reversed), reigen_backend(world)) == 0);
  int32_t first = r;
  CHECK_OK(reigen_broadcast(reversed, &first, 1, REIGEN_INT32, 0, NULL));
  CHECK(first == p - 1);
  reigen_memory* memory = NULL;
  CHECK_OK(reigen_allocate(reversed, 100, &memory));
  reigen_comm_release(reversed);
  memset(reigen_memory_data(memory), 1, 100);  // the memory outlives its group
  reigen_memory_release(memory);

  reigen_comm* part = world;
  CHECK_OK(reigen_split(world, r == 0 ? -1 : 0, 0, &part));
  CHECK((part == NULL) == (r == 0));
  if (part != NULL) CHECK(reigen_size(part) == p - 1 && reigen_rank(part) == r - 1);
  reigen_comm_release(part);
}

int main(int argc, char** argv) {
  reigen_init_options options;
  CHECK_OK(reigen_init_options_default(&options, sizeof options));
  if (argc > 1) options.backend = argv[1];
  CHECK_OK(reigen_init(&options, &world));
  r = reigen_rank(world);
  p = reigen_size(world);
  CHECK(p <= RANKS_MAX && strcmp(reigen_name(world), "world") == 0);
  CHECK(strcmp(reigen_backend(world), p == 1 ? "self" : "shared_memory") == 0);
  test_reductions();
  test_types_and_factor();
  test_copies();
  test_uneven();
  test_messages();
  test_calls_together();
  test_a_bad_call_among_others();
  test_asynchronous(0);
  test_asynchronous(1);
  test_a_wait_ends_and_is_repeated();
  test_split();
  CHECK_OK(reigen_barrier(world, NULL));
  reigen_comm_release(world);
  if (r == 0) printf("passed on %d ranks\n", p);
  return 0;
}
