// Helpers of all readers: the place of a sample in messages, the memory of a record, and the checks of its values.
// Thread rule: pure functions; a RecordParts belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reigen/container/container.h"

namespace reigen::container {

// "'train.lmdb', sample 7 (offset 1234)"
std::string place_of(const Reader& reader, std::int64_t index);
std::string place_of(const std::string& name, std::int64_t index, const std::string& where);
// "train.lmdb, sample 7 (offset 1234)", for callers that put a name in quotes themselves
std::string name_of_sample(const Reader& reader, std::int64_t index);

// Throws InvalidArgument unless this many threads may work on samples.
void require_workers(int workers);

// Throws DataError. `place` says which sample of which container.
[[noreturn]] void fail_damaged(const std::string& place, const std::string& got, const std::string& expected);
// Throws InvalidArgument unless 0 <= index < size.
void require_index(const Reader& reader, std::int64_t index);

// Collects the values of one record, and the memory that they lie in.
class RecordParts {
 public:
  explicit RecordParts(std::size_t fields);

  void view(std::span<const std::byte> bytes);  // of memory that build() is given
  void own(std::vector<std::byte> bytes);
  void label(std::int64_t number);
  Record build(std::shared_ptr<const void> mapped = nullptr);

 private:
  struct Held {
    std::vector<std::vector<std::byte>> owned;
    std::shared_ptr<const void> mapped;
  };
  std::vector<Value> values_;
  std::shared_ptr<Held> held_;
};

// The number that a label's text represents; blanks around it are allowed, as others write them. Throws DataError.
std::int64_t label_of_text(std::span<const std::byte> text, const std::string& place);
std::string text_of_label(std::int64_t label);

// Throws DataError for a tensor that does not fit its field, and for a label that has no class.
void check_record(const Record& record, const std::vector<Field>& fields, const std::vector<std::string>& classes,
                  const std::string& place);

// Whether the bytes begin as a JPEG or PNG file does.
bool begins_as_picture(std::span<const std::byte> bytes);

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::vector<std::byte> copy_of(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace reigen::container
