#include "format/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <string_view>

#include "format/utf8.h"
#include "reigen/format/safetensors.h"

namespace reigen::format {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kBegin = 1024;  // bytes that are looked at; a tar file has its mark at byte 257
constexpr std::size_t kTarMarkAt = 257;
constexpr std::size_t kShownText = 60;

constexpr const char* kFetchFile =
    "fetch the file itself: on Hugging Face the link with /resolve/ and not /blob/, with a token where it asks for one";
constexpr const char* kFromPython =
    "load it in Python with what wrote it, and write its tensors with safetensors.torch.save_file(tensors, path)";
constexpr const char* kFromPickle =
    "in Python, if you trust the file: torch.save({name: torch.as_tensor(array) ...}, path) of what pickle.load gives";
constexpr const char* kWriteAgain =
    "in Python, with PyTorch >= 1.6: torch.save(torch.load(path, map_location='cpu'), new_path)";
constexpr const char* kWriteTarAgain =
    "in Python, if you trust the file: torch.save(torch.load(path, map_location='cpu', weights_only=False), new_path)";

struct Mark {
  std::string_view bytes;
  std::size_t at;
  const char* name;
  const char* fix;
};

constexpr const char* kGiveWeights = "give the path of a file of weights";
constexpr Mark kMarks[] = {
    {"\x93NUMPY"sv, 0, "a NumPy array (.npy)",
     "in Python: safetensors.numpy.save_file({'name': numpy.load(path)}, new_path)"},
    {"\x89HDF\r\n\x1a\n"sv, 0, "an HDF5 file, as Keras writes its weights (.h5)", kFromPython},
    {"GGUF"sv, 0, "a GGUF file of llama.cpp",
     "take the safetensors files that it was made of, or convert it in Python with the package gguf"},
    {"fmgg"sv, 0, "an old file of llama.cpp (GGML)", "take the safetensors files that it was made of"},
    {"tjgg"sv, 0, "an old file of llama.cpp (GGML)", "take the safetensors files that it was made of"},
    {"lmgg"sv, 0, "an old file of llama.cpp (GGML)", "take the safetensors files that it was made of"},
    {"TFL3"sv, 4, "a model of TensorFlow Lite", kFromPython},
    {"\x1f\x8b"sv, 0, "a gzip file", "unpack it first: gunzip, or tar -xzf where it holds several files"},
    {"\x28\xb5\x2f\xfd"sv, 0, "a zstd file", "unpack it first: unzstd"},
    {"\xfd"
     "7zXZ\0"sv,
     0, "an xz file", "unpack it first: unxz, or tar -xJf where it holds several files"},
    {"\x04\x22\x4d\x18"sv, 0, "an lz4 file", "unpack it first: unlz4"},
    {"BZh"sv, 0, "a bzip2 file", "unpack it first: bunzip2, or tar -xjf where it holds several files"},
    {"7z\xbc\xaf\x27\x1c"sv, 0, "a 7-Zip archive", "unpack it first, and give the path of the file in it"},
    {"Rar!\x1a"sv, 0, "a RAR archive", "unpack it first, and give the path of the file in it"},
    {"PAR1"sv, 0, "a Parquet file, a table of data", kGiveWeights},
    {"ARROW1"sv, 0, "an Arrow file, a table of data", kGiveWeights},
    {"SQLite format 3"sv, 0, "an SQLite database", kGiveWeights},
    {"MATLAB 5.0 MAT-file"sv, 0, "a MATLAB file",
     "in Python: safetensors.numpy.save_file of the arrays that scipy.io.loadmat gives"},
    {"\x89PNG\r\n"sv, 0, "a PNG picture", kGiveWeights},
    {"\xff\xd8\xff"sv, 0, "a JPEG picture", kGiveWeights},
    {"%PDF-"sv, 0, "a PDF document", kGiveWeights},
    {"\x7f"
     "ELF"sv,
     0, "a program or library (ELF)", kGiveWeights},
    {"model_checkpoint_path:"sv, 0, "the list of a TensorFlow checkpoint", kFromPython},
    {"\x08\x01\x12"sv, 0, "a SavedModel of TensorFlow", kFromPython},
};

std::string beginning_of(const InputFile& file) {
  std::string begin(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), kBegin)), '\0');
  begin.resize(file.read_at(0, std::as_writable_bytes(std::span(begin.data(), begin.size()))));
  return begin;
}

