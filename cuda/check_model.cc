// For a machine with a GPU: do the kernels for the layers of models (libreigen_cuda.so) give the numbers of the host,
// and how fast are they?
//
// The program runs every kernel on every element type and many sizes, on host and GPU, and compares the results. Sums
// of a row have another order on the GPU, and exp, log and erf are those of CUDA, so most results may differ by
// rounding. Rotary embedding and the gradient of an embedding must have the same bits. Then the program measures the
// kernels (model_speeds.h). With --speed it only measures, once for each line of standard input; --small takes small
// sizes. The exit code is 1 if any result differs, and 69 if there is no GPU.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "check_tools.h"
#include "device/kernel_calls.h"
#include "model_speeds.h"
#include "nn/kernels/host.h"

namespace reigen::nn::kernels::checks {
namespace {

#include "comm/reduce/elements.inl"

using device::check;
using device::Memory;
using device::ModelTypes;

enum class Kind { kWide, kNarrow, kComputed, kDouble, kNumber };

constexpr ModelTypes kOneType[] = {ModelTypes::kFloat64, ModelTypes::kFloat32, ModelTypes::kBfloat16,
                                   ModelTypes::kFloat16};
constexpr ModelTypes kAllTypes[] = {ModelTypes::kFloat64, ModelTypes::kFloat32,         ModelTypes::kBfloat16,
                                    ModelTypes::kFloat16, ModelTypes::kFloat32Bfloat16, ModelTypes::kFloat32Float16};

// The element of an array, as one of the types of one element.
ModelTypes element_of(ModelTypes types, Kind kind) {
  if (kind == Kind::kDouble) return ModelTypes::kFloat64;
  if (kind == Kind::kComputed) return types == ModelTypes::kFloat64 ? ModelTypes::kFloat64 : ModelTypes::kFloat32;
  if (types == ModelTypes::kFloat32Bfloat16) return kind == Kind::kWide ? ModelTypes::kFloat32 : ModelTypes::kBfloat16;
  if (types == ModelTypes::kFloat32Float16) return kind == Kind::kWide ? ModelTypes::kFloat32 : ModelTypes::kFloat16;
  return types;
}
std::size_t size_of(ModelTypes types, Kind kind) {
  if (kind == Kind::kNumber) return sizeof(long long);
  const ModelTypes element = element_of(types, kind);
  return element == ModelTypes::kFloat64 ? 8 : element == ModelTypes::kFloat32 ? 4 : 2;
}
void put(std::byte* to, ModelTypes element, double value) {
  const auto single = static_cast<float>(value);
  const std::uint16_t half = element == ModelTypes::kBfloat16 ? Bfloat16::store(single) : Float16::store(single);
  if (element == ModelTypes::kFloat64) {
    std::memcpy(to, &value, sizeof(value));
  } else if (element == ModelTypes::kFloat32) {
    std::memcpy(to, &single, sizeof(single));
  } else {
    std::memcpy(to, &half, sizeof(half));
  }
}
double get(const std::byte* from, ModelTypes element) {
  double value = 0;
  float single = 0;
  std::uint16_t half = 0;
  if (element == ModelTypes::kFloat64) {
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  if (element == ModelTypes::kFloat32) {
    std::memcpy(&single, from, sizeof(single));
    return static_cast<double>(single);
  }
  std::memcpy(&half, from, sizeof(half));
  return static_cast<double>(element == ModelTypes::kBfloat16 ? Bfloat16::load(half) : Float16::load(half));
}
// The largest difference of two neighbours that are both about 1.
double unit_of(ModelTypes element) {
  switch (element) {
    case ModelTypes::kFloat64: return 1e-15;
    case ModelTypes::kFloat32: return 2.4e-7;
    case ModelTypes::kFloat16: return 0x1p-10;
    default: return 0x1p-7;
  }
}

// The arrays of one case, on the host and on the GPU.
class Arrays {
 public:
  // Every array begins `shift` elements after a multiple of 256 bytes.
  Arrays(ModelTypes types, int shift) : types_(types), shift_(static_cast<std::size_t>(shift)) {}

  int types() const { return static_cast<int>(types_); }
  int random(Kind kind, std::int64_t count, double scale = 1) {
    const int number = add(kind, count, false);
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < count; ++i) put(at(number, i), element_of(types_, kind), normal(generator_) * scale);
    return number;
  }
  int numbers(const std::vector<long long>& values) {
    const int number = add(Kind::kNumber, static_cast<std::int64_t>(values.size()), false);
    if (!values.empty()) std::memcpy(at(number, 0), values.data(), values.size() * sizeof(long long));
    return number;
  }
  int constant(Kind kind, double value) {
    const int number = add(kind, 1, false);
    put(at(number, 0), element_of(types_, kind), value);
    return number;
  }
  // A number of a result may differ by the rounding of sums. These are as large as the largest number of the `row`
  // elements around it, or of the whole array if `row` is 0.
  int result(Kind kind, std::int64_t count, std::int64_t row = 0) { return add(kind, count, true, row); }
  // A result that has values before.
  int changed(Kind kind, std::int64_t count, std::int64_t row = 0) {
    const int number = random(kind, count, 3);
    Array& array = arrays_[static_cast<std::size_t>(number)];
    array.is_result = true;
    array.row = row;
    return number;
  }

  std::byte* host(int number) { return at(number, 0); }
  std::byte* gpu(int number) {
    Array& array = arrays_[static_cast<std::size_t>(number)];
    return array.gpu->at(shift_ * size_of(types_, array.kind));
  }
  void to_gpu() {
    for (Array& array : arrays_) {
      array.gpu = std::make_unique<Memory>(array.host.size());
      check(cudaMemcpy(array.gpu->at(0), array.host.data(), array.host.size(), cudaMemcpyHostToDevice), "a copy");
    }
  }
  // Compares the results. Returns a text that is empty if they agree.
  std::string difference(bool same_bits) {
    for (std::size_t number = 0; number < arrays_.size(); ++number) {
      Array& array = arrays_[number];
      if (!array.is_result) continue;
      std::vector<std::byte> got(array.host.size());
      check(cudaMemcpy(got.data(), array.gpu->at(0), got.size(), cudaMemcpyDeviceToHost), "a result's copy");
      if (same_bits && got != array.host) return fmt::format("array {} has other bits", number);
      const std::string found = same_bits ? "" : apart(array, got);
      if (!found.empty()) return fmt::format("array {}{}", number, found);
    }
    return {};
  }

 private:
  struct Array {
    Kind kind;
    std::int64_t count;
    bool is_result;
    std::int64_t row;
    std::vector<std::byte> host = {};
    std::unique_ptr<Memory> gpu = {};
  };
  int add(Kind kind, std::int64_t count, bool is_result, std::int64_t row = 0) {
    Array array{.kind = kind, .count = count, .is_result = is_result, .row = row};
    array.host.resize((static_cast<std::size_t>(count) + shift_ + 1) * size_of(types_, kind));
    arrays_.push_back(std::move(array));
    return static_cast<int>(arrays_.size()) - 1;
  }
  std::byte* at(int number, std::int64_t i) {
    Array& array = arrays_[static_cast<std::size_t>(number)];
    return array.host.data() + (static_cast<std::size_t>(i) + shift_) * size_of(types_, array.kind);
  }
  // The largest finite number of the host's elements from `begin` to `end` - 1.
  double largest_of(const Array& array, std::size_t begin, std::size_t end) const {
    const std::size_t size = size_of(types_, array.kind);
    double largest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const double known = get(array.host.data() + i * size, element_of(types_, array.kind));
      if (std::isfinite(known)) largest = std::max(largest, std::abs(known));
    }
    return largest;
  }
  std::string apart(const Array& array, const std::vector<std::byte>& got) const {
    const ModelTypes element = element_of(types_, array.kind);
    const std::size_t size = size_of(types_, array.kind);
    const std::size_t elements = array.host.size() / size;
    const std::size_t row = array.row > 0 ? static_cast<std::size_t>(array.row) : elements;
    // A number may differ by one unit of its own type, and by the rounding of sums. The gradient of a logit whose
    // probability is almost 1 is the difference of two numbers that are larger than all gradients of its row, so a row
    // counts at least a hundredth of the whole array.
    const double sums = types_ == ModelTypes::kFloat64 ? 1e-12 : 2e-5;
    const double least = largest_of(array, 0, elements) / 100;
    // The elements before and after those of the array are 0. They make up rows of their own.
    for (std::size_t begin = 0, end = array.row > 0 ? shift_ : elements; begin < elements;
         begin = end, end = std::min(elements, end + row)) {
      const double rounding = sums * std::max(least, largest_of(array, begin, end));
      for (std::size_t i = begin; i < end; ++i) {
        const double known = get(array.host.data() + i * size, element);
        const double found = get(got.data() + i * size, element);
        if (std::isnan(known) && std::isnan(found)) continue;
        if (!(std::abs(found - known) <= unit_of(element) * std::abs(known) + rounding)) {
          return fmt::format("[{}] is {}, on the host {}", i, found, known);
        }
      }
    }
    return {};
  }

