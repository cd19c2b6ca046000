// Writes a file in pieces, and computes its SHA-256 and checksums at the same time. The file appears under its final
// name only when it is complete.
//
//   XLAD_ASSIGN_OR_RETURN(const auto writer, ObjectWriter::Create(files, "folder/x.tmp-1"));
//   XLAD_RETURN_IF_ERROR(writer->Append(piece));                       // Any number of times.
//   XLAD_ASSIGN_OR_RETURN(const ObjectInfo info, writer->Finish());    // The contents are on disk.
//   XLAD_RETURN_IF_ERROR(writer->Publish("folder/x"));                 // The file exists and survives a crash.
#pragma once

#include <memory>
#include <string>

#include "base/file_system.h"
#include "storage/block_sums.h"

namespace xlad::storage {

// Used by one thread.
class ObjectWriter {
 public:
  // `temporary` must be in the folder of the final file, and must not exist. `files` must outlive the writer.
  static absl::StatusOr<std::unique_ptr<ObjectWriter>> Create(FileSystem& files, std::string temporary);
  // Removes the temporary file if it has not been published.
  ~ObjectWriter();
  ObjectWriter(const ObjectWriter&) = delete;
  ObjectWriter& operator=(const ObjectWriter&) = delete;

  absl::Status Append(absl::string_view bytes);
  int64_t bytes() const { return bytes_; }  // The number of bytes appended so far.
  // Syncs the file. Must be called once, after the last Append. If `with_trailer` is true, first appends the checksums
  // to the contents (SumsTrailer).
  absl::StatusOr<ObjectInfo> Finish(bool with_trailer = false);
  // Renames the file to `path`, which is replaced if it exists, and syncs the folder.
  absl::Status Publish(const std::string& path);

 private:
  ObjectWriter(FileSystem& files, std::string temporary, std::unique_ptr<File> file)
      : files_(files), temporary_(std::move(temporary)), file_(std::move(file)) {}

  FileSystem& files_;
  const std::string temporary_;
  std::unique_ptr<File> file_;
  ObjectHasher hasher_;
  int64_t bytes_ = 0;
  bool published_ = false;
};

}  // namespace xlad::storage
