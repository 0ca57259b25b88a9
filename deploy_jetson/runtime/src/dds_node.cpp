#include "dds_node.h"

#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <mutex>

#include "error.h"
#include "rt.h"

namespace robot_rl {
namespace {

struct Domain {
  dds_entity_t entity = 0;
  std::string interface;
  int nodes = 0;
};

std::mutex& domains_lock() {
  static std::mutex lock;
  return lock;
}

std::map<int, Domain>& domains() {
  static std::map<int, Domain> all;
  return all;
}

/// Whether this thread may have a real-time priority; restores its priority afterwards.
bool fifo_permitted(int priority) {
  sched_param before{}, wanted{};
  int policy = SCHED_OTHER;
  if (pthread_getschedparam(pthread_self(), &policy, &before) != 0) return false;
  wanted.sched_priority = priority;
  const bool permitted = pthread_setschedparam(pthread_self(), SCHED_FIFO, &wanted) == 0;
  if (permitted) pthread_setschedparam(pthread_self(), policy, &before);
  return permitted;
}

/// The library's settings: one interface, one receiving thread; on loopback no multicast, but peers of this machine.
std::string settings(const std::string& interface, int priority) {
  std::string text =
      "<CycloneDDS><Domain id=\"any\"><General><Interfaces><NetworkInterface name=\"" + interface + "\"/></Interfaces>";
  if (interface == "lo") {
    text +=
        "<AllowMulticast>false</AllowMulticast></General><Discovery><ParticipantIndex>auto</ParticipantIndex>"
        "<MaxAutoParticipantIndex>40</MaxAutoParticipantIndex><Peers><Peer address=\"127.0.0.1\"/></Peers></Discovery>";
  } else {
    text += "</General>";
  }
  text += "<Internal><MultipleReceiveThreads>false</MultipleReceiveThreads></Internal>";
  if (fifo_permitted(priority)) {
    text += "<Threads><Thread name=\"recv\"><Scheduling><Class>realtime</Class><Priority>" +
            std::to_string(priority) + "</Priority></Scheduling></Thread></Threads>";
  }
  return text + "</Domain></CycloneDDS>";
}

dds_entity_t checked(dds_entity_t entity, const std::string& what) {
  if (entity < 0) throw UserError("transport: DDS: " + what + ": " + dds_strretcode(-entity));
  return entity;
}

void open_domain(int id, const std::string& interface, int priority) {
  const std::lock_guard held(domains_lock());
  auto& domain = domains()[id];
  if (domain.nodes == 0) {
    if (if_nametoindex(interface.c_str()) == 0) {
      domains().erase(id);
      throw UserError("transport: interface: '" + interface + "' is not a network interface of this machine");
    }
    const auto entity = dds_create_domain(static_cast<dds_domainid_t>(id), settings(interface, priority).c_str());
    if (entity < 0) domains().erase(id);
    domain.entity = checked(entity, "domain " + std::to_string(id) + " on " + interface);
    domain.interface = interface;
  } else if (domain.interface != interface) {
    throw UserError("transport: interface: domain " + std::to_string(id) + " is already open on '" + domain.interface +
                    "' in this process, it cannot be on '" + interface + "', too");
  }
  ++domain.nodes;
}

void close_domain(int id) {
  const std::lock_guard held(domains_lock());
  auto& domain = domains()[id];
  if (--domain.nodes > 0) return;
  dds_delete(domain.entity);
  domains().erase(id);
}

void on_data(dds_entity_t, void* bell) { static_cast<Bell*>(bell)->ring(); }

/// Only the newest data matter: no writer waits for a reader, and a late reader gets no old data.
dds_qos_t* make_qos(bool reliable, int depth) {
  dds_qos_t* qos = dds_create_qos();
  dds_qset_reliability(qos, reliable ? DDS_RELIABILITY_RELIABLE : DDS_RELIABILITY_BEST_EFFORT, 0);
  dds_qset_history(qos, DDS_HISTORY_KEEP_LAST, depth);
  dds_qset_durability(qos, DDS_DURABILITY_VOLATILE);
  dds_qset_ignorelocal(qos, DDS_IGNORELOCAL_PARTICIPANT);
  return qos;
}

}  // namespace

Bell::Bell() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (event_ < 0) throw UserError("transport: DDS: no file descriptor is left for an event");
}

Bell::~Bell() { close(event_); }

void Bell::ring() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(event_, &one, sizeof(one));
}

bool Bell::wait(std::int64_t deadline_ns, int also_fd) noexcept {
  std::array<pollfd, 2> list = {pollfd{event_, POLLIN, 0}, pollfd{also_fd, POLLIN, 0}};
  for (;;) {
    const auto left = std::max<std::int64_t>(0, deadline_ns - now_ns());
    const timespec time = {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    const int ready = ppoll(list.data(), list.size(), &time, nullptr);
    if (ready > 0) {
      std::uint64_t rings;
      [[maybe_unused]] const auto got = read(event_, &rings, sizeof(rings));
      return true;
    }
    if (ready == 0 || errno != EINTR || now_ns() >= deadline_ns) return false;
  }
}

DdsNode::DdsNode(const Address& address, int priority) : domain_(std::stoi(address.option("domain", "0"))) {
  open_domain(domain_, address.option("interface", "lo"), priority);
  participant_ = dds_create_participant(static_cast<dds_domainid_t>(domain_), nullptr, nullptr);
  if (participant_ < 0) {
    close_domain(domain_);
    checked(participant_, "participant");
  }
}

DdsNode::~DdsNode() {
  dds_delete(participant_);
  close_domain(domain_);
}

dds_entity_t DdsNode::make_writer(const dds_topic_descriptor_t& type, const char* name) {
  const auto topic = checked(dds_create_topic(participant_, &type, name, nullptr, nullptr), name);
  dds_qos_t* qos = make_qos(true, 1);
  const auto writer = dds_create_writer(participant_, topic, qos, nullptr);
  dds_delete_qos(qos);
  return checked(writer, name);
}

dds_entity_t DdsNode::make_reader(const dds_topic_descriptor_t& type, const char* name, bool wakes) {
  const auto topic = checked(dds_create_topic(participant_, &type, name, nullptr, nullptr), name);
  dds_qos_t* qos = make_qos(false, 64);
  dds_listener_t* listener = dds_create_listener(&bell_);
  if (wakes) dds_lset_data_available(listener, on_data);
  const auto reader = dds_create_reader(participant_, topic, qos, listener);
  dds_delete_listener(listener);
  dds_delete_qos(qos);
  return checked(reader, name);
}

bool take_sample(dds_entity_t reader, void* message, std::uint64_t* writer) noexcept {
  for (;;) {
    dds_sample_info_t info;
    void* room[1] = {message};
    if (dds_take(reader, room, &info, 1, 1) <= 0) return false;
    if (!info.valid_data) continue;  // a writer that appeared or disappeared
    if (writer != nullptr) *writer = info.publication_handle;
    return true;
  }
}

}  // namespace robot_rl
