#include "collectives/exec/transports/shared_memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file_system.h"
#include "base/random.h"
#include "base/rounding.h"
#include "collectives/exec/reduce.h"

namespace xlad::collectives {
namespace {

constexpr uint64_t kMagic = 0x786c61642d73686dULL;  // The bytes "mhs-dalx" in memory.
constexpr size_t kMaxName = 64;
constexpr size_t kMaxRingBytes = size_t{1} << 30;

struct SegmentHead {
  uint64_t magic = kMagic;
  uint64_t nonce = 0;
};

// A part of a ring of `ring_bytes` bytes. It begins after the first `position` bytes that were ever written to the
// ring, and has `bytes` bytes.
struct RingPart {
  uint64_t position = 0;
  size_t bytes = 0;
  size_t ring_bytes = 0;
};

// Calls `copy` for each of the one or two pieces of a part, with its offset in the ring, its offset in the part, and
// its size. A part that reaches the end of the ring continues at its beginning.
template <typename Copy>
void ForEachPiece(const RingPart& part, const Copy& copy) {
  const size_t at = part.position % part.ring_bytes;
  const size_t first = std::min(part.bytes, part.ring_bytes - at);
  copy(at, 0, first);
  if (part.bytes > first) copy(0, first, part.bytes - first);
}

absl::Status SystemError(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

std::string MachineName() {
  const absl::StatusOr<std::string> boot = RealFileSystem().Read("/proc/sys/kernel/random/boot_id");
  char space[64] = {};
  const ssize_t length = readlink("/proc/self/ns/pid", space, sizeof space - 1);
  if (!boot.ok() || length <= 0) return "";
  return absl::StrCat(absl::StripAsciiWhitespace(*boot), "/", space);
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Create(size_t bytes) {
  std::unique_ptr<SharedSegment> segment(new SharedSegment());
  segment->file_ = memfd_create("xlad", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (segment->file_ < 0) return SystemError("memfd_create");
  if (ftruncate(segment->file_, static_cast<off_t>(bytes + 64)) != 0) return SystemError("ftruncate");
  // The segment is sealed, so that processes that map it can rely on its size.
  if (fcntl(segment->file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return SystemError("seal");
  XLAD_RETURN_IF_ERROR(segment->Map(bytes + 64));
  SegmentHead head;
  head.nonce = SystemRandom()->Next();
  std::memcpy(segment->address_, &head, sizeof head);
  segment->name_ = absl::StrCat(getpid(), "/", segment->file_, "/", head.nonce);
  return segment;
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Open(const std::string& name, size_t bytes) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  int pid = 0, file = 0;
  uint64_t nonce = 0;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &pid) || !absl::SimpleAtoi(parts[1], &file) ||
      !absl::SimpleAtoi(parts[2], &nonce) || pid < 1 || file < 0) {
    return absl::InvalidArgumentError(absl::StrCat("found segment name \"", name, "\", expected PID/FD/NONCE"));
  }
  std::unique_ptr<SharedSegment> segment(new SharedSegment());
  segment->file_ = open(absl::StrCat("/proc/", pid, "/fd/", file).c_str(), O_RDWR | O_CLOEXEC);
  if (segment->file_ < 0) return SystemError("cannot open the peer's segment");
  struct stat info{};
  const int seals = fcntl(segment->file_, F_GET_SEALS);
  if (fstat(segment->file_, &info) != 0 || !S_ISREG(info.st_mode) || seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      (bytes != 0 && static_cast<size_t>(info.st_size) != bytes + 64) || info.st_size < 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("segment ", name, ": found a file without seals or of another size, expected a segment"));
  }
  XLAD_RETURN_IF_ERROR(segment->Map(info.st_size));
  SegmentHead head;
  std::memcpy(&head, segment->address_, sizeof head);
  if (head.magic != kMagic || head.nonce != nonce) {
    return absl::NotFoundError(absl::StrCat("segment ", name, ": found another segment, expected that of the peer"));
  }
  segment->name_ = name;
  close(std::exchange(segment->file_, -1));
  return segment;
}

absl::Status SharedSegment::Map(size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (address == MAP_FAILED) return SystemError("mmap");
  address_ = address;
  mapped_ = bytes;
  return absl::OkStatus();
}

SharedSegment::~SharedSegment() {
  if (address_ != nullptr) munmap(address_, mapped_);
  if (file_ >= 0) close(file_);
}

absl::StatusOr<std::unique_ptr<SharedWaiters>> SharedWaiters::Create(int devices) {
  auto waiters = std::make_unique<SharedWaiters>();
  XLAD_ASSIGN_OR_RETURN(waiters->segment_, SharedSegment::Create(static_cast<size_t>(devices) * kLine));
  waiters->devices_ = devices;
  for (int i = 0; i < devices; ++i) new (waiters->words(i)) WaiterWords();
  return waiters;
}

// Positions count all bytes ever written or read. Only the writer changes `written`, and only the reader changes
// `read`.
struct SharedPipe::Ring {
  alignas(64) std::atomic<uint64_t> written = 0;
  alignas(64) std::atomic<uint64_t> read = 0;
  alignas(64) std::atomic<uint32_t> room_wanted = 0;
};

// The locations of the waiting words of the dialing side and of the accepting side.
struct SharedPipe::Head {
  struct Side {
    char waiters[kMaxName];
    int32_t index;
    int32_t devices;
  };
  Side sides[2];
  uint64_t ring_bytes;
};

size_t SharedPipe::SegmentBytes(size_t ring_bytes) { return sizeof(Head) + 64 + 2 * sizeof(Ring) + 2 * ring_bytes; }

// Side 0 writes to the first ring and reads the second.
void SharedPipe::MapRings(size_t ring_bytes, int side) {
  ring_bytes_ = ring_bytes;
  std::byte* at = segment_->data() + RoundUp(sizeof(Head), 64);
  Ring* rings[2] = {reinterpret_cast<Ring*>(at), reinterpret_cast<Ring*>(at + sizeof(Ring))};
  std::byte* bytes[2] = {at + 2 * sizeof(Ring), at + 2 * sizeof(Ring) + ring_bytes};
  out_ = rings[side];
  in_ = rings[1 - side];
  out_bytes_ = bytes[side];
  in_bytes_ = bytes[1 - side];
}

absl::Status SharedPipe::MapPeer(int side) {
  Head head;
  std::memcpy(&head, segment_->data(), sizeof head);
  const Head::Side& peer = head.sides[1 - side];
  const std::string name(peer.waiters, strnlen(peer.waiters, kMaxName));
  if (peer.index < 0 || peer.devices <= peer.index || peer.devices > (1 << 20)) {
    return absl::InvalidArgumentError("the index of the peer's waiting words is outside its segment");
  }
  XLAD_ASSIGN_OR_RETURN(peer_waiters_,
                        SharedSegment::Open(name, static_cast<size_t>(peer.devices) * SharedWaiters::kLine));
  peer_words_ = reinterpret_cast<WaiterWords*>(peer_waiters_->data() + peer.index * SharedWaiters::kLine);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SharedPipe>> SharedPipe::Create(const SharedWaiters& waiters, int index,
                                                               size_t ring_bytes) {
  std::unique_ptr<SharedPipe> pipe(new SharedPipe());
  XLAD_ASSIGN_OR_RETURN(pipe->segment_, SharedSegment::Create(SegmentBytes(ring_bytes)));
  Head head{};
  head.ring_bytes = ring_bytes;
  std::memcpy(head.sides[0].waiters, waiters.name().data(), std::min(waiters.name().size(), kMaxName));
  head.sides[0].index = index;
  head.sides[0].devices = waiters.devices();
  std::memcpy(pipe->segment_->data(), &head, sizeof head);
  pipe->MapRings(ring_bytes, 0);
  new (pipe->out_) Ring();
  new (pipe->in_) Ring();
  return pipe;
}

absl::StatusOr<std::unique_ptr<SharedPipe>> SharedPipe::Open(const std::string& name, const SharedWaiters& waiters,
                                                             int index) {
  std::unique_ptr<SharedPipe> pipe(new SharedPipe());
  Head head;
  XLAD_ASSIGN_OR_RETURN(auto first, SharedSegment::Open(name, 0));
  if (first->bytes() < sizeof head) return absl::InvalidArgumentError("the peer's segment is too small");
  std::memcpy(&head, first->data(), sizeof head);
  if (head.ring_bytes == 0 || head.ring_bytes > kMaxRingBytes || first->bytes() != SegmentBytes(head.ring_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("found rings of ", head.ring_bytes,
                                                   " bytes in the peer's segment of ", first->bytes(),
                                                   " bytes, expected 1 to ", kMaxRingBytes,
                                                   " bytes that fill the segment"));
  }
  pipe->segment_ = std::move(first);
  pipe->MapRings(head.ring_bytes, 1);
  XLAD_RETURN_IF_ERROR(pipe->MapPeer(1));
  auto* shared = reinterpret_cast<Head*>(pipe->segment_->data());
  std::memcpy(shared->sides[1].waiters, waiters.name().data(), std::min(waiters.name().size(), kMaxName));
  shared->sides[1].index = index;
  shared->sides[1].devices = waiters.devices();
  return pipe;
}

absl::Status SharedPipe::Connect() { return MapPeer(0); }

absl::StatusOr<size_t> SharedPipe::Room() const {
  const uint64_t used = out_->written.load(std::memory_order_relaxed) - out_->read.load();
  if (used > ring_bytes_) return absl::DataLossError("found a position outside the ring");
  return ring_bytes_ - static_cast<size_t>(used);
}

absl::StatusOr<size_t> SharedPipe::Readable() const {
  const uint64_t there = in_->written.load() - in_->read.load(std::memory_order_relaxed);
  if (there > ring_bytes_) return absl::DataLossError("found a position outside the ring");
  return there;
}

absl::StatusOr<size_t> SharedPipe::Write(absl::Span<const std::byte> bytes) {
  XLAD_ASSIGN_OR_RETURN(const size_t room, Room());
  const size_t n = std::min(room, bytes.size());
  if (n == 0) return n;
  const uint64_t written = out_->written.load(std::memory_order_relaxed);
  ForEachPiece({written, n, ring_bytes_}, [&](size_t at, size_t begin, size_t size) {
    CopyBytes(out_bytes_ + at, bytes.data() + begin, static_cast<int64_t>(size), StoreKind::kCached);
  });
  out_->written.store(written + n);
  return n;
}

void SharedPipe::WantRoom(bool wanted) { out_->room_wanted.store(wanted ? 1 : 0); }

absl::StatusOr<size_t> SharedPipe::Read(absl::Span<std::byte> bytes) {
  XLAD_ASSIGN_OR_RETURN(const size_t there, Readable());
  const size_t n = std::min(there, bytes.size());
  if (n == 0) return n;
  const uint64_t read = in_->read.load(std::memory_order_relaxed);
  ForEachPiece({read, n, ring_bytes_}, [&](size_t at, size_t begin, size_t size) {
    CopyBytes(bytes.data() + begin, in_bytes_ + at, static_cast<int64_t>(size), StoreKind::kCached);
  });
  in_->read.store(read + n);
  if (in_->room_wanted.load() != 0) NotifyPeer();
  return n;
}

}  // namespace xlad::collectives
