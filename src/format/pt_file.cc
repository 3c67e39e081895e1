#include "reigen/format/pt_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <new>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "format/file_kind.h"
#include "format/input_file.h"
#include "format/pickle_reader.h"
#include "format/pt_contents.h"
#include "format/strided_rows.h"
#include "format/zip_archive.h"
#include "reigen/base/error.h"

namespace reigen::format {
namespace {

constexpr std::uint64_t kMaxPickle = kGiB;      // a pickle has about 200 bytes for each tensor, and no storages
constexpr std::uint64_t kMaxByteOrder = 16;     // "little" or "big"
constexpr std::uint64_t kDirectRow = 4 * kKiB;  // rows of at least this size are read directly into the result
constexpr const char* kFetchRecords = "fetch the file again, or write it again with torch.save (PyTorch >= 1.6)";
constexpr const char* kStoreAgain =
    "unpack it and pack it again without compression: unzip FILE -d folder && cd folder && zip -r -0 ../new.pt *";

[[noreturn]] void fail_pt(const std::string& path, const std::string& where, std::string got, std::string expected,
                          std::string fix = kFetchRecords) {
  throw DataError(Report{.what = fmt::format("'{}' is not a checkpoint that can be read: {}", path, where),
                         .got = std::move(got),
                         .expected = std::move(expected),
                         .fix = std::move(fix)});
}

// Throws if the file is no zip archive, because PyTorch's files are zip archives. The error names the kind of the file,
// and says what to do.
void refuse_no_archive(const InputFile& file) {
  if (begins_as_zip(file)) return;
  std::array<unsigned char, 4> begin{};
  const std::size_t got = file.read_at(0, std::as_writable_bytes(std::span(begin)));
  const std::string bytes = fmt::format("{:02x}", fmt::join(std::span(begin).first(got), " "));
  const auto kind = kind_of_file(file);
  const std::string name = begins_as_safetensors(file) ? "a safetensors file" : kind ? kind->name : "";
  fail_pt(file.path(), kind && begins_as_pickle(file) ? "an old form" : "its beginning",
          name.empty() ? bytes : fmt::format("{} ({})", name, bytes), "50 4b 03 04, a zip archive",
          kind ? kind->fix : "check that this is the right file, or fetch it again");
}

InputFile open_checkpoint(const std::filesystem::path& path) {
  InputFile file(path);
  refuse_no_archive(file);
  return file;
}

std::unique_ptr<std::byte[]> memory_for(std::uint64_t bytes, const std::string& path) {
  try {
    return std::make_unique_for_overwrite<std::byte[]>(bytes);
  } catch (const std::bad_alloc&) {
    throw IoError(fmt::format("no memory for {} of '{}'", format_bytes(bytes), path), ExitCode::kOsResource);
  }
}

}  // namespace

struct PtFile::Impl {
  Impl(const std::filesystem::path& path, const PtOptions& chosen)
      : options(chosen),
        archive(open_checkpoint(path)),
        checked(std::make_unique<std::atomic<bool>[]>(archive.records().size())) {}

  const std::string& path() const { return archive.file().path(); }

  void parse() {
    if (archive.records().empty()) fail_pt(path(), "its zip directory", "no records", "archive/data.pkl and others");
    const std::string& first = archive.records().front().name;
    const std::string folder = first.substr(0, first.find('/') + 1);
    const ZipRecord* record = archive.find(folder + "data.pkl");
    if (folder.empty() || record == nullptr) refuse_other_archive(folder);
    refuse_packed(folder);
    check_byte_order(folder);
    is_script = archive.find(folder + "constants.pkl") != nullptr;
    if (record->size > kMaxPickle) {
      fail_pt(path(), fmt::format("record '{}' at byte {}", record->name, record->offset),
              fmt::format("{} bytes", record->size), fmt::format("at most {}", kMaxPickle));
    }
    const PickleSource source{.path = path(), .record = record->name, .offset = record->offset};
    contents = contents_of(Pickle(text_of(*record), source, options.max_entries), archive, folder, options);
    for (std::size_t i = 0; i < contents.tensors.size(); ++i) {
      if (!index.emplace(contents.tensors[i].name, i).second) fail_twice(contents.tensors[i].name);
    }
    for (const PtUnreadable& tensor : contents.unreadable) {
      if (index.contains(tensor.name)) fail_twice(tensor.name);
    }
  }

