// Lists the files that a reader of a folder took, and those that it passed over, so that nobody trains on less or more
// data than intended.
// Thread rule: a value, freely copied between threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reigen::data {

struct PassedOver {
  std::string reason;                      // "hidden", "of another ending"
  std::int64_t count = 0;                  // files, and folders whose content was not read
  std::vector<std::string> examples = {};  // the first few different names or endings
};

struct Taken {
  std::int64_t files = 0;
  std::vector<PassedOver> passed_over;  // in the order in which they were found

  void pass_over(std::string_view reason, const std::string& example);
  void add(const Taken& other);

  // As text: "120 files; passed over 2 hidden: .git, .DS_Store; 1 of another ending: .webp"
  std::string text() const;
};

}  // namespace reigen::data
