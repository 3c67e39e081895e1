// Makes a whole program from a task and its data. The program has a flag, a TOML key and an environment variable for
// every option, and --help. A launcher, or the flag -n N, starts its ranks. It shows progress, saves checkpoints, and
// stops cleanly on a signal, printing the command that resumes the run. It prints each error once and returns an exit
// code. The recipes of `reigen train` are such programs.
//
//   int main(int argc, char** argv) {
//     return reigen::train::run<MyTask, MyData>(argc, argv, {.name = "mine", .summary = "what it learns"});
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
#include <vector>

#include "reigen/train/callback.h"
#include "reigen/train/config.h"
#include "reigen/train/data_module.h"
#include "reigen/train/task.h"

namespace reigen::train {

// What a recipe makes on each rank. The task may keep a reference to the data.
struct Training {
  std::shared_ptr<Task> task = {};
  std::shared_ptr<DataModule> data = {};
};

// A task that is its own DataModule.
template <class Both>
Training as_both(std::shared_ptr<Both> both) {
  return {.task = both, .data = both};
}

namespace detail {
template <class T>
std::shared_ptr<T> made_from(const Config& config) {
  if constexpr (std::is_constructible_v<T, const Config&>)
    return std::make_shared<T>(config);
  else
    return std::make_shared<T>();
}
}  // namespace detail

struct Recipe {
  std::string name = {};             // for messages, directories and --help: "mnist"
  std::string summary = {};          // one line for --help
  std::string data = {};             // what --data.path accepts, as lines for --help; if empty, there is no such option
  Config defaults = {};              // may include options of your own in .model (config.h)
  std::int64_t batch_per_rank = 64;  // used when train.global_batch is not set
  std::int64_t samples = 0;          // in the usual training data, for --run.plan; 0: data.limit must say it
  // Makes the task and its data; called once on every rank. If without_memory is true, the model may be made without
  // memory for its weights, and data_parallel() allocates that memory later (nn/without_memory.h). A task may ignore
  // without_memory.
  std::function<Training(const Config& config, bool without_memory)> make = {};
  // Makes the callbacks (callback.h); called once on every rank. If empty, there are none.
  std::function<std::vector<std::shared_ptr<Callback>>(const Config& config)> callbacks = {};
};

// Runs the whole program: reads the command line, becomes a rank or starts the ranks, and trains. Returns an exit code
// of base/error.h; 75 means that the run was stopped on request and can be resumed. Prints every error once for the
// whole job and throws nothing.
int run(int argc, char** argv, const Recipe& recipe);

// The same for a type of task and a type of its data. Each has a constructor from Config, or a default constructor; the
// task may also have one from Config and the data, if the model depends on them. One type may be both.
template <class MyTask, class MyData = MyTask>
int run(int argc, char** argv, Recipe recipe) {
  static_assert(std::is_base_of_v<Task, MyTask>,
                "reigen::train::run<MyTask, MyData>: MyTask must derive from reigen::train::Task");
  static_assert(
      std::is_base_of_v<DataModule, MyData>,
      "reigen::train::run<MyTask, MyData>: MyData must derive from reigen::train::DataModule; without MyData, "
      "MyTask derives from both");
  static_assert(!std::is_abstract_v<MyTask>,
                "reigen::train::run<MyTask, MyData>: MyTask overrides module() and training_step(), MyData training()");
  static_assert(!std::is_abstract_v<MyData>, "reigen::train::run<MyTask, MyData>: MyData overrides training()");
  static_assert(std::is_abstract_v<MyTask> || std::is_constructible_v<MyTask, const Config&, MyData&> ||
                    std::is_constructible_v<MyTask, const Config&> || std::is_default_constructible_v<MyTask>,
                "reigen::train::run<MyTask, MyData>: MyTask needs a constructor MyTask(const reigen::train::Config&, "
                "MyData&), MyTask(const reigen::train::Config&) or MyTask()");
  if constexpr (std::is_base_of_v<Task, MyTask> && std::is_base_of_v<DataModule, MyData> &&
                !std::is_abstract_v<MyTask> && !std::is_abstract_v<MyData>) {
    recipe.make = [](const Config& config, bool) {
      if constexpr (std::is_same_v<MyTask, MyData>) {
        return as_both(detail::made_from<MyTask>(config));
      } else {
        const std::shared_ptr<MyData> data = detail::made_from<MyData>(config);
        if constexpr (std::is_constructible_v<MyTask, const Config&, MyData&>)
          return Training{std::make_shared<MyTask>(config, *data), data};
        else
          return Training{detail::made_from<MyTask>(config), data};
      }
    };
  }
  return run(argc, argv, std::as_const(recipe));
}

// The body of main() of reigen-train: calls run() for the recipe that the first argument names.
int run_program(int argc, char** argv);

}  // namespace reigen::train
