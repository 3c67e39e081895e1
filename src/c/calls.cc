// The operations of a group for C, and the handles of asynchronous calls.
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "c/handles.h"
#include "c/options.h"

namespace reigen::c {

namespace {

using comm::CallOptions;

// The arguments of a call, checked and converted to the types of C++.
struct Given {
  const char* function;
  int ranks;
  CallOptions options;

  DataType type(reigen_type type) const {
    REIGEN_CHECK(type >= REIGEN_INT8 && type <= REIGEN_BOOL,
                 "[{}] unknown data type\n  got: {}   expected: {} (REIGEN_INT8) to {} (REIGEN_BOOL)", function, type,
                 static_cast<int>(REIGEN_INT8), static_cast<int>(REIGEN_BOOL));
    return static_cast<DataType>(type);
  }

  ReduceOp op(reigen_op op) const {
    REIGEN_CHECK(op >= REIGEN_SUM && op <= REIGEN_BXOR,
                 "[{}] unknown reduction\n  got: {}   expected: {} (REIGEN_SUM) to {} (REIGEN_BXOR)", function, op,
                 static_cast<int>(REIGEN_SUM), static_cast<int>(REIGEN_BXOR));
    return static_cast<ReduceOp>(op);
  }

  Communicator::Counts counts(const size_t* counts, const char* what = "counts") const {
    not_null(counts, function, what, "a count for every rank");
    return {counts, static_cast<std::size_t>(ranks)};
  }
};

void begin(Pending& pending, Work work) {
  pending.work = std::move(work);
  pending.begun.store(true);
}

// Runs the list of calls, or starts it if the caller wants a handle.
void call(const Communicator& group, const CallList& calls, const reigen_call_options& options) {
  if (options.work == nullptr) return group.run(calls);
  // The handle is allocated first. If there is no memory for it, the call must not have begun.
  auto handle = std::make_unique<reigen_work>(group.device());
  begin(*handle->pending, group.start(calls, progress_of(options)));
  *options.work = handle.release();
}

// add(list, given) adds the call to a list. Between reigen_group_begin and reigen_group_end this is the list of
// collected calls, else a new list.
template <class Add>
reigen_status call(const char* function, reigen_comm* comm, const reigen_call_options* options, Add&& add) noexcept {
  return guarded([&] {
    const reigen_call_options read = to_call_options(function, options);
    if (read.work != nullptr) *read.work = nullptr;
    reigen_comm& group = checked(comm, function);
    const Given given{function, group.communicator.size(), to_cpp(read, group.communicator.device())};
    if (!group.calls) {
      CallList calls;
      add(calls, given);
      return call(group.communicator, calls, read);
    }
    auto handle = read.work == nullptr
                      ? nullptr
                      : std::make_unique<reigen_work>(group.communicator.device(), group.calls->pending);
    add(group.calls->list, given);
    if (handle) *read.work = handle.release();
  });
}

// The state of a call that runs. Throws for a call that is only collected, and rethrows the error of a refused call.
const Pending& begun(const reigen_work* work, const char* function) {
  const Pending& pending = *not_null(work, function, "work", "a handle of an asynchronous call")->pending;
  REIGEN_CHECK(pending.begun.load(),
               "[{}] the call is collected and does not run yet\n  expected: reigen_group_end first", function);
  if (pending.refused) std::rethrow_exception(pending.refused);
  return pending;
}

// Starts the collected calls. All their handles get the same Work, or the error with which start() refused the calls.
void end_collecting(const Communicator& group, const Collected& calls, const reigen_call_options& options) {
  auto handle = options.work == nullptr ? nullptr : std::make_unique<reigen_work>(group.device(), calls.pending);
  const auto progress = handle ? progress_of(options) : comm::Progress::kCaller;
  const Work all = [&] {
    try {
      return group.start(calls.list, progress);
    } catch (...) {
      calls.pending->refused = std::current_exception();
      calls.pending->begun.store(true);
      throw;
    }
  }();
  begin(*calls.pending, all);
  if (!handle) return all.wait();
  *options.work = handle.release();
}

}  // namespace

static_assert(static_cast<int>(DataType::kInt8) == REIGEN_INT8 && static_cast<int>(DataType::kUint8) == REIGEN_UINT8 &&
              static_cast<int>(DataType::kInt16) == REIGEN_INT16 && static_cast<int>(DataType::kInt32) == REIGEN_INT32);
static_assert(static_cast<int>(DataType::kInt64) == REIGEN_INT64 &&
              static_cast<int>(DataType::kFloat16) == REIGEN_FLOAT16 &&
              static_cast<int>(DataType::kBfloat16) == REIGEN_BFLOAT16);
static_assert(static_cast<int>(DataType::kFloat32) == REIGEN_FLOAT32 &&
              static_cast<int>(DataType::kFloat64) == REIGEN_FLOAT64 &&
              static_cast<int>(DataType::kBool) == REIGEN_BOOL);
static_assert(static_cast<int>(ReduceOp::kSum) == REIGEN_SUM && static_cast<int>(ReduceOp::kAvg) == REIGEN_AVG &&
              static_cast<int>(ReduceOp::kProd) == REIGEN_PROD && static_cast<int>(ReduceOp::kMin) == REIGEN_MIN);
static_assert(static_cast<int>(ReduceOp::kMax) == REIGEN_MAX && static_cast<int>(ReduceOp::kBand) == REIGEN_BAND &&
              static_cast<int>(ReduceOp::kBor) == REIGEN_BOR && static_cast<int>(ReduceOp::kBxor) == REIGEN_BXOR);

}  // namespace reigen::c

