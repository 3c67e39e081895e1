// The folder of the sources. A source that has its path as a macro is compiled anew in every checkout, so only one
// small file has it.
#pragma once

namespace reigen::tests {

extern const char* const kSourceFolder;

}  // namespace reigen::tests
