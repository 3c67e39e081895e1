#include "harness/source_folder.h"

namespace reigen::tests {

const char* const kSourceFolder = REIGEN_SOURCE_FOLDER;

}  // namespace reigen::tests
