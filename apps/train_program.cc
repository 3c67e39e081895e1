#include "train_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/check.h"
#include "reigen/base/error.h"

namespace reigen::apps {

std::string path_of_train_program() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path program = self.parent_path() / "reigen-train";
  if (!error && std::filesystem::exists(program, error)) return program.string();
  throw BackendError({.what = "the recipes are not there: this build is without LibTorch",
                      .got = "no file " + program.string(),
                      .expected = "reigen-train beside reigen",
                      .fix = "build it with LibTorch: scripts/build"});
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