using reigen::c::call;
using reigen::c::checked;
using reigen::c::guarded;
using reigen::c::not_null;

size_t reigen_type_size(reigen_type type) {
  return type < REIGEN_INT8 || type > REIGEN_BOOL ? 0 : reigen::comm::size_of(static_cast<reigen::DataType>(type));
}

reigen_status reigen_all_reduce(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                                reigen_op op, const reigen_call_options* options) {
  return call(__func__, comm, options, [&](auto& c, const auto& given) {
    c.all_reduce(input, output, count, given.type(type), given.op(op), given.options);
  });
}

reigen_status reigen_broadcast(reigen_comm* comm, void* data, size_t count, reigen_type type, int root,
                               const reigen_call_options* options) {
  return call(__func__, comm, options,
              [&](auto& c, const auto& given) { c.broadcast(data, count, given.type(type), root, given.options); });
}

reigen_status reigen_all_gather(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                                const reigen_call_options* options) {
  return call(__func__, comm, options,
              [&](auto& c, const auto& given) { c.all_gather(input, output, count, given.type(type), given.options); });
}

reigen_status reigen_reduce_scatter(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                                    reigen_op op, const reigen_call_options* options) {
  return call(__func__, comm, options, [&](auto& c, const auto& given) {
    c.reduce_scatter(input, output, count, given.type(type), given.op(op), given.options);
  });
}

reigen_status reigen_reduce(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                            reigen_op op, int root, const reigen_call_options* options) {
  return call(__func__, comm, options, [&](auto& c, const auto& given) {
    c.reduce(input, output, count, given.type(type), given.op(op), root, given.options);
  });
}

reigen_status reigen_gather(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                            int root, const reigen_call_options* options) {
  return call(__func__, comm, options, [&](auto& c, const auto& given) {
    c.gather(input, output, count, given.type(type), root, given.options);
  });
}

reigen_status reigen_scatter(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                             int root, const reigen_call_options* options) {
  return call(__func__, comm, options, [&](auto& c, const auto& given) {
    c.scatter(input, output, count, given.type(type), root, given.options);
  });
}

reigen_status reigen_all_to_all(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                                const reigen_call_options* options) {
  return call(__func__, comm, options,
              [&](auto& c, const auto& given) { c.all_to_all(input, output, count, given.type(type), given.options); });
}

reigen_status reigen_barrier(reigen_comm* comm, const reigen_call_options* options) {
  return call(__func__, comm, options, [&](auto& c, const auto& given) { c.barrier(given.options); });
}

reigen_status reigen_all_gather_v(reigen_comm* comm, const void* input, void* output, const size_t* counts,
                                  reigen_type type, const reigen_call_options* options) {
  return call(__func__, comm, options, [&](auto& c, const auto& given) {
    c.all_gather_v(input, output, given.counts(counts), given.type(type), given.options);
  });
}

reigen_status reigen_reduce_scatter_v(reigen_comm* comm, const void* input, void* output, const size_t* counts,
                                      reigen_type type, reigen_op op, const reigen_call_options* options) {
  return call(__func__, comm, options, [&](auto& c, const auto& given) {
    c.reduce_scatter_v(input, output, given.counts(counts), given.type(type), given.op(op), given.options);
  });
}

