// reigen-train: the recipes, with LibTorch. `reigen train` starts its processes.
#include <cstdio>
#include <cstdlib>

#include "reigen/train/program.h"

int main(int argc, char** argv) {
  const int code = reigen::train::run_program(argc, argv);
  std::fflush(nullptr);
  // All of our files and groups are closed. LibTorch's destructors would only make the launcher wait.
  std::_Exit(code);
}
