// A unit is a part of a model that other code can wrap: to gather and free its parameters, to compute its activations
// again, to cast values, to measure time, or to cut the model into pipeline stages.
//
// C++ modules have no forward hooks. So a model that other code can wrap consists of units, and its forward applies
// call() to one unit after the other. The function fold() does this:
//
//   struct Net : torch::nn::Module {
//     Net() { for (...) blocks.emplace_back("blocks.0", register_module("blocks.0", std::make_shared<Block>(...))); }
//     at::Tensor forward(at::Tensor x) { return reigen::nn::fold(blocks, x); }
//     std::vector<reigen::nn::Unit> units() const { return blocks; }
//     std::vector<reigen::nn::Unit> blocks;
//   };
//
// An attachment is a function that wraps the forward of a unit. A unit has six layers (enum Layer), and each can hold
// one attachment. If nothing is attached, call() only runs the forward. Otherwise the attachments are nested:
//
//   call(unit, x) = stage(trace(order(recompute(parameters(precision(forward))))))(x)
//
// A Unit is a handle: copies refer to the same unit. So an attachment to one copy is an attachment to all copies.
// Thread rule: one thread at a time may attach to a unit or call it. If ranks are threads of one process, each rank has
// its own model and units.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
class SequentialImpl;
}  // namespace torch::nn

namespace reigen::nn {

// The tensors that one unit passes to the next, in an order that the model chooses. The vector may be empty.
using Carry = std::vector<at::Tensor>;

// The layers in which attachments wrap a unit's forward, from the outermost to the innermost. Each layer can hold one
// attachment.
enum class Layer {
  kStage,      // outermost: passes units of other pipeline stages by, and brings the input of the first unit of a stage
  kTrace,      // observes the work of all other layers, for example to measure time
  kOrder,      // reports in which unit a backward is
  kRecompute,  // runs the inner layers and the forward once more in backward
  kParameters,  // gathers and frees the unit's parameters
  kPrecision,   // casts the values that the forward computes with
};

class Unit {
 public:
  using Forward = std::function<Carry(const Carry&)>;
  // The type of an attachment: a function that returns the unit's output for `input`. `inner` runs the attachments of
  // all inner layers and then the forward. An attachment may call `inner` any number of times.
  using Around = std::function<Carry(const Carry& input, const Forward& inner)>;

  // `name` is the module's name in the whole model ("blocks.0"), which is the prefix of its parameters' names.
  Unit(std::string name, std::shared_ptr<torch::nn::Module> module, Forward forward);

  // For a module whose forward takes one tensor or a Carry, and returns one tensor or a Carry.
  template <class Module>
  Unit(const std::string& name, std::shared_ptr<Module> module) : Unit(name, module, forward_of(name, module)) {}

  const std::string& name() const;
  torch::nn::Module& module() const;
  // The module's parameters in registration order.
  std::vector<at::Tensor> parameters() const;

  // attach() makes `around` wrap the unit's forward at the level `layer` (enum Layer: kStage is the outermost level,
  // kPrecision the innermost). It throws InvalidArgument if another function wraps the unit at this level already.
  // detach() removes the function at this level. has() says whether there is such a function.
  void attach(Layer layer, Around around) const;
  void detach(Layer layer) const;
  bool has(Layer layer) const;

  bool operator==(const Unit& other) const { return state_ == other.state_; }

 private:
  friend Carry call(const Unit& unit, const Carry& input);

  template <class Module>
  static Forward forward_of(const std::string& name, const std::shared_ptr<Module>& module) {
    if constexpr (requires(Module & m, const Carry& c) { Carry{m.forward(c)}; }) {
      return [m = module.get()](const Carry& input) { return Carry{m->forward(input)}; };
    } else {
      return [m = module.get(), name](const Carry& input) { return Carry{m->forward(only(name, input))}; };
    }
  }
  static const at::Tensor& only(const std::string& name, const Carry& carry);

  struct State;
  std::shared_ptr<State> state_;
};

// Runs the unit's forward with all attachments.
Carry call(const Unit& unit, const Carry& input);
// The same as the call() above, for a unit that takes one tensor and returns one tensor. Throws InvalidArgument when
// the unit does not return exactly one tensor.
at::Tensor call(const Unit& unit, const at::Tensor& input);

// Calls one unit after the other. Each unit gets the output of the unit before it.
Carry fold(const std::vector<Unit>& units, Carry input);
at::Tensor fold(const std::vector<Unit>& units, at::Tensor input);

// Returns one unit for each child of a torch::nn::Sequential. Each unit takes one tensor and returns one tensor. fold()
// over these units is the forward of the Sequential. A unit's name is `prefix`, a dot and the name of the child;
// without a prefix it is the name of the child.
std::vector<Unit> units_of(torch::nn::SequentialImpl& sequential, const std::string& prefix = "");

}  // namespace reigen::nn
