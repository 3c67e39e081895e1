#include <utility>
#include <vector>

#include "base/check.h"
#include "reigen/store/store.h"

namespace reigen::store {

namespace {

class PrefixStore final : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> store, std::string prefix) : store_(std::move(store)), prefix_(std::move(prefix)) {
    REIGEN_CHECK(store_ != nullptr, "a prefix store needs a store to stand on");
    prefix_ += '/';
  }

  void set(const std::string& key, const std::string& value) override { store_->set(prefix_ + key, value); }
  std::string get(const std::string& key, const Deadline& deadline) override {
    return store_->get(prefix_ + key, deadline);
  }
  std::optional<std::string> try_get(const std::string& key) override { return store_->try_get(prefix_ + key); }
  std::vector<std::optional<std::string>> try_get_all(const std::vector<std::string>& keys) override {
    std::vector<std::string> whole;
    for (const std::string& key : keys) whole.push_back(prefix_ + key);
    return store_->try_get_all(whole);
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override { return store_->add(prefix_ + key, delta); }
  std::string compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                              const std::string& desired) override {
    return store_->compare_and_set(prefix_ + key, expected, desired);
  }
  bool erase(const std::string& key) override { return store_->erase(prefix_ + key); }

 private:
  std::shared_ptr<Store> store_;
  std::string prefix_;
};

}  // namespace

std::shared_ptr<Store> make_prefix_store(std::shared_ptr<Store> store, std::string prefix) {
  return std::make_shared<PrefixStore>(std::move(store), std::move(prefix));
}

}  // namespace reigen::store
