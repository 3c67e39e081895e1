// The parts of the MPI backend that need no second rank: counts larger than an int, divisions, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/mpi/arena.h"
#include "comm/mpi/block.h"
#include "comm/mpi/library.h"
#include "comm/mpi/reduction.h"
#include "harness/ranks.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using ::testing::HasSubstr;

// This must be the first test, because later ones start MPI.
TEST(MpiStart, ProcessesThatMpirunDidNotStartAreRefused) {
  try {
    Communicator world({.rank = 0, .size = 2, .store = store::make_memory_store(), .backend = "mpi"});
    FAIL() << "a group without mpirun";
  } catch (const BackendError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr("mpirun -n N program"));
  }
}

class WithMpi : public ::testing::Test {
 protected:
  void SetUp() override { comm::mpi::Library::get(); }
};

MPI_Count bytes_of(const comm::mpi::Block& block) {
  MPI_Count size = 0;
  MPI_Type_size_x(block.type(), &size);
  return size * block.count();
}

using MpiBlock = WithMpi;

TEST_F(MpiBlock, HoldsMoreBytesThanAnIntCanCount) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1} << 30, (std::size_t{1} << 30) + 1,
                                  (std::size_t{1} << 31) + 5, (std::size_t{3} << 40) + 7}) {
    const comm::mpi::Block block(bytes);
    EXPECT_EQ(bytes_of(block), static_cast<MPI_Count>(bytes));
  }
}

TEST_F(MpiBlock, CopiesEveryByte) {
  std::string from(1003, ' ');
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>('a' + i % 26);
  for (const std::size_t most : {1U, 7U, 100U, 1003U, 5000U}) {
    const comm::mpi::Block block(from.size(), most);
    EXPECT_EQ(bytes_of(block), 1003);
    std::string to(from.size(), ' ');
    MPI_Sendrecv(from.data(), block.count(), block.type(), 0, 1, to.data(), block.count(), block.type(), 0, 1,
                 MPI_COMM_SELF, MPI_STATUS_IGNORE);
    EXPECT_EQ(to, from) << "pieces of " << most;
  }
}

TEST(MpiPieces, CoverEveryElementOnce) {
  EXPECT_EQ(comm::mpi::pieces_of(0).size(), 1U);
  const std::size_t count = (std::size_t{5} << 30) + 3;
  std::size_t next = 0;
  for (const auto& piece : comm::mpi::pieces_of(count)) {
    EXPECT_EQ(piece.begin, next);
    next += static_cast<std::size_t>(piece.count);
  }
  EXPECT_EQ(next, count);
}

TEST(MpiDivide, EndsAnAverage) {
  std::vector<float> floats(100003);
  for (std::size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(i);
  comm::mpi::divide(reinterpret_cast<std::byte*>(floats.data()), floats.size(), DataType::kFloat32, 3);
  for (std::size_t i = 0; i < floats.size(); ++i) ASSERT_EQ(floats[i], static_cast<float>(i) / 3.0f);
  std::vector<std::int8_t> small = {-7, -1, 0, 8, 100};
  comm::mpi::divide(reinterpret_cast<std::byte*>(small.data()), small.size(), DataType::kInt8, 3);
  EXPECT_EQ(small, (std::vector<std::int8_t>{-2, 0, 0, 2, 33}));
}

TEST(MpiArena, KnowsItsMemory) {
  const auto arena = std::make_shared<comm::mpi::Arena>();
  const auto block = arena->allocate(1000);
  const auto* data = static_cast<const char*>(block.get());
  EXPECT_TRUE(arena->owns(data, 1000));
  EXPECT_TRUE(arena->owns(data + 900, 100));
  EXPECT_FALSE(arena->owns(data + 900, 10000));
  EXPECT_FALSE(arena->owns(data - 1, 1));
}

TEST_F(WithMpi, RanksAsThreadsAreRefused) {
  run_ranks({.ranks = 2, .backend = "mpi"}, [](Rank& r) {
    try {
      r.world().barrier();
      ADD_FAILURE() << "two ranks in one process";
    } catch (const BackendError& error) {
      EXPECT_THAT(error.what(), HasSubstr("ranks 0 and 1 are threads of one process"));
      EXPECT_THAT(error.what(), HasSubstr("mpirun -n N program"));
    }
  });
}

}  // namespace
}  // namespace reigen::testing
