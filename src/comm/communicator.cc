#include "reigen/comm/communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error_record.h"
#include "base/log.h"
#include "base/machine/cores.h"
#include "comm/backends.h"
#include "comm/call/algorithm_choice.h"
#include "comm/call/memory.h"
#include "comm/call/request.h"
#include "comm/core_share_of.h"
#include "comm/engine.h"
#include "comm/flight_log.h"
#include "comm/forming/round_store.h"
#include "comm/self/self_backend.h"
#include "device/cuda.h"
#include "reigen/base/bytes.h"
#include "reigen/comm/call_list.h"

namespace reigen::comm {

namespace {

constexpr std::size_t kRoomOfAGroup = 64 * kMiB;  // more than the buffers of a group on a GPU

// Whether the group has one rank and uses no backend for the host's memory, because options.backend is "auto" or
// "self".
bool is_alone(const GroupOptions& o) {
  return o.size == 1 && (o.backend == kAutomatic || o.backend == self::backend_name());
}

// The options for the device's backend. The calls on the device's memory are numbered separately from the calls on the
// host's memory, so the flight record lists them under another group name.
GroupOptions options_of_device(const GroupOptions& group) {
  GroupOptions options = group;
  options.name += ".cuda";
  options.algorithms.clear();  // these rules are for the host's backend
  return options;
}

void check_options(const GroupOptions& o) {
  REIGEN_CHECK(o.size >= 1, "a group needs at least one rank\n  got: size {}", o.size);
  REIGEN_CHECK(o.rank >= 0 && o.rank < o.size, "rank out of range\n  got: {}   expected: 0 to {}", o.rank, o.size - 1);
  const BackendEntry& backend = engine_of(o);
  REIGEN_CHECK(backend.make != nullptr || o.size == 1, "the backend \"self\" is for a group of one\n  got: size {}",
               o.size);
  REIGEN_CHECK(o.connections >= 1 && o.connections <= 64,
               "connections out of range\n  got: {}   expected: 1 to 64 for each pair of ranks", o.connections);
  REIGEN_CHECK(o.segments >= 0, "segments out of range\n  got: {}   expected: 1 or more, or 0: by size", o.segments);
  REIGEN_CHECK(offers(backend, Family::kTcp) || o.segments == 0,
               "only the backend \"tcp\" has segments\n  got: segments {}, backend \"{}\"", o.segments, o.backend);
  REIGEN_CHECK(!backend.families.empty() || o.algorithms.empty(),
               "the backend has no choice of algorithms\n  got: \"{}\", backend \"{}\"   "
               "expected: backend shared_memory, tcp, hierarchical or auto",
               o.algorithms, o.backend);
  if (!backend.families.empty()) check_algorithms(o.algorithms, backend.families);
  const auto is_network = [&](const BackendEntry& entry) { return entry.joins_machines && entry.name == o.network; };
  REIGEN_CHECK(std::any_of(backends().begin(), backends().end(), is_network),
               "no network between machines\n  got: \"{}\"   expected: tcp, mpi", o.network);
  REIGEN_CHECK(is_alone(o) || o.store != nullptr, "a group of {} ranks needs a store to find each other", o.size);
}

}  // namespace

struct Communicator::Impl {
  GroupOptions options;
  std::string backend_name;
  // This rank's share of the processors of its machine. It is computed for a first group (one that was not split off):
  // the ranks of this group on the machine divide the processors. All groups that are split off get the same share. Not
  // set in a group of one rank without a backend, where core_share_of() computes the share.
  std::optional<base::CoreShare> share;
  std::optional<FlightLog> flight;
  std::shared_ptr<Context> context;  // shared with all groups that are split off; null if there is no engine
  std::shared_ptr<Engine> host;      // null in a group of one rank without a backend
  std::shared_ptr<Engine> device;    // null if the group's calls cannot use a device's memory
  std::string device_backend_name;   // empty if `device` is null
  // Whether a caller has been told that the group has ended. Both engines share it.
  std::shared_ptr<std::atomic<bool>> told = std::make_shared<std::atomic<bool>>(false);
  std::exception_ptr ended;  // set by abort() if size is 1
  std::uint64_t called = 0;  // number of calls if size is 1
  int splits = 0;            // split() calls so far; every rank has the same number

  // Called before this rank waits for the other ranks, so that its flight record names the group even while it waits.
  void begin_record() {
    flight.emplace(options);
    options.recorder = flight->recorder();
  }

