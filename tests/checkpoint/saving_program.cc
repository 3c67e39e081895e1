// saving_program DIRECTORY STEPS: two ranks save so many steps, each with its own values, and note each that is saved
// by a file done_N beside. A save that fails is tried once more.
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "checkpoint/layouts.h"
#include "reigen/base/error.h"
#include "reigen/runtime/init.h"

int main(int count, char** words) {
  using namespace reigen;
  namespace kit = testing_checkpoint;
  if (count != 3) return 2;
  const std::filesystem::path root = words[1];
  const int steps = std::atoi(words[2]);
  int tries = 0;
  for (int step = 1; step <= steps;) {
    try {
      run_threads(2, [&](Communicator& world) {
        const kit::Held held = kit::hold(kit::some_tensors(), kit::Layout::kTurns, world.rank(), 2,
                                         static_cast<std::uint64_t>(100 * step));
        checkpoint::save(root / "checkpoints", {.step = step}, held.contents, 1, world);
      });
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      if (++tries > 1) return static_cast<int>(error.exit_code());
      continue;
    }
    ::mkdir((root / ("done_" + std::to_string(step))).c_str(), 0777);
    ++step;
  }
  return 0;
}
