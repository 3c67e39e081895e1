#include "reigen/comm/communicator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "comm/backends.h"
#include "comm/engine.h"
#include "comm/self/self_backend.h"
#include "reigen/comm/call_group.h"

namespace reigen::comm {

namespace {

constexpr std::size_t kTagMax = 47;

// A group of one, unless a backend was asked for.
bool is_alone(const GroupOptions& o) {
  return o.size == 1 && (o.backend == "auto" || o.backend == self::backend_name());
}

std::vector<std::size_t> to_vector(Communicator::Counts counts) { return {counts.begin(), counts.end()}; }

void check_options(const GroupOptions& o) {
  REIGEN_CHECK(o.size >= 1, "a group needs at least one rank\n  got: size {}", o.size);
  REIGEN_CHECK(o.rank >= 0 && o.rank < o.size, "rank out of range\n  got: {}   expected: 0 to {}", o.rank, o.size - 1);
  if (o.backend != self::backend_name()) find_backend(o.backend);
  REIGEN_CHECK(o.backend != self::backend_name() || o.size == 1,
               "the backend \"self\" is for a group of one\n  got: size {}", o.size);
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

  bool collecting = false;  // a CallGroup's calls
  std::vector<std::shared_ptr<WorkState>> collected;

  Work submit(Call call, const CallOptions& call_options) {
    REIGEN_CHECK(call_options.tag.size() <= kTagMax,
                 "[{}] the tag is too long\n  got: {} characters   expected: at most {}", name_of(call.kind),
                 call_options.tag.size(), kTagMax);
    call.factor = call_options.factor;
    check_call(call, options.rank, options.size);
    call.tag = call_options.tag;
    if (!engine && !collecting) {
      if (ended) std::rethrow_exception(ended);
      self::run(call);
      return Work();
    }
    auto work = std::make_shared<WorkState>();
    work->call = std::move(call);
    if (collecting) {
      collected.push_back(work);
      return Work(std::move(work));
    }
    if (call_options.async) engine->hold_memory(*work);
    engine->submit({&work, 1}, call_options.async && call_options.progress == Progress::kThread);
    if (call_options.async) return Work(std::move(work));
    engine->wait(*work, Deadline::never());
    return Work();
  }

  // Everything that was collected.
  Work run(const CallOptions& call_options) {
    collecting = false;
    auto group = std::make_shared<WorkState>();
    group->parts = std::exchange(collected, {});
    if (!engine) {
      if (ended) std::rethrow_exception(ended);
      for (const auto& work : group->parts) {
        self::run(work->call);
        work->completed.store(true);
      }
      return Work();
    }
    if (call_options.async) {
      for (const auto& part : group->parts) engine->hold_memory(*part);
    }
    engine->submit(group->parts, call_options.async && call_options.progress == Progress::kThread);
    Work work(std::move(group));
    if (call_options.async) return work;
    work.wait();
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
  REIGEN_CHECK(!impl_->collecting, "split() inside of a CallGroup\n  got: group \"{}\"   expected: after run()",
               name());
  impl_->submit({.kind = OperationKind::kAllGather,
                 .input = &mine,
                 .output = wishes.data(),
                 .count = 2,
                 .type = DataType::kInt64},
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
    child->engine = std::make_shared<Engine>(impl_->engine->backend().make_child(child->options, members),
                                             child->options.name, child->options.rank, child->options.size);
  }
  return Communicator(std::move(child));
}

int Communicator::rank() const { return impl_->options.rank; }
int Communicator::size() const { return impl_->options.size; }
const std::string& Communicator::name() const { return impl_->options.name; }
const std::string& Communicator::backend() const { return impl_->backend_name; }

Work Communicator::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                              const CallOptions& options) {
  return impl_->submit(
      {.kind = OperationKind::kAllReduce, .input = input, .output = output, .count = count, .type = type, .op = op},
      options);
}

Work Communicator::broadcast(void* data, std::size_t count, DataType type, int root, const CallOptions& options) {
  return impl_->submit(
      {.kind = OperationKind::kBroadcast, .input = data, .output = data, .count = count, .type = type, .root = root},
      options);
}

Work Communicator::all_gather(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) {
  return impl_->submit(
      {.kind = OperationKind::kAllGather, .input = input, .output = output, .count = count, .type = type}, options);
}

Work Communicator::reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                  const CallOptions& options) {
  return impl_->submit(
      {.kind = OperationKind::kReduceScatter, .input = input, .output = output, .count = count, .type = type, .op = op},
      options);
}

Work Communicator::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
                          const CallOptions& options) {
  return impl_->submit({.kind = OperationKind::kReduce,
                        .input = input,
                        .output = output,
                        .count = count,
                        .type = type,
                        .op = op,
                        .root = root},
                       options);
}