  ~Impl() {
    for (const auto& engine : {device, host}) {
      if (engine) engine->shut_down();
    }
  }

  Engine& any_engine() const { return host ? *host : *device; }

  std::vector<int> in_first_group(const std::vector<int>& ranks) const {
    std::vector<int> numbers;
    for (const int rank : ranks) numbers.push_back(any_engine().members()[static_cast<std::size_t>(rank)]);
    return numbers;
  }

  // Makes the engine of a backend. members[q] is the number that rank q of this group has in the first group, from
  // which this group was split.
  void begin(std::unique_ptr<Backend> backend, std::vector<int> members) {
    if (!share) share = backend->core_share();
    const Device on = backend->device();
    const GroupOptions own = on.is_cpu() ? options : options_of_device(options);
    (on.is_cpu() ? backend_name : device_backend_name) = backend->name();
    if (!on.is_cpu()) options.device = on;
    auto engine = std::make_shared<Engine>(
        std::move(backend), on.is_cpu() ? *flight : FlightLog(own), *share,
        Engine::Group{.name = own.name, .rank = own.rank, .members = std::move(members), .told = told}, context);
    engine->enter();
    (on.is_cpu() ? host : device) = std::move(engine);
  }

  // The engine that runs the call; null in a group of one rank without a backend. Throws for an invalid call, before
  // anything has been done for the call.
  const std::shared_ptr<Engine>& engine_for(const Call& call) const {
    REIGEN_CHECK(call.tag.size() <= kLongestTag,
                 "[{}] the tag is too long\n  got: {} characters   expected: at most {}", name_of(call.kind),
                 call.tag.size(), kLongestTag);
    check_call(call, options.rank, options.size);
    const std::shared_ptr<Engine>& engine = takes_device(call) ? device : host;
    if (engine) engine->backend().require_offered(call);
    return engine;
  }

  // Whether the call is on the device's memory. A group without a device does not look up where the buffers lie,
  // because the look-up takes noticeable time in a call of a few bytes.
  bool takes_device(const Call& call) const {
    if (!device && call.after.device.is_cpu()) return false;
    return is_of_device(call, {.name = options.name,
                               .rank = options.rank,
                               .size = options.size,
                               .device = device ? options.device : Device::cpu()});
  }

  // A call on a GPU's memory runs after the work that is on the stream `call.after` now. This function marks that work.
  // The engine gets the call only after mark()
  // has returned. So the mark covers no work that other threads enqueue while this thread waits in the engine.
  void mark(const std::shared_ptr<Engine>& engine, Call& call) const {
    if (device && engine == device) call.before = engine->backend().mark(call.after);
  }

  void run_alone(const Call& call) {
    if (ended) std::rethrow_exception(ended);
    const std::uint64_t ticket = flight->called(call, called++);
    self::run(call);
    flight->completed(ticket);
  }

  void run(Call&& call) {
    const std::shared_ptr<Engine>& engine = engine_for(call);
    if (!engine) return run_alone(call);
    auto work = std::make_shared<WorkState>();
    work->call = std::move(call);
    mark(engine, work->call);
    engine->run(work);
  }

  Work start(Call&& call, Progress progress) {
    const std::shared_ptr<Engine>& engine = engine_for(call);
    if (!engine) {
      run_alone(call);
      return Work();
    }
    auto work = held(engine, std::move(call));
    engine->submit({&work, 1}, progress == Progress::kThread);
    return Work(std::move(work));
  }

  // Submits the calls on the host's memory together, and the calls on the device's memory together. A thread that waits
  // for a call on the host's memory advances only the host's engine. So if the list has calls of both kinds, the
  // progress thread (context.h) advances them too.
  Work start(const std::vector<Call>& calls, Progress progress) {
    std::vector<const std::shared_ptr<Engine>*> engines;
    for (const Call& call : calls) engines.push_back(&engine_for(call));
    const bool both = host && device && std::count(engines.begin(), engines.end(), &host) > 0 &&
                      std::count(engines.begin(), engines.end(), &device) > 0;
    const bool thread = progress == Progress::kThread || both;
    auto list = std::make_shared<WorkState>();
    for (const std::shared_ptr<Engine>* engine : {&host, &device}) {
      std::vector<std::shared_ptr<WorkState>> works;
      for (std::size_t i = 0; i < calls.size(); ++i) {
        if (engines[i] != engine) continue;
        if (*engine) {
          works.push_back(held(*engine, calls[i]));
        } else {
          run_alone(calls[i]);
        }
      }
      if (!works.empty()) submit_part(**engine, works, thread, *list);
      list->parts.insert(list->parts.end(), works.begin(), works.end());
    }
    return list->parts.empty() ? Work() : Work(std::move(list));
  }

