#include "json.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "utf8.h"

namespace robot_rl {
namespace {

constexpr int kMaxDepth = 100;

class Parser {
 public:
  Parser(std::string_view text, const std::string& what) : text_(text), what_(what) {}

  Json parse() {
    Json value = read(0);
    skip_space();
    if (at_ != text_.size()) fail("there is more text after its end");
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw ContractError(what_ + " is not JSON (" + why + ", at byte " + std::to_string(at_) + ")");
  }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  Json read(int depth) {
    if (depth > kMaxDepth) fail("it is nested too deep");
    skip_space();
    Json value;
    if (peek() == '{') {
      read_object(value, depth);
    } else if (peek() == '[') {
      read_array(value, depth);
    } else if (take("\"")) {
      value.kind = Json::Kind::kString;
      value.text = read_string();
    } else if (take("true") || take("false")) {
      value.kind = Json::Kind::kBool;
      value.boolean = text_[at_ - 2] == 'u';
    } else if (!take("null")) {
      read_number(value);
    }
    return value;
  }

  void read_object(Json& value, int depth) {
    value.kind = Json::Kind::kObject;
    ++at_;
    skip_space();
    if (take("}")) return;
    std::set<std::string> keys;
    do {
      skip_space();
      if (!take("\"")) fail("a key in quotes is needed");
      std::string key = read_string();
      if (!keys.insert(key).second) {
        refuse("a key of " + what_, robot_rl::shown(key), "the name is given twice; names must be unique");
      }
      skip_space();
      if (!take(":")) fail("a colon is needed");
      Json member = read(depth + 1);
      value.members.emplace_back(std::move(key), std::move(member));
      skip_space();
    } while (take(","));
    if (!take("}")) fail("a comma or } is needed");
  }

  void read_array(Json& value, int depth) {
    value.kind = Json::Kind::kArray;
    ++at_;
    skip_space();
    if (take("]")) return;
    do {
      value.items.push_back(read(depth + 1));
      skip_space();
    } while (take(","));
    if (!take("]")) fail("a comma or ] is needed");
  }

  void read_number(Json& value) {
    value.kind = Json::Kind::kFloat;
    const auto begin = at_;
    const bool special = take("NaN") || take("Infinity") || take("-Infinity");
    if (!special) {
      take("-");
      value.kind = Json::Kind::kInt;
      if (!take("0") && !digits()) fail("a value is needed");
      if (peek() == '.') {
        ++at_;
        value.kind = Json::Kind::kFloat;
        if (!digits()) fail("a digit is needed after the point");
      }
      if (take("e") || take("E")) {
        value.kind = Json::Kind::kFloat;
        if (!take("+")) take("-");
        if (!digits()) fail("a digit is needed in the exponent");
      }
    }
    value.text = text_.substr(begin, at_ - begin);
  }

  bool digits() {
    const auto begin = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ > begin;
  }

  std::string read_string() {
    std::string result;
    for (;;) {
      if (at_ >= text_.size()) fail("a string does not end");
      const char sign = text_[at_++];
      if (sign == '"') return result;
      if (static_cast<unsigned char>(sign) < 0x20) fail("a string contains a control character");
      if (sign == '\\') {
        read_escape(result);
      } else {
        result += sign;
      }
    }
  }

  void read_escape(std::string& result) {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kSigns = "\"\\/\b\f\n\r\t";
    const char name = peek();
    if (const auto index = kNames.find(name); name && index != std::string_view::npos) {
      ++at_;
      result += kSigns[index];
      return;
    }
    if (!take("u")) fail("a string contains an invalid escape");
    std::uint32_t code = hex4();
    const auto here = at_;
    if (code >= 0xd800 && code < 0xdc00 && take("\\u")) {
      if (const auto low = hex4(); low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      } else {
        at_ = here;
      }
    }
    append_utf8(result, code);
  }

  std::uint32_t hex4() {
    static constexpr std::string_view kDigits = "0123456789abcdef";
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char lower = static_cast<char>(peek() >= 'A' && peek() <= 'F' ? peek() + 32 : peek());
      const auto digit = kDigits.find(lower);
      if (!lower || digit == std::string_view::npos) fail("four hexadecimal digits are needed after \\u");
      code = code * 16 + static_cast<std::uint32_t>(digit);
    }
    return code;
  }

  std::string_view text_;
  const std::string& what_;
  std::size_t at_ = 0;
};

}  // namespace

const Json* Json::find(std::string_view key) const {
  const auto found =
      std::find_if(members.begin(), members.end(), [&](const auto& member) { return member.first == key; });
  return found == members.end() ? nullptr : &found->second;
}

Json parse_json(std::string_view text, const std::string& what) {
  if (!is_utf8(text)) throw ContractError(what + " is not UTF-8");
  return Parser(text, what).parse();
}

}  // namespace robot_rl
