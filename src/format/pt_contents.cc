#include "format/pt_contents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "reigen/base/error.h"

namespace reigen::format {
namespace {

constexpr std::uint64_t kMaxBytes = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kMaxDepth = 256;  // the deepest allowed nesting of containers; files of weights need a few levels
constexpr std::size_t kMaxName = 4096;
constexpr std::size_t kMaxRank = 64;  // PyTorch's own limit
// Limits the names, shapes and texts that are listed: a small pickle can refer to one entry many times, and each time
// its name, shape and text are listed again.
constexpr std::size_t kListBytes = 64 * kMiB;
constexpr std::size_t kListBytesPerByte = 4;
constexpr const char* kFixContents =
    "write the file again, in Python with torch.save(model.state_dict(), path), in C++ with torch::save(model, path)";
constexpr std::size_t kShownKey = 200;  // bytes of a tuple key that are printed
constexpr const char* kRaiseEntries = "raise PtOptions::max_entries if you trust the file";

// value *= factor; false if that would exceed 2^63 - 1.
bool multiply(std::uint64_t& value, std::uint64_t factor) {
  if (factor != 0 && value > kMaxBytes / factor) return false;
  value *= factor;
  return true;
}

// The bytes of a tensor's elements; nullopt if they exceed 2^63 - 1. If any size is zero, the result is 0, whatever the
// other sizes are.
std::optional<std::uint64_t> elements_bytes(TensorType type, std::span<const std::int64_t> shape) {
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  return empty ? 0 : bytes_of(type, shape);
}

std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";  // as Python prints it
  return text;
}

std::string big_int_text(std::string_view bytes) {
  if (bytes.size() != 9 || bytes[8] != 0) return fmt::format("an integer of {} bytes", bytes.size());
  std::uint64_t value = 0;
  for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return fmt::format("{}", value);
}

// Walks through the containers and objects, and lists their tensors, values and objects.
class Lister {
 public:
  Lister(const Pickle& pickle, const ZipArchive& archive, const std::string& folder, const PtOptions& options)
      : pickle_(pickle),
        archive_(archive),
        folder_(folder),
        options_(options),
        open_(pickle.containers(), false),
        seen_(pickle.containers(), false) {}

  PtContents list() {
    find_parameter_numbers();
    visit(pickle_.root());
    return std::move(contents_);
  }

 private:
  [[noreturn]] void fail(const std::string& where, std::string got, std::string expected,
                         const char* fix = kFixContents) const {
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

  // Whether the value need not be listed: inside an unread object (made by a name that the pickle reader does not know)
  // only tensors, and values that may contain tensors, are listed.
  bool is_of_no_use(const PickleValue& value) const {
    const bool holds = value.kind == PickleKind::kTensor || value.kind == PickleKind::kStorage ||
                       value.kind == PickleKind::kObject || Pickle::has_items(value);
    return inside_ > 0 && !holds;
  }

  void visit(const PickleValue& value) {
    if (++visited_ > options_.max_entries) {
      fail("its entries", fmt::format("more than {}", options_.max_entries), "fewer", kRaiseEntries);
    }
    if (value.kind == PickleKind::kTensor) return tensor(value);
    if (value.kind == PickleKind::kStorage) return whole_storage(value);
    if (value.kind == PickleKind::kObject) return object(value);
    if (Pickle::has_items(value)) return container(value);
    PtValue& entry = contents_.values.emplace_back(PtValue{name_or("value"), text_of(value)});
    charge(entry.name.size() + entry.text.size());
  }

  // True if this value was already visited inside an unread object. Such objects may contain themselves, so each value
  // in them is visited once.
  bool is_known(const PickleValue& value) {
    if (inside_ == 0) return false;
    if (open_[value.bits] || seen_[value.bits]) return true;
    seen_[value.bits] = true;
    return false;
  }

  // Returns false if the value is nested too deeply inside an unread object. Outside of such an object, too deep a
  // nesting is an error.
  bool open(const PickleValue& value) {
    if (open_[value.bits]) fail(fmt::format("container '{}'", name_), "it inside itself", "containers without cycles");
    if (depth_ == kMaxDepth && inside_ == 0) {
      fail(fmt::format("container '{}'", name_), "more depth", fmt::format("{}", kMaxDepth));
    }
    if (depth_ == kMaxDepth) {
      add_object("what lies deeper than 256 containers");
      return false;
    }
    open_[value.bits] = true;
    ++depth_;
    return true;
  }
  void close(const PickleValue& value) {
    --depth_;
    open_[value.bits] = false;
  }

  void container(const PickleValue& value) {
    if (is_known(value) || !open(value)) return;
    if (value.kind == PickleKind::kDict) {
      items_of(value);
    } else {
      elements_of(value);
    }
    close(value);
  }

  void items_of(const PickleValue& dict) {
    if (is_module(dict)) return module_items_of(dict);
    const auto items = pickle_.items(dict);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) child(key_of(items[i], i / 2), items[i + 1]);
  }
  void elements_of(const PickleValue& value, std::size_t first = 0) {
    for (const PickleValue& item : pickle_.items(value)) child(fmt::format("{}", first++), item);
  }

