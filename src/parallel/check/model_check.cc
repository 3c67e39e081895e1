#include "parallel/check/model_check.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <sstream>

#include "comm/agree.h"
#include "reigen/base/error.h"

namespace reigen::parallel {
namespace {

std::string describe(const char* kind, const std::string& name, const at::Tensor& tensor, bool frozen) {
  std::ostringstream text;
  text << kind << ' ' << name << ": " << c10::toString(tensor.scalar_type()) << ' ' << tensor.sizes();
  if (frozen) text << " frozen";
  return text.str();
}

}  // namespace

std::vector<std::string> describe_model(const torch::nn::Module& module) {
  std::vector<std::string> lines;
  const auto parameters = module.named_parameters();
  for (const auto& entry : parameters) {
    lines.push_back(describe("parameter", entry.key(), entry.value(), !entry.value().requires_grad()));
  }
  const auto buffers = module.named_buffers();
  for (const auto& entry : buffers) lines.push_back(describe("buffer", entry.key(), entry.value(), false));
  return lines;
}

void check_equal_on_all_ranks(const std::vector<std::string>& lines, const Communicator& world, const char* who,
                              const char* what) {
  const auto difference = comm::find_difference(lines, world, "compare models");
  if (!difference) return;
  const auto said = [](const std::string& line) { return line.empty() ? "nothing, it has fewer" : line; };
  throw InvalidArgument(
      Report{.what = fmt::format("[{}] {} between rank 0 and rank {} of {}", who, what, difference->rank, world.size()),
             .got = fmt::format("rank {}: {}", difference->rank, said(difference->other)),
             .expected = fmt::format("rank 0: {}", said(difference->first)),
             .fix = "build the same, in the same order and with the same options, on every rank"});
}

}  // namespace reigen::parallel
