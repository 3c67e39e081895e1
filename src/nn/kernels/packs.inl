// What the loops of the layers are made of: element types, packs of elements, sums. The loops of the host (host.cc) and
// the kernels of the device (cuda/) include this file and the loops inside their namespaces, after
// comm/reduce/elements.inl. So the rules of that file hold: no #include, and only the integer types of the standard
// library.
//
// Before, the file that includes it defines
//   REIGEN_UNROLL            before a loop over the elements of a pack: on the device the loop is unrolled
//   REIGEN_UNROLL_ROWS       before a loop over rows: on the device several rows are read at a time
// and declares
//   Pack<Storage, kWidth> read<Storage, kWidth>(from), write(to, pack)    access to kWidth elements
//   exp_of(), log_of(), erf_of(), root_of()                               for float and double
//
// A Team is what computes a row: on the host one thread, on the device a warp or a block of threads.
//   each<kWidth>(count, f)      calls f(Width<w>, i) for packs of w elements from i on, which make up 0 to count - 1. On
//                               the device `count` is a multiple of kWidth. A thread gets the same elements in every
//                               loop, so threads need not wait for each other between two loops.
//   each_from_end<kWidth>(...)  the same in the opposite order
//   sum(own), largest(own)      over all threads, for all threads; the order is fixed
//   leads()                     true on one thread

#if defined(__CUDACC__)
#define REIGEN_ON_DEVICE __device__
#else
#define REIGEN_ON_DEVICE
#endif

template <typename C, int kWidth>
REIGEN_ON_DEVICE inline Pack<C, kWidth> filled(C value) {
  Pack<C, kWidth> result;
  REIGEN_UNROLL
  for (int k = 0; k < kWidth; ++k) result.at[k] = value;
  return result;
}

// Elements i to i + kWidth - 1 of the array at `from`.
template <typename Element, int kWidth>
REIGEN_ON_DEVICE inline Pack<typename Element::Accumulator, kWidth> load(const void* from, std::int64_t i) {
  using Storage = typename Element::Storage;
  const Pack<Storage, kWidth> stored = read<Storage, kWidth>(static_cast<const Storage*>(from) + i);
  Pack<typename Element::Accumulator, kWidth> result;
  REIGEN_UNROLL
  for (int k = 0; k < kWidth; ++k) result.at[k] = Element::load(stored.at[k]);
  return result;
}

template <typename Element, int kWidth>
REIGEN_ON_DEVICE inline void store(void* to, std::int64_t i, const Pack<typename Element::Accumulator, kWidth>& values) {
  using Storage = typename Element::Storage;
  Pack<Storage, kWidth> stored;
  REIGEN_UNROLL
  for (int k = 0; k < kWidth; ++k) stored.at[k] = Element::store(values.at[k]);
  write(static_cast<Storage*>(to) + i, stored);
}

// The pack from an array that may be missing: then every element is `otherwise`.
template <typename Element, int kWidth>
REIGEN_ON_DEVICE inline Pack<typename Element::Accumulator, kWidth> load_or(typename Element::Accumulator otherwise,
                                                                            const void* from, std::int64_t i) {
  if (from == nullptr) return filled<typename Element::Accumulator, kWidth>(otherwise);
  return load<Element, kWidth>(from, i);
}

// The sum of kCount numbers, in pairs.
template <int kCount, typename C>
REIGEN_ON_DEVICE inline C folded(const C* at) {
  if constexpr (kCount == 1) {
    return at[0];
  } else {
    return folded<kCount / 2>(at) + folded<kCount / 2>(at + kCount / 2);
  }
}

// One sum for each place of a pack.
template <typename C, int kWidth>
struct Lanes {
  Pack<C, kWidth> sums;
  REIGEN_ON_DEVICE Lanes() : sums(filled<C, kWidth>(C(0))) {}
  REIGEN_ON_DEVICE void add(int place, C value) { sums.at[place] += value; }
  REIGEN_ON_DEVICE C total() const { return folded<kWidth>(sums.at); }
};

// The types of a call. kWidth is the width of its packs: 16 bytes of the wide type, or fewer if the narrow type is
// another one.
template <typename W, typename N, int kPack>
struct TypesOf {
  using Wide = W;
  using Narrow = N;
  using Computed = typename W::Accumulator;
  static constexpr int kWidth = kPack;
  // The same types, element by element. A kernel uses them if addresses or sizes do not allow packs.
  using Single = TypesOf<W, N, 1>;
};

// Calls work.operator()<TypesOf<...>>() if there is only one type. Returns whether it did.
template <typename Work>
inline bool with_one_type(int types, const Work& work) {
  switch (static_cast<device::ModelTypes>(types)) {
    case device::ModelTypes::kFloat64:
      work.template operator()<TypesOf<Plain<double>, Plain<double>, 2>>();
      return true;
    case device::ModelTypes::kFloat32: work.template operator()<TypesOf<Plain<float>, Plain<float>, 4>>(); return true;
    case device::ModelTypes::kBfloat16: work.template operator()<TypesOf<Bfloat16, Bfloat16, 8>>(); return true;
    case device::ModelTypes::kFloat16: work.template operator()<TypesOf<Float16, Float16, 8>>(); return true;
    case device::ModelTypes::kFloat32Bfloat16:
    case device::ModelTypes::kFloat32Float16: break;
  }
  return false;
}

// The same for all types. Returns false if there are no such types.
template <typename Work>
inline bool with_types(int types, const Work& work) {
  switch (static_cast<device::ModelTypes>(types)) {
    case device::ModelTypes::kFloat32Bfloat16:
      work.template operator()<TypesOf<Plain<float>, Bfloat16, 4>>();
      return true;
    case device::ModelTypes::kFloat32Float16:
      work.template operator()<TypesOf<Plain<float>, Float16, 4>>();
      return true;
    default: return with_one_type(types, work);
  }
}

// device::sums_of() is a function of the host.
REIGEN_ON_DEVICE inline std::int64_t blocks_of(std::int64_t rows) {
  return (rows + device::kRowsOfSum - 1) / device::kRowsOfSum;
}

// The rows of a block. The sums of batch normalisations have longer blocks (batch_norm.inl).
struct RowsOfBlock {
  std::int64_t first;
  std::int64_t last;
  REIGEN_ON_DEVICE RowsOfBlock(std::int64_t block, std::int64_t rows, std::int64_t of_block = device::kRowsOfSum)
      : first(block * of_block), last(first + of_block < rows ? first + of_block : rows) {}
};

// The second step of a sum over rows: the sum of every kSlices-th block's sum, from block `slice` on. The slices are
// then added in their order.
constexpr int kSlices = 16;
template <typename C>
REIGEN_ON_DEVICE inline C slice_of(const C* parts, std::int64_t blocks, std::int64_t columns, std::int64_t column,
                                   int slice) {
  C sum = 0;
  REIGEN_UNROLL_ROWS
  for (std::int64_t block = slice; block < blocks; block += kSlices) sum += parts[block * columns + column];
  return sum;
}
