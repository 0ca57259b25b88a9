// Reads the logs that this program writes, event by event in the order of the calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "log_format.h"
#include "mcap.h"
#include "settings.h"

namespace robot_rl {

class LogReader {
 public:
  /// Open a log and read the content before its first message. Throws UserError: no such file, not MCAP, not a log of
  /// ours, of another version, or damaged.
  explicit LogReader(const std::filesystem::path& path) : LogReader(path, false) {}
  /// The same of a log that is still being written: its content may be missing yet, `next` returns false where it ends
  /// for now, and `run`, `settings` and so on are known when `next` has returned an event.
  static LogReader growing(const std::filesystem::path& path) { return {path, true}; }
  /// Read the next event; false at the end. Overwrites `event`. Throws UserError if the file is damaged.
  bool next(LogEvent& event);
  /// Whether the program that wrote it has finished it, and everything was read.
  bool finished() const { return ended_ && !cut_; }
  /// Contract and network of the bundle that a kSwap event names, the last one read; empty if the log lacks them.
  struct Files {
    std::string identity, contract;  // identity: its first digits, as the names of the attachments have it
    std::vector<std::byte> model;
  };
  const Files& swapped() const { return swapped_; }
  /// Whether the file is truncated, because the program that wrote it was killed. Known after the last event.
  bool cut() const { return cut_; }

  /// The metadata record "run": robot, bundle, backend, commander and so on.
  const McapMap& run() const { return run_; }
  /// One value of it. Throws UserError if it is missing.
  const std::string& run(const std::string& key) const;
  const Settings& settings() const { return settings_; }
  /// Text of contract.json.
  const std::string& contract() const { return contract_; }
  /// Bytes of policy.onnx.
  const std::vector<std::byte>& model() const { return model_; }

 private:
  struct Record {
    McapOp op = McapOp::kHeader;
    std::uint64_t at = 0;
    std::vector<std::byte> content;
  };
  LogReader(const std::filesystem::path& path, bool growing);
  [[noreturn]] void refuse(const std::string& what) const;
  void take_swap_file(const std::string& name, std::span<const std::byte> data);
  bool is_finished();
  bool read_record(Record& record);
  void look_again();
  void take_record();
  void check_head();
  void take_metadata(std::span<const std::byte> content);
  void take_attachment(std::span<const std::byte> content);
  void take_schema(std::span<const std::byte> content);
  void take_channel(std::span<const std::byte> content);
  void take_settings(const McapMap& values);
  bool take_message(LogEvent& event);
  void open_chunk();

  std::filesystem::path path_;
  std::ifstream file_;
  std::uint64_t size_ = 0, at_ = 0;
  bool growing_ = false, begun_ = false, cut_ = false, ended_ = false;
  Record record_;
  std::size_t chunk_at_ = 0, chunk_end_ = 0;  // of the open chunk's messages in record_
  McapMap run_;
  Settings settings_;
  std::string contract_;
  std::vector<std::byte> model_;
  Files swapped_;
  bool measured_ = false;  // the states have measured values
  std::vector<std::uint16_t> schemas_, channels_;  // by index in kLogChannels; 0: not yet
};

}  // namespace robot_rl
