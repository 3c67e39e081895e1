// reigen-train: the recipes, with LibTorch. `reigen train` starts its ranks.
#include <cstdio>
#include <cstdlib>

#include "reigen/train/program.h"

int main(int argc, char** argv) {
  const int code = reigen::train::run_program(argc, argv);
  std::fflush(nullptr);
  // Everything of ours is closed; taking LibTorch apart piece by piece would only keep the launcher waiting.
  std::_Exit(code);
}
