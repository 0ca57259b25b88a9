#include "error.h"

namespace robot_rl {

std::string one_line(const std::string& text) {
  constexpr std::size_t kMax = 1000, kTail = 300;
  static const char* kHex = "0123456789abcdef";
  std::string line;
  for (const char sign : text) {
    const auto byte = static_cast<unsigned char>(sign);
    if (byte == '\n' || byte == '\t' || byte == '\r' || byte == '\v' || byte == '\f') {
      line += ' ';
    } else if (byte < 0x20 || byte == 0x7f) {
      line += "\\x";
      line += kHex[byte >> 4];
      line += kHex[byte & 15];
    } else {
      line += sign;
    }
  }
  if (line.size() <= kMax) return line;
  return line.substr(0, kMax - kTail - 5) + " ... " + line.substr(line.size() - kTail);
}

}  // namespace robot_rl
