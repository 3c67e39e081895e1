// The text of Reigen's own documents, which CMake writes into a source file.
#pragma once

#include <string_view>

namespace reigen::data {

std::string_view documents();

}  // namespace reigen::data
