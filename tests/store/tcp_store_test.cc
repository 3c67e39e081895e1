// The TCP store without faults: the contract, addresses, starting order, many clients, descriptors.
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <optional>

#include "net/socket.h"
#include "reigen/store/tcp_store.h"
#include "store/contract.h"

namespace reigen::store {
namespace {

class TcpStorage final : public Storage {
 public:
  std::shared_ptr<Store> open() override { return connect_tcp_store({.port = server_.port(), .job = "test"}); }

 private:
  TcpStoreServer server_{{.job = "test"}};
};

INSTANTIATE_TEST_SUITE_P(Tcp, StoreContract, plain_and_prefixed<TcpStorage>(), case_name);

bool has_ipv6() {
  try {
    const net::Listener probe("::1", 0);
    return true;
  } catch (const BackendError&) {
    return false;
  }
}

// A port that was free a moment ago, for a server that starts after its clients.
std::uint16_t free_port() { return net::Listener("127.0.0.1", 0).address().port(); }

TEST(TcpStore, ClientMayComeBeforeTheServer) {
  const std::uint16_t port = free_port();
  auto value = std::async(std::launch::async, [&] {
    return connect_tcp_store({.port = port, .job = "j", .connect_deadline = soon()})->get("k", soon());
  });
  std::this_thread::sleep_for(50ms);
  TcpStoreServer server({.port = port, .job = "j"});
  connect_tcp_store({.port = port, .job = "j"})->set("k", "v");
  EXPECT_EQ(value.get(), "v");
}

TEST(TcpStore, LocalhostIsReachedByName) {
  for (const std::string host : {"127.0.0.1", "localhost", "0.0.0.0"}) {
    TcpStoreServer server({.host = host});
    connect_tcp_store({.host = "localhost", .port = server.port()})->set("k", "v");
    const auto store = connect_tcp_store({.host = host, .port = server.port()});
    EXPECT_EQ(store->get("k", soon()), "v") << host;
  }
}

// No machine has 192.0.2.1. It stands for an IPv6 address that the network has not yet confirmed.
TEST(TcpStore, AnAddressThatCannotBeHadNowIsLeftOut) {
  for (const std::uint16_t port : {std::uint16_t{0}, free_port()}) {
    TcpStoreServer server({.host = "127.0.0.1", .port = port, .also = {"192.0.2.1", "127.0.0.2"}});
    connect_tcp_store({.host = "127.0.0.1", .port = server.port()})->set("k", "v");
    EXPECT_EQ(connect_tcp_store({.host = "127.0.0.2", .port = server.port()})->get("k", soon()), "v");
  }
}

TEST(TcpStore, APortThatIsTakenAtOneOfTheAddressesIsAnError) {
  const net::Listener taken("127.0.0.2", 0);
  try {
    TcpStoreServer server({.host = "127.0.0.1", .port = taken.address().port(), .also = {"127.0.0.2"}});
    FAIL() << "went on without it";
  } catch (const BackendError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kUnavailable);
    EXPECT_NE(std::string(error.what()).find(taken.address().to_string()), std::string::npos) << error.what();
  }
}

TEST(TcpStore, SpeaksIpv6) {
  if (!has_ipv6()) GTEST_SKIP() << "THIS MACHINE HAS NO IPv6 LOOPBACK: the TCP store was not tested over IPv6";
  TcpStoreServer server({.host = "::1"});
  connect_tcp_store({.host = "[::1]", .port = server.port()})->set("k", "v");
  EXPECT_EQ(connect_tcp_store({.host = "::1", .port = server.port()})->get("k", soon()), "v");
  TcpStoreServer both({.host = "::"});
  connect_tcp_store({.host = "127.0.0.1", .port = both.port()})->set("k", "4");
  EXPECT_EQ(connect_tcp_store({.host = "::1", .port = both.port()})->get("k", soon()), "4");
}

TEST(TcpStore, TakenPortIsNamed) {
  const TcpStoreServer first({});
  try {
    const TcpStoreServer second({.port = first.port()});
    FAIL() << "no error";
  } catch (const BackendError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kUnavailable);
    EXPECT_THAT(error.what(), testing::HasSubstr("127.0.0.1:" + std::to_string(first.port())));
  }
}

