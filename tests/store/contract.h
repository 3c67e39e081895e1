// Tests that every store must pass. To run the whole suite, a kind of store only says how to open it:
//   class MyStorage : public Storage { std::shared_ptr<Store> open() override; };
//   INSTANTIATE_TEST_SUITE_P(My, StoreContract, plain_and_prefixed<MyStorage>(), case_name);
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reigen/base/bytes.h"
#include "reigen/base/error.h"
#include "reigen/store/store.h"
#include "store/expect.h"

namespace reigen::store {

// The place of keys and values. Each open() gives another Store for it, as another process would have.
class Storage {
 public:
  virtual ~Storage() = default;
  virtual std::shared_ptr<Store> open() = 0;
};

class PrefixedStorage final : public Storage {
 public:
  explicit PrefixedStorage(std::unique_ptr<Storage> below) : below_(std::move(below)) {}
  std::shared_ptr<Store> open() override { return make_prefix_store(below_->open(), "part"); }

 private:
  std::unique_ptr<Storage> below_;
};

struct ContractCase {
  std::string name;
  std::function<std::unique_ptr<Storage>()> make;
};

template <typename Kind>
auto plain_and_prefixed() {
  return testing::Values(
      ContractCase{"plain", [] { return std::make_unique<Kind>(); }},
      ContractCase{"prefixed", [] { return std::make_unique<PrefixedStorage>(std::make_unique<Kind>()); }});
}

inline std::string case_name(const testing::TestParamInfo<ContractCase>& info) { return info.param.name; }

class StoreContract : public testing::TestWithParam<ContractCase> {
 protected:
  std::unique_ptr<Storage> storage_ = GetParam().make();
  std::shared_ptr<Store> store_ = storage_->open();
  std::shared_ptr<Store> other_ = storage_->open();
};

TEST_P(StoreContract, SetIsSeenByEverybodyAndReplaces) {
  EXPECT_EQ(store_->try_get("key"), std::nullopt);
  store_->set("key", "one");
  EXPECT_EQ(other_->get("key", soon()), "one");
  other_->set("key", "two");
  EXPECT_EQ(store_->get("key", soon()), "two");
  EXPECT_EQ(store_->try_get("key"), "two");
  EXPECT_EQ(store_->try_get("ke"), std::nullopt);
}

TEST_P(StoreContract, GetOfAnExistingKeyNeedsNoTime) {
  store_->set("key", "value");
  EXPECT_EQ(other_->get("key", now()), "value");
}

TEST_P(StoreContract, WaitingGetIsWokenBySet) {
  auto value = std::async(std::launch::async, [&] { return other_->get("late", soon()); });
  std::this_thread::sleep_for(20ms);
  store_->set("unrelated", "no");
  store_->set("late", "yes");
  EXPECT_EQ(value.get(), "yes");
}

TEST_P(StoreContract, WaitingGetIsWokenByAddAndCompareAndSet) {
  auto counter = std::async(std::launch::async, [&] { return other_->get("counter", soon()); });
  auto elected = std::async(std::launch::async, [&] { return other_->get("elected", soon()); });
  std::this_thread::sleep_for(20ms);
  store_->add("counter", 5);
  store_->compare_and_set("elected", std::nullopt, "me");
  EXPECT_EQ(counter.get(), "5");
  EXPECT_EQ(elected.get(), "me");
}

TEST_P(StoreContract, WaitingGetHoldsUpNobody) {
  std::vector<std::future<std::string>> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(std::async(std::launch::async, [&] { return store_->get("end", soon()); }));
  }
  std::this_thread::sleep_for(20ms);
  for (int i = 0; i < 20; ++i) store_->set("other", "value");  // uses the same object from another thread
  store_->set("end", "now");
  for (auto& value : waiting) EXPECT_EQ(value.get(), "now");
}

TEST_P(StoreContract, DeadlineOfGetNamesTheKey) {
  const std::string message = message_of([&] { store_->get("never", Deadline::after(30ms)); });
  EXPECT_THAT(message, testing::HasSubstr("never'"));
  EXPECT_THROW(store_->get("never", now()), Timeout);
  // The wait leaves nothing behind, and the store remains usable.
  store_->set("never", "after all");
  EXPECT_EQ(store_->get("never", soon()), "after all");
}

TEST_P(StoreContract, AddCountsFromZeroAndStoresText) {
  EXPECT_EQ(store_->add("n", 3), 3);
  EXPECT_EQ(other_->add("n", -5), -2);
  EXPECT_EQ(store_->add("n", 0), -2);
  EXPECT_EQ(store_->get("n", soon()), "-2");
  store_->set("n", "40");
  EXPECT_EQ(store_->add("n", 2), 42);
}

TEST_P(StoreContract, AddRefusesWhatIsNoCounter) {
  for (const std::string value : {"text", "", "12x", " 1", "99999999999999999999"}) {
    store_->set("n", value);
    EXPECT_THROW(store_->add("n", 1), InvalidArgument) << "'" << value << "'";
    EXPECT_EQ(store_->get("n", soon()), value);
  }
  store_->set("n", "9223372036854775807");
  EXPECT_THROW(store_->add("n", 1), InvalidArgument);
  EXPECT_EQ(store_->add("n", -1), 9223372036854775806);
}

TEST_P(StoreContract, ConcurrentAddsAreAllCounted) {
  constexpr int kThreads = 8;
  constexpr int kAdds = 25;
  std::vector<std::future<void>> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.push_back(std::async(std::launch::async, [&, t] {
      const auto store = t % 2 == 0 ? store_ : storage_->open();
      for (int i = 0; i < kAdds; ++i) store->add("sum", t + 1);
    }));
  }
  for (auto& thread : threads) thread.get();
  EXPECT_EQ(store_->get("sum", soon()), std::to_string(kAdds * kThreads * (kThreads + 1) / 2));
}

