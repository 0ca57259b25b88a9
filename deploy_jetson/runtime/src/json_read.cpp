#include <locale.h>

#include <algorithm>
#include <charconv>
#include <clocale>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>

#include "json.h"
#include "utf8.h"

namespace robot_rl {
namespace {

// The same ranges as UNPRINTABLE in robot_rl_deploy.strict.
constexpr std::int32_t kUnprintable[][2] = {
    {0x0000, 0x001f}, {0x007f, 0x00a0}, {0x00ad, 0x00ad}, {0x0600, 0x0605}, {0x061c, 0x061c},
    {0x06dd, 0x06dd}, {0x070f, 0x070f}, {0x0890, 0x0891}, {0x08e2, 0x08e2}, {0x1680, 0x1680},
    {0x180e, 0x180e}, {0x2000, 0x200f}, {0x2028, 0x202f}, {0x205f, 0x206f}, {0x3000, 0x3000},
    {0xd800, 0xf8ff}, {0xfeff, 0xfeff}, {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0x10000, 0x10ffff},
};

constexpr std::size_t kMaxShown = 80;

std::string cut(std::string text) {
  if (text.size() <= kMaxShown) return text;
  auto end = kMaxShown - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // never inside a character
  return text.substr(0, end) + "...";
}

/// The value of a number's text, whatever the program's locale.
double to_double(const std::string& text) {
  static const locale_t kPlain = newlocale(LC_ALL_MASK, "C", nullptr);
  return strtod_l(text.c_str(), nullptr, kPlain);
}

void show(const Json& value, std::string& out) {
  if (out.size() > kMaxShown) return;
  const auto list = [&out](const auto& items, const char* ends, const auto& each) {
    out += ends[0];
    for (const auto& item : items) {
      if (&item != &items.front()) out += ", ";
      each(item);
    }
    out += ends[1];
  };
  switch (value.kind) {
    case Json::Kind::kNull: out += "None"; break;
    case Json::Kind::kBool: out += value.boolean ? "True" : "False"; break;
    case Json::Kind::kInt: out += value.text; break;
    case Json::Kind::kFloat: out += shown(to_double(value.text)); break;
    case Json::Kind::kString: out += shown(value.text); break;
    case Json::Kind::kArray: list(value.items, "[]", [&out](const Json& item) { show(item, out); }); break;
    case Json::Kind::kObject:
      list(value.members, "{}", [&out](const auto& member) {
        out += shown(member.first) + ": ";
        show(member.second, out);
      });
  }
}

}  // namespace

std::string Json::shown() const {
  std::string out;
  show(*this, out);
  return cut(std::move(out));
}

std::string shown(std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char sign : text) {
    if (sign == quote || sign == '\\') out += '\\';
    if (sign == '\n') {
      out += "\\n";
    } else {
      out += sign;
    }
  }
  return cut(out + quote);
}

std::string shown(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string out = json_number(value);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

bool is_printable(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto code = next_code(text, at, true);
    if (code < 0) return false;
    for (const auto& range : kUnprintable) {
      if (code >= range[0] && code <= range[1]) return false;
    }
  }
  return true;
}

void refuse(const std::string& where, const std::string& shown, const std::string& wanted) {
  throw ContractError(where + " is " + shown + "; " + wanted);
}

double read_number(const Json& value, const std::string& where) {
  if (value.kind != Json::Kind::kInt && value.kind != Json::Kind::kFloat) {
    refuse(where, value.shown(), "a number is needed");
  }
  if (value.text.back() == 'N') refuse(where, "nan", "a finite number is needed");
  if (value.text.back() == 'y') refuse(where, value.text[0] == '-' ? "-inf" : "inf", "a finite number is needed");
  const double number = to_double(value.text);
  if (!std::isfinite(number)) refuse(where, value.shown(), "a finite number is needed");
  return number;
}

long long read_integer(const Json& value, const std::string& where) {
  if (value.kind != Json::Kind::kInt) refuse(where, value.shown(), "a whole number is needed");
  constexpr long long kMost = 1LL << 62;
  long long number = 0;
  const auto end = value.text.data() + value.text.size();
  const auto result = std::from_chars(value.text.data(), end, number);
  if (result.ec != std::errc() || number >= kMost || number <= -kMost) {
    refuse(where, value.shown(), "a whole number of less than 2^62 is needed");
  }
  return number;
}

bool read_bool(const Json& value, const std::string& where) {
  if (value.kind != Json::Kind::kBool) refuse(where, value.shown(), "true or false is needed");
  return value.boolean;
}

const std::string& read_text(const Json& value, const std::string& where) {
  if (value.kind != Json::Kind::kString) refuse(where, value.shown(), "a text is needed");
  if (!is_printable(value.text)) refuse(where, value.shown(), "a text that can be printed is needed");
  return value.text;
}

const std::vector<Json>& read_list(const Json& value, const std::string& where) {
  if (value.kind != Json::Kind::kArray) refuse(where, value.shown(), "a list is needed");
  return value.items;
}

Fields::Fields(const Json& value, std::string where, std::vector<std::string_view> required,
               std::vector<std::string_view> optional)
    : value_(&value), where_(std::move(where)) {
  if (value.kind != Json::Kind::kObject)
    refuse(where_.empty() ? "the whole" : where_, value.shown(), "an object is needed");
  auto known = required;
  known.insert(known.end(), optional.begin(), optional.end());
  for (const auto& [name, member] : value.members) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw ContractError(path(name) + " is unknown; the fields are " + joined(known));
  }
  for (const auto& name : required) {
    if (!value.find(name)) throw ContractError(path(name) + " is missing; it is needed");
  }
}

std::string Fields::path(std::string_view name) const {
  return where_.empty() ? std::string(name) : where_ + "." + std::string(name);
}

std::optional<double> Fields::number_or_null(std::string_view name) const {
  if (at(name).kind == Json::Kind::kNull) return std::nullopt;
  return number(name);
}

std::string json_text(std::string_view text) {
  static const char* kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char sign : text) {
    const auto byte = static_cast<unsigned char>(sign);
    if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      if (sign == '"' || sign == '\\') out += '\\';
      out += sign;
    }
  }
  return out + '"';
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char digits[32];
  const auto result = std::to_chars(std::begin(digits), std::end(digits), value);
  return std::string(digits, result.ptr);
}

JsonObject& JsonObject::raw(std::string_view key, std::string_view json) {
  if (!body_.empty()) body_ += ", ";
  body_ += json_text(key) + ": " + std::string(json);
  return *this;
}

std::string json_array(const std::vector<std::string>& values) {
  std::string out = "[";
  for (const auto& value : values) out += (out.size() > 1 ? ", " : "") + value;
  return out + "]";
}

}  // namespace robot_rl
