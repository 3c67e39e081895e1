// The loops behind reduce.h; included once for each instruction set, inside its namespace. No #include may stand here, and
// nothing from the standard library may be instantiated: it would be compiled for that instruction set and shared by all.
//
// Who includes it defines before: stream_copy(to, from, bytes) and stream_fence(), a copy that leaves the caches out;
// sum_bfloat16(HalfSum) and sum_float16(HalfSum) of halves.h.
//
// A block of elements is summed in a buffer that stays in the first-level cache, then written to every output.

#if defined(__clang__)
#define REIGEN_ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define REIGEN_ELEMENTWISE _Pragma("GCC ivdep")
#endif

constexpr std::size_t kLine = 64;  // bytes of the caches
constexpr std::size_t kBlock = 1024;
constexpr std::size_t kPiece = 256;  // bytes past the caches: so few that memory is read and written at the same time
constexpr std::size_t kTurn = 128;   // elements: outputs by turns keep more of the memory's channels busy

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

template <typename A, typename B>
struct IsSame { static constexpr bool value = false; };
template <typename A>
struct IsSame<A, A> { static constexpr bool value = true; };

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

// What is done to the result of an element before it is stored.
template <typename A>
struct Keep {
  A operator()(A value) const { return value; }
};
template <typename A>
struct Scale {
  A factor;
  A operator()(A value) const { return value * factor; }
};
template <typename A>
struct Divide {
  A divisor;
  A operator()(A value) const { return value / divisor; }
};
// In 64 bits: the number of ranks need not fit into an 8-bit type.
template <typename A>
struct DivideInteger {
  int divisor;
  A operator()(A value) const {
    if constexpr (static_cast<A>(-1) < A(0)) {
      return static_cast<A>(static_cast<std::int64_t>(value) / static_cast<std::int64_t>(divisor));
    } else {
      return static_cast<A>(static_cast<std::uint64_t>(value) / static_cast<std::uint64_t>(divisor));
    }
  }
};

// Element i of every buffer is read before element i of any is written, so loops may be vectorised though in place
// inputs and outputs are the same memory.
template <typename Element, typename Value>
void store_block(typename Element::Storage* first, typename Element::Storage* second, std::size_t n, Value value) {
  if (second == nullptr) {
    REIGEN_ELEMENTWISE
    for (std::size_t i = 0; i < n; ++i) first[i] = Element::store(value(i));
    return;
  }
  REIGEN_ELEMENTWISE
  for (std::size_t i = 0; i < n; ++i) {
    const auto stored = Element::store(value(i));
    first[i] = stored;
    second[i] = stored;
  }
}

template <typename Storage>
void copy_block(Storage* to, const Storage* from, std::size_t n) {
  REIGEN_ELEMENTWISE
  for (std::size_t i = 0; i < n; ++i) to[i] = from[i];
}

// A pass over a single input needs no operation: passes of all operations share this function.
template <typename Element, typename Finish>
void finish_block(typename Element::Storage* first, typename Element::Storage* second,
                  const typename Element::Storage* input, std::size_t n, Finish finish) {
  store_block<Element>(first, second, n, [&](std::size_t i) { return finish(Element::load(input[i])); });
}

// What the special kernels did of a sum of two inputs.
template <typename Element, typename Op, typename Finish>
std::size_t sum_halves(const HalfSum& sum, Finish finish) {
  if constexpr (IsSame<Op, Sum>::value && IsSame<Finish, Keep<Float>>::value) {
    if constexpr (IsSame<Element, Bfloat16>::value) return sum_bfloat16(sum);
    if constexpr (IsSame<Element, Float16>::value) return sum_float16(sum);
  }
  if constexpr (IsSame<Op, Sum>::value && IsSame<Finish, Scale<Float>>::value) {
    HalfSum scaled = sum;
    scaled.factor = finish.factor;
    if constexpr (IsSame<Element, Bfloat16>::value) return sum_bfloat16(scaled);
    if constexpr (IsSame<Element, Float16>::value) return sum_float16(scaled);
  }
  return 0;
}

// The same of a whole pass, where every output is written as the inputs are read: a call for every block of a few
// kilobytes takes a fifth of the time.
template <typename Element, typename Op, typename Finish>
std::size_t sum_whole(const Pass& pass, Finish finish) {
  if constexpr (IsSame<typename Element::Storage, Half>::value) {
    if (pass.input_count != 2 || pass.output_count > 2 || pass.streaming) return 0;
    return sum_halves<Element, Op>({.a = reinterpret_cast<const Half*>(pass.inputs[0]),
                                    .b = reinterpret_cast<const Half*>(pass.inputs[1]),
                                    .first = reinterpret_cast<Half*>(pass.outputs[0]),
                                    .second = pass.output_count > 1 ? reinterpret_cast<Half*>(pass.outputs[1]) : nullptr,
                                    .count = pass.count,
                                    .factor = 1},
                                   finish);
  } else {
    return 0;
  }
}

