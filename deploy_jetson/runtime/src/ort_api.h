// The part of ONNX Runtime's C API that is used here. The library provides a table of functions that only grows
// at its end, so a function is identified by its index. A wrong index would be found by the golden replay at the
// latest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace robot_rl::ort {

inline constexpr std::uint32_t kVersion = 17;   // of the table; every later library has it
inline constexpr int kFatal = 4;                // log level
inline constexpr int kFloat = 1;                // element type of a tensor
inline constexpr int kArenaAllocator = 1, kDefaultMemory = 0;

struct Allocator;
struct Env;
struct MemoryInfo;
struct Session;
struct SessionOptions;
struct Status;
struct TensorInfo;
struct TypeInfo;
struct Value;

using Function = void (*)();

/// Result of the library's only exported symbol, OrtGetApiBase.
struct ApiBase {
  const Function* (*get_api)(std::uint32_t version);
  const char* (*version)();
};

/// A function's index in the table, with its signature.
template <class Signature>
struct Slot {
  std::size_t place;
};

inline constexpr Slot<const char*(const Status*)> kGetErrorMessage{2};
inline constexpr Slot<Status*(int, const char*, Env**)> kCreateEnv{3};
inline constexpr Slot<Status*(const Env*)> kDisableTelemetryEvents{6};
inline constexpr Slot<Status*(const Env*, const void*, std::size_t, const SessionOptions*, Session**)>
    kCreateSessionFromArray{8};
inline constexpr Slot<Status*(Session*, const void*, const char* const*, const Value* const*, std::size_t,
                              const char* const*, std::size_t, Value**)>
    kRun{9};
inline constexpr Slot<Status*(SessionOptions**)> kCreateSessionOptions{10};
inline constexpr Slot<Status*(SessionOptions*, int)> kSetSessionLogSeverityLevel{22};
inline constexpr Slot<Status*(SessionOptions*, int)> kSetIntraOpNumThreads{24};
inline constexpr Slot<Status*(SessionOptions*, int)> kSetInterOpNumThreads{25};
inline constexpr Slot<Status*(const Session*, std::size_t*)> kSessionGetInputCount{30};
inline constexpr Slot<Status*(const Session*, std::size_t*)> kSessionGetOutputCount{31};
inline constexpr Slot<Status*(const Session*, std::size_t, TypeInfo**)> kSessionGetInputTypeInfo{33};
inline constexpr Slot<Status*(const Session*, std::size_t, TypeInfo**)> kSessionGetOutputTypeInfo{34};
inline constexpr Slot<Status*(const Session*, std::size_t, Allocator*, char**)> kSessionGetInputName{36};
inline constexpr Slot<Status*(const Session*, std::size_t, Allocator*, char**)> kSessionGetOutputName{37};
inline constexpr Slot<Status*(const MemoryInfo*, void*, std::size_t, const std::int64_t*, std::size_t, int, Value**)>
    kCreateTensorWithDataAsOrtValue{49};
inline constexpr Slot<Status*(const TypeInfo*, const TensorInfo**)> kCastTypeInfoToTensorInfo{55};
inline constexpr Slot<Status*(const TensorInfo*, int*)> kGetTensorElementType{60};
inline constexpr Slot<Status*(const TensorInfo*, std::size_t*)> kGetDimensionsCount{61};
inline constexpr Slot<Status*(const TensorInfo*, std::int64_t*, std::size_t)> kGetDimensions{62};
inline constexpr Slot<Status*(int, int, MemoryInfo**)> kCreateCpuMemoryInfo{69};
inline constexpr Slot<Status*(Allocator*, void*)> kAllocatorFree{76};
inline constexpr Slot<Status*(Allocator**)> kGetAllocatorWithDefaultOptions{78};
inline constexpr Slot<void(Env*)> kReleaseEnv{92};
inline constexpr Slot<void(Status*)> kReleaseStatus{93};
inline constexpr Slot<void(MemoryInfo*)> kReleaseMemoryInfo{94};
inline constexpr Slot<void(Session*)> kReleaseSession{95};
inline constexpr Slot<void(Value*)> kReleaseValue{96};
inline constexpr Slot<void(TypeInfo*)> kReleaseTypeInfo{98};
inline constexpr Slot<void(SessionOptions*)> kReleaseSessionOptions{100};
inline constexpr Slot<Status*(SessionOptions*, const char*, const char*)> kAddSessionConfigEntry{130};

/// The table itself.
class Api {
 public:
  explicit Api(const Function* table) : table_(table) {}
  template <class R, class... P>
  R operator()(Slot<R(P...)> slot, std::type_identity_t<P>... arguments) const {
    return reinterpret_cast<R (*)(P...)>(table_[slot.place])(arguments...);
  }

 private:
  const Function* table_;
};

}  // namespace robot_rl::ort
