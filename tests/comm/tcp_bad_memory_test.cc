// Memory that the kernel cannot access is a mistake of the rank that passed it, and never the loss of another rank.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <functional>

#include "harness/ranks.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kBytes = std::size_t{1} << 16;

// Memory whose first half can be read and written, and whose second half has the given rights.
class HalfBad {
 public:
  explicit HalfBad(int rights)
      : memory_(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(memory_, MAP_FAILED);
    EXPECT_EQ(::mprotect(bad_part(), kBytes / 2, rights), 0);
  }
  ~HalfBad() { ::munmap(memory_, kBytes); }
  HalfBad(const HalfBad&) = delete;
  HalfBad& operator=(const HalfBad&) = delete;

  void* get() const { return memory_; }
  void* bad_part() const { return static_cast<std::byte*>(memory_) + kBytes / 2; }

 private:
  void* memory_;
};

// Rank `culprit` uses memory whose second half has these rights; the other ranks use good memory.
void expect_blame(int culprit, int rights, const std::string& name, const std::function<void(Rank&, void*)>& call) {
  run_ranks({.ranks = 3, .backend = "tcp"}, [&](Rank& r) {
    r.world().barrier();
    const HalfBad bad(rights);
    const HalfBad good(PROT_READ | PROT_WRITE);
    try {
      call(r, r.rank() == culprit ? bad.get() : good.get());
      r.world().barrier();
      ADD_FAILURE() << "rank " << r.rank() << " did not notice";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(r.rank(), culprit) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("Bad address ({})", EFAULT)));
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("put is at {}", bad.get())));
    } catch (const Aborted& error) {
      EXPECT_NE(r.rank(), culprit) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("[{}] rank {} of 3", name, culprit)));
      EXPECT_THAT(error.what(), HasSubstr("Bad address"));
    }
    EXPECT_THROW(r.world().barrier(), Aborted);
  });
}

void send(Rank& r, void* memory) {
  if (r.rank() == 0) r.world().send(memory, kBytes, DataType::kUint8, 1);
  if (r.rank() == 1) r.world().recv(memory, kBytes, DataType::kUint8, 0);
}

void broadcast(Rank& r, void* memory) { r.world().broadcast(memory, kBytes, DataType::kUint8, 0); }

TEST(TcpBadMemory, OfWhoSends) { expect_blame(0, PROT_NONE, "send", send); }
TEST(TcpBadMemory, OfWhoReceives) { expect_blame(1, PROT_READ, "recv", send); }
TEST(TcpBadMemory, OfTheRootOfABroadcast) { expect_blame(0, PROT_NONE, "broadcast", broadcast); }
TEST(TcpBadMemory, OfWhoIsToldInABroadcast) { expect_blame(2, PROT_READ, "broadcast", broadcast); }

}  // namespace
}  // namespace reigen::testing
