#include "train_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/check.h"
#include "reigen/base/error.h"

namespace reigen::apps {
namespace {

std::string program_beside(const std::string& name, const std::string& what, const std::string& fix) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path program = self.parent_path() / name;
  if (!error && std::filesystem::exists(program, error)) return program.string();
  throw BackendError(
      {.what = what, .got = "no file " + program.string(), .expected = name + " beside reigen", .fix = fix});
}

}  // namespace

std::string path_of_train_program() {
  return program_beside("reigen-train", "the recipes are not there: this build is without LibTorch",
                        "build it with LibTorch: scripts/build");
}

std::string path_of_data_program() {
  return program_beside("reigen-data", "the program of `reigen data` is not there", "build it: scripts/build");
}

void become(std::vector<std::string>& command) {
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  ::execv(words.front(), words.data());
  throw IoError(fmt::format("cannot run {}: {}", command.front(), base::errno_text(errno)),
                base::exit_code_of_errno(errno));
}

}  // namespace reigen::apps
