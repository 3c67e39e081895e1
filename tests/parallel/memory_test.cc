// Counts the bytes of tensors in the allocator. Gradients exist once, in the memory that ranks share. A step needs
// besides them only activations and a bucket.
#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <unordered_map>

#include "parallel/oracle.h"

namespace reigen::testing_oracle::memory_test {
namespace {

// Counts live bytes and their peak, over all threads.
class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr data = inner_->allocate(bytes);
    void* pointer = data.get();
    auto* kept = new Kept{*this, std::move(data), bytes};
    const std::lock_guard lock(mutex_);
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    return {pointer, kept, &CountingAllocator::release, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, std::size_t count) const override { std::memcpy(to, from, count); }

  std::size_t live() const {
    const std::lock_guard lock(mutex_);
    return live_;
  }
  // Starts a measurement: peak() gives the peak since this call, minus the bytes that are live now.
  void begin() {
    const std::lock_guard lock(mutex_);
    base_ = peak_ = live_;
  }
  std::size_t peak() const {
    const std::lock_guard lock(mutex_);
    return peak_ - base_;
  }

 private:
  struct Kept {
    CountingAllocator& owner;
    c10::DataPtr data;
    std::size_t bytes;
  };
  static void release(void* context) {
    const auto* kept = static_cast<Kept*>(context);
    {
      const std::lock_guard lock(kept->owner.mutex_);
      kept->owner.live_ -= kept->bytes;
    }
    delete kept;
  }

  c10::Allocator* inner_;
  mutable std::mutex mutex_;
  std::size_t live_ = 0;
  std::size_t peak_ = 0;
  std::size_t base_ = 0;
};

CountingAllocator& counter() {
  static CountingAllocator* const kCounter = [] {
    auto* made = new CountingAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(made, 100);
    return made;
  }();
  return *kCounter;
}

// The resident bytes of memory that ranks share: Communicator::allocate, allocate_shared. Ranks are threads here, and
// each maps the memory of the others once more, so every file counts once.
std::size_t shared_bytes() {
  std::ifstream maps("/proc/self/smaps");
  std::map<std::string, std::size_t> by_file;
  std::string file;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string first, permissions, offset, device, inode, path;
    words >> first >> permissions >> offset >> device >> inode >> path;
    if (first.find('-') != std::string::npos) {
      file = path.starts_with("/memfd:") ? inode + "+" + offset : "";
    } else if (first == "Rss:" && !file.empty()) {
      by_file[file] = std::max(by_file[file], std::size_t{1024} * std::stoul(permissions));
    }
  }
  std::size_t sum = 0;
  for (const auto& [name, bytes] : by_file) sum += bytes;
  return sum;
}

constexpr std::int64_t kWidth = 512;

struct Wide : torch::nn::Module {
  Wide() {
    for (int i = 0; i < 6; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(kWidth, kWidth)));
    }
    fill(*this, at::kFloat);
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = torch::tanh(layer(x));
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};

constexpr std::size_t kGradients = 6 * (kWidth * kWidth + kWidth) * sizeof(float);
constexpr std::size_t kSlack = 64 * 1024;  // scalars, flags, batches

TEST(Memory, OfAStepIsActivationsAndABucket) {
  counter();
  const auto step = [](auto&& forward, optim::AdamW& optimizer) {
    forward(torch::ones({64, kWidth})).sum().backward();
    optimizer.step();
    optimizer.zero_grad();
  };
  // The bytes that one process needs for activations and their gradients, without gradients of parameters.
  std::size_t activations = 0;
  {
    Wide model;
    for (at::Tensor& parameter : model.parameters()) parameter.requires_grad_(false);
    counter().begin();
    model.forward(torch::ones({64, kWidth}).requires_grad_()).sum().backward();
    activations = counter().peak();
  }
  for (const double bucket_mb : {1.0, 4.0}) {
    std::size_t together = 0;
    std::size_t left = 0;
    on_ranks(2, [&](Communicator& world) -> Tensors {
      Wide model;
      auto parallel = data_parallel(model, world, {.bucket_mb = bucket_mb});
      optim::AdamW optimizer(parallel.parameters());
      for (int i = 0; i < 3; ++i) step(parallel, optimizer);
      world.barrier();
      const std::size_t before = counter().live();
      if (world.rank() == 0) counter().begin();
      world.barrier();
      step(parallel, optimizer);
      world.barrier();
      if (world.rank() == 0) together = counter().peak();
      // The gradients exist now. They lie in the range's own memory, which is not counted here.
      parallel(torch::ones({64, kWidth})).sum().backward();
      world.barrier();
      if (world.rank() == 0) left = counter().live() - before;
      world.barrier();
      return {};
    });
    const auto bucket = static_cast<std::size_t>(bucket_mb * 1024 * 1024);
    EXPECT_LE(together, 2 * (activations + bucket + kSlack)) << bucket_mb;
    EXPECT_GT(together, kGradients / 6) << "nothing was counted";
    EXPECT_LE(left, 2 * kSlack) << "a second copy of gradients";
  }
}

// Memory that the counter of LibTorch's memory does not see. Each rank has gradients once. Values also exist once a
// rank, or, if they are shared, once on the machine together with the optimizer states. With kGradients there is also a
// spare block of the largest size.
TEST(Memory, ThatRanksShareHoldsEachGradientOnce) {
  constexpr std::size_t kLargest = kWidth * kWidth * sizeof(float);
  constexpr std::size_t kBesides = 1 << 20;  // memory through which groups communicate
  for (const Shard shard : {Shard::kNone, Shard::kOptimizer, Shard::kGradients}) {
    std::size_t held = 0;
    on_ranks(2, [&](Communicator& world) -> Tensors {
      Wide model;
      world.barrier();
      const std::size_t before = shared_bytes();
      world.barrier();
      auto parallel = data_parallel(model, world, {.shard = shard});
      optim::AdamW optimizer(parallel.parameters());
      for (int i = 0; i < 3; ++i) {
        parallel(torch::ones({64, kWidth})).sum().backward();
        optimizer.step();
        optimizer.zero_grad();
      }
      world.barrier();
      if (world.rank() == 0) held = shared_bytes() - before;
      world.barrier();
      return {};
    });
    // The values of each rank, or the values and two states of both.
    const std::size_t weights = shard == Shard::kNone ? 2 * kGradients : 3 * kGradients;
    const std::size_t spare = shard == Shard::kGradients ? 2 * kLargest : 0;
    EXPECT_LE(held, 2 * kGradients + weights + spare + kBesides) << parallel::to_text(shard);
    EXPECT_GE(held, 2 * kGradients + weights) << parallel::to_text(shard) << ": nothing was counted";
  }
}

}  // namespace
}  // namespace reigen::testing_oracle::memory_test
