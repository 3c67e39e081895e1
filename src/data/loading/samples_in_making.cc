#include "data/loading/samples_in_making.h"

#include <utility>

#include "data/checked.h"

namespace reigen::data {

SamplesInMaking::SamplesInMaking(const Dataset& data, bool is_pass, BatchRows rows, const Damage& damage)
    : data_(data),
      pass_(is_pass ? std::optional(rows.pass) : std::nullopt),
      indices_(rows.indices),
      damage_(damage),
      is_bad_(indices_.size()) {
  maker_ = data.batch_in(std::move(rows));
  if (!maker_ && damage.most > 0) maker_ = one_by_one(data, pass_, indices_);
}

void SamplesInMaking::make(std::size_t unit, bool counts) {
  if (!maker_) {
    samples_ = pass_ ? data_.gather_in(*pass_, indices_) : data_.gather(indices_);
    return;
  }
  try {
    maker_->make(unit);
  } catch (const DataError& error) {
    if (counts || damage_.most == 0) damage_.bad.leave_out(indices_[unit], error, damage_.most, data_.name());
    is_bad_[unit] = 1;
  }
}

std::vector<std::size_t> SamplesInMaking::rows() const {
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < is_bad_.size(); ++row) {
    if (is_bad_[row] == 0) rows.push_back(row);
  }
  return rows;
}

Samples SamplesInMaking::finish() {
  const std::vector<std::size_t> made = rows();
  if (maker_) samples_ = maker_->finish(made);
  return checked(std::move(samples_), data_, static_cast<std::int64_t>(made.size()));
}

std::vector<std::int64_t> SamplesInMaking::kept() const {
  std::vector<std::int64_t> indices;
  for (const std::size_t row : rows()) indices.push_back(indices_[row]);
  return indices;
}

}  // namespace reigen::data