 private:
  // Submits the calls of a list that belong to `engine`. If the engine refuses them, the caller gets an error. Calls of
  // the list that are in flight in the group's other engine would then still use the caller's buffers, so this function
  // aborts the group.
  static void submit_part(Engine& engine, std::span<const std::shared_ptr<WorkState>> works, bool thread,
                          const WorkState& list) {
    try {
      engine.submit(works, thread);
    } catch (const std::exception& error) {
      for (const auto& part : list.parts) part->engine->abort(error.what());
      throw;
    }
  }

  // Makes the state of a call. It keeps the blocks of allocate() that the call uses alive until the call has completed.
  std::shared_ptr<WorkState> held(const std::shared_ptr<Engine>& engine, Call call) const {
    auto work = std::make_shared<WorkState>();
    work->call = std::move(call);
    mark(engine, work->call);
    engine->hold_memory(*work);
    return work;
  }
};

Communicator::Communicator() : Communicator(GroupOptions{}) {}

Communicator::Communicator(const GroupOptions& options) : impl_(std::make_shared<Impl>()) {
  GroupOptions& own = impl_->options = settled(options);
  check_options(own);
  impl_->begin_record();
  const bool alone = is_alone(own);
  if (alone) impl_->backend_name = self::backend_name();
  if (alone && own.device.is_cpu()) return;
  impl_->context = std::make_shared<Context>();
  std::vector<int> members(static_cast<std::size_t>(own.size));
  std::iota(members.begin(), members.end(), 0);
  if (!alone) impl_->begin(engine_of(own).make(own), members);
  if (!own.device.is_cpu()) {
    if (alone && !own.store) own.store = store::make_memory_store();
    const bool one_machine = alone || impl_->host->backend().shares_memory();
    if (own.device_backend == kAutomatic) own.device_backend = one_machine ? "cuda_ipc" : "nccl";
    impl_->begin(find_backend(own.device_backend).make(options_of_device(own)), members);
  }
  base::log_info("group \"{}\": rank {} of {}, backend {}{}", own.name, own.rank, own.size, impl_->backend_name,
                 impl_->device ? fmt::format(", {}: {}", to_string(own.device), impl_->device_backend_name) : "");
}

Communicator::Communicator(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

struct Communicator::Backends {
  std::unique_ptr<Backend> host;
  std::unique_ptr<Backend> device;
};

std::optional<Communicator> Communicator::split(int color, int key) const {
  struct Wish {
    std::int64_t color;
    std::int64_t key;
  };
  const int p = size();
  const Wish mine{color, key};
  std::vector<Wish> wishes(static_cast<std::size_t>(p));
  all_gather(&mine, wishes.data(), 2, DataType::kInt64, {.tag = "split"});
  const int number = impl_->splits++;
  std::vector<int> members;
  for (int q = 0; q < p; ++q) {
    if (color >= 0 && wishes[static_cast<std::size_t>(q)].color == color) members.push_back(q);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });
  std::shared_ptr<Impl> child;
  if (color >= 0) {
    child = std::make_shared<Impl>();
    child->options = impl_->options;
    child->options.name = fmt::format("{}/{}.{}", name(), number, color);
    child->options.size = static_cast<int>(members.size());
    child->options.rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
    child->backend_name = impl_->backend_name;
    child->share = impl_->share;
    child->context = impl_->context;
    child->begin_record();
  }
  // A rank that gets no group also takes part in meet(), until all other ranks have their groups.
  if (impl_->context) {
    Backends made = meet(child.get(), members);
    for (auto* backend : {&made.host, &made.device}) {
      if (*backend) child->begin(std::move(*backend), impl_->in_first_group(members));
    }
  }
  if (!child) return std::nullopt;
  return Communicator(std::move(child));
}

// Makes the backends of `child`; makes none if `child` is null. Meanwhile the ranks of this group exchange messages in
// rounds (round_store.h). A round needs all ranks, so every rank takes part up to the last round, even after an error.
Communicator::Backends Communicator::meet(Impl* child, const std::vector<int>& members) const {
  const auto meeting = std::make_shared<RoundStore>(*this);
  Backends made;
  std::exception_ptr error;
  // The new group needs buffers on the GPU. Room is made here, because this thread holds no lock and may wait.
  if (child != nullptr && impl_->device) device::make_room(device().index, kRoomOfAGroup);
  try {
    GroupOptions options = child == nullptr ? GroupOptions() : child->options;
    options.meeting = meeting;
    if (child != nullptr && impl_->host) made.host = impl_->host->backend().make_child(options, members);
    if (child != nullptr && impl_->device) {
      made.device = impl_->device->backend().make_child(options_of_device(options), members);
    }
  } catch (const PeerLost& lost) {  // the caller needs the rank's number in this group, not in the new one
    const int rank = lost.rank() < 0 ? -1 : members[static_cast<std::size_t>(lost.rank())];
    error = std::make_exception_ptr(PeerLost(rank, lost.what()));
  } catch (const MeetingEnded&) {
    // failure() or error() says why.
  } catch (...) {
    error = std::current_exception();
  }
  meeting->end(error);
  if (meeting->failure()) std::rethrow_exception(meeting->failure());
  if (error) std::rethrow_exception(error);
  if (meeting->error()) base::raise(*meeting->error());  // no rank has the new group, so that none waits for another
  return made;
}

base::CoreShare core_share_of(const Communicator& group) {
  return group.impl_->share ? *group.impl_->share : base::share_cores(1);
}

int Communicator::rank() const { return impl_->options.rank; }
int Communicator::size() const { return impl_->options.size; }
const std::string& Communicator::name() const { return impl_->options.name; }
const std::string& Communicator::backend() const { return impl_->backend_name; }
const std::string& Communicator::device_backend() const { return impl_->device_backend_name; }
Device Communicator::device() const { return impl_->device ? impl_->options.device : Device::cpu(); }
std::string Communicator::last_algorithm(DeviceKind memory) const {
  const auto& engine = memory == DeviceKind::kCpu ? impl_->host : impl_->device;
  return engine ? engine->backend().last_algorithm() : impl_->backend_name;
}

void Communicator::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                              const CallOptions& options) const {
  impl_->run(request::with(request::all_reduce(input, output, count, type, op), options));
}
Work Communicator::start_all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                    const StartOptions& options) const {
  return impl_->start(request::with(request::all_reduce(input, output, count, type, op), options), options.progress);
}

