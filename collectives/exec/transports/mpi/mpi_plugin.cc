// The transport plugins "openmpi" and "mpich", which differ only in the library that they are built with. They use
// nonblocking point-to-point messages of MPI (mpi-forum.org, MPI 3.1, chapter 3). The tag of a message contains both
// devices, the stream and the receiver's generation.
//
// MPI can be initialized only once. The first engine of the process initializes it, and it is finalized when the
// process exits. Only MPI's C functions are used.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collectives/exec/transports/plugin/xlad_transport.h"

struct xlad_transport_request {
  std::vector<MPI_Request> parts;
  xlad_transport_peer* peer = nullptr;
  bool receives = false;
};

struct xlad_transport_peer {
  int32_t device = 0;
  int rank = 0;
  int generation = 0;
  std::set<xlad_transport_request*> requests;
};

struct Address {
  int32_t rank = 0;
  int32_t generation = 0;  // The number of earlier engines of this device in this process.
  char boot_id[40] = {};   // Different on any two machines. Empty if the kernel's boot id cannot be read.
  char host[128] = {};     // The host name, which may be different in two containers of a machine.
};

struct xlad_transport_engine {
  int32_t device = 0;
  bool any_network = false;
  Address address;
};

namespace {

// MPI's counts have the type int, so larger messages are sent in parts.
constexpr size_t kPartBytes = size_t{1} << 30;
// Tags have at least 27 bits in both libraries. They contain the two devices, the stream and the receiver's generation.
// The generation keeps messages to an earlier engine, which had an error, from reaching a later one.
constexpr int kDeviceBits = 10, kGenerationBits = 6;

// The engines of the process share MPI. Only one thread may call MPI at a time.
struct Mpi {
  std::mutex mutex;
  MPI_Comm communicator = MPI_COMM_NULL;
  std::vector<bool> is_here;                   // By rank: whether the launcher has started it on this machine.
  std::map<int32_t, int32_t> engines;          // By device: the number of engines so far.
  std::set<std::pair<int32_t, int32_t>> open;  // The open engines: their devices, and their generations in tags.
  bool abandoned = false;                      // True if operations are unfinished. Finalizing could then wait forever.
};

Mpi& TheMpi() {
  static auto* const mpi = new Mpi();
  return *mpi;
}

int Fail(int code, const std::string& text, xlad_transport_error* error) {
  std::snprintf(error->text, sizeof error->text, "%s", text.c_str());
  return code;
}

int FailMpi(const char* what, int result, xlad_transport_error* error) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  return Fail(XLAD_TRANSPORT_PEER_LOST, std::string(what) + ": " + text, error);
}

int64_t NowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int32_t InTag(int32_t generation) { return generation % (1 << kGenerationBits); }

int Tag(int32_t from, int32_t to, int32_t stream, int32_t generation) {
  const int devices = ((from << kDeviceBits) | to) * 2 + stream;
  return InTag(generation) << (2 * kDeviceBits + 1) | devices;
}

int LargestTag() { return (1 << (2 * kDeviceBits + 1 + kGenerationBits)) - 1; }

// Called at exit, or before a process ends without calling the functions of std::atexit.
void Finalize() {
  Mpi& mpi = TheMpi();
  const std::lock_guard<std::mutex> lock(mpi.mutex);
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && !mpi.abandoned) MPI_Finalize();
}

