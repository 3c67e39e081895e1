#include "reigen/parallel/broadcast_state.h"

#include <c10/util/Type.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize.h>

#include <sstream>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "parallel/buffer_sync.h"
#include "parallel/check/model_check.h"
#include "reigen/base/error.h"
#include "reigen/comm/byte_strings.h"

namespace reigen::parallel {
namespace {

void check_root(const char* who, int root, const Communicator& world) {
  if (root >= 0 && root < world.size()) return;
  throw InvalidArgument(Report{.what = fmt::format("[{}] root out of range", who),
                               .got = fmt::format("{}", root),
                               .expected = fmt::format("0 to {}", world.size() - 1)});
}

std::vector<std::string> describe_optimizer(const torch::optim::Optimizer& optimizer) {
  std::vector<std::string> lines{fmt::format("optimizer {}", c10::demangle(typeid(optimizer).name()))};
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const auto& parameters = optimizer.param_groups()[group].params();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      std::ostringstream text;
      text << "group " << group << " parameter " << i << ": " << parameters[i].scalar_type() << ' '
           << parameters[i].sizes();
      lines.push_back(text.str());
    }
  }
  return lines;
}

// Drops the list `al` of LBFGS, whose values each step computes anew. It may contain undefined tensors, which
// torch::save refuses.
void drop_scratch(torch::optim::Optimizer& optimizer) {
  for (const auto& entry : optimizer.state()) {
    if (auto* state = dynamic_cast<torch::optim::LBFGSParamState*>(entry.second.get())) state->al(std::nullopt);
  }
}

}  // namespace

void broadcast_parameters(torch::nn::Module& module, int root, Communicator world) {
  check_root("broadcast_parameters", root, world);
  if (world.size() == 1) return;
  check_equal_on_all_ranks(describe_model(module), world, "broadcast_parameters", "the models differ");
  std::vector<at::Tensor> values = module.parameters();
  for (const at::Tensor& buffer : module.buffers()) values.push_back(buffer);
  BufferSync(values, world).broadcast("parameters and buffers", root);
}

void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root, Communicator world) {
  check_root("broadcast_optimizer_state", root, world);
  if (world.size() == 1) return;
  check_equal_on_all_ranks(describe_optimizer(optimizer), world, "broadcast_optimizer_state", "the optimizers differ");
  std::string bytes;
  if (world.rank() == root) {
    drop_scratch(optimizer);
    std::ostringstream stream;
    torch::save(optimizer, stream);
    bytes = stream.str();
  }
  bytes = broadcast_bytes(std::move(bytes), root, world);
  if (world.rank() == root) return;
  optimizer.state().clear();
  std::istringstream stream(bytes);
  torch::load(optimizer, stream);
}

}  // namespace reigen::parallel
