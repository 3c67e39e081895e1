#include "device/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <algorithm>
#include <string_view>
#include <system_error>

#include "base/environment.h"
#include "device/plugin_folders.h"
#include "reigen/base/error.h"

namespace reigen::device {

namespace {

std::string last_error() {
  const char* const text = ::dlerror();
  return text != nullptr ? text : "no reason is known";
}

std::string path_of(void* handle, const std::string& otherwise) {
  link_map* map = nullptr;
  const bool known = ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name[0] != '\0';
  return known ? map->l_name : otherwise;
}

// Adds the folder if it exists and is not in the list yet, not even under another name.
void add_folder(std::vector<std::string>& folders, const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return;
  const std::string path = std::filesystem::weakly_canonical(folder, ignored).string();
  if (std::find(folders.begin(), folders.end(), path) == folders.end()) folders.push_back(path);
}

}  // namespace

Library::Library(const LibrarySearch& search) : search_(search) {
  // With RTLD_LOCAL, a program that has its own NCCL or CUDA still calls its own library, and Reigen calls the library
  // that is opened here.
  const int local_or_global = RTLD_NOW | (search.is_global ? RTLD_GLOBAL : RTLD_LOCAL);
  const auto open = [&](const std::string& file, int how) {
    handle_ = ::dlopen(file.c_str(), how);
    if (handle_ != nullptr) path_ = path_of(handle_, file);
    return handle_ != nullptr;
  };
  for (const std::string& file : search.files) {
    if (open(file, local_or_global | RTLD_NOLOAD)) return;
  }
  std::vector<std::string> reasons;
  for (const std::string& file : search.files) {
    if (open(file, local_or_global)) return;
    reasons.push_back(last_error());
  }
  for (const std::string& folder : search.folders) {
    for (const std::string& file : search.files) {
      const std::filesystem::path path = std::filesystem::path(folder) / file;
      std::error_code ignored;
      if (!std::filesystem::exists(path, ignored)) continue;
      if (open(path.string(), local_or_global)) return;
      reasons.push_back(last_error());  // the file exists but cannot be used: the error gives this reason only
    }
  }
  throw BackendError(
      Report{.what = fmt::format("a GPU needs {}, which could not be opened", search.name),
             .got = reasons.size() > search.files.size() ? reasons.back() : fmt::format("{}", fmt::join(reasons, "; ")),
             .expected = fmt::format("{} where the dynamic linker looks{}{}", fmt::join(search.files, " or "),
                                     search.folders.empty() ? "" : ", or in ", fmt::join(search.folders, ", ")),
             .fix = search.fix});
}

void* Library::address_of(const char* symbol) const {
  void* const address = ::dlsym(handle_, symbol);
  if (address != nullptr) return address;
  throw BackendError(Report{.what = fmt::format("{}: too old", search_.name),
                            .got = fmt::format("{}, which has no function {}", path_, symbol),
                            .expected = {},
                            .fix = search_.fix});
}

std::vector<std::string> folders_beside(const std::filesystem::path& library) {
  std::vector<std::string> folders;
  add_folder(folders, library.parent_path());
  std::error_code none;
  const std::filesystem::path vendor = library.parent_path().parent_path().parent_path() / "nvidia";
  std::vector<std::filesystem::path> parts;
  for (std::filesystem::directory_iterator at(vendor, none), end; !none && at != end; at.increment(none)) {
    parts.push_back(at->path() / "lib");
  }
  std::sort(parts.begin(), parts.end());  // a directory's entries come in any order
  for (const auto& part : parts) add_folder(folders, part);
  return folders;
}

std::vector<std::string> folders_beside_torch() {
  std::string library;
  const auto look = [](dl_phdr_info* info, std::size_t, void* found) {
    const std::string_view name = info->dlpi_name;
    if (!name.ends_with("/libtorch_cpu.so")) return 0;
    *static_cast<std::string*>(found) = name;
    return 1;
  };
  ::dl_iterate_phdr(look, &library);
  return library.empty() ? std::vector<std::string>() : folders_beside(library);
}

std::vector<std::string> library_folders(std::initializer_list<const char*> variables) {
  std::vector<std::string> folders;
  const auto add = [&](const std::string& folder) {
    if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(folder);
  };
  for (const char* variable : variables) {
    const auto folder = base::get_environment(variable);
    if (!folder) continue;
    add(*folder + "/lib64");
    add(*folder + "/lib");
  }
  for (const std::string& folder : folders_beside_torch()) add(folder);
  add("/usr/local/cuda/lib64");
  return folders;
}

std::vector<std::string> plugin_folders() {
  std::vector<std::string> all;
  std::error_code none;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", none);
  if (!none) all.push_back((program.parent_path().parent_path() / "lib").string());
  all.emplace_back(kBuildPluginFolder);
  all.emplace_back(kInstalledPluginFolder);
  return all;
}

Library open_plugin(const PluginSearch& search) {
  Library plugin(
      {.name = "Reigen's " + search.name, .files = {search.file}, .folders = plugin_folders(), .fix = search.fix});
  int (*version)() = nullptr;
  plugin.find(version, search.version_symbol);
  if (version() != search.version) {
    throw BackendError(Report{.what = fmt::format("the {} belongs to another version of Reigen", search.name),
                              .got = fmt::format("{} in {}", version(), plugin.path()),
                              .expected = fmt::format("{}", search.version),
                              .fix = search.fix});
  }
  return plugin;
}

}  // namespace reigen::device