TEST_P(StoreContract, CompareAndSetSetsOnlyWhatIsExpected) {
  EXPECT_EQ(store_->compare_and_set("k", "a", "b"), "");  // a missing value is not "a"
  EXPECT_EQ(store_->try_get("k"), std::nullopt);
  EXPECT_EQ(store_->compare_and_set("k", std::nullopt, "a"), "a");
  EXPECT_EQ(store_->compare_and_set("k", std::nullopt, "b"), "a");
  EXPECT_EQ(other_->compare_and_set("k", "x", "b"), "a");
  EXPECT_EQ(other_->compare_and_set("k", "a", "b"), "b");
  EXPECT_EQ(store_->get("k", soon()), "b");
  store_->set("k", "");
  EXPECT_EQ(store_->compare_and_set("k", std::nullopt, "c"), "");  // an empty value is not a missing one
  EXPECT_EQ(store_->compare_and_set("k", "", "c"), "c");
}

TEST_P(StoreContract, CompareAndSetElectsExactlyOne) {
  constexpr int kThreads = 8;
  std::vector<std::future<std::string>> threads;
  std::atomic<int> elected = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.push_back(std::async(std::launch::async, [&, t] {
      const auto store = t % 2 == 0 ? store_ : storage_->open();
      const std::string winner = store->compare_and_set("leader", std::nullopt, std::to_string(t));
      elected += winner == std::to_string(t) ? 1 : 0;
      return winner;
    }));
  }
  const std::string leader = threads[0].get();
  for (int t = 1; t < kThreads; ++t) EXPECT_EQ(threads[static_cast<std::size_t>(t)].get(), leader);
  EXPECT_EQ(elected, 1);
}

TEST_P(StoreContract, EraseMakesAKeyMissing) {
  EXPECT_FALSE(store_->erase("k"));
  store_->set("k", "v");
  EXPECT_TRUE(other_->erase("k"));
  EXPECT_FALSE(store_->erase("k"));
  EXPECT_EQ(store_->try_get("k"), std::nullopt);
  EXPECT_EQ(store_->add("k", 1), 1);
}

TEST_P(StoreContract, SeveralKeysAtOnce) {
  EXPECT_TRUE(store_->try_get_all({}).empty());
  store_->set("a", "1");
  store_->set("empty", "");
  const std::string large(kMiB, 'x');
  store_->set("large", large);
  store_->set("larger", large);
  const auto values = other_->try_get_all({"larger", "a", "none", "large", "empty", "a"});
  EXPECT_THAT(values, testing::ElementsAre(large, "1", std::nullopt, large, "", "1"));
  std::vector<std::string> keys;
  for (int i = 0; i < 1000; ++i) keys.push_back("k" + std::to_string(i));
  for (int i = 0; i < 1000; i += 2) store_->set(keys[static_cast<std::size_t>(i)], std::to_string(i));
  const auto half = other_->try_get_all(keys);
  ASSERT_EQ(half.size(), 1000U);
  for (int i = 0; i < 1000; ++i) {
    const auto& value = half[static_cast<std::size_t>(i)];
    EXPECT_EQ(value, i % 2 == 0 ? std::optional(std::to_string(i)) : std::nullopt) << i;
  }
}

TEST_P(StoreContract, KeysAndValuesAreBytes) {
  std::string bytes;
  for (int i = 0; i < 1024; ++i) bytes += static_cast<char>(i % 256);
  const std::string key("k\0\n\xff/", 5);
  store_->set(key, bytes);
  store_->set("k", "other");
  EXPECT_EQ(other_->get(key, soon()), bytes);
  store_->set("", "value of the empty key");
  EXPECT_EQ(other_->get("", soon()), "value of the empty key");
}

TEST_P(StoreContract, AnEmptyValueIsNotAMissingOne) {
  store_->set("k", "");
  EXPECT_EQ(other_->try_get("k"), "");
  EXPECT_EQ(other_->get("k", soon()), "");
  EXPECT_TRUE(other_->erase("k"));
}

TEST_P(StoreContract, OneMebibyteIsTheLargestValue) {
  std::string value(kMiB, 'x');
  for (std::size_t i = 0; i < value.size(); i += 1000) value[i] = static_cast<char>('a' + i % 26);
  store_->set("large", value);
  EXPECT_EQ(other_->get("large", soon()), value);
  const std::string other_value(kMiB, 'y');
  EXPECT_EQ(other_->compare_and_set("large", value, other_value), other_value);

  const std::string too_large(kMiB + 1, 'z');
  EXPECT_THAT(message_of([&] { store_->set("large", too_large); }),
              testing::AllOf(testing::HasSubstr("large'"), testing::HasSubstr("1 MiB")));
  EXPECT_THROW(store_->set("large", too_large), InvalidArgument);
  EXPECT_THROW(store_->compare_and_set("large", std::nullopt, too_large), InvalidArgument);
  EXPECT_THROW(store_->set(std::string(kMiB, 'k'), "v"), InvalidArgument);
  EXPECT_EQ(store_->get("large", soon()), other_value);
}

TEST_P(StoreContract, PrefixesKeepGroupsApart) {
  const auto left = make_prefix_store(store_, "left");
  const auto right = make_prefix_store(other_, "right");
  left->set("k", "l");
  right->set("k", "r");
  EXPECT_EQ(left->get("k", soon()), "l");
  EXPECT_EQ(store_->try_get("k"), std::nullopt);
  EXPECT_EQ(other_->get("left/k", soon()), "l");
  EXPECT_TRUE(right->erase("k"));
  EXPECT_EQ(left->try_get("k"), "l");
}

}  // namespace reigen::store
