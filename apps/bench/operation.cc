#include "bench/operation.h"

#include <algorithm>
#include <array>

#include "reigen/comm/call_list.h"

namespace reigen::apps::bench {

namespace {

// The uneven operations (all_gather_v and so on) are measured with blocks of equal size.
comm::Extent even_extent(Operation operation, int root, int rank, int ranks) {
  if (operation == Operation::kSend) return {1, 1};  // every rank sends to the next and receives from the previous
  return comm::extent_of({.kind = comm::even_kind(operation), .count = 1, .root = root}, rank, ranks);
}

// Finds out whether an operation works on one block per rank. If it does, the larger of its two buffers has two blocks
// in a group of two ranks (on the root, if there is a root).
OperationTraits make_traits(Operation operation) {
  const comm::Extent extent = even_extent(operation, 0, 0, 2);
  return {operation,
          operation == Operation::kSend ? "send_recv" : comm::name_of(operation),
          comm::reduces(operation),
          comm::has_root(operation),
          std::max(extent.input, extent.output) > 1,
          comm::even_kind(operation) != Operation::kAllToAll && operation != Operation::kSend};
}

const auto& operations() {
  static const std::array kOperations = {
      make_traits(Operation::kAllReduce),  make_traits(Operation::kReduceScatter),
      make_traits(Operation::kAllGather),  make_traits(Operation::kBroadcast),
      make_traits(Operation::kReduce),     make_traits(Operation::kGather),
      make_traits(Operation::kScatter),    make_traits(Operation::kAllToAll),
      make_traits(Operation::kBarrier),    make_traits(Operation::kReduceScatterV),
      make_traits(Operation::kAllGatherV), make_traits(Operation::kGatherV),
      make_traits(Operation::kScatterV),   make_traits(Operation::kAllToAllV),
      make_traits(Operation::kSend),
  };
  return kOperations;
}

// What this rank's call reads and writes, in units of `count` elements.
comm::Extent extent_of(const Problem& problem) {
  return even_extent(problem.operation, problem.root, problem.rank, problem.ranks);
}

std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// Bytes of input and of output on the rank where they are largest: the root, if there is one.
std::size_t largest_input(const Problem& problem) {
  Problem root = problem;
  root.rank = problem.root;
  return root.input_count() * comm::size_of(problem.type);
}

std::size_t largest_output(const Problem& problem) {
  Problem root = problem;
  root.rank = problem.root;
  return root.output_count() * comm::size_of(problem.type);
}

constexpr std::array kMockUps = {
    MockUp{"reduce+broadcast", Operation::kAllReduce, Operation::kReduce, Operation::kBroadcast},
    MockUp{"reduce_scatter+all_gather", Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather},
    MockUp{"gather+broadcast", Operation::kAllGather, Operation::kGather, Operation::kBroadcast},
};

}  // namespace

const OperationTraits* find_operation(const std::string& name) {
  const auto* found = std::find_if(operations().begin(), operations().end(),
                                   [&](const OperationTraits& traits) { return traits.name == name; });
  return found == operations().end() ? nullptr : found;
}

const OperationTraits& traits_of(Operation operation) {
  return *std::find_if(operations().begin(), operations().end(),
                       [&](const OperationTraits& traits) { return traits.operation == operation; });
}

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (const OperationTraits& traits : operations()) names.emplace_back(traits.name);
  return names;
}

const MockUp* find_mock_up(Operation operation, const std::string& name) {
  const auto* found = std::find_if(kMockUps.begin(), kMockUps.end(), [&](const MockUp& known) {
    return known.operation == operation && known.name == name;
  });
  return found == kMockUps.end() ? nullptr : found;
}

std::vector<std::string> mock_up_names(Operation operation) {
  std::vector<std::string> names;
  for (const MockUp& known : kMockUps) {
    if (known.operation == operation) names.emplace_back(known.name);
  }
  return names;
}

double bus_factor(Operation operation, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (comm::even_kind(operation)) {
    case Operation::kAllReduce: return 2 * others;
    case Operation::kReduceScatter:
    case Operation::kAllGather:
    case Operation::kAllToAll:
    case Operation::kGather:
    case Operation::kScatter: return others;
    case Operation::kBroadcast:
    case Operation::kReduce:
    case Operation::kSend: return 1;
    default: return 0;
  }
}

bool Problem::has_root() const { return traits_of(as != nullptr ? as->second : operation).rooted; }

// A broadcast has one buffer, which counts as the input of every rank.
std::size_t Problem::input_count() const {
  return operation == Operation::kBroadcast ? count : extent_of(*this).input * count;
}

std::size_t Problem::output_count() const {
  return operation == Operation::kBroadcast ? 0 : extent_of(*this).output * count;
}

Traffic least_traffic(const Problem& problem) {
  const auto whole = static_cast<double>(problem.bytes());
  const double block = whole / problem.ranks;
  const double own = problem.in_place ? block : 0;  // the rank's own block, which a call in place does not move
  switch (comm::even_kind(problem.operation)) {
    case Operation::kAllReduce:
    case Operation::kSend: return {whole, whole};
    case Operation::kReduceScatter:
    case Operation::kReduce: return {whole, block};
    case Operation::kAllGather: return {whole - own, whole - own};
    case Operation::kAllToAll: return {whole, whole};
    case Operation::kBroadcast: return {whole - block, whole - block};
    case Operation::kGather:
    case Operation::kScatter: return {block - own / problem.ranks, block - own / problem.ranks};
    default: return {};
  }
}

