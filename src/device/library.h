// A shared library that is opened when it is first needed, so that programs also start where it is missing.
// Thread rule: values, freely copied between threads. An opened library remains loaded until the process ends.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

namespace reigen::device {

struct LibrarySearch {
  std::string name;                  // as users know it: "NCCL"
  std::vector<std::string> files;    // its file names, the best first: "libnccl.so.2"
  std::vector<std::string> folders;  // searched after the folders that the dynamic linker knows
  std::string fix;                   // what to install
  // Whether libraries that are loaded later may use its symbols.
  bool is_global = false;
};

class Library {
 public:
  // Takes the library that the process has loaded already; else the one that the dynamic linker finds; else the one in
  // search.folders. Throws a BackendError with exit code 69 and the dynamic linker's error text if there is none.
  explicit Library(const LibrarySearch& search);

  // The path of the file that was opened.
  const std::string& path() const { return path_; }

  // The library's function with the given name. Throws BackendError if the library has no such function, because it is
  // too old.
  template <typename Function>
  void find(Function& function, const char* symbol) const {
    function = reinterpret_cast<Function>(address_of(symbol));
  }

 private:
  void* address_of(const char* symbol) const;

  const LibrarySearch search_;
  void* handle_ = nullptr;
  std::string path_;
};

// The folders to search, each once: lib64/ and lib/ below the folders that these environment variables name, then
// folders_beside_torch(), then the usual folder of CUDA.
std::vector<std::string> library_folders(std::initializer_list<const char*> variables);

// The folders in which Reigen's own plug-ins may lie: lib/ beside the program's folder, as in an installation; the lib/
// of the build; the folder into which this build is installed.
std::vector<std::string> plugin_folders();

// One of Reigen's own plug-ins.
struct PluginSearch {
  std::string name;            // as users know it, after "Reigen's": "plug-in of kernels"
  std::string file;            // "libreigen_cuda.so"
  const char* version_symbol;  // its function without arguments that returns its version
  int version;                 // the version that this program needs
  std::string fix;             // what to build or install
};
// Opens a plug-in from plugin_folders(). Throws as Library does, and BackendError if the plug-in has another version.
Library open_plugin(const PluginSearch& search);

// The folders in which a Python installation keeps LibTorch and the libraries that it needs: site-packages/torch/lib,
// then site-packages/nvidia/*/lib. `library`: the path of one of LibTorch's own libraries there.
std::vector<std::string> folders_beside(const std::filesystem::path& library);

// The same for the LibTorch of this process; empty when the process has not loaded LibTorch.
std::vector<std::string> folders_beside_torch();

}  // namespace reigen::device
