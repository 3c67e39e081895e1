// SIGINT and SIGTERM as a wish to stop that the training loop sees after its step.
// Thread rule: any thread may ask.
#pragma once

namespace reigen::train {

// From here on the first SIGINT or SIGTERM is a wish; the second ends the process as if nothing had been installed.
void install_stop_handlers();

bool stop_requested();

}  // namespace reigen::train
