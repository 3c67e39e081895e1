#include "comm/pause/pause.h"

namespace reigen::comm {

void pause_processor() {}

}  // namespace reigen::comm
