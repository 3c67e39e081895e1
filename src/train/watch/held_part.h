// The elements of a parameter that a rank of a layout holds, and the same elements of the whole parameter.
// Thread rule: pure functions; any thread may call them.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "reigen/layout/part.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::train {

// What this rank has of a whole parameter, or of its gradient: `part` of `shape`, in `flat`, whose first element is the
// first of the box that the rank computes with.
struct Held {
  layout::Shape shape = {};
  layout::Part part = {};
  at::Tensor flat = {};
};

inline layout::Part box_of(const tensor::Segment& segment) {
  return segment.box ? segment.box->part : layout::whole(segment.shape);
}

inline Held held_of(const ParameterRange& range, const tensor::Segment& segment, const at::Tensor& flat,
                    bool is_share) {
  return {.shape = segment.box ? segment.box->whole : segment.shape,
          .part = is_share ? range.part_of(segment) : box_of(segment),
          .flat = flat};
}

// The elements of `held`, run by run, from a flat tensor in which `begin_of` says where a run begins.
template <class BeginOf>
at::Tensor runs_of(const Held& held, const at::Tensor& flat, const BeginOf& begin_of) {
  std::vector<at::Tensor> pieces;
  layout::Runs runs(held.shape, held.part);
  while (const auto one = runs.next()) pieces.push_back(flat.narrow(0, begin_of(*one), one->count));
  return pieces.empty() ? flat.narrow(0, 0, 0) : at::cat(pieces);
}

// The elements of a whole tensor that `held` has, in its order.
inline at::Tensor elements_of(const at::Tensor& whole, const Held& held) {
  return runs_of(held, whole.reshape({-1}), [](const auto& run) { return run.global; });
}

inline at::Tensor elements_of(const Held& held) {
  return runs_of(held, held.flat, [&](const auto& run) { return held.part.first + run.local; });
}

}  // namespace reigen::train
