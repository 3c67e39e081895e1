// For a machine with a GPU: do the optimizers' kernels of libreigen_cuda.so give the bits of the host, and how fast are
// they?
//
// The program runs ten steps of every rule on every element layout on host and GPU and compares values, states and
// master weights bit by bit, and the last step's sums of squares to 1e-12. Then it measures AdamW, a norm and, for
// comparison, a copy within the device. With --speed it only measures, once for each line of standard input; --small
// takes small sizes. The exit code is 1 if any result differs, and 69 if there is no GPU.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "check_tools.h"
#include "device/kernel_calls.h"
#include "optim/kernels/kernels.h"

namespace reigen::optim::kernels {
namespace {

using device::check;
using device::HostMemory;
using device::Memory;
using Optimize = decltype(&reigen_cuda_optimize);
using FinishNorm = decltype(&reigen_cuda_finish_norm);

constexpr long long kChunk = 16384;  // as layout::kBlockElements
constexpr std::int64_t kSizes[] = {1, 7, 16383, 16384, 50001};
constexpr Layout kLayouts[] = {Layout::kFloat64, Layout::kFloat32,        Layout::kFloat32Bfloat16, Layout::kBfloat16,
                               Layout::kFloat16, Layout::kBfloat16Master, Layout::kFloat16Master};
constexpr double kSquaresApart = 1e-12;
constexpr int kSteps = 10;

bool is_master(Layout layout) { return layout == Layout::kBfloat16Master || layout == Layout::kFloat16Master; }

// One parameter. It has kPlaces arrays of the same size: values, gradients, three states and master weights.
constexpr int kPlaces = 6;
struct Parameter {
  std::int64_t count;
  std::size_t begin;  // offset in bytes from the first parameter
};

// The numbers of one case, on the host and on the GPU in the same layout.
class Numbers {
 public:
  explicit Numbers(Layout layout) : sizes_(sizes_of(layout)) {
    for (const std::int64_t count : kSizes) {
      parameters_.push_back({count, bytes_});
      bytes_ += kPlaces * place(count);
    }
    host_.resize(bytes_);
    fill(layout);
  }

  std::size_t bytes() const { return bytes_; }
  std::byte* host() { return host_.data(); }
  std::size_t parameters() const { return parameters_.size(); }
  Block block(std::size_t parameter, std::byte* memory, Layout layout) const {
    const auto& [count, begin] = parameters_[parameter];
    const auto at = [&, b = begin, c = count](int number) {
      return memory + b + static_cast<std::size_t>(number) * place(c);
    };
    Block block;
    block.values = at(0);
    block.gradients = at(1);
    for (int i = 0; i < kMaxStates; ++i) block.states[i] = at(2 + i);
    if (is_master(layout)) block.masters = at(5);
    block.count = count;
    block.key = 0x1234567u + static_cast<std::uint32_t>(parameter);
    block.gradient_factor = 0.75;
    block.gradient_limit = 1.5;
    return block;
  }

 private:
  // The bytes of one array of a parameter: eight bytes an element, enough for each type, rounded up to a multiple of
  // 256.
  static std::size_t place(std::int64_t count) { return (static_cast<std::size_t>(count) * 8 + 255) / 256 * 256; }

  void fill(Layout layout) {
    std::mt19937_64 generator(static_cast<std::uint64_t>(layout) + 17);
    std::normal_distribution<double> normal;
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      const Block all = block(p, host_.data(), layout);
      for (std::int64_t i = 0; i < all.count; ++i) {
        const double value = normal(generator);
        put(all.values, i, sizes_.value, layout, value);
        put(const_cast<void*>(all.gradients), i, sizes_.value, layout, normal(generator));
        for (void* state : all.states) put(state, i, sizes_.state, layout, std::abs(normal(generator)) * 0.01);
        if (all.masters != nullptr) static_cast<float*>(all.masters)[i] = static_cast<float>(value);
      }
    }
  }
  // For a 16-bit type this writes the upper half of a float, which is a valid number in both 16-bit types.
  static void put(void* to, std::int64_t i, std::int64_t size, Layout, double value) {
    if (size == 8) {
      static_cast<double*>(to)[i] = value;
    } else if (size == 4) {
      static_cast<float*>(to)[i] = static_cast<float>(value);
    } else {
      const auto bits = __builtin_bit_cast(std::uint32_t, static_cast<float>(value));
      static_cast<std::uint16_t*>(to)[i] = static_cast<std::uint16_t>(bits >> 16);
    }
  }

  Sizes sizes_;
  std::vector<Parameter> parameters_;
  std::size_t bytes_ = 0;
  std::vector<std::byte> host_;
};

class Comparison {
 public:
  explicit Comparison(Optimize optimize) : optimize_(optimize) {}