// Two virtual machines that were cloned while they ran have the same boot id, and may have the same host name, but the
// launcher knows them as two machines. It knows the containers of a machine that it has started as one.
int FindRanksOfThisMachine(MPI_Comm communicator, std::vector<bool>* is_here, xlad_transport_error* error) {
  MPI_Comm here = MPI_COMM_NULL;
  int result = MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
  if (result != MPI_SUCCESS) return FailMpi("MPI_Comm_split_type", result, error);
  MPI_Group all = MPI_GROUP_NULL, ours = MPI_GROUP_NULL;
  MPI_Comm_group(communicator, &all);
  MPI_Comm_group(here, &ours);
  int ranks = 0, count = 0;
  MPI_Group_size(all, &ranks);
  MPI_Group_size(ours, &count);
  std::vector<int> local(count), global(count, MPI_UNDEFINED);
  std::iota(local.begin(), local.end(), 0);
  result = MPI_Group_translate_ranks(ours, count, local.data(), all, global.data());
  is_here->assign(ranks, false);
  for (const int rank : global) {
    if (rank >= 0 && rank < ranks) (*is_here)[rank] = true;
  }
  MPI_Group_free(&all);
  MPI_Group_free(&ours);
  MPI_Comm_free(&here);
  return result == MPI_SUCCESS ? XLAD_TRANSPORT_OK : FailMpi("MPI_Group_translate_ranks", result, error);
}

int Initialize(Mpi* mpi, xlad_transport_error* error) {
  if (mpi->communicator != MPI_COMM_NULL) return XLAD_TRANSPORT_OK;
  int provided = MPI_THREAD_SINGLE;
  int result = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (result != MPI_SUCCESS) return FailMpi("MPI_Init_thread", result, error);
  std::atexit(Finalize);
  if (provided < MPI_THREAD_SERIALIZED) {
    return Fail(XLAD_TRANSPORT_UNSUPPORTED,
                "MPI_Init_thread: the library was built without threads, expected MPI_THREAD_SERIALIZED", error);
  }
  int* largest = nullptr;
  int has_largest = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest, &has_largest);
  if (has_largest != 0 && *largest < LargestTag()) {
    return Fail(XLAD_TRANSPORT_UNSUPPORTED, "MPI_TAG_UB: found fewer than 2^27 tags, expected 2^27 or more", error);
  }
  MPI_Comm communicator = MPI_COMM_NULL;
  result = MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
  if (result != MPI_SUCCESS) return FailMpi("MPI_Comm_dup", result, error);
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  const int code = FindRanksOfThisMachine(communicator, &mpi->is_here, error);
  if (code == XLAD_TRANSPORT_OK) mpi->communicator = communicator;  // Only then may an engine be opened.
  return code;
}

void SetMachine(Address* address) {
  gethostname(address->host, sizeof address->host - 1);
  std::FILE* const file = std::fopen("/proc/sys/kernel/random/boot_id", "r");
  if (file == nullptr) return;
  if (std::fscanf(file, "%39s", address->boot_id) != 1) address->boot_id[0] = 0;
  std::fclose(file);
}

bool OnOneMachine(const Address& a, const Address& b) {
  return TheMpi().is_here[b.rank] && a.boot_id[0] != 0 && std::strcmp(a.boot_id, b.boot_id) == 0 &&
         std::strcmp(a.host, b.host) == 0;
}

int Open(const xlad_transport_options* options, xlad_transport_engine** engine, xlad_transport_error* error) {
  if (options->device >= 1 << kDeviceBits) {
    return Fail(XLAD_TRANSPORT_UNSUPPORTED,
                "found a device above 1023, expected 0 to 1023, because tags have 10 bits for a device", error);
  }
  Mpi& mpi = TheMpi();
  const std::lock_guard<std::mutex> lock(mpi.mutex);
  if (const int code = Initialize(&mpi, error); code != XLAD_TRANSPORT_OK) return code;
  const int32_t generation = mpi.engines[options->device]++;
  // The messages to two engines with the same tags would be mixed up.
  if (!mpi.open.insert({options->device, InTag(generation)}).second) {
    return Fail(
        XLAD_TRANSPORT_UNSUPPORTED,
        "found an open engine of this device from 64 engines ago, expected it to be closed, because tags have 6 "
        "bits for the engines of a device",
        error);
  }
  auto* const made = new xlad_transport_engine();
  made->device = options->device;
  made->any_network = options->any_network != 0;
  SetMachine(&made->address);
  MPI_Comm_rank(mpi.communicator, &made->address.rank);
  made->address.generation = generation;
  *engine = made;
  return XLAD_TRANSPORT_OK;
}

