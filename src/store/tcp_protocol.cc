#include "store/tcp_protocol.h"

#include <fmt/format.h>

#include "base/hash.h"
#include "net/wire.h"
#include "reigen/base/error.h"

namespace reigen::store {

void check_job(const std::string& job) {
  if (job.size() <= kMaxJob) return;
  throw InvalidArgument(Report{.what = "the job's identity is too long",
                               .got = format_bytes(job.size()),
                               .expected = "at most " + format_bytes(kMaxJob)});
}

std::uint32_t job_fingerprint(const std::string& job) {
  const std::uint64_t hash = base::fnv1a(job);
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

std::string encode(const Hello& hello) {
  std::string out(kMagic);
  net::put_u32(out, hello.version);
  net::put_bytes(out, hello.job);
  return out;
}

std::optional<Hello> decode_hello(std::string_view message) try {
  net::WireReader reader(message);
  if (reader.raw(kMagic.size()) != kMagic) return std::nullopt;
  Hello hello{.version = reader.u32()};
  if (hello.version != kProtocolVersion) return hello;
  hello.job = reader.bytes();
  reader.expect_end();
  return hello;
} catch (const DataError&) {
  return std::nullopt;
}

std::string encode(const Welcome& welcome) {
  std::string out(kMagic);
  net::put_u32(out, welcome.version);
  net::put_u8(out, static_cast<std::uint8_t>(welcome.verdict));
  net::put_u32(out, welcome.fingerprint);
  return out;
}

std::optional<Welcome> decode_welcome(std::string_view message) try {
  net::WireReader reader(message);
  if (reader.raw(kMagic.size()) != kMagic) return std::nullopt;
  const std::uint32_t version = reader.u32();
  if (version != kProtocolVersion) return Welcome{.version = version, .verdict = Verdict::kOtherVersion};
  const std::uint8_t verdict = reader.u8();
  if (verdict > static_cast<std::uint8_t>(Verdict::kOtherJob)) return std::nullopt;
  const Welcome welcome{.version = version, .verdict = static_cast<Verdict>(verdict), .fingerprint = reader.u32()};
  reader.expect_end();
  return welcome;
} catch (const DataError&) {
  return std::nullopt;
}

std::string encode(const Request& request) {
  std::string out;
  net::put_u8(out, static_cast<std::uint8_t>(request.operation));
  net::put_bytes(out, request.key);
  net::put_bytes(out, request.value);
  net::put_u8(out, request.expected ? 1 : 0);
  if (request.expected) net::put_bytes(out, *request.expected);
  net::put_u64(out, static_cast<std::uint64_t>(request.delta));
  return out;
}

Request decode_request(std::string_view message) {
  net::WireReader reader(message);
  Request request;
  const std::uint8_t operation = reader.u8();
  if (operation < static_cast<std::uint8_t>(Operation::kSet) ||
      operation > static_cast<std::uint8_t>(Operation::kTryGetAll)) {
    throw DataError(fmt::format("a request of unknown kind {}", operation));
  }
  request.operation = static_cast<Operation>(operation);
  request.key = reader.bytes();
  request.value = reader.bytes();
  if (reader.u8() != 0) request.expected = std::string(reader.bytes());
  request.delta = static_cast<std::int64_t>(reader.u64());
  reader.expect_end();
  return request;
}

std::string encode_keys(const std::vector<std::string>& keys) {
  std::string out;
  net::put_u32(out, static_cast<std::uint32_t>(keys.size()));
  for (const std::string& key : keys) net::put_bytes(out, key);
  return out;
}

std::vector<std::string> decode_keys(std::string_view text) {
  net::WireReader reader(text);
  std::vector<std::string> keys;
  for (std::uint32_t left = reader.u32(); left > 0; --left) keys.emplace_back(reader.bytes());
  reader.expect_end();
  return keys;
}

std::string encode_values(const std::vector<std::optional<std::string>>& values) {
  std::string out;
  net::put_u32(out, static_cast<std::uint32_t>(values.size()));
  for (const std::optional<std::string>& value : values) {
    net::put_u8(out, value ? 1 : 0);
    if (value) net::put_bytes(out, *value);
  }
  return out;
}

std::vector<std::optional<std::string>> decode_values(std::string_view text) {
  net::WireReader reader(text);
  std::vector<std::optional<std::string>> values;
  for (std::uint32_t left = reader.u32(); left > 0; --left) {
    values.push_back(reader.u8() != 0 ? std::optional(std::string(reader.bytes())) : std::nullopt);
  }
  reader.expect_end();
  return values;
}

std::string encode(const Reply& reply) {
  std::string out;
  net::put_u8(out, static_cast<std::uint8_t>(reply.status));
  return out + reply.value;
}

Reply decode_reply(std::string_view message) {
  net::WireReader reader(message);
  const std::uint8_t status = reader.u8();
  if (status > static_cast<std::uint8_t>(Status::kPong))
    throw DataError(fmt::format("a reply of unknown kind {}", status));
  return {.status = static_cast<Status>(status), .value = std::string(message.substr(1))};
}

}  // namespace reigen::store