  [[noreturn]] void fail_twice(const std::string& name) const {
    fail_pt(path(), fmt::format("tensor '{}'", name), "it twice", "each name once",
            "write the file again with keys that differ when they are joined by dots");
  }

  [[noreturn]] void refuse_other_archive(const std::string& folder) const {
    const auto kind = kind_of_archive(archive.records());
    const std::string& first = archive.records().front().name;
    if (kind) fail_pt(path(), "its records", kind->name, "what torch.save writes", kind->fix);
    fail_pt(path(), "its records", fmt::format("'{}' and others, but no '{}data.pkl'", first, folder),
            "what torch.save writes");
  }

  // Throws for packed (compressed) records, except for TorchScript's code, which is packed and not needed here.
  void refuse_packed(const std::string& folder) const {
    for (const ZipRecord& record : archive.records()) {
      if (record.method == 0 || record.name.starts_with(folder + "code/")) continue;
      fail_pt(path(), fmt::format("record '{}' at byte {}", record.name, record.offset),
              fmt::format("packed by method {}{}", record.method, record.method == 8 ? " (deflate)" : ""),
              "stored, as torch.save writes it", kStoreAgain);
    }
  }

  void check_byte_order(const std::string& folder) const {
    const ZipRecord* record = archive.find(folder + "byteorder");
    if (record == nullptr) return;  // written before PyTorch 2.1
    const std::string order = record->size <= kMaxByteOrder ? text_of(*record) : "another text";
    if (order == "little") return;
    fail_pt(path(), fmt::format("record '{}' at byte {}", record->name, record->offset), fmt::format("'{}'", order),
            "'little'", "write the file again on a little-endian machine");
  }

  std::string text_of(const ZipRecord& record) const {
    std::string text(record.size, '\0');
    load(record, 0, std::as_writable_bytes(std::span(text.data(), text.size())), {});
    return text;
  }

  // Reads the bytes of a record from `first` on into `into`. If `into` takes the whole record, the record's CRC-32 is
  // computed from `into`. If `into` takes only a part of the record, the CRC-32 of the whole record is checked first,
  // unless it was checked before.
  void load(const ZipRecord& record, std::uint64_t first, std::span<std::byte> into, const std::string& tensor) const {
    const bool whole = first == 0 && into.size() == record.size;
    if (!whole) check(record, tensor);
    archive.read(record, first, into);
    if (whole && options.checksums) check_crc(record, ZipArchive::crc_of(into), tensor);
  }

  void check(const ZipRecord& record, const std::string& tensor) const {
    if (!options.checksums || checked[number_of(record)]) return;
    check_crc(record, archive.crc_of_content(record), tensor);
  }

  void check_crc(const ZipRecord& record, std::uint32_t crc, const std::string& tensor) const {
    if (crc == record.crc) {
      checked[number_of(record)] = true;
      return;
    }
    fail_pt(path(),
            fmt::format("{}record '{}', bytes {} to {}, is damaged",
                        tensor.empty() ? "" : fmt::format("tensor '{}': ", tensor), record.name, record.offset,
                        record.offset + record.size),
            fmt::format("CRC-32 {:08x}", crc), fmt::format("{:08x}", record.crc),
            record.crc == 0 ? fmt::format("{}; PtOptions::checksums = false if it was written without", kFetchRecords)
                            : kFetchRecords);
  }

  std::size_t number_of(const ZipRecord& record) const {
    return static_cast<std::size_t>(&record - archive.records().data());
  }

  // For short or strided rows: reads the part of the storage that the tensor spans in one read, and picks the elements
  // in memory.
  void gather(const PtTensor& tensor, const StridedRows& rows, std::span<std::byte> into) const {
    const std::size_t element = size_of(tensor.type);
    const std::uint64_t span = rows.reach * element;
    const auto memory = memory_for(span, path());
    load(archive.records()[tensor.storage], tensor.first * element, {memory.get(), span}, tensor.name);
    std::byte* to = into.data();
    for_each_row(rows, [&](std::uint64_t offset) {
      copy_row(memory.get() + offset * element, rows.stride, rows.length, element, to);
      to += rows.length * element;
    });
  }

