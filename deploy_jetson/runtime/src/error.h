// Errors that reach the user: one line each, whatever the input held.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace robot_rl {

/// Exit codes of the binary.
enum class ExitCode : int { kDone = 0, kBadInput = 2, kRefused = 3, kFault = 4, kDiskFull = 74 };

/// Make one printable line of a text: other white space becomes a blank, what cannot be printed is escaped, the middle
/// is cut beyond 1000 characters.
std::string one_line(const std::string& text);

/// Write a line to stderr, or leave it out where nobody takes it in so many milliseconds: a full pipe or a stopped
/// terminal holds up no robot. Allocates nothing.
void say_line(std::string_view line, int patience_ms) noexcept;

/// Whether an error says that no more can be written there: the disk, a quota, or the size allowed for a file.
bool is_full(const std::error_code& code) noexcept;

/// A bundle or contract that must not move a robot: the line names the field, its value and what would be right.
class ContractError : public std::runtime_error {
 public:
  explicit ContractError(const std::string& line) : std::runtime_error(one_line(line)) {}
};

/// A wrong option or a setting that cannot be had here.
class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& line) : std::runtime_error(one_line(line)) {}
};

}  // namespace robot_rl
