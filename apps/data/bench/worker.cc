#include "data/bench/worker.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "container/sample.h"
#include "reigen/image/operations.h"

namespace reigen::apps::data {

namespace {

constexpr std::size_t kRowsOfBatch = 32;  // so that results go to main memory, as those of a loader do
constexpr std::size_t kPage = 4096;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

std::optional<std::size_t> picture_field(const container::Reader& reader) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < reader.fields().size(); ++i) {
    const container::Field& field = reader.fields()[i];
    if (field.kind == container::FieldKind::kPicture && (!found || field.name == "input")) found = i;
  }
  return found;
}

std::int64_t sample_at(std::int64_t position, std::int64_t size) {
  constexpr double kGolden = 0.6180339887498949;  // no step spreads points more evenly
  auto step = std::max<std::int64_t>(static_cast<std::int64_t>(kGolden * static_cast<double>(size)), 1);
  while (std::gcd(step, size) != 1) ++step;
  return position % size * step % size;  // does not overflow for up to 2^31 samples
}

Worker::Worker(const container::Reader& reader, const Preparation& preparation)
    : reader_(reader), preparation_(preparation), picture_(picture_field(reader)) {
  const auto side = static_cast<std::size_t>(preparation.size);
  if (picture_) batch_.resize(kRowsOfBatch * 3 * side * side);
}

double Worker::work(Phase phase, std::int64_t position) {
  const std::int64_t index = sample_at(position, reader_.size());
  if (phase == Phase::kDecode) return decode(index);
  const auto begin = Clock::now();
  if (phase == Phase::kAll && picture_) {
    prepare(index, position);
  } else {
    read(index);
  }
  return seconds_since(begin);
}

void Worker::read(std::int64_t index) {
  const container::Record record = reader_.read(index);
  // The pages of a mapped file are read when they are touched.
  for (const container::Value& value : record.values()) {
    for (std::size_t at = 0; at < value.bytes.size(); at += kPage) seen_ += std::to_integer<unsigned>(value.bytes[at]);
  }
}

double Worker::decode(std::int64_t index) {
  const container::Record record = reader_.read(index);
  const std::string where = container::place_of(reader_, index);
  const auto begin = Clock::now();
  full_decode_(record.at(*picture_).bytes, where);
  return seconds_since(begin);
}

void Worker::prepare(std::int64_t index, std::int64_t position) {
  const container::Record record = reader_.read(index);
  image::Draft draft(record.at(*picture_).bytes, record.keeps(), container::place_of(reader_, index),
                     {.fast = preparation_.fast_decode});
  const std::int64_t epoch = position / reader_.size();
  Random crop({.seed = 1, .epoch = epoch, .sample = index, .place = 0});
  Random flip({.seed = 1, .epoch = epoch, .sample = index, .place = 1});
  image::random_resized_crop(preparation_.size)(draft, crop);
  image::random_flip()(draft, flip);
  draft.write({.mean = image::kImageNetMean, .deviation = image::kImageNetDeviation},
              batch_.data() + row_ * (batch_.size() / kRowsOfBatch), workspace_);
  row_ = (row_ + 1) % kRowsOfBatch;
}

double run(std::vector<Worker>& workers, Phase phase, std::int64_t begin, std::int64_t count) {
  std::atomic<std::int64_t> next = 0;
  std::mutex mutex;
  double rate = 0;
  std::exception_ptr error;
  const auto do_share = [&](Worker& worker) {
    std::int64_t done = 0;
    double seconds = 0;
    try {
      for (std::int64_t i = next++; i < count; i = next++, ++done) seconds += worker.work(phase, begin + i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      next = count;
      return;
    }
    const std::lock_guard lock(mutex);
    if (done > 0) rate += static_cast<double>(done) / seconds;
  };
  {
    std::vector<std::jthread> threads;
    for (Worker& worker : workers) threads.emplace_back([&do_share, &worker] { do_share(worker); });
  }
  if (error) std::rethrow_exception(error);
  return rate;
}

}  // namespace reigen::apps::data
