// Reads HDF5: a dataset for each field, samples first.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "container/folder/walk.h"
#include "container/hdf5/dataset.h"
#include "container/meta.h"
#include "container/names.h"
#include "container/readers.h"
#include "container/sample.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

constexpr std::uint64_t kCacheBytes = 128 * kMiB;
constexpr std::uint64_t kMostValueUnpacked = std::uint64_t{1} << 34;

// A whole number of any width as int64.
std::int64_t integer_of(format::TensorType type, std::span<const std::byte> bytes) {
  std::int64_t number = 0;
  std::memcpy(&number, bytes.data(), std::min(bytes.size(), sizeof number));
  const bool is_signed =
      type == format::TensorType::kI8 || type == format::TensorType::kI16 || type == format::TensorType::kI32;
  const auto unused = static_cast<unsigned>(64 - 8 * std::min(bytes.size(), sizeof number));
  if (!is_signed) return number;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(number) << unused) >> unused;
}

class Hdf5Reader final : public Reader {
 public:
  Hdf5Reader(const std::filesystem::path& path, const OpenOptions& options)
      : file_(path), cache_(kCacheBytes), label_offset_(options.label_offset) {
    const auto& names = file_.datasets();
    if (std::find(names.begin(), names.end(), kMetaName) != names.end()) {
      take_ours(options);
    } else {
      take_others(options);
    }
    for (const Hdf5Dataset& dataset : datasets_) {
      if (dataset.rows() == size_) continue;
      throw DataError(
          Report{.what = fmt::format("the datasets of '{}' have different numbers of samples", file_.path()),
                 .got = fmt::format("{} in {}, {} in {}", size_, datasets_[0].path(), dataset.rows(), dataset.path()),
                 .expected = "one row of each for every sample",
                 .fix = "--fields chooses datasets that belong together"});
    }
    if (size_ > 0) return;
    throw DataError(Report{.what = fmt::format("'{}' has no samples", file_.path()),
                           .got = fmt::format("0 rows in {}", datasets_[0].path()),
                           .expected = "at least one",
                           .fix = "check the path"});
  }

  ContainerKind kind() const override { return ContainerKind::kHdf5; }
  std::string name() const override { return file_.path(); }
  std::int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return fields_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::span<const std::uint64_t> hashes() const override { return hashes_; }
  std::vector<std::string> stored_names() const override { return stored_; }
  std::uint64_t stored_bytes() const override { return file_.bytes().size(); }
  std::string where(std::int64_t index) const override { return datasets_[0].where(index); }

