#include "service/blobs/blob_store.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "base/hash.h"
#include "base/log.h"
#include "storage/free_space.h"
#include "storage/uri.h"

namespace xlad::service {
namespace {

using storage::ObjectInfo;
using storage::RangeReader;

constexpr char kSums[] = ".sums";
constexpr char kTemporary[] = ".tmp";
constexpr char kDamaged[] = ".damaged";
constexpr size_t kMaxOpen = 64;

using Check = BlobStore::Check;
absl::Status NoCheck() { return absl::OkStatus(); }

// Reads the whole blob, and returns the first error of a read or of `check`.
absl::Status ReadAll(RangeReader& reader, const Check& check) {
  std::vector<std::byte> piece(std::min(storage::kReadBytes, reader.size()));
  for (int64_t at = 0; at < reader.size(); at += storage::kReadBytes) {
    XLAD_RETURN_IF_ERROR(check());
    const int64_t bytes = std::min(storage::kReadBytes, reader.size() - at);
    XLAD_RETURN_IF_ERROR(reader.Read(at, absl::MakeSpan(piece).first(bytes)));
  }
  return absl::OkStatus();
}

// Turns an error of the store's folder into FailedPrecondition if a caller could mistake it for an error of the
// request. Only the coordinator's operator can repair the folder.
absl::Status OfFolder(const absl::Status& status) {
  const bool is_like_refusal =
      absl::IsPermissionDenied(status) || absl::IsNotFound(status) || absl::IsInvalidArgument(status);
  return is_like_refusal ? absl::FailedPreconditionError(status.message()) : status;
}

}  // namespace

// The files of a store, and the readers that are open.
class BlobStore::Files : public std::enable_shared_from_this<Files> {
 public:
  Files(FileSystem& files, std::string folder, const BlobStore::Options& options)
      : files_(files), folder_(std::move(folder)), options_(options), opened_ns_(options.clock->NowNs()) {}

  FileSystem& files() const { return files_; }
  const std::string& folder() const { return folder_; }
  int64_t reserve_bytes() const { return options_.reserve_bytes; }
  std::string PathOf(const std::string& digest) const { return JoinPath(folder_, digest); }

  static absl::Status CheckName(const std::string& digest) {
    if (IsSha256Hex(digest)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("found blob name \"", digest.substr(0, 80), "\", expected 64 lower-case hex digits"));
  }

  absl::StatusOr<std::shared_ptr<RangeReader>> Open(const std::string& digest, const Check& check) {
    XLAD_ASSIGN_OR_RETURN(const Opened opened, Find(digest, check));
    return opened.reader;
  }
  absl::StatusOr<storage::BlockSums> SumsOf(const std::string& digest, const Check& check) {
    XLAD_ASSIGN_OR_RETURN(const Opened opened, Find(digest, check));
    return *opened.sums;
  }

  // Sets a blob aside if `status` says that it is damaged. An upload may have replaced the damaged file since the
  // reader opened it, so the present file is read first.
  void NoteError(const std::string& digest, const absl::Status& status) {
    if (!absl::IsDataLoss(status)) return;
    const std::lock_guard lock(ReplaceMutex(digest));
    if (!IsDamaged(digest)) return;
    LogError("a stored blob is damaged and is set aside; upload it again",
             {{"blob", digest}, {"error", std::string(status.message())}});
    files_.Rename(PathOf(digest), PathOf(digest) + kDamaged).IgnoreError();
    Forget(digest);
  }

  // Must be called after each change of the blob's files. Later readers then open the files again. Find does not keep a
  // reader that it opens during this call, because the reader may have opened the files before the change.
  void Forget(const std::string& digest) {
    const std::lock_guard lock(mutex_);
    open_.erase(digest);
    ++changes_;
  }

  // Removes the blob and its other files. The blob is removed first because checksums without a blob are harmless.
  absl::Status RemoveFiles(const std::string& digest) {
    absl::Status status;
    for (const char* suffix : {"", kSums, kDamaged}) {
      if (files_.Exists(PathOf(digest) + suffix)) status.Update(files_.Remove(PathOf(digest) + suffix));
      if (!status.ok()) break;
    }
    Forget(digest);
    return status;
  }

  // Makes the written blob the present one.
  absl::Status Publish(const ObjectInfo& info, storage::ObjectWriter* writer) {
    Touch(info.sha256);
    const std::lock_guard lock(ReplaceMutex(info.sha256));
    XLAD_RETURN_IF_ERROR(WriteSums(info));
    const absl::Status published = writer->Publish(PathOf(info.sha256));
    Forget(info.sha256);  // Also after an error: the file may have been renamed.
    return published;
  }