Work Communicator::gather(const void* input, void* output, std::size_t count, DataType type, int root,
                          const CallOptions& options) {
  return impl_->submit(
      {.kind = OperationKind::kGather, .input = input, .output = output, .count = count, .type = type, .root = root},
      options);
}

Work Communicator::scatter(const void* input, void* output, std::size_t count, DataType type, int root,
                           const CallOptions& options) {
  return impl_->submit(
      {.kind = OperationKind::kScatter, .input = input, .output = output, .count = count, .type = type, .root = root},
      options);
}

Work Communicator::all_to_all(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) {
  return impl_->submit(
      {.kind = OperationKind::kAllToAll, .input = input, .output = output, .count = count, .type = type}, options);
}

Work Communicator::all_gather_v(const void* input, void* output, Counts counts, DataType type,
                                const CallOptions& options) {
  return impl_->submit(
      {.kind = OperationKind::kAllGatherV, .input = input, .output = output, .type = type, .counts = to_vector(counts)},
      options);
}

Work Communicator::reduce_scatter_v(const void* input, void* output, Counts counts, DataType type, ReduceOp op,
                                    const CallOptions& options) {
  return impl_->submit({.kind = OperationKind::kReduceScatterV,
                        .input = input,
                        .output = output,
                        .type = type,
                        .op = op,
                        .counts = to_vector(counts)},
                       options);
}

Work Communicator::gather_v(const void* input, void* output, Counts counts, DataType type, int root,
                            const CallOptions& options) {
  return impl_->submit({.kind = OperationKind::kGatherV,
                        .input = input,
                        .output = output,
                        .type = type,
                        .root = root,
                        .counts = to_vector(counts)},
                       options);
}

Work Communicator::scatter_v(const void* input, void* output, Counts counts, DataType type, int root,
                             const CallOptions& options) {
  return impl_->submit({.kind = OperationKind::kScatterV,
                        .input = input,
                        .output = output,
                        .type = type,
                        .root = root,
                        .counts = to_vector(counts)},
                       options);
}

Work Communicator::all_to_all_v(const void* input, Counts leaves, void* output, Counts arrives, DataType type,
                                const CallOptions& options) {
  return impl_->submit({.kind = OperationKind::kAllToAllV,
                        .input = input,
                        .output = output,
                        .type = type,
                        .counts = to_vector(leaves),
                        .arrives = to_vector(arrives)},
                       options);
}

Work Communicator::send(const void* data, std::size_t count, DataType type, int to, const CallOptions& options) {
  return impl_->submit({.kind = OperationKind::kSend, .input = data, .count = count, .type = type, .root = to},
                       options);
}

Work Communicator::recv(void* data, std::size_t count, DataType type, int from, const CallOptions& options) {
  return impl_->submit({.kind = OperationKind::kRecv, .output = data, .count = count, .type = type, .root = from},
                       options);
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

CallGroup::CallGroup(Communicator& communicator) : impl_(communicator.impl_) {
  REIGEN_CHECK(!impl_->collecting,
               "a second CallGroup of group \"{}\"\n  got: one that has not run   expected: run() first",
               impl_->options.name);
  impl_->collecting = true;
}

CallGroup::~CallGroup() {
  if (ran_) return;
  impl_->collecting = false;
  impl_->collected.clear();
}

Work CallGroup::run(const CallOptions& options) {
  REIGEN_CHECK(!ran_, "a CallGroup of group \"{}\" runs twice\n  got: a second run()   expected: a new CallGroup",
               impl_->options.name);
  ran_ = true;
  return impl_->run(options);
}

void Work::wait() const { wait(Deadline::never()); }

void Work::wait(const Deadline& deadline) const {
  if (!state_) return;
  for (const auto& part : state_->parts) Work(part).wait(deadline);
  if (!state_->parts.empty() || state_->completed.load()) {
    if (state_->error) std::rethrow_exception(state_->error);
    return;
  }
  REIGEN_CHECK(state_->engine != nullptr,
               "[{}] waiting for a call of a CallGroup that has not run\n"
               "  got: no run()   expected: run() before wait()",
               name_of(state_->call.kind));
  state_->engine->wait(*state_, deadline);
}

bool Work::is_completed() const {
  if (!state_) return true;
  if (state_->parts.empty()) return state_->completed.load();
  return std::all_of(state_->parts.begin(), state_->parts.end(),
                     [](const auto& part) { return part->completed.load(); });
}

}  // namespace reigen::comm
