#include "replay.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cdr.h"
#include "commander.h"
#include "contract.h"
#include "contract_compare.h"
#include "error.h"
#include "explore.h"
#include "log_reader.h"
#include "options.h"
#include "policy.h"

namespace robot_rl {

namespace {

/// An archive of log_format.h: every number by its name, as text that is different for different bit patterns.
class FieldTexts {
 public:
  template <class T>
  void number(const char* name, T& value) {
    if constexpr (std::is_enum_v<T>) {
      add(name, name_of(value));
    } else {
      add(name, text_of(value));
    }
  }
  template <class T, std::size_t N>
  void list(const char* name, T (&values)[N], std::int32_t& count) {
    for (std::int32_t k = 0; k < count; ++k) add(name, text_of(values[k]), k);
  }
  struct Field {
    std::string name, value;
    int joint;
  };
  std::vector<Field> fields;

 private:
  void add(const char* name, std::string value, int joint = -1) { fields.push_back({name, std::move(value), joint}); }
  template <class T>
  static std::string text_of(T value) {
    if constexpr (std::is_same_v<T, float>) {
      char text[48] = {};
      std::snprintf(text, sizeof(text), "%.9g (bits %08x)", static_cast<double>(value),
                    std::bit_cast<std::uint32_t>(value));
      return text;
    } else {
      return std::to_string(value);
    }
  }
};

bool same_bits(std::span<const float> left, std::span<const float> right) {
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  return std::ranges::equal(left, right, {}, bits, bits);
}

/// "action of 'FL_hip' is 0.1, the log has 0.2" for the first that differs.
std::string first_difference(const char* what, std::span<const float> now, std::span<const float> then,
                             const Contract& contract) {
  if (now.size() != then.size()) {
    return std::string(what) + " has " + std::to_string(now.size()) + " numbers, the log has " +
           std::to_string(then.size());
  }
  for (std::size_t k = 0; k < now.size(); ++k) {
    if (same_bits(now.subspan(k, 1), then.subspan(k, 1))) continue;
    const bool joint = std::string_view(what) != "observation" && k < contract.actions.size();
    const auto place = joint ? "'" + contract.actions[k].joint + "'" : "component " + std::to_string(k);
    char text[96] = {};
    std::snprintf(text, sizeof(text), " is %.9g, the log has %.9g", static_cast<double>(now[k]),
                  static_cast<double>(then[k]));
    return std::string(what) + " of " + place + text;
  }
  return {};
}

/// Runs the network if there is one, and returns its output, or with `echo` the log's: then the next observation
/// contains the last action that the robot's policy saw.
class LogBackend final : public Backend {
 public:
  LogBackend(const Contract& contract, const Exploration& exploration, bool echo)
      : Backend(contract), exploration_(exploration), echo_(echo) {}
  /// The network of the steps from here on; nullptr: none can be run here.
  void use(Backend* live) { live_ = live; }
  void expect(const PolicyOutput& then) { then_ = &then; }
  bool run(std::span<const float> observation, std::span<const float> state, std::span<float> action,
           std::span<float> joint_target, std::span<float> state_out) noexcept override {
    const bool ok = live_ != nullptr && live_->run(observation, state, action, joint_target, state_out);
    for (std::size_t k = 0; k < action.size() && ok && then_->ok; ++k) {
      const double noise =
          exploration_.std > 0 ? exploration_.std * standard_normal(exploration_.seed, then_->step, k) : 0;
      const double now = static_cast<float>(static_cast<double>(action[k]) + noise);
      const double difference = std::fabs(now - static_cast<double>(then_->action[k]));
      largest_ = std::max(largest_, difference);
    }
    if (!echo_) return ok;
    std::copy_n(then_->action, action.size(), action.data());
    std::copy_n(then_->target, joint_target.size(), joint_target.data());
    return then_->ok;
  }
  std::string identity() const override { return live_ == nullptr ? "no network" : live_->identity(); }
  double largest_difference() const { return largest_; }
  /// For the policy: with the log's actions, their noise comes from the log, too.
  Exploration exploration() const { return {exploration_.std, exploration_.seed, echo_}; }

 private:
  Backend* live_ = nullptr;
  Exploration exploration_;
  bool echo_;
  const PolicyOutput* then_ = nullptr;
  double largest_ = 0;
};

std::uint64_t commander_of(const LogReader& reader) {
  const auto& text = reader.run("commander");
  std::uint64_t commander = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), commander);
  if (error != std::errc{} || end != text.data() + text.size())
    throw UserError("log: commander='" + text + "' is not a number");
  return commander;
}