void Close(xlad_transport_engine* engine) {
  Mpi& mpi = TheMpi();
  const std::lock_guard<std::mutex> lock(mpi.mutex);
  mpi.open.erase({engine->device, InTag(engine->address.generation)});
  delete engine;
}

int GetAddress(xlad_transport_engine* engine, const void** data, size_t* bytes, xlad_transport_error*) {
  *data = &engine->address;
  *bytes = sizeof engine->address;
  return XLAD_TRANSPORT_OK;
}

int Connect(xlad_transport_engine* engine, const xlad_transport_target* target, xlad_transport_peer** peer,
            xlad_transport_error* error) {
  Address found;
  int ranks = 0;
  Mpi& mpi = TheMpi();
  const std::lock_guard<std::mutex> lock(mpi.mutex);
  MPI_Comm_size(mpi.communicator, &ranks);
  if (target->bytes == sizeof found) std::memcpy(&found, target->address, sizeof found);
  if (target->bytes != sizeof found || found.rank < 0 || found.rank >= ranks || found.generation < 0) {
    return Fail(XLAD_TRANSPORT_FAILED,
                "found an address that is malformed or of another launch, expected that of a process of this mpirun",
                error);
  }
  found.boot_id[sizeof found.boot_id - 1] = found.host[sizeof found.host - 1] = 0;
  if (!engine->any_network && !OnOneMachine(engine->address, found)) {
    return Fail(XLAD_TRANSPORT_UNSUPPORTED,
                "device " + std::to_string(target->device) + " is on host " + found.host + ", and this process is on " +
                    (std::strcmp(found.host, engine->address.host) == 0 ? "another machine with the same name"
                                                                        : engine->address.host) +
                    "; MPI's traffic between hosts is neither encrypted nor authenticated: allow it with "
                    "--insecure-network, or use --transport tcp, which encrypts",
                error);
  }
  *peer = new xlad_transport_peer{target->device, found.rank, found.generation, {}};
  return XLAD_TRANSPORT_OK;
}

// Sets `ended` to whether all parts have ended, and `received` to the sum of their sizes.
int TestParts(xlad_transport_request* request, bool* ended, size_t* received) {
  int flag = 0;
  std::vector<MPI_Status> statuses(request->parts.size());
  const int result =
      MPI_Testall(static_cast<int>(request->parts.size()), request->parts.data(), &flag, statuses.data());
  *ended = flag != 0;
  if (result != MPI_SUCCESS || flag == 0) return result;
  *received = 0;
  for (const MPI_Status& status : statuses) {
    int bytes = 0;
    if (request->receives) MPI_Get_count(&status, MPI_BYTE, &bytes);
    *received += bytes;
  }
  return result;
}

// MPI keeps operations that do not end in time, and their memory (XLAD_TRANSPORT_KEEPS_MEMORY).
void Disconnect(xlad_transport_engine*, xlad_transport_peer* peer, int32_t flush_ms) {
  Mpi& mpi = TheMpi();
  const std::lock_guard<std::mutex> lock(mpi.mutex);
  const int64_t end_ms = NowMs() + flush_ms;
  for (xlad_transport_request* request : peer->requests) {
    bool ended = false;
    size_t received = 0;
    int result = TestParts(request, &ended, &received);
    while (!request->receives && !ended && result == MPI_SUCCESS && NowMs() < end_ms) {
      result = TestParts(request, &ended, &received);
    }
    for (MPI_Request& part : request->parts) {
      if (part == MPI_REQUEST_NULL) continue;
      if (request->receives) {
        MPI_Cancel(&part);
      } else {
        mpi.abandoned = true;
      }
      MPI_Request_free(&part);
    }
    delete request;
  }
  delete peer;
}

