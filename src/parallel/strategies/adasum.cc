#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "parallel/strategies/average.h"
#include "parallel/strategies/error_memory.h"
#include "parallel/strategies/ordered_sum.h"
#include "parallel/strategies/weights.h"
#include "reigen/comm/call_list.h"
#include "reigen/parallel/strategies.h"
#include "reigen/tensor/data_type.h"
#include "tensor/calls.h"

namespace reigen::parallel {

namespace {

// Products are added in rows of this size, and then the sums of the rows, each time by fold().
constexpr std::int64_t kRow = 256;

std::int64_t rows_of(std::int64_t count) { return (count + kRow - 1) / kRow; }

// a·b, a² and b².
struct Products {
  double ab = 0;
  double aa = 0;
  double bb = 0;
};

template <class Number>
Products products_of(const Number* a, const Number* b, std::int64_t count) {
  std::vector<double> ab;
  std::vector<double> aa;
  std::vector<double> bb;
  std::array<double, kRow> values;
  for (std::int64_t begin = 0; begin < count; begin += kRow) {
    const std::int64_t size = std::min(kRow, count - begin);
    const auto add = [&](std::vector<double>& sums, const Number* x, const Number* y) {
      for (std::int64_t i = 0; i < size; ++i)
        values[static_cast<std::size_t>(i)] = static_cast<double>(x[begin + i]) * static_cast<double>(y[begin + i]);
      sums.push_back(fold(values.data(), size));
    };
    add(ab, a, b);
    add(aa, a, a);
    add(bb, b, b);
  }
  const std::int64_t rows = rows_of(count);
  return {fold(ab.data(), rows), fold(aa.data(), rows), fold(bb.data(), rows)};
}

// out = (1 - a·b / 2a²)·a + (1 - a·b / 2b²)·b. a and b are the values of the two ranks of a pair, and a·b is their
// scalar product. The order of additions is fixed, so both ranks get the same bits.
template <class Number>
void combine(const Number* a, const Number* b, Number* out, std::int64_t count) {
  const auto [ab, aa, bb] = products_of(a, b, count);
  const auto of_a = static_cast<Number>(aa == 0 ? 1 : 1 - ab / (2 * aa));
  const auto of_b = static_cast<Number>(bb == 0 ? 1 : 1 - ab / (2 * bb));
  for (std::int64_t i = 0; i < count; ++i) out[i] = of_a * a[i] + of_b * b[i];
}

// The sums of the rows of x·y, as products_of() adds them. Products are made for a slice of the rows at a time, because
// they take more memory than x and y.
at::Tensor sums_of_rows(const at::Tensor& x, const at::Tensor& y) {
  constexpr std::int64_t kSlice = 4096 * kRow;
  const std::int64_t count = x.numel();
  at::Tensor sums = at::empty({rows_of(count)}, x.options().dtype(at::kDouble));
  const auto product = [&](std::int64_t begin, std::int64_t size) {
    return x.narrow(0, begin, size).to(at::kDouble).mul(y.narrow(0, begin, size));
  };
  const std::int64_t whole = count / kRow * kRow;
  for (std::int64_t begin = 0; begin < whole; begin += kSlice) {
    const std::int64_t size = std::min(kSlice, whole - begin);
    sums.narrow(0, begin / kRow, size / kRow).copy_(fold(product(begin, size).view({-1, kRow})));
  }
  if (whole < count) sums.select(0, whole / kRow).copy_(fold(product(whole, count - whole)));
  return sums;
}

// The same for tensors on a GPU, with the same bits.
void combine_on_gpu(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  if (a.numel() == 0) return;
  const at::Tensor sums = fold(at::stack({sums_of_rows(a, b), sums_of_rows(a, a), sums_of_rows(b, b)}));
  const auto factor = [&](const at::Tensor& square) {
    return at::where(square.eq(0), at::ones_like(square), 1 - sums[0] / (2 * square)).to(out.scalar_type());
  };
  at::Tensor(out).copy_(a.mul(factor(sums[1])).add_(b.mul(factor(sums[2]))));
}

// The place of a parameter in a flat tensor.
struct Piece {
  std::int64_t offset = 0;
  std::int64_t numel = 0;
};

// Let 2^k be the largest power of two that is not above the number of ranks. In round i, each rank r of the first 2^k
// ranks exchanges its current sum with rank r xor 2^i. After k rounds all of these ranks have the same sum. Each
// further rank sends its values to one of the 2^k ranks before the rounds, and receives the result after them.
class SumInPairs {
 public:
  struct Part {
    at::Tensor mine = {};
    at::Tensor theirs = {};
    Work work = {};
  };