  // on_host(layout, block) runs the loop of the host on a block and returns its sums.
  template <typename Step, typename OnHost>
  void compare(const char* name, Rule rule, const Step& step, bool adds, OnHost on_host,
               std::span<const Layout> layouts = kLayouts) {
    for (const Layout layout : layouts) compare(name, rule, layout, step, adds, on_host);
  }

  long cases() const { return cases_; }
  long failures() const { return failures_; }

 private:
  template <typename Step, typename OnHost>
  void compare(const char* name, Rule rule, Layout layout, const Step& step, bool adds, OnHost on_host) {
    Numbers numbers(layout);
    const Memory memory(numbers.bytes());
    check(cudaMemcpy(memory.at(0), numbers.host(), numbers.bytes(), cudaMemcpyHostToDevice), "the numbers' copy");
    std::vector<Item<Step>> items;
    std::vector<Block> parts;  // what a block of threads changes, on the host
    for (std::size_t p = 0; p < numbers.parameters(); ++p) {
      const auto chunks = static_cast<long long>(parts.size());
      items.push_back({numbers.block(p, memory.at(0), layout), step, chunks, chunks});
      const Block all = numbers.block(p, numbers.host(), layout);
      for (std::int64_t first = 0; first < all.count; first += kChunk) {
        parts.push_back(slice(sizes_of(layout), all, first, std::min<std::int64_t>(all.count - first, kChunk)));
      }
    }
    std::vector<Squares> expected(parts.size());
    const Memory table(items.size() * sizeof(Item<Step>));
    check(cudaMemcpy(table.at(0), items.data(), items.size() * sizeof(Item<Step>), cudaMemcpyHostToDevice), "table");
    const Memory squares(expected.size() * sizeof(Squares));
    const device::OptimizeCall call{.rule = static_cast<int>(rule),
                                    .layout = static_cast<int>(layout),
                                    .items = table.at(0),
                                    .count = static_cast<int>(items.size()),
                                    .chunks = static_cast<long long>(parts.size()),
                                    .chunk_elements = kChunk,
                                    .squares = adds ? reinterpret_cast<double*>(squares.at(0)) : nullptr};
    for (int i = 0; i < kSteps; ++i) {
      for (std::size_t k = 0; k < parts.size(); ++k) expected[k] = on_host(layout, parts[k]);
      check(optimize_(&call, nullptr), "reigen_cuda_optimize");
    }
    std::vector<std::byte> got(numbers.bytes());
    check(cudaMemcpy(got.data(), memory.at(0), got.size(), cudaMemcpyDeviceToHost), "the result's copy");
    ++cases_;
    if (std::memcmp(got.data(), numbers.host(), got.size()) != 0) report(name, layout, "other bits");
    if (!adds) return;
    std::vector<Squares> sums(expected.size());
    check(cudaMemcpy(sums.data(), squares.at(0), sums.size() * sizeof(Squares), cudaMemcpyDeviceToHost), "the sums");
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto apart = [](double a, double b) { return std::abs(a - b) > kSquaresApart * std::abs(b); };
      if (apart(sums[i].first, expected[i].first) || apart(sums[i].second, expected[i].second)) {
        return report(name, layout, "other sums");
      }
    }
  }

  void report(const char* name, Layout layout, const char* what) {
    ++failures_;
    fmt::print("{}, layout {}: {}\n", name, static_cast<int>(layout), what);
  }

  Optimize optimize_;
  long cases_ = 0;
  long failures_ = 0;
};

