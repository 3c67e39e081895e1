#include "comm/pause/pause.h"

namespace reigen::comm {

void pause_processor() { asm volatile("yield"); }

}  // namespace reigen::comm
