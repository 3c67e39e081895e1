// The contract over MPI, and blocks with more elements than an int can count.
#include <mpi.h>

#include <algorithm>
#include <thread>

#include "comm/contract.h"
#include "comm/mpi/collectives.h"
#include "comm/mpi/library.h"

namespace reigen::testing {

INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorContract,
                         ::testing::Values(ContractParameter{"mpi", RankKind::kMpi, 1},
                                           ContractParameter{"mpi", RankKind::kMpi, 2},
                                           ContractParameter{"mpi", RankKind::kMpi, 3},
                                           ContractParameter{"mpi", RankKind::kMpi, 4}),
                         name_of);

namespace {

using comm::OperationKind;
using Counts = std::vector<std::size_t>;

// A group made of the backend's own parts, in which three elements are already too many for an int.
class NarrowGroup {
 public:
  explicit NarrowGroup(Rank& r) {
    comm::mpi::Library::get();
    const comm::GroupOptions options{.rank = r.rank(),
                                     .size = r.size(),
                                     .store = std::shared_ptr<store::Store>(&r.store(), [](auto*) {}),
                                     .name = "narrow"};
    group_.rank = r.rank();
    group_.size = r.size();
    group_.arena = std::make_shared<comm::mpi::Arena>();
    group_.control = std::make_unique<comm::control::StoreControl>(options);
    group_.control->join("");
    group_.control->start();
    group_.most = 2;
    MPI_Comm_dup(MPI_COMM_WORLD, &group_.data);
    MPI_Comm_dup(MPI_COMM_WORLD, &group_.compare);
  }
  ~NarrowGroup() {
    group_.control->leave();
    MPI_Comm_free(&group_.compare);
    MPI_Comm_free(&group_.data);
  }

  void run(const comm::Call& call) {
    comm::mpi::Collective operation(group_, call, next_++);
    while (!operation.try_post()) std::this_thread::yield();
    while (operation.advance() != comm::Step::kDone) std::this_thread::yield();
  }

 private:
  comm::mpi::Group group_;
  std::uint64_t next_ = 0;
};

// The value that rank q sends to rank r (to all ranks: r is 0).
std::int32_t value(int q, int r) { return q * 100 + r; }

void append(std::vector<std::int32_t>& data, std::size_t count, std::int32_t value) {
  data.insert(data.end(), count, value);
}

// Machines that communicate through MPI. MPI pairs collectives by their order, so sums of equal size that begin in
// different orders would be exchanged. One rank after the other comes late.
TEST(MpiNetwork, CallsInFlightOfAHierarchicalGroupBeginInOneOrder) {
  run_ranks({.ranks = 4, .kind = RankKind::kMpi, .backend = "hierarchical", .machines = 2, .network = "mpi"},
            [](Rank& r) {
              const Communicator& world = r.world();
              for (int round = 0; round < 60; ++round) {
                constexpr std::size_t kCalls = 6;
                std::vector<std::vector<float>> sums;
                std::vector<Work> works;
                if (round % 5 == r.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
                for (std::size_t i = 0; i < kCalls; ++i) sums.emplace_back(8000, static_cast<float>(i + 1));
                for (std::size_t i = 0; i < kCalls; ++i) {
                  std::vector<float>& sum = sums[i];
                  works.push_back(
                      world.start_all_reduce(sum.data(), sum.data(), sum.size(), DataType::kFloat32, ReduceOp::kSum));
                }
                for (const Work& work : works) work.wait();
                for (std::size_t i = 0; i < kCalls; ++i) {
                  ASSERT_EQ(sums[i], std::vector<float>(8000, 4 * static_cast<float>(i + 1))) << "call " << i;
                }
              }
            });
}

TEST(MpiUneven, GoesByMessagesWhereAnIntDoesNotCountAllElements) {
  run_ranks({.ranks = 3, .kind = RankKind::kMpi, .backend = "mpi"}, [](Rank& r) {
    NarrowGroup group(r);
    const auto own = static_cast<std::size_t>(r.rank());
    const Counts counts = {5, 0, 40000};
    const std::size_t total = 40005;
    std::vector<std::int32_t> blocks;  // one for each rank
    std::vector<std::int32_t> from_all;
    for (int q = 0; q < 3; ++q) {
      append(blocks, counts[static_cast<std::size_t>(q)], value(r.rank(), q));
      append(from_all, counts[static_cast<std::size_t>(q)], value(q, 0));
    }
    const std::vector<std::int32_t> mine(counts[own], value(r.rank(), 0));
    comm::Call call{.type = DataType::kInt32, .op = ReduceOp::kSum, .counts = counts};
    for (int root = 0; root < 3; ++root) {
      call.root = root;
      std::vector<std::int32_t> all(total, -1);
      call.kind = OperationKind::kGatherV;
      call.input = mine.data();
      call.output = all.data();
      group.run(call);
      EXPECT_EQ(all, r.rank() == root ? from_all : std::vector<std::int32_t>(total, -1));
      std::vector<std::int32_t> one(counts[own], -1);
      call.kind = OperationKind::kScatterV;
      call.input = blocks.data();
      call.output = one.data();
      group.run(call);
      EXPECT_EQ(one, std::vector<std::int32_t>(counts[own], value(root, r.rank())));
    }
    for (const bool in_place : {false, true}) {
      std::vector<std::int32_t> all(total, -1);
      std::int32_t* const place = all.data() + comm::begin_of(counts, r.rank());
      std::copy(mine.begin(), mine.end(), place);
      call.kind = OperationKind::kAllGatherV;
      call.input = in_place ? place : mine.data();
      call.output = all.data();
      group.run(call);
      EXPECT_EQ(all, from_all);
    }
    std::vector<std::int32_t> sum(counts[own], -1);
    call.kind = OperationKind::kReduceScatterV;
    call.input = blocks.data();
    call.output = sum.data();
    group.run(call);
    EXPECT_EQ(sum, std::vector<std::int32_t>(counts[own], 300 + 3 * r.rank()));
    const auto passing = [](int from, int to) { return static_cast<std::size_t>((from + 2 * to) % 4) * 1000; };
    std::vector<std::int32_t> leaving;
    std::vector<std::int32_t> expected;
    call.counts.clear();
    for (int q = 0; q < 3; ++q) {
      call.counts.push_back(passing(r.rank(), q));
      call.arrives.push_back(passing(q, r.rank()));
      append(leaving, call.counts.back(), value(r.rank(), q));
      append(expected, call.arrives.back(), value(q, r.rank()));
    }
    std::vector<std::int32_t> arrived(expected.size(), -1);
    call.kind = OperationKind::kAllToAllV;
    call.input = leaving.data();
    call.output = arrived.data();
    group.run(call);
    EXPECT_EQ(arrived, expected);
    MPI_Barrier(MPI_COMM_WORLD);
  });
}

}  // namespace
}  // namespace reigen::testing
