// The options of a run as such (config.h). Thread rule: these types are values; every thread may have its own copy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/base/fields.h"
#include "reigen/config/presets.h"

namespace reigen::config {

struct RunConfig {
  std::vector<Preset> presets = {};  // if empty, there is no option run.preset
  std::string preset = "none";
  bool plan = false;
  bool summary = false;
  bool find_lr = false;
  std::string dir = {};
  std::string resume = {};
  std::string weights = {};
  bool strict = true;
  std::int64_t fast_dev = 0;
  bool save_initial = false;
  std::string trace = {};
  std::string ranks = "processes";
  std::string stop_signals = "int,term,hup,usr1,usr2,xcpu";
  std::string stop_after = {};
};
inline void describe(Fields& fields, RunConfig& o) {
  fields.section = "run";
  if (!o.presets.empty()) {
    fields.add("preset", o.preset, {"none"},
               "values for other options, listed below; flags, variables and a file win over them");
    for (const Preset& preset : o.presets) fields.rows.back().choices.push_back(preset.name);
  }
  fields.add("plan", o.plan, "print the learning rate of the whole run and end, without data and ranks");
  fields.add("summary", o.summary,
             "print the units of the model with output shapes, parameters, multiply-adds and bytes, and end");
  fields.add("find_lr", o.find_lr,
             "train with learning rates that grow from 1e-7 to 10, print which one to take, and end");
  fields.add("dir", o.dir, "directory for the run's files; empty: runs/<recipe>-<date-time>");
  fields.add(
      "resume", o.resume,
      "true or last: resume from the newest checkpoint in run.dir; best: from that of checkpoint.monitor; or a path");
  fields.add("weights", o.weights,
             "the weights to begin with: a safetensors or PyTorch file, a run, a checkpoint; best, last: of run.dir; "
             "empty: by seed");
  fields.add("strict", o.strict,
             "false: run.weights may lack tensors of the model, and have others; what fits is taken");
  fields.add(
      "fast_dev", o.fast_dev, at_least(0).up_to(1e6),
      "try the program out: this many batches of training and of validation, and nothing left on the disk; 0: no");
  fields.add("save_initial", o.save_initial, "write the initial weights to initial.safetensors");
  fields.add("trace", o.trace, "steps (10:15) whose timeline goes to trace.json, for ui.perfetto.dev; empty: none");
  fields.add("ranks", o.ranks, {"processes", "threads"}, "whether ranks are processes, or (with -n N) threads of one");
  fields.add("stop_signals", o.stop_signals, "signals that save a checkpoint and end the run with code 75, or none");
  fields.add("stop_after", o.stop_after, "stop like that after this time: 90 (seconds), 45m, 3h50m; empty: never");
}

}  // namespace reigen::config
