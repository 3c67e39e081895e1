// What the numbers of a run's data stand for (data/meaning.h), as checkpoints and models keep it.
// Thread rule: no shared state.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "reigen/data/meaning.h"

namespace reigen::train {

using TextMap = std::map<std::string, std::string>;

// "meaning.<name>" = a list of JSON for each fact. A backslash is written \\, and bytes that are no UTF-8 \xE9.
TextMap to_text(const data::Meaning& meaning);

struct Difference {
  std::string fact;           // its name
  std::string text;           // "class 3 is 'cat', it was 'dog'"
  bool is_told_only = false;  // no reason to refuse the data
};

// What the data of now say otherwise than the texts of then; a fact that only one of the two has counts. Nothing where
// `then` has no fact at all: an earlier version wrote it, or the data did not say.
std::vector<Difference> differences(const data::Meaning& now, const TextMap& then);

// The texts as one, and back.
std::string to_line(const TextMap& texts);
TextMap from_line(const std::string& line);

bool has_meaning(const TextMap& options);

}  // namespace reigen::train
