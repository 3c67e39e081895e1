// The element of each type, and each operation on two elements. Only this file decides the bits of a reduction. The
// loops of the host (kernels.inl) and the kernels of the device (cuda/reduce.cu) include this file inside their
// namespaces. So the rules of kernels.inl hold: no #include, and only the integer types of the standard library.

// nvcc compiles each of these functions for the host and for the device.
#if defined(__CUDACC__)
#define REIGEN_ON_BOTH __host__ __device__
#else
#define REIGEN_ON_BOTH
#endif

using Float = float;
using Half = std::uint16_t;

REIGEN_ON_BOTH inline Float bits_to_float(std::uint32_t bits) { return __builtin_bit_cast(Float, bits); }
REIGEN_ON_BOTH inline std::uint32_t float_to_bits(Float value) { return __builtin_bit_cast(std::uint32_t, value); }

// bfloat16 is the upper half of a float. store() rounds to the nearest value, ties to even.
struct Bfloat16 {
  using Storage = Half;
  using Accumulator = Float;
  REIGEN_ON_BOTH static Accumulator load(Storage x) { return bits_to_float(static_cast<std::uint32_t>(x) << 16); }
  REIGEN_ON_BOTH static Storage store(Accumulator value) {
    const std::uint32_t bits = float_to_bits(value);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
    return static_cast<Storage>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  }
};

struct Float16 {
  using Storage = Half;
  using Accumulator = Float;
  REIGEN_ON_BOTH static Accumulator load(Storage x) {
    const std::uint32_t sign = static_cast<std::uint32_t>(x & 0x8000u) << 16;
    const std::uint32_t body = static_cast<std::uint32_t>(x & 0x7fffu) << 13;
    // Multiplication by 2^112 corrects the exponent, also of subnormals. Infinities and NaN keep an exponent of all
    // ones.
    const std::uint32_t scaled = float_to_bits(bits_to_float(body) * 0x1p112f);
    return bits_to_float(sign | ((x & 0x7c00u) == 0x7c00u ? (body | 0x7f800000u) : scaled));
  }
  REIGEN_ON_BOTH static Storage store(Accumulator value) {
    const std::uint32_t bits = float_to_bits(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    // Numbers that are normal in float16: re-bias the exponent and round to nearest even. Smaller numbers: the addition
    // of 0.5 shifts and rounds them.
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
  REIGEN_ON_BOTH static Accumulator load(Storage x) { return x; }
  REIGEN_ON_BOTH static Storage store(Accumulator x) { return x; }
};

struct Bool {
  using Storage = std::uint8_t;
  using Accumulator = std::uint8_t;
  REIGEN_ON_BOTH static Accumulator load(Storage x) { return x != 0 ? 1 : 0; }
  REIGEN_ON_BOTH static Storage store(Accumulator x) { return x; }
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

// The unsigned type in which integers are added, so that signed integers wrap around in two's complement.
template <typename T> struct Wrapping { using type = T; };
template <> struct Wrapping<std::int8_t> { using type = std::uint8_t; };
template <> struct Wrapping<std::int16_t> { using type = std::uint16_t; };
template <> struct Wrapping<std::int32_t> { using type = std::uint32_t; };
template <> struct Wrapping<std::int64_t> { using type = std::uint64_t; };

struct Sum {
  template <typename T>
  REIGEN_ON_BOTH static T apply(T a, T b) {
    using W = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  }
};
struct Prod {
  template <typename T>
  REIGEN_ON_BOTH static T apply(T a, T b) {
    if constexpr (IsFloat<T>::value) {
      return a * b;
    } else {
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    }
  }
};
struct Min {
  template <typename T>
  REIGEN_ON_BOTH static T apply(T a, T b) {
    if constexpr (IsFloat<T>::value) {
      if (a != a || b != b) return a + b;
    }
    return b < a ? b : a;
  }
};
struct Max {
  template <typename T>
  REIGEN_ON_BOTH static T apply(T a, T b) {
    if constexpr (IsFloat<T>::value) {
      if (a != a || b != b) return a + b;
    }
    return a < b ? b : a;
  }
};

struct Band {
  template <typename T>
  REIGEN_ON_BOTH static T apply(T a, T b) { return static_cast<T>(a & b); }
};
struct Bor {
  template <typename T>
  REIGEN_ON_BOTH static T apply(T a, T b) { return static_cast<T>(a | b); }
};
struct Bxor {
  template <typename T>
  REIGEN_ON_BOTH static T apply(T a, T b) { return static_cast<T>(a ^ b); }
};

// The last operation on the result of an element before it is stored.
template <typename A>
struct Keep {
  REIGEN_ON_BOTH A operator()(A value) const { return value; }
};
template <typename A>
struct Scale {
  A factor;
  REIGEN_ON_BOTH A operator()(A value) const { return value * factor; }
};
template <typename A>
struct Divide {
  A divisor;
  REIGEN_ON_BOTH A operator()(A value) const { return value / divisor; }
};
// Divides in 64 bits, because the number of ranks may not fit into an 8-bit type.
template <typename A>
struct DivideInteger {
  int divisor;
  REIGEN_ON_BOTH A operator()(A value) const {
    if constexpr (static_cast<A>(-1) < A(0)) {
      return static_cast<A>(static_cast<std::int64_t>(value) / static_cast<std::int64_t>(divisor));
    } else {
      return static_cast<A>(static_cast<std::uint64_t>(value) / static_cast<std::uint64_t>(divisor));
    }
  }
};

#undef REIGEN_ON_BOTH
