// Four ranks as threads add up their numbers. A user's program with the floors without LibTorch.
#include <cstdio>

#include "reigen/comm/communicator.h"
#include "reigen/runtime/init.h"

int main() {
  reigen::run_threads(4, [](reigen::Communicator& world) {
    int sum = world.rank();
    world.all_reduce(&sum, &sum, 1, reigen::DataType::kInt32, reigen::ReduceOp::kSum);
    if (world.rank() == 0) std::printf("rank sum %d\n", sum);
  });
}
