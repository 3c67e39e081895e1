// Makes a whole program from a task. The program has a flag, a TOML key and an environment variable for every option,
// and --help. A launcher, or the flag -n N, starts its ranks. It shows progress, saves checkpoints, and stops cleanly
// on a signal, printing the command that resumes the run. It prints each error once and returns an exit code. The
// recipes of `reigen train` are such programs.
//
//   int main(int argc, char** argv) {
//     return reigen::train::run<MyTask>(argc, argv, {.name = "mine", .summary = "what it learns"});
//   }
//
//   ./mine -n 2 --train.epochs 5        or   reigen run -n 2 ./mine ..., torchrun, srun, mpirun
//
// docs/your_program.md has whole programs. Thread rule: call run() from main().
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
  std::string name = {};             // name in --help: "mnist"
  std::string summary = {};          // one line for --help
  std::string data = {};             // what --data.path accepts, as lines for --help; if empty, there is no such option
  Config defaults = {};              // may include options of your own in .model (config.h)
  std::int64_t batch_per_rank = 64;  // used when train.global_batch is not set
  // Makes the task; called once on every rank. If without_memory is true, the model may be made without memory for
  // its weights, and data_parallel() allocates that memory later (nn/without_memory.h). A task may ignore
  // without_memory.
  std::function<std::unique_ptr<Task>(const Config& config, bool without_memory)> make = {};
};

// Runs the whole program: reads the command line, becomes a rank or starts the ranks, and trains. Returns an exit code
// of base/error.h; 75 means that the run was stopped on request and can be resumed. Prints every error once for the
// whole job and throws nothing.
int run(int argc, char** argv, const Recipe& recipe);

// The same for a task type with a constructor from Config or a default constructor.
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
      return nullptr;  // a static_assert above has refused this type
    else if constexpr (std::is_constructible_v<MyTask, const Config&>)
      return std::make_unique<MyTask>(config);
    else
      return std::make_unique<MyTask>();
  };
  return run(argc, argv, std::as_const(recipe));
}

// The body of main() of reigen-train: calls run() for the recipe that the first argument names.
int run_program(int argc, char** argv);

}  // namespace reigen::train
