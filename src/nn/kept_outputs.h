// Keeps the outputs of some operations of a forward, so that a second forward takes them instead of computing them
// again.
//
// It intercepts operations at a dispatch key that LibTorch leaves to others (Fake), between autograd and the kernels.
// So in the second forward autograd records the same as without KeptOutputs. Only the kernels do not run.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "nn/random_state.h"

namespace reigen::nn {

using Operations = std::unordered_set<c10::OperatorName>;

// All overloads of these names ("aten::mm"). Throws InvalidArgument for a name that is unknown, or whose operations
// write into their arguments or return views of them.
std::shared_ptr<const Operations> find_operations(const std::vector<std::string>& names);

class KeptOutputs {
 public:
  // `operations` is null: nothing is kept.
  explicit KeptOutputs(std::shared_ptr<const Operations> operations) : operations_(std::move(operations)) {}

  // While a Scope lives, outputs of this thread's operations are kept (kKeep), or kept outputs are taken (kTake). The
  // same operations must run in the same order in both scopes. Otherwise the second scope throws InvalidArgument. A
  // scope within another one also throws it. If an operation is about to write to a kept output while a Scope lives,
  // the output is copied first.
  class Scope {
   public:
    enum class Mode { kKeep, kTake };
    Scope(KeptOutputs& outputs, Mode mode);
    ~Scope();
    Scope(const Scope&) = delete;  // a scope ends once
    Scope& operator=(const Scope&) = delete;

   private:
    friend class KeptOutputs;
    struct Included;
    KeptOutputs& outputs_;
    Mode mode_;
    std::size_t next_ = 0;
    std::unique_ptr<Included> included_;
  };

  // These outputs leave the unit. KeptOutputs does not see writes to them outside of it. If one of them is written to,
  // a later take() of a kept output in its memory throws InvalidArgument.
  void watch(const std::vector<at::Tensor>& outputs);
  void drop() { kept_.clear(); }

 private:
  struct Watched {
    c10::VariableVersion counter;
    std::uint32_t version;
  };
  struct One {
    c10::OperatorName operation;
    std::vector<c10::IValue> results;
    std::vector<Watched> watched;
    std::optional<RandomState> random;  // states of the generators after the operation, if it draws random numbers
  };

  static void intercept(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
                        std::vector<c10::IValue>* stack);
  void keep(const c10::OperatorHandle& operation, const std::vector<c10::IValue>& stack);
  void copy_before_write(const c10::OperatorHandle& operation, const std::vector<c10::IValue>& stack);
  void copy_what_lies_in(const at::Tensor& written);
  void take(const c10::OperatorHandle& operation, std::size_t index, std::vector<c10::IValue>* stack) const;

  std::shared_ptr<const Operations> operations_;
  std::vector<One> kept_;
};

}  // namespace reigen::nn
