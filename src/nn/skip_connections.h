// The skip connections of a model (reigen/nn/skips.h), for code that calls its units: fold(), and pipelines.
// Thread rule: const; every thread may use it.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "reigen/nn/skips.h"
#include "reigen/nn/unit.h"

namespace reigen::nn {

// The tensors that lie between two units.
struct Between {
  Carry carry = {};  // what the unit before gives the next one
  Carry skips = {};  // by the number of the skip connection; undefined before a tensor is given and after it is taken
};

class SkipConnections {
 public:
  // Throws InvalidArgument; see fold().
  SkipConnections(const std::vector<Unit>& units, std::vector<Skip> skips);

  const std::vector<Skip>& names() const { return names_; }
  // The numbers of the units of each skip connection.
  struct Ends {
    std::size_t from = 0;
    std::size_t to = 0;
  };
  const std::vector<Ends>& ends() const { return ends_; }
  // How many skip connections begin at the unit.
  std::size_t given_by(std::size_t unit) const;
  // The numbers of the skip connections that end at the unit.
  std::vector<std::size_t> taken_by(std::size_t unit) const;

  // What lies before the first unit.
  Between begin(Carry input) const { return {.carry = std::move(input), .skips = Carry(ends_.size())}; }
  // Takes the unit's input from `between`.
  Carry take_input(std::size_t unit, Between& between) const;
  // Puts the unit's output there. Throws InvalidArgument; see fold().
  void put_output(std::size_t unit, Carry output, Between& between) const;
  // Calls the units [first, end).
  void call(const std::vector<Unit>& units, std::size_t first, std::size_t end, Between& between) const;

 private:
  std::vector<Skip> names_;
  std::vector<Ends> ends_;
};

}  // namespace reigen::nn