  Record read(std::int64_t index) const override {
    require_index(*this, index);
    RecordParts parts(fields_.size());
    auto keeps = std::make_shared<std::vector<std::shared_ptr<const void>>>();
    std::string place;
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      place = place_of(file_.path(), index, datasets_[i].where(index));
      Hdf5Dataset::Row row = datasets_[i].read(index, cache_, place);
      if (fields_[i].kind == FieldKind::kLabel) {
        parts.label(integer_of(datasets_[i].field()->type, row.bytes) - label_offset_);
      } else if (fields_[i].kind == FieldKind::kBytes && is_packed(fields_[i], compression_)) {
        parts.own(zstd_unpacked(row.bytes, kMostValueUnpacked, place));
      } else {
        parts.view(row.bytes);
        keeps->push_back(std::move(row.keeps));
      }
    }
    Record record = parts.build(std::move(keeps));
    check_record(record, fields_, classes_, place);
    return record;
  }

 private:
  // All bytes of a small dataset of Reigen's own.
  std::vector<std::byte> whole(std::string_view name) const {
    const Hdf5Lock lock;
    const Hdf5Id dataset(H5Dopen2(file_.id(), std::string(name).c_str(), H5P_DEFAULT), H5Dclose);
    const Hdf5Id type(dataset ? H5Dget_type(dataset.get()) : -1, H5Tclose);
    const Hdf5Id space(dataset ? H5Dget_space(dataset.get()) : -1, H5Sclose);
    const hssize_t rows = space ? H5Sget_simple_extent_npoints(space.get()) : -1;
    const std::string place = fmt::format("'{}', {}", file_.path(), name);
    if (!type || rows < 0) fail_damaged(place, hdf5_error_text(), "a dataset");
    const std::uint64_t element = H5Tget_size(type.get());
    const std::uint64_t most = file_.bytes().size();
    if (element == 0 || static_cast<std::uint64_t>(rows) > most / element) {
      fail_damaged(place, fmt::format("{} elements of {} bytes", rows, element), "no more than the file has");
    }
    const std::uint64_t size = static_cast<std::uint64_t>(rows) * element;
    std::vector<std::byte> bytes(size);
    if (H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) < 0) {
      fail_damaged(place, hdf5_error_text(), "a dataset that can be read");
    }
    return bytes;
  }

  void take_ours(const OpenOptions& options) {
    const std::string place = fmt::format("'{}', {}", file_.path(), kMetaName);
    const std::vector<std::byte> json = whole(kMetaName);
    const Meta meta = parse_meta(text_of(json), place);
    hashes_ = parse_hashes(whole(kHashesName), meta, fmt::format("'{}'", file_.path()));
    size_ = meta.count;
    classes_ = meta.classes;
    compression_ = meta.compression;
    stored_ = meta.stored;
    for (const Chosen& chosen : choose(candidates_of(meta), options, file_.path())) {
      fields_.push_back(chosen.field);
      datasets_.emplace_back(file_, meta.stored[chosen.candidate], datasets_.size());
      const auto& stored = datasets_.back().field();
      // HDF5 stores a type that it lacks as opaque bytes, which do not say the shape.
      const bool says_form = stored && stored->kind == FieldKind::kTensor && chosen.field.kind == FieldKind::kTensor;
      if (!stored || (says_form && (stored->type != chosen.field.type || stored->shape != chosen.field.shape)))
        fail_damaged(place,
                     fmt::format("{} in {}", stored ? describe(*stored) : "another type", datasets_.back().path()),
                     describe(chosen.field));
      if (chosen.field.kind == FieldKind::kLabel && !datasets_.back().is_integer()) {
        fail_damaged(place, fmt::format("another type in {}", datasets_.back().path()), "whole numbers");
      }
    }
    if (fields_.size() != meta.fields.size() || label_offset_ != 0) hashes_.clear();
  }

  void take_others(const OpenOptions& options) {
    std::vector<Candidate> candidates;
    std::vector<Hdf5Dataset> all;
    for (const std::string& path : file_.datasets()) {
      Hdf5Dataset dataset(file_, path, all.size());
      if (!dataset.field()) continue;
      candidates.push_back(candidate_of(dataset));
      stored_.push_back("/" + path);
      all.push_back(std::move(dataset));
    }
    if (all.empty()) {
      throw DataError(Report{.what = fmt::format("'{}' has no dataset of samples", file_.path()),
                             .got = fmt::format("{} datasets, none of numbers or bytes", file_.datasets().size()),
                             .expected = "a dataset for each field, samples first",
                             .fix = "check the file"});
    }
    if (options.fields.empty()) keep_one_size(candidates, all);
    for (const Chosen& chosen : choose(candidates, options, file_.path())) {
      fields_.push_back(chosen.field);
      datasets_.push_back(all[chosen.candidate]);
    }
    size_ = datasets_[0].rows();
  }

  // Without a choice, the datasets with as many rows as `input` has belong together, or as the first, if there is none.
  static void keep_one_size(std::vector<Candidate>& candidates, std::vector<Hdf5Dataset>& all) {
    std::int64_t rows = all[0].rows();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (candidates[i].field.name == "input") rows = all[i].rows();
    }
    for (std::size_t i = all.size(); i-- > 0;) {
      if (all[i].rows() == rows) continue;
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
      candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  Candidate candidate_of(const Hdf5Dataset& dataset) const {
    Candidate one{.stored = "/" + dataset.path(), .field = *dataset.field(), .may_be_label = dataset.is_integer()};
    const auto slash = dataset.path().rfind('/');
    one.field.name = usual_name(slash == std::string::npos ? dataset.path() : dataset.path().substr(slash + 1));
    if (one.field.kind != FieldKind::kBytes || dataset.rows() == 0) return one;
    const auto first = dataset.read(0, cache_, place_of(file_.path(), 0, dataset.where(0)));
    if (begins_as_picture(first.bytes)) one.field.kind = FieldKind::kPicture;
    return one;
  }

  Hdf5File file_;
  mutable ChunkCache cache_;
  std::int64_t label_offset_ = 0;
  std::int64_t size_ = 0;
  std::vector<Hdf5Dataset> datasets_;  // of each field
  std::vector<Field> fields_;
  std::vector<std::string> classes_;
  std::vector<std::string> stored_;
  Compression compression_ = Compression::kNone;
  std::vector<std::uint64_t> hashes_;
};

}  // namespace

std::unique_ptr<Reader> open_hdf5(const std::filesystem::path& path, const OpenOptions& options) {
  return std::make_unique<Hdf5Reader>(path, options);
}

}  // namespace reigen::container
