// The part of the contract about messages between the robots of a team, as robot_rl_deploy.messages has it.
#include <algorithm>
#include <map>

#include "contract_parts.h"
#include "types.h"

namespace robot_rl {
namespace {

constexpr int kMaxTeam = 16, kMaxMessages = 16, kMaxWidth = 64;
constexpr double kMaxAge = 2.0;
constexpr std::string_view kSendable[] = {"joint_pos", "joint_vel",    "imu_gyro",   "imu_quat_wxyz",
                                      "imu_acc",   "foot_contact", "foot_force", kMeasured};

void check_term(const ObservationSpec& term, const std::string& where) {
  if (std::find(std::begin(kSendable), std::end(kSendable), kind_of(term.signal)) == std::end(kSendable)) {
    refuse(where + " term '" + term.name + "': signal", shown(term.signal), "it must be one of " + joined(kSendable));
  }
  if (term.scale != 1 || term.clip || term.history != 1) {
    refuse(where + " term", shown(term.name), "it is sent as it is: scale 1, clip null, history 1");
  }
}

MessageSpec read_message(const Json& value, const std::string& path, std::vector<ReadTerm>& terms) {
  const Fields fields(value, path, {"name", "width", "latency_s", "loss", "max_age_s", "terms", "received"});
  MessageSpec message;
  message.name = fields.text("name");
  const std::string where = "message '" + message.name + "':";
  message.width = bounded(where + " width", fields.integer("width"), 1, kMaxWidth);
  const auto latency = read_numbers(fields, "latency_s");
  if (latency.size() != 2 || !(0 <= latency[0] && latency[0] <= latency[1])) {
    refuse(where + " latency_s", "a list of " + std::to_string(latency.size()),
           "it must be [low, high] with 0 <= low <= high");
  }
  const double loss = fields.number("loss");
  if (!(0 <= loss && loss < 1)) refuse(where + " loss", shown(loss), "it must be in [0, 1)");
  message.max_age_s = fields.number("max_age_s");
  at_least(where + " max_age_s", message.max_age_s, 0, true);
  if (message.max_age_s > kMaxAge) refuse(where + " max_age_s", shown(message.max_age_s), "2 s are the most");
  std::vector<std::string> names;
  int sent = 0;
  for (const auto& term : fields.list("terms")) {
    terms.push_back(read_term(term, at_index(fields.path("terms"), terms.size())));
    names.push_back(terms.back().term.name);
    sent = std::min(sent + terms.back().term.size, kMaxSize);
  }
  unique(where + " terms", names);
  for (const auto& term : terms) check_term(term.term, where);
  for (const auto& entry : fields.list("received")) {
    const auto at = at_index(fields.path("received"), message.received.size());
    const Fields parts(entry, at, {"signal", "sender"});
    const int sender = bounded(where + " sender", parts.integer("sender"), 0, kMaxTeam);
    message.received.push_back({parts.text("signal"), sender});
  }
  if (sent != message.width) {
    refuse(where + " width", std::to_string(message.width), "its terms have " + std::to_string(sent) + " values");
  }
  return message;
}

/// The observation that reads a signal; nullptr if none does.
const ObservationSpec* reader_of(const Contract& contract, std::string_view signal) {
  for (const auto& term : contract.observations) {
    if (term.signal == signal) return &term;
  }
  return nullptr;
}

bool is_declared(std::string_view signal) {
  return signal == "foot_contact" || signal == "foot_force" || kind_of(signal) == kMeasured;
}

void check_received(const Contract& contract, MessageSpec& message) {
  const std::string where = "message '" + message.name + "':";
  const int others = static_cast<int>(contract.team.size()) - 1;
  for (auto& received : message.received) {
    bounded(where + " sender", received.sender, 0, others - 1);
    const auto* reader = kind_of(received.signal) == kMeasured ? reader_of(contract, received.signal) : nullptr;
    if (reader == nullptr) refuse(where + " received", shown(received.signal), "no observation reads it");
    if (reader->size != message.width + 1) {
      refuse(where + " width", std::to_string(message.width),
             "an observation reads " + std::to_string(reader->size) + " values of it, must be " +
                 std::to_string(message.width + 1));
    }
    received.place = reader->place;
  }
}

}  // namespace

bool ReadMessages::receives(std::string_view signal) const {
  return std::any_of(messages.begin(), messages.end(), [&](const MessageSpec& message) {
    return std::any_of(message.received.begin(), message.received.end(),
                       [&](const MessageSpec::Received& received) { return received.signal == signal; });
  });
}

ReadMessages read_messages(const Fields& fields, Contract& contract) {
  ReadMessages read;
  if (fields.find("team") != nullptr) {
    for (const auto& name : fields.list("team")) {
      contract.team.push_back(read_text(name, at_index("team", contract.team.size())));
    }
  }
  if (fields.find("messages") != nullptr) {
    for (const auto& message : fields.list("messages")) {
      read.terms.emplace_back();
      read.messages.push_back(read_message(message, at_index("messages", read.messages.size()), read.terms.back()));
    }
  }
  std::vector<std::string> names, signals;
  for (const auto& message : read.messages) {
    names.push_back(message.name);
    for (const auto& received : message.received) signals.push_back(received.signal);
  }
  unique("team", contract.team);
  unique("messages", names);
  const auto size = contract.team.size();
  if ((size == 0) != names.empty()) {
    refuse("team", "a list of " + std::to_string(size),
           "a contract with messages has a team, and one without has none");
  }
  if (!names.empty() && (size < 2 || size > kMaxTeam)) {
    refuse("team", "a list of " + std::to_string(size), "it must have 2 to " + std::to_string(kMaxTeam) + " robots");
  }
  if (names.size() > kMaxMessages) {
    refuse("messages", "a list of " + std::to_string(names.size()), std::to_string(kMaxMessages) + " are the most");
  }
  unique("messages: received", signals);
  return read;
}

void place_measured(Contract& contract, const ReadMessages& read) {
  std::map<std::string_view, int> places;
  long long size = 0;
  for (const bool received : {false, true}) {
    const long long before = size;
    for (auto& term : contract.observations) {
      if (kind_of(term.signal) != kMeasured || read.receives(term.signal) != received) continue;
      const auto [found, is_new] = places.try_emplace(term.signal, static_cast<int>(size));
      if (is_new) size += term.size;
      term.place = found->second;
    }
    contract.received_size = static_cast<int>(size - before);
  }
  if (size > kMaxMeasured) {
    refuse("observations: number of measured values", std::to_string(size),
           std::to_string(kMaxMeasured) + " are the most");
  }
  contract.measured_size = static_cast<int>(size);
}

void check_messages(ReadMessages read, Contract& contract) {
  for (std::size_t i = 0; i < read.messages.size(); ++i) {
    auto& message = read.messages[i];
    for (const auto& given : read.terms[i]) {
      auto term = given.term;
      const std::string where = "message '" + message.name + "': term '" + term.name + "':";
      if (is_declared(term.signal)) {
        const auto* reader = reader_of(contract, term.signal);
        if (reader == nullptr || read.receives(term.signal)) {
          refuse(where + " signal", shown(term.signal), "the policy must measure it, too");
        }
        term.place = reader->place;
      }
      resolve_term(contract, given, where, term);
      if (const int size = term_size(contract, term); term.size != size) {
        refuse(where + " size", std::to_string(term.size),
               term.transform + " of " + term.signal + " is " + std::to_string(size) + " wide");
      }
      message.terms.push_back(std::move(term));
    }
    check_received(contract, message);
  }
  contract.messages = std::move(read.messages);
}

}  // namespace robot_rl