void Communicator::broadcast(void* data, std::size_t count, DataType type, int root, const CallOptions& options) const {
  impl_->run(request::with(request::broadcast(data, count, type, root), options));
}
Work Communicator::start_broadcast(void* data, std::size_t count, DataType type, int root,
                                   const StartOptions& options) const {
  return impl_->start(request::with(request::broadcast(data, count, type, root), options), options.progress);
}

void Communicator::all_gather(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) const {
  impl_->run(request::with(request::all_gather(input, output, count, type), options));
}
Work Communicator::start_all_gather(const void* input, void* output, std::size_t count, DataType type,
                                    const StartOptions& options) const {
  return impl_->start(request::with(request::all_gather(input, output, count, type), options), options.progress);
}

void Communicator::reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                  const CallOptions& options) const {
  impl_->run(request::with(request::reduce_scatter(input, output, count, type, op), options));
}
Work Communicator::start_reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                        const StartOptions& options) const {
  return impl_->start(request::with(request::reduce_scatter(input, output, count, type, op), options),
                      options.progress);
}

void Communicator::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
                          const CallOptions& options) const {
  impl_->run(request::with(request::reduce(input, output, count, type, op, root), options));
}
Work Communicator::start_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                int root, const StartOptions& options) const {
  return impl_->start(request::with(request::reduce(input, output, count, type, op, root), options), options.progress);
}

void Communicator::gather(const void* input, void* output, std::size_t count, DataType type, int root,
                          const CallOptions& options) const {
  impl_->run(request::with(request::gather(input, output, count, type, root), options));
}
Work Communicator::start_gather(const void* input, void* output, std::size_t count, DataType type, int root,
                                const StartOptions& options) const {
  return impl_->start(request::with(request::gather(input, output, count, type, root), options), options.progress);
}

void Communicator::scatter(const void* input, void* output, std::size_t count, DataType type, int root,
                           const CallOptions& options) const {
  impl_->run(request::with(request::scatter(input, output, count, type, root), options));
}
Work Communicator::start_scatter(const void* input, void* output, std::size_t count, DataType type, int root,
                                 const StartOptions& options) const {
  return impl_->start(request::with(request::scatter(input, output, count, type, root), options), options.progress);
}

