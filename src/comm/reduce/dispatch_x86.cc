#include <cstring>

#include "comm/reduce/reduce.h"

namespace reigen::comm::reduce {

namespace {

struct Choice {
  const char* name;
  Kernel kernel;
};

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
bool has_avx2() { return __builtin_cpu_supports("avx2"); }

Choice choose() {
  if (has_avx512()) return {"avx512", &avx512::run};
  if (has_avx2()) return {"avx2", &avx2::run};
  return {"portable", &portable::run};
}

const Choice& chosen() {
  static const Choice kChoice = choose();
  return kChoice;
}

}  // namespace

void run(const Pass& pass) { chosen().kernel(pass); }

const char* instruction_set() { return chosen().name; }

Kernel kernel_for_test(const char* name) {
  if (std::strcmp(name, "portable") == 0) return &portable::run;
  if (std::strcmp(name, "avx2") == 0 && has_avx2()) return &avx2::run;
  if (std::strcmp(name, "avx512") == 0 && has_avx512()) return &avx512::run;
  return nullptr;
}

}  // namespace reigen::comm::reduce
