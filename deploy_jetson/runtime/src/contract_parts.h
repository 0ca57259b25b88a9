// Shared by the two halves of the contract's reader.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract.h"
#include "json.h"

namespace robot_rl {

inline constexpr int kMaxHistory = 1000, kMaxSize = 1 << 20;

/// The entry for every signal measured/<name> in the vocabulary of terms.
inline constexpr std::string_view kMeasured = "measured/<name>";
/// The entry of a signal; empty for measured/ without a name of ASCII letters, digits and _.
std::string_view kind_of(std::string_view signal);
/// The name of a signal in a bundle of any version: a height scan had one that was not measured/<name>.
std::string current_name(std::string signal);

/// Refuse a value below `low`, or also equal to it with `strictly`.
void at_least(const std::string& where, double value, double low, bool strictly);
/// Refuse a number outside [low, high].
int bounded(const std::string& where, long long value, long long low, long long high);
/// Path of an item of a list, such as "joints[3]".
std::string at_index(std::string_view list, std::size_t index);
/// A list of numbers.
std::vector<double> read_numbers(const Fields& fields, std::string_view name);
/// Refuse empty and repeated names.
void unique(const std::string& where, const std::vector<std::string>& names);

/// Refuse numbers that no robot has, after every part of the contract was checked by itself; plausible.cpp.
void check_plausible(const Contract& contract);

/// Read the object "precision".
PrecisionSpec read_precision(const Json& value);

/// A term with its joints still given by name.
struct ReadTerm {
  ObservationSpec term;
  std::optional<std::vector<std::string>> joints;
};
ReadTerm read_term(const Json& value, const std::string& path);
/// Resolve the names of a term's joints; `where` begins a message.
void resolve_term(const Contract& contract, const ReadTerm& read, const std::string& where, ObservationSpec& term);
/// Number of values of a term's transformed signal.
int term_size(const Contract& contract, const ObservationSpec& term);

/// Messages with the joints of their terms still given by name.
struct ReadMessages {
  std::vector<MessageSpec> messages;
  std::vector<std::vector<ReadTerm>> terms;
  /// Whether a signal is a message of another robot.
  bool receives(std::string_view signal) const;
};
/// Read "team" and "messages", each checked by itself.
ReadMessages read_messages(const Fields& fields, Contract& contract);
/// Give every measured signal its place in the robot's state, in the order in which the terms first read them: what the
/// robot itself measures, then what it receives.
void place_measured(Contract& contract, const ReadMessages& read);
/// Check that the messages fit the observations, and give them to the contract.
void check_messages(ReadMessages read, Contract& contract);

}  // namespace robot_rl