void Communicator::all_to_all(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) const {
  impl_->run(request::with(request::all_to_all(input, output, count, type), options));
}
Work Communicator::start_all_to_all(const void* input, void* output, std::size_t count, DataType type,
                                    const StartOptions& options) const {
  return impl_->start(request::with(request::all_to_all(input, output, count, type), options), options.progress);
}

void Communicator::all_gather_v(const void* input, void* output, Counts counts, DataType type,
                                const CallOptions& options) const {
  impl_->run(request::with(request::all_gather_v(input, output, counts, type), options));
}
Work Communicator::start_all_gather_v(const void* input, void* output, Counts counts, DataType type,
                                      const StartOptions& options) const {
  return impl_->start(request::with(request::all_gather_v(input, output, counts, type), options), options.progress);
}

void Communicator::reduce_scatter_v(const void* input, void* output, Counts counts, DataType type, ReduceOp op,
                                    const CallOptions& options) const {
  impl_->run(request::with(request::reduce_scatter_v(input, output, counts, type, op), options));
}
Work Communicator::start_reduce_scatter_v(const void* input, void* output, Counts counts, DataType type, ReduceOp op,
                                          const StartOptions& options) const {
  return impl_->start(request::with(request::reduce_scatter_v(input, output, counts, type, op), options),
                      options.progress);
}

void Communicator::gather_v(const void* input, void* output, Counts counts, DataType type, int root,
                            const CallOptions& options) const {
  impl_->run(request::with(request::gather_v(input, output, counts, type, root), options));
}
Work Communicator::start_gather_v(const void* input, void* output, Counts counts, DataType type, int root,
                                  const StartOptions& options) const {
  return impl_->start(request::with(request::gather_v(input, output, counts, type, root), options), options.progress);
}

void Communicator::scatter_v(const void* input, void* output, Counts counts, DataType type, int root,
                             const CallOptions& options) const {
  impl_->run(request::with(request::scatter_v(input, output, counts, type, root), options));
}
Work Communicator::start_scatter_v(const void* input, void* output, Counts counts, DataType type, int root,
                                   const StartOptions& options) const {
  return impl_->start(request::with(request::scatter_v(input, output, counts, type, root), options), options.progress);
}

void Communicator::all_to_all_v(const void* input, Counts leaves, void* output, Counts arrives, DataType type,
                                const CallOptions& options) const {
  impl_->run(request::with(request::all_to_all_v(input, leaves, output, arrives, type), options));
}
Work Communicator::start_all_to_all_v(const void* input, Counts leaves, void* output, Counts arrives, DataType type,
                                      const StartOptions& options) const {
  return impl_->start(request::with(request::all_to_all_v(input, leaves, output, arrives, type), options),
                      options.progress);
}

void Communicator::send(const void* data, std::size_t count, DataType type, int to, const CallOptions& options) const {
  impl_->run(request::with(request::send(data, count, type, to), options));
}
Work Communicator::start_send(const void* data, std::size_t count, DataType type, int to,
                              const StartOptions& options) const {
  return impl_->start(request::with(request::send(data, count, type, to), options), options.progress);
}

void Communicator::recv(void* data, std::size_t count, DataType type, int from, const CallOptions& options) const {
  impl_->run(request::with(request::recv(data, count, type, from), options));
}
Work Communicator::start_recv(void* data, std::size_t count, DataType type, int from,
                              const StartOptions& options) const {
  return impl_->start(request::with(request::recv(data, count, type, from), options), options.progress);
}

void Communicator::barrier(const CallOptions& options) const { impl_->run(request::with(request::barrier(), options)); }
Work Communicator::start_barrier(const StartOptions& options) const {
  return impl_->start(request::with(request::barrier(), options), options.progress);
}

std::shared_ptr<void> Communicator::allocate(std::size_t bytes) const {
  return impl_->host ? impl_->host->backend().allocate(bytes) : self::allocate(bytes);
}

std::shared_ptr<void> Communicator::allocate(std::size_t bytes, const Device& on) const {
  if (on.is_cpu()) return allocate(bytes);
  REIGEN_CHECK(on == device() || (!device().is_cpu() && on.index < 0),
               "[allocate] group \"{}\" does not carry the memory of that device\n  got: {}   expected: {}", name(),
               to_string(on), device().is_cpu() ? "cpu" : "cpu or " + to_string(device()));
  return impl_->device->backend().allocate(bytes);
}

