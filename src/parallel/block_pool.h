// Memory for what is there at times: a block that has come back is given out again, so that its pages stay.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "reigen/comm/communicator.h"

namespace reigen::parallel {

class BlockPool {
 public:
  explicit BlockPool(Communicator memory) : memory_(std::move(memory)) {}

  // Of at least that size; what is in it is left over.
  std::shared_ptr<void> take(std::size_t bytes) {
    const auto found = free_.lower_bound(bytes);
    if (found != free_.end()) {
      auto block = std::move(found->second);
      free_.erase(found);
      return block;
    }
    free_.clear();  // too small, all of them: a larger one serves for those as well
    return memory_.allocate(bytes);
  }
  void give_back(std::shared_ptr<void> block, std::size_t bytes) {
    if (block) free_.emplace(bytes, std::move(block));
  }

 private:
  Communicator memory_;
  std::multimap<std::size_t, std::shared_ptr<void>> free_;
};

}  // namespace reigen::parallel
