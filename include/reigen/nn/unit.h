// A unit: a part of a model around which something can happen, such as gathering and releasing its parameters,
// computing its activations again, a cast, a clock, a cut between pipeline stages.
//
// C++ modules have no forward hooks. A model that wants to be cut is made of units and its forward is the fold of
// call() over them:
//
//   struct Net : torch::nn::Module {
//     Net() { for (...) blocks.emplace_back("blocks.0", register_module("blocks.0", std::make_shared<Block>(...))); }
//     at::Tensor forward(at::Tensor x) { return reigen::nn::fold(blocks, x); }
//     std::vector<reigen::nn::Unit> units() const { return blocks; }
//     std::vector<reigen::nn::Unit> blocks;
//   };
//
// Attached to nothing a call is the plain forward. What is attached wraps it, outer layers first:
//
//   call(unit, x) = recompute(parameters(precision(forward)))(x)
//
// A unit is a handle: copies are the same unit, and what is attached to one is attached to all of them.
// Thread rule: attach and call on one thread at a time; ranks that are threads have models, and so units, of their own.
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

// What travels from one unit to the next: a few tensors, in the model's own order. A unit without output gives none.
using Carry = std::vector<at::Tensor>;

// Where an attachment stands around a unit's forward, outermost first. One of each may be attached.
enum class Layer {
  kTrace,       // sees all that the others add
  kOrder,       // tells in which unit a backward is
  kRecompute,   // runs everything below once more in backward
  kParameters,  // gathers and releases
  kPrecision,   // casts what the forward computes with
};

class Unit {
 public:
  using Forward = std::function<Carry(const Carry&)>;
  // Gives what the unit gives for `input`; calls `inner` for what stands below, as often as it likes.
  using Around = std::function<Carry(const Carry& input, const Forward& inner)>;

  // `name`: the module's in the whole model ("blocks.0"), the prefix of its parameters' names.
  Unit(std::string name, std::shared_ptr<torch::nn::Module> module, Forward forward);

  // Of a module with a forward of one tensor or of a Carry.
  template <class Module>
  Unit(std::string name, std::shared_ptr<Module> module) : Unit(std::move(name), module, forward_of(module)) {}

  const std::string& name() const;
  torch::nn::Module& module() const;
  // In registration order.
  std::vector<at::Tensor> parameters() const;

  // Throws InvalidArgument when the layer is taken. detach() leaves the layer empty.
  void attach(Layer layer, Around around) const;
  void detach(Layer layer) const;
  bool has(Layer layer) const;

  bool operator==(const Unit& other) const { return state_ == other.state_; }

 private:
  friend Carry call(const Unit& unit, const Carry& input);

  template <class Module>
  static Forward forward_of(const std::shared_ptr<Module>& module) {
    if constexpr (requires(Module & m, const Carry& c) { Carry{m.forward(c)}; }) {
      return [m = module.get()](const Carry& input) { return Carry{m->forward(input)}; };
    } else {
      return [m = module.get()](const Carry& input) { return Carry{m->forward(only(input))}; };
    }
  }
  static const at::Tensor& only(const Carry& carry);

  struct State;
  std::shared_ptr<State> state_;
};

// The unit's forward with everything that is attached to it.
Carry call(const Unit& unit, const Carry& input);
// The same for units of one tensor. Throws InvalidArgument when another number comes out.
at::Tensor call(const Unit& unit, const at::Tensor& input);

// call() of one after the other.
Carry fold(const std::vector<Unit>& units, Carry input);
at::Tensor fold(const std::vector<Unit>& units, at::Tensor input);

// One for each part of a stock Sequential, each of one tensor; fold() over them is its forward. The names are those of
// its children under `prefix`.
std::vector<Unit> units_of(torch::nn::SequentialImpl& sequential, const std::string& prefix = "");

}  // namespace reigen::nn
