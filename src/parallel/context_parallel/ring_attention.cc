#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "reigen/parallel/context_parallel.h"
#include "reigen/tensor/data_type.h"
#include "tensor/calls.h"
#include "tensor/differentiable.h"
#include "tensor/hooks/intercept.h"

namespace reigen::parallel {
namespace {

using Tensors = std::vector<at::Tensor>;

// The two chunks of a rank, by their numbers in the whole sequence.
struct Chunks {
  int first = 0;
  int second = 0;
};
Chunks chunks_of(int rank, int ranks) { return {rank, 2 * ranks - 1 - rank}; }

at::Tensor half(const at::Tensor& all, int which) {
  const std::int64_t rows = all.size(2) / 2;
  return all.narrow(2, which * rows, rows);
}

// Result and logarithms of the sums of exponentials, for one block of keys.
struct Block {
  at::Tensor result;
  at::Tensor sums;  // [B, heads, rows]
};

// LibTorch's operation for the CPU, which gives the sums too. Elsewhere matrix products do.
Block attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool is_causal, double scale) {
  if (q.is_cpu()) {
    auto [result, sums] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal, {}, scale);
    return {result, sums};
  }
  at::Tensor scores = at::matmul(q, k.transpose(2, 3)).to(at::promote_types(q.scalar_type(), at::kFloat)) * scale;
  if (is_causal) scores = scores.masked_fill(at::ones_like(scores, at::kBool).triu(1), -INFINITY);
  const at::Tensor sums = at::logsumexp(scores, 3);
  return {at::matmul((scores - sums.unsqueeze(3)).exp().to(v.scalar_type()), v), sums};
}

// The gradients of q, k and v by one block of keys, from the result and the sums over all keys.
Tensors attend_backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const Block& all, bool is_causal, double scale) {
  if (q.is_cpu()) {
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(gradient, q, k, v, all.result,
                                                                                 all.sums, 0.0, is_causal, {}, scale);
    return {dq, dk, dv};
  }
  const at::ScalarType wide = at::promote_types(q.scalar_type(), at::kFloat);
  at::Tensor scores = at::matmul(q, k.transpose(2, 3)).to(wide) * scale;
  if (is_causal) scores = scores.masked_fill(at::ones_like(scores, at::kBool).triu(1), -INFINITY);
  const at::Tensor p = (scores - all.sums.unsqueeze(3)).exp();
  const at::Tensor along = (gradient.to(wide) * all.result.to(wide)).sum(3, /*keepdim=*/true);
  const at::Tensor dp = at::matmul(gradient, v.transpose(2, 3)).to(wide);
  const at::Tensor ds = (p * (dp - along) * scale).to(q.scalar_type());
  return {at::matmul(ds, k), at::matmul(ds.transpose(2, 3), q),
          at::matmul(p.to(v.scalar_type()).transpose(2, 3), gradient)};
}

// Calls visit(half of the queries, half of the keys, is_diagonal) for the pairs of chunks of which queries see keys.
template <class Visit>
void for_visible(int own, int other, int ranks, bool is_causal, const Visit& visit) {
  const Chunks of_queries = chunks_of(own, ranks), of_keys = chunks_of(other, ranks);
  for (int a = 0; a < 2; ++a) {
    for (int b = 0; b < 2; ++b) {
      const int query = a == 0 ? of_queries.first : of_queries.second;
      const int key = b == 0 ? of_keys.first : of_keys.second;
      if (!is_causal || key <= query) visit(a, b, is_causal && key == query);
    }
  }
}

// A tensor that goes one rank further around the ring, and the one that comes from the rank before.
class Hop {
 public:
  Hop(at::Tensor given, const Communicator& group, const char* tag)
      : given_(std::move(given)), came_(at::empty_like(given_)) {
    const int next = (group.rank() + 1) % group.size();
    const int before = (group.rank() + group.size() - 1) % group.size();
    const Stream after = tensor::stream_of(given_);
    sent_ = group.start_send(given_.const_data_ptr(), given_.nbytes(), DataType::kUint8, next,
                             {.tag = tag, .after = after});
    received_ = group.start_recv(came_.mutable_data_ptr(), came_.nbytes(), DataType::kUint8, before,
                                 {.tag = tag, .after = after});
  }
  // The memory must not be freed while a call uses it, also if another call throws.
  ~Hop() {
    for (const Work* work : {&sent_, &received_}) {
      try {
        if (!is_done_) work->wait();
      } catch (const std::exception&) {  // the group's next call throws the error too
      }
    }
  }
  Hop(const Hop&) = delete;  // calls use its memory
  Hop& operator=(const Hop&) = delete;

  at::Tensor wait() {
    tensor::wait_for(received_, came_);
    tensor::wait_for(sent_, given_);
    is_done_ = true;
    return came_;
  }

 private:
  at::Tensor given_;
  at::Tensor came_;
  Work sent_;
  Work received_;
  bool is_done_ = false;
};