/// The networks of a log, one after the other, on a backend of this machine.
class Networks {
 public:
  /// Throws UserError if the backend was requested by name and is not available.
  Networks(const LogReader& reader, const BackendOptions& wanted) : reader_(reader), wanted_(wanted) {
    any_ = wanted.name == "auto";
    if (any_) {
      wanted_.name = reader.run("backend_name");
      wanted_.precision = reader.run("precision");
    }
    contract_ = std::make_unique<Contract>(read_contract(reader.contract()));
    live_ = load(*contract_, reader.model());
  }
  const Contract& contract() const { return *contract_; }
  /// nullptr: none can be run here.
  Backend* live() const { return live_.get(); }
  const std::string& why_not() const { return why_not_; }
  /// Go on with the network of this bundle; returns why it is not in the log.
  std::string swap(const std::string& identity) {
    const auto& files = reader_.swapped();
    if (identity.empty() || files.contract.empty() || files.model.empty() ||
        attachment_suffix(identity) != "." + files.identity) {
      return "the policy of bundle " + identity.substr(0, 12) + " takes over, and the log lacks its files";
    }
    const auto different = contract_difference(reader_.contract(), files.contract);
    if (!different.empty()) return "a bundle with another contract takes over: " + different;
    auto contract = std::make_unique<Contract>(read_contract(files.contract));
    live_ = load(*contract, files.model);
    swapped_ = std::move(contract);
    return {};
  }

 private:
  std::unique_ptr<Backend> load(const Contract& contract, const std::vector<std::byte>& model) {
    const auto make = wanted_.name == "tensorrt" ? make_tensorrt : make_onnxruntime;
    try {
      return make(contract, model, wanted_);
    } catch (const UserError& error) {
      if (!any_) throw;
      why_not_ = error.what();
      return nullptr;
    } catch (const ContractError& error) {
      if (!any_ || !contract.precision) throw;  // another machine may lack the precision of the robot's
      why_not_ = error.what();
      return nullptr;
    }
  }

  const LogReader& reader_;
  BackendOptions wanted_;
  bool any_ = false;
  std::string why_not_;
  std::unique_ptr<Contract> contract_, swapped_;  // the networks refer to them
  std::unique_ptr<Backend> live_;
};

class Player {
 public:
  Player(const LogReader& reader, const Contract& contract, LogBackend& backend, Networks& networks, LogReplay& result)
      : contract_(contract),
        backend_(backend),
        networks_(networks),
        policy_(contract, backend, backend.exploration()),
        result_(result),
        commander_(contract, reader.settings(), commander_of(reader)) {}

  /// Repeat one call; false, with a message, if something differs.
  bool play(LogEvent& e) {
    if (e.order != next_)
      return differ(e, std::to_string(e.order - next_) + " events before it are missing: a ring or the disk was full");
    next_ = e.order + 1;
    switch (e.kind) {
      case EventKind::kState: return on_state(e);
      case EventKind::kOperator: commander_.on_operator(e.input, e.time_ns); break;
      case EventKind::kPolicyStep: return on_step(e);
      case EventKind::kCommand: return on_command(e);
      case EventKind::kMissedDeadline: commander_.on_missed_deadline(e.time_ns); break;
      case EventKind::kFault: commander_.on_fault(e.finding, e.time_ns); break;
      case EventKind::kReady: commander_.ready(e.time_ns); break;
      case EventKind::kSwap: return on_swap(e);
    }
    return true;
  }

 private:
  bool differ(const LogEvent& e, const std::string& what) {
    if (first_ns_ == 0) first_ns_ = e.time_ns;
    char where[80] = {};
    std::snprintf(where, sizeof(where),
                  "event %llu, %.4f s after the start: ", static_cast<unsigned long long>(e.order),
                  static_cast<double>(e.time_ns - first_ns_) * 1e-9);
    result_.difference = where + what;
    return false;
  }

  bool on_state(LogEvent& e) {
    if (first_ns_ == 0) first_ns_ = e.time_ns;
    if (e.state.joints != static_cast<int>(contract_.joints.size())) {
      return differ(e, "the state has " + std::to_string(e.state.joints) + " joints, the contract " +
                           std::to_string(contract_.joints.size()));
    }
    // States continue to arrive during a long step: it read one of the earlier ones.
    if (recent_.size() == kRecent) recent_.pop_front();
    recent_.push_back(e.state);
    result_.states += 1;
    commander_.on_state(e.state, e.time_ns);
    return true;
  }

