#include "fakes/nccl/clique.h"

#include <algorithm>
#include <cstring>

#include "comm/reduce/reduce.h"
#include "fakes/cuda/device.h"

namespace reigen::testing::stand_in {

namespace {

using comm::DataType;
using comm::ReduceOp;

DataType to_type(ncclDataType_t type) {
  switch (type) {
    case ncclInt8: return DataType::kInt8;
    case ncclUint8: return DataType::kUint8;
    case ncclInt32: return DataType::kInt32;
    case ncclInt64: return DataType::kInt64;
    case ncclFloat16: return DataType::kFloat16;
    case ncclBfloat16: return DataType::kBfloat16;
    case ncclFloat32: return DataType::kFloat32;
    case ncclFloat64: return DataType::kFloat64;
    default: die("a type that nobody needs");
  }
}

ReduceOp to_op(ncclRedOp_t op) {
  switch (op) {
    case ncclProd: return ReduceOp::kProd;
    case ncclMax: return ReduceOp::kMax;
    case ncclMin: return ReduceOp::kMin;
    case ncclAvg: return ReduceOp::kAvg;
    default: return ReduceOp::kSum;
  }
}

std::size_t input_count(const Task& task, const Member& member) {
  const bool is_root = task.peer == member.rank;
  if (task.kind == Kind::kReduceScatter) return task.count * static_cast<std::size_t>(member.clique->size);
  if (task.kind == Kind::kBroadcast) return is_root ? task.count : 0;
  return task.count;
}

std::size_t output_count(const Task& task, const Member& member) {
  const bool is_root = task.peer == member.rank;
  if (task.kind == Kind::kAllGather) return task.count * static_cast<std::size_t>(member.clique->size);
  if (task.kind == Kind::kReduce) return is_root ? task.count : 0;
  return task.count;
}

bool is_same(const Task& a, const Task& b) {
  const auto op = [](const Task& task) { return std::min<int>(task.op, ncclNumOps); };
  return a.kind == b.kind && a.count == b.count && a.type == b.type && op(a) == op(b) && a.peer == b.peer;
}

// Reduces the elements of all ranks from `begin` on, beginning with the last rank.
void reduce(const Clique::Meeting& meeting, std::size_t begin, const Task& task, std::byte* output) {
  std::vector<const std::byte*> inputs;
  std::vector<double> factors;
  for (auto part = meeting.parts.rbegin(); part != meeting.parts.rend(); ++part) {
    inputs.push_back((*part)->input.data() + begin * size_of(task.type));
    factors.push_back((*part)->task.factor);
  }
  comm::reduce::run({.inputs = inputs.data(),
                     .outputs = &output,
                     .input_count = static_cast<int>(inputs.size()),
                     .output_count = 1,
                     .count = task.count,
                     .type = to_type(task.type),
                     .op = to_op(task.op),
                     .factors = task.op >= ncclNumOps ? factors.data() : nullptr});
}

void write_result(const Clique::Meeting& meeting, const Task& task, const Member& member) {
  auto* const output = reach(task.output);
  const std::size_t bytes = task.count * size_of(task.type);
  switch (task.kind) {
    case Kind::kReduce:
      if (member.rank != task.peer) return;
      [[fallthrough]];
    case Kind::kAllReduce: return reduce(meeting, 0, task, output);
    case Kind::kReduceScatter: return reduce(meeting, static_cast<std::size_t>(member.rank) * task.count, task, output);
    case Kind::kBroadcast:
      std::memcpy(output, meeting.parts[static_cast<std::size_t>(task.peer)]->input.data(), bytes);
      return;
    case Kind::kAllGather:
      for (std::size_t q = 0; q < meeting.parts.size(); ++q) {
        std::memcpy(output + q * bytes, meeting.parts[q]->input.data(), bytes);
      }
      return;
    default: die("no collective");
  }
}

std::vector<std::byte> copy_of(const void* data, std::size_t bytes) {
  const auto* begin = reach(data);
  return {begin, begin + bytes};
}

// Returns false if the member is aborted.
bool wait_until(Member& member, std::unique_lock<std::mutex>& lock, const std::function<bool()>& condition) {
  member.clique->changed.wait(lock, [&] { return member.aborted || condition(); });
  return !member.aborted;
}

bool run_collective(Member& member, const Task& task) {
  Clique& clique = *member.clique;
  const std::size_t input_bytes = input_count(task, member) * size_of(task.type);
  const std::size_t output_bytes = output_count(task, member) * size_of(task.type);
  if (input_bytes > 0) require_memory(task.input, input_bytes, member.device, "a collective's input");
  if (output_bytes > 0) require_memory(task.output, output_bytes, member.device, "a collective's output");
  auto part = std::make_unique<Clique::Part>(Clique::Part{task, copy_of(task.input, input_bytes)});
  const std::uint64_t number = member.collectives++;
  std::unique_lock lock(clique.mutex);
  if (member.aborted) return false;
  auto& place = clique.meetings[number];
  if (!place) place = std::make_shared<Clique::Meeting>();
  const std::shared_ptr<Clique::Meeting> meeting = place;
  meeting->parts.resize(static_cast<std::size_t>(clique.size));
  meeting->parts[static_cast<std::size_t>(member.rank)] = std::move(part);
  meeting->arrived += 1;
  clique.changed.notify_all();
  if (!wait_until(member, lock, [&] { return meeting->arrived == clique.size; })) {
    if (meeting->arrived < clique.size) meeting->arrived -= 1;  // from now on the others wait for this rank
    return false;
  }
  clique.meetings.erase(number);
  for (const auto& other : meeting->parts) {
    if (!is_same(other->task, task)) return wait_until(member, lock, [] { return false; });
  }
  lock.unlock();
  write_result(*meeting, task, member);
  return true;
}

bool run_messages(Member& member, const std::vector<Task>& tasks) {
  Clique& clique = *member.clique;
  std::vector<std::shared_ptr<Clique::Letter>> sent;
  std::unique_lock lock(clique.mutex);
  if (member.aborted) return false;
  for (const Task& task : tasks) {
    const std::size_t bytes = task.count * size_of(task.type);
    const void* data = task.kind == Kind::kSend ? task.input : task.output;
    if (bytes > 0) require_memory(data, bytes, member.device, "a message");
    if (task.kind != Kind::kSend) continue;
    auto letter = std::make_shared<Clique::Letter>();
    letter->data = copy_of(data, bytes);
    clique.letters[{member.rank, task.peer}].push_back(letter);
    sent.push_back(letter);
  }
  clique.changed.notify_all();
  for (const Task& task : tasks) {
    if (task.kind != Kind::kRecv) continue;
    auto& letters = clique.letters[{task.peer, member.rank}];
    if (!wait_until(member, lock, [&] { return !letters.empty(); })) return false;
    const std::shared_ptr<Clique::Letter> letter = letters.front();
    const std::size_t bytes = task.count * size_of(task.type);
    if (letter->data.size() != bytes) return wait_until(member, lock, [] { return false; });
    letters.pop_front();
    std::memcpy(reach(task.output), letter->data.data(), bytes);
    letter->taken = true;
    clique.changed.notify_all();
  }
  return wait_until(member, lock,
                    [&] { return std::all_of(sent.begin(), sent.end(), [](const auto& one) { return one->taken; }); });
}

}  // namespace

std::size_t size_of(ncclDataType_t type) { return comm::size_of(to_type(type)); }

void run(Member& member, const std::vector<Task>& tasks) {
  std::vector<Task> messages;
  for (const Task& task : tasks) {
    if (task.kind == Kind::kSend || task.kind == Kind::kRecv) {
      messages.push_back(task);
    } else if (!run_collective(member, task)) {
      return;
    }
  }
  if (!messages.empty()) run_messages(member, messages);
}

}  // namespace reigen::testing::stand_in
