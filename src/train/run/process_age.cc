#include "train/run/process_age.h"

#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace reigen::train {

double process_age_seconds() {
  std::ifstream in("/proc/self/stat");
  const std::string line((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto name_end = line.rfind(')');  // the name may hold spaces
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(line.substr(name_end + 1));
  std::string word;
  constexpr int kStartTime = 20;  // the start time is field 22 of proc(5); `rest` begins with field 3
  for (int field = 0; field < kStartTime; ++field) rest >> word;
  struct timespec now = {};
  if (::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double started = std::strtod(word.c_str(), nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - started;
}

}  // namespace reigen::train
