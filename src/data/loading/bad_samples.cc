#include "data/loading/bad_samples.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace reigen::data {

namespace {

class OneByOne : public BatchMaker {
 public:
  OneByOne(const Dataset& data, const std::optional<Pass>& pass, std::vector<std::int64_t> indices)
      : data_(data), pass_(pass), indices_(std::move(indices)), made_(indices_.size()) {}

  void make(std::size_t row) override {
    const std::span<const std::int64_t> one(&indices_[row], 1);
    made_[row] = pass_ ? data_.gather_in(*pass_, one) : data_.gather(one);
  }

  Samples finish(std::span<const std::size_t> rows) override {
    const Samples& first = made_[rows[0]];
    Samples all = first;
    all.input = joined(rows, [](const Samples& one) { return one.input; });
    all.target = joined(rows, [](const Samples& one) { return one.target; });
    for (auto& [name, tensor] : all.more) {
      tensor = joined(rows, [&name = name](const Samples& one) { return one.at(name); });
    }
    return all;
  }

 private:
  template <class Get>
  at::Tensor joined(std::span<const std::size_t> rows, const Get& get) const {
    const at::Tensor first = get(made_[rows[0]]);
    if (!first.defined()) return {};
    auto sizes = first.sizes().vec();
    sizes[0] = static_cast<std::int64_t>(rows.size());
    at::Tensor all = at::empty(sizes, first.options());
    auto* out = static_cast<std::byte*>(all.mutable_data_ptr());
    for (const std::size_t row : rows) {
      const at::Tensor one = get(made_[row]).contiguous();
      REIGEN_CHECK(one.sizes() == first.sizes() && one.scalar_type() == first.scalar_type(),
                   "samples {} and {} of '{}' have different shapes or types", indices_[rows[0]], indices_[row],
                   data_.name());
      std::memcpy(out, one.const_data_ptr(), one.nbytes());
      out += one.nbytes();
    }
    return all;
  }

  const Dataset& data_;
  const std::optional<Pass> pass_;
  const std::vector<std::int64_t> indices_;
  std::vector<Samples> made_;
};

}  // namespace

void BadSamples::leave_out(std::int64_t index, const DataError& error, std::int64_t most, const std::string& dataset) {
  const std::lock_guard lock(mutex_);
  if (most == 0) throw DataError(error);
  if (indices_.contains(index)) return;
  if (static_cast<std::int64_t>(indices_.size()) >= most) {
    throw DataError(Report{.what = fmt::format("sample {} of '{}' is damaged, and no more may be", index, dataset),
                           .got = fmt::format("{} damaged samples before it; {}", indices_.size(), error.what()),
                           .expected = fmt::format("at most {}", most),
                           .fix = "mend the data, or raise data.max_bad (LoaderOptions::max_bad)"});
  }
  indices_.insert(index);
  base::log_warning("sample {} of '{}' is damaged and is left out ({} of at most {}): {}", index, dataset,
                    indices_.size(), most, error.what());
}

std::int64_t BadSamples::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(indices_.size());
}

std::unique_ptr<BatchMaker> one_by_one(const Dataset& data, const std::optional<Pass>& pass,
                                       std::vector<std::int64_t> indices) {
  return std::make_unique<OneByOne>(data, pass, std::move(indices));
}

}  // namespace reigen::data