void compare_all(Comparison& comparison) {
  const Kernels& host = portable::kernels();
  const auto loop = [&](auto member, auto step) {
    return [&host, member, step](Layout layout, const Block& block) {
      (host.*member)(layout, block, step);
      return Squares();
    };
  };
  const auto run = [&](const char* name, Rule rule, auto member, auto step) {
    comparison.compare(name, rule, step, false, loop(member, step));
  };
  run("sgd", Rule::kSgd, &Kernels::sgd, SgdStep{.lr = 0.1, .l2 = 0.01});
  run("momentum", Rule::kSgd, &Kernels::sgd, SgdStep{.lr = 0.1, .momentum = 0.9, .share = 0.9, .has_momentum = true});
  run("nesterov", Rule::kSgd, &Kernels::sgd,
      SgdStep{.lr = 0.1, .l2 = 0.01, .momentum = 0.9, .has_momentum = true, .nesterov = true});
  const AdamStep adam{.rate = 0.01, .l2 = 0.01, .keep = 0.999, .beta1 = 0.9, .beta2 = 0.999, .root = 1.5, .eps = 1e-8};
  AdamStep amsgrad = adam;
  amsgrad.amsgrad = true;
  run("adam", Rule::kAdam, &Kernels::adam, adam);
  run("amsgrad", Rule::kAdam, &Kernels::adam, amsgrad);
  run("adagrad", Rule::kAdagrad, &Kernels::adagrad, AdagradStep{.rate = 0.1, .l2 = 0.01, .eps = 1e-10});
  for (const bool centered : {false, true}) {
    for (const bool momentum : {false, true}) {
      run("rmsprop", Rule::kRmsprop, &Kernels::rmsprop,
          RmspropStep{.lr = 0.01,
                      .l2 = 0.01,
                      .alpha = 0.99,
                      .eps = 1e-8,
                      .momentum = 0.9,
                      .centered = centered,
                      .has_momentum = momentum});
    }
  }
  run("lion", Rule::kLion, &Kernels::lion, LionStep{.lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99});
  run("lars", Rule::kLars, &Kernels::lars, LarsStep{.rate = 0.1, .weight_decay = 0.01, .momentum = 0.9});
  const LambStep lamb{
      .rate = 0.01, .weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.999, .scale = 2, .root = 1.5, .eps = 1e-6};
  run("lamb, its step", Rule::kLambApply, &Kernels::lamb_apply, lamb);
  comparison.compare("lamb, its moments", Rule::kLambMoments, lamb, true,
                     [&](Layout layout, const Block& block) { return host.lamb_moments(layout, block, lamb); });
  comparison.compare("squares of values", Rule::kValueSquares, NoStep{}, true,
                     [&](Layout layout, const Block& block) { return host.value_squares(layout, block); });
  comparison.compare("squares", Rule::kSquares, NoStep{}, true, [&](Layout layout, const Block& block) {
    return Squares{host.squares(layout, block.gradients, block.count), 0};
  });
  comparison.compare("finite", Rule::kFinite, NoStep{}, true, [&](Layout layout, const Block& block) {
    return Squares{host.finite(layout, block.gradients, block.count) ? 0 : std::numeric_limits<double>::quiet_NaN(), 0};
  });
  constexpr Layout kWide[] = {Layout::kFloat64, Layout::kFloat32};  // the average has the type of the values here
  comparison.compare(
      "average", Rule::kAverage, AverageStep{.share = 0.1}, false,
      [&](Layout layout, const Block& block) {
        host.average(layout, block.states[0], block.values, block.count, 0.1);
        return Squares();
      },
      kWide);
  comparison.compare("clipping", Rule::kChangeGradients, NoStep{}, false, [&](Layout layout, const Block& block) {
    host.change_gradients(layout, block);
    return Squares();
  });
}

// The last step of a norm. Returns how many cases differ from the host.
long compare_norms(FinishNorm finish) {
  constexpr long long kCounts[] = {1, 3, 255, 256, 257, 7569};
  constexpr double kLimits[] = {0, 0.5, 1e6};  // no limit, a limit below the norm, a limit above it
  long failures = 0;
  for (const long long count : kCounts) {
    for (const double limit : kLimits) {
      for (const bool finite : {true, false}) {
        std::vector<Squares> chunks(static_cast<std::size_t>(count));
        std::mt19937_64 generator(static_cast<std::uint64_t>(count));
        std::uniform_real_distribution<double> uniform;
        double sum = 0;
        for (Squares& chunk : chunks) {
          chunk = {uniform(generator), std::numeric_limits<double>::quiet_NaN()};  // the second number is not read
          sum += chunk.first;
        }
        if (!finite) sum = chunks.back().first = std::numeric_limits<double>::infinity();
        const Memory squares(chunks.size() * sizeof(Squares));
        const Memory control(sizeof(StepControl));
        StepControl got;
        check(cudaMemcpy(squares.at(0), chunks.data(), chunks.size() * sizeof(Squares), cudaMemcpyHostToDevice),
              "sums");
        check(cudaMemcpy(control.at(0), &got, sizeof(got), cudaMemcpyHostToDevice), "the control");
        const device::FinishNormCall call{.squares = reinterpret_cast<double*>(squares.at(0)),
                                          .count = count,
                                          .max_norm = limit,
                                          .control = control.at(0)};
        check(finish(&call, nullptr), "reigen_cuda_finish_norm");
        check(cudaMemcpy(&got, control.at(0), sizeof(got), cudaMemcpyDeviceToHost), "the control");
        const double factor = limit > 0 ? std::min(1.0, limit / (std::sqrt(sum) + 1e-6)) : 1;
        const bool is_same =
            (finite ? std::abs(got.sum_of_squares - sum) <= kSquaresApart * sum : std::isinf(got.sum_of_squares)) &&
            std::abs(got.factor - factor) <= kSquaresApart * factor && (got.stopped != 0) == !finite;
        if (is_same) continue;
        ++failures;
        fmt::print("norm of {} chunks, limit {}: sum {}, factor {}, stopped {}; the host has {}, {}, {}\n", count,
                   limit, got.sum_of_squares, got.factor, got.stopped, sum, factor, !finite);
      }
    }
  }
  return failures;
}

