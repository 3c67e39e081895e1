// What an algorithm costs, as a line through measured times: alpha seconds to begin and beta a byte. And from which
// sizes on another one is the cheapest. Pure.
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

// The line with the least squares of the relative errors: a size counts as much as any other, however long it takes.
// Neither part is below 0. At least one sample; one gives its time for every size.
Line fit(std::span<const Sample> samples);

struct Candidate {
  std::string algorithm;
  Line line;
  std::size_t most = SIZE_MAX;  // bytes, beyond which it cannot run
};

struct Piece {
  std::string algorithm;
  std::size_t from;  // bytes, up to the next piece
};

// The cheapest algorithm from every size on, ascending from 0. One that stands behind another must be a tenth cheaper:
// less is noise. At least one candidate must have no limit.
std::vector<Piece> cheapest(std::span<const Candidate> candidates);

// "all_reduce:flat@<24K,all_reduce:direct". Sizes are rounded up to a readable one, at most a quarter more.
std::string rules_of(const std::string& operation, std::span<const Piece> pieces);

// 24576 -> "24K": what parse_bytes() reads as the same number.
std::string exact_bytes(std::size_t bytes);

}  // namespace reigen::comm::tuning
