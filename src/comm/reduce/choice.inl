// Chooses the loop for the type and operation of a pass. The code of the host (kernels.inl) and of the device
// (cuda/reduce.cu) includes this file inside its namespace. Before that it includes elements.inl and defines Pass,
// run_pass<Element, Op>(pass, finish) and run_scaled<Element>(pass). For a reduction that is not defined
// (comm/types.h), either no loop or the loop of another operation runs.

template <typename Element>
void run_average(const Pass& pass) {
  using A = typename Element::Accumulator;
  const int divisor = pass.divisor != 0 ? pass.divisor : pass.input_count;
  if constexpr (IsFloat<A>::value) {
    const A ranks = static_cast<A>(divisor);
    if ((divisor & (divisor - 1)) == 0) {
      run_pass<Element, Sum>(pass, Scale<A>{A(1) / ranks});  // exact, because the divisor is a power of two
    } else {
      run_pass<Element, Sum>(pass, Divide<A>{ranks});
    }
  } else {
    run_pass<Element, Sum>(pass, DivideInteger<A>{divisor});
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

// Bitwise operations run on bytes, whatever the integer type. So the other integer types need no kernels. Each kernel
// costs a third of a second of build time for each instruction set.
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
  // A sum or product that wraps around has the same bits for signed and unsigned integers, so int8 runs as uint8.
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

// The sum and the maximum of bools are "or"; the product and the minimum are "and".
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

inline void run_type(const Pass& pass) {
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
