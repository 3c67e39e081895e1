#include "format/pt_contents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "reigen/base/error.h"

namespace reigen::format {
namespace {

constexpr std::uint64_t kMaxOffset = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kMaxDepth = 256;  // Python's pickler gives up before
constexpr std::size_t kMaxName = 4096;
constexpr std::size_t kMaxRank = 64;  // PyTorch's own
// Names, shapes and texts are written out for every entry, so that a small pickle can ask for much by repeating.
constexpr std::size_t kListBytes = 64 * kMiB;
constexpr std::size_t kListBytesPerByte = 4;
constexpr const char* kFix = "write the file again with torch.save(model.state_dict(), path)";
constexpr const char* kRaiseEntries = "raise PtOptions::max_entries if you trust the file";

// value *= factor, unless that passes 2^63.
bool multiply(std::uint64_t& value, std::uint64_t factor) {
  if (factor != 0 && value > kMaxOffset / factor) return false;
  value *= factor;
  return true;
}

// Bytes of a tensor's elements; nothing where they pass 2^63.
std::optional<std::uint64_t> bytes_of(TensorType type, std::span<const std::int64_t> shape) {
  std::uint64_t bytes = size_of(type);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (const std::int64_t dim : shape) {
    if (dim < 0 || !multiply(bytes, static_cast<std::uint64_t>(dim))) return std::nullopt;
  }
  return bytes;
}

std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";  // as in Python
  return text;
}

std::string big_int_text(std::string_view bytes) {
  if (bytes.size() != 9 || bytes[8] != 0) return fmt::format("an integer of {} bytes", bytes.size());
  std::uint64_t value = 0;
  for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return fmt::format("{}", value);
}

// Walks through the containers and writes down what they hold.
class Lister {
 public:
  Lister(const Pickle& pickle, const ZipArchive& archive, const std::string& folder, const PtOptions& options)
      : pickle_(pickle), archive_(archive), folder_(folder), options_(options), open_(pickle.containers(), false) {}

  PtContents list() {
    visit(pickle_.root());
    return std::move(contents_);
  }

 private:
  [[noreturn]] void fail(const std::string& where, std::string got, std::string expected,
                         const char* fix = kFix) const {
    throw DataError(Report{.what = fmt::format("'{}' cannot be read: {}", archive_.file().path(), where),
                           .got = std::move(got),
                           .expected = std::move(expected),
                           .fix = fix});
  }

  std::string name_or(const char* alone) const { return depth_ == 0 ? alone : name_; }

  void charge(std::size_t bytes) {
    listed_bytes_ += bytes;
    const std::size_t most = kListBytes + kListBytesPerByte * pickle_.bytes();
    if (listed_bytes_ <= most) return;
    fail("the names and texts of its entries", fmt::format("more than {} bytes", most),
         fmt::format("fewer from a pickle of {} bytes", pickle_.bytes()));
  }

  void visit(const PickleValue& value) {
    if (++visited_ > options_.max_entries) {
      fail("its entries", fmt::format("more than {}", options_.max_entries), "fewer", kRaiseEntries);
    }
    if (value.kind == PickleKind::kTensor) return tensor(value);
    if (value.kind == PickleKind::kStorage) return whole_storage(value);
    if (Pickle::has_items(value)) return container(value);
    PtValue& entry = contents_.values.emplace_back(PtValue{name_or("value"), text_of(value)});
    charge(entry.name.size() + entry.text.size());
  }

  void container(const PickleValue& value) {
    if (open_[value.bits]) fail(fmt::format("container '{}'", name_), "it inside itself", "containers without cycles");
    if (depth_ == kMaxDepth) fail(fmt::format("container '{}'", name_), "more depth", fmt::format("{}", kMaxDepth));
    open_[value.bits] = true;
    ++depth_;
    const auto items = pickle_.items(value);
    if (value.kind == PickleKind::kDict) {
      for (std::size_t i = 0; i + 1 < items.size(); i += 2) child(key_of(items[i]), items[i + 1]);
    } else {
      for (std::size_t i = 0; i < items.size(); ++i) child(fmt::format("{}", i), items[i]);
    }
    --depth_;
    open_[value.bits] = false;
  }

  void child(const std::string& key, const PickleValue& value) {
    const std::size_t length = name_.size();
    if (depth_ > 1) name_ += '.';
    name_ += key;
    if (name_.size() > kMaxName) {
      fail(fmt::format("entry '{}...'", name_.substr(0, 80)), fmt::format("a name of {} bytes", name_.size()),
           fmt::format("at most {}", kMaxName));
    }
    visit(value);
    name_.resize(length);
  }