  std::mutex& ReplaceMutex(const std::string& digest) {
    return replace_mutexes_[std::hash<std::string>()(digest) % replace_mutexes_.size()];
  }

  absl::Status WriteSums(const ObjectInfo& info) {
    return files_.WriteAtomically(PathOf(info.sha256) + kSums, storage::SerializeBlockSums(info));
  }

  // Records that the blob is in use now.
  void Touch(const std::string& digest) {
    const std::lock_guard lock(use_mutex_);
    used_ns_[digest] = options_.clock->NowNs();
  }
  void ForgetUsesBefore(int64_t ns) {
    const std::lock_guard lock(use_mutex_);
    std::erase_if(used_ns_, [&](const auto& use) { return use.second < ns; });
  }
  void Hold(const std::vector<std::string>& digests) {
    const std::lock_guard lock(use_mutex_);
    held_.insert(digests.begin(), digests.end());
  }
  void Release(const std::vector<std::string>& digests) {
    const std::lock_guard lock(use_mutex_);
    for (const std::string& digest : digests) {
      held_.erase(held_.find(digest));
      used_ns_[digest] = options_.clock->NowNs();
    }
  }
  // use_mutex_ is held while files are removed. A concurrent Touch or Hold therefore either keeps the blob, or returns
  // only after the blob is gone.
  absl::StatusOr<bool> RemoveIfUnused(const std::string& digest, int64_t unused_since_ns) {
    const std::lock_guard lock(use_mutex_);
    const auto use = used_ns_.find(digest);
    const int64_t used_ns = use == used_ns_.end() ? opened_ns_ : use->second;
    if (held_.contains(digest) || used_ns >= unused_since_ns) return false;
    XLAD_RETURN_IF_ERROR(RemoveFiles(digest));
    return true;
  }

 private:
  class Reader final : public RangeReader {
   public:
    Reader(std::weak_ptr<Files> store, std::string digest, std::shared_ptr<RangeReader> reader)
        : store_(std::move(store)), digest_(std::move(digest)), reader_(std::move(reader)) {}
    int64_t size() const override { return reader_->size(); }
    absl::Status Read(int64_t offset, absl::Span<std::byte> out) override {
      const absl::Status status = reader_->Read(offset, out);
      const auto store = store_.lock();
      // A read past the end of the blob is an error of the caller and not damage.
      if (store != nullptr && offset >= 0 && offset + std::ssize(out) <= size()) store->NoteError(digest_, status);
      return status;
    }

   private:
    const std::weak_ptr<Files> store_;
    const std::string digest_;
    const std::shared_ptr<RangeReader> reader_;
  };

  struct Opened {
    std::shared_ptr<RangeReader> reader;
    std::shared_ptr<const storage::BlockSums> sums;
  };

  // Returns the blob's reader and checksums. Other threads may remove them from open_ at any time; the returned objects
  // stay valid.
  absl::StatusOr<Opened> Find(const std::string& digest, const Check& check) {
    XLAD_RETURN_IF_ERROR(CheckName(digest));
    int64_t changes = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto found = open_.find(digest);
      if (found != open_.end()) return found->second;
      changes = changes_;
    }
    absl::StatusOr<std::shared_ptr<RangeReader>> file = storage::OpenFileReader(files_, PathOf(digest));
    if (absl::IsNotFound(file.status())) return absl::NotFoundError(absl::StrCat("found no blob ", digest));
    if (!file.ok()) return file.status();
    absl::StatusOr<Opened> opened = Verified(digest, *std::move(file), check);
    if (!opened.ok()) {
      NoteError(digest, opened.status());
      return opened.status();
    }
    opened->reader = std::make_shared<Reader>(shared_from_this(), digest, std::move(opened->reader));
    const std::lock_guard lock(mutex_);
    if (changes != changes_) return opened;
    if (open_.size() >= kMaxOpen) open_.clear();
    open_[digest] = *opened;
    return opened;
  }

  // Reads the whole file, even if the client has left: otherwise the damaged blob would be found again by each reader.
  // Returns false if there is no file.
  bool IsDamaged(const std::string& digest) {
    absl::StatusOr<std::shared_ptr<RangeReader>> file = storage::OpenFileReader(files_, PathOf(digest));
    if (!file.ok()) return false;
    const absl::StatusOr<Opened> opened = Verified(digest, *std::move(file), NoCheck);
    return absl::IsDataLoss(opened.ok() ? ReadAll(*opened->reader, NoCheck) : opened.status());
  }

