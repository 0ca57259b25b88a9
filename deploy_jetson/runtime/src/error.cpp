#include "error.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "utf8.h"

namespace robot_rl {
namespace {

void escape(std::string& line, const std::string& text, std::size_t begin, std::size_t end) {
  static const char* kHex = "0123456789abcdef";
  for (auto at = begin; at < end; ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    line += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
  }
}

/// The first position from `at` on that is not inside a character.
std::size_t whole(const std::string& text, std::size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) ++at;
  return at;
}

}  // namespace

std::string one_line(const std::string& text) {
  constexpr std::size_t kMax = 1000, kTail = 300;
  std::string line;
  for (std::size_t at = 0; at < text.size();) {
    const auto begin = at;
    const auto code = next_code(text, at);
    if (code == '\n' || code == '\t' || code == '\r' || code == '\v' || code == '\f') {
      line += ' ';
    } else if (code < 0) {  // one byte that is not UTF-8
      at = begin + 1;
      escape(line, text, begin, at);
    } else if (code < 0x20 || (code >= 0x7f && code < 0xa0)) {
      escape(line, text, begin, at);
    } else {
      line.append(text, begin, at - begin);
    }
  }
  if (line.size() <= kMax) return line;
  const auto head = whole(line, kMax - kTail - 10);
  return line.substr(0, head) + " ... " + line.substr(whole(line, line.size() - kTail));
}

void say_line(std::string_view line, int patience_ms) noexcept {
  static std::atomic<bool> taken{true};  // whether the last line was
  pollfd entry{STDERR_FILENO, POLLOUT, 0};
  taken = poll(&entry, 1, taken ? patience_ms : 0) > 0 && write(STDERR_FILENO, line.data(), line.size()) > 0;
}

bool is_full(const std::error_code& code) noexcept {
  return code.value() == ENOSPC || code.value() == EDQUOT || code.value() == EFBIG;
}

}  // namespace robot_rl