  void read(const PtTensor& tensor, std::span<std::byte> into) const {
    if (into.empty()) return;
    const ZipRecord& record = archive.records()[tensor.storage];
    const std::size_t element = size_of(tensor.type);
    const StridedRows rows = rows_of(tensor.shape, tensor.strides);
    const std::uint64_t row_bytes = rows.length * element;
    const bool single = rows.counts.empty();
    if (rows.stride != 1 || (!single && row_bytes < kDirectRow)) return gather(tensor, rows, into);
    if (single) return load(record, tensor.first * element, into, tensor.name);
    check(record, tensor.name);
    for_each_row(rows, [&](std::uint64_t offset) {
      archive.read(record, (tensor.first + offset) * element, into.first(row_bytes));
      into = into.subspan(row_bytes);
    });
  }

  PtOptions options;
  ZipArchive archive;
  std::unique_ptr<std::atomic<bool>[]> checked;  // records whose CRC-32 was found correct
  PtContents contents;
  bool is_script = false;
  std::unordered_map<std::string_view, std::size_t> index;  // keys view names in contents.tensors, which do not move
};

PtFile::PtFile(const std::filesystem::path& path, const PtOptions& options)
    : impl_(std::make_unique<Impl>(path, options)) {
  impl_->parse();
}
PtFile::~PtFile() = default;
PtFile::PtFile(PtFile&&) noexcept = default;
PtFile& PtFile::operator=(PtFile&&) noexcept = default;

const std::vector<PtTensor>& PtFile::tensors() const { return impl_->contents.tensors; }
const std::vector<PtUnreadable>& PtFile::unreadable() const { return impl_->contents.unreadable; }
const std::vector<PtValue>& PtFile::values() const { return impl_->contents.values; }
const std::vector<PtObject>& PtFile::objects() const { return impl_->contents.objects; }
bool PtFile::is_script() const { return impl_->is_script; }
const std::string& PtFile::path() const { return impl_->path(); }

const PtTensor* PtFile::find(std::string_view name) const {
  const auto found = impl_->index.find(name);
  return found == impl_->index.end() ? nullptr : &impl_->contents.tensors[found->second];
}

const PtTensor& PtFile::at(std::string_view name) const {
  if (const PtTensor* tensor = find(name)) return *tensor;
  for (const PtUnreadable& tensor : unreadable()) {
    if (tensor.name != name) continue;
    fail_pt(path(), fmt::format("tensor '{}'", name), tensor.reason, names_of_tensor_types(),
            "convert the tensor where it was made and save it again: tensor.to(torch.float32), in C++ torch::kFloat32");
  }
  std::vector<std::string_view> names;
  for (const PtTensor& tensor : tensors()) {
    if (names.size() == 8) break;
    names.push_back(tensor.name);
  }
  throw DataError(Report{
      .what = fmt::format("'{}' has no tensor '{}'", path(), name),
      .got = fmt::format("{}{}", fmt::join(names, ", "),
                         tensors().size() > names.size() ? fmt::format(" ... ({} in all)", tensors().size()) : ""),
      .expected = std::string(name),
      .fix = "use the file of the same model"});
}

void PtFile::read(const PtTensor& tensor, std::span<std::byte> into) const {
  const auto& records = impl_->archive.records();
  REIGEN_CHECK(tensor.storage < records.size() && tensor.storage_bytes <= records[tensor.storage].size &&
                   lies_in_storage(tensor),
               "tensor '{}' is not one of '{}'", tensor.name, path());
  REIGEN_CHECK(into.size() == tensor.bytes, "{} bytes were given for tensor '{}', which has {}", into.size(),
               tensor.name, tensor.bytes);
  impl_->read(tensor, into);
}

void PtFile::verify() const {
  REIGEN_CHECK(impl_->options.checksums, "'{}' was opened without checksums, so that there is nothing to verify",
               path());
  const auto& records = impl_->archive.records();
  std::unordered_map<std::size_t, const std::string*> users;
  for (const PtTensor& tensor : tensors()) users.emplace(tensor.storage, &tensor.name);
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].method != 0) continue;
    const auto user = users.find(i);
    impl_->check(records[i], user == users.end() ? std::string() : *user->second);
  }
}

}  // namespace reigen::format
