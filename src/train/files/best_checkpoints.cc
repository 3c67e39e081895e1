#include "train/files/best_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>

#include "checkpoint/directory.h"
#include "reigen/base/error.h"
#include "reigen/format/atomic_file.h"
#include "train/run/agree.h"

namespace reigen::train {

namespace fs = std::filesystem;

fs::path BestCheckpoints::path_of(std::int64_t step) const { return folder() / checkpoint::name_of(step); }

// Adds a value if it is among the best. Of equal values the earlier one is better.
bool BestCheckpoints::add(std::int64_t step, double value) {
  if (std::isnan(value)) return false;
  std::erase_if(list_, [&](const BestCheckpoint& one) { return one.step == step; });  // validated once more
  const double sign = run_.config.checkpoint.mode == "max" ? -1 : 1;
  const auto place = std::find_if(list_.begin(), list_.end(),
                                  [&](const BestCheckpoint& one) { return sign * value < sign * one.value; });
  const auto most = static_cast<std::size_t>(run_.config.checkpoint.top_k);
  if (place == list_.end() && list_.size() >= most) return false;
  list_.insert(place, {.step = step, .value = value});
  if (list_.size() > most) list_.pop_back();
  return true;
}

void BestCheckpoints::remember(const std::vector<std::pair<std::int64_t, double>>& values) {
  list_.clear();
  if (!is_on()) return;
  std::string there;  // one letter for each value: whether rank 0 finds its checkpoint
  if (run_.is_first()) {
    std::error_code ignored;
    for (const auto& [step, value] : values) there += fs::exists(path_of(step) / "manifest.json", ignored) ? 'y' : 'n';
  }
  there = share_text(run_.world, there);
  for (std::size_t i = 0; i < values.size() && i < there.size(); ++i) {
    if (there[i] == 'y') add(values[i].first, values[i].second);
  }
}

void BestCheckpoints::note(double value) {
  if (!is_on()) return;
  const std::vector<BestCheckpoint> before = list_;
  if (!add(run_.done, value)) return;
  try {
    checkpoints_.save_to(folder());
    together(run_.world, "best checkpoints", [&] {
      if (run_.is_first()) write_list();
    });
  } catch (const IoError& error) {
    list_ = before;
    run_.say(
        fmt::format("warning: the checkpoint of step {}, among the best, is not kept: {}", run_.done, error.what()));
  }
}

void BestCheckpoints::bring_up_to_date() {
  if (list_.empty()) return;
  try {
    together(run_.world, "best checkpoints", [&] {
      if (!run_.is_first()) return;
      const auto listed = monitor_of_best(folder());
      if (!listed || *listed == monitor()) write_list();
    });
  } catch (const IoError& error) {
    run_.say(fmt::format("warning: the list of the best checkpoints is not written: {}", error.what()));
  }
}

// best.json first: it names only checkpoints that are whole, also if the process ends here.
void BestCheckpoints::write_list() {
  nlohmann::ordered_json json = {{"monitor", monitor()}, {"mode", run_.config.checkpoint.mode}};
  std::set<std::string> kept;
  for (const BestCheckpoint& one : list_) {
    json["checkpoints"].push_back({{"step", one.step}, {"value", one.value}});
    kept.insert(checkpoint::name_of(one.step));
  }
  format::write_file_atomically(folder() / kBestList, std::string_view(json.dump(2) + "\n"));
  std::error_code error;
  std::vector<fs::path> gone;
  for (const auto& entry : fs::directory_iterator(folder(), error)) {
    const std::string name = entry.path().filename().string();
    const bool is_way_back = fs::equivalent(entry.path(), checkpoints_.last(), error);  // the run was resumed from it
    if (name.starts_with("step_") && !kept.contains(name) && !is_way_back) gone.push_back(entry.path());
  }
  for (const fs::path& path : gone) fs::remove_all(path, error);
}

}  // namespace reigen::train
