// Outputs of some operations of a forward, kept so that a second forward takes them in place of computing them anew.
//
// A dispatch key that LibTorch leaves to others (Fake) stands between autograd and the kernels: what autograd records
// in the second forward is what it would have recorded, only the kernels do not run.
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

// All overloads of these names ("aten::mm"). Throws InvalidArgument for one that is unknown, or that writes into its
// arguments or gives views of them.
std::shared_ptr<const Operations> find_operations(const std::vector<std::string>& names);

class KeptOutputs {
 public:
  // Null: nothing is kept.
  explicit KeptOutputs(std::shared_ptr<const Operations> operations) : operations_(std::move(operations)) {}

  // While one lives, this thread's operations are kept, or taken. The operations of both times must be the same in the
  // same order: the second throws InvalidArgument otherwise, and so does a scope within another. An output that is
  // written to while one lives is copied before.
  class Scope {
   public:
    enum class Mode { kKeep, kTake };
    Scope(KeptOutputs& outputs, Mode mode);
    ~Scope();
    Scope(const Scope&) = delete;  // ends once
    Scope& operator=(const Scope&) = delete;

   private:
    friend class KeptOutputs;
    struct Included;
    KeptOutputs& outputs_;
    Mode mode_;
    std::size_t next_ = 0;
    std::unique_ptr<Included> included_;
  };

  // These go on to where writes are not seen: a later take() of what lies in their memory throws InvalidArgument when
  // they were written to.
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
    std::optional<RandomState> random;  // the generators behind it, of one that draws
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
