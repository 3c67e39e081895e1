// Uses spawn() as a user would. spawn_test runs this program with the name of a case.
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "reigen/base/error.h"
#include "reigen/runtime/init.h"

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  try {
    reigen::spawn(2, [](reigen::Communicator& world) {
      float x = 1.0f;
      world.all_reduce(&x, &x, 1, reigen::DataType::kFloat32, reigen::ReduceOp::kSum);
      if (world.rank() == 0) std::printf("first sum %g\n", static_cast<double>(x));
    });
    reigen::spawn(3, [what](reigen::Communicator& world) {
      if (std::strcmp(what, "throw") == 0 && world.rank() == 1) throw reigen::DataError("the second rank gives up");
      if (std::strcmp(what, "kill") == 0 && world.rank() == 2) ::raise(SIGKILL);
      float x = 1.0f;
      world.all_reduce(&x, &x, 1, reigen::DataType::kFloat32, reigen::ReduceOp::kSum);
      if (world.rank() == 0) std::printf("second sum %g\n", static_cast<double>(x));
    });
  } catch (const reigen::Error& error) {
    std::printf("spawn threw: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
  std::printf("main goes on\n");
  return 0;
}
