// The doctor's checks by experiment: priority, libraries, network cards, waking up.
#include <dlfcn.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>

#include "doctor.h"

namespace robot_rl {
namespace {

constexpr std::int64_t kNsPerS = 1'000'000'000;
constexpr unsigned kSlowCoalescing = 50;  // [us]
constexpr double kLateAdvice = 0.1;       // of the writer's period, at the 99th percentile

/// A library that may be installed; closed at the end.
class Library {
 public:
  explicit Library(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  ~Library() {
    if (handle_) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  explicit operator bool() const { return handle_ != nullptr; }
  template <class Function>
  Function find(const char* name) const {
    return handle_ ? reinterpret_cast<Function>(dlsym(handle_, name)) : nullptr;
  }

 private:
  void* handle_;
};

bool set_fifo_here(int priority) {
  sched_param parameters{};
  parameters.sched_priority = priority;
  return pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters) == 0;
}

Check check_fifo(const Options& options) {
  const int priority = std::max({1, options.fifo_writer, options.fifo_policy});
  bool permitted = false;
  std::thread([&] { permitted = set_fifo_here(priority); }).join();
  const auto what = "SCHED_FIFO at " + std::to_string(priority);
  if (permitted) return {"fifo", Verdict::kGood, what + " was granted", ""};
  return {"fifo", Verdict::kBad, what + " was refused", "see rtprio; in a container give it CAP_SYS_NICE"};
}

Check check_onnxruntime(const Options& options) {
  try {
    return {"onnxruntime", Verdict::kGood, onnxruntime_version(options.backend), ""};
  } catch (const UserError& error) {
    return {"onnxruntime", Verdict::kBad, error.what(), ""};
  }
}

Check check_tensorrt(const Options& options) {
  const bool wanted = options.backend.name == "tensorrt";
  for (const char* name : {"libnvinfer.so.11", "libnvinfer.so.10", "libnvinfer.so"}) {
    const Library library(name);
    const auto version = library.find<std::int32_t (*)()>("getInferLibVersion");
    if (!version) continue;
    const int number = version();
    const int major = number / (number < 10000 ? 1000 : 10000), minor = number / 100 % (number < 10000 ? 10 : 100);
    const auto found = std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(number % 100);
    if (major < 10)
      return {"tensorrt", wanted ? Verdict::kBad : Verdict::kAdvice, found, "10 or 11 is needed; ONNX Runtime is used"};
    if (has_tensorrt()) return {"tensorrt", Verdict::kGood, found, ""};
    return {"tensorrt", wanted ? Verdict::kBad : Verdict::kAdvice, found + ", but this program was built without it",
            "install libnvinfer-headers-dev or JetPack's, and build again"};
  }
  return {"tensorrt", wanted ? Verdict::kBad : Verdict::kUnknown, "no libnvinfer",
          wanted ? "install JetPack's TensorRT" : ""};
}

Check check_cuda() {
  const Library library("libcuda.so.1");
  const auto driver = library.find<int (*)(int*)>("cuDriverGetVersion");
  int version = 0;
  if (!driver || driver(&version) != 0) return {"cuda", Verdict::kUnknown, "no driver", ""};
  return {"cuda", Verdict::kGood,
          "driver for " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10), ""};
}

Check check_coalescing(const std::string& name) {
  Check check{"coalescing " + name, Verdict::kUnknown, "the driver does not report it", ""};
  const int handle = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (handle < 0) return check;
  ethtool_coalesce settings{};
  settings.cmd = ETHTOOL_GCOALESCE;
  ifreq request{};
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&settings);
  const bool reported = ioctl(handle, SIOCETHTOOL, &request) == 0;
  close(handle);
  if (!reported) return check;
  const bool adaptive = settings.use_adaptive_rx_coalesce;
  check.found = "a packet may wait " + std::to_string(settings.rx_coalesce_usecs) + " us" +
                (adaptive ? " or more, adaptive" : "");
  if (!adaptive && settings.rx_coalesce_usecs <= kSlowCoalescing) {
    check.verdict = Verdict::kGood;
    return check;
  }
  check.verdict = Verdict::kAdvice;
  check.remedy = "if the robot is connected to this card: sudo ethtool -C " + name + " adaptive-rx off rx-usecs 0";
  return check;
}

std::vector<Check> check_network() {
  std::vector<Check> checks;
  for (const auto& card : entries("/sys/class/net", "")) {
    const bool real = std::filesystem::exists(card / "device") && !std::filesystem::exists(card / "wireless");
    if (real && read_number(card / "type").value_or(0) == 1 && read_small(card / "operstate").value_or("") != "down") {
      checks.push_back(check_coalescing(card.filename().string()));
    }
  }
  if (checks.empty()) checks.push_back({"coalescing", Verdict::kUnknown, "no wired network card", ""});
  return checks;
}

/// Measure how late a thread wakes up [us], every `period_ns` for `seconds`; with FIFO if permitted.
std::vector<double> measure_lateness(const Options& options, std::int64_t period_ns, double seconds) {
  std::vector<double> late(
      static_cast<std::size_t>(std::max(10.0, seconds * kNsPerS / static_cast<double>(period_ns))));
  std::thread([&] {
    set_fifo_here(std::max(1, options.fifo_writer));
    if (options.cpu_writer >= 0) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(options.cpu_writer, &set);
      pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    }
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    for (auto& value : late) {
      const std::int64_t next = time.tv_nsec + period_ns;
      time.tv_sec += next / kNsPerS;
      time.tv_nsec = next % kNsPerS;
      while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) {
      }
      timespec now{};
      clock_gettime(CLOCK_MONOTONIC, &now);
      value =
          static_cast<double>(now.tv_sec - time.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec - time.tv_nsec) / 1e3;
    }
  }).join();
  std::sort(late.begin(), late.end());
  return late;
}

Check check_wake_up(const Options& options, double seconds) {
  const double period_us = options.settings.writer_period_s * 1e6;
  const auto late = measure_lateness(options, static_cast<std::int64_t>(period_us * 1000), seconds);
  const double p99 = late[late.size() * 99 / 100];
  std::array<char, 96> found{};
  std::snprintf(found.data(), found.size(), "late by %.0f us in the median, %.0f at 99 %%, %.0f at most",
                late[late.size() / 2], p99, late.back());
  if (late.back() >= period_us) {
    return {"wake_up", Verdict::kAdvice, found.data(),
            "a whole tick was missed: isolate processors, see the lines above"};
  }
  if (p99 >= kLateAdvice * period_us) return {"wake_up", Verdict::kAdvice, found.data(), "see the lines above"};
  return {"wake_up", Verdict::kGood, found.data(), ""};
}

}  // namespace

std::vector<Check> check_live(const Options& options, double seconds) {
  std::vector<Check> checks = {check_fifo(options), check_onnxruntime(options), check_tensorrt(options), check_cuda()};
  for (auto& check : check_network()) checks.push_back(std::move(check));
  checks.push_back(check_wake_up(options, seconds));
  return checks;
}

}  // namespace robot_rl
