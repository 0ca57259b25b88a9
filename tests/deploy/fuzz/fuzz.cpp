// Damaged bytes against every reader of files and messages: fuzz TARGET FOLDER PORT PORT SEED COUNT. Whatever they
// hold, a reader gives a result or a refusal of one line; the sanitizers end the program otherwise, and
// FOLDER/TARGET.crash has the input.
#include "fuzz.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>

// A finding ends in on_signal.
extern "C" const char* __asan_default_options() { return "abort_on_error=1:max_allocation_size_mb=1024"; }
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }

namespace robot_rl {
namespace {

constexpr unsigned kHangsS = 60;
std::span<const std::byte> current;
std::string crash_path;

void on_signal(int number) {
  write_file(crash_path, current);
  _exit(128 + number);
}

constexpr std::uint64_t kNumbers[] = {0,          1,          0x7f,       0x80,       0xff,       0x7fff,
                                      0xffff,     0x7fffffff, 0x80000000, 0xffffffff, UINT64_MAX, INT64_MAX,
                                      1ull << 63, 1ull << 32, 1ull << 62, 0x7fc00000, 0x7f800000u};

void change(FuzzBytes& data, const FuzzBytes& other) {
  const auto near = below(std::min<std::size_t>(data.size(), 3000));
  const auto at = below(3) == 0 ? below(data.size()) : below(2) ? near : data.size() - 1 - near;
  const auto spot = data.begin() + static_cast<std::ptrdiff_t>(at);
  const auto rest = data.size() - at;
  switch (below(7)) {
    case 0: *spot = static_cast<std::byte>(below(256)); break;
    case 1: *spot ^= static_cast<std::byte>(1u << below(8)); break;
    case 2: data.erase(spot, spot + static_cast<std::ptrdiff_t>(below(std::min<std::size_t>(rest, 40)))); break;
    case 3: data.insert(spot, below(9), static_cast<std::byte>(below(256))); break;
    case 4: {
      const auto number = kNumbers[below(std::size(kNumbers))];
      std::memcpy(&*spot, &number, std::min(rest, std::size_t{1} << below(4)));
      break;
    }
    case 5: {
      const auto from = below(other.size()), size = std::min({below(64) + 1, other.size() - from, rest});
      std::memcpy(&*spot, other.data() + from, size);
      break;
    }
    default: data.resize(below(8) == 0 ? at : data.size()); break;
  }
}

FuzzBytes damaged(const Target& target) {
  const auto& corpus = target.corpus;
  FuzzBytes data = corpus[below(corpus.size())];
  for (auto count = 1 + below(4); count > 0 && !data.empty(); --count) change(data, corpus[below(corpus.size())]);
  if (target.repair && below(8) != 0) target.repair(data);
  return data;
}

}  // namespace

FuzzPlace& place() {
  static FuzzPlace found;
  return found;
}

FuzzBytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return bytes_of_text(std::string(std::istreambuf_iterator<char>(file), {}));
}

void write_file(const std::string& path, std::span<const std::byte> data) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
}

FuzzBytes bytes_of_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

int fuzz(const std::string& name, long count) {
  Targets targets;
  add_file_targets(targets);
  add_message_targets(targets);
  const auto make = targets.find(name);
  if (make == targets.end()) {
    for (const auto& [known, _] : targets) std::printf("%s\n", known.c_str());
    return 2;
  }
  const auto target = make->second();
  crash_path = place().folder + "/" + name + ".crash";
  for (const int number : {SIGALRM, SIGABRT}) std::signal(number, on_signal);
  for (long i = 0; i < count; ++i) {
    // The first are the whole inputs.
    const auto at = static_cast<std::size_t>(i);
    const auto data = at < target.corpus.size() ? target.corpus[at] : damaged(target);
    const std::unique_ptr<std::byte[]> exact(new std::byte[data.size()]);
    std::copy(data.begin(), data.end(), exact.get());
    current = {exact.get(), data.size()};
    alarm(kHangsS);
    attempt([&] { target.read(current); });
  }
  std::puts("clean");
  return 0;
}

}  // namespace robot_rl

int main(int count, char** words) {
  using namespace robot_rl;
  if (count != 7) return 2;
  place().folder = words[2];
  place().ports[0] = words[3];
  place().ports[1] = words[4];
  place().contract = read_contract(text_of(read_file(place().folder + "/contract.json")));
  random_bits.seed(std::strtoull(words[5], nullptr, 10));
  return fuzz(words[1], std::atol(words[6]));
}
