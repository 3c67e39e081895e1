// The subcommands of `reigen data`. Each gets the arguments after its name and returns the exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "reigen/container/container.h"
#include "reigen_commands.h"

namespace reigen::apps::data {

int command(const Arguments& arguments);  // `reigen data`, with the word of a subcommand first
int pack(const Arguments& arguments);
int inspect(const Arguments& arguments);
int verify(const Arguments& arguments);
int index(const Arguments& arguments);
int bench(const Arguments& arguments);

// The options that say how a container is read.
struct SourceOptions {
  std::vector<std::string> fields;
  std::int64_t label_offset = 0;
  std::string labels;

  void add_to(CLI::App& app);
  // Throws InvalidArgument with exit code 2 for a field that is not NAME=NAME.
  container::OpenOptions open_options() const;
};

std::string size_text(std::uint64_t bytes);  // "13.7 MB"

}  // namespace reigen::apps::data
