// Tells the processor that this thread spins, so that the processor saves power and leaves the memory bus alone. There
// is one source file for each processor family; CMake picks one.
#pragma once

namespace reigen::comm {

void pause_processor();

}  // namespace reigen::comm
