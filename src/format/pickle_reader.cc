#include "format/pickle_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "format/utf8.h"
#include "reigen/base/error.h"

namespace reigen::format {
namespace {

// In a pickle a tensor of d dimensions needs about 8 containers and 20 + 2 * d values. The limits for each entry (a
// tensor or a value of the file) are somewhat larger.
constexpr std::size_t kContainersPerEntry = 16;
constexpr std::size_t kValuesPerEntry = 32;
constexpr std::size_t kShown = 80;  // bytes of a name in a message
constexpr const char* kFetchPickle = "fetch the file again, or write it again with torch.save (PyTorch >= 1.6)";
constexpr const char* kSaveData =
    "save data alone, in Python: torch.save(model.state_dict(), path); in C++: torch::save(model, path)";
constexpr const char* kDoNotTrust =
    "do not load this file in Python, and take the weights from another source, best as safetensors";

enum Op : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kBinFloat = 'G',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8A,
  kLong4 = 0x8B,
  kShortBinUnicode = 0x8C,
  kBinUnicode8 = 0x8D,
  kBinBytes8 = 0x8E,
  kEmptySet = 0x8F,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kNewObjEx = 0x92,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96
};

std::string printable(std::string_view text) {
  std::string shown(text.substr(0, kShown));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > kShown ? shown + "..." : shown;
}

std::size_t characters_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

bool is(const PickleValue& value, PickleRole role) {
  return value.kind == PickleKind::kGlobal && Pickle::global(value).role == role;
}

}  // namespace

class PickleMachine {
 public:
  PickleMachine(Pickle& pickle, const PickleSource& source, std::size_t max_entries)
      : pickle_(pickle), source_(source), max_entries_(max_entries) {
    pickle_.items_.emplace_back();  // the empty tuple, at index 0
  }

  void run() {
    op_at_ = 0;
    if (take() != kProto) fail("no protocol", "a pickle, which begins with 80");
    if (const unsigned protocol = take(); protocol < 2 || protocol > 5) {
      fail(fmt::format("pickle protocol {}", protocol), "protocols 2 to 5");
    }
    for (;;) {
      op_at_ = at_;
      const std::uint8_t op = take();
      if (op == kStop) break;
      step(op);
    }
    pickle_.root_ = pop();
    if (!stack_.empty() || !marks_.empty()) fail("more than one value at the end", "one");
    if (at_ != pickle_.bytes_.size()) fail(fmt::format("{} bytes after the end", pickle_.bytes_.size() - at_), "none");
  }

 private:
  [[noreturn]] void fail(std::string got, std::string expected, const char* fix = kFetchPickle) const {
    throw DataError(Report{.what = fmt::format("'{}' cannot be read: byte {} ({} of record '{}')", source_.path,
                                               source_.offset + op_at_, op_at_, source_.record),
                           .got = std::move(got),
                           .expected = std::move(expected),
                           .fix = fix});
  }

  void step(std::uint8_t op) {
    if (constant(op) || number(op) || string(op) || memo(op) || stack_only(op) || tuple(op) || fill(op)) return;
    switch (op) {
      case kProto: fail("the protocol again", "it once, at the beginning");
      case kFrame:
        if (take_number<std::uint64_t>() > rest()) fail("a frame that goes past the end", "one inside the record");
        return;
      case kGlobal: return global_of_lines();
      case kStackGlobal: return global_of_stack();
      case kReduce:
      case kNewObj: return call();
      case kNewObjEx: return call_with_names();
      case kBuild: return build();
      case kBinPersId: return storage();
      default: fail(fmt::format("instruction {:#04x}", op), "those that torch.save writes for data", kSaveData);
    }
  }

  std::size_t rest() const { return pickle_.bytes_.size() - at_; }

  std::string_view take_bytes(std::uint64_t count) {
    if (count > rest()) fail(fmt::format("{} bytes, the record's last", rest()), fmt::format("{} bytes", count));
    const std::string_view bytes = std::string_view(pickle_.bytes_).substr(at_, count);
    at_ += count;
    return bytes;
  }
  std::uint8_t take() { return static_cast<std::uint8_t>(take_bytes(1)[0]); }

  template <typename T>
  T take_number() {
    T value;
    std::memcpy(&value, take_bytes(sizeof value).data(), sizeof value);
    return value;
  }

