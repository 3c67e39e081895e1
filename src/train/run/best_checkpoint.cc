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

namespace {

// The content of best.json in the folder. Null if it is no list of checkpoints.
nlohmann::ordered_json list_in(const fs::path& folder) {
  std::ifstream in(folder / kBestList);
  auto json = nlohmann::ordered_json::parse(in, nullptr, false);
  const auto list = json.is_object() ? json.find("checkpoints") : json.end();
  bool is_right = json.is_object() && list != json.end() && list->is_array();
  if (is_right) {
    for (const auto& one : *list)
      is_right = is_right && one.is_object() && one.contains("step") && one["step"].is_number_integer();
  }
  return is_right ? json : nlohmann::ordered_json();
}

}  // namespace

fs::path best_checkpoint_of(const fs::path& run_directory) {
  const fs::path folder = run_directory / "checkpoints" / "best";
  std::error_code ignored;
  if (!fs::exists(folder / kBestList, ignored)) {
    throw IoError(Report{.what = fmt::format("{} keeps no best checkpoint", run_directory.string()),
                         .got = fmt::format("no {}", (folder / kBestList).string()),
                         .fix = "train with --checkpoint.monitor, or take last"},
                  ExitCode::kInputMissing);
  }
  const auto json = list_in(folder);
  if (json.is_null() || json["checkpoints"].empty()) {
    throw DataError(Report{.what = fmt::format("{} is damaged", (folder / kBestList).string()),
                           .expected = "a list of checkpoints with their steps",
                           .fix = "name a checkpoint by its path"});
  }
  return folder / checkpoint::name_of(json["checkpoints"].front()["step"].get<std::int64_t>());
}

std::optional<std::string> monitor_of_best(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / kBestList, ignored)) return std::nullopt;
  const auto json = list_in(folder);
  const bool has_name = json.is_object() && json.contains("monitor") && json["monitor"].is_string();
  return has_name ? json["monitor"].get<std::string>() : std::string();
}

// The list first: it names only checkpoints that are whole, also if the process ends here. Checkpoints that the list
// lacks, because the process ended before it was written, are moved as well.
void keep_best_up_to(const fs::path& run_directory, std::int64_t step, const std::vector<fs::path>& unreadable) {
  const fs::path folder = run_directory / "checkpoints" / "best";
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) return;
  if (auto json = list_in(folder); !json.is_null()) {
    auto kept = nlohmann::ordered_json::array();
    for (const auto& one : json["checkpoints"]) {
      if (one["step"] <= step) kept.push_back(one);
    }
    const bool changes = kept.size() != json["checkpoints"].size();
    if (changes && kept.empty())
      fs::remove(folder / kBestList, ignored);  // a run without a best checkpoint has no list
    json["checkpoints"] = std::move(kept);
    if (changes && !json["checkpoints"].empty())
      format::write_file_atomically(folder / kBestList, std::string_view(json.dump(2) + "\n"));
  }
  checkpoint::set_aside_after(folder, step, unreadable);
}

}  // namespace reigen::train
