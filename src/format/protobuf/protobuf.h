// The wire format of protocol buffers: a message is a sequence of fields, each with a number, a kind and a value.
// Source: protobuf.dev/programming-guides/encoding.
// Thread rule: a Message belongs to one thread; a Fields too.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reigen::format::protobuf {

static_assert(std::endian::native == std::endian::little);

enum class Kind : std::uint32_t { kVarint = 0, kEight = 1, kBytes = 2, kFour = 5 };

inline void append_varint(std::string& bytes, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  bytes += static_cast<char>(value);
}

// Removes a varint from the beginning of `bytes`. Nothing if there is none, or one of more than 64 bits.
inline std::optional<std::uint64_t> take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

class Message {
 public:
  void integer(std::uint32_t field, std::int64_t value) {
    key(field, Kind::kVarint);
    varint(static_cast<std::uint64_t>(value));
  }
  void number(std::uint32_t field, double value) {
    key(field, Kind::kEight);
    raw(&value, sizeof value);
  }
  void number(std::uint32_t field, float value) {
    key(field, Kind::kFour);
    raw(&value, sizeof value);
  }
  void bytes(std::uint32_t field, std::string_view value) {
    key(field, Kind::kBytes);
    varint(value.size());
    bytes_ += value;
  }
  void message(std::uint32_t field, const Message& value) { bytes(field, value.bytes_); }
  void numbers(std::uint32_t field, const std::vector<double>& values) {
    key(field, Kind::kBytes);
    varint(values.size() * sizeof(double));
    raw(values.data(), values.size() * sizeof(double));
  }
  const std::string& to_bytes() const { return bytes_; }

 private:
  void key(std::uint32_t field, Kind kind) { varint((field << 3) | static_cast<std::uint32_t>(kind)); }
  void varint(std::uint64_t value) { append_varint(bytes_, value); }
  void raw(const void* data, std::size_t size) { bytes_.append(static_cast<const char*>(data), size); }

  std::string bytes_;
};

struct Field {
  std::uint32_t number = 0;
  Kind kind = Kind::kVarint;
  std::uint64_t integer = 0;    // kVarint, and the bits of kEight and kFour
  std::string_view bytes = {};  // kBytes

  double as_double() const { return std::bit_cast<double>(integer); }
  float as_float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(integer)); }
};

// Reads the fields of a message one after the other.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  // The next field; nothing at the end of the message, and after a field that is wrong (is_wrong()).
  std::optional<Field> next() {
    if (rest_.empty() || is_wrong_) return std::nullopt;
    Field field;
    const std::uint64_t key = varint();
    field.number = static_cast<std::uint32_t>(key >> 3);
    field.kind = static_cast<Kind>(key & 7);
    switch (field.kind) {
      case Kind::kVarint: field.integer = varint(); break;
      case Kind::kEight: fixed(&field.integer, 8); break;
      case Kind::kFour: fixed(&field.integer, 4); break;
      case Kind::kBytes: field.bytes = taken(varint()); break;
      default: is_wrong_ = true;
    }
    if (is_wrong_ || field.number == 0) {
      is_wrong_ = true;
      return std::nullopt;
    }
    return field;
  }
  bool is_wrong() const { return is_wrong_; }

 private:
  std::string_view taken(std::uint64_t size) {
    if (size > rest_.size()) {
      is_wrong_ = true;
      return {};
    }
    const std::string_view part = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return part;
  }
  void fixed(std::uint64_t* value, std::size_t size) {
    const std::string_view part = taken(size);
    std::memcpy(value, part.data(), part.size());
  }
  std::uint64_t varint() {
    const auto value = take_varint(rest_);
    is_wrong_ = is_wrong_ || !value;
    return value.value_or(0);
  }

  std::string_view rest_;
  bool is_wrong_ = false;
};

}  // namespace reigen::format::protobuf
