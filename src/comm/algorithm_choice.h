// Which algorithm runs an operation: what the user wrote (GroupOptions::algorithms), else the usual one.
//
// "all_reduce:ring,broadcast:ring@>1M,broadcast:tree": OPERATION:ALGORITHM[@>SIZE | @<SIZE], separated by commas; the
// first rule that fits wins. SIZE counts the bytes of the whole array: all blocks of an operation on blocks, whether of
// one size or not.
// Thread rule: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/call.h"
#include "comm/schedule/table.h"

namespace reigen::comm {

class AlgorithmChoice {
 public:
  // Throws InvalidArgument, listing what there is, for an operation or an algorithm that does not exist.
  explicit AlgorithmChoice(const std::string& rules);

  const schedule::Algorithm& choose(OperationKind kind, std::size_t bytes, int ranks) const;

 private:
  struct Rule {
    OperationKind kind;
    const schedule::Algorithm* algorithm;
    std::size_t above = 0;         // bytes > above, or from none on when there is no such bound
    std::size_t below = SIZE_MAX;  // bytes < below
    bool has_above = false;
  };

  static Rule parse(const std::string& text);

  std::vector<Rule> rules_;
};

}  // namespace reigen::comm