  // Every value costs at least one byte of the pickle, so only a large pickle can reach this limit.
  void push(PickleValue value) {
    if (++values_ / kValuesPerEntry >= max_entries_) fail_large("values", values_);
    stack_.push_back(value);
  }
  [[noreturn]] void fail_large(const char* what, std::size_t count) const {
    fail(fmt::format("{} {}", count, what), fmt::format("what {} entries need", max_entries_),
         "raise PtOptions::max_entries if you trust the file");
  }

  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleValue pop() {
    if (stack_.size() <= floor()) fail("an empty stack", "a value on it");
    const PickleValue value = stack_.back();
    stack_.pop_back();
    return value;
  }
  PickleValue& top() {
    if (stack_.size() <= floor()) fail("an empty stack", "a value on it");
    return stack_.back();
  }
  // Removes the values above the last mark from the stack, and returns them.
  std::vector<PickleValue> pop_mark() {
    if (marks_.empty()) fail("no mark", "one on the stack");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleValue> values(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return values;
  }

  PickleValue container(PickleKind kind, std::vector<PickleValue> items = {}) {
    if (items.empty() && kind == PickleKind::kTuple) return {kind, 0, 0};
    if (pickle_.items_.size() / kContainersPerEntry >= max_entries_) fail_large("containers", pickle_.items_.size());
    pickle_.items_.push_back(std::move(items));
    return {kind, 0, pickle_.items_.size() - 1};
  }

  bool constant(std::uint8_t op) {
    switch (op) {
      case kNone: push({PickleKind::kNone, 0, 0}); return true;
      case kNewTrue: push({PickleKind::kBool, 0, 1}); return true;
      case kNewFalse: push({PickleKind::kBool, 0, 0}); return true;
      case kEmptyDict: push(container(PickleKind::kDict)); return true;
      case kEmptyList: push(container(PickleKind::kList)); return true;
      case kEmptySet: push(container(PickleKind::kSet)); return true;
      case kEmptyTuple: push(container(PickleKind::kTuple)); return true;
      default: return false;
    }
  }

  void push_integer(std::int64_t value) { push({PickleKind::kInt, 0, static_cast<std::uint64_t>(value)}); }

  bool number(std::uint8_t op) {
    switch (op) {
      case kBinInt: push_integer(take_number<std::int32_t>()); return true;
      case kBinInt1: push_integer(take()); return true;
      case kBinInt2: push_integer(take_number<std::uint16_t>()); return true;
      case kLong1: long_integer(take()); return true;
      case kLong4: long_integer(take_number<std::uint32_t>()); return true;
      case kBinFloat: {
        std::uint64_t bits = 0;
        for (const char c : take_bytes(8)) bits = bits << 8 | static_cast<unsigned char>(c);
        push({PickleKind::kFloat, 0, bits});
        return true;
      }
      default: return false;
    }
  }

  void long_integer(std::uint32_t size) {
    const std::size_t begin = at_;
    const std::string_view bytes = take_bytes(size);
    if (size > 8) return push({PickleKind::kBigInt, size, begin});
    std::uint64_t value = 0;
    if (size > 0 && (static_cast<unsigned char>(bytes.back()) & 0x80) != 0) value = ~std::uint64_t{0};
    for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    push_integer(static_cast<std::int64_t>(value));
  }

  void push_string(PickleKind kind, std::uint64_t size) {
    const std::size_t begin = at_;
    const std::string_view bytes = take_bytes(size);
    if (kind == PickleKind::kText && !is_utf8(bytes)) fail("text that is not UTF-8: " + printable(bytes), "UTF-8");
    push({kind, static_cast<std::uint32_t>(size), begin});
  }

  bool string(std::uint8_t op) {
    switch (op) {
      case kShortBinUnicode: push_string(PickleKind::kText, take()); return true;
      case kBinUnicode: push_string(PickleKind::kText, take_number<std::uint32_t>()); return true;
      case kBinUnicode8: push_string(PickleKind::kText, take_number<std::uint64_t>()); return true;
      case kShortBinBytes: push_string(PickleKind::kBytes, take()); return true;
      case kBinBytes: push_string(PickleKind::kBytes, take_number<std::uint32_t>()); return true;
      case kByteArray8:
      case kBinBytes8: push_string(PickleKind::kBytes, take_number<std::uint64_t>()); return true;
      default: return false;
    }
  }

  // Python numbers the memo entries one after the other, so a vector is enough.
  void put(std::size_t number) {
    const PickleValue value = top();
    if (number > memo_.size()) {
      fail(fmt::format("memo {}", number), fmt::format("at most {}, the next one", memo_.size()));
    }
    if (number == memo_.size()) {
      if (++values_ / kValuesPerEntry >= max_entries_) fail_large("values", values_);
      memo_.push_back(value);
    }
    memo_[number] = value;
  }
  void get(std::size_t number) {
    if (number >= memo_.size()) fail(fmt::format("memo {}", number), fmt::format("less than {}", memo_.size()));
    push(memo_[number]);
  }

  bool memo(std::uint8_t op) {
    switch (op) {
      case kBinPut: put(take()); return true;
      case kLongBinPut: put(take_number<std::uint32_t>()); return true;
      case kMemoize: put(memo_.size()); return true;
      case kBinGet: get(take()); return true;
      case kLongBinGet: get(take_number<std::uint32_t>()); return true;
      default: return false;
    }
  }

  bool stack_only(std::uint8_t op) {
    switch (op) {
      case kMark:
        if (++values_ / kValuesPerEntry >= max_entries_) fail_large("values", values_);
        marks_.push_back(stack_.size());
        return true;
      case kPop:
        if (!marks_.empty() && stack_.size() == marks_.back()) {
          marks_.pop_back();
        } else {
          pop();
        }
        return true;
      case kPopMark: pop_mark(); return true;
      case kDup: push(top()); return true;
      default: return false;
    }
  }

  bool tuple(std::uint8_t op) {
    switch (op) {
      case kTuple: push(container(PickleKind::kTuple, pop_mark())); return true;
      case kFrozenSet: push(container(PickleKind::kSet, pop_mark())); return true;
      case kTuple1:
      case kTuple2:
      case kTuple3: {
        std::vector<PickleValue> items(op - kTuple1 + std::size_t{1});
        for (std::size_t i = items.size(); i-- > 0;) items[i] = pop();
        push(container(PickleKind::kTuple, std::move(items)));
        return true;
      }
      default: return false;
    }
  }

  void add(PickleKind kind, std::span<const PickleValue> added) {
    if (top().kind == PickleKind::kObject) {
      const PickleValue part = container(kind, {added.begin(), added.end()});
      pickle_.items_[top().bits].push_back(part);
      return;
    }
    if (top().kind != kind) fail("another value", kind == PickleKind::kDict ? "a dict to add to" : "a list to add to");
    if (kind == PickleKind::kDict && added.size() % 2 != 0) fail("a key without a value", "keys with values");
    auto& items = pickle_.items_[top().bits];
    items.insert(items.end(), added.begin(), added.end());
  }

  bool fill(std::uint8_t op) {
    switch (op) {
      case kAppend:
      case kSetItem: {
        std::vector<PickleValue> items(op == kAppend ? 1 : 2);
        for (std::size_t i = items.size(); i-- > 0;) items[i] = pop();
        add(op == kAppend ? PickleKind::kList : PickleKind::kDict, items);
        return true;
      }
      case kAppends: add(PickleKind::kList, pop_mark()); return true;
      case kSetItems: add(PickleKind::kDict, pop_mark()); return true;
      case kAddItems: add(PickleKind::kSet, pop_mark()); return true;
      default: return false;
    }
  }

  // Handles all global names of a pickle. `module` and `name` must be views into the pickle's bytes.
  void push_global(std::string_view module, std::string_view name) {
    if (const auto index = find_pickle_global(module, name)) return push({PickleKind::kGlobal, *index, 0});
    if (runs_programs(module, name)) {
      fail(fmt::format("{}.{}, which would run code", printable(module), printable(name)),
           "tensors, containers, numbers and text", kDoNotTrust);
    }
    const auto place = [&](std::string_view text) {
      return static_cast<std::uint32_t>(text.data() - pickle_.bytes_.data());
    };
    push({PickleKind::kName, static_cast<std::uint32_t>(pickle_.names_.size()), 0});
    pickle_.names_.push_back({.module_at = place(module),
                              .module_size = static_cast<std::uint32_t>(module.size()),
                              .name_at = place(name),
                              .name_size = static_cast<std::uint32_t>(name.size())});
  }
  std::string_view take_line() {
    const std::size_t end = pickle_.bytes_.find('\n', at_);
    if (end == std::string::npos) fail("a name without an end", "a line");
    const std::string_view line = take_bytes(end - at_);
    ++at_;
    return line;
  }
  void global_of_lines() {
    const std::string_view module = take_line();
    push_global(module, take_line());
  }
  void global_of_stack() {
    const PickleValue name = pop();
    const PickleValue module = pop();
    if (name.kind != PickleKind::kText || module.kind != PickleKind::kText) fail("no name", "two texts");
    push_global(pickle_.text(module), pickle_.text(name));
  }

  void call() {
    const PickleValue arguments = pop();
    const PickleValue callee = pop();
    push(called(callee, arguments));
  }

  void call_with_names() {
    const PickleValue named = pop();
    const PickleValue arguments = pop();
    const PickleValue callee = pop();
    if (named.kind != PickleKind::kDict) fail("another value", "a dict of arguments");
    const PickleValue result = called(callee, arguments);
    if (result.kind == PickleKind::kObject) {
      pickle_.items_[result.bits].push_back(named);
    } else if (!pickle_.items(named).empty()) {
      fail_call(callee);
    }
    push(result);
  }

  PickleValue called(const PickleValue& callee, const PickleValue& arguments) {
    const bool known = callee.kind == PickleKind::kGlobal;
    if (!known && callee.kind != PickleKind::kName && callee.kind != PickleKind::kObject) {
      fail("a call of a value", "a call of a name", kSaveData);
    }
    if (arguments.kind != PickleKind::kTuple) fail_call(callee);
    return known ? result_of(callee, arguments) : object_of(callee, arguments);
  }

  PickleValue object_of(const PickleValue& callee, const PickleValue& arguments) {
    const PickleValue object = container(PickleKind::kObject, {arguments});
    return {PickleKind::kObject, callee.size, object.bits};
  }

  [[noreturn]] void fail_call(const PickleValue& callee) const {
    const std::string name = callee.kind == PickleKind::kGlobal
                                 ? fmt::format("{}.{}", Pickle::global(callee).module, Pickle::global(callee).name)
                                 : pickle_.name(callee);
    fail(fmt::format("{} with other arguments", name), "those that torch.save writes", kSaveData);
  }

  PickleValue result_of(const PickleValue& callee, const PickleValue& arguments) {
    const auto items = pickle_.items(arguments);
    const auto first_is = [&](PickleKind kind) { return items.size() == 1 && items[0].kind == kind; };
    switch (Pickle::global(callee).role) {
      case PickleRole::kDict:
        if (first_is(PickleKind::kDict)) return items[0];
        if (items.empty()) return container(PickleKind::kDict);
        break;
      case PickleRole::kDefaultDict:
        if (items.empty() || first_is(PickleKind::kGlobal) || first_is(PickleKind::kName) ||
            first_is(PickleKind::kObject) || first_is(PickleKind::kNone)) {
          return container(PickleKind::kDict);
        }
        break;
      case PickleRole::kSet:
        if (items.empty()) return container(PickleKind::kSet);
        if (first_is(PickleKind::kList)) return {PickleKind::kSet, 0, items[0].bits};
        break;
      case PickleRole::kSize:
        if (items.empty() || first_is(PickleKind::kTuple)) return items.empty() ? arguments : items[0];
        break;
      case PickleRole::kDevice:
        if (is_device(items)) return {PickleKind::kDevice, 0, arguments.bits};
        break;
      case PickleRole::kBytes: return bytes_of(callee, items);
      case PickleRole::kRebuildTensor:
      case PickleRole::kRebuildTyped:
      case PickleRole::kRebuildOther: return {PickleKind::kTensor, callee.size, arguments.bits};
      case PickleRole::kRebuildParameter:  // arguments: (tensor, requires_grad, hooks), perhaps attributes
        if (items.size() >= 3 && items.size() <= 4 && is_tensor(items[0])) return items[0];
        break;
      case PickleRole::kFirstArgument:
        if (!items.empty()) return items[0];
        break;
      case PickleRole::kRebuildSubclass: return rebuilt(callee, items);
      case PickleRole::kType:
      case PickleRole::kTensorClass:
      case PickleRole::kStorageClass:
      case PickleRole::kElementType: break;
    }
    fail_call(callee);
  }

  static bool is_device(std::span<const PickleValue> items) {
    return (items.size() == 1 || (items.size() == 2 && items[1].kind == PickleKind::kInt)) &&
           items[0].kind == PickleKind::kText;
  }

  static bool is_tensor(const PickleValue& value) {
    return value.kind == PickleKind::kTensor || value.kind == PickleKind::kObject;
  }

  // Arguments: (function, class, arguments of the function, attributes). An object of a subclass of torch.Tensor has
  // the values of the tensor that the function makes.
  PickleValue rebuilt(const PickleValue& callee, std::span<const PickleValue> items) {
    const bool good = items.size() == 4 &&
                      (items[0].kind == PickleKind::kGlobal || items[0].kind == PickleKind::kName) &&
                      !is(items[0], PickleRole::kRebuildSubclass) &&
                      (is(items[1], PickleRole::kTensorClass) || items[1].kind == PickleKind::kName) &&
                      items[2].kind == PickleKind::kTuple;
    if (!good) fail_call(callee);
    const PickleValue result = called(items[0], items[2]);
    if (!is_tensor(result)) fail_call(callee);
    return result;
  }

  // Handles bytes(), bytearray(bytes), bytearray(text, "latin-1") and encode(text, "latin1"). Only the length of the
  // result is used.
  PickleValue bytes_of(const PickleValue& callee, std::span<const PickleValue> items) {
    if (items.empty()) return {PickleKind::kBytes, 0, 0};
    if (items.size() == 1 && items[0].kind == PickleKind::kBytes) return items[0];
    if (items.size() != 2 || items[0].kind != PickleKind::kText || items[1].kind != PickleKind::kText) {
      fail_call(callee);
    }
    return {PickleKind::kBytes, static_cast<std::uint32_t>(characters_of(pickle_.text(items[0]))), 0};
  }

  // Handles the instruction that sets attributes (an OrderedDict's _metadata, Python attributes of a parameter).
  // Attributes of dicts and tensors are dropped, because they do not affect the values. An unknown object keeps its
  // attributes as one of its items.
  void build() {
    const PickleValue state = pop();
    const PickleValue target = top();
    if (target.kind == PickleKind::kObject) {
      pickle_.items_[target.bits].push_back(state);
    } else if (target.kind != PickleKind::kDict && target.kind != PickleKind::kTensor) {
      fail("attributes of another value", "attributes of a dict or a tensor", kSaveData);
    }
  }

  void storage() {
    const PickleValue id = pop();
    const auto items = id.kind == PickleKind::kTuple ? pickle_.items(id) : std::span<const PickleValue>();
    if (items.size() != 5 || items[0].kind != PickleKind::kText || pickle_.text(items[0]) != "storage" ||
        (!is(items[1], PickleRole::kStorageClass) && items[1].kind != PickleKind::kName) ||
        items[2].kind != PickleKind::kText || items[3].kind != PickleKind::kText || items[4].kind != PickleKind::kInt ||
        Pickle::integer(items[4]) < 0) {
      fail("another reference", "('storage', its class, key, location, number of elements)");
    }
    push({PickleKind::kStorage, 0, id.bits});
  }

  Pickle& pickle_;
  const PickleSource& source_;
  const std::size_t max_entries_;
  std::size_t at_ = 0;
  std::size_t op_at_ = 0;  // where the current instruction begins, for messages
  std::size_t values_ = 0;
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;
  std::vector<PickleValue> memo_;
};

Pickle::Pickle(std::string bytes, const PickleSource& source, std::size_t max_entries) : bytes_(std::move(bytes)) {
  REIGEN_ASSERT(bytes_.size() <= std::numeric_limits<std::uint32_t>::max(), "a pickle of {} bytes", bytes_.size());
  PickleMachine(*this, source, max_entries).run();
}

std::string_view Pickle::text(const PickleValue& value) const {
  return std::string_view(bytes_).substr(value.bits, value.size);
}
std::span<const PickleValue> Pickle::items(const PickleValue& value) const { return items_[value.bits]; }
const PickleGlobal& Pickle::global(const PickleValue& value) { return pickle_global(value.size); }
std::string_view Pickle::module(const PickleValue& value) const {
  const Name& name = names_[value.size];
  return std::string_view(bytes_).substr(name.module_at, name.module_size);
}
std::string Pickle::name(const PickleValue& value) const {
  const Name& name = names_[value.size];
  const std::string_view module = this->module(value);
  return fmt::format("{}.{}", module == "__builtin__" ? "builtins" : printable(module),
                     printable(std::string_view(bytes_).substr(name.name_at, name.name_size)));
}
bool Pickle::has_items(const PickleValue& value) {
  return value.kind == PickleKind::kTuple || value.kind == PickleKind::kList || value.kind == PickleKind::kDict ||
         value.kind == PickleKind::kSet;
}
double Pickle::number(const PickleValue& value) { return std::bit_cast<double>(value.bits); }
std::int64_t Pickle::integer(const PickleValue& value) { return static_cast<std::int64_t>(value.bits); }

}  // namespace reigen::format
