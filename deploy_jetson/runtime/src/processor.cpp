#include <sys/utsname.h>

#include <fstream>

#include "error.h"
#include "replay.h"

namespace robot_rl {

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return one_line(line.substr(colon + 2));
  }
  utsname name{};
  return uname(&name) == 0 ? name.machine : "unknown";
}

}  // namespace robot_rl
