// Errors that reach the user: one line each, whatever the input held.
#pragma once

#include <stdexcept>
#include <string>

namespace robot_rl {

/// Exit codes of the binary.
enum class ExitCode : int { kDone = 0, kBadInput = 2, kRefused = 3, kFault = 4, kDiskFull = 74 };

/// Make one printable line of a text: other white space becomes a blank, what cannot be printed is escaped, the middle
/// is cut beyond 1000 characters.
std::string one_line(const std::string& text);

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
