#include "data/loading/global_batch.h"

#include <memory>
#include <numeric>
#include <utility>

namespace reigen::data {

Samples made_alone(BatchMaker& maker, std::size_t rows) {
  std::vector<std::size_t> all(rows);
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (const std::size_t row : all) maker.make(row);
  return maker.finish(all);
}

Samples global_batch(const Dataset& data, const Pass& pass, const std::vector<std::int64_t>& indices,
                     std::int64_t epoch_begin) {
  BatchRows rows{.pass = pass, .indices = indices, .epoch_begin = epoch_begin};
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto partner = static_cast<std::size_t>(partner_of(static_cast<std::int64_t>(i)));
    rows.partners.push_back(partner < indices.size() ? indices[partner] : -1);
  }
  const std::unique_ptr<BatchMaker> maker = data.batch_in(std::move(rows));
  return maker ? made_alone(*maker, indices.size()) : data.gather_in(pass, indices);
}

}  // namespace reigen::data