int Post(xlad_transport_engine* engine, const xlad_transport_message* message, xlad_transport_request** request,
         xlad_transport_error* error) {
  const auto [peer, stream, data, to, bytes] = *message;
  Mpi& mpi = TheMpi();
  const std::lock_guard<std::mutex> lock(mpi.mutex);
  auto* const made = new xlad_transport_request{{}, peer, false};
  peer->requests.insert(made);
  const int tag = Tag(engine->device, peer->device, stream, peer->generation);
  size_t at = 0;
  do {
    const size_t part = std::min(bytes - at, kPartBytes);
    const int result = MPI_Isend(static_cast<const char*>(data) + at, static_cast<int>(part), MPI_BYTE, peer->rank, tag,
                                 mpi.communicator, &made->parts.emplace_back(MPI_REQUEST_NULL));
    if (result != MPI_SUCCESS) return FailMpi("MPI_Isend", result, error);
    at += part;
  } while (at < bytes);
  *request = made;
  return XLAD_TRANSPORT_PENDING;
}

int PostReceive(xlad_transport_engine* engine, const xlad_transport_message* message, xlad_transport_request** request,
                size_t*, xlad_transport_error* error) {
  const auto [peer, stream, unused, data, bytes] = *message;
  Mpi& mpi = TheMpi();
  const std::lock_guard<std::mutex> lock(mpi.mutex);
  auto* const made = new xlad_transport_request{{}, peer, true};
  peer->requests.insert(made);
  const int tag = Tag(peer->device, engine->device, stream, engine->address.generation);
  size_t at = 0;
  do {
    const size_t part = std::min(bytes - at, kPartBytes);
    const int result = MPI_Irecv(static_cast<char*>(data) + at, static_cast<int>(part), MPI_BYTE, peer->rank, tag,
                                 mpi.communicator, &made->parts.emplace_back(MPI_REQUEST_NULL));
    if (result != MPI_SUCCESS) return FailMpi("MPI_Irecv", result, error);
    at += part;
  } while (at < bytes);
  *request = made;
  return XLAD_TRANSPORT_PENDING;
}

int Test(xlad_transport_engine*, xlad_transport_request* request, size_t* received, xlad_transport_error* error) {
  Mpi& mpi = TheMpi();
  const std::lock_guard<std::mutex> lock(mpi.mutex);
  bool ended = false;
  size_t bytes = 0;
  const int result = TestParts(request, &ended, &bytes);
  if (result != MPI_SUCCESS) return FailMpi("MPI_Testall", result, error);
  if (!ended) return XLAD_TRANSPORT_PENDING;
  if (received != nullptr) *received = bytes;
  request->peer->requests.erase(request);
  delete request;
  return XLAD_TRANSPORT_OK;
}

// Every call of MPI makes progress. This call probes for a tag that no message has.
int Progress(xlad_transport_engine*) {
  Mpi& mpi = TheMpi();
  const std::lock_guard<std::mutex> lock(mpi.mutex);
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, LargestTag(), mpi.communicator, &found, MPI_STATUS_IGNORE);
  return 0;
}

const char* Library() {
  static const std::string text = [] {
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(version, &length);
    const std::string all(version);
    return all.substr(0, all.find_first_of(",\n"));
  }();
  return text.c_str();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const xlad_transport_api* xlad_transport(void) {
  static const xlad_transport_api api = {XLAD_TRANSPORT_ABI,
                                         sizeof(xlad_transport_api),
                                         XLAD_TRANSPORT_KEEPS_MEMORY,
                                         "mpi",
                                         Library(),
                                         Open,
                                         Close,
                                         GetAddress,
                                         Connect,
                                         Disconnect,
                                         Post,
                                         PostReceive,
                                         Test,
                                         Progress,
                                         /*register_memory=*/nullptr,
                                         /*unregister_memory=*/nullptr,
                                         Finalize};
  return &api;
}
