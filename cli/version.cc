#include <cstdio>

#include "cli/command.h"

namespace xlad::cli {

void AddVersion(CLI::App& parent, Action* action) {
  CLI::App* app = parent.add_subcommand("version", "print the version");
  app->callback([action] {
    *action = [] {
      std::printf("xlad %s\n", XLAD_VERSION);
      return kOk;
    };
  });
}

}  // namespace xlad::cli
