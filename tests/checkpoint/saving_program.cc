// saving_program DIRECTORY TIMES [again]: two ranks save TIMES checkpoints. Save N has its own values, epoch N and step
// N; with "again" the step is always 1. After each save the program makes a folder done_N beside the checkpoints. The
// first save that fails is tried again; a second failure ends the program.
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
