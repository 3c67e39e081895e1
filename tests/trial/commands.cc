#include "trial/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <stdexcept>

#include "trial/grid.h"

namespace reigen::trial {

Arguments parse(const std::vector<std::string>& words) {
  if (words.empty()) throw std::invalid_argument("a command is missing: serve, grid, soak, fault");
  Arguments a;
  a.command = words[0];
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& name = words[i];
    if (name == "--quick") {
      a.quick = true;
      continue;
    }
    if (++i == words.size()) throw std::invalid_argument("a value is missing after " + name);
    const std::string& value = words[i];
    if (name == "--rank")
      a.rank = std::stoi(value);
    else if (name == "--ranks")
      a.ranks = std::stoi(value);
    else if (name == "--port")
      a.port = std::stoi(value);
    else if (name == "--job")
      a.job = value;
    else if (name == "--backend")
      a.backend = value;
    else if (name == "--seed")
      a.seed = std::stoull(value);
    else if (name == "--row")
      a.row = value;
    else if (name == "--operations")
      a.operations = std::stoull(value);
    else if (name == "--cycles")
      a.cycles = std::stoi(value);
    else if (name == "--seconds")
      a.seconds = std::stoi(value);
    else
      throw std::invalid_argument("unknown option " + name);
  }
  return a;
}

Command find_command(const std::string& name) {
  if (name == "grid") return &grid_command;
  throw std::invalid_argument("unknown command " + name);
}

int grid_command(const Self& self) {
  const auto begin = std::chrono::steady_clock::now();
  Communicator world(self.group("world"));
  GridOptions options{.quick = self.arguments.quick, .seed = self.arguments.seed};
  options.on_wrong = [](const std::string& wrong) {
    fmt::print(stderr, "WRONG {}\n", wrong);
    ::_exit(1);
  };
  const GridCounts counts = run_grid(world, options);
  world.barrier();
  if (self.rank != 0) return 0;
  std::string text;
  for (const auto& [name, count] : counts) text += fmt::format("{}\"{}\": {}", text.empty() ? "" : ", ", name, count);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  fmt::print("{{\"cases\": {{{}}}, \"seconds\": {:.1f}}}\n", text, taken.count());
  return 0;
}

}  // namespace reigen::trial
