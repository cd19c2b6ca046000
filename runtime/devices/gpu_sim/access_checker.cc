#include "runtime/devices/gpu_sim/access_checker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"

namespace xlad::runtime {
namespace {

constexpr int64_t kSectorBytes = 32, kWarp = 32;

thread_local AccessChecker* active = nullptr;

}  // namespace

// The functions that checked code calls. Their signatures are in compiler/codegen/nvptx/host_threads.h, and the numbers
// of roles in host_threads.cc.
struct AccessHooks {
  static void Buffer(int32_t argument, const void* address, int64_t bytes, int32_t role) {
    if (active == nullptr) return;
    active->AddBuffer(argument, reinterpret_cast<uintptr_t>(address), bytes, static_cast<AccessChecker::Role>(role));
  }
  static void Part(const char* kernel, int64_t tile, int64_t part) {
    if (active != nullptr) active->Part(kernel, tile, part);
  }
  static void* Access(void* address, int64_t bytes, int32_t is_store, int32_t argument, int64_t thread) {
    if (active == nullptr) return address;
    return active->Access(reinterpret_cast<uintptr_t>(address), bytes, is_store != 0, argument, thread);
  }
};

absl::Span<const ProvidedFunction> AccessChecker::Functions() {
  static const ProvidedFunction functions[] = {
      {"xlad_gpu_buffer", reinterpret_cast<void*>(&AccessHooks::Buffer)},
      {"xlad_gpu_part", reinterpret_cast<void*>(&AccessHooks::Part)},
      {"xlad_gpu_access", reinterpret_cast<void*>(&AccessHooks::Access)},
  };
  return functions;
}

void AccessChecker::Begin() {
  report_ = {};
  tile_ = -1;
  buffers_.clear();
  pages_.clear();
  recent_ = {};
  active = this;
}

LaunchReport AccessChecker::End() {
  CountTraffic();
  CheckResults();
  active = nullptr;
  return std::move(report_);
}

void AccessChecker::AddBuffer(size_t argument, uintptr_t address, int64_t bytes, Role role) {
  Buffer buffer{address, address + static_cast<uintptr_t>(bytes), role, static_cast<int64_t>(argument),
                role == Role::kOperand};
  for (const Buffer& operand : buffers_) {
    if (role != Role::kResult || operand.role != Role::kOperand) continue;
    --buffer.number;
    buffer.is_initialized = buffer.is_initialized || (bytes > 0 && operand.begin == address);
  }
  if (argument >= buffers_.size()) buffers_.resize(argument + 1);
  buffers_[argument] = buffer;
}

void AccessChecker::Part(const char* kernel, int64_t tile, int64_t part) {
  CountTraffic();
  report_.kernel = kernel;
  tile_ = tile;
  part_ = part;
}

void* AccessChecker::Access(uintptr_t address, int64_t bytes, bool is_store, int64_t argument, int64_t thread) {
  const uintptr_t end = address + bytes;
  if (argument < 0) argument = FindBuffer(address);
  const Buffer buffer = argument < 0 ? Buffer() : buffers_[argument];
  if (address < buffer.begin || end > buffer.end) {
    const std::string what = absl::StrCat(At(thread), is_store ? " writes " : " reads ", bytes, " bytes ");
    Fail(AccessError::kOutside,
         argument < 0 ? absl::StrCat(what, "outside of the buffers of the kernel")
                      : absl::StrCat(what, "at byte ", static_cast<int64_t>(address - buffer.begin), " of ",
                                     buffer.Name(), ", expected one of its ", buffer.end - buffer.begin, " bytes"));
    elsewhere_.assign(bytes, std::byte{0});
    return elsewhere_.data();
  }
  uint64_t hash = MixBits(static_cast<uint64_t>(tile_) << 32 | static_cast<uint64_t>(thread));
  hash = MixBits(hash ^ (static_cast<uint64_t>(argument) << 48 | (address - buffer.begin)));
  report_.trace += MixBits(hash ^ (static_cast<uint64_t>(bytes) << 1 | (is_store ? 1 : 0)));
  for (uintptr_t byte = address; byte < end; ++byte) Check(buffer, byte, is_store, thread);
  if (buffer.role != Role::kShared && bytes > 0) Count(address, end, is_store, thread);
  return reinterpret_cast<void*>(address);
}

int64_t AccessChecker::FindBuffer(uintptr_t address) const {
  for (int64_t i = 0; i < std::ssize(buffers_); ++i) {
    if (buffers_[i].begin <= address && address < buffers_[i].end) return i;
  }
  return -1;
}

void AccessChecker::Check(const Buffer& buffer, uintptr_t byte, bool is_store, int16_t thread) {
  Shadow& shadow = ShadowOf(byte);
  if (buffer.role == Role::kShared) {  // Every block has its own shared memory.
    if (shadow.write_tile != tile_) shadow.write_tile = -1;
    if (shadow.read_tile != tile_) shadow.read_tile = -1;
  }
  if (shadow.read_tile < 0) shadow.read_by_tiles = shadow.read_by_threads = false;
  if (!is_store && shadow.write_tile < 0 && !buffer.is_initialized) {
    Fail(AccessError::kUninitialized, absl::StrCat(At(thread), " reads byte ", byte - buffer.begin, " of ",
                                                   buffer.Name(), ", which no thread has written"));
  }
  CheckRace(shadow, is_store, thread);
  if (is_store) {
    shadow.write_tile = tile_;
    shadow.write_part = part_;
    shadow.write_thread = thread;
    return;
  }
  const bool same_tile_read = shadow.read_tile == tile_;
  shadow.read_by_tiles = shadow.read_by_tiles || (shadow.read_tile >= 0 && !same_tile_read);
  const bool same_part = same_tile_read && shadow.read_part == part_;
  shadow.read_by_threads = same_part && (shadow.read_by_threads || shadow.read_thread != thread);
  shadow.read_tile = tile_;
  shadow.read_part = part_;
  shadow.read_thread = thread;
}

void AccessChecker::CheckRace(const Shadow& shadow, bool is_store, int16_t thread) {
  const bool unordered_write =
      shadow.write_tile >= 0 &&
      (shadow.write_tile != tile_ || (shadow.write_part == part_ && shadow.write_thread != thread));
  const bool unordered_read = shadow.read_tile >= 0 &&
                              (shadow.read_by_tiles || shadow.read_tile != tile_ ||
                               (shadow.read_part == part_ && (shadow.read_thread != thread || shadow.read_by_threads)));
  if (!unordered_write && !(is_store && unordered_read)) return;
  Fail(AccessError::kRace,
       absl::StrCat("found a race: ", At(thread), is_store ? " writes" : " reads", " in part ", part_, " what block ",
                    unordered_write ? shadow.write_tile : shadow.read_tile, ", thread ",
                    unordered_write ? shadow.write_thread : shadow.read_thread, unordered_write ? " writes" : " reads",
                    " in part ", unordered_write ? shadow.write_part : shadow.read_part,
                    ", expected a barrier between them"));
}

void AccessChecker::CheckResults() {
  for (const Buffer& buffer : buffers_) {
    if (buffer.role != Role::kResult || buffer.is_initialized) continue;
    for (uintptr_t byte = buffer.begin; byte < buffer.end && report_.error == AccessError::kNone; ++byte) {
      if (ShadowOf(byte).write_tile >= 0) continue;
      Fail(AccessError::kUnwritten,
           absl::StrCat("byte ", byte - buffer.begin, " of ", buffer.Name(), " is not written, expected all of its ",
                        buffer.end - buffer.begin, " bytes"));
    }
  }
}

void AccessChecker::Count(uintptr_t begin, uintptr_t end, bool is_store, int64_t thread) {
  // User-space addresses have 47 bits, so the number of a warp fits above the number of a sector.
  constexpr int kSectorBits = 48;
  const uint64_t warp = static_cast<uint64_t>(thread / kWarp) << kSectorBits;
  Sectors& sectors = is_store ? stored_ : loaded_;
  for (uintptr_t sector = begin / kSectorBytes; sector <= (end - 1) / kSectorBytes; ++sector) {
    if ((warp | sector) == sectors.last) continue;
    sectors.last = warp | sector;
    sectors.all.insert(sectors.last);
  }
}

void AccessChecker::CountTraffic() {
  report_.loaded_bytes += kSectorBytes * std::ssize(loaded_.all);
  report_.stored_bytes += kSectorBytes * std::ssize(stored_.all);
  loaded_ = {};
  stored_ = {};
}

AccessChecker::Shadow& AccessChecker::ShadowOf(uintptr_t byte) {
  const uintptr_t number = byte / kPageBytes;
  Recent& recent = recent_[number % recent_.size()];
  if (recent.page == nullptr || recent.number != number) {
    std::unique_ptr<Page>& page = pages_[number];
    if (page == nullptr) page = std::make_unique<Page>();
    recent = {number, page.get()};
  }
  return (*recent.page)[byte % kPageBytes];
}

void AccessChecker::Fail(AccessError error, const std::string& message) {
  if (report_.error != AccessError::kNone) return;
  report_.error = error;
  report_.message = absl::StrCat("kernel ", report_.kernel, ": ", message);
}

std::string AccessChecker::At(int64_t thread) const { return absl::StrCat("block ", tile_, ", thread ", thread); }

std::string AccessChecker::Buffer::Name() const {
  switch (role) {
    case Role::kOperand:
      return absl::StrCat("operand ", number);
    case Role::kResult:
      return absl::StrCat("result ", number);
    case Role::kScratch:
      return "scratch memory";
    case Role::kShared:
      return "shared memory";
  }
  return "";
}

}  // namespace xlad::runtime
