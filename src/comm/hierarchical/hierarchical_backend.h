// Ranks on several machines: shared memory inside a machine, a network between.
#pragma once

#include <memory>

#include "comm/backend.h"

namespace reigen::comm::hierarchical {

// Of the ranks as they lie, one or several on a machine.
std::unique_ptr<Backend> make_backend(const GroupOptions& options);

// "auto": shared memory where all ranks are on one machine, the network where no two are, both elsewhere.
std::unique_ptr<Backend> make_automatic(const GroupOptions& options);

}  // namespace reigen::comm::hierarchical
