// The loops of reduce.h. This file is included once for each instruction set, inside its namespace. It may include only
// elements.inl and choice.inl, and must not instantiate templates of the standard library. Such templates would be
// compiled for that instruction set, and the linker could use them for the whole program.
//
// The including file defines before: stream_copy(to, from, bytes), a copy with non-temporal stores; stream_fence(),
// which must follow such copies; sum_bfloat16(HalfSum) and sum_float16(HalfSum) of halves.h.
//
// A block of elements is summed in a buffer that remains in the first-level cache, and is then written to every output.

#if defined(__clang__)
#define REIGEN_ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define REIGEN_ELEMENTWISE _Pragma("GCC ivdep")
#endif

constexpr std::size_t kLine = 64;  // bytes of a cache line
constexpr std::size_t kBlock = 1024;
constexpr std::size_t kPiece = 256;  // bytes of a streaming step: few, so that reads and writes of memory overlap
constexpr std::size_t kTurn = 128;   // elements that each output gets in turn, to keep more memory channels busy

#include "comm/reduce/elements.inl"

// Stores value(i) to `first`, and to `second` unless it is null. Element i of every input is read before element i of
// any output is written. So the loop may be vectorised even if inputs and outputs are the same memory (in place).
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

// A pass over a single input needs no operation, so the passes of all operations share this function.
template <typename Element, typename Finish>
void finish_block(typename Element::Storage* first, typename Element::Storage* second,
                  const typename Element::Storage* input, std::size_t n, Finish finish) {
  store_block<Element>(first, second, n, [&](std::size_t i) { return finish(Element::load(input[i])); });
}

// Runs a sum of two inputs of 16-bit floats with the special kernels of halves.h. Returns the number of elements that
// the kernels have summed, from the first on; 0 if the pass is not such a sum.
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

// The same for a whole pass at once, if every output can be written while the inputs are read. One call for each block
// of a few kilobytes would take a fifth of the time.
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

// Whether all outputs begin on a cache line. Otherwise small pieces would cut cache lines in two.
inline bool begin_on_lines(const Pass& pass) {
  for (int q = 0; q < pass.output_count; ++q) {
    if (reinterpret_cast<std::uintptr_t>(pass.outputs[q]) % kLine != 0) return false;
  }
  return true;
}

// Runs the pass block by block. The first two outputs are written while the last input is read. A streaming pass first
// stores the result in a buffer in the first-level cache, so that whole cache lines go to one output after the other.
template <typename Element, typename Op, typename Finish>
void run_pass(const Pass& pass, Finish finish) {
  using Storage = typename Element::Storage;
  using Accumulator = typename Element::Accumulator;
  alignas(64) Accumulator block[kBlock];
  alignas(64) Storage result[kBlock];
  const int last = pass.input_count - 1;
  // No pieces for 16-bit floats: a call of their special kernels for every piece costs more time than the pieces save.
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

// Multiplies every input by its own factor, rounds the product to the accumulator's type, then adds the products.
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

#include "comm/reduce/choice.inl"

void run(const Pass& pass) { run_type(pass); }

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) {
  stream_copy(to, from, bytes);
  stream_fence();
}

#undef REIGEN_ELEMENTWISE
