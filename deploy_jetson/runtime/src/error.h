// Errors that reach the user: one line each, for any input.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace robot_rl {

/// Exit codes of the binary.
enum class ExitCode : int { kDone = 0, kBadInput = 2, kRefused = 3, kFault = 4, kDiskFull = 74 };

/// Make one printable line of a text: other white space becomes a blank, unprintable characters are escaped, the middle
/// is cut beyond 1000 characters.
std::string one_line(const std::string& text);

/// The names of some things, with commas between them.
template <class Things, class Name = std::identity>
std::string joined(const Things& things, Name name = {}) {
  std::string line;
  for (const auto& thing : things) {
    if (!line.empty()) line += ", ";
    line += std::invoke(name, thing);
  }
  return line;
}

/// Write a line to stderr, or leave it out if nobody reads it within so many milliseconds: a full pipe or a stopped
/// terminal must not delay a robot. Allocates nothing.
void say_line(std::string_view line, int patience_ms) noexcept;

/// Whether an error means that no more can be written: the disk, a quota or the largest file size is reached.
bool is_full(const std::error_code& code) noexcept;

/// A bundle or contract that must not move a robot; one line with the field, its value and the allowed values.
class ContractError : public std::runtime_error {
 public:
  explicit ContractError(const std::string& line) : std::runtime_error(one_line(line)) {}
};

/// An invalid option, or a setting that is not possible on this machine.
class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& line) : std::runtime_error(one_line(line)) {}
};

}  // namespace robot_rl