  bool on_step(LogEvent& e) {
    const auto& then = e.output;
    const auto read = std::find_if(recent_.rbegin(), recent_.rend(), [&then](const LowState& state) {
      return state.sequence == then.state_sequence && state.receive_time_ns == then.state_receive_time_ns;
    });
    if (read == recent_.rend()) {
      return differ(e, "the policy's step read state " + std::to_string(then.state_sequence) +
                           ", which is not among the " + std::to_string(recent_.size()) + " before it in the log");
    }
    if (e.command.size() != contract_.command.size())
      return differ(e, "the command does not have the size of the contract's");
    if (then.actions != static_cast<int>(contract_.actions.size())) {
      return differ(e, "it has " + std::to_string(then.actions) + " actions, the contract " +
                           std::to_string(contract_.actions.size()));
    }
    backend_.expect(then);
    policy_.step(*read, e.command, then.reset, now_);
    result_.steps += 1;
    const auto count = static_cast<std::size_t>(then.actions);
    auto what = first_difference("observation", policy_.observation(), e.observation, contract_);
    if (what.empty() && now_.ok != then.ok)
      what = std::string("the network ") + (now_.ok ? "ran" : "failed") + ", in the log the opposite";
    if (what.empty()) what = first_difference("action", {now_.action, count}, {then.action, count}, contract_);
    if (what.empty()) what = first_difference("target", {now_.target, count}, {then.target, count}, contract_);
    if (what.empty() && now_.step != then.step) what = "here it is step " + std::to_string(now_.step);
    if (!what.empty()) return differ(e, "policy step " + std::to_string(then.step) + ": " + what);
    // The numbers have the same bits; the times are taken from the log.
    commander_.on_policy(then, e.time_ns);
    return true;
  }

  bool on_swap(const LogEvent& e) {
    const std::string why = networks_.swap(swapped_identity(e.text));
    if (!why.empty()) return differ(e, why);
    backend_.use(networks_.live());
    return true;
  }

  bool on_command(LogEvent& e) {
    LowCommand now;
    commander_.command(e.time_ns, e.sent.from_policy, now);
    result_.commands += 1;
    FieldTexts made, kept;
    if (same(now, e.sent)) return true;
    fields(made, now);
    fields(kept, e.sent);
    for (std::size_t k = 0; k < std::min(made.fields.size(), kept.fields.size()); ++k) {
      const auto &left = made.fields[k], &right = kept.fields[k];
      if (left.name == right.name && left.joint == right.joint && left.value == right.value) continue;
      const bool joint = left.joint >= 0 && left.joint < static_cast<int>(contract_.joints.size());
      const auto of = joint ? " of '" + contract_.joints[static_cast<std::size_t>(left.joint)].name + "'" : "";
      return differ(e, "command " + std::to_string(e.sent.sequence) + ": " + left.name + of + " is " + left.value +
                           ", the log has " + right.value);
    }
    return differ(e, "command " + std::to_string(e.sent.sequence) + ": the numbers of joints differ");
  }

  static bool same(LowCommand& now, LowCommand& then) {
    CdrWriter left, right;
    fields(left, now);
    fields(right, then);
    return std::ranges::equal(left.bytes(), right.bytes());
  }

  const Contract& contract_;
  LogBackend& backend_;
  Networks& networks_;
  Policy policy_;
  LogReplay& result_;
  Commander commander_;
  static constexpr std::size_t kRecent = 512;
  std::deque<LowState> recent_;
  PolicyOutput now_;
  std::uint64_t next_ = 0;
  std::int64_t first_ns_ = 0;
};

}  // namespace

LogReplay replay_log(const std::filesystem::path& path, const BackendOptions& options) {
  LogReader reader(path);
  Networks networks(reader, options);
  const Contract& contract = networks.contract();
  LogReplay result;
  result.no_backend = networks.why_not();
  result.backend = networks.live() ? networks.live()->identity() : "no network";
  result.recorded_backend = reader.run("backend");
  result.same_backend = result.backend == result.recorded_backend && processor() == reader.run("processor");
  LogBackend backend(contract, Exploration::of(reader.settings()), !result.same_backend);
  backend.use(networks.live());
  Player player(reader, contract, backend, networks, result);
  LogEvent event;
  while (reader.next(event) && player.play(event)) result.events += 1;
  result.action_difference = backend.largest_difference();
  result.cut = reader.cut();
  return result;
}

int run_replay(const Options& options) {
  const auto result = replay_log(options.replay, options.backend);
  const auto path = options.replay.string();
  std::string line = std::to_string(result.events) + " events, " + std::to_string(result.commands) + " commands, " +
                     std::to_string(result.steps) + " policy steps";
  if (!result.difference.empty()) {
    std::fprintf(stderr, "robot-rl-infer: replay of %s after %s: %s\n", path.c_str(), line.c_str(),
                 result.difference.c_str());
    return static_cast<int>(ExitCode::kRefused);
  }
  if (result.commands == 0) throw UserError("log " + path + ": holds no command, so there is nothing to compare");
  std::printf("%s: %s, every command reproduced bit for bit\n", path.c_str(), line.c_str());
  if (result.same_backend) {
    std::printf("actions computed again, the same bits (%s)\n", result.backend.c_str());
  } else if (!result.no_backend.empty()) {
    std::printf("actions taken from the log: %s\n", result.no_backend.c_str());
  } else {
    std::printf("actions taken from the log: it was recorded with %s; with %s, they differ by at most %.3g\n",
                result.recorded_backend.c_str(), result.backend.c_str(), result.action_difference);
  }
  if (result.cut) std::printf("the log is truncated: its program was killed, or the disk was full\n");
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace robot_rl
