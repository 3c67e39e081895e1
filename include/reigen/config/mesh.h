// The options of section mesh: how ranks divide the layers, the sequences and the stages of a model.
#pragma once

#include <cstdint>
#include <string>

#include "reigen/base/fields.h"

namespace reigen::config {

struct MeshConfig {
  std::int64_t tp = 1;
  bool sequence = false;
  std::int64_t cp = 1;
  std::int64_t pp = 1;
  std::string schedule = "1f1b";
  std::int64_t virtual_stages = 1;
  std::string cut = "size";
};
inline void describe(Fields& fields, MeshConfig& o) {
  fields.section = "mesh";
  fields.add("tp", o.tp, at_least(1).up_to(1e6),
             "ranks that divide each layer of the model between them (tensor parallelism); neighbours, which should be "
             "on one machine");
  fields.add("sequence", o.sequence, "between divided layers each of these ranks holds its part of the sequence only")
      .needs = "tp";
  fields.add(
      "cp", o.cp, at_least(1).up_to(1e6),
      "ranks that divide each sequence between them (context parallelism); the length must be a multiple of twice "
      "their number");
  fields.add(
      "pp", o.pp, at_least(1).up_to(1e6),
      "ranks that hold different layers of the model and work on different micro-batches (pipeline parallelism)");
  fields
      .add("schedule", o.schedule,
           "naive, gpipe, 1f1b, interleaved_1f1b, looped_bfs, zb_h1, zb_v, or a file with a schedule; "
           "train.micro_batch says how many micro-batches there are")
      .needs = "pp";
  fields
      .add("virtual_stages", o.virtual_stages, at_least(1).up_to(1e6),
           "stages on each rank, for interleaved_1f1b, looped_bfs and zb_v (2)")
      .needs = "pp";
  fields
      .add("cut", o.cut, {"size", "count", "time"},
           "what stages have as equal as possible: weights, units, or measured time")
      .needs = "pp";
}

}  // namespace reigen::config
