// Checks of libreigen_cuda.so that need no GPU: its symbols, its errors, and the code that the compiler made of the
// kernels. cuda/check_kernels.cc checks the results of the kernels, on a machine with a GPU.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "device/kernel_calls.h"
#include "harness/folders.h"
#include "optim/kernels/kernels.h"
#include "reigen/comm/types.h"

namespace reigen::device {
namespace {

using comm::DataType;
using comm::ReduceOp;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;  // cudaErrorInvalidValue

void* plugin() {
  static void* const library = dlopen(built("lib/libreigen_cuda.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  return library;
}

template <typename Function>
Function symbol(const char* name) {
  return plugin() == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(plugin(), name));
}

std::string contents(const std::string& name) {
  std::ifstream file(built(name));
  return {std::istreambuf_iterator<char>(file), {}};
}

// The PTX that an object contains as text. A zero byte ends the text.
std::string ptx_of(const std::string& object) {
  const std::size_t begin = object.find(".version ");
  if (begin == std::string::npos) return {};
  return object.substr(begin, object.find('\0', begin) - begin);
}

// The instructions of the PTX that round differently from the host.
std::vector<std::string> other_roundings(const std::string& ptx) {
  static const std::regex kInstruction(R"(^\s*(@!?%\w+\s+)?([a-z]\w*(\.\w+)+)\s)");
  std::vector<std::string> found;
  std::istringstream lines(ptx);
  for (std::string line; std::getline(lines, line);) {
    const auto has = [&](const char* word) { return line.find(word) != std::string::npos; };
    if (!has("fma.") && !has(".approx") && !has(".ftz")) continue;  // a regular expression takes much longer
    std::smatch match;
    if (!std::regex_search(line, match, kInstruction)) continue;
    const std::string instruction = match[2].str() + ".";
    if (instruction.starts_with("fma.") || instruction.find(".approx.") != std::string::npos ||
        instruction.find(".ftz.") != std::string::npos) {
      found.push_back(match[2]);
    }
  }
  return found;
}

struct Kernel {
  std::string name;
  int memory = 0;  // bytes of stack and of spilled registers
  int registers = 0;
  int shared = 0;  // bytes of shared memory
};

// The kernels in the output of `ptxas -v`.
std::vector<Kernel> kernels_of(const std::string& ptxas) {
  static const std::regex kName("Compiling entry function '(\\w+)'");
  static const std::regex kMemory("(\\d+) bytes stack frame, (\\d+) bytes spill stores, (\\d+) bytes spill loads");
  static const std::regex kRegisters("Used (\\d+) registers");
  static const std::regex kShared("(\\d+) bytes smem");
  std::vector<Kernel> kernels;
  std::istringstream lines(ptxas);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_search(line, match, kName)) kernels.push_back({.name = match[1]});
    if (kernels.empty()) continue;
    if (std::regex_search(line, match, kMemory)) {
      kernels.back().memory += std::stoi(match[1]) + std::stoi(match[2]) + std::stoi(match[3]);
    }
    if (std::regex_search(line, match, kRegisters)) kernels.back().registers = std::stoi(match[1]);
    if (std::regex_search(line, match, kShared)) kernels.back().shared = std::stoi(match[1]);
  }
  return kernels;
}

std::vector<std::string> output_of(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  std::string text;
  for (int c = 0; pipe != nullptr && (c = std::fgetc(pipe.get())) != EOF;) text += static_cast<char>(c);
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

// Calls of the plug-in with two inputs and one output of floats, in memory of the host.
class CudaReduce : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(plugin(), nullptr) << dlerror();
    reduce_ = symbol<decltype(&reigen_cuda_reduce)>("reigen_cuda_reduce");
    ASSERT_NE(reduce_, nullptr);
  }

  int reduce(const ReduceCall& call) const { return reduce_(&call, nullptr); }

  decltype(&reigen_cuda_reduce) reduce_ = nullptr;
  alignas(16) float data_[3][4] = {};
  const void* inputs_[kReduceRanks + 1] = {data_[0], data_[1]};
  void* outputs_[kReduceRanks + 1] = {data_[2]};
  const double factors_[2] = {0.5, 0.5};
  ReduceCall call_{.inputs = inputs_,
                   .outputs = outputs_,
                   .input_count = 2,
                   .output_count = 1,
                   .count = 4,
                   .type = static_cast<int>(DataType::kFloat32),
                   .op = static_cast<int>(ReduceOp::kSum)};
};

TEST(CudaPlugin, IsOfThisVersion) {
  ASSERT_NE(plugin(), nullptr) << dlerror();
  const auto version = symbol<decltype(&reigen_cuda_version)>("reigen_cuda_version");
  ASSERT_NE(version, nullptr);
  EXPECT_EQ(version(), kPluginVersion);
}

