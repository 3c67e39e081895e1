// Cuts arrays into blocks, and blocks into pieces.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/schedule/schedule.h"

namespace reigen::comm::schedule {

// Cuts `count` elements into `parts` parts whose sizes differ by one at most. The longer parts come first.
std::vector<std::size_t> even_cut(std::size_t count, std::size_t parts);

// Blocks that lie one after the other in a buffer.
class Blocks {
 public:
  explicit Blocks(const std::vector<std::size_t>& counts);

  int size() const { return static_cast<int>(begins_.size()) - 1; }
  std::size_t total() const { return begins_.back(); }
  std::size_t count(int block) const { return begin(block + 1) - begin(block); }
  std::size_t begin(int block) const { return begins_[static_cast<std::size_t>(block)]; }
  std::size_t largest() const;
  Range at(Buffer buffer, int block) const { return {buffer, begin(block), count(block)}; }
  Range span(Buffer buffer, int first, int end) const { return {buffer, begin(first), begin(end) - begin(first)}; }

 private:
  std::vector<std::size_t> begins_;
};

// Piece number `index` of a range that is cut into `pieces` pieces. The sizes of the pieces are as in even_cut().
Range piece(const Range& range, std::size_t index, std::size_t pieces);

// The size of the largest piece, in elements, if `count` elements are cut into `pieces` pieces.
std::size_t piece_count(std::size_t count, std::size_t pieces);

// Appends a transfer if its range is not empty. `after`: see Transfer.
void add(std::vector<Transfer>& transfers, int peer, const Range& range, std::size_t after = 0);

// Appends a step if it contains a transfer or local work.
void add(Schedule& schedule, Step step);

}  // namespace reigen::comm::schedule
