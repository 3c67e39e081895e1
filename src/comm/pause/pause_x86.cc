#include "comm/pause/pause.h"

namespace reigen::comm {

void pause_processor() { __builtin_ia32_pause(); }

}  // namespace reigen::comm
