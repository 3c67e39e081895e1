#include "train/run/best_checkpoint.h"

#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "reigen/base/error.h"
#include "reigen/checkpoint/checkpoint.h"
#include "reigen/format/atomic_file.h"

namespace reigen::train {

namespace fs = std::filesystem;

fs::path best_checkpoint_of(const fs::path& run_directory) {
  const fs::path folder = run_directory / "checkpoints" / "best";
  std::error_code ignored;
  if (!fs::exists(folder / kBestList, ignored)) {
    throw IoError(Report{.what = fmt::format("{} keeps no best checkpoint", run_directory.string()),
                         .got = fmt::format("no {}", (folder / kBestList).string()),
                         .fix = "train with --checkpoint.monitor, or take last"},
                  ExitCode::kInputMissing);
  }
  std::ifstream in(folder / kBestList);
  const auto json = nlohmann::json::parse(in, nullptr, false);
  const auto list = json.is_object() ? json.find("checkpoints") : json.end();
  const bool is_right = json.is_object() && list != json.end() && list->is_array() && !list->empty() &&
                        list->front().is_object() && list->front().contains("step") &&
                        list->front()["step"].is_number_integer();
  if (!is_right) {
    throw DataError(Report{.what = fmt::format("{} is damaged", (folder / kBestList).string()),
                           .expected = "a list of checkpoints with their steps",
                           .fix = "name a checkpoint by its path"});
  }
  return folder / checkpoint::name_of(list->front()["step"].get<std::int64_t>());
}

void keep_best_up_to(const fs::path& run_directory, std::int64_t step) {
  const fs::path folder = run_directory / "checkpoints" / "best";
  std::error_code ignored;
  if (!fs::exists(folder / kBestList, ignored)) return;
  std::ifstream in(folder / kBestList);
  auto json = nlohmann::ordered_json::parse(in, nullptr, false);
  if (!json.is_object() || !json.contains("checkpoints") || !json["checkpoints"].is_array()) return;
  auto kept = nlohmann::ordered_json::array();
  for (const auto& one : json["checkpoints"]) {
    if (one.is_object() && one.contains("step") && one["step"].is_number_integer() && one["step"] <= step)
      kept.push_back(one);
  }
  if (kept.size() == json["checkpoints"].size()) return;
  json["checkpoints"] = std::move(kept);
  format::write_file_atomically(folder / kBestList, std::string_view(json.dump(2) + "\n"));
  checkpoint::set_aside_after(folder, step);
}

}  // namespace reigen::train