TEST(CudaPlugin, ExportsItsCallsAndNothingElse) {
  const auto words = output_of(std::string(REIGEN_TEST_NM) + " -D --defined-only --format=just-symbols '" +
                               built("lib/libreigen_cuda.so") + "'");
  EXPECT_THAT(words,
              ElementsAre("reigen_cuda_batch_norm", "reigen_cuda_batch_norm_backward", "reigen_cuda_batch_norm_sums",
                          "reigen_cuda_batch_statistics", "reigen_cuda_cross_entropy", "reigen_cuda_embedding_sums",
                          "reigen_cuda_finish_norm", "reigen_cuda_gelu", "reigen_cuda_gelu_backward",
                          "reigen_cuda_multiply", "reigen_cuda_norm", "reigen_cuda_norm_backward",
                          "reigen_cuda_norm_sums", "reigen_cuda_optimize", "reigen_cuda_reduce", "reigen_cuda_rotary",
                          "reigen_cuda_swiglu", "reigen_cuda_swiglu_backward", "reigen_cuda_version"));
}

TEST_F(CudaReduce, ReturnsTheErrorOfAMachineWithoutDevices) {
  int devices = 0;
  const auto count_devices = symbol<int (*)(int*)>("cudaGetDeviceCount");  // from the plug-in's runtime library
  ASSERT_NE(count_devices, nullptr);
  const int error = count_devices(&devices);
  if (error == kSuccess && devices > 0) GTEST_SKIP() << devices << " devices are here, which cannot read this memory";
  EXPECT_EQ(reduce(call_), error);
  EXPECT_NE(error, kSuccess);
  EXPECT_NE(error, kInvalidValue);
}

TEST_F(CudaReduce, DoesNothingForNoElements) {
  call_.count = 0;
  EXPECT_EQ(reduce(call_), kSuccess);
}

TEST_F(CudaReduce, RefusesWhatIsNotDefined) {
  EXPECT_EQ(reduce_(nullptr, nullptr), kInvalidValue);
  const auto refuses = [&](const char* what, auto change) {
    ReduceCall call = call_;
    change(call);
    EXPECT_EQ(reduce(call), kInvalidValue) << what;
  };
  refuses("no such type", [](ReduceCall& c) { c.type = 10; });
  refuses("a negative type", [](ReduceCall& c) { c.type = -1; });
  refuses("no such operation", [](ReduceCall& c) { c.op = 8; });
  refuses("bits of floats", [](ReduceCall& c) { c.op = static_cast<int>(ReduceOp::kBand); });
  refuses("an average of bool", [](ReduceCall& c) {
    c.op = static_cast<int>(ReduceOp::kAvg);
    c.type = static_cast<int>(DataType::kBool);
  });
  refuses("factors of a maximum", [&](ReduceCall& c) {
    c.op = static_cast<int>(ReduceOp::kMax);
    c.factors = factors_;
  });
  refuses("factors of integers", [&](ReduceCall& c) {
    c.type = static_cast<int>(DataType::kInt32);
    c.factors = factors_;
  });
  refuses("a negative divisor", [](ReduceCall& c) { c.divisor = -1; });
  refuses("no input", [](ReduceCall& c) { c.input_count = 0; });
  refuses("too many inputs", [](ReduceCall& c) { c.input_count = kReduceRanks + 1; });
  refuses("no output", [](ReduceCall& c) { c.output_count = 0; });
  refuses("too many outputs", [](ReduceCall& c) { c.output_count = kReduceRanks + 1; });
  refuses("no addresses", [](ReduceCall& c) { c.inputs = nullptr; });
  refuses("an address that is null", [](ReduceCall& c) { c.input_count = 3; });
  refuses("an address between two elements", [&](ReduceCall&) { inputs_[1] = reinterpret_cast<char*>(data_[1]) + 2; });
}

// Calls of the plug-in for one parameter, in memory of the host.
class CudaOptimize : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(plugin(), nullptr) << dlerror();
    optimize_ = symbol<decltype(&reigen_cuda_optimize)>("reigen_cuda_optimize");
    ASSERT_NE(optimize_, nullptr);
  }

  decltype(&reigen_cuda_optimize) optimize_ = nullptr;
  optim::kernels::Item<optim::kernels::SgdStep> item_ = {};
  double squares_[2] = {};
  OptimizeCall call_{.rule = static_cast<int>(optim::kernels::Rule::kSgd),
                     .layout = static_cast<int>(optim::kernels::Layout::kFloat32),
                     .items = &item_,
                     .count = 1,
                     .chunks = 1,
                     .chunk_elements = 16};
};

TEST_F(CudaOptimize, DoesNothingForNoElements) {
  call_.chunks = 0;
  EXPECT_EQ(optimize_(&call_, nullptr), kSuccess);
}

