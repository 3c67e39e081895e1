// saving_program DIRECTORY TIMES [again]: two ranks save so many times, each with values and an epoch of its own, and
// note each that is saved by a file done_N beside. The step is that number too; with "again" always 1. A save that
// fails is tried once more.
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
  if (count < 3) return 2;
  const std::filesystem::path root = words[1];
  const int times = std::atoi(words[2]);
  const bool again = count > 3;
  int tries = 0;
  for (int time = 1; time <= times;) {
    try {
      run_threads(2, [&](Communicator& world) {
        const kit::Held held = kit::hold(kit::some_tensors(), kit::Layout::kTurns, world.rank(), 2,
                                         static_cast<std::uint64_t>(100 * time));
        checkpoint::save(root / "checkpoints", {.step = again ? 1 : time, .epoch = time}, held.contents, 1, world);
      });
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      if (++tries > 1) return static_cast<int>(error.exit_code());
      continue;
    }
    ::mkdir((root / ("done_" + std::to_string(time))).c_str(), 0777);
    ++time;
  }
  return 0;
}
