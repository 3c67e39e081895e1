#include "reigen/store/store.h"

namespace reigen::store {

std::vector<std::optional<std::string>> Store::try_get_all(const std::vector<std::string>& keys) {
  std::vector<std::optional<std::string>> values;
  for (const std::string& key : keys) values.push_back(try_get(key));
  return values;
}

}  // namespace reigen::store
