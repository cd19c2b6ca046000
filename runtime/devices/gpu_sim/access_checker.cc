#include "runtime/devices/gpu_sim/access_checker.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace xlad::runtime {
namespace {

constexpr int64_t kSectorBytes = 32, kWarp = 32;
constexpr int32_t kStore = 1, kShared = 2;  // As in compiler/codegen/nvptx/host_threads.cc.

thread_local AccessChecker* active = nullptr;

}  // namespace

struct AccessHooks {
  static void Part(const char* kernel, int64_t tile, int64_t part) {
    if (active != nullptr) active->Part(kernel, tile, part);
  }
  static void Access(const void* address, int64_t bytes, int32_t kind, int64_t thread) {
    if (active == nullptr) return;
    active->Access(reinterpret_cast<uintptr_t>(address), bytes, (kind & kStore) != 0, (kind & kShared) != 0, thread);
  }
};

absl::Span<const ProvidedFunction> AccessChecker::Functions() {
  static const ProvidedFunction functions[] = {
      {"xlad_gpu_part", reinterpret_cast<void*>(&AccessHooks::Part)},
      {"xlad_gpu_access", reinterpret_cast<void*>(&AccessHooks::Access)},
  };
  return functions;
}

void AccessChecker::Begin() {
  report_ = {};
  tile_ = part_ = 0;
  global_.clear();
  shared_.clear();
  active = this;
}

LaunchReport AccessChecker::End() {
  CountTraffic();
  active = nullptr;
  return std::move(report_);
}

void AccessChecker::Part(const char* kernel, int64_t tile, int64_t part) {
  CountTraffic();
  report_.kernel = kernel;
  if (tile != tile_) shared_.clear();  // Every block has its own.
  tile_ = tile;
  part_ = part;
}

void AccessChecker::CountTraffic() {
  report_.loaded_bytes += kSectorBytes * std::ssize(loaded_);
  report_.stored_bytes += kSectorBytes * std::ssize(stored_);
  loaded_.clear();
  stored_.clear();
}

void AccessChecker::Access(uintptr_t address, int64_t bytes, bool is_store, bool is_shared, int64_t thread) {
  for (int64_t i = 0; i < bytes; ++i) {
    const uintptr_t byte = address + static_cast<uintptr_t>(i);
    Check((is_shared ? shared_ : global_)[byte], is_store, is_shared, thread);
    if (is_shared) continue;
    constexpr int kSectorBits = 48;  // Addresses of user space have 47 bits.
    const uint64_t warp = static_cast<uint64_t>(thread / kWarp);
    (is_store ? stored_ : loaded_).insert(warp << kSectorBits | byte / kSectorBytes);
  }
}

void AccessChecker::Check(Shadow& shadow, bool is_store, bool is_shared, int64_t thread) {
  const bool same_tile_write = shadow.write_tile == tile_;
  const bool unordered_write =
      shadow.write_tile >= 0 &&
      (!same_tile_write || (shadow.write_part == part_ && shadow.write_thread != thread));
  if (is_shared && !is_store && !same_tile_write && report_.race.empty()) {
    report_.race = absl::StrCat("kernel ", report_.kernel, ": block ", tile_, ", thread ", thread, " reads in part ",
                                part_, " shared memory that no thread of the block has written");
  }
  const bool same_tile_read = shadow.read_tile == tile_;
  const bool unordered_read =
      shadow.read_tile >= 0 &&
      (shadow.read_by_tiles || !same_tile_read ||
       (shadow.read_part == part_ && (shadow.read_thread != thread || shadow.read_by_threads)));
  if (unordered_write || (is_store && unordered_read)) Report(shadow, is_store, thread);
  if (is_store) {
    shadow.write_tile = tile_;
    shadow.write_part = part_;
    shadow.write_thread = thread;
    return;
  }
  shadow.read_by_tiles = shadow.read_by_tiles || (shadow.read_tile >= 0 && !same_tile_read);
  const bool same_part = same_tile_read && shadow.read_part == part_;
  shadow.read_by_threads = same_part && (shadow.read_by_threads || shadow.read_thread != thread);
  shadow.read_tile = tile_;
  shadow.read_part = part_;
  shadow.read_thread = thread;
}

void AccessChecker::Report(const Shadow& shadow, bool is_store, int64_t thread) {
  if (!report_.race.empty()) return;
  const bool with_write = shadow.write_tile >= 0;
  report_.race = absl::StrCat(
      "kernel ", report_.kernel, ": found a race: block ", tile_, ", thread ", thread, " ",
      is_store ? "writes" : "reads", " in part ", part_, " what block ",
      with_write ? shadow.write_tile : shadow.read_tile, ", thread ",
      with_write ? shadow.write_thread : shadow.read_thread, " ", with_write ? "writes" : "reads", " in part ",
      with_write ? shadow.write_part : shadow.read_part, ", expected a barrier between them");
}

}  // namespace xlad::runtime
