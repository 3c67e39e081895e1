// A program from a task: flags, --help, a TOML file and variables for every option, ranks by any launcher or by -n N,
// progress, checkpoints, a clean stop by a signal with the command that goes on, errors told once, exit codes. The
// recipes of `reigen train` are such programs.
//
//   int main(int argc, char** argv) {
//     return reigen::train::run<MyTask>(argc, argv, {.name = "mine", .summary = "what it learns"});
//   }
//
//   ./mine -n 2 --train.epochs 5        or   reigen run -n 2 ./mine ..., torchrun, srun, mpirun
//
// docs/your_program.md has whole programs. Thread rule: call from main().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "reigen/train/config.h"
#include "reigen/train/task.h"

namespace reigen::train {

struct Recipe {
  std::string name = {};             // in --help: "mnist"
  std::string summary = {};          // one line of --help
  std::string data = {};             // what --data.path takes, lines of --help; empty: there is no such option
  Config defaults = {};              // with options of your own in .model (config.h)
  std::int64_t batch_per_rank = 64;  // when train.global_batch is not set
  // Called once on every rank. without_memory: the model may be made without memory for its weights, which
  // data_parallel() gives it then (nn/without_memory.h); a task may do as if it were false.
  std::function<std::unique_ptr<Task>(const Config& config, bool without_memory)> make = {};
};

// The whole program: reads the command line, becomes a rank or starts the ranks, trains, and returns the exit code of
// base/error.h (75: stopped as asked, can go on). Every error is printed once for the whole job; throws nothing.
int run(int argc, char** argv, const Recipe& recipe);

// The same for a task that is made from the configuration, or from nothing.
template <class MyTask>
int run(int argc, char** argv, Recipe recipe) {
  static_assert(std::is_base_of_v<Task, MyTask>,
                "reigen::train::run<MyTask>: MyTask must derive from reigen::train::Task");
  static_assert(!std::is_abstract_v<MyTask>,
                "reigen::train::run<MyTask>: MyTask overrides name(), module(), training_data() and test_data()");
  static_assert(
      std::is_abstract_v<MyTask> || std::is_constructible_v<MyTask, const Config&> ||
          std::is_default_constructible_v<MyTask>,
      "reigen::train::run<MyTask>: MyTask needs a constructor MyTask(const reigen::train::Config&) or MyTask()");
  recipe.make = [](const Config& config, bool) -> std::unique_ptr<Task> {
    if constexpr (!std::is_base_of_v<Task, MyTask> || std::is_abstract_v<MyTask>)
      return nullptr;  // refused above
    else if constexpr (std::is_constructible_v<MyTask, const Config&>)
      return std::make_unique<MyTask>(config);
    else
      return std::make_unique<MyTask>();
  };
  return run(argc, argv, std::as_const(recipe));
}

// main() of reigen-train: run() of the recipe that the first argument names.
int run_program(int argc, char** argv);

}  // namespace reigen::train
