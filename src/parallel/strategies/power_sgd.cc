#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/philox.h"
#include "parallel/strategies/average.h"
#include "parallel/strategies/error_memory.h"
#include "reigen/parallel/strategies.h"
#include "tensor/calls.h"

namespace reigen::parallel {

namespace {

// Fills the tensor with uniform random numbers in [-1, 1), the same on every rank.
void fill_randomly(const at::Tensor& tensor, std::uint64_t seed, std::uint64_t which) {
  AT_DISPATCH_FLOATING_TYPES(tensor.scalar_type(), "power_sgd", [&] {
    auto* data = tensor.mutable_data_ptr<scalar_t>();
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      const auto word = base::philox(seed, static_cast<std::uint64_t>(i), which)[0];
      data[i] = static_cast<scalar_t>(static_cast<double>(word) / 2147483648.0 - 1);
    }
  });
}

// Removes from `column` its components along the columns before it, and returns the norm of the rest.
double project_out(const at::Tensor& matrix, std::int64_t column) {
  double norm = 0;
  AT_DISPATCH_FLOATING_TYPES(matrix.scalar_type(), "power_sgd", [&] {
    const std::int64_t rows = matrix.size(0);
    const std::int64_t columns = matrix.size(1);
    auto* data = matrix.mutable_data_ptr<scalar_t>();
    for (std::int64_t before = 0; before < column; ++before) {
      double dot = 0;
      for (std::int64_t i = 0; i < rows; ++i) {
        dot += static_cast<double>(data[i * columns + before]) * static_cast<double>(data[i * columns + column]);
      }
      for (std::int64_t i = 0; i < rows; ++i) {
        data[i * columns + column] -= static_cast<scalar_t>(dot) * data[i * columns + before];
      }
    }
    for (std::int64_t i = 0; i < rows; ++i) norm += std::pow(static_cast<double>(data[i * columns + column]), 2);
  });
  return std::sqrt(norm);
}

// Gram-Schmidt with a fixed order of additions, so that every rank gets the same bits. A column that is linearly
// dependent on the columns before it gets a random direction, because otherwise it would remain dependent for ever.
void orthonormalize(const at::Tensor& matrix, std::uint64_t seed, std::uint64_t which) {
  constexpr double kLost = 1e-6;  // below this share of the column's norm, the rest of the column is a rounding error
  for (std::int64_t column = 0; column < matrix.size(1); ++column) {
    at::Tensor own = matrix.select(1, column);
    const double before = own.norm().item<double>();
    double norm = project_out(matrix, column);
    if (std::isnan(before) || std::isinf(before)) continue;  // so each rank's gradient gets the NaN or infinity
    if (norm <= kLost * before) {
      at::Tensor fresh = at::empty({own.numel()}, own.options());
      fill_randomly(fresh, seed, which * 64 + static_cast<std::uint64_t>(column) + 1);
      own.copy_(fresh);
      project_out(matrix, column);
      norm = project_out(matrix, column);
    }
    own.div_(norm);
  }
}

class PowerSgd : public GradientStrategy {
 public:
  PowerSgd(Communicator world, const PowerSgdOptions& options)
      : world_(std::move(world)), options_(options), step_(at::zeros({1}, at::kLong)) {}

  std::string description() const override {
    return fmt::format("power_sgd rank {} start_step {} seed {}", options_.rank, options_.start_step, options_.seed);
  }
  bool works_on_gpu() const override { return true; }
  std::uint64_t bytes_given() const override { return bytes_; }

  void attach(const std::vector<ParameterRange>& parameters) override {
    errors_.attach(parameters);
    std::uint64_t which = 0;
    for (const ParameterRange& range : parameters) {
      for (const tensor::Segment& segment : range.segments()) {
        ++which;
        if (segment.shape.size() < 2 || segment.numel == 0) continue;
        const std::int64_t rows = segment.shape[0];
        const std::int64_t columns = segment.numel / rows;
        const std::int64_t rank = std::min({options_.rank, rows, columns});
        if ((rows + columns) * rank >= segment.numel) continue;
        Matrix matrix{.rows = rows, .columns = columns, .rank = rank, .which = which};
        matrix.q = at::empty({columns, rank}, at::TensorOptions().dtype(wide_type(range.values().scalar_type())));
        fill_randomly(matrix.q, options_.seed, which * 64);
        matrix.q = matrix.q.to(range.values().device());
        matrices_[segment.name] = std::move(matrix);
      }
    }
  }

  void begin(const GradientBucket& bucket) override {
    const at::NoGradGuard no_grad;
    if (bucket.index == 0) step_.add_(1);
    parts_.resize(std::max(parts_.size(), bucket.index + 1));
    Part& part = parts_[bucket.index];
    part.plain = step_.item<std::int64_t>() <= options_.start_step;
    if (part.plain) {
      part.work = begin_average(world_, bucket.runs, bucket.tag);
      bytes_ += bytes_of(bucket.runs);
      return;
    }
    make_room(part, bucket);
    Cursor first{part.first};
    for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
      const auto matrix = matrices_.find(bucket.names[i]);
      if (matrix == matrices_.end()) {
        first.take(bucket.gradients[i].numel()).copy_(bucket.gradients[i].view({-1}));
        continue;
      }
      const Matrix& m = matrix->second;
      const at::Tensor whole = errors_.add(bucket.names[i], bucket.gradients[i]).view({m.rows, m.columns});
      at::Tensor p = first.take(m.rows * m.rank).view({m.rows, m.rank});
      at::mm_out(p, whole, m.q);
    }
    part.work = begin_average(world_, {part.first}, bucket.tag);
    bytes_ += part.first.nbytes();
  }

