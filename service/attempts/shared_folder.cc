#include "service/attempts/shared_folder.h"

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "storage/checkpoint_index.h"
#include "storage/uri.h"

namespace xlad::service {
namespace {

// The folder of the job's checkpoints, or an empty text if they are not in a shared folder.
std::string FolderOf(const Job& job) {
  const auto root = storage::ParseUri(job.spec.checkpoint().uri());
  if (!root.ok() || root->scheme != storage::Uri::Scheme::kFile) return "";
  return JoinPath(root->rest, job.id.str());
}

// Returns the name "step-...-attempt-..." in the URI of a checkpoint in `folder`, or an empty text for other URIs.
std::string NameIn(const std::string& folder, const std::string& uri) {
  absl::string_view rest = uri;
  if (!absl::ConsumePrefix(&rest, storage::FileUri(folder) + "/")) return "";
  return std::string(rest.substr(0, rest.find('/')));
}

}  // namespace

void RemoveOldFiles(Context& context, const Job& job) {
  RemoveOldCheckpoints removal;
  removal.folder = FolderOf(job);
  if (removal.folder.empty()) return;
  if (!HasEnded(job)) {
    removal.obsolete.step = job.checkpoints.empty() ? 0 : job.checkpoints.back().step;
    removal.obsolete.attempt = job.attempt;
  }
  for (const Checkpoint& checkpoint : job.checkpoints) {
    removal.obsolete.keep.insert(NameIn(removal.folder, checkpoint.uri));
  }
  for (const std::string& uri : job.damaged) removal.obsolete.keep.insert(NameIn(removal.folder, uri));
  for (const std::string& uri : context.jobs.ResumedIn(storage::FileUri(removal.folder))) {
    removal.obsolete.keep.insert(NameIn(removal.folder, uri));
  }
  context.effects.actions.push_back(std::move(removal));
}

void RemoveFilesIfEnded(Context& context, const JobId& id) {
  const Job* const job = context.jobs.Find(id);
  if (job != nullptr && HasEnded(*job)) RemoveOldFiles(context, *job);
}

void DropResumed(Context& context, const Job& job) {
  // The URI is "file:ROOT/OWNER/step-...", or the URI of the index in that folder.
  const std::string uri(absl::StripSuffix(job.resumed.uri, absl::StrCat("/", storage::kIndexFileName)));
  const std::vector<absl::string_view> parts = absl::StrSplit(uri, '/');
  if (parts.size() < 3 || !absl::StartsWith(uri, "file:")) return;
  const Job* owner = context.jobs.Find(JobId(std::string(parts[parts.size() - 2])));
  if (owner == nullptr || NameIn(FolderOf(*owner), uri) != parts.back()) return;
  if (owner->HasCheckpoint(uri) || context.jobs.IsResumed(uri)) return;
  context.effects.actions.push_back(DropCheckpoint{uri});
}

}  // namespace xlad::service
