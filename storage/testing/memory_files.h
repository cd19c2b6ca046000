// Files in memory, on a simulated disk that can fail at any operation, for tests. Single-threaded.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "base/file_system.h"

namespace xlad::storage {

// Every operation that changes the disk is counted, except MakeDirectories. After `fail_after` operations, all further
// counted operations fail with `failure`. An Append that fails writes half of its bytes. `Crash` simulates a loss of
// power: half of the bytes that have not been synced are lost. If `lose_names` is set, changes of names in folders that
// have not been synced are lost, too. Reads are counted separately. The first `fail_read_after` reads succeed, the next
// one fails with `read_failure`, and all later ones succeed.
class MemoryFiles final : public FileSystem {
 public:
  int64_t fail_after = INT64_MAX;
  absl::Status failure = absl::ResourceExhaustedError("the disk is full");
  int64_t operations = 0;
  int64_t fail_read_after = INT64_MAX;
  absl::Status read_failure = absl::UnavailableError("Input/output error");
  int64_t reads = 0;
  int64_t free_bytes = int64_t{1} << 40;
  std::function<void()> after_list;     // Called once by the next List, after it has read the names.
  std::function<void()> before_read;    // Called once by the next Read.
  std::function<void()> before_remove;  // Called once by the next Remove.

  // Drops the second half of the bytes of each file that have not been synced. If `lose_names`, each folder has again
  // the files that it had at its last SyncDirectory. Operations that change the disk do not fail afterward.
  void Crash(bool lose_names) {
    if (lose_names) files_ = synced_names_;
    for (auto& [path, file] : files_) file->bytes.resize(file->synced + (file->bytes.size() - file->synced) / 2);
    fail_after = INT64_MAX;
  }
  std::string& BytesOf(const std::string& path) { return files_.at(path)->bytes; }
  std::vector<std::string> Paths() const {
    std::vector<std::string> paths;
    for (const auto& [path, file] : files_) paths.push_back(path);
    return paths;
  }

