// A shared library that is opened when it is first needed, so that programs start where it is missing.
// Thread rule: none, values; an opened library stays until the process ends.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

namespace reigen::device {

struct LibrarySearch {
  std::string name;                  // as users know it: "NCCL"
  std::vector<std::string> files;    // its names, the best first: "libnccl.so.2"
  std::vector<std::string> folders;  // beside those that the dynamic linker knows
  std::string fix;                   // what to install
};

class Library {
 public:
  // Takes one that the process has already, then what the dynamic linker finds, then what lies in the folders. Throws
  // BackendError (69) with the dynamic linker's own words.
  explicit Library(const LibrarySearch& search);

  // The file that was opened.
  const std::string& path() const { return path_; }

  // Throws BackendError when the library has no such function: it is too old.
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

// Folders to look in: lib64/ and lib/ below what these variables of the environment name, LibTorch's own, and where
// CUDA lies if nobody says; each once.
std::vector<std::string> library_folders(std::initializer_list<const char*> variables);

// Where a Python installation keeps the libraries that its LibTorch needs, seen from one of LibTorch's own:
// site-packages/torch/lib, then site-packages/nvidia/*/lib.
std::vector<std::string> folders_beside(const std::filesystem::path& library);

// The same for the LibTorch of this process; empty when it has none.
std::vector<std::string> folders_beside_torch();

}  // namespace reigen::device
