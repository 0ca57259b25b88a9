// UTF-8, as far as names and messages need it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace robot_rl {

/// The next code point of a text from `at` on, which is advanced; -1 if the bytes are not UTF-8. Surrogates, which
/// JSON's escapes can contain, are accepted with `surrogates`.
inline std::int32_t next_code(std::string_view text, std::size_t& at, bool surrogates = false) {
  const auto first = static_cast<unsigned char>(text[at++]);
  if (first < 0x80) return first;
  const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  if (first < 0xc2 || first > 0xf4) return -1;
  std::int32_t code = first & (0x3f >> more);
  for (int i = 0; i < more; ++i) {
    if (at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80) return -1;
    code = code << 6 | (static_cast<unsigned char>(text[at++]) & 0x3f);
  }
  static constexpr std::int32_t kLowest[] = {0, 0x80, 0x800, 0x10000};
  if (code < kLowest[more] || code > 0x10ffff || (!surrogates && code >= 0xd800 && code < 0xe000)) return -1;
  return code;
}

inline bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    if (next_code(text, at) < 0) return false;
  }
  return true;
}

inline void append_utf8(std::string& text, std::uint32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  static constexpr std::uint32_t kMark[] = {0, 0xc0, 0xe0, 0xf0};
  text += static_cast<char>(kMark[more] | code >> (6 * more));
  for (int i = more - 1; i >= 0; --i) text += static_cast<char>(0x80 | (code >> (6 * i) & 0x3f));
}

}  // namespace robot_rl