// Measures AdamW and a norm over as many elements as GPT-2 124M has, in one parameter.
void measure(Optimize optimize, bool small) {
  const std::int64_t elements = small ? 1'000'000 : 124'000'000;
  const long long all_chunks = (elements + kChunk - 1) / kChunk;
  const auto count = static_cast<std::size_t>(elements);
  const Memory numbers(count * 20);
  check(cudaMemset(numbers.at(0), 0, count * 20), "cudaMemset");
  device::Stopwatch stopwatch;
  const std::size_t copied = count * 8;
  const float copy_time = stopwatch.median([&] {
    check(cudaMemcpyAsync(numbers.at(copied), numbers.at(0), copied, cudaMemcpyDeviceToDevice, nullptr), "a copy");
  });
  const double copy = device::gigabytes_per_second(2 * copied, copy_time);
  fmt::print("\n| pass over 124 M | us | GB/s read and written | of a copy's {:.0f} GB/s |\n|---|---|---|---|\n", copy);
  const Memory table(4096);
  const Memory squares(static_cast<std::size_t>(all_chunks) * sizeof(Squares));
  const auto time = [&]<typename Step>(const char* name, Rule rule, Layout layout, const Step& step, int bytes,
                                       bool adds) {
    const Sizes sizes = sizes_of(layout);
    std::byte* at = numbers.at(0);
    const auto next = [&](std::int64_t size) {
      std::byte* const begin = at;
      at += elements * size;
      return begin;
    };
    Item<Step> item{{}, step, 0, 0};
    item.block.values = next(sizes.value);
    item.block.gradients = next(sizes.value);
    item.block.states[0] = next(sizes.state);
    item.block.states[1] = next(sizes.state);
    if (is_master(layout)) item.block.masters = next(4);
    item.block.count = elements;
    item.block.gradient_limit = std::numeric_limits<double>::infinity();
    check(cudaMemcpy(table.at(0), &item, sizeof(item), cudaMemcpyHostToDevice), "the table");
    const device::OptimizeCall call{.rule = static_cast<int>(rule),
                                    .layout = static_cast<int>(layout),
                                    .items = table.at(0),
                                    .count = 1,
                                    .chunks = all_chunks,
                                    .chunk_elements = kChunk,
                                    .squares = adds ? reinterpret_cast<double*>(squares.at(0)) : nullptr};
    const float taken = stopwatch.median([&] { check(optimize(&call, nullptr), "reigen_cuda_optimize"); });
    const double speed = device::gigabytes_per_second(count * static_cast<std::size_t>(bytes), taken);
    fmt::print("| {} | {:.1f} | {:.0f} | {:.2f} |\n", name, taken * 1e3f, speed, speed / copy);
  };
  const AdamStep adam{.rate = 1e-3, .keep = 0.999, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  time("AdamW, fp32", Rule::kAdam, Layout::kFloat32, adam, 28, false);
  time("AdamW, bf16 with masters", Rule::kAdam, Layout::kBfloat16Master, adam, 30, false);
  time("norm, fp32", Rule::kSquares, Layout::kFloat32, NoStep{}, 4, true);
  time("norm, bf16", Rule::kSquares, Layout::kBfloat16, NoStep{}, 2, true);
}

long compare_all_and_norms(Optimize optimize) {
  Comparison comparison(optimize);
  compare_all(comparison);
  const long norms = compare_norms(device::function_of_plugin<FinishNorm>("reigen_cuda_finish_norm"));
  fmt::print("{} cases, {} differ from the host's; {} norms differ\n", comparison.cases(), comparison.failures(),
             norms);
  return comparison.failures() + norms;
}

int run(const device::CheckWords& words) {
  if (!device::has_gpu("check_optimizers")) return device::kNoDevice;
  const auto optimize = device::function_of_plugin<Optimize>("reigen_cuda_optimize");
  const long failures = words.speed ? 0 : compare_all_and_norms(optimize);
  device::measure_in_rounds(words, [&] { measure(optimize, words.small); });
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace reigen::optim::kernels

int main(int argc, char** argv) {
  try {
    return reigen::optim::kernels::run(reigen::device::read_words(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "check_optimizers: {}\n", error.what());
    return 1;
  }
}
