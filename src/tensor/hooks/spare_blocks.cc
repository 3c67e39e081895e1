#include "tensor/hooks/spare_blocks.h"

#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace reigen::tensor {
namespace {

// The blocks that are lent, by address. The address is the key, because code that allocates memory without a tensor
// frees the memory by its address alone.
class Loans {
 public:
  // `flat` is the block. It keeps the block's memory until the tensor that was made in the block dies.
  void begin(void* data, at::Tensor flat) {
    const std::lock_guard lock(mutex_);
    loans_.emplace(data, std::move(flat));
    count_.store(loans_.size(), std::memory_order_release);
  }

  bool has(const void* data) {
    const std::lock_guard lock(mutex_);
    return loans_.count(data) > 0;
  }

  // Ends the loan of a block. Returns whether the block was lent.
  bool end(void* data) {
    if (count_.load(std::memory_order_acquire) == 0) return false;
    at::Tensor ended;  // destroyed after the lock is released, because this may free the memory
    const std::lock_guard lock(mutex_);
    const auto found = loans_.find(data);
    if (found == loans_.end()) return false;
    ended = std::move(found->second);
    loans_.erase(found);
    count_.store(loans_.size(), std::memory_order_release);
    return true;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, at::Tensor> loans_;
  std::atomic<std::size_t> count_ = 0;
};

// Never destroyed, because tensors may be made and die as long as the process lives.
Loans* const loans = new Loans;

void end_loan(void* data) { loans->end(data); }

// A plain variable, because it is read for every tensor, also after `lenders` is destroyed at the end of a thread.
thread_local bool is_lending = false;

struct Lenders {
  std::vector<std::weak_ptr<SpareBlocks>> blocks;
  ~Lenders() { is_lending = false; }
};
thread_local Lenders lenders;

// Answers a request with a spare block if one fits, and passes all other requests on to LibTorch's allocator.
class LendingAllocator final : public c10::Allocator {
 public:
  explicit LendingAllocator(c10::Allocator* inner) : inner_(inner) {}

  void set_inner(c10::Allocator* inner) { inner_.store(inner, std::memory_order_release); }

  c10::DataPtr allocate(std::size_t bytes) override {
    if (is_lending && torch::autograd::get_current_node() != nullptr) {
      for (const auto& lender : lenders.blocks) {
        const auto blocks = lender.lock();
        if (!blocks) continue;
        if (c10::DataPtr data = blocks->lend(bytes)) return data;
      }
    }
    return inner()->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return inner()->raw_deleter() == nullptr ? nullptr : &LendingAllocator::free_raw;
  }
  void copy_data(void* to, const void* from, std::size_t count) const override { inner()->copy_data(to, from, count); }

 private:
  static void free_raw(void* data);
  c10::Allocator* inner() const { return inner_.load(std::memory_order_acquire); }

  std::atomic<c10::Allocator*> inner_;
};

// Made before there are threads, so that a thread that allocates during another thread's install() finds it complete.
// Never destroyed, because tensors may be made as long as the process lives.
LendingAllocator* const allocator = new LendingAllocator(c10::GetCPUAllocator());

// Frees memory that has no DataPtr. LibTorch's convolutions allocate such memory.
void LendingAllocator::free_raw(void* data) {
  if (!loans->end(data)) allocator->inner()->raw_deleter()(data);
}

// The gradient that came last on this thread: its memory, and how many tensors LibTorch itself has there until the
// post-accumulate hook has ended. These are the gradient that backward made and, if it is a view, what it is a view of.
struct Arrival {
  const c10::StorageImpl* memory = nullptr;
  std::size_t tensors = 0;
};
thread_local Arrival arrival;

// How many tensors LibTorch itself has in the gradient's memory, besides the parameter's gradient.
std::size_t tensors_of_libtorch(const at::Tensor& gradient) {
  const auto node = std::dynamic_pointer_cast<torch::autograd::AccumulateGrad>(torch::autograd::get_current_node());
  const bool is_in_hook = node != nullptr && node->variable.grad().is_same(gradient);
  return is_in_hook && gradient.storage().unsafeGetStorageImpl() == arrival.memory ? arrival.tensors : 0;
}

// Whether a gradient that has come has a second tensor in its memory while the post-accumulate hook runs.
bool libtorch_keeps_gradients() {
  struct Hook final : torch::autograd::PostAccumulateGradHook {
    explicit Hook(bool& kept) : is_kept(kept) {}
    void operator()(const torch::autograd::Variable& parameter) override {
      is_kept = parameter.grad().storage().use_count() > 1;
    }
    bool& is_kept;
  };
  static const bool kKeeps = [] {
    bool is_kept = false;
    const at::AutoGradMode grad_mode(true);
    const at::Tensor parameter = at::zeros({1}).requires_grad_();
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Hook>(is_kept));
    parameter.mul(2).backward();
    return is_kept;
  }();
  return kKeeps;
}

// If another allocator of higher priority is in use, nothing is lent, and gradients are copied.
void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    allocator->set_inner(c10::GetCPUAllocator());
    c10::SetCPUAllocator(allocator);
  });
}

}  // namespace

