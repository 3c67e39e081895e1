// Tells the processor that this thread spins, so that it saves power and leaves the memory bus alone. One file for each
// processor; CMake picks.
#pragma once

namespace reigen::comm {

void pause_processor();

}  // namespace reigen::comm
