// reigen-data: the commands of `reigen data`.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "data/command.h"
#include "reigen/base/error.h"

int main(int argc, char** argv) {
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
