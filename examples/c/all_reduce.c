// A program in C. Every rank has an array, and all ranks get the sum of the arrays.
//
//   reigen run -n 4 c_all_reduce
#include <stdio.h>

#include "reigen/c/comm.h"

enum { COUNT = 1000 };

// Prints the error. The status is the exit code that tells the launcher what happened.
static int failed(reigen_status status) {
  fprintf(stderr, "error: %s\n", reigen_error_message());
  return status;
}

int main(void) {
  reigen_comm* world = NULL;
  reigen_status status = reigen_init(NULL, &world);
  if (status != REIGEN_OK) return failed(status);

  reigen_memory* memory = NULL;  // memory of the group, so that the call copies nothing
  status = reigen_allocate(world, COUNT * sizeof(float), &memory);
  if (status != REIGEN_OK) return failed(status);
  float* values = reigen_memory_data(memory);
  for (int i = 0; i < COUNT; ++i) values[i] = (float)(reigen_rank(world) + i);

  status = reigen_all_reduce(world, values, values, COUNT, REIGEN_FLOAT32, REIGEN_SUM, NULL);
  if (status != REIGEN_OK) return failed(status);
  if (reigen_rank(world) == 0) {
    printf("%d ranks (%s): the last sum is %g\n", reigen_size(world), reigen_backend(world), values[COUNT - 1]);
  }
  reigen_memory_release(memory);
  reigen_comm_release(world);
  return 0;
}