bool Communicator::shares_memory() const { return impl_->host && impl_->host->backend().shares_memory(); }

std::shared_ptr<void> Communicator::allocate_shared(std::size_t bytes) const {
  if (!impl_->host) return self::allocate(bytes);
  struct Offer {
    std::uint64_t bytes;
    char word[Backend::kCommonWordMax];  // empty if rank 0 could not create the memory
  };
  Backend& backend = impl_->host->backend();
  std::shared_ptr<void> memory;
  std::exception_ptr failure;
  const auto attempt = [&](const auto& action) {
    try {
      action();
    } catch (const Error&) {
      failure = std::current_exception();
    }
  };
  Offer mine{.bytes = bytes, .word = {}};
  if (rank() == 0) {
    attempt([&] {
      auto common = backend.create_common(bytes);
      REIGEN_ASSERT(common.word.size() < Backend::kCommonWordMax, "\"{}\" is too long", common.word);
      memory = std::move(common.memory);
      std::copy(common.word.begin(), common.word.end(), mine.word);
    });
  }
  Offer offer = mine;
  broadcast(&offer, sizeof(offer), DataType::kUint8, 0, {.tag = "allocate_shared"});
  if (rank() != 0 && offer.word[0] != '\0') attempt([&] { memory = backend.open_common(offer.word); });
  // Either all ranks get the memory or none does. A rank without the memory contributes 0, and then the minimum is 0.
  std::int64_t all_have = memory != nullptr && offer.bytes == bytes ? 1 : 0;
  all_reduce(&all_have, &all_have, 1, DataType::kInt64, ReduceOp::kMin, {.tag = "allocate_shared"});
  if (all_have == 1) return memory;
  if (failure) std::rethrow_exception(failure);
  throw BackendError(Report{.what = fmt::format("[allocate_shared] group \"{}\": not every rank can have it", name()),
                            .got = fmt::format("{} bytes on rank {}, {} on rank 0{}", bytes, rank(), offer.bytes,
                                               offer.word[0] == '\0' ? ", which failed" : ""),
                            .expected = "the same size everywhere, and all ranks on one machine",
                            .fix = "see what the other ranks report"});
}

std::optional<std::uint64_t> Communicator::network_bytes() const {
  return impl_->host ? impl_->host->backend().network_bytes() : 0;
}

std::vector<PastCall> Communicator::history() const { return impl_->flight->history(); }

void Communicator::poll() const {
  if (impl_->host) impl_->host->poll();
  if (impl_->device) impl_->device->poll();
}

void Communicator::abort(const std::string& cause) const {
  for (const auto& engine : {impl_->device, impl_->host}) {
    if (engine) engine->abort(cause);
  }
  if (!impl_->host && !impl_->ended) {
    impl_->ended =
        std::make_exception_ptr(Aborted(fmt::format("rank 0 of 1 ended group \"{}\": {}", impl_->options.name, cause)));
  }
}

void Communicator::run(const CallList& calls) const {
  if (calls.size() == 1) return impl_->run(Call(calls.calls_.front()));
  impl_->start(calls.calls_, Progress::kCaller).wait();
}

Work Communicator::start(const CallList& calls, Progress progress) const {
  if (calls.size() == 1) return impl_->start(Call(calls.calls_.front()), progress);
  return impl_->start(calls.calls_, progress);
}

void Work::wait() const { wait(Deadline::never()); }

void Work::wait(const Deadline& deadline) const {
  if (!state_) return;
  for (const auto& part : state_->parts) Work(part).wait(deadline);
  if (!state_->parts.empty() || state_->completed.load()) {
    if (state_->error && state_->engine) state_->engine->tell();
    if (state_->error) std::rethrow_exception(state_->error);
    return;
  }
  state_->engine->wait(*state_, deadline);
}

void Work::wait_on(const Stream& stream) const {
  if (!state_) return;
  for (const auto& part : state_->parts) Work(part).wait_on(stream);
  if (state_->parts.empty()) state_->engine->wait_on(*state_, stream);
}

bool Work::is_completed() const {
  if (!state_) return true;
  if (state_->parts.empty()) return state_->completed.load();
  return std::all_of(state_->parts.begin(), state_->parts.end(),
                     [](const auto& part) { return part->completed.load(); });
}

}  // namespace reigen::comm