SpareBlocks::SpareBlocks(std::vector<at::Tensor> blocks) : blocks_(std::move(blocks)) {
  for (const at::Tensor& block : blocks_) {
    REIGEN_ASSERT(block.dim() == 1 && block.is_contiguous(), "a block of {} dimensions", block.dim());
  }
}

std::size_t SpareBlocks::find(const at::Tensor& gradient) const {
  if (gradient.layout() != at::kStrided || !gradient.device().is_cpu()) return blocks_.size();
  const void* const data = gradient.const_data_ptr();
  const auto found = std::find_if(blocks_.begin(), blocks_.end(),
                                  [&](const at::Tensor& block) { return block.const_data_ptr() == data; });
  return static_cast<std::size_t>(found - blocks_.begin());
}

bool SpareBlocks::hold(const at::Tensor& gradient) const {
  const std::size_t i = find(gradient);
  return i < blocks_.size() && loans->has(blocks_[i].const_data_ptr()) &&
         gradient.scalar_type() == blocks_[i].scalar_type() && gradient.numel() == blocks_[i].numel() &&
         gradient.is_contiguous() && gradient.use_count() == 1 && !gradient.requires_grad() && !gradient.is_conj() &&
         !gradient.is_neg() && gradient.storage().use_count() == 1 + tensors_of_libtorch(gradient);
}

at::Tensor SpareBlocks::exchange(const at::Tensor& gradient, const at::Tensor& place) {
  const std::size_t i = find(gradient);
  REIGEN_ASSERT(i < blocks_.size(), "a gradient of {} elements that lies in no block", gradient.numel());
  return std::exchange(blocks_[i], place.view({-1})).view(place.sizes()).detach();
}

c10::DataPtr SpareBlocks::lend(std::size_t bytes) {
  for (const at::Tensor& block : blocks_) {
    if (block.nbytes() != bytes) continue;
    void* const data = block.mutable_data_ptr();
    if (loans->has(data)) continue;
    loans->begin(data, block);
    return {data, data, &end_loan, c10::Device(c10::kCPU)};
  }
  return {};
}

std::optional<unsigned> note_arrivals(const at::Tensor& parameter) {
  if (!parameter.is_cpu() || !libtorch_keeps_gradients()) return std::nullopt;
  return parameter.register_hook([](const at::Tensor& gradient) {
    arrival = {};
    if (!gradient.defined() || !gradient.has_storage()) return;
    arrival = {gradient.storage().unsafeGetStorageImpl(), gradient.is_view() ? 2U : 1U};
  });
}

void lend_to_backward(const std::shared_ptr<SpareBlocks>& blocks) {
  install();
  stop_lending(blocks);
  lenders.blocks.push_back(blocks);
  is_lending = true;
}

void stop_lending(const std::shared_ptr<SpareBlocks>& blocks) {
  if (!is_lending) return;
  std::erase_if(lenders.blocks, [&](const auto& one) { return one.expired() || one.lock() == blocks; });
  is_lending = !lenders.blocks.empty();
}

}  // namespace reigen::tensor
