// The meaning of a run's data (data/meaning.h), in the form that checkpoints and model files store.
// Thread rule: no shared state.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "reigen/data/meaning.h"

namespace reigen::train {

using TextMap = std::map<std::string, std::string>;

// For each fact: "meaning.<name>" = a JSON list. A backslash is written as \\, and bytes that are not UTF-8 as \xE9.
TextMap to_text(const data::Meaning& meaning);

struct Difference {
  std::string fact;           // name of the fact
  std::string text;           // "class 3 is 'cat', it was 'dog'"
  bool is_told_only = false;  // true: no reason to refuse the data
};

// The differences between the meaning of the data `now` and the stored texts `then`. A fact that only one of the two
// has is a difference. Empty if `then` has no fact at all: an earlier version wrote it, or the data had no meaning.
std::vector<Difference> differences(const data::Meaning& now, const TextMap& then);

// Joins the texts in one line, and splits the line again.
std::string to_line(const TextMap& texts);
TextMap from_line(const std::string& line);

bool has_meaning(const TextMap& options);

}  // namespace reigen::train
