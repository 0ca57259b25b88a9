// What the files of the fuzzer share: damaged bytes, and the readers of each kind of file or message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "commander.h"
#include "contract.h"
#include "error.h"
#include "log_format.h"

namespace robot_rl {

using FuzzBytes = std::vector<std::byte>;

/// A reader of bytes with inputs that it accepts.
struct Target {
  std::vector<FuzzBytes> corpus;
  void (*read)(std::span<const std::byte> data);
  void (*repair)(FuzzBytes& data) = nullptr;  // make checksums right again, so that what is behind them is reached
};

/// Where the inputs are, and what the readers need.
struct FuzzPlace {
  std::string folder;
  std::string ports[2];  // of UDP, that nobody uses
  Contract contract;
};
FuzzPlace& place();

/// The targets of each file, by name.
using Targets = std::map<std::string, Target (*)()>;
void add_file_targets(Targets& targets);
void add_message_targets(Targets& targets);

/// Make the call that an event is, as far as it fits the contract.
void play(Commander& commander, const LogEvent& e);

inline std::mt19937_64 random_bits;
inline std::size_t below(std::size_t limit) { return random_bits() % limit; }

FuzzBytes read_file(const std::string& path);
void write_file(const std::string& path, std::span<const std::byte> data);
FuzzBytes bytes_of_text(std::string_view text);
inline std::string_view text_of(std::span<const std::byte> data) {
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}
template <class T>
T number_at(std::span<const std::byte> data, std::size_t at) {
  T value{};
  std::memcpy(&value, data.data() + at, sizeof(T));
  return value;
}
template <class T>
void put_number(FuzzBytes& data, std::size_t at, T value) {
  std::memcpy(data.data() + at, &value, sizeof(T));
}

/// Run a reader: a result, or a refusal of one line.
template <class Read>
void attempt(const Read& read) {
  const auto check = [](const std::exception& error) {
    if (std::strchr(error.what(), '\n') || !error.what()[0]) std::abort();
  };
  try {
    read();
  } catch (const ContractError& error) {
    check(error);
  } catch (const UserError& error) {
    check(error);
  }
}

}  // namespace robot_rl
