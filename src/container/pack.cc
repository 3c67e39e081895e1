#include "reigen/container/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "container/sample.h"
#include "reigen/base/error.h"
#include "reigen/base/random.h"

namespace reigen::container {
namespace {

constexpr std::int64_t kSamplesAhead = 8;  // for each worker

std::vector<std::int64_t> order_of(std::int64_t size, const std::optional<std::uint64_t>& seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  if (!seed) return order;
  // Fisher and Yates. Two numbers of 32 bits give a position among 2^64 with no bias that could be seen.
  Random random({.seed = *seed});
  for (std::size_t i = order.size(); i > 1; --i) {
    const std::uint64_t high = random.next();
    const std::uint64_t number = high << 32U | random.next();
    std::swap(order[i - 1], order[number % i]);
  }
  return order;
}

// Reads and recodes samples by several threads, and hands them out in order.
class Samples {
 public:
  Samples(const Reader& source, const PackOptions& options)
      : source_(source), options_(options), order_(order_of(source.size(), options.shuffle)) {
    const auto workers = static_cast<std::size_t>(options.workers);
    ahead_ = kSamplesAhead * options.workers;
    try {
      for (std::size_t i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Samples() { stop(); }
  Samples(const Samples&) = delete;  // the threads hold its address
  Samples& operator=(const Samples&) = delete;

  // The next sample. Throws the error of the first sample, in order, that has one.
  Record next() {
    std::unique_lock lock(mutex_);
    is_ready_.wait(lock, [&] { return done_.contains(taken_); });
    auto found = done_.extract(taken_);
    ++taken_;
    has_room_.notify_all();
    lock.unlock();
    if (found.mapped().error) std::rethrow_exception(found.mapped().error);
    return std::move(found.mapped().record);
  }

 private:
  struct Result {
    Record record;
    std::exception_ptr error;
  };

  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      has_room_.wait(lock, [&] { return stops_ || begun_ == source_.size() || begun_ < taken_ + ahead_; });
      if (stops_ || begun_ == source_.size()) return;
      const std::int64_t position = begun_++;
      // A source that is read in order is read under the lock, which hands out the positions in order.
      const bool in_order = source_.is_sequential();
      if (!in_order) lock.unlock();
      Result result = made(position);
      if (!in_order) lock.lock();
      done_.emplace(position, std::move(result));
      is_ready_.notify_one();
    }
  }

  Result made(std::int64_t position) const {
    Result result;
    try {
      const std::int64_t index = order_[static_cast<std::size_t>(position)];
      result.record = recoded(source_.read(index), index);
    } catch (...) {
      result.error = std::current_exception();
    }
    return result;
  }

  Record recoded(Record record, std::int64_t index) const {
    if (!options_.recode) return record;
    RecordParts parts(record.values().size());
    for (std::size_t i = 0; i < record.values().size(); ++i) {
      const auto bytes = record.at(i).bytes;
      if (source_.fields()[i].kind == FieldKind::kPicture) {
        parts.own(options_.recode(bytes, name_of_sample(source_, index)));
      } else {
        parts.view(bytes);
      }
    }
    return parts.build(std::make_shared<const Record>(std::move(record)));
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    has_room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  const Reader& source_;
  const PackOptions& options_;
  std::vector<std::int64_t> order_;
  std::int64_t ahead_ = 0;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable is_ready_;
  std::condition_variable has_room_;
  std::map<std::int64_t, Result> done_;
  std::int64_t begun_ = 0;  // positions that workers have
  std::int64_t taken_ = 0;  // positions that next() has returned
  bool stops_ = false;
};

void check_pack_options(const Reader& source, const PackOptions& options) {
  require_workers(options.workers);
  if (options.shuffle && source.is_sequential()) {
    throw InvalidArgument(Report{.what = fmt::format("'{}' can be read only in order", source.name()),
                                 .got = fmt::format("--shuffle {}", *options.shuffle),
                                 .expected = "no shuffle of a compressed source",
                                 .fix = "pack it without --shuffle, then shuffle the result into another"});
  }
}

}  // namespace

Packed pack(const Reader& source, const std::filesystem::path& target, const PackOptions& options) {
  check_pack_options(source, options);
  std::vector<Field> fields = source.fields();
  for (Field& field : fields) {
    if (!options.recode || !options.recoded || field.kind != FieldKind::kPicture) continue;
    const std::string name = field.name;
    field = *options.recoded;
    field.name = name;
  }
  const auto writer = make_writer(target, {.kind = options.kind,
                                           .fields = std::move(fields),
                                           .classes = source.classes(),
                                           .shards = options.shards,
                                           .count = source.size(),
                                           .compression = options.compression,
                                           .force = options.force});
  Packed packed;
  {
    Samples samples(source, options);
    for (std::int64_t i = 0; i < source.size(); ++i) {
      const Record record = samples.next();
      writer->add(record);
      packed.samples = i + 1;
      packed.bytes += record.bytes();
      if (options.progress) options.progress(packed.samples, source.size());
    }
  }
  writer->finish();
  return packed;
}

}  // namespace reigen::container
