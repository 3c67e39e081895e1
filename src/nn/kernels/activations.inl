// GELU with the bias of the layer before it, and SwiGLU (device/model_calls.h). Each function computes one block of
// rows for the columns i to i + kWidth - 1. packs.inl says how this file is included.

// gelu(v) = v·normal(v), with the distribution function of the normal distribution.
template <typename C>
REIGEN_ON_DEVICE inline C normal(C v) {
  constexpr double kRootOfHalf = 0.70710678118654752440;
  return C(0.5) * (C(1) + erf_of(v * static_cast<C>(kRootOfHalf)));
}

template <typename T>
struct Gelu {
  using C = typename T::Computed;
  using Call = device::GeluCall;

  template <int kWidth>
  REIGEN_ON_DEVICE static void run(Width<kWidth>, const Call& call, std::int64_t block, std::int64_t i) {
    const RowsOfBlock rows(block, call.rows);
    const Pack<C, kWidth> bias = load_or<typename T::Wide, kWidth>(C(0), call.bias, i);
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
      Pack<C, kWidth> x = load<typename T::Narrow, kWidth>(call.input, row * call.columns + i);
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        const C v = x.at[k] + bias.at[k];
        x.at[k] = v * normal(v);
      }
      store<typename T::Narrow, kWidth>(call.output, row * call.columns + i, x);
    }
  }
};

template <typename T>
struct GeluBackward {
  using C = typename T::Computed;
  using Narrow = typename T::Narrow;
  using Call = device::GeluBackwardCall;

  template <int kWidth>
  REIGEN_ON_DEVICE static void run(Width<kWidth>, const Call& call, std::int64_t block, std::int64_t i) {
    constexpr double kDensityAtZero = 0.39894228040143267794;
    const RowsOfBlock rows(block, call.rows);
    const Pack<C, kWidth> bias = load_or<typename T::Wide, kWidth>(C(0), call.bias, i);
    Pack<C, kWidth> sum = filled<C, kWidth>(C(0));
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
      const std::int64_t at = row * call.columns + i;
      const Pack<C, kWidth> x = load<Narrow, kWidth>(call.input, at);
      Pack<C, kWidth> result = load<Narrow, kWidth>(call.of_output, at);
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        const C v = x.at[k] + bias.at[k];
        const C density = static_cast<C>(kDensityAtZero) * exp_of(v * v * C(-0.5));
        result.at[k] *= normal(v) + v * density;
        sum.at[k] += result.at[k];
      }
      store<Narrow, kWidth>(call.of_input, at, result);
    }
    if (call.parts != nullptr) store<Plain<C>, kWidth>(call.parts, block * call.columns + i, sum);
  }
};

template <typename C>
REIGEN_ON_DEVICE inline C sigmoid(C x) {
  return C(1) / (C(1) + exp_of(-x));
}

template <typename T>
struct Swiglu {
  using C = typename T::Computed;
  using Element = typename T::Wide;
  using Call = device::SwigluCall;

  template <int kWidth>
  REIGEN_ON_DEVICE static void run(Width<kWidth>, const Call& call, std::int64_t block, std::int64_t i) {
    const RowsOfBlock rows(block, call.rows);
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
      const Pack<C, kWidth> gate = load<Element, kWidth>(call.gate, row * call.gate_stride + i);
      Pack<C, kWidth> result = load<Element, kWidth>(call.up, row * call.up_stride + i);
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) result.at[k] *= gate.at[k] * sigmoid(gate.at[k]);
      store<Element, kWidth>(call.output, row * call.columns + i, result);
    }
  }
};

template <typename T>
struct SwigluBackward {
  using C = typename T::Computed;
  using Element = typename T::Wide;
  using Call = device::SwigluBackwardCall;

  template <int kWidth>
  REIGEN_ON_DEVICE static void run(Width<kWidth>, const Call& call, std::int64_t block, std::int64_t i) {
    const RowsOfBlock rows(block, call.rows);
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
      const Pack<C, kWidth> gate = load<Element, kWidth>(call.gate, row * call.gate_stride + i);
      const Pack<C, kWidth> up = load<Element, kWidth>(call.up, row * call.up_stride + i);
      const Pack<C, kWidth> of_output = load<Element, kWidth>(call.of_output, row * call.columns + i);
      Pack<C, kWidth> of_gate;
      Pack<C, kWidth> of_up;
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        const C s = sigmoid(gate.at[k]);
        of_gate.at[k] = of_output.at[k] * up.at[k] * (s * (C(1) + gate.at[k] * (C(1) - s)));
        of_up.at[k] = of_output.at[k] * (gate.at[k] * s);
      }
      store<Element, kWidth>(call.of_gate, row * call.of_gate_stride + i, of_gate);
      store<Element, kWidth>(call.of_up, row * call.of_up_stride + i, of_up);
    }
  }
};
