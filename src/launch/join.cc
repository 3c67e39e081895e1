// How the ranks of a job meet in one store.
#include <algorithm>
#include <charconv>
#include <chrono>

#include "base/check.h"
#include "reigen/base/error.h"
#include "reigen/launch/environment.h"
#include "reigen/store/tcp_store.h"

namespace reigen::launch {

namespace {

using std::chrono::milliseconds;

constexpr int kPorts = 8;  // rank 0 takes the first free one

// The server and rank 0's own connection to it.
class ServedStore : public store::Store {
 public:
  ServedStore(std::unique_ptr<store::TcpStoreServer> server, std::shared_ptr<store::Store> client)
      : server_(std::move(server)), client_(std::move(client)) {}

  void set(const std::string& key, const std::string& value) override { client_->set(key, value); }
  std::string get(const std::string& key, const Deadline& deadline) override { return client_->get(key, deadline); }
  std::optional<std::string> try_get(const std::string& key) override { return client_->try_get(key); }
  std::int64_t add(const std::string& key, std::int64_t delta) override { return client_->add(key, delta); }
  std::string compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                              const std::string& desired) override {
    return client_->compare_and_set(key, expected, desired);
  }
  bool erase(const std::string& key) override { return client_->erase(key); }

 private:
  std::unique_ptr<store::TcpStoreServer> server_;
  std::shared_ptr<store::Store> client_;  // goes first
};

std::uint16_t candidate_port(const Environment& environment, int attempt) {
  const int port = environment.master_port + attempt;
  return static_cast<std::uint16_t>(port <= 65535 ? port : port - 65535 + 1023);
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

std::shared_ptr<store::Store> serve(const Environment& environment, bool one_host, const Deadline& deadline) {
  const std::string everywhere = environment.master_address.find(':') == std::string::npos ? "0.0.0.0" : "::";
  std::string last;
  for (int attempt = 0; attempt < kPorts; ++attempt) {
    const std::uint16_t port = candidate_port(environment, attempt);
    std::unique_ptr<store::TcpStoreServer> server;
    try {
      server = std::make_unique<store::TcpStoreServer>(store::TcpStoreServerOptions{
          .host = one_host ? "127.0.0.1" : everywhere, .port = port, .job = environment.job});
    } catch (const BackendError& error) {
      last = error.what();
      continue;
    }
    auto client = store::connect_tcp_store(
        {.host = "127.0.0.1", .port = port, .job = environment.job, .connect_deadline = deadline});
    return std::make_shared<ServedStore>(std::move(server), std::move(client));
  }
  throw BackendError({.what = fmt::format("rank 0 found no free port for the store ({})", environment.source),
                      .got = fmt::format("ports {} to {} are taken; the last one: {}", environment.master_port,
                                         candidate_port(environment, kPorts - 1), last),
                      .expected = "a free port",
                      .fix = "set MASTER_PORT to a free one on all ranks"});
}

std::shared_ptr<store::Store> find_rank_0(const Environment& environment, const Deadline& deadline) {
  std::string last = "nobody listens there";
  // The first port is where rank 0 almost always is; the others are looked at quickly, then all of them with more
  // patience.
  milliseconds patience(400);
  while (!deadline.expired()) {
    for (int attempt = 0; attempt < kPorts && !deadline.expired(); ++attempt) {
      const milliseconds part = attempt == 0 ? patience : patience / 4;
      try {
        return store::connect_tcp_store({.host = environment.master_address,
                                         .port = candidate_port(environment, attempt),
                                         .job = environment.job,
                                         .connect_deadline = Deadline::after(deadline.remaining(part))});
      } catch (const Timeout&) {
      } catch (const BackendError& error) {
        if (error.exit_code() != ExitCode::kJobMismatch) throw;
        last = fmt::format("port {}: {}", candidate_port(environment, attempt), error.what());
      }
    }
    patience = std::min(patience * 2, milliseconds(4000));
  }
  throw Timeout(
      {.what = fmt::format("rank {} of {} cannot reach the store of rank 0", environment.rank, environment.world_size),
       .got = last,
       .expected = fmt::format("rank 0 at {}, port {} or one of the next {} ({})", environment.master_address,
                               environment.master_port, kPorts - 1, environment.source),
       .fix = "is rank 0 running? can this host reach that address? MASTER_ADDR and MASTER_PORT choose others"});
}

std::shared_ptr<store::Store> connect_to_launcher(const Environment& environment, const Deadline& deadline) {
  const std::string& url = environment.store;
  const std::string scheme = "tcp://";
  const std::size_t colon = url.rfind(':');
  std::uint16_t port = 0;
  bool good = url.starts_with(scheme) && colon != std::string::npos && colon > scheme.size();
  if (good) {
    const char* end = url.data() + url.size();
    const auto [stop, error] = std::from_chars(url.data() + colon + 1, end, port);
    good = error == std::errc() && stop == end && port != 0;
  }
  if (!good) {
    throw InvalidArgument({.what = "REIGEN_STORE cannot be read",
                           .got = "REIGEN_STORE=" + url,
                           .expected = "tcp://host:port",
                           .fix = "start the program with reigen run, which sets it"});
  }
  return store::connect_tcp_store({.host = url.substr(scheme.size(), colon - scheme.size()),
                                   .port = port,
                                   .job = environment.job,
                                   .connect_deadline = deadline});
}

}  // namespace

std::shared_ptr<store::Store> join_job(const Environment& environment, const Deadline& deadline) {
  if (!environment.store.empty()) return connect_to_launcher(environment, deadline);
  if (environment.world_size == 1) return store::make_memory_store();
  REIGEN_CHECK(environment.master_port != 0 && !environment.master_address.empty(),
               "rank {} of {} does not know where rank 0 is", environment.rank, environment.world_size);
  if (environment.rank != 0) return find_rank_0(environment, deadline);
  const bool one_host =
      environment.local_world_size == environment.world_size || is_loopback(environment.master_address);
  return serve(environment, one_host, deadline);
}

}  // namespace reigen::launch