std::string_view without_space(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const auto first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

bool begins_with(std::string_view text, std::string_view lower_case) {
  return text.size() >= lower_case.size() &&
         std::equal(lower_case.begin(), lower_case.end(), text.begin(),
                    [](char a, char b) { return a == static_cast<char>(std::tolower(static_cast<unsigned char>(b))); });
}

bool is_text(std::string_view begin) {
  return !begin.empty() && is_utf8(without_cut_character(begin)) &&
         std::none_of(begin.begin(), begin.end(), [](char c) {
           const bool space = c == '\n' || c == '\r' || c == '\t';
           return !space && (c == '\x7f' || static_cast<unsigned char>(c) < ' ');
         });
}

std::string shown(std::string_view text) {
  std::string line(text.substr(0, kShownText));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c < ' ' || c > '~'; }, ' ');
  return text.size() > kShownText ? line + "..." : line;
}

std::string size_in_pointer(std::string_view text) {
  const auto at = text.find("\nsize ");
  if (at == std::string_view::npos) return {};
  const std::string_view digits = text.substr(at + 6);
  const auto end = digits.find_first_not_of("0123456789");
  return end == 0 || end > 19 ? std::string()
                              : fmt::format(", which stands for a file of {} bytes", digits.substr(0, end));
}

std::optional<FileKind> kind_of_text(std::string_view begin) {
  const std::string_view text = without_space(begin);
  if (text.starts_with("version https://git-lfs.github.com/spec/")) {
    return FileKind{fmt::format("a pointer of Git LFS{}", size_in_pointer(text)),
                    "fetch the file itself: `git lfs install && git lfs pull` in the clone"};
  }
  if (begins_with(text, "<!doctype html") || begins_with(text, "<html") || begins_with(text, "<head")) {
    return FileKind{"a web page", kFetchFile};
  }
  if (begins_with(text, "<?xml")) return FileKind{"an XML text, as a server sends in place of a file", kFetchFile};
  const bool json = text.starts_with("{") || text.starts_with("[");
  if (!is_text(begin)) return std::nullopt;
  if (json && text.find("\"weight_map\"") != std::string_view::npos) {
    return FileKind{"the index of a model in several files", "name it *.index.json, beside the files that it names"};
  }
  if (json) return FileKind{fmt::format("a JSON text: {}", shown(text)), kFetchFile};
  return FileKind{fmt::format("a text: {}", shown(text)), kFetchFile};
}

std::optional<FileKind> kind_of_tar(std::string_view begin) {
  if (begin.size() <= kTarMarkAt || !begin.substr(kTarMarkAt).starts_with("ustar")) return std::nullopt;
  const std::string first(begin.substr(0, begin.substr(0, 100).find('\0')));
  for (const char* known : {"sys_info", "pickle", "storages", "tensors"}) {
    if (first == known) return FileKind{"a tar file, as PyTorch before 0.1.10 wrote it", kWriteTarAgain};
  }
  return FileKind{first.empty() ? "a tar file" : fmt::format("a tar file with '{}'", shown(first)),
                  "unpack it first (tar -xf), and give the path of the file in it; one of PyTorch before 0.1.10: " +
                      std::string(kWriteTarAgain)};
}

// An ONNX model is a protobuf. It begins with field 1, ir_version. Then follows field 2, the name of the program that
// wrote the model, which is text.
bool is_onnx(std::string_view begin) {
  if (begin.size() < 8 || begin[0] != '\x08' || begin[1] < 3 || begin[1] > 30 || begin[2] != '\x12') return false;
  const auto length = static_cast<unsigned char>(begin[3]);
  return length >= 2 && length < 64 && is_text(begin.substr(4, length));
}

