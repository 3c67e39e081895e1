// Batch normalisation with an addition and ReLU (device/model_calls.h). Each function computes one block of rows for
// the columns i to i + kWidth - 1, unless it says otherwise. packs.inl says how this file is included.

// device::batch_rows_of_sum() and batch_sums_of() are functions of the host.
REIGEN_ON_DEVICE inline std::int64_t rows_of_batch_sum(std::int64_t rows) {
  constexpr std::int64_t kWhole = device::kRowsOfSum * device::kMostBatchSums;
  return rows <= kWhole ? device::kRowsOfSum : device::kRowsOfSum * ((rows + kWhole - 1) / kWhole);
}
REIGEN_ON_DEVICE inline std::int64_t batch_blocks_of(std::int64_t rows) {
  return (rows + rows_of_batch_sum(rows) - 1) / rows_of_batch_sum(rows);
}

// First step of the statistics: the sum of the block's elements, and the sum of the squares of their distances from
// their mean. The sums are those of the distances from the first element, so that they lose no digits where the mean is
// much larger than the deviation.
template <typename T>
struct BatchSums {
  using C = typename T::Computed;
  using Call = device::BatchStatisticsCall;

  template <int kWidth>
  REIGEN_ON_DEVICE static void run(Width<kWidth>, const Call& call, std::int64_t block, std::int64_t i) {
    const RowsOfBlock rows(block, call.rows, rows_of_batch_sum(call.rows));
    const C count = static_cast<C>(rows.last - rows.first);
    const Pack<C, kWidth> origin = load<typename T::Narrow, kWidth>(call.input, rows.first * call.columns + i);
    Pack<C, kWidth> sum = filled<C, kWidth>(C(0));
    Pack<C, kWidth> squares = filled<C, kWidth>(C(0));
    REIGEN_UNROLL_ROWS
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
      const Pack<C, kWidth> x = load<typename T::Narrow, kWidth>(call.input, row * call.columns + i);
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        const C d = x.at[k] - origin.at[k];
        sum.at[k] += d;
        squares.at[k] += d * d;
      }
    }
    REIGEN_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      const C apart = squares.at[k] - sum.at[k] * (sum.at[k] / count);
      squares.at[k] = apart < C(0) ? C(0) : apart;
      sum.at[k] += count * origin.at[k];
    }
    auto* const parts = static_cast<C*>(call.parts);
    store<Plain<C>, kWidth>(parts, block * call.columns + i, sum);
    store<Plain<C>, kWidth>(parts + batch_blocks_of(call.rows) * call.columns, block * call.columns + i, squares);
  }
};

// Second step, in two sums over the blocks of a column, each in kSlices slices: the elements, and then the squares of
// their distances from the mean of all (Chan, Golub, LeVeque, 1979).
template <typename T>
struct BatchStatistics {
  using C = typename T::Computed;
  using Call = device::BatchStatisticsCall;

  REIGEN_ON_DEVICE static C first(const Call& call, std::int64_t column, int slice) {
    return slice_of(static_cast<const C*>(call.parts), batch_blocks_of(call.rows), call.columns, column, slice);
  }
  REIGEN_ON_DEVICE static C second(const Call& call, std::int64_t column, int slice, C sum) {
    const std::int64_t blocks = batch_blocks_of(call.rows);
    const std::int64_t last = blocks - 1;  // may have fewer rows than the others
    const std::int64_t of_block = rows_of_batch_sum(call.rows);
    const auto* const sums = static_cast<const C*>(call.parts);
    const C* const squares = sums + blocks * call.columns;
    const C mean = sum / static_cast<C>(call.rows);
    const auto added = [&](std::int64_t block, C count, C of_count) {
      const C apart = sums[block * call.columns + column] - count * mean;
      return squares[block * call.columns + column] + apart * (apart * of_count);
    };
    const C count = static_cast<C>(of_block);
    const C of_count = C(1) / count;
    C result = 0;
    REIGEN_UNROLL_ROWS
    for (std::int64_t block = slice; block < last; block += kSlices) result += added(block, count, of_count);
    if (last % kSlices == slice) {
      const C rest = static_cast<C>(call.rows - last * of_block);
      result += added(last, rest, C(1) / rest);
    }
    return result;
  }
  REIGEN_ON_DEVICE static void finish(const Call& call, std::int64_t column, C sum, C squares) {
    const C mean = sum / static_cast<C>(call.rows);
    static_cast<C*>(call.mean)[column] = mean;
    static_cast<C*>(call.rstd)[column] =
        C(1) / root_of(squares / static_cast<C>(call.rows) + static_cast<C>(call.eps));
    const C variance = squares / static_cast<C>(call.rows > 1 ? call.rows - 1 : 1);
    move(call.running_mean, column, mean, static_cast<C>(call.momentum));
    move(call.running_var, column, variance, static_cast<C>(call.momentum));
  }

 private:
  REIGEN_ON_DEVICE static void move(void* running, std::int64_t column, C value, C momentum) {
    if (running == nullptr) return;
    const Pack<C, 1> before = load<typename T::Wide, 1>(running, column);
    store<typename T::Wide, 1>(running, column, {{(C(1) - momentum) * before.at[0] + momentum * value}});
  }
};

// (x - mean)·rstd·weight + bias of one pack of columns. Forward and backward must find the same signs, so both use this.
template <typename T, int kWidth>
struct BatchColumns {
  using C = typename T::Computed;
  Pack<C, kWidth> mean;
  Pack<C, kWidth> rstd;
  Pack<C, kWidth> weight;
  Pack<C, kWidth> bias;