TEST(TcpStore, PortIsFreeAgainAfterTheServer) {
  std::uint16_t port = 0;
  for (int round = 0; round < 5; ++round) {
    TcpStoreServer server({.port = port});
    port = server.port();
    connect_tcp_store({.port = port})->set("k", "v");
  }
}

TEST(TcpStore, BadArgumentsAreRefused) {
  EXPECT_THROW(TcpStoreServer({.host = ""}), InvalidArgument);
  EXPECT_THROW(TcpStoreServer({.host = "192.0.2.1"}), BackendError);  // no machine has this address
  EXPECT_THROW(TcpStoreServer({.job = std::string(1000, 'j')}), InvalidArgument);
  EXPECT_THROW(connect_tcp_store({.port = 0}), InvalidArgument);
  EXPECT_THROW(connect_tcp_store({.host = "", .port = 1}), InvalidArgument);
  EXPECT_THROW(connect_tcp_store({.port = 1, .job = std::string(1000, 'j')}), InvalidArgument);
}

TEST(TcpStore, UnknownHostIsNamedAtTheDeadline) {
  const std::string message = message_of([] {
    connect_tcp_store({.host = "no-such-host.invalid", .port = 9, .connect_deadline = Deadline::after(20ms)});
  });
  EXPECT_THAT(message, testing::HasSubstr("no-such-host.invalid"));
}

TEST(TcpStore, ManyClientsWaitForOneKey) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  TcpStoreServer server({});
  constexpr int kClients = 300;
  std::vector<std::shared_ptr<Store>> clients;
  for (int i = 0; i < kClients; ++i) clients.push_back(connect_tcp_store({.port = server.port()}));
  std::vector<std::future<std::string>> values;
  for (int i = 1; i < kClients; ++i) {
    values.push_back(std::async(std::launch::async, [&, i] {
      const auto store = clients[static_cast<std::size_t>(i)];
      store->add("arrived", 1);
      return store->get("go", soon());
    }));
  }
  const auto arrived_limit = soon();
  while (clients[0]->add("arrived", 0) < kClients - 1 && !arrived_limit.expired()) std::this_thread::sleep_for(1ms);
  clients[0]->set("go", "now");
  for (auto& value : values) EXPECT_EQ(value.get(), "now");
}

TEST(TcpStore, StormOfClientsAtOnce) {
  TcpStoreServer server({.job = "storm"});
  std::vector<std::future<std::int64_t>> threads;
  for (int i = 0; i < 64; ++i) {
    threads.push_back(std::async(
        std::launch::async, [&] { return connect_tcp_store({.port = server.port(), .job = "storm"})->add("n", 1); }));
  }
  std::int64_t sum = 0;
  for (auto& thread : threads) sum += thread.get();
  EXPECT_EQ(sum, 64 * 65 / 2);
}

TEST(TcpStore, EveryDescriptorIsClosedOnExec) {
  TcpStoreServer server({});
  const auto store = connect_tcp_store({.port = server.port()});
  store->set("k", "v");
  DIR* folder = ::opendir("/proc/self/fd");
  ASSERT_NE(folder, nullptr);
  int sockets = 0;
  while (const dirent* entry = ::readdir(folder)) {
    char target[64] = {};
    const std::string link = std::string("/proc/self/fd/") + entry->d_name;
    if (::readlink(link.c_str(), target, sizeof(target) - 1) <= 0) continue;
    const std::string kind(target);
    if (kind.rfind("socket:", 0) != 0 && kind != "anon_inode:[eventfd]") continue;
    const int fd = std::stoi(entry->d_name);
    if (fd <= STDERR_FILENO) continue;
    ++sockets;
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << kind;
  }
  ::closedir(folder);
  EXPECT_GE(sockets, 4);  // listener, wake-up, both ends of the connection
}

int open_descriptors() {
  DIR* folder = ::opendir("/proc/self/fd");
  int count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

TEST(TcpStore, ServersAndClientsLeaveNoDescriptorBehind) {
  const int before = open_descriptors();
  for (int round = 0; round < 20; ++round) {
    TcpStoreServer server({});
    const auto store = connect_tcp_store({.port = server.port()});
    EXPECT_THROW(store->get("never", Deadline::after(1ms)), Timeout);
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace reigen::store