  explicit SumInPairs(Communicator world) : world_(std::move(world)) {
    const int rank = world_.rank();
    const int inner = static_cast<int>(std::bit_floor(static_cast<unsigned>(world_.size())));
    if (rank >= inner) {
      rounds_ = {{Kind::kGive, rank - inner}, {Kind::kBeTold, rank - inner}};
      return;
    }
    const bool has_further = rank + inner < world_.size();
    if (has_further) rounds_.push_back({Kind::kTake, rank + inner});
    for (int distance = 1; distance < inner; distance *= 2) rounds_.push_back({Kind::kExchange, rank ^ distance});
    if (has_further) rounds_.push_back({Kind::kGive, rank + inner});
  }

  std::uint64_t bytes_given() const { return bytes_; }

  void make_room(Part& part, std::int64_t count, at::ScalarType type, const at::Device& device) {
    ensure_room(part.mine, world_, count, type, device);
    ensure_room(part.theirs, world_, count, type, device);
  }

  void begin(Part& part, const std::string& tag) { part.work = meet(part, rounds_.front(), tag); }

  // Sets part.mine to the Adasum of all ranks' part.mine, which is computed for each piece (the values of a parameter)
  // alone.
  void end(Part& part, const std::vector<Piece>& pieces, const std::string& tag) {
    for (std::size_t i = 0; i < rounds_.size(); ++i) {
      const Round& round = rounds_[i];
      tensor::wait_for(i == 0 ? std::exchange(part.work, Work()) : meet(part, round, tag), part.mine);
      if (round.kind == Kind::kExchange || round.kind == Kind::kTake) combine_pieces(part, pieces, round.peer);
    }
  }

 private:
  enum class Kind { kExchange, kTake, kGive, kBeTold };
  struct Round {
    Kind kind;
    int peer;
  };

  Work meet(Part& part, const Round& round, const std::string& tag) {
    const auto count = static_cast<std::size_t>(part.mine.numel());
    const DataType type = tensor::to_data_type(part.mine.scalar_type());
    const Stream after = tensor::stream_of(part.mine);
    CallList calls;
    if (round.kind == Kind::kExchange || round.kind == Kind::kGive) {
      calls.send(part.mine.const_data_ptr(), count, type, round.peer, {.tag = tag, .after = after});
      bytes_ += part.mine.nbytes();
    }
    if (round.kind != Kind::kGive) {
      at::Tensor& place = round.kind == Kind::kBeTold ? part.mine : part.theirs;
      calls.recv(place.mutable_data_ptr(), count, type, round.peer, {.tag = tag, .after = after});
    }
    return world_.start(calls);
  }

  void combine_pieces(Part& part, const std::vector<Piece>& pieces, int peer) const {
    const bool first = world_.rank() < peer;
    if (!part.mine.is_cpu()) {
      for (const Piece& piece : pieces) {
        const at::Tensor mine = part.mine.narrow(0, piece.offset, piece.numel);
        const at::Tensor theirs = part.theirs.narrow(0, piece.offset, piece.numel);
        combine_on_gpu(first ? mine : theirs, first ? theirs : mine, mine);
      }
      return;
    }
    AT_DISPATCH_FLOATING_TYPES(part.mine.scalar_type(), "adasum", [&] {
      for (const Piece& piece : pieces) {
        auto* mine = part.mine.mutable_data_ptr<scalar_t>() + piece.offset;
        const auto* theirs = part.theirs.const_data_ptr<scalar_t>() + piece.offset;
        combine(first ? mine : theirs, first ? theirs : mine, mine, piece.numel);
      }
    });
  }

