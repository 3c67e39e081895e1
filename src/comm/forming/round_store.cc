#include "comm/forming/round_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "reigen/comm/byte_strings.h"
#include "store/checks.h"

namespace reigen::comm {

namespace {

constexpr auto kQuiet = std::chrono::milliseconds(1);  // pause after a round in which no rank sent an operation

void put(std::string& text, std::int64_t number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof(number));  // ranks of a group run on machines of one type
}

void put(std::string& text, const std::string& bytes) {
  put(text, static_cast<std::int64_t>(bytes.size()));
  text += bytes;
}

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}
  bool at_end() const { return at_ == text_.size(); }
  std::int64_t number() {
    std::int64_t number = 0;
    REIGEN_ASSERT(at_ + sizeof(number) <= text_.size(), "a round ends in the middle of a number");
    std::memcpy(&number, text_.data() + at_, sizeof(number));
    at_ += sizeof(number);
    return number;
  }
  std::string bytes() {
    const auto size = static_cast<std::size_t>(number());
    REIGEN_ASSERT(size <= text_.size() - at_, "a round ends in the middle of {} bytes", size);
    at_ += size;
    return text_.substr(at_ - size, size);
  }

 private:
  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string RoundStore::encode(const Message& message) {
  std::string text;
  put(text, message.has_ended ? 1 : 0);
  put(text, message.error);
  for (const Operation& one : message.operations) {
    put(text, static_cast<std::int64_t>(one.kind));
    put(text, one.key);
    put(text, one.value);
    put(text, one.expected ? 1 : 0);
    put(text, one.expected.value_or(""));
    put(text, one.delta);
  }
  return text;
}

RoundStore::Message RoundStore::decode(const std::string& text) {
  Message message;
  Reader reader(text);
  message.has_ended = reader.number() == 1;
  message.error = reader.bytes();
  while (!reader.at_end()) {
    Operation one{.kind = static_cast<Kind>(reader.number())};
    one.key = reader.bytes();
    one.value = reader.bytes();
    const bool is_expected = reader.number() == 1;
    std::string expected = reader.bytes();
    if (is_expected) one.expected = std::move(expected);
    one.delta = reader.number();
    message.operations.push_back(std::move(one));
  }
  return message;
}

RoundStore::Answer RoundStore::apply(const Operation& operation) {
  const std::string& key = operation.key;
  switch (operation.kind) {
    case Kind::kSet: table_.set(key, operation.value); return {};
    case Kind::kErase: return {.number = table_.erase(key) ? 1 : 0};
    case Kind::kCompareAndSet:
      if (table_.matches(key, operation.expected)) table_.set(key, operation.value);
      return {.value = table_.held(key)};
    case Kind::kAdd:
      try {
        const std::int64_t sum = table_.sum(key, operation.delta);
        table_.set(key, std::to_string(sum));
        return {.number = sum};
      } catch (const Error&) {
        return {.error = std::current_exception()};
      }
  }
  return {};
}

void RoundStore::round() {
  REIGEN_ASSERT(group_.has_value(), "a round after the end");
  if (failure_) throw MeetingEnded();
  std::vector<std::string> texts;
  try {
    const Message own{.has_ended = has_ended_, .error = own_error_, .operations = std::exchange(untold_, {})};
    texts = all_gather_bytes(encode(own), *group_, "split");
  } catch (...) {
    failure_ = std::current_exception();
    throw MeetingEnded();
  }
  all_have_ended_ = was_quiet_ = true;
  for (std::size_t q = 0; q < texts.size(); ++q) {
    const Message message = decode(texts[q]);
    all_have_ended_ &= message.has_ended;
    if (!message.error.empty() && !error_) {
      error_ = base::decode_error(message.error);
      error_->text = fmt::format("rank {} of {}: {}", q, texts.size(), error_->text);
    }
    for (const Operation& one : message.operations) {
      was_quiet_ = false;
      Answer answer = apply(one);
      if (q == static_cast<std::size_t>(group_->rank())) answer_ = std::move(answer);
    }
  }
}

RoundStore::Answer RoundStore::ask(Operation operation) {
  store::check_key(operation.key);
  store::check_value(operation.key, operation.value);
  untold_.push_back(std::move(operation));
  round();
  if (answer_.error) std::rethrow_exception(answer_.error);
  return answer_;
}

void RoundStore::set(const std::string& key, const std::string& value) {
  store::check_key(key);
  store::check_value(key, value);
  untold_.push_back({.kind = Kind::kSet, .key = key, .value = value});
}

std::string RoundStore::get(const std::string& key, const Deadline& deadline) {
  store::check_key(key);
  const store::KeyWait wait;
  while (table_.find(key) == nullptr) {
    round();
    if (table_.find(key) != nullptr) break;
    if (error_) throw MeetingEnded();
    if (deadline.expired()) wait.throw_timeout(key, "the group that is split");
    if (was_quiet_) std::this_thread::sleep_for(deadline.remaining(kQuiet));
  }
  return *table_.find(key);
}

std::optional<std::string> RoundStore::try_get(const std::string& key) {
  store::check_key(key);
  const std::string* value = table_.find(key);
  return value != nullptr ? std::optional(*value) : std::nullopt;
}

std::int64_t RoundStore::add(const std::string& key, std::int64_t delta) {
  return ask({.kind = Kind::kAdd, .key = key, .delta = delta}).number;
}

std::string RoundStore::compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                                        const std::string& desired) {
  return ask({.kind = Kind::kCompareAndSet, .key = key, .value = desired, .expected = expected}).value;
}

bool RoundStore::erase(const std::string& key) { return ask({.kind = Kind::kErase, .key = key}).number == 1; }

void RoundStore::end(const std::exception_ptr& error) {
  has_ended_ = true;
  if (error && !error_) own_error_ = base::encode(base::record_of(error));
  try {
    while (!failure_ && !all_have_ended_) {
      round();
      if (was_quiet_ && !all_have_ended_) std::this_thread::sleep_for(kQuiet);
    }
  } catch (const MeetingEnded&) {
    // failure() has the error.
  }
  group_.reset();
  table_ = {};
}

}  // namespace reigen::comm