  absl::StatusOr<std::string> Read(const std::string& path) override {
    if (before_read) std::exchange(before_read, nullptr)();
    XLAD_RETURN_IF_ERROR(CountRead());
    const auto found = files_.find(path);
    if (found == files_.end()) return absl::NotFoundError(absl::StrCat("cannot open ", path));
    return found->second->bytes;
  }
  absl::StatusOr<std::string> ReadRange(const std::string& path, int64_t offset, int64_t size) override {
    XLAD_ASSIGN_OR_RETURN(const std::string bytes, Read(path));
    if (offset + size > std::ssize(bytes)) return absl::DataLossError(absl::StrCat(path, " ends"));
    return bytes.substr(offset, size);
  }
  absl::StatusOr<int64_t> Size(const std::string& path) override {
    XLAD_ASSIGN_OR_RETURN(const std::string bytes, Read(path));
    return std::ssize(bytes);
  }
  absl::Status WriteAtomically(const std::string& path, absl::string_view bytes) override {
    const std::string temporary = path + ".atomic";
    files_.erase(temporary);
    XLAD_ASSIGN_OR_RETURN(const auto file, Open(temporary, OpenMode::kCreate));
    XLAD_RETURN_IF_ERROR(file->Append(bytes));
    XLAD_RETURN_IF_ERROR(file->Sync());
    XLAD_RETURN_IF_ERROR(Rename(temporary, path));
    return SyncDirectory(path.substr(0, path.rfind('/')));
  }
  bool Exists(const std::string& path) override { return files_.contains(path); }
  bool IsDirectory(const std::string& path) override { return folders_.contains(path); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    if (!IsDirectory(path)) return absl::NotFoundError(absl::StrCat("cannot list ", path));
    std::set<std::string> names;
    for (const auto& [file, contents] : files_) AddName(path, file, &names);
    for (const std::string& folder : folders_) AddName(path, folder, &names);
    if (after_list) std::exchange(after_list, nullptr)();
    return std::vector<std::string>(names.begin(), names.end());
  }
  absl::Status MakeDirectories(const std::string& path) override {
    for (size_t at = 1; at != std::string::npos; at = path.find('/', at + 1)) {
      folders_.insert(path.substr(0, path.find('/', at)));
    }
    folders_.insert(path);
    return absl::OkStatus();
  }
  absl::Status Remove(const std::string& path) override {
    if (before_remove) std::exchange(before_remove, nullptr)();
    XLAD_RETURN_IF_ERROR(Count());
    return files_.erase(path) == 1 ? absl::OkStatus() : absl::NotFoundError(absl::StrCat("cannot remove ", path));
  }
  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path, OpenMode mode) override {
    if (mode == OpenMode::kRead) {
      XLAD_RETURN_IF_ERROR(Read(path).status());
      return std::make_unique<MemoryFile>(this, files_.at(path));
    }
    XLAD_RETURN_IF_ERROR(Count());
    if (files_.contains(path)) return absl::AlreadyExistsError(path);
    return std::make_unique<MemoryFile>(this, files_[path] = std::make_shared<Contents>());
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    XLAD_RETURN_IF_ERROR(Count());
    const auto found = files_.find(from);
    if (found == files_.end()) return absl::NotFoundError(from);
    files_[to] = found->second;
    files_.erase(from);
    return absl::OkStatus();
  }
  absl::Status SyncDirectory(const std::string& path) override {
    XLAD_RETURN_IF_ERROR(Count());
    const auto in_folder = [&](const auto& entry) { return entry.first.substr(0, entry.first.rfind('/')) == path; };
    std::erase_if(synced_names_, in_folder);
    for (const auto& entry : files_) {
      if (in_folder(entry)) synced_names_.insert(entry);
    }
    return absl::OkStatus();
  }
  absl::Status RemoveDirectory(const std::string& path) override {
    XLAD_RETURN_IF_ERROR(Count());
    folders_.erase(path);
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> FreeBytes(const std::string&) override { return free_bytes; }

 private:
  struct Contents {
    std::string bytes;
    size_t synced = 0;
  };
  class MemoryFile final : public File {
   public:
    MemoryFile(MemoryFiles* files, std::shared_ptr<Contents> contents)
        : files_(files), contents_(std::move(contents)) {}
    absl::StatusOr<int64_t> Size() const override { return std::ssize(contents_->bytes); }
    absl::Status Read(int64_t offset, absl::Span<std::byte> out) const override {
      XLAD_RETURN_IF_ERROR(files_->CountRead());
      if (offset + std::ssize(out) > std::ssize(contents_->bytes)) return absl::DataLossError("the file ends");
      if (!out.empty()) std::memcpy(out.data(), contents_->bytes.data() + offset, out.size());
      return absl::OkStatus();
    }
    absl::Status Append(absl::string_view bytes) override {
      const absl::Status status = files_->Count();
      contents_->bytes.append(bytes.data(), status.ok() ? bytes.size() : bytes.size() / 2);
      return status;
    }
    absl::Status Sync() override {
      XLAD_RETURN_IF_ERROR(files_->Count());
      contents_->synced = contents_->bytes.size();
      return absl::OkStatus();
    }

   private:
    MemoryFiles* const files_;
    const std::shared_ptr<Contents> contents_;
  };

  absl::Status Count() { return ++operations > fail_after ? failure : absl::OkStatus(); }
  absl::Status CountRead() { return reads++ == fail_read_after ? read_failure : absl::OkStatus(); }
  static void AddName(const std::string& folder, absl::string_view path, std::set<std::string>* names) {
    if (!absl::ConsumePrefix(&path, folder) || !absl::ConsumePrefix(&path, "/")) return;
    names->insert(std::string(path.substr(0, path.find('/'))));
  }

  std::map<std::string, std::shared_ptr<Contents>> files_;
  std::map<std::string, std::shared_ptr<Contents>> synced_names_;
  std::set<std::string> folders_;
};

}  // namespace xlad::storage