  Communicator world_;
  std::vector<Round> rounds_;
  std::uint64_t bytes_ = 0;
};

// `before` are the weights before an optimizer step, and x are a rank's weights after it. So (before - x) is the change
// that a rank's optimizer made. On every rank the new x is `before` minus the Adasum of all ranks' changes.
class AdasumOfSteps : public WeightStrategy {
 public:
  explicit AdasumOfSteps(const Communicator& world) : sum_(world) {}

  std::string description() const override { return "adasum of steps"; }
  bool works_on_gpu() const override { return true; }
  std::uint64_t bytes_given() const override { return sum_.bytes_given(); }
  void attach(const std::vector<ParameterRange>& parameters) override {
    require_wide("adasum", parameters);
    parameters_ = parameters;
    for (const ParameterRange& range : parameters) {
      before_.push_back(range.values().clone());
      sum_.make_room(parts_.emplace_back(), range.values().numel(), range.values().scalar_type(),
                     range.values().device());
      std::vector<Piece>& pieces = pieces_.emplace_back();
      for (const tensor::Segment& segment : range.segments()) pieces.push_back({segment.offset, segment.numel});
    }
  }

  // Afterwards the weights are equal on all ranks, so settle() has nothing to do.
  void after_step() override {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      at::sub_out(parts_[i].mine, before_[i], parameters_[i].values());
      sum_.begin(parts_[i], kTag);
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      sum_.end(parts_[i], pieces_[i], kTag);
      before_[i].sub_(parts_[i].mine);
      at::Tensor(parameters_[i].values()).copy_(before_[i]);
    }
    note_change(parameters_);
  }

 private:
  static constexpr const char* kTag = "adasum of steps";

  SumInPairs sum_;
  std::vector<ParameterRange> parameters_;
  // before_, parts_ and pieces_ have one entry for each range.
  std::vector<at::Tensor> before_;  // weights before the step
  std::vector<SumInPairs::Part> parts_;
  std::vector<std::vector<Piece>> pieces_;
};

class AdasumOfGradients : public GradientStrategy {
 public:
  explicit AdasumOfGradients(const Communicator& world) : sum_(world) {}

  std::string description() const override { return "adasum of gradients"; }
  bool works_on_gpu() const override { return true; }
  std::uint64_t bytes_given() const override { return sum_.bytes_given(); }
  bool averages() const override { return false; }

  void begin(const GradientBucket& bucket) override {
    const at::NoGradGuard no_grad;
    parts_.resize(std::max(parts_.size(), bucket.index + 1));
    SumInPairs::Part& part = parts_[bucket.index];
    const std::vector<Piece> pieces = pieces_of(bucket);
    sum_.make_room(part, pieces.back().offset + pieces.back().numel, wide_type(bucket.gradients.front().scalar_type()),
                   bucket.gradients.front().device());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      part.mine.narrow(0, pieces[i].offset, pieces[i].numel).copy_(bucket.gradients[i].view({-1}));
    }
    sum_.begin(part, bucket.tag);
  }

  void end(const GradientBucket& bucket) override {
    const at::NoGradGuard no_grad;
    SumInPairs::Part& part = parts_[bucket.index];
    const std::vector<Piece> pieces = pieces_of(bucket);
    sum_.end(part, pieces, bucket.tag);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const at::Tensor place = bucket.gradients[i].view({-1});
      place.copy_(part.mine.narrow(0, pieces[i].offset, pieces[i].numel));
    }
  }

 private:
  static std::vector<Piece> pieces_of(const GradientBucket& bucket) {
    std::vector<Piece> pieces;
    std::int64_t offset = 0;
    for (const at::Tensor& gradient : bucket.gradients) {
      pieces.push_back({offset, gradient.numel()});
      offset += gradient.numel();
    }
    return pieces;
  }

  SumInPairs sum_;
  std::vector<SumInPairs::Part> parts_;  // indexed by bucket
};

}  // namespace

StrategyFactory adasum(const AdasumOptions& options) {
  if (options.of == AdasumOf::kGradients) {
    return [](const Communicator& world) { return std::make_unique<AdasumOfGradients>(world); };
  }
  return [](const Communicator& world) { return std::make_unique<AdasumOfSteps>(world); };
}

}  // namespace reigen::parallel
