// The doctor's checks that only read files: kernel, processors, clocks, heat, permissions.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "doctor.h"

namespace robot_rl {
namespace {

namespace fs = std::filesystem;

constexpr int kCapIpcLock = 14, kCapSysNice = 23;  // bits of CapEff, see capabilities(7)
constexpr long long kEnoughLocked = 512LL << 20;   // [byte], more than the runtime maps with ONNX Runtime
constexpr double kHeatMargin = 10.0;               // [C] below the temperature at which the machine slows down
constexpr long long kSlowIdle = 100;               // [us] to leave an idle state

std::string print(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::vector<fs::path> cpu_folders(const fs::path& root) {
  auto found = entries(root / "sys/devices/system/cpu", "cpu");
  std::erase_if(found, [](const fs::path& path) {
    const auto name = path.filename().string();
    return name.size() < 4 || !std::all_of(name.begin() + 3, name.end(), [](char c) { return c >= '0' && c <= '9'; });
  });
  return found;
}

int cpu_number(const fs::path& folder) { return std::stoi(folder.filename().string().substr(3)); }

/// The value of a line "Name:   value" in a file under /proc; nothing if the line is missing.
std::optional<std::string> field_of(const fs::path& path, const std::string& name) {
  const auto text = read_small(path);
  const auto at = text ? text->find(name) : std::string::npos;
  if (at == std::string::npos) return std::nullopt;
  const auto begin = text->find_first_not_of(" \t", at + name.size());
  if (begin == std::string::npos) return std::nullopt;
  return text->substr(begin, text->find_first_of(" \t\n", begin) - begin);
}

Check check_board(const fs::path& root) {
  const auto model = read_small(root / "proc/device-tree/model");
  const auto tegra = read_small(root / "etc/nv_tegra_release");
  if (!tegra) return {"board", Verdict::kGood, model ? *model : "no Jetson", ""};
  // "# R38 (release), REVISION: 2.1, GCID: ..."
  const auto release = tegra->substr(std::min<std::size_t>(tegra->size(), 2), tegra->find(", GCID") - 2);
  const int major = release.starts_with('R') ? std::atoi(release.c_str() + 1) : 0;
  const auto found = model.value_or("Jetson") + ", Jetson Linux " + release;
  if (major >= 38) return {"board", Verdict::kGood, found, ""};
  return {"board", Verdict::kAdvice, found, "build.sh was written for JetPack 7 (Jetson Linux R38 and later)"};
}

Check check_kernel(const fs::path& root) {
  const auto release = read_small(root / "proc/sys/kernel/osrelease").value_or("?");
  const auto version = read_small(root / "proc/sys/kernel/version").value_or("");
  if (read_number(root / "sys/kernel/realtime").value_or(0) == 1 || version.find("PREEMPT_RT") != std::string::npos) {
    return {"kernel", Verdict::kGood, release + ", PREEMPT_RT", ""};
  }
  const bool preempt = version.find("PREEMPT") != std::string::npos;
  return {"kernel", Verdict::kAdvice, release + (preempt ? ", preemptible, not real-time" : ", not real-time"),
          "install the real-time kernel: on a Jetson the packages nvidia-l4t-rt-kernel*, on Debian linux-image-rt-*"};
}

Check check_isolated(const Options& options, const fs::path& root) {
  const auto isolated = parse_cpus(read_small(root / "sys/devices/system/cpu/isolated").value_or(""));
  const auto tickless = parse_cpus(read_small(root / "sys/devices/system/cpu/nohz_full").value_or(""));
  const int count = static_cast<int>(cpu_folders(root).size());
  if (isolated.empty() && count < 4) {
    return {"isolated_cpus", Verdict::kUnknown,
            "none of " + std::to_string(count) + " processors, too few to spare two", ""};
  }
  if (isolated.empty()) {
    const auto pair = format_cpus({count - 2, count - 1});
    return {"isolated_cpus", Verdict::kAdvice, "none",
            "boot with isolcpus=managed_irq,domain," + pair + " nohz_full=" + pair + " rcu_nocbs=" + pair};
  }
  const auto found = format_cpus(isolated) + ", tickless " + (tickless.empty() ? "none" : format_cpus(tickless));
  for (const auto& [name, cpu] :
       {std::pair{"--cpu-writer", options.cpu_writer}, {"--cpu-policy", options.cpu_policy}}) {
    if (cpu >= 0 && !isolated.contains(cpu)) {
      return {"isolated_cpus", Verdict::kAdvice, found,
              std::string(name) + " " + std::to_string(cpu) + " is not among them"};
    }
    if (cpu < 0) {
      return {"isolated_cpus", Verdict::kAdvice, found,
              "nothing runs there unless assigned: give " + std::string(name) + " one of them"};
    }
  }
  return {"isolated_cpus", Verdict::kGood, found, ""};
}

Check check_fifo_share(const fs::path& root) {
  const auto runtime = read_number(root / "proc/sys/kernel/sched_rt_runtime_us");
  const auto period = read_number(root / "proc/sys/kernel/sched_rt_period_us");
  if (!runtime || !period || *period <= 0)
    return {"fifo_share", Verdict::kUnknown, "the kernel does not report it", ""};
  if (*runtime < 0) return {"fifo_share", Verdict::kGood, "FIFO threads are never throttled", ""};
  const double share = 100.0 * static_cast<double>(*runtime) / static_cast<double>(*period);
  const auto found = print("FIFO threads may have %.0f %% of a processor", share);
  if (share >= 90) return {"fifo_share", Verdict::kGood, found + "; those of the runtime sleep nearly always", ""};
  return {"fifo_share", Verdict::kAdvice, found, "sysctl kernel.sched_rt_runtime_us=950000"};
}

/// Lowest temperature [C] at which a thermal zone slows the machine down or stops it; nothing if it has none.
std::optional<double> slowing_at(const fs::path& zone) {
  std::optional<double> lowest;
  for (const auto& path : entries(zone, "trip_point_")) {
    const auto name = path.filename().string();
    if (!name.ends_with("_type")) continue;
    const auto type = read_small(path).value_or("");
    if (type != "passive" && type != "hot" && type != "critical") continue;
    const auto value = read_number(zone / (name.substr(0, name.size() - 5) + "_temp"));
    if (value && *value > 0) lowest = std::min(lowest.value_or(1e9), static_cast<double>(*value) / 1000);
  }
  return lowest;
}

Check check_heat(const fs::path& root) {
  std::string where;
  double margin = 1e9, hottest = -273;
  for (const auto& zone : entries(root / "sys/class/thermal", "thermal_zone")) {
    const auto value = read_number(zone / "temp");
    if (!value) continue;
    const double temperature = static_cast<double>(*value) / 1000;
    hottest = std::max(hottest, temperature);
    const auto limit = slowing_at(zone);
    if (limit && *limit - temperature < margin) {
      margin = *limit - temperature;
      where = read_small(zone / "type").value_or(zone.filename().string());
    }
  }
  if (hottest <= -273) return {"heat", Verdict::kUnknown, "no thermal zone reports a temperature", ""};
  auto found = print("hottest %.0f C", hottest);
  if (where.empty()) return {"heat", Verdict::kGood, found, ""};
  found += "; '" + where + print("' is %.0f C below where it slows down", margin);
  if (margin <= 0)
    return {"heat", Verdict::kBad, found, "it is slowed down by heat: cool it, check the fan and the air flow"};
  if (margin < kHeatMargin) return {"heat", Verdict::kAdvice, found, "give it more air before a long run"};
  return {"heat", Verdict::kGood, found, ""};
}

Check check_throttling(const fs::path& root) {
  std::string events;
  for (const auto& monitor : entries(root / "sys/class/hwmon", "hwmon")) {
    for (const auto& path : entries(monitor, "oc")) {
      const auto name = path.filename().string();
      if (!name.ends_with("_event_cnt") || read_number(path).value_or(0) == 0) continue;
      events +=
          (events.empty() ? "" : ", ") + name.substr(0, name.find('_')) + ": " + std::to_string(*read_number(path));
    }
  }
  if (!events.empty()) {
    return {"throttling", Verdict::kBad, "over-current events since boot (" + events + ")",
            "the supply is too weak or the power mode too high; the clocks may stay low until the power is switched "
            "off and on"};
  }
  long long hot = 0;
  bool reported = !entries(root / "sys/class/hwmon", "hwmon").empty();
  for (const auto& cpu : cpu_folders(root)) {
    const auto count = read_number(cpu / "thermal_throttle/core_throttle_count");
    reported = reported || count;
    hot += count.value_or(0);
  }
  if (hot)
    return {"throttling", Verdict::kAdvice, "slowed down by heat " + std::to_string(hot) + " times since boot",
            "cool it"};
  if (!reported) return {"throttling", Verdict::kUnknown, "this machine does not count throttling", ""};
  return {"throttling", Verdict::kGood, "no event since boot", ""};
}

Check check_governor(const fs::path& root) {
  std::set<int> other, all;
  std::string name;
  for (const auto& cpu : cpu_folders(root)) {
    const auto governor = read_small(cpu / "cpufreq/scaling_governor");
    if (!governor) continue;
    all.insert(cpu_number(cpu));
    if (*governor == "performance") continue;
    other.insert(cpu_number(cpu));
    name = *governor;
  }
  if (all.empty())
    return {"governor", Verdict::kUnknown, "no frequency scaling is visible, as in a virtual machine", ""};
  if (other.empty()) return {"governor", Verdict::kGood, "performance on " + format_cpus(all), ""};
  return {"governor", Verdict::kAdvice, name + " on " + format_cpus(other),
          "sudo jetson_clocks, or cpupower frequency-set -g performance"};
}

Check check_frequency(const fs::path& root) {
  std::set<int> slow, capped;
  double worst = 1;
  bool reported = false;
  for (const auto& cpu : cpu_folders(root)) {
    const auto top = read_number(cpu / "cpufreq/cpuinfo_max_freq"),
               allowed = read_number(cpu / "cpufreq/scaling_max_freq");
    const auto requested = read_number(cpu / "cpufreq/scaling_cur_freq"),
               real = read_number(cpu / "cpufreq/cpuinfo_cur_freq");
    if (top && allowed && *allowed < *top) capped.insert(cpu_number(cpu));
    reported = reported || (top && allowed);
    if (!requested || !real || *requested <= 0) continue;
    const double share = static_cast<double>(*real) / static_cast<double>(*requested);
    worst = std::min(worst, share);
    if (share < 0.7) slow.insert(cpu_number(cpu));
  }
  if (!reported) return {"cpu_clock", Verdict::kUnknown, "this machine does not report its clocks", ""};
  if (!slow.empty()) {
    return {"cpu_clock", Verdict::kBad,
            "processors " + format_cpus(slow) + print(" run at %.0f %% of the requested clock", 100 * worst),
            "the power management holds them back: look at throttling and the supply, switch the power off and on"};
  }
  if (!capped.empty()) {
    return {"cpu_clock", Verdict::kAdvice, "processors " + format_cpus(capped) + " are kept below their highest clock",
            "sudo nvpmodel -m 0"};
  }
  return {"cpu_clock", Verdict::kGood, "the highest clock is allowed", ""};
}

Check check_idle(const fs::path& root) {
  const auto states = entries(root / "sys/devices/system/cpu/cpu0/cpuidle", "state");
  if (states.empty()) return {"idle_states", Verdict::kGood, "none is used by this kernel", ""};
  long long slowest = 0;
  std::string name;
  for (const auto& state : states) {
    if (read_number(state / "disable").value_or(0)) continue;
    const auto latency = read_number(state / "latency").value_or(0);
    if (latency < slowest) continue;
    slowest = latency;
    name = read_small(state / "name").value_or(state.filename().string());
  }
  const auto found = "deepest is '" + name + "', " + std::to_string(slowest) + " us to leave";
  if (slowest <= kSlowIdle) return {"idle_states", Verdict::kGood, found, ""};
  return {"idle_states", Verdict::kAdvice, found,
          "sudo jetson_clocks, or cpupower idle-set -D " + std::to_string(kSlowIdle)};
}

Check check_gpu(const fs::path& root) {
  for (const auto& device : entries(root / "sys/class/devfreq", "")) {
    const auto name = device.filename().string();
    if (name.find("gpu") == std::string::npos || name.find("nvd") != std::string::npos) continue;
    const auto now = read_number(device / "cur_freq"), low = read_number(device / "min_freq"),
               high = read_number(device / "max_freq");
    if (!now || !low || !high) continue;
    const auto found = name + print(" at %.0f MHz", static_cast<double>(*now) / 1e6) +
                       print(" of %.0f", static_cast<double>(*high) / 1e6);
    if (*low >= *high) return {"gpu_clock", Verdict::kGood, found + ", locked", ""};
    return {"gpu_clock", Verdict::kAdvice, found + ", may be lowered",
            "sudo jetson_clocks locks it, where TensorRT runs the policy"};
  }
  return {"gpu_clock", Verdict::kUnknown, "no GPU of a Jetson", ""};
}

Check check_power_mode(const fs::path& root) {
  const auto status = read_small(root / "var/lib/nvpmodel/status");
  if (!status) return {"power_mode", Verdict::kUnknown, "no nvpmodel", ""};
  const auto mode = status->find("pmode:");
  if (mode == std::string::npos) return {"power_mode", Verdict::kUnknown, *status, ""};
  const int number = std::atoi(status->c_str() + mode + 6);
  if (number == 0) return {"power_mode", Verdict::kGood, "mode 0, the highest", ""};
  return {"power_mode", Verdict::kAdvice, "mode " + std::to_string(number),
          "sudo nvpmodel -m 0, where supply and cooling allow it"};
}

Check check_clock_source(const fs::path& root) {
  const auto folder = root / "sys/devices/system/clocksource/clocksource0/current_clocksource";
  const auto name = read_small(folder);
  if (!name) return {"clock_source", Verdict::kUnknown, "the kernel does not report it", ""};
  if (*name != "hpet" && *name != "acpi_pm" && *name != "jiffies") return {"clock_source", Verdict::kGood, *name, ""};
  return {"clock_source", Verdict::kAdvice, *name + ", which is slow to read",
          "look into the kernel's log for the reason why the fast one was not used"};
}

bool capable(const fs::path& root, int bit) {
  const auto mask = field_of(root / "proc/self/status", "CapEff:");
  return mask && (std::strtoull(mask->c_str(), nullptr, 16) >> bit & 1);
}

Check check_memlock(const fs::path& root) {
  const auto limit = field_of(root / "proc/self/limits", "Max locked memory");
  if (!limit) return {"memlock", Verdict::kUnknown, "the kernel does not report it", ""};
  if (capable(root, kCapIpcLock)) return {"memlock", Verdict::kGood, "any amount, by capability", ""};
  if (*limit == "unlimited") return {"memlock", Verdict::kGood, *limit, ""};
  const long long bytes = std::atoll(limit->c_str());
  const auto found = std::to_string(bytes >> 20) + " MiB";
  if (bytes >= kEnoughLocked) return {"memlock", Verdict::kGood, found, ""};
  return {"memlock", Verdict::kBad, found,
          "LimitMEMLOCK=infinity in the unit, or 'memlock unlimited' in /etc/security/limits.d"};
}

Check check_rtprio(const Options& options, const fs::path& root) {
  const auto limit = field_of(root / "proc/self/limits", "Max realtime priority");
  const int wanted = std::max(options.fifo_writer, options.fifo_policy);
  if (!limit) return {"rtprio", Verdict::kUnknown, "the kernel does not report it", ""};
  if (capable(root, kCapSysNice)) return {"rtprio", Verdict::kGood, "any priority, by capability", ""};
  if (std::atoi(limit->c_str()) >= wanted) return {"rtprio", Verdict::kGood, *limit, ""};
  return {"rtprio", Verdict::kBad, *limit + ", " + std::to_string(wanted) + " is needed",
          "LimitRTPRIO=95 in the unit, or 'rtprio 95' in /etc/security/limits.d"};
}

}  // namespace

std::vector<Check> check_files(const Options& options, const fs::path& root) {
  return {check_board(root),
          check_kernel(root),
          check_isolated(options, root),
          check_fifo_share(root),
          check_heat(root),
          check_throttling(root),
          check_governor(root),
          check_frequency(root),
          check_idle(root),
          check_gpu(root),
          check_power_mode(root),
          check_clock_source(root),
          check_rtprio(options, root),
          check_memlock(root)};
}

}  // namespace robot_rl
