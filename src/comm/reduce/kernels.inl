// The loops behind reduce.h; included once for each instruction set, inside its namespace. No #include may stand here, and
// nothing from the standard library may be instantiated: it would be compiled for that instruction set and shared by all.
//
// A block of elements is summed in a buffer that stays in the first-level cache, then written to every output.

constexpr std::size_t kBlock = 1024;

using Float = float;
using Half = std::uint16_t;

inline Float bits_to_float(std::uint32_t bits) { return __builtin_bit_cast(Float, bits); }
inline std::uint32_t float_to_bits(Float value) { return __builtin_bit_cast(std::uint32_t, value); }

// bfloat16 is the upper half of a float; rounding is to the nearest, ties to even.
struct Bfloat16 {
  using Storage = Half;
  using Accumulator = Float;
  static Accumulator load(Storage x) { return bits_to_float(static_cast<std::uint32_t>(x) << 16); }
  static Storage store(Accumulator value) {
    const std::uint32_t bits = float_to_bits(value);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
    return static_cast<Storage>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  }
};

struct Float16 {
  using Storage = Half;
  using Accumulator = Float;
  static Accumulator load(Storage x) {
    const std::uint32_t sign = static_cast<std::uint32_t>(x & 0x8000u) << 16;
    const std::uint32_t body = static_cast<std::uint32_t>(x & 0x7fffu) << 13;
    // Scaling by 2^112 moves the exponent and makes subnormals right; infinities and NaN keep a full exponent.
    const std::uint32_t scaled = float_to_bits(bits_to_float(body) * 0x1p112f);
    return bits_to_float(sign | ((x & 0x7c00u) == 0x7c00u ? (body | 0x7f800000u) : scaled));
  }
  static Storage store(Accumulator value) {
    const std::uint32_t bits = float_to_bits(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    // Normal numbers: re-bias the exponent and round to nearest even. Small ones: let an addition do the shift and rounding.
    const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const std::uint32_t small = float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3f000000u;
    std::uint32_t result = magnitude < 0x38800000u ? small : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result;
    result = magnitude > 0x7f800000u ? 0x7e00u : result;
    return static_cast<Storage>(sign | result);
  }
};

template <typename T>
struct Plain {
  using Storage = T;
  using Accumulator = T;
  static Accumulator load(Storage x) { return x; }
  static Storage store(Accumulator x) { return x; }
};

struct Bool {
  using Storage = std::uint8_t;
  using Accumulator = std::uint8_t;
  static Accumulator load(Storage x) { return x != 0 ? 1 : 0; }
  static Storage store(Accumulator x) { return x; }
};

template <typename T>
struct IsFloat { static constexpr bool value = false; };
template <>
struct IsFloat<float> { static constexpr bool value = true; };
template <>
struct IsFloat<double> { static constexpr bool value = true; };

// Signed integers wrap as two's complement does.
template <typename T> struct Wrapping { using type = T; };
template <> struct Wrapping<std::int8_t> { using type = std::uint8_t; };
template <> struct Wrapping<std::int16_t> { using type = std::uint16_t; };
template <> struct Wrapping<std::int32_t> { using type = std::uint32_t; };
template <> struct Wrapping<std::int64_t> { using type = std::uint64_t; };

struct Sum {
  template <typename T>
  static T apply(T a, T b) {
    using W = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  }
};
struct Prod {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (IsFloat<T>::value) {
      return a * b;
    } else {
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    }
  }
};
struct Min {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (IsFloat<T>::value) {
      if (a != a || b != b) return a + b;
    }
    return b < a ? b : a;
  }
};
struct Max {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (IsFloat<T>::value) {
      if (a != a || b != b) return a + b;
    }
    return a < b ? b : a;
  }
};

struct Band {
  template <typename T>
  static T apply(T a, T b) { return static_cast<T>(a & b); }
};
struct Bor {
  template <typename T>
  static T apply(T a, T b) { return static_cast<T>(a | b); }
};
struct Bxor {
  template <typename T>
  static T apply(T a, T b) { return static_cast<T>(a ^ b); }
};

