// LayerNorm and RMSNorm (device/model_calls.h). packs.inl says how this file is included.

template <typename T>
struct NormRow {
  using C = typename T::Computed;
  using Wide = typename T::Wide;
  using Narrow = typename T::Narrow;

  template <typename Team>
  REIGEN_ON_DEVICE static void run(const Team& team, const device::NormCall& call, std::int64_t row) {
    const std::int64_t begin = row * call.columns;
    const C count = static_cast<C>(call.columns);
    const void* from = call.input;
    if (call.added != nullptr) {
      add(team, call, begin);
      from = call.sum;
    }
    const C mean = call.mean != nullptr ? team.sum(sum_of(team, from, begin, call.columns)) / count : C(0);
    Lanes<C, T::kWidth> squares;
    team.template each<T::kWidth>(call.columns, [&](auto width, std::int64_t i) {
      constexpr int kWidth = decltype(width)::value;
      const Pack<C, kWidth> x = load<Wide, kWidth>(from, begin + i);
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) squares.add(k, (x.at[k] - mean) * (x.at[k] - mean));
    });
    const C rstd = C(1) / root_of(team.sum(squares.total()) / count + static_cast<C>(call.eps));
    team.template each<T::kWidth>(call.columns, [&](auto width, std::int64_t i) {
      constexpr int kWidth = decltype(width)::value;
      const Pack<C, kWidth> x = load<Wide, kWidth>(from, begin + i);
      const Pack<C, kWidth> weight = load_or<Wide, kWidth>(C(1), call.weight, i);
      const Pack<C, kWidth> bias = load_or<Wide, kWidth>(C(0), call.bias, i);
      Pack<C, kWidth> y;
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) y.at[k] = (x.at[k] - mean) * rstd * weight.at[k] + bias.at[k];
      store<Narrow, kWidth>(call.output, begin + i, y);
    });
    if (!team.leads()) return;
    if (call.mean != nullptr) static_cast<C*>(call.mean)[row] = mean;
    static_cast<C*>(call.rstd)[row] = rstd;
  }

 private:
  template <typename Team>
  REIGEN_ON_DEVICE static void add(const Team& team, const device::NormCall& call, std::int64_t begin) {
    team.template each<T::kWidth>(call.columns, [&](auto width, std::int64_t i) {
      constexpr int kWidth = decltype(width)::value;
      Pack<C, kWidth> x = load<Wide, kWidth>(call.input, begin + i);
      const Pack<C, kWidth> d = load<Narrow, kWidth>(call.added, begin + i);
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) x.at[k] += d.at[k];
      store<Wide, kWidth>(call.sum, begin + i, x);
    });
  }

  template <typename Team>
  REIGEN_ON_DEVICE static C sum_of(const Team& team, const void* from, std::int64_t begin, std::int64_t columns) {
    Lanes<C, T::kWidth> sum;
    team.template each<T::kWidth>(columns, [&](auto width, std::int64_t i) {
      constexpr int kWidth = decltype(width)::value;
      const Pack<C, kWidth> x = load<Wide, kWidth>(from, begin + i);
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) sum.add(k, x.at[k]);
    });
    return sum.total();
  }
};

// With n = (y - mean)·rstd and g = of_output·weight: of_y = rstd·(g - mean(g) - n·mean(g·n)). RMSNorm has no mean(g).
template <typename T>
struct NormBackwardRow {
  using C = typename T::Computed;
  using Wide = typename T::Wide;
  using Narrow = typename T::Narrow;

  template <typename Team>
  REIGEN_ON_DEVICE static void run(const Team& team, const device::NormBackwardCall& call, std::int64_t row) {
    const std::int64_t begin = row * call.columns;
    const C count = static_cast<C>(call.columns);
    const C mean = call.mean != nullptr ? static_cast<const C*>(call.mean)[row] : C(0);
    const C rstd = static_cast<const C*>(call.rstd)[row];
    Lanes<C, T::kWidth> first;
    Lanes<C, T::kWidth> second;
    team.template each<T::kWidth>(call.columns, [&](auto width, std::int64_t i) {
      constexpr int kWidth = decltype(width)::value;
      const Pack<C, kWidth> y = load<Wide, kWidth>(call.sum, begin + i);
      const Pack<C, kWidth> of_output = load<Narrow, kWidth>(call.of_output, begin + i);
      const Pack<C, kWidth> weight = load_or<Wide, kWidth>(C(1), call.weight, i);
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        const C g = of_output.at[k] * weight.at[k];
        first.add(k, g);
        second.add(k, g * ((y.at[k] - mean) * rstd));
      }
    });
    const C along_one = call.mean != nullptr ? team.sum(first.total()) / count : C(0);
    const C along_y = team.sum(second.total()) / count;
    team.template each<T::kWidth>(call.columns, [&](auto width, std::int64_t i) {
      constexpr int kWidth = decltype(width)::value;
      const Pack<C, kWidth> y = load<Wide, kWidth>(call.sum, begin + i);
      const Pack<C, kWidth> of_output = load<Narrow, kWidth>(call.of_output, begin + i);
      const Pack<C, kWidth> weight = load_or<Wide, kWidth>(C(1), call.weight, i);
      Pack<C, kWidth> result = load_or<Wide, kWidth>(C(0), call.of_sum, begin + i);
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        const C g = of_output.at[k] * weight.at[k];
        result.at[k] += rstd * (g - along_one - (y.at[k] - mean) * rstd * along_y);
      }
      store<Wide, kWidth>(call.of_input, begin + i, result);
      if (call.of_added != nullptr) store<Narrow, kWidth>(call.of_added, begin + i, result);
    });
  }
};

// The first step of the sums over rows: block number `block`, columns i to i + kWidth - 1.
template <typename T>
struct NormSums {
  using C = typename T::Computed;
  using Call = device::NormSumsCall;

  template <int kWidth>
  REIGEN_ON_DEVICE static void run(Width<kWidth>, const Call& call, std::int64_t block, std::int64_t i) {
    const RowsOfBlock rows(block, call.rows);
    const auto* const means = static_cast<const C*>(call.mean);
    const auto* const rstds = static_cast<const C*>(call.rstd);
    Pack<C, kWidth> of_weight = filled<C, kWidth>(C(0));
    Pack<C, kWidth> of_bias = filled<C, kWidth>(C(0));
    REIGEN_UNROLL_ROWS
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
      const C mean = means != nullptr ? means[row] : C(0);
      const C rstd = rstds[row];
      const Pack<C, kWidth> y = load<typename T::Wide, kWidth>(call.sum, row * call.columns + i);
      const Pack<C, kWidth> of_output = load<typename T::Narrow, kWidth>(call.of_output, row * call.columns + i);
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        of_weight.at[k] += of_output.at[k] * ((y.at[k] - mean) * rstd);
        of_bias.at[k] += of_output.at[k];
      }
    }
    auto* const parts = static_cast<C*>(call.parts);
    store<Plain<C>, kWidth>(parts, block * call.columns + i, of_weight);
    if (call.of_bias == nullptr) return;
    store<Plain<C>, kWidth>(parts + blocks_of(call.rows) * call.columns, block * call.columns + i, of_bias);
  }
};
