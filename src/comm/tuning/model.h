// The cost of an algorithm as a line through measured times: alpha seconds to begin, and beta seconds a byte. Also
// finds the sizes from which on another algorithm is the cheapest. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace reigen::comm::tuning {

struct Sample {
  double bytes;
  double seconds;
};

struct Line {
  double alpha = 0;  // seconds
  double beta = 0;   // seconds a byte

  double at(double bytes) const { return alpha + beta * bytes; }
};

// The line with the least squares of the relative errors, so that all sizes count the same, however long they take.
// Neither alpha nor beta is below 0. Needs at least one sample. For a single sample, the line has the time of that
// sample at every size.
Line fit(std::span<const Sample> samples);

struct Candidate {
  std::string algorithm;
  Line line;
  std::size_t most = SIZE_MAX;  // bytes: the largest call that it can run
};

struct Piece {
  std::string algorithm;
  std::size_t from;  // bytes; the piece ends where the next one begins
};

// The cheapest algorithm for every size, as pieces that ascend from 0. A later candidate must be a tenth cheaper than
// an earlier one, because a smaller difference is noise. At least one candidate must have no limit.
std::vector<Piece> cheapest(std::span<const Candidate> candidates);

// "all_reduce:flat@<24K,all_reduce:direct". Sizes are rounded up to a readable size, which is at most a quarter larger.
std::string rules_of(const std::string& operation, std::span<const Piece> pieces);

// 24576 -> "24K": a text that parse_bytes() reads as the same number.
std::string exact_bytes(std::size_t bytes);

}  // namespace reigen::comm::tuning
