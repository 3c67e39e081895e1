#include "reigen/parallel/context_parallel.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "parallel/tensor_parallel/divided.h"
#include "reigen/base/error.h"
#include "reigen/nn/sequence_part.h"

namespace reigen::parallel {

struct ContextParallel::State : nn::SequencePart {
  State(mesh::Mesh its_mesh, std::string its_axis)
      : mesh(std::move(its_mesh)), axis(std::move(its_axis)), ranks(mesh.along(axis)) {}

  at::Tensor positions(std::int64_t count, const at::Device& device) const override {
    REIGEN_CHECK(
        count % 2 == 0,
        "[context_parallel] a rank has {} tokens of a sequence\n  expected: an even number\n  fix: give the model "
        "what ContextParallel::take() returns",
        count);
    const std::int64_t chunk = count / 2, rank = ranks.rank(), all = ranks.size();
    const auto options = at::TensorOptions().dtype(at::kLong).device(device);
    const auto from = [&](std::int64_t number) { return at::arange(number * chunk, (number + 1) * chunk, options); };
    return at::cat({from(rank), from(2 * all - 1 - rank)});
  }

  std::int64_t length(std::int64_t count) const override { return ranks.size() * count; }

  at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool is_causal,
                       double scale) const override {
    return ring_attention(query, key, value, ranks, is_causal, scale);
  }

  mesh::Mesh mesh;
  std::string axis;
  Communicator ranks;
};

ContextParallel::ContextParallel(const mesh::Mesh& mesh, const std::string& axis)
    : state_(std::make_shared<State>(mesh, axis)) {}

const mesh::Mesh& ContextParallel::mesh() const { return state_->mesh; }
const std::string& ContextParallel::axis() const { return state_->axis; }
const Communicator& ContextParallel::ranks() const { return state_->ranks; }

at::Tensor ContextParallel::take(const at::Tensor& whole, std::int64_t dimension) const {
  if (ranks().size() == 1) return whole;
  const std::int64_t length = whole.dim() > dimension ? whole.size(dimension) : 0, all = 2 * ranks().size();
  if (length == 0 || length % all != 0) {
    throw InvalidArgument(
        Report{.what = "[context_parallel] a sequence cannot be divided",
               .got = fmt::format("a tensor [{}], its dimension {}, {} ranks", fmt::join(whole.sizes(), ", "),
                                  dimension, ranks().size()),
               .expected = fmt::format("a multiple of {} tokens", all),
               .fix = length > all ? fmt::format("{} or {} tokens", length / all * all, (length / all + 1) * all)
                                   : fmt::format("{} tokens, or fewer ranks along {}", all, axis())});
  }
  const at::NoGradGuard no_grad;
  const std::int64_t chunk = length / all, rank = ranks().rank();
  return at::cat(
      {whole.narrow(dimension, rank * chunk, chunk), whole.narrow(dimension, (all - 1 - rank) * chunk, chunk)},
      dimension);
}

void ContextParallel::use_on_this_thread() const {
  const bool divides = state_ && ranks().size() > 1;
  nn::use_on_this_thread(divides ? state_ : nullptr);
  if (!divides) return;
  use_divided_weights_on_this_thread();  // attention is intercepted by the same function
}

void ContextParallel::stop_on_this_thread() { nn::use_on_this_thread(nullptr); }

}  // namespace reigen::parallel