reigen_status reigen_gather_v(reigen_comm* comm, const void* input, void* output, const size_t* counts,
                              reigen_type type, int root, const reigen_call_options* options) {
  return call(__func__, comm, options, [&](auto& c, const auto& given) {
    c.gather_v(input, output, given.counts(counts), given.type(type), root, given.options);
  });
}

reigen_status reigen_scatter_v(reigen_comm* comm, const void* input, void* output, const size_t* counts,
                               reigen_type type, int root, const reigen_call_options* options) {
  return call(__func__, comm, options, [&](auto& c, const auto& given) {
    c.scatter_v(input, output, given.counts(counts), given.type(type), root, given.options);
  });
}

reigen_status reigen_all_to_all_v(reigen_comm* comm, const void* input, const size_t* leaves, void* output,
                                  const size_t* arrives, reigen_type type, const reigen_call_options* options) {
  return call(__func__, comm, options, [&](auto& c, const auto& given) {
    c.all_to_all_v(input, given.counts(leaves, "counts that leave"), output,
                   given.counts(arrives, "counts that arrive"), given.type(type), given.options);
  });
}

reigen_status reigen_send(reigen_comm* comm, const void* data, size_t count, reigen_type type, int to,
                          const reigen_call_options* options) {
  return call(__func__, comm, options,
              [&](auto& c, const auto& given) { c.send(data, count, given.type(type), to, given.options); });
}

reigen_status reigen_recv(reigen_comm* comm, void* data, size_t count, reigen_type type, int from,
                          const reigen_call_options* options) {
  return call(__func__, comm, options,
              [&](auto& c, const auto& given) { c.recv(data, count, given.type(type), from, given.options); });
}

reigen_status reigen_group_begin(reigen_comm* comm) {
  return guarded([&] {
    reigen_comm& group = checked(comm, "reigen_group_begin");
    REIGEN_CHECK(!group.calls,
                 "[reigen_group_begin] calls of group \"{}\" are being collected already\n  expected: "
                 "reigen_group_end first",
                 group.communicator.name());
    group.calls.emplace();
  });
}

reigen_status reigen_group_end(reigen_comm* comm, const reigen_call_options* options) {
  return guarded([&] {
    const reigen_call_options read = reigen::c::to_call_options("reigen_group_end", options);
    if (read.work != nullptr) *read.work = nullptr;
    reigen_comm& group = checked(comm, "reigen_group_end");
    const auto calls = std::exchange(group.calls, std::nullopt);
    REIGEN_CHECK(calls,
                 "[reigen_group_end] no calls of group \"{}\" are being collected\n  expected: "
                 "reigen_group_begin first",
                 group.communicator.name());
    reigen::c::end_collecting(group.communicator, *calls, read);
  });
}

reigen_status reigen_poll(reigen_comm* comm) {
  return guarded([&] { checked(comm, "reigen_poll").communicator.poll(); });
}

reigen_status reigen_work_wait(reigen_work* work, int64_t timeout_ms) {
  return guarded([&] {
    const reigen::c::Pending& pending = reigen::c::begun(work, "reigen_work_wait");
    // A timeout of more than a year counts as no timeout, because the nanoseconds of a huge timeout do not fit into 64
    // bits.
    constexpr std::int64_t kLongest = 1000LL * 3600 * 24 * 365;
    if (timeout_ms < 0 || timeout_ms > kLongest) return pending.work.wait();
    pending.work.wait(reigen::Deadline::after(std::chrono::milliseconds(timeout_ms)));
  });
}

reigen_status reigen_work_wait_on(reigen_work* work, void* stream) {
  return guarded([&] {
    const reigen::c::Pending& pending = reigen::c::begun(work, "reigen_work_wait_on");
    REIGEN_CHECK(
        !work->device.is_cpu(),
        "[reigen_work_wait_on] the group of the call has no GPU\n  fix: reigen_work_wait, or set device in the "
        "options of the group");
    pending.work.wait_on({.device = work->device, .handle = stream});
  });
}

int reigen_work_is_completed(const reigen_work* work) {
  int completed = -1;
  guarded([&] {
    const reigen::c::Pending& pending =
        *not_null(work, "reigen_work_is_completed", "work", "a handle of an asynchronous call")->pending;
    completed = pending.begun.load() && (pending.refused || pending.work.is_completed());
  });
  return completed;
}

void reigen_work_release(reigen_work* work) { delete work; }
