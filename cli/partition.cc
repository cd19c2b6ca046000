#include <cstdio>

#include "absl/strings/match.h"
#include "cli/command.h"
#include "cli/flag_checks.h"
#include "cli/program.h"
#include "hlo/text/text.h"
#include "hlo/wire/proto.h"

namespace xlad::cli {
namespace {

absl::Status WriteProgram(const hlo::Module& module, const std::string& path) {
  if (!absl::EndsWith(path, ".pb")) return WriteOutput(path, hlo::PrintText(module));
  XLAD_ASSIGN_OR_RETURN(const std::string proto, hlo::SerializeProto(module));
  return WriteOutput(path, proto);
}

// The output path of a variant: out.hlo becomes out.1.hlo for the second one.
std::string VariantPath(const std::string& path, size_t variant, size_t variants) {
  if (variants == 1 || path.empty() || path == "-") return path;
  const size_t dot = path.find_first_of('.', path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  const size_t at = dot == std::string::npos ? path.size() : dot;
  return absl::StrCat(path.substr(0, at), ".", variant, path.substr(at));
}

absl::Status RunPartition(const std::string& path, const std::string& mesh, const std::string& output) {
  XLAD_ASSIGN_OR_RETURN(LoadedProgram program, LoadProgram(path, mesh));
  auto result = PartitionProgram(std::move(program));
  if (!result.ok()) return Annotate(result.status(), path);
  for (const std::string& warning : result->partitioned.warnings) {
    std::fprintf(stderr, "xlad: warning: %s\n", warning.c_str());
  }
  const auto& variants = result->partitioned.variants;
  for (size_t v = 0; v < variants.size(); ++v) {
    XLAD_RETURN_IF_ERROR(WriteProgram(*variants[v].module, VariantPath(output, v, variants.size())));
  }
  return absl::OkStatus();
}

}  // namespace

void AddPartition(CLI::App& parent, Action* action) {
  auto path = std::make_shared<std::string>();
  auto mesh = std::make_shared<std::string>();
  auto output = std::make_shared<std::string>();
  CLI::App* app = parent.add_subcommand("partition", "print the program that every device runs");
  app->footer("Examples:\n  xlad partition step.hlo --mesh dp=8\n  xlad partition step.hlo -o partitioned.hlo.pb");
  app->add_option("PROGRAM", *path, "HLO text or proto, a job directory, or - for standard input")->required();
  app->add_option("--mesh", *mesh, "other sizes for the program's mesh axes, such as dp=4,tp=2")->check(MeshAxes());
  app->add_option("-o", *output, "output file; a proto if the name ends in .pb")->check(OutputFile());
  app->callback([=] {
    *action = [=] {
      const absl::Status status = RunPartition(*path, *mesh, *output);
      return status.ok() ? kOk : Fail(status);
    };
  });
}

}  // namespace xlad::cli
