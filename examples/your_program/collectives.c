/* Collectives from C. Every rank passes an array, and every rank gets the mean of these arrays.
 *
 *   reigen run -n 2 build/collectives
 */
#include <reigen/c/comm.h>
#include <stdio.h>

enum { COUNT = 6 };

static int failed(reigen_status status) {
  fprintf(stderr, "error: %s\n", reigen_error_message());
  return status; /* the launcher learns from this exit code what happened */
}

int main(void) {
  reigen_comm* world = NULL;
  reigen_status status = reigen_init(NULL, &world);
  if (status != REIGEN_OK) return failed(status);

  double values[COUNT];
  for (int i = 0; i < COUNT; ++i) values[i] = reigen_rank(world) + i;
  status = reigen_all_reduce(world, values, values, COUNT, REIGEN_FLOAT64, REIGEN_AVG, NULL);
  if (status != REIGEN_OK) return failed(status);

  /* Every rank gets the value of rank 0. */
  double last = values[COUNT - 1];
  status = reigen_broadcast(world, &last, 1, REIGEN_FLOAT64, 0, NULL);
  if (status != REIGEN_OK) return failed(status);
  if (reigen_rank(world) == 0) printf("%d ranks: the last mean is %g\n", reigen_size(world), last);
  reigen_comm_release(world);
  return 0;
}
