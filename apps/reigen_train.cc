// reigen-train: the recipes, with LibTorch. `reigen train` starts its processes, and `reigen generate` becomes one.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "generate/generate.h"
#include "reigen/train/program.h"

int main(int argc, char** argv) {
  const bool generates = argc > 1 && std::string(argv[1]) == "generate";
  const int code = generates ? reigen::apps::generate_text(std::vector<std::string>(argv + 2, argv + argc))
                             : reigen::train::run_program(argc, argv);
  std::fflush(nullptr);
  // All of our files and groups are closed. LibTorch's destructors would only make the launcher wait.
  std::_Exit(code);
}
