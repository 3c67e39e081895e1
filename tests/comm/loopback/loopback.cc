#include "comm/loopback/loopback.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "comm/call/block_table.h"
#include "comm/call/checked_operation.h"
#include "comm/call/mismatch_reports.h"
#include "comm/control/store_control.h"
#include "comm/reduce/reduce.h"
#include "comm/self/self_backend.h"

namespace reigen::comm::loopback {
namespace {

using Bytes = std::vector<std::byte>;

// One collective call on the memory of all ranks.
class Whole {
 public:
  Whole(const std::vector<const Call*>& calls, std::uint64_t sequence, const std::string& group)
      : calls_(calls), sequence_(sequence), group_(group), first_(*calls.front()), element_(size_of(first_.type)) {}

  void run() {
    compare();
    switch (even_kind(first_.kind)) {
      case OperationKind::kBarrier: return;
      case OperationKind::kAllReduce: return give_all(reduced(first_.count));
      case OperationKind::kReduce: return give(first_.root, reduced(first_.count), 0, first_.count);
      case OperationKind::kReduceScatter: return give_blocks(reduced(all_blocks()));
      case OperationKind::kAllGather: return give_all(gathered());
      case OperationKind::kGather: return give(first_.root, gathered(), 0, all_blocks());
      case OperationKind::kBroadcast: return give_all(read(first_.root, 0, first_.count));
      case OperationKind::kScatter: return give_blocks(read(first_.root, 0, all_blocks()));
      default: return exchange();
    }
  }

 private:
  int size() const { return static_cast<int>(calls_.size()); }
  const Call& of(int rank) const { return *calls_[static_cast<std::size_t>(rank)]; }
  bool uneven() const { return is_uneven(first_.kind); }
  std::size_t block(int rank) const { return uneven() ? first_.counts[static_cast<std::size_t>(rank)] : first_.count; }
  std::size_t begin(int rank) const {
    return uneven() ? begin_of(first_.counts, rank) : static_cast<std::size_t>(rank) * first_.count;
  }
  std::size_t all_blocks() const { return begin(size() - 1) + block(size() - 1); }

  void compare() const {
    const CallSignature first = signature_of(first_);
    for (int q = 1; q < size(); ++q) {
      const CallSignature other = signature_of(of(q));
      if (other == first) continue;
      throw CollectiveMismatch(calls_differ(group_, sequence_, what_differs(first, other), {0, first}, {q, other}));
    }
  }

  // A copy of elements of a rank's input, because outputs may overlap inputs.
  Bytes read(int rank, std::size_t from, std::size_t count) const {
    Bytes copy(count * element_);
    const auto* input = static_cast<const std::byte*>(of(rank).input);
    if (count > 0) std::memcpy(copy.data(), input + from * element_, copy.size());
    return copy;
  }
  void give(int rank, const Bytes& data, std::size_t from, std::size_t count) const {
    if (count > 0) std::memcpy(of(rank).output, data.data() + from * element_, count * element_);
  }
  void give_all(const Bytes& data) const {
    for (int q = 0; q < size(); ++q) give(q, data, 0, data.size() / element_);
  }
  void give_blocks(const Bytes& data) const {
    for (int q = 0; q < size(); ++q) give(q, data, begin(q), block(q));
  }
  Bytes gathered() const {
    Bytes all;
    for (int q = 0; q < size(); ++q) {
      const Bytes one = read(q, 0, block(q));
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  Bytes reduced(std::size_t count) const {
    Bytes result(count * element_);
    std::vector<const std::byte*> inputs;
    std::vector<double> factors;
    for (const Call* call : calls_) {
      inputs.push_back(static_cast<const std::byte*>(call->input));
      factors.push_back(call->factor);
    }
    std::byte* output = result.data();
    const bool scales = std::any_of(factors.begin(), factors.end(), [](double factor) { return factor != 1; });
    if (count > 0) {
      reduce::run({.inputs = inputs.data(),
                   .outputs = &output,
                   .input_count = size(),
                   .output_count = 1,
                   .count = count,
                   .type = first_.type,
                   .op = first_.op,
                   .factors = scales ? factors.data() : nullptr});
    }
    return result;
  }

  void exchange() const {
    std::vector<Bytes> given;
    for (int q = 0; q < size(); ++q) given.push_back(read(q, 0, extent_of(of(q), q, size()).input));
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) {
        const auto f = static_cast<std::size_t>(from);
        const auto t = static_cast<std::size_t>(to);
        const std::size_t leaves = uneven() ? of(from).counts[t] : first_.count;
        const std::size_t arrives = uneven() ? of(to).arrives[f] : first_.count;
        if (leaves != arrives) throw_exchange_differs(group_, sequence_, {from, leaves, to, arrives});
        if (leaves == 0) continue;
        const std::size_t left = uneven() ? begin_of(of(from).counts, to) : t * first_.count;
        const std::size_t arrived = uneven() ? begin_of(of(to).arrives, from) : f * first_.count;
        std::memcpy(static_cast<std::byte*>(of(to).output) + arrived * element_, given[f].data() + left * element_,
                    leaves * element_);
      }
    }
  }