  template <typename Call>
  REIGEN_ON_DEVICE BatchColumns(const Call& call, std::int64_t i)
      : mean(load<Plain<C>, kWidth>(call.mean, i)),
        rstd(load<Plain<C>, kWidth>(call.rstd, i)),
        weight(load_or<typename T::Wide, kWidth>(C(1), call.weight, i)),
        bias(load_or<typename T::Wide, kWidth>(C(0), call.bias, i)) {}
  REIGEN_ON_DEVICE C normal(C x, int k) const { return (x - mean.at[k]) * rstd.at[k]; }
  REIGEN_ON_DEVICE C affine(C x, int k) const { return normal(x, k) * weight.at[k] + bias.at[k]; }
};

template <typename T>
struct BatchNorm {
  using C = typename T::Computed;
  using Narrow = typename T::Narrow;
  using Call = device::BatchNormCall;

  template <int kWidth>
  REIGEN_ON_DEVICE static void run(Width<kWidth>, const Call& call, std::int64_t block, std::int64_t i) {
    const RowsOfBlock rows(block, call.rows);
    const BatchColumns<T, kWidth> of(call, i);
    REIGEN_UNROLL_ROWS
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
      const std::int64_t at = row * call.columns + i;
      const Pack<C, kWidth> x = load<Narrow, kWidth>(call.input, at);
      Pack<C, kWidth> y = load_or<Narrow, kWidth>(C(0), call.residual, at);
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        y.at[k] += of.affine(x.at[k], k);
        if (call.relu && y.at[k] < C(0)) y.at[k] = C(0);
      }
      store<Narrow, kWidth>(call.output, at, y);
    }
  }
};

// The gradient before ReLU. Its sign is that of the output, or without an output that of the normalised input.
template <typename T, int kWidth, typename Call>
REIGEN_ON_DEVICE inline Pack<typename T::Computed, kWidth> before_relu(const Call& call, const void* output,
                                                                       const BatchColumns<T, kWidth>& of,
                                                                       const Pack<typename T::Computed, kWidth>& x,
                                                                       std::int64_t at) {
  using C = typename T::Computed;
  Pack<C, kWidth> g = load<typename T::Narrow, kWidth>(call.of_output, at);
  if (!call.relu) return g;
  const Pack<C, kWidth> y = load_or<typename T::Narrow, kWidth>(C(0), output, at);
  REIGEN_UNROLL
  for (int k = 0; k < kWidth; ++k) {
    const C value = output != nullptr ? y.at[k] : of.affine(x.at[k], k);
    if (value <= C(0)) g.at[k] = C(0);
  }
  return g;
}

// The first step of the sums over rows. It also writes of_residual.
template <typename T>
struct BatchNormSums {
  using C = typename T::Computed;
  using Narrow = typename T::Narrow;
  using Call = device::BatchNormSumsCall;

  template <int kWidth>
  REIGEN_ON_DEVICE static void run(Width<kWidth>, const Call& call, std::int64_t block, std::int64_t i) {
    const RowsOfBlock rows(block, call.rows, rows_of_batch_sum(call.rows));
    const BatchColumns<T, kWidth> of(call, i);
    Pack<C, kWidth> of_weight = filled<C, kWidth>(C(0));
    Pack<C, kWidth> of_bias = filled<C, kWidth>(C(0));
    REIGEN_UNROLL_ROWS
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
      const std::int64_t at = row * call.columns + i;
      const Pack<C, kWidth> x = load<Narrow, kWidth>(call.input, at);
      const Pack<C, kWidth> g = before_relu<T, kWidth>(call, call.output, of, x, at);
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        of_weight.at[k] += g.at[k] * of.normal(x.at[k], k);
        of_bias.at[k] += g.at[k];
      }
      if (call.of_residual != nullptr) store<Narrow, kWidth>(call.of_residual, at, g);
    }
    auto* const parts = static_cast<C*>(call.parts);
    store<Plain<C>, kWidth>(parts, block * call.columns + i, of_weight);
    store<Plain<C>, kWidth>(parts + batch_blocks_of(call.rows) * call.columns, block * call.columns + i, of_bias);
  }
};

template <typename T>
struct BatchNormBackward {
  using C = typename T::Computed;
  using Narrow = typename T::Narrow;
  using Call = device::BatchNormBackwardCall;

  template <int kWidth>
  REIGEN_ON_DEVICE static void run(Width<kWidth>, const Call& call, std::int64_t block, std::int64_t i) {
    const RowsOfBlock rows(block, call.rows);
    const BatchColumns<T, kWidth> of(call, i);
    const C count = static_cast<C>(call.rows);
    // Without sums the statistics do not depend on the input.
    Pack<C, kWidth> along_x = load_or<Plain<C>, kWidth>(C(0), call.of_weight, i);
    Pack<C, kWidth> along_one = load_or<Plain<C>, kWidth>(C(0), call.of_bias, i);
    REIGEN_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      along_x.at[k] /= count;
      along_one.at[k] /= count;
    }
    REIGEN_UNROLL_ROWS
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
      const std::int64_t at = row * call.columns + i;
      const Pack<C, kWidth> x = load<Narrow, kWidth>(call.input, at);
      Pack<C, kWidth> g = before_relu<T, kWidth>(call, nullptr, of, x, at);
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        g.at[k] = (g.at[k] - along_one.at[k] - of.normal(x.at[k], k) * along_x.at[k]) * (of.rstd.at[k] * of.weight.at[k]);
      }
      store<Narrow, kWidth>(call.of_input, at, g);
    }
  }
};
