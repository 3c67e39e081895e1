// Times MPI's blocking collectives as `reigen bench` times ours: the slowest rank's time of every iteration counts, and
// all ranks meet before an operation with a root. For scripts/bench/collectives.
//   mpirun -n 2 [--oversubscribe] build/bin/mpi_collectives all_reduce [root R] [met]
// "met": a barrier after each operation is timed too, so that a rank that returns knows as much as after ours. BYTES
// are the size of a rank's whole array: for an operation on blocks, of all blocks.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMostIterations = 20000, kLeastIterations = 5, kProbes = 5 };
static const double kSeconds = 0.5;  // to time one size
static const long kSizes[] = {4, 256, 2048, 16384, 131072, 1048576, 8388608, 67108864};

struct problem {
  const char* operation;
  float* input;
  float* output;
  int count;  // elements of the array
  int block;  // elements of a rank's block
  int root;
  int met;  // all ranks meet after the operation
};

static int is(const struct problem* p, const char* operation) { return strcmp(p->operation, operation) == 0; }

static int has_root(const struct problem* p) {
  return is(p, "broadcast") || is(p, "reduce") || is(p, "gather") || is(p, "scatter");
}

static int call(const struct problem* p) {
  const MPI_Comm world = MPI_COMM_WORLD;
  if (is(p, "all_reduce")) return MPI_Allreduce(p->input, p->output, p->count, MPI_FLOAT, MPI_SUM, world);
  if (is(p, "reduce")) return MPI_Reduce(p->input, p->output, p->count, MPI_FLOAT, MPI_SUM, p->root, world);
  if (is(p, "broadcast")) return MPI_Bcast(p->input, p->count, MPI_FLOAT, p->root, world);
  if (is(p, "reduce_scatter")) {
    return MPI_Reduce_scatter_block(p->input, p->output, p->block, MPI_FLOAT, MPI_SUM, world);
  }
  if (is(p, "all_gather")) return MPI_Allgather(p->input, p->block, MPI_FLOAT, p->output, p->block, MPI_FLOAT, world);
  if (is(p, "gather")) return MPI_Gather(p->input, p->block, MPI_FLOAT, p->output, p->block, MPI_FLOAT, p->root, world);
  if (is(p, "scatter"))
    return MPI_Scatter(p->input, p->block, MPI_FLOAT, p->output, p->block, MPI_FLOAT, p->root, world);
  if (is(p, "all_to_all")) return MPI_Alltoall(p->input, p->block, MPI_FLOAT, p->output, p->block, MPI_FLOAT, world);
  if (is(p, "barrier")) return MPI_Barrier(world);
  return MPI_ERR_OP;
}

static double time_once(const struct problem* p) {
  if (has_root(p)) MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  if (call(p) != MPI_SUCCESS) {
    fprintf(stderr,
            "mpi_collectives: unknown operation\n  got: %s\n  expected: all_reduce, reduce, broadcast, reduce_scatter, "
            "all_gather, gather, scatter, all_to_all, barrier\n",
            p->operation);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  if (p->met) MPI_Barrier(MPI_COMM_WORLD);
  return MPI_Wtime() - begin;
}

static int iterations_for(const struct problem* p) {
  double least = 1e9;
  for (int i = 0; i < kProbes; ++i) {
    const double begin = MPI_Wtime();
    time_once(p);
    const double seconds = MPI_Wtime() - begin;
    if (seconds < least) least = seconds;
  }
  double wanted = kSeconds / (least > 1e-9 ? least : 1e-9);
  if (wanted < kLeastIterations) wanted = kLeastIterations;
  if (wanted > kMostIterations) wanted = kMostIterations;
  int iterations = (int)wanted;
  MPI_Bcast(&iterations, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return iterations;
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return x < y ? -1 : x > y;
}

static void measure(const char* operation, int root, int met, long bytes, int rank, int ranks) {
  long count = bytes / (long)sizeof(float);
  if (count < ranks) count = ranks;
  struct problem p = {operation, NULL, NULL, (int)count, (int)(count / ranks), root, met};
  p.input = calloc((size_t)count, sizeof(float));
  p.output = calloc((size_t)count, sizeof(float));
  double* times = calloc(kMostIterations, sizeof(double));
  if (p.input == NULL || p.output == NULL || times == NULL) {
    fprintf(stderr, "mpi_collectives: out of memory\n  got: %ld bytes wanted twice\n", bytes);
    MPI_Abort(MPI_COMM_WORLD, 71);
  }
  memset(p.input, 0, (size_t)count * sizeof(float));  // the kernel provides calloc's pages when they are first written
  memset(p.output, 0, (size_t)count * sizeof(float));
  const int iterations = iterations_for(&p);
  for (int i = 0; i < iterations; ++i) times[i] = time_once(&p);
  MPI_Allreduce(MPI_IN_PLACE, times, iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  qsort(times, (size_t)iterations, sizeof(double), compare);
  if (rank == 0) {
    printf("%s %d ranks %ld B  p50 %.2f us  min %.2f us\n", operation, ranks, count * (long)sizeof(float),
           times[iterations / 2] * 1e6, times[0] * 1e6);
    fflush(stdout);
  }
  free(p.input);
  free(p.output);
  free(times);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const char* operation = argc > 1 ? argv[1] : "all_reduce";
  int root = 0;
  int met = 0;
  for (int i = 2; i < argc; ++i) {
    if (strcmp(argv[i], "met") == 0) {
      met = 1;
    } else if (strcmp(argv[i], "root") == 0 && i + 1 < argc) {
      char* end = NULL;
      const long number = strtol(argv[++i], &end, 10);
      root = *end == '\0' && number >= 0 && number < ranks ? (int)number : -1;
    } else {
      fprintf(stderr, "mpi_collectives: unknown argument\n  got: %s\n  expected: root R, met\n", argv[i]);
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
  }
  if (root < 0) {
    fprintf(stderr, "mpi_collectives: no such root\n  expected: 0 to %d\n", ranks - 1);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  for (size_t i = 0; i < sizeof(kSizes) / sizeof(kSizes[0]); ++i) measure(operation, root, met, kSizes[i], rank, ranks);
  MPI_Finalize();
  return 0;
}
