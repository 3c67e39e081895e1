#include "reigen/nn/activation_checkpoint.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Storage.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"
#include "nn/autocast_devices.h"
#include "nn/kept_outputs.h"
#include "nn/random_state.h"
#include "reigen/nn/sequence_part.h"
#include "tensor/backward_end.h"

namespace reigen::nn {

namespace {

class AutocastState {
 public:
  AutocastState() {
    for (std::size_t i = 0; i < kAutocastDevices.size(); ++i) {
      devices_[i] = {.enabled = at::autocast::is_autocast_enabled(kAutocastDevices[i]),
                     .type = at::autocast::get_autocast_dtype(kAutocastDevices[i])};
    }
  }
  void apply() const {
    for (std::size_t i = 0; i < kAutocastDevices.size(); ++i) {
      at::autocast::set_autocast_enabled(kAutocastDevices[i], devices_[i].enabled);
      at::autocast::set_autocast_dtype(kAutocastDevices[i], devices_[i].type);
    }
    at::autocast::set_autocast_cache_enabled(cached_);
  }

 private:
  struct Setting {
    bool enabled = false;
    at::ScalarType type = at::kFloat;
  };
  std::array<Setting, kAutocastDevices.size()> devices_;
  bool cached_ = at::autocast::is_autocast_cache_enabled();
};

// While a SecondForward lives, random generators, autocast and the part of sequences (context parallelism) have the
// state that they had in the first forward. The destructor returns them and the module's buffers to their state before
// the second forward.
class SecondForward {
 public:
  SecondForward(const torch::nn::Module& module, const RandomState& random, const AutocastState& autocast,
                const std::shared_ptr<const SequencePart>& part)
      : random_(random.now()), part_(sequence_part()), buffers_(module.buffers()) {
    use_on_this_thread(part);
    for (const at::Tensor& buffer : buffers_) values_.push_back(buffer.defined() ? buffer.clone() : buffer);
    random.apply();
    autocast.apply();
    at::autocast::increment_nesting();
  }
  ~SecondForward() {
    // In the second forward, autocast has cached casts of weights. These casts must not outlive a step, which changes
    // the weights.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    use_on_this_thread(part_);
    autocast_.apply();
    random_.apply();
    at::NoGradGuard no_grad;
    // variable_data() returns a tensor with the same memory and its own version counter, so the copy does not change
    // the buffer's counter.
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i].defined()) buffers_[i].variable_data().copy_(values_[i]);
    }
  }
  SecondForward(const SecondForward&) = delete;  // two objects would restore the state twice
  SecondForward& operator=(const SecondForward&) = delete;

 private:
  const RandomState random_;
  const AutocastState autocast_;
  const std::shared_ptr<const SequencePart> part_;
  const std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> values_;
};

bool shares_memory(const at::Tensor& tensor, const std::vector<c10::Storage>& storages) {
  return std::any_of(storages.begin(), storages.end(),
                     [&](const c10::Storage& one) { return one.is_alias_of(tensor.storage()); });
}

// The autograd node that takes the place of all nodes of the unit's forward. Its backward runs the forward again.
class Recompute : public torch::autograd::Node, public KeepsOutputs {
 public:
  Recompute(Unit::Forward inner, const torch::nn::Module& module, const Carry& input, RandomState random,
            std::shared_ptr<const Operations> kept)
      : torch::autograd::Node(torch::autograd::collect_next_edges(input)),
        inner_(std::move(inner)),
        module_(module),
        random_(std::move(random)),
        kept_(std::move(kept)) {
    for (const at::Tensor& tensor : input) input_.emplace_back(tensor, /*is_output=*/false);
  }

  std::string name() const override { return "ReigenRecompute"; }

  Carry first_forward(const Carry& input) {
    at::NoGradGuard no_grad;
    const KeptOutputs::Scope scope(kept_, KeptOutputs::Scope::Mode::kKeep);
    return inner_(input);
  }

  void watch(const Carry& output) { kept_.watch(output); }
  // `tensor` is an output that the unit did not compute but only returned. Somebody else needs its values.
  void returned(const at::Tensor& tensor) { returned_.push_back(tensor.storage()); }
  bool keeps(const at::Tensor& tensor) const override {
    return kept_.hold(tensor) || (tensor.has_storage() && shares_memory(tensor, returned_));
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    REIGEN_CHECK(!released_, "[activation_checkpoint] a second backward through a graph that is gone\n  fix: {}",
                 "backward(..., retain_graph = true) keeps it");
    REIGEN_CHECK(torch::autograd::Engine::get_default_engine().is_checkpoint_valid(),
                 "[activation_checkpoint] what is computed again adds gradients to all weights\n  got: {}\n  fix: {}",
                 "torch::autograd::grad(), or a backward() of chosen inputs",
                 "backward(), or a model without activation checkpointing");
    Carry input;
    for (const auto& saved : input_) {
      at::Tensor tensor = saved.unpack();
      if (tensor.defined()) tensor = tensor.detach().requires_grad_(tensor.requires_grad());
      input.push_back(tensor);
    }
    Carry output;
    {
      const SecondForward as_before(module_, random_, autocast_, part_.lock());
      at::AutoGradMode with_grad(true);
      const KeptOutputs::Scope scope(kept_, KeptOutputs::Scope::Mode::kTake);
      output = inner_(input);
    }
    torch::autograd::variable_list roots;
    torch::autograd::variable_list arriving;
    REIGEN_CHECK(output.size() == gradients.size(),
                 "[activation_checkpoint] the second forward gave {} tensors, the first {}\n  fix: a forward that "
                 "computes the same each time",
                 output.size(), gradients.size());
    for (std::size_t i = 0; i < output.size(); ++i) {
      if (!gradients[i].defined() || !output[i].requires_grad()) continue;
      REIGEN_CHECK(output[i].sizes() == gradients[i].sizes(),
                   "[activation_checkpoint] tensor {} of the second forward has another shape than that of the first\n"
                   "  fix: a forward that computes the same each time",
                   i);
      roots.push_back(output[i]);
      arriving.push_back(gradients[i]);
    }
    if (!roots.empty()) tensor::inner_backward([&] { torch::autograd::backward(roots, arriving); });
    torch::autograd::variable_list result;
    for (const at::Tensor& tensor : input) result.push_back(tensor.defined() ? tensor.grad() : at::Tensor());
    return result;
  }

