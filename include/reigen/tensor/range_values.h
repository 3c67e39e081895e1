// A range is a flat buffer of parameters (parameter_range.h). If a range is divided among ranks, each rank changes only
// its own share of the values. RangeValues says how the other ranks see these changes. There are four kinds:
//
//   kind       where the values are       what publish() does after a change of the own share
//   own        on this rank, not divided  nothing
//   common     in memory of all ranks     nothing: all ranks see the change after meet()
//   exchanged  on this rank, whole        sends the share to all ranks: all_gather of the values
//   gathered   on this rank, its share    drops the gathered copy, which has the old values
//
// Thread rule: one thread at a time may use a RangeValues object.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

class TransientFlat;

// The shares of a flat buffer: rank q of `ranks` has the elements [bounds[q], bounds[q + 1]). The shares do not
// overlap, and together they are the whole buffer.
struct Shares {
  Communicator ranks;
  std::vector<std::int64_t> bounds;

  std::int64_t begin() const { return bounds[static_cast<std::size_t>(ranks.rank())]; }
  std::int64_t end() const { return bounds[static_cast<std::size_t>(ranks.rank()) + 1]; }
  // The number of elements of every share, for calls like all_gather_v() that take blocks of different sizes.
  std::vector<std::size_t> sizes() const;
};

class RangeValues {
 public:
  explicit RangeValues(std::optional<Shares> shares) : shares_(std::move(shares)) {}
  virtual ~RangeValues() = default;
  RangeValues(const RangeValues&) = delete;  // all copies of a range use the same object
  RangeValues& operator=(const RangeValues&) = delete;

  const std::optional<Shares>& shares() const { return shares_; }  // nullopt means that the range is not sharded
  virtual bool is_common() const { return false; }
  // The copy of all values, for the kind "gathered" (each rank keeps only its share). It has memory only while it is
  // gathered (transient_flat.h). Null for the other kinds.
  virtual TransientFlat* whole() const { return nullptr; }

  // For the kind "common" (all ranks share the memory of the values): waits until every rank has called meet(), and
  // throws the errors of Communicator::barrier(). For the other kinds it does nothing. The argument of meet() and of
  // publish() is the tag of the calls that the function makes. The errors of these calls contain the tag.
  virtual void meet(const char*) {}
  // Lets the other ranks see a change of this rank's share, as the table at the top of this file says. Collective.
  virtual void publish(const char*) {}
  // For the kind "common": every rank calls note_change() after a change that is allowed, for example an optimizer's
  // step. is_unmodified() returns false if values have changed since the last note_change(). It checks only the first
  // 64 bytes of every parameter.
  virtual void note_change() {}
  virtual bool is_unmodified() const { return true; }

  // Runs `calls`, which makes calls in the group of the ranks that shard the range. Does nothing if the range is not
  // sharded.
  void exchange(const std::function<void(const Communicator& ranks)>& calls);
  // How many seconds this rank has spent so far in meet(), publish() and exchange().
  double seconds_met() const { return seconds_met_; }

 private:
  std::optional<Shares> shares_;
  double seconds_met_ = 0;
};

}  // namespace reigen::tensor