struct Ring {
  Communicator group;
  bool is_causal = false;
  double scale = 1;

  int own() const { return group.rank(); }
  int ranks() const { return group.size(); }
  // The rank whose keys are here in step s.
  int holder(int step) const { return (own() + ranks() - step) % ranks(); }

  Block forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    const at::ScalarType wide = at::promote_types(q.scalar_type(), at::kFloat);
    Block halves[2];  // the results so far, in fp32 or fp64
    at::Tensor both = at::stack({k, v}).contiguous();
    for (int step = 0; step < ranks(); ++step) {
      std::optional<Hop> hop;
      if (step + 1 < ranks()) hop.emplace(both, group, "ring attention: keys");
      for_visible(own(), holder(step), ranks(), is_causal, [&](int a, int b, bool is_diagonal) {
        const Block one = attend(half(q, a), half(both[0], b), half(both[1], b), is_diagonal, scale);
        Block& sum = halves[a];
        const at::Tensor result = one.result.to(wide), sums = one.sums.to(wide);
        if (!sum.result.defined()) {
          sum = {result, sums};
          return;
        }
        const at::Tensor all = at::logaddexp(sum.sums, sums);
        sum.result = sum.result * (sum.sums - all).exp().unsqueeze(3) + result * (sums - all).exp().unsqueeze(3);
        sum.sums = all;
      });
      if (hop) both = hop->wait();
    }
    return {at::cat({halves[0].result, halves[1].result}, 2).to(q.scalar_type()),
            at::cat({halves[0].sums, halves[1].sums}, 2)};
  }

  // The gradients of the keys and values here travel with them, one step later. After a whole round they are back.
  Tensors backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const Block& all) const {
    const at::ScalarType wide = at::promote_types(q.scalar_type(), at::kFloat);
    at::Tensor dq = at::zeros(q.sizes(), q.options().dtype(wide));
    at::Tensor both = at::stack({k, v}).contiguous();
    std::optional<Hop> gradients;
    for (int step = 0; step < ranks(); ++step) {
      std::optional<Hop> keys;
      if (step + 1 < ranks()) keys.emplace(both, group, "ring attention: keys");
      at::Tensor own_part = at::zeros(both.sizes(), both.options().dtype(wide));
      for_visible(own(), holder(step), ranks(), is_causal, [&](int a, int b, bool is_diagonal) {
        const Block result{half(all.result, a).contiguous(), half(all.sums, a).contiguous()};
        const Tensors parts = attend_backward(half(gradient, a), half(q, a), half(both[0], b), half(both[1], b), result,
                                              is_diagonal, scale);
        half(dq, a).add_(parts[0]);
        half(own_part[0], b).add_(parts[1]);
        half(own_part[1], b).add_(parts[2]);
      });
      if (gradients) own_part.add_(gradients->wait());
      gradients.emplace(own_part, group, "ring attention: gradients");
      if (keys) both = keys->wait();
    }
    const at::Tensor back = gradients->wait();
    return {dq.to(q.scalar_type()), back[0].to(k.scalar_type()), back[1].to(v.scalar_type())};
  }
};

}  // namespace

at::Tensor ring_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const Communicator& group, bool is_causal, double scale) {
  REIGEN_CHECK(query.dim() == 4 && key.dim() == 4 && query.size(2) % 2 == 0 && key.sizes() == value.sizes() &&
                   key.size(2) == query.size(2) && key.size(1) == query.size(1) && key.size(3) == query.size(3),
               "[ring_attention] the shapes do not fit\n  got: query [{}], key [{}], value [{}]   expected: the same "
               "[batch, heads, tokens, width] of all three, with an even number of tokens",
               fmt::join(query.sizes(), ", "), fmt::join(key.sizes(), ", "), fmt::join(value.sizes(), ", "));
  const Ring ring{.group = group, .is_causal = is_causal, .scale = scale};
  // Forward gives its sums to backward through this object.
  const auto kept = std::make_shared<Block>();
  const auto forward = [ring, kept](const Tensors& given) -> Tensors {
    const tensor::Uncaught inner{tensor::Where::kUse};
    Block all = ring.forward(given[0].contiguous(), given[1], given[2]);
    *kept = {all.result.detach(), all.sums};  // not the result itself, which will hold this function by its graph
    return {all.result};
  };
  const auto backward = [ring, kept](const Tensors& gradients, const Tensors& given) -> Tensors {
    REIGEN_CHECK(!at::GradMode::is_enabled(), "[ring_attention] no second derivatives\n  fix: no create_graph");
    REIGEN_CHECK(
        kept->result._version() == 0,
        "[ring_attention] the result was changed in place, and backward needs it\n  fix: an operation that makes "
        "a new tensor");
    const tensor::Uncaught inner{tensor::Where::kUse};
    return ring.backward(gradients[0].contiguous(), given[0].contiguous(), given[1], given[2], *kept);
  };
  return tensor::apply_keeping_inputs({query, key, value}, forward, backward)[0];
}

}  // namespace reigen::parallel
