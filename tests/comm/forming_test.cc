// Time limits while a group forms.
#include "comm/forming/forming.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "reigen/store/store.h"

namespace reigen::comm {
namespace {

using namespace std::chrono_literals;

// A memory store as seen by a rank that is stopped in its first wait: this wait ends long after its deadline.
class StoodStill final : public store::Store {
 public:
  explicit StoodStill(std::shared_ptr<store::Store> inner) : inner_(std::move(inner)) {}
  void set(const std::string& key, const std::string& value) override { inner_->set(key, value); }
  std::string get(const std::string& key, const Deadline& deadline) override {
    try {
      return inner_->get(key, deadline);
    } catch (const Timeout&) {
      if (!stopped_.exchange(true)) std::this_thread::sleep_for(3500ms);
      throw;
    }
  }
  std::optional<std::string> try_get(const std::string& key) override { return inner_->try_get(key); }
  std::int64_t add(const std::string& key, std::int64_t delta) override { return inner_->add(key, delta); }
  std::string compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                              const std::string& desired) override {
    return inner_->compare_and_set(key, expected, desired);
  }
  bool erase(const std::string& key) override { return inner_->erase(key); }

 private:
  const std::shared_ptr<store::Store> inner_;
  std::atomic<bool> stopped_{false};
};

TEST(Forming, TimeInWhichThisRankWasStoppedIsNoneOfTheOthersDelay) {
  const auto inner = store::make_memory_store();
  const GroupOptions options{
      .rank = 0, .size = 2, .store = std::make_shared<StoodStill>(inner), .join_timeout = 2000ms};
  std::thread other([&] {
    std::this_thread::sleep_for(4200ms);
    inner->set("group/world/rank/1", "here");
  });
  Forming forming(options, "", 200ms);
  forming.enter();
  EXPECT_EQ(forming.wait_for("rank/1", "rank"), "here");
  other.join();
}

TEST(Forming, WhoDoesNotComeIsMissedAllTheSame) {
  const GroupOptions options{.rank = 0, .size = 2, .store = store::make_memory_store(), .join_timeout = 300ms};
  Forming forming(options, "", 100ms);
  forming.enter();
  EXPECT_THROW(forming.wait_for("rank/1", "rank"), Timeout);
}

}  // namespace
}  // namespace reigen::comm
