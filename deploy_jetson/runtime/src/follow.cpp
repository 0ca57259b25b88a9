#include "follow.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "contract_compare.h"
#include "error.h"
#include "report.h"
#include "rt.h"

namespace robot_rl {

namespace {

constexpr std::int64_t kLookNs = 20'000'000;  // between looks at the file "next", or whether a bundle acts
constexpr std::size_t kMaxPath = 4096;        // of the line in "next"

std::string short_of(const std::string& identity) { return identity.substr(0, 12); }

}  // namespace

/// A checked bundle with its network; the network refers to the bundle.
struct Follower::Successor {
  std::shared_ptr<const Bundle> bundle;
  std::unique_ptr<Backend> backend;
  Handover handover;
};

Follower::Follower(const FollowOptions& options, const Bundle& first, Loop& loop, Logger* logger)
    : options_(options), first_(&first), loop_(&loop), logger_(logger), current_(first.identity) {}

Follower::~Follower() {
  loop_->stop();
  stop();
}

void Follower::start() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw UserError(std::string("--follow: a thread cannot be started: ") + error.what());
  }
}

void Follower::stop() noexcept {
  stopping_.store(true, std::memory_order_release);
  if (thread_.joinable()) thread_.join();
}

void Follower::run() noexcept {
  pthread_setname_np(pthread_self(), "follower");
  while (!stopping_.load(std::memory_order_acquire)) {
    sleep_until(now_ns() + kLookNs);
    try {
      look();
    } catch (const std::exception& error) {
      options_.say("warning: --follow=" + options_.folder.string() + ": " + error.what());
    }
  }
}

void Follower::look() {
  if (!first_shown_ && loop_->first().acted()) {
    first_shown_ = true;
    write_current(first_->path.string(), loop_->first());
  }
  std::string text;
  if (read_next(text)) adopt(text);
}

/// Read the file "next" if it is another one than before; false: it is not, or there is none.
bool Follower::read_next(std::string& text) {
  const auto path = options_.folder / "next";
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return false;
  const Seen seen{status.st_ino, status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec, status.st_size};
  if (seen == seen_) return false;
  const int file = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return false;
  seen_ = seen;
  text.resize(kMaxPath + 1);
  const auto got = read(file, text.data(), text.size());
  close(file);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (text.ends_with('\n')) text.pop_back();
  return true;
}

void Follower::adopt(const std::string& text) {
  const std::string path = one_line(text);
  std::string identity;
  std::unique_ptr<Successor> next;
  try {
    next = load(text, identity);
  } catch (const std::exception& error) {
    return refuse(path, identity, error.what());
  }
  hand_over(std::move(next), path);
}

/// Read and check a bundle as at the start; `identity` is set as soon as it is known.
std::unique_ptr<Follower::Successor> Follower::load(const std::string& text, std::string& identity) const {
  if (text.empty() || text.size() > kMaxPath || text.find_first_of(std::string("\n\0", 2)) != std::string::npos) {
    throw UserError("next: must be one line with the path of a bundle");
  }
  auto next = std::make_unique<Successor>();
  next->bundle = read_bundle(options_.folder / text, options_.signed_by);
  identity = next->bundle->identity;
  const auto different = contract_difference(first_->contract_text, next->bundle->contract_text);
  if (!different.empty()) throw ContractError("its contract is another one: " + different);
  std::string why;
  next->backend = make_backend(*next->bundle, options_.backend, why);
  if (next->backend->identity() != options_.backend_identity) {
    throw ContractError("its backend is " + next->backend->identity() + ", the running one " +
                        options_.backend_identity);
  }
  next->handover.backend = next->backend.get();
  std::copy_n(identity.begin(), next->handover.identity.size(), next->handover.identity.begin());
  return next;
}

/// Hand a network over, and wait until the policy acts with it or the run ends.
void Follower::hand_over(std::unique_ptr<Successor> next, const std::string& path) {
  if (logger_ != nullptr) logger_->announce(next->bundle);
  const Handover& handover = next->handover;
  fates_.push_back({next->bundle->identity, path, "", 0, -1});
  loop_->offer(next->handover);
  offered_ = std::move(next);
  while (!handover.acted() && !stopping_.load(std::memory_order_acquire)) sleep_until(now_ns() + kLookNs);
  if (!handover.acted()) return;
  fates_.back().time_ns = handover.time_ns();
  fates_.back().first_step = handover.first_step();
  const auto& training = offered_->bundle->contract.training;
  options_.say("bundle " + short_of(offered_->bundle->identity) + ", iteration " + std::to_string(training.iteration) +
               " of " + training.run_id + ", from step " + std::to_string(handover.first_step()) + " on");
  current_ = offered_->bundle->identity;
  running_ = std::move(offered_);  // the network before it is destroyed here: its last step is over
  first_shown_ = true;
  write_current(path, running_->handover);
}

void Follower::refuse(const std::string& path, const std::string& identity, const std::string& why) {
  fates_.push_back({identity, path, why, now_ns(), -1});
  options_.say("refused, " + short_of(current_) + " stays: " + why);
  write_file("refused", path + ": " + one_line(why));
}

void Follower::write_current(const std::string& path, const Handover& handover) const {
  write_file("current", current_ + " " + path + " " + std::to_string(handover.first_step()));
}

void Follower::write_file(const char* name, const std::string& line) const {
  write_whole(options_.folder / name, line + "\n");
}

}  // namespace robot_rl