template <typename A>
void divide(A* block, std::size_t n, int ranks) {
  if constexpr (IsFloat<A>::value) {
    const A divisor = static_cast<A>(ranks);
    if ((ranks & (ranks - 1)) == 0) {
      const A factor = A(1) / divisor;  // exact: a power of two
      for (std::size_t i = 0; i < n; ++i) block[i] *= factor;
    } else {
      for (std::size_t i = 0; i < n; ++i) block[i] /= divisor;
    }
  } else {
    // In 64 bits: the number of ranks need not fit into an 8-bit type.
    for (std::size_t i = 0; i < n; ++i) {
      if constexpr (static_cast<A>(-1) < A(0)) {
        block[i] = static_cast<A>(static_cast<std::int64_t>(block[i]) / static_cast<std::int64_t>(ranks));
      } else {
        block[i] = static_cast<A>(static_cast<std::uint64_t>(block[i]) / static_cast<std::uint64_t>(ranks));
      }
    }
  }
}

template <typename Element, typename Op>
void run_pass(const Pass& pass, bool average) {
  using Storage = typename Element::Storage;
  using Accumulator = typename Element::Accumulator;
  alignas(64) Accumulator block[kBlock];
  for (std::size_t begin = 0; begin < pass.count; begin += kBlock) {
    const std::size_t n = pass.count - begin < kBlock ? pass.count - begin : kBlock;
    const auto* first = reinterpret_cast<const Storage*>(pass.inputs[0]) + begin;
    if (pass.input_count == 1) {
      for (std::size_t i = 0; i < n; ++i) block[i] = Element::load(first[i]);
    } else {
      const auto* second = reinterpret_cast<const Storage*>(pass.inputs[1]) + begin;
      for (std::size_t i = 0; i < n; ++i) block[i] = Op::apply(Element::load(first[i]), Element::load(second[i]));
    }
    for (int q = 2; q < pass.input_count; ++q) {
      const auto* input = reinterpret_cast<const Storage*>(pass.inputs[q]) + begin;
      for (std::size_t i = 0; i < n; ++i) block[i] = Op::apply(block[i], Element::load(input[i]));
    }
    if (average) divide(block, n, pass.input_count);
    for (int q = 0; q < pass.output_count; ++q) {
      auto* output = reinterpret_cast<Storage*>(pass.outputs[q]) + begin;
      for (std::size_t i = 0; i < n; ++i) output[i] = Element::store(block[i]);
    }
  }
}

template <typename Element>
void run_op(const Pass& pass) {
  switch (pass.op) {
    case ReduceOp::kSum: return run_pass<Element, Sum>(pass, false);
    case ReduceOp::kAvg: return run_pass<Element, Sum>(pass, true);
    case ReduceOp::kProd: return run_pass<Element, Prod>(pass, false);
    case ReduceOp::kMin: return run_pass<Element, Min>(pass, false);
    case ReduceOp::kMax: return run_pass<Element, Max>(pass, false);
    default: break;
  }
  if constexpr (!IsFloat<typename Element::Accumulator>::value) {
    switch (pass.op) {
      case ReduceOp::kBand: return run_pass<Element, Band>(pass, false);
      case ReduceOp::kBor: return run_pass<Element, Bor>(pass, false);
      case ReduceOp::kBxor: return run_pass<Element, Bxor>(pass, false);
      default: break;
    }
  }
}

// Sum and max of truth values are "or", product and min are "and".
inline void run_bool(const Pass& pass) {
  switch (pass.op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBor: return run_pass<Bool, Bor>(pass, false);
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kBand: return run_pass<Bool, Band>(pass, false);
    case ReduceOp::kBxor: return run_pass<Bool, Bxor>(pass, false);
    case ReduceOp::kAvg: break;
  }
}

void run(const Pass& pass) {
  switch (pass.type) {
    case DataType::kInt8: return run_op<Plain<std::int8_t>>(pass);
    case DataType::kUint8: return run_op<Plain<std::uint8_t>>(pass);
    case DataType::kInt16: return run_op<Plain<std::int16_t>>(pass);
    case DataType::kInt32: return run_op<Plain<std::int32_t>>(pass);
    case DataType::kInt64: return run_op<Plain<std::int64_t>>(pass);
    case DataType::kFloat16: return run_op<Float16>(pass);
    case DataType::kBfloat16: return run_op<Bfloat16>(pass);
    case DataType::kFloat32: return run_op<Plain<float>>(pass);
    case DataType::kFloat64: return run_op<Plain<double>>(pass);
    case DataType::kBool: return run_bool(pass);
  }
}