  void release_variables() override {
    for (auto& saved : input_) saved.reset_data();
    kept_.drop();
    returned_.clear();
    released_ = true;
  }

 private:
  Unit::Forward inner_;
  const torch::nn::Module& module_;  // the function `inner_` keeps the module alive
  std::vector<torch::autograd::SavedVariable> input_;
  const RandomState random_;
  const AutocastState autocast_;
  const std::weak_ptr<const SequencePart> part_ = sequence_part();
  KeptOutputs kept_;
  std::vector<c10::Storage> returned_;
  bool released_ = false;
};

std::vector<c10::Storage> storages_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Storage> result;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.has_storage()) result.push_back(tensor.storage());
  }
  return result;
}

bool wants_gradient(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); });
}

Carry run(const torch::nn::Module& module, const std::shared_ptr<const Operations>& kept, const Carry& input,
          const Unit::Forward& inner) {
  if (!at::GradMode::is_enabled()) return inner(input);
  // RandomState saves the generators of the devices of these tensors. The parameters are among them, because the unit
  // draws random numbers on their device, and its input may come from another device.
  std::vector<at::Tensor> tensors = module.parameters();
  tensors.insert(tensors.end(), input.begin(), input.end());
  if (!wants_gradient(tensors)) return inner(input);
  const auto node = std::make_shared<Recompute>(inner, module, input, RandomState(tensors), kept);
  Carry output = node->first_forward(input);
  std::vector<at::Tensor> older = module.buffers();
  older.insert(older.end(), tensors.begin(), tensors.end());
  const std::vector<c10::Storage> memory = storages_of(older);
  for (const at::Tensor& tensor : output) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    // The first forward runs without autograd, so a tensor that requires a gradient is older.
    if (tensor.requires_grad() || shares_memory(tensor, memory)) node->returned(tensor);
  }
  {
    at::NoGradGuard no_grad;
    // An output may be a tensor that the unit did not compute but only returned, for example its input. Such a tensor
    // has an autograd history already, so it is detached before set_history().
    for (at::Tensor& tensor : output) {
      if (tensor.defined() && (tensor.is_view() || tensor.requires_grad())) tensor = tensor.detach();
      for (const at::Tensor& given : input) {
        if (tensor.defined() && tensor.is_same(given)) tensor = tensor.detach();
      }
    }
  }
  for (at::Tensor& tensor : output) {
    if (tensor.defined() && torch::autograd::isDifferentiableType(tensor.scalar_type())) {
      torch::autograd::set_history(tensor, node);
    } else {
      node->add_input_metadata(torch::autograd::Node::undefined_input{});
    }
  }
  node->watch(output);
  return output;
}

}  // namespace

ActivationCheckpoint::ActivationCheckpoint(std::vector<Unit> units, const ActivationCheckpointOptions& options) {
  REIGEN_CHECK(options.every >= 1, "[activation_checkpoint] every is out of range\n  got: {}   expected: at least 1",
               options.every);
  const auto every = static_cast<std::size_t>(options.every);
  for (const Unit& unit : units) {
    REIGEN_CHECK(!unit.has(Layer::kRecompute), "[activation_checkpoint] unit {} is checkpointed already", unit.name());
  }
  const auto kept = find_operations(options.keep);
  for (std::size_t i = every - 1; i < units.size(); i += every) {
    units[i].attach(Layer::kRecompute,
                    [module = &units[i].module(), kept](const Carry& input, const Unit::Forward& inner) {
                      return run(*module, kept, input, inner);
                    });
    units_.push_back(units[i]);
  }
}

ActivationCheckpoint::~ActivationCheckpoint() {
  for (const Unit& unit : units_) unit.detach(Layer::kRecompute);
}

std::vector<std::string> products() {
  return {"aten::mm",
          "aten::addmm",
          "aten::bmm",
          "aten::baddbmm",
          "aten::convolution",
          "aten::_scaled_dot_product_flash_attention_for_cpu",
          "aten::_scaled_dot_product_fused_attention_overrideable"};
}

ActivationCheckpoint activation_checkpoint(const std::vector<Unit>& units, const ActivationCheckpointOptions& options) {
  return ActivationCheckpoint(units, options);
}

}  // namespace reigen::nn
