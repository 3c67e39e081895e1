#include "data/loading/global_batch.h"

#include <cstddef>
#include <memory>
#include <utility>

namespace reigen::data {

Samples global_batch(const Dataset& data, const Pass& pass, const std::vector<std::int64_t>& indices,
                     std::int64_t epoch_begin) {
  BatchRows rows{.pass = pass, .indices = indices, .epoch_begin = epoch_begin};
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::size_t partner = i % 2 == 0 ? i + 1 : i - 1;
    rows.partners.push_back(partner < indices.size() ? indices[partner] : -1);
  }
  const std::unique_ptr<BatchMaker> maker = data.batch_in(std::move(rows));
  if (!maker) return data.gather_in(pass, indices);
  std::vector<std::size_t> all;
  for (std::size_t row = 0; row < indices.size(); ++row) {
    maker->make(row);
    all.push_back(row);
  }
  return maker->finish(all);
}

}  // namespace reigen::data
