// Calls the program's callbacks, and keeps their state in checkpoints.
// Thread rule: used only by the thread of its rank. All ranks call the functions marked "Collective", in the same
// order.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "reigen/train/callback.h"
#include "train/run/run.h"

namespace reigen::train {

class Callbacks {
 public:
  explicit Callbacks(Run& run) : run_(run) {}

  // Collective. Throws InvalidArgument (is_common()) for a null pointer, for two callbacks with one name, for a name
  // with a line break, and if ranks have other callbacks.
  void require_valid() const;
  // Takes the states from the options of the checkpoint of a resumed run.
  void restore(const std::map<std::string, std::string>& options, std::int64_t world_size);
  // The states of this rank's callbacks by name, for keep_states().
  std::map<std::string, std::string> states() const;

  void begin_fit();
  void begin_epoch();
  void begin_step(const data::Batch& batch);
  void after_backward();
  void before_optimizer();
  void end_step();
  void note_loss(std::int64_t step, double loss);
  void end_epoch(const Figures& figures);
  void begin_validation();
  void end_validation(const Figures& figures);
  void saved_checkpoint(const std::filesystem::path& path);
  void end_fit();
  // Calls failed(); an exception in it is only logged, because another one is under way.
  void failed(std::string_view what) noexcept;

 private:
  void named(const Callback& callback, const char* function, const std::function<void()>& body) const;
  // Calls one function of all callbacks. `step`: the number of the step of this moment.
  void call(const char* function, std::int64_t step, const std::function<void(Callback&, Moment&)>& body);

  Run& run_;
};

}  // namespace reigen::train
