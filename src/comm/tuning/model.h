// Models the time of an algorithm as a line through measured times: alpha seconds for each call, plus beta seconds for
// each byte. Also finds the sizes at which the cheapest algorithm changes. Pure functions.
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
  double beta = 0;   // seconds per byte

  double at(double bytes) const { return alpha + beta * bytes; }
};

// The line with the least squares of the relative errors. Because the errors are relative, a short call counts as much
// as a long call.
// Neither alpha nor beta is below 0. Needs at least one sample. For a single sample, the line has the time of that
// sample at every size.
Line fit(std::span<const Sample> samples);

struct Candidate {
  std::string algorithm;
  Line line;
  std::size_t most = SIZE_MAX;  // the size of the largest call that the algorithm can run, in bytes
};

struct Piece {
  std::string algorithm;
  std::size_t from;  // the smallest size, in bytes; the piece ends where the next piece begins
};

// The cheapest algorithm for every size. A Piece is a range of sizes. The pieces are in ascending order and begin at 0.
// A later candidate replaces an earlier one only if it is a tenth cheaper, because a smaller difference is noise. At
// least one candidate must have no limit (`most`).
std::vector<Piece> cheapest(std::span<const Candidate> candidates);

// The pieces as rules: "all_reduce:flat@<24K,all_reduce:direct". A size in a rule is rounded up to a readable size,
// which is at most a quarter larger.
std::string rules_of(const std::string& operation, std::span<const Piece> pieces);

// Writes 24576 as "24K". parse_bytes() reads the text as the same number.
std::string exact_bytes(std::size_t bytes);

}  // namespace reigen::comm::tuning
