#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "reigen/base/error.h"
#include "reigen/store/tcp_store.h"
#include "store/checks.h"
#include "store/tcp_connection.h"
#include "store/tcp_protocol.h"

namespace reigen::store {

namespace {

using namespace std::chrono_literals;

// Every call takes an idle connection or opens a new one, so that a get() that waits does not delay calls of other
// threads. A program with one thread needs only one connection.
class TcpStore final : public Store {
 public:
  explicit TcpStore(const TcpStoreOptions& options) : endpoint_(endpoint_of(options)) {
    Connection first = Connection::open(endpoint_, options.connect_deadline, Connection::Absent::kRetry);
    endpoint_.hosts = {first.host()};  // later connections go to the host where the server was found
    give_back(std::move(first));
  }

  void set(const std::string& key, const std::string& value) override {
    check_value(key, value);
    call({.operation = Operation::kSet, .key = key, .value = value});
  }

  std::string get(const std::string& key, const Deadline& deadline) override {
    const KeyWait wait;
    const Reply reply = call({.operation = Operation::kGet, .key = key}, deadline);
    if (reply.status == Status::kMissing) wait.throw_timeout(key, "the store at " + endpoint_.text());
    return reply.value;
  }

  std::optional<std::string> try_get(const std::string& key) override {
    Reply reply = call({.operation = Operation::kTryGet, .key = key});
    return reply.status == Status::kOk ? std::optional(std::move(reply.value)) : std::nullopt;
  }

  std::vector<std::optional<std::string>> try_get_all(const std::vector<std::string>& keys) override {
    std::vector<std::optional<std::string>> values;
    while (values.size() < keys.size()) {
      std::vector<std::string> some;
      std::size_t bytes = 0;
      for (std::size_t i = values.size(); i < keys.size() && bytes < kMaxValue / 2; bytes += keys[i++].size() + 8) {
        check_key(keys[i]);
        some.push_back(keys[i]);
      }
      const Reply reply = call({.operation = Operation::kTryGetAll, .key = "all", .value = encode_keys(some)});
      auto found = decode_values(reply.value);
      if (found.empty() || found.size() > some.size()) throw_lost("an answer to other keys");
      values.insert(values.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
    }
    return values;
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    const Reply reply = call({.operation = Operation::kAdd, .key = key, .delta = delta});
    return base::parse<std::int64_t>(reply.value).value_or(0);
  }

  std::string compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                              const std::string& desired) override {
    check_value(key, desired);
    if (expected) check_value(key, *expected);
    return call({.operation = Operation::kCompareAndSet, .key = key, .value = desired, .expected = expected}).value;
  }

  bool erase(const std::string& key) override {
    return call({.operation = Operation::kErase, .key = key}).status == Status::kOk;
  }

 private:
  static constexpr std::size_t kMaxIdle = 2;
  static constexpr std::chrono::seconds kReconnect{10};

  // A get() waits for its key until the deadline at the latest. The server answers every other operation at once.
  Reply call(const Request& request, const Deadline& deadline = Deadline::never()) {
    check_key(request.key);
    try {
      Connection connection = take(deadline);
      std::optional<Reply> reply = connection.call(request, deadline);
      if (!reply) reply = connection.cancel();
      if (!reply) return {.status = Status::kMissing};
      give_back(std::move(connection));
      if (reply->status == Status::kRefused) throw InvalidArgument(reply->value);
      return *std::move(reply);
    } catch (const net::ConnectionClosed& closed) {
      throw_lost(closed.what());
    } catch (const DataError& garbled) {
      throw_lost(garbled.what());
    }
  }

  Connection take(const Deadline& deadline) {
    {
      const std::lock_guard lock(mutex_);
      if (!lost_.empty()) throw PeerLost(0, lost_);
      if (!idle_.empty()) {
        Connection connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    // Opening a connection gets at least one second, even if the deadline has passed, because the server may already
    // have the key.
    const auto latest = std::max(deadline.when(), Deadline::after(1s).when());
    try {
      return Connection::open(endpoint_, Deadline::at(std::min(latest, Deadline::after(kReconnect).when())),
                              Connection::Absent::kFail);
    } catch (const Timeout& gone) {
      throw_lost(gone.what());
    }
  }

  void give_back(Connection connection) {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < kMaxIdle) idle_.push_back(std::move(connection));
  }

  // After the server was lost once, every call fails at once. So code that cleans up after the loss does not wait for
  // the server again at each call.
  [[noreturn]] void throw_lost(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    idle_.clear();
    if (lost_.empty()) {
      lost_ =
          to_string(Report{.what = fmt::format("the job's store at {} is lost", endpoint_.text()),
                           .got = reason,
                           .fix = "the process that serves it (the launcher, or rank 0) has ended: see its output"});
    }
    throw PeerLost(0, lost_);
  }

  static Endpoint endpoint_of(const TcpStoreOptions& options) {
    Endpoint endpoint{.hosts = {options.host},
                      .port = options.port,
                      .socket = options.socket,
                      .job = options.job,
                      .heartbeat_timeout = options.heartbeat_timeout};
    if (options.socket.empty()) endpoint.hosts.insert(endpoint.hosts.end(), options.also.begin(), options.also.end());
    return endpoint;
  }

  Endpoint endpoint_;  // does not change after the constructor
  std::mutex mutex_;
  std::vector<Connection> idle_;
  std::string lost_;  // if not empty, the server is lost, and this text says why
};

}  // namespace

std::shared_ptr<Store> connect_tcp_store(const TcpStoreOptions& options) {
  check_job(options.job);
  REIGEN_CHECK(options.port != 0 || !options.socket.empty(),
               "the store's port is missing\n  got: {}:0\n  fix: give the port that the server listens on",
               options.host);
  return std::make_shared<TcpStore>(options);
}

}  // namespace reigen::store
