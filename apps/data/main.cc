// reigen-data: the commands of `reigen data`.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "data/command.h"
#include "reigen/base/error.h"

namespace {

int code_of(int argc, char** argv) {
  try {
    return reigen::apps::data::command(reigen::apps::Arguments(argv + 1, argv + argc));
  } catch (const reigen::Error& error) {
    fmt::print(stderr, "reigen: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "reigen: {}\n  fix: this is a bug of Reigen, please report it\n", error.what());
    return static_cast<int>(reigen::ExitCode::kBug);
  }
}

}  // namespace

// At the end of a process, HDF5 waits for what a damaged file has left open, and complains. Nothing here is left to do
// then.
int main(int argc, char** argv) {
  const int code = code_of(argc, argv);
  std::fflush(nullptr);
  std::quick_exit(code);
}
