// The command `generate` of reigen-train: continues a text with a trained decoder.
// Thread rule: call from main().
#pragma once

#include <string>
#include <vector>

namespace reigen::apps {

// Returns the exit code. Errors are printed.
int generate_text(const std::vector<std::string>& arguments);

}  // namespace reigen::apps
