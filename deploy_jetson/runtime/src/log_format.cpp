#include "log_format.h"

#include <string_view>

namespace robot_rl {

namespace {

constexpr std::string_view kSwapped = "from here on the policy of bundle ";
constexpr std::size_t kShort = 12, kIdentity = 64;

}  // namespace

std::string attachment_suffix(const std::string& identity) { return "." + identity.substr(0, kShort); }

std::string swap_text(const std::string& identity) { return std::string(kSwapped) + identity; }

std::string swapped_identity(const std::string& text) {
  if (!text.starts_with(kSwapped) || text.size() != kSwapped.size() + kIdentity) return {};
  const std::string identity = text.substr(kSwapped.size());
  return identity.find_first_not_of("0123456789abcdef") == std::string::npos ? identity : std::string();
}

}  // namespace robot_rl
