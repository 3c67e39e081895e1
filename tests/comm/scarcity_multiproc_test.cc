// The system refuses a resource to a rank. The rank must throw an error that says what to do, without a signal or a
// hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cstddef>

#include "harness/ranks.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using ::testing::HasSubstr;

void limit(int what, rlim_t amount) {
  const rlimit limits{amount, amount};
  ASSERT_EQ(::setrlimit(static_cast<__rlimit_resource_t>(what), &limits), 0);
}

// From now on the kernel refuses memory files, as a sandbox may.
void forbid_memory_files() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

TEST(Scarcity, OfDescriptorsIsSaid) {
  run_ranks({.ranks = 2, .kind = RankKind::kProcesses}, [](Rank& r) {
    auto& world = r.world();
    limit(RLIMIT_NOFILE, 16);
    std::vector<std::shared_ptr<void>> blocks;
    try {
      for (int i = 0; i < 16; ++i) blocks.push_back(world.allocate(8 << 20));
      ADD_FAILURE() << "16 descriptors held 16 pieces of memory and the group";
    } catch (const IoError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kOsResource);
      EXPECT_THAT(error.what(), HasSubstr("ulimit -n"));
    }
    double x = 1;  // the group remains usable
    world.all_reduce(&x, &x, 1, DataType::kFloat64, ReduceOp::kSum);
    EXPECT_EQ(x, 2);
  });
}

TEST(Scarcity, OfDescriptorsOfAPeerEndsTheGroup) {
  run_ranks({.ranks = 2, .kind = RankKind::kProcesses}, [](Rank& r) {
    auto& world = r.world();
    // Rank 1 has no descriptor left to map the memory that rank 0 allocates.
    if (r.rank() == 1) limit(RLIMIT_NOFILE, 3);
    std::shared_ptr<void> block;
    std::vector<float> own(1 << 20);
    float* x = own.data();
    if (r.rank() == 0) {
      block = world.allocate(own.size() * sizeof(float));
      x = static_cast<float*>(block.get());
    }
    try {
      world.broadcast(x, own.size(), DataType::kFloat32, 0);
      world.barrier();
      ADD_FAILURE() << "rank " << r.rank() << " did not notice";
    } catch (const IoError& error) {
      EXPECT_EQ(r.rank(), 1);
      EXPECT_EQ(error.exit_code(), ExitCode::kOsResource);
      EXPECT_THAT(error.what(), HasSubstr("Too many open files"));
    } catch (const Aborted& error) {
      EXPECT_EQ(r.rank(), 0);
      EXPECT_THAT(error.what(), HasSubstr("Too many open files"));
    }
  });
}

TEST(Scarcity, OfMemoryFilesIsSaid) {
  run_ranks({.ranks = 2, .kind = RankKind::kProcesses}, [](Rank& r) {
    forbid_memory_files();
    try {
      r.world();
      ADD_FAILURE() << "shared memory without memory files";
    } catch (const IoError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kPermission);
      EXPECT_THAT(error.what(), HasSubstr("memfd_create"));
      EXPECT_THAT(error.what(), HasSubstr("fix:"));
    }
  });
}

TEST(Scarcity, OfAddressSpaceIsSaid) {
  run_ranks({.ranks = 2, .kind = RankKind::kProcesses}, [](Rank& r) {
    auto& world = r.world();
    limit(RLIMIT_AS, 1 << 20);
    try {
      world.allocate(64 << 20);
      ADD_FAILURE() << "64 MiB came out of one";
    } catch (const IoError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kOsResource);
      EXPECT_THAT(error.what(), HasSubstr("no shared memory"));
    }
  });
}

}  // namespace
}  // namespace reigen::testing
