// An autograd engine for one thread. LibTorch's usual engine has one backward thread for each GPU of the process. A
// thread that calls use_own_engine() gets an engine, and so backward threads, of its own.
// Thread rule: any thread.
#pragma once

namespace reigen::tensor {

// From now on, backward() called from this thread runs in an engine that no other thread uses. The engine lives until
// the thread ends. Call it outside of a backward. A second call does nothing.
void use_own_engine();

// Whether this thread, or the thread whose backward runs on this thread, has called use_own_engine().
bool has_own_engine();

}  // namespace reigen::tensor
