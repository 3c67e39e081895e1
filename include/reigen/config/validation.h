// When a training validates, and when a validation ends it: the options of the sections validate and stop.
// Thread rule: these types are values; every thread may have its own copy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "reigen/base/fields.h"

namespace reigen::config {

struct ValidateConfig {
  std::string every = "1 epoch";
  std::int64_t limit = 0;
  std::int64_t sanity = 0;
};
inline void describe(Fields& fields, ValidateConfig& o) {
  fields.section = "validate";
  fields.add("every", o.every, "how often, besides at the end: 500 (steps), 0.25 epochs, 30 min");
  fields.add("limit", o.limit, at_least(0), "test samples in each of these validations; 0: all. The last has all");
  fields.add("sanity", o.sanity, at_least(0).up_to(1e6),
             "batches that each rank scores before the first step, so that a mistake there is found at once");
}

struct StopConfig {
  std::string monitor = {};
  std::string mode = "min";
  std::int64_t patience = 3;
  double min_delta = 0;
  std::optional<double> threshold = {};
};
inline void describe(Fields& fields, StopConfig& o) {
  fields.section = "stop";
  fields.add("monitor", o.monitor, "end when this figure of validations stops improving: test_loss; empty: never");
  fields.add("mode", o.mode, {"min", "max"}, "whether less or more is better").needs = "monitor";
  fields.add("patience", o.patience, at_least(1).up_to(1e9), "validations without a better value").needs = "monitor";
  fields.add("min_delta", o.min_delta, at_least(0), "by how much a value must be better").needs = "monitor";
  fields.add("threshold", o.threshold, Range{}, "end as soon as a validation reaches this value").needs = "monitor";
}

}  // namespace reigen::config
