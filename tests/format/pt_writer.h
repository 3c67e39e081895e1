// Writes checkpoints of PyTorch for tests, byte by byte: pickles and zip files, right and wrong ones. Layout and order
// are those of torch.save: an extra field aligns records, sizes follow the content, and the zip64 end records are
// always there.
#pragma once

#include <zlib.h>

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reigen::tests {

template <typename T>
std::string little_endian(T value) {
  std::string text;
  for (std::size_t i = 0; i < sizeof value; ++i) {
    text.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
  return text;
}

// Values in a pickle of protocol 2. No function uses the memo.
namespace pickled {

inline std::string number(std::int32_t value) { return "J" + little_endian(value); }
inline std::string real(double value) {
  const auto bits = little_endian(std::bit_cast<std::uint64_t>(value));
  return "G" + std::string(bits.rbegin(), bits.rend());
}
inline std::string text(std::string_view value) {
  return "X" + little_endian(static_cast<std::uint32_t>(value.size())) + std::string(value);
}
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string tuple(const std::vector<std::string>& items) {
  std::string all = "(";
  for (const auto& item : items) all += item;
  return all + "t";
}
inline std::string numbers(const std::vector<std::int64_t>& values) {
  std::vector<std::string> items;
  for (const auto value : values) items.push_back("\x8A\x08" + little_endian(value));
  return tuple(items);
}
inline std::string call(const std::string& function, const std::vector<std::string>& arguments) {
  return function + tuple(arguments) + "R";
}
inline std::string list(const std::vector<std::string>& items) {
  std::string all = "](";
  for (const auto& item : items) all += item;
  return all + "e";
}
inline std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string all = "}(";
  for (const auto& [key, value] : items) all += text(key) + value;
  return all + "u";
}
inline std::string ordered(const std::vector<std::pair<std::string, std::string>>& items) {
  return call(global("collections", "OrderedDict"), {}) + dict(items).substr(1);
}

inline std::string storage(const std::string& type, const std::string& key, std::int64_t elements) {
  const std::string module = type.starts_with("Untyped") ? "torch.storage" : "torch";
  return tuple({text("storage"), global(module, type), text(key), text("cpu"), "\x8A\x08" + little_endian(elements)}) +
         "Q";
}

inline std::string tensor(const std::string& in, const std::vector<std::int64_t>& shape,
                          const std::vector<std::int64_t>& strides, std::int64_t first = 0,
                          const std::string& metadata = {}) {
  std::vector<std::string> arguments = {
      in, "\x8A\x08" + little_endian(first), numbers(shape), numbers(strides), "\x89", ordered({})};
  if (!metadata.empty()) arguments.push_back(metadata);
  return call(global("torch._utils", "_rebuild_tensor_v2"), arguments);
}
inline std::string typed_tensor(const std::string& in, const std::vector<std::int64_t>& shape,
                                const std::vector<std::int64_t>& strides, const std::string& type) {
  return call(global("torch._utils", "_rebuild_tensor_v3"),
              {in, number(0), numbers(shape), numbers(strides), "\x89", ordered({}), global("torch", type)});
}
inline std::string parameter(const std::string& tensor) {
  return call(global("torch._utils", "_rebuild_parameter"), {tensor, "\x88", ordered({})});
}

// An object of a class or function that readers do not know, with its state.
inline std::string object(const std::string& module, const std::string& name, const std::vector<std::string>& arguments,
                          const std::string& state = {}) {
  return global(module, name) + tuple(arguments) + (state.empty() ? "R" : "\x81" + state + "b");
}
// A module as C++ writes it: an object without arguments, whose state contains its parts.
inline std::string script_module(const std::vector<std::pair<std::string, std::string>>& items) {
  return global("__torch__", "Module") + ")\x81" + dict(items) + "b";
}

inline std::string whole(const std::string& value) { return "\x80\x02" + value + "."; }

}  // namespace pickled

struct ZipOptions {
  bool sizes_follow = true;  // as in torch.save; false: sizes and CRC are in the header
  bool end64 = true;
  bool wide_entries = false;  // sizes and offsets in zip64 fields, as in files of more than 4 GiB
  bool checksums = true;
  std::uint16_t method = 0;
  std::uint16_t flags = 0;  // besides the flags for sizes_follow
  std::string comment = {};
};

class ZipWriter {
 public:
  explicit ZipWriter(ZipOptions options = {}) : options_(std::move(options)) {}

  void add(const std::string& name, const std::string& content) {
    const auto crc =
        options_.checksums ? crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()) : 0;
    const std::uint64_t at = file_.size();
    const bool follow = options_.sizes_follow && !content.empty();
    const auto flags = static_cast<std::uint16_t>(options_.flags | (follow ? 8 : 0));
    const std::string sums = little_endian(static_cast<std::uint32_t>(crc)) +
                             little_endian(static_cast<std::uint32_t>(content.size())) +
                             little_endian(static_cast<std::uint32_t>(content.size()));
    const std::size_t padding = (128 - (at + 30 + name.size() + 4) % 64) % 64;
    file_ += "PK\x03\x04" + std::string(2, '\0') + little_endian(flags) + little_endian(options_.method) +
             std::string(4, '\0') + (follow ? std::string(12, '\0') : sums) + length(name) +
             little_endian(static_cast<std::uint16_t>(4 + padding)) + name + "FB" +
             little_endian(static_cast<std::uint16_t>(padding)) + std::string(padding, 'Z') + content;
    if (follow) file_ += "PK\x07\x08" + sums;
    add_entry(name, at, flags, sums, content.size());
    ++entries_;
  }

  std::string finish() const {
    const std::uint64_t at = file_.size();
    std::string file = file_ + directory_;
    if (options_.end64) {
      const std::uint64_t end = file.size();
      file += "PK\x06\x06" + little_endian(std::uint64_t{44}) + std::string("\x1E\x03\x2D\0", 4) +
              std::string(8, '\0') + little_endian(entries_) + little_endian(entries_) +
              little_endian(std::uint64_t{directory_.size()}) + little_endian(at);
      file += "PK\x06\x07" + std::string(4, '\0') + little_endian(end) + little_endian(std::uint32_t{1});
    }
    const std::string entries = little_endian(static_cast<std::uint16_t>(entries_));
    return file + "PK\x05\x06" + std::string(4, '\0') + entries + entries +
           little_endian(static_cast<std::uint32_t>(directory_.size())) +
           little_endian(static_cast<std::uint32_t>(at)) + length(options_.comment) + options_.comment;
  }

 private:
  static std::string length(const std::string& text) { return little_endian(static_cast<std::uint16_t>(text.size())); }

  void add_entry(const std::string& name, std::uint64_t at, std::uint16_t flags, const std::string& sums,
                 std::uint64_t size) {
    const std::string wide = options_.wide_entries
                                 ? little_endian(std::uint16_t{1}) + little_endian(std::uint16_t{24}) +
                                       little_endian(size) + little_endian(size) + little_endian(at)
                                 : "";
    const std::string all_ones(4, '\xFF');
    directory_ += "PK\x01\x02" + std::string(4, '\0') + little_endian(flags) + little_endian(options_.method) +
                  std::string(4, '\0') + (options_.wide_entries ? sums.substr(0, 4) + all_ones + all_ones : sums) +
                  length(name) + length(wide) + std::string(10, '\0') +
                  (options_.wide_entries ? all_ones : little_endian(static_cast<std::uint32_t>(at))) + name + wide;
  }

  ZipOptions options_;
  std::string file_;
  std::string directory_;
  std::uint64_t entries_ = 0;
};

// The file of torch.save for this pickle and these storages, which are named 0, 1, ...
inline std::string checkpoint(const std::string& pickle, const std::vector<std::string>& storages = {},
                              const ZipOptions& options = {}, const std::string& order = "little") {
  ZipWriter zip(options);
  zip.add("archive/data.pkl", pickle);
  zip.add("archive/.format_version", "1");
  zip.add("archive/byteorder", order);
  for (std::size_t i = 0; i < storages.size(); ++i) zip.add("archive/data/" + std::to_string(i), storages[i]);
  zip.add("archive/version", "3\n");
  return zip.finish();
}

// The file of C++'s torch::save for this pickle and these storages.
inline std::string script_archive(const std::string& pickle, const std::vector<std::string>& storages = {}) {
  ZipWriter zip;
  for (std::size_t i = 0; i < storages.size(); ++i) zip.add("m/data/" + std::to_string(i), storages[i]);
  zip.add("m/data.pkl", pickle);
  zip.add("m/code/__torch__.py", "class Module(Module):\n  __parameters__ = []\n");
  zip.add("m/constants.pkl", pickled::whole(")"));
  zip.add("m/version", "3\n");
  zip.add("m/byteorder", "little");
  return zip.finish();
}

}  // namespace reigen::tests