  const std::vector<const Call*>& calls_;
  const std::uint64_t sequence_;
  const std::string& group_;
  const Call& first_;
  const std::size_t element_;
};

// The calls and messages of all ranks of a group. One lock guards everything.
class Hall {
 public:
  Hall(int size, std::string group) : size_(static_cast<std::size_t>(size)), group_(std::move(group)) {}

  void post(std::uint64_t sequence, int rank, const Call& call) {
    const std::lock_guard lock(mutex_);
    Meeting& meeting = meetings_[sequence];
    meeting.calls.resize(size_);
    meeting.calls[static_cast<std::size_t>(rank)] = &call;
    meeting.posted += 1;
    ring();
  }

  // Returns true if the call is complete. This rank has then left the call.
  bool advance(std::uint64_t sequence) {
    const std::lock_guard lock(mutex_);
    Meeting& meeting = meetings_.at(sequence);
    if (meeting.posted < size_) {  // otherwise it completes, even if the group has ended
      throw_if_ended_locked();
      return false;
    }
    if (!meeting.done) {
      try {
        Whole(meeting.calls, sequence, group_).run();
      } catch (const Error&) {
        meeting.failure = std::current_exception();
      }
      meeting.done = true;
      ring();
    }
    const std::exception_ptr failure = meeting.failure;
    if (++meeting.left == size_) meetings_.erase(sequence);
    if (failure) std::rethrow_exception(failure);
    return true;
  }

  // The caller's `call` will be destroyed, complete or not, so no rank may read it anymore.
  void withdraw(std::uint64_t sequence, int rank) {
    const std::lock_guard lock(mutex_);
    const auto found = meetings_.find(sequence);
    if (found == meetings_.end() || found->second.done || found->second.posted == 0) return;
    const Call*& own = found->second.calls[static_cast<std::size_t>(rank)];
    if (own != nullptr) found->second.posted -= 1;
    own = nullptr;
  }

  // The message waits here as a copy until it is received.
  void send(int from, int to, std::uint64_t number, const Call& call) {
    const std::lock_guard lock(mutex_);
    Message& message = messages_[{from, to, number}];
    message.sent = {.count = call.count, .type = call.type};
    message.sent.tag.assign(call.tag);
    const auto* data = static_cast<const std::byte*>(call.input);
    if (call.bytes() > 0) message.data.assign(data, data + call.bytes());
    ring();
  }
  bool receive(int from, int to, std::uint64_t number, const GroupOptions& options, const Call& call) {
    const std::lock_guard lock(mutex_);
    const auto found = messages_.find({from, to, number});
    if (found == messages_.end()) {
      throw_if_ended_locked();
      return false;
    }
    compare_message(options, number, call, found->second.sent);
    if (!found->second.data.empty()) std::memcpy(call.output, found->second.data.data(), found->second.data.size());
    messages_.erase(found);
    return true;
  }

  void end(const AbortCause& cause) {
    const std::lock_guard lock(mutex_);
    if (!ended_) ended_ = cause;
    ring();
  }
  void throw_if_ended() {
    const std::lock_guard lock(mutex_);
    throw_if_ended_locked();
  }

  void sleep(const std::function<bool()>& ready, std::chrono::nanoseconds limit) {
    std::unique_lock lock(bell_mutex_);
    const std::uint64_t before = rung_;
    lock.unlock();
    if (ready()) return;
    lock.lock();
    bell_.wait_for(lock, limit, [&] { return rung_ != before; });
  }
  void ring() {
    const std::lock_guard lock(bell_mutex_);
    rung_ += 1;
    bell_.notify_all();
  }

 private:
  struct Meeting {
    std::vector<const Call*> calls = {};
    std::size_t posted = 0;
    std::size_t left = 0;
    bool done = false;
    std::exception_ptr failure = {};  // the error of the call on every rank
  };
  struct Message {
    SentMessage sent = {};
    Bytes data = {};
  };

  void throw_if_ended_locked() {
    if (ended_) throw_cause(*ended_);
  }

  const std::size_t size_;
  const std::string group_;
  std::mutex mutex_;
  std::map<std::uint64_t, Meeting> meetings_;                        // by the call's number
  std::map<std::tuple<int, int, std::uint64_t>, Message> messages_;  // by from, to, and number between the two
  std::optional<AbortCause> ended_;
  std::mutex bell_mutex_;
  std::condition_variable bell_;
  std::uint64_t rung_ = 0;
};

struct Place {
  GroupOptions options;
  std::shared_ptr<Hall> hall;
  std::unique_ptr<control::StoreControl> control;
};

class Collective : public CheckedOperation {
 public:
  Collective(Place& place, const Call& call, std::uint64_t sequence) : place_(place), call_(call), sequence_(sequence) {
    place_.control->called(call_, sequence_);
  }
  ~Collective() override { place_.hall->withdraw(sequence_, place_.options.rank); }
  bool try_post() override {
    place_.hall->post(sequence_, place_.options.rank, call_);
    return true;
  }
  Step advance() override { return place_.hall->advance(sequence_) ? Step::kDone : Step::kBlocked; }
  void check_peers(std::chrono::nanoseconds waited) const override { place_.control->check(call_, sequence_, waited); }

