#include "store/contract.h"

namespace reigen::store {
namespace {

class MemoryStorage final : public Storage {
 public:
  std::shared_ptr<Store> open() override { return store_; }

 private:
  std::shared_ptr<Store> store_ = make_memory_store();
};

INSTANTIATE_TEST_SUITE_P(Memory, StoreContract, plain_and_prefixed<MemoryStorage>(), case_name);

TEST(PrefixStore, NeedsAStore) { EXPECT_THROW(make_prefix_store(nullptr, "p"), InvalidArgument); }

TEST(MemoryStore, WaitsWithoutADeadline) {
  const auto store = make_memory_store();
  auto value = std::async(std::launch::async, [&] { return store->get("k", Deadline::never()); });
  store->set("k", "v");
  EXPECT_EQ(value.get(), "v");
}

}  // namespace
}  // namespace reigen::store
