#include "harness/folders.h"

namespace reigen {

const char* const kSourceFolder = REIGEN_SOURCE_FOLDER;

std::string built(const std::string& file) { return std::string(REIGEN_BUILD_FOLDER "/") + file; }

}  // namespace reigen
