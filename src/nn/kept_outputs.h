// Keeps the outputs of some operations of a forward, so that a second forward takes them instead of computing them
// again.
//
// KeptOutputs intercepts operations between autograd and the kernels, at the dispatch key Fake, which LibTorch leaves
// to other code. So in the second forward autograd records the same graph as without KeptOutputs. Only the kernels of
// the kept operations do not run.
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

// Returns all overloads of the operations with these names ("aten::mm"). Throws InvalidArgument for a name that is
// unknown, or whose operations write into their arguments or return views of them.
std::shared_ptr<const Operations> find_operations(const std::vector<std::string>& names);

// A node of autograd whose outputs may lie in memory that is needed later.
class KeepsOutputs {
 public:
  virtual ~KeepsOutputs() = default;
  virtual bool keeps(const at::Tensor& tensor) const = 0;
};

// Whether the memory of the tensor, the result of a unit, holds a kept output, or a parameter, buffer or input that the
// unit only returned. So nothing may write to it.
bool is_kept_output(const at::Tensor& tensor);

class KeptOutputs {
 public:
  // If `operations` is null, nothing is kept.
  explicit KeptOutputs(std::shared_ptr<const Operations> operations) : operations_(std::move(operations)) {}

  // A Scope acts on the operations that its thread runs while the Scope lives. In a kKeep scope the outputs of the
  // chosen operations are kept. In a kTake scope the same operations return the kept outputs. They must run in the same
  // order in both scopes; otherwise an operation in the kTake scope throws InvalidArgument. The constructor throws
  // InvalidArgument inside another scope. If an operation is about to write to a kept output while a Scope lives, the
  // output is copied first.
  class Scope {
   public:
    enum class Mode { kKeep, kTake };
    Scope(KeptOutputs& outputs, Mode mode);
    ~Scope();
    Scope(const Scope&) = delete;  // a copy would end the scope twice
    Scope& operator=(const Scope&) = delete;

   private:
    friend class KeptOutputs;
    struct Included;
    KeptOutputs& outputs_;
    Mode mode_;
    std::size_t next_ = 0;
    std::unique_ptr<Included> included_;
  };

  // `outputs` are the tensors that the unit returns. KeptOutputs does not see what other code later writes to them. If
  // a returned tensor was written to, a later take() of a kept output in the same memory throws InvalidArgument.
  void watch(const std::vector<at::Tensor>& outputs);
  void drop() { kept_.clear(); }

  // Whether a kept output lies in the memory of the tensor.
  bool hold(const at::Tensor& tensor) const;

  // For code that writes into a tensor by itself and not by an operation of LibTorch. It must call this first. If a
  // Scope lives on this thread, the kept outputs in the memory of the tensor are copied.
  static void before_write(const at::Tensor& written);

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
