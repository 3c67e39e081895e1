#include "parallel/exchange/gradient_flags.h"

#include <utility>

namespace reigen::parallel {

GradientFlags::GradientFlags(const Communicator& world, std::size_t parameters, bool is_on_gpu)
    : parameters_(parameters), is_on_gpu_(is_on_gpu), flags_(world.allocate(parameters)) {}

void GradientFlags::start(const Has& has, BucketQueue& queue) {
  end();
  auto* const flags = static_cast<char*>(flags_.get());
  for (std::size_t i = 0; i < parameters_; ++i) flags[i] = has(i) ? 1 : 0;
  // For gradients on the CPU, the caller waits for the call right after its start. The wait advances the call, so no
  // other thread needs to.
  work_ = queue.start_on_any_rank(flags, is_on_gpu_ ? comm::Progress::kThread : comm::Progress::kCaller);
}

std::vector<char> GradientFlags::on_any_rank(const Has& has) {
  bool has_all = is_on_gpu_;
  for (std::size_t i = 0; i < parameters_ && has_all; ++i) has_all = has(i);
  if (has_all) return std::vector<char>(parameters_, 1);
  end();
  const auto* const flags = static_cast<const char*>(flags_.get());
  return {flags, flags + parameters_};
}

void GradientFlags::end() { std::exchange(work_, Work()).wait(); }

}  // namespace reigen::parallel
