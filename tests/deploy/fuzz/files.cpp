// Targets: what is read from files.
#include <filesystem>
#include <fstream>

#include "bundle.h"
#include "contract_compare.h"
#include "crc32.h"
#include "engine_cache.h"
#include "fuzz.h"
#include "golden.h"
#include "log_reader.h"
#include "observe.h"
#include "onnx_check.h"
#include "replay.h"
#include "settings.h"
#include "signature.h"

namespace robot_rl {
namespace {

std::string in_folder(const std::string& name) { return place().folder + "/" + name; }

Target of_file(const std::string& name, void (*read)(std::span<const std::byte>)) {
  return {{read_file(in_folder(name))}, read};
}

// ---- The files of a bundle.

void read_contract_text(std::span<const std::byte> data) {
  static const FuzzBytes whole = read_file(in_folder("contract.json"));
  const Contract contract = read_contract(text_of(data));
  Observer observer(contract);
  std::vector<float> command(contract.command.size()), observation(static_cast<std::size_t>(contract.observation_size));
  const LowState state;
  for (int step = 0; step < 3; ++step) observer.observe(state, command, observation);
  Commander commander(contract, {}, 1);
  contract_difference(std::string(text_of(whole)), std::string(text_of(data)));
}

void read_sums(std::span<const std::byte> data) {
  write_file(in_folder("bundle/SHA256SUMS"), data);
  read_bundle(in_folder("bundle"));
}

void read_model(std::span<const std::byte> data) {
  attempt([&] { refuse_foreign_parts(data); });
  check_model(data, place().contract, {});
}

void read_sequence(std::span<const std::byte> data) { read_golden(data, place().contract); }

void read_key(std::span<const std::byte> data) {
  const auto path = in_folder("fuzzed.pub");
  write_file(path, data);
  is_signed_by(data, data.first(std::min<std::size_t>(data.size(), 64)), path);
}

void read_settings_json(std::span<const std::byte> data) {
  Settings settings;
  attempt([&] { read_settings_text(settings, text_of(data), "settings"); });
  const auto text = text_of(data), name = text.substr(0, text.find(':'));
  set_setting(settings, name, text.substr(std::min(name.size() + 1, text.size())));
}

Target settings_target() {
  Settings settings;
  settings.steps_per_state = 3;
  return {{bytes_of_text(settings_json(settings)), bytes_of_text("limits.tilt_rad:0.5")}, read_settings_json};
}

// ---- Engines.

const EngineKey kKey{"0123456789abcdef", "10.13", "13.0", "gpu", "fp32"};

void read_engine(std::span<const std::byte> data) {
  std::string why;
  write_file(in_folder("engines/" + kKey.file_name()), data);
  load_engine(in_folder("engines"), kKey, why);
}

Target engine_target() {
  std::string why;
  store_engine(in_folder("engines"), kKey, bytes_of_text("an engine"), why);
  return of_file("engines/" + kKey.file_name(), read_engine);
}

// ---- Logs.

constexpr std::size_t kHead = 9;

/// Make the checksums of chunks and attachments right.
void repair_log(FuzzBytes& data) {
  for (std::size_t at = 8; data.size() - std::min(at, data.size()) > kHead;) {
    const auto op = static_cast<McapOp>(data[at]);
    const auto length = number_at<std::uint64_t>(data, at + 1);
    const auto first = at + kHead;
    if (length > data.size() - first) return;
    const auto content = std::span(data).subspan(first, length);
    constexpr std::size_t kChunkHead = 40;  // times, size, checksum, compression "", size
    if (op == McapOp::kChunk && length > kChunkHead) {
      put_number<std::uint64_t>(data, first + 16, length - kChunkHead);
      put_number(data, first + 24, crc32(content.subspan(kChunkHead)));
      put_number<std::uint32_t>(data, first + 28, 0);
      put_number<std::uint64_t>(data, first + 32, length - kChunkHead);
    }
    if (op == McapOp::kAttachment && length > 4) put_number(data, first + length - 4, crc32(content.first(length - 4)));
    at = first + length;
  }
}

/// Make every call that a log holds, whatever differs.
void play_all(LogReader reader) {
  LogEvent e;
  if (!reader.next(e)) return;
  Commander commander(place().contract, reader.settings(), 1);
  do {
    play(commander, e);
  } while (reader.next(e));
}

void read_log(std::span<const std::byte> data) {
  const auto path = in_folder("fuzzed.mcap");
  write_file(path, data);
  switch (below(8)) {
    case 0: replay_log(path, {}); break;
    case 1: play_all(LogReader::growing(path)); break;
    default: play_all(LogReader(path)); break;
  }
}

Target log_target() { return {{read_file(in_folder("log.mcap"))}, read_log, repair_log}; }

}  // namespace

void play(Commander& commander, const LogEvent& e) {
  const auto& contract = place().contract;
  LowCommand command;
  switch (e.kind) {
    case EventKind::kState:
      if (e.state.joints == static_cast<int>(contract.joints.size())) commander.on_state(e.state, e.time_ns);
      break;
    case EventKind::kOperator: commander.on_operator(e.input, e.time_ns); break;
    case EventKind::kPolicyStep:
      if (e.output.actions == contract.action_size) commander.on_policy(e.output, e.time_ns);
      break;
    case EventKind::kCommand: commander.command(e.time_ns, e.sent.from_policy, command); break;
    case EventKind::kMissedDeadline: commander.on_missed_deadline(e.time_ns); break;
    case EventKind::kFault:
      describe(e.finding, contract);
      commander.on_fault(e.finding, e.time_ns);
      break;
    case EventKind::kReady: commander.ready(e.time_ns); break;
    case EventKind::kSwap: swapped_identity(e.text); break;
  }
}

void add_file_targets(Targets& targets) {
  targets["contract"] = [] { return of_file("contract.json", read_contract_text); };
  targets["sums"] = [] { return of_file("bundle/SHA256SUMS", read_sums); };
  targets["model"] = [] { return of_file("policy.onnx", read_model); };
  targets["golden"] = [] { return of_file("golden.npz", read_sequence); };
  targets["key"] = [] { return of_file("robot.pub", read_key); };
  targets["settings"] = settings_target;
  targets["engine"] = engine_target;
  targets["log"] = log_target;
}

}  // namespace robot_rl
