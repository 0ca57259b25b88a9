// Damaged bytes against the readers of a bundle's files: sanitized DIR SEED COUNT. Whatever they hold, a reader gives a
// result or a ContractError of one line.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "golden.h"
#include "observe.h"
#include "onnx_check.h"

namespace {

using namespace robot_rl;
using Bytes = std::vector<std::byte>;

std::mt19937_64 random_bits;

Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> text((std::istreambuf_iterator<char>(file)), {});
  Bytes data(text.size());
  std::memcpy(data.data(), text.data(), text.size());
  return data;
}

std::size_t below(std::size_t limit) { return random_bits() % limit; }

/// One to three changes, most of them near the ends, where the headers are.
Bytes damaged(Bytes data) {
  for (auto count = 1 + below(3); count > 0 && !data.empty(); --count) {
    const auto near = below(std::min<std::size_t>(data.size(), 3000));
    const auto at = below(2) ? near : data.size() - 1 - near;
    const auto place = data.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(4)) {
      case 0: *place = static_cast<std::byte>(below(256)); break;
      case 1:
        data.erase(place, place + static_cast<std::ptrdiff_t>(below(std::min<std::size_t>(data.size() - at, 40))));
        break;
      case 2: data.insert(place, below(9), static_cast<std::byte>(below(256))); break;
      default: *place = below(2) ? std::byte{0xff} : std::byte{0}; break;
    }
  }
  return data;
}

template <class Read>
void attempt(const Read& read) {
  try {
    read();
  } catch (const ContractError& error) {
    if (std::strchr(error.what(), '\n') || !error.what()[0]) std::puts("a refusal is no line");
  }
}

void observe(const Bytes& text) {
  const Contract contract = read_contract({reinterpret_cast<const char*>(text.data()), text.size()});
  Observer observer(contract);
  std::vector<float> command(contract.command.size()), observation(static_cast<std::size_t>(contract.observation_size));
  const LowState state;
  for (int step = 0; step < 3; ++step) observer.observe(state, command, observation);
}

}  // namespace

int main(int, char** argv) {
  const std::string folder = argv[1];
  random_bits.seed(std::stoull(argv[2]));
  const auto text = read_file(folder + "/contract.json"), sequence = read_file(folder + "/golden.npz");
  const auto model = read_file(folder + "/policy.onnx");
  const Contract contract = read_contract({reinterpret_cast<const char*>(text.data()), text.size()});
  for (int i = std::stoi(argv[3]); i > 0; --i) {
    attempt([&] { observe(damaged(text)); });
    attempt([&] { refuse_foreign_parts(damaged(model)); });
    attempt([&] { check_model(damaged(model), contract, {}); });
    if (i % 10 == 0) attempt([&] { read_golden(damaged(sequence), contract); });
  }
  std::puts("clean");
}
