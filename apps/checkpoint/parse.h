// Reads the command lines of `reigen checkpoint` with CLI11.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "command_line.h"
#include "reigen/base/error.h"
#include "reigen/checkpoint/weights.h"
#include "reigen_commands.h"

namespace reigen::apps::checkpoint {

// A line of output such as "best_acc   numpy._core.multiarray.scalar (not read)".
inline std::string unread_row(const reigen::checkpoint::Unread& item) {
  return fmt::format("{:<48} {} (not read)", item.name, item.what);
}

// Adds --only and --skip, each of which may be given several times.
inline void add_selection(CLI::App& app, reigen::checkpoint::Selection& selection) {
  app.add_option("--only", selection.only, "takes what begins with it alone, for example model.");
  app.add_option("--skip", selection.skip, "leaves out what begins with it");
}

// Applies the selection to each of `all`. Throws InvalidArgument for a prefix with which no name in any of them begins.
inline void select_from(const std::vector<reigen::checkpoint::Weights*>& all,
                        const reigen::checkpoint::Selection& selection) {
  for (const auto* beginnings : {&selection.only, &selection.skip}) {
    for (const std::string& begin : *beginnings) {
      const auto lacks = [&](const auto* weights) { return !weights->unmatched({.only = {begin}}).empty(); };
      if (!std::all_of(all.begin(), all.end(), lacks)) continue;
      const auto& tensors = all.front()->tensors();
      throw InvalidArgument(Report{.what = fmt::format("no name begins with \"{}\"", begin),
                                   .got = tensors.empty() ? "no tensors" : tensors.front().name + ", ...",
                                   .fix = fmt::format("`reigen checkpoint inspect {} --tensors` lists the names",
                                                      all.front()->path().string())});
    }
  }
  for (auto* weights : all) weights->select(selection);
}

}  // namespace reigen::apps::checkpoint
