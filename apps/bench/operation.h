// What `reigen bench` knows about each operation: its names, shapes and least traffic, and how to call it. Values and
// free functions; thread rule: the communicator's.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/call/call.h"
#include "reigen/comm/call_list.h"
#include "reigen/comm/communicator.h"
#include "reigen/device/device.h"

namespace reigen::apps::bench {

using Operation = comm::OperationKind;

struct OperationTraits {
  Operation operation;
  const char* name;
  bool reduces;   // has a reduction operator
  bool rooted;    // has a root
  bool blocks;    // its size is that of P blocks, one per rank
  bool in_place;  // input and output may be the same memory
};

// Null when no operation has this name.
const OperationTraits* find_operation(const std::string& name);
const OperationTraits& traits_of(Operation operation);
std::vector<std::string> operation_names();

// busbw = algbw * bus_factor, as nccl-tests defines it.
double bus_factor(Operation operation, int ranks);

// Two operations that run one after the other on the buffers of a third operation and do its work (Hunold and
// Carpen-Amarie, "Tuning MPI Collectives by Verifying Performance Guidelines", HPC Asia 2018, section 3: mock-ups).
struct MockUp {
  const char* name;
  Operation operation;  // the operation whose work the two do
  Operation first;
  Operation second;
};
const MockUp* find_mock_up(Operation operation, const std::string& name);  // null if there is no such name
std::vector<std::string> mock_up_names(Operation operation);

// One operation of one size on this rank.
struct Problem {
  Operation operation = Operation::kAllReduce;
  int ranks = 1;
  int rank = 0;
  int root = 0;
  bool in_place = false;
  comm::DataType type = comm::DataType::kFloat32;
  comm::ReduceOp op = comm::ReduceOp::kSum;
  // The call's element count: of one block for operations on blocks, of the whole buffer for others.
  std::size_t count = 0;
  const MockUp* as = nullptr;  // if not null, this mock-up is called instead of the operation
  Device device = {};          // the device in whose memory the buffers are

  bool has_root() const;  // if so, ranks may leave a call early, so a barrier separates the iterations

  std::size_t whole() const { return traits_of(operation).blocks ? count * static_cast<std::size_t>(ranks) : count; }
  std::size_t bytes() const { return whole() * comm::size_of(type); }  // the `size` column
  std::size_t input_count() const;                                     // elements of this rank's input
  std::size_t output_count() const;                                    // elements of this rank's output
};

// The least bytes that a rank must read and write if all ranks share the work evenly. N: bytes(), P: ranks.
//
//   operation        read         written      in place
//   all_reduce       N            N            the same
//   reduce_scatter   N            N/P          the same
//   reduce           N            N/P          the same
//   all_gather       N            N            N - N/P of both
//   all_to_all       N            N            never
//   broadcast        N (P-1)/P    N (P-1)/P    always
//   gather, scatter  N/P          N/P          N (P-1)/P^2 of both
//   send_recv        N            N            never: every rank sends to the next and receives from the previous
//   barrier          0            0
//   "Of both" means of the bytes read and of the bytes written. The uneven operations (all_gather_v and so on) have the
//   same traffic as the even ones.
struct Traffic {
  double read = 0;
  double written = 0;
};
Traffic least_traffic(const Problem& problem);

// This rank's input and output buffer. If the call is in place, they overlap as the operation's documentation in
// communicator.h says.
struct Place {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
};

// The bytes of the buffers of one Place, the same number on every rank. place_at() returns the Place whose buffers lie
// in memory of this size at `begin`.
std::size_t place_bytes(const Problem& problem);
Place place_at(const Problem& problem, std::byte* begin);

void call(const Communicator& world, const Problem& problem, const Place& place);
// Adds the call to a list. A problem with a mock-up is not allowed, because it makes two calls.
void add_call(CallList& calls, const Problem& problem, const Place& place);

}  // namespace reigen::apps::bench
