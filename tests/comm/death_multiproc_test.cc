// Ranks die or stop in the middle of a run. The others must soon name the rank, and no rank may hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <thread>

#include "harness/ranks.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using ::testing::HasSubstr;

void train_until_lost(Rank& r, int culprit, const std::string& word) {
  auto& world = r.world();
  std::vector<float> x(200000, 1.0f);
  try {
    for (int step = 0; step < 1000; ++step) {
      r.step(step);
      world.all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kAvg,
                       {.tag = "step " + std::to_string(step)});
    }
    ADD_FAILURE() << "rank " << r.rank() << " never noticed";
  } catch (const PeerLost& error) {
    EXPECT_EQ(error.rank(), culprit) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(culprit)));
    EXPECT_THAT(error.what(), HasSubstr(word));
    EXPECT_THAT(error.what(), HasSubstr("step"));
  }
}

// The number of mapped shared-memory files with a name. A process with such a file may leave it behind.
int named_shared_memory() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) found += line.find("/dev/shm/") != std::string::npos ? 1 : 0;
  return found;
}

TEST(Death, AKilledRankIsNamed) {
  const auto ends =
      run_ranks({.ranks = 4, .kind = RankKind::kProcesses, .fault = kill(rank(2)).at_step(3)}, [](Rank& r) {
        const auto memory = r.world().allocate(1 << 20);
        EXPECT_EQ(named_shared_memory(), 0);
        train_until_lost(r, 2, "died");
      });
  EXPECT_EQ(ends[2].signal, SIGKILL);
}

TEST(Death, ARankThatExitsIsNamed) {
  const auto ends = run_ranks({.ranks = 3, .kind = RankKind::kProcesses, .fault = exit_with(rank(0), 3).at_step(5)},
                              [](Rank& r) { train_until_lost(r, 0, "died"); });
  EXPECT_EQ(ends[0].exit_code, 3);
}

TEST(Death, AStoppedRankIsNamed) {
  run_ranks({.ranks = 3,
             .kind = RankKind::kProcesses,
             .fault = stop(rank(1)).at_step(2),
             .heartbeat_timeout = std::chrono::seconds(2)},
            [](Rank& r) { train_until_lost(r, 1, "no sign of life"); });
}

// The stopped rank is reported as late first, and then named as lost.
TEST(Death, AStoppedRankIsNamedAlsoAfterAReport) {
  run_ranks({.ranks = 4,
             .kind = RankKind::kProcesses,
             .fault = stop(rank(1)).at_step(2),
             .heartbeat_timeout = std::chrono::seconds(2),
             .report_after = std::chrono::seconds(1)},
            [](Rank& r) { train_until_lost(r, 1, "no sign of life"); });
}

TEST(Death, ARankKilledWhileOthersWaitAsynchronously) {
  run_ranks({.ranks = 3, .kind = RankKind::kProcesses, .fault = kill(rank(1)).at_step(0)}, [](Rank& r) {
    auto& world = r.world();
    world.barrier();
    auto data = world.allocate(4 * 100000);
    auto* x = static_cast<float*>(data.get());
    r.step(0);
    const Work work = world.start_all_reduce(x, x, 100000, DataType::kFloat32, ReduceOp::kSum);
    EXPECT_THROW(work.wait(), PeerLost);
  });
}

// Rank 0 waits for a message of rank 1, and rank 2 until rank 1 receives its messages.
TEST(Death, WhoTalksToADeadRankIsTold) {
  for (const std::size_t count : {10U, 200000U}) {
    run_ranks({.ranks = 3, .kind = RankKind::kProcesses, .fault = kill(rank(1)).at_step(0)}, [&](Rank& r) {
      auto& world = r.world();
      std::vector<float> data(count);
      world.barrier();
      r.step(0);
      try {
        if (r.rank() == 0) world.recv(data.data(), count, DataType::kFloat32, 1, {.tag = "gradients"});
        // Short sends complete without a receiver until the mailbox or the connection is full.
        for (int i = 0; i < 1000000; ++i) world.send(data.data(), count, DataType::kFloat32, 1);
        ADD_FAILURE() << "rank " << r.rank() << " never noticed";
      } catch (const PeerLost& error) {
        EXPECT_EQ(error.rank(), 1) << error.what();
        EXPECT_THAT(error.what(), HasSubstr("died"));
        EXPECT_THAT(error.what(), HasSubstr("message #"));
      }
    });
  }
}

TEST(Death, AMessageOfARankThatLeftIsReceived) {
  run_ranks({.ranks = 2, .kind = RankKind::kProcesses}, [](Rank& r) {
    std::int64_t number = 42;
    if (r.rank() == 0) {
      r.world().send(&number, 1, DataType::kInt64, 1);
      r.leave();
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    number = 0;
    r.world().recv(&number, 1, DataType::kInt64, 0);
    EXPECT_EQ(number, 42);
    EXPECT_THROW(r.world().recv(&number, 1, DataType::kInt64, 0), PeerLost);
  });
}

// Rank 1 makes the first call of split(), which exchanges the wishes, and never joins the new group.
TEST(Death, ARankThatDiesInASplitIsNamed) {
  run_ranks({.ranks = 3, .kind = RankKind::kProcesses, .fault = kill(rank(1)).at_step(0)}, [](Rank& r) {
    auto& world = r.world();
    if (r.rank() == 1) {
      const std::int64_t wish[2] = {0, 0};
      std::int64_t wishes[6];
      world.all_gather(wish, wishes, 2, DataType::kInt64, {.tag = "split"});
      r.step(0);
    }
    const auto begin = std::chrono::steady_clock::now();
    try {
      world.split(0);
      ADD_FAILURE() << "a group without rank 1 is complete";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.rank(), 1) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("died"));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));  // less than the timeout
  });
}

