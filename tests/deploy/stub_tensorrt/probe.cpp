// Opens a bundle with a backend of this build and reports as JSON the chosen backend and the calls of the fake.
//   trt_probe BUNDLE BACKEND PRECISION CACHE
#include <cstdio>
#include <cstring>

#include "bundle.h"
#include "fake.h"
#include "json.h"

namespace {

using namespace robot_rl;

/// The golden sequence's first rows, run twice: with the state given and taken in the same memory, and apart.
bool same_in_place(const Bundle& bundle, Backend& backend) {
  const auto& contract = bundle.contract;
  std::vector<float> action(contract.action_size), target(contract.action_size), memory(contract.state_size);
  std::vector<float> other_action(action), other_target(target), before(memory), after(memory);
  for (int step = 0; step < 5; ++step) {
    const std::span<const float> seen(&bundle.golden.observation[step * contract.observation_size],
                                      static_cast<std::size_t>(contract.observation_size));
    if (!backend.run(seen, memory, action, target, memory)) return false;
    backend.rehearse();
    if (!backend.run(seen, before, other_action, other_target, after)) return false;
    before = after;
    if (action != other_action || target != other_target || memory != after) return false;
  }
  return !backend.run({action.data(), 1}, memory, action, target, memory);  // of another size: refused
}

int probe(char** argv) {
  const auto bundle = read_bundle(argv[1]);
  BackendOptions options;
  options.name = argv[2];
  options.precision = argv[3];
  options.cache = argv[4];
  std::string why;
  BackendOptions chosen;
  auto backend = make_backend(*bundle, options, why, &chosen);
  replay_golden(*bundle, *backend, action_tolerance(chosen));  // as --check does
  JsonObject all;
  all.add("identity", backend->identity()).add("why", why).add("same_in_place", same_in_place(*bundle, *backend));
  backend.reset();
  const auto& done = fake::counters();
  all.add("builds", done.builds).add("deserialized", done.deserialized).add("captures", done.captures);
  all.add("launches", done.launches).add("enqueues", done.enqueues).add("synchronized", done.synchronized);
  all.add("live", done.live).add("blocking_sync", done.blocking_sync);
  std::puts(all.str().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return argc == 5 ? probe(argv) : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trt_probe: %s\n", error.what());
    return 2;
  }
}
