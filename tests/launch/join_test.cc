// Ranks as threads join one store over TCP, like processes under torchrun, mpirun or srun.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "launch/meet/listening.h"
#include "net/socket.h"
#include "reigen/base/error.h"
#include "reigen/base/unique_fd.h"
#include "reigen/launch/environment.h"
#include "reigen/store/tcp_store.h"

namespace reigen::launch {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

// Listens on a free port while `socket` is open.
struct Listener {
  Listener() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(socket.get(), 8) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("no listener");
    }
    port = ntohs(address.sin_port);
  }
  UniqueFd socket;
  std::uint16_t port = 0;
};

Environment rank_of(int rank, int world, std::uint16_t port, const std::string& job = "job-a") {
  Environment e;
  e.rank = e.local_rank = rank;
  e.world_size = e.local_world_size = world;
  e.source = "torchrun";
  e.master_address = "127.0.0.1";
  e.master_port = port;
  e.port_origin = "MASTER_PORT";
  e.job = job;
  return e;
}

// All ranks join, say hello, and wait for all others before the server may end.
void meet(int world, std::uint16_t port, const std::string& job = "job-a", seconds late = seconds(0)) {
  std::vector<std::future<void>> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.push_back(std::async(std::launch::async, [=] {
      if (rank == 0) std::this_thread::sleep_for(late);
      const auto store = join_job(rank_of(rank, world, port, job), Deadline::after(seconds(30)));
      store->set("rank/" + std::to_string(rank), job);
      for (int peer = 0; peer < world; ++peer) {
        EXPECT_EQ(store->get("rank/" + std::to_string(peer), Deadline::after(seconds(30))), job);
      }
      if (store->add("left", 1) == world) store->set("all left", "1");
      if (rank == 0) store->get("all left", Deadline::after(seconds(30)));
    }));
  }
  for (auto& rank : ranks) rank.get();
}

std::uint16_t free_port() { return Listener().port; }

TEST(JoinJob, AloneNeedsNoNetwork) {
  const auto store = join_job({}, Deadline::after(seconds(1)));
  store->set("a", "b");
  EXPECT_EQ(store->try_get("a"), "b");
}

TEST(JoinJob, RankZeroServes) { meet(3, free_port()); }

TEST(JoinJob, RankZeroMayComeLast) { meet(2, free_port(), "job-a", seconds(1)); }

