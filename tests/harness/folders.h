// The folders of the sources and of the build. A source that has such a path as a macro is compiled anew in every
// checkout, so only one small file has them.
#pragma once

#include <string>

namespace reigen {

extern const char* const kSourceFolder;

// The path of a file below the build folder: built("bin/reigen").
std::string built(const std::string& file);

}  // namespace reigen
