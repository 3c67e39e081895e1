// Which known word somebody probably meant.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace reigen::base {

// Levenshtein's: insertions, deletions and replacements that turn one word into the other.
std::size_t edit_distance(const std::string& a, const std::string& b);

// The known word that `word` most probably means, empty if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

}  // namespace reigen::base
