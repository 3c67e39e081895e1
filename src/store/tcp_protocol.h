// The messages between a client and the server of the TCP store. Every message is one frame (net/frame.h).
//
//   client: hello     magic, u32 version, job                    magic and version are first in every protocol version
//   server: welcome   magic, u32 version, u8 verdict, u32 fingerprint of the server's job (only with kOtherJob)
//   then any number of requests, each answered by one reply, in order:
//   client: request   u8 operation, fields
//   server: reply     u8 status, value
// While a kGet waits for its key, the client may send only kPing and kCancel. The server answers a kPing at once. A
// kCancel makes the server answer the kGet now. The kCancel itself gets no answer. So the client gets exactly one
// answer, even if the server has answered the kGet just before the kCancel arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/checks.h"

namespace reigen::store {

inline constexpr std::string_view kMagic = "ReigenKV";
inline constexpr std::uint32_t kProtocolVersion = 2;
inline constexpr std::size_t kMaxJob = 256;
inline constexpr std::size_t kMaxHello = 512;  // room for fields that later versions may add
inline constexpr std::size_t kMaxWelcome = 64;
inline constexpr std::size_t kMaxMessage = kMaxKey + 2 * kMaxValue + 64;

// Throws InvalidArgument when the identity is too long for a hello.
void check_job(const std::string& job);

// A number that identifies a job in error messages without showing the job's identity, which is a secret.
std::uint32_t job_fingerprint(const std::string& job);

struct Hello {
  std::uint32_t version = kProtocolVersion;
  std::string job = {};
};
std::string encode(const Hello& hello);
// nullopt if the message is no hello of Reigen. If the hello is of another version, only the version is decoded.
std::optional<Hello> decode_hello(std::string_view message);

enum class Verdict : std::uint8_t { kWelcome = 0, kOtherVersion = 1, kOtherJob = 2 };

struct Welcome {
  std::uint32_t version = kProtocolVersion;
  Verdict verdict = Verdict::kWelcome;
  std::uint32_t fingerprint = 0;
};
std::string encode(const Welcome& welcome);
std::optional<Welcome> decode_welcome(std::string_view message);  // nullopt if it is not from a server of Reigen

enum class Operation : std::uint8_t {
  kSet = 1,
  kGet,
  kTryGet,
  kAdd,
  kCompareAndSet,
  kErase,
  kCancel,
  kPing,
  kTryGetAll
};

struct Request {
  Operation operation = Operation::kPing;
  std::string key = {};
  std::string value = {};
  std::optional<std::string> expected = {};
  std::int64_t delta = 0;
};
std::string encode(const Request& request);
Request decode_request(std::string_view message);  // throws DataError

enum class Status : std::uint8_t {
  kOk = 0,
  kMissing = 1,
  kRefused = 2,
  kPong = 3
};  // with kRefused the reply's value is the reason

// For kTryGetAll: encode the keys as the request's value, and the values as the reply's value.
std::string encode_keys(const std::vector<std::string>& keys);
std::vector<std::string> decode_keys(std::string_view text);  // throws DataError
std::string encode_values(const std::vector<std::optional<std::string>>& values);
std::vector<std::optional<std::string>> decode_values(std::string_view text);  // throws DataError

struct Reply {
  Status status = Status::kOk;
  std::string value = {};
};
std::string encode(const Reply& reply);
Reply decode_reply(std::string_view message);  // throws DataError

}  // namespace reigen::store