  ModelTypes types_;
  std::size_t shift_;
  std::vector<Array> arrays_;
  std::mt19937_64 generator_{7};
};

using Address = std::function<std::byte*(int)>;
void in_one_part(std::int64_t count, std::int64_t, const Part& part) { part(0, count); }

struct Size {
  std::int64_t rows;
  std::int64_t columns;
};
constexpr Size kSizes[] = {{1, 1},     {3, 3},    {37, 17},   {65, 1000}, {40, 1031}, {129, 768},
                           {20, 4096}, {5, 8200}, {3, 50257}, {3, 50304}, {1100, 24}};

class Comparison {
 public:
  // make(types, at) returns the call, whose addresses are at(number of an array).
  template <typename Call, typename Make>
  void compare(const char* name, int (*function)(const Call*, void*), Arrays& arrays, const std::string& what,
               const Make& make, bool same_bits = false) {
    arrays.to_gpu();
    const Call there = make([&](int number) { return number < 0 ? nullptr : arrays.gpu(number); });
    const Call here = make([&](int number) { return number < 0 ? nullptr : arrays.host(number); });
    run(here, in_one_part);
    check(function(&there, nullptr), name);
    check(cudaDeviceSynchronize(), name);
    const std::string found = arrays.difference(same_bits);
    ++cases_;
    if (found.empty()) return;
    ++failures_;
    fmt::print("{}, {}: {}\n", name, what, found);
  }
  // Calls compare(types, shift, size, text) for all types, sizes and alignments.
  template <typename Types, typename Compare>
  static void each(const Types& all, const Compare& compare) {
    for (const ModelTypes types : all) {
      for (const Size& size : kSizes) {
        for (const int shift : {0, 1}) {
          compare(types, shift, size,
                  fmt::format("types {}, {} x {}, shift {}", static_cast<int>(types), size.rows, size.columns, shift));
        }
      }
    }
  }
  long cases() const { return cases_; }
  long failures() const { return failures_; }

