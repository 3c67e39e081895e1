#include "comm/pause.h"

namespace reigen::comm {

void pause_processor() { asm volatile("yield"); }

}  // namespace reigen::comm
