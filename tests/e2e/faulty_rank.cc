// A rank that makes the calls of a training without training anything, and then has a planned fault:
//   faulty_rank FAULT PLACE RANK   FAULT: none, kill, stop, exit, throw, differ   PLACE: init, step, end
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/environment.h"
#include "reigen/base/error.h"
#include "reigen/runtime/init.h"

namespace {

void fail(const std::string& fault) {
  if (fault == "kill") ::raise(SIGKILL);
  if (fault == "stop") ::raise(SIGSTOP);
  if (fault == "exit") std::_Exit(3);
  if (fault == "throw") throw std::runtime_error("planned exception");
}

int run(const std::string& fault, const std::string& place, const std::string& rank) {
  std::printf("pid %d\n", ::getpid());
  std::fflush(stdout);
  const bool faulty = reigen::base::get_environment("RANK").value_or("0") == rank;
  if (faulty && place == "init") fail(fault);
  auto world = reigen::init();
  std::vector<float> gradient(100000, 1.0F);
  for (int step = 0; step < 50; ++step) {
    if (faulty && place == "step" && step == 20) fail(fault);
    const std::size_t less = faulty && fault == "differ" && step == 20 ? 1 : 0;
    world.all_reduce(gradient.data(), gradient.data(), gradient.size() - less, reigen::DataType::kFloat32,
                     reigen::ReduceOp::kAvg, {.tag = "step " + std::to_string(step)});
  }
  if (faulty && place == "end") fail(fault);
  world.barrier({.tag = "end"});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    return run(argv[1], argv[2], argv[3]);
  } catch (const reigen::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(reigen::ExitCode::kBug);
  }
}
