#include "compiler/pipeline.h"

#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/containers.h"
#include "base/file_system.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"

namespace xlad::compiler {
namespace {

constexpr PassEntry kPasses[] = {
#define XLAD_PASS(name, function) {name, function},
#include "compiler/passes/passes.def"
#undef XLAD_PASS
};

absl::Status Dump(const hlo::Module& module, const PipelineOptions& options, size_t number, absl::string_view name) {
  if (options.dump_directory.empty()) return absl::OkStatus();
  const std::string file = absl::StrFormat("%02d.%s.hlo", number, name);
  return RealFileSystem().WriteAtomically(JoinPath(options.dump_directory, file), hlo::PrintText(module));
}

}  // namespace

absl::Span<const PassEntry> PassTable() { return kPasses; }

absl::Status RunPipeline(hlo::Module& module, PassContext& context, const PipelineOptions& options,
                         std::vector<PassTime>* times) {
  if (!options.dump_directory.empty()) {
    XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(options.dump_directory));
  }
  XLAD_RETURN_IF_ERROR(Dump(module, options, 0, "input"));
  size_t number = 0;
  for (const PassEntry& entry : kPasses) {
    ++number;
    const auto names = [&](const std::vector<std::string>& list) { return Contains(list, entry.name); };
    if ((!options.only.empty() && !names(options.only)) || names(options.without)) continue;
    const int64_t start = RealClock().NowNs();
    XLAD_RETURN_IF_ERROR(Annotate(entry.pass(module, context), entry.name));
    if (times != nullptr) times->push_back({entry.name, RealClock().NowNs() - start});
    XLAD_RETURN_IF_ERROR(Dump(module, options, number, entry.name));
    if (options.verify) XLAD_RETURN_IF_ERROR(Annotate(hlo::Verify(module), absl::StrCat("after pass ", entry.name)));
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
