// An SQLite VFS over SimulatedDisk (sqlite.org/vfs.html). It does not have shared memory, so the write-ahead log needs
// the exclusive locking mode, which the job log uses.
#include <sqlite3.h>

#include <cstring>

#include "tests/simulation/simulated_disk.h"

namespace xlad::simulation {
namespace {

constexpr int kMaxPath = 512;
constexpr char kVfsName[] = "simulated-disk";

struct OpenFile {
  sqlite3_file base;  // Declared first, because SQLite uses only this part of the object.
  SimulatedDisk* disk;
  char path[kMaxPath + 1];
  int lock;
  bool delete_on_close;
};

OpenFile* Of(sqlite3_file* file) { return reinterpret_cast<OpenFile*>(file); }
SimulatedDisk* DiskOf(sqlite3_vfs* vfs) { return static_cast<SimulatedDisk*>(vfs->pAppData); }

int Close(sqlite3_file* file) {
  OpenFile* open = Of(file);
  open->disk->Unlock(open->path, open);
  if (open->delete_on_close) open->disk->Delete(open->path);
  return SQLITE_OK;
}
int Read(sqlite3_file* file, void* out, int size, sqlite3_int64 offset) {
  OpenFile* open = Of(file);
  if (!open->disk->Read(open->path, offset, size, static_cast<char*>(out))) return SQLITE_IOERR_READ;
  return offset + size > open->disk->Size(open->path) ? SQLITE_IOERR_SHORT_READ : SQLITE_OK;
}
int Write(sqlite3_file* file, const void* bytes, int size, sqlite3_int64 offset) {
  OpenFile* open = Of(file);
  if (open->disk->Write(open->path, offset, {static_cast<const char*>(bytes), static_cast<size_t>(size)})) {
    return SQLITE_OK;
  }
  return open->disk->is_full() ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}
int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  return Of(file)->disk->Truncate(Of(file)->path, size) ? SQLITE_OK : SQLITE_IOERR_TRUNCATE;
}
int Sync(sqlite3_file* file, int) { return Of(file)->disk->Sync(Of(file)->path) ? SQLITE_OK : SQLITE_IOERR_FSYNC; }
int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  *size = Of(file)->disk->Size(Of(file)->path);
  return SQLITE_OK;
}
int Lock(sqlite3_file* file, int level) {
  OpenFile* open = Of(file);
  if (level > SQLITE_LOCK_SHARED && !open->disk->Lock(open->path, open)) return SQLITE_BUSY;
  open->lock = level;
  return SQLITE_OK;
}
int Unlock(sqlite3_file* file, int level) {
  OpenFile* open = Of(file);
  if (level <= SQLITE_LOCK_SHARED) open->disk->Unlock(open->path, open);
  open->lock = level;
  return SQLITE_OK;
}
int CheckReservedLock(sqlite3_file* file, int* reserved) {
  *reserved = Of(file)->lock >= SQLITE_LOCK_RESERVED;
  return SQLITE_OK;
}
int FileControl(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
int SectorSize(sqlite3_file*) { return 512; }
int Characteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

const sqlite3_io_methods kMethods = {1,
                                     Close,
                                     Read,
                                     Write,
                                     Truncate,
                                     Sync,
                                     FileSize,
                                     Lock,
                                     Unlock,
                                     CheckReservedLock,
                                     FileControl,
                                     SectorSize,
                                     Characteristics,
                                     nullptr,
                                     nullptr,
                                     nullptr,
                                     nullptr,
                                     nullptr,
                                     nullptr};

int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  static int64_t serial = 0;
  const std::string path = name != nullptr ? name : "/temporary-" + std::to_string(++serial);
  OpenFile* open = Of(file);
  open->base.pMethods = nullptr;
  if (path.size() > kMaxPath) return SQLITE_CANTOPEN;
  if (!DiskOf(vfs)->Exists(path) && ((flags & SQLITE_OPEN_CREATE) == 0 || !DiskOf(vfs)->Create(path))) {
    return SQLITE_CANTOPEN;
  }
  open->base.pMethods = &kMethods;
  open->disk = DiskOf(vfs);
  std::strncpy(open->path, path.c_str(), kMaxPath);
  open->path[kMaxPath] = '\0';
  open->lock = SQLITE_LOCK_NONE;
  open->delete_on_close = (flags & SQLITE_OPEN_DELETEONCLOSE) != 0;
  if (out_flags != nullptr) *out_flags = flags;
  return SQLITE_OK;
}
int Delete(sqlite3_vfs* vfs, const char* path, int) {
  if (!DiskOf(vfs)->Exists(path)) return SQLITE_IOERR_DELETE_NOENT;
  return DiskOf(vfs)->Delete(path) ? SQLITE_OK : SQLITE_IOERR_DELETE;
}
int Access(sqlite3_vfs* vfs, const char* path, int, int* result) {
  *result = DiskOf(vfs)->Exists(path);
  return SQLITE_OK;
}
int FullPathname(sqlite3_vfs*, const char* path, int size, char* out) {
  sqlite3_snprintf(size, out, "%s", path);
  return SQLITE_OK;
}
// The same numbers in every run, so that a seed can be replayed.
int Randomness(sqlite3_vfs*, int size, char* out) {
  std::memset(out, 42, size);
  return size;
}
int Sleep(sqlite3_vfs*, int microseconds) { return microseconds; }
int CurrentTime(sqlite3_vfs*, double* days) {
  *days = 2460000.5;
  return SQLITE_OK;
}
int LastError(sqlite3_vfs*, int, char*) { return 0; }

}  // namespace

struct SqliteOnDisk::State {
  sqlite3_vfs vfs{};
  sqlite3_vfs* before = nullptr;
};

SqliteOnDisk::SqliteOnDisk(SimulatedDisk* disk) : state_(std::make_unique<State>()) {
  sqlite3_vfs& vfs = state_->vfs;
  vfs.iVersion = 1;
  vfs.szOsFile = sizeof(OpenFile);
  vfs.mxPathname = kMaxPath;
  vfs.zName = kVfsName;
  vfs.pAppData = disk;
  vfs.xOpen = Open;
  vfs.xDelete = Delete;
  vfs.xAccess = Access;
  vfs.xFullPathname = FullPathname;
  vfs.xRandomness = Randomness;
  vfs.xSleep = Sleep;
  vfs.xCurrentTime = CurrentTime;
  vfs.xGetLastError = LastError;
  state_->before = sqlite3_vfs_find(nullptr);
  sqlite3_vfs_register(&vfs, /*makeDflt=*/1);
}

SqliteOnDisk::~SqliteOnDisk() {
  sqlite3_vfs_unregister(&state_->vfs);
  sqlite3_vfs_register(state_->before, /*makeDflt=*/1);
}

}  // namespace xlad::simulation