 private:
  Place& place_;
  const Call& call_;
  const std::uint64_t sequence_;
};

class Send : public CheckedOperation {
 public:
  Send(Place& place, const Call& call, std::uint64_t number) : place_(place), call_(call), number_(number) {}
  bool try_post() override { return true; }
  Step advance() override {
    place_.hall->send(place_.options.rank, call_.root, number_, call_);
    return Step::kDone;
  }
  void check_peers(std::chrono::nanoseconds) const override {}

 private:
  Place& place_;
  const Call& call_;
  const std::uint64_t number_;
};

class Recv : public CheckedOperation {
 public:
  Recv(Place& place, const Call& call, std::uint64_t number) : place_(place), call_(call), number_(number) {}
  bool try_post() override { return true; }
  Step advance() override {
    const bool came = place_.hall->receive(call_.root, place_.options.rank, number_, place_.options, call_);
    return came ? Step::kDone : Step::kBlocked;
  }
  void check_peers(std::chrono::nanoseconds waited) const override {
    place_.control->check_message(call_.root, describe_message(place_.options, number_, call_), waited);
  }

 private:
  Place& place_;
  const Call& call_;
  const std::uint64_t number_;
};

class Loopback : public Backend {
 public:
  Loopback(const GroupOptions& options, std::shared_ptr<BlockTable> blocks,
           const control::StoreControl* parent = nullptr)
      : blocks_(std::move(blocks)) {
    place_.options = options;
    place_.control = std::make_unique<control::StoreControl>(options, control::Watch::kHere, parent);
    if (options.rank == 0) place_.hall = std::make_shared<Hall>(options.size, options.name);
    // All ranks are in one process. Rank 0 announces the address of its pointer, which remains valid until all have
    // read it.
    const std::string own = std::to_string(reinterpret_cast<std::uintptr_t>(&place_.hall));
    const std::vector<std::string> said = place_.control->join(own);
    if (options.rank != 0) place_.hall = *reinterpret_cast<const std::shared_ptr<Hall>*>(std::stoull(said.front()));
    place_.control->agree("");
    place_.control->start();
  }

  const std::string& name() const override { return entry().name; }
  std::unique_ptr<Operation> start(const Call& call, std::uint64_t sequence) override {
    if (call.kind == OperationKind::kSend) return std::make_unique<Send>(place_, call, sent_[call.root]++);
    if (call.kind == OperationKind::kRecv) return std::make_unique<Recv>(place_, call, received_[call.root]++);
    return std::make_unique<Collective>(place_, call, sequence);
  }
  base::CoreShare core_share() const override { return place_.control->core_share(); }
  void sleep(const std::function<bool()>& ready, std::chrono::nanoseconds limit) override {
    place_.hall->sleep(ready, limit);
  }
  void wake() override { place_.hall->ring(); }
  void check_peers(const Operation& operation, std::chrono::nanoseconds waited) override {
    static_cast<const CheckedOperation&>(operation).check_peers(waited);
  }
  void throw_if_ended() override {
    place_.hall->throw_if_ended();
    place_.control->throw_if_ended();
  }
  void heartbeat() override {}  // the control's thread gives signs of life
  void leave() override { place_.control->leave(); }
  void publish_abort(const AbortCause& cause) override {
    place_.hall->end(cause);
    place_.control->publish_abort(cause);
  }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return blocks_->add(self::allocate(bytes), bytes); }
  std::shared_ptr<void> hold(const void* pointer) override { return blocks_->hold(pointer); }
  std::unique_ptr<Backend> make_child(const GroupOptions& options, const std::vector<int>& /*members*/) override {
    return std::make_unique<Loopback>(options, blocks_, place_.control.get());
  }

 private:
  Place place_;
  const std::shared_ptr<BlockTable> blocks_;  // of this group and all groups split off it
  std::map<int, std::uint64_t> sent_;
  std::map<int, std::uint64_t> received_;
};

}  // namespace

const BackendEntry& entry() {
  static const BackendEntry kEntry{
      .name = "loopback", .families = {}, .make = [](const GroupOptions& options) -> std::unique_ptr<Backend> {
        return std::make_unique<Loopback>(options, std::make_shared<BlockTable>());
      }};
  return kEntry;
}

}  // namespace reigen::comm::loopback
