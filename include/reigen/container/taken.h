// Lists the files that a reader of a folder took, and those that it passed over, so that nobody trains on less or more
// data than intended.
// Thread rule: these types are values; every thread may have its own copy.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reigen::container {

struct PassedOver {
  std::string reason;                      // why: "hidden", "of another ending"
  std::int64_t count = 0;                  // number of files, and of folders whose content was not read
  std::vector<std::string> examples = {};  // the first few different names or endings
};

struct Taken {
  std::int64_t files = 0;               // number of files that were taken
  std::vector<PassedOver> passed_over;  // in the order in which they were found

  // Counts one more file or folder that was passed over; `example` is its name or its ending.
  void pass_over(std::string_view reason, const std::string& example);
  void add(const Taken& other);  // adds the counts and examples of `other`

  // As text: "120 files; passed over 2 hidden: .git, .DS_Store; 1 of another ending: .webp"
  std::string text() const;
};

}  // namespace reigen::container
