// The figures of validations that were made. stop.monitor, checkpoint.monitor and optim.schedule plateau decide by
// them.
//
// A resumed run needs those of the validations before its checkpoint. They are in the checkpoint, if that run watched
// the same figures, and in metrics.jsonl, if the run goes on in the same directory.
// Thread rule: no shared state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace reigen::train {

struct Validated {
  std::int64_t step = 0;
  bool is_last = false;  // made at the end of a run
  std::map<std::string, double> values = {};
};

// A JSON list, which may be empty: "[]". NaN and infinity become NaN.
std::string to_text(const std::vector<Validated>& validations);
// Throws DataError for a text that is no such list.
std::vector<Validated> validated_in(const std::string& text);

// The validations in metrics.jsonl up to this step. Lines that cannot be read are left out, and so are all lines if
// there is no such file.
std::vector<Validated> validated_in_file(const std::filesystem::path& metrics, std::int64_t last_step);

// The validations of both lists in order, each once. A value that only one list has is taken from it.
std::vector<Validated> joined(std::vector<Validated> first, const std::vector<Validated>& second);

}  // namespace reigen::train