std::string message_of_join(const Environment& e, seconds limit) {
  try {
    join_job(e, Deadline::after(limit));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The job was given no other port. A rank that listens on another port could take it from another program.
TEST(JoinJob, APortTakenByAStrangerIsAnErrorThatNamesIt) {
  const Listener stranger;
  const std::string text = message_of_join(rank_of(0, 2, stranger.port), seconds(10));
  EXPECT_THAT(text, HasSubstr("port " + std::to_string(stranger.port) + " (MASTER_PORT)"));
  EXPECT_THAT(text, HasSubstr("Address already in use"));
  EXPECT_THAT(text, HasSubstr("set MASTER_PORT to a free one"));
}

TEST(JoinJob, TwoJobsOnOnePortDoNotMix) {
  const std::uint16_t port = free_port();
  const store::TcpStoreServer other({.host = "127.0.0.1", .port = port, .job = "job-b"});
  EXPECT_THAT(message_of_join(rank_of(0, 2, port, "job-a"), seconds(10)), HasSubstr("Address already in use"));
  EXPECT_THAT(message_of_join(rank_of(1, 2, port, "job-a"), seconds(1)), HasSubstr("belongs to another job"));
}

// The job that had the port before may end a moment later than its launcher.
TEST(JoinJob, ARankWaitsUntilAnotherJobLeavesThePort) {
  const std::uint16_t port = free_port();
  auto other = std::make_unique<store::TcpStoreServer>(
      store::TcpStoreServerOptions{.host = "127.0.0.1", .port = port, .job = "job-b"});
  auto late =
      std::async(std::launch::async, [&] { return join_job(rank_of(1, 2, port), Deadline::after(seconds(30))); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  other.reset();
  const auto first = join_job(rank_of(0, 2, port), Deadline::after(seconds(30)));
  first->set("x", "1");
  EXPECT_EQ(late.get()->try_get("x"), "1");
}

// 127.0.1.1 is the address of the machine's own name in Debian's /etc/hosts. Ranks may also have different information
// about where the others are.
TEST(JoinJob, RankZeroListensWhereItsAddressPoints) {
  for (const char* address : {"127.0.1.1", "127.0.0.1"}) {
    for (const bool one_host : {false, true}) {
      Environment first = rank_of(0, 2, free_port());
      first.one_host = one_host;
      first.master_address = address;
      Environment second = first;
      second.rank = 1;
      const auto server = join_job(first, Deadline::after(seconds(30)));
      server->set("x", "1");
      EXPECT_EQ(join_job(second, Deadline::after(seconds(30)))->try_get("x"), "1");
      second.one_host = !one_host;  // rank 1 knows less than rank 0, or more
      EXPECT_EQ(join_job(second, Deadline::after(seconds(30)))->try_get("x"), "1");
    }
  }
}

TEST(JoinJob, WithoutAPortRanksOfOneMachineMeetByTheNameOfTheirJob) {
  const std::string job = "by name " + std::to_string(::getpid());
  Environment e = rank_of(0, 2, 0, job);
  e.one_host = true;
  e.port_origin = {};
  const auto server = join_job(e, Deadline::after(seconds(10)));
  EXPECT_THAT(message_of_join(e, seconds(5)), HasSubstr("rank 0 of the same job"));
  e.rank = 1;
  const auto client = join_job(e, Deadline::after(seconds(10)));
  client->set("x", "1");
  EXPECT_EQ(server->get("x", Deadline::after(seconds(10))), "1");
  EXPECT_THAT(message_of_join(rank_of(1, 2, 0, job + "b"), seconds(1)), HasSubstr("does not know where rank 0 is"));
}

// Another user's program can guess the name.
TEST(JoinJob, AnotherUsersProgramThatHasTheJobsNameIsSaidToBeOne) {
  if (::geteuid() != 0) GTEST_SKIP() << "ONLY ROOT CAN BE ANOTHER USER: a name that another user holds was not tested";
  const std::string job = "guessed " + std::to_string(::getpid());
  const net::Address name = net::machine_address(socket_of_job(job));
  constexpr uid_t kNobody = 65534;
  if (::seteuid(kNobody) != 0) GTEST_SKIP() << "THERE IS NO OTHER USER HERE: a name that one holds was not tested";
  std::optional<net::Listener> holder(name);
  ASSERT_EQ(::seteuid(0), 0);
  Environment e = rank_of(0, 2, 0, job);
  e.one_host = true;
  e.port_origin = {};
  EXPECT_THAT(message_of_join(e, seconds(5)), testing::AllOf(HasSubstr("another user"), HasSubstr("REIGEN_JOB")));
  holder.reset();
  EXPECT_EQ(message_of_join(e, seconds(5)), "");
}

TEST(JoinJob, TheLaunchersStore) {
  const store::TcpStoreServer server({.host = "127.0.0.1", .port = 0, .job = "j"});
  Environment e = rank_of(1, 2, 0, "j");
  e.store = "tcp://127.0.0.1:" + std::to_string(server.port());
  join_job(e, Deadline::after(seconds(10)))->set("x", "1");
  e.rank = 0;
  EXPECT_EQ(join_job(e, Deadline::after(seconds(10)))->get("x", Deadline::after(seconds(10))), "1");
}

TEST(JoinJob, ADamagedStoreAddressIsNamed) {
  for (const char* url : {"127.0.0.1:80", "tcp://", "tcp://:80", "tcp://host", "tcp://host:", "tcp://host:x",
                          "tcp://host:0", "tcp://host:70000"}) {
    Environment e = rank_of(1, 2, 0);
    e.store = url;
    try {
      join_job(e, Deadline::after(seconds(1)));
      ADD_FAILURE() << "accepted " << url;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("REIGEN_STORE=") + url));
    }
  }
}

TEST(JoinJob, AMissingRankZeroIsATimeoutThatSaysWhereItWasLookedFor) {
  const std::uint16_t port = free_port();
  try {
    join_job(rank_of(1, 2, port), Deadline::after(std::chrono::milliseconds(700)));
    FAIL() << "joined nobody";
  } catch (const Timeout& error) {
    EXPECT_THAT(error.what(), HasSubstr("127.0.0.1, port " + std::to_string(port)));
    EXPECT_THAT(error.what(), HasSubstr("rank 1 of 2"));
  }
}

// The warning comes once. The final error also gives this reason, and not "nobody listens there".
TEST(JoinJob, ANameWithoutAddressIsWarnedOfOnceAndTheReasonAtTheEnd) {
  Environment e = rank_of(1, 2, 29511);
  e.master_address = "job-master-0.invalid";
  testing::internal::CaptureStderr();
  const std::string text = message_of_join(e, seconds(1));
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("host 'job-master-0.invalid' has no address"));
  EXPECT_THAT(text, HasSubstr("MASTER_ADDR"));
  const auto first = warnings.find("job-master-0.invalid");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(warnings.find("job-master-0.invalid", first + 1), std::string::npos);
}

}  // namespace
}  // namespace reigen::launch
