// Rotary position embedding, and the gradient of an embedding's weight (device/model_calls.h). packs.inl says how this
// file is included.

// All heads of one sample and position.
template <typename T>
struct RotaryRow {
  using C = typename T::Computed;
  using Element = typename T::Wide;

  template <typename Team>
  REIGEN_ON_DEVICE static void run(const Team& team, const device::RotaryCall& call, std::int64_t row) {
    const std::int64_t sample = row / call.positions;
    const std::int64_t position = row - sample * call.positions;
    const auto begin_of = [=](const device::RotaryStrides& strides) {
      return sample * strides.batch + position * strides.position;
    };
    const std::int64_t from = begin_of(call.input_strides);
    const std::int64_t to = begin_of(call.output_strides);
    const C sign = call.backwards ? C(-1) : C(1);
    team.template each_part<T::kWidth>(call.heads, call.half, [&](auto width, std::int64_t head, std::int64_t i) {
      constexpr int kWidth = decltype(width)::value;
      const std::int64_t at = from + head * call.input_strides.head + i;
      const Pack<C, kWidth> first = load<Element, kWidth>(call.input, at);
      const Pack<C, kWidth> second = load<Element, kWidth>(call.input, at + call.half);
      const Pack<C, kWidth> cosine = load<Plain<C>, kWidth>(call.cosines, position * call.half + i);
      const Pack<C, kWidth> sine = load<Plain<C>, kWidth>(call.sines, position * call.half + i);
      Pack<C, kWidth> turned_first;
      Pack<C, kWidth> turned_second;
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        const C s = sign * sine.at[k];
        turned_first.at[k] = first.at[k] * cosine.at[k] - second.at[k] * s;
        turned_second.at[k] = second.at[k] * cosine.at[k] + first.at[k] * s;
      }
      const std::int64_t there = to + head * call.output_strides.head + i;
      store<Element, kWidth>(call.output, there, turned_first);
      store<Element, kWidth>(call.output, there + call.half, turned_second);
    });
  }
};

// The rows of one token, if a run of equal tokens begins at `first`.
template <typename T>
struct EmbeddingRun {
  using C = typename T::Computed;
  using Element = typename T::Wide;

  template <typename Team>
  REIGEN_ON_DEVICE static void run(const Team& team, const device::EmbeddingSumsCall& call, std::int64_t first) {
    const std::int64_t token = call.sorted[first];
    if (token < 0 || token >= call.tokens || (first > 0 && call.sorted[first - 1] == token)) return;
    std::int64_t end = first + 1;  // of the run; it lies in [end, high]
    for (std::int64_t high = call.rows; end < high;) {
      const std::int64_t middle = end + (high - end) / 2;
      if (call.sorted[middle] == token) {
        end = middle + 1;
      } else {
        high = middle;
      }
    }
    team.template each<T::kWidth>(call.columns, [&](auto width, std::int64_t i) {
      constexpr int kWidth = decltype(width)::value;
      Pack<C, kWidth> sum = filled<C, kWidth>(C(0));
      REIGEN_UNROLL_ROWS
      for (std::int64_t at = first; at < end; ++at) {
        const Pack<C, kWidth> x = load<Element, kWidth>(call.of_output, call.order[at] * call.columns + i);
        REIGEN_UNROLL
        for (int k = 0; k < kWidth; ++k) sum.at[k] += x.at[k];
      }
      store<Element, kWidth>(call.of_weight, token * call.columns + i, sum);
    });
  }
};
