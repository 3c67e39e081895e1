#include "reigen/format/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "format/input_file.h"

namespace reigen::format {
namespace {

static_assert(std::endian::native == std::endian::little, "the formats here are little-endian and copied as they are");

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87u;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Fu;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9u;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63u;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5u;

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::uint64_t round(std::uint64_t lane, std::uint64_t input) { return std::rotl(lane + input * kPrime2, 31) * kPrime1; }

std::uint64_t merge(std::uint64_t hash, std::uint64_t lane) { return (hash ^ round(0, lane)) * kPrime1 + kPrime4; }

void consume(std::array<std::uint64_t, 4>& lanes, const std::byte* block) {
  for (std::size_t i = 0; i < 4; ++i) lanes[i] = round(lanes[i], load<std::uint64_t>(block + 8 * i));
}

}  // namespace

Hash64::Hash64(std::uint64_t seed)
    : lanes_{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1}, tail_{}, seed_(seed) {}

void Hash64::update(std::span<const std::byte> bytes) {
  const std::size_t held = total_ % 32;
  total_ += bytes.size();
  if (held > 0) {
    const std::size_t taken = std::min(bytes.size(), 32 - held);
    std::copy_n(bytes.data(), taken, tail_.data() + held);
    if (held + taken < 32) return;
    consume(lanes_, tail_.data());
    bytes = bytes.subspan(taken);
  }
  auto lanes = lanes_;  // a local copy stays in registers
  for (; bytes.size() >= 32; bytes = bytes.subspan(32)) consume(lanes, bytes.data());
  lanes_ = lanes;
  std::copy(bytes.begin(), bytes.end(), tail_.begin());
}

std::uint64_t Hash64::value() const {
  std::uint64_t hash = seed_ + kPrime5;
  if (total_ >= 32) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
    for (const std::uint64_t lane : lanes_) hash = merge(hash, lane);
  }
  hash += total_;
  const std::byte* at = tail_.data();
  const std::byte* const end = at + total_ % 32;
  for (; end - at >= 8; at += 8) hash = std::rotl(hash ^ round(0, load<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
  for (; end - at >= 4; at += 4) hash = std::rotl(hash ^ load<std::uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
  for (; at != end; ++at) hash = std::rotl(hash ^ std::to_integer<std::uint64_t>(*at) * kPrime5, 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed) {
  Hash64 hash(seed);
  hash.update(bytes);
  return hash.value();
}

std::uint64_t hash64(const void* data, std::size_t size, std::uint64_t seed) {
  return hash64({static_cast<const std::byte*>(data), size}, seed);
}

FileHash hash_file(const std::filesystem::path& path) {
  const InputFile file(path);
  std::vector<std::byte> buffer(std::size_t{1} << 18);
  Hash64 hash;
  std::uint64_t offset = 0;
  while (const std::size_t got = file.read_at(offset, buffer)) {
    hash.update({buffer.data(), got});
    offset += got;
  }
  return {offset, hash.value()};
}

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace reigen::format
