#include "container/write/samples.h"

#include <fmt/format.h>

#include "container/names.h"
#include "container/sample.h"
#include "reigen/base/error.h"
#include "reigen/format/hash.h"

namespace reigen::container {

void SampleCheck::add(const Record& record) {
  const auto refuse = [&](const std::string& got, const std::string& expected) {
    throw InvalidArgument(Report{.what = fmt::format("sample {} for '{}' does not fit its fields", count(), target_),
                                 .got = got,
                                 .expected = expected,
                                 .fix = "give a value for each field, in their order"});
  };
  if (record.values().size() != fields().size()) {
    refuse(fmt::format("{} values", record.values().size()), fmt::format("{} values", fields().size()));
  }
  for (std::size_t i = 0; i < fields().size(); ++i) {
    const Field& field = fields()[i];
    if (field.kind == FieldKind::kLabel) record.at(i).label();
    if (field.kind == FieldKind::kTensor) {
      shape_of(field, record.at(i), fmt::format("sample {} for '{}'", count(), target_));
    }
  }
  if (options_.count >= 0 && count() >= options_.count) {
    refuse(fmt::format("sample {}", count()), fmt::format("{} samples", options_.count));
  }
  hashes_.push_back(hash_of(record));
}

void SampleCheck::finish() const {
  if (count() == 0) {
    throw DataError(Report{.what = fmt::format("nothing to write to '{}'", target_),
                           .got = "no samples",
                           .expected = "at least one",
                           .fix = "check the source"});
  }
  if (options_.count >= 0 && count() != options_.count) {
    throw InvalidArgument(Report{.what = fmt::format("too few samples for '{}'", target_),
                                 .got = fmt::format("{}", count()),
                                 .expected = fmt::format("{}, as WriterOptions::count says", options_.count),
                                 .fix = "add all samples before finish()"});
  }
}

Meta SampleCheck::meta() const {
  Meta meta{.kind = options_.kind, .count = count(), .fields = fields()};
  for (const Field& field : fields()) meta.stored.push_back(stored_name(field, options_.kind));
  meta.classes = options_.classes;
  meta.compression = options_.compression;
  meta.hashes = format::hash64(bytes_of_hashes(hashes_));
  return meta;
}

}  // namespace reigen::container