  absl::StatusOr<Opened> Verified(const std::string& digest, std::shared_ptr<RangeReader> file, const Check& check) {
    XLAD_ASSIGN_OR_RETURN(const ObjectInfo info, ReadSums(digest, *file, check));
    Opened opened;
    XLAD_ASSIGN_OR_RETURN(opened.reader,
                          storage::VerifyBlocks(std::move(file), info.sums, absl::StrCat("blob ", digest)));
    opened.sums = std::make_shared<const storage::BlockSums>(info.sums);
    return opened;
  }

  // Returns the checksums of a blob. If they are missing or damaged, they are computed from the contents. DataLoss if
  // the contents do not have the digest.
  absl::StatusOr<ObjectInfo> ReadSums(const std::string& digest, RangeReader& file, const Check& check) {
    const absl::StatusOr<std::string> text = files_.Read(PathOf(digest) + kSums);
    if (text.ok()) {
      absl::StatusOr<ObjectInfo> info = storage::ParseBlockSums(*text);
      if (info.ok() && info->sha256 == digest) return info;
    }
    storage::ObjectHasher hasher;
    for (int64_t at = 0; at < file.size();) {
      XLAD_RETURN_IF_ERROR(check());
      XLAD_ASSIGN_OR_RETURN(const std::string piece,
                            storage::ReadString(file, at, std::min(storage::kReadBytes, file.size() - at)));
      hasher.Add(piece);
      at += std::ssize(piece);
    }
    ObjectInfo info = hasher.Finish();
    if (info.sha256 != digest) {
      return absl::DataLossError(
          absl::StrCat("blob ", digest, " is damaged: its ", file.size(), " bytes have SHA-256 ", info.sha256));
    }
    WriteSums(info).IgnoreError();  // If this fails, the next reader computes the checksums again.
    return info;
  }

  FileSystem& files_;
  const std::string folder_;
  const BlobStore::Options options_;
  const int64_t opened_ns_;
  std::mutex mutex_;
  std::map<std::string, Opened> open_;
  int64_t changes_ = 0;  // The number of calls of Forget.

  // The digest of a blob selects the mutex that is locked while the blob is replaced or set aside. This may take as
  // long as reading the blob, so there are many mutexes: different blobs seldom share one.
  std::array<std::mutex, 64> replace_mutexes_;
  std::mutex use_mutex_;  // Must be locked before mutex_ if both are needed.
  std::map<std::string, int64_t> used_ns_;
  std::multiset<std::string> held_;
};

class BlobStore::FileUpload final : public BlobStore::Upload {
 public:
  FileUpload(std::shared_ptr<Files> store, std::string digest, std::unique_ptr<storage::ObjectWriter> writer)
      : store_(std::move(store)),
        digest_(std::move(digest)),
        writer_(std::move(writer)),
        space_(store_->files(), store_->folder(), store_->reserve_bytes()) {}

  absl::Status Append(absl::string_view bytes) override {
    XLAD_RETURN_IF_ERROR(space_.Check(writer_->bytes()));
    return OfFolder(writer_->Append(bytes));
  }

  absl::Status Finish() override {
    const absl::StatusOr<ObjectInfo> info = writer_->Finish();
    if (!info.ok()) return OfFolder(info.status());
    if (info->sha256 != digest_) {
      return absl::DataLossError(
          absl::StrCat("found ", info->sums.bytes, " bytes whose SHA-256 is ", info->sha256, ", expected ", digest_));
    }
    XLAD_RETURN_IF_ERROR(OfFolder(store_->Publish(*info, writer_.get())));
    const std::string damaged = store_->PathOf(digest_) + kDamaged;
    if (store_->files().Exists(damaged)) store_->files().Remove(damaged).IgnoreError();
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<Files> store_;
  const std::string digest_;
  const std::unique_ptr<storage::ObjectWriter> writer_;
  storage::FreeSpace space_;
};

BlobStore::BlobStore(std::shared_ptr<Files> store) : store_(std::move(store)) {}

absl::StatusOr<BlobStore> BlobStore::Open(FileSystem& files, const std::string& folder, const Options& options) {
  XLAD_RETURN_IF_ERROR(files.MakeDirectories(folder));
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder));
  for (const std::string& name : names) {
    if (absl::EndsWith(name, kTemporary)) XLAD_RETURN_IF_ERROR(files.Remove(JoinPath(folder, name)));
  }
  return BlobStore(std::make_shared<Files>(files, folder, options));
}

