#include <cstring>

#include "comm/reduce/reduce.h"

namespace reigen::comm::reduce {

namespace {

struct Choice {
  const char* name;
  Kernel kernel;
  Copy copy_streaming;
};

constexpr Choice kPortable{"portable", &portable::run, &portable::copy_streaming};
constexpr Choice kAvx2{"avx2", &avx2::run, &avx2::copy_streaming};
constexpr Choice kAvx512{"avx512", &avx512::run, &avx512::copy_streaming};

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
bool has_avx2() { return __builtin_cpu_supports("avx2"); }

const Choice& chosen() {
  static const Choice kChoice = has_avx512() ? kAvx512 : has_avx2() ? kAvx2 : kPortable;
  return kChoice;
}

const Choice* choice_for_test(const char* name) {
  if (std::strcmp(name, "portable") == 0) return &kPortable;
  if (std::strcmp(name, "avx2") == 0 && has_avx2()) return &kAvx2;
  if (std::strcmp(name, "avx512") == 0 && has_avx512()) return &kAvx512;
  return nullptr;
}

}  // namespace

void run(const Pass& pass) { chosen().kernel(pass); }

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) {
  chosen().copy_streaming(to, from, bytes);
}

const char* instruction_set() { return chosen().name; }

Kernel kernel_for_test(const char* name) {
  const Choice* const choice = choice_for_test(name);
  return choice == nullptr ? nullptr : choice->kernel;
}

Copy streaming_copy_for_test(const char* name) {
  const Choice* const choice = choice_for_test(name);
  return choice == nullptr ? nullptr : choice->copy_streaming;
}

}  // namespace reigen::comm::reduce
