// The element types and the rules of kernels.h. Only this file decides the bits of a step. The loops of the host
// (kernels.inl) and the kernels of the device (cuda/optimize.cu) include it inside their namespaces. So the rules of
// kernels.inl hold: no #include, and nothing from the standard library but its integer types.
//
// Before, the file that includes it defines
//   REIGEN_EACH(i, count)   the head of a loop over elements 0 to count - 1, which do not depend on each other: on the
//                           host a loop that is vectorised, on the device one that the threads of a block share
// and declares
//   double sum_squares_of<C>(count, fill)   the sum of the squares of fill(0) to fill(count - 1)

REIGEN_ON_DEVICE inline float bits_to_float(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
REIGEN_ON_DEVICE inline std::uint32_t float_to_bits(float value) { return __builtin_bit_cast(std::uint32_t, value); }
REIGEN_ON_DEVICE inline float root_of(float value) { return __builtin_sqrtf(value); }
REIGEN_ON_DEVICE inline double root_of(double value) { return __builtin_sqrt(value); }

template <typename T>
struct Plain {
  using Storage = T;
  using Computed = T;
  static constexpr bool kRandom = false;
  static constexpr bool kMaster = false;
  REIGEN_ON_DEVICE static Computed load(Storage x) { return x; }
  REIGEN_ON_DEVICE static Storage store(Computed x, std::uint32_t) { return x; }
};

// bfloat16 is the upper half of a float.
struct Bfloat16 {
  using Storage = std::uint16_t;
  using Computed = float;
  static constexpr bool kRandom = false;
  static constexpr bool kMaster = false;
  REIGEN_ON_DEVICE static Computed load(Storage x) { return bits_to_float(static_cast<std::uint32_t>(x) << 16); }
  REIGEN_ON_DEVICE static Storage store(Computed value, std::uint32_t) {
    const std::uint32_t bits = float_to_bits(value);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return static_cast<Storage>((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
  }
};

// Multiplying with a power of 2 moves exponents from one bias to the other. This is exact for subnormal numbers too.
struct Float16 {
  using Storage = std::uint16_t;
  using Computed = float;
  static constexpr bool kRandom = false;
  static constexpr bool kMaster = false;
  REIGEN_ON_DEVICE static Computed load(Storage x) {
    const std::uint32_t sign = static_cast<std::uint32_t>(x & 0x8000u) << 16;
    const std::uint32_t shifted = static_cast<std::uint32_t>(x & 0x7fffu) << 13;
    const std::uint32_t finite = float_to_bits(bits_to_float(shifted) * 0x1p112f);
    const std::uint32_t special = shifted | 0x7f800000u;
    return bits_to_float(sign | (shifted >= 0x0f800000u ? special : finite));
  }
  REIGEN_ON_DEVICE static Storage store(Computed value, std::uint32_t) {
    const std::uint32_t bits = float_to_bits(value);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    // Rounds to nearest, ties to even. A subnormal result is rounded by an addition that shifts it to the end of a
    // float.
    const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const std::uint32_t subnormal = float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3f000000u;
    const std::uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
    const std::uint32_t large = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    return static_cast<Storage>(((bits >> 16) & 0x8000u) | (magnitude >= 0x477ff000u ? large : finite));
  }
};

template <typename Narrow>
struct WithMaster : Narrow {
  static constexpr bool kMaster = true;
};

template <typename Values>
REIGEN_ON_DEVICE inline typename Values::Computed weight_at(const typename Values::Storage* values,
                                           const typename Values::Computed* masters, std::int64_t i) {
  using C = typename Values::Computed;
  if constexpr (Values::kMaster) {
    const C master = masters[i];
    const C changed = Values::load(values[i]);
    return Values::store(master, 0) == values[i] ? master : changed;
  } else {
    return Values::load(values[i]);
  }
}

// Adds a random part of one unit in the last place that is kept, then truncates. So it rounds up with a probability
// that equals the part that is cut off.
struct RandomBfloat16 {
  using Storage = std::uint16_t;
  using Computed = float;
  static constexpr bool kRandom = true;
  REIGEN_ON_DEVICE static Computed load(Storage x) { return Bfloat16::load(x); }
  REIGEN_ON_DEVICE static Storage store(Computed value, std::uint32_t random) {
    const std::uint32_t bits = float_to_bits(value);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t rounded = (bits + (random & 0xffffu)) >> 16;
    const std::uint32_t special = (bits >> 16) | (magnitude > 0x7f800000u ? 0x40u : 0u);
    return static_cast<Storage>(magnitude >= 0x7f800000u ? special : rounded);
  }
};

// 32 well mixed bits for each (key, index): Wellons's lowbias32, https://nullprogram.com/blog/2018/07/31
REIGEN_ON_DEVICE inline std::uint32_t random_bits(std::uint32_t key, std::uint32_t index) {
  std::uint32_t x = index ^ key;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

template <typename C>
REIGEN_ON_DEVICE inline C clamp(C x, C limit) {
  const C low = x < -limit ? -limit : x;
  return low > limit ? limit : low;
}

// One pass: rule(p, g, a, b, c) changes its arguments; the first `kStates` of the states a, b, c exist.
template <typename Values, typename States, int kStates, bool kWrites = true, typename Rule>
REIGEN_ON_DEVICE inline void sweep(const Block& block, const Rule& rule) {
  using C = typename Values::Computed;
  auto* values = static_cast<typename Values::Storage*>(block.values);
  const auto* gradients = static_cast<const typename Values::Storage*>(block.gradients);
  auto* first = static_cast<typename States::Storage*>(block.states[0]);
  auto* second = static_cast<typename States::Storage*>(block.states[1]);
  auto* third = static_cast<typename States::Storage*>(block.states[2]);
  auto* masters = static_cast<C*>(block.masters);
  const C factor = static_cast<C>(block.gradient_factor);
  const C limit = static_cast<C>(block.gradient_limit);
  const std::int64_t count = block.count;
  const std::uint32_t key = block.key;
  const std::uint32_t begin = block.first;
  REIGEN_EACH(i, count) {
    C p = weight_at<Values>(values, masters, i);
    const C g = clamp(Values::load(gradients[i]) * factor, limit);
    C a = 0;
    C b = 0;
    C c = 0;
    if constexpr (kStates > 0) a = States::load(first[i]);
    if constexpr (kStates > 1) b = States::load(second[i]);
    if constexpr (kStates > 2) c = States::load(third[i]);
    rule(p, g, a, b, c);
    std::uint32_t random = 0;
    if constexpr (States::kRandom) random = random_bits(key, begin + static_cast<std::uint32_t>(i));
    if constexpr (kStates > 0) first[i] = States::store(a, random);
    if constexpr (kStates > 1) second[i] = States::store(b, random >> 16);
    if constexpr (kStates > 2) third[i] = States::store(c, random);
    if constexpr (kWrites) values[i] = Values::store(p, 0);
    if constexpr (kWrites && Values::kMaster) masters[i] = p;
  }
}

// Calls work.template run<Values, States>() with the types of `layout`.
template <typename Work>
inline void with_types(Layout layout, const Work& work) {
  switch (layout) {
    case Layout::kFloat64: return work.template run<Plain<double>, Plain<double>>();
    case Layout::kFloat32: return work.template run<Plain<float>, Plain<float>>();
    case Layout::kFloat32Bfloat16: return work.template run<Plain<float>, RandomBfloat16>();
    case Layout::kBfloat16: return work.template run<Bfloat16, Bfloat16>();
    case Layout::kFloat16: return work.template run<Float16, Float16>();
    case Layout::kBfloat16Master: return work.template run<WithMaster<Bfloat16>, Plain<float>>();
    case Layout::kFloat16Master: return work.template run<WithMaster<Float16>, Plain<float>>();
  }
}

template <typename C>
struct SgdRule {
  C lr, l2, momentum, share;
  REIGEN_ON_DEVICE explicit SgdRule(const SgdStep& s)
      : lr(static_cast<C>(s.lr)),
        l2(static_cast<C>(s.l2)),
        momentum(static_cast<C>(s.momentum)),
        share(static_cast<C>(s.share)) {}
};

struct Sgd {
  const Block& block;
  const SgdStep& step;
  template <typename Values, typename States>
  REIGEN_ON_DEVICE void run() const {
    using C = typename Values::Computed;
    const SgdRule<C> r(step);
    if (!step.has_momentum) {
      sweep<Values, States, 0>(block, [r](C& p, C g, C&, C&, C&) { p -= r.lr * (g + r.l2 * p); });
    } else if (!step.nesterov) {
      sweep<Values, States, 1>(block, [r](C& p, C g, C& b, C&, C&) {
        b = r.momentum * b + r.share * (g + r.l2 * p);
        p -= r.lr * b;
      });
    } else {
      sweep<Values, States, 1>(block, [r](C& p, C g, C& b, C&, C&) {
        g += r.l2 * p;
        b = r.momentum * b + r.share * g;
        p -= r.lr * (g + r.momentum * b);
      });
    }
  }
};

struct Adam {
  const Block& block;
  const AdamStep& step;
  template <typename Values, typename States>
  REIGEN_ON_DEVICE void run() const {
    using C = typename Values::Computed;
    const C rate = static_cast<C>(step.rate);
    const C l2 = static_cast<C>(step.l2);
    const C keep = static_cast<C>(step.keep);
    const C beta2 = static_cast<C>(step.beta2);
    const C share1 = static_cast<C>(1 - step.beta1);
    const C share2 = static_cast<C>(1 - step.beta2);
    const C root = static_cast<C>(step.root);
    const C eps = static_cast<C>(step.eps);
    if (!step.amsgrad) {
      sweep<Values, States, 2>(block, [=](C& p, C g, C& m, C& v, C&) {
        g += l2 * p;
        p *= keep;
        m += share1 * (g - m);
        v = beta2 * v + share2 * (g * g);
        p -= rate * m / (root_of(v) * root + eps);
      });
    } else {
      sweep<Values, States, 3>(block, [=](C& p, C g, C& m, C& v, C& largest) {
        g += l2 * p;
        p *= keep;
        m += share1 * (g - m);
        v = beta2 * v + share2 * (g * g);
        largest = largest > v ? largest : v;
        p -= rate * m / (root_of(largest) * root + eps);
      });
    }
  }
};

struct Adagrad {
  const Block& block;
  const AdagradStep& step;
  template <typename Values, typename States>
  REIGEN_ON_DEVICE void run() const {
    using C = typename Values::Computed;
    const C rate = static_cast<C>(step.rate);
    const C l2 = static_cast<C>(step.l2);
    const C eps = static_cast<C>(step.eps);
    sweep<Values, States, 1>(block, [=](C& p, C g, C& sum, C&, C&) {
      g += l2 * p;
      sum += g * g;
      p -= rate * g / (root_of(sum) + eps);
    });
  }
};

struct Rmsprop {
  const Block& block;
  const RmspropStep& step;
  template <typename Values, typename States>
  REIGEN_ON_DEVICE void run() const {
    using C = typename Values::Computed;
    const C lr = static_cast<C>(step.lr);
    const C l2 = static_cast<C>(step.l2);
    const C alpha = static_cast<C>(step.alpha);
    const C share = static_cast<C>(1 - step.alpha);
    const C eps = static_cast<C>(step.eps);
    const C momentum = static_cast<C>(step.momentum);
    const auto plain = [=](C& v, C g) {
      v = alpha * v + share * (g * g);
      return g / (root_of(v) + eps);
    };
    // Rounding may make the variance of equal gradients negative.
    const auto centered = [=](C& v, C& mean, C g) {
      v = alpha * v + share * (g * g);
      mean += share * (g - mean);
      const C variance = v - mean * mean;
      return g / (root_of(variance < 0 ? 0 : variance) + eps);
    };
    if (!step.centered && !step.has_momentum) {
      sweep<Values, States, 1>(block, [=](C& p, C g, C& v, C&, C&) { p -= lr * plain(v, g + l2 * p); });
    } else if (!step.centered) {
      sweep<Values, States, 2>(block, [=](C& p, C g, C& v, C& b, C&) {
        b = momentum * b + plain(v, g + l2 * p);
        p -= lr * b;
      });
    } else if (!step.has_momentum) {
      sweep<Values, States, 2>(block, [=](C& p, C g, C& v, C& mean, C&) { p -= lr * centered(v, mean, g + l2 * p); });
    } else {
      sweep<Values, States, 3>(block, [=](C& p, C g, C& v, C& mean, C& b) {
        b = momentum * b + centered(v, mean, g + l2 * p);
        p -= lr * b;
      });
    }
  }
};

struct Lion {
  const Block& block;
  const LionStep& step;
  template <typename Values, typename States>
  REIGEN_ON_DEVICE void run() const {
    using C = typename Values::Computed;
    const C lr = static_cast<C>(step.lr);
    const C decay = static_cast<C>(step.weight_decay);
    const C share1 = static_cast<C>(1 - step.beta1);
    const C share2 = static_cast<C>(1 - step.beta2);
    sweep<Values, States, 1>(block, [=](C& p, C g, C& m, C&, C&) {
      const C c = m + share1 * (g - m);
      const C sign = c > 0 ? C(1) : (c < 0 ? C(-1) : c);  // 0 and NaN remain
      p -= lr * (sign + decay * p);
      m += share2 * (g - m);
    });
  }
};

struct Lars {
  const Block& block;
  const LarsStep& step;
  template <typename Values, typename States>
  REIGEN_ON_DEVICE void run() const {
    using C = typename Values::Computed;
    const C rate = static_cast<C>(step.rate);
    const C decay = static_cast<C>(step.weight_decay);
    const C momentum = static_cast<C>(step.momentum);
    sweep<Values, States, 1>(block, [=](C& p, C g, C& b, C&, C&) {
      b = momentum * b + rate * (g + decay * p);
      p -= b;
    });
  }
};

struct SquaresOf {
  const void* data;
  std::int64_t count;
  double& result;
  template <typename Values, typename States>
  REIGEN_ON_DEVICE void run() const {
    using C = typename Values::Computed;
    const auto* from = static_cast<const typename Values::Storage*>(data);
    result = sum_squares_of<C>(count, [from](std::int64_t i) { return Values::load(from[i]); });
  }
};

struct ValueSquares {
  const Block& block;
  Squares& result;
  template <typename Values, typename States>
  REIGEN_ON_DEVICE void run() const {
    using C = typename Values::Computed;
    const auto* values = static_cast<const typename Values::Storage*>(block.values);
    const auto* gradients = static_cast<const typename Values::Storage*>(block.gradients);
    const auto* masters = static_cast<const C*>(block.masters);
    const C factor = static_cast<C>(block.gradient_factor);
    const C limit = static_cast<C>(block.gradient_limit);
    result.first =
        sum_squares_of<C>(block.count, [=](std::int64_t i) { return weight_at<Values>(values, masters, i); });
    result.second = sum_squares_of<C>(
        block.count, [=](std::int64_t i) { return clamp(Values::load(gradients[i]) * factor, limit); });
  }
};

// The norm of u and the step use this one expression for u, so that the trust ratio fits the u that is applied.
template <typename C>
struct LambDirection {
  C scale, root, eps, decay;
  REIGEN_ON_DEVICE explicit LambDirection(const LambStep& s)
      : scale(static_cast<C>(s.scale)),
        root(static_cast<C>(s.root)),
        eps(static_cast<C>(s.eps)),
        decay(static_cast<C>(s.weight_decay)) {}
  REIGEN_ON_DEVICE C operator()(C p, C m, C v) const { return scale * m / (root_of(v) * root + eps) + decay * p; }
};

struct LambMoments {
  const Block& block;
  const LambStep& step;
  Squares& result;
  template <typename Values, typename States>
  REIGEN_ON_DEVICE void run() const {
    using C = typename Values::Computed;
    const C beta2 = static_cast<C>(step.beta2);
    const C share1 = static_cast<C>(1 - step.beta1);
    const C share2 = static_cast<C>(1 - step.beta2);
    sweep<Values, States, 2, false>(block, [=](C&, C g, C& m, C& v, C&) {
      m += share1 * (g - m);
      v = beta2 * v + share2 * (g * g);
    });
    const LambDirection<C> direction(step);
    const auto* values = static_cast<const typename Values::Storage*>(block.values);
    const auto* first = static_cast<const typename States::Storage*>(block.states[0]);
    const auto* second = static_cast<const typename States::Storage*>(block.states[1]);
    const auto* masters = static_cast<const C*>(block.masters);
    result.first =
        sum_squares_of<C>(block.count, [=](std::int64_t i) { return weight_at<Values>(values, masters, i); });
    result.second = sum_squares_of<C>(block.count, [=](std::int64_t i) {
      return direction(weight_at<Values>(values, masters, i), States::load(first[i]), States::load(second[i]));
    });
  }
};

struct LambApply {
  const Block& block;
  const LambStep& step;
  template <typename Values, typename States>
  REIGEN_ON_DEVICE void run() const {
    using C = typename Values::Computed;
    const LambDirection<C> direction(step);
    const C rate = static_cast<C>(step.rate);
    auto* values = static_cast<typename Values::Storage*>(block.values);
    const auto* first = static_cast<const typename States::Storage*>(block.states[0]);
    const auto* second = static_cast<const typename States::Storage*>(block.states[1]);
    auto* masters = static_cast<C*>(block.masters);
    const std::int64_t count = block.count;
    REIGEN_EACH(i, count) {
      const C p = weight_at<Values>(values, masters, i);
      const C moved = p - rate * direction(p, States::load(first[i]), States::load(second[i]));
      values[i] = Values::store(moved, 0);
      if constexpr (Values::kMaster) masters[i] = moved;
    }
  }
};

struct ChangeGradients {
  const Block& block;
  template <typename Values, typename States>
  REIGEN_ON_DEVICE void run() const {
    using C = typename Values::Computed;
    auto* gradients = static_cast<typename Values::Storage*>(block.values);
    const C factor = static_cast<C>(block.gradient_factor);
    const C limit = static_cast<C>(block.gradient_limit);
    const std::int64_t count = block.count;
    REIGEN_EACH(i, count) {
      gradients[i] = Values::store(clamp(Values::load(gradients[i]) * factor, limit), 0);
    }
  }
};

struct Average {
  void* averages;
  const void* from;
  std::int64_t count;
  double share;
  template <typename Values, typename States>
  REIGEN_ON_DEVICE void run() const {
    using C = typename Values::Computed;
    auto* average = static_cast<C*>(averages);
    const auto* values = static_cast<const typename Values::Storage*>(from);
    const C part = static_cast<C>(share);
    const std::int64_t all = count;
    REIGEN_EACH(i, all) average[i] += part * (Values::load(values[i]) - average[i]);
  }
};