bool BlobStore::Has(const std::string& digest) const {
  return IsSha256Hex(digest) && store_->files().Exists(store_->PathOf(digest));
}

absl::StatusOr<bool> BlobStore::Verify(const std::string& digest, const Check& check) const {
  if (IsSha256Hex(digest)) store_->Touch(digest);
  absl::Status checked = absl::OkStatus();
  const Check keep_result = [&] { return checked = check(); };
  const absl::StatusOr<std::shared_ptr<RangeReader>> reader = store_->Open(digest, keep_result);
  const absl::Status read = reader.ok() ? ReadAll(**reader, keep_result) : reader.status();
  if (!checked.ok()) return checked;
  return read.ok();
}

bool BlobStore::Verify(const std::string& digest) const { return *Verify(digest, NoCheck); }

absl::StatusOr<std::shared_ptr<RangeReader>> BlobStore::OpenBlob(const std::string& digest) const {
  return OpenBlob(digest, NoCheck);
}

absl::StatusOr<std::shared_ptr<RangeReader>> BlobStore::OpenBlob(const std::string& digest, const Check& check) const {
  return store_->Open(digest, check);
}

absl::StatusOr<storage::BlockSums> BlobStore::SumsOf(const std::string& digest, const Check& check) const {
  return store_->SumsOf(digest, check);
}

absl::StatusOr<std::string> BlobStore::Put(const std::string& bytes) {
  const std::string digest = Sha256Hex(bytes);
  if (Has(digest) && Verify(digest)) return digest;
  XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<Upload> upload, BeginUpload(digest));
  XLAD_RETURN_IF_ERROR(upload->Append(bytes));
  XLAD_RETURN_IF_ERROR(upload->Finish());
  return digest;
}

absl::StatusOr<std::string> BlobStore::Get(const std::string& digest) const {
  XLAD_ASSIGN_OR_RETURN(const std::shared_ptr<RangeReader> reader, OpenBlob(digest));
  return storage::ReadString(*reader, 0, reader->size());
}

absl::StatusOr<std::unique_ptr<BlobStore::Upload>> BlobStore::BeginUpload(const std::string& digest) {
  static std::atomic<int64_t> serial = 0;
  XLAD_RETURN_IF_ERROR(Files::CheckName(digest));
  auto writer =
      storage::ObjectWriter::Create(store_->files(), absl::StrCat(store_->PathOf(digest), "-", serial++, kTemporary));
  if (!writer.ok()) return OfFolder(writer.status());
  return std::make_unique<FileUpload>(store_, digest, *std::move(writer));
}

absl::StatusOr<std::vector<std::string>> BlobStore::List() const {
  XLAD_ASSIGN_OR_RETURN(std::vector<std::string> names, store_->files().List(store_->folder()));
  std::erase_if(names, [](const std::string& name) { return !IsSha256Hex(name); });
  return names;
}

std::shared_ptr<void> BlobStore::Hold(const std::vector<std::string>& digests) {
  store_->Hold(digests);
  return std::shared_ptr<void>(nullptr, [store = store_, digests](void*) { store->Release(digests); });
}

absl::StatusOr<bool> BlobStore::RemoveIfUnused(const std::string& digest, int64_t unused_since_ns) {
  XLAD_RETURN_IF_ERROR(Files::CheckName(digest));
  return store_->RemoveIfUnused(digest, unused_since_ns);
}

absl::StatusOr<int64_t> BlobStore::Collect(const std::function<bool(const std::string& digest)>& is_needed,
                                           int64_t unused_since_ns) {
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> names, store_->files().List(store_->folder()));
  std::set<std::string> unneeded;
  for (const std::string& name : names) {
    const std::string digest = name.substr(0, name.find('.'));
    if (IsSha256Hex(digest) && !is_needed(digest)) unneeded.insert(digest);
  }
  int64_t removed = 0;
  for (const std::string& digest : unneeded) {
    const bool is_blob = Has(digest);
    XLAD_ASSIGN_OR_RETURN(const bool is_gone, store_->RemoveIfUnused(digest, unused_since_ns));
    removed += is_gone && is_blob;
  }
  store_->ForgetUsesBefore(unused_since_ns);
  return removed;
}

}  // namespace xlad::service
