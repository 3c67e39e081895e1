#include "parallel/exchange/gradients_named.h"

#include <fmt/format.h>

#include "reigen/base/error.h"

namespace reigen::parallel {

void with_gradients_named(const std::string& tag, const std::string& first, const std::string& last,
                          const std::function<void()>& body) {
  const auto text = [&](const Error& error) {
    return fmt::format("{}\n  {}: gradients of {}{}", error.what(), tag, first,
                       first == last ? "" : fmt::format(" to {}", last));
  };
  try {
    body();
  } catch (const PeerLost& error) {
    throw PeerLost(error.rank(), text(error));
  } catch (const CollectiveMismatch& error) {
    throw CollectiveMismatch(text(error));
  } catch (const Timeout& error) {
    throw Timeout(text(error));
  } catch (const Aborted& error) {
    throw Aborted(text(error));
  }
}

}  // namespace reigen::parallel
