// torch::save and torch::load, for scripts/compare/damage: shows which damage LibTorch's own archives notice.
//   torch_load save FILE SEED COUNT...   writes a vector of float tensors of these sizes
//   torch_load serve                     reads paths from standard input; prints "read HASH" or "refused WHY" for each
#include <torch/torch.h>

#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "reigen/format/hash.h"

namespace {

std::uint64_t hash_of(const std::vector<at::Tensor>& tensors) {
  std::uint64_t hash = 0;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor values = tensor.contiguous();
    const std::string shape = values.toString() + c10::str(values.sizes());
    hash = reigen::format::hash64(shape.data(), shape.size(), hash);
    hash = reigen::format::hash64(values.const_data_ptr(), values.nbytes(), hash);
  }
  return hash;
}

int save(const std::string& path, std::uint64_t seed, const std::vector<std::int64_t>& counts) {
  torch::manual_seed(seed);
  std::vector<at::Tensor> tensors;
  for (const std::int64_t count : counts) tensors.push_back(torch::randn({count}));
  torch::save(tensors, path);
  return 0;
}

int serve() {
  for (std::string path; std::getline(std::cin, path);) {
    try {
      std::vector<at::Tensor> tensors;
      torch::load(tensors, path);
      std::cout << "read " << hash_of(tensors) << "\n" << std::flush;
    } catch (const std::exception& error) {
      const std::string_view what = error.what();
      std::cout << "refused " << what.substr(0, what.find('\n')) << "\n" << std::flush;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() >= 4 && words[0] == "save") {
    std::vector<std::int64_t> counts;
    for (std::size_t i = 3; i < words.size(); ++i) counts.push_back(std::stoll(words[i]));
    return save(words[1], std::stoull(words[2]), counts);
  }
  if (words.size() == 1 && words[0] == "serve") return serve();
  std::cerr << "torch_load save FILE SEED COUNT... | torch_load serve\n";
  return 64;
}