// Else small pieces would cut lines in two.
inline bool begin_on_lines(const Pass& pass) {
  for (int q = 0; q < pass.output_count; ++q) {
    if (reinterpret_cast<std::uintptr_t>(pass.outputs[q]) % kLine != 0) return false;
  }
  return true;
}

// The first two outputs are written as the last input is read. Streaming, the result stops in the first-level cache on
// its way, so that whole lines leave it one output after the other.
template <typename Element, typename Op, typename Finish>
void run_pass(const Pass& pass, Finish finish) {
  using Storage = typename Element::Storage;
  using Accumulator = typename Element::Accumulator;
  alignas(64) Accumulator block[kBlock];
  alignas(64) Storage result[kBlock];
  const int last = pass.input_count - 1;
  // The special kernels of halves are called for every piece, which costs more than it gains.
  const bool in_pieces = pass.streaming && !IsSame<Storage, Half>::value && begin_on_lines(pass);
  const std::size_t step = in_pieces ? kPiece / sizeof(Storage) : kBlock;
  for (std::size_t begin = sum_whole<Element, Op>(pass, finish); begin < pass.count; begin += step) {
    const std::size_t n = pass.count - begin < step ? pass.count - begin : step;
    const auto input = [&](int q) { return reinterpret_cast<const Storage*>(pass.inputs[q]) + begin; };
    const auto output = [&](int q) { return reinterpret_cast<Storage*>(pass.outputs[q]) + begin; };
    Storage* const first_output = pass.streaming ? result : output(0);
    Storage* const second_output = !pass.streaming && pass.output_count > 1 ? output(1) : nullptr;
    const Storage* const a = input(0);
    const Storage* const z = input(last);
    if (last == 0) {
      finish_block<Element>(first_output, second_output, a, n, finish);
    } else if (last == 1) {
      std::size_t done = 0;
      if constexpr (IsSame<Storage, Half>::value) {
        done = sum_halves<Element, Op>(
            {.a = a, .b = z, .first = first_output, .second = second_output, .count = n, .factor = 1}, finish);
      }
      store_block<Element>(first_output + done, second_output == nullptr ? nullptr : second_output + done, n - done,
                           [&, done](std::size_t i) {
                             return finish(Op::apply(Element::load(a[done + i]), Element::load(z[done + i])));
                           });
    } else {
      const Storage* const b = input(1);
      for (std::size_t i = 0; i < n; ++i) block[i] = Op::apply(Element::load(a[i]), Element::load(b[i]));
      for (int q = 2; q < last; ++q) {
        const Storage* const c = input(q);
        for (std::size_t i = 0; i < n; ++i) block[i] = Op::apply(block[i], Element::load(c[i]));
      }
      store_block<Element>(first_output, second_output, n,
                           [&](std::size_t i) { return finish(Op::apply(block[i], Element::load(z[i]))); });
    }
    if (pass.streaming) {
      for (std::size_t at = 0; at < n; at += kTurn) {
        const std::size_t m = n - at < kTurn ? n - at : kTurn;
        for (int q = 0; q < pass.output_count; ++q) stream_copy(output(q) + at, result + at, m * sizeof(Storage));
      }
    } else {
      for (int q = 2; q < pass.output_count; ++q) copy_block(output(q), static_cast<const Storage*>(first_output), n);
    }
  }
  if (pass.streaming) stream_fence();
}

template <typename Element>
void run_average(const Pass& pass) {
  using A = typename Element::Accumulator;
  const int divisor = pass.divisor != 0 ? pass.divisor : pass.input_count;
  if constexpr (IsFloat<A>::value) {
    const A ranks = static_cast<A>(divisor);
    if ((divisor & (divisor - 1)) == 0) {
      run_pass<Element, Sum>(pass, Scale<A>{A(1) / ranks});  // exact: a power of two
    } else {
      run_pass<Element, Sum>(pass, Divide<A>{ranks});
    }
  } else {
    run_pass<Element, Sum>(pass, DivideInteger<A>{divisor});
  }
}

