#include "parallel/model_check.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <sstream>

#include "base/hash.h"
#include "reigen/base/error.h"

namespace reigen::parallel {
namespace {

std::string describe(const char* kind, const std::string& name, const at::Tensor& tensor, bool frozen) {
  std::ostringstream text;
  text << kind << ' ' << name << ": " << c10::toString(tensor.scalar_type()) << ' ' << tensor.sizes();
  if (frozen) text << " frozen";
  return text.str();
}

std::vector<std::string> split_lines(const char* text, std::size_t size) {
  std::vector<std::string> lines;
  std::istringstream stream(std::string(text, size));
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

[[noreturn]] void report(const std::vector<std::string>& reference, const std::vector<std::string>& other, int rank,
                         const std::string& what) {
  std::size_t i = 0;
  while (i < reference.size() && i < other.size() && reference[i] == other[i]) ++i;
  const auto line = [&](const std::vector<std::string>& lines, int who) {
    return fmt::format("rank {}: {}", who, i < lines.size() ? lines[i] : "nothing, it has fewer");
  };
  throw InvalidArgument(Report{.what = what,
                               .got = line(other, rank),
                               .expected = line(reference, 0),
                               .fix = "build the same, in the same order and with the same options, on every rank"});
}

}  // namespace

std::vector<std::string> describe_model(const torch::nn::Module& module) {
  std::vector<std::string> lines;
  const auto parameters = module.named_parameters();
  for (const auto& entry : parameters) {
    lines.push_back(describe("parameter", entry.key(), entry.value(), !entry.value().requires_grad()));
  }
  const auto buffers = module.named_buffers();
  for (const auto& entry : buffers) lines.push_back(describe("buffer", entry.key(), entry.value(), false));
  return lines;
}

void check_equal_on_all_ranks(const std::vector<std::string>& lines, Communicator& world, const char* who,
                              const char* what) {
  if (world.size() == 1) return;
  const auto ranks = static_cast<std::size_t>(world.size());
  std::string text;
  for (const std::string& line : lines) text += line + "\n";

  using Digest = std::array<std::uint64_t, 2>;
  const Digest mine{base::fnv1a(text), text.size()};
  std::vector<Digest> digests(ranks);
  world.all_gather(mine.data(), digests.data(), sizeof(Digest), DataType::kUint8, {.tag = "compare models"});
  if (std::all_of(digests.begin(), digests.end(), [&](const Digest& one) { return one == digests[0]; })) return;

  std::size_t longest = 0;
  for (const Digest& one : digests) longest = std::max<std::size_t>(longest, one[1]);
  text.resize(longest);
  std::string texts(longest * ranks, '\0');
  world.all_gather(text.data(), texts.data(), longest, DataType::kUint8, {.tag = "compare models in full"});
  const std::vector<std::string> reference = split_lines(texts.data(), digests[0][1]);
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    if (digests[rank] == digests[0]) continue;
    report(reference, split_lines(texts.data() + rank * longest, digests[rank][1]), static_cast<int>(rank),
           fmt::format("[{}] {} between rank 0 and rank {} of {}", who, what, rank, world.size()));
  }
}

}  // namespace reigen::parallel
