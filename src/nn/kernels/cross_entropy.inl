// Cross entropy, and the factor of its gradient (device/model_calls.h). packs.inl says how this file is included.

REIGEN_ON_DEVICE inline float lowest(float) { return -__FLT_MAX__; }
REIGEN_ON_DEVICE inline double lowest(double) { return -__DBL_MAX__; }

struct CountTargets {
  template <typename Team>
  REIGEN_ON_DEVICE static void run(const Team& team, const device::CrossEntropyCall& call) {
    double own = 0;
    team.template each<1>(call.rows, [&](auto, std::int64_t i) { own += call.targets[i] != call.ignored ? 1 : 0; });
    const double all = team.sum(own);
    if (team.leads()) *call.counted = all;
  }
};

template <typename T>
struct CrossEntropyRow {
  using C = typename T::Computed;
  using Element = typename T::Wide;

  // The sum of exp(x - largest), where `largest` is the largest x so far. The first value is finite, so that a logit of
  // -infinity gives exp(-infinity) and not NaN.
  struct Softmax {
    C largest = lowest(C());
    C sum = 0;
    template <int kWidth>
    REIGEN_ON_DEVICE void add(const Pack<C, kWidth>& x) {
      C most = x.at[0];
      REIGEN_UNROLL
      for (int k = 1; k < kWidth; ++k) most = x.at[k] > most ? x.at[k] : most;
      if (most > largest) {
        sum *= exp_of(largest - most);
        largest = most;
      }
      Pack<C, kWidth> terms;
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) terms.at[k] = exp_of(x.at[k] - largest);
      sum += folded<kWidth>(terms.at);
    }
  };

  template <typename Team>
  REIGEN_ON_DEVICE static void run(const Team& team, const device::CrossEntropyCall& call, std::int64_t row) {
    const std::int64_t begin = row * call.columns;
    const std::int64_t target = call.targets[row];
    auto* const losses = static_cast<C*>(call.losses);
    if (target == call.ignored) {
      if (team.leads()) losses[row] = 0;
      if (call.gradients != nullptr) clear(team, call, begin);
      return;
    }
    Softmax own;
    team.template each<T::kWidth>(call.columns, [&](auto width, std::int64_t i) {
      own.add(load<Element, decltype(width)::value>(call.logits, begin + i));
    });
    // Read before team.sum(), because another thread writes the gradient there afterwards.
    const bool is_column = target >= 0 && target < call.columns;
    const C wanted = is_column ? load<Element, 1>(call.logits, begin + target).at[0] : C(__builtin_nanf(""));
    const C largest = team.largest(own.largest);
    const C sum = team.sum(own.sum * exp_of(own.largest - largest));
    if (team.leads()) losses[row] = (largest - wanted) + log_of(sum);
    if (call.gradients == nullptr) return;
    const C share = call.divides ? C(1) / static_cast<C>(*call.counted) : C(1);
    const C factor = is_column ? share / sum : C(__builtin_nanf(""));
    // Backwards, because a cache has the last elements.
    team.template each_from_end<T::kWidth>(call.columns, [&](auto width, std::int64_t i) {
      constexpr int kWidth = decltype(width)::value;
      Pack<C, kWidth> x = load<Element, kWidth>(call.logits, begin + i);
      REIGEN_UNROLL
      for (int k = 0; k < kWidth; ++k) x.at[k] = exp_of(x.at[k] - largest) * factor;
      if (target >= i && target < i + kWidth) {
        REIGEN_UNROLL
        for (int k = 0; k < kWidth; ++k) x.at[k] -= i + k == target ? share : C(0);
      }
      store<Element, kWidth>(call.gradients, begin + i, x);
    });
  }

 private:
  template <typename Team>
  REIGEN_ON_DEVICE static void clear(const Team& team, const device::CrossEntropyCall& call, std::int64_t begin) {
    team.template each<T::kWidth>(call.columns, [&](auto width, std::int64_t i) {
      constexpr int kWidth = decltype(width)::value;
      store<Element, kWidth>(call.gradients, begin + i, filled<C, kWidth>(C(0)));
    });
  }
};

// The losses are added in fp64.
template <typename T>
struct MeanLoss {
  using C = typename T::Computed;
  template <typename Team>
  REIGEN_ON_DEVICE static void run(const Team& team, const device::CrossEntropyCall& call) {
    const auto* const losses = static_cast<const C*>(call.losses);
    double own = 0;
    team.template each<1>(call.rows, [&](auto, std::int64_t i) { own += static_cast<double>(losses[i]); });
    const double all = team.sum(own);
    if (team.leads()) *static_cast<C*>(call.loss) = static_cast<C>(all / *call.counted);
  }
};

// The values are a table with one row.
template <typename T>
struct Multiply {
  using C = typename T::Computed;
  template <int kWidth>
  REIGEN_ON_DEVICE static void run(Width<kWidth>, const device::MultiplyCall& call, std::int64_t, std::int64_t i) {
    C factor = *static_cast<const C*>(call.factor);
    if (call.divisor != nullptr) {
      // If no row counts, the divisor is 0 and the gradients are 0. They must not become NaN.
      if (*call.divisor == 0) return;
      factor /= static_cast<C>(*call.divisor);
    }
    if (factor == C(1)) return;
    Pack<C, kWidth> x = load<typename T::Wide, kWidth>(call.values, i);
    REIGEN_UNROLL
    for (int k = 0; k < kWidth; ++k) x.at[k] *= factor;
    store<typename T::Wide, kWidth>(call.values, i, x);
  }
};
