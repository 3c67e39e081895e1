#include "trial/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <stdexcept>

#include "trial/grid.h"
#include "trial/soak.h"

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
    else if (name == "--host")
      a.host = value;
    else if (name == "--port")
      a.port = std::stoi(value);
    else if (name == "--job")
      a.job = value;
    else if (name == "--backend")
      a.backend = value;
    else if (name == "--network")
      a.network = value;
    else if (name == "--algorithm")
      a.algorithm = value;
    else if (name == "--machines")
      a.machines = std::stoi(value);
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
  if (!a.algorithm.empty() && rules_of(a.algorithm).empty()) {
    throw std::invalid_argument("no operation has an algorithm named " + a.algorithm);
  }
  return a;
}

Command find_command(const std::string& name) {
  if (name == "grid") return &grid_command;
  if (name == "soak") return &soak_command;
  if (name == "fault") return &fault_command;
  throw std::invalid_argument("unknown command " + name);
}

namespace {

[[noreturn]] void end_wrong(const std::string& wrong) {
  fmt::print(stderr, "WRONG {}\n", wrong);
  std::fflush(nullptr);
  ::_exit(1);
}

std::string to_json(const Soaked& soaked) {
  return fmt::format("{{\"count\": {}, \"first\": {}, \"middle\": {}, \"last\": {}}}", soaked.count,
                     trial::to_json(soaked.looks.front()), trial::to_json(soaked.looks[soaked.looks.size() / 2]),
                     trial::to_json(soaked.looks.back()));
}

}  // namespace

int grid_command(const Self& self) {
  const auto begin = std::chrono::steady_clock::now();
  Communicator world(self.group("world"));
  GridOptions options{
      .quick = self.arguments.quick, .seed = self.arguments.seed, .algorithm = self.arguments.algorithm};
  options.on_wrong = &end_wrong;
  const GridCounts counts = run_grid(world, options);
  world.barrier();
  if (self.rank != 0) return 0;
  std::string text;
  for (const auto& [name, count] : counts) text += fmt::format("{}\"{}\": {}", text.empty() ? "" : ", ", name, count);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  fmt::print("{{\"cases\": {{{}}}, \"seconds\": {:.1f}}}\n", text, taken.count());
  return 0;
}

int soak_command(const Self& self) {
  const auto begin = std::chrono::steady_clock::now();
  const Arguments& a = self.arguments;
  Communicator world(self.group("world"));
  SoakOptions options{.seed = a.seed, .operations = a.operations, .cycles = a.cycles, .seconds = a.seconds};
  options.make_group = [&](const std::string& name) { return Communicator(self.group(name)); };
  options.on_wrong = &end_wrong;
  const Soaked cycles = soak_cycles(world, options);
  const Soaked operations = soak_operations(world, options);
  if (const auto leak = find_leak(cycles.looks, kSlackOfCycles)) end_wrong("cycles: " + *leak);
  if (const auto leak = find_leak(operations.looks, kSlackOfOperations)) end_wrong("operations: " + *leak);
  world.barrier();
  if (self.rank != 0) return 0;
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  fmt::print("{{\"cycles\": {}, \"operations\": {}, \"seconds\": {:.1f}}}\n", to_json(cycles), to_json(operations),
             taken.count());
  return 0;
}

}  // namespace reigen::trial
