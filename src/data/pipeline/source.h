// Where the samples of a pipeline come from. Each step on samples is a source that takes from another one.
// Thread rule: any thread may call any function.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reigen/data/dataset.h"
#include "reigen/data/pipeline.h"
#include "reigen/data/sample.h"

namespace reigen::data {

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual std::int64_t size() const = 0;
  virtual const std::string& name() const = 0;
  virtual Sample sample(const Pass& pass, std::int64_t index) const = 0;
  virtual Meaning meaning() const = 0;
  virtual std::int64_t terms(std::int64_t index) const = 0;
};
using SourcePtr = std::shared_ptr<const SampleSource>;

SourcePtr source_of(DatasetPtr data);
SourcePtr mapped(SourcePtr from, Step step, std::uint32_t place);
SourcePtr chosen(SourcePtr from, std::vector<std::int64_t> indices, const char* how);
// Sample i is sample picks[i].second of part picks[i].first.
SourcePtr joined(std::vector<SourcePtr> parts, std::vector<std::pair<std::size_t, std::int64_t>> picks,
                 const char* how);

Pipeline pipeline_of(SourcePtr source);

// Throws the exception that is being handled again, with the step and the place that it came from, where its text does
// not name them yet. The type of a reigen::Error and its exit code stay. std::bad_alloc and std::system_error get the
// exit codes 71 and 74, any other exception gets 70. Is called in a catch block.
[[noreturn]] void throw_from_step(const std::string& step, const std::string& where);

// The end of a pipeline: a dataset of the samples of `from`.
struct EndOptions {
  image::Output output;
  Collate collate;
  std::optional<Mixing> mixing;
};
DatasetPtr dataset_of(SourcePtr from, const EndOptions& options);

}  // namespace reigen::data
