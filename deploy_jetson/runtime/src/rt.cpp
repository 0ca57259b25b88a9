#include "rt.h"

#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <stdexcept>

namespace robot_rl {

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::string limit_text(int resource, bool mebibytes) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return mebibytes ? std::to_string(limit.rlim_cur >> 20) + " MiB" : std::to_string(limit.rlim_cur);
}

}  // namespace

std::int64_t now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * kSecond + now.tv_nsec;
}

void sleep_until(std::int64_t time_ns) noexcept {
  const timespec until{static_cast<time_t>(time_ns / kSecond), static_cast<long>(time_ns % kSecond)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

bool lock_memory(std::string& why) {
  why.clear();
  // The heap only grows: touched pages stay mapped, and large blocks come from the heap, not from separate mappings.
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_MMAP_MAX, 0);
  if (mlockall(MCL_CURRENT | MCL_FUTURE) == 0) return true;
  why = std::string("memory is not locked (") + std::strerror(errno) + ", RLIMIT_MEMLOCK is " +
        limit_text(RLIMIT_MEMLOCK, true) + "): page faults may delay a command; LimitMEMLOCK=infinity in the systemd " +
        "unit, or '* - memlock unlimited' in /etc/security/limits.conf";
  return false;
}

bool set_fifo(int priority, std::string& why) {
  why.clear();
  sched_param parameter{};
  parameter.sched_priority = priority;
  const int error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter);
  if (error == 0) return true;
  why = "SCHED_FIFO " + std::to_string(priority) + " is not permitted (" + std::strerror(error) +
        ", RLIMIT_RTPRIO is " + limit_text(RLIMIT_RTPRIO, false) +
        "): other programs may delay a command; LimitRTPRIO=95 in the systemd " +
        "unit, or '* - rtprio 95' in /etc/security/limits.conf";
  return false;
}

bool pin_to_cpu(int cpu, std::string& why) {
  why.clear();
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(static_cast<unsigned>(cpu), &set);
  const int error = pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  if (error == 0) return true;
  why = "CPU " + std::to_string(cpu) + " cannot be used (" + std::strerror(error) + "): this machine has " +
        std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) + " online, counted from 0";
  return false;
}

void prefault_stack() noexcept {
  constexpr std::size_t kBytes = 128 * 1024, kPage = 4096;
  unsigned char stack[kBytes];
  for (std::size_t at = 0; at < kBytes; at += kPage) stack[at] = 0;
  asm volatile("" : : "r"(stack) : "memory");  // the compiler must not remove the writes
}

void sharpen_timers() noexcept { prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0); }

AwakeCpus::AwakeCpus() noexcept {
  file_ = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);
  const std::int32_t longest_us = 0;
  if (file_ >= 0 && write(file_, &longest_us, sizeof longest_us) != sizeof longest_us) {
    close(file_);
    file_ = -1;
  }
}

AwakeCpus::~AwakeCpus() {
  if (file_ >= 0) close(file_);
}

PiMutex::PiMutex() {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
  const int error = pthread_mutex_init(&mutex_, &attributes);
  pthread_mutexattr_destroy(&attributes);
  if (error != 0) throw std::runtime_error(std::string("a mutex with priority inheritance: ") + std::strerror(error));
}

PageFaults page_faults() noexcept {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return {usage.ru_minflt, usage.ru_majflt};
}

}  // namespace robot_rl