  std::string key_of(const PickleValue& key) const {
    switch (key.kind) {
      case PickleKind::kNone:
      case PickleKind::kBool:
      case PickleKind::kInt:
      case PickleKind::kBigInt:
      case PickleKind::kFloat: return text_of(key);
      // The copy is made before the name's length is looked at, so that a long key must not get that far.
      case PickleKind::kText: return std::string(pickle_.text(key).substr(0, kMaxName + 1));
      default: break;
    }
    fail(fmt::format("container '{}'", name_), "a key that is neither text nor a number", "texts and numbers");
  }

  std::string text_of(const PickleValue& value) const {
    switch (value.kind) {
      case PickleKind::kNone: return "None";
      case PickleKind::kBool: return Pickle::integer(value) != 0 ? "True" : "False";
      case PickleKind::kInt: return fmt::format("{}", Pickle::integer(value));
      case PickleKind::kBigInt: return big_int_text(pickle_.text(value));
      case PickleKind::kFloat: return float_text(Pickle::number(value));
      case PickleKind::kText: return std::string(pickle_.text(value));
      case PickleKind::kBytes: return fmt::format("{} bytes", value.size);
      case PickleKind::kGlobal: return fmt::format("{}.{}", Pickle::global(value).module, Pickle::global(value).name);
      case PickleKind::kDevice: {
        const auto items = pickle_.items(value);
        const std::string device(pickle_.text(items[0]));
        return items.size() == 1 ? device : fmt::format("{}:{}", device, Pickle::integer(items[1]));
      }
      case PickleKind::kTuple:
      case PickleKind::kList:
      case PickleKind::kDict:
      case PickleKind::kSet:
      case PickleKind::kStorage:
      case PickleKind::kTensor: break;
    }
    REIGEN_ASSERT(false, "a value of kind {}", static_cast<int>(value.kind));
    return {};
  }

  void refuse(std::string reason) {
    PtUnreadable& entry = contents_.unreadable.emplace_back(PtUnreadable{name_or("tensor"), std::move(reason)});
    charge(entry.name.size() + entry.reason.size());
  }
  void refuse_type(const PickleGlobal& type) {
    refuse(fmt::format("elements of {}.{}, which there is no type for here", type.module, type.name));
  }

  PtTensor entry_of(TensorType type) const {
    PtTensor entry;
    entry.name = name_or("tensor");
    entry.type = type;
    return entry;
  }

  [[noreturn]] void fail_tensor(std::string got, std::string expected) const {
    fail(fmt::format("tensor '{}'", name_or("tensor")), std::move(got), std::move(expected));
  }

  // (storage, first element, shape, strides, requires_grad, hooks, [element type], [bits of a view])
  void tensor(const PickleValue& value) {
    const auto items = pickle_.items(value);
    const bool typed = Pickle::global(value).role == PickleRole::kRebuildTyped;
    const std::size_t least = typed ? 7 : 6;
    const bool good =
        (items.size() == least || items.size() == least + 1) && items[0].kind == PickleKind::kStorage &&
        items[1].kind == PickleKind::kInt && items[2].kind == PickleKind::kTuple &&
        items[3].kind == PickleKind::kTuple &&
        (!typed || (items[6].kind == PickleKind::kGlobal && Pickle::global(items[6]).role == PickleRole::kElementType));
    if (!good) fail_tensor("other arguments", "storage, first element, shape and strides");
    const PickleGlobal& type = Pickle::global(typed ? items[6] : pickle_.items(items[0])[1]);
    if (!type.type) return refuse_type(type);
    if (items.size() == least + 1 && items[least].kind != PickleKind::kNone &&
        (items[least].kind != PickleKind::kDict || !pickle_.items(items[least]).empty())) {
      return refuse("a conjugated or negated view: save tensor.resolve_conj().resolve_neg()");
    }
    PtTensor entry = entry_of(*type.type);
    entry.shape = numbers_of(items[2]);
    entry.strides = numbers_of(items[3]);
    entry.first = number_of(items[1]);
    place(std::move(entry), items[0]);
  }

  // A storage that was saved by itself: a tensor of one dimension.
  void whole_storage(const PickleValue& value) {
    const PickleGlobal& type = Pickle::global(pickle_.items(value)[1]);
    if (!type.type) return refuse_type(type);
    PtTensor entry = entry_of(*type.type);
    entry.shape = {Pickle::integer(pickle_.items(value)[4])};
    entry.strides = {1};
    place(std::move(entry), value);
  }

