// What this machine has for training on GPUs, and what is missing. `reigen devices` prints this for people; ranks do
// not use it.
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reigen::device {

struct Gpu {
  int index = 0;  // among the visible GPUs
  std::string name = {};
  std::string bus = {};           // "0000:3b:00.0"
  std::string capability = {};    // "9.0"
  std::uint64_t bytes = 0;        // size of its memory
  int processors = 0;             // streaming multiprocessors
  std::string mode = {};          // "shared", "one process at a time" or "prohibited"
  std::vector<int> reaches = {};  // the other visible GPUs whose memory its kernels can use
};

struct Found {
  std::string runtime = {};  // the CUDA version of the runtime, "13.0"; empty if there is no runtime
  std::string driver = {};   // the newest CUDA version that the driver runs; empty if there is no driver
  std::string kernels = {};  // the path of the plug-in; empty if there is no plug-in
  std::vector<Gpu> gpus = {};
  bool has_mps = false;                   // a daemon of MPS serves this user
  std::vector<std::string> missing = {};  // what prevents ranks from using GPUs, each with its fix
};

// Asks the libraries, each of which may be missing. Makes no CUDA context. Throws nothing but std::bad_alloc.
Found look();

}  // namespace reigen::device
