// The options of `reigen data pack` that change pictures: smaller JPEG files, or pixels of one size.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "reigen/container/container.h"
#include "reigen/container/pack.h"
#include "reigen/image/picture.h"

namespace reigen::apps::data {

class RecodeOptions {
 public:
  void add_to(CLI::App& app);
  // Sets recode and recoded of the options. Does nothing if no option was given. Throws InvalidArgument with exit code
  // 2 for options that contradict each other or are out of range, and with 78 for a source without pictures.
  void apply(const container::Reader& source, container::PackOptions& options) const;

 private:
  void check() const;

  int shorter_ = 0;  // 0: not given, as for all of these
  int longest_ = 0;
  int quality_ = 0;
  std::string raw_;
};

// "224" or "256x192". Throws InvalidArgument with exit code 2 unless both sides are 1 to 65,500.
image::Size parse_size(const std::string& text, const std::string& option);

}  // namespace reigen::apps::data