std::size_t place_bytes(const Problem& problem) {
  const std::size_t input = round_up(largest_input(problem));
  const std::size_t output = round_up(largest_output(problem));
  return problem.in_place ? std::max(input, output) : input + output;
}

Place place_at(const Problem& problem, std::byte* begin) {
  const std::size_t size = comm::size_of(problem.type);
  std::byte* const own_block = begin + static_cast<std::size_t>(problem.rank) * problem.count * size;
  const bool is_root = problem.rank == problem.root;
  if (!problem.in_place || problem.operation == Operation::kBroadcast) {
    Place place{begin, begin + round_up(largest_input(problem))};
    if (problem.input_count() == 0) place.input = nullptr;
    if (problem.output_count() == 0) place.output = nullptr;
    return place;
  }
  switch (comm::even_kind(problem.operation)) {
    case Operation::kReduceScatter: return {begin, own_block};
    case Operation::kAllGather: return {own_block, begin};
    case Operation::kReduce: return {begin, is_root ? begin : nullptr};
    case Operation::kGather: return {own_block, is_root ? begin : nullptr};
    case Operation::kScatter: return {is_root ? begin : nullptr, own_block};
    default: return {begin, begin};
  }
}

namespace {

void exchange(CallList& calls, const Problem& problem, const Place& place) {
  calls.send(place.input, problem.count, problem.type, (problem.rank + 1) % problem.ranks);
  calls.recv(place.output, problem.count, problem.type, (problem.rank + problem.ranks - 1) % problem.ranks);
}

void exchange(const Communicator& world, const Problem& problem, const Place& place) {
  CallList calls;
  exchange(calls, problem, place);
  world.run(calls);
}

// Target is a Communicator, which makes the call, or a CallList, to which the call is added.
template <class Target>
void call_uneven(Target& target, const Problem& problem, const Place& place) {
  const std::vector<std::size_t> counts(static_cast<std::size_t>(problem.ranks), problem.count);
  const comm::DataType type = problem.type;
  switch (problem.operation) {
    case Operation::kReduceScatterV:
      return target.reduce_scatter_v(place.input, place.output, counts, type, problem.op);
    case Operation::kAllGatherV: return target.all_gather_v(place.input, place.output, counts, type);
    case Operation::kGatherV: return target.gather_v(place.input, place.output, counts, type, problem.root);
    case Operation::kScatterV: return target.scatter_v(place.input, place.output, counts, type, problem.root);
    default: return target.all_to_all_v(place.input, counts, place.output, counts, type);
  }
}

template <class Target>
void call_on(Target& target, const Problem& problem, const Place& place) {
  const std::size_t count = problem.count;
  const comm::DataType type = problem.type;
  switch (problem.operation) {
    case Operation::kAllReduce: return target.all_reduce(place.input, place.output, count, type, problem.op);
    case Operation::kReduceScatter: return target.reduce_scatter(place.input, place.output, count, type, problem.op);
    case Operation::kAllGather: return target.all_gather(place.input, place.output, count, type);
    case Operation::kBroadcast: return target.broadcast(place.input, count, type, problem.root);
    case Operation::kReduce: return target.reduce(place.input, place.output, count, type, problem.op, problem.root);
    case Operation::kGather: return target.gather(place.input, place.output, count, type, problem.root);
    case Operation::kScatter: return target.scatter(place.input, place.output, count, type, problem.root);
    case Operation::kAllToAll: return target.all_to_all(place.input, place.output, count, type);
    case Operation::kBarrier: return target.barrier({.after = {problem.device}});
    case Operation::kSend: return exchange(target, problem, place);
    default: return call_uneven(target, problem, place);
  }
}

// The second operation takes the output of the first as its input.
void call_mock_up(const Communicator& world, const Problem& problem, const Place& place) {
  const int root = problem.root;
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  std::byte* const at_root = problem.rank == root ? place.output : nullptr;
  switch (problem.as->first) {
    case Operation::kReduce:
      world.reduce(place.input, at_root, problem.count, problem.type, problem.op, root);
      world.broadcast(place.output, problem.count, problem.type, root);
      return;
    case Operation::kGather:
      world.gather(place.input, at_root, problem.count, problem.type, root);
      world.broadcast(place.output, problem.count * ranks, problem.type, root);
      return;
    default: break;
  }
  const std::size_t block = problem.count / ranks;
  std::byte* const own = place.output + static_cast<std::size_t>(problem.rank) * block * comm::size_of(problem.type);
  world.reduce_scatter(place.input, own, block, problem.type, problem.op);
  world.all_gather(own, place.output, block, problem.type);
}

}  // namespace

void call(const Communicator& world, const Problem& problem, const Place& place) {
  if (problem.as != nullptr) return call_mock_up(world, problem, place);
  call_on(world, problem, place);
}

void add_call(CallList& calls, const Problem& problem, const Place& place) { call_on(calls, problem, place); }

}  // namespace reigen::apps::bench
