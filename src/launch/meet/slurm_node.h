// What Slurm knows of a node that the name service does not.
#pragma once

#include <string>

namespace reigen::launch {

// The address of a node as `scontrol show node` tells it (NodeAddr), which is the same on every node; empty where
// scontrol is missing, does not answer within seconds or knows nothing better than the name.
std::string slurm_node_address(const std::string& node);

// NodeAddr of what `scontrol --oneliner show node` printed; empty if there is none.
std::string parse_node_address(const std::string& text);

}  // namespace reigen::launch
