#include "comm/pause.h"

namespace reigen::comm {

void pause_processor() {}

}  // namespace reigen::comm