 private:
  long cases_ = 0;
  long failures_ = 0;
};

template <typename Function>
Function* plugin(const char* name) {
  return device::function_of_plugin<Function*>(name);
}

// Whether a call has all its arrays. Those that may be missing are null otherwise.
struct Has {
  bool added;   // and the gradient of the sum
  bool affine;  // weight, bias and their gradients, and the gradient of what was added
  std::string text() const { return fmt::format(", added {}, affine {}", added, affine); }
};
constexpr Has kHas[] = {{true, true}, {false, true}, {true, false}, {false, false}};

void compare_norm(Comparison& comparison, ModelTypes types, int shift, const Size& s, const std::string& what,
                  bool layer, const Has& has) {
  const std::int64_t count = s.rows * s.columns;
  Arrays a(types, shift);
  const int x = a.random(Kind::kWide, count), d = has.added ? a.random(Kind::kNarrow, count) : -1;
  const int weight = has.affine ? a.random(Kind::kWide, s.columns) : -1;
  const int bias = has.affine && layer ? a.random(Kind::kWide, s.columns) : -1;
  const int sum = has.added ? a.result(Kind::kWide, count, s.columns) : -1;
  const int output = a.result(Kind::kNarrow, count, s.columns);
  const int mean = layer ? a.result(Kind::kComputed, s.rows) : -1, rstd = a.result(Kind::kComputed, s.rows);
  comparison.compare("norm", plugin<decltype(reigen_cuda_norm)>("reigen_cuda_norm"), a, what, [&](const Address& at) {
    return device::NormCall{at(x),    at(d),    at(sum), at(weight), at(bias), at(output),
                            at(mean), at(rstd), s.rows,  s.columns,  1e-5,     a.types()};
  });
  Arrays b(types, shift);
  const int of_output = b.random(Kind::kNarrow, count), of_sum = has.added ? b.random(Kind::kWide, count) : -1;
  const int y = b.random(Kind::kWide, count), w = has.affine ? b.random(Kind::kWide, s.columns) : -1;
  const int means = layer ? b.random(Kind::kComputed, s.rows, 0.1) : -1, rstds = b.random(Kind::kComputed, s.rows);
  const int of_x = b.result(Kind::kWide, count, s.columns);
  const int of_d = has.affine ? b.result(Kind::kNarrow, count, s.columns) : -1;
  comparison.compare("norm's backward", plugin<decltype(reigen_cuda_norm_backward)>("reigen_cuda_norm_backward"), b,
                     what, [&](const Address& at) {
                       return device::NormBackwardCall{at(of_output), at(of_sum), at(y),    at(w),
                                                       at(means),     at(rstds),  at(of_x), at(of_d),
                                                       s.rows,        s.columns,  b.types()};
                     });
  const int parts = b.result(Kind::kComputed, (has.affine ? 2 : 1) * device::sums_of(s.rows) * s.columns);
  const int of_weight = b.result(Kind::kWide, s.columns);
  const int of_bias = has.affine ? b.result(Kind::kWide, s.columns) : -1;
  comparison.compare("norm's sums", plugin<decltype(reigen_cuda_norm_sums)>("reigen_cuda_norm_sums"), b, what,
                     [&](const Address& at) {
                       return device::NormSumsCall{at(of_output), at(y),       at(means), at(rstds), at(parts),
                                                   at(of_weight), at(of_bias), s.rows,    s.columns, b.types()};
                     });
}

void compare_norms(Comparison& comparison) {
  Comparison::each(kAllTypes, [&](ModelTypes types, int shift, const Size& s, const std::string& what) {
    for (const bool layer : {true, false}) {
      for (const Has& has : kHas) compare_norm(comparison, types, shift, s, what + has.text(), layer, has);
    }
  });
}

// The sums of a batch normalisation have the order of the host, so all its calls give the bits of the host.
void compare_batch_norm(Comparison& comparison, ModelTypes types, int shift, const Size& s, const std::string& what,
                        const Has& has, bool relu) {
  const std::int64_t count = s.rows * s.columns;
  const std::int64_t parts_of = 2 * device::batch_sums_of(s.rows) * s.columns;
  Arrays a(types, shift);
  const int x = a.random(Kind::kNarrow, count), residual = has.added ? a.random(Kind::kNarrow, count) : -1;
  const int weight = has.affine ? a.random(Kind::kWide, s.columns) : -1;
  const int bias = has.affine ? a.random(Kind::kWide, s.columns) : -1;
  const int running_mean = has.affine ? a.changed(Kind::kWide, s.columns) : -1;
  const int running_var = has.affine ? a.changed(Kind::kWide, s.columns) : -1;
  const int parts = a.result(Kind::kComputed, parts_of);
  const int mean = a.result(Kind::kComputed, s.columns), rstd = a.result(Kind::kComputed, s.columns);
  const int output = a.result(Kind::kNarrow, count), of_x = a.result(Kind::kNarrow, count);
  const int of_output = a.random(Kind::kNarrow, count), of_residual = has.added ? a.result(Kind::kNarrow, count) : -1;
  const int sums = a.result(Kind::kComputed, parts_of);
  const int of_weight = a.result(Kind::kComputed, s.columns), of_bias = a.result(Kind::kComputed, s.columns);
  // Each call reads what the calls before it have written.
  const auto exact = [&](const char* name, auto* function, const auto& make) {
    comparison.compare(name, function, a, what, make, true);
  };
  exact("batch statistics", plugin<decltype(reigen_cuda_batch_statistics)>("reigen_cuda_batch_statistics"),
        [&](const Address& at) {
          return device::BatchStatisticsCall{at(x),  at(parts), at(mean), at(rstd), at(running_mean), at(running_var),
                                             s.rows, s.columns, 0.1,      1e-5,     a.types()};
        });
  exact("batch norm", plugin<decltype(reigen_cuda_batch_norm)>("reigen_cuda_batch_norm"), [&](const Address& at) {
    return device::BatchNormCall{at(x),      at(residual), at(weight), at(bias), at(mean), at(rstd),
                                 at(output), s.rows,       s.columns,  relu,     a.types()};
  });
  exact("batch norm's sums", plugin<decltype(reigen_cuda_batch_norm_sums)>("reigen_cuda_batch_norm_sums"),
        [&](const Address& at) {
          const int kept = has.added ? output : -1;
          return device::BatchNormSumsCall{at(of_output), at(x),    at(kept),        at(weight), at(bias),
                                           at(mean),      at(rstd), at(of_residual), at(sums),   at(of_weight),
                                           at(of_bias),   s.rows,   s.columns,       relu,       a.types()};
        });
  exact("batch norm's backward", plugin<decltype(reigen_cuda_batch_norm_backward)>("reigen_cuda_batch_norm_backward"),
        [&](const Address& at) {
          const int g = has.added ? of_residual : of_output;
          return device::BatchNormBackwardCall{
              at(g),       at(x),    at(weight), at(bias),  at(mean),           at(rstd), at(of_weight),
              at(of_bias), at(of_x), s.rows,     s.columns, relu && !has.added, a.types()};
        });
}

void compare_batch_norms(Comparison& comparison) {
  // So many rows have longer blocks.
  const Size many{3 * device::kRowsOfSum * device::kMostBatchSums + 45, 4};
  for (const ModelTypes types : {ModelTypes::kFloat32, ModelTypes::kFloat32Bfloat16}) {
    compare_batch_norm(comparison, types, 0, many,
                       fmt::format("types {}, {} x {}", static_cast<int>(types), many.rows, many.columns), {true, true},
                       true);
  }
  Comparison::each(kAllTypes, [&](ModelTypes types, int shift, const Size& s, const std::string& what) {
    for (const bool relu : {true, false}) {
      for (const Has& has : kHas) {
        compare_batch_norm(comparison, types, shift, s, what + has.text() + fmt::format(", relu {}", relu), has, relu);
      }
    }
  });
}

// Where the gradients of a loss go.
enum class Gradients { kOverLogits, kSeparate, kNone };

// A wrong target makes the mean loss NaN, so it has its own case.
void compare_loss(Comparison& comparison, ModelTypes types, int shift, const Size& s, const std::string& what,
                  Gradients where, bool wrong) {
  const std::int64_t count = s.rows * s.columns;
  Arrays a(types, shift);
  const int logits =
      where == Gradients::kOverLogits ? a.changed(Kind::kWide, count, s.columns) : a.random(Kind::kWide, count, 3);
  const int separate = where == Gradients::kSeparate ? a.result(Kind::kWide, count, s.columns) : -1;
  const int gradients = where == Gradients::kOverLogits ? logits : separate;
  std::vector<long long> classes;
  for (std::int64_t row = 0; row < s.rows; ++row) classes.push_back(row % 5 == 3 ? -100 : row * 7919 % s.columns);
  if (wrong) classes.back() = s.columns;
  const int targets = a.numbers(classes);
  const int losses = a.result(Kind::kComputed, s.rows), loss = a.result(Kind::kComputed, 1);
  const int counted = a.result(Kind::kDouble, 1);
  comparison.compare("cross entropy", plugin<decltype(reigen_cuda_cross_entropy)>("reigen_cuda_cross_entropy"), a,
                     fmt::format("{}, gradients {}, wrong target {}", what, static_cast<int>(where), wrong),
                     [&](const Address& at) {
                       return device::CrossEntropyCall{at(logits),
                                                       at(gradients),
                                                       reinterpret_cast<const long long*>(at(targets)),
                                                       at(losses),
                                                       reinterpret_cast<double*>(at(counted)),
                                                       at(loss),
                                                       s.rows,
                                                       s.columns,
                                                       -100,
                                                       a.types(),
                                                       where != Gradients::kSeparate};
                     });
}

void compare_losses(Comparison& comparison) {
  Comparison::each(kOneType, [&](ModelTypes types, int shift, const Size& s, const std::string& what) {
    for (const Gradients where : {Gradients::kOverLogits, Gradients::kSeparate, Gradients::kNone}) {
      for (const bool wrong : {false, true}) compare_loss(comparison, types, shift, s, what, where, wrong);
    }
  });
}

// The values stay as they are if the factor is 1 or the divisor 0.
void compare_factors(Comparison& comparison) {
  struct Factor {
    double factor, divisor;
  };
  Comparison::each(kOneType, [&](ModelTypes types, int shift, const Size& s, const std::string& what) {
    for (const Factor& f : {Factor{0.7, 1}, Factor{1, 1}, Factor{-3, 37}, Factor{37, 37}, Factor{0.7, 0}}) {
      Arrays a(types, shift);
      const std::int64_t count = s.rows * s.columns;
      const int values = a.changed(Kind::kWide, count, s.columns), factor = a.constant(Kind::kComputed, f.factor);
      const int divisor = f.divisor == 1 ? -1 : a.constant(Kind::kDouble, f.divisor);
      comparison.compare(
          "factor", plugin<decltype(reigen_cuda_multiply)>("reigen_cuda_multiply"), a,
          fmt::format("{}, factor {}, divisor {}", what, f.factor, f.divisor),
          [&](const Address& at) {
            return device::MultiplyCall{at(values), at(factor), reinterpret_cast<const double*>(at(divisor)), count,
                                        a.types()};
          },
          true);
    }
  });
}

void compare_gelu(Comparison& comparison, ModelTypes types, int shift, const Size& s, const std::string& what,
                  bool has_bias, bool has_of_bias) {
  const std::int64_t count = s.rows * s.columns;
  Arrays a(types, shift);
  const int x = a.random(Kind::kNarrow, count, 2), bias = has_bias ? a.random(Kind::kWide, s.columns) : -1;
  const int output = a.result(Kind::kNarrow, count, s.columns), of_output = a.random(Kind::kNarrow, count);
  const int of_x = a.result(Kind::kNarrow, count, s.columns);
  const int of_bias = has_of_bias ? a.result(Kind::kWide, s.columns) : -1;
  const int parts = has_of_bias ? a.result(Kind::kComputed, device::sums_of(s.rows) * s.columns) : -1;
  comparison.compare("gelu", plugin<decltype(reigen_cuda_gelu)>("reigen_cuda_gelu"), a, what, [&](const Address& at) {
    return device::GeluCall{at(x), at(bias), at(output), s.rows, s.columns, a.types()};
  });
  comparison.compare("gelu's backward", plugin<decltype(reigen_cuda_gelu_backward)>("reigen_cuda_gelu_backward"), a,
                     what, [&](const Address& at) {
                       return device::GeluBackwardCall{at(of_output), at(x),  at(bias),  at(of_x), at(parts),
                                                       at(of_bias),   s.rows, s.columns, a.types()};
                     });
}

void compare_activations(Comparison& comparison) {
  Comparison::each(kAllTypes, [&](ModelTypes types, int shift, const Size& s, const std::string& what) {
    compare_gelu(comparison, types, shift, s, what, true, true);
    compare_gelu(comparison, types, shift, s, what + ", no gradient of the bias", true, false);
    compare_gelu(comparison, types, shift, s, what + ", no bias", false, false);
  });
  Comparison::each(kOneType, [&](ModelTypes types, int shift, const Size& s, const std::string& what) {
    const std::int64_t count = s.rows * s.columns;
    Arrays a(types, shift);
    const int both = a.random(Kind::kWide, 2 * count, 2), of_output = a.random(Kind::kWide, count);
    const int output = a.result(Kind::kWide, count, s.columns), of_both = a.result(Kind::kWide, 2 * count, s.columns);
    const auto second = [&](std::byte* first) {
      return first + static_cast<std::size_t>(s.columns) * size_of(types, Kind::kWide);
    };
    comparison.compare("swiglu", plugin<decltype(reigen_cuda_swiglu)>("reigen_cuda_swiglu"), a, what,
                       [&](const Address& at) {
                         return device::SwigluCall{at(both),      second(at(both)), at(output), 2 * s.columns,
                                                   2 * s.columns, s.rows,           s.columns,  a.types()};
                       });
    comparison.compare(
        "swiglu's backward", plugin<decltype(reigen_cuda_swiglu_backward)>("reigen_cuda_swiglu_backward"), a, what,
        [&](const Address& at) {
          return device::SwigluBackwardCall{at(of_output),       at(both),      second(at(both)), at(of_both),
                                            second(at(of_both)), 2 * s.columns, 2 * s.columns,    2 * s.columns,
                                            2 * s.columns,       s.rows,        s.columns,        a.types()};
        });
  });
}

void compare_tokens(Comparison& comparison) {
  Comparison::each(kOneType, [&](ModelTypes types, int shift, const Size& s, const std::string& what) {
    Arrays a(types, shift);
    const std::int64_t heads = 3, half = s.columns;
    const int x = a.changed(Kind::kWide, s.rows * heads * 2 * half);
    const int cosines = a.random(Kind::kComputed, s.rows * half), sines = a.random(Kind::kComputed, s.rows * half);
    const device::RotaryStrides strides{s.rows * heads * 2 * half, heads * 2 * half, 2 * half};
    for (const bool backwards : {false, true}) {
      comparison.compare(
          "rotary", plugin<decltype(reigen_cuda_rotary)>("reigen_cuda_rotary"), a, what,
          [&](const Address& at) {
            return device::RotaryCall{at(x),  at(x),  at(cosines), at(sines), strides,   strides,
                                      s.rows, s.rows, heads,       half,      backwards, a.types()};
          },
          true);
    }
    Arrays b(types, shift);
    std::vector<long long> sorted, order;
    for (std::int64_t i = 0; i < s.rows; ++i) {
      sorted.push_back(i * i / std::max<std::int64_t>(1, s.rows) / 2);
      order.push_back((i * 37 + 11) % s.rows);
    }
    const int of_output = b.random(Kind::kWide, s.rows * s.columns),
              of_weight = b.result(Kind::kWide, s.rows * s.columns);
    const int tokens = b.numbers(sorted), places = b.numbers(order);
    comparison.compare(
        "embedding's sums", plugin<decltype(reigen_cuda_embedding_sums)>("reigen_cuda_embedding_sums"), b, what,
        [&](const Address& at) {
          return device::EmbeddingSumsCall{at(of_output),
                                           reinterpret_cast<const long long*>(at(tokens)),
                                           reinterpret_cast<const long long*>(at(places)),
                                           at(of_weight),
                                           s.rows,
                                           s.columns,
                                           s.rows,
                                           b.types()};
        },
        true);
  });
}

long compare_all() {
  Comparison comparison;
  compare_norms(comparison);
  compare_batch_norms(comparison);
  compare_losses(comparison);
  compare_factors(comparison);
  compare_activations(comparison);
  compare_tokens(comparison);
  fmt::print("{} cases, {} differ from the host's\n", comparison.cases(), comparison.failures());
  return comparison.failures();
}

int run_all(const device::CheckWords& words) {
  if (!device::has_gpu("check_model")) return device::kNoDevice;
  const long failures = words.speed ? 0 : compare_all();
  device::measure_in_rounds(words, [&] { measure(words.small); });
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace reigen::nn::kernels::checks

int main(int argc, char** argv) {
  try {
    return reigen::nn::kernels::checks::run_all(reigen::device::read_words(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "check_model: {}\n", error.what());
    return 1;
  }
}