// Makes the first call of split(0), which exchanges the wishes, in a group of three.
void say_wish(Communicator& world) {
  const std::int64_t wish[2] = {0, 0};
  std::int64_t wishes[6];
  world.all_gather(wish, wishes, 2, DataType::kInt64, {.tag = "split"});
}

TEST(Death, ARankThatIsStoppedInASplitIsNamed) {
  run_ranks({.ranks = 3,
             .kind = RankKind::kProcesses,
             .fault = stop(rank(1)).at_step(0),
             .heartbeat_timeout = std::chrono::seconds(2)},
            [](Rank& r) {
              auto& world = r.world();
              if (r.rank() == 1) {
                say_wish(world);
                r.step(0);
              }
              try {
                world.split(0);
                ADD_FAILURE() << "a group without rank 1 is complete";
              } catch (const PeerLost& error) {
                EXPECT_EQ(error.rank(), 1) << error.what();
                EXPECT_THAT(error.what(), HasSubstr("no sign of life"));
              }
            });
}

std::vector<std::int64_t> processes_of(Communicator& world) {
  const std::int64_t mine = ::getpid();
  std::vector<std::int64_t> all(static_cast<std::size_t>(world.size()));
  world.all_gather(&mine, all.data(), 1, DataType::kInt64);
  return all;
}

// Acts like a suspended job. A shell stops all processes, including the caller, and then continues one after the other
// in this order. The shell itself is not stopped.
void suspend(const std::vector<std::int64_t>& processes, const std::string& seconds) {
  std::string list;
  for (const std::int64_t process : processes) list += " " + std::to_string(process);
  const std::string script = "sleep 0.4; kill -STOP" + list + "; sleep " + seconds + "; for p in" + list +
                             "; do kill -CONT $p; sleep 0.3; done";
  std::array<const char*, 4> words = {"sh", "-c", script.c_str(), nullptr};
  pid_t shell = 0;
  ASSERT_EQ(::posix_spawnp(&shell, "sh", nullptr, nullptr, const_cast<char**>(words.data()), environ), 0);
  int status = -1;
  while (::waitpid(shell, &status, 0) < 0 && errno == EINTR) {
  }
  EXPECT_EQ(status, 0);
}

TEST(Death, ASuspendedJobGoesOn) {
  run_ranks({.ranks = 3, .kind = RankKind::kProcesses, .heartbeat_timeout = std::chrono::seconds(2)}, [](Rank& r) {
    auto& world = r.world();
    const auto processes = processes_of(world);
    std::thread other;
    if (r.rank() == 0) other = std::thread([&] { suspend(processes, "3.5"); });
    std::vector<float> x(50000, 1.0f);
    // In the first steps, ranks wait for a late rank while they are stopped.
    for (int step = 0; step < 5; ++step) {
      if (r.rank() == step % 3) std::this_thread::sleep_for(std::chrono::milliseconds(800));
      world.all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kAvg);
    }
    if (other.joinable()) other.join();
    world.barrier();
    EXPECT_EQ(x[0], 1.0f);
  });
}

// Rank 1 makes the first call of split(), is then stopped together with the others, and later exits. The others must
// report this exit, and not the silence of the time in which no rank ran.
TEST(Death, ASuspendedJobBlamesNobodyInASplit) {
  run_ranks({.ranks = 3,
             .kind = RankKind::kProcesses,
             .fault = exit_with(rank(1), 3).at_step(0),
             .heartbeat_timeout = std::chrono::seconds(3)},
            [](Rank& r) {
              auto& world = r.world();
              const auto processes = processes_of(world);
              if (r.rank() == 1) {
                say_wish(world);
                suspend({processes[0], processes[2], processes[1]}, "4");
                r.step(0);
              }
              try {
                world.split(0);
                ADD_FAILURE() << "a group without rank 1 is complete";
              } catch (const PeerLost& error) {
                EXPECT_EQ(error.rank(), 1) << error.what();
                EXPECT_THAT(error.what(), HasSubstr("died"));
              }
            });
}

TEST(Death, ASlowRankIsNotADeadOne) {
  run_ranks({.ranks = 3,
             .kind = RankKind::kProcesses,
             .fault = delay(rank(1), std::chrono::milliseconds(3000)).at_step(0),
             .heartbeat_timeout = std::chrono::seconds(2)},
            [](Rank& r) {
              r.world().barrier();
              r.step(0);
              r.world().barrier();
            });
}

}  // namespace
}  // namespace reigen::testing