// Every input times its own factor, rounded to the accumulator's type, then added.
template <typename Element>
void run_scaled(const Pass& pass) {
  using Storage = typename Element::Storage;
  using Accumulator = typename Element::Accumulator;
  if constexpr (IsFloat<Accumulator>::value) {
    alignas(64) Accumulator block[kBlock];
    for (std::size_t begin = 0; begin < pass.count; begin += kBlock) {
      const std::size_t n = pass.count - begin < kBlock ? pass.count - begin : kBlock;
      for (int q = 0; q < pass.input_count; ++q) {
        const auto* input = reinterpret_cast<const Storage*>(pass.inputs[q]) + begin;
        const auto factor = static_cast<Accumulator>(pass.factors[q]);
        if (q == 0) {
          for (std::size_t i = 0; i < n; ++i) block[i] = Element::load(input[i]) * factor;
        } else {
          for (std::size_t i = 0; i < n; ++i) block[i] = block[i] + Element::load(input[i]) * factor;
        }
      }
      for (int q = 0; q < pass.output_count; ++q) {
        auto* output = reinterpret_cast<Storage*>(pass.outputs[q]) + begin;
        for (std::size_t i = 0; i < n; ++i) output[i] = Element::store(block[i]);
      }
    }
  }
}

template <typename Element>
void run_op(const Pass& pass) {
  using A = typename Element::Accumulator;
  switch (pass.op) {
    case ReduceOp::kSum:
      return pass.factors != nullptr ? run_scaled<Element>(pass) : run_pass<Element, Sum>(pass, Keep<A>{});
    case ReduceOp::kAvg: return run_average<Element>(pass);
    case ReduceOp::kProd: return run_pass<Element, Prod>(pass, Keep<A>{});
    case ReduceOp::kMin: return run_pass<Element, Min>(pass, Keep<A>{});
    case ReduceOp::kMax: return run_pass<Element, Max>(pass, Keep<A>{});
    default: return;
  }
}

// Operations on bits work on bytes, whatever the integer type. Every kernel that is not compiled spares a build a third
// of a second for each instruction set.
inline void run_bits(Pass pass, std::size_t element_bytes) {
  using Byte = std::uint8_t;
  pass.count *= element_bytes;
  switch (pass.op) {
    case ReduceOp::kBand: return run_pass<Plain<Byte>, Band>(pass, Keep<Byte>{});
    case ReduceOp::kBor: return run_pass<Plain<Byte>, Bor>(pass, Keep<Byte>{});
    default: return run_pass<Plain<Byte>, Bxor>(pass, Keep<Byte>{});
  }
}

template <typename T>
void run_integer(const Pass& pass) {
  const bool takes_bits = pass.op == ReduceOp::kBand || pass.op == ReduceOp::kBor || pass.op == ReduceOp::kBxor;
  if (takes_bits) return run_bits(pass, sizeof(T));
  // A sum or product that wraps has the same bits with and without a sign.
  if constexpr (IsSame<T, std::int8_t>::value) {
    if (pass.op == ReduceOp::kSum || pass.op == ReduceOp::kProd) return run_op<Plain<std::uint8_t>>(pass);
    switch (pass.op) {
      case ReduceOp::kAvg: return run_average<Plain<T>>(pass);
      case ReduceOp::kMin: return run_pass<Plain<T>, Min>(pass, Keep<T>{});
      default: return run_pass<Plain<T>, Max>(pass, Keep<T>{});
    }
  } else {
    run_op<Plain<T>>(pass);
  }
}

// Sum and max of truth values are "or", product and min are "and".
inline void run_bool(const Pass& pass) {
  switch (pass.op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBor: return run_pass<Bool, Bor>(pass, Keep<std::uint8_t>{});
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kBand: return run_pass<Bool, Band>(pass, Keep<std::uint8_t>{});
    case ReduceOp::kBxor: return run_pass<Bool, Bxor>(pass, Keep<std::uint8_t>{});
    case ReduceOp::kAvg: break;
  }
}

void run(const Pass& pass) {
  switch (pass.type) {
    case DataType::kInt8: return run_integer<std::int8_t>(pass);
    case DataType::kUint8: return run_integer<std::uint8_t>(pass);
    case DataType::kInt16: return run_integer<std::int16_t>(pass);
    case DataType::kInt32: return run_integer<std::int32_t>(pass);
    case DataType::kInt64: return run_integer<std::int64_t>(pass);
    case DataType::kFloat16: return run_op<Float16>(pass);
    case DataType::kBfloat16: return run_op<Bfloat16>(pass);
    case DataType::kFloat32: return run_op<Plain<float>>(pass);
    case DataType::kFloat64: return run_op<Plain<double>>(pass);
    case DataType::kBool: return run_bool(pass);
  }
}

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) {
  stream_copy(to, from, bytes);
  stream_fence();
}

#undef REIGEN_ELEMENTWISE
