// The meaning of a run's data, such as the names of its classes, in the form that checkpoints and model files store.
// One piece of the meaning is a fact (data/meaning.h).
// Thread rule: no shared state.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "reigen/data/meaning.h"

namespace reigen::train {

using TextMap = std::map<std::string, std::string>;

// Returns one text for each fact: the key is "meaning.<name>", and the text is a JSON list of the fact's values. A
// backslash is written as \\, and bytes that are not UTF-8 as \xE9.
TextMap to_text(const data::Meaning& meaning);

// The values of a fact, from its text: the opposite of to_text().
std::vector<std::string> values_of(const std::string& text);

struct Difference {
  std::string fact;           // name of the fact
  std::string text;           // "class 3 is 'cat', it was 'dog'"
  bool is_told_only = false;  // if true, the user is told, and the data are not refused
};

// The differences between the meaning of the data `now` and the stored texts `then`. A fact that is only in `now` or
// only in `then` is a difference. The result is empty if `then` has no fact at all, because an earlier version wrote
// `then` or the data had no meaning.
std::vector<Difference> differences(const data::Meaning& now, const TextMap& then);

// to_line() joins the texts in one line. from_line() splits the line again.
std::string to_line(const TextMap& texts);
TextMap from_line(const std::string& line);

bool has_meaning(const TextMap& options);

}  // namespace reigen::train
