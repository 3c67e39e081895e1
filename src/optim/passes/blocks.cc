#include "optim/passes/blocks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "base/check.h"
#include "tensor/flat/gradient_rows.h"
#include "tensor/flat/gradient_share.h"

namespace reigen::optim {

using tensor::kBlockElements;

kernels::Layout layout_of(const std::string& who, const ParameterRange& range) {
  switch (range.values().scalar_type()) {
    case at::kDouble: return kernels::Layout::kFloat64;
    case at::kFloat: return kernels::Layout::kFloat32;
    case at::kBFloat16: return kernels::Layout::kBfloat16;
    case at::kHalf: return kernels::Layout::kFloat16;
    default: break;
  }
  throw InvalidArgument(Report{.what = fmt::format("[{}] cannot work on parameters of this type", who),
                               .got = fmt::format("{}, from {} on", c10::toString(range.values().scalar_type()),
                                                  range.size() > 0 ? range.segments().front().name : "none"),
                               .expected = "fp32, fp64, bf16 or fp16",
                               .fix = "convert the model before it is wrapped"});
}

namespace {

[[noreturn]] void refuse_unaveraged(const std::string& name) {
  throw InvalidArgument(Report{
      .what = fmt::format("[optim] the gradient of {} was not averaged, and no rank has all of the weights", name),
      .got = "a gradient of a backward under no_sync(), or one that was assigned",
      .expected = "a synchronised backward in front of the norm or the step",
      .fix = "end accumulation with a backward outside of no_sync()"});
}

}  // namespace

void check_shared_alike(const std::string& who, const std::vector<ParameterRange>& ranges) {
  const auto same = [](const ParameterRange& a, const ParameterRange& b) {
    if (a.values().device() != b.values().device()) return false;
    if (!a.is_divided() || !b.is_divided()) return a.is_divided() == b.is_divided();
    const Communicator& one = a.sharing().shares()->ranks;
    const Communicator& other = b.sharing().shares()->ranks;
    const bool same_ranks = one.name() == other.name() && one.size() == other.size() && one.rank() == other.rank();
    return same_ranks && a.is_common() == b.is_common() &&
           (a.sharing().whole() == nullptr) == (b.sharing().whole() == nullptr) &&
           a.divides_averages() == b.divides_averages();
  };
  for (const ParameterRange& range : ranges) {
    if (same(range, ranges.front())) continue;
    throw InvalidArgument(Report{.what = fmt::format("[{}] ranges that ranks share and ranges that they do not", who),
                                 .got = "parameters() of several wrappers, with several shards, groups or devices",
                                 .expected = "the same shard, group and device for all",
                                 .fix = "make one optimizer for each wrapper"});
  }
}

bool awaits_average(const ParameterRange& range) { return range.rows() && range.rows()->awaits_average(); }

void* gradient_data(const ParameterRange& range, std::size_t segment) {
  const tensor::Segment& place = range.segments()[segment];
  const at::Tensor& gradient = place.parameter.grad();
  if (!gradient.defined()) return nullptr;
  if (range.share()) {
    if (!range.share()->is_marked(segment, gradient)) refuse_unaveraged(place.name);
    if (range.share()->was_zeroed(segment)) {
      const at::NoGradGuard no_grad;
      const layout::Part own = range.part_of(place);
      range.gradients().narrow(0, place.offset + own.first, own.count).zero_();
      range.share()->mark(segment, place.parameter);
    }
    return static_cast<std::byte*>(range.gradients().data_ptr()) +
           place.offset * static_cast<std::int64_t>(range.gradients().dtype().itemsize());
  }
  const bool others_read_it = range.rows() && !range.is_in_place(segment);
  if (others_read_it || gradient.layout() != at::kStrided || !gradient.is_contiguous() ||
      gradient.scalar_type() != range.values().scalar_type() || gradient.sizes() != place.parameter.sizes()) {
    range.gather_gradient(segment);
  }
  return place.parameter.grad().data_ptr();
}

std::vector<Piece> cut(const std::vector<std::int64_t>& sizes) {
  std::vector<Piece> pieces;
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    for (std::int64_t first = 0; first < sizes[part]; first += kBlockElements) {
      pieces.push_back({.part = part, .first = first, .count = std::min(kBlockElements, sizes[part] - first)});
    }
  }
  return pieces;
}

void for_each_piece(const std::vector<Piece>& pieces, const std::function<void(std::size_t)>& work) {
  std::int64_t elements = 0;
  for (const Piece& piece : pieces) elements += piece.count;
  if (elements == 0) return;
  // Each thread gets about two blocks of elements or more. For fewer elements, for example two biases, waking a thread
  // would take longer than the work.
  const auto count = static_cast<std::int64_t>(pieces.size());
  const std::int64_t grain = std::max<std::int64_t>(1, count * 2 * kBlockElements / elements);
  at::parallel_for(0, count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) work(static_cast<std::size_t>(i));
  });
}

}  // namespace reigen::optim
