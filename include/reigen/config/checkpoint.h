// When a training saves checkpoints, and which of them it keeps: the options of the section checkpoint.
// Thread rule: these types are values; every thread may have its own copy.
#pragma once

#include <cstdint>
#include <string>

#include "reigen/base/fields.h"

namespace reigen::config {

struct CheckpointConfig {
  std::string every = {};
  std::int64_t every_steps = 0;
  std::int64_t keep = 2;
  std::string monitor = {};
  std::string mode = "min";
  std::int64_t top_k = 1;
  bool asynchronous = false;
};
inline void describe(Fields& fields, CheckpointConfig& o) {
  fields.section = "checkpoint";
  fields.add("every", o.every,
             "how often, besides at a stop and at the end: 500 (steps), 0.5 epochs, 30 min; empty: only then");
  fields.add("every_steps", o.every_steps, at_least(0), "the same in steps, an earlier name; 0: as checkpoint.every");
  fields.add("keep", o.keep, at_least(1).up_to(1e6), "number of newest checkpoints that are kept");
  fields.add("monitor", o.monitor,
             "also keep the checkpoints with the best values of this figure of validations: test_loss");
  fields.add("mode", o.mode, {"min", "max"}, "whether less or more is better").needs = "monitor";
  fields.add("top_k", o.top_k, at_least(1).up_to(1000), "how many of the best are kept").needs = "monitor";
  fields.add("asynchronous", o.asynchronous, "write during the next steps; needs memory for a copy of the state");
}

}  // namespace reigen::config
