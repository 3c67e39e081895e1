// What `reigen data bench` measures: the work of a loader's workers, on samples that are spread over a container.
// Thread rule: a Worker belongs to one thread at a time; run() starts threads of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/bench/full_decode.h"
#include "reigen/container/container.h"
#include "reigen/image/draft.h"

namespace reigen::apps::data {

struct Preparation {
  int size = 224;            // of the random crop
  bool fast_decode = false;  // image::DraftOptions::fast
};

enum class Phase {
  kRead,    // the bytes of a sample come into memory
  kDecode,  // libjpeg decodes the picture wholly; the time of reading it is not counted
  kAll      // read, random crop, flip, fp32 planes in the memory of a batch
};

class Worker {
 public:
  Worker(const container::Reader& reader, const Preparation& preparation);

  // Does one sample, and returns the seconds that count.
  double work(Phase phase, std::int64_t position);

 private:
  void read(std::int64_t index);
  double decode(std::int64_t index);
  void prepare(std::int64_t index, std::int64_t position);

  const container::Reader& reader_;
  Preparation preparation_;
  std::optional<std::size_t> picture_;  // the field
  image::Workspace workspace_;
  FullDecode full_decode_;
  std::vector<float> batch_;
  std::size_t row_ = 0;     // of the batch
  std::uint64_t seen_ = 0;  // keeps the compiler from leaving reads out
};

// The field of the picture that is prepared: `input`, or else the first picture.
std::optional<std::size_t> picture_field(const container::Reader& reader);

// The index of the sample at a position. Any `size` positions in a row are all samples, each once, and neighbours lie
// far apart, as in a shuffled epoch.
std::int64_t sample_at(std::int64_t position, std::int64_t size);

// Does the samples at positions begin..begin+count-1, divided among the workers, each in a thread. Returns samples per
// second: the sum over the workers. Throws the first error of a worker.
double run(std::vector<Worker>& workers, Phase phase, std::int64_t begin, std::int64_t count);

}  // namespace reigen::apps::data