  void end(const GradientBucket& bucket) override {
    const at::NoGradGuard no_grad;
    Part& part = parts_[bucket.index];
    tensor::wait_for(std::exchange(part.work, Work()), part.plain ? bucket.runs.front() : part.first);
    if (part.plain) return;
    find_q(part, bucket);
    if (part.second.numel() > 0) tensor::wait_for(begin_average(world_, {part.second}, bucket.tag), part.second);
    bytes_ += part.second.nbytes();
    Cursor first{part.first};
    Cursor second{part.second};
    for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
      at::Tensor out = bucket.gradients[i].view({-1});
      const auto matrix = matrices_.find(bucket.names[i]);
      if (matrix == matrices_.end()) {
        out.copy_(first.take(out.numel()));
        continue;
      }
      Matrix& m = matrix->second;
      const at::Tensor p = first.take(m.rows * m.rank).view({m.rows, m.rank});
      m.q.copy_(second.take(m.columns * m.rank).view({m.columns, m.rank}));
      const at::Tensor given = at::mm(p, m.q.t()).view({-1});
      at::Tensor(errors_.of(bucket.names[i])).sub_(given);
      out.copy_(given);
    }
  }

  void settle() override { errors_.settle(world_); }
  std::map<std::string, at::Tensor> state() const override {
    std::map<std::string, at::Tensor> result{{"step", step_}};
    errors_.add_state(result);
    for (const auto& [name, matrix] : matrices_) result["q." + name] = matrix.q;
    return result;
  }

 private:
  struct Matrix {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t rank = 0;
    std::uint64_t which = 0;
    at::Tensor q = {};  // the Q of the last step, with which the next step begins
  };
  struct Part {
    bool plain = true;
    at::Tensor first = {};   // P of the matrices, and the gradients that are sent uncompressed
    at::Tensor second = {};  // Q of the matrices
    Work work = {};
  };
  struct Cursor {
    const at::Tensor& tensor;
    std::int64_t at = 0;
    at::Tensor take(std::int64_t count) { return tensor.narrow(0, std::exchange(at, at + count), count); }
  };

  void make_room(Part& part, const GradientBucket& bucket) {
    std::int64_t first = 0;
    std::int64_t second = 0;
    for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
      const auto matrix = matrices_.find(bucket.names[i]);
      if (matrix == matrices_.end()) {
        first += bucket.gradients[i].numel();
      } else {
        first += matrix->second.rows * matrix->second.rank;
        second += matrix->second.columns * matrix->second.rank;
      }
    }
    const at::ScalarType type = wide_type(bucket.gradients.front().scalar_type());
    const at::Device device = bucket.gradients.front().device();
    ensure_room(part.first, world_, first, type, device);
    ensure_room(part.second, world_, second, type, device);
  }

  // Makes P orthonormal, and computes this rank's Q = M^T P, where M is the error memory with the gradient. P is made
  // orthonormal on the host: on a GPU each of the many short vectors would take several kernels.
  void find_q(Part& part, const GradientBucket& bucket) {
    const at::Tensor on_host = part.first.cpu();  // on the CPU this is the tensor itself
    for_matrices(bucket, on_host, [&](const Matrix& m, const at::Tensor& p, const std::string&) {
      orthonormalize(p, options_.seed, m.which);
    });
    if (!on_host.is_same(part.first)) part.first.copy_(on_host);
    Cursor second{part.second};
    for_matrices(bucket, part.first, [&](const Matrix& m, const at::Tensor& p, const std::string& name) {
      at::Tensor q = second.take(m.columns * m.rank).view({m.columns, m.rank});
      at::mm_out(q, errors_.of(name).view({m.rows, m.columns}).t(), p);
    });
  }

  // Calls use(matrix, P, name) for each gradient of the bucket that is sent as a matrix. `all` is Part::first or a copy
  // of it; P is a part of `all`.
  template <class Use>
  void for_matrices(const GradientBucket& bucket, const at::Tensor& all, const Use& use) const {
    Cursor cursor{all};
    for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
      const auto found = matrices_.find(bucket.names[i]);
      if (found == matrices_.end()) {
        cursor.take(bucket.gradients[i].numel());
        continue;
      }
      const Matrix& m = found->second;
      use(m, cursor.take(m.rows * m.rank).view({m.rows, m.rank}), bucket.names[i]);
    }
  }

  Communicator world_;
  const PowerSgdOptions options_;
  at::Tensor step_;  // number of reductions that began
  ErrorMemory errors_;
  std::map<std::string, Matrix> matrices_;
  std::vector<Part> parts_;  // indexed by bucket
  std::uint64_t bytes_ = 0;
};

}  // namespace

StrategyFactory power_sgd(const PowerSgdOptions& options) {
  REIGEN_CHECK(options.rank >= 1 && options.rank <= 63,
               "[power_sgd] rank is out of range\n  got: {}   expected: 1 to 63", options.rank);
  REIGEN_CHECK(options.start_step >= 0, "[power_sgd] start_step is out of range\n  got: {}   expected: 0 or more",
               options.start_step);
  return [options](const Communicator& world) { return std::make_unique<PowerSgd>(world, options); };
}

}  // namespace reigen::parallel