std::optional<FileKind> kind_of_pickle(std::string_view begin) {
  if (begin.size() < 2 || begin[0] != '\x80' || begin[1] < 1 || begin[1] > 5) return std::nullopt;
  // The magic number of torch.save, 0x1950a86a20f9469cfc6c, is the first of several pickles in a file of PyTorch before
  // 1.6.
  if (begin.find("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv) <= 16) {
    return FileKind{"a bare pickle, as PyTorch before 1.6 wrote it", kWriteAgain};
  }
  return FileKind{"a bare pickle, as PyTorch before 1.6, pickle.dump or joblib wrote it",
                  fmt::format("one of PyTorch: {}; another, {}", kWriteAgain, kFromPickle)};
}

// The index of a TensorFlow checkpoint is a LevelDB table, which has its magic number at its end.
bool is_tensorflow_index(const InputFile& file) {
  std::array<char, 8> end{};
  if (file.size() < 48) return false;
  const std::size_t got = file.read_at(file.size() - end.size(), std::as_writable_bytes(std::span(end)));
  return std::string_view(end.data(), got) == "\x57\xfb\x80\x8b\x24\x75\x47\xdb"sv;
}

bool is_tensorflow_data(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  const auto at = name.rfind(".data-");
  return at != std::string::npos && name.find("-of-", at) != std::string::npos;
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace

bool begins_as_zip(const InputFile& file) {
  std::array<char, 4> begin{};
  const std::size_t got = file.read_at(0, std::as_writable_bytes(std::span(begin)));
  return std::string_view(begin.data(), got) == "PK\x03\x04"sv;
}

// A safetensors file whose header length is 384, 640, 65920, ... bytes begins like a pickle. But no pickle continues
// with the other bytes of such a length and "{", so begins_as_safetensors() distinguishes the two kinds of file.
bool begins_as_pickle(const InputFile& file) {
  return !begins_as_safetensors(file) && kind_of_pickle(beginning_of(file)).has_value();
}

bool begins_as_safetensors(const InputFile& file) {
  std::array<char, 9> begin{};
  if (file.read_at(0, std::as_writable_bytes(std::span(begin))) != begin.size()) return false;
  std::uint64_t length = 0;
  std::memcpy(&length, begin.data(), sizeof length);
  return begin[8] == '{' && length <= kMaxSafetensorsHeader && length >= 2;
}

std::optional<FileKind> kind_of_file(const InputFile& file) {
  const std::string begin = beginning_of(file);
  if (begin.empty()) return FileKind{"an empty file", "fetch it again, or write it again"};
  if (begin.starts_with("PK\x03\x04") || begins_as_safetensors(file)) return std::nullopt;
  if (std::all_of(begin.begin(), begin.end(), [](char c) { return c == '\0'; }) && begin.size() >= 16) {
    return FileKind{"zero bytes, as a download or a disk leaves where data is missing", "fetch the file again"};
  }
  for (const Mark& mark : kMarks) {
    if (begin.size() > mark.at && std::string_view(begin).substr(mark.at).starts_with(mark.bytes)) {
      return FileKind{mark.name, mark.fix};
    }
  }
  if (is_onnx(begin)) return FileKind{"an ONNX model", "in Python: the arrays of onnx.load(path).graph.initializer"};
  if (auto kind = kind_of_tar(begin)) return kind;
  if (auto kind = kind_of_pickle(begin)) return kind;
  if (is_tensorflow_index(file)) return FileKind{"the index of a TensorFlow checkpoint", kFromPython};
  if (is_tensorflow_data(file.path())) return FileKind{"the data of a TensorFlow checkpoint", kFromPython};
  if (file.path().ends_with(".msgpack")) return FileKind{"a checkpoint of Flax (msgpack)", kFromPython};
  return kind_of_text(begin);
}

std::optional<FileKind> kind_of_archive(std::span<const ZipRecord> records) {
  const auto any = [&](auto&& fits) {
    return std::any_of(records.begin(), records.end(), [&](const ZipRecord& record) { return fits(record.name); });
  };
  const auto has = [&](std::string_view name) { return any([&](const std::string& it) { return it == name; }); };
  const auto has_end = [&](std::string_view end) {
    return any([&](const std::string& it) { return it.ends_with(end); });
  };
  if (records.empty()) return FileKind{"a zip file without records", "fetch it again"};
  if (std::all_of(records.begin(), records.end(), [](const auto& record) { return record.name.ends_with(".npy"); })) {
    return FileKind{"arrays of NumPy (.npz)",
                    "in Python: safetensors.numpy.save_file(dict(numpy.load(path)), new_path)"};
  }
  if (has("model.weights.h5") || has("_variables.weights.h5"))
    return FileKind{"a model of Keras (.keras)", kFromPython};
  if (has_end("serialized_exported_program.json") || has_end("archive_format") || has_end("models/model.json")) {
    return FileKind{"a program of torch.export (.pt2)",
                    "in Python: torch.save(torch.export.load(path).state_dict, new_path)"};
  }
  if (has_end(".data/extern_modules")) {
    return FileKind{"a package of torch.package",
                    "in Python: load its model, then torch.save(model.state_dict(), path)"};
  }
  if (has_end("/model.json") || has("model.json")) {
    return FileKind{
        "a TorchScript program of PyTorch before 1.4",
        "in Python: torch.jit.save(torch.jit.load(path), new_path); in C++: torch::jit::load(path).save(new_path)"};
  }
  if (has("MAR-INF/MANIFEST.json"))
    return FileKind{"an archive of TorchServe (.mar)", "unzip it, and give its weights"};
  if (has("[Content_Types].xml")) return FileKind{"an Office document", kGiveWeights};
  for (const ZipRecord& record : records) {
    if (!ends_with_any(record.name, {".pt", ".pth", ".bin", ".safetensors", ".ckpt"})) continue;
    return FileKind{fmt::format("a zip file with '{}' in it", shown(record.name)),
                    "unzip it first, and give the path of that file"};
  }
  return std::nullopt;
}

}  // namespace reigen::format
