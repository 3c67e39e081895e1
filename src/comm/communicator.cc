#include "reigen/comm/communicator.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "comm/backends.h"
#include "comm/engine.h"
#include "comm/self/self_backend.h"

namespace reigen::comm {

namespace {

constexpr std::size_t kTagMax = 47;

// A group of one, unless a backend was asked for.
bool is_alone(const GroupOptions& o) {
  return o.size == 1 && (o.backend == "auto" || o.backend == self::backend_name());
}

void check_options(const GroupOptions& o) {
  REIGEN_CHECK(o.size >= 1, "a group needs at least one rank\n  got: size {}", o.size);
  REIGEN_CHECK(o.rank >= 0 && o.rank < o.size, "rank out of range\n  got: {}   expected: 0 to {}", o.rank, o.size - 1);
  if (o.backend != self::backend_name()) find_backend(o.backend);
  REIGEN_CHECK(o.backend != self::backend_name() || o.size == 1,
               "the backend \"self\" is for a group of one\n  got: size {}", o.size);
  REIGEN_CHECK(o.connections >= 1 && o.connections <= 64,
               "connections out of range\n  got: {}   expected: 1 to 64 for each pair of ranks", o.connections);
  REIGEN_CHECK(o.segments >= 0, "segments out of range\n  got: {}   expected: 1 or more, or 0: by size", o.segments);
  REIGEN_CHECK(o.backend == "tcp" || (o.algorithms.empty() && o.segments == 0),
               "only the backend \"tcp\" has a choice of algorithms and segments\n  got: backend \"{}\"", o.backend);
  REIGEN_CHECK(is_alone(o) || o.store != nullptr, "a group of {} ranks needs a store to find each other", o.size);
}

}  // namespace

struct Communicator::Impl {
  GroupOptions options;
  std::string backend_name;
  std::shared_ptr<Engine> engine;  // null in a group of one
  std::exception_ptr ended;        // of a group of one
  int splits = 0;                  // so far: every rank counts alike

  ~Impl() {
    if (engine) engine->shut_down();
  }

  Work submit(Call call, const CallOptions& call_options) {
    REIGEN_CHECK(call_options.tag.size() <= kTagMax,
                 "[{}] the tag is too long\n  got: {} characters   expected: at most {}", name_of(call.kind),
                 call_options.tag.size(), kTagMax);
    check_call(call, options.rank, options.size);
    call.tag = call_options.tag;
    if (!engine) {
      if (ended) std::rethrow_exception(ended);
      self::run(call);
      return Work();
    }
    auto work = engine->submit(std::move(call), call_options.async && call_options.progress == Progress::kThread);
    if (call_options.async) return Work(std::move(work));
    engine->wait(*work, Deadline::never());
    return Work();
  }
};

Communicator::Communicator() : Communicator(GroupOptions{}) {}

Communicator::Communicator(const GroupOptions& options) : impl_(std::make_shared<Impl>()) {
  check_options(options);
  impl_->options = options;
  if (is_alone(options)) {
    impl_->backend_name = self::backend_name();
    return;
  }
  auto backend = find_backend(options.backend).make(options);
  impl_->backend_name = backend->name();
  impl_->engine = std::make_shared<Engine>(std::move(backend), options.name, options.rank, options.size);
  base::log_info("group \"{}\": rank {} of {}, backend {}", options.name, options.rank, options.size,
                 impl_->backend_name);
}

Communicator::Communicator(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::optional<Communicator> Communicator::split(int color, int key) const {
  struct Wish {
    std::int64_t color;
    std::int64_t key;
  };
  const int p = size();
  const Wish mine{color, key};
  std::vector<Wish> wishes(static_cast<std::size_t>(p));
  impl_->submit({OperationKind::kAllGather, &mine, wishes.data(), 2, DataType::kInt64, ReduceOp::kSum, 0, {}},
                {.tag = "split"});
  const int number = impl_->splits++;
  if (color < 0) return std::nullopt;
  std::vector<int> members;
  for (int q = 0; q < p; ++q) {
    if (wishes[static_cast<std::size_t>(q)].color == color) members.push_back(q);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });
  auto child = std::make_shared<Impl>();
  child->options = impl_->options;
  child->options.name = fmt::format("{}/{}.{}", name(), number, color);
  child->options.size = static_cast<int>(members.size());
  child->options.rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  child->backend_name = impl_->backend_name;
  if (impl_->engine) {
    child->engine = std::make_shared<Engine>(impl_->engine->backend().make_child(child->options), child->options.name,
                                             child->options.rank, child->options.size);
  }
  return Communicator(std::move(child));
}

int Communicator::rank() const { return impl_->options.rank; }
int Communicator::size() const { return impl_->options.size; }
const std::string& Communicator::name() const { return impl_->options.name; }
const std::string& Communicator::backend() const { return impl_->backend_name; }

Work Communicator::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                              const CallOptions& options) {
  return impl_->submit({OperationKind::kAllReduce, input, output, count, type, op, 0, {}}, options);
}

Work Communicator::broadcast(void* data, std::size_t count, DataType type, int root, const CallOptions& options) {
  return impl_->submit({OperationKind::kBroadcast, data, data, count, type, ReduceOp::kSum, root, {}}, options);
}

Work Communicator::all_gather(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) {
  return impl_->submit({OperationKind::kAllGather, input, output, count, type, ReduceOp::kSum, 0, {}}, options);
}

Work Communicator::reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                  const CallOptions& options) {
  return impl_->submit({OperationKind::kReduceScatter, input, output, count, type, op, 0, {}}, options);
}

Work Communicator::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
                          const CallOptions& options) {
  return impl_->submit({OperationKind::kReduce, input, output, count, type, op, root, {}}, options);
}

Work Communicator::gather(const void* input, void* output, std::size_t count, DataType type, int root,
                          const CallOptions& options) {
  return impl_->submit({OperationKind::kGather, input, output, count, type, ReduceOp::kSum, root, {}}, options);
}

Work Communicator::scatter(const void* input, void* output, std::size_t count, DataType type, int root,
                           const CallOptions& options) {
  return impl_->submit({OperationKind::kScatter, input, output, count, type, ReduceOp::kSum, root, {}}, options);
}

Work Communicator::all_to_all(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) {
  return impl_->submit({OperationKind::kAllToAll, input, output, count, type, ReduceOp::kSum, 0, {}}, options);
}

Work Communicator::barrier(const CallOptions& options) { return impl_->submit({}, options); }

std::shared_ptr<void> Communicator::allocate(std::size_t bytes) {
  return impl_->engine ? impl_->engine->backend().allocate(bytes) : self::allocate(bytes);
}

void Communicator::poll() {
  if (impl_->engine) impl_->engine->poll();
}

void Communicator::abort(const std::string& cause) {
  if (impl_->engine) {
    impl_->engine->abort(cause);
  } else if (!impl_->ended) {
    impl_->ended =
        std::make_exception_ptr(Aborted(fmt::format("rank 0 of 1 ended group \"{}\": {}", impl_->options.name, cause)));
  }
}

void Work::wait() const { wait(Deadline::never()); }

void Work::wait(const Deadline& deadline) const {
  if (state_) state_->engine->wait(*state_, deadline);
}

bool Work::is_completed() const { return !state_ || state_->completed.load(std::memory_order_acquire); }

}  // namespace reigen::comm