  std::uint64_t number_of(const PickleValue& value) const {
    if (value.kind != PickleKind::kInt || Pickle::integer(value) < 0) {
      fail_tensor("another number", "integers from 0 to 2^63 - 1 for shape, strides and first element");
    }
    return value.bits;
  }
  std::vector<std::int64_t> numbers_of(const PickleValue& value) const {
    const auto items = pickle_.items(value);
    if (items.size() > kMaxRank) {
      fail_tensor(fmt::format("{} dimensions", items.size()), fmt::format("at most {}", kMaxRank));
    }
    std::vector<std::int64_t> numbers;
    numbers.reserve(items.size());
    for (const PickleValue& item : items) numbers.push_back(static_cast<std::int64_t>(number_of(item)));
    return numbers;
  }

  void place(PtTensor entry, const PickleValue& storage) {
    const auto items = pickle_.items(storage);
    const auto type = Pickle::global(items[1]).type;
    if (!type) return refuse_type(Pickle::global(items[1]));
    const std::string name = fmt::format("{}data/{}", folder_, pickle_.text(items[2]).substr(0, kMaxName));
    const ZipRecord* record = archive_.find(name);
    if (record == nullptr) fail_tensor("no record for its storage", fmt::format("'{}'", name));
    const std::int64_t declared = Pickle::integer(items[4]);
    const auto bytes = bytes_of(*type, std::span(&declared, 1));
    if (!bytes || record->size < *bytes || record->size - *bytes >= size_of(*type)) {
      fail_tensor(fmt::format("{} bytes in record '{}' at byte {}", record->size, name, record->offset),
                  fmt::format("{} elements of {}", declared, name_of(*type)));
    }
    entry.storage = static_cast<std::size_t>(record - archive_.records().data());
    entry.storage_offset = record->offset;
    entry.storage_bytes = *bytes;
    entry.bytes = bytes_of(entry.type, entry.shape).value_or(~std::uint64_t{0});
    if (!lies_in_storage(entry)) {
      fail_tensor(fmt::format("shape [{}], strides [{}], first element {}", fmt::join(entry.shape, ", "),
                              fmt::join(entry.strides, ", "), entry.first),
                  fmt::format("elements of {} inside the {} bytes of record '{}' at byte {}", name_of(entry.type),
                              entry.storage_bytes, name, entry.storage_offset));
    }
    check_repeated(entry);
    charge(entry.name.size() + 2 * sizeof(std::int64_t) * entry.shape.size());
    contents_.tensors.push_back(std::move(entry));
  }

  // Expanded and shared tensors can hold any multiple of the file; whoever unpacks them all must know a limit.
  void check_repeated(const PtTensor& entry) {
    const std::uint64_t size = archive_.file().size();
    const std::uint64_t most = size + std::min(options_.max_repeated_bytes, kMaxOffset - size);
    if (entry.bytes <= most - tensor_bytes_) {
      tensor_bytes_ += entry.bytes;
      return;
    }
    fail(fmt::format("tensor '{}' of shape [{}]", entry.name, fmt::join(entry.shape, ", ")),
         fmt::format("{} bytes after {} of the tensors before it", entry.bytes, tensor_bytes_),
         fmt::format("at most {} in all, from a file of {}", most, size),
         "raise PtOptions::max_repeated_bytes if you trust the file");
  }

  const Pickle& pickle_;
  const ZipArchive& archive_;
  const std::string& folder_;
  const PtOptions& options_;
  PtContents contents_;
  std::vector<bool> open_;  // the containers on the way to this one
  std::string name_;
  std::size_t depth_ = 0;
  std::size_t visited_ = 0;
  std::size_t listed_bytes_ = 0;
  std::uint64_t tensor_bytes_ = 0;
};

}  // namespace

PtContents contents_of(const Pickle& pickle, const ZipArchive& archive, const std::string& folder,
                       const PtOptions& options) {
  return Lister(pickle, archive, folder, options).list();
}

bool lies_in_storage(const PtTensor& tensor) {
  if (tensor.shape.size() != tensor.strides.size() || bytes_of(tensor.type, tensor.shape) != tensor.bytes) return false;
  if (tensor.bytes == 0) return true;
  const std::uint64_t elements = tensor.storage_bytes / size_of(tensor.type);
  if (tensor.first >= elements) return false;
  std::uint64_t left = elements - 1 - tensor.first;  // elements after the first that may be reached
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    std::uint64_t step = static_cast<std::uint64_t>(tensor.shape[d] - 1);
    if (tensor.strides[d] < 0 || !multiply(step, static_cast<std::uint64_t>(tensor.strides[d])) || step > left) {
      return false;
    }
    left -= step;
  }
  return true;
}

}  // namespace reigen::format