  const PickleValue* find_item(const PickleValue& dict, std::string_view key) const {
    if (dict.kind != PickleKind::kDict) return nullptr;
    const auto items = pickle_.items(dict);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (items[i].kind == PickleKind::kText && pickle_.text(items[i]) == key) return &items[i + 1];
    }
    return nullptr;
  }

  // True for the state of a torch.nn.Module, whose tensors get the names that its state_dict() gives them.
  bool is_module(const PickleValue& dict) const {
    if (inside_ == 0) return false;
    const PickleValue* parameters = find_item(dict, "_parameters");
    const PickleValue* modules = find_item(dict, "_modules");
    return parameters != nullptr && modules != nullptr && parameters->kind == PickleKind::kDict &&
           modules->kind == PickleKind::kDict;
  }
  void module_items_of(const PickleValue& module) {
    std::unordered_set<std::string_view> passing;  // non-persistent buffers, which are not in the state_dict()
    if (const PickleValue* names = find_item(module, "_non_persistent_buffers_set");
        names != nullptr && names->kind == PickleKind::kSet) {
      for (const PickleValue& name : pickle_.items(*names)) {
        if (name.kind == PickleKind::kText) passing.insert(pickle_.text(name));
      }
    }
    const auto items = pickle_.items(module);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      const std::string key = key_of(items[i], i / 2);
      const bool is_part = key == "_parameters" || key == "_buffers" || key == "_modules";
      if (!is_part || items[i + 1].kind != PickleKind::kDict) {
        child(key, items[i + 1]);
        continue;
      }
      if (is_known(items[i + 1])) continue;
      const auto part = pickle_.items(items[i + 1]);
      for (std::size_t j = 0; j + 1 < part.size(); j += 2) {
        const bool left_out =
            key == "_buffers" && part[j].kind == PickleKind::kText && passing.contains(pickle_.text(part[j]));
        if (!left_out) child(key_of(part[j], j / 2), part[j + 1]);
      }
    }
  }

  void add_object(std::string type) {
    PtObject& entry = contents_.objects.emplace_back(PtObject{name_or("object"), std::move(type)});
    charge(entry.name.size() + entry.type.size());
  }

  // An object of TorchScript or of C++'s archives is treated as a container. Any other object made by an unknown name
  // is listed as unread, and only the tensors inside it are listed, under the object's name.
  void object(const PickleValue& value) {
    const std::string_view module = pickle_.module(value);
    const bool script = module == "__torch__" || module.starts_with("__torch__.");
    if (!script && inside_ == 0) add_object(pickle_.name(value));
    if (!script) ++inside_;
    if (!is_known(value) && open(value)) {
      parts_of(value);
      close(value);
    }
    if (!script) --inside_;
  }

  void parts_of(const PickleValue& object) {
    const auto parts = pickle_.items(object);
    std::size_t position = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto items = Pickle::has_items(parts[i]) ? pickle_.items(parts[i]) : std::span<const PickleValue>();
      // The state of an object with slots is a tuple of two dicts: its usual attributes (or None), and its attributes
      // in slots.
      const bool slots =
          i > 0 && parts[i].kind == PickleKind::kTuple && items.size() == 2 && items[1].kind == PickleKind::kDict;
      if (Pickle::has_items(parts[i]) && is_known(parts[i])) continue;
      if (parts[i].kind == PickleKind::kDict) {
        items_of(parts[i]);
      } else if (slots) {
        if (items[0].kind == PickleKind::kDict && !is_known(items[0])) items_of(items[0]);
        if (!is_known(items[1])) items_of(items[1]);
      } else if (Pickle::has_items(parts[i])) {
        elements_of(parts[i], position);
        position += items.size();
      } else {
        child(fmt::format("{}", position++), parts[i]);
      }
    }
  }

  // C++'s optimizers name the state of a parameter by the parameter's address, and list the addresses in the parameter
  // groups. This function gives each parameter a number, counted over all groups, as in Python.
  void find_parameter_numbers() {
    const PickleValue* groups = find_in_script(pickle_.root(), "param_groups");
    if (groups == nullptr || find_in_script(pickle_.root(), "state") == nullptr) return;
    std::size_t steps = 0;  // limited, because the file may refer to one group many times
    for_items_of_script(*groups, [&](std::string_view name, const PickleValue& group) {
      if (!name.starts_with("param_groups/") || steps > options_.max_entries) return;
      for_items_of_script(group, [&](std::string_view key, const PickleValue& value) {
        ++steps;
        if (!key.starts_with("params/") || value.kind != PickleKind::kText) return;
        parameter_numbers_.emplace(pickle_.text(value), parameter_numbers_.size());
      });
    });
  }
  // Visits the items in the order of the file, which is the order in which they were added.
  template <class Visit>
  void for_items_of_script(const PickleValue& value, const Visit& visit) const {
    const PickleValue state = state_of_script(value);
    if (state.kind != PickleKind::kDict) return;
    const auto items = pickle_.items(state);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (items[i].kind == PickleKind::kText) visit(pickle_.text(items[i]), items[i + 1]);
    }
  }
  PickleValue state_of_script(const PickleValue& value) const {
    if (value.kind != PickleKind::kObject) return {};
    const std::string_view module = pickle_.module(value);
    if (module != "__torch__" && !module.starts_with("__torch__.")) return {};
    const auto parts = pickle_.items(value);
    return parts.size() < 2 ? PickleValue() : parts[1];
  }
  const PickleValue* find_in_script(const PickleValue& value, std::string_view key) const {
    return find_item(state_of_script(value), key);
  }

  void child(const std::string& key, const PickleValue& value) {
    if (is_of_no_use(value)) return;
    const std::size_t length = name_.size();
    if (depth_ > 1) name_ += '.';
    name_ += key;
    if (name_.size() > kMaxName && inside_ > 0) {
      name_.resize(length);
      return add_object(fmt::format("what has a name of more than {} bytes", kMaxName));
    }
    if (name_.size() > kMaxName) {
      fail(fmt::format("entry '{}...'", name_.substr(0, 80)), fmt::format("a name of {} bytes", name_.size()),
           fmt::format("at most {}", kMaxName));
    }
    visit(value);
    name_.resize(length);
  }

  std::string key_of(const PickleValue& key, std::size_t position) const {
    switch (key.kind) {
      case PickleKind::kNone:
      case PickleKind::kBool:
      case PickleKind::kInt:
      case PickleKind::kBigInt:
      case PickleKind::kFloat:
      case PickleKind::kGlobal:
      case PickleKind::kName:
      case PickleKind::kDevice: return text_of(key);
      case PickleKind::kText: return text_key(pickle_.text(key));
      case PickleKind::kTuple: return tuple_key(pickle_.items(key), position);
      case PickleKind::kBytes: return fmt::format("<bytes {}>", position);
      case PickleKind::kSet: return fmt::format("<set {}>", position);
      case PickleKind::kStorage: return fmt::format("<storage {}>", position);
      case PickleKind::kTensor: return fmt::format("<tensor {}>", position);
      case PickleKind::kObject: return fmt::format("<{} {}>", pickle_.name(key), position);
      case PickleKind::kList:
      case PickleKind::kDict: break;
    }
    fail(fmt::format("container '{}'", name_), "a key that is neither text nor a number", "texts and numbers");
  }

  std::string text_key(std::string_view text) const {
    if (depth_ == 2 && name_ == "state") {
      const auto number = parameter_numbers_.find(text);
      if (number != parameter_numbers_.end()) return fmt::format("{}", number->second);
    }
    // The key is cut here, before the name's length is checked, so that a long key is not copied whole.
    return std::string(text.substr(0, kMaxName + 1));
  }

  // The tuple as Python prints it, if it holds only short texts and numbers; else "<tuple POSITION>".
  std::string tuple_key(std::span<const PickleValue> items, std::size_t position) const {
    std::string text = "(";
    for (const PickleValue& item : items) {
      const bool plain = item.kind == PickleKind::kText || item.kind == PickleKind::kInt ||
                         item.kind == PickleKind::kBool || item.kind == PickleKind::kFloat ||
                         item.kind == PickleKind::kNone;
      const bool short_enough = item.kind != PickleKind::kText || item.size <= kShownKey;
      if (!plain || !short_enough || text.size() > kShownKey) return fmt::format("<tuple {}>", position);
      if (text.size() > 1) text += ", ";
      text += item.kind == PickleKind::kText ? fmt::format("'{}'", pickle_.text(item)) : text_of(item);
    }
    return text + (items.size() == 1 ? ",)" : ")");
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
      case PickleKind::kName: return pickle_.name(value);
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
      case PickleKind::kTensor:
      case PickleKind::kObject: break;
    }
    REIGEN_ASSERT(false, "a value of kind {}", static_cast<int>(value.kind));
    return {};
  }

  // Inside an unread object two tensors may have the same name: one from its position, the other from a key that looks
  // like this position. So the second name gets a number.
  std::string tensor_name() {
    std::string name = name_or("tensor");
    if (inside_ == 0) return name;
    const std::size_t before = names_inside_[name]++;
    return before == 0 ? name : fmt::format("{}#{}", name, before + 1);
  }

  void refuse(std::string reason) {
    PtUnreadable& entry = contents_.unreadable.emplace_back(PtUnreadable{tensor_name(), std::move(reason)});
    charge(entry.name.size() + entry.reason.size());
  }
  void refuse_type(const PickleValue& type) {
    refuse(fmt::format("elements of {}, which safetensors files have no type for", text_of(type)));
  }
  // The element type of a storage class or of an element type's name.
  static std::optional<TensorType> type_of(const PickleValue& type) {
    return type.kind == PickleKind::kGlobal ? Pickle::global(type).type : std::nullopt;
  }

  PtTensor entry_of(TensorType type) {
    PtTensor entry;
    entry.name = tensor_name();
    entry.type = type;
    return entry;
  }

  [[noreturn]] void fail_tensor(std::string got, std::string expected) const {
    fail(fmt::format("tensor '{}'", name_or("tensor")), std::move(got), std::move(expected));
  }

  // Arguments: (storage, first element, shape, strides, requires_grad, hooks, [element type], [bits of a view])
  void tensor(const PickleValue& value) {
    const auto items = pickle_.items(value);
    if (Pickle::global(value).role == PickleRole::kRebuildOther) return refuse(Pickle::global(value).reason);
    const bool typed = Pickle::global(value).role == PickleRole::kRebuildTyped;
    const std::size_t least = typed ? 7 : 6;
    const bool good =
        (items.size() == least || items.size() == least + 1) && items[0].kind == PickleKind::kStorage &&
        items[1].kind == PickleKind::kInt && items[2].kind == PickleKind::kTuple &&
        items[3].kind == PickleKind::kTuple &&
        (!typed || items[6].kind == PickleKind::kName ||
         (items[6].kind == PickleKind::kGlobal && Pickle::global(items[6]).role == PickleRole::kElementType));
    if (!good) fail_tensor("other arguments", "storage, first element, shape and strides");
    const PickleValue& element = typed ? items[6] : pickle_.items(items[0])[1];
    const auto type = type_of(element);
    if (!type) return refuse_type(element);
    if (!type_of(pickle_.items(items[0])[1])) return refuse_type(pickle_.items(items[0])[1]);
    if (items.size() == least + 1 && items[least].kind != PickleKind::kNone &&
        (items[least].kind != PickleKind::kDict || !pickle_.items(items[least]).empty())) {
      return refuse("a conjugated or negated view: save tensor.resolve_conj().resolve_neg()");
    }
    PtTensor entry = entry_of(*type);
    entry.shape = numbers_of(items[2]);
    entry.strides = numbers_of(items[3]);
    entry.first = number_of(items[1]);
    place(std::move(entry), items[0]);
  }

  // A storage that was saved by itself becomes a tensor of one dimension.
  void whole_storage(const PickleValue& value) {
    const auto type = type_of(pickle_.items(value)[1]);
    if (!type) return refuse_type(pickle_.items(value)[1]);
    PtTensor entry = entry_of(*type);
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
    const auto type = type_of(items[1]);
    REIGEN_ASSERT(type, "a storage of {}", text_of(items[1]));
    const std::string name = fmt::format("{}data/{}", folder_, pickle_.text(items[2]).substr(0, kMaxName));
    const ZipRecord* record = archive_.find(name);
    if (record == nullptr) fail_tensor("no record for its storage", fmt::format("'{}'", name));
    const std::int64_t declared = Pickle::integer(items[4]);
    const auto bytes = elements_bytes(*type, std::span(&declared, 1));
    if (!bytes || record->size < *bytes || record->size - *bytes >= size_of(*type)) {
      fail_tensor(fmt::format("{} bytes in record '{}' at byte {}", record->size, name, record->offset),
                  fmt::format("{} elements of {}", declared, name_of(*type)));
    }
    entry.storage = static_cast<std::size_t>(record - archive_.records().data());
    entry.storage_offset = record->offset;
    entry.storage_bytes = *bytes;
    entry.bytes = elements_bytes(entry.type, entry.shape).value_or(~std::uint64_t{0});
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

  // Expanded and shared tensors can together be many times as large as the file, so a program that unpacks all of them
  // needs a limit.
  void check_repeated(const PtTensor& entry) {
    const std::uint64_t size = archive_.file().size();
    const std::uint64_t most = size + std::min(options_.max_repeated_bytes, kMaxBytes - size);
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
  std::vector<bool> open_;                                     // containers that enclose the current one
  std::vector<bool> seen_;                                     // containers already visited inside unread objects
  std::unordered_map<std::string, std::size_t> names_inside_;  // how many tensors inside unread objects have each name
  std::unordered_map<std::string_view, std::size_t> parameter_numbers_;  // of a parameter, by its address in the file
  std::size_t inside_ = 0;                                               // how many unread objects enclose the value
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
  if (tensor.shape.size() != tensor.strides.size() || elements_bytes(tensor.type, tensor.shape) != tensor.bytes)
    return false;
  if (tensor.bytes == 0) return true;
  const std::uint64_t elements = tensor.storage_bytes / size_of(tensor.type);
  if (tensor.first >= elements) return false;
  std::uint64_t left = elements - 1 - tensor.first;  // elements after the first that are still in the storage
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
