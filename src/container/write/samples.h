// What every writer does with a record before it stores it.
// Thread rule: belongs to one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "container/meta.h"
#include "reigen/container/writer.h"

namespace reigen::container {

class SampleCheck {
 public:
  SampleCheck(std::string target, const WriterOptions& options) : target_(std::move(target)), options_(options) {}

  // Throws InvalidArgument for a record that does not fit the fields. Keeps its hash.
  void add(const Record& record);
  // Throws DataError without samples, and InvalidArgument if there are fewer than WriterOptions::count.
  void finish() const;

  std::int64_t count() const { return static_cast<std::int64_t>(hashes_.size()); }
  const std::vector<std::uint64_t>& hashes() const { return hashes_; }
  const std::vector<Field>& fields() const { return options_.fields; }
  const WriterOptions& options() const { return options_; }
  Meta meta() const;  // for what has been added

 private:
  std::string target_;
  WriterOptions options_;
  std::vector<std::uint64_t> hashes_;
};

// The writers of the kinds; make_writer() has checked the options.
std::unique_ptr<Writer> make_lmdb_writer(const std::filesystem::path& path, const WriterOptions& options);
std::unique_ptr<Writer> make_hdf5_writer(const std::filesystem::path& path, const WriterOptions& options);
std::unique_ptr<Writer> make_tfrecord_writer(const std::filesystem::path& path, const WriterOptions& options);
std::unique_ptr<Writer> make_tar_writer(const std::filesystem::path& path, const WriterOptions& options);

}  // namespace reigen::container
