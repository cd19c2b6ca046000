// Finds damage in the write-ahead log of a SQLite database, which SQLite itself takes for the end of the log.
//
// The write-ahead log is a header and a sequence of frames, each with one page of the database. The checksum of a frame
// includes all frames before it (sqlite.org/fileformat2.html, section 4). SQLite reads the transactions before the
// first frame whose checksum differs, and ignores the rest without a message: after a crash, the rest is the
// transaction that was being written. But if a bit has flipped in an older frame, the rest has transactions that were
// synced.
#pragma once

#include <sqlite3.h>

#include "base/status.h"

namespace xlad::service {

// Reads the write-ahead log of the database `db`. This connection must have locked the database, and must not have
// written to it yet. DataLoss names the file and the damaged bytes, if
// - the header is damaged,
// - one bit of a frame is flipped, which a crash hardly ever does, or
// - a frame is damaged, and a complete transaction and a later one follow. A transaction is written only after the one
//   before it has been synced, so this is not the end that a crash leaves.
// Other damage of the last transaction is not found, because a crash can leave the same bytes.
absl::Status CheckWriteAheadLog(sqlite3* db);

}  // namespace xlad::service
