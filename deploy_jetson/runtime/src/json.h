// JSON for the contract and the settings: a strict reader with precise messages, and a small writer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "error.h"

namespace robot_rl {

/// A value as it was read. Numbers keep their text, so that whole numbers of any length and doubles are both exact.
class Json {
 public:
  enum class Kind { kNull, kBool, kInt, kFloat, kString, kArray, kObject };
  using Members = std::vector<std::pair<std::string, Json>>;

  Kind kind = Kind::kNull;
  bool boolean = false;
  std::string text;         // of a string, unescaped, UTF-8; of a number as it was written
  std::vector<Json> items;  // of an array
  Members members;          // of an object, in the file's order; no key twice

  /// A member of an object; nullptr if there is none.
  const Json* find(std::string_view key) const;
  /// The value for a message: like Python's repr, at most 80 characters.
  std::string shown() const;
};

/// Read one JSON text, valid UTF-8; NaN and Infinity are read as numbers, so that a message can name their field.
/// Throws ContractError, which begins with `what`, if it is not JSON or an object has a key twice.
Json parse_json(std::string_view text, const std::string& what);

/// Throw a ContractError with the field `where`, its value, and the allowed values.
[[noreturn]] void refuse(const std::string& where, const std::string& shown, const std::string& wanted);

/// Text or number for a message, as Python shows them.
std::string shown(std::string_view text);
std::string shown(double value);

/// Whether a UTF-8 text contains no control, format, private or spacing character except the blank; see UNPRINTABLE in
/// robot_rl_deploy.strict.
bool is_printable(std::string_view text);

/// Read a value as a type; `where` is the path of the field for the message. Each throws ContractError.
double read_number(const Json& value, const std::string& where);      // finite
long long read_integer(const Json& value, const std::string& where);  // a whole number, written as one, |x| < 2^62
bool read_bool(const Json& value, const std::string& where);
const std::string& read_text(const Json& value, const std::string& where);  // printable
const std::vector<Json>& read_list(const Json& value, const std::string& where);

/// The members of an object with known names. `where` is its path, empty at the top.
class Fields {
 public:
  /// Throws ContractError if `value` is not an object, or has a member that is in none of the lists.
  Fields(const Json& value, std::string where, std::vector<std::string_view> required,
         std::vector<std::string_view> optional = {});
  /// Path of a member for a message, such as "joints[3].kp".
  std::string path(std::string_view name) const;
  /// A member; nullptr for an optional one that is not there.
  const Json* find(std::string_view name) const { return value_->find(name); }
  const Json& at(std::string_view name) const { return *value_->find(name); }
  double number(std::string_view name) const { return read_number(at(name), path(name)); }
  std::optional<double> number_or_null(std::string_view name) const;
  long long integer(std::string_view name) const { return read_integer(at(name), path(name)); }
  const std::string& text(std::string_view name) const { return read_text(at(name), path(name)); }
  const std::vector<Json>& list(std::string_view name) const { return read_list(at(name), path(name)); }

 private:
  const Json* value_;
  std::string where_;
};

/// A string with quotes and escapes; a double in the shortest form that reads back, null if it is not finite.
std::string json_text(std::string_view text);
std::string json_number(double value);

/// Writes one object: JsonObject("steps", 3, "robot", "go2").str(), or with add() for each.
class JsonObject {
 public:
  JsonObject() = default;
  template <class T, class... More>
  JsonObject(std::string_view key, const T& value, const More&... more) {
    add_all(key, value, more...);
  }
  void add_all() {}
  template <class T, class... More>
  void add_all(std::string_view key, const T& value, const More&... more) {
    add(key, value).add_all(more...);
  }
  JsonObject& add(std::string_view key, double value) { return raw(key, json_number(value)); }
  JsonObject& add(std::string_view key, int value) { return raw(key, std::to_string(value)); }
  JsonObject& add(std::string_view key, long value) { return raw(key, std::to_string(value)); }
  JsonObject& add(std::string_view key, long long value) { return raw(key, std::to_string(value)); }
  JsonObject& add(std::string_view key, unsigned long value) { return raw(key, std::to_string(value)); }
  JsonObject& add(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
  JsonObject& add(std::string_view key, const char* value) { return raw(key, json_text(value)); }
  JsonObject& add(std::string_view key, std::string_view value) { return raw(key, json_text(value)); }
  JsonObject& add(std::string_view key, const std::string& value) { return raw(key, json_text(value)); }
  JsonObject& add(std::string_view key, const JsonObject& value) { return raw(key, value.str()); }
  /// Add a value that is JSON already.
  JsonObject& raw(std::string_view key, std::string_view json);
  std::string str() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

/// An array of values that are JSON already.
std::string json_array(const std::vector<std::string>& values);

}  // namespace robot_rl
