// A group of one rank adds up its numbers. The program uses the C interface, like a user without a C++ compiler.
#include <reigen/c/comm.h>
#include <stdio.h>

int main(void) {
  reigen_comm* world = NULL;
  double sum = 2.5;
  reigen_status status = reigen_init(NULL, &world);
  if (status == REIGEN_OK) status = reigen_all_reduce(world, &sum, &sum, 1, REIGEN_FLOAT64, REIGEN_SUM, NULL);
  if (status == REIGEN_OK) {
    printf("sum %g\n", sum);
  } else {
    fprintf(stderr, "error: %s\n", reigen_error_message());
  }
  reigen_comm_release(world);
  return status;
}