TEST_F(CudaOptimize, RefusesWhatIsNotDefined) {
  EXPECT_EQ(optimize_(nullptr, nullptr), kInvalidValue);
  const auto refuses = [&](const char* what, auto change) {
    OptimizeCall call = call_;
    change(call);
    EXPECT_EQ(optimize_(&call, nullptr), kInvalidValue) << what;
  };
  refuses("no such rule", [](OptimizeCall& c) { c.rule = 13; });
  refuses("a negative rule", [](OptimizeCall& c) { c.rule = -1; });
  refuses("no such layout", [](OptimizeCall& c) { c.layout = 7; });
  refuses("a negative layout", [](OptimizeCall& c) { c.layout = -1; });
  refuses("no items", [](OptimizeCall& c) { c.items = nullptr; });
  refuses("no item", [](OptimizeCall& c) { c.count = 0; });
  refuses("a negative number of chunks", [](OptimizeCall& c) { c.chunks = -1; });
  refuses("more chunks than a grid has", [](OptimizeCall& c) { c.chunks = 1LL << 31; });
  refuses("chunks without elements", [](OptimizeCall& c) { c.chunk_elements = 0; });
  refuses("squares of a rule that has none", [&](OptimizeCall& c) { c.squares = squares_; });
  refuses("no place for squares", [](OptimizeCall& c) { c.rule = static_cast<int>(optim::kernels::Rule::kSquares); });
}

TEST(CudaFinishNorm, RefusesWhatIsNotDefined) {
  ASSERT_NE(plugin(), nullptr) << dlerror();
  const auto finish = symbol<decltype(&reigen_cuda_finish_norm)>("reigen_cuda_finish_norm");
  ASSERT_NE(finish, nullptr);
  EXPECT_EQ(finish(nullptr, nullptr), kInvalidValue);
  const double squares[2] = {};
  optim::kernels::StepControl control;
  const auto refuses = [&](const char* what, auto change) {
    FinishNormCall call{.squares = squares, .count = 1, .max_norm = 1, .control = &control};
    change(call);
    EXPECT_EQ(finish(&call, nullptr), kInvalidValue) << what;
  };
  refuses("no sums", [](FinishNormCall& c) { c.squares = nullptr; });
  refuses("no chunk", [](FinishNormCall& c) { c.count = 0; });
  refuses("a negative limit", [](FinishNormCall& c) { c.max_norm = -1; });
  refuses("a limit that is no number", [](FinishNormCall& c) { c.max_norm = NAN; });
  refuses("no control", [](FinishNormCall& c) { c.control = nullptr; });
}

// exp, log and erf of CUDA's library use fused multiply-add and approximations inside. So only the sources without them
// are looked at.
TEST(CudaKernels, RoundAsTheHostDoes) {
  EXPECT_THAT(other_roundings("\tfma.rn.f32 \t%f1, %f2, %f3, %f4;\n"
                              "\tmad.lo.s32 \t%r1, %r2, %r3, %r4;\n"
                              "\t@%p1 div.approx.f32 \t%f1, %f2, %f3;\n"
                              "\tdiv.rn.f32 \t%f1, %f2, %f3;\n"
                              "\tadd.ftz.f32 \t%f1, %f2, %f3;\n"),
              ElementsAre("fma.rn.f32", "div.approx.f32", "add.ftz.f32"));
  for (const char* file : {"reduce", "optimize", "norm", "batch_norm", "tokens"}) {
    const std::string ptx = ptx_of(contents(fmt::format("cuda/{}.o", file)));
    EXPECT_NE(ptx.find("st.global.f32"), std::string::npos) << file << " has no PTX of the kernels";
    EXPECT_THAT(other_roundings(ptx), IsEmpty()) << file;
  }
}

TEST(CudaKernels, KeepEverythingInRegisters) {
  const auto planted = kernels_of(
      "ptxas info    : Compiling entry function 'one' for 'sm_90'\n"
      "ptxas info    : Function properties for one\n"
      "    8 bytes stack frame, 4 bytes spill stores, 2 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 1 barriers, 128 bytes smem, 576 bytes cmem[0]\n");
  ASSERT_EQ(planted.size(), 1u);
  EXPECT_EQ(planted[0].shared, 128);
  EXPECT_EQ(planted[0].memory, 14);
  EXPECT_EQ(planted[0].registers, 40);
  constexpr int kMostShared = 48 * 1024;
  for (const char* file : {"reduce", "optimize", "norm", "batch_norm", "cross_entropy", "activations", "tokens"}) {
    const auto kernels = kernels_of(contents(fmt::format("lib/{}.ptxas", file)));
    EXPECT_FALSE(kernels.empty()) << file;
    for (const Kernel& kernel : kernels) {
      EXPECT_EQ(kernel.memory, 0) << kernel.name;
      EXPECT_GT(kernel.registers, 0) << kernel.name;
      EXPECT_LE(kernel.shared, kMostShared) << kernel.name;
    }
  }
}

}  // namespace
}  // namespace reigen::device
